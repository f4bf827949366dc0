//! Groups of clusters in order, what they overflow into, and what stays when none fits.

use super::*;

fn only(names: &[&str]) -> Affinity {
    Affinity {
        names: names.iter().map(|name| Arc::from(*name)).collect(),
        ..Affinity::default()
    }
}

fn group(name: &str, names: &[&str], overflow: &[&[&str]]) -> Group {
    Group {
        name: name.into(),
        affinity: only(names),
        overflow: overflow.iter().map(|names| only(names)).collect(),
    }
}

fn grouped(groups: &[Group], strategy: Strategy) -> Rules {
    Rules {
        groups: groups.to_vec(),
        strategy,
        ..Rules::default()
    }
}

#[test]
fn groups_are_tried_in_order_from_the_one_that_was_chosen_last() {
    let groups = [
        group("none", &["absent"], &[]),
        group("small", &["A"], &[]),
        group("large", &["B", "C"], &[]),
    ];
    let fleet = snapshot([("A", 5), ("B", 10), ("C", 10)].map(|(name, room)| cluster(name, room)));
    // Replicas, the group before, whether afresh; the group and the failures before it.
    let cases = [
        (4, None, false, Some("small"), 1),
        (8, None, false, Some("large"), 2),
        (4, Some("large"), false, Some("large"), 0),
        (4, Some("large"), true, Some("small"), 1),
        (4, Some("small"), false, Some("small"), 0),
        (8, Some("small"), false, Some("large"), 1),
        (4, Some("renamed"), false, Some("small"), 1),
        (30, None, false, None, 3),
        (30, Some("small"), false, None, 2),
        (30, Some("large"), false, None, 1),
    ];
    for (replicas, before, fresh, chosen, failures) in cases {
        let demand = deployment(replicas, grouped(&groups, Strategy::Aggregated));
        let previous = Previous {
            targets: Vec::new(),
            group: before.map(Into::into),
            fresh,
        };
        let result = schedule(&fleet, &demand, Some(&previous));
        let (group, failed) = match &result {
            Ok(placement) => (placement.group.as_deref(), placement.passed_over.len()),
            Err(why) => (None, why.attempts().count()),
        };
        assert_eq!((group, failed), (chosen, failures), "{replicas} {before:?}");
    }
}

#[test]
fn the_first_group_says_why_and_every_group_what_it_waits_for() {
    let groups = [group("none", &["absent"], &[]), group("small", &["A"], &[])];
    let fleet = snapshot([cluster("A", 5), cluster("B", 9)]);
    let demand = deployment(8, grouped(&groups, Strategy::Dynamic));
    let failure = schedule(&fleet, &demand, None).expect_err("nothing fits");
    assert_eq!(failure.reason(), "NoClusterFit");
    let texts: Vec<String> = failure.attempts().map(Failed::to_string).collect();
    let wanted = [
        "0/2 clusters are available: 2 cluster(s) did not match the placement cluster affinity constraint.",
        "failed to assign replicas: failed to scale up: Clusters available replicas 5 are not enough to schedule.",
    ];
    assert_eq!(texts, wanted);
    assert_eq!(failure.waits_for(), WaitsFor::Capacity);
}

#[test]
fn what_does_not_fit_overflows() {
    const FULL: &str = "Unschedulable: failed to assign replicas: Clusters available replicas are not enough to \
                        schedule.";
    use Strategy::{Aggregated as Agg, Dynamic as Dyn};
    type Names<'a> = &'a [&'a str];
    type Case<'a> = (
        &'a str,
        Names<'a>,
        &'a [Names<'a>],
        Strategy,
        i64,
        &'a str,
        &'a str,
    );
    let cases: [Case<'_>; 9] = [
        ("A5 B3 C10", &["A", "B"], &[&["C"]], Agg, 12, "", "A5 B3 C4"),
        ("A5 B3 C10", &["A", "B"], &[&["C"]], Dyn, 12, "", "A5 B3 C4"),
        ("A5 B10 C2", &["A"], &[&["B", "C"]], Agg, 8, "", "A5 B3"),
        ("A5 B10 C2", &["A"], &[&["B", "C"]], Dyn, 8, "", "A5 B2 C1"),
        ("A5 B6", &["A"], &[&["B"]], Dyn, 12, "", FULL),
        (
            "A5 B6 C9",
            &["A"],
            &[&["B"], &["C"]],
            Dyn,
            12,
            "",
            "A5 B6 C1",
        ),
        // Room that became free in the first set pulls replicas back.
        ("A3 B9", &["A"], &[&["B"]], Dyn, 6, "A2 B4", "A5 B1"),
        ("A0 B9", &["A"], &[&["B"]], Dyn, 6, "A2 B4", "A2 B4"),
        ("A9 B9 C9", &["A"], &[], Dyn, 6, "B6", "A6"),
    ];
    for (clusters, first, overflow, strategy, replicas, before, wanted) in cases {
        let clusters = numbers(clusters).into_iter();
        let fleet = snapshot(clusters.map(|(name, room)| cluster(&name, room)));
        let groups = [group("g", first, overflow)];
        let before = numbers(before).into_iter();
        let before = before.map(|(name, replicas)| target(&name, replicas));
        let previous = Previous {
            group: Some("g".into()),
            ..previous(before.collect())
        };
        let demand = deployment(replicas, grouped(&groups, strategy));
        let result = schedule(&fleet, &demand, Some(&previous));
        assert_eq!(told(&result), wanted, "{first:?} {overflow:?} {replicas}");
    }
}

