//! What holds once nothing happens any more: every stage agrees with the one before it.

use super::books::{Books, Key, cluster_of, essence_of, is_going, manifests, number, text};
use super::filters;
use super::plan::SPACES;
use super::steps::{binding_of, given, is_divided};
use crate::scheduler::from_api::{self, Observed};
use crate::scheduler::{Interner, Need, Snapshot, needed, same_targets, schedule};
use common::api::binding::{ResourceBindingSpec, ResourceBindingStatus};
use common::api::cluster::Cluster;
use common::api::policy::Placement;
use common::labels::APPLIED_PLACEMENT;
use common::names::{binding_name, work_name};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What does not agree.
pub(super) fn open(books: &Books) -> Vec<String> {
    let mut open = Vec::new();
    templates(books, &mut open);
    placements(books, &mut open);
    works(books, &mut open);
    members(books, &mut open);
    answers(books, &mut open);
    open
}

fn read<T: DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).expect("of its kind")
}

/// What people made: Deployments and ConfigMaps in their namespaces.
fn all_templates(books: &Books) -> impl Iterator<Item = (&Key, &Value)> {
    let all = books.all("Deployment").chain(books.all("ConfigMap"));
    all.filter(|(key, _)| {
        SPACES.contains(&key.namespace.as_str()) && key.name != "kube-root-ca.crt"
    })
}

fn selects(policy: &Value, template: &Key, object: &Value) -> bool {
    let selectors = policy["spec"]["resourceSelectors"].as_array();
    let mut selectors = selectors.into_iter().flatten();
    selectors.any(|it| {
        let labels = it["labelSelector"]["matchLabels"].as_object();
        let mut labels = labels.into_iter().flatten();
        it["kind"] == template.kind.as_str()
            && (text(it, "/name").is_empty() || text(it, "/name") == template.name)
            && (text(it, "/namespace").is_empty() || text(it, "/namespace") == template.namespace)
            && labels.all(|(key, value)| object["metadata"]["labels"][key] == *value)
    })
}

/// The policy that a template shows.
fn holder(template: &Value) -> Option<Key> {
    let note = |key: &str| template["metadata"]["annotations"][key].as_str();
    if let Some(name) = note("propagationpolicy.karmada.io/name") {
        let namespace = note("propagationpolicy.karmada.io/namespace").unwrap_or_default();
        return Some(Key::new("PropagationPolicy", namespace, name));
    }
    let name = note("clusterpropagationpolicy.karmada.io/name")?;
    Some(Key::new("ClusterPropagationPolicy", "", name))
}

fn binding_key(template: &Key) -> Key {
    let name = binding_name(&template.kind, &template.name);
    Key::new("ResourceBinding", &template.namespace, &name)
}

/// A template shows a policy that selects it, and its binding says what both say.
fn templates(books: &Books, open: &mut Vec<String>) {
    let policies: Vec<(&Key, &Value)> = books
        .all("PropagationPolicy")
        .chain(books.all("ClusterPropagationPolicy"))
        .filter(|(_, policy)| !is_going(policy))
        .collect();
    let mut known = BTreeSet::new();
    for (key, template) in all_templates(books) {
        if is_going(template) {
            open.push(format!("templates: {key} does not go"));
            continue;
        }
        let fit = policies.iter().filter(|(name, policy)| {
            (name.namespace.is_empty() || name.namespace == key.namespace)
                && selects(policy, key, template)
        });
        let fit: BTreeMap<&Key, &Value> = fit.map(|(name, policy)| (*name, *policy)).collect();
        let binding_key = binding_key(key);
        let binding = books.hub.get(&binding_key).filter(|it| !is_going(it));
        known.insert(binding_key.clone());
        let Some(held) = holder(template) else {
            if !fit.is_empty() {
                open.push(format!(
                    "templates: {key} is held by nobody, and {:?} selects it",
                    fit.keys().next()
                ));
            }
            if binding.is_some_and(|it| {
                it["spec"]["requiredBy"]
                    .as_array()
                    .is_none_or(Vec::is_empty)
            }) {
                open.push(format!("templates: {key} has a binding and no policy"));
            }
            continue;
        };
        let Some(policy) = fit.get(&held) else {
            open.push(format!(
                "templates: {key} is held by {held}, which does not select it"
            ));
            continue;
        };
        let Some(binding) = binding else {
            open.push(format!(
                "templates: {key} has no binding, and {held} holds it"
            ));
            continue;
        };
        let spec = &binding["spec"];
        let placement =
            |of: &Value| read::<Option<Placement>>(&of["placement"]).unwrap_or_default();
        if placement(&policy["spec"]) != placement(spec) {
            open.push(format!(
                "templates: {binding_key} does not say what {held} says"
            ));
        }
        if number(template, "/spec/replicas") != number(spec, "/replicas") {
            open.push(format!(
                "templates: {binding_key} does not ask for the replicas of {key}"
            ));
        }
        if text(spec, "/resource/uid") != text(template, "/metadata/uid") {
            open.push(format!("templates: {binding_key} is of a former {key}"));
        }
    }
    follow(books, open);
    for (key, binding) in books.bindings() {
        if is_going(binding) || !known.contains(key) {
            open.push(format!("templates: {key} is left over"));
        }
    }
}

