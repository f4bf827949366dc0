//! What calls give: operators, and the few functions that the library lacks.

use super::{Stop, invalid};
use crate::apiserver::schema::cel::check::Checked;
use crate::apiserver::schema::cel::syntax::{Kind, Node};
use kube_cel::cel::common::ast::{CallExpr, Expr, IdedExpr};
use kube_cel::cel::objects::{Key, Map, OptionalValue};
use kube_cel::cel::{ExecutionError, Value as Cel};
use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Variables of a call of the library: what it is called on, if anything, and its arguments.
pub(super) const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

type Told = Result<Cel, Stop>;

/// Makes the calls of all functions below a node.
pub(super) fn prepare(node: &Node, checked: &Checked, all: &mut HashMap<usize, IdedExpr>) {
    if let Kind::Call {
        target,
        function,
        arguments,
    } = &node.kind
    {
        let whole = checked.namespaced(node);
        let count = usize::from(target.is_some() && whole.is_none()) + arguments.len();
        let mut given = NAMES.iter().take(count).map(|name| IdedExpr {
            id: 0,
            expr: Expr::Ident((*name).to_owned()),
        });
        let called_on = target.as_ref().filter(|_| whole.is_none());
        let target = called_on.and_then(|_| given.next()).map(Box::new);
        let name: &str = whole.unwrap_or(function);
        let call = CallExpr {
            func_name: name.strip_prefix('.').unwrap_or(name).to_owned(),
            target,
            args: given.collect(),
        };
        let expr = Expr::Call(call);
        all.insert(node.id, IdedExpr { id: 0, expr });
    }
    for below in node.children() {
        prepare(below, checked, all);
    }
}

fn fault(text: &str) -> Stop {
    Stop::Error(text.to_owned())
}

/// An error of the library in the reference's words.
pub(super) fn words(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::NoSuchOverload => "no such overload".to_owned(),
        ExecutionError::FunctionError { message, .. } => message.clone(),
        other => other.to_string(),
    }
}

/// Whether a value is one of a set; whole numbers are whatever their kind.
pub(super) fn is_in(set: &HashSet<Key>, one: &Cel) -> bool {
    let has = |key: Option<Key>| key.is_some_and(|key| set.contains(&key));
    match one {
        Cel::Int(number) => {
            set.contains(&Key::Int(*number)) || has(u64::try_from(*number).ok().map(Key::Uint))
        }
        Cel::UInt(number) => {
            set.contains(&Key::Uint(*number)) || has(i64::try_from(*number).ok().map(Key::Int))
        }
        Cel::Float(number) => set.iter().any(|key| Cel::from(key) == Cel::Float(*number)),
        other => has(key(other).ok()),
    }
}

/// What an optional holds, if it is one.
pub(super) fn held(value: &Cel) -> Option<Option<&Cel>> {
    match value {
        Cel::Opaque(opaque) => {
            let optional = opaque.downcast_ref::<OptionalValue>()?;
            Some(optional.value())
        }
        _ => None,
    }
}

fn optional(value: Option<Cel>) -> Cel {
    let optional = value.map_or_else(OptionalValue::none, OptionalValue::of);
    Cel::Opaque(Arc::new(optional))
}

pub(super) fn key(value: &Cel) -> Result<Key, Stop> {
    Ok(match value {
        Cel::Int(number) => Key::Int(*number),
        Cel::UInt(number) => Key::Uint(*number),
        Cel::Bool(set) => Key::Bool(*set),
        Cel::String(text) => Key::String(text.clone()),
        _ => return Err(fault("unsupported key type")),
    })
}

/// A value of a map; a whole number finds its kin.
fn found<'a>(map: &'a Map, index: &Cel) -> Option<&'a Cel> {
    let direct = key(index).ok().and_then(|key| map.map.get(&key));
    direct.or_else(|| match index {
        Cel::Int(number) => map.map.get(&Key::Uint(u64::try_from(*number).ok()?)),
        Cel::UInt(number) => map.map.get(&Key::Int(i64::try_from(*number).ok()?)),
        Cel::Float(number) => {
            let mut all = map.map.iter();
            all.find_map(|(key, value)| (Cel::from(key) == Cel::Float(*number)).then_some(value))
        }
        _ => None,
    })
}

