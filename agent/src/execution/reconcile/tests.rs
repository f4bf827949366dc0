//! The work on Works from end to end, by scripted APIs.

mod endings;

use super::*;
use crate::execution::apply::object::ObjectApplier;
use crate::execution::intake::autoscalers::Autoscalers;
use crate::execution::interpret::Interpreter;
use crate::execution::testing::{Asked, Handles, lines, map, marked, refusal, scripted, wire};
use crate::execution::wire::WireWork;
use common::chance::Chance;
use common::signal::Sender;
use serde_json::{Value, json};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// A reconciler over the handles.
fn reconciler(parts: &Handles) -> Reconciler {
    let chance = Chance::seeded(1);
    let (state, queue) = (parts.state.clone(), parts.queue.clone());
    let autoscalers = Autoscalers::new(
        parts.member.client(),
        state.clone(),
        queue.clone(),
        chance.clone(),
    );
    let orphans = Orphans::new(
        parts.member.clone(),
        state.clone(),
        parts.persister.clone(),
        parts.pruner.clone(),
        Sender::new(None),
    );
    Reconciler {
        state: state.clone(),
        contact: parts.contact.clone(),
        works: parts.reporter.works.clone(),
        persister: parts.persister.clone(),
        reporter: parts.reporter.clone(),
        orphans: Arc::new(orphans),
        applier: Applier {
            scope: parts.scope.clone(),
            member: parts.member.clone(),
            state: state.clone(),
            autoscalers: Arc::new(autoscalers),
            objects: ObjectApplier {
                scope: parts.scope.clone(),
                member: parts.member.clone(),
                state: state.clone(),
                queue: queue.clone(),
                persister: parts.persister.clone(),
                interpreter: Interpreter::default(),
                fights: Mutex::default(),
                clock: parts.clock.clone(),
            },
        },
        rounds: Rounds {
            state: state.clone(),
            queue: queue.clone(),
            persister: parts.persister.clone(),
            pruner: parts.pruner.clone(),
            reporter: parts.reporter.clone(),
            clock: parts.clock.clone(),
            errors: parts.errors.clone(),
            retries: chance.shared_stream("retries"),
        },
        deletion: Deletion {
            state,
            queue,
            persister: parts.persister.clone(),
            pruner: parts.pruner.clone(),
            works: parts.reporter.works.clone(),
            reporter: parts.reporter.clone(),
            view: Sender::new(None).subscribe(),
            clock: parts.clock.clone(),
        },
    }
}

/// A hub that takes what is written of the Work `w`.
fn hub() -> (kube::Client, Asked) {
    let after = json!({"metadata": {"name": "w", "uid": "1", "resourceVersion": "6"}});
    scripted(move |_| Some((200, after.clone())))
}

/// A version of the Work `w`.
fn version(generation: i64, manifests: &[Value]) -> WireWork {
    let mut work = wire("w", "1", manifests);
    work.metadata.generation = generation;
    work.metadata.resource_version = (generation + 10).to_string();
    work
}

/// A Namespace as a manifest that writes a namespace.
fn space(namespace: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n", "namespace": namespace}})
}

/// A member that has the Namespace `n` of the Work `w`.
fn member_with_space() -> (kube::Client, Asked) {
    scripted(|line| {
        let space = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n",
            "uid": "o", "resourceVersion": "9", "labels": {"karmada.io/managed": "true"},
            "annotations": {"work.karmada.io/namespace": "karmada-es-m1", "work.karmada.io/name": "w"}}});
        match line.starts_with("DELETE") {
            true => Some((200, json!({"kind": "Status"}))),
            false => Some((200, space)),
        }
    })
}

fn deleted(asked: &Asked) -> Vec<String> {
    let mut lines = lines(asked);
    lines.retain(|line| line.starts_with("DELETE"));
    lines
}

/// The condition `Degraded` of the last status that tells one.
fn degraded(told: &Asked) -> Option<(String, String)> {
    let told = told.lock().expect("nobody panics here");
    let conditions = |(_, body): &(String, Value)| body["status"]["conditions"].as_array().cloned();
    let last = told.iter().rev().find_map(conditions)?;
    let found = last.into_iter().find(|it| it["type"] == "Degraded")?;
    let text = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
    Some((text("status"), text("message")))
}

/// What RBAC of the member answers to an agent that may not do that to the ConfigMap `a`.
fn may_not(verb: &str) -> (u16, Value) {
    let (code, mut body) = refusal(403, "Forbidden");
    body["message"] = json!(format!(
        "configmaps \"a\" is forbidden: User \"x\" cannot {verb} resource \"configmaps\" in API group \"\""
    ));
    (code, body)
}

