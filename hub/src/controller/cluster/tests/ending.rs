//! How a deleted Cluster ends: who is waited for, for how long, and in which order.

use super::*;
use common::identity::RegistrationId;
use common::unregister::Mode;

fn deleted(mode: Option<Mode>, ready: Option<&str>, acknowledged: bool) -> Observed {
    let mut observed = living(ready);
    observed.cluster.leaving_for = Some(Duration::ZERO);
    observed.cluster.mode = mode;
    observed.cluster.acknowledged = acknowledged;
    observed.cluster.acknowledges = true;
    observed.leftovers = Leftovers {
        works: vec![work("w", false, true)],
        bound: true,
        held: true,
    };
    observed
}

/// The effects as one word each.
fn words(observed: &Observed, seconds: u64) -> Vec<&'static str> {
    let observed = after(observed, seconds);
    let decision = decide(at(0), OPTIONS, &observed);
    assert_eq!(check(&observed, &decision), Vec::<&str>::new());
    let word = |effect: &Effect| match effect {
        Effect::EnsureNamespace => "namespace",
        Effect::UpdateCluster(_) => "update",
        Effect::ReleaseBinding => "release-binding",
        Effect::ShowNamespace { .. } => "show-namespace",
        Effect::DeleteWorks => "delete-works",
        Effect::ReleaseWork { .. } => "release-work",
        Effect::NoteWatches { .. } => "note-watches",
        Effect::RemoveRights => "remove-rights",
        Effect::CloseWatches { .. } => "close-watches",
        Effect::DeleteNamespace => "delete-namespace",
        Effect::DeleteLease => "delete-lease",
        Effect::ReleaseCluster { .. } => "release-cluster",
    };
    decision.effects.iter().map(word).collect()
}

/// Karmada's agent acknowledges nothing, and is there all the same: it finishes the Works.
#[test]
fn an_agent_that_never_acknowledges_is_not_waited_for() {
    let mut observed = deleted(Some(Mode::RemoveWorkloads), Some("True"), false);
    assert_eq!(words(&observed, 0), Vec::<&str>::new());
    observed.cluster.acknowledges = false;
    assert_eq!(words(&observed, 0), ["delete-works"]);
    assert_eq!(words(&observed, 299), ["delete-works"]);
}

#[test]
fn works_are_left_to_an_agent_that_is_there_and_time_is_bounded() {
    const DELETE: &[&str] = &["delete-works"];
    const BOTH: &[&str] = &["delete-works", "release-work"];
    let remove = Some(Mode::RemoveWorkloads);
    let table: [(&str, Observed, u64, &[&str]); 12] = [
        (
            "waits for the agent to notice",
            deleted(remove, Some("True"), false),
            10,
            &[],
        ),
        (
            "not longer than a minute",
            deleted(remove, Some("True"), false),
            60,
            DELETE,
        ),
        (
            "it noticed",
            deleted(remove, Some("True"), true),
            10,
            DELETE,
        ),
        (
            "it noticed, its member is down",
            deleted(remove, Some("False"), true),
            10,
            DELETE,
        ),
        (
            "it noticed, too slow",
            deleted(remove, Some("True"), true),
            300,
            BOTH,
        ),
        ("silent", deleted(remove, Some("Unknown"), false), 0, BOTH),
        ("never heard", deleted(remove, None, false), 0, BOTH),
        (
            "its member is down, and it has not noticed yet",
            deleted(remove, Some("False"), false),
            10,
            &[],
        ),
        (
            "kubectl delete, its member is down",
            deleted(None, Some("False"), false),
            10,
            DELETE,
        ),
        (
            "forced",
            deleted(Some(Mode::Force), Some("True"), false),
            0,
            BOTH,
        ),
        (
            "kubectl delete, not ready",
            deleted(None, None, false),
            0,
            BOTH,
        ),
        (
            "kubectl delete, ready",
            deleted(None, Some("True"), false),
            0,
            DELETE,
        ),
    ];
    for (name, observed, seconds, want) in table {
        assert_eq!(words(&observed, seconds), want, "{name}");
    }
}

