//! Whether the agent stays, leaves its member for good, or stops because its registration is gone.
//!
//! It leaves only when the hub has said so: its Cluster was seen being deleted with the annotation that
//! `towline unregister` writes. A hub that merely refuses us may be restored, or wrong; then the agent
//! stops, says so, and touches nothing.

use crate::context::{ClusterView, Refusal};
use common::unregister::Mode;
use std::time::Duration;

/// How long the hub must refuse us before that counts: longer than an API server that has just started
/// needs to know its permissions.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Everything the decision looks at.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// It is stored that the hub has told us to leave.
    pub remembered: bool,
    /// Our Cluster as seen last.
    pub view: Option<ClusterView>,
    /// Whether Works of ours are left; none when they were not counted yet.
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

/// Decides.
pub fn decide(seen: &Seen) -> Decision {
    let view = seen.view.as_ref();
    if let Some(mode) = view
        .filter(|view| view.deleting)
        .and_then(|view| view.unregister)
        && !seen.remembered
    {
        return Decision::Remember(mode);
    }
    if seen.remembered {
        let acknowledged = view.is_some_and(|view| view.acknowledged);
        return match (&seen.refused, seen.works_left) {
            // The hub has finished, or has stopped waiting for us.
            (Some(_), _) => Decision::Leave,
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
    fn leaving_needs_the_hubs_word() {
        let keep = Some(Mode::KeepWorkloads);
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
            (seen(false, None, None, None), Decision::Stay),
            (
                seen(false, view(false, None, false), None, None),
                Decision::Stay,
            ),
            // Annotated, not deleted yet; and deleted, but without the annotation.
            (
                seen(false, view(false, keep, false), None, None),
                Decision::Stay,
            ),
            (
                seen(false, view(true, None, false), None, None),
                Decision::Stay,
            ),
            (
                seen(false, view(true, keep, false), None, None),
                Decision::Remember(Mode::KeepWorkloads),
            ),
            (
                seen(true, view(true, keep, false), None, None),
                Decision::Stay,
            ),
            (
                seen(true, view(true, keep, true), None, None),
                Decision::CountWorks,
            ),
            (
                seen(true, view(true, keep, true), Some(true), None),
                Decision::CountWorks,
            ),
            (
                seen(true, view(true, keep, true), Some(false), None),
                Decision::Leave,
            ),
            // After a restart nothing was seen yet, but the hub is through with us.
            (seen(true, None, None, refused(0)), Decision::Leave),
            (seen(true, None, None, None), Decision::Stay),
            // Refused without having been told.
            (
                seen(false, view(false, None, false), None, refused(59)),
                Decision::Stay,
            ),
            (
                seen(false, view(true, None, false), None, refused(60)),
                gone,
            ),
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
