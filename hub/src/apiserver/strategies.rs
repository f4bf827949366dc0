//! What is particular to a kind: what the server fills in, what it refuses, how long names may be.
//!
//! Pure: a strategy sees the object, what it replaces, and who asks; never the store.

mod certificates;
mod configmaps;
pub(crate) mod crds;
mod custom;
pub(crate) mod daemonsets;
mod events;
mod generic;
mod jobs;
mod leases;
mod namespaces;
mod nodes;
mod pods;
mod propagation;
mod rbac;
mod secrets;
mod services;
mod status;
mod warnings;
mod workloads;

pub(crate) use generic::{Meta, protection};
pub(crate) use propagation::{complete, identify};

use crate::apiserver::error::{ApiError, FieldErrors};
use crate::apiserver::metadata;
use crate::apiserver::names::NameRule;
use crate::apiserver::request::{Context, DeleteOptions};
use crate::apiserver::scheme::Resource;
use crate::apiserver::value::{copy, put, same, text};
use chrono::{DateTime, Utc};
use serde_json::Value;

/// What a strategy knows beside the objects.
pub(crate) struct Facts<'a> {
    pub(crate) context: &'a Context,
    pub(crate) now: DateTime<Utc>,
}

/// Which changes move `metadata.generation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Generation {
    /// None: there is no generation.
    Never,
    /// None: it stays 1.
    Once,
    /// Changes of the spec.
    Spec,
    /// Changes of the spec and of annotations.
    SpecAndAnnotations,
    /// Changes of anything but metadata and status.
    Content,
    /// Changes of anything but metadata.
    ContentAndStatus,
}

/// What objects that are owned do when the owner goes and nobody said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dependents {
    /// They go after it.
    Background,
    /// They stay.
    Orphan,
    /// The kind owns nothing.
    Unsupported,
}

/// The rules of one kind.
pub(crate) trait Strategy: Send + Sync {
    /// How its objects may be called.
    fn name_rule(&self) -> NameRule {
        NameRule::Subdomain
    }

    /// What is wrong with a name, or with the beginning of one.
    fn check_name(&self, name: &str, prefix: bool) -> Vec<String> {
        self.name_rule().check(name, prefix)
    }

    /// Whether a PUT makes what is not there.
    fn create_on_update(&self) -> bool {
        false
    }

    /// Whether a PUT without resourceVersion replaces what is there.
    fn unconditional_update(&self) -> bool {
        true
    }

    /// Whether a deletion answers with the object.
    fn returns_deleted(&self) -> bool {
        false
    }

    /// What becomes of owned objects when nobody said.
    fn dependents(&self) -> Dependents {
        Dependents::Background
    }

    /// Which changes move the generation.
    fn generation(&self) -> Generation {
        Generation::Never
    }

    /// Fields beside name and namespace that can be selected by.
    fn selectable(&self) -> &'static [&'static str] {
        &[]
    }

    /// The value of such a field.
    fn field(&self, object: &Value, field: &str) -> String {
        let path: Vec<&str> = field.split('.').collect();
        text(object, &path).to_owned()
    }

    /// Puts defaults that need the request or come from code.
    fn default(&self, facts: &Facts<'_>, object: &mut Value) {
        let _ = (facts, object);
    }

    /// Refuses before anything is looked at.
    fn admit(
        &self,
        facts: &Facts<'_>,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        let _ = (facts, object, old);
        Ok(())
    }

    /// What the server says about a new object.
    fn prepare_create(&self, facts: &Facts<'_>, object: &mut Value) {
        let _ = (facts, object);
    }

    /// What the server says about a changed object.
    fn prepare_update(&self, facts: &Facts<'_>, object: &mut Value, old: &Value) {
        let _ = (facts, object, old);
    }

    /// Whether a changed object is looked at as if it were new.
    fn validates_anew(&self) -> bool {
        false
    }

    /// What is wrong with an object; `old` is what it replaces.
    fn validate(&self, facts: &Facts<'_>, object: &Value, old: Option<&Value>) -> FieldErrors {
        let _ = (facts, object, old);
        FieldErrors::new()
    }

    /// What the caller should know about an object that is taken.
    fn warnings(&self, facts: &Facts<'_>, object: &Value, old: Option<&Value>) -> Vec<String> {
        warnings::of(facts, object, old)
    }

    /// How much of the metadata a write to `/status` can change.
    fn status_metadata(&self) -> Meta {
        Meta::Free
    }

    /// Whether an object that has no finalizers left may go.
    fn may_go(&self, object: &Value) -> bool {
        let _ = object;
        true
    }

    /// What the caller should know about a deletion with these options.
    fn deletion_warning(&self, options: &DeleteOptions) -> Option<&'static str> {
        let _ = options;
        None
    }

    /// How many seconds a first deletion gives an object to end; nothing for kinds that end at once.
    fn grace(&self, object: &Value, options: &DeleteOptions) -> Option<i64> {
        let _ = (object, options);
        None
    }

    /// What a first deletion does instead of the usual: `true` if the object stays.
    fn begin_delete(&self, facts: &Facts<'_>, object: &mut Value, options: &DeleteOptions) -> bool {
        let _ = (facts, object, options);
        false
    }

    /// Whether an object that is being deleted already is left as it is by another deletion.
    fn delete_pending(&self, object: &Value) -> bool {
        let _ = object;
        false
    }
}

