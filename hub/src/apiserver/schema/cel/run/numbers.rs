//! Sums, products and the rest, of numbers, times, texts and lists.

use super::Stop;
use kube_cel::cel::Value as Cel;
use std::sync::Arc;

type Told = Result<Cel, Stop>;

fn fault(text: &str) -> Stop {
    Stop::Error(text.to_owned())
}

pub(super) fn of(function: &str, a: &Cel, b: &Cel) -> Told {
    match (a, b) {
        (Cel::Int(a), Cel::Int(b)) => whole(function, *a, *b),
        (Cel::UInt(a), Cel::UInt(b)) => natural(function, *a, *b),
        (Cel::Float(a), Cel::Float(b)) => Ok(Cel::Float(match function {
            "_+_" => a + b,
            "_-_" => a - b,
            "_*_" => a * b,
            "_/_" => a / b,
            _ => return Err(fault("no such overload")),
        })),
        _ => other(function, a, b),
    }
}

fn whole(function: &str, a: i64, b: i64) -> Told {
    let result = match function {
        "_+_" => a.checked_add(b),
        "_-_" => a.checked_sub(b),
        "_*_" => a.checked_mul(b),
        "_/_" if b == 0 => return Err(fault("division by zero")),
        "_/_" => a.checked_div(b),
        _ if b == 0 => return Err(fault("modulus by zero")),
        _ => a.checked_rem(b),
    };
    result
        .map(Cel::Int)
        .ok_or_else(|| fault("integer overflow"))
}

fn natural(function: &str, a: u64, b: u64) -> Told {
    let result = match function {
        "_+_" => a.checked_add(b),
        "_-_" => a.checked_sub(b),
        "_*_" => a.checked_mul(b),
        "_/_" if b == 0 => return Err(fault("division by zero")),
        "_/_" => a.checked_div(b),
        _ if b == 0 => return Err(fault("modulus by zero")),
        _ => a.checked_rem(b),
    };
    result
        .map(Cel::UInt)
        .ok_or_else(|| fault("unsigned integer overflow"))
}

fn other(function: &str, a: &Cel, b: &Cel) -> Told {
    let result = match (function, a, b) {
        ("_+_", Cel::String(a), Cel::String(b)) => Some(Cel::String(Arc::new(format!("{a}{b}")))),
        ("_+_", Cel::Bytes(a), Cel::Bytes(b)) => {
            Some(Cel::Bytes(Arc::new([a.as_slice(), b.as_slice()].concat())))
        }
        ("_+_", Cel::List(a), Cel::List(b)) => {
            let all = a.iter().chain(b.iter()).cloned();
            Some(Cel::List(Arc::new(all.collect())))
        }
        ("_+_", Cel::Duration(a), Cel::Duration(b)) => a.checked_add(b).map(Cel::Duration),
        ("_-_", Cel::Duration(a), Cel::Duration(b)) => a.checked_sub(b).map(Cel::Duration),
        ("_+_", Cel::Timestamp(at), Cel::Duration(by))
        | ("_+_", Cel::Duration(by), Cel::Timestamp(at)) => {
            at.checked_add_signed(*by).map(Cel::Timestamp)
        }
        ("_-_", Cel::Timestamp(at), Cel::Duration(by)) => {
            at.checked_sub_signed(*by).map(Cel::Timestamp)
        }
        ("_-_", Cel::Timestamp(a), Cel::Timestamp(b)) => {
            Some(Cel::Duration(a.signed_duration_since(b)))
        }
        _ => return Err(fault("no such overload")),
    };
    result.ok_or_else(|| fault("timestamp overflow"))
}
