//! What is read of Clusters and placements.

use super::Strategy;
use super::*;
use common::api::cluster::Cluster as Object;
use serde_json::{Value, json};

fn read(spec: Value, status: Value) -> Cluster {
    let object: Object = serde_json::from_value(json!({
        "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
        "metadata": {"name": "A", "labels": {"env": "prod"}},
        "spec": spec, "status": status,
    }))
    .expect("a Cluster");
    from_api::cluster(&object, &mut Interner::default())
}

fn rules(placement: Value) -> Rules {
    from_api::rules(&serde_json::from_value(placement).expect("a placement"))
}

#[test]
fn room_is_what_is_offered_less_what_is_taken() {
    let cluster = read(
        json!({"syncMode": "Pull"}),
        json!({"resourceSummary": {
            "allocatable": {"cpu": "10", "memory": "20Gi", "pods": "110", "odd": "1500m", "wrong": "x"},
            "allocated": {"cpu": "4", "memory": "6Gi", "pods": "30", "other": "7"},
            "allocating": {"cpu": "500m", "memory": "0", "pods": "1"},
        }}),
    );
    let free = [
        ("cpu", 5500),
        ("memory", 14 << 30),
        ("odd", 2),
        ("pods", 79),
        ("wrong", 0),
    ];
    assert_eq!(cluster.capacity.free, Some(amounts(&free)));
    assert_eq!(cluster.capacity.nodes, None);
    let request = amounts(&[("cpu", 500), ("memory", 1 << 30)]);
    let demand = Demand {
        request: Some(request),
        ..deployment(1, Rules::default())
    };
    let mut estimator = capacity::Estimator::new(&demand);
    assert_eq!(estimator.room(&cluster.capacity), 11);
    let silent = read(json!({"syncMode": "Pull"}), json!({}));
    assert_eq!(silent.capacity, Capacity::default());
}

#[test]
fn nodes_are_counted_by_grade_where_grades_are_known() {
    let model = |grade: i64, cpu: &str| json!({"grade": grade, "ranges": [{"name": "cpu", "min": cpu, "max": "99"}]});
    let counts = json!({"resourceSummary": {"allocatableModelings": [
        {"grade": 1, "count": 3}, {"grade": 0, "count": 5}, {"grade": 7, "count": 9}, {"grade": 1, "count": 1},
    ]}});
    let known = json!({"syncMode": "Pull", "resourceModels": [model(2, "2500m"), model(0, "0"), model(1, "2")]});
    let nodes = Nodes {
        grades: Arc::new([0, 2000, 2500].map(|cpu| amounts(&[("cpu", cpu)])).to_vec()),
        counts: vec![5, 4, 0],
    };
    let cases = [
        (known.clone(), counts.clone(), Some(nodes)),
        (json!({"syncMode": "Pull"}), counts, None),
        (known, json!({"resourceSummary": {}}), None),
    ];
    for (spec, status, wanted) in cases {
        assert_eq!(read(spec, status).capacity.nodes, wanted);
    }
}

#[test]
fn what_filters_look_at_is_read_and_shared() {
    let spec = json!({
        "syncMode": "Pull", "provider": "p", "region": "", "zone": "z",
        "taints": [{"key": "k", "value": "v", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}],
    });
    let apis = json!({"apiEnablements": [
        {"groupVersion": "apps/v1", "resources": [{"name": "deployments", "kind": "Deployment"}]},
    ]});
    let cluster = read(spec, apis);
    let kinds = BTreeSet::from([Arc::from("Deployment")]);
    let wanted = Shape {
        labels: [("env".into(), "prod".into())].into(),
        provider: Some("p".into()),
        region: None,
        zones: ["z".into()].into(),
        taints: vec![Taint {
            key: "k".into(),
            value: "v".into(),
            effect: Effect::NoExecute,
        }],
        apis: Arc::new([("apps/v1".into(), kinds)].into()),
    };
    assert_eq!(*cluster.shape, wanted);
    let mut interner = Interner::default();
    let one = interner.shape(wanted.clone());
    assert!(Arc::ptr_eq(&one, &interner.shape(wanted)));
    // What nobody holds is let go of.
    for n in 0..1000 {
        interner.shape(Shape {
            provider: Some(format!("p{n}").into()),
            ..Shape::default()
        });
    }
    assert!(Arc::ptr_eq(&one, &interner.shape((*one).clone())));
}

