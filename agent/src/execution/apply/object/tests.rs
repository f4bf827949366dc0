//! What is asked of the member for one object.

mod versions;

use super::*;
use crate::execution::desired::WorkRef;
use crate::execution::manifest::read_all;
use crate::execution::testing::{
    Asked, Handles, lines, map, marked, refusal, scripted, scripts, wire,
};
use common::gvk::Gvk;
use common::labels::KEPT_FROM;
use serde_json::json;
use std::sync::atomic::{AtomicUsize, Ordering};

const CREATE: &str = "PATCH /api/v1/namespaces/n/configmaps/a?fieldManager=towline&force=false";
const READ: &str = "GET /api/v1/namespaces/n/configmaps/a";

fn applier(parts: &Handles) -> ObjectApplier {
    ObjectApplier {
        scope: parts.scope.clone(),
        member: parts.member.clone(),
        state: parts.state.clone(),
        queue: parts.queue.clone(),
        persister: parts.persister.clone(),
        interpreter: Interpreter::default(),
        fights: Mutex::default(),
        clock: parts.clock.clone(),
    }
}

/// Applies the ConfigMap `a` for the Work `w`.
async fn apply(parts: &Handles) -> Outcome {
    apply_by(&applier(parts), parts, false).await
}

/// The same, perhaps once more.
async fn apply_by(objects: &ObjectApplier, parts: &Handles, again: bool) -> Outcome {
    let work = parts.knows(&wire("w", "1", &[map("a")]));
    let text = map("a").to_string();
    let manifest = read_all(&[&text]).remove(0).expect("sound");
    let gvk = &manifest.target.gvk;
    let resource = parts.member.resolve(gvk).await.expect("answers");
    let named = WorkRef {
        namespace: &parts.scope.namespace,
        name: &work,
    };
    let task = Task {
        work: &work,
        manifest: &manifest,
        resource: &resource.expect("served"),
        key: parts.state.lock().key_of(&manifest.target, "n"),
        desired: Desired::new(&manifest, named, true, false),
        before: again.then_some(&manifest.body),
        scripts: None,
        retry_at: None,
        unconfirmed: None,
    };
    objects.apply(&task).await
}

/// Whoever replaces the object takes the mark of the manifest away with it, or leaves marks of their own, as another
/// hub's agent does; then the object may even not be known as the Work's any more.
#[tokio::test]
async fn who_puts_another_object_in_its_place_again_and_again_is_left_alone_for_a_while() {
    let mut theirs = marked("a", "o", "w");
    let annotations = &mut theirs["metadata"]["annotations"];
    annotations["work.karmada.io/namespace"] = json!("karmada-es-m2");
    annotations["towline.dev/manifest-hash"] = json!("0000000000000001");
    for (found, forgets) in [
        (marked("a", "o", "w"), false),
        (theirs.clone(), false),
        (theirs, true),
    ] {
        let writes = Arc::new(AtomicUsize::new(0));
        let (member, asked) = scripted(move |line| match line {
            READ => Some((200, found.clone())),
            // It is taken for one that is not there first.
            _ if writes.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) => {
                Some(refusal(409, "Conflict"))
            }
            _ => Some((200, applied_by("towline"))),
        });
        let parts = Handles::new(scripted(|_| None).0, member).await;
        let objects = applier(&parts);
        let first = apply_by(&objects, &parts, false).await;
        assert!(
            matches!(first, Outcome::Done),
            "{first:?} {:?}",
            lines(&asked)
        );
        let mut outcome = Outcome::Done;
        for _ in 0..50 {
            {
                let mut state = parts.state.lock();
                let key = state.objects.keys().next().cloned().expect("known");
                state.set_live(&key, None);
                assert!(!forgets || state.disclaim("w", &key));
            }
            outcome = apply_by(&objects, &parts, true).await;
            if !matches!(outcome, Outcome::Done) {
                break;
            }
        }
        assert!(
            matches!(outcome, Outcome::Later(_, Waiting::Fight)),
            "{outcome:?}"
        );
        assert!(lines(&asked).len() < 100);
    }
}

fn applied_by(manager: &str) -> Value {
    let mut object = marked("a", "o", "w");
    object["metadata"]["managedFields"] = json!([{"manager": manager, "operation": "Apply"}]);
    object
}

