//! Carries out what people do, as they would: by the hub's API, on what is there.

use super::super::rig::{CLUSTERS, ask};
use super::books::{Key, essence_of, is_by_hand, text};
use super::image::node;
use super::plan::{Act, Affinity, Divides, Policy, Selects, TAINTS};
use super::stage::Stage;
use super::{get, intruders, works};
use crate::apiserver::http::Link;
use common::labels::{TAINT_NOT_READY, TAINT_UNREACHABLE, UNREGISTER};
use common::unregister::Mode;
use serde_json::{Value, json};

/// How often something is tried that others write at the same time.
const TRIES: u32 = 5;

/// Does it, as far as it can be done. Says whether that is all; what the hub cannot do now is tried again later.
pub(super) async fn carry_out(stage: &mut Stage, act: &Act) -> bool {
    let Some(hub) = stage.link() else {
        return false;
    };
    let hub = &hub;
    match act {
        Act::Deploy(space, name, replicas, version, label) => {
            put(hub, &deployments(space), name, |old| match old {
                Some(_) => None,
                None => Some(deployment(name, *replicas, *version, label)),
            })
            .await
        }
        Act::Scale(space, name, replicas) => {
            change(hub, &deployments(space), name, |it| {
                it["spec"]["replicas"] = json!(replicas);
            })
            .await
        }
        Act::Roll(space, name, version) => {
            change(hub, &deployments(space), name, |it| {
                it["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image(*version));
            })
            .await
        }
        Act::Relabel(space, name, label) => {
            change(hub, &deployments(space), name, |it| {
                it["metadata"]["labels"]["look"] = json!(label);
            })
            .await
        }
        Act::Undeploy(space, name) => delete(hub, &deployments(space), name).await,
        Act::Configure(space, content) => {
            let body = json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "settings"}, "data": {"rev": content.to_string()}});
            put(hub, &maps(space), "settings", |old| {
                let mut new = old.cloned().unwrap_or_else(|| body.clone());
                new["data"] = body["data"].clone();
                Some(new)
            })
            .await
        }
        Act::Unconfigure(space) => delete(hub, &maps(space), "settings").await,
        Act::Policy(policy) => {
            let collection = policies(policy.namespace.as_deref());
            put(hub, &collection, &policy.name, |old| {
                let kind = match policy.namespace {
                    Some(_) => "PropagationPolicy",
                    None => "ClusterPropagationPolicy",
                };
                let new = json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": kind,
                    "metadata": {"name": policy.name}});
                let mut new = old.cloned().unwrap_or(new);
                new["spec"] = spec(policy);
                Some(new)
            })
            .await
        }
        Act::Unpolicy(space, name) => delete(hub, &policies(space.as_deref()), name).await,
        Act::Override(space, member, version) => put(hub, &overrides(space), "image", |old| {
            let new = json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "OverridePolicy",
                    "metadata": {"name": "image"}});
            let mut new = old.cloned().unwrap_or(new);
            let tag =
                json!([{"component": "Tag", "operator": "replace", "value": version.to_string()}]);
            new["spec"] = json!({
                    "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}],
                    "overrideRules": [{"targetCluster": {"clusterNames": [format!("m{member}")]},
                        "overriders": {"imageOverrider": tag}}]});
            Some(new)
        })
        .await,
        Act::Unoverride(space) => delete(hub, &overrides(space), "image").await,
        Act::Taint(member, keys) => taint(hub, *member, "NoSchedule", keys).await,
        Act::Evict(member, keys) => taint(hub, *member, "NoExecute", keys).await,
        Act::Label(member, tier) => {
            change(hub, CLUSTERS, &format!("m{member}"), |it| {
                it["metadata"]["labels"]["tier"] = json!(tier);
            })
            .await
        }
        Act::Room(member, processors) => {
            let member = stage.members[usize::from(member - 1)].link();
            let status = json!({"status": node(*processors)["status"]});
            ask(&member, "PATCH", "/api/v1/nodes/node/status", status).await;
            true
        }
        Act::Meddle(member, space, name) => {
            let place = &stage.members[usize::from(member - 1)];
            let path = format!("{}/{name}", deployments(space));
            if !get(&place.link(), &path).await.is_null() {
                let key = Key::new("Deployment", space, name);
                stage.ledger.meddles(&place.name, &key);
                ask(&place.link(), "DELETE", &path, Value::Null).await;
            }
            true
        }
        Act::Tamper(member, space, name, replicas) => {
            let place = stage.members[usize::from(member - 1)].link();
            let path = format!("{}/{name}", deployments(space));
            let now = get(&place, &path).await;
            if now.is_null() {
                return true;
            }
            let key = Key::new("Deployment", space, name);
            let made = (*replicas, essence_of(&now).1);
            stage
                .ledger
                .look(|books| books.tampered.insert((format!("m{member}"), key), made));
            let scaled = json!({"spec": {"replicas": replicas}});
            let said = ask(&place, "PATCH", &path, scaled).await;
            assert!([200, 404].contains(&said.status().as_u16()), "{said:?}");
            true
        }
        Act::Hand(hand) => {
            if hand.clears_first && !clear(hub, hand.member, &hand.name).await {
                return false;
            }
            let all = works(&format!("m{}", hand.member));
            let made = put(hub, &all, &hand.name, |old| {
                let new = json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
                    "metadata": {"name": hand.name}});
                let mut new = old.cloned().unwrap_or(new);
                let maps = hand.maps.iter().map(|number| {
                    json!({"apiVersion": "v1", "kind": "ConfigMap",
                    "metadata": {"name": format!("hand-{number}"), "namespace": "default"},
                    "data": {"rev": hand.content.to_string()}})
                });
                new["spec"]["workload"]["manifests"] = maps.collect();
                Some(new)
            });
            made.await && clear(hub, hand.member, &hand.name).await
        }
        Act::Unhand(member) => clear(hub, *member, "").await,
        Act::Forget(member) => {
            stage.forget(*member).await;
            true
        }
        Act::Intrude(number) => {
            let Some(link) = stage.strangers_link() else {
                return false;
            };
            intruders::ask(link, *number).await;
            true
        }
        Act::Leave(member, back) => {
            let path = format!("{CLUSTERS}/m{member}");
            if get(hub, &path).await.is_null() || !stage.stays(*member) {
                return true;
            }
            let mode = Mode::RemoveWorkloads.as_str();
            let how = json!({"metadata": {"annotations": {UNREGISTER: mode}}});
            let said = ask(hub, "PATCH", &path, how).await;
            if said.status().is_server_error() {
                return false;
            }
            assert_eq!(said.status(), 200, "{said:?}");
            let is_done = delete(hub, CLUSTERS, &format!("m{member}")).await;
            if is_done {
                stage.leaves(*member, *back);
            }
            is_done
        }
    }
}

