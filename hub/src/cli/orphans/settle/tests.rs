//! Which Works carry orders, and what becomes of these.

use super::*;
use crate::cli::error::scripted::{self, Ask, Asked};
use http::Method;
use serde_json::Value;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

fn work(value: Value) -> Work {
    serde_json::from_value(value).expect("a Work")
}

#[test]
fn only_an_empty_work_with_an_order_was_made_for_it() {
    let base = |annotation: &str, manifests: Value| {
        work(
            json!({"metadata": {"name": "w", "annotations": {annotation: "true"}},
            "spec": {"suspendDispatching": true, "workload": {"manifests": manifests}}}),
        )
    };
    assert!(was_made(&base(TELL_ORPHANS, json!([]))));
    assert!(was_made(&base(DELETE_ORPHANS, json!([]))));
    assert!(!was_made(&base(DELETE_ORPHANS, json!([{"kind": "A"}]))));
    assert!(!was_made(&base("other", json!([]))));
}

#[test]
fn what_is_told_is_taken_whole_or_not_at_all() {
    let entry = |ordinal: i64, status: Value| {
        json!({"identifier": {"ordinal": ordinal, "version": "v1", "kind": "ConfigMap", "name": "a"},
            "status": status})
    };
    let with = |entries: Value| {
        work(json!({"metadata": {"name": "w"}, "spec": {},
            "status": {"conditions": [{"type": "Dispatching", "status": "False", "reason": "r",
                "message": "", "lastTransitionTime": "2030-01-01T00:00:00Z"}],
                "manifestStatuses": entries}}))
    };
    let whole = with(json!([
        entry(1, json!({"b": 1})),
        entry(0, json!({"a": 1}))
    ]));
    assert!(is_told(&whole));
    let manifests = vec![json!({"a": 1}), json!({"b": 1})];
    assert_eq!(told(&whole), Some((manifests, false)));
    let itself = json!({"identifier": {"ordinal": 1, "group": "work.karmada.io", "version": "v1alpha1",
        "kind": "Work", "name": "w"}, "status": {"preserveResourcesOnDeletion": true}});
    let kept = with(json!([entry(0, json!({"a": 1})), itself]));
    assert_eq!(told(&kept), Some((vec![json!({"a": 1})], true)));
    assert_eq!(told(&with(json!([entry(0, Value::Null)]))), None);
    assert_eq!(told(&with(json!([]))), None);
    assert!(!is_told(&work(
        json!({"metadata": {"name": "w"}, "spec": {}})
    )));
}

fn orphan() -> OrphanedObject {
    OrphanedObject {
        work: "w".into(),
        kind: "ConfigMap".into(),
        name: "a".into(),
        uid: "of the object".into(),
        ..OrphanedObject::default()
    }
}

/// The Cluster, whose agent names these.
fn naming(objects: &[OrphanedObject]) -> Value {
    let report = json!({"count": objects.len(), "objects": objects});
    json!({"metadata": {"name": "m1"}, "spec": {"syncMode": "Pull"}, "status": {"agent": {"orphans": report}}})
}

/// A Work that a command made for an order, and about which the agent has said what it wanted.
fn carrier(annotation: &str) -> Value {
    json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
    "metadata": {"name": "w", "uid": "of the carrier", "resourceVersion": "5", "annotations": {annotation: "x"}},
    "spec": {"suspendDispatching": true, "workload": {}},
    "status": {
        "conditions": [{"type": "Dispatching", "status": "False", "reason": "r", "message": "",
            "lastTransitionTime": "2030-01-01T00:00:00Z"}],
        "manifestStatuses": [{"identifier": {"ordinal": 0, "version": "v1", "kind": "ConfigMap", "name": "a"},
            "status": {"kind": "ConfigMap"}}],
    }})
}

/// Settles the orphan on a hub that answers so.
async fn settled(
    way: Way,
    stop: CancellationToken,
    answer: impl Fn(&Ask) -> Option<(u16, Value)> + Send + Sync + 'static,
) -> (Result<usize, CliError>, Asked) {
    let (client, asked) = scripted::hub(answer);
    let name = ClusterName::parse("m1").expect("a name");
    let settlement = Settlement::new(client, &name, way, Duration::from_secs(60), stop);
    let run = settlement
        .run(&[], vec![orphan()], 1, &Output::stdio())
        .await;
    (run, asked)
}

fn is_work(ask: &Ask) -> bool {
    ask.path.contains("/works")
}

/// An order to delete that an earlier command left behind is not carried out by an adoption, nor stays on its Work.
#[tokio::test(start_paused = true)]
async fn an_adoption_takes_back_an_order_to_delete() {
    let (run, asked) = settled(Way::Adopt, CancellationToken::new(), |ask| {
        match is_work(ask) {
            true => Some((200, carrier(DELETE_ORPHANS))),
            false => Some((200, naming(&[]))),
        }
    })
    .await;
    assert_eq!(run.expect("adopted"), 1);
    let patches = scripted::by(&asked, &Method::PATCH);
    let annotations: Vec<&Value> = patches
        .iter()
        .map(|it| &it.body["metadata"]["annotations"])
        .collect();
    assert_eq!(
        annotations,
        [
            &json!({TELL_ORPHANS: "true", DELETE_ORPHANS: null}),
            &json!({TELL_ORPHANS: null, DELETE_ORPHANS: null}),
        ]
    );
    assert_eq!(
        patches[1].body["spec"]["workload"]["manifests"],
        json!([{"kind": "ConfigMap"}])
    );
    assert!(scripted::by(&asked, &Method::DELETE).is_empty());
}