#[test]
fn a_clusters_end_has_an_order() {
    let mut observed = deleted(Some(Mode::Force), Some("True"), false);
    observed.leftovers.works = vec![work("w", true, true), work("theirs", true, false)];
    assert_eq!(words(&observed, 0), ["release-work"]);
    observed.leftovers.works.clear();
    let pair = ["note-watches", "remove-rights", "close-watches"];
    assert_eq!(words(&observed, 0)[..3], pair);
    assert_eq!(words(&observed, 0)[3..], ["delete-namespace"]);
    observed.namespace = NamespaceState::Terminating;
    assert_eq!(words(&observed, 0), pair);
    // Deleted in the foreground, the binding without a finalizer is gone before.
    observed.leftovers.bound = false;
    assert_eq!(words(&observed, 0), pair);
    observed.leftovers.held = false;
    assert_eq!(words(&observed, 0), Vec::<&str>::new());
    observed.namespace = NamespaceState::Absent;
    observed.leftovers.bound = true;
    assert_eq!(words(&observed, 0), pair);
    observed.leftovers.bound = false;
    assert_eq!(words(&observed, 0), ["delete-lease", "release-cluster"]);
    observed.cluster.finalizers = vec!["theirs".into()];
    assert_eq!(words(&observed, 0), Vec::<&str>::new());
}

/// Rights that are gone tell nothing of the watches that were opened by them.
#[test]
fn a_closing_that_failed_is_taken_up_again() {
    let mut observed = deleted(Some(Mode::Force), Some("True"), false);
    observed.leftovers = Leftovers::default();
    observed.cluster.closing_watches = Some("unknown".to_owned());
    for (namespace, more) in [
        (NamespaceState::Owned, vec!["delete-namespace"]),
        (NamespaceState::Terminating, vec![]),
        (NamespaceState::Absent, vec![]),
        (NamespaceState::Unowned, vec![]),
    ] {
        observed.namespace = namespace;
        let words = words(&observed, 0);
        assert_eq!(words[..2], ["remove-rights", "close-watches"]);
        assert_eq!(words[2..], more);
    }
}

/// Whoever had rights is to be refused before watches are closed: who is registered, and who was replaced just before.
#[test]
fn who_is_to_be_refused_before_watches_are_closed() {
    let [ours, earlier] = [b"k1", b"k0"].map(|key| RegistrationId::of_public_key(key));
    let (ours_said, earlier_said) = (Some(ours.as_str()), Some(earlier.as_str()));
    let [one, other] = [&ours, &earlier].map(|id| vec![id.clone()]);
    let both = vec![ours.clone(), earlier.clone()];
    for (registration, noted, note, want) in [
        (ours_said, None, ours_said, &one),
        (ours_said, ours_said, None, &one),
        (ours_said, earlier_said, None, &both),
        (ours_said, Some("unknown"), None, &one),
        (None, earlier_said, None, &other),
        (None, Some("unknown"), None, &vec![]),
        (None, None, Some("unknown"), &vec![]),
    ] {
        let mut observed = deleted(Some(Mode::Force), Some("True"), false);
        observed.leftovers.works.clear();
        observed.cluster.registration = registration.map(str::to_owned);
        observed.cluster.closing_watches = noted.map(str::to_owned);
        let (mut notes, mut closes) = (None, None);
        for effect in decide(at(0), OPTIONS, &observed).effects {
            match effect {
                Effect::NoteWatches { registration } => notes = Some(registration),
                Effect::CloseWatches { registrations } => closes = Some(registrations),
                _ => {}
            }
        }
        assert_eq!(notes.as_deref(), note, "{registration:?} {noted:?}");
        assert_eq!(closes.as_ref(), Some(want), "{registration:?} {noted:?}");
    }
}

#[test]
fn a_wait_ends_by_itself() {
    let observed = deleted(Some(Mode::KeepWorkloads), Some("True"), false);
    // What the hub's clock says is of no moment.
    for now in [-3600, 0, 90_000] {
        let decision = decide(at(now), OPTIONS, &after(&observed, 20));
        assert_eq!(decision.requeue, Requeue::After(Duration::from_secs(40)));
    }
}
