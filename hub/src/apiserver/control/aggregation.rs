//! ClusterRoles that gather the rules of others.

use super::follow::{Follow, News};
use super::{context, warn};
use crate::apiserver::registry::{LabelSelector, PatchKind, Registry};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const KIND: &str = "rbac.authorization.k8s.io/clusterroles";
const MANAGER: &str = "clusterrole-aggregation-controller";

/// As much of a role as is looked at: there may be many, and most gather nothing.
#[derive(Debug, Default, Deserialize)]
struct Role {
    #[serde(default)]
    metadata: Labelled,
    #[serde(default, rename = "aggregationRule")]
    aggregation: Option<Value>,
    #[serde(default)]
    rules: Option<Box<RawValue>>,
}

#[derive(Debug, Default, Deserialize)]
struct Labelled {
    #[serde(default)]
    labels: Option<BTreeMap<String, String>>,
}

impl Role {
    /// One that cannot be read has nothing.
    fn read(json: &[u8]) -> Self {
        serde_json::from_slice(json).unwrap_or_default()
    }

    fn label(&self, key: &str) -> Option<&str> {
        let labels = self.metadata.labels.as_ref()?;
        labels.get(key).map(String::as_str)
    }

    fn rules(&self) -> Vec<Value> {
        let rules = self.rules.as_deref().map(RawValue::get);
        rules
            .and_then(|rules| serde_json::from_str(rules).ok())
            .unwrap_or_default()
    }
}

pub(super) async fn run(registry: Registry) {
    let mut roles: BTreeMap<String, Role> = BTreeMap::new();
    let mut follow = Follow::new(&registry, KIND);
    while let Some(news) = follow.next().await {
        match news {
            News::Anything(all) => {
                roles = all
                    .iter()
                    .map(|stored| (stored.name().to_owned(), Role::read(stored.json())))
                    .collect();
            }
            News::One(event) => {
                let name = event.object.name().to_owned();
                if event.kind == crate::apiserver::store::Kind::Deleted {
                    roles.remove(&name);
                } else {
                    roles.insert(name, Role::read(event.object.json()));
                }
            }
        }
        for (name, rules) in decide(&roles) {
            set(&registry, &name, rules).await;
        }
    }
}

/// The rules that roles should have and do not.
fn decide(roles: &BTreeMap<String, Role>) -> Vec<(String, Vec<Value>)> {
    let aggregating = roles
        .iter()
        .filter_map(|(name, role)| Some((name, role, role.aggregation.as_ref()?)));
    aggregating
        .filter(|(.., aggregation)| aggregation.is_object())
        .filter_map(|(name, role, aggregation)| {
            let selectors = aggregation["clusterRoleSelectors"].as_array();
            let mut rules: Vec<Value> = Vec::new();
            for selector in selectors.into_iter().flatten() {
                let Ok(selector) = LabelSelector::of_object(selector) else {
                    continue;
                };
                let others = roles.iter().filter(|(other, _)| *other != name);
                for (_, other) in others {
                    if !selector.matches(|key| other.label(key)) {
                        continue;
                    }
                    for rule in other.rules() {
                        if !rules.contains(&rule) {
                            rules.push(rule);
                        }
                    }
                }
            }
            (role.rules() != rules).then(|| (name.clone(), rules))
        })
        .collect()
}

async fn set(registry: &Registry, name: &str, rules: Vec<Value>) {
    let kinds = registry.catalogue();
    let Some(resource) = kinds.resource("rbac.authorization.k8s.io", "v1", "clusterroles") else {
        return;
    };
    let context = context(resource, "", name, MANAGER);
    let apply = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": rules,
    });
    let bytes = Bytes::from(apply.to_string());
    let applied = registry
        .patch(&context, PatchKind::Apply, bytes, Some(true))
        .await;
    if let Err(error) = applied {
        warn("aggregation of a ClusterRole", &error);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_gathered_once() {
        let rule = |verb: &str| json!({"verbs": [verb], "apiGroups": [""], "resources": ["a"]});
        let role = |name: &str, label: &str, more: Value| {
            let mut value = json!({"metadata": {"name": name, "labels": {"to": label}}});
            let more = more.as_object().expect("an object").clone();
            value.as_object_mut().expect("an object").extend(more);
            (name.to_owned(), Role::read(value.to_string().as_bytes()))
        };
        let selectors = json!({"clusterRoleSelectors": [{"matchLabels": {"to": "view"}}]});
        let all = |rules: Value| {
            let more = json!({"aggregationRule": selectors, "rules": rules});
            role("all", "view", more)
        };
        let mut roles = BTreeMap::from([
            role("a", "view", json!({"rules": [rule("get")]})),
            role("b", "view", json!({"rules": [rule("get"), rule("list")]})),
            role("c", "edit", json!({"rules": [rule("create")]})),
            all(json!(null)),
        ]);
        let expected = vec![rule("get"), rule("list")];
        assert_eq!(decide(&roles), [("all".to_owned(), expected.clone())]);
        roles.extend([all(json!(expected))]);
        assert_eq!(decide(&roles), []);
    }
}