#[tokio::test]
async fn what_is_not_there_is_created_and_claimed_by_one_request() {
    let (member, asked) = scripted(|_| Some((201, applied_by("towline"))));
    let parts = Handles::new(scripted(|_| None).0, member).await;
    assert!(matches!(apply(&parts).await, Outcome::Done));
    let asked = asked.lock().expect("sound");
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].0, CREATE);
    // No object is at this version: nothing that is there is changed.
    assert_eq!(asked[0].1["metadata"]["resourceVersion"], "1");
    let mut state = parts.state.lock();
    let kind = state.kind(&Gvk::new("v1", "ConfigMap").expect("sound"));
    let key = state.key(kind, "n", "a");
    assert!(state.has_claim("w", &key, "o"));
}

#[tokio::test]
async fn what_is_someones_is_left_to_them() {
    let (member, asked) = scripted(|line| match line {
        CREATE => Some(refusal(409, "Conflict")),
        _ => Some((200, map("a"))),
    });
    let parts = Handles::new(scripted(|_| None).0, member).await;
    let Outcome::Failed(text) = apply(&parts).await else {
        panic!("it was taken over");
    };
    assert!(text.contains("already exists in the cluster m1"), "{text}");
    assert_eq!(lines(&asked), [CREATE, READ]);
}

#[tokio::test]
async fn what_outlived_a_work_is_for_a_work_of_that_name_alone() {
    for (from, taken) in [
        ("karmada-es-m1/w", true),
        ("karmada-es-m1/v", false),
        ("karmada-es-m2/w", false),
        ("w", false),
    ] {
        let (member, asked) = scripted(move |line| match line {
            CREATE => Some(refusal(409, "Conflict")),
            _ => {
                let mut object = map("a");
                object["metadata"]["uid"] = json!("o");
                object["metadata"]["resourceVersion"] = json!("9");
                object["metadata"]["annotations"] = json!({KEPT_FROM: from});
                Some((200, object))
            }
        });
        let parts = Handles::new(scripted(|_| None).0, member).await;
        let outcome = apply(&parts).await;
        let forgot = json!({"annotations": {KEPT_FROM: null}, "uid": "o"});
        let asked = asked.lock().expect("sound");
        let noted = asked.iter().any(|(_, body)| body["metadata"] == forgot);
        assert_eq!(noted, taken, "{from}: {asked:?}");
        let refused = matches!(&outcome, Outcome::Failed(text) if text.contains("already exists"));
        assert_eq!(refused, !taken, "{from}");
    }
}

#[tokio::test]
async fn what_someone_made_meanwhile_is_given_back() {
    let (member, asked) = scripted(|line| match line {
        CREATE => Some((200, applied_by("someone"))),
        _ => Some((200, map("a"))),
    });
    let parts = Handles::new(scripted(|_| None).0, member).await;
    assert!(matches!(apply(&parts).await, Outcome::Failed(_)));
    assert_eq!(lines(&asked), [CREATE, CREATE, READ]);
    let body = &asked.lock().expect("sound")[1].1;
    let metadata = json!({"namespace": "n", "name": "a", "uid": "o"});
    assert_eq!(body["metadata"], metadata);
}

#[tokio::test]
async fn a_member_that_is_away_says_nothing_of_the_object() {
    let (member, _) = scripted(|_| Some(refusal(503, "ServiceUnavailable")));
    let parts = Handles::new(scripted(|_| None).0, member).await;
    assert!(matches!(apply(&parts).await, Outcome::Outage(_)));
}

const TILL: &str = "GET /apis/shop.example.com/v1/namespaces/n/tills/a";

/// Applies the Till `a` with these replicas and colour for a Work whose script leaves the replicas to the member.
async fn apply_till(parts: &Handles, spec: Value, healthy: bool) -> (Outcome, Arc<ObjectKey>) {
    let how = How {
        healthy,
        ..How::default()
    };
    apply_till_by(&applier(parts), parts, spec, how).await
}

