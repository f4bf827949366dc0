//! Why a template could not be placed, and what would have it placed. Pure.

use super::{Outcome, broken, some};
use crate::explain::mend::{self, on_hub};
use crate::explain::template::{Bound, Seen};
use crate::explain::{Broken, Cause, Stage, cluster, said};
use crate::propagation::Policy;
use crate::scheduler::{self, Reason};
use common::api::policy::SpreadField;
use common::labels::{TAINT_NOT_READY, TAINT_UNREACHABLE, TAINT_UNSCHEDULABLE};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// It was not placed.
pub(super) fn stuck(
    seen: &Seen,
    policy: &Policy,
    binding: &Bound,
    outcome: &Outcome,
    message: &str,
) -> Broken {
    use scheduler::Cause as C;
    let message = said(message);
    let Err(unplaceable) = &outcome.result else {
        let what =
            format!("not placed: {message} It would fit now, and the hub has not placed it yet");
        return seen.late(Stage::Placement, what);
    };
    if seen.clusters.is_empty() && !seen.unseen.is_empty() {
        let get = seen.command("get", "-o yaml");
        let words = "Ask somebody who may see clusters to run this command.";
        return broken(
            Cause::NoClusterFits,
            format!("not placed: {message}"),
            on_hub(words, [get]),
        );
    }
    if outcome.clusters.is_empty() {
        let command = "towline token create --cluster NAME --print-register-command".to_owned();
        let mend = on_hub(
            "Register a cluster: run what this prints in the member.",
            [command],
        );
        return broken(Cause::NoClusters, "there is no cluster", mend);
    }
    match &unplaceable.first.cause {
        C::NoFit => no_fit(seen, policy, outcome, &message),
        C::FewClusters | C::FewRegions | C::FewClustersInRegions => {
            spread(policy, outcome, &unplaceable.first.cause, &message)
        }
        C::LittleRoom { room, fresh } => {
            let all = if *fresh { *room } else { room + outcome.placed };
            little_room(seen, binding, &message, Some(all))
        }
        C::LittleRoomInOverflow | C::LittleRoomInSelection(1..) => {
            little_room(seen, binding, &message, None)
        }
        C::Spread | C::NothingSelected | C::LittleRoomInSelection(0) | C::Strategy => {
            let edit = format!(
                "kubectl{} edit {}",
                mend::within(policy.name.namespace.as_deref()),
                mend::short(&policy.name)
            );
            let mend = on_hub(
                "The policy asks for what cannot be done; correct spec.placement.",
                [edit],
            );
            broken(Cause::PolicyImpossible, message, mend)
        }
    }
}

/// Filters took every cluster: what the most of those have in common that the policy means.
fn no_fit(seen: &Seen, policy: &Policy, outcome: &Outcome, message: &str) -> Broken {
    let mut by_reason: BTreeMap<&Reason, Vec<&str>> = BTreeMap::new();
    for (name, reason) in &outcome.clusters {
        if let Some(reason) = reason {
            by_reason.entry(reason).or_default().push(name);
        }
    }
    let meant = by_reason
        .iter()
        .filter(|(reason, _)| ***reason != Reason::Affinity);
    let most = meant.max_by_key(|(_, names)| names.len());
    let Some((reason, names)) = most else {
        return means_none(seen, policy, message);
    };
    let shown: Vec<String> = names.iter().map(|it| (*it).to_owned()).collect();
    let clusters = some(&shown);
    match reason {
        Reason::Taint(key, value, effect) => tainted(seen, policy, names, (key, value, effect)),
        Reason::Api => api_missing(seen, names, &clusters),
        Reason::NoProvider | Reason::NoRegion | Reason::NoZone => {
            let (field, patch) = match reason {
                Reason::NoProvider => ("provider", json!({"spec": {"provider": "PROVIDER"}})),
                Reason::NoRegion => ("region", json!({"spec": {"region": "REGION"}})),
                _ => ("zone", json!({"spec": {"zones": ["ZONE"]}})),
            };
            let what =
                format!("no cluster fits: it is spread by {field}, and {clusters} have none");
            let commands = names
                .iter()
                .map(|it| format!("kubectl patch cluster {it} --type=merge -p '{patch}'"));
            broken(
                Cause::FieldMissing,
                what,
                on_hub(format!("Say the {field} of each cluster."), commands),
            )
        }
        Reason::Evicted => {
            let what = format!("no cluster fits: it is being evicted from {clusters}");
            broken(Cause::Evicted, what, mend::check())
        }
        Reason::Affinity | Reason::Elsewhere | Reason::Occupied => {
            let get = seen.command("get", "-o yaml");
            broken(
                Cause::NoClusterFits,
                message,
                on_hub(
                    "Compare its labels with spec.placement.workloadAffinity of the policy.",
                    [get],
                ),
            )
        }
    }
}

