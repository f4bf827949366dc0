//! Where an object lies within its resource, and which part of a resource a watcher follows.

use std::cmp::Ordering;
use std::fmt;

/// Namespace and name of an object; ordered as the API lists objects.
///
/// Kept as one string, `namespace/name` (`/name` for what has no namespace), for that is the order
/// of the real server's keys: `a-b/x` comes before `a/x`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Box<str>);

impl Key {
    /// The key of an object; `namespace` is empty for what has none.
    pub fn new(namespace: &str, name: &str) -> Self {
        let mut joined = String::with_capacity(namespace.len() + 1 + name.len());
        joined.push_str(namespace);
        joined.push('/');
        joined.push_str(name);
        Self(joined.into_boxed_str())
    }

    /// The key of an object that has no namespace.
    pub fn cluster(name: &str) -> Self {
        Self::new("", name)
    }

    /// The namespace; empty for what has none.
    pub fn namespace(&self) -> &str {
        split(&self.0).0
    }

    /// The name.
    pub fn name(&self) -> &str {
        split(&self.0).1
    }

    /// Namespace and name as they are ordered.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.strip_prefix('/').unwrap_or(&self.0))
    }
}

/// A joined key in its two parts. No namespace holds a slash.
pub(super) fn split(joined: &str) -> (&str, &str) {
    joined.split_once('/').unwrap_or(("", joined))
}

/// Where a joined key lies relative to the objects of a namespace.
pub(super) fn against_namespace(joined: &[u8], namespace: &str) -> Ordering {
    let wanted = namespace.as_bytes();
    match joined.get(..=wanted.len()) {
        Some([start @ .., b'/']) if start == wanted => Ordering::Equal,
        _ => joined.iter().cmp(wanted.iter().chain(b"/")),
    }
}

/// The part of a resource that a watcher follows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Every object.
    All,
    /// The objects of one namespace.
    Namespace(Box<str>),
    /// One object.
    Object(Key),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_that_of_the_joined_string() {
        let mut keys = [
            Key::new("a", "x"),
            Key::new("a-b", "x"),
            Key::new("a", "b"),
            Key::new("b", "a"),
        ];
        keys.sort();
        let shown: Vec<_> = keys.iter().map(Key::to_string).collect();
        assert_eq!(shown, ["a-b/x", "a/b", "a/x", "b/a"]);
        assert_eq!(Key::cluster("n:1").name(), "n:1");
        assert_eq!(Key::cluster("n").namespace(), "");
        assert_eq!(Key::cluster("n").to_string(), "n");
        assert_eq!(Key::new("ns", "n").namespace(), "ns");
    }

    #[test]
    fn a_namespace_is_one_range() {
        for (joined, order) in [
            ("a-b/x", Ordering::Less),
            ("a/", Ordering::Equal),
            ("a/x", Ordering::Equal),
            ("ab/x", Ordering::Greater),
            ("b/x", Ordering::Greater),
            ("/x", Ordering::Less),
        ] {
            assert_eq!(against_namespace(joined.as_bytes(), "a"), order, "{joined}");
        }
        assert_eq!(against_namespace(b"/x", ""), Ordering::Equal);
    }
}