/// Deletes what somebody wrote for a cluster, but what has this name.
async fn clear(hub: &Link, member: u8, but: &str) -> bool {
    let all = works(&format!("m{member}"));
    let there = get(hub, &all).await;
    for work in there["items"].as_array().into_iter().flatten() {
        let name = text(work, "/metadata/name");
        if is_by_hand(name) && name != but && !delete(hub, &all, name).await {
            return false;
        }
    }
    true
}

fn deployments(space: &str) -> String {
    format!("/apis/apps/v1/namespaces/{space}/deployments")
}

fn maps(space: &str) -> String {
    format!("/api/v1/namespaces/{space}/configmaps")
}

fn overrides(space: &str) -> String {
    format!("/apis/policy.karmada.io/v1alpha1/namespaces/{space}/overridepolicies")
}

fn policies(space: Option<&str>) -> String {
    match space {
        Some(space) => {
            format!("/apis/policy.karmada.io/v1alpha1/namespaces/{space}/propagationpolicies")
        }
        None => "/apis/policy.karmada.io/v1alpha1/clusterpropagationpolicies".to_owned(),
    }
}

/// Makes or changes an object to what `wanted` makes of what is there.
async fn put(
    hub: &Link,
    collection: &str,
    name: &str,
    wanted: impl Fn(Option<&Value>) -> Option<Value>,
) -> bool {
    for _ in 0..TRIES {
        let path = format!("{collection}/{name}");
        let old = get(hub, &path).await;
        let there = (!old.is_null()).then_some(&old);
        let Some(new) = wanted(there) else {
            return true;
        };
        let answer = match there {
            Some(_) => ask(hub, "PUT", &path, new).await,
            None => ask(hub, "POST", collection, new).await,
        };
        match answer.status().as_u16() {
            200 | 201 => return true,
            500.. => return false,
            // Somebody else wrote it, or it is just being deleted, or is gone since.
            409 | 404 => {}
            // The namespace goes with its cluster.
            403 if path.contains("/karmada-es-") => return true,
            _ => panic!("{path}: {answer:?}"),
        }
    }
    true
}

/// Changes an object, if it is there.
async fn change(hub: &Link, collection: &str, name: &str, change: impl Fn(&mut Value)) -> bool {
    put(hub, collection, name, |old| {
        let mut new = old?.clone();
        change(&mut new);
        Some(new)
    })
    .await
}

/// Gives a cluster these taints of an effect, in the place of all that somebody gave it.
async fn taint(hub: &Link, member: u8, effect: &str, keys: &[String]) -> bool {
    let ours = |it: &Value| {
        let key = it["key"].as_str().unwrap_or_default();
        it["effect"] == effect && TAINTS.contains(&key)
    };
    change(hub, CLUSTERS, &format!("m{member}"), |it| {
        let taints = it["spec"]["taints"].as_array().cloned().unwrap_or_default();
        let (mine, mut all): (Vec<_>, Vec<_>) = taints.into_iter().partition(ours);
        for key in keys {
            let old = mine.iter().find(|it| it["key"] == key.as_str());
            let new = || json!({"key": key, "effect": effect});
            all.push(old.cloned().unwrap_or_else(new));
        }
        it["spec"]["taints"] = json!(all);
    })
    .await
}