/// How a hub answers the making of a carrier.
#[derive(Debug, Clone, Copy)]
enum Making {
    /// And whoever runs the command ends it then.
    Interrupted,
    /// It is made, and nobody hears of it.
    Lost,
    /// Another one is there by now.
    Refused,
}

/// Deletes on a hub without a Work of that name, on which so many writes come before that of whoever deletes it; with none
/// nobody answers them.
async fn deleted(making: Making, writes: Option<usize>) -> (Result<usize, CliError>, Asked) {
    let stop = CancellationToken::new();
    let (stops, made) = (stop.clone(), AtomicBool::new(false));
    let tries = AtomicUsize::new(0);
    settled(Way::Delete, stop, move |ask| {
        if !is_work(ask) {
            return Some((200, naming(&[orphan()])));
        }
        match (&ask.method, making) {
            (&Method::POST, Making::Refused) => {
                made.store(true, Ordering::Relaxed);
                scripted::refusal(409, "exists")
            }
            (&Method::POST, making) => {
                made.store(true, Ordering::Relaxed);
                match making {
                    Making::Lost => return None,
                    _ => stops.cancel(),
                }
                Some((201, carrier(DELETE_ORPHANS)))
            }
            (&Method::DELETE, _) => {
                let before = tries.fetch_add(1, Ordering::Relaxed);
                match before < writes? {
                    true => scripted::refusal(409, "the object has been modified"),
                    false => Some((200, carrier(DELETE_ORPHANS))),
                }
            }
            _ if made.load(Ordering::Relaxed) => Some((200, carrier(DELETE_ORPHANS))),
            _ => scripted::refusal(404, "not found"),
        }
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn an_order_does_not_outlive_its_command() {
    for (making, kind, taken_back) in [
        (Making::Interrupted, Kind::Declined, true),
        (Making::Lost, Kind::Unavailable, true),
        // It is somebody else's.
        (Making::Refused, Kind::Denied, false),
    ] {
        let (run, asked) = deleted(making, Some(0)).await;
        assert_eq!(run.expect_err("not settled").kind, kind, "{making:?}");
        let posts = scripted::by(&asked, &Method::POST);
        let order = json!({DELETE_ORPHANS: "of the object"});
        assert_eq!(posts[0].body["metadata"]["annotations"], order);
        let deletes = scripted::by(&asked, &Method::DELETE);
        let uids: Vec<&Value> = deletes
            .iter()
            .map(|it| &it.body["preconditions"]["uid"])
            .collect();
        let want = match taken_back {
            true => vec!["of the carrier"],
            false => Vec::new(),
        };
        assert_eq!(uids, want, "{making:?}");
    }
}

/// What the agent says in a Work meanwhile changes it, and leaves the order in it.
#[tokio::test(start_paused = true)]
async fn an_order_is_taken_back_though_its_work_changes() {
    let (run, asked) = deleted(Making::Interrupted, Some(2)).await;
    assert_eq!(run.expect_err("interrupted").kind, Kind::Declined);
    assert_eq!(scripted::by(&asked, &Method::DELETE).len(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_order_that_may_be_left_is_told() {
    let (run, _) = deleted(Making::Interrupted, None).await;
    let error = run.expect_err("interrupted").to_string();
    assert!(error.contains("1 objects are not settled"), "{error}");
    let command = format!(
        "kubectl annotate works -n karmada-es-m1 w --overwrite {DELETE_ORPHANS}- {TELL_ORPHANS}=true"
    );
    assert!(error.contains(&command), "{error}");
}

/// Whoever was asked about one has not agreed to the next.
#[tokio::test(start_paused = true)]
async fn what_is_orphaned_after_the_question_is_not_deleted() {
    let later = OrphanedObject {
        uid: "of a later one".into(),
        ..orphan()
    };
    let (run, asked) = settled(
        Way::Delete,
        CancellationToken::new(),
        move |ask| match is_work(ask) {
            true => Some((200, carrier(DELETE_ORPHANS))),
            false => Some((200, naming(std::slice::from_ref(&later)))),
        },
    )
    .await;
    let error = run.expect_err("there is more");
    assert_eq!(error.kind, Kind::Unmet, "{error}");
    assert_eq!(scripted::by(&asked, &Method::PATCH).len(), 1);
}

/// A hub that restarts ends no wait.
#[tokio::test(start_paused = true)]
async fn a_hub_that_does_not_answer_for_a_moment_is_asked_again() {
    let asks = AtomicUsize::new(0);
    let (run, _) = settled(Way::Delete, CancellationToken::new(), move |ask| {
        match is_work(ask) {
            true => Some((200, carrier(DELETE_ORPHANS))),
            false if asks.fetch_add(1, Ordering::Relaxed) == 0 => Some((
                503,
                json!({"kind": "Status", "code": 503, "reason": "ServiceUnavailable", "message": "starts"}),
            )),
            false => Some((200, naming(&[]))),
        }
    })
    .await;
    assert_eq!(run.expect("settled"), 1);
}
