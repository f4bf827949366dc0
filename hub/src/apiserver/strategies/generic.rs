//! Kinds that differ only in what a table can say: one row each.

use super::{Dependents, Facts, Generation, Strategy, nodes, pods};
use crate::apiserver::metadata;
use crate::apiserver::names::NameRule;
use crate::apiserver::request::DeleteOptions;
use crate::apiserver::scheme::Resource;
use crate::apiserver::value::put;
use serde_json::{Value, json};

/// How much of the metadata a write to `/status` can change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meta {
    /// All that an update can.
    Free,
    /// All but the labels.
    Labels,
    /// None of it.
    Kept,
}

/// In what a kind differs.
#[derive(Debug)]
pub(crate) struct Generic {
    pub(super) name: NameRule,
    pub(super) generation: Generation,
    pub(super) create_on_update: bool,
    pub(super) unconditional: bool,
    pub(super) returns_deleted: bool,
    pub(super) status_metadata: Meta,
    pub(super) dependents: Dependents,
    /// Whether objects are given time to end.
    pub(super) graceful: bool,
    pub(super) selectable: &'static [&'static str],
}

impl Generic {
    /// What most kinds are.
    pub(super) const PLAIN: Self = Self {
        name: NameRule::Subdomain,
        generation: Generation::Never,
        create_on_update: false,
        unconditional: true,
        returns_deleted: false,
        status_metadata: Meta::Free,
        dependents: Dependents::Background,
        graceful: false,
        selectable: &[],
    };
}

const PLAIN: Generic = Generic::PLAIN;

const SPEC: Generic = Generic {
    generation: Generation::Spec,
    ..PLAIN
};

const CONDITIONAL: Generic = Generic {
    unconditional: false,
    ..PLAIN
};

const CONDITIONAL_SPEC: Generic = Generic {
    unconditional: false,
    ..SPEC
};

const RETURNED: Generic = Generic {
    returns_deleted: true,
    ..PLAIN
};

static DEPLOYMENTS: Generic = Generic {
    generation: Generation::SpecAndAnnotations,
    status_metadata: Meta::Labels,
    ..PLAIN
};
static REPLICA_SETS: Generic = Generic {
    selectable: &["status.replicas"],
    ..SPEC
};
static CONTROLLERS: Generic = Generic {
    selectable: &["status.replicas"],
    dependents: Dependents::Orphan,
    ..SPEC
};
static PODS: Generic = Generic {
    returns_deleted: true,
    graceful: true,
    selectable: &[
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.podIPs",
        "status.nominatedNodeName",
    ],
    ..SPEC
};
static POD_TEMPLATES: Generic = Generic {
    generation: Generation::Content,
    returns_deleted: true,
    ..PLAIN
};
static NODES: Generic = Generic {
    selectable: &["spec.unschedulable"],
    ..PLAIN
};
static CREATE_ON_UPDATE: Generic = Generic {
    create_on_update: true,
    ..PLAIN
};
static ONCE: Generic = Generic {
    generation: Generation::Once,
    ..PLAIN
};
static CONTENT: Generic = Generic {
    generation: Generation::Content,
    ..PLAIN
};
static CONTENT_CONDITIONAL: Generic = Generic {
    generation: Generation::Content,
    unconditional: false,
    ..PLAIN
};
static CONDITIONAL_RETURNED: Generic = Generic {
    returns_deleted: true,
    ..CONDITIONAL
};
static ROWS: [Generic; 5] = [PLAIN, SPEC, CONDITIONAL, CONDITIONAL_SPEC, RETURNED];

