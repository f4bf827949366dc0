//! What holds after every event.
//!
//! A controller may decide on what was true a while ago: what it writes has to be right for some moment of the last
//! moments (see [`Books::lag`]). Nothing else is forgiven.

mod evictions;
mod leaders;
pub(super) mod order;
pub(super) mod revisions;
mod tokens;

use super::books::{
    Books, Essence, Given, Key, Past, cluster_of, essence_of, is_going, lately, manifests, number,
    says, text,
};
use super::filters;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long a Cluster may be silent.
const GRACE: Duration = Duration::from_secs(40);

pub(super) fn of_hub(
    books: &mut Books,
    key: &Key,
    revision: u64,
    old: Option<&Value>,
    new: Option<&Value>,
) {
    revisions::step(books, key, old.map(revisions::revision), revision);
    match key.kind.as_str() {
        "ResourceBinding" | "ClusterResourceBinding" => binding(books, key, old, new),
        "Cluster" => cluster(books, key, old, new),
        "Work" => work(books, key, old, new),
        "CertificateSigningRequest" => new.into_iter().for_each(|it| tokens::step(books, key, it)),
        "Lease" => {
            // What a hub lists at its start is no news.
            let time = |lease: Option<&Value>| lease.map(|it| it["spec"]["renewTime"].clone());
            if time(old) != time(new) {
                let now = books.now();
                books.renewed.insert(key.name.clone(), now);
            }
        }
        _ => {}
    }
}

/// Where a binding is, with those that it follows.
pub(super) fn given(binding: &Value) -> Given {
    let list = |of: &Value| of.as_array().cloned().unwrap_or_default();
    let own = list(&binding["spec"]["clusters"]);
    let followed = list(&binding["spec"]["requiredBy"]);
    let followed = followed.iter().flat_map(|it| list(&it["clusters"]));
    let mut given = Given::new();
    for target in own.into_iter().chain(followed) {
        let name = text(&target, "/name").to_owned();
        given.entry(name).or_insert(target["replicas"].as_i64());
    }
    given
}

/// The clusters that a binding leaves, and whether its copy there is taken away before it is made elsewhere.
pub(super) fn leaving(binding: &Value) -> impl Iterator<Item = (&str, bool)> {
    let tasks = binding["spec"]["gracefulEvictionTasks"].as_array();
    let tasks = tasks.into_iter().flatten();
    tasks.map(|it| (text(it, "/fromCluster"), it["purgeMode"] == "Directly"))
}

/// Where a binding has Works: where it is, and what it left and is still there.
pub(super) fn held(binding: &Value) -> BTreeSet<String> {
    let left = leaving(binding).filter(|(_, directly)| !directly);
    let left = left.map(|(name, _)| name.to_owned());
    given(binding).into_keys().chain(left).collect()
}

pub(super) fn own(binding: Option<&Value>) -> BTreeMap<String, i64> {
    let clusters = binding.and_then(|it| it.pointer("/spec/clusters")?.as_array());
    let clusters = clusters.into_iter().flatten();
    clusters
        .map(|it| (text(it, "/name").to_owned(), number(it, "/replicas")))
        .collect()
}

/// Whether the replicas of a binding are divided among its clusters.
pub(super) fn is_divided(binding: &Value) -> bool {
    let how = "/spec/placement/replicaScheduling/replicaSchedulingType";
    text(binding, how) == "Divided"
}

/// What decides on where a binding is, beside the clusters.
fn asks(binding: Option<&Value>) -> Value {
    let spec = binding.map(|it| &it["spec"]).unwrap_or(&Value::Null);
    json!([
        spec["placement"],
        spec["replicas"],
        spec["replicaRequirements"],
        spec["resource"]["uid"],
        spec["gracefulEvictionTasks"],
        spec["rescheduleTriggeredAt"],
        spec["suspension"]
    ])
}