/// What a Deployment refers to goes wherever it goes, where its policy says so.
fn follow(books: &Books, open: &mut Vec<String>) {
    for (key, _) in
        all_templates(books).filter(|(key, _)| key.kind == "Deployment" && key.name == "web")
    {
        let settings = Key::new("ConfigMap", &key.namespace, "settings");
        let leader = books.hub.get(&binding_key(key));
        let leader = leader.filter(|it| it["spec"]["propagateDeps"] == true);
        let (Some(leader), true) = (leader, books.hub.contains_key(&settings)) else {
            continue;
        };
        let follower = books.hub.get(&binding_key(&settings));
        let here = follower.map(given).unwrap_or_default();
        for cluster in given(leader).keys().filter(|it| !here.contains_key(*it)) {
            open.push(format!(
                "templates: {settings} does not follow {key} to {cluster}"
            ));
        }
    }
}

/// Each binding is where the scheduler puts it now, and where filters let it.
fn placements(books: &Books, open: &mut Vec<String>) {
    let mut interner = Interner::default();
    let clusters = books.all("Cluster").map(|(_, it)| {
        let cluster: Cluster = read(it);
        Arc::new(from_api::cluster(&cluster, &mut interner))
    });
    let snapshot = Snapshot::new(clusters.collect::<Vec<_>>());
    for (key, binding) in books.bindings() {
        let spec: ResourceBindingSpec = read(&binding["spec"]);
        let status: ResourceBindingStatus =
            read::<Option<_>>(&binding["status"]).unwrap_or_default();
        let applied = binding["metadata"]["annotations"][APPLIED_PLACEMENT].as_str();
        let observed = Observed {
            generation: number(binding, "/metadata/generation"),
            deleting: is_going(binding),
            applied,
            status: Some(&status),
        };
        let leaving = |name: &str| snapshot.get(name).is_some_and(|it| it.leaving);
        let standing = from_api::standing(&spec, observed, leaving);
        let need = needed(&standing);
        if need == Need::Note {
            open.push(format!(
                "placements: {key} was not looked at since it changed"
            ));
        }
        let Need::Place(why) = need else { continue };
        let rules = from_api::rules(&spec.placement.clone().unwrap_or_default());
        let demand = from_api::demand(&spec, Arc::new(rules));
        let previous = from_api::previous(&spec, observed);
        let current = from_api::targets(&spec.clusters);
        let wanted = match schedule(&snapshot, &demand, Some(&previous)) {
            Ok(placement) => placement.targets,
            Err(unplaceable) => unplaceable.kept,
        };
        if !same_targets(&wanted, &current) {
            open.push(format!(
                "placements: {key} is at {current:?}, and belongs ({why:?}) to {wanted:?}"
            ));
        }
    }
    whole(books, open);
}

/// What is given whole and to everybody is with everybody who may have it, by our own count.
fn whole(books: &Books, open: &mut Vec<String>) {
    for (key, binding) in books.bindings().filter(|(_, it)| !is_going(it)) {
        let placement = &binding["spec"]["placement"];
        let spread = placement["spreadConstraints"]
            .as_array()
            .is_some_and(|it| !it.is_empty());
        if placement.is_null() || spread || is_divided(binding) {
            continue;
        }
        let here = given(binding);
        for (cluster, object) in books.all("Cluster") {
            let may = filters::admit(binding, object);
            let is = here.contains_key(&cluster.name);
            if may && !is {
                open.push(format!(
                    "placements: {key} is not in {}, which may have it",
                    cluster.name
                ));
            }
            if is && !filters::is_chosen(&placement["clusterAffinity"], object) && here.len() > 1 {
                open.push(format!(
                    "placements: {key} is in {}, which its policy does not name",
                    cluster.name
                ));
            }
        }
    }
}

/// The version that an image has in a cluster.
fn image(books: &Books, template: &Value, key: &Key, cluster: &str) -> String {
    let own = essence_of(template).1;
    let rule = books
        .hub
        .get(&Key::new("OverridePolicy", &key.namespace, "image"));
    let rules = rule.and_then(|it| it["spec"]["overrideRules"].as_array());
    let mut rules = rules.into_iter().flatten();
    let rule = rules.find(|it| it["targetCluster"]["clusterNames"][0] == cluster);
    match rule {
        Some(rule) => {
            let version = text(rule, "/overriders/imageOverrider/0/value");
            let (name, _) = own.split_once(':').unwrap_or((&own, ""));
            format!("{name}:{version}")
        }
        None => own,
    }
}

