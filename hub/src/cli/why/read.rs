//! What `towline why` reads of a hub. Who may not see a part of it is told so, and sees the rest.

#[cfg(test)]
mod tests;

use crate::cli::check::health;
use crate::cli::get::read::{Hub, Scope, missing, not_found, one, pages, whole};
use crate::cli::get::waiting::{has_class, has_override};
use crate::cli::leases::{self, Renewed};
use crate::cli::{CliError, Kind};
use crate::controller::binding::targets::targets;
use crate::controller::binding_status::expected;
use crate::controller::detector::skip::Skips;
use crate::controller::detector::wake::overrides_of;
use crate::explain::template::{Bound, Referred};
use crate::explain::{
    Report, SeenCluster, SeenTemplate, cluster, degraded, is_missing, policy, template, work,
};
use crate::propagation::{Policy, PolicyName, Template};
use chrono::{DateTime, Utc};
use common::api::cluster::Cluster;
use common::api::interpreter::ResourceInterpreterCustomization;
use common::api::policy::{ClusterPropagationPolicy, PropagationPolicy};
use common::api::work::{
    APPLIED, ManifestStatus, ResourceIdentifier, WORKLOAD_HEALTHY, Work, WorkSpec, WorkStatus,
};
use common::conditions;
use common::gvk::Gvk;
use common::interpreter::custom::{Customizations, Failed, Operation};
use common::interpreter::dependencies::NamesNothing;
use common::interpreter::layers::{Interpreter, Untold};
use common::labels::{BINDING_PERMANENT_ID, CLUSTER_BINDING_PERMANENT_ID, SKIP_NAMESPACE, skips};
use common::names::{EXECUTION_PREFIX, work_name};
use common::time::{Clock as _, SystemClock};
use k8s_openapi::api::core::v1::Namespace;
use kube::core::TypeMeta;
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;

/// References that are looked after.
const REFERRED: usize = 32;
const WORKS: &str = "works.work.karmada.io";
/// What hubs pass over unless their flags say otherwise.
const SKIPPED_NAMESPACES: [&str; 1] = ["kube-.*"];

/// What was not shown to whoever asks.
#[derive(Debug, Default)]
struct Unseen(Vec<String>);

impl Unseen {
    /// What was read; none, with a note, where that is denied.
    fn or_none<T>(
        &mut self,
        what: &str,
        read: Result<T, kube::Error>,
    ) -> Result<Option<T>, CliError> {
        match read {
            Ok(found) => Ok(Some(found)),
            Err(kube::Error::Api(status)) if status.code == 403 => {
                self.0
                    .push(format!("{what}: this kubeconfig may not read them"));
                Ok(None)
            }
            Err(error) => Err(CliError::api(format!("failed to read {what}"), error)),
        }
    }

    /// When a cluster's Lease was renewed; none, with a note, where that cannot be read.
    fn renewed(&mut self, cluster: &str, renewed: Renewed) -> Option<DateTime<Utc>> {
        match renewed {
            Renewed::At(at) => Some(at),
            Renewed::Unreadable => {
                let note = format!("the Lease of {cluster}: the time in it cannot be read");
                self.0.push(note);
                None
            }
            Renewed::Never | Renewed::Unseen => None,
        }
    }
}

async fn all<K>(api: &Api<K>) -> Result<Vec<K>, kube::Error>
where
    K: kube::Resource + Clone + DeserializeOwned + Debug,
{
    pages(api, &Scope::default()).await
}

