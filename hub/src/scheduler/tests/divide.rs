//! How replicas are divided, by tables: what is wanted, what there is, where it was, where it goes.

use super::*;

/// `st` has weights in the second column, all others room. `odd` is a template whose UID turns ties around.
const CASES: &str = "
    st 9 | A1 B2 | | A3 B6
    st 9 | A1 B3 | | A2 B7
    st 2 | A2 B1 | | A1 B1
    st 7 | A2 B1 C1 | | A3 B2 C2
    st 5 | A1 B1 | | A3 B2
    st odd 5 | A1 B1 | | A2 B3
    st 1 | A1 B1 C1 | | A1
    st odd 1 | A1 B1 C1 | | C1
    st 6 | A1 B1 C1 D1 | | A2 B2 C1 D1
    st odd 6 | A1 B1 C1 D1 | | A1 B1 C2 D2
    st 6 | A2 B1 C1 D1 | | A3 B1 C1 D1
    st 8 | A2 B1 C1 D1 | | A3 B2 C2 D1
    st 10 | A3 B2 C1 | | A5 B3 C2
    st 3 | A3 B2 C1 | | A1 B1 C1
    st 2 | A5 B1 | | A2
    st 3 | A5 B1 | | A2 B1
    st 4 | A5 B1 | | A3 B1
    st 2 | A3 B1 | | A1 B1
    st 5 | A7 B2 C1 | | A3 B1 C1
    st 3 | A7 B2 C1 | | A2 B1
    st 7 | A4 B3 C2 D1 | | A3 B2 C1 D1
    st 1 | A1 B1000 | | B1
    st 4 | A1 B0 | | A4
    st 7 | A0 B0 C0 | | A3 B2 C2
    st odd 7 | A0 B0 C0 | | A2 B2 C3
    st 9 | A1 B1 | A3 B3 | A5 B4
    st odd 9 | A1 B1 | A3 B3 | A4 B5
    st 4 | A1 B1 | A4 | A2 B2
    st 0 | A1 B1 | A4 | A B
    dup 3 | A0 B0 | | A3 B3
    dup 5 | A9 B9 | A3 | A5 B5
    dup 0 | A9 B9 | A3 B3 | A B
    dyn 12 | A6 B12 C18 | | A2 B4 C6
    dyn 9 | A10 B5 C3 | | A5 B2 C2
    dyn 9 | A7 B3 C3 | A3 B2 | A5 B3 C1
    dyn 4 | A0 B0 | A5 B3 | A2 B2
    agg 4 | A0 B0 | A5 B3 | A4
    dyn 6 | A0 B0 | A5 B3 | A4 B2
    agg 6 | A0 B0 | A5 B3 | A4 B2
    dyn 5 | A0 B0 C0 | A6 B3 C1 | A3 B1 C1
    dyn 9 | A0 B0 C0 | A6 B3 C1 | A5 B3 C1
    dyn 10 | A0 B0 C0 | A98 B1 C1 | A10
    dyn 1 | A0 B0 C0 | A1 B1 C1 | A1
    dyn odd 1 | A0 B0 C0 | A1 B1 C1 | C1
    agg 12 | A10 B5 | | A8 B4
    agg 10 | A10 B5 | | A10
    agg 8 | A10 B2 | B5 | A2 B6
    agg 7 | A10 B2 | B5 | B7
    agg 8 | A10 B0 | B5 | A3 B5
    dyn 9 | A10 B4 | A3 B3 | A5 B4
    agg 9 | A10 B4 | A3 B3 | A6 B3
    dyn 9 | A2 B1 | A3 B2 | Unschedulable: failed to assign replicas: failed to scale up: Clusters available replicas 3 are not enough to schedule.
    agg 9 | A2 B1 | A3 B2 | Unschedulable: failed to assign replicas: failed to scale up: Clusters available replicas 3 are not enough to schedule.
    dyn 12 | A0 B0 C4 | A5 B5 | A5 B5 C2
    agg 12 | A0 B0 C4 | A5 B5 | A5 B5 C2
    dyn 2 | A100 B33 | | A2
    dyn 2 | A100 B34 | | A1 B1
    dyn fresh 6 | A2 B8 | A6 | A3 B3
    dyn fresh 6 | A0 B12 | A6 | A2 B4
    agg fresh 6 | A0 B12 | A6 | B6
    dyn fresh 30 | A0 B12 | A6 | Unschedulable: failed to assign replicas: failed to do fresh scale: Clusters available replicas 18 are not enough to schedule.
    dyn 4 | A5 B5 C5 | | A2 B1 C1
    dyn odd 4 | A5 B5 C5 | | A1 B1 C2
    dyn 20 | A12 B8 C20 | | A6 B4 C10
    dyn 5 | A9 B9 | A2 B3 | A2 B3
    agg 5 | A9 B9 | A2 B3 | A2 B3
    dyn 5 | A9 B9 | A2 B3 Gone7 | A2 B3
    dyn 12 | A9 B9 | A2 B3 Gone7 | A6 B6
    agg 3 | A5 B5 C5 | | A3
    agg 9 | A5 B5 C5 | | A5 B4
    agg odd 9 | A5 B5 C5 | | A4 B5
    agg 15 | A5 B5 C5 | | A5 B5 C5
    agg 16 | A5 B5 C5 | | Unschedulable: failed to assign replicas: failed to scale up: Clusters available replicas 15 are not enough to schedule.
    dyn 1 | A0 B0 | | Unschedulable: failed to assign replicas: failed to scale up: Clusters available replicas 0 are not enough to schedule.
    dyn 0 | A5 B5 | A2 | A B
    agg 4 | A9 B9 | A4 B4 | A4
    agg 4 | A9 B9 | B4 A4 | B4
    agg 6 | A9 B9 C9 | B4 C4 A4 | B3 C3
    agg 5 | A9 B9 | B4 A5 | A5
    dyn 4 | A9 B9 | B4 A4 | A2 B2
    how 3 | A5 B5 | | SchedulerError: failed to assign replicas: unsupported replica scheduling strategy, replicaSchedulingType: Divided, replicaDivisionPreference: , please try another scheduling strategy
