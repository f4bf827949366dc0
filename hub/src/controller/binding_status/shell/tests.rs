//! The shell over API servers by script, under paused time.

use super::*;
use crate::controller::notices::Notices;
use crate::world::testing::{answering, at_once, unreachable};
use common::controller::Failure as _;
use common::labels::{BINDING_NAME, BINDING_NAMESPACE};
use common::time::SystemClock;
use http::StatusCode;
use kube::client::Body;
use serde_json::json;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::Duration;
use tokio::time::timeout;

fn deployment() -> Gvk {
    Gvk::new("apps/v1", "Deployment").expect("a kind")
}

/// The Deployment shop/web.
fn template(version: &str, ready: u32) -> Value {
    json!({"metadata": {"namespace": "shop", "name": "web", "uid": "u", "resourceVersion": version},
        "status": {"readyReplicas": ready}})
}

/// Tells a world of the Deployment, of a binding that names it by this UID, and of a Work of that by which the status of
/// the Deployment is to be written; the binding's name.
async fn tell(world: &World, namespace: &str, uid: &str) -> ObjectName {
    let views = &world.propagation;
    let templates = views.templates.told_of(&deployment());
    templates.listed(&[template("1", 3)]).await;
    let resource = json!({"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": "web", "uid": uid});
    let binding = json!({"metadata": {"namespace": namespace, "name": "x", "uid": "b", "resourceVersion": "1", "generation": 1},
        "spec": {"resource": resource, "clusters": [{"name": "m1"}]}});
    views.bindings.listed(&[binding]).await;
    let applied = json!({"type": "Applied", "status": "True", "reason": "R", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let annotations = json!({BINDING_NAMESPACE: namespace, BINDING_NAME: "x"});
    let work = json!({"metadata": {"namespace": "karmada-es-m1", "name": "w", "resourceVersion": "1", "annotations": annotations},
        "spec": {"workload": {}}, "status": {"conditions": [applied]}});
    world.works.listed(&[work]).await;
    ObjectName::new(Some(namespace), "x")
}

/// The controller, woken by nobody.
fn answers(client: Client, world: &World) -> Answers {
    let bindings = Bindings::new(client.clone(), world.clone(), Notices::default());
    let clock = Arc::new(SystemClock);
    Answers::new(client, (bindings, Placing::watching(world)), clock, world)
}

#[tokio::test(start_paused = true)]
async fn a_status_that_was_written_is_seen_before_the_next_is_made() {
    let (world, written) = (unreachable(), template("8", 2));
    let view = world.propagation.templates.told_of(&deployment());
    view.listed(&[template("7", 1)]).await;
    let answers = answers(at_once(written.to_string()), &world);
    let held = view.get(&ObjectName::new(Some("shop"), "web"));
    let held = held.and_then(|it| it.record).expect("held");
    let patch = json!({"status": written["status"]});
    let binding = Binding::default();
    let mut write = pin!(answers.write_template(&binding, &held, &patch));
    let early = timeout(Duration::from_secs(1), write.as_mut()).await;
    assert!(early.is_err(), "the view does not have it yet");
    view.sent(&[written]).await;
    let done = timeout(Duration::from_secs(1), write).await;
    assert!(done.expect("it has it now").expect("answered"), "written");
}

/// Whoever may write a binding in their namespace, and what it names, has nobody else's status written.
#[tokio::test(start_paused = true)]
async fn a_binding_speaks_for_the_template_beside_it_alone() {
    // Where the binding lies, the UID that it names, and whether the template's status is written.
    let cases = [
        ("shop", "u", true),
        ("mine", "u", false),
        ("shop", "of one before", false),
    ];
    for (namespace, uid, is_written) in cases {
        let (client, asked) = answering(|_, _| StatusCode::OK);
        let world = unreachable();
        let answers = answers(client, &world);
        let key = tell(&world, namespace, uid).await;
        answers.reconcile(&key).await.expect("answered");
        let asked = std::mem::take(&mut *lock(&asked));
        let is_asked = |end: &str| asked.iter().any(|(_, path, _)| path.ends_with(end));
        let own = format!("/namespaces/{namespace}/resourcebindings/x/status");
        assert!(is_asked(&own), "{asked:?}");
        let found = is_asked("/namespaces/shop/things/web/status");
        assert_eq!(found, is_written, "{namespace} {uid}: {asked:?}");
    }
}

/// An API server that takes everything but the status of the template, and has other words each time.
fn refusing_in_other_words() -> Client {
    let asked = Arc::new(AtomicU32::new(0));
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let is_refused = request.uri().path().ends_with("/things/web/status");
        let (status, object) = if is_refused {
            let message = format!("denied: request {}", asked.fetch_add(1, Relaxed));
            (
                StatusCode::UNPROCESSABLE_ENTITY,
                json!({"kind": "Status", "status": "Failure", "message": message, "reason": "Invalid", "code": 422}),
            )
        } else {
            (
                StatusCode::OK,
                json!({"metadata": {"resourceVersion": "1"}}),
            )
        };
        let mut response = http::Response::new(Body::from(object.to_string().into_bytes()));
        *response.status_mut() = status;
        async move { Ok::<_, std::io::Error>(response) }
    });
    Client::new(service, "default")
}

