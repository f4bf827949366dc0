//! What is asked of the API server, and what wakes a namespace.

use crate::controller::bindings::Bindings;
use crate::controller::detector::skip::Skips;
use crate::controller::namespace::spaces::kind;
use crate::controller::namespace::{LOOK_AGAIN, NamespaceSync, Namespaces, Spaces};
use crate::controller::notices::Notices;
use crate::world::testing::{Asked, answering, nobody, unreachable};
use crate::world::{ObjectName, World};
use common::controller::{Reconcile as _, Requeue};
use common::labels::CLUSTER_BINDING_NAME;
use common::lock::lock;
use common::names::work_name;
use http::StatusCode;
use serde_json::{Value, json};
use std::sync::Arc;

struct Rig {
    namespaces: Arc<Namespaces>,
    spaces: Spaces,
    world: World,
    asked: Asked,
}

impl Rig {
    /// Every request is answered so.
    fn new(mode: NamespaceSync, status: StatusCode) -> Self {
        let (client, asked) = answering(move |_, _| status);
        let world = unreachable();
        let bindings = Bindings::new(client.clone(), world.clone(), Notices::default());
        let spaces = Spaces::watching(Skips::default(), mode, &world);
        Self {
            namespaces: Namespaces::new(client, bindings, spaces.clone(), &world),
            spaces,
            world,
            asked,
        }
    }

    /// The world has namespace n, these members and these Works.
    async fn has(&self, clusters: &[Value], works: &[Value]) {
        list_namespaces(&self.world).await;
        self.world.clusters.listed(clusters).await;
        self.world.works.listed(works).await;
    }

    fn asked(&self) -> Vec<String> {
        let asked = std::mem::take(&mut *lock(&self.asked));
        let lines = asked.iter().map(|(method, path, _)| {
            let space = path.split('/').nth(5).unwrap_or_default();
            format!("{method} {space}")
        });
        lines.collect()
    }
}

async fn list_namespaces(world: &World) {
    let view = world
        .propagation
        .templates
        .told_of(&kind().expect("a kind"));
    let n = json!({"metadata": {"name": "n", "uid": "u", "resourceVersion": "1"}});
    view.listed(&[n]).await;
}