/// A cluster.
pub(super) async fn cluster(client: &Client, name: &str) -> Result<Report, CliError> {
    let hub = health::not_ready(client).await;
    let mut unseen = Unseen::default();
    let clusters: Api<Cluster> = Api::all(client.clone());
    let found = one(&clusters, name).await;
    let found =
        found.map_err(|error| CliError::api(format!("failed to get Cluster {name:?}"), error))?;
    let Some(cluster) = found else {
        let message = format!("there is no Cluster {name:?} on this hub");
        return Err(CliError::message(Kind::NotFound, message).hint(format!(
            "Register it: `towline token create --cluster {name} --print-register-command`, and run what that prints \
             in the member."
        )));
    };
    let works: Api<Work> = Api::namespaced(client.clone(), &format!("{EXECUTION_PREFIX}{name}"));
    let works = unseen.or_none("Works", all(&works).await)?;
    let seen = SeenCluster {
        now: SystemClock.now(),
        cluster,
        renewed: lease(client, name, &mut unseen).await?,
        works: works.unwrap_or_default(),
        hub,
        unseen: unseen.0,
    };
    Ok(degraded::told(cluster::explain(&seen), &seen.works))
}

async fn lease(
    client: &Client,
    name: &str,
    unseen: &mut Unseen,
) -> Result<Option<DateTime<Utc>>, CliError> {
    let lease = unseen.or_none("Leases", leases::of(client, name).await)?;
    Ok(lease.and_then(|it| unseen.renewed(name, it)))
}

/// A Work.
pub(super) async fn work(client: &Client, namespace: &str, name: &str) -> Result<Report, CliError> {
    let hub = health::not_ready(client).await;
    let mut unseen = Unseen::default();
    let works: Api<Work> = Api::namespaced(client.clone(), namespace);
    let work = one(&works, name)
        .await
        .map_err(|error| missing(WORKS, name, error))?
        .ok_or_else(|| not_found(WORKS, name))?;
    let of = namespace
        .strip_prefix(EXECUTION_PREFIX)
        .unwrap_or(namespace);
    let clusters: Api<Cluster> = Api::all(client.clone());
    let cluster = unseen
        .or_none("Clusters", one(&clusters, of).await)?
        .flatten();
    let seen = work::Seen {
        now: SystemClock.now(),
        work,
        cluster,
        renewed: lease(client, of, &mut unseen).await?,
        hub,
        unseen: unseen.0,
    };
    let report = work::explain(&seen);
    Ok(degraded::told(report, std::slice::from_ref(&seen.work)))
}

/// A template.
pub(super) async fn template(
    hub: &Hub,
    word: &str,
    namespace: &str,
    name: &str,
) -> Result<Report, CliError> {
    let resource = hub.resolve(word)?;
    let qualified = resource.qualified();
    let mut unseen = Unseen::default();
    let objects = hub.objects(&resource, resource.namespaced.then_some(namespace));
    let mut object = objects
        .get(name)
        .await
        .map_err(|error| missing(&qualified, name, error))?;
    object.types = Some(TypeMeta {
        api_version: resource.gvk.api_version(),
        kind: resource.gvk.kind.clone(),
    });
    let object = whole(object)?;
    let identity = Template::of(&object)
        .ok_or_else(|| CliError::message(Kind::Internal, "it has no kind or name"))?;
    let place = identity.namespace.as_deref();
    let bound = hub.bound(place, &identity.binding_name()).await?;
    let policies = policies(&hub.client, place, &mut unseen).await?;
    let clusters: Api<Cluster> = Api::all(hub.client.clone());
    let clusters = unseen
        .or_none("Clusters", all(&clusters).await)?
        .unwrap_or_default();
    let leases = unseen.or_none("Leases", leases::all(&hub.client).await)?;
    let leases = leases.unwrap_or_default().into_iter();
    let leases = leases
        .filter_map(|(name, it)| Some((name.clone(), unseen.renewed(&name, it)?)))
        .collect();
    let works = match &bound {
        Some(bound) => works(&hub.client, bound, &mut unseen).await?,
        None if qualified == "namespaces" => {
            // They take it into members.
            works_named(&hub.client, work_name("Namespace", None, name), &mut unseen).await?
        }
        None => Vec::new(),
    };
    let known = interpreter(hub, &mut unseen).await?;
    let referred = match needs_referred(&works) {
        true => referred(hub, &object, &known).await?,
        false => Vec::new(),
    };
    let stays = match place.filter(|it| misses_namespace(&works, it)) {
        Some(place) => stays(&hub.client, place, &mut unseen).await?,
        None => false,
    };
    let skips = Skips::parse("", SKIPPED_NAMESPACES)
        .map_err(|error| CliError::new(Kind::Internal, error))?;
    let (scripts, nameless) = failing(&known, &resource.gvk, &object, bound.as_ref());
    let seen = SeenTemplate {
        now: SystemClock.now(),
        resource: qualified,
        skips,
        overrides: overrides(&hub.client, &policies, &mut unseen).await?,
        priority_classes: priority_class(&hub.client, &policies, &identity, &mut unseen).await?,
        policies,
        clusters,
        leases,
        works,
        referred,
        stays,
        scripts,
        nameless,
        hub: health::not_ready(&hub.client).await,
        unseen: unseen.0,
        binding: bound,
        template: object,
    };
    Ok(degraded::told(template::explain(&seen), &seen.works))
}

