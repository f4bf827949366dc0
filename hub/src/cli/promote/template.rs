//! A template out of an object that a member has, and its policy. Pure.

use crate::cli::apply::Wanted;
use common::interpreter::guard::is_of_the_system;
use common::interpreter::prune::prune;
use common::labels::{CONFLICT_RESOLUTION, MANAGED, MANAGED_VALUE, WORK_NAME, WORK_NAMESPACE};
use common::mapper::Resource;
use common::names::{ClusterName, binding_name};
use serde_json::{Value, json};

/// Why an object of a member becomes no template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unfit {
    /// A controller makes it anew.
    #[error("{shown} belongs to {owner}, which makes it as it needs it")]
    Owned {
        /// Kind and name.
        shown: String,
        /// Kind and name of its controller.
        owner: String,
    },
    /// A Work keeps it.
    #[error("{shown} is kept by Work {work} already")]
    Kept {
        /// Kind and name.
        shown: String,
        /// The Work, as its marks say.
        work: String,
    },
    /// It is going.
    #[error("{0} is being deleted in the member")]
    Leaving(String),
    /// A token of an account of the member.
    #[error("{0} holds a token of an account of the member, which means nothing elsewhere")]
    Token(String),
    /// It is none.
    #[error("what the member answers is no object")]
    NoObject,
    /// A policy selects nothing of its kind.
    #[error(
        "{0} goes to no member by a policy: it is the hub's own, or a Namespace, which goes where what lies in it goes"
    )]
    Unpropagated(String),
}

impl Unfit {
    /// What to do about it.
    pub(super) fn hint(&self) -> &'static str {
        match self {
            Self::Owned { .. } => "Promote its owner instead.",
            Self::Kept { .. } => "`towline get TYPE/NAME` says by which template of the hub.",
            Self::Leaving(_) => "Wait until it is gone; nothing of it is left to be kept.",
            Self::Token(_) => "Promote the account; each member makes its own tokens.",
            Self::NoObject => "`towline check NAME` walks to the member.",
            Self::Unpropagated(_) => "`kubectl create` puts it on the hub.",
        }
    }
}

/// What becomes the template: the object without what its member decided, and without marks of Works that left it.
pub(super) fn of(live: &Value, resource: &Resource) -> Result<Value, Unfit> {
    let metadata = &live["metadata"];
    let texts = |part: &str| metadata[part].is_null() || metadata[part].is_object();
    if !metadata.is_object() || !texts("labels") || !texts("annotations") {
        return Err(Unfit::NoObject);
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let shown = format!("{} {}", resource.gvk.kind, text(&metadata["name"]));
    let owners = metadata["ownerReferences"].as_array();
    let owner = owners
        .into_iter()
        .flatten()
        .find(|it| it["controller"] == true);
    if let Some(owner) = owner {
        let owner = format!("{} {}", text(&owner["kind"]), text(&owner["name"]));
        return Err(Unfit::Owned { shown, owner });
    }
    if metadata["labels"][MANAGED] == MANAGED_VALUE {
        let marks = &metadata["annotations"];
        let work = format!(
            "{}/{}",
            text(&marks[WORK_NAMESPACE]),
            text(&marks[WORK_NAME])
        );
        return Err(Unfit::Kept { shown, work });
    }
    if metadata["deletionTimestamp"].is_string() {
        return Err(Unfit::Leaving(shown));
    }
    if resource.qualified() == "secrets" && live["type"] == "kubernetes.io/service-account-token" {
        return Err(Unfit::Token(shown));
    }
    let mut template = live.clone();
    prune(&resource.gvk, &mut template);
    for part in ["labels", "annotations"] {
        let texts = template.pointer_mut(&format!("/metadata/{part}"));
        if let Some(texts) = texts.and_then(Value::as_object_mut) {
            texts.retain(|key, _| !is_of_the_system(key));
        }
    }
    Ok(template)
}

/// The policy that keeps a template in the member that has it, alone: it takes over what is there, and leaves it when
/// it goes.
pub(super) fn policy(
    template: &Value,
    resource: &Resource,
    cluster: &ClusterName,
    name: Option<&str>,
) -> Result<Value, Unfit> {
    let text = template["metadata"]["name"].as_str().unwrap_or_default();
    let kind = &resource.gvk.kind;
    let mut wanted = Wanted::new(std::slice::from_ref(cluster), false);
    wanted.take(template, resource.namespaced);
    let name = name.map_or_else(|| binding_name(kind, text), str::to_owned);
    let policy = wanted.policies(Some(&name)).into_iter().next();
    let mut policy = policy.ok_or_else(|| Unfit::Unpropagated(format!("{kind} {text}")))?;
    let spec = &mut policy["spec"];
    spec["conflictResolution"] = json!("Overwrite");
    spec["preserveResourcesOnDeletion"] = json!(true);
    // What it refers to is in the member as it is; only what is promoted is the hub's.
    spec["propagateDeps"] = json!(false);
    Ok(policy)
}

/// A template whose Work takes over what it finds, whatever the policy says that comes to hold it.
pub(super) fn taking_over(mut template: Value) -> Value {
    template["metadata"]["annotations"][CONFLICT_RESOLUTION] = json!("overwrite");
    template
}

/// Whether a kind is one of policies.
pub(super) fn is_policy(kind: &str) -> bool {
    kind.ends_with("PropagationPolicy")
}
