//! Whose Works are made anew though their bindings stay as they are: those of which something else changes that they are
//! made of. It is what the binding controller is woken by, beside bindings. Pure.

use super::state::Placed;
use crate::controller::binding::facts::Facts;
use crate::controller::binding::targets::targets;
use crate::propagation::{PolicyName, group};
use crate::world::{Customization, Override, TemplateName};
use common::api::binding::ResourceBindingSpec;
use common::api::override_policy::OverrideSpec;
use common::api::policy::ResourceSelector;
use common::gvk::GroupKind;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What becomes another of what Works are made of.
#[derive(Debug)]
pub(super) enum Stirred {
    /// An override: what it said, and what it says.
    Override(PolicyName, Vec<Arc<Override>>),
    /// A cluster, to overrides; whether it neither comes nor goes.
    Cluster(String, bool),
    /// What is known of kinds.
    Kinds(BTreeSet<GroupKind>),
}

impl Stirred {
    /// By what an override said and says; none where that is the same.
    pub(super) fn by_override(
        name: &PolicyName,
        old: Option<&Arc<Override>>,
        new: Option<&Arc<Override>>,
    ) -> Option<Self> {
        let other = old.map(|it| (&it.spec, &it.problem)) != new.map(|it| (&it.spec, &it.problem));
        other.then(|| {
            let both = old.into_iter().chain(new).map(Arc::clone);
            Self::Override(name.clone(), both.collect())
        })
    }

    /// By what overrides saw of a cluster, and see now; none where that is the same.
    pub(super) fn by_cluster(placed: &Placed) -> Option<Self> {
        let old = placed.before.as_deref().map(Facts::of);
        let new = placed.after.as_deref().map(Facts::of);
        let stays = old.is_some() && new.is_some();
        (old != new).then(|| Self::Cluster(placed.name.clone(), stays))
    }

    /// By what a customization said and says; none where that is the same.
    pub(super) fn by_customization(
        old: Option<&Arc<Customization>>,
        new: Option<&Arc<Customization>>,
    ) -> Option<Self> {
        let other = old.map(|it| &it.spec) != new.map(|it| &it.spec);
        other.then(|| {
            let kinds = old.into_iter().chain(new).filter_map(|it| it.kind());
            Self::Kinds(kinds.map(|it| it.group_kind()).collect())
        })
    }

    /// Whether the Works of a template with such a binding are made anew; `is_stuck` says that one of them could not be
    /// made.
    pub(super) fn wakes(
        &self,
        template: &TemplateName,
        binding: &ResourceBindingSpec,
        is_stuck: bool,
    ) -> bool {
        match self {
            Self::Override(policy, said) => {
                said.iter().any(|it| concerns(policy, &it.spec, template))
            }
            // Of what could not be made it is tried whichever cluster changes.
            Self::Cluster(name, stays) => {
                is_stuck || *stays && targets(binding).iter().any(|it| it.name == *name)
            }
            Self::Kinds(kinds) => kinds.contains(&template.kind),
        }
    }
}

/// Whether an override may be about a template: labels are not asked, for earlier overrides may change them.
fn concerns(policy: &PolicyName, spec: &OverrideSpec, template: &TemplateName) -> bool {
    let (namespace, name) = (&*template.name.namespace, &*template.name.name);
    let fits = |given: &Option<String>, is: &str| {
        let given = given.as_deref().filter(|it| !it.is_empty());
        given.is_none_or(|it| it == is)
    };
    let selects = |it: &ResourceSelector| {
        group(&it.api_version) == template.kind.group
            && it.kind == template.kind.kind
            && fits(&it.namespace, namespace)
            && fits(&it.name, name)
    };
    let selectors = &spec.resource_selectors;
    fits(&policy.namespace, namespace) && (selectors.is_empty() || selectors.iter().any(selects))
}

#[cfg(test)]
mod tests {
    use super::super::state::{Change, State};
    use super::super::tests::{apply, cluster, delete, hub, image, now, tainted};
    use super::*;
    use crate::world::ObjectName;
    use serde_json::{Value, json};

    fn web() -> TemplateName {
        TemplateName {
            kind: GroupKind {
                group: "apps".to_owned(),
                kind: "Deployment".to_owned(),
            },
            name: ObjectName::new(Some("shop"), "web"),
        }
    }