/// Policies of all namespaces, or of the template's own where no more may be seen.
async fn policies(
    client: &Client,
    namespace: Option<&str>,
    unseen: &mut Unseen,
) -> Result<Vec<Policy>, CliError> {
    let mut found = Vec::new();
    let everywhere: Api<PropagationPolicy> = Api::all(client.clone());
    let listed = match (all(&everywhere).await, namespace) {
        (Err(kube::Error::Api(status)), Some(namespace)) if status.code == 403 => {
            unseen
                .0
                .push("PropagationPolicies of other namespaces".to_owned());
            all(&Api::namespaced(client.clone(), namespace)).await
        }
        (listed, _) => listed,
    };
    let listed: Vec<PropagationPolicy> = unseen
        .or_none("PropagationPolicies", listed)?
        .unwrap_or_default();
    found.extend(listed.iter().map(|it| Policy::of(&it.metadata, &it.spec)));
    let of_hub: Api<ClusterPropagationPolicy> = Api::all(client.clone());
    let listed = unseen
        .or_none("ClusterPropagationPolicies", all(&of_hub).await)?
        .unwrap_or_default();
    found.extend(listed.iter().map(|it| Policy::of(&it.metadata, &it.spec.0)));
    Ok(found)
}

/// Which of the overrides exist that policies wait for. One that may not be read counts as there.
async fn overrides(
    client: &Client,
    policies: &[Policy],
    unseen: &mut Unseen,
) -> Result<BTreeSet<PolicyName>, CliError> {
    let named: BTreeSet<PolicyName> = policies.iter().flat_map(overrides_of).collect();
    let mut there = BTreeSet::new();
    for name in named {
        let found = has_override(client, &name).await;
        if unseen.or_none("OverridePolicies", found)?.unwrap_or(true) {
            there.insert(name);
        }
    }
    Ok(there)
}

/// The PriorityClass that the template's policy names, if it exists, or may not be read.
async fn priority_class(
    client: &Client,
    policies: &[Policy],
    template: &Template,
    unseen: &mut Unseen,
) -> Result<BTreeSet<String>, CliError> {
    let policy = policy::chosen(policies, template).map(|(policy, _)| policy);
    let named = policy.and_then(|it| it.spec.schedule_priority.as_ref());
    let Some(named) = named else {
        return Ok(BTreeSet::new());
    };
    let class = named.priority_class_name.clone();
    let found = has_class(client, &class).await;
    let there = unseen.or_none("PriorityClasses", found)?.unwrap_or(true);
    Ok(there.then_some(class).into_iter().collect())
}

