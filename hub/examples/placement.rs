//! Figures of placement.
//!
//! ```text
//! placement decide           how long a decision over 1,000 clusters takes
//! placement memory [COUNT]   what the views keep of COUNT bindings (20,000)
//! ```

use anyhow::{Context as _, bail};
use hub::scheduler::{Demand, Interner, Previous, Snapshot, from_api, schedule};
use hub::world::{Binding, Record as _};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const CLUSTERS: u32 = 1000;
const ROUNDS: usize = 1000;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next().as_deref(), arguments.next()) {
        (Some("decide"), None) => decide(),
        (Some("memory"), count) => memory(count.map_or(Ok(20_000), |count| count.parse())?),
        _ => bail!("say `decide` or `memory [COUNT]`"),
    }
}

/// Of ten regions and three tiers; half of it served by nodes of counted grades.
fn cluster(number: u32) -> Value {
    let region = format!("r{}", number % 10);
    let tier = ["gold", "silver", "bronze"][(number % 3) as usize];
    let free = 50 + number % 97;
    let amounts = |cpu: u32| json!({"cpu": cpu.to_string(), "memory": format!("{}Gi", 4 * cpu), "pods": (10 * cpu).to_string()});
    json!({
        "metadata": {"name": format!("c-{number:04}"), "labels": {"tier": tier, "region": region}},
        "spec": {"syncMode": "Pull", "provider": "p", "region": region, "zone": format!("{region}-a")},
        "status": {
            "apiEnablements": [{"groupVersion": "apps/v1", "resources": [{"name": "deployments", "kind": "Deployment"}]}],
            "resourceSummary": {"allocatable": amounts(2 * free), "allocated": amounts(free)},
        },
    })
}

/// By labels, over three to five regions and ten to forty clusters, by what is free.
fn placement() -> Value {
    json!({
        "clusterAffinity": {"labelSelector": {"matchExpressions": [
            {"key": "tier", "operator": "In", "values": ["gold", "silver"]}]}},
        "clusterTolerations": [{"key": "cluster.karmada.io/unreachable", "operator": "Exists"}],
        "spreadConstraints": [
            {"spreadByField": "region", "minGroups": 3, "maxGroups": 5},
            {"spreadByField": "cluster", "minGroups": 10, "maxGroups": 40},
        ],
        "replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
            "weightPreference": {"dynamicWeight": "AvailableReplicas"}},
    })
}

fn decide() -> anyhow::Result<()> {
    let mut interner = Interner::default();
    let mut clusters = Vec::new();
    for number in 0..CLUSTERS {
        let object = serde_json::from_value(cluster(number)).context("a Cluster")?;
        clusters.push(Arc::new(from_api::cluster(&object, &mut interner)));
    }
    let snapshot = Snapshot::new(clusters);
    let spec: common::api::binding::ResourceBindingSpec = serde_json::from_value(json!({
        "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "n", "name": "web", "uid": "u"},
        "replicas": 500,
        "replicaRequirements": {"resourceRequest": {"cpu": "500m", "memory": "1Gi"}},
    }))
    .context("a binding")?;
    let rules = from_api::rules(&serde_json::from_value(placement()).context("a placement")?);
    let demand = from_api::demand(&spec, Arc::new(rules));
    let first = placed(&snapshot, &demand, None)?;
    report("new", || placed(&snapshot, &demand, None))?;
    report("again", || placed(&snapshot, &demand, Some(&first)))?;
    let more = Demand {
        replicas: 600,
        ..demand.clone()
    };
    report("scaled", || placed(&snapshot, &more, Some(&first)))
}

fn placed(
    snapshot: &Snapshot,
    demand: &Demand,
    previous: Option<&Previous>,
) -> anyhow::Result<Previous> {
    let placement = schedule(snapshot, demand, previous);
    let placement = placement.map_err(|error| anyhow::anyhow!("{error}"))?;
    Ok(Previous {
        targets: placement.targets,
        ..Previous::default()
    })
}

