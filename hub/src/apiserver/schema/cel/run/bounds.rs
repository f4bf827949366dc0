//! How much a call may go through and make. What it costs bounds neither: values may stand in many places
//! at once, and some calls cost the same however large their values are.

use super::Stop;
use super::calls::held;
use kube_cel::cel::Value as Cel;

/// How much text the rules of one object may go through: so many times `PIECE` bytes.
pub(in crate::apiserver::schema::cel) const MOST_WORK: usize = 1_000_000;
const PIECE: usize = 4096;
/// No text becomes longer, nor a list made of nothing.
const LONGEST_TEXT: usize = 64 * 1024 * 1024;
const LONGEST_RANGE: i64 = 1_000_000;
/// Nor is a number written with more digits.
const MOST_DIGITS: usize = 1000;
/// What a value counts for besides its text, and what one counts for that takes up room anew.
const VALUE: usize = 64;
const MADE: usize = 256;
/// Text that is made is so much dearer than text that is there.
const MADE_TEXT: usize = 16;

/// Functions that look at a list or a map, and not at what is in it.
const SHALLOW: [&str; 14] = [
    "cel.@mapInsert",
    "dyn",
    "first",
    "hasValue",
    "last",
    "optional.of",
    "optional.ofNonZeroValue",
    "optional.unwrap",
    "reverse",
    "size",
    "slice",
    "type",
    "unwrapOpt",
    "value",
];

/// What the rules of one object may still do.
#[derive(Debug)]
pub(in crate::apiserver::schema::cel) struct Work(usize);

impl Work {
    pub(in crate::apiserver::schema::cel) const fn new() -> Self {
        Self::of(MOST_WORK)
    }

    pub(super) const fn of(most: usize) -> Self {
        Self(most)
    }

    fn take(&mut self, bytes: usize) -> Result<(), Stop> {
        self.0 = self.0.checked_sub(bytes / PIECE).ok_or(Stop::Cost)?;
        Ok(())
    }

    /// Before a call is made.
    pub(super) fn call(&mut self, function: &str, values: &[Cel]) -> Result<(), Stop> {
        let most = self.0.saturating_mul(PIECE).saturating_add(PIECE);
        let whole = match (function, values) {
            ("@in", [_, Cel::Map(_)]) | ("_+_", _) => false,
            _ => !SHALLOW.contains(&function),
        };
        let mut left = most;
        for value in values {
            weigh(value, whole, &mut left)?;
        }
        let once = most - left;
        let length = |at: usize| match values.get(at) {
            Some(Cel::String(text)) => text.len(),
            Some(Cel::List(list)) => list.len(),
            _ => 0,
        };
        let made = match function {
            "replace" => (length(0) + 1).saturating_mul(length(2) + 1),
            "join" => once.saturating_add(length(0).saturating_mul(length(1))),
            "format" | "string" => once,
            "lists.range" => match values {
                [Cel::Int(count)] if *count > LONGEST_RANGE => usize::MAX,
                _ => 0,
            },
            _ => 0,
        };
        if made > LONGEST_TEXT {
            return Err(Stop::Cost);
        }
        if function == "format"
            && let Some(Cel::String(text)) = values.first()
            && digits(text) > MOST_DIGITS
        {
            let why = format!("a number has at most {MOST_DIGITS} digits after its point");
            return Err(Stop::Error(why));
        }
        // What is compared with each of many is gone through as often.
        let times = match function {
            "distinct" => length(0),
            "sets.contains" | "sets.equivalent" | "sets.intersects" => length(0).max(length(1)),
            "flatten" => MADE / VALUE,
            _ => 1,
        };
        let joined = match (function, values) {
            ("_+_", [Cel::List(a), Cel::List(b)]) => (a.len() + b.len()).saturating_mul(MADE),
            _ => 0,
        };
        self.take(once.saturating_mul(times).saturating_add(joined))
    }

    /// After it was made.
    pub(super) fn made(&mut self, result: &Cel) -> Result<(), Stop> {
        match result {
            Cel::String(text) => self.take(text.len().saturating_mul(MADE_TEXT)),
            Cel::Bytes(bytes) => self.take(bytes.len().saturating_mul(MADE_TEXT)),
            _ => Ok(()),
        }
    }

    /// Before the keys of a map are put in order.
    pub(super) fn order(&mut self, keys: usize) -> Result<(), Stop> {
        self.take(keys.saturating_mul(VALUE))
    }

    /// Before a pattern is read that takes so many bytes.
    pub(super) fn pattern(&mut self, bytes: usize) -> Result<(), Stop> {
        self.take(bytes)
    }
}

/// Takes off what a value weighs; one that stands in it twice weighs twice.
fn weigh(value: &Cel, whole: bool, left: &mut usize) -> Result<(), Stop> {
    let own = match value {
        Cel::String(text) => text.len(),
        Cel::Bytes(bytes) => bytes.len(),
        _ => 0,
    };
    *left = left.checked_sub(own + VALUE).ok_or(Stop::Cost)?;
    if !whole {
        return Ok(());
    }
    match value {
        Cel::List(list) => list.iter().try_for_each(|one| weigh(one, whole, left)),
        Cel::Map(map) => map.map.iter().try_for_each(|(key, one)| {
            weigh(&Cel::from(key), whole, left)?;
            weigh(one, whole, left)
        }),
        other => match held(other) {
            Some(Some(inner)) => weigh(inner, whole, left),
            _ => Ok(()),
        },
    }
}

/// The most digits after a point that a format asks for.
fn digits(format: &str) -> usize {
    let asked = format.split("%.").skip(1).map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_digit());
        let digits = &rest[..end.unwrap_or(rest.len())];
        match digits {
            "" => 0,
            digits => digits.parse().unwrap_or(usize::MAX),
        }
    });
    asked.max().unwrap_or(0)
}