/// The rules of a built-in kind without a file of its own.
pub(super) fn of(group: &str, plural: &str) -> &'static dyn Strategy {
    let [plain, spec, conditional, conditional_spec, returned] = &ROWS;
    match (group, plural) {
        ("", "pods") => &PODS,
        ("", "nodes") => &NODES,
        ("", "replicationcontrollers") => &CONTROLLERS,
        ("", "podtemplates") => &POD_TEMPLATES,
        ("", "endpoints" | "limitranges") => &CREATE_ON_UPDATE,
        (
            "",
            "persistentvolumes" | "persistentvolumeclaims" | "resourcequotas" | "serviceaccounts",
        ) => returned,
        ("apps", "deployments") => &DEPLOYMENTS,
        ("apps", "replicasets") => &REPLICA_SETS,
        ("apps", "statefulsets") | ("batch", "cronjobs") => spec,
        ("networking.k8s.io", "ingresses" | "networkpolicies" | "ingressclasses") => spec,
        ("policy", _) => conditional_spec,
        ("discovery.k8s.io", _) => &CONTENT,
        ("scheduling.k8s.io", "priorityclasses") => &ONCE,
        ("admissionregistration.k8s.io", _) => &CONTENT_CONDITIONAL,
        ("flowcontrol.apiserver.k8s.io", _) => conditional_spec,
        ("node.k8s.io" | "apiregistration.k8s.io", _) => conditional,
        ("storage.k8s.io", "csidrivers" | "csinodes" | "volumeattachments") => {
            &CONDITIONAL_RETURNED
        }
        ("storage.k8s.io", "storageclasses") => returned,
        _ => plain,
    }
}

/// The finalizer that keeps a volume or a claim while it is used.
pub(crate) fn protection(resource: &Resource) -> Option<&'static str> {
    match (resource.group.as_ref(), resource.plural.as_ref()) {
        ("", "persistentvolumeclaims") => Some("kubernetes.io/pvc-protection"),
        ("", "persistentvolumes") => Some("kubernetes.io/pv-protection"),
        _ => None,
    }
}

/// Labels of a place are fields of their own in v1.
fn without_topology(slice: &mut Value) {
    let endpoints = slice.get_mut("endpoints").and_then(Value::as_array_mut);
    for endpoint in endpoints.into_iter().flatten() {
        put(endpoint, &["deprecatedTopology"], None);
    }
}

impl Strategy for Generic {
    fn name_rule(&self) -> NameRule {
        self.name
    }

    fn create_on_update(&self) -> bool {
        self.create_on_update
    }

    fn unconditional_update(&self) -> bool {
        self.unconditional
    }

    fn returns_deleted(&self) -> bool {
        self.returns_deleted
    }

    fn dependents(&self) -> Dependents {
        self.dependents
    }

    fn generation(&self) -> Generation {
        self.generation
    }

    fn grace(&self, object: &Value, options: &DeleteOptions) -> Option<i64> {
        self.graceful.then(|| pods::grace(object, options))
    }

    fn selectable(&self) -> &'static [&'static str] {
        self.selectable
    }

    fn status_metadata(&self) -> Meta {
        self.status_metadata
    }

    fn prepare_create(&self, facts: &Facts<'_>, object: &mut Value) {
        let resource = &facts.context.resource;
        match (resource.group.as_ref(), resource.plural.as_ref()) {
            ("", "nodes") => {
                nodes::without_config(object, None);
                nodes::taint(object);
            }
            ("", "pods") => pods::first_status(object, facts.now),
            ("discovery.k8s.io", "endpointslices") => without_topology(object),
            ("", "persistentvolumes") => nodes::phase_time(object, None, facts.now),
            _ => {}
        }
        if let Some(finalizer) = protection(&facts.context.resource) {
            let mut all = metadata::finalizers(object);
            if !all.contains(&finalizer) {
                all.push(finalizer);
                let all: Vec<String> = all.into_iter().map(str::to_owned).collect();
                put(object, &["metadata", "finalizers"], Some(json!(all)));
            }
        }
    }

    fn prepare_update(&self, facts: &Facts<'_>, object: &mut Value, old: &Value) {
        let resource = &facts.context.resource;
        let status = facts.context.subresource == "status";
        match (resource.group.as_ref(), resource.plural.as_ref()) {
            ("", "persistentvolumes") if status => {
                nodes::phase_time(object, Some(old), facts.now);
            }
            ("", "nodes") => nodes::without_config(object, Some(old)),
            ("discovery.k8s.io", "endpointslices") => without_topology(object),
            _ => {}
        }
    }

    fn field(&self, object: &Value, field: &str) -> String {
        super::workloads::field(object, field)
    }
}