    /// Whether a change has the Works of a Deployment made anew that is in m1; and whether it has, where one of them could
    /// not be made.
    fn wakes(change: &Change) -> (bool, bool) {
        let binding = json!({"resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop",
            "name": "web"}, "clusters": [{"name": "m1"}]});
        let binding = serde_json::from_value(binding).expect("a spec");
        let mut state = State::of(&hub(&[apply(image("m1", "1"))]));
        let stirred = state.change(change, now(), false).expect("sound").stirred;
        let wakes = |is_stuck| {
            let stirred = stirred.as_ref();
            stirred.is_some_and(|it| it.wakes(&web(), &binding, is_stuck))
        };
        (wakes(false), wakes(true))
    }

    #[test]
    fn a_work_is_written_anew_when_something_changes_that_it_is_made_of() {
        let labelled = |name: &str| {
            let mut cluster = cluster(name);
            cluster["metadata"]["labels"] = json!({"tier": "gold"});
            apply(cluster)
        };
        let taint = json!([{"key": "spare", "effect": "NoSchedule"}]);
        let about = |namespace: &str, kind: &str, name: &str| {
            let mut policy = image("m1", "2");
            policy["metadata"]["namespace"] = json!(namespace);
            policy["spec"]["resourceSelectors"] =
                json!([{"apiVersion": "apps/v1beta1", "kind": kind, "name": name}]);
            apply(policy)
        };
        let script = |kind: &str| {
            apply(
                json!({"apiVersion": "config.karmada.io/v1alpha1", "kind": "ResourceInterpreterCustomization",
                "metadata": {"name": "one"}, "spec": {"target": {"apiVersion": "apps/v1", "kind": kind},
                    "customizations": {}}}),
            )
        };
        // What changes, whether it is written anew, and whether one is that could not be made.
        let cases = [
            (labelled("m1"), true, true),
            (labelled("m2"), false, true),
            (labelled("m9"), false, true),
            (delete(&cluster("m2")), false, true),
            (apply(tainted("m1", taint.clone())), false, false),
            (apply(tainted("m2", taint)), false, false),
            (apply(image("m1", "1")), false, false),
            (apply(image("m1", "2")), true, true),
            (delete(&image("m1", "1")), true, true),
            // It was about everything.
            (about("shop", "Deployment", "other"), true, true),
            (about("else", "Deployment", "web"), false, false),
            (script("Deployment"), true, true),
            (script("StatefulSet"), false, false),
        ];
        for (change, written, tried) in cases {
            assert_eq!(wakes(&change), (written, tried), "{change:?}");
        }
    }

    #[test]
    fn an_override_concerns_what_it_selects_whatever_its_labels() {
        let of = |namespace: Option<&str>| PolicyName {
            namespace: namespace.map(str::to_owned),
            name: "image".to_owned(),
        };
        let spec = |selector: Value| -> OverrideSpec {
            let spec = json!({"resourceSelectors": [selector], "overrideRules": []});
            serde_json::from_value(spec).expect("a spec")
        };
        let selector = |more: Value| {
            let mut selector = json!({"apiVersion": "apps/v1", "kind": "Deployment"});
            for (key, value) in more.as_object().expect("an object") {
                selector[key] = value.clone();
            }
            selector
        };
        let labels = json!({"labelSelector": {"matchLabels": {"colour": "red"}}});
        // Of which namespace the override is, what it selects, whether that may be the template.
        let cases = [
            (Some("shop"), selector(json!({})), true),
            (None, selector(json!({})), true),
            (Some("else"), selector(json!({})), false),
            (Some("shop"), selector(labels), true),
            (
                None,
                selector(json!({"name": "web", "namespace": ""})),
                true,
            ),
            (None, selector(json!({"name": "other"})), false),
            (None, selector(json!({"namespace": "else"})), false),
            (None, selector(json!({"apiVersion": "apps/v2"})), true),
            (None, selector(json!({"apiVersion": "x.org/v1"})), false),
            (None, selector(json!({"kind": "Job"})), false),
        ];
        for (namespace, selector, concerned) in cases {
            let found = concerns(&of(namespace), &spec(selector.clone()), &web());
            assert_eq!(found, concerned, "{namespace:?} {selector}");
        }
    }
}