/// The same, perhaps not named by the hub since the agent started.
async fn apply_known_till(
    parts: &Handles,
    spec: Value,
    healthy: bool,
    unconfirmed: Option<u64>,
) -> (Outcome, Arc<ObjectKey>) {
    let how = How {
        healthy,
        unconfirmed,
        ..How::default()
    };
    apply_till_by(&applier(parts), parts, spec, how).await
}

/// How a Till is applied.
#[derive(Default)]
struct How {
    /// Whether the script works.
    healthy: bool,
    /// Whether an autoscaler decides the replicas.
    scaled: bool,
    unconfirmed: Option<u64>,
}

async fn apply_till_by(
    objects: &ObjectApplier,
    parts: &Handles,
    spec: Value,
    how: How,
) -> (Outcome, Arc<ObjectKey>) {
    let retain = match how.healthy {
        true => "function Retain(d, o) d.spec.replicas = o.spec.replicas return d end",
        false => "function Retain() return nil end",
    };
    let text = scripts(&[("Retain", retain)]);
    let manifest = json!({"apiVersion": "shop.example.com/v1", "kind": "Till",
        "metadata": {"namespace": "n", "name": "a"}, "spec": spec});
    let work = parts.knows(&wire("w", "1", std::slice::from_ref(&manifest)));
    let manifest = read_all(&[&manifest.to_string()]).remove(0).expect("sound");
    let resource = parts.member.resolve(&manifest.target.gvk).await;
    let resource = resource.expect("answers").expect("served");
    let named = WorkRef {
        namespace: &parts.scope.namespace,
        name: &work,
    };
    let key = parts.state.lock().key_of(&manifest.target, "n");
    let task = Task {
        work: &work,
        manifest: &manifest,
        resource: &resource,
        key: key.clone(),
        desired: Desired::new(&manifest, named, true, how.scaled),
        before: None,
        scripts: Some(&Scripts::new(&text)),
        retry_at: Some(parts.clock.now()),
        unconfirmed: how.unconfirmed,
    };
    (objects.apply(&task).await, key)
}

/// A Till of the member with five replicas that was made with two, and who has which field.
fn till(version: u64, hash: &str, owned: &Value) -> Value {
    json!({"apiVersion": "shop.example.com/v1", "kind": "Till", "metadata": {"namespace": "n", "name": "a",
        "uid": "o", "resourceVersion": version.to_string(), "labels": {"karmada.io/managed": "true"},
        "annotations": {"work.karmada.io/namespace": "karmada-es-m1", "work.karmada.io/name": "w",
            "towline.dev/manifest-hash": hash},
        "managedFields": [{"manager": "towline", "operation": "Apply", "fieldsV1": owned}]},
        "spec": {"replicas": 5, "colour": "red"}})
}

fn serving_tills(till: Value) -> (kube::Client, Asked) {
    let list = json!({"resources": [{"name": "tills", "kind": "Till", "namespaced": true,
        "verbs": ["list", "patch"]}]});
    scripted(move |line| match line {
        "GET /apis/shop.example.com/v1" => Some((200, list.clone())),
        TILL => Some((200, till.clone())),
        line if line.starts_with("PATCH ") => Some((200, till.clone())),
        _ => None,
    })
}

fn hash_of(spec: &Value) -> String {
    let manifest = json!({"apiVersion": "shop.example.com/v1", "kind": "Till",
        "metadata": {"namespace": "n", "name": "a"}, "spec": spec});
    let manifest = read_all(&[&manifest.to_string()]).remove(0).expect("sound");
    let named = WorkRef {
        namespace: "karmada-es-m1",
        name: "w",
    };
    let desired = Desired::new(&manifest, named, true, false);
    crate::execution::desired::format_hash(desired.hash)
}

#[tokio::test(start_paused = true)]
async fn what_a_script_leaves_to_the_member_is_no_drift() {
    let spec = json!({"replicas": 2, "colour": "red"});
    let owned = json!({"f:spec": {"f:colour": {}}});
    let (member, asked) = serving_tills(till(9, &hash_of(&spec), &owned));
    let parts = Handles::new(scripted(|_| None).0, member).await;
    for _ in 0..2 {
        let (outcome, _) = apply_till(&parts, spec.clone(), true).await;
        assert!(matches!(outcome, Outcome::Done), "{outcome:?}");
    }
    // It was read, once to judge it and once for the script, and is known from then on.
    let lines = lines(&asked);
    let of_object = lines.iter().filter(|line| !line.ends_with("/v1"));
    assert_eq!(of_object.collect::<Vec<_>>(), [TILL, TILL]);
}