#[test]
fn tolerations_mean_what_they_mean_for_pods() {
    let taint = Taint {
        key: "k".into(),
        value: "v".into(),
        effect: Effect::NoSchedule,
    };
    let cases = [
        (json!({"operator": "Exists"}), true),
        (json!({"key": "k", "operator": "Exists"}), true),
        (json!({"key": "other", "operator": "Exists"}), false),
        (json!({"key": "k", "operator": "Equal", "value": "v"}), true),
        (json!({"key": "k", "value": "v"}), true),
        (json!({"key": "k", "operator": "", "value": "v"}), true),
        (json!({"key": "k", "value": "w"}), false),
        (json!({"key": "k"}), false),
        (
            json!({"key": "k", "operator": "Exists", "effect": "NoSchedule"}),
            true,
        ),
        (
            json!({"key": "k", "operator": "Exists", "effect": "NoExecute"}),
            false,
        ),
        (
            json!({"key": "k", "operator": "Exists", "effect": "Odd"}),
            false,
        ),
        (json!({"key": "k", "operator": "Gt", "value": "v"}), false),
        (
            json!({"key": "k", "operator": "Exists", "tolerationSeconds": 0, "effect": "NoSchedule"}),
            true,
        ),
    ];
    for (toleration, wanted) in cases {
        let rules = rules(json!({"clusterTolerations": [toleration]}));
        let tolerated = rules.tolerations.iter().any(|one| one.tolerates(&taint));
        assert_eq!(tolerated, wanted, "{toleration}");
    }
}

#[test]
fn selectors_match_nothing_when_they_are_not_valid() {
    let cluster = read(
        json!({"syncMode": "Pull", "zones": ["z1", "z2"]}),
        json!({}),
    );
    let term = |operator: &str, values: Value| json!({"labelSelector": {"matchExpressions": [{"key": "env", "operator": operator, "values": values}]}});
    let zone = |operator: &str, value: &str| json!({"fieldSelector": {"matchExpressions": [{"key": "zone", "operator": operator, "values": [value]}]}});
    let cases = [
        (json!({}), true),
        (json!({"labelSelector": {}}), true),
        (
            json!({"labelSelector": {"matchLabels": {"env": "prod"}}}),
            true,
        ),
        (
            json!({"labelSelector": {"matchLabels": {"env": "dev"}}}),
            false,
        ),
        (term("In", json!(["prod"])), true),
        (term("In", json!([])), false),
        (term("NotIn", json!(["dev"])), true),
        (term("NotIn", json!([])), false),
        (term("Exists", json!([])), true),
        (term("Exists", json!(["prod"])), false),
        (term("DoesNotExist", json!([])), false),
        (term("Odd", json!(["prod"])), false),
        (zone("In", "z2"), true),
        (zone("NotIn", "z2"), false),
        (zone("NotIn", "z3"), true),
    ];
    for (affinity, wanted) in cases {
        let rules = rules(json!({"clusterAffinity": affinity}));
        assert_eq!(rules.affinity.matches(&cluster), wanted, "{affinity}");
    }
}

