//! ClusterRoles that gather the rules of others.

use super::follow::{News, follow};
use super::{Failed, context};
use crate::apiserver::error::ApiError;
use crate::apiserver::registry::Registry;
use crate::apiserver::request::{LabelSelector, PatchKind};
use crate::apiserver::store::{Kind, Scope};
use bytes::Bytes;
use common::controller::{Controller, Reconcile, Requeue};
use common::queue::Queue;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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

    /// Of which roles it gathers the rules, if it gathers any.
    fn selectors(&self) -> Option<Vec<LabelSelector>> {
        let aggregation = self.aggregation.as_ref().filter(|it| it.is_object())?;
        let selectors = aggregation["clusterRoleSelectors"].as_array();
        let read = selectors
            .into_iter()
            .flatten()
            .map(LabelSelector::of_object);
        Some(read.filter_map(Result::ok).collect())
    }

    fn rules(&self) -> Vec<Value> {
        let rules = self.rules.as_deref().map(RawValue::get);
        rules
            .and_then(|rules| serde_json::from_str(rules).ok())
            .unwrap_or_default()
    }
}

type Roles = BTreeMap<String, Role>;

/// Gathers rules; its keys are names of the roles that gather them.
pub(super) struct Aggregation {
    registry: Registry,
    roles: Mutex<Roles>,
}

pub(super) fn controller(registry: &Registry) -> Controller<Arc<Aggregation>> {
    let aggregation = Arc::new(Aggregation {
        registry: registry.clone(),
        roles: Mutex::default(),
    });
    let heard = Arc::clone(&aggregation);
    Controller::new(aggregation).source(move |queue| source(Arc::clone(&heard), queue))
}

async fn source(aggregation: Arc<Aggregation>, queue: Queue<Arc<str>>) {
    let registry = aggregation.registry.clone();
    follow(&registry, KIND, Scope::All, |news| {
        let mut roles = aggregation.roles();
        match news {
            News::Anything(all) => {
                let read = all.iter();
                *roles = read
                    .map(|stored| (stored.name().to_owned(), Role::read(&stored.json())))
                    .collect();
                gathering(&roles, |_, _| true).for_each(|name| queue.add(name.into()));
            }
            News::One(event) => {
                let name = event.object.name();
                let now = Role::read(&event.object.json());
                let before = roles.remove(name);
                let concerned = |one: &str, selectors: &[LabelSelector]| {
                    let picks = |role: &Role| {
                        let mut all = selectors.iter();
                        all.any(|selector| selector.matches(|key| role.label(key)))
                    };
                    one == name || picks(&now) || before.as_ref().is_some_and(picks)
                };
                gathering(&roles, concerned).for_each(|name| queue.add(name.into()));
                if event.kind != Kind::Deleted {
                    if now.aggregation.is_some() {
                        queue.add(name.into());
                    }
                    roles.insert(name.to_owned(), now);
                }
            }
        }
    })
    .await;
}

/// Names of the roles that gather rules, as far as `concerned` by their name and by what they gather.
fn gathering<'a>(
    roles: &'a Roles,
    concerned: impl Fn(&str, &[LabelSelector]) -> bool + 'a,
) -> impl Iterator<Item = &'a str> {
    roles.iter().filter_map(move |(name, role)| {
        let selectors = role.selectors()?;
        concerned(name, &selectors).then_some(name.as_str())
    })
}

impl Aggregation {
    fn roles(&self) -> MutexGuard<'_, Roles> {
        self.roles.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reconcile for Aggregation {
    const NAME: &'static str = "clusterrole-aggregation-controller";
    type Key = Arc<str>;
    type Error = Failed;

    async fn reconcile(&self, name: &Arc<str>) -> Result<Requeue, Failed> {
        let wanted = decide(&self.roles(), name);
        if let Some(rules) = wanted {
            let set = set(&self.registry, name, rules).await;
            set.map_err(Failed::to("aggregate a ClusterRole"))?;
        }
        Ok(Requeue::Never)
    }
}

/// The rules that a role should have, if it does not.
fn decide(roles: &Roles, name: &str) -> Option<Vec<Value>> {
    let role = roles.get(name)?;
    let mut rules: Vec<Value> = Vec::new();
    for selector in role.selectors()? {
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
    (role.rules() != rules).then_some(rules)
}

async fn set(registry: &Registry, name: &str, rules: Vec<Value>) -> Result<(), ApiError> {
    let kinds = registry.scheme();
    let Some(resource) = kinds.resource("rbac.authorization.k8s.io", "v1", "clusterroles") else {
        return Err(ApiError::internal("no ClusterRoles"));
    };
    let context = context(resource, "", name, MANAGER);
    let apply = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": rules,
    });
    let bytes = Bytes::from(apply.to_string());
    let applied = registry.patch(&context, PatchKind::Apply, bytes, Some(true));
    applied.await.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::control::testing::start;
    use crate::apiserver::registry::testing::{Refusing, Rig};

    #[tokio::test]
    async fn rules_that_could_not_be_written_are_written_later() {
        let rig = Rig::over(Refusing::updates("clusterroles", 2)).await;
        let task = start(&rig, controller(&rig.registry));
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
        assert_eq!(decide(&roles, "all"), Some(expected.clone()));
        assert_eq!(decide(&roles, "a"), None, "it gathers nothing");
        roles.extend([all(json!(expected))]);
        assert_eq!(decide(&roles, "all"), None);
    }
}
