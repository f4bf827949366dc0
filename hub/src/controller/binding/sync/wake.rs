//! Which bindings are looked at when something changes.

use super::{Sync, lock};
use crate::controller::binding::facts::Facts;
use crate::controller::binding::targets::targets;
use crate::controller::dependencies::parent;
use crate::propagation::group;
use crate::scheduler::from_api::priority;
use crate::world::{self, Change, ObjectName, World};
use common::api::binding::ResourceBindingSpec;
use common::api::override_policy::OverrideSpec;
use common::api::policy::ResourceSelector;
use common::queue::{Priority, Queue};
use std::sync::Arc;

/// The group and kind of a template: overrides mean all versions of it.
pub(super) type Kind = (String, String);

fn kind(api_version: &str, kind: &str) -> Kind {
    (group(api_version).to_owned(), kind.to_owned())
}

/// Under which kind the bindings of templates are found that overrides may be about.
pub(super) fn kind_of(spec: &ResourceBindingSpec) -> Kind {
    kind(&spec.resource.api_version, &spec.resource.kind)
}

/// Under which clusters a binding is found: all that get its template.
pub(super) fn clusters_of(spec: &ResourceBindingSpec) -> Vec<Arc<str>> {
    let all = targets(spec).into_iter();
    all.map(|it| Arc::from(it.name.as_str())).collect()
}

/// What an override is about, as far as it can be looked up; none when that is everything.
fn subjects(spec: &OverrideSpec) -> Option<Vec<(Kind, &ResourceSelector)>> {
    let selectors = &spec.resource_selectors;
    let each = selectors.iter();
    (!selectors.is_empty()).then(|| {
        each.map(|it| (kind(&it.api_version, &it.kind), it))
            .collect()
    })
}

/// Whether an override of a namespace, or of the hub, may be about the template of a binding: labels are not asked,
/// for earlier overrides may change them.
fn selects(selector: &ResourceSelector, of: &str, binding: &ObjectName, world: &World) -> bool {
    let given = |text: &Option<String>| text.clone().filter(|it| !it.is_empty());
    let namespace = &*binding.namespace;
    let within = (of.is_empty() || of == namespace)
        && given(&selector.namespace).is_none_or(|it| it == namespace);
    within
        && given(&selector.name).is_none_or(|name| {
            let held = world.propagation.binding(binding);
            held.is_none_or(|held| held.binding.spec.resource.name == name)
        })
}

pub(super) fn binding_changed(change: &Change<world::Binding>, queue: &Queue<ObjectName>) {
    let (old, new) = (change.before(), change.after());
    let same = |old: &world::Binding, new: &world::Binding| {
        old.generation == new.generation
            && old.binding.deleting == new.binding.deleting
            && old.binding.finalizers == new.binding.finalizers
            && old.binding.id() == new.binding.id()
    };
    if matches!((old, new), (Some(old), Some(new)) if same(old, new)) {
        return;
    }
    let rank = new.map_or(0, |new| priority(&new.binding.spec));
    queue.add_ranked(change.name.clone(), urgency(change), rank);
    let (old, new) = (old.map(|it| &it.binding), new.map(|it| &it.binding));
    for parent in parent::let_go(old, new) {
        queue.add(parent);
    }
}

/// What a person changed goes before what only goes elsewhere, and that before what is found at a start.
fn urgency(change: &Change<world::Binding>) -> Priority {
    if change.listed {
        return Priority::Backlog;
    }
    let asked = |held: &world::Binding| ResourceBindingSpec {
        clusters: Vec::new(),
        graceful_eviction_tasks: Vec::new(),
        required_by: Vec::new(),
        ..held.binding.spec.clone()
    };
    match (change.before(), change.after()) {
        (Some(old), Some(new)) if asked(old) == asked(new) => Priority::Normal,
        _ => Priority::Urgent,
    }
}