/// The namespace that a manifest writes makes no other object of it where its kind has none.
#[tokio::test(start_paused = true)]
async fn an_object_without_namespace_stays_whichever_its_manifest_writes() {
    let (member, asked) = member_with_space();
    let parts = Handles::new(hub().0, member).await;
    let reconciler = reconciler(&parts);
    for (generation, namespace) in [(1, "a"), (2, ""), (3, "b")] {
        let name = parts.knows(&version(generation, &[space(namespace)]));
        reconciler.reconcile(&name).await.expect("worked on");
        assert_eq!(deleted(&asked), [""; 0], "{namespace}");
        assert_eq!(parts.state.lock().works["w"].leaving, []);
    }
    let name = parts.knows(&version(4, &[]));
    reconciler.reconcile(&name).await.expect("worked on");
    assert_eq!(deleted(&asked), ["DELETE /api/v1/namespaces/n"]);
}

#[tokio::test(start_paused = true)]
async fn an_object_without_namespace_that_is_named_twice_is_told_and_stays() {
    let (member, asked) = member_with_space();
    let (hub, told) = hub();
    let parts = Handles::new(hub, member).await;
    let reconciler = reconciler(&parts);
    let name = parts.knows(&version(1, &[space("a"), space("b")]));
    reconciler.reconcile(&name).await.expect("worked on");
    let text = "manifest 1 (Namespace b/n) names the same object as manifest 0";
    {
        let told = told.lock().expect("nobody panics here");
        assert!(told.iter().any(|(_, body)| body.to_string().contains(text)));
    }
    let name = parts.knows(&version(2, &[space("a")]));
    reconciler.reconcile(&name).await.expect("worked on");
    assert_eq!(deleted(&asked), [""; 0]);
    assert_eq!(parts.state.lock().works["w"].leaving, []);
}