fn report(what: &str, decision: impl Fn() -> anyhow::Result<Previous>) -> anyhow::Result<()> {
    let mut times = Vec::with_capacity(ROUNDS);
    let mut members = 0;
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        members = decision()?.targets.len();
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    let at = |share: usize| times.get(ROUNDS * share / 100).copied();
    let shown = |time: Option<Duration>| time.unwrap_or_default().as_secs_f64() * 1000.0;
    let (middle, late) = (shown(at(50)), shown(at(99)));
    println!("{what}: {CLUSTERS} clusters, {members} chosen: p50 {middle:.3} ms, p99 {late:.3} ms");
    Ok(())
}

fn binding(number: u32) -> Value {
    let applied = placement().to_string();
    let targets = (0..3)
        .map(|n| json!({"name": format!("c-{:04}", (number * 7 + n) % CLUSTERS), "replicas": 2}));
    let told = (0..3).map(|n| {
        json!({"clusterName": format!("c-{:04}", (number * 7 + n) % CLUSTERS), "applied": true, "health": "Healthy",
            "status": {"replicas": 2, "readyReplicas": 2, "updatedReplicas": 2, "availableReplicas": 2,
                "observedGeneration": 1, "generation": 1, "resourceTemplateGeneration": 1}})
    });
    let condition = |kind: &str| {
        json!({"type": kind, "status": "True", "reason": "Success", "message": "Binding has been scheduled successfully.",
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    let name = format!("web-{number}");
    json!({
        "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": {
            "name": format!("{name}-deployment"), "namespace": format!("team-{}", number % 200), "uid": format!("{number:036}"),
            "resourceVersion": number.to_string(), "generation": 2, "creationTimestamp": "2026-01-01T00:00:00Z",
            "finalizers": ["karmada.io/binding-controller"],
            "labels": {"propagationpolicy.karmada.io/permanent-id": format!("{:036}", number % 200),
                "resourcebinding.karmada.io/permanent-id": format!("{number:036}")},
            "annotations": {"propagationpolicy.karmada.io/name": "policy", "propagationpolicy.karmada.io/namespace": format!("team-{}", number % 200),
                "policy.karmada.io/applied-placement": applied},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": name, "uid": format!("{number:036}"),
                "controller": true, "blockOwnerDeletion": true}],
        },
        "spec": {
            "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": format!("team-{}", number % 200),
                "name": name, "uid": format!("{number:036}"), "resourceVersion": number.to_string()},
            "placement": placement(), "clusters": targets.collect::<Value>(), "replicas": 6,
            "replicaRequirements": {"resourceRequest": {"cpu": "500m", "memory": "1Gi"}},
            "schedulerName": "default-scheduler", "conflictResolution": "Abort",
        },
        "status": {
            "schedulerObservedGeneration": 2, "lastScheduledTime": "2026-01-01T00:00:00Z",
            "conditions": [condition("Scheduled"), condition("FullyApplied")],
            "aggregatedStatus": told.collect::<Value>(),
        },
    })
}

fn memory(count: u32) -> anyhow::Result<()> {
    let mut sent = 0;
    let mut kept = Vec::new();
    let before = resident()?;
    for number in 0..count {
        let text = binding(number).to_string();
        sent += text.len();
        kept.push(Binding::read(&text)?);
    }
    let grown = resident()?.saturating_sub(before);
    let each = |bytes: usize| bytes / kept.len().max(1);
    let (sent, grown) = (each(sent), each(grown));
    println!("{count} bindings: {sent} bytes each as they are sent, {grown} as they are kept");
    Ok(())
}

/// Of this process, in bytes.
fn resident() -> anyhow::Result<usize> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next());
    let kib: usize = kib.context("no VmRSS")?.parse()?;
    Ok(kib * 1024)
}
