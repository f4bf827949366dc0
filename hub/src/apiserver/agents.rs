//! What agents and their tokens may write, decided without a policy engine. Pure.
//!
//! On an API server of Kubernetes the same rules are admission policies (`install::admission`), and the
//! texts here are theirs: whoever is refused reads the same on both. Rights come first, by RBAC; then
//! what may be written at all, before a body is read ([`check_target`]); then the object itself
//! ([`check_object`]).

mod forms;
mod unknown;

pub use unknown::Unknown;

use super::authz::Attributes;
use super::caller::Caller;
use super::error::{ApiError, GroupResource};
use crate::install::admission::{
    AGENTS_POLICY, CLUSTERS_POLICY, DEFINITIONS_POLICY, NAMESPACES_POLICY, OWN_MANAGER_ONLY,
    TOKENS_POLICY, WORKS_POLICY, definition_guarded, misplaced_work, namespace_guarded,
};
use crate::install::object::MANAGED_BY_VALUE;
use common::identity::{AGENT_USER_PREFIX, AGENTS_GROUP, BOOTSTRAP_GROUP, CLUSTER_GROUP_PREFIX};
use common::labels::{MANAGED_BY, UNREGISTER};
use common::names::{CLUSTER_NAMESPACE, EXECUTION_PREFIX, SYSTEM_NAMESPACE};
use common::unregister::Mode;
use serde_json::Value;

/// What is written, in the words of admission.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    /// `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
    pub operation: &'a str,
    /// API group; empty for the core group.
    pub group: &'a str,
    /// Plural name.
    pub resource: &'a str,
    /// Subresource; empty for the object itself.
    pub subresource: &'a str,
    /// Empty for what lies in none.
    pub namespace: &'a str,
    /// Name; empty while it is not known.
    pub name: &'a str,
}

/// What an agent may write at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    ClusterStatus,
    Lease,
    Work,
    WorkStatus,
    Event,
    EventUpdate,
    Request,
}

impl Target<'_> {
    fn kind(&self) -> Option<Kind> {
        let what = (self.operation, self.group, self.resource, self.subresource);
        match what {
            ("UPDATE", "cluster.karmada.io", "clusters", "status") => Some(Kind::ClusterStatus),
            ("UPDATE", "coordination.k8s.io", "leases", "") => Some(Kind::Lease),
            ("UPDATE", "work.karmada.io", "works", "") => Some(Kind::Work),
            ("UPDATE", "work.karmada.io", "works", "status") => Some(Kind::WorkStatus),
            ("CREATE", "", "events", "") => Some(Kind::Event),
            ("UPDATE", "", "events", "") => Some(Kind::EventUpdate),
            ("CREATE", "certificates.k8s.io", "certificatesigningrequests", "") => {
                Some(Kind::Request)
            }
            _ => None,
        }
    }

    /// The answer of an admission policy that refuses this.
    pub(super) fn refused(&self, policy: &str, why: &str) -> ApiError {
        let why = format!(
            "ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request: {why}"
        );
        let on = GroupResource::new(self.group, self.resource);
        ApiError::forbidden(&on, self.name, &why)
    }
}

/// Whether a caller is one that these rules are about, as an agent.
pub fn is_agent(caller: &Caller) -> bool {
    caller.user.starts_with(AGENT_USER_PREFIX)
        || caller
            .groups
            .iter()
            .any(|group| group == AGENTS_GROUP || group.starts_with(CLUSTER_GROUP_PREFIX))
}

/// The right that only the agent of a registration in force has; `None` for who is no agent.
pub fn right_of_registered(caller: &Caller) -> Option<Attributes> {
    let cluster = is_agent(caller).then(|| cluster_of(caller).unwrap_or_default())?;
    Some(Attributes {
        verb: "patch".to_owned(),
        group: "coordination.k8s.io".to_owned(),
        resource: "leases".to_owned(),
        namespace: CLUSTER_NAMESPACE.to_owned(),
        name: cluster.to_owned(),
        ..Attributes::default()
    })
}

/// Whether a caller is one of our tokens.
fn is_token(caller: &Caller) -> bool {
    caller.is_in(BOOTSTRAP_GROUP)
}