/// The Works of a binding, and those that go and have their names; where they may not be seen, what its status says of
/// them.
async fn works(client: &Client, bound: &Bound, unseen: &mut Unseen) -> Result<Vec<Work>, CliError> {
    let labels = bound.metadata.labels.iter().flatten();
    let keys = [BINDING_PERMANENT_ID, CLUSTER_BINDING_PERMANENT_ID];
    let mut id = labels.filter(|(key, _)| keys.contains(&key.as_str()));
    let Some((key, value)) = id.next() else {
        return Ok(Vec::new());
    };
    let scope = Scope {
        selector: Some(format!("{key}={value}")),
        ..Scope::default()
    };
    let api: Api<Work> = Api::all(client.clone());
    let Some(mut found) = unseen.or_none("Works", pages(&api, &scope).await)? else {
        return Ok(told(bound));
    };
    if found.len() < targets(&bound.spec).len() {
        let resource = &bound.spec.resource;
        let name = work_name(
            &resource.kind,
            resource.namespace.as_deref(),
            &resource.name,
        );
        let named = works_named(client, name, unseen).await?;
        let going = |it: &Work| it.metadata.deletion_timestamp.is_some();
        let former = named.into_iter().filter(going);
        let known: BTreeSet<Option<String>> =
            found.iter().map(|it| it.metadata.uid.clone()).collect();
        found.extend(former.filter(|it| !known.contains(&it.metadata.uid)));
    }
    Ok(found)
}

/// The Works of a name, of all clusters.
async fn works_named(
    client: &Client,
    name: String,
    unseen: &mut Unseen,
) -> Result<Vec<Work>, CliError> {
    let api: Api<Work> = Api::all(client.clone());
    let scope = Scope {
        name: Some(name),
        ..Scope::default()
    };
    let found = unseen.or_none("Works", pages(&api, &scope).await)?;
    Ok(found.unwrap_or_default())
}

/// Works as a binding's status tells of them.
fn told(bound: &Bound) -> Vec<Work> {
    let resource = &bound.spec.resource;
    let gvk = Gvk::new(&resource.api_version, &resource.kind);
    let each = bound.status.aggregated_status.iter().map(|item| {
        let applied = item.applied == Some(true);
        let message = item.applied_message.clone().unwrap_or_default();
        let mut status = WorkStatus::default();
        if applied || !message.is_empty() {
            let now = DateTime::<Utc>::UNIX_EPOCH;
            status
                .conditions
                .push(conditions::new(APPLIED, applied, "Told", message, now));
        }
        let gvk = gvk.clone();
        status
            .manifest_statuses
            .extend(gvk.map(|gvk| ManifestStatus {
                identifier: ResourceIdentifier {
                    group: gvk.group,
                    version: gvk.version,
                    kind: gvk.kind,
                    namespace: resource.namespace.clone().unwrap_or_default(),
                    name: resource.name.clone(),
                    ..ResourceIdentifier::default()
                },
                status: item.status.clone(),
                health: item.health,
            }));
        let mut work = Work::new("", WorkSpec::default());
        work.metadata.namespace = Some(format!("{EXECUTION_PREFIX}{}", item.cluster_name));
        work.status = Some(status);
        work
    });
    each.collect()
}

/// Whether a member has not the namespace.
fn misses_namespace(works: &[Work], namespace: &str) -> bool {
    works.iter().any(|work| {
        let status = work.status.as_ref();
        let told = status.and_then(|it| conditions::get(&it.conditions, APPLIED));
        told.is_some_and(|it| is_missing(&it.message, namespace))
    })
}

/// Whether a namespace has the label with which it stays on the hub.
async fn stays(client: &Client, name: &str, unseen: &mut Unseen) -> Result<bool, CliError> {
    let api: Api<Namespace> = Api::all(client.clone());
    let found = unseen.or_none("Namespaces", api.get_metadata_opt(name).await)?;
    let labels = found.flatten().and_then(|it| it.metadata.labels);
    let label = labels.and_then(|mut it| it.remove(SKIP_NAMESPACE));
    Ok(label.is_some_and(|it| skips(&it)))
}

