//! Works that are being deleted, and those of clusters that are.

use crate::controller::binding::sync::Sync;
use crate::controller::bindings::{Bindings, Error};
use crate::controller::detector::Unsettled;
use crate::controller::detector::skip::Skips;
use crate::controller::namespace::{NamespaceSync, Spaces};
use crate::controller::notices::Notices;
use crate::world::testing::{answering, unreachable};
use crate::world::{ObjectName, World};
use common::controller::Reconcile as _;
use common::gvk::Gvk;
use common::labels::CLUSTER_BINDING_NAME;
use common::lock::lock;
use common::names::work_name;
use common::time::SystemClock;
use http::StatusCode;
use kube::Client;
use serde_json::{Value, json};
use std::sync::Arc;

const DELETED: &str = "2026-01-01T00:00:00Z";

/// A world in which a policy brings namespace n to m1, which is deleted at this time, and has this Work.
async fn world(deleted: Option<&str>, work: Option<Value>) -> World {
    let world = unreachable();
    let cluster = json!({"metadata": {"name": "m1", "resourceVersion": "1", "deletionTimestamp": deleted},
        "spec": {"syncMode": "Pull"}});
    world.clusters.listed(&[cluster]).await;
    let binding = json!({"metadata": {"name": "b", "uid": "u", "resourceVersion": "1", "generation": 1},
        "spec": {"clusters": [{"name": "m1"}],
            "resource": {"apiVersion": "v1", "kind": "Namespace", "name": "n", "uid": "t"}}});
    let views = &world.propagation;
    views.cluster_bindings.listed(&[binding]).await;
    let kind = Gvk::new("v1", "Namespace").expect("a kind");
    let n = json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "n", "uid": "t", "resourceVersion": "1"}});
    views.templates.told_of(&kind).listed(&[n]).await;
    let works: Vec<Value> = work.into_iter().collect();
    world.works.listed(&works).await;
    world
}

fn sync(client: Client, world: &World) -> Arc<Sync> {
    let bindings = Bindings::new(client.clone(), world.clone(), Notices::default());
    let spaces = Spaces::watching(Skips::default(), NamespaceSync::Needed, world);
    let clock = Arc::new(SystemClock);
    Sync::new(
        client,
        bindings,
        (Unsettled::default(), spaces),
        clock,
        world,
    )
}

/// The Work of namespace n, of the policy's binding or of none.
fn work(binding: Option<&str>, deleted: Option<&str>) -> Value {
    let mut work = json!({"metadata": {"namespace": "karmada-es-m1", "name": work_name("Namespace", None, "n"),
        "resourceVersion": "1", "deletionTimestamp": deleted, "finalizers": ["f"]}, "spec": {"workload": {}}});
    if let Some(binding) = binding {
        work["metadata"]["annotations"] = json!({CLUSTER_BINDING_NAME: binding});
    }
    work
}

#[tokio::test(start_paused = true)]
async fn nothing_is_made_in_a_cluster_that_goes_nor_taken_over_from_a_work_that_does() {
    let gone = Some(DELETED);
    let leaving = "Cluster \"m1\" is being deleted".to_owned();
    let name = work_name("Namespace", None, "n");
    let ending = format!("Work karmada-es-m1/{name} is being deleted");
    // When the cluster was deleted, its Work, how that is changed, and what is tried again for which reason.
    let cases = [
        (None, None, Some("POST"), None),
        (gone, None, None, Some(&leaving)),
        // What is there goes with the cluster, and is as it is to be until then.
        (gone, Some(work(Some("b"), None)), Some("PATCH"), None),
        // Its end wakes the binding.
        (gone, Some(work(Some("b"), gone)), None, None),
        (None, Some(work(Some("b"), gone)), None, None),
        // Nobody is woken by the end of this one.
        (None, Some(work(None, gone)), None, Some(&ending)),
        (None, Some(work(None, None)), Some("PATCH"), None),
    ];
    for (number, (deleted, work, changed, fault)) in cases.into_iter().enumerate() {
        let world = world(deleted, work).await;
        let (client, asked) = answering(|_, _| StatusCode::OK);
        let sync = sync(client, &world);
        let done = sync.reconcile(&ObjectName::new(None, "b")).await;
        let said = done.err().map(|error| error.to_string());
        assert_eq!(said.as_ref(), fault, "{number}");
        let asked = std::mem::take(&mut *lock(&asked));
        let works = asked.iter().filter(|(_, path, _)| path.contains("/works"));
        let works: Vec<&str> = works.map(|(method, ..)| method.as_str()).collect();
        assert_eq!(works, changed.into_iter().collect::<Vec<_>>(), "{number}");
    }
}

/// What is wrong with it is wrong in every try.
#[tokio::test(start_paused = true)]
async fn a_work_that_the_api_server_calls_invalid_is_not_tried_again() {
    for (answer, lasts) in [
        (StatusCode::UNPROCESSABLE_ENTITY, true),
        (StatusCode::PAYLOAD_TOO_LARGE, true),
        (StatusCode::FORBIDDEN, false),
        (StatusCode::SERVICE_UNAVAILABLE, false),
    ] {
        let world = world(None, None).await;
        let (client, _) = answering(move |_, path| match path.ends_with("/works") {
            true => answer,
            false => StatusCode::OK,
        });
        let sync = sync(client, &world);
        let done = sync.reconcile(&ObjectName::new(None, "b")).await;
        let error = done.expect_err("it is refused");
        assert_eq!(matches!(error, Error::Impossible(_)), lasts, "{error}");
    }
}
