//! Placements, each kept once however many bindings have it: those of one policy are the same.

use crate::scheduler::{Rules, from_api};
use common::api::policy::Placement;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// A placement that bindings share.
#[derive(Debug)]
pub struct Shared {
    /// As JSON; whatever has the same text is the same.
    pub text: Arc<str>,
    /// As the API has it.
    pub placement: Arc<Placement>,
    /// As the scheduler reads it.
    pub rules: Arc<Rules>,
}

impl PartialEq for Shared {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Shared {}

impl PartialOrd for Shared {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Shared {
    fn cmp(&self, other: &Self) -> Ordering {
        self.text.cmp(&other.text)
    }
}

/// All that somebody has.
static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Known {
    by_text: BTreeMap<Arc<str>, Arc<Shared>>,
    /// When to let go of what nobody has any more.
    sweep_at: usize,
}

/// The one that says the same.
pub(super) fn shared(placement: &Arc<Placement>) -> Arc<Shared> {
    // It was read from JSON, or is about to be written as such.
    let text = serde_json::to_string(&**placement).unwrap_or_default();
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(same) = known.by_text.get(text.as_str()) {
        return Arc::clone(same);
    }
    if known.by_text.len() >= known.sweep_at {
        known.by_text.retain(|_, it| Arc::strong_count(it) > 1);
        known.sweep_at = (2 * known.by_text.len()).max(64);
    }
    let text: Arc<str> = text.into();
    let shared = Arc::new(Shared {
        text: Arc::clone(&text),
        placement: Arc::clone(placement),
        rules: Arc::new(from_api::rules(placement)),
    });
    known.by_text.insert(text, Arc::clone(&shared));
    shared
}
