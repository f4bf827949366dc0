//! What autoscalers of the member scale: they decide its replicas.

use super::{ObjectKey, State};
use std::sync::Arc;

/// What an autoscaler scales, in its own namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScaleTarget {
    /// API group.
    pub group: Box<str>,
    /// Kind.
    pub kind: Box<str>,
    /// Name.
    pub name: Box<str>,
}

impl State {
    /// Takes in an autoscaler, or its end. Returns the Works whose object it scaled or scales now.
    pub fn autoscaler(
        &mut self,
        namespace: &str,
        name: &str,
        target: Option<ScaleTarget>,
    ) -> Vec<Arc<str>> {
        let id = (namespace.into(), name.into());
        let before = match target.clone() {
            Some(target) => self.autoscalers.insert(id, target),
            None => self.autoscalers.remove(&id),
        };
        if before == target {
            return Vec::new();
        }
        let mut works = Vec::new();
        for target in [before, target].into_iter().flatten() {
            let kind = self
                .kind_ids
                .get(&(target.group.to_string(), target.kind.to_string()));
            let wanted = kind.and_then(|kind| {
                let key = ObjectKey {
                    kind: *kind,
                    namespace: namespace.into(),
                    name: target.name,
                };
                self.objects.get(&key)
            });
            works.extend(wanted.into_iter().flat_map(|r| r.wanted.iter().cloned()));
        }
        works
    }

    /// Whether an autoscaler of the member decides the replicas of an object.
    pub fn is_scaled(&self, namespace: &str, group: &str, kind: &str, name: &str) -> bool {
        self.autoscalers.iter().any(|((ns, _), target)| {
            **ns == *namespace
                && *target.group == *group
                && *target.kind == *kind
                && *target.name == *name
        })
    }

    /// The autoscalers that are known.
    pub fn autoscaler_names(&self) -> Vec<(Box<str>, Box<str>)> {
        self.autoscalers.keys().cloned().collect()
    }
}
