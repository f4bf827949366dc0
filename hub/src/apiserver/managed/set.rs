//! Sets of paths to fields, as a tree.

use super::element::Element;
use super::types::Type;
use std::collections::{BTreeMap, BTreeSet};

/// A set of paths. A path may be in it without its parent, and the other way round.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Set {
    /// Steps that are paths of the set by themselves.
    pub(super) members: BTreeSet<Element>,
    /// Steps under which more paths are.
    pub(super) children: BTreeMap<Element, Set>,
}

impl Set {
    /// The set of one path for each list of members.
    pub(super) fn of_fields(paths: &[&[&str]]) -> Self {
        let mut set = Self::default();
        for path in paths {
            let path: Vec<Element> = path.iter().map(|name| Element::field(name)).collect();
            set.insert(&path);
        }
        set
    }

    /// Whether no path is in it.
    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty() && self.children.values().all(Self::is_empty)
    }

    /// Adds a path; the empty one, the whole object, belongs to nobody.
    pub(super) fn insert(&mut self, path: &[Element]) {
        let Some((last, parents)) = path.split_last() else {
            return;
        };
        let mut at = self;
        for step in parents {
            at = at.children.entry(step.clone()).or_default();
        }
        at.members.insert(last.clone());
    }

    /// Whether a path is in it.
    #[cfg(test)]
    pub(super) fn has(&self, path: &[Element]) -> bool {
        match path {
            [] => false,
            [last] => self.members.contains(last),
            [first, rest @ ..] => self.children.get(first).is_some_and(|set| set.has(rest)),
        }
    }

    /// Paths that are in either.
    pub(super) fn union(&self, other: &Self) -> Self {
        let mut union = self.clone();
        union.extend(other);
        union
    }

    /// Adds all paths of another set.
    pub(super) fn extend(&mut self, other: &Self) {
        self.members.extend(other.members.iter().cloned());
        for (step, set) in &other.children {
            self.children.entry(step.clone()).or_default().extend(set);
        }
    }

    /// Paths that are in both.
    pub(super) fn intersection(&self, other: &Self) -> Self {
        let both = self.children.iter().filter_map(|(step, set)| {
            let set = set.intersection(other.children.get(step)?);
            (!set.is_empty()).then(|| (step.clone(), set))
        });
        Self {
            members: self.members.intersection(&other.members).cloned().collect(),
            children: both.collect(),
        }
    }

    /// Paths that are in this one and not in the other.
    pub(super) fn difference(&self, other: &Self) -> Self {
        let left = self.children.iter().filter_map(|(step, set)| {
            let Some(less) = other.children.get(step) else {
                return Some((step.clone(), set.clone()));
            };
            let set = set.difference(less);
            (!set.is_empty()).then(|| (step.clone(), set))
        });
        Self {
            members: self.members.difference(&other.members).cloned().collect(),
            children: left.collect(),
        }
    }

    /// Paths that are in this one and neither in the other nor under a path of the other.
    pub(super) fn recursive_difference(&self, other: &Self) -> Self {
        let left = self.children.iter().filter_map(|(step, set)| {
            if other.members.contains(step) {
                return None;
            }
            let Some(less) = other.children.get(step) else {
                return Some((step.clone(), set.clone()));
            };
            let set = set.recursive_difference(less);
            (!set.is_empty()).then(|| (step.clone(), set))
        });
        Self {
            members: self.members.difference(&other.members).cloned().collect(),
            children: left.collect(),
        }
    }

    /// With the declared fields under which there are paths: such are there because what is in them
    /// is, and are not owned by themselves.
    pub(super) fn with_named_fields(&self, of: Option<Type<'_>>) -> Self {
        let mut set = Self {
            members: self.members.clone(),
            children: BTreeMap::new(),
        };
        for (step, below) in &self.children {
            let child = match (step, of) {
                (Element::Field(name), Some(of)) => {
                    let map = of.map();
                    if map.as_ref().is_some_and(|map| map.field(name).is_some()) {
                        set.members.insert(step.clone());
                    }
                    map.and_then(|map| map.child(name))
                }
                (Element::Key(_), Some(of)) => of.list().map(|list| list.items),
                _ => None,
            };
            set.children
                .insert(step.clone(), below.with_named_fields(child));
        }
        set
    }

    /// How many paths are in it.
    pub(super) fn count(&self) -> usize {
        let below = self.children.values().map(Self::count);
        self.members.len() + below.sum::<usize>()
    }

    /// Shows the paths, as long as they are wanted: those that end here first, then those below.
    pub(super) fn each<'a>(&'a self, wants_more: &mut impl FnMut(&[&'a Element]) -> bool) {
        self.walk(&mut Vec::new(), wants_more);
    }

    /// Whether more are wanted after all of this.
    fn walk<'a>(
        &'a self,
        path: &mut Vec<&'a Element>,
        wants_more: &mut impl FnMut(&[&'a Element]) -> bool,
    ) -> bool {
        for step in &self.members {
            path.push(step);
            let more = wants_more(path.as_slice());
            path.pop();
            if !more {
                return false;
            }
        }
        for (step, set) in &self.children {
            path.push(step);
            let more = set.walk(path, wants_more);
            path.pop();
            if !more {
                return false;
            }
        }
        true
    }

    /// All paths.
    #[cfg(test)]
    pub(super) fn paths(&self) -> Vec<Vec<Element>> {
        let mut paths = Vec::new();
        self.each(&mut |path| {
            paths.push(path.iter().copied().cloned().collect());
            true
        });
        paths
    }
}