async fn delete(hub: &Link, collection: &str, name: &str) -> bool {
    let answer = ask(hub, "DELETE", &format!("{collection}/{name}"), Value::Null).await;
    let status = answer.status().as_u16();
    assert!(
        [200, 202, 404].contains(&status) || status >= 500,
        "{name}: {answer:?}"
    );
    status < 500
}

fn image(version: u8) -> String {
    format!("registry.example/web:{version}")
}

fn deployment(name: &str, replicas: i64, version: u8, label: &str) -> Value {
    let labels = json!({"app": name});
    // Who is called web refers to the settings of its namespace.
    let from = match name {
        "web" => json!([{"configMapRef": {"name": "settings"}}]),
        _ => json!([]),
    };
    let container = json!({"name": "main", "image": image(version), "envFrom": from,
        "resources": {"requests": {"cpu": "500m"}}});
    json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "labels": {"look": label}},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}}}})
}

fn spec(policy: &Policy) -> Value {
    let kinds = [("apps/v1", "Deployment"), ("v1", "ConfigMap")];
    let kinds = kinds.iter().take(if policy.maps { 2 } else { 1 });
    let selectors = kinds.map(|(version, kind)| {
        let mut one = json!({"apiVersion": version, "kind": kind});
        match &policy.selects {
            Selects::All if *kind == "Deployment" => {}
            Selects::Name(name) if *kind == "Deployment" => one["name"] = json!(name),
            // Every namespace has one more, which each cluster makes for itself.
            Selects::All | Selects::Name(_) => one["name"] = json!("settings"),
            Selects::Label(look) => one["labelSelector"] = json!({"matchLabels": {"look": look}}),
        }
        one
    });
    let selectors: Vec<Value> = selectors.collect();
    let mut placement = json!({});
    let names = |all: &[u8]| -> Vec<String> { all.iter().map(|it| format!("m{it}")).collect() };
    match &policy.affinity {
        Affinity::Any => {}
        Affinity::Names(all) => placement["clusterAffinity"] = json!({"clusterNames": names(all)}),
        Affinity::Tier(tier) => {
            placement["clusterAffinity"] =
                json!({"labelSelector": {"matchLabels": {"tier": tier}}});
        }
        Affinity::Without(member) => {
            placement["clusterAffinity"] = json!({"exclude": names(&[*member])});
        }
    }
    let divided = |preference: &str, weights: Value| {
        let mut how =
            json!({"replicaSchedulingType": "Divided", "replicaDivisionPreference": preference});
        if !weights.is_null() {
            how["weightPreference"] = weights;
        }
        how
    };
    let how = match &policy.divides {
        Divides::Unsaid => Value::Null,
        Divides::Whole => json!({"replicaSchedulingType": "Duplicated"}),
        Divides::Static(weights) => {
            let one = |(member, weight): &(u8, i64)| json!({"targetCluster": {"clusterNames": names(&[*member])}, "weight": weight});
            let list: Vec<Value> = weights.iter().map(one).collect();
            divided("Weighted", json!({"staticWeightList": list}))
        }
        Divides::Dynamic => divided("Weighted", json!({"dynamicWeight": "AvailableReplicas"})),
        Divides::Aggregated => divided("Aggregated", Value::Null),
    };
    if !how.is_null() {
        placement["replicaScheduling"] = how;
    }
    if let Some((by_region, least, most)) = policy.spread {
        let field = if by_region { "region" } else { "cluster" };
        let mut all = vec![json!({"spreadByField": field, "minGroups": least, "maxGroups": most})];
        if by_region {
            all.push(json!({"spreadByField": "cluster", "minGroups": 1, "maxGroups": 3}));
        }
        placement["spreadConstraints"] = json!(all);
    }
    let mut tolerations = Vec::new();
    if policy.tolerates {
        tolerations.push(json!({"key": "spare", "operator": "Exists"}));
    }
    for key in ["broken", TAINT_UNREACHABLE, TAINT_NOT_READY] {
        if let Some(seconds) = policy.endures {
            tolerations.push(
                json!({"key": key, "operator": "Exists", "effect": "NoExecute",
                "tolerationSeconds": seconds}),
            );
        }
    }
    if !tolerations.is_empty() {
        placement["clusterTolerations"] = json!(tolerations);
    }
    let mut spec = json!({"resourceSelectors": selectors, "priority": policy.priority,
        "propagateDeps": policy.deps, "placement": placement});
    if policy.directly {
        spec["failover"] = json!({"cluster": {"purgeMode": "Directly"}});
    }
    spec
}