/// There is a Work for each cluster of each binding, as it should be, and no other.
fn works(books: &Books, open: &mut Vec<String>) {
    let mut wanted = BTreeMap::new();
    let mut spaces = BTreeSet::new();
    for (key, template) in all_templates(books) {
        let Some(binding) = books.hub.get(&binding_key(key)) else {
            continue;
        };
        let name = work_name(&key.kind, Some(&key.namespace), &key.name);
        for (cluster, replicas) in given(binding) {
            let (own, content) = essence_of(template);
            let essence = match key.kind.as_str() {
                "Deployment" => (
                    replicas.unwrap_or(if is_divided(binding) { 0 } else { own }),
                    image(books, template, key, &cluster),
                ),
                _ => (own, content),
            };
            spaces.insert((cluster.clone(), key.namespace.clone()));
            let work = Key::new("Work", &format!("karmada-es-{cluster}"), &name);
            wanted.insert(work, (key, essence));
        }
    }
    for (work, (key, essence)) in &wanted {
        let Some(held) = books.hub.get(work) else {
            open.push(format!("works: there is no {work}"));
            continue;
        };
        let made = manifests(held);
        let is = made.get(key).map(|it| essence_of(it));
        if is.as_ref() != Some(essence) || made.len() != 1 {
            open.push(format!("works: {work} has {is:?}, not {essence:?}"));
        }
    }
    for (key, work) in books.all("Work") {
        let cluster = cluster_of(&key.namespace).to_owned();
        if is_going(work) {
            open.push(format!("works: {key} does not go"));
        } else if binding_of(work).is_some() {
            if !wanted.contains_key(key) {
                open.push(format!("works: {key} is wanted by no binding"));
            }
        } else {
            for what in manifests(work).keys() {
                if what.kind != "Namespace"
                    || !spaces.contains(&(cluster.clone(), what.name.clone()))
                {
                    open.push(format!("works: {key} brings {what}, which nobody needs"));
                }
            }
        }
    }
}

/// Members have what their Works say, and nothing else of ours.
fn members(books: &Books, open: &mut Vec<String>) {
    let nothing = BTreeMap::new();
    let mut wanted: BTreeMap<(&str, Key), &Value> = BTreeMap::new();
    for (key, work) in books.all("Work").filter(|(_, it)| !is_going(it)) {
        for (what, manifest) in manifests(work)
            .into_iter()
            .filter(|(it, _)| it.kind != "Namespace")
        {
            let cluster = cluster_of(&key.namespace);
            let held = books.members.get(cluster).unwrap_or(&nothing).get(&what);
            let (is, should) = (held.map(essence_of), essence_of(manifest));
            if is.as_ref() != Some(&should) {
                open.push(format!(
                    "members: {cluster} has {what} as {is:?}, not {should:?}"
                ));
            }
            wanted.insert((cluster, what), manifest);
        }
    }
    for (member, objects) in &books.members {
        for (key, object) in objects {
            let ours = object
                .pointer("/metadata/labels/karmada.io~1managed")
                .is_some();
            let known = wanted.contains_key(&(member.as_str(), key.clone()));
            if ours && !known {
                open.push(format!("members: {key} is left in {member}"));
            }
        }
    }
}

/// A template's status is the sum of what members hold, and its binding says what each does.
fn answers(books: &Books, open: &mut Vec<String>) {
    for (key, template) in all_templates(books) {
        let Some(binding) = books.hub.get(&binding_key(key)) else {
            continue;
        };
        let here = given(binding);
        let told = binding["status"]["aggregatedStatus"].as_array();
        let told: BTreeMap<&str, &Value> = told
            .into_iter()
            .flatten()
            .map(|it| (text(it, "/clusterName"), it))
            .collect();
        let names: BTreeSet<&str> = here.keys().map(String::as_str).collect();
        if told.keys().copied().collect::<BTreeSet<_>>() != names {
            open.push(format!(
                "answers: {key} is at {names:?}, and told of are {:?}",
                told.keys()
            ));
        }
        if let Some((cluster, item)) = told.iter().find(|(_, it)| it["applied"] != true) {
            open.push(format!(
                "answers: {key} is said not to be applied in {cluster}: {item}"
            ));
        }
        if key.kind != "Deployment" || here.is_empty() {
            continue;
        }
        for field in ["readyReplicas", "updatedReplicas", "replicas"] {
            let path = format!("/status/{field}");
            let held = names
                .iter()
                .filter_map(|name| books.members.get(*name)?.get(key));
            let sum: i64 = held.map(|it| number(it, &path)).sum();
            let said = number(template, &path);
            if said != sum {
                open.push(format!(
                    "answers: {key} says {said} {field}, and its members have {sum}"
                ));
            }
        }
        let generation = number(template, "/metadata/generation");
        if number(template, "/status/observedGeneration") != generation {
            open.push(format!("answers: {key} was not observed as it is"));
        }
    }
}