fn binding(books: &mut Books, key: &Key, old: Option<&Value>, new: Option<&Value>) {
    let now = books.now();
    let past = books.given.entry(key.clone()).or_default();
    past.push((now, new.map(given).unwrap_or_default()));
    let past = books.held.entry(key.clone()).or_default();
    let stays = new.filter(|it| !is_going(it));
    past.push((now, stays.map(held).unwrap_or_default()));
    let changed = asks(old) != asks(new);
    let (before, after) = (own(old), own(new));
    let last = books.moved.get(key).copied();
    if changed {
        books.asked.insert(key.clone(), now);
    }
    let Some(new) = new else {
        books.moved.remove(key);
        books.asked.remove(key);
        books.left.retain(|(of, _), _| of != key);
        return;
    };
    evictions::step(books, key, old, new);
    if before == after {
        return;
    }
    books.moved.insert(key.clone(), now);
    // What it left may come back.
    let mut had = before.clone();
    let tasks = old.and_then(|it| it["spec"]["gracefulEvictionTasks"].as_array());
    for task in tasks.into_iter().flatten() {
        let name = text(task, "/fromCluster").to_owned();
        had.entry(name).or_insert(number(task, "/replicas"));
    }
    sums(books, key, new, &had, &after);
    let gained: Vec<&String> = after.keys().filter(|it| !had.contains_key(*it)).collect();
    for name in gained {
        let since = now.saturating_sub(books.lag);
        let past = books.clusters.get(name);
        let mut past = past
            .into_iter()
            .flat_map(|past| lately(past, since))
            .flatten();
        let admitted = past.any(|cluster| filters::admit(new, cluster));
        drop(past);
        if !admitted {
            books.problem(format!(
                "filters: {key} goes to {name}, which no filter lets it: {}",
                new["spec"]["placement"]
            ));
        }
    }
    let asked = books
        .asked
        .get(key)
        .copied()
        .unwrap_or(now)
        .max(books.fleet_changed);
    if let Some(last) = last
        && asked + books.lag < last
    {
        books.problem(format!(
            "moves: {key} went from {before:?} to {after:?}, and nothing had changed"
        ));
    }
}

/// What is divided sums up, at every move. What finds no place keeps some of what it had.
fn sums(
    books: &mut Books,
    key: &Key,
    binding: &Value,
    before: &BTreeMap<String, i64>,
    after: &BTreeMap<String, i64>,
) {
    let wanted = number(binding, "/spec/replicas");
    let less = after
        .iter()
        .all(|(name, replicas)| before.get(name) == Some(replicas));
    let right = if is_divided(binding) {
        after.values().sum::<i64>() == wanted
    } else {
        after.values().all(|replicas| *replicas == wanted)
    };
    if !right && !less {
        books.problem(format!(
            "sums: {key} wants {wanted} replicas, and has {after:?}, after {before:?}"
        ));
    }
}

