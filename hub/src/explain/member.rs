//! From a binding to members: the Work of each cluster, its agent, whether it is applied, whether it works. Pure.

use super::diagnosis;
use super::mend::{self, in_member, on_hub};
use super::refusal::{self, About};
use super::template::{Bound, Seen};
use super::{Broken, Cause, Detail, Mend, Stage, Walk, cluster, degraded, said, script};
use crate::controller::binding::targets::targets;
use crate::propagation::{Policy, group};
use common::api::binding::{ObjectReference, TargetCluster};
use common::api::work::{APPLIED, ManifestStatus, ResourceHealth, Work};
use common::conditions;
use common::interpreter::custom::Operation;
use common::names::EXECUTION_PREFIX;
use serde_json::{Value, json};

/// What is well of one cluster.
#[derive(Debug, Default)]
struct Fine {
    /// Replicas that are ready, where the kind counts them.
    ready: Option<i64>,
    wanted: Option<i64>,
    health: Option<ResourceHealth>,
}

pub(super) fn walk(seen: &Seen, policy: Option<&Policy>, binding: &Bound, walk: &mut Walk) {
    if let Some(stopped) = script::stopped(seen, Operation::ReviseReplica) {
        walk.breaks(stopped, Vec::new());
        return;
    }
    if let Some(broken) = super::overrides::not_rendered(binding) {
        walk.breaks(broken, Vec::new());
        return;
    }
    let targets = targets(&binding.spec);
    let mut fine = Vec::new();
    let mut wrong = Vec::new();
    let mut details = Vec::new();
    for target in &targets {
        match look(seen, policy, binding, target) {
            Ok(well) => {
                details.push(Detail::new(&target.name, well.shown()));
                fine.push(well);
            }
            Err(broken) => {
                details.push(Detail::new(
                    &target.name,
                    format!("{}: {}", broken.stage.as_str(), broken.what),
                ));
                wrong.push(*broken);
            }
        }
    }
    wrong.sort_by(|a, b| (a.stage, &a.cluster).cmp(&(b.stage, &b.cluster)));
    let of = targets.len();
    let applied = of - wrong.iter().filter(|it| it.stage <= Stage::Applied).count();
    let mut wrong = wrong.into_iter();
    let first = wrong.next();
    if first.as_ref().is_none_or(|it| it.stage > Stage::Applied) {
        walk.holds(
            Stage::Applied,
            format!("in {applied} of {of} clusters"),
            Vec::new(),
        );
    }
    match first {
        Some(broken) => walk.breaks(broken, details),
        None => walk.holds(Stage::Health, healthy(&fine, of), details),
    }
    walk.also = wrong.collect();
}

impl Fine {
    fn shown(&self) -> String {
        match (self.ready, self.wanted, self.health) {
            (Some(ready), Some(wanted), _) => format!("{ready} of {wanted} replicas are ready"),
            (_, _, Some(ResourceHealth::Healthy)) => "healthy".to_owned(),
            _ => "applied".to_owned(),
        }
    }
}

fn healthy(fine: &[Fine], of: usize) -> String {
    let well = fine
        .iter()
        .filter(|it| it.health == Some(ResourceHealth::Healthy))
        .count();
    let unsaid = of - well;
    let mut what = match unsaid {
        0 => format!("in {of} of {of} clusters"),
        _ => format!("in {well} of {of} clusters; of {unsaid} its kind tells nothing"),
    };
    let sum = |of: fn(&Fine) -> Option<i64>| -> Option<i64> {
        let counts: Vec<i64> = fine.iter().filter_map(of).collect();
        (!counts.is_empty()).then(|| counts.iter().sum())
    };
    if let (Some(ready), Some(wanted)) = (sum(|it| it.ready), sum(|it| it.wanted)) {
        what.push_str(&format!(", {ready} of {wanted} replicas ready"));
    }
    what
}

/// One cluster.
fn look(
    seen: &Seen,
    policy: Option<&Policy>,
    binding: &Bound,
    target: &TargetCluster,
) -> Result<Fine, Box<Broken>> {
    let name = target.name.as_str();
    let Some(object) = seen.cluster(name) else {
        // Who may not see clusters sees the rest.
        if !seen.clusters.is_empty() {
            return Err(Box::new(missing(name)));
        }
        return of_work(seen, policy, binding, target);
    };
    if let Some(sick) = cluster::sick(object, seen.leases.get(name).copied(), seen.now) {
        return Err(Box::new(sick));
    }
    of_work(seen, policy, binding, target)
}

fn missing(name: &str) -> Broken {
    Broken {
        stage: Stage::Work,
        cause: Cause::ClusterMissing,
        cluster: Some(name.to_owned()),
        what: format!("there is no cluster {name}"),
        mend: mend::check(),
    }
}

fn of_work(
    seen: &Seen,
    policy: Option<&Policy>,
    binding: &Bound,
    target: &TargetCluster,
) -> Result<Fine, Box<Broken>> {
    let name = target.name.as_str();
    let space = format!("{EXECUTION_PREFIX}{name}");
    let mut works = seen.works.iter();
    let work = works.find(|it| it.metadata.namespace.as_deref() == Some(&space));
    let broken = |stage, cause, what: String, mend| {
        Box::new(Broken {
            stage,
            cause,
            cluster: Some(name.to_owned()),
            what,
            mend,
        })
    };
    let Some(work) = work else {
        let what = format!("there is no Work for it in {space} yet");
        return Err(broken(Stage::Work, Cause::HubIsLate, what, mend::check()));
    };
    if work.metadata.deletion_timestamp.is_some() {
        let (cause, words, mend) = degraded::leaving(work, name);
        let what = format!("a former Work for it in {space} is being deleted first{words}");
        return Err(broken(Stage::Work, cause, what, mend));
    }
    if work.spec.suspend_dispatching == Some(true) {
        return Err(Box::new(held_back(policy, binding, work, name)));
    }
    let about = About {
        resource: &seen.resource,
        namespace: seen.namespace(),
        name: seen.text("/metadata/name"),
        cluster: name,
        template: Some(&seen.template),
        policy,
        referred: &seen.referred,
        stays: seen.stays,
    };
    judge(work, &binding.spec.resource, &about)?;
    let told = work.status.iter().flat_map(|it| &it.manifest_statuses);
    let told = told
        .into_iter()
        .find(|it| is_about(it, &binding.spec.resource));
    let status = told.and_then(|it| it.status.as_ref());
    let ready = status.and_then(|it| ready(seen.text("/kind"), it));
    Ok(Fine {
        ready,
        wanted: target.replicas.map(i64::from).filter(|_| ready.is_some()),
        health: told.and_then(|it| it.health),
    })
}

