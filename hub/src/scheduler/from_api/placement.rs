//! The placement of a policy.

use crate::scheduler::cluster::Effect;
use crate::scheduler::rules::{
    Affinity, Bounds, Field, FieldTest, Group, LabelTest, Required, Rules, Spread, Strategy,
    Toleration, Weights,
};
use common::api::policy::{
    ClusterAffinity, ClusterField, FieldOperator, FieldSelector, OverflowAffinity, Placement,
    ReplicaDivisionPreference, ReplicaSchedulingStrategy, ReplicaSchedulingType, SpreadConstraint,
    SpreadField, StaticClusterWeight,
};
use k8s_openapi::api::core::v1::Toleration as ApiToleration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A placement as the scheduler reads it.
pub fn rules(placement: &Placement) -> Rules {
    let constraints = &placement.spread_constraints;
    let spread_by = |field| constraints.iter().any(|one| field_of(one) == Some(field));
    let only = Bounds { least: 1, most: 1 };
    let groups = placement.cluster_affinities.iter().map(|term| Group {
        name: term.affinity_name.as_str().into(),
        affinity: affinity_of(
            term.label_selector.as_ref(),
            term.field_selector.as_ref(),
            &term.cluster_names,
            &term.exclude,
        ),
        overflow: term.overflow_affinities.iter().map(overflow).collect(),
    });
    let own = placement.cluster_affinity.as_ref();
    Rules {
        affinity: own.map(affinity).unwrap_or_default(),
        groups: groups.collect(),
        tolerations: placement
            .cluster_tolerations
            .iter()
            .filter_map(toleration)
            .collect(),
        required: Required {
            provider: spread_by(SpreadField::Provider),
            region: spread_by(SpreadField::Region),
            zone: spread_by(SpreadField::Zone),
        },
        spread: spread(constraints, placement.replica_scheduling.as_ref()),
        one_cluster: bounds(constraints, SpreadField::Cluster) == Some(only),
        strategy: strategy(placement.replica_scheduling.as_ref()),
    }
}

fn names(texts: &[String]) -> BTreeSet<Arc<str>> {
    texts.iter().map(|text| text.as_str().into()).collect()
}

/// Which clusters are meant.
pub fn affinity(from: &ClusterAffinity) -> Affinity {
    affinity_of(
        from.label_selector.as_ref(),
        from.field_selector.as_ref(),
        &from.cluster_names,
        &from.exclude,
    )
}

/// Those that overflow are told apart by their order.
fn overflow(from: &OverflowAffinity) -> Affinity {
    affinity_of(
        from.label_selector.as_ref(),
        from.field_selector.as_ref(),
        &from.cluster_names,
        &from.exclude,
    )
}

fn affinity_of(
    labels: Option<&LabelSelector>,
    fields: Option<&FieldSelector>,
    cluster_names: &[String],
    exclude: &[String],
) -> Affinity {
    let fields = fields.map_or(&[][..], |fields| &fields.match_expressions);
    let fields = fields.iter().map(|requirement| FieldTest {
        field: match requirement.key {
            ClusterField::Provider => Field::Provider,
            ClusterField::Region => Field::Region,
            ClusterField::Zone => Field::Zone,
        },
        within: requirement.operator == FieldOperator::In,
        values: names(&requirement.values),
    });
    Affinity {
        names: names(cluster_names),
        exclude: names(exclude),
        labels: labels.map(label_tests).unwrap_or_default(),
        fields: fields.collect(),
    }
}

fn label_tests(selector: &LabelSelector) -> Vec<LabelTest> {
    let equal = selector.match_labels.iter().flatten();
    let equal = equal.map(|(key, value)| {
        let only = BTreeSet::from([Arc::from(value.as_str())]);
        LabelTest::In(key.as_str().into(), only)
    });
    let others = selector.match_expressions.iter().flatten().map(|term| {
        let values = names(term.values.as_deref().unwrap_or_default());
        let key = Arc::from(term.key.as_str());
        match (term.operator.as_str(), values.is_empty()) {
            ("In", false) => LabelTest::In(key, values),
            ("NotIn", false) => LabelTest::NotIn(key, values),
            ("Exists", true) => LabelTest::Exists(key),
            ("DoesNotExist", true) => LabelTest::Absent(key),
            _ => LabelTest::Never,
        }
    });
    equal.chain(others).collect()
}