/// The cluster an agent speaks for; `None` for an identity with an agent's group and another name.
pub fn cluster_of(caller: &Caller) -> Option<&str> {
    let cluster = caller.user.strip_prefix(AGENT_USER_PREFIX)?;
    (!cluster.is_empty()).then_some(cluster)
}

/// Whether a caller may write such a thing at all; asked before anything of the request is read.
pub fn check_target(caller: &Caller, target: &Target<'_>) -> Result<(), ApiError> {
    let kind = target.kind();
    if is_token(caller) && kind != Some(Kind::Request) {
        return Err(target.refused(
            TOKENS_POLICY,
            "a bootstrap token may only create a certificate signing request",
        ));
    }
    if !is_agent(caller) {
        return Ok(());
    }
    let refuse = |why| Err(target.refused(AGENTS_POLICY, why));
    let Some(kind) = kind else {
        return refuse(
            "an agent may only write the status of its own Cluster, its own Lease, status and \
             finalizer of its own Works, Events about them, and requests for its certificate",
        );
    };
    let Some(cluster) = cluster_of(caller) else {
        return refuse("this identity has an agent's group but is no agent");
    };
    let in_own_namespace = target.namespace.strip_prefix(EXECUTION_PREFIX) == Some(cluster);
    match kind {
        Kind::ClusterStatus if target.name != cluster => refuse(STATUS_ONLY),
        Kind::Lease if target.namespace != CLUSTER_NAMESPACE || target.name != cluster => {
            refuse(RENEW_TIME_ONLY)
        }
        Kind::Work if !in_own_namespace => refuse(FINALIZER_ONLY),
        Kind::WorkStatus if !in_own_namespace => refuse(WORK_STATUS_ONLY),
        Kind::Event | Kind::EventUpdate if !in_own_namespace => refuse(EVENTS_ONLY),
        _ => Ok(()),
    }
}

const STATUS_ONLY: &str = "an agent may write nothing but the status of its own Cluster";
const RENEW_TIME_ONLY: &str = "an agent may write nothing but renewTime of its own Lease";
const FINALIZER_ONLY: &str =
    "an agent may change nothing of its own Works but their status and its own finalizer";
const WORK_STATUS_ONLY: &str = "an agent may write nothing but the status of its own Works";
const EVENTS_ONLY: &str = "an agent may write Events only in its execution namespace, about its Works, \
                           from towline-agent or a controller of Karmada's agent, with at most 1024 \
                           characters";

/// Whether a caller may write this object in place of the old one. `reads_own_works` tells whether the
/// agent may still list its own Works.
pub fn check_object(
    caller: &Caller,
    target: &Target<'_>,
    object: Option<&Value>,
    old: Option<&Value>,
    reads_own_works: impl FnOnce() -> bool,
) -> Result<(), ApiError> {
    check_target(caller, target)?;
    let (Some(object), Some(kind)) = (object, target.kind()) else {
        return Ok(());
    };
    if is_token(caller) {
        forms::request(object).map_err(|why| target.refused(TOKENS_POLICY, why))?;
    }
    if !is_agent(caller) {
        return Ok(());
    }
    let null = Value::Null;
    let old = old.unwrap_or(&null);
    let held = match kind {
        Kind::ClusterStatus => held(
            forms::metadata_same(object, old) && forms::same_but(object, old, "status"),
            STATUS_ONLY,
        ),
        Kind::Lease => held(
            forms::ownership_is_small(object)
                && forms::metadata_same(object, old)
                && forms::same_but(object, old, "spec")
                && forms::lease_same_but_time(object, old),
            RENEW_TIME_ONLY,
        ),
        Kind::Work => held(
            forms::metadata_same_but_finalizer(object, old) && forms::same_but(object, old, ""),
            FINALIZER_ONLY,
        ),
        Kind::WorkStatus => held(
            forms::metadata_same(object, old) && forms::same_but(object, old, "status"),
            WORK_STATUS_ONLY,
        ),
        Kind::Event => held(forms::event(object, target.namespace), EVENTS_ONLY),
        Kind::EventUpdate => held(
            forms::event(object, target.namespace)
                && forms::metadata_same(object, old)
                && forms::event_same(object, old),
            EVENTS_ONLY,
        ),
        Kind::Request => held(reads_own_works(), "this registration is no longer in force")
            .and_then(|()| forms::request(object)),
    };
    let counted = !matches!(kind, Kind::Lease | Kind::Request);
    held.and_then(|()| {
        let own = !counted || forms::manager_is_own(object, old);
        if own { Ok(()) } else { Err(OWN_MANAGER_ONLY) }
    })
    .map_err(|why| target.refused(AGENTS_POLICY, why))
}