/// What a Work says of itself and of one of its objects.
pub(super) fn judge(
    work: &Work,
    object: &ObjectReference,
    about: &About<'_>,
) -> Result<(), Box<Broken>> {
    let name = about.cluster;
    let broken = |stage, cause, what: String, mend| {
        Box::new(Broken {
            stage,
            cause,
            cluster: Some(name.to_owned()),
            what,
            mend,
        })
    };
    let status = work.status.clone().unwrap_or_default();
    let Some(applied) = conditions::get(&status.conditions, APPLIED) else {
        let what = format!("{name} has not answered yet");
        let words = format!("Wait a moment and ask again; if it stays so, see how {name} does.");
        let mend = on_hub(words, [format!("towline why cluster/{name}")]);
        return Err(broken(Stage::Applied, Cause::HubIsLate, what, mend));
    };
    if applied.status != "True" {
        let read = || refusal::read(&applied.message, about);
        let (cause, mend) = script::read(&applied.message).unwrap_or_else(read);
        let what = format!(
            "{name} has not applied it: {}",
            said(refusal::bare(&applied.message))
        );
        return Err(broken(Stage::Applied, cause, what, mend));
    }
    let interpreted = conditions::get(&status.conditions, common::api::work::INTERPRETED);
    if let Some(failed) = interpreted.filter(|it| it.status == "False") {
        let (cause, mend) = script::in_member();
        let what = format!("{name}: {}", said(&failed.message));
        return Err(broken(Stage::Health, cause, what, mend));
    }
    let told = status
        .manifest_statuses
        .iter()
        .find(|it| is_about(it, object));
    if told.and_then(|it| it.health) != Some(ResourceHealth::Unhealthy) {
        return Ok(());
    }
    let diagnosis = conditions::get(&status.conditions, common::api::work::WORKLOAD_HEALTHY);
    let found = diagnosis
        .filter(|it| it.status == "False")
        .map(|it| diagnosis::read(it, about));
    let (cause, what, mend) = found.unwrap_or_else(|| unexplained(about));
    Err(broken(
        Stage::Health,
        cause,
        format!("{name}: {what}"),
        mend,
    ))
}

fn unexplained(about: &About<'_>) -> (Cause, String, Mend) {
    let within = mend::within(about.namespace);
    let describe = format!(
        "kubectl{within} describe {} {}",
        about.resource,
        mend::word(about.name)
    );
    let mend = in_member(about.cluster, "See there why.", [describe]);
    (
        Cause::Unhealthy,
        "it is not healthy, and its agent has not said why".to_owned(),
        mend,
    )
}

fn held_back(policy: Option<&Policy>, binding: &Bound, work: &Work, name: &str) -> Broken {
    let suspension = binding.spec.suspension.as_ref();
    let everywhere = suspension.and_then(|it| it.dispatching) == Some(true);
    let named = suspension.and_then(|it| it.dispatching_on_clusters.as_ref());
    let by_policy =
        everywhere || named.is_some_and(|it| it.cluster_names.iter().any(|it| it == name));
    let (what, command) = match policy.filter(|_| by_policy) {
        Some(policy) => (
            format!(
                "{} suspends dispatching to {name}",
                mend::short(&policy.name)
            ),
            mend::patch_policy(&policy.name, &json!({"spec": {"suspension": null}})),
        ),
        None => (
            format!("somebody suspended the Work for {name}"),
            patch_work(work, &json!({"spec": {"suspendDispatching": null}})),
        ),
    };
    Broken {
        stage: Stage::Work,
        cause: Cause::Suspended,
        cluster: Some(name.to_owned()),
        what,
        mend: on_hub("Let it go on.", [command]),
    }
}

/// A merge patch of a Work.
pub(super) fn patch_work(work: &Work, patch: &Value) -> String {
    let within = mend::within(work.metadata.namespace.as_deref());
    let name = work.metadata.name.as_deref().unwrap_or_default();
    format!(
        "kubectl{within} patch work/{} --type=merge -p '{patch}'",
        mend::word(name)
    )
}

fn is_about(reported: &ManifestStatus, resource: &ObjectReference) -> bool {
    let it = &reported.identifier;
    it.group == group(&resource.api_version)
        && it.kind == resource.kind
        && it.namespace == resource.namespace.as_deref().unwrap_or_default()
        && it.name == resource.name
}

/// Replicas that are ready, as the kind counts them. Kubernetes leaves a zero out.
fn ready(kind: &str, status: &Value) -> Option<i64> {
    let count = |key: &str| status.get(key).and_then(Value::as_i64);
    match kind {
        "Deployment" | "StatefulSet" | "ReplicaSet" => Some(count("readyReplicas").unwrap_or(0)),
        "DaemonSet" => Some(count("numberReady").unwrap_or(0)),
        _ => count("readyReplicas"),
    }
}
