mod content;
mod dependents;
mod holders;
mod keep;
mod order;
mod properties;
mod rules;
mod shell;
mod skipped;

use super::wake::Edit;
use super::{Decision, Observed, Write, decide};
use crate::propagation::{Dependent, Policy, PolicyName, Template};
use common::api::binding::TargetCluster;
use common::interpreter::replicas::Replicas;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Deployment `default/nginx`.
fn nginx() -> Template {
    Template::of(
        &json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": "default",
        "name": "nginx", "uid": "uid-1", "resourceVersion": "1", "labels": {"app": "web"}}}),
    )
    .expect("a template")
}

/// A PropagationPolicy of namespace `default`; `with` is merged into its spec.
fn policy(name: &str, selector: Value, with: Value) -> Policy {
    named(Some("default"), name, selector, with)
}

/// A ClusterPropagationPolicy.
fn cluster_policy(name: &str, selector: Value, with: Value) -> Policy {
    named(None, name, selector, with)
}

fn named(namespace: Option<&str>, name: &str, selector: Value, with: Value) -> Policy {
    let mut whole = json!({"apiVersion": "apps/v1", "kind": "Deployment"});
    json_patch::merge(&mut whole, &selector);
    let mut spec = json!({"resourceSelectors": [whole], "placement": {}});
    json_patch::merge(&mut spec, &with);
    Policy {
        name: PolicyName {
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        },
        id: format!("id of {name}"),
        deleting: false,
        spec: serde_json::from_value(spec).expect("a policy"),
    }
}

/// A hub with one template, on which decisions are carried out.
struct Stage(Observed);

impl Stage {
    fn new(policies: impl IntoIterator<Item = Policy>) -> Self {
        Self(Observed {
            template: nginx(),
            edited: Some(Edit::Content),
            policies: policies.into_iter().map(Arc::new).collect(),
            overrides: BTreeSet::new(),
            replicas: Ok(Some(Replicas {
                replicas: 3,
                requirements: None,
            })),
            priority_classes: BTreeMap::new(),
            binding: None,
            dependents: Vec::new(),
            fresh_id: "fresh".into(),
        })
    }

    /// Decides, and carries it out as the shell does, once more where a decision goes on; afterwards nothing is left to
    /// do.
    fn settle(&mut self) -> Decision {
        let mut first = self.carry_out();
        if first.goes_on {
            first = self.carry_out();
        }
        let again = decide(&self.0);
        let writes = (&again.claim, &again.binding);
        assert_eq!(writes, (&None, &None), "{first:?}");
        first
    }

    fn carry_out(&mut self) -> Decision {
        let decision = decide(&self.0);
        let seen = &mut self.0;
        if let Some(patch) = &decision.claim {
            merge(&mut seen.template.labels, &patch.labels);
            merge(&mut seen.template.annotations, &patch.annotations);
            touch(&mut seen.template);
        }
        match &decision.binding {
            Some(Write::Create(binding)) => {
                assert_eq!(seen.binding, None);
                seen.binding = Some((**binding).clone());
            }
            Some(Write::Update(binding)) => {
                let before = seen.binding.replace((**binding).clone());
                let before = before.expect("a binding");
                assert!(binding.patch(&before).expect("encodes").is_some());
            }
            Some(Write::Delete(_) | Write::Replace(_)) => seen.binding = None,
            None => {}
        }
        if !decision.goes_on {
            seen.edited = None;
        }
        decision
    }

    fn add(&mut self, policy: Policy) {
        self.0.policies.push(Arc::new(policy));
    }

    fn change(&mut self, name: &str, change: impl FnOnce(&mut Policy)) {
        let at = self.0.policies.iter().position(|it| it.name.name == name);
        change(Arc::make_mut(&mut self.0.policies[at.expect("there")]));
    }

    fn remove(&mut self, name: &str) {
        self.0.policies.retain(|it| it.name.name != name);
    }

    fn edit(&mut self) {
        self.0.edited = Some(Edit::Content);
        self.0.template.digest += 1;
        touch(&mut self.0.template);
    }

    /// The policy that template and binding agree on.
    fn holder(&self) -> Option<String> {
        let holder = super::wake::holder(&self.0.template);
        if let Some(binding) = &self.0.binding {
            let of_binding = super::claim::holder(&binding.labels, &binding.annotations);
            assert_eq!(holder, of_binding);
        }
        holder.map(|it| it.name)
    }
}

fn merge(texts: &mut BTreeMap<String, String>, patch: &BTreeMap<String, Option<String>>) {
    for (key, value) in patch {
        match value {
            Some(value) => texts.insert(key.clone(), value.clone()),
            None => texts.remove(key),
        };
    }
}

fn touch(template: &mut Template) {
    let version: u64 = template.resource_version.parse().expect("a number");
    template.resource_version = (version + 1).to_string();
}

fn told(decision: &Decision) -> Vec<String> {
    let shown = |it: &crate::propagation::Notice| format!("{} {}", it.reason, it.message);
    decision.events.iter().map(shown).collect()
}

fn dependent(name: &str) -> Dependent {
    Dependent {
        namespace: "default".into(),
        name: name.into(),
        id: format!("id of {name}"),
        clusters: vec![TargetCluster {
            name: "m1".into(),
            ..TargetCluster::default()
        }],
        ..Dependent::default()
    }
}
