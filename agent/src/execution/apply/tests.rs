//! What is left to the member while its autoscalers are not known.

use super::*;
use crate::execution::desired::format_hash;
use crate::execution::interpret::Interpreter;
use crate::execution::testing::{Asked, Handles, refusal, scripted, wire};
use common::chance::Chance;
use serde_json::{Value, json};
use std::sync::Mutex;

const WEB: &str = "/apis/apps/v1/namespaces/n/deployments/web";

fn applier(parts: &Handles) -> Applier {
    let (state, queue) = (parts.state.clone(), parts.queue.clone());
    let client = parts.member.client();
    let autoscalers = Autoscalers::new(client, state.clone(), queue.clone(), Chance::seeded(1));
    Applier {
        scope: parts.scope.clone(),
        member: parts.member.clone(),
        state: state.clone(),
        autoscalers: Arc::new(autoscalers),
        objects: ObjectApplier {
            scope: parts.scope.clone(),
            member: parts.member.clone(),
            state,
            queue,
            persister: parts.persister.clone(),
            interpreter: Interpreter::default(),
            fights: Mutex::default(),
            clock: parts.clock.clone(),
        },
    }
}

fn manifest(paused: bool) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": "n", "name": "web"},
        "spec": {"replicas": 2, "paused": paused}})
}

/// The mark that a manifest leaves.
fn mark(manifest: &Value, scaled: bool) -> String {
    let manifest = Manifest::from_value(0, manifest.clone()).expect("sound");
    let work = WorkRef {
        namespace: "karmada-es-m1",
        name: "w",
    };
    format_hash(Desired::new(&manifest, work, true, scaled).hash)
}

/// The Deployment of the Work `w` in a member, with replicas that are not ours.
fn live(mark: &str) -> Value {
    let owned = json!({"f:metadata": {"f:labels": {"f:karmada.io/managed": {}}, "f:annotations": {
        "f:work.karmada.io/namespace": {}, "f:work.karmada.io/name": {}, "f:towline.dev/manifest-hash": {}}},
        "f:spec": {"f:paused": {}}});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": "n", "name": "web",
        "uid": "o", "resourceVersion": "9", "labels": {"karmada.io/managed": "true"},
        "annotations": {"work.karmada.io/namespace": "karmada-es-m1", "work.karmada.io/name": "w",
            "towline.dev/manifest-hash": mark},
        "managedFields": [{"manager": "towline", "operation": "Apply", "fieldsV1": owned}]},
        "spec": {"replicas": 50, "paused": true}})
}

/// A member that serves it, lists no autoscaler, and has others own the replicas.
fn member(live: Value) -> (kube::Client, Asked) {
    scripted(move |line| {
        if line.contains("horizontalpodautoscalers") {
            let list = json!({"metadata": {"resourceVersion": "3"}, "items": []});
            return (!line.contains("watch=")).then_some((200, list));
        }
        if line.ends_with("force=true") {
            return Some((200, self::live(&mark(&manifest(true), true))));
        }
        if line.starts_with("GET") {
            return Some((200, live.clone()));
        }
        let (code, mut body) = refusal(409, "Conflict");
        body["details"] = json!({"causes": [{"reason": "FieldManagerConflict",
            "field": ".spec.replicas", "message": "conflict with \"kube-controller-manager\" using apps/v1"}]});
        Some((code, body))
    })
}

fn forces_replicas(asked: &Asked) -> bool {
    let asked = asked.lock().expect("nobody panics here");
    let forces = |line: &str| line.starts_with("PATCH") && line.ends_with("force=true");
    asked
        .iter()
        .any(|(line, body)| forces(line) && body.pointer("/spec/replicas").is_some())
}

/// After a start the autoscalers may be listed last of all.
#[tokio::test(start_paused = true)]
async fn replicas_of_others_stay_until_it_is_known_that_no_autoscaler_decides_them() {
    let (earlier, wanted) = (manifest(false), manifest(true));
    for (mark, changed) in [
        (mark(&wanted, true), false),
        // An autoscaler may have come while nobody looked.
        (mark(&wanted, false), false),
        (mark(&earlier, true), true),
    ] {
        let (client, asked) = member(live(&mark));
        let parts = Handles::new(scripted(|_| None).0, client).await;
        let applier = applier(&parts);
        if changed {
            parts.knows(&wire("w", "1", std::slice::from_ref(&earlier)));
        }
        let mut work = wire("w", "1", std::slice::from_ref(&wanted));
        work.metadata.generation = 2;
        let name = parts.knows(&work);
        let round = async || {
            let job = Job::read(&parts.state.lock(), &name).expect("known");
            applier.apply(&job).await
        };
        for _ in 0..2 {
            round().await;
            assert!(!forces_replicas(&asked), "{mark}: {asked:?}");
        }
        let again = tokio::select! {
            biased;
            () = applier.autoscalers.run() => unreachable!("it never ends"),
            again = parts.queue.next() => again,
        };
        assert_eq!(*again, *name);
        round().await;
        assert!(forces_replicas(&asked), "{mark}: {asked:?}");
    }
}

/// Nothing that is new waits for a list that may never come.
#[tokio::test(start_paused = true)]
async fn what_is_new_is_made_with_its_replicas() {
    let (client, asked) = scripted(|line| match line.starts_with("PATCH") {
        true => Some((201, live(""))),
        false => None,
    });
    let parts = Handles::new(scripted(|_| None).0, client).await;
    let name = parts.knows(&wire("w", "1", &[manifest(true)]));
    let job = Job::read(&parts.state.lock(), &name).expect("known");
    let ended = applier(&parts).apply(&job).await;
    assert!(matches!(ended[0].outcome, Outcome::Done), "{asked:?}");
    let asked = asked.lock().expect("nobody panics here");
    let lines: Vec<&str> = asked.iter().map(|(line, _)| line.as_str()).collect();
    let create = format!("PATCH {WEB}?fieldManager=towline&force=false");
    assert_eq!(lines, [format!("GET {WEB}"), create]);
    assert_eq!(asked[1].1["spec"]["replicas"], 2);
}
