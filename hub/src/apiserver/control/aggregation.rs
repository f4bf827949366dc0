//! ClusterRoles that gather the rules of others.

use super::follow::{Follow, News};
use super::{context, warn};
use crate::apiserver::registry::{LabelSelector, PatchKind, Registry};
use bytes::Bytes;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const KIND: &str = "rbac.authorization.k8s.io/clusterroles";
const MANAGER: &str = "clusterrole-aggregation-controller";

pub(super) async fn run(registry: Registry) {
    let mut roles: BTreeMap<String, Value> = BTreeMap::new();
    let mut follow = Follow::new(&registry, KIND);
    while let Some(news) = follow.next().await {
        match news {
            News::Anything(all) => {
                roles = all
                    .iter()
                    .map(|stored| (stored.name().to_owned(), stored.value()))
                    .collect();
            }
            News::One(event) => {
                let name = event.object.name().to_owned();
                if event.kind == crate::apiserver::store::Kind::Deleted {
                    roles.remove(&name);
                } else {
                    roles.insert(name, event.object.value());
                }
            }
        }
        for (name, rules) in decide(&roles) {
            set(&registry, &name, rules).await;
        }
    }
}

/// The rules that roles should have and do not.
fn decide(roles: &BTreeMap<String, Value>) -> Vec<(String, Vec<Value>)> {
    let aggregating = roles
        .iter()
        .filter(|(_, role)| role["aggregationRule"].is_object());
    aggregating
        .filter_map(|(name, role)| {
            let selectors = role["aggregationRule"]["clusterRoleSelectors"].as_array();
            let mut rules: Vec<Value> = Vec::new();
            for selector in selectors.into_iter().flatten() {
                let Ok(selector) = LabelSelector::of_object(selector) else {
                    continue;
                };
                let others = roles.iter().filter(|(other, _)| *other != name);
                for (_, other) in others {
                    let labels = &other["metadata"]["labels"];
                    if !selector.matches(|key| labels[key].as_str()) {
                        continue;
                    }
                    for rule in other["rules"].as_array().into_iter().flatten() {
                        if !rules.contains(rule) {
                            rules.push(rule.clone());
                        }
                    }
                }
            }
            let has = role["rules"]
                .as_array()
                .map(Vec::as_slice)
                .unwrap_or_default();
            (has != rules.as_slice()).then(|| (name.clone(), rules))
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
        let role = |name: &str, label: &str, rules: Value| {
            let value =
                json!({"metadata": {"name": name, "labels": {"to": label}}, "rules": rules});
            (name.to_owned(), value)
        };
        let mut roles = BTreeMap::from([
            role("a", "view", json!([rule("get")])),
            role("b", "view", json!([rule("get"), rule("list")])),
            role("c", "edit", json!([rule("create")])),
        ]);
        let mut all = role("all", "view", json!(null)).1;
        all["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {"to": "view"}}]});
        roles.insert("all".to_owned(), all);
        let expected = vec![rule("get"), rule("list")];
        assert_eq!(decide(&roles), [("all".to_owned(), expected.clone())]);
        if let Some(all) = roles.get_mut("all") {
            all["rules"] = json!(expected);
        }
        assert_eq!(decide(&roles), []);
    }
}
