//! What leaves clusters, and when the copies that it left are taken away.

use super::{leaving, own};
use crate::serve::tests::fleet::books::{Books, Key, is_going, lately, says};
use crate::serve::tests::fleet::filters;
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;

/// How long what was left is kept without anything that replaces it, once that is placed; times in tasks are seconds.
const TASK: Duration = Duration::from_secs(19);

/// A binding leaves only clusters with taints that it does not tolerate, and none that is lost with most others.
pub(super) fn step(books: &mut Books, key: &Key, old: Option<&Value>, new: &Value) {
    let known: BTreeSet<&str> = old
        .map(leaving)
        .into_iter()
        .flatten()
        .map(|it| it.0)
        .collect();
    let now = books.now();
    let since = now.saturating_sub(books.lag);
    let mut problems = Vec::new();
    for (name, _) in leaving(new).filter(|(name, _)| !known.contains(name)) {
        let past = books.clusters.get(name);
        let past = past.into_iter().flat_map(|past| lately(past, since));
        let past: Vec<&Value> = past.flatten().collect();
        let placements = [Some(new), old].into_iter().flatten();
        let mut placements = placements.map(|it| &it["spec"]["placement"]);
        let makes = |of| past.iter().any(|it| filters::leaves(of, it).is_some());
        if !placements.any(makes) {
            problems.push(format!("evictions: {key} leaves {name}, and need not"));
        }
        let is_lost = past.iter().all(|it| says(it, "Ready") != Some("True"));
        if is_lost && lately(&books.most_lost, since).all(|it| *it) {
            problems.push(format!(
                "evictions: {key} leaves {name}, and most clusters are lost"
            ));
        }
    }
    for name in kept(new) {
        let task = (key.clone(), name.to_owned());
        books.left.entry(task).or_insert(now);
    }
    let stay: BTreeSet<&str> = kept(new).collect();
    let targets = own(Some(new));
    for name in old.map(kept).into_iter().flatten() {
        if stay.contains(name) {
            continue;
        }
        let since = books.left.remove(&(key.clone(), name.to_owned()));
        let is_over = since.is_none_or(|since| now - since > TASK);
        let gone = books.cluster(name).is_none_or(is_going);
        let back = targets.contains_key(name);
        // What only follows others has nothing left of a policy that placed it.
        let is_placed = !new["spec"]["placement"].is_null();
        if !is_over
            && !gone
            && !back
            && is_placed
            && !books.is_timeless
            && !old.is_some_and(is_replaced)
        {
            problems.push(format!(
                "evictions: {key} takes away what it left in {name}, and nothing replaces it"
            ));
        }
    }
    problems.into_iter().for_each(|it| books.problem(it));
}

/// Where tasks keep a copy: what goes directly is gone already.
fn kept(binding: &Value) -> impl Iterator<Item = &str> {
    let kept = leaving(binding).filter(|(_, directly)| !directly);
    kept.map(|(name, _)| name)
}

/// Whether a binding is placed, and healthy wherever it is.
fn is_replaced(binding: &Value) -> bool {
    let told = binding.pointer("/status/aggregatedStatus");
    let told: Vec<&Value> = told
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .collect();
    let is_healthy = |name: &str| {
        let mut told = told.iter();
        told.any(|it| it["clusterName"] == name && it["health"] == "Healthy")
    };
    says(binding, "Scheduled") == Some("True") && own(Some(binding)).keys().all(|it| is_healthy(it))
}