#[tokio::test(start_paused = true)]
async fn a_new_manifest_is_applied_with_what_stays() {
    let (member, asked) = serving_tills(till(
        9,
        &hash_of(&json!({"replicas": 2, "colour": "red"})),
        &json!({}),
    ));
    let parts = Handles::new(scripted(|_| None).0, member).await;
    let spec = json!({"replicas": 3, "colour": "blue"});
    let (outcome, _) = apply_till(&parts, spec, true).await;
    assert!(matches!(outcome, Outcome::Done), "{outcome:?}");
    let asked = asked.lock().expect("sound");
    let applied = asked.iter().find(|(line, _)| line.starts_with("PATCH "));
    let (_, body) = applied.expect("it was applied");
    assert_eq!(body["spec"], json!({"replicas": 5, "colour": "blue"}));
}

/// An earlier life may have applied what it did not come to store.
#[tokio::test(start_paused = true)]
async fn what_carries_another_mark_waits_for_the_hub() {
    let stored = json!({"replicas": 2, "colour": "blue"});
    let lost = json!({"f:spec": {}});
    for (mark, rescaled, heals) in [
        (json!({"replicas": 2, "colour": "red"}), 7, false),
        (stored.clone(), 7, true),
    ] {
        let (member, asked) = serving_tills(till(9, &hash_of(&mark), &lost));
        let parts = Handles::new(scripted(|_| None).0, member).await;
        let applied = apply_known_till(&parts, stored.clone(), true, Some(rescaled));
        let (outcome, _) = applied.await;
        let waits = matches!(outcome, Outcome::Later(_, Waiting::Hub));
        assert_eq!(waits, !heals, "{mark}: {outcome:?}");
        let wrote = lines(&asked).iter().any(|line| line.starts_with("PATCH "));
        assert_eq!(wrote, heals, "{mark}");
    }
    let mark = json!({"replicas": 2, "colour": "red"});
    let (member, _) = serving_tills(till(9, &hash_of(&mark), &lost));
    let parts = Handles::new(scripted(|_| None).0, member).await;
    let (outcome, _) = apply_till(&parts, stored, true).await;
    assert!(matches!(outcome, Outcome::Done), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn where_the_script_fails_nothing_is_written_over() {
    let (member, asked) = serving_tills(till(9, "0000000000000001", &json!({})));
    let parts = Handles::new(scripted(|_| None).0, member).await;
    let (outcome, _) = apply_till(&parts, json!({"replicas": 3}), false).await;
    let Outcome::Failed(text) = outcome else {
        panic!("it was applied");
    };
    let want = "Till n/a: ResourceInterpreterCustomization tills, Retain: expect the returned requires type is table but got nil";
    assert_eq!(text, want);
    assert!(!lines(&asked).iter().any(|line| line.starts_with("PATCH ")));
}

#[tokio::test(start_paused = true)]
async fn new_scripts_show_what_is_there_anew() {
    let spec = json!({"replicas": 2, "colour": "red"});
    let owned = json!({"f:metadata": {"f:labels": {}, "f:annotations": {}}, "f:spec": {}});
    let (member, asked) = serving_tills(till(9, &hash_of(&spec), &owned));
    let parts = Handles::new(scripted(|_| None).0, member).await;
    let (outcome, key) = apply_till(&parts, spec.clone(), true).await;
    assert!(matches!(outcome, Outcome::Done), "{outcome:?}");
    let by = {
        let mut state = parts.state.lock();
        let mut live = state.live(&key).cloned().expect("known");
        let by = std::mem::take(&mut live.shown_by);
        state.set_live(&key, Some(live));
        by
    };
    asked.lock().expect("sound").clear();
    apply_till(&parts, spec, true).await;
    assert_eq!(lines(&asked), [TILL]);
    assert_eq!(
        parts.state.lock().live(&key).map(|live| live.shown_by),
        Some(by)
    );
}
