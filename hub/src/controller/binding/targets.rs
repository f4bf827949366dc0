//! To which members a binding goes, which of its Works stay, and which go.
//!
//! Pure.

use common::api::binding::{GracefulEvictionTask, ResourceBindingSpec, TargetCluster};
use common::api::policy::PurgeMode;
use common::names::EXECUTION_PREFIX;
use std::collections::BTreeSet;

/// A Work that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkName<'a> {
    /// Its namespace: that of the member.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
}

impl<'a> WorkName<'a> {
    /// The member that it is for; none in a namespace that is no member's.
    fn cluster(&self) -> Option<&'a str> {
        self.namespace.strip_prefix(EXECUTION_PREFIX)
    }
}

/// What is to be done with the Works of a binding, besides rendering them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision<'a> {
    /// Works that are to be deleted.
    pub orphans: Vec<WorkName<'a>>,
    /// Members whose Works are to be rendered, each once; empty while some must go first.
    pub targets: Vec<&'a TargetCluster>,
    /// Whether Works must be gone before any other is written: the decision is to be made again then.
    pub waits: bool,
}

/// Decides on the Works of a binding. `name` is the one that each of them has to have; `existing` are all Works
/// with the binding's permanent id.
pub fn decide<'a>(
    spec: &'a ResourceBindingSpec,
    name: &str,
    existing: impl IntoIterator<Item = WorkName<'a>>,
) -> Decision<'a> {
    let targets = targets(spec);
    let kept: BTreeSet<&str> = targets
        .iter()
        .map(|target| target.name.as_str())
        .chain(evicting(spec, |task| !goes_directly(task)))
        .collect();
    // For one that is let go nobody waits: its time is over, or what replaces it runs.
    let purged: BTreeSet<&str> = evicting(spec, |task| {
        goes_directly(task) && task.suppress_deletion != Some(false)
    })
    .collect();
    let mut orphans = Vec::new();
    let mut waits = false;
    for work in existing {
        let within = |set: &BTreeSet<&str>| work.cluster().is_some_and(|it| set.contains(it));
        // What stays cannot be waited for.
        waits |= within(&purged) && !within(&kept);
        if work.name != name || !within(&kept) {
            orphans.push(work);
        }
    }
    orphans.sort_unstable();
    Decision {
        orphans,
        targets: if waits { Vec::new() } else { targets },
        waits,
    }
}

/// The members that get the template, in order: its own, then those of templates that refer to it. Of a member
/// that is named twice the first mention counts.
pub fn targets(spec: &ResourceBindingSpec) -> Vec<&TargetCluster> {
    let mut known = BTreeSet::new();
    let required = spec.required_by.iter().flat_map(|by| &by.clusters);
    spec.clusters
        .iter()
        .chain(required)
        .filter(|target| known.insert(target.name.as_str()))
        .collect()
}

fn evicting(
    spec: &ResourceBindingSpec,
    is_meant: impl Fn(&GracefulEvictionTask) -> bool,
) -> impl Iterator<Item = &str> {
    let tasks = spec.graceful_eviction_tasks.iter();
    tasks
        .filter(move |task| is_meant(task))
        .map(|task| task.from_cluster.as_str())
}