impl Sync {
    pub(super) fn work_changed(&self, change: &Change<world::Work>, queue: &Queue<ObjectName>) {
        let (old, new) = (change.before(), change.after());
        let looks = |work: Option<&world::Work>| {
            work.map(|it| (it.binding.clone(), it.content, it.deleting))
        };
        if looks(old) == looks(new) {
            return;
        }
        let ours = lock(&self.written).get(&change.name).copied();
        if new.is_some_and(|new| !new.deleting && ours == Some(new.content)) {
            return;
        }
        let bindings = [old, new].into_iter().flatten();
        bindings
            .filter_map(|it| it.binding.clone())
            .for_each(|name| queue.add_with(name, Priority::Backlog));
    }

    /// An override wakes the bindings that it was about, and those that it is about now.
    pub(super) fn override_changed<'c>(
        &self,
        change: &'c Change<world::Override>,
        queue: &Queue<ObjectName>,
    ) {
        let says = |it: Option<&'c world::Override>| it.map(|it| (&it.spec, &it.problem));
        let (before, after) = (says(change.before()), says(change.after()));
        if before == after {
            return;
        }
        let namespace = &change.name.namespace;
        for (spec, _) in before.into_iter().chain(after) {
            let Some(about) = subjects(spec) else {
                self.wake_all(namespace, queue);
                return;
            };
            for (kind, selector) in about {
                for name in self.kinds.names(&kind) {
                    if selects(selector, namespace, &name, &self.world) {
                        queue.add(name);
                    }
                }
            }
        }
    }

    /// A cluster that is another one to overrides wakes what is in it, and what could not be made as it was.
    pub(super) fn cluster_changed(
        &self,
        change: &Change<world::Cluster>,
        queue: &Queue<ObjectName>,
    ) {
        let facts = |it: Option<&world::Cluster>| it?.placing.as_deref().map(Facts::of);
        let (before, after) = (facts(change.before()), facts(change.after()));
        if before == after {
            return;
        }
        for binding in lock(&self.stuck).iter() {
            queue.add(binding.clone());
        }
        // What comes to a cluster is made for it as it is.
        if before.is_none() || after.is_none() {
            return;
        }
        for binding in self.placed.names(&change.name.name) {
            queue.add_with(binding, Priority::Backlog);
        }
    }

    /// Every binding of a namespace; of the hub, if it is empty.
    fn wake_all(&self, namespace: &str, queue: &Queue<ObjectName>) {
        let views = &self.world.propagation;
        let all = namespace.is_empty();
        views.bindings.for_each_name(|binding| {
            if all || *binding.namespace == *namespace {
                queue.add(binding.clone());
            }
        });
        if all {
            views
                .cluster_bindings
                .for_each_name(|binding| queue.add(binding.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::bindings::Bindings;
    use crate::controller::detector::Unsettled;
    use crate::controller::detector::skip::Skips;
    use crate::controller::namespace::{NamespaceSync, Spaces};
    use crate::controller::notices::Notices;
    use crate::world::testing::{nobody, unreachable};
    use common::controller::Controller;
    use common::labels::BINDING_FINALIZER;
    use common::time::SystemClock;
    use futures::FutureExt as _;
    use serde_json::{Value, json};
    use std::collections::BTreeSet;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    fn binding(version: u32, spec: &Value) -> Value {
        let mut spec = spec.clone();
        spec["resource"] =
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "n", "name": "web"});
        json!({"metadata": {"namespace": "n", "name": "web-deployment", "generation": version,
            "resourceVersion": version.to_string()}, "spec": spec})
    }

    /// The controller that is woken by what a world tells.
    fn controller(world: &World) -> Controller<Arc<Sync>> {
        let bindings = Bindings::new(nobody(), world.clone(), Notices::default());
        let spaces = Spaces::watching(Skips::default(), NamespaceSync::Needed, world);
        Sync::watching(
            nobody(),
            bindings,
            (Unsettled::default(), spaces),
            Arc::new(SystemClock),
            world,
        )
    }

    /// What is to be looked at now, and then nothing any more.
    fn woken(queue: &Queue<ObjectName>) -> BTreeSet<String> {
        let taken = std::iter::from_fn(|| {
            let name = queue.try_next()?;
            queue.done(&name);
            Some(name.to_string())
        });
        taken.collect()
    }

    #[tokio::test]
    async fn what_a_person_changed_goes_before_what_only_goes_elsewhere() {
        let world = unreachable();
        let said = Arc::new(std::sync::Mutex::new(Vec::new()));
        let told = Arc::clone(&said);
        world.propagation.bindings.listen(move |it| {
            if let world::Told::Changed(change) = it {
                lock(&told).push(urgency(change));
            }
        });
        let views = &world.propagation.bindings;
        views.listed(&[binding(1, &json!({"replicas": 1}))]).await;
        let moved = json!({"replicas": 1, "clusters": [{"name": "m1"}]});
        let scaled = json!({"replicas": 2, "clusters": [{"name": "m1"}]});
        views.sent(&[binding(2, &moved), binding(3, &scaled)]).await;
        let wanted = [Priority::Backlog, Priority::Normal, Priority::Urgent];
        assert_eq!(*lock(&said), wanted);
    }

    /// How long a thread is waited for that may wait for ever.
    const LOOKS: Duration = Duration::from_secs(5);

    #[tokio::test]
    async fn a_cluster_wakes_what_is_in_it_and_looks_at_no_other_binding() {
        let world = unreachable();
        let sync = controller(&world);
        let queue = sync.queue();
        let of = |name: &str, spec: &Value| {
            let mut binding = binding(1, spec);
            binding["metadata"]["name"] = json!(name);
            binding
        };
        let on = |cluster: &str| json!({"clusters": [{"name": cluster}]});
        let along = json!([{"namespace": "n", "name": "on-1", "clusters": [{"name": "m1"}]}]);
        let task = json!([{"fromCluster": "m1", "reason": "r", "producer": "p"}]);
        let all = [
            of("along", &json!({"requiredBy": along})),
            of("comes", &on("m2")),
            of("goes", &on("m1")),
            of("leaves", &json!({"gracefulEvictionTasks": task})),
            of("on-1", &on("m1")),
            of("on-2", &on("m2")),
        ];
        let cluster = |version: u32| {
            json!({"metadata": {"name": "m1", "resourceVersion": version.to_string(),
                "labels": {"tier": version.to_string()}}, "spec": {"syncMode": "Pull"}})
        };
        world.clusters.listed(&[cluster(1)]).await;
        let views = &world.propagation;
        views.bindings.listed(&all).await;
        let whole = json!({"metadata": {"name": "whole", "resourceVersion": "1"}, "spec": {
            "resource": {"apiVersion": "v1", "kind": "Namespace", "name": "n"}, "clusters": [{"name": "m1"}]}});
        views.cluster_bindings.listed(&[whole]).await;
        let moved = [of("comes", &on("m1")), of("goes", &on("m2"))];
        views.bindings.sent(&moved).await;
        woken(&queue);
        // Somebody looks at bindings: who has to do so too waits for that.
        let (clusters, mut changed) = (world.clusters.clone(), None);
        views.bindings.for_each(|_, _| {
            if changed.is_none() {
                let (clusters, after) = (clusters.clone(), [cluster(2)]);
                let (says, hears) = mpsc::channel();
                thread::spawn(move || says.send(clusters.sent(&after).now_or_never()));
                changed = Some(hears.recv_timeout(LOOKS));
            }
        });
        assert_eq!(
            changed,
            Some(Ok(Some(()))),
            "it waits for a look at all bindings"
        );
        let woken = woken(&queue);
        assert!(
            woken.iter().eq(["n/along", "n/comes", "n/on-1", "whole"]),
            "{woken:?}"
        );
    }

    /// However many share it: each change of its status would look at all of them.
    #[tokio::test]
    async fn what_others_take_along_wakes_those_whose_end_waits_for_it_no_longer() {
        let world = unreachable();
        let sync = controller(&world);
        let (queue, views) = (sync.queue(), &world.propagation);
        let listing = |version: u32, generation: u32, parents: &[&str]| {
            let parents = parents.iter();
            let listed = parents.map(|it| json!({"namespace": "n", "name": it, "clusters": []}));
            let spec = json!({"requiredBy": listed.collect::<Vec<_>>()});
            let mut binding = binding(version, &spec);
            binding["metadata"]["generation"] = json!(generation);
            binding
        };
        let finalizers = |mut binding: Value, kept: &[&str]| {
            let metadata = &mut binding["metadata"];
            metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            metadata["finalizers"] = json!(kept);
            binding
        };
        let own = "n/web-deployment";
        views.bindings.listed(&[listing(1, 1, &["a", "b"])]).await;
        assert!(woken(&queue).iter().eq([own]));
        let mut status = listing(2, 1, &["a", "b"]);
        status["status"] = json!({"aggregatedStatus": [{"clusterName": "m1", "applied": true}]});
        let ends = listing(6, 4, &["b", "c", "web-deployment"]);
        let steps = [
            (status, &[][..]),
            (listing(3, 2, &["a", "b", "c"]), &[own][..]),
            (
                listing(4, 3, &["b", "c", "web-deployment"]),
                &["n/a", own][..],
            ),
            (
                finalizers(ends.clone(), &[BINDING_FINALIZER, "f"]),
                &[own][..],
            ),
            (finalizers(ends, &["f"]), &["n/b", "n/c", own][..]),
        ];
        for (version, (mut step, wanted)) in (2..).zip(steps) {
            step["metadata"]["resourceVersion"] = json!(version.to_string());
            views.bindings.sent(&[step]).await;
            let woken = woken(&queue);
            assert!(woken.iter().eq(wanted), "{version}: {woken:?}");
        }
    }

    #[tokio::test]
    async fn an_override_of_another_version_of_a_kind_wakes_its_bindings() {
        let world = unreachable();
        let sync = controller(&world);
        let (queue, views) = (sync.queue(), &world.propagation);
        views.bindings.listed(&[binding(1, &json!({}))]).await;
        views.overrides.listed(&[]).await;
        woken(&queue);
        // Of which apiVersion the override is, whether that is the kind of the template.
        let cases = [("apps/v1", true), ("apps/v2", true), ("x.org/v1", false)];
        for (version, (api_version, wanted)) in (1..).zip(cases) {
            let name = format!("o-{version}");
            let selectors = json!([{"apiVersion": api_version, "kind": "Deployment"}]);
            let policy = json!({"metadata": {"namespace": "n", "name": name, "resourceVersion": version.to_string()},
                "spec": {"resourceSelectors": selectors, "overrideRules": []}});
            views.overrides.sent(&[policy]).await;
            let found = woken(&queue).contains("n/web-deployment");
            assert_eq!(found, wanted, "{api_version}");
        }
    }

    #[tokio::test]
    async fn an_override_is_about_the_kinds_and_names_that_it_selects() {
        let world = unreachable();
        let views = &world.propagation.bindings;
        views.listed(&[binding(1, &json!({}))]).await;
        let name = ObjectName::new(Some("n"), "web-deployment");
        let selector = |namespace: &str, name: &str| -> ResourceSelector {
            let selector = json!({"apiVersion": "apps/v1", "kind": "Deployment", "namespace": namespace, "name": name});
            serde_json::from_value(selector).expect("a selector")
        };
        // Of which namespace the override is, what it selects, whether that may be the template.
        let cases = [
            ("n", "", "", true),
            ("", "", "web", true),
            ("n", "n", "other", false),
            ("", "m", "", false),
            ("m", "", "", false),
        ];
        for (of, namespace, named, wanted) in cases {
            let found = selects(&selector(namespace, named), of, &name, &world);
            assert_eq!(found, wanted, "{of} {namespace} {named}");
        }
        let all: OverrideSpec =
            serde_json::from_value(json!({"overrideRules": []})).expect("a spec");
        assert!(subjects(&all).is_none());
    }
}
