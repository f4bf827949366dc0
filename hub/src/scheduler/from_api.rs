//! From the objects of the API to what the scheduler looks at, and back.

mod binding;
mod cluster;
mod placement;

pub use binding::{
    Observed, demand, placement_changed, previous, priority, standing, target_clusters, targets,
};
pub use cluster::{cluster, taint};
pub use placement::{affinity, rules, toleration};

use super::cluster::Amounts;
use common::quantity::Quantity;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use std::collections::BTreeMap;

/// Thousandths; what is no quantity is nothing.
fn milli(text: &Text) -> i128 {
    Quantity::parse(&text.0).map_or(0, Quantity::milli_ceil)
}

/// Thousandths in the measure of a resource: `cpu` stays, everything else becomes whole, rounded up.
fn measure(resource: &str, milli: i128) -> i64 {
    let amount = if resource == "cpu" {
        milli
    } else {
        milli.div_euclid(1000) + i128::from(milli.rem_euclid(1000) > 0)
    };
    i64::try_from(amount).unwrap_or(if amount < 0 { i64::MIN } else { i64::MAX })
}

fn amounts(texts: &BTreeMap<String, Text>) -> Amounts {
    let each = texts.iter();
    each.map(|(name, text)| (name.as_str().into(), measure(name, milli(text))))
        .collect()
}
