//! The way of one Work: its agent, whether it is held back, applied, healthy. Pure.

use super::mend::on_hub;
use super::refusal::About;
use super::{Broken, Cause, Report, Stage, Walk, cluster, degraded, member, template};
use chrono::{DateTime, Utc};
use common::api::binding::ObjectReference;
use common::api::cluster::Cluster;
use common::api::work::Work;
use common::gvk::Gvk;
use common::labels::{BINDING_NAME, BINDING_NAMESPACE, CLUSTER_BINDING_NAME};
use common::names::EXECUTION_PREFIX;
use serde_json::{Value, json};

/// What was read of a hub around one Work.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The time of day.
    pub now: DateTime<Utc>,
    /// The object.
    pub work: Work,
    /// The cluster that it is for.
    pub cluster: Option<Cluster>,
    /// When its agent renewed its Lease last.
    pub renewed: Option<DateTime<Utc>>,
    /// Why the hub's API server is not ready.
    pub hub: Option<String>,
    /// What was not looked at, because whoever asks may not.
    pub unseen: Vec<String>,
}

/// Why a Work is not carried out.
pub fn explain(seen: &Seen) -> Report {
    let mut walk = Walk::default();
    stages(seen, &mut walk);
    let metadata = &seen.work.metadata;
    let name = metadata.name.as_deref().unwrap_or_default();
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    walk.report(
        format!("work/{name} in namespace {namespace}"),
        seen.unseen.clone(),
    )
}

fn stages(seen: &Seen, walk: &mut Walk) {
    if let Some(why) = &seen.hub {
        walk.breaks(template::hub_not_ready(why), Vec::new());
        return;
    }
    let work = &seen.work;
    let metadata = &work.metadata;
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let name = namespace
        .strip_prefix(EXECUTION_PREFIX)
        .unwrap_or(namespace);
    let broken = |cause, what: String, mend| Broken {
        stage: Stage::Work,
        cause,
        cluster: Some(name.to_owned()),
        what,
        mend,
    };
    let Some(object) = &seen.cluster else {
        let what =
            format!("there is no cluster {name}: nobody carries out what lies in {namespace}");
        let mend = on_hub(
            "Write it into the namespace of a cluster.",
            ["kubectl get clusters".to_owned()],
        );
        walk.breaks(broken(Cause::ClusterMissing, what, mend), Vec::new());
        return;
    };
    walk.holds(Stage::Work, made_of(work), Vec::new());
    if let Some(sick) = cluster::sick(object, seen.renewed, seen.now) {
        walk.breaks(sick, Vec::new());
        return;
    }
    walk.holds(Stage::Agent, format!("{name} is ready"), Vec::new());
    if metadata.deletion_timestamp.is_some() {
        let (cause, words, mend) = degraded::leaving(work, name);
        let what = format!("it is being deleted{words}");
        walk.breaks(broken(cause, what, mend), Vec::new());
        return;
    }
    if work.spec.suspend_dispatching == Some(true) {
        let command = member::patch_work(work, &json!({"spec": {"suspendDispatching": null}}));
        let words = match binding_of(work) {
            Some(_) => "Its binding may write that again: see spec.suspension of the policy.",
            None => "Let it go on.",
        };
        let what = "its dispatching is suspended".to_owned();
        walk.breaks(
            broken(Cause::Suspended, what, on_hub(words, [command])),
            Vec::new(),
        );
        return;
    }
    if let Some(found) = judged(work, name) {
        if found.stage > Stage::Applied {
            walk.holds(Stage::Applied, "every object".to_owned(), Vec::new());
        }
        walk.breaks(found, Vec::new());
        return;
    }
    let of = work.spec.workload.manifests.len();
    walk.holds(Stage::Applied, format!("{of} of {of} objects"), Vec::new());
    walk.holds(Stage::Health, "nothing is unhealthy", Vec::new());
}

/// How a Work is shown with what its member says of it.
pub(super) fn describe(work: &Work) -> String {
    let within = super::mend::within(work.metadata.namespace.as_deref());
    let name = work.metadata.name.as_deref().unwrap_or_default();
    format!("kubectl{within} describe work {}", super::mend::word(name))
}

/// What is wrong with the first of its objects that something is wrong with.
pub(super) fn judged(work: &Work, cluster: &str) -> Option<Broken> {
    let manifests = &work.spec.workload.manifests;
    manifests.iter().find_map(|manifest| {
        let text = |pointer: &str| {
            manifest
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let reference = ObjectReference {
            api_version: text("/apiVersion").to_owned(),
            kind: text("/kind").to_owned(),
            namespace: Some(text("/metadata/namespace").to_owned()).filter(|it| !it.is_empty()),
            name: text("/metadata/name").to_owned(),
            ..ObjectReference::default()
        };
        let resource = match Gvk::new(&reference.api_version, &reference.kind) {
            Some(gvk) if gvk.group.is_empty() => gvk.kind.to_lowercase(),
            Some(gvk) => format!("{}.{}", gvk.kind.to_lowercase(), gvk.group),
            None => reference.kind.to_lowercase(),
        };
        let about = About {
            resource: &resource,
            namespace: reference.namespace.as_deref(),
            name: &reference.name,
            cluster,
            template: Some(manifest),
            policy: None,
            referred: &[],
            stays: false,
        };
        member::judge(work, &reference, &about).err().map(|it| *it)
    })
}

fn binding_of(work: &Work) -> Option<String> {
    let annotation = |key: &str| work.metadata.annotations.as_ref()?.get(key);
    match (annotation(BINDING_NAMESPACE), annotation(BINDING_NAME)) {
        (Some(namespace), Some(name)) => Some(format!("{namespace}/{name}")),
        _ => annotation(CLUSTER_BINDING_NAME).cloned(),
    }
}

/// The Namespace that a Work takes into its member.
fn namespace_of(work: &Work) -> Option<&str> {
    let mut owners = work.metadata.owner_references.iter().flatten();
    let owner = owners.find(|it| {
        it.controller == Some(true)
            && (it.kind.as_str(), it.api_version.as_str()) == ("Namespace", "v1")
    })?;
    Some(&owner.name)
}

fn made_of(work: &Work) -> String {
    let kinds = work.spec.workload.manifests.iter();
    let kinds: Vec<String> = kinds
        .filter_map(|it| it["kind"].as_str().map(str::to_owned))
        .collect();
    let of = super::placement::some(&kinds);
    match (binding_of(work), namespace_of(work)) {
        (Some(binding), _) => format!("{of}, made of the binding {binding}"),
        (None, Some(namespace)) => {
            format!("{of}, made of the Namespace {namespace} for what lies in it")
        }
        (None, None) => format!("{of}, written by hand"),
    }
}