/// None for one that tolerates nothing.
pub fn toleration(from: &ApiToleration) -> Option<Toleration> {
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let effect = match given(&from.effect).as_deref() {
        None => None,
        Some("NoSchedule") => Some(Effect::NoSchedule),
        Some("PreferNoSchedule") => Some(Effect::PreferNoSchedule),
        Some("NoExecute") => Some(Effect::NoExecute),
        Some(_) => return None,
    };
    let value = match given(&from.operator).as_deref() {
        None | Some("Equal") => Some(from.value.as_deref().unwrap_or_default().into()),
        Some("Exists") => None,
        Some(_) => return None,
    };
    Some(Toleration {
        key: given(&from.key).map(Into::into),
        value,
        effect,
    })
}

/// What it spreads by; none for a label. Clusters when nothing is said.
fn field_of(constraint: &SpreadConstraint) -> Option<SpreadField> {
    let label = constraint.spread_by_label.as_deref().unwrap_or_default();
    let unsaid = label.is_empty().then_some(SpreadField::Cluster);
    constraint.spread_by_field.or(unsaid)
}

fn bounds(constraints: &[SpreadConstraint], field: SpreadField) -> Option<Bounds> {
    let number = |groups: Option<i64>| usize::try_from(groups.unwrap_or(0)).unwrap_or(0);
    let last = constraints
        .iter()
        .rfind(|one| field_of(one) == Some(field))?;
    Some(Bounds {
        least: number(last.min_groups).max(1),
        most: number(last.max_groups),
    })
}

fn spread(
    constraints: &[SpreadConstraint],
    scheduling: Option<&ReplicaSchedulingStrategy>,
) -> Spread {
    if constraints.is_empty() || scheduling.is_some_and(is_weighed) {
        return Spread::All;
    }
    let clusters = bounds(constraints, SpreadField::Cluster);
    match (bounds(constraints, SpreadField::Region), clusters) {
        (Some(regions), clusters) => Spread::Regions {
            regions,
            clusters: clusters.unwrap_or_default(),
        },
        (None, Some(clusters)) => Spread::Clusters(clusters),
        (None, None) => Spread::Unsupported,
    }
}

/// Whether fixed weights say who gets what, so that nothing is selected before.
fn is_weighed(scheduling: &ReplicaSchedulingStrategy) -> bool {
    let divided = scheduling.replica_scheduling_type == ReplicaSchedulingType::Divided;
    let preference = scheduling.replica_division_preference;
    let fixed = scheduling.weight_preference.as_ref().is_none_or(|weights| {
        weights.dynamic_weight.is_none() && !weights.static_weight_list.is_empty()
    });
    divided && preference == Some(ReplicaDivisionPreference::Weighted) && fixed
}

fn strategy(scheduling: Option<&ReplicaSchedulingStrategy>) -> Strategy {
    let Some(scheduling) = scheduling else {
        return Strategy::Duplicated;
    };
    let weights = scheduling.weight_preference.as_ref();
    match (
        scheduling.replica_scheduling_type,
        scheduling.replica_division_preference,
    ) {
        (ReplicaSchedulingType::Duplicated, _) => Strategy::Duplicated,
        (ReplicaSchedulingType::Divided, None) => Strategy::Unsupported,
        (ReplicaSchedulingType::Divided, Some(ReplicaDivisionPreference::Aggregated)) => {
            Strategy::Aggregated
        }
        (ReplicaSchedulingType::Divided, Some(ReplicaDivisionPreference::Weighted)) => {
            match weights {
                Some(weights) if weights.dynamic_weight.is_some() => Strategy::Dynamic,
                weights => {
                    let list = weights.map_or(&[][..], |weights| &weights.static_weight_list);
                    Strategy::Static(fixed(list))
                }
            }
        }
    }
}

fn fixed(list: &[StaticClusterWeight]) -> Weights {
    let mut weights = Weights::default();
    for entry in list {
        let target = affinity(&entry.target_cluster);
        if target.is_list_of_names() {
            for name in target.names {
                let known = weights.by_name.entry(name).or_insert(entry.weight);
                *known = entry.weight.max(*known);
            }
        } else {
            weights.others.push((target, entry.weight));
        }
    }
    weights
}