fn cluster(name: &str, deleted: bool) -> Value {
    let mut cluster =
        json!({"metadata": {"name": name, "resourceVersion": "1"}, "spec": {"syncMode": "Pull"}});
    if deleted {
        cluster["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    cluster
}

/// The Work of namespace n, as it was long ago.
fn work(cluster: &str) -> Value {
    json!({"metadata": {"namespace": format!("karmada-es-{cluster}"),
        "name": work_name("Namespace", None, "n"), "resourceVersion": "7"}, "spec": {}})
}

fn binding(cluster: &str) -> Value {
    json!({"metadata": {"namespace": "n", "name": "web", "resourceVersion": "1"}, "spec": {
        "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "n", "name": "web"},
        "clusters": [{"name": cluster}]}})
}

#[tokio::test(start_paused = true)]
async fn a_member_that_is_being_deleted_gets_nothing_and_keeps_what_its_own_end_takes_away() {
    let clusters = [cluster("m1", true), cluster("m2", false)];
    // Which Works there are, and what is asked.
    let cases = [
        (vec![], vec!["POST karmada-es-m2"]),
        (vec![work("m1")], vec!["POST karmada-es-m2"]),
        (vec![work("m2")], vec!["PATCH karmada-es-m2"]),
    ];
    for (works, wanted) in cases {
        let rig = Rig::new(NamespaceSync::All, StatusCode::OK);
        rig.has(&clusters, &works).await;
        let done = rig.namespaces.reconcile(&"n".into()).await;
        assert_eq!(done.expect("done"), Requeue::Never);
        assert_eq!(rig.asked(), wanted, "{works:?}");
    }
}

/// Its objects may be meant to stay, which is not known as long as its agent has not heard of that.
#[tokio::test]
async fn what_a_binding_leaves_in_a_member_that_is_being_deleted_is_kept() {
    let rig = Rig::new(NamespaceSync::All, StatusCode::OK);
    let mut work = work("m1");
    work["metadata"]["annotations"] = json!({CLUSTER_BINDING_NAME: "b"});
    rig.has(&[cluster("m1", true)], std::slice::from_ref(&work))
        .await;
    let name = work_name("Namespace", None, "n");
    let name = ObjectName::new(Some("karmada-es-m1"), &name);
    let held = rig.world.works.get(&name).and_then(|held| held.record);
    assert!(rig.spaces.keep(&name, &held.expect("held")));
}

/// A list that fails, or is slow, says of no namespace that it is gone.
#[tokio::test]
async fn what_a_binding_leaves_is_kept_while_namespaces_are_not_listed() {
    let rig = Rig::new(NamespaceSync::All, StatusCode::OK);
    let mut work = work("m1");
    work["metadata"]["annotations"] = json!({CLUSTER_BINDING_NAME: "b"});
    rig.world.clusters.listed(&[cluster("m1", false)]).await;
    rig.world.works.listed(&[work]).await;
    let name = work_name("Namespace", None, "n");
    let name = ObjectName::new(Some("karmada-es-m1"), &name);
    let held = rig.world.works.get(&name).and_then(|held| held.record);
    let held = held.expect("held");
    assert!(rig.spaces.keep(&name, &held));
    let view = rig
        .world
        .propagation
        .templates
        .told_of(&kind().expect("a kind"));
    view.listed(&[]).await;
    assert!(!rig.spaces.keep(&name, &held), "it is gone");
}

#[tokio::test]
async fn a_namespace_is_tried_again_where_its_execution_namespace_is_not_there_yet() {
    // Which member and which Work there is, what is asked, and whether that is done with.
    let cases = [
        ("m1", vec![], "POST karmada-es-m1", false),
        ("m1", vec![work("m1")], "PATCH karmada-es-m1", true),
        (
            "m2",
            vec![work("m2"), work("m1")],
            "DELETE karmada-es-m1",
            true,
        ),
    ];
    for (member, works, wanted, is_done) in cases {
        let rig = Rig::new(NamespaceSync::All, StatusCode::NOT_FOUND);
        rig.has(&[cluster(member, false)], &works).await;
        let done = rig.namespaces.reconcile(&"n".into()).await;
        assert_eq!(done.is_ok(), is_done, "{wanted}: {done:?}");
        assert_eq!(rig.asked()[0], wanted);
    }
}

#[tokio::test]
async fn a_list_is_waited_for_only_where_there_is_something_to_do() {
    // Which bindings and Works there are, and whether the namespaces are waited for, which nobody has listed.
    let cases = [
        (vec![], vec![], Requeue::Never),
        (vec![binding("m1")], vec![], Requeue::After(LOOK_AGAIN)),
        (vec![], vec![work("m1")], Requeue::After(LOOK_AGAIN)),
    ];
    for (bindings, works, wanted) in cases {
        let rig = Rig::new(NamespaceSync::Needed, StatusCode::OK);
        rig.world.propagation.bindings.listed(&bindings).await;
        rig.world.works.listed(&works).await;
        let done = rig.namespaces.reconcile(&"n".into()).await;
        assert_eq!(done.expect("done"), wanted, "{bindings:?} {works:?}");
    }
}

#[tokio::test]
async fn a_member_that_comes_gets_what_was_placed_in_it_before() {
    // In which mode, where something is placed, and whether m1 wakes the namespace.
    let cases = [
        (NamespaceSync::Needed, "m1", true),
        (NamespaceSync::Needed, "m2", false),
        (NamespaceSync::All, "m2", true),
    ];
    for (mode, placed, wanted) in cases {
        let world = unreachable();
        let bindings = Bindings::new(nobody(), world.clone(), Notices::default());
        let spaces = Spaces::watching(Skips::default(), mode, &world);
        let queue = Namespaces::watching(nobody(), bindings, spaces, &world).queue();
        world.clusters.listed(&[cluster("m1", true)]).await;
        world.propagation.bindings.listed(&[binding(placed)]).await;
        list_namespaces(&world).await;
        while let Some(name) = queue.try_next() {
            queue.done(&name);
        }
        // The next of its name, of which the end of the first was not told.
        world.clusters.listed(&[cluster("m1", false)]).await;
        let woken = queue.try_next();
        assert_eq!(woken.as_deref(), wanted.then_some("n"), "{mode:?} {placed}");
    }
}
