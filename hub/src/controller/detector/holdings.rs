//! Which templates show which policy.

use crate::propagation::PolicyName;
use crate::world::TemplateName;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Templates by the policy that their claim names.
type Held = HashMap<PolicyName, HashSet<TemplateName>>;

/// What each policy holds; clones share it.
#[derive(Debug, Clone, Default)]
pub struct Holdings(Arc<Mutex<Held>>);

impl Holdings {
    pub(super) fn changed(
        &self,
        name: &TemplateName,
        old: Option<PolicyName>,
        new: Option<PolicyName>,
    ) {
        if old == new {
            return;
        }
        let mut all = self.lock();
        if let Some(policy) = old
            && let Some(held) = all.get_mut(&policy)
        {
            held.remove(name);
            if held.is_empty() {
                all.remove(&policy);
            }
        }
        if let Some(policy) = new {
            all.entry(policy).or_default().insert(name.clone());
        }
    }

    /// The templates that a policy holds, in order.
    pub fn of(&self, policy: &PolicyName) -> Vec<TemplateName> {
        let all = self.lock();
        let held = all.get(policy).into_iter().flatten();
        let mut held: Vec<TemplateName> = held.cloned().collect();
        drop(all);
        held.sort_unstable();
        held
    }

    /// Whether any template shows a policy.
    pub fn is_any(&self, policy: &PolicyName) -> bool {
        self.lock().contains_key(policy)
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