";

fn strategy(word: &str, second: &[(String, i64)]) -> Strategy {
    let weights = second.iter().filter(|(_, weight)| *weight > 0);
    match word {
        "st" => Strategy::Static(Weights {
            by_name: weights
                .map(|(name, weight)| (name.as_str().into(), *weight))
                .collect(),
            others: Vec::new(),
        }),
        "dup" => Strategy::Duplicated,
        "dyn" => Strategy::Dynamic,
        "agg" => Strategy::Aggregated,
        "how" => Strategy::Unsupported,
        other => panic!("{other} is no strategy"),
    }
}

#[test]
fn replicas_are_divided_as_the_tables_say() {
    let mut cases = 0;
    for case in CASES.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let columns: Vec<&str> = case.splitn(4, '|').map(str::trim).collect();
        let [what, there, before, wanted] = columns[..] else {
            panic!("{case}");
        };
        let there = numbers(there);
        let words: Vec<&str> = what.split(' ').collect();
        let rules = Rules {
            strategy: strategy(words[0], &there),
            ..Rules::default()
        };
        let replicas = words[words.len() - 1].parse().expect("replicas");
        let demand = Demand {
            uid: if words.contains(&"odd") { "b" } else { "" }.into(),
            ..deployment(replicas, rules)
        };
        let clusters = there.iter().map(|(name, room)| cluster(name, *room));
        let before = numbers(before);
        let targets = before
            .iter()
            .map(|(name, replicas)| target(name, *replicas));
        let previous = Previous {
            fresh: words.contains(&"fresh"),
            ..previous(targets.collect())
        };
        let result = schedule(&snapshot(clusters), &demand, Some(&previous));
        assert_eq!(told(&result), wanted, "{case}");
        cases += 1;
    }
    assert!(cases >= 70, "{cases}");
}

