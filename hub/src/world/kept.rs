//! What a view holds of an object while nobody looks at it: its record, or where they are many and large a packed
//! text that is read again.

use super::held::ObjectName;
use super::view::Record;
use crate::pack::Packer;
use common::gvk::Gvk;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// What is shorter lies as it is.
const SHORTEST: usize = 256;
/// So many records lie read as well: whoever is told of an object soon looks at it.
const RECENT: usize = 256;

/// How objects of one kind are held.
pub trait Keep<R>: Send + Sized + 'static {
    /// Reads an object as it was sent; see [`Record::read_as`].
    fn read(
        object: &str,
        kind: Option<&Gvk>,
        packing: &mut Packing<R>,
    ) -> serde_json::Result<Option<(Arc<R>, Self)>>;

    /// The record: the same that was read.
    fn record(&self, name: &ObjectName, packing: &mut Packing<R>) -> Option<Arc<R>>;

    /// Soon somebody looks at this record.
    fn note(name: &ObjectName, record: &Arc<R>, packing: &mut Packing<R>) {
        packing.note(name, record);
    }
}

/// As the record.
impl<R: Record> Keep<R> for Arc<R> {
    fn read(
        object: &str,
        kind: Option<&Gvk>,
        _: &mut Packing<R>,
    ) -> serde_json::Result<Option<(Arc<R>, Self)>> {
        let record = R::read_as(object, kind)?.map(Arc::new);
        Ok(record.map(|record| (Arc::clone(&record), record)))
    }

    fn record(&self, _: &ObjectName, _: &mut Packing<R>) -> Option<Arc<R>> {
        Some(Arc::clone(self))
    }

    fn note(_: &ObjectName, _: &Arc<R>, _: &mut Packing<R>) {}
}

/// What packs the objects of one view, and those that were looked at last.
pub struct Packing<R> {
    pub(crate) packer: Packer,
    recent: BTreeMap<ObjectName, Arc<R>>,
    order: VecDeque<ObjectName>,
}

impl<R> Default for Packing<R> {
    fn default() -> Self {
        Self {
            packer: Packer::from(SHORTEST),
            recent: BTreeMap::new(),
            order: VecDeque::new(),
        }
    }
}

impl<R> Packing<R> {
    /// The record of an object, if it was looked at lately, or else as `read` makes it.
    pub(super) fn recent(
        &mut self,
        name: &ObjectName,
        read: impl FnOnce() -> Option<R>,
    ) -> Option<Arc<R>> {
        if let Some(record) = self.recent.get(name) {
            return Some(Arc::clone(record));
        }
        let record = Arc::new(read()?);
        self.note(name, &record);
        Some(record)
    }

    /// This is the record of an object from now on.
    pub(super) fn note(&mut self, name: &ObjectName, record: &Arc<R>) {
        let before = self.recent.insert(name.clone(), Arc::clone(record));
        if before.is_some() {
            return;
        }
        self.order.push_back(name.clone());
        if self.order.len() > RECENT
            && let Some(oldest) = self.order.pop_front()
        {
            self.recent.remove(&oldest);
        }
    }

    /// What was known of an object holds no more.
    pub(super) fn forget(&mut self, name: &ObjectName) {
        if self.recent.remove(name).is_some() {
            self.order.retain(|it| it != name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_were_looked_at_last_lie_read() {
        let name = |number: usize| ObjectName::new(None, &number.to_string());
        let mut packing = Packing::<usize>::default();
        for number in 0..=RECENT {
            let read = packing.recent(&name(number), || Some(number));
            assert_eq!(read.as_deref(), Some(&number));
        }
        let known = |packing: &mut Packing<usize>, number| {
            packing.recent(&name(number), || None).as_deref().copied()
        };
        assert_eq!(known(&mut packing, 0), None, "the oldest went");
        assert_eq!(known(&mut packing, 1), Some(1));
        packing.note(&name(1), &Arc::new(7));
        assert_eq!(known(&mut packing, 1), Some(7));
        packing.forget(&name(1));
        assert_eq!(known(&mut packing, 1), None);
        packing.note(&name(RECENT + 1), &Arc::new(0));
        assert_eq!(known(&mut packing, 2), Some(2), "there was room");
        assert_eq!(packing.order.len(), packing.recent.len());
    }
}
