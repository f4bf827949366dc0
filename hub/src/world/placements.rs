//! Placements, each kept once however many bindings have it: those of one policy are the same.

use crate::scheduler::{Rules, from_api};
use common::api::policy::Placement;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

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
    /// By the texts that were sent.
    by_sent: BTreeMap<Box<str>, Weak<Shared>>,
    /// When to let go of what nobody has any more.
    sweep_at: usize,
}

impl Known {
    fn shared(&mut self, placement: &Arc<Placement>) -> Arc<Shared> {
        // It was read from JSON, or is about to be written as such.
        let text = serde_json::to_string(&**placement).unwrap_or_default();
        if let Some(same) = self.by_text.get(text.as_str()) {
            return Arc::clone(same);
        }
        self.sweep();
        let text: Arc<str> = text.into();
        let shared = Arc::new(Shared {
            text: Arc::clone(&text),
            placement: Arc::clone(placement),
            rules: Arc::new(from_api::rules(placement)),
        });
        self.by_text.insert(text, Arc::clone(&shared));
        shared
    }

    fn read(&mut self, sent: &str) -> serde_json::Result<Arc<Shared>> {
        if let Some(same) = self.by_sent.get(sent).and_then(Weak::upgrade) {
            return Ok(same);
        }
        let placement: Placement = serde_json::from_str(sent)?;
        let shared = self.shared(&Arc::new(placement));
        self.sweep();
        self.by_sent.insert(sent.into(), Arc::downgrade(&shared));
        Ok(shared)
    }

    fn sweep(&mut self) {
        if self.by_text.len() + self.by_sent.len() < self.sweep_at {
            return;
        }
        self.by_text.retain(|_, it| Arc::strong_count(it) > 1);
        self.by_sent.retain(|_, it| it.strong_count() > 0);
        self.sweep_at = (2 * (self.by_text.len() + self.by_sent.len())).max(64);
    }
}

/// The one that says the same.
pub(super) fn shared(placement: &Arc<Placement>) -> Arc<Shared> {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known.shared(placement)
}

/// The one that was sent as this text; read only where none of this text is known.
pub(super) fn read(sent: &str) -> serde_json::Result<Arc<Shared>> {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known.read(sent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_says_the_same_is_one() {
        // Other tests have placements too: those of this one are counted alone.
        let mut known = Known::default();
        let sent = r#"{"clusterAffinity":{"clusterNames":["of-this-test"]}}"#;
        let spaced = sent.replace(':', " : ");
        let first = known.read(sent).expect("a placement");
        let same = [
            known.read(sent),
            known.read(&spaced),
            Ok(known.shared(&Arc::clone(&first.placement))),
        ];
        for same in same {
            assert!(Arc::ptr_eq(&first, &same.expect("a placement")));
        }
        assert!(known.read("7").is_err());
        // Nobody has any of these any more.
        for number in 0..1000 {
            drop(known.read(&sent.replace("of-this-test", &format!("c-{number}"))));
        }
        let len = known.by_text.len() + known.by_sent.len();
        assert!(len < 500, "{len}");
        assert!(known.by_text.values().any(|it| Arc::ptr_eq(it, &first)));
    }
}
