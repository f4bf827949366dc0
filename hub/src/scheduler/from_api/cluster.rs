//! A Cluster.

use super::{measure, milli};
use crate::scheduler::cluster::{
    Amounts, Apis, Capacity, Cluster, Effect, Interner, Nodes, Shape, Taint,
};
use common::api::cluster::{
    ApiEnablement, Cluster as Object, ClusterSpec, ResourceSummary, Taint as ApiTaint, TaintEffect,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What the scheduler looks at of a Cluster.
pub fn cluster(object: &Object, interner: &mut Interner) -> Cluster {
    let status = object.status.as_ref();
    let apis = status.map_or(&[][..], |status| &status.api_enablements);
    let apis = interner.apis(served(apis));
    let summary = status.and_then(|status| status.resource_summary.as_ref());
    Cluster {
        name: object.metadata.name.as_deref().unwrap_or_default().into(),
        shape: interner.shape(shape(object, apis)),
        leaving: object.metadata.deletion_timestamp.is_some(),
        capacity: Capacity {
            free: summary.map(free),
            nodes: summary.and_then(|summary| nodes(&object.spec, summary, interner)),
        },
    }
}

fn served(enablements: &[ApiEnablement]) -> Apis {
    let mut apis = Apis::new();
    for enablement in enablements {
        let kinds = apis
            .entry(enablement.group_version.as_str().into())
            .or_default();
        let served = enablement.resources.iter();
        kinds.extend(served.map(|resource| Arc::from(resource.kind.as_str())));
    }
    apis
}

fn shape(object: &Object, apis: Arc<Apis>) -> Shape {
    let spec = &object.spec;
    let field = |value: &Option<String>| {
        let value = value.as_deref().filter(|value| !value.is_empty())?;
        Some(Arc::from(value))
    };
    let labels = object.metadata.labels.iter().flatten();
    let zones = spec.zones.iter().map(|zone| Arc::from(zone.as_str()));
    let single = field(&spec.zone).filter(|_| spec.zones.is_empty());
    Shape {
        labels: labels
            .map(|(key, value)| (key.as_str().into(), value.as_str().into()))
            .collect(),
        provider: field(&spec.provider),
        region: field(&spec.region),
        zones: zones.chain(single).collect(),
        taints: spec.taints.iter().map(taint).collect(),
        apis,
    }
}

/// A taint, without its times.
pub fn taint(taint: &ApiTaint) -> Taint {
    Taint {
        key: taint.key.as_str().into(),
        value: taint.value.as_deref().unwrap_or_default().into(),
        effect: match taint.effect {
            TaintEffect::NoSchedule => Effect::NoSchedule,
            TaintEffect::PreferNoSchedule => Effect::PreferNoSchedule,
            TaintEffect::NoExecute => Effect::NoExecute,
        },
    }
}

fn free(summary: &ResourceSummary) -> Amounts {
    let free = summary.allocatable.iter().map(|(name, offered)| {
        let taken = [&summary.allocated, &summary.allocating];
        let taken = taken.iter().filter_map(|taken| taken.get(name)).map(milli);
        let free = taken.fold(milli(offered), i128::saturating_sub);
        (name.as_str().into(), measure(name, free))
    });
    free.collect()
}

fn nodes(spec: &ClusterSpec, summary: &ResourceSummary, interner: &mut Interner) -> Option<Nodes> {
    if summary.allocatable_modelings.is_empty() || spec.resource_models.is_empty() {
        return None;
    }
    let mut counted: BTreeMap<i64, i64> = BTreeMap::new();
    for modeling in &summary.allocatable_modelings {
        let count = counted.entry(modeling.grade).or_default();
        *count = count.saturating_add(modeling.count.max(0));
    }
    let grades: BTreeMap<i64, Amounts> = spec
        .resource_models
        .iter()
        .map(|model| {
            let ranges = model.ranges.iter();
            let least = ranges
                .map(|range| {
                    let least = measure(&range.name, milli(&range.min));
                    (range.name.as_str().into(), least)
                })
                .collect();
            (model.grade, least)
        })
        .collect();
    let counts = grades.keys().map(|grade| counted.get(grade).copied());
    let counts = counts.map(Option::unwrap_or_default).collect();
    Some(Nodes {
        counts,
        grades: interner.grades(grades.into_values().collect()),
    })
}
