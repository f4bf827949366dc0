//! What tests of the scheduler share: small fleets and demands in plain words.

mod convert;
mod divide;
mod groups;
mod pick;
mod properties;
mod recorded;
mod room;
mod standing;

use super::*;
use std::collections::BTreeSet;

pub(crate) fn amounts(pairs: &[(&str, i64)]) -> Amounts {
    let pairs = pairs.iter();
    pairs
        .map(|(name, amount)| ((*name).into(), *amount))
        .collect()
}

/// A cluster that serves Deployments and has room for so many pods.
pub(crate) fn cluster(name: &str, pods: i64) -> Cluster {
    let kinds = BTreeSet::from([Arc::from("Deployment")]);
    Cluster {
        name: name.into(),
        shape: Arc::new(Shape {
            apis: Arc::new([("apps/v1".into(), kinds)].into()),
            ..Shape::default()
        }),
        leaving: false,
        capacity: Capacity {
            free: Some(amounts(&[("pods", pods)])),
            nodes: None,
        },
    }
}

/// The same with other looks.
pub(crate) fn with(mut cluster: Cluster, change: impl FnOnce(&mut Shape)) -> Cluster {
    let mut shape = (*cluster.shape).clone();
    change(&mut shape);
    cluster.shape = Arc::new(shape);
    cluster
}

pub(crate) fn snapshot(clusters: impl IntoIterator<Item = Cluster>) -> Snapshot {
    Snapshot::new(clusters.into_iter().map(Arc::new))
}

/// So many replicas of a Deployment that asks for nothing.
pub(crate) fn deployment(replicas: i64, rules: Rules) -> Demand {
    Demand {
        api_version: "apps/v1".into(),
        kind: "Deployment".into(),
        replicas,
        rules: Arc::new(rules),
        ..Demand::default()
    }
}

pub(crate) fn target(cluster: &str, replicas: i64) -> Target {
    Target {
        cluster: cluster.into(),
        replicas,
        components: Vec::new(),
    }
}

pub(crate) fn previous(targets: Vec<Target>) -> Previous {
    Previous {
        targets,
        ..Previous::default()
    }
}

/// `A6 B12` as names and numbers.
pub(crate) fn numbers(text: &str) -> Vec<(String, i64)> {
    let split = |word: &str| {
        let at = word.find(|c: char| c.is_ascii_digit() || c == '-');
        let (name, number) = word.split_at(at.unwrap_or(word.len()));
        let number = if number.is_empty() { "0" } else { number };
        (name.to_owned(), number.parse().expect("a number"))
    };
    text.split_whitespace().map(split).collect()
}

/// Targets as text, in their order: `B4 A2`.
pub(crate) fn listed(targets: &[Target]) -> String {
    let each = targets.iter().map(|target| match target.replicas {
        0 => target.cluster.to_string(),
        replicas => format!("{}{replicas}", target.cluster),
    });
    each.collect::<Vec<_>>().join(" ")
}

/// A result as text, by name: `A2 B4`, or why there is none.
pub(crate) fn told(result: &Result<Placement, Unplaceable>) -> String {
    match result {
        Ok(placement) => {
            let mut targets = placement.targets.clone();
            targets.sort();
            listed(&targets)
        }
        Err(why) => format!("{}: {why}", why.reason()),
    }
}
