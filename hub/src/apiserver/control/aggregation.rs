//! ClusterRoles that gather the rules of others.

use super::again::Again;
use super::follow::{Follow, News};
use super::{context, warn};
use crate::apiserver::registry::Registry;
use crate::apiserver::request::{LabelSelector, PatchKind};
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
    let mut again = Again::usual(registry.chance());
    loop {
        let news = tokio::select! {
            biased;
            // Due once, and then not before it is worked on.
            () = again.due() => None,
            news = follow.next() => match news {
                None => return,
                news => news,
            },
        };
        match news {
            None => {}
            Some(News::Anything(all)) => {
                roles = all
                    .iter()
                    .map(|stored| (stored.name().to_owned(), Role::read(stored.json())))
                    .collect();
            }
            Some(News::One(event)) => {
                let name = event.object.name().to_owned();
                if event.kind == crate::apiserver::store::Kind::Deleted {
                    roles.remove(&name);
                } else {
                    roles.insert(name, Role::read(event.object.json()));
                }
            }
        }
        let mut failed = false;
        for (name, rules) in decide(&roles) {
            failed |= !set(&registry, &name, rules).await;
        }
        again.ended(failed);
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

/// Whether the role has its rules, or somebody else changed it just now.
async fn set(registry: &Registry, name: &str, rules: Vec<Value>) -> bool {
    let kinds = registry.scheme();
    let Some(resource) = kinds.resource("rbac.authorization.k8s.io", "v1", "clusterroles") else {
        return false;
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
    match applied {
        Ok(_) => true,
        Err(error) => !warn("aggregation of a ClusterRole", &error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::registry::testing::{Refusing, Rig};

    #[tokio::test]
    async fn rules_that_could_not_be_written_are_written_later() {
        let rig = Rig::over(Refusing::updates("clusterroles", 2)).await;
        let task = tokio::spawn(run(rig.registry.clone()));
        let roles = "rbac.authorization.k8s.io/v1/clusterroles";
        let part = json!({"metadata": {"name": "part", "labels": {"to": "all"}},
            "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]});
        rig.create(roles, part).await;
        let all = json!({"metadata": {"name": "all"}, "aggregationRule":
            {"clusterRoleSelectors": [{"matchLabels": {"to": "all"}}]}});
        rig.create(roles, all).await;
        let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(20);
        loop {
            let all = rig.get(&format!("{roles}/all")).await.expect("there");
            if all["rules"][0]["verbs"] == json!(["get"]) {
                break;
            }
            assert!(tokio::time::Instant::now() < deadline, "{all}");
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        task.abort();
    }

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