fn shown(value: &Cel) -> String {
    match value {
        Cel::String(text) => text.to_string(),
        Cel::Int(number) => number.to_string(),
        Cel::UInt(number) => number.to_string(),
        Cel::Bool(set) => set.to_string(),
        Cel::Float(number) => number.to_string(),
        other => type_name(other).to_owned(),
    }
}

pub(super) fn field_of(operand: &Cel, field: &Arc<str>) -> Told {
    let name = Cel::String(Arc::new(field.to_string()));
    match operand {
        Cel::Map(_) | Cel::Opaque(_) => {
            // A word that means something to CEL is another name of its field.
            let quoted = Cel::String(Arc::new(format!("__{field}__")));
            match indexed(operand, &name, false) {
                Err(error) => indexed(operand, &quoted, false).map_err(|_| error),
                told => told,
            }
        }
        _ => Err(fault("no such overload")),
    }
}

/// Whether a field is there.
pub(super) fn there(operand: &Cel, field: &Arc<str>) -> Told {
    match operand {
        Cel::Map(map) => {
            let quoted = Key::String(Arc::new(format!("__{field}__")));
            let name = Key::String(Arc::new(field.to_string()));
            let found = map.map.get(&name).or_else(|| map.map.get(&quoted));
            match found.and_then(invalid::error) {
                Some(error) => Err(error),
                None => Ok(Cel::Bool(found.is_some())),
            }
        }
        other => match held(other) {
            Some(Some(inner)) => there(inner, field),
            Some(None) => Ok(Cel::Bool(false)),
            None => Err(fault("no such overload")),
        },
    }
}

/// What stands at an index; `maybe` makes it one that may be nothing, as does an optional operand.
pub(super) fn indexed(operand: &Cel, index: &Cel, maybe: bool) -> Told {
    if let Some(inner) = held(operand) {
        return match inner {
            Some(inner) => indexed(inner, index, true),
            None => Ok(optional(None)),
        };
    }
    let (value, why) = match operand {
        Cel::List(list) => {
            let at = match index {
                Cel::Int(at) => usize::try_from(*at).ok(),
                Cel::UInt(at) => usize::try_from(*at).ok(),
                Cel::Float(at) if at.fract() == 0.0 && *at >= 0.0 => {
                    format!("{at:.0}").parse().ok()
                }
                _ => return Err(fault("no such overload")),
            };
            let value = at.and_then(|at| list.get(at));
            (value, format!("index out of bounds: {}", shown(index)))
        }
        Cel::Map(map) => (found(map, index), format!("no such key: {}", shown(index))),
        _ => return Err(fault("no such overload")),
    };
    if let Some(error) = value.and_then(invalid::error) {
        return Err(error);
    }
    match (value, maybe) {
        (value, true) => Ok(optional(value.cloned())),
        (Some(value), false) => Ok(value.clone()),
        (None, false) => Err(Stop::Error(why)),
    }
}

/// Puts a key and a value, or all of another map, to a map.
pub(super) fn inserted(map: &mut HashMap<Key, Cel>, more: &[Cel]) -> Result<(), Stop> {
    let mut put = |key: Key, value: Cel| match map.insert(key.clone(), value) {
        None => Ok(()),
        Some(_) => {
            let key = shown(&Cel::from(&key));
            Err(Stop::Error(format!(
                "insert failed: key {key} already exists"
            )))
        }
    };
    match more {
        [one, value] => put(key(one)?, value.clone()),
        [Cel::Map(other)] => {
            let mut all = other.map.iter();
            all.try_for_each(|(key, value)| put(key.clone(), value.clone()))
        }
        _ => Err(fault("no such overload")),
    }
}

