//! How the work on a Work ends with the Work.

use super::*;
use std::sync::OnceLock;

/// The answer to our last write of it was lost, say, and somebody made it anew.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_work_leaves_the_next_one_of_its_name_alone() {
    for manifests in [vec![map("a")], vec![space(""), map("a")]] {
        let known = Arc::new(OnceLock::<Shared>::new());
        let state = known.clone();
        let (member, asked) = scripted(move |line| {
            if !line.starts_with("DELETE") {
                return Some((200, marked("a", "o", "w")));
            }
            let mut next = wire("w", "2", &[map("a")]);
            next.metadata.finalizers.clear();
            if let Some(state) = state.get() {
                state.lock().upsert(&next);
            }
            Some((200, json!({"kind": "Status"})))
        });
        let (hub, told) = hub();
        let parts = Handles::new(hub, member).await;
        known.set(parts.state.clone()).expect("once");
        let reconciler = reconciler(&parts);
        let mut going = version(1, &manifests);
        going.metadata.deletion_timestamp = Some("2030-01-01T00:00:00Z".into());
        let name = parts.knows(&going);
        let end = reconciler.reconcile(&name).await.expect("worked on");
        assert_eq!(end, Requeue::Never);
        let last = lines(&asked).pop();
        let expected = "DELETE /api/v1/namespaces/n/configmaps/a";
        assert_eq!(last.as_deref(), Some(expected), "and no other");
        assert_eq!(lines(&told), [""; 0]);
        let uid = parts.state.lock().works.get("w").map(|it| it.uid.clone());
        assert_eq!(uid.as_deref(), Some("2"));
    }
}

/// A Work that is being deleted, and that others keep too.
fn kept() -> WireWork {
    let mut going = version(1, &[map("a")]);
    going.metadata.deletion_timestamp = Some("2030-01-01T00:00:00Z".into());
    going.metadata.finalizers.push("foregroundDeletion".into());
    going
}

/// It stays known while others' finalizers keep it, and no longer.
#[tokio::test(start_paused = true)]
async fn a_work_that_others_kept_is_forgotten_once_the_hub_lacks_it() {
    let (member, _) = scripted(|_| None);
    let after = json!({"metadata": {"name": "w", "uid": "1", "resourceVersion": "16",
        "finalizers": ["foregroundDeletion"]}});
    let (hub, _) = scripted(move |_| Some((200, after.clone())));
    let parts = Handles::new(hub, member).await;
    let reconciler = reconciler(&parts);
    let name = parts.knows(&kept());
    reconciler.reconcile(&name).await.expect("worked on");
    assert!(parts.state.lock().works.contains_key("w"));
    parts.state.lock().list_begins();
    let missing = parts.state.lock().list_ends();
    assert_eq!(missing.deleting, std::slice::from_ref(&name));
    reconciler.reconcile(&name).await.expect("worked on");
    let state = parts.state.lock();
    assert!(state.works.is_empty() && state.orphaned.is_empty());
}

/// Whoever else kept it lets go at the same moment, and the watch is faster than the answer.
#[tokio::test(start_paused = true)]
async fn a_work_whose_end_is_told_before_our_write_is_answered_is_forgotten() {
    let (member, _) = scripted(|_| None);
    let known = Arc::new(OnceLock::<Shared>::new());
    let state = known.clone();
    let (hub, told) = scripted(move |_| {
        let state = state.get().expect("known");
        let mut state = state.lock();
        state.works.get_mut("w").expect("kept").ended();
        let left = json!({"metadata": {"name": "w", "uid": "1", "resourceVersion": "16",
            "finalizers": ["foregroundDeletion"]}});
        Some((200, left))
    });
    let parts = Handles::new(hub, member).await;
    known.set(parts.state.clone()).expect("once");
    let reconciler = reconciler(&parts);
    let name = parts.knows(&kept());
    reconciler.reconcile(&name).await.expect("worked on");
    assert_eq!(lines(&told).len(), 1);
    assert!(parts.state.lock().works.is_empty());
}
