//! A second way to find the objects of a view.

use super::held::{Change, ObjectName};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

/// Names of objects under what they are looked for; clones share it.
#[derive(Debug)]
pub struct Index<I>(Arc<Mutex<BTreeMap<I, BTreeSet<ObjectName>>>>);

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
        all.get(under).into_iter().flatten().cloned().collect()
    }

    /// Everything that some object is under.
    pub fn keys(&self) -> Vec<I> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.keys().cloned().collect()
    }

    /// How many objects are under something.
    pub fn count(&self, under: &I) -> usize {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(under).map_or(0, BTreeSet::len)
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
                if names.is_empty() {
                    all.remove(&left);
                }
            }
        }
        for joined in after {
            all.entry(joined).or_default().insert(change.name.clone());
        }
    }
}