/// A type by its name. No value is one otherwise, for functions are no values.
pub(super) fn type_named(name: &str) -> Option<Cel> {
    let name = match name {
        "bool"
        | "bytes"
        | "double"
        | "int"
        | "list"
        | "map"
        | "null_type"
        | "string"
        | "type"
        | "uint"
        | "optional_type"
        | "net.IP"
        | "net.CIDR"
        | "kubernetes.Quantity"
        | "kubernetes.URL"
        | "kubernetes.Semver"
        | "kubernetes.NamedFormat" => name,
        "duration" | "google.protobuf.Duration" => "google.protobuf.Duration",
        "timestamp" | "google.protobuf.Timestamp" => "google.protobuf.Timestamp",
        _ => return None,
    };
    Some(Cel::Function(Arc::new(name.to_owned()), None))
}

fn type_of(value: &Cel) -> Cel {
    Cel::Function(Arc::new(type_name(value).to_owned()), None)
}

fn type_name(value: &Cel) -> &str {
    match value {
        Cel::List(_) => "list",
        Cel::Map(_) => "map",
        Cel::Function(..) => "type",
        Cel::Int(_) => "int",
        Cel::UInt(_) => "uint",
        Cel::Float(_) => "double",
        Cel::String(_) => "string",
        Cel::Bytes(_) => "bytes",
        Cel::Bool(_) => "bool",
        Cel::Duration(_) => "google.protobuf.Duration",
        Cel::Timestamp(_) => "google.protobuf.Timestamp",
        Cel::Null => "null_type",
        Cel::Opaque(opaque) if opaque.downcast_ref::<OptionalValue>().is_some() => "optional_type",
        Cel::Opaque(opaque) => opaque.runtime_type_name(),
    }
}

/// Operators, and functions that only this knows; nothing if the library has it.
pub(super) fn known(function: &str, values: &[Cel]) -> Option<Told> {
    Some(match (function, values) {
        ("_==_", [a, b]) => Ok(Cel::Bool(a == b)),
        ("_!=_", [a, b]) => Ok(Cel::Bool(a != b)),
        ("_<_", [a, b]) => ordered(a, b, &[Ordering::Less]),
        ("_<=_", [a, b]) => ordered(a, b, &[Ordering::Less, Ordering::Equal]),
        ("_>_", [a, b]) => ordered(a, b, &[Ordering::Greater]),
        ("_>=_", [a, b]) => ordered(a, b, &[Ordering::Greater, Ordering::Equal]),
        ("_+_" | "_-_" | "_*_" | "_/_" | "_%_", [a, b]) => super::numbers::of(function, a, b),
        ("!_", [Cel::Bool(set)]) => Ok(Cel::Bool(!set)),
        ("-_", [Cel::Float(number)]) => Ok(Cel::Float(-number)),
        ("-_", [Cel::Int(number)]) => {
            let negative = number.checked_neg().map(Cel::Int);
            negative.ok_or_else(|| fault("integer overflow"))
        }
        ("@in", [one, Cel::List(list)]) => Ok(Cel::Bool(list.contains(one))),
        ("@in", [one, Cel::Map(map)]) => Ok(Cel::Bool(found(map, one).is_some())),
        ("size", [Cel::String(text)]) => Ok(counted(text.chars().count())),
        ("size", [Cel::List(list)]) => Ok(counted(list.len())),
        ("size", [Cel::Map(map)]) => Ok(counted(map.map.len())),
        ("size", [Cel::Bytes(bytes)]) => Ok(counted(bytes.len())),
        ("type", [value]) => Ok(type_of(value)),
        ("dyn", [value]) => Ok(value.clone()),
        ("bool", [Cel::Bool(set)]) => Ok(Cel::Bool(*set)),
        ("bool", [Cel::String(text)]) => match text.as_str() {
            "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(Cel::Bool(true)),
            "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(Cel::Bool(false)),
            _ => Err(fault("type conversion error from 'string' to 'bool'")),
        },
        ("startsWith", [Cel::String(a), Cel::String(b)]) => {
            Ok(Cel::Bool(a.starts_with(b.as_str())))
        }
        ("endsWith", [Cel::String(a), Cel::String(b)]) => Ok(Cel::Bool(a.ends_with(b.as_str()))),
        ("contains", [Cel::String(a), Cel::String(b)]) => Ok(Cel::Bool(a.contains(b.as_str()))),
        // It holds the very value, which may be a list that is more than a list.
        ("optional.of", [value]) => Ok(optional(Some(value.clone()))),
        ("optional.ofNonZeroValue", [value]) => {
            Ok(optional(Some(value).filter(|v| !is_zero(v)).cloned()))
        }
        ("optional.unwrap" | "unwrapOpt", [Cel::List(list)]) => {
            let held = list.iter().filter_map(|one| held(one).flatten().cloned());
            Ok(Cel::List(Arc::new(held.collect())))
        }
        ("first", [Cel::List(list)]) => Ok(optional(list.first().cloned())),
        ("last", [Cel::List(list)]) => Ok(optional(list.last().cloned())),
        ("value", [one]) => match held(one) {
            Some(Some(value)) => Ok(value.clone()),
            Some(None) => Err(fault("optional.none() dereference")),
            None => Err(fault("no such overload")),
        },
        ("@sortByAssociatedKeys", [Cel::List(list), Cel::List(keys)]) => sorted(list, keys),
        ("sort", [Cel::List(list)]) => sorted(list, list),
        _ if function.starts_with(['_', '!', '-', '@']) => Err(fault("no such overload")),
        _ => return None,
    })
}

