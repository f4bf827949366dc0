//! Types of expressions, and which of them fit which.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Type {
    /// Of what is wrong already, which fits everything.
    Error,
    Dyn,
    Null,
    Bool,
    Bytes,
    Double,
    Duration,
    Int,
    Text,
    Timestamp,
    Uint,
    List(Arc<Type>),
    Map(Arc<(Type, Type)>),
    /// The type of a type.
    Meta(Arc<Type>),
    /// A kind of value that only functions know.
    Opaque(Arc<str>, Vec<Type>),
    /// An object with known fields, by its name.
    Object(Arc<str>),
    /// Not known yet.
    Free(Arc<str>),
}

/// A map of maps to maps doubles with each.
const MOST_PARTS: usize = 1000;
/// So much is told of a type; the rest may be anything.
const MOST_APPLIED: usize = 10_000;

pub(super) const OPTIONAL: &str = "optional_type";

impl Type {
    pub(super) fn list(of: Self) -> Self {
        Self::List(Arc::new(of))
    }

    pub(super) fn map(key: Self, value: Self) -> Self {
        Self::Map(Arc::new((key, value)))
    }

    pub(super) fn of_type(of: Self) -> Self {
        Self::Meta(Arc::new(of))
    }

    pub(super) fn optional(of: Self) -> Self {
        Self::Opaque(OPTIONAL.into(), vec![of])
    }

    /// What an optional may hold; and whether it was one.
    pub(super) fn unwrapped(&self) -> (&Self, bool) {
        match self {
            Self::Opaque(name, of) if &**name == OPTIONAL => match of.first() {
                Some(of) => (of, true),
                None => (self, false),
            },
            other => (other, false),
        }
    }

    pub(super) fn is_dyn_or_error(&self) -> bool {
        matches!(self, Self::Dyn | Self::Error)
    }

    /// Of one size, whatever its value.
    pub(super) fn is_scalar(&self) -> bool {
        match self {
            Self::Bool
            | Self::Double
            | Self::Duration
            | Self::Int
            | Self::Timestamp
            | Self::Uint => true,
            other => match other.unwrapped() {
                (of, true) => of.is_scalar(),
                _ => false,
            },
        }
    }

    /// Whether it has more parts than any that somebody would write.
    pub(super) fn is_huge(&self) -> bool {
        fn count(of: &Type, left: &mut usize) -> bool {
            *left = left.saturating_sub(1);
            *left > 0 && of.parts().into_iter().all(|part| count(part, left))
        }
        let mut left = MOST_PARTS;
        !count(self, &mut left)
    }

    fn parts(&self) -> Vec<&Self> {
        match self {
            Self::List(of) | Self::Meta(of) => vec![of],
            Self::Map(of) => vec![&of.0, &of.1],
            Self::Opaque(_, of) => of.iter().collect(),
            _ => Vec::new(),
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self {
            Self::Error => "!error!",
            Self::Dyn => "dyn",
            Self::Null => "null",
            Self::Bool => "bool",
            Self::Bytes => "bytes",
            Self::Double => "double",
            Self::Duration => "duration",
            Self::Int => "int",
            Self::Text => "string",
            Self::Timestamp => "timestamp",
            Self::Uint => "uint",
            Self::List(of) => return write!(f, "list({of})"),
            Self::Map(of) => return write!(f, "map({}, {})", of.0, of.1),
            Self::Meta(of) => return write!(f, "type({of})"),
            Self::Object(name) | Self::Free(name) => name,
            Self::Opaque(name, of) if of.is_empty() => name,
            Self::Opaque(name, of) => {
                let of: Vec<String> = of.iter().map(ToString::to_string).collect();
                return write!(f, "{name}({})", of.join(", "));
            }
        };
        f.write_str(word)
    }
}

/// What free types turned out to be.
#[derive(Debug, Default)]
pub(super) struct Known {
    of: HashMap<Arc<str>, Type>,
    /// What was known before, while it is not clear whether something fits.
    before: Vec<(Arc<str>, Option<Type>)>,
}

impl Known {
    fn add(&mut self, free: Arc<str>, is: Type) {
        let before = self.of.insert(free.clone(), is);
        self.before.push((free, before));
    }

    /// Learns from what is tried, if it succeeds.
    fn tried(&mut self, fits: impl FnOnce(&mut Self) -> bool) -> bool {
        self.before.clear();
        let fits = fits(self);
        while let Some((free, before)) = self.before.pop() {
            match before {
                _ if fits => {}
                Some(before) => drop(self.of.insert(free, before)),
                None => drop(self.of.remove(&free)),
            }
        }
        fits
    }

    fn find(&self, of: &Type) -> Option<&Type> {
        match of {
            Type::Free(name) => self.of.get(name),
            _ => None,
        }
    }

    /// The type with all that is known in its place; what is not, stays or becomes `dyn`.
    pub(super) fn applied(&self, of: &Type, settled: bool) -> Type {
        let mut left = MOST_APPLIED;
        self.applied_in(of, settled, &mut left)
    }