fn tainted(seen: &Seen, policy: &Policy, names: &[&str], taint: (&str, &str, &str)) -> Broken {
    let (key, value, effect) = taint;
    let first = names.first().copied().unwrap_or_default();
    if [TAINT_NOT_READY, TAINT_UNREACHABLE].contains(&key)
        && let Some(object) = seen.cluster(first)
        && let Some(sick) = cluster::sick(object, seen.leases.get(first).copied(), seen.now)
    {
        return Broken {
            what: format!("no cluster fits: {first} is not ready: {}", sick.what),
            stage: Stage::Placement,
            ..sick
        };
    }
    let shown: Vec<String> = names.iter().map(|it| (*it).to_owned()).collect();
    let equals = if value.is_empty() { "" } else { "=" };
    let what = format!(
        "no cluster fits: the policy does not tolerate the taint {key}{equals}{value}:{effect} of {}",
        some(&shown)
    );
    if key == TAINT_UNSCHEDULABLE {
        let command = format!("towline uncordon {}", names.join(" "));
        return broken(
            Cause::Tainted,
            what,
            on_hub(
                "It was cordoned; let policies place there again.",
                [command],
            ),
        );
    }
    let mut tolerations = json!(policy.spec.placement.cluster_tolerations);
    let toleration = match value {
        "" => json!({"key": key, "operator": "Exists", "effect": effect}),
        value => json!({"key": key, "operator": "Equal", "value": value, "effect": effect}),
    };
    if let Some(list) = tolerations.as_array_mut() {
        list.push(toleration);
    }
    let patch = json!({"spec": {"placement": {"clusterTolerations": tolerations}}});
    let command = mend::patch_policy(&policy.name, &patch);
    let words = format!(
        "Tolerate it in the policy; or take it off by `towline taint {first} {key}:{effect}-`."
    );
    broken(Cause::Tainted, what, on_hub(words, [command]))
}

fn api_missing(seen: &Seen, names: &[&str], clusters: &str) -> Broken {
    let (version, kind) = (seen.text("/apiVersion"), seen.text("/kind"));
    let what = format!("no cluster fits: {clusters} does not serve {kind} of {version}");
    let group = crate::propagation::group(version);
    // Groups of Kubernetes itself end so, or have no dot.
    if !group.contains('.') || group.ends_with(".k8s.io") {
        let first = names.first().copied().unwrap_or_default();
        let command = format!("towline why cluster/{first}");
        return broken(
            Cause::ApiMissing,
            what,
            on_hub("See whether the cluster reports what it serves.", [command]),
        );
    }
    let object = json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "ClusterPropagationPolicy",
        "metadata": {"name": format!("crd-{}", seen.resource)},
        "spec": {"resourceSelectors": [{"apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition", "name": seen.resource}],
            "placement": {"clusterAffinity": {"clusterNames": names}}}});
    let mend = on_hub(
        "Propagate its CustomResourceDefinition too.",
        [mend::apply(&object)],
    );
    broken(Cause::ApiMissing, what, mend)
}