/// A list in the order of other values, which are all of one type.
fn sorted(list: &[Cel], keys: &[Cel]) -> Told {
    let Some(first) = keys.first() else {
        return Ok(Cel::List(Arc::new(Vec::new())));
    };
    let comparable = |key: &Cel| {
        let ordered =
            matches!(key, Cel::Bytes(_) | Cel::Float(_)) || key.partial_cmp(key).is_some();
        ordered && type_name(key) == type_name(first)
    };
    if !keys.iter().all(comparable) {
        return Err(fault("no such overload"));
    }
    let mut pairs: Vec<(&Cel, &Cel)> = keys.iter().zip(list).collect();
    pairs.sort_by(|(a, _), (b, _)| match (a, b) {
        // What is no number comes last.
        (Cel::Float(a), Cel::Float(b)) => a.is_nan().cmp(&b.is_nan()).then(a.total_cmp(b)),
        (Cel::Bytes(a), Cel::Bytes(b)) => a.cmp(b),
        (a, b) => a.partial_cmp(b).unwrap_or(Ordering::Equal),
    });
    let sorted = pairs.into_iter().map(|(_, one)| one.clone());
    Ok(Cel::List(Arc::new(sorted.collect())))
}

pub(super) fn text(text: &str) -> Cel {
    Cel::String(Arc::new(text.to_owned()))
}

pub(super) fn counted(count: usize) -> Cel {
    Cel::Int(i64::try_from(count).unwrap_or(i64::MAX))
}

fn is_zero(value: &Cel) -> bool {
    match value {
        Cel::Null => true,
        Cel::Bool(set) => !set,
        Cel::Int(number) => *number == 0,
        Cel::UInt(number) => *number == 0,
        Cel::Float(number) => *number == 0.0,
        Cel::String(text) => text.is_empty(),
        Cel::Bytes(bytes) => bytes.is_empty(),
        Cel::List(list) => list.is_empty(),
        Cel::Map(map) => map.map.is_empty(),
        Cel::Duration(duration) => duration.is_zero(),
        _ => false,
    }
}

fn ordered(a: &Cel, b: &Cel, wanted: &[Ordering]) -> Told {
    let order = match (a, b) {
        (Cel::Bytes(a), Cel::Bytes(b)) => Some(a.cmp(b)),
        (Cel::Float(a), _) if a.is_nan() => return Ok(Cel::Bool(false)),
        (_, Cel::Float(b)) if b.is_nan() => return Ok(Cel::Bool(false)),
        (a, b) => a.partial_cmp(b),
    };
    let order = order.ok_or_else(|| fault("no such overload"))?;
    Ok(Cel::Bool(wanted.contains(&order)))
}