/// An agent that is killed then, and does not hear of its hub, would make it again.
#[tokio::test(start_paused = true)]
async fn what_left_a_work_goes_once_that_is_stored() {
    let (member, asked) = scripted(|line| match line.starts_with("DELETE") {
        true => Some((200, json!({"kind": "Status"}))),
        false if line.contains("/configmaps/b") => Some((200, marked("b", "p", "w"))),
        false => Some((200, marked("a", "o", "w"))),
    });
    let parts = Handles::new(hub().0, member).await;
    let reconciler = reconciler(&parts);
    let name = parts.knows(&version(1, &[map("a"), map("b")]));
    parts
        .persister
        .touch_changed(&mut parts.state.lock(), &name);
    reconciler.reconcile(&name).await.expect("worked on");
    parts.persister.flush_at_end().await;
    let name = parts.knows(&version(2, &[map("a")]));
    parts
        .persister
        .touch_changed(&mut parts.state.lock(), &name);
    {
        let mut round = std::pin::pin!(reconciler.reconcile(&name));
        let early = tokio::time::timeout(Duration::from_secs(1), &mut round).await;
        assert!(early.is_err());
        assert_eq!(deleted(&asked), [""; 0]);
        parts.persister.flush_at_end().await;
        round.await.expect("worked on");
    }
    assert_eq!(
        deleted(&asked),
        ["DELETE /api/v1/namespaces/n/configmaps/b"]
    );
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_deleted_is_told_until_it_is() {
    let may = Arc::new(AtomicBool::new(false));
    let allowed = may.clone();
    let (member, _) = scripted(move |line| {
        if !line.starts_with("DELETE") {
            return Some((200, marked("a", "o", "w")));
        }
        if allowed.load(Ordering::Relaxed) {
            return Some((200, json!({"kind": "Status"})));
        }
        Some(may_not("delete"))
    });
    let (hub, told) = hub();
    let parts = Handles::new(hub, member).await;
    let reconciler = reconciler(&parts);
    let name = parts.knows(&version(1, &[map("a")]));
    reconciler.reconcile(&name).await.expect("worked on");
    let name = parts.knows(&version(2, &[]));
    let again = reconciler.reconcile(&name).await.expect("worked on");
    assert_eq!(degraded(&told), None, "it may just take a moment");
    let Requeue::After(pause) = again else {
        unreachable!("it is to be tried again");
    };
    tokio::time::advance(pause).await;
    reconciler.reconcile(&name).await.expect("worked on");
    let (status, message) = degraded(&told).expect("told");
    assert_eq!(status, "True");
    assert!(
        message.contains("ConfigMap n/a: the agent may not delete configmaps"),
        "{message}"
    );
    may.store(true, Ordering::Relaxed);
    reconciler.reconcile(&name).await.expect("worked on");
    assert_eq!(parts.state.lock().works["w"].leaving, []);
    assert_eq!(degraded(&told).expect("told").0, "False");
}

/// Whoever waits for a Work to go is told what to allow, whether its objects are to go with it or to stay.
#[tokio::test(start_paused = true)]
async fn what_the_agent_may_not_take_out_with_its_work_is_told_with_what_to_do() {
    for (preserve, method, verb) in [(false, "DELETE", "delete"), (true, "PATCH", "patch")] {
        let (member, _) = scripted(move |line| match line.starts_with(method) {
            true => Some(may_not(verb)),
            false => Some((200, marked("a", "o", "w"))),
        });
        let (hub, told) = hub();
        let parts = Handles::new(hub, member).await;
        let reconciler = reconciler(&parts);
        let mut going = version(1, &[map("a")]);
        going.metadata.deletion_timestamp = Some("2030-01-01T00:00:00Z".into());
        let name = parts.knows(&going);
        if let Some(record) = parts.state.lock().works.get_mut(&name) {
            record.preserve = preserve;
        }
        reconciler.reconcile(&name).await.expect("worked on");
        assert_eq!(degraded(&told), None, "it may just take a moment");
        tokio::time::advance(Duration::from_secs(5)).await;
        reconciler.reconcile(&name).await.expect("worked on");
        let (status, message) = degraded(&told).expect("told");
        assert_eq!(status, "True");
        let what = format!(
            "Deletion waits for: ConfigMap n/a: the agent may not {verb} configmaps in the namespace \"n\"; allow it \
             in the member with `towline register --allow configmaps`"
        );
        assert!(message.starts_with(&what), "{message}");
    }
}

/// A later life does not know at first what an earlier one has told, nor whether it still holds.
#[tokio::test(start_paused = true)]
async fn what_an_earlier_life_has_told_of_a_deletion_stands_while_the_hub_lists() {
    let (member, asked) = scripted(|line| {
        let waits = json!("2030-01-01T00:00:00Z");
        let mut going = marked("b", "p", "w");
        going["metadata"]["finalizers"] = json!(["example.com/x"]);
        going["metadata"]["deletionTimestamp"] = waits;
        match line.contains("/configmaps/b") {
            true => Some((200, going)),
            false => Some((200, marked("a", "o", "w"))),
        }
    });
    let (hub, told) = hub();
    let parts = Handles::new(hub, member).await;
    let reconciler = reconciler(&parts);
    let name = parts.knows(&version(1, &[map("a")]));
    reconciler.reconcile(&name).await.expect("worked on");
    let leaving = crate::execution::manifest::targets(&json!([map("b")]).to_string());
    let blocked = conditions::deletion_blocked(&["ConfigMap n/b".to_owned()]);
    {
        let mut state = parts.state.lock();
        let record = state.works.get_mut(&name).expect("known");
        record.leaving = leaving;
        let now = parts.clock.now();
        let condition = common::conditions::new(
            blocked.kind,
            blocked.status,
            blocked.reason,
            blocked.message,
            now,
        );
        common::conditions::set(&mut record.conditions, condition, now);
        state.list_begins();
        state.seen("w");
    }
    reconciler.reconcile(&name).await.expect("worked on");
    let now = degraded(&told);
    assert!(
        now.as_ref().is_none_or(|(status, _)| status == "True"),
        "{now:?}"
    );
    assert!(
        lines(&asked)
            .iter()
            .all(|line| !line.contains("/configmaps/b"))
    );
    parts.state.lock().list_ends();
    reconciler.reconcile(&name).await.expect("worked on");
    let (status, message) = degraded(&told).expect("told");
    assert_eq!(status, "True");
    assert!(
        message.contains("ConfigMap n/b (finalizers: example.com/x)"),
        "{message}"
    );
}

/// A Work may be made anew, by the same name, while its objects are taken out of the member.
#[tokio::test(start_paused = true)]
async fn what_became_of_a_work_is_not_told_of_another_of_its_name() {
    let (member, _) = scripted(|line| match line.starts_with("DELETE") {
        true => Some((200, json!({"kind": "Status"}))),
        false => Some((200, marked("a", "o", "w"))),
    });
    let parts = Handles::new(hub().0, member).await;
    let reconciler = reconciler(&parts);
    let name = parts.knows(&version(1, &[map("a"), map("b")]));
    parts
        .persister
        .touch_changed(&mut parts.state.lock(), &name);
    parts.persister.flush_at_end().await;
    let name = parts.knows(&version(2, &[map("a")]));
    parts
        .persister
        .touch_changed(&mut parts.state.lock(), &name);
    {
        let mut round = std::pin::pin!(reconciler.reconcile(&name));
        let early = tokio::time::timeout(Duration::from_secs(1), &mut round).await;
        assert!(early.is_err(), "it waits for the stored set");
        let mut other = version(3, &[map("a")]);
        other.metadata.uid = "2".to_owned();
        parts.knows(&other);
        parts.persister.flush_at_end().await;
        round.await.expect("worked on");
    }
    let state = parts.state.lock();
    assert_eq!(*state.works["w"].uid, *"2");
    assert_eq!(state.works["w"].verdicts, []);
}

/// Of a kind that is gone each object would ask again, in each version.
#[tokio::test(start_paused = true)]
async fn a_work_that_goes_asks_once_for_a_kind_that_is_gone() {
    let (member, asked) = scripted(|_| None);
    let parts = Handles::new(hub().0, member).await;
    let reconciler = reconciler(&parts);
    let till = |name: &str| {
        let meta = json!({"namespace": "n", "name": name});
        json!({"apiVersion": "shop.example.com/v1", "kind": "Till", "metadata": meta})
    };
    let mut going = version(1, &[till("a"), till("b"), till("c")]);
    going.metadata.deletion_timestamp = Some("2030-01-01T00:00:00Z".into());
    let name = parts.knows(&going);
    let ended = reconciler.deletion.delete_work(&name).await;
    assert!(matches!(ended, Ok(None)), "{ended:?}");
    let want = [
        "GET /apis/shop.example.com/v1",
        "GET /apis/shop.example.com",
    ];
    assert_eq!(lines(&asked), want);
    assert!(!parts.state.lock().works.contains_key("w"));
}

/// What stays when its Work goes is not taken from another Work that wants it.
#[tokio::test(start_paused = true)]
async fn what_is_preserved_is_handed_over_to_another_work_that_wants_it() {
    let (member, asked) = scripted(|_| Some((200, marked("a", "o", "w"))));
    let parts = Handles::new(hub().0, member).await;
    let reconciler = reconciler(&parts);
    let going = json!({
        "metadata": {"name": "w", "uid": "1", "resourceVersion": "5", "generation": 1,
            "deletionTimestamp": "2030-01-01T00:00:00Z",
            "finalizers": [common::labels::WORK_FINALIZER]},
        "spec": {"workload": {"manifests": [map("a")]}, "preserveResourcesOnDeletion": true}});
    let going: WireWork = serde_json::from_value(going).expect("decodes");
    let name = parts.knows(&going);
    parts.knows(&wire("heir", "2", &[map("a")]));
    let ended = reconciler.deletion.delete_work(&name).await;
    assert!(ended.is_ok(), "{ended:?}");
    assert_eq!(
        lines(&asked),
        ["GET /api/v1/namespaces/n/configmaps/a"],
        "its marks stay on it"
    );
    assert_eq!(parts.queued(), ["heir"]);
    let mut state = parts.state.lock();
    let targets = crate::execution::manifest::targets(&json!([map("a")]).to_string());
    let key = state.key_of(&targets[0], "n");
    assert!(state.has_claim("heir", &key, "o"));
}

/// A Work of which an object waits is not applied: what its manifest says anew was never ours.
#[tokio::test(start_paused = true)]
async fn a_field_that_came_while_its_object_was_held_is_left_to_its_owner() {
    let made = AtomicBool::new(false);
    let made = Arc::new(made);
    let (member, asked) = scripted(move |line| {
        if line.starts_with("PATCH") && made.swap(true, Ordering::Relaxed) {
            let (code, mut body) = refusal(409, "Conflict");
            let message = "conflict with \"other\" using v1";
            body["details"] = json!({"causes": [{"reason": "FieldManagerConflict",
                "field": ".data.theirs", "message": message}]});
            return Some((code, body));
        }
        Some((201, marked("a", "o", "w")))
    });
    let (hub, told) = hub();
    let parts = Handles::new(hub, member).await;
    let reconciler = reconciler(&parts);
    let name = parts.knows(&version(1, &[map("a")]));
    reconciler.reconcile(&name).await.expect("worked on");
    let hold = |until| {
        let mut state = parts.state.lock();
        let key = state.objects.keys().next().cloned().expect("known");
        let mut live = state.live(&key).cloned().expect("applied");
        live.hold_until = until;
        state.set_live(&key, Some(live));
    };
    hold(Some(parts.clock.now() + Duration::from_secs(3600)));
    let mut more = map("a");
    more["data"] = json!({"theirs": "1"});
    let name = parts.knows(&version(2, &[more]));
    for _ in 0..2 {
        reconciler.reconcile(&name).await.expect("worked on");
        assert_eq!(lines(&asked).len(), 1, "it is held");
    }
    hold(None);
    reconciler.reconcile(&name).await.expect("worked on");
    let asked = lines(&asked);
    assert!(!asked.iter().any(|line| line.contains("force=true")));
    let told = told.lock().expect("nobody panics here");
    let (_, last) = told.last().expect("told");
    let last = last.to_string();
    assert!(last.contains(".data.theirs is owned by"), "{last}");
}