/// What a cluster offers and refuses.
fn looks(cluster: Option<&Value>) -> Value {
    let Some(cluster) = cluster else {
        return Value::Null;
    };
    let taints = cluster["spec"]["taints"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let taints: Vec<_> = taints
        .iter()
        .map(|it| [&it["key"], &it["value"], &it["effect"]])
        .collect();
    let summary = &cluster["status"]["resourceSummary"];
    json!([
        cluster["metadata"]["labels"],
        is_going(cluster),
        cluster["spec"]["region"],
        cluster["spec"]["provider"],
        taints,
        cluster["status"]["apiEnablements"],
        summary["allocatable"],
        summary["allocated"],
        summary["allocating"]
    ])
}

/// Whether nobody heard of a cluster at some time after it was to go: what it has is left to it.
fn was_silent(past: &Past<Option<Value>>) -> bool {
    let last = past.iter().rev().map_while(|(_, it)| it.as_ref());
    let mut leaving = last.take_while(|it| is_going(it));
    leaving.any(|it| !matches!(says(it, "Ready"), Some("True" | "False")))
}

/// Whether a cluster is heard; none of one that never was, or leaves.
fn is_heard(cluster: &Value) -> Option<bool> {
    let all = cluster.pointer("/status/conditions")?.as_array()?;
    let ready = all.iter().find(|it| it["type"] == "Ready")?;
    let counts = !is_going(cluster) && ready["reason"] != "ClusterStatusNeverUpdated";
    counts.then(|| ready["status"] == "True")
}

fn cluster(books: &mut Books, key: &Key, old: Option<&Value>, new: Option<&Value>) {
    let now = books.now();
    let past = books.clusters.entry(key.name.clone()).or_default();
    let is_abandoned = new.is_none() && was_silent(past);
    past.push((now, new.cloned()));
    if looks(old) != looks(new) {
        books.fleet_changed = now;
    }
    if is_abandoned {
        let there = books.members.get(&key.name).into_iter().flatten();
        let there = there.map(|(what, _)| (key.name.clone(), what.clone()));
        // An agent that was not told makes what a user deleted there again.
        let deleted = books.meddled.iter().filter(|it| it.0 == key.name);
        let all: Vec<_> = there.chain(deleted.cloned()).collect();
        books.abandoned.extend(all);
    }
    let fleet = books.all("Cluster").map(|(_, it)| it);
    let fleet: Vec<bool> = fleet.filter_map(is_heard).collect();
    let lost = fleet.iter().filter(|heard| !**heard).count();
    books.most_lost.push((now, 2 * lost > fleet.len()));
    let is = |cluster: Option<&Value>| cluster.and_then(|it| says(it, "Ready").map(str::to_owned));
    let is_lost = is(new).as_deref() == Some("Unknown");
    if is_lost && is(old) != is(new) {
        let silent = books.renewed.get(&key.name).map(|at| now - *at);
        if silent.is_some_and(|silent| silent < GRACE) {
            let silent = silent.unwrap_or_default().as_secs_f64();
            books.problem(format!("unknown: {key} was heard of {silent:.3} s before"));
        }
    }
}

/// The binding that a Work is of.
pub(super) fn binding_of(work: &Value) -> Option<Key> {
    let note = |key: &str| work["metadata"]["annotations"][key].as_str();
    if let Some(name) = note("resourcebinding.karmada.io/name") {
        let namespace = note("resourcebinding.karmada.io/namespace").unwrap_or_default();
        return Some(Key::new("ResourceBinding", namespace, name));
    }
    let name = note("clusterresourcebinding.karmada.io/name")?;
    Some(Key::new("ClusterResourceBinding", "", name))
}

fn work(books: &mut Books, key: &Key, old: Option<&Value>, new: Option<&Value>) {
    let cluster = cluster_of(&key.namespace).to_owned();
    wants(books, &cluster);
    order::wanted(books, &cluster);
    if let Some(old) = old.filter(|it| !is_going(it))
        && new.is_none_or(is_going)
        && let Some(of) = binding_of(old)
    {
        goes(books, key, &cluster, &of);
    }
    let Some(new) = new.filter(|it| !is_going(it)) else {
        return;
    };
    let made = manifests(new);
    let same = old.is_some_and(|old| old["spec"] == new["spec"]);
    if !same && let Some(of) = binding_of(new) {
        let since = books.now().saturating_sub(books.lag);
        let past = books.given.get(&of);
        let past = past.into_iter().flat_map(|past| lately(past, since));
        let given: BTreeSet<Option<i64>> =
            past.filter_map(|it| it.get(&cluster).copied()).collect();
        let is_divided = books.hub.get(&of).is_some_and(is_divided);
        for (what, manifest) in &made {
            let replicas = essence_of(manifest).0;
            let has_replicas = what.kind == "Deployment";
            let right = given.iter().any(|it| {
                // Where nothing is divided, it is the template's number; a dependency is given what its dependent has.
                it.is_none_or(|it| it == replicas) || !is_divided || !has_replicas
            });
            if !right {
                books.problem(format!(
                    "works: {key} has {replicas} replicas of {what}, and {of} gave it {given:?}"
                ));
            }
        }
    }
    applied(books, key, &cluster, old, new);
}

/// That a Work is applied is said first when its member has had all of what some version of it brings.
fn applied(books: &mut Books, key: &Key, cluster: &str, old: Option<&Value>, new: &Value) {
    let brings = manifests(new);
    let brings = brings
        .into_iter()
        .filter(|(what, _)| what.kind != "Namespace");
    let brings: Vec<(Key, Essence)> = brings.map(|(what, it)| (what, essence_of(it))).collect();
    let versions = books.versions.entry(key.clone()).or_default();
    // One that was deleted was another one.
    if old.is_none() {
        versions.clear();
    }
    if versions.last() != Some(&brings) {
        versions.push(brings);
    }
    let is_applied =
        |work: Option<&Value>| work.is_some_and(|it| says(it, "Applied") == Some("True"));
    if !is_applied(Some(new)) || is_applied(old) {
        return;
    }
    let been = |(what, essence): &(Key, Essence)| {
        let place = (cluster.to_owned(), what.clone());
        books
            .been
            .get(&place)
            .is_some_and(|it| it.contains(essence))
    };
    let versions = &books.versions[key];
    if !versions.iter().any(|it| it.iter().all(been)) {
        let last = versions.last().cloned().unwrap_or_default();
        books.problem(format!(
            "applied: {key} says so, but {cluster} never had all of {last:?}"
        ));
    }
}

/// No Work goes as long as its binding is there, or has left and keeps it.
fn goes(books: &mut Books, key: &Key, cluster: &str, of: &Key) {
    let since = books.now().saturating_sub(books.lag);
    let held = books.held.get(of);
    let always = held.is_some_and(|past| lately(past, since).all(|it| it.contains(cluster)));
    let past = books.clusters.get(cluster);
    let mut past = past.into_iter().flat_map(|past| lately(past, since));
    let unregistered = past.any(|it| it.as_ref().is_none_or(is_going));
    drop(past);
    if always && !unregistered {
        books.problem(format!(
            "works: {key} goes, and {of} was there all the time"
        ));
    }
}

/// Notes what the Works of a cluster want now.
fn wants(books: &mut Books, cluster: &str) {
    let now = books.now();
    let namespace = format!("karmada-es-{cluster}");
    let works = books
        .all("Work")
        .filter(|(key, it)| key.namespace == namespace && !is_going(it));
    let wanted: BTreeSet<Key> = works
        .flat_map(|(_, it)| manifests(it).into_keys())
        .collect();
    books
        .wanted
        .retain(|(of, what), _| of != cluster || wanted.contains(what));
    for what in wanted {
        books
            .wanted
            .entry((cluster.to_owned(), what))
            .or_insert(now);
    }
}

pub(super) fn of_member(
    books: &mut Books,
    member: &str,
    key: &Key,
    old: Option<&Value>,
    new: Option<&Value>,
) {
    if key.kind == "Lease" {
        return leaders::step(books, member, key, old, new);
    }
    let now = books.now();
    let place = (member.to_owned(), key.clone());
    order::step(books, member, key, new.map(essence_of));
    if let Some(new) = new {
        books.appeared.entry(place.clone()).or_insert(now);
        if old.is_none() {
            books.meddled.remove(&place);
        }
        books.been.entry(place).or_default().insert(essence_of(new));
        return;
    }
    let appeared = books.appeared.remove(&place);
    let meddled = books.meddled.contains(&place);
    let leaves = books.cluster(member).is_none_or(is_going);
    let was_ours =
        old.is_some_and(|it| it.pointer("/metadata/labels/karmada.io~1managed").is_some());
    let (Some(appeared), Some(since)) = (appeared, books.wanted.get(&place)) else {
        return;
    };
    if !meddled && !leaves && was_ours && *since <= appeared {
        books.problem(format!(
            "deleted: {key} is gone in {member}, and its Work always wanted it"
        ));
    }
}