fn goes_directly(task: &GracefulEvictionTask) -> bool {
    task.purge_mode == Some(PurgeMode::Directly)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn spec(mut spec: Value) -> ResourceBindingSpec {
        spec["resource"] = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "c"});
        serde_json::from_value(spec).expect("a binding's spec")
    }

    fn clusters(names: &[&str]) -> Value {
        names.iter().map(|name| json!({"name": name})).collect()
    }

    #[test]
    fn the_first_mention_of_a_member_counts() {
        let spec = spec(json!({
            "clusters": [{"name": "m2", "replicas": 2}, {"name": "m1"}],
            "requiredBy": [
                {"name": "a", "clusters": [{"name": "m3"}, {"name": "m2", "replicas": 9}]},
                {"name": "b", "clusters": clusters(&["m3", "m0"])},
            ],
        }));
        let found: Vec<_> = targets(&spec)
            .into_iter()
            .map(|target| (target.name.as_str(), target.replicas))
            .collect();
        let want = [("m2", Some(2)), ("m1", None), ("m3", None), ("m0", None)];
        assert_eq!(found, want);
    }

    #[test]
    fn works_stay_where_the_binding_is_or_was() {
        let task = |cluster: &str, mode: Value| json!({"fromCluster": cluster, "purgeMode": mode, "reason": "r", "producer": "p"});
        let let_go = |cluster: &str| {
            let mut task = task(cluster, json!("Directly"));
            task["suppressDeletion"] = json!(false);
            task
        };
        // Spec; members with a Work; whose Work goes; whose is rendered; whether that waits.
        type Names = &'static [&'static str];
        let cases: [(Value, Names, Names, Names, bool); 10] = [
            (
                json!({"clusters": clusters(&["m1", "m2"])}),
                &[],
                &[],
                &["m1", "m2"],
                false,
            ),
            (
                json!({"clusters": clusters(&["m1"])}),
                &["m1", "m2"],
                &["m2"],
                &["m1"],
                false,
            ),
            (json!({}), &["m1"], &["m1"], &[], false),
            (
                json!({"requiredBy": [{"name": "a", "clusters": clusters(&["m2"])}]}),
                &["m1", "m2"],
                &["m1"],
                &["m2"],
                false,
            ),
            (
                json!({"clusters": clusters(&["m2"]), "gracefulEvictionTasks": [task("m1", json!("Gracefully"))]}),
                &["m1"],
                &[],
                &["m2"],
                false,
            ),
            (
                json!({"clusters": clusters(&["m2"]), "gracefulEvictionTasks": [task("m1", json!("Never"))]}),
                &["m1", "m3"],
                &["m3"],
                &["m2"],
                false,
            ),
            (
                json!({"clusters": clusters(&["m2"]), "gracefulEvictionTasks": [task("m1", json!("Directly"))]}),
                &["m1", "m2"],
                &["m1"],
                &[],
                true,
            ),
            (
                json!({"clusters": clusters(&["m2"]), "gracefulEvictionTasks": [task("m1", json!("Directly"))]}),
                &["m2"],
                &[],
                &["m2"],
                false,
            ),
            // One that is let go holds up nobody, though it cannot go.
            (
                json!({"clusters": clusters(&["m2"]), "gracefulEvictionTasks": [let_go("m1")]}),
                &["m1", "m2"],
                &["m1"],
                &["m2"],
                false,
            ),
            (
                json!({"clusters": clusters(&["m2"]),
                    "gracefulEvictionTasks": [let_go("m1"), task("m3", json!("Directly"))]}),
                &["m1", "m2", "m3"],
                &["m1", "m3"],
                &[],
                true,
            ),
        ];
        for (value, existing, orphans, rendered, waits) in cases {
            let spec = spec(value.clone());
            let namespaces: Vec<String> =
                existing.iter().map(|m| format!("karmada-es-{m}")).collect();
            let works = namespaces.iter().map(|namespace| WorkName {
                namespace,
                name: "w",
            });
            let decision = decide(&spec, "w", works);
            let gone: Vec<_> = decision
                .orphans
                .iter()
                .filter_map(WorkName::cluster)
                .collect();
            let targets: Vec<_> = decision.targets.iter().map(|it| it.name.as_str()).collect();
            assert_eq!(
                (gone.as_slice(), targets.as_slice(), decision.waits),
                (orphans, rendered, waits),
                "{value}"
            );
        }
    }

    #[test]
    fn a_work_of_another_name_is_an_orphan() {
        let spec = spec(json!({"clusters": clusters(&["m1"])}));
        let work = |namespace, name| WorkName { namespace, name };
        let existing = [
            work("karmada-es-m1", "w"),
            work("karmada-es-m1", "renamed"),
            work("default", "w"),
        ];
        let orphans = decide(&spec, "w", existing).orphans;
        assert_eq!(
            orphans,
            [work("default", "w"), work("karmada-es-m1", "renamed")]
        );
    }
}
