//! What lists and watches of a scripted member leave in the state and in the queue.

use super::*;
use crate::execution::interpret::Shown;
use crate::execution::testing::{Handles, map, marked, scripted, wire};
use common::gvk::Gvk;
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

fn source(parts: &Handles) -> ObjectSource {
    ObjectSource {
        scope: parts.scope.clone(),
        member: parts.member.clone(),
        state: parts.state.clone(),
        queue: parts.queue.clone(),
        reporter: parts.reporter.clone(),
        diagnoser: Arc::new(Diagnoser::new(
            parts.member.clone(),
            parts.state.clone(),
            parts.reporter.clone(),
        )),
        interpreter: Interpreter::default(),
        metrics: Metrics::unread(),
        chance: Chance::seeded(1),
    }
}

fn maps() -> Resource {
    Resource {
        gvk: Gvk::new("v1", "ConfigMap").expect("sound"),
        plural: "configmaps".into(),
        namespaced: true,
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_came_changed_or_went_is_work_for_who_wants_it() {
    let parts = Handles::alone().await;
    let source = source(&parts);
    let name = parts.knows(&wire("w", "1", &[map("a")]));
    let took = || {
        let queued = parts.queued();
        parts.queue.done(&name);
        queued
    };
    let object = marked("a", "o", "w");
    let key = source.live_seen(&maps(), &object).await;
    let key = key.expect("it has a name");
    assert_eq!(took(), ["w"]);
    // What is known already is no news.
    source.live_seen(&maps(), &object).await;
    assert_eq!(took(), [""; 0]);
    source.live_gone(&key, Some("another uid"));
    assert_eq!(took(), [""; 0]);
    source.live_gone(&key, Some("o"));
    assert_eq!(took(), ["w"]);
    // A list that lacks it says the same.
    source.live_seen(&maps(), &object).await;
    took();
    let version = LiveMeta::read(&object).version;
    source.sweep(&maps(), &BTreeSet::from([key.clone()]), u64::MAX);
    assert_eq!(took(), [""; 0]);
    source.sweep(&maps(), &BTreeSet::new(), version - 1);
    assert_eq!(took(), [""; 0], "the list is older than the object");
    source.sweep(&maps(), &BTreeSet::new(), version);
    assert_eq!(took(), ["w"]);
    assert!(parts.state.lock().live(&key).is_none());
}

#[test]
fn a_list_that_is_older_than_what_was_told_is_of_a_member_that_went_back() {
    /// What comes: something that a watch tells, or a list, and whether it went back.
    enum Comes {
        Told(&'static str),
        Lists(&'static str, bool),
    }
    use Comes::{Lists, Told};
    let table = [
        vec![Lists("20", false), Lists("20", false), Lists("21", false)],
        vec![Lists("20", false), Lists("10", true), Lists("10", false)],
        vec![Lists("20", false), Told("30"), Lists("29", true)],
        vec![Lists("20", false), Told("30"), Lists("30", false)],
        // Versions are numbers, and none is nothing.
        vec![Lists("9", false), Told("10"), Told("9"), Lists("9", true)],
        vec![
            Lists("20", false),
            Told(""),
            Lists("", false),
            Lists("19", true),
        ],
        vec![Told("x"), Lists("1", false), Lists("x", false)],
    ];
    for (row, comes) in table.into_iter().enumerate() {
        let mut history = History::default();
        for (at, one) in comes.into_iter().enumerate() {
            match one {
                Told(version) => history.reached(version),
                Lists(version, want) => {
                    assert_eq!(history.went_back(version), want, "{row} {at}");
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_restored_member_has_is_news() {
    let restored = Arc::new(AtomicBool::new(false));
    let is_restored = restored.clone();
    let (member, _asked) = scripted(move |line| {
        if !line.starts_with("GET /api/v1/configmaps?") {
            return None;
        }
        // A watch ends at once, as while a server is stopped, and the member is asked how far it is.
        if line.contains("watch=") {
            return Some((200, json!({})));
        }
        let (newest, version) = match is_restored.load(Ordering::Relaxed) {
            false => ("20", "19"),
            true => ("10", "9"),
        };
        let mut object = marked("a", "o", "w");
        object["metadata"]["resourceVersion"] = version.into();
        let list = json!({"metadata": {"resourceVersion": newest}, "items": [object]});
        Some((200, list))
    });
    let parts = Handles::new(scripted(|_| None).0, member).await;
    let source = Arc::new(source(&parts));
    let name = parts.knows(&wire("w", "1", &[map("a")]));
    let watching = tokio::spawn(source.watch_kind(Arc::new(maps())));
    let _watching = AbortOnDropHandle::new(watching);
    for (is_restored, version) in [(false, 19), (true, 9)] {
        restored.store(is_restored, Ordering::Relaxed);
        let next = timeout(Duration::from_secs(60), parts.queue.next()).await;
        assert_eq!(next.expect("it is news"), name, "{version}");
        parts.queue.done(&name);
        let mut state = parts.state.lock();
        let kind = state.kind(&maps().gvk);
        let key = state.key(kind, "n", "a");
        assert_eq!(state.live(&key).map(|live| live.version), Some(version));
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_that_changed_is_reported_after_it_was_gathered() {
    let parts = Handles::alone().await;
    let source = source(&parts);
    let deployments = Resource {
        gvk: Gvk::new("apps/v1", "Deployment").expect("sound"),
        plural: "deployments".into(),
        namespaced: true,
    };
    let mut manifest = map("a");
    manifest["apiVersion"] = "apps/v1".into();
    manifest["kind"] = "Deployment".into();
    let name = parts.knows(&wire("w", "1", &[manifest]));
    let mut object = marked("a", "o", "w");
    let (gvk, meta) = (&deployments.gvk, LiveMeta::read(&object));
    // As the answer to its apply left it.
    let live = LiveRecord::new(Shown::built_in(gvk, &object), meta, "karmada-es-m1", true);
    let kind = parts.state.lock().kind(gvk);
    let key = parts.state.lock().key(kind, "n", "a");
    parts.state.lock().set_live(&key, Some(live));
    object["metadata"]["resourceVersion"] = "10".into();
    object["status"] = json!({"replicas": 1, "observedGeneration": 1});
    source.live_seen(&deployments, &object).await;
    assert_eq!(parts.queued(), [""; 0]);
    assert_eq!(parts.reporter.queue.try_next(), None);
    let reported = parts.reporter.queue.next().await;
    assert_eq!(reported, name);
}