/// So that the best stays when the policy wants fewer of them next.
#[test]
fn what_each_gets_whole_is_told_best_first() {
    let fleet = snapshot([cluster("A", 10), cluster("B", 50), cluster("C", 20)]);
    let of = |strategy: Strategy, replicas: i64, before: Vec<Target>| {
        let rules = Rules {
            strategy,
            ..Rules::default()
        };
        let result = schedule(
            &fleet,
            &deployment(replicas, rules),
            Some(&previous(before)),
        );
        result.expect("placed").targets
    };
    let whole = of(Strategy::Duplicated, 3, Vec::new());
    assert_eq!(listed(&whole), "B3 C3 A3");
    assert_eq!(listed(&of(Strategy::Aggregated, 3, whole)), "B3");
    let gone = vec![target("C", 0)];
    assert_eq!(listed(&of(Strategy::Duplicated, 0, gone)), "C A B");
    let here = vec![target("A", 3)];
    assert_eq!(listed(&of(Strategy::Duplicated, 3, here)), "A3 B3 C3");
    assert_eq!(listed(&of(Strategy::Dynamic, 8, Vec::new())), "A1 B5 C2");
}

#[test]
fn uids_settle_ties_as_in_the_reference() {
    let even = ["", "a", "c", "e", "00000000-0000-0000-0000-000000000001"];
    let odd = [
        "b",
        "d",
        "00000000-0000-0000-0000-000000000002",
        "11111111-1111-1111-1111-111111111111",
    ];
    let wanted = even.map(|uid| (uid, apportion::Ties::ByName));
    let others = odd.map(|uid| (uid, apportion::Ties::AgainstName));
    for (uid, ties) in wanted.into_iter().chain(others) {
        assert_eq!(apportion::Ties::of(uid), ties, "{uid}");
    }
}

#[test]
fn the_largest_of_several_weights_counts() {
    let all = Affinity {
        names: [Arc::from("A"), Arc::from("B")].into(),
        exclude: [Arc::from("C")].into(),
        ..Affinity::default()
    };
    let weights = Weights {
        by_name: [("A".into(), 2)].into(),
        others: vec![(all, 1)],
    };
    let rules = Rules {
        strategy: Strategy::Static(weights),
        ..Rules::default()
    };
    let fleet = snapshot(["A", "B", "C"].map(|name| cluster(name, 0)));
    let result = schedule(&fleet, &deployment(6, rules), None);
    assert_eq!(told(&result), "A4 B2");
}

#[test]
fn a_request_without_replicas_goes_nowhere() {
    for (request, wanted) in [(None, "A B"), (Some(amounts(&[("cpu", 100)])), "")] {
        let demand = Demand {
            request,
            ..deployment(0, Rules::default())
        };
        let fleet = snapshot(["A", "B"].map(|name| cluster(name, 5)));
        let before = previous(vec![target("A", 2), target("B", 2)]);
        let result = schedule(&fleet, &demand, Some(&before));
        assert_eq!(told(&result), wanted);
    }
}

/// Free: 5.5 CPU, 14Gi, 79 pods, in thousandths and bytes.
const FREE: [(&str, i64); 3] = [("cpu", 5500), ("memory", 14 << 30), ("pods", 79)];

/// A node of each grade at least: nothing, 1 CPU and 4Gi, 2 and 16, 4 and 32.
const GRADES: [(i64, i64); 4] = [(0, 0), (1000, 4 << 30), (2000, 16 << 30), (4000, 32 << 30)];

