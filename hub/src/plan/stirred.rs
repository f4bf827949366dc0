//! Whose Works are written anew though their bindings stay as they are: those of which something else changed that they
//! are made of. It is what the binding controller is woken by. Pure.

use super::copies::Copy;
use super::state::State;
use crate::controller::binding::facts::Facts;
use crate::propagation::{PolicyName, group};
use crate::world::TemplateName;
use common::api::override_policy::OverrideSpec;
use common::api::policy::ResourceSelector;
use common::gvk::GroupKind;
use std::collections::{BTreeMap, BTreeSet};

/// What is otherwise than it was.
pub(super) struct Stirred<'a> {
    /// What overrides said, and what they say.
    overrides: Vec<(&'a PolicyName, &'a OverrideSpec)>,
    /// Clusters that are others to overrides.
    clusters: BTreeSet<&'a str>,
    /// Whether clusters are, or came, or went.
    any_cluster: bool,
    /// Kinds of which something else is known.
    kinds: BTreeSet<GroupKind>,
}

impl<'a> Stirred<'a> {
    pub(super) fn of(before: &'a State, after: &'a State) -> Self {
        let mut stirred = Self {
            overrides: Vec::new(),
            clusters: BTreeSet::new(),
            any_cluster: false,
            kinds: BTreeSet::new(),
        };
        for name in both(&before.overrides, &after.overrides) {
            let of = |state: &'a State| state.overrides.get(name);
            let (old, new) = (of(before), of(after));
            if old.map(|it| (&it.spec, &it.problem)) != new.map(|it| (&it.spec, &it.problem)) {
                let specs = old.into_iter().chain(new).map(|it| (name, &it.spec));
                stirred.overrides.extend(specs);
            }
        }
        for name in both(&before.clusters, &after.clusters) {
            let facts = |state: &State| {
                let placing = state.clusters.get(name)?.record.placing.as_deref();
                placing.map(Facts::of)
            };
            let (old, new) = (facts(before), facts(after));
            if old != new {
                stirred.any_cluster = true;
                let stays = old.is_some() && new.is_some();
                stirred.clusters.extend(stays.then_some(name.as_str()));
            }
        }
        for name in both(&before.customizations, &after.customizations) {
            let of = |state: &'a State| state.customizations.get(name);
            let (old, new) = (of(before), of(after));
            if old.map(|it| &it.spec) != new.map(|it| &it.spec) {
                let kinds = old.into_iter().chain(new).filter_map(|it| it.kind());
                stirred.kinds.extend(kinds.map(|it| it.group_kind()));
            }
        }
        stirred
    }

    /// Whether the copies of a template are made anew; `was` are those that there were.
    pub(super) fn wakes(&self, name: &TemplateName, was: &BTreeMap<String, Copy>) -> bool {
        let has_it = |(cluster, copy): (&String, &Copy)| {
            !copy.leaving && self.clusters.contains(cluster.as_str())
        };
        // Of what could not be made it is tried whichever cluster changes.
        let is_stuck = |copy: &Copy| matches!(copy.manifest, Some(Err(_)));
        let mut overrides = self.overrides.iter();
        self.kinds.contains(&name.kind)
            || was.iter().any(has_it)
            || self.any_cluster && was.values().any(is_stuck)
            || overrides.any(|(policy, spec)| concerns(policy, spec, name))
    }
}

/// The names in either of two, each once.
fn both<'m, K: Ord, V>(one: &'m BTreeMap<K, V>, other: &'m BTreeMap<K, V>) -> BTreeSet<&'m K> {
    one.keys().chain(other.keys()).collect()
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
    use super::super::state::Change;
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

    /// Whether a change has the copies of a Deployment written anew that is in m1, and fails there or does not.
    fn wakes(change: &Change, fails: bool) -> bool {
        let before = State::of(&hub(&[apply(image("m1", "1"))]));
        let mut after = before.clone();
        after.change(change, now(), false).expect("sound");
        let manifest = match fails {
            true => Err("why".to_owned()),
            false => Ok(Value::Null),
        };
        let copy = Copy {
            manifest: Some(manifest),
            ..Copy::default()
        };
        let was = BTreeMap::from([("m1".to_owned(), copy)]);
        Stirred::of(&before, &after).wakes(&web(), &was)
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
            let found = (wakes(&change, false), wakes(&change, true));
            assert_eq!(found, (written, tried), "{change:?}");
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