fn held(holds: bool, why: &'static str) -> Result<(), &'static str> {
    if holds { Ok(()) } else { Err(why) }
}

/// Refuses to delete a Cluster that is Ready and was not told how to go.
pub fn check_cluster_deletion(target: &Target<'_>, cluster: &Value) -> Result<(), ApiError> {
    if target.kind().is_some()
        || (target.operation, target.group, target.resource)
            != ("DELETE", "cluster.karmada.io", "clusters")
    {
        return Ok(());
    }
    let conditions = cluster["status"]["conditions"].as_array();
    let ready = conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
    let modes = [Mode::RemoveWorkloads, Mode::KeepWorkloads, Mode::Force].map(Mode::as_str);
    let told = cluster["metadata"]["annotations"][UNREGISTER].as_str();
    if !ready || told.is_some_and(|mode| modes.contains(&mode)) {
        return Ok(());
    }
    let name = cluster["metadata"]["name"].as_str().unwrap_or_default();
    let why = format!(
        "Cluster {name} is Ready: remove it by `towline unregister {name}`, or annotate it first \
         with {UNREGISTER}={}",
        modes.join("|"),
    );
    Err(target.refused(CLUSTERS_POLICY, &why))
}

/// Refuses a Work where nobody would carry it out.
pub fn check_work_place(target: &Target<'_>) -> Result<(), ApiError> {
    let what = (
        target.operation,
        target.group,
        target.resource,
        target.subresource,
    );
    if what != ("CREATE", "work.karmada.io", "works", "")
        || target.namespace.starts_with(EXECUTION_PREFIX)
    {
        return Ok(());
    }
    Err(target.refused(WORKS_POLICY, &misplaced_work(target.namespace)))
}

/// Refuses to delete a namespace that holds what is the hub's, unless that was said on it. What the server
/// does by itself, as the collection of what lost its owner, is not asked here.
pub fn check_namespace_deletion(target: &Target<'_>, namespace: &Value) -> Result<(), ApiError> {
    if (target.operation, target.group, target.resource) != ("DELETE", "", "namespaces") {
        return Ok(());
    }
    let metadata = &namespace["metadata"];
    let name = metadata["name"].as_str().unwrap_or_default();
    let owned = |owner: &Value| {
        let version = owner["apiVersion"].as_str().unwrap_or_default();
        owner["kind"] == "Cluster" && version.starts_with("cluster.karmada.io/")
    };
    let mut owners = metadata["ownerReferences"].as_array().into_iter().flatten();
    let cluster = name
        .strip_prefix(EXECUTION_PREFIX)
        .filter(|_| owners.any(owned));
    let guarded = cluster.is_some() || [SYSTEM_NAMESPACE, CLUSTER_NAMESPACE].contains(&name);
    if !guarded || metadata["annotations"][UNREGISTER] == Mode::Force.as_str() {
        return Ok(());
    }
    Err(target.refused(NAMESPACES_POLICY, &namespace_guarded(name, cluster)))
}

/// Refuses to delete a kind that the hub is made of, unless that was said on it.
pub fn check_definition_deletion(target: &Target<'_>, definition: &Value) -> Result<(), ApiError> {
    let what = (target.operation, target.group, target.resource);
    let metadata = &definition["metadata"];
    if what
        != (
            "DELETE",
            "apiextensions.k8s.io",
            "customresourcedefinitions",
        )
        || metadata["labels"][MANAGED_BY] != MANAGED_BY_VALUE
        || metadata["annotations"][UNREGISTER] == Mode::Force.as_str()
    {
        return Ok(());
    }
    let name = metadata["name"].as_str().unwrap_or_default();
    Err(target.refused(DEFINITIONS_POLICY, &definition_guarded(name)))
}

#[cfg(test)]
mod tests;