#[test]
fn room_is_counted_by_sums_and_by_nodes() {
    type Request<'a> = &'a [(&'a str, i64)];
    type Case<'a> = (&'a str, Option<Request<'a>>, Option<[i64; 4]>, i64);
    let gi = 1 << 30;
    let half: Request<'_> = &[("cpu", 500), ("memory", gi)];
    let cases: [Case<'_>; 9] = [
        ("sums", Some(half), None, 11),
        ("no request", None, None, 79),
        ("no request, nodes", None, Some([5, 0, 3, 1]), 79),
        ("nodes", Some(half), Some([5, 0, 3, 1]), 20),
        (
            "a node is too small",
            Some(&[("cpu", 2000)]),
            Some([0, 1, 0, 0]),
            0,
        ),
        (
            "not counted",
            Some(&[("nvidia.com/gpu", 1)]),
            Some([0, 0, 3, 1]),
            0,
        ),
        ("not offered", Some(&[("nvidia.com/gpu", 1)]), None, 0),
        ("asks for none", Some(&[("nvidia.com/gpu", 0)]), None, 79),
        ("pods of nodes", Some(&[]), Some([0, 0, 0, 1]), 79),
    ];
    for (name, request, nodes, wanted) in cases {
        let grades = GRADES.map(|(cpu, memory)| amounts(&[("cpu", cpu), ("memory", memory)]));
        let capacity = Capacity {
            free: Some(amounts(&FREE)),
            nodes: nodes.map(|counts| Nodes {
                grades: Arc::new(grades.to_vec()),
                counts: counts.to_vec(),
            }),
        };
        let demand = Demand {
            request: request.map(amounts),
            ..deployment(1, Rules::default())
        };
        let mut estimator = capacity::Estimator::new(&demand);
        assert_eq!(estimator.room(&capacity), wanted, "{name}");
        assert_eq!(estimator.room(&capacity), wanted, "{name}, again");
        assert_eq!(estimator.room(&Capacity::default()), 0, "{name}, silent");
    }
}

#[test]
fn parts_go_together_to_one_cluster_that_takes_a_whole_set() {
    let part = |name: &str, replicas, cpu| Component {
        name: name.into(),
        replicas,
        request: amounts(&[("cpu", cpu)]),
    };
    let one = Bounds { least: 1, most: 1 };
    let rules = Rules {
        spread: Spread::Clusters(one),
        one_cluster: true,
        strategy: Strategy::Aggregated,
        ..Rules::default()
    };
    let demand = Demand {
        components: vec![part("head", 1, 2000), part("worker", 4, 1000)],
        ..deployment(0, rules)
    };
    let sized = |name: &str, pods, cpu, counts: Option<[i64; 4]>| {
        let mut cluster = cluster(name, pods);
        let grades = GRADES.map(|(cpu, memory)| amounts(&[("cpu", cpu), ("memory", memory)]));
        cluster.capacity = Capacity {
            free: Some(amounts(&[("pods", pods), ("cpu", cpu)])),
            nodes: counts.map(|counts| Nodes {
                grades: Arc::new(grades.to_vec()),
                counts: counts.to_vec(),
            }),
        };
        cluster
    };
    // Sums, pods, and nodes that together are large enough but of which none takes the head.
    let too_small = [
        sized("A", 99, 5900, None),
        sized("B", 4, 9000, None),
        sized("C", 99, 9000, Some([0, 9, 0, 0])),
        sized("D", 99, 9000, Some([0, 3, 1, 0])),
    ];
    let result = schedule(&snapshot(too_small.clone()), &demand, None);
    let text =
        "SchedulerError: failed to select clusters: no enough resource when selecting 1 clusters";
    assert_eq!(told(&result), text);
    for enough in [
        sized("E", 5, 6000, None),
        sized("E", 5, 6000, Some([0, 0, 3, 0])),
        sized("E", 9, 9000, Some([0, 4, 1, 0])),
        sized("E", 9, 9000, Some([0, 2, 0, 1])),
    ] {
        let fleet = snapshot(too_small.iter().cloned().chain([enough]));
        let placement = schedule(&fleet, &demand, None).expect("fits");
        let wanted = Target {
            components: vec![("head".into(), 1), ("worker".into(), 4)],
            ..target("E", 0)
        };
        assert_eq!(placement.targets, [wanted]);
    }
    // Where one cluster is not asked for, each gets all of it.
    let everywhere = Demand {
        replicas: 5,
        rules: Arc::new(Rules {
            strategy: Strategy::Aggregated,
            ..Rules::default()
        }),
        ..demand.clone()
    };
    let result = schedule(&snapshot(too_small.clone()), &everywhere, None);
    assert_eq!(told(&result), "A B C D");
    // A node takes 110 pods, however little they ask for.
    for (replicas, fits) in [(109, true), (110, false)] {
        let demand = Demand {
            components: vec![part("head", 1, 0), part("worker", replicas, 0)],
            ..demand.clone()
        };
        let fleet = snapshot([sized("E", 999, 0, Some([0, 1, 0, 0]))]);
        assert_eq!(schedule(&fleet, &demand, None).is_ok(), fits, "{replicas}");
    }
}