#[test]
fn strategies_and_spreads_are_read_as_the_reference_reads_them() {
    let divided = |more: Value| {
        let mut scheduling = json!({"replicaSchedulingType": "Divided"});
        for (key, value) in more.as_object().expect("an object") {
            scheduling[key] = value.clone();
        }
        Some(scheduling)
    };
    let weighted = |weights: Value| {
        divided(json!({"replicaDivisionPreference": "Weighted", "weightPreference": weights}))
    };
    let list = json!([
        {"targetCluster": {"clusterNames": ["A", "B"]}, "weight": 1},
        {"targetCluster": {"clusterNames": ["A"]}, "weight": 2},
    ]);
    let fixed = Strategy::Static(Weights {
        by_name: [("A".into(), 2), ("B".into(), 1)].into(),
        others: Vec::new(),
    });
    let evenly = || Strategy::Static(Weights::default());
    let one = Spread::Clusters(Bounds { least: 1, most: 1 });
    // The strategy, and what a constraint of exactly one cluster means beside it.
    let strategies = [
        (None, Strategy::Duplicated, one),
        (
            Some(json!({"replicaSchedulingType": "Duplicated"})),
            Strategy::Duplicated,
            one,
        ),
        (
            Some(
                json!({"replicaSchedulingType": "Duplicated", "replicaDivisionPreference": "Weighted"}),
            ),
            Strategy::Duplicated,
            one,
        ),
        (divided(json!({})), Strategy::Unsupported, one),
        (
            divided(json!({"replicaDivisionPreference": "Aggregated"})),
            Strategy::Aggregated,
            one,
        ),
        (
            divided(json!({"replicaDivisionPreference": "Weighted"})),
            evenly(),
            Spread::All,
        ),
        (weighted(json!({})), evenly(), one),
        (weighted(json!({"staticWeightList": []})), evenly(), one),
        (
            weighted(json!({"staticWeightList": list})),
            fixed,
            Spread::All,
        ),
        (
            weighted(json!({"dynamicWeight": "AvailableReplicas"})),
            Strategy::Dynamic,
            one,
        ),
        (
            weighted(json!({"dynamicWeight": "AvailableReplicas", "staticWeightList": list})),
            Strategy::Dynamic,
            one,
        ),
    ];
    for (scheduling, strategy, spread) in strategies {
        let rules = rules(json!({
            "replicaScheduling": scheduling,
            "spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}],
        }));
        assert_eq!(
            (rules.strategy, rules.spread),
            (strategy, spread),
            "{scheduling:?}"
        );
        assert!(rules.one_cluster);
    }
    let bounds = |least, most| Bounds { least, most };
    let region = json!({"spreadByField": "region", "minGroups": 2, "maxGroups": 3});
    let clusters = json!({"spreadByField": "cluster", "minGroups": 4, "maxGroups": 5});
    let spreads = [
        (json!([]), Spread::All),
        (json!([clusters]), Spread::Clusters(bounds(4, 5))),
        (json!([{"minGroups": 2}]), Spread::Clusters(bounds(2, 0))),
        (
            json!([{"spreadByField": "cluster"}]),
            Spread::Clusters(bounds(1, 0)),
        ),
        (
            json!([clusters, region]),
            Spread::Regions {
                regions: bounds(2, 3),
                clusters: bounds(4, 5),
            },
        ),
        (
            json!([region]),
            Spread::Regions {
                regions: bounds(2, 3),
                clusters: bounds(0, 0),
            },
        ),
        (
            json!([{"spreadByField": "zone"}, clusters]),
            Spread::Clusters(bounds(4, 5)),
        ),
        (json!([{"spreadByField": "provider"}]), Spread::Unsupported),
        (
            json!([{"spreadByLabel": "rack", "maxGroups": 2}]),
            Spread::Unsupported,
        ),
    ];
    for (constraints, wanted) in spreads {
        let rules = rules(json!({"spreadConstraints": constraints}));
        assert_eq!(rules.spread, wanted, "{constraints}");
        let text = told(&schedule(&snapshot([]), &deployment(1, rules), None));
        assert!(text.starts_with("NoClusterFit"), "{text}");
    }
    let by_label = rules(json!({"spreadConstraints": [{"spreadByLabel": "rack"}]}));
    let result = schedule(&snapshot([cluster("A", 9)]), &deployment(1, by_label), None);
    let text = "SchedulerError: failed to select clusters: just support cluster and region spread constraint";
    assert_eq!(told(&result), text);
}
