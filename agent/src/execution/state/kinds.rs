//! Kinds by number, each in the version that the member serves.

use super::State;
use common::gvk::Gvk;
use std::sync::Arc;

/// A kind by number; see [`State::kind`].
pub type KindId = u16;

impl State {
    /// The number of a kind.
    pub fn kind(&mut self, gvk: &Gvk) -> KindId {
        let name = (gvk.group.clone(), gvk.kind.clone());
        if let Some(id) = self.kind_ids.get(&name) {
            return *id;
        }
        // A member serves some hundreds of kinds; after 65,535 the last number is shared and such
        // objects are merely looked up more often.
        let id = KindId::try_from(self.kinds.len()).unwrap_or(KindId::MAX);
        self.kinds.push(Arc::new(gvk.clone()));
        self.kind_ids.insert(name, id);
        id
    }

    /// The number of a kind that the member serves in this very version.
    pub fn served(&mut self, gvk: &Gvk) -> KindId {
        let id = self.kind(gvk);
        if let Some(known) = self.kinds.get_mut(usize::from(id))
            && known.group == gvk.group
            && known.kind == gvk.kind
            && known.version != gvk.version
        {
            *known = Arc::new(gvk.clone());
        }
        id
    }

    /// The kind of a number, in the version in which the member served it last, or else it was named first.
    pub fn gvk(&self, id: KindId) -> Option<Arc<Gvk>> {
        self.kinds.get(usize::from(id)).cloned()
    }

    /// A kind in one version, kept once.
    pub fn version(&mut self, gvk: &Gvk) -> Arc<Gvk> {
        if let Some(known) = self.versions.get(gvk) {
            return known.clone();
        }
        let gvk = Arc::new(gvk.clone());
        self.versions.insert(gvk.clone());
        gvk
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_asked_for_in_a_version_that_is_served() {
        let mut state = State::default();
        let gvk = |version: &str| Gvk::new(version, "HorizontalPodAutoscaler").expect("sound");
        let id = state.kind(&gvk("autoscaling/v2beta2"));
        assert_eq!(state.served(&gvk("autoscaling/v2")), id);
        assert_eq!(state.kind(&gvk("autoscaling/v2beta2")), id);
        assert_eq!(*state.gvk(id).expect("known"), gvk("autoscaling/v2"));
    }
}
