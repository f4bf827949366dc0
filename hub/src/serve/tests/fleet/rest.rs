//! What holds once nothing happens any more: every stage agrees with the one before it.

mod placements;

use super::books::{
    Books, Key, cluster_of, essence_of, is_by_hand, is_going, manifests, number, says, text,
};
use super::plan::SPACES;
use super::steps::{binding_of, given, held, is_divided, revisions};
use common::api::policy::Placement;
use common::names::{binding_name, work_name};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// What does not agree.
pub(super) fn open(books: &Books) -> Vec<String> {
    let mut open = Vec::new();
    templates(books, &mut open);
    placements::open(books, &mut open);
    works(books, &mut open);
    members(books, &mut open);
    answers(books, &mut open);
    revisions::open(books, &mut open);
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
    // What was left is there as it was.
    let mut kept = BTreeSet::new();
    let mut spaces = BTreeSet::new();
    for (key, template) in all_templates(books) {
        let Some(binding) = books.hub.get(&binding_key(key)) else {
            continue;
        };
        let name = work_name(&key.kind, Some(&key.namespace), &key.name);
        let of = |cluster: &str| Key::new("Work", &format!("karmada-es-{cluster}"), &name);
        for cluster in held(binding) {
            kept.insert(of(&cluster));
            spaces.insert((cluster, key.namespace.clone()));
        }
        for (cluster, replicas) in given(binding) {
            let (own, content) = essence_of(template);
            let essence = match key.kind.as_str() {
                "Deployment" => (
                    replicas.unwrap_or(if is_divided(binding) { 0 } else { own }),
                    image(books, template, key, &cluster),
                ),
                _ => (own, content),
            };
            wanted.insert(of(&cluster), (key, essence));
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
        } else if is_by_hand(&key.name) {
            if says(work, "Applied") != Some("True") {
                open.push(format!(
                    "works: {key} is not applied: {}",
                    work["status"]["conditions"]
                ));
            }
        } else if binding_of(work).is_some() {
            if !kept.contains(key) {
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
            let known = wanted.contains_key(&(member.as_str(), key.clone()))
                || books.abandoned.contains(&(member.clone(), key.clone()));
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
        let here = held(binding);
        let told = binding["status"]["aggregatedStatus"].as_array();
        let told: BTreeMap<&str, &Value> = told
            .into_iter()
            .flatten()
            .map(|it| (text(it, "/clusterName"), it))
            .collect();
        let name = work_name(&key.kind, Some(&key.namespace), &key.name);
        let has_work = |it: &str| {
            books
                .hub
                .contains_key(&Key::new("Work", &format!("karmada-es-{it}"), &name))
        };
        let names: BTreeSet<&str> = here
            .iter()
            .map(String::as_str)
            .filter(|it| has_work(it))
            .collect();
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
        // A copy that is only kept until another one is healthy is kept as it is; and where there is none, nobody observes.
        let given = given(binding);
        let is_current = !names.is_empty() && names.iter().all(|it| given.contains_key(*it));
        if is_current && number(template, "/status/observedGeneration") != generation {
            open.push(format!(
                "answers: {key} was not observed as it is, at {names:?} of {given:?}"
            ));
        }
    }
}