/// The policy means no cluster that there is.
fn means_none(seen: &Seen, policy: &Policy, message: &str) -> Broken {
    let placement = &policy.spec.placement;
    let exist: Vec<&str> = seen
        .clusters
        .iter()
        .filter_map(|it| it.metadata.name.as_deref())
        .collect();
    let change = |affinity: Value| {
        mend::patch_policy(
            &policy.name,
            &json!({"spec": {"placement": {"clusterAffinity": affinity}}}),
        )
    };
    let short = mend::short(&policy.name);
    let Some(affinity) = &placement.cluster_affinity else {
        let edit = format!(
            "kubectl{} edit {short}",
            mend::within(policy.name.namespace.as_deref())
        );
        return broken(
            Cause::NoClusterFits,
            message,
            on_hub(
                "Correct spec.placement.clusterAffinities of the policy.",
                [edit],
            ),
        );
    };
    let labels = affinity.label_selector.as_ref();
    let plain = labels.filter(|it| it.match_expressions.as_ref().is_none_or(Vec::is_empty));
    let plain = plain
        .and_then(|it| it.match_labels.as_ref())
        .filter(|it| !it.is_empty());
    if !affinity.cluster_names.is_empty() && labels.is_none() && affinity.field_selector.is_none() {
        let what = format!(
            "no cluster fits: {short} names {}, and there is none of them",
            some(&affinity.cluster_names)
        );
        let mend = on_hub(
            "Name clusters that there are.",
            [change(json!({"clusterNames": exist}))],
        );
        return broken(Cause::NoClusterFits, what, mend);
    }
    if let Some(labels) =
        plain.filter(|_| affinity.cluster_names.is_empty() && affinity.field_selector.is_none())
    {
        let texts = labels
            .iter()
            .map(|(key, value)| mend::word(&format!("{key}={value}")));
        let texts: Vec<String> = texts.collect();
        let what = format!(
            "no cluster fits: no cluster has the labels that {short} asks for, {}",
            texts.join(",")
        );
        let first = exist.first().copied().unwrap_or("CLUSTER");
        let command = format!(
            "kubectl label cluster {first} --overwrite {}",
            texts.join(" ")
        );
        return broken(
            Cause::NoClusterFits,
            what,
            on_hub("Label the clusters that you mean.", [command]),
        );
    }
    let mend = on_hub(
        "Have the policy mean clusters that there are; these are all.",
        [change(json!({
        "clusterNames": exist, "labelSelector": null, "fieldSelector": null, "exclude": null}))],
    );
    broken(
        Cause::NoClusterFits,
        format!("no cluster fits: {message}"),
        mend,
    )
}

/// Fewer clusters, or regions, than must be chosen.
fn spread(policy: &Policy, outcome: &Outcome, cause: &scheduler::Cause, message: &str) -> Broken {
    let passed = outcome
        .clusters
        .iter()
        .filter(|(_, refusal)| refusal.is_none());
    let passed: Vec<&Arc<str>> = passed.map(|(name, _)| name).collect();
    let regions = passed
        .iter()
        .filter_map(|name| outcome.snapshot.get(name)?.shape.region.clone());
    let regions: BTreeSet<Arc<str>> = regions.collect();
    let mut constraints = policy.spec.placement.spread_constraints.clone();
    let by_region = constraints
        .iter()
        .any(|it| it.spread_by_field == Some(SpreadField::Region));
    for constraint in &mut constraints {
        let there = match constraint.spread_by_field {
            Some(SpreadField::Region) => regions.len(),
            // One of each region is all that is sure.
            _ if *cause == scheduler::Cause::FewClustersInRegions => regions.len(),
            _ => passed.len(),
        };
        let there = i64::try_from(there).unwrap_or(i64::MAX).max(1);
        let least = constraint.min_groups.unwrap_or(1).clamp(1, there);
        constraint.min_groups = Some(least);
        // Without it nothing is chosen.
        let most = constraint.max_groups.filter(|it| *it > 0);
        constraint.max_groups = Some(most.unwrap_or(there).max(least));
    }
    let patch = json!({"spec": {"placement": {"spreadConstraints": constraints}}});
    let fitting = match by_region {
        true => format!("{} clusters of {} regions", passed.len(), regions.len()),
        false => format!("{} clusters", passed.len()),
    };
    let what = format!(
        "the policy spreads it over more than there is: {fitting} fit ({})",
        message.trim_end_matches('.')
    );
    let mend = on_hub(
        "Ask for no more groups than there are, or register more clusters.",
        [mend::patch_policy(&policy.name, &patch)],
    );
    broken(Cause::SpreadImpossible, what, mend)
}

fn little_room(seen: &Seen, binding: &Bound, message: &str, room: Option<i64>) -> Broken {
    let wanted = binding.spec.replicas.unwrap_or(0);
    let what = match room {
        Some(room) => format!("the clusters have room for {room} of {wanted} replicas"),
        None => format!("the clusters have too little room for {wanted} replicas: {message}"),
    };
    let words = "Ask for no more than fits; or add nodes, or lower what a replica requests.";
    let mend = match room.filter(|room| *room > 0) {
        Some(room) => on_hub(
            words,
            [seen.command("scale", &format!("--replicas={room}"))],
        ),
        None => on_hub(words, [seen.command("edit", "")]),
    };
    broken(Cause::LittleRoom, what, mend)
}
