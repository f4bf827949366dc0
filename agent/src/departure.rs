//! Whether the agent stays, leaves its member for good, or stops because its registration is gone.
//!
//! It leaves only when the hub has said so: its Cluster was seen being deleted with the annotation that
//! `towline unregister` writes. A hub that merely refuses us may be restored, or wrong; then the agent
//! stops, says so, and touches nothing.

pub mod refusal;

use crate::context::{ClusterView, Refusal};
use common::unregister::Mode;
use std::time::Duration;

/// How long the hub must refuse us before that counts: longer than an API server that has just started
/// needs to know its permissions.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Everything the decision looks at.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// What is stored of what the hub has told us.
    pub remembered: Option<Mode>,
    /// Our Cluster as seen last.
    pub view: Option<ClusterView>,
    /// Whether Works of ours are left, by the hub or by what it told us of each; none when that is not known.
    pub works_left: Option<bool>,
    /// Since how long the hub refuses us, and with which words.
    pub refused: Option<(Duration, Refusal)>,
    /// Our certificate has ended, which explains any refusal.
    pub certificate_is_over: bool,
}

/// What to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Go on.
    Stay,
    /// Store that we were told, and what.
    Remember(Mode),
    /// See whether Works are left.
    CountWorks,
    /// Remove the agent from the member.
    Leave,
    /// Stop.
    Gone(Refusal),
}

/// Whether Works of ours are left: as they were counted, or, while the hub refuses us, by whether it told us of each
/// that it is gone. What it told then says nothing later.
pub fn works_left(is_refused: bool, counted: Option<bool>, has_none: bool) -> Option<bool> {
    match is_refused {
        true => has_none.then_some(false),
        false => counted,
    }
}

/// Decides.
pub fn decide(seen: &Seen) -> Decision {
    let view = seen.view.as_ref();
    if let Some(mode) = view
        .filter(|view| view.deleting)
        .and_then(|view| view.unregister)
    {
        // An operator who thinks better of it is heard as long as the hub waits for us.
        let is_other = seen.remembered != Some(mode) && seen.refused.is_none();
        if seen.remembered.is_none() || is_other {
            return Decision::Remember(mode);
        }
    }
    if seen.remembered.is_some() {
        let acknowledged = view.is_some_and(|view| view.acknowledged);
        let stays = seen.remembered == Some(Mode::KeepWorkloads);
        return match (&seen.refused, seen.works_left) {
            // The hub has finished, or has stopped waiting for us. One that has just started refuses too, and
            // deletions that are under way would end with us.
            (Some((since, _)), left) if stays || left == Some(false) || *since >= PATIENCE => {
                Decision::Leave
            }
            (Some(_), _) => Decision::Stay,
            (None, Some(false)) if acknowledged => Decision::Leave,
            (None, _) if acknowledged => Decision::CountWorks,
            (None, _) => Decision::Stay,
        };
    }
    match &seen.refused {
        Some((since, refusal)) if *since >= PATIENCE && !seen.certificate_is_over => {
            Decision::Gone(refusal.clone())
        }
        _ => Decision::Stay,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(deleting: bool, unregister: Option<Mode>, acknowledged: bool) -> Option<ClusterView> {
        Some(ClusterView {
            uid: "u".into(),
            resource_version: "1".into(),
            deleting,
            unregister,
            acknowledged,
            registration: None,
            ready: None,
        })
    }

    fn refused(seconds: u64) -> Option<(Duration, Refusal)> {
        let refusal = Refusal {
            code: 403,
            message: "no".into(),
        };
        Some((Duration::from_secs(seconds), refusal))
    }

    #[test]
    fn works_are_counted_before_the_agent_leaves() {
        assert_eq!(works_left(true, None, true), Some(false));
        assert_eq!(works_left(true, Some(false), false), None);
        assert_eq!(works_left(false, None, true), None, "count them");
        assert_eq!(works_left(false, Some(true), true), Some(true));
    }

    #[test]
    fn leaving_needs_the_hubs_word() {
        let (keep, remove) = (Some(Mode::KeepWorkloads), Some(Mode::RemoveWorkloads));
        let gone = Decision::Gone(Refusal {
            code: 403,
            message: "no".into(),
        });
        let seen = |remembered, view, works_left, refused| Seen {
            remembered,
            view,
            works_left,
            refused,
            certificate_is_over: false,
        };
        let cases = [
            (seen(None, None, None, None), Decision::Stay),
            (
                seen(None, view(false, None, false), None, None),
                Decision::Stay,
            ),
            // Annotated, not deleted yet; and deleted, but without the annotation.
            (
                seen(None, view(false, keep, false), None, None),
                Decision::Stay,
            ),
            (
                seen(None, view(true, None, false), None, None),
                Decision::Stay,
            ),
            (
                seen(None, view(true, keep, false), None, None),
                Decision::Remember(Mode::KeepWorkloads),
            ),
            (
                seen(keep, view(true, keep, false), None, None),
                Decision::Stay,
            ),
            (
                seen(keep, view(true, keep, true), None, None),
                Decision::CountWorks,
            ),
            (
                seen(keep, view(true, keep, true), Some(true), None),
                Decision::CountWorks,
            ),
            (
                seen(keep, view(true, keep, true), Some(false), None),
                Decision::Leave,
            ),
            // Another word than the one that is stored, and one that comes too late to be stored.
            (
                seen(remove, view(true, keep, true), Some(false), None),
                Decision::Remember(Mode::KeepWorkloads),
            ),
            (
                seen(remove, view(true, keep, true), Some(false), refused(0)),
                Decision::Leave,
            ),
            // Not all is deleted, and who refuses may be a hub that has just started.
            (
                seen(remove, view(true, remove, true), Some(true), refused(59)),
                Decision::Stay,
            ),
            (
                seen(remove, view(true, remove, true), None, refused(0)),
                Decision::Stay,
            ),
            (
                seen(remove, view(true, remove, true), Some(true), refused(60)),
                Decision::Leave,
            ),
            // After a restart nothing was seen yet, but the hub is through with us.
            (seen(keep, None, None, refused(0)), Decision::Leave),
            (seen(keep, None, None, None), Decision::Stay),
            // Refused without having been told.
            (
                seen(None, view(false, None, false), None, refused(59)),
                Decision::Stay,
            ),
            (seen(None, view(true, None, false), None, refused(60)), gone),
        ];
        for (seen, want) in cases {
            assert_eq!(decide(&seen), want, "{seen:?}");
        }
        let over = Seen {
            refused: refused(600),
            certificate_is_over: true,
            ..Seen::default()
        };
        assert_eq!(decide(&over), Decision::Stay);
    }
}
