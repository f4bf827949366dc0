//! A second way to find the objects of a view.

use super::held::{Change, ObjectName};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

/// So many names lie in a list: most things have a few objects under them, and a set takes room for eleven.
const FEW: usize = 8;

/// Names of objects under what they are looked for; clones share it.
#[derive(Debug)]
pub struct Index<I>(Arc<Mutex<BTreeMap<I, Names>>>);

/// Names in their order.
#[derive(Debug)]
enum Names {
    Few(Vec<ObjectName>),
    Many(BTreeSet<ObjectName>),
}

impl Names {
    fn insert(&mut self, name: &ObjectName) {
        match self {
            Self::Few(few) => {
                let Err(at) = few.binary_search(name) else {
                    return;
                };
                if few.len() >= FEW {
                    let mut many: BTreeSet<ObjectName> = few.drain(..).collect();
                    many.insert(name.clone());
                    *self = Self::Many(many);
                    return;
                }
                few.reserve_exact(1);
                few.insert(at, name.clone());
            }
            Self::Many(many) => {
                many.insert(name.clone());
            }
        }
    }

    fn remove(&mut self, name: &ObjectName) {
        match self {
            Self::Few(few) => few.retain(|it| it != name),
            Self::Many(many) => {
                many.remove(name);
                if many.len() <= FEW / 2 {
                    *self = Self::Few(std::mem::take(many).into_iter().collect());
                }
            }
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Few(few) => few.len(),
            Self::Many(many) => many.len(),
        }
    }

    fn all(&self) -> Vec<ObjectName> {
        match self {
            Self::Few(few) => few.clone(),
            Self::Many(many) => many.iter().cloned().collect(),
        }
    }
}

impl<I> Clone for Index<I> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<I> Default for Index<I> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

/// What keeps an index.
pub(super) trait Indexing<R>: Send {
    fn changed(&mut self, change: &Change<R>);
}

struct Filling<I, F> {
    index: Index<I>,
    under: F,
}

impl<I: Ord + Clone> Index<I> {
    pub(super) fn filled_by<R, F>(&self, under: F) -> Box<dyn Indexing<R>>
    where
        I: Send + 'static,
        F: Fn(&ObjectName, &R) -> Vec<I> + Send + 'static,
    {
        let index = self.clone();
        Box::new(Filling { index, under })
    }

    /// The objects under something, in the order of their names.
    pub fn names(&self, under: &I) -> Vec<ObjectName> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(under).map_or_else(Vec::new, Names::all)
    }

    /// Everything that some object is under.
    pub fn keys(&self) -> Vec<I> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.keys().cloned().collect()
    }

    /// How many objects are under something.
    pub fn count(&self, under: &I) -> usize {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(under).map_or(0, Names::len)
    }
}

impl<R, I, F> Indexing<R> for Filling<I, F>
where
    I: Ord + Clone + Send,
    F: Fn(&ObjectName, &R) -> Vec<I> + Send,
{
    fn changed(&mut self, change: &Change<R>) {
        let under = |record: Option<&R>| {
            record.map_or_else(Vec::new, |record| (self.under)(&change.name, record))
        };
        let (before, after) = (under(change.before()), under(change.after()));
        if before == after {
            return;
        }
        let mut all = self.index.0.lock().unwrap_or_else(PoisonError::into_inner);
        for left in before {
            if let Some(names) = all.get_mut(&left) {
                names.remove(&change.name);
                if names.len() == 0 {
                    all.remove(&left);
                }
            }
        }
        for joined in after {
            let names = all.entry(joined).or_insert_with(|| Names::Few(Vec::new()));
            names.insert(&change.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn names_are_a_set(steps in prop::collection::vec((any::<bool>(), 0..24_u8), 0..200)) {
            let mut names = Names::Few(Vec::new());
            let mut model = BTreeSet::new();
            for (put, number) in steps {
                let name = ObjectName::new(Some("n"), &number.to_string());
                if put {
                    names.insert(&name);
                    model.insert(name);
                } else {
                    names.remove(&name);
                    model.remove(&name);
                }
                prop_assert_eq!(names.len(), model.len());
                prop_assert_eq!(names.all(), model.iter().cloned().collect::<Vec<_>>());
            }
        }
    }
}
