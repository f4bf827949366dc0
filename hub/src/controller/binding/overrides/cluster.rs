//! Whether a cluster is meant: by labels, fields and names, as every policy says it.
//!
//! Pure. A selector that cannot be read selects nothing, as in Kubernetes.

use common::api::cluster::Cluster;
use common::api::policy::{ClusterAffinity, ClusterField, FieldOperator, FieldRequirement};
use common::selector;
use std::collections::BTreeMap;
use std::slice;

/// What policies see of a cluster.
#[derive(Debug, Clone, Copy)]
pub struct ClusterFacts<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its labels; none when it has none.
    pub labels: Option<&'a BTreeMap<String, String>>,
    /// `spec.provider`.
    pub provider: Option<&'a str>,
    /// `spec.region`.
    pub region: Option<&'a str>,
    /// `spec.zones`, or the one of the older `spec.zone`.
    pub zones: &'a [String],
}

impl<'a> From<&'a Cluster> for ClusterFacts<'a> {
    fn from(cluster: &'a Cluster) -> Self {
        let spec = &cluster.spec;
        let zones = match &spec.zone {
            Some(zone) if spec.zones.is_empty() => slice::from_ref(zone),
            _ => spec.zones.as_slice(),
        };
        Self {
            name: cluster.metadata.name.as_deref().unwrap_or_default(),
            labels: cluster.metadata.labels.as_ref(),
            provider: spec.provider.as_deref(),
            region: spec.region.as_deref(),
            zones,
        }
    }
}

/// Whether the cluster meets every part that is given, and is not excluded.
pub fn matches(affinity: &ClusterAffinity, cluster: &ClusterFacts<'_>) -> bool {
    let is_it = |name: &String| name == cluster.name;
    let names = &affinity.cluster_names;
    !affinity.exclude.iter().any(is_it)
        && (names.is_empty() || names.iter().any(is_it))
        && affinity.label_selector.as_ref().is_none_or(|selector| {
            selector::matches(selector, |key| cluster.labels?.get(key).map(String::as_str))
        })
        && affinity.field_selector.as_ref().is_none_or(|selector| {
            let mut fields = selector.match_expressions.iter();
            fields.all(|field| field_matches(field, cluster))
        })
}

fn field_matches(field: &FieldRequirement, cluster: &ClusterFacts<'_>) -> bool {
    let listed = |value: &str| field.values.iter().any(|listed| listed == value);
    let one = |value: Option<&str>| {
        // Read as a selector of labels, which needs values.
        !field.values.is_empty()
            && match field.operator {
                FieldOperator::In => value.is_some_and(listed),
                FieldOperator::NotIn => !value.is_some_and(listed),
            }
    };
    match (field.key, field.operator) {
        (ClusterField::Provider, _) => one(cluster.provider),
        (ClusterField::Region, _) => one(cluster.region),
        (ClusterField::Zone, FieldOperator::In) => cluster.zones.iter().any(|zone| listed(zone)),
        (ClusterField::Zone, FieldOperator::NotIn) => {
            !cluster.zones.iter().any(|zone| listed(zone))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn affinity(value: Value) -> ClusterAffinity {
        serde_json::from_value(value).expect("an affinity")
    }

    #[test]
    fn every_part_that_is_given_must_hold() {
        let labels = BTreeMap::from([("env".to_owned(), "prod".to_owned())]);
        let zones = ["z1".to_owned(), "z2".to_owned()];
        let m1 = ClusterFacts {
            name: "m1",
            labels: Some(&labels),
            provider: Some("alpha"),
            region: None,
            zones: &zones,
        };
        let field = |key: &str, operator: &str, values: Value| json!({"fieldSelector": {"matchExpressions": [{"key": key, "operator": operator, "values": values}]}});
        let label = |operator: &str, key: &str, values: Value| json!({"labelSelector": {"matchExpressions": [{"key": key, "operator": operator, "values": values}]}});
        let cases = [
            (json!({}), true),
            (json!({"clusterNames": ["m1", "m2"]}), true),
            (json!({"clusterNames": ["m2"]}), false),
            (json!({"exclude": ["m1"]}), false),
            (json!({"exclude": ["m1"], "clusterNames": ["m1"]}), false),
            (json!({"labelSelector": {}}), true),
            (
                json!({"labelSelector": {"matchLabels": {"env": "prod"}}}),
                true,
            ),
            (
                json!({"labelSelector": {"matchLabels": {"env": "dev"}}}),
                false,
            ),
            (
                json!({"labelSelector": {"matchLabels": {"env": "prod"}}, "clusterNames": ["m2"]}),
                false,
            ),
            (label("In", "env", json!(["dev", "prod"])), true),
            (label("In", "env", json!([])), false),
            (label("NotIn", "env", json!(["dev"])), true),
            (label("NotIn", "tier", json!(["gold"])), true),
            (label("NotIn", "env", json!(["prod"])), false),
            (label("NotIn", "tier", json!([])), false),
            (label("NotIn", "-", json!(["gold"])), false),
            (label("NotIn", "tier", json!(["not a value"])), false),
            (label("NotIn", "UP.io/tier", json!(["gold"])), false),
            (label("NotIn", "up.io/tier", json!(["gold"])), true),
            (label("Exists", "env", json!([])), true),
            (label("Exists", "env", json!(["prod"])), false),
            (label("Exists", "tier", json!([])), false),
            (label("DoesNotExist", "tier", json!([])), true),
            (label("DoesNotExist", "env", json!([])), false),
            (label("Near", "env", json!(["prod"])), false),
            (field("provider", "In", json!(["alpha"])), true),
            (field("provider", "NotIn", json!(["alpha"])), false),
            (field("provider", "NotIn", json!([])), false),
            (field("region", "In", json!(["east"])), false),
            (field("region", "NotIn", json!(["east"])), true),
            (field("zone", "In", json!(["z2", "z3"])), true),
            (field("zone", "In", json!(["z3"])), false),
            (field("zone", "NotIn", json!(["z2"])), false),
            (field("zone", "NotIn", json!(["z3"])), true),
        ];
        for (value, want) in cases {
            assert_eq!(matches(&affinity(value.clone()), &m1), want, "{value}");
        }
        let bare = ClusterFacts {
            labels: None,
            provider: None,
            zones: &[],
            ..m1
        };
        for (value, want) in [
            (field("zone", "NotIn", json!(["z1"])), true),
            (field("zone", "In", json!(["z1"])), false),
            (field("provider", "NotIn", json!(["alpha"])), true),
            (
                json!({"labelSelector": {"matchLabels": {"env": "prod"}}}),
                false,
            ),
        ] {
            assert_eq!(matches(&affinity(value.clone()), &bare), want, "{value}");
        }
    }

    #[test]
    fn the_older_zone_counts_where_there_are_no_zones() {
        let cluster: Cluster = serde_json::from_value(json!({"metadata": {"name": "m1"},
            "spec": {"syncMode": "Pull", "zone": "z1"}}))
        .expect("a cluster");
        assert_eq!(ClusterFacts::from(&cluster).zones, ["z1".to_owned()]);
    }
}
