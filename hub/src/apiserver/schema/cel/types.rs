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
#[derive(Debug, Clone, Default)]
pub(super) struct Known(HashMap<Arc<str>, Type>);

impl Known {
    pub(super) fn add(&mut self, free: Arc<str>, is: Type) {
        self.0.insert(free, is);
    }

    fn find(&self, of: &Type) -> Option<&Type> {
        match of {
            Type::Free(name) => self.0.get(name),
            _ => None,
        }
    }

    /// The type with all that is known in its place; what is not, stays or becomes `dyn`.
    pub(super) fn applied(&self, of: &Type, settled: bool) -> Type {
        if let Some(found) = self.find(of) {
            return self.applied(found, settled);
        }
        match of {
            Type::Free(_) if settled => Type::Dyn,
            Type::List(of) => Type::list(self.applied(of, settled)),
            Type::Meta(of) => Type::of_type(self.applied(of, settled)),
            Type::Map(of) => Type::map(self.applied(&of.0, settled), self.applied(&of.1, settled)),
            Type::Opaque(name, of) => {
                let of = of.iter().map(|of| self.applied(of, settled));
                Type::Opaque(name.clone(), of.collect())
            }
            other => other.clone(),
        }
    }

    /// Whether each of `from` may be given where one of `to` is wanted; learns from it if so.
    pub(super) fn fit_all(&mut self, from: &[Type], to: &[Type]) -> bool {
        let mut trial = self.clone();
        let fits = trial.lists(from.iter().collect(), to.iter().collect());
        if fits {
            *self = trial;
        }
        fits
    }

    /// Whether `from` fits `to`; learns from it if so.
    pub(super) fn fit(&mut self, from: &Type, to: &Type) -> bool {
        let mut trial = self.clone();
        let fits = trial.one(from, to);
        if fits {
            *self = trial;
        }
        fits
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

    /// Whether a free type does not occur in another.
    fn is_apart(&self, free: &Type, within: &Type) -> bool {
        if free == within {
            return false;
        }
        match within {
            Type::Free(_) => self
                .find(within)
                .is_none_or(|known| self.is_apart(free, known)),
            other => other.parts().into_iter().all(|of| self.is_apart(free, of)),
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