/// Whether a member misses what a template refers to.
fn needs_referred(works: &[Work]) -> bool {
    works.iter().any(|work| {
        let status = work.status.as_ref();
        let told = status.and_then(|it| conditions::get(&it.conditions, WORKLOAD_HEALTHY));
        told.is_some_and(|it| it.message.contains("not found"))
    })
}

/// What is known of kinds.
async fn interpreter(hub: &Hub, unseen: &mut Unseen) -> Result<Interpreter, CliError> {
    let customizations: Api<ResourceInterpreterCustomization> = Api::all(hub.client.clone());
    let found = unseen.or_none(
        "ResourceInterpreterCustomizations",
        all(&customizations).await,
    )?;
    let found = found.unwrap_or_default();
    let named = found
        .iter()
        .map(|it| (it.metadata.name.as_deref().unwrap_or_default(), &it.spec));
    let customized = Arc::new(Customizations::new(named));
    Ok(Interpreter::new(
        customized,
        crate::shipped::customizations(),
    ))
}

/// What the hub's own scripts for a template's kind fail at, in the order in which it asks them; and which of its
/// references names nothing, where something is to go along with it.
fn failing(
    known: &Interpreter,
    gvk: &Gvk,
    template: &Value,
    bound: Option<&Bound>,
) -> (Vec<Failed>, Option<NamesNothing>) {
    let scripts = |operation| known.scripts(gvk, operation);
    let replicas = scripts(Operation::Replica).and_then(|it| it.replicas(template)?.err());
    let mut failed = Vec::from_iter(replicas);
    let Some(bound) = bound else {
        return (failed, None);
    };
    let follows = bound.spec.propagate_deps == Some(true);
    let dependencies = follows.then(|| known.dependencies(gvk, template)).flatten();
    let nameless = match dependencies.and_then(Result::err) {
        Some(Untold::Object(why)) => Some(why),
        Some(Untold::Script(why)) => {
            failed.push(why);
            None
        }
        None => None,
    };
    let revision =
        scripts(Operation::ReviseReplica).filter(|_| bound.spec.replicas.is_some_and(|it| it > 0));
    failed.extend(revision.and_then(|it| {
        let shares: BTreeSet<i32> = bound
            .spec
            .clusters
            .iter()
            .map(|it| it.replicas.unwrap_or(0))
            .collect();
        shares
            .into_iter()
            .find_map(|share| it.revise(template, share)?.err())
    }));
    let told = &bound.status.aggregated_status;
    let aggregation = scripts(Operation::AggregateStatus).filter(|_| !told.is_empty());
    failed.extend(
        aggregation.and_then(|it| it.aggregate(template, &expected(&bound.spec, told))?.err()),
    );
    (failed, nameless)
}

/// What a template refers to by name, and whether the hub has it.
async fn referred(
    hub: &Hub,
    object: &Value,
    interpreter: &Interpreter,
) -> Result<Vec<Referred>, CliError> {
    let text = |key: &str| object[key].as_str().unwrap_or_default();
    let gvk = Gvk::new(text("apiVersion"), text("kind"));
    let known = gvk
        .and_then(|it| interpreter.dependencies(&it, object)?.ok())
        .unwrap_or_default();
    let mut found: BTreeMap<(String, String), bool> = BTreeMap::new();
    for dependency in known.into_iter().take(REFERRED) {
        let (Some(name), Ok(resource)) = (dependency.name, hub.resolve(&dependency.kind)) else {
            continue;
        };
        let objects = hub.objects(&resource, dependency.namespace.as_deref());
        let exists = match objects.get_metadata_opt(&name).await {
            Ok(found) => found.is_some(),
            // Who may not look cannot be told that it is missing.
            Err(kube::Error::Api(status)) if status.code == 403 => continue,
            Err(error) => return Err(CliError::api(format!("failed to get {name:?}"), error)),
        };
        found.insert((dependency.kind, name), exists);
    }
    let each = found.into_iter();
    Ok(each
        .map(|((kind, name), exists)| Referred { kind, name, exists })
        .collect())
}