#[test]
fn what_overflows_is_chosen_after_the_group_itself() {
    let groups = [group("g", &["B"], &[&["A"]])];
    let fleet = snapshot([cluster("A", 9), cluster("B", 5)]);
    for (replicas, wanted) in [(5, "B5"), (6, "A6")] {
        let rules = Rules {
            spread: Spread::Clusters(Bounds { least: 1, most: 1 }),
            ..grouped(&groups, Strategy::Dynamic)
        };
        let result = schedule(&fleet, &deployment(replicas, rules), None);
        assert_eq!(told(&result), wanted);
    }
}

#[test]
fn what_has_no_pods_does_not_overflow() {
    let groups = [group("g", &["A"], &[&["B"]])];
    let fleet = snapshot(["A", "B"].map(|name| cluster(name, 9)));
    let demand = deployment(0, grouped(&groups, Strategy::Dynamic));
    assert_eq!(told(&schedule(&fleet, &demand, None)), "A");
}

#[test]
fn what_cannot_be_placed_stays_where_it_is() {
    let leaving = Cluster {
        leaving: true,
        ..cluster("L", 9)
    };
    let fleet = snapshot([cluster("A", 1), cluster("B", 1), cluster("C", 9), leaving]);
    // Clusters of the policy, replicas, evictions, where it was, what stays.
    type Case<'a> = (&'a [&'a str], i64, &'a [&'a str], &'a str, &'a str);
    let cases: [Case<'_>; 10] = [
        (&["A", "B"], 9, &[], "A2 B2", "A2 B2"),
        // One of them is no longer allowed, and the other has no room for more.
        (&["A"], 9, &[], "A2 B2", "A2 B2"),
        (&["A"], 9, &[], "B4", "B4"),
        (&["A"], 9, &["B"], "A2 B2", "A2"),
        (&["A"], 9, &[], "A2 L2 Gone2", "A2"),
        (&["absent"], 4, &[], "A2 B2", "A2 B2"),
        (&["absent"], 4, &["A"], "A2 B2", "B2"),
        (&["A"], 4, &["A"], "A2", ""),
        (&["absent"], 4, &[], "L4", ""),
        (&["absent"], 4, &[], "Gone4", ""),
    ];
    for (names, replicas, evicted, before, kept) in cases {
        let rules = Rules {
            affinity: only(names),
            strategy: Strategy::Dynamic,
            ..Rules::default()
        };
        let demand = Demand {
            evicted: evicted.iter().map(|name| Arc::from(*name)).collect(),
            ..deployment(replicas, rules)
        };
        let before = numbers(before).into_iter();
        let before = before.map(|(name, replicas)| target(&name, replicas));
        let previous = previous(before.collect());
        let failure = schedule(&fleet, &demand, Some(&previous)).expect_err("nothing fits");
        assert_eq!(listed(&failure.kept), kept, "{names:?} {evicted:?}");
    }
}

/// Whole copies too, and whichever group could not take it.
#[test]
fn copies_stay_while_no_group_can_be_had() {
    let fleet = snapshot([cluster("A", 1), cluster("B", 9)]);
    let two = Spread::Clusters(Bounds { least: 2, most: 2 });
    let both = |first: &str| [group("one", &[first], &[]), group("two", &["B"], &[])];
    for (first, reason) in [("A", "SchedulerError"), ("absent", "NoClusterFit")] {
        for strategy in [Strategy::Duplicated, Strategy::Dynamic] {
            let rules = Rules {
                spread: two,
                ..grouped(&both(first), strategy)
            };
            let previous = previous(vec![target("A", 2), target("B", 2)]);
            let failure = schedule(&fleet, &deployment(2, rules), Some(&previous));
            let failure = failure.expect_err("there is one cluster in each group");
            assert_eq!(listed(&failure.kept), "A2 B2", "{first}");
            assert_eq!(failure.reason(), reason);
        }
    }
}

#[test]
fn a_change_of_a_cluster_concerns_who_may_go_there() {
    let rules = grouped(
        &[group("one", &["A"], &[&["B"]]), group("two", &["C"], &[])],
        Strategy::Dynamic,
    );
    let cases = [
        ("A", None, true),
        ("B", None, true),
        ("C", None, true),
        ("D", None, false),
        ("A", Some("two"), false),
        ("C", Some("two"), true),
    ];
    for (name, observed, wanted) in cases {
        let concerned = rules.concern(&cluster(name, 1), observed);
        assert_eq!(concerned, wanted, "{name} {observed:?}");
    }
    assert!(Rules::default().concern(&cluster("A", 1), None));
}

#[test]
fn a_cluster_that_goes_or_is_tainted_takes_nobody_new() {
    let taint = |key: &str| Taint {
        key: key.into(),
        value: "".into(),
        effect: Effect::NoSchedule,
    };
    let tainted = |keys: &[&str]| {
        with(cluster("A", 1), |shape| {
            shape.taints = keys.iter().map(|key| taint(key)).collect();
        })
    };
    let labelled = with(cluster("A", 1), |shape| {
        shape.labels.insert("k".into(), "v".into());
    });
    let leaving = Cluster {
        leaving: true,
        ..cluster("A", 1)
    };
    let cases = [
        ("it comes", None, tainted(&[]), true),
        ("it comes and goes", None, leaving.clone(), false),
        ("it goes", Some(tainted(&[])), leaving.clone(), false),
        (
            "one more",
            Some(tainted(&["a"])),
            tainted(&["a", "b"]),
            false,
        ),
        (
            "one less",
            Some(tainted(&["a", "b"])),
            tainted(&["b"]),
            true,
        ),
        ("another", Some(tainted(&["a"])), tainted(&["b"]), true),
        ("a label", Some(tainted(&[])), labelled, true),
        ("again", Some(leaving), tainted(&[]), true),
    ];
    for (case, before, now, wanted) in cases {
        assert_eq!(now.may_gain_over(before.as_ref()), wanted, "{case}");
    }
}