/// It is tried again and again, for it may be taken some day; whoever waits for it is told why it is not.
#[tokio::test(start_paused = true)]
async fn a_status_that_is_refused_is_told_in_a_condition() {
    // Other words are no reason to ask again at once.
    let world = unreachable();
    let key = tell(&world, "shop", "u").await;
    let reworded = answers(refusing_in_other_words(), &world);
    for (request, ends) in [(0, Some(Requeue::After(PACE.0))), (1, None), (2, None)] {
        assert_eq!(reworded.reconcile(&key).await.ok(), ends, "{request}");
        let words = lock(&reworded.refused).get(&key).cloned();
        let last = format!("denied: request {request}");
        let is_last = words.as_ref().is_some_and(|it| it.ends_with(&last));
        assert!(is_last, "{words:?}");
    }

    let refuses = Arc::new(AtomicBool::new(true));
    let refusing = Arc::clone(&refuses);
    let (client, asked) = answering(move |_, path| {
        let refused = path.ends_with("/things/web/status") && refusing.load(Relaxed);
        match refused {
            true => StatusCode::UNPROCESSABLE_ENTITY,
            false => StatusCode::OK,
        }
    });
    let world = unreachable();
    let key = tell(&world, "shop", "u").await;
    let answers = answers(client, &world);
    // Whether the binding tells of it, and how the turn ends.
    let soon = Some(Requeue::After(PACE.0));
    for (refused, told, ends) in [
        (true, false, soon),
        (true, true, None),
        (false, true, soon),
        (false, false, Some(Requeue::Never)),
    ] {
        refuses.store(refused, Relaxed);
        assert_eq!(answers.reconcile(&key).await.ok(), ends, "{refused} {told}");
        let asked = std::mem::take(&mut *lock(&asked));
        let of = |end: &str| asked.iter().find(|(_, path, _)| path.ends_with(end));
        let (_, _, status) = of("/resourcebindings/x/status").expect("written");
        let is_told = status.to_string().contains("StatusAggregated");
        assert_eq!(is_told, told, "{refused}: {status}");
        assert!(of("/things/web/status").is_some(), "{asked:?}");
    }
}

/// As a custom kind whose definition has no status subresource.
#[tokio::test(start_paused = true)]
async fn a_kind_that_has_no_status_of_its_own_is_told_and_not_asked_again_at_rest() {
    let (client, asked) = answering(|_, path| match path.ends_with("/things/web/status") {
        true => StatusCode::NOT_FOUND,
        false => StatusCode::OK,
    });
    let world = unreachable();
    let key = tell(&world, "shop", "u").await;
    let answers = answers(client, &world);
    let first = answers.reconcile(&key).await.expect("answered");
    assert_eq!(first, Requeue::After(PACE.0));
    lock(&asked).clear();
    let refused = answers.reconcile(&key).await.expect_err("refused");
    assert!(refused.lasts() && refused.to_string().contains("no status subresource"));
    let said = lock(&asked)
        .iter()
        .map(|(_, _, body)| body.to_string())
        .collect::<String>();
    assert!(said.contains("AggregateStatusRefused"), "{said}");

    // It is gone, and the view learns of it: that is no refusal, and nothing was written.
    let binding = world.propagation.binding(&key).expect("held");
    let (_, held) = answers.template(&binding.binding).expect("held");
    let templates = world.propagation.templates.told_of(&deployment());
    templates.listed(&[]).await;
    let patch = json!({"status": {}});
    let written = answers.write_template(&binding.binding, &held, &patch);
    assert!(!written.await.expect("gone"), "not written");
    assert_eq!(
        answers.reconcile(&key).await.ok(),
        Some(Requeue::After(PACE.0))
    );
    assert!(lock(&answers.refused).is_empty());
}