/// The rules of a kind.
pub(crate) fn of(resource: &Resource) -> &'static dyn Strategy {
    if resource.is_custom() {
        return if resource.has_status() {
            &custom::WITH_STATUS
        } else {
            &custom::PLAIN
        };
    }
    match (resource.group.as_ref(), resource.plural.as_ref()) {
        ("", "namespaces") => &namespaces::Namespaces,
        ("", "secrets") => &secrets::Secrets,
        ("", "services") => &services::Services,
        ("", "configmaps") => &configmaps::ConfigMaps,
        ("", "events") | ("events.k8s.io", "events") => &events::Events,
        ("coordination.k8s.io", "leases") => &leases::Leases,
        ("rbac.authorization.k8s.io", "roles" | "clusterroles") => &rbac::Roles,
        ("rbac.authorization.k8s.io", _) => &rbac::Bindings,
        ("certificates.k8s.io", "certificatesigningrequests") => &certificates::Requests,
        ("apiextensions.k8s.io", "customresourcedefinitions") => &crds::Crds,
        ("apps", "daemonsets") => &daemonsets::DaemonSets,
        ("batch", "jobs") => &jobs::Jobs,
        (group, plural) => generic::of(group, plural),
    }
}

/// Everything that is done to a new object before it is looked at.
pub(crate) fn prepare_create(strategy: &dyn Strategy, facts: &Facts<'_>, object: &mut Value) {
    if facts.context.resource.has_status() {
        status::reset_on_create(&facts.context.resource, object);
    }
    // A kind without a generation keeps what a body says.
    if strategy.generation() != Generation::Never {
        metadata::set_generation(object, 1);
    }
    strategy.prepare_create(facts, object);
}

/// Everything that is done to a changed object before it is looked at.
pub(crate) fn prepare_update(
    strategy: &dyn Strategy,
    facts: &Facts<'_>,
    object: &mut Value,
    old: &Value,
) {
    metadata::set_generation(object, metadata::generation(old));
    match facts.context.subresource.as_str() {
        "" => {
            if facts.context.resource.has_status() {
                copy(object, old, &["status"]);
            }
            strategy.prepare_update(facts, object, old);
            if moves(strategy.generation(), object, old) {
                metadata::set_generation(object, metadata::generation(old) + 1);
            }
        }
        "status" => {
            status::keep_the_rest(strategy.status_metadata(), object, old);
            strategy.prepare_update(facts, object, old);
        }
        _ => strategy.prepare_update(facts, object, old),
    }
}

fn moves(rule: Generation, object: &Value, old: &Value) -> bool {
    match rule {
        Generation::Never | Generation::Once => false,
        Generation::Spec => !same(object, old, &["spec"]),
        Generation::SpecAndAnnotations => {
            !same(object, old, &["spec"]) || !same(object, old, &["metadata", "annotations"])
        }
        Generation::Content => content(object, true) != content(old, true),
        Generation::ContentAndStatus => content(object, false) != content(old, false),
    }
}

fn content(object: &Value, without_status: bool) -> Value {
    let mut copy = object.clone();
    for gone in ["metadata", "apiVersion", "kind"] {
        put(&mut copy, &[gone], None);
    }
    if without_status {
        put(&mut copy, &["status"], None);
    }
    copy
}