    fn applied_in(&self, of: &Type, settled: bool, left: &mut usize) -> Type {
        *left = left.saturating_sub(1);
        if *left == 0 {
            return Type::Dyn;
        }
        if let Some(found) = self.find(of) {
            return self.applied_in(found, settled, left);
        }
        match of {
            Type::Free(_) if settled => Type::Dyn,
            Type::List(of) => Type::list(self.applied_in(of, settled, left)),
            Type::Meta(of) => Type::of_type(self.applied_in(of, settled, left)),
            Type::Map(of) => {
                let key = self.applied_in(&of.0, settled, left);
                Type::map(key, self.applied_in(&of.1, settled, left))
            }
            Type::Opaque(name, of) => {
                let of = of.iter().map(|of| self.applied_in(of, settled, left));
                Type::Opaque(name.clone(), of.collect())
            }
            other => other.clone(),
        }
    }

    /// Whether each of `from` may be given where one of `to` is wanted; learns from it if so.
    pub(super) fn fit_all(&mut self, from: &[Type], to: &[Type]) -> bool {
        self.tried(|known| known.lists(from.iter().collect(), to.iter().collect()))
    }

    /// Whether `from` fits `to`; learns from it if so.
    pub(super) fn fit(&mut self, from: &Type, to: &Type) -> bool {
        self.tried(|known| known.one(from, to))
    }

    fn lists(&mut self, from: Vec<&Type>, to: Vec<&Type>) -> bool {
        from.len() == to.len()
            && from
                .into_iter()
                .zip(to)
                .all(|(from, to)| self.one(from, to))
    }

    fn one(&mut self, from: &Type, to: &Type) -> bool {
        if matches!(to, Type::Free(_)) {
            match self.stands_for(from, to) {
                (true, _) => return true,
                (false, true) => return false,
                (false, false) => {}
            }
        }
        if matches!(from, Type::Free(_)) {
            return self.stands_for(to, from).0;
        }
        if from.is_dyn_or_error() || to.is_dyn_or_error() {
            return true;
        }
        let nullable = |of: &Type| {
            matches!(
                of,
                Type::Null | Type::Opaque(..) | Type::Object(_) | Type::Duration | Type::Timestamp
            )
        };
        match (from, to) {
            (Type::Null, other) | (other, Type::Null) => nullable(other),
            (Type::Meta(_), Type::Meta(_)) => true,
            (Type::List(_), Type::List(_)) | (Type::Map(_), Type::Map(_)) => {
                self.lists(from.parts(), to.parts())
            }
            (Type::Opaque(a, _), Type::Opaque(b, _)) => {
                a == b && self.lists(from.parts(), to.parts())
            }
            _ => from == to,
        }
    }

    /// Whether the free type may stand for `is`, and whether it was known to stand for something.
    fn stands_for(&mut self, is: &Type, free: &Type) -> (bool, bool) {
        if is == free {
            return (true, true);
        }
        let Type::Free(name) = free else {
            return (false, false);
        };
        if let Some(known) = self.find(free).cloned() {
            if *is == known {
                return (true, true);
            }
            if !self.one(is, &known) {
                return (false, true);
            }
            let general = more_general(is, &known).clone();
            if self.is_apart(free, &general) {
                self.add(name.clone(), general);
            }
            return (true, true);
        }
        if self.is_apart(free, is) {
            self.add(name.clone(), is.clone());
            return (true, false);
        }
        (false, false)
    }

    /// Whether a free type does not occur in another, which has no more parts than anybody would write.
    fn is_apart(&self, free: &Type, within: &Type) -> bool {
        let mut left = MOST_PARTS;
        self.is_apart_in(free, within, &mut left)
    }

    fn is_apart_in(&self, free: &Type, within: &Type, left: &mut usize) -> bool {
        *left = left.saturating_sub(1);
        if *left == 0 || free == within {
            return false;
        }
        match within {
            Type::Free(_) => self
                .find(within)
                .is_none_or(|known| self.is_apart_in(free, known, left)),
            other => {
                let mut parts = other.parts().into_iter();
                parts.all(|of| self.is_apart_in(free, of, left))
            }
        }
    }
}

/// The one of two fitting types that takes more.
pub(super) fn more_general<'a>(a: &'a Type, b: &'a Type) -> &'a Type {
    if takes_as_much(a, b) { a } else { b }
}

fn takes_as_much(a: &Type, b: &Type) -> bool {
    if matches!(a, Type::Dyn | Type::Free(_)) {
        return true;
    }
    if matches!(b, Type::Dyn | Type::Free(_)) {
        return false;
    }
    let parts = || {
        let (a, b) = (a.parts(), b.parts());
        a.len() == b.len() && a.into_iter().zip(b).all(|(a, b)| takes_as_much(a, b))
    };
    match (a, b) {
        (Type::Opaque(one, _), Type::Opaque(other, _)) => one == other && parts(),
        (Type::List(_), Type::List(_)) | (Type::Map(_), Type::Map(_)) => parts(),
        (Type::Meta(_), Type::Meta(_)) => true,
        _ => a == b,
    }
}
