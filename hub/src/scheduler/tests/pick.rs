//! Which clusters are chosen and which are refused, by tables.

use super::*;

fn bounds(least: usize, most: usize) -> Bounds {
    Bounds { least, most }
}

/// Clusters as `A10`, in regions as `us: A10 B5`, split by `;`.
fn fleet(text: &str) -> Snapshot {
    let parts = text.split(';').flat_map(|part| {
        let (region, clusters) = part.split_once(':').unwrap_or(("", part));
        let region = Some(region.trim()).filter(|region| !region.is_empty());
        let clusters = numbers(clusters).into_iter();
        clusters.map(move |(name, room)| {
            with(cluster(&name, room), |shape| {
                shape.region = region.map(Into::into);
            })
        })
    });
    snapshot(parts)
}

fn run(
    fleet: &Snapshot,
    spread: Spread,
    strategy: Strategy,
    replicas: i64,
    before: &str,
) -> String {
    let rules = Rules {
        spread,
        strategy,
        ..Rules::default()
    };
    let targets = numbers(before).into_iter();
    let targets = targets.map(|(name, replicas)| target(&name, replicas));
    let previous = previous(targets.collect());
    told(&schedule(
        fleet,
        &deployment(replicas, rules),
        Some(&previous),
    ))
}

const FEW: &str = "SchedulerError: failed to select clusters: the number of feasible clusters is less than \
                   spreadConstraint.MinGroups";

#[test]
fn clusters_are_chosen_by_place_then_room_and_never_too_small() {
    use Strategy::{Aggregated as Agg, Duplicated as Dup, Dynamic as Dyn};
    let little = "SchedulerError: failed to select clusters: no enough resource when selecting";
    let (little_0, little_2) = (
        format!("{little} 0 clusters"),
        format!("{little} 2 clusters"),
    );
    let nothing = "SchedulerError: failed to assign replicas: no clusters available to schedule";
    type Case<'a> = (&'a str, (usize, usize), Strategy, i64, &'a str, &'a str);
    let cases: [Case<'_>; 17] = [
        ("A10 B8 C6", (2, 2), Dyn, 12, "", "A7 B5"),
        ("A10 B8 C6", (2, 2), Dyn, 30, "", &little_2),
        ("A10", (2, 2), Dyn, 1, "", FEW),
        ("A10 B8 C6", (1, 0), Dyn, 1, "", &little_0),
        ("A10 B8 C6", (1, 0), Agg, 0, "", &little_0),
        ("A10 B8 C6", (1, 0), Dup, 1, "", nothing),
        ("A50 B1", (1, 1), Dup, 2, "B2", "B2"),
        ("A50 B1", (1, 1), Dup, 2, "", "A2"),
        ("A5 B5", (1, 1), Dup, 9, "", "A9"),
        ("A0 B10 C6", (1, 2), Agg, 15, "A4", "B9 C6"),
        ("A0 B10 C6", (1, 2), Agg, 14, "A4", "A4 B10"),
        ("A0 B10 C6", (1, 3), Agg, 15, "A4", "A4 B7 C4"),
        ("A1 B2 C3 D4", (1, 2), Agg, 7, "A1", "C3 D4"),
        ("A1 B2 C3 D4", (2, 2), Dyn, 6, "A1", "A2 D4"),
        ("A3 B3 C3", (1, 2), Dup, 1, "", "A1 B1"),
        ("A3 B3 C3", (1, 9), Dup, 1, "", "A1 B1 C1"),
        ("A3 B3 C3", (4, 9), Dup, 1, "A1 B1 C1", FEW),
    ];
    for (clusters, (least, most), strategy, replicas, before, wanted) in cases {
        let spread = Spread::Clusters(bounds(least, most));
        let name = format!("{clusters}, {least} to {most}, {strategy:?} {replicas}, from {before}");
        let result = run(&fleet(clusters), spread, strategy, replicas, before);
        assert_eq!(result, wanted, "{name}");
    }
}

#[test]
fn regions_are_chosen_by_room_and_size() {
    use Strategy::{Aggregated as Agg, Duplicated as Dup, Dynamic as Dyn};
    type Case<'a> = (
        &'a str,
        (usize, usize),
        (usize, usize),
        Strategy,
        i64,
        &'a str,
        &'a str,
    );
    let few_regions = "SchedulerError: failed to select clusters: the number of feasible region is less than \
                       spreadConstraint.MinGroups";
    let few_clusters = "SchedulerError: failed to select clusters: the number of clusters is less than the \
                        cluster spreadConstraint.MinGroups";
    // One region is enough, however little room it has; assignment finds out.
    let short = "Unschedulable: failed to assign replicas: failed to scale up: Clusters available replicas 9 are \
                 not enough to schedule.";
    let four = "us: A9 B9; eu: C9; ap: D9";
    let sized = "r1: A9 B9 C9; r2: D9 E9; r3: F9";
    let alone = "r1: A9; r2: B8; r3: C7";
    let cases: [Case<'_>; 16] = [
        (four, (2, 2), (3, 4), Dup, 3, "", "A3 B3 D3"),
        (four, (2, 2), (2, 2), Dup, 3, "", "A3 D3"),
        (four, (3, 3), (2, 2), Dup, 3, "", "A3 C3 D3"),
        (four, (4, 4), (4, 4), Dup, 3, "", few_regions),
        ("us: A9", (2, 2), (2, 2), Dup, 3, "", few_regions),
        (four, (2, 2), (4, 4), Dup, 3, "", few_clusters),
        (four, (1, 0), (1, 1), Dup, 3, "", few_clusters),
        (sized, (1, 3), (3, 3), Dup, 1, "", "A1 B1 C1"),
        (sized, (1, 2), (4, 9), Dup, 1, "", "A1 B1 C1 D1 E1"),
        (sized, (3, 3), (6, 9), Dup, 1, "", "A1 B1 C1 D1 E1 F1"),
        (alone, (2, 3), (2, 2), Dup, 1, "", "A1 B1"),
        (alone, (1, 1), (1, 1), Dup, 1, "C1", "C1"),
        (alone, (2, 2), (2, 2), Dyn, 15, "", "A8 B7"),
        (alone, (1, 2), (1, 2), Agg, 16, "", short),
        (
            "us: A10 B10 C10 D10 E5; eu: F40 G30 H10 I10",
            (1, 1),
            (1, 9),
            Dyn,
            50,
            "",
            "F22 G16 H6 I6",
        ),
        ("us: A20 B2; eu: C30", (1, 1), (1, 1), Agg, 25, "", "C25"),
    ];
    for (clusters, regions, wanted_clusters, strategy, replicas, before, wanted) in cases {
        let name = format!("{clusters}: {regions:?} {wanted_clusters:?} {strategy:?} {replicas}");
        let spread = Spread::Regions {
            regions: bounds(regions.0, regions.1),
            clusters: bounds(wanted_clusters.0, wanted_clusters.1),
        };
        let result = run(&fleet(clusters), spread, strategy, replicas, before);
        assert_eq!(result, wanted, "{name}");
    }
}

#[test]
fn the_weight_of_a_region_is_its_room_up_to_its_share() {
    type Case<'a> = (i64, usize, usize, &'a [(i64, i64)], i64);
    // Replicas, fewest regions, fewest clusters, score and room of each cluster; weight.
    let cases: [Case<'_>; 6] = [
        (
            100,
            2,
            1,
            &[(100, 10), (100, 10), (100, 10), (100, 10), (100, 5)],
            45_100,
        ),
        (100, 2, 1, &[(0, 40), (0, 30), (0, 10), (0, 10)], 50_000),
        (60, 2, 1, &[(100, 20), (0, 40)], 30_050),
        (60, 2, 1, &[(0, 80), (0, 10)], 30_000),
        (60, 2, 1, &[(100, 80), (0, 10), (0, 10)], 30_050),
        (61, 2, 3, &[(100, 80), (0, 10), (0, 10), (0, 10)], 31_033),
    ];
    for (replicas, regions, clusters, members, wanted) in cases {
        let members: Vec<filter::Candidate> = members
            .iter()
            .enumerate()
            .map(|(rank, (score, room))| filter::Candidate {
                place: 0,
                rank,
                region: Some(0),
                tier: 0,
                score: *score,
                room: *room,
                placed: 0,
            })
            .collect();
        let (regions, clusters) = (bounds(regions, 9), bounds(clusters, 9));
        let weight = region::weight_of_shares(&members, replicas, regions, clusters);
        assert_eq!(weight, wanted, "{replicas} {members:?}");
    }
}

#[test]
fn very_many_regions_are_chosen_by_size() {
    let members = (0..400).map(|n| {
        with(cluster(&format!("c{n:03}"), 9), |shape| {
            shape.region = Some(format!("r{:02}", n % 100).into());
        })
    });
    let fleet = snapshot(members);
    for (most, wanted) in [(100, Some((75, 300))), (75, Some((75, 300))), (74, None)] {
        let rules = Rules {
            spread: Spread::Regions {
                regions: bounds(1, most),
                clusters: bounds(300, 300),
            },
            ..Rules::default()
        };
        let result = schedule(&fleet, &deployment(1, rules), None);
        let found = result.ok().map(|placement| {
            let regions = placement.targets.iter().map(|target| {
                let cluster = fleet.get(&target.cluster).expect("known");
                cluster.shape.region.clone()
            });
            let regions: BTreeSet<_> = regions.collect();
            (regions.len(), placement.targets.len())
        });
        assert_eq!(found, wanted, "{most}");
    }
}

fn taint(key: &str, value: &str, effect: Effect) -> Taint {
    Taint {
        key: key.into(),
        value: value.into(),
        effect,
    }
}

#[test]
fn each_filter_refuses_for_its_reason_and_targets_stay_where_it_says_so() {
    let required = Required {
        provider: true,
        region: true,
        zone: true,
    };
    let whole = |name: &str| {
        with(cluster(name, 9), |shape| {
            shape.provider = Some("p".into());
            shape.region = Some("r".into());
            shape.zones = ["z".into()].into();
        })
    };
    let no_schedule = |shape: &mut Shape| {
        shape.taints = vec![
            taint("soft", "", Effect::PreferNoSchedule),
            taint("k", "", Effect::NoSchedule),
        ];
    };
    let no_execute = |shape: &mut Shape| {
        shape.taints = vec![taint("k", "v", Effect::NoExecute)];
    };
    // The cluster, what is said of it, and whether it stays where it is.
    let cases: [(Cluster, &str, bool); 9] = [
        (
            with(whole("C"), |_| {}),
            "did not match the placement cluster affinity constraint",
            false,
        ),
        (
            with(whole("A"), |s| s.apis = Arc::default()),
            "did not have the API resource",
            true,
        ),
        (
            with(whole("A"), no_schedule),
            "had untolerated taint {k:NoSchedule}",
            true,
        ),
        (
            with(whole("A"), no_execute),
            "had untolerated taint {k=v:NoExecute}",
            true,
        ),
        (
            with(whole("A"), |s| s.provider = None),
            "did not have provider property",
            false,
        ),
        (
            with(whole("A"), |s| s.region = None),
            "did not have region property",
            false,
        ),
        (
            with(whole("A"), |s| s.zones.clear()),
            "did not have zones property",
            false,
        ),
        (whole("B"), "is in the process of eviction", false),
        (whole("A"), "", true),
    ];
    for (cluster, said, stays) in cases {
        let rules = Rules {
            affinity: Affinity {
                names: ["A".into(), "B".into()].into(),
                ..Affinity::default()
            },
            required,
            ..Rules::default()
        };
        let demand = Demand {
            evicted: ["B".into()].into(),
            ..deployment(2, rules)
        };
        let name = cluster.name.to_string();
        let fleet = snapshot([cluster]);
        let here = previous(vec![target(&name, 2)]);
        let failure = format!("NoClusterFit: 0/1 clusters are available: 1 cluster(s) {said}.");
        let placed = format!("{name}2");
        let new = if said.is_empty() { &placed } else { &failure };
        assert_eq!(told(&schedule(&fleet, &demand, None)), *new, "{said}");
        let old = if stays { &placed } else { &failure };
        assert_eq!(
            told(&schedule(&fleet, &demand, Some(&here))),
            *old,
            "{said}"
        );
    }
}

#[test]
fn workloads_that_belong_together_or_apart_are_kept_so() {
    let fleet = snapshot(["A", "B", "C"].map(|name| cluster(name, 9)));
    let demand = Demand {
        together: Some(["A".into(), "B".into()].into()),
        apart: ["B".into()].into(),
        ..deployment(2, Rules::default())
    };
    assert_eq!(told(&schedule(&fleet, &demand, None)), "A2");
    let here = previous(vec![target("B", 2), target("C", 2)]);
    assert_eq!(told(&schedule(&fleet, &demand, Some(&here))), "A2 B2 C2");
    let demand = Demand {
        apart: ["A".into(), "B".into()].into(),
        ..demand
    };
    let result = schedule(&fleet, &demand, None);
    let text = "NoClusterFit: 0/3 clusters are available: 1 ResourceBinding with the same affinity group does \
                not target this cluster, 2 cluster already has workload with the same anti-affinity group.";
    assert_eq!(told(&result), text);
}

#[test]
fn a_failure_tells_what_each_filter_took() {
    let tainted = |name: &str| {
        with(cluster(name, 9), |shape| {
            shape.taints = vec![taint("k", "", Effect::NoSchedule)];
        })
    };
    let bare = with(cluster("C", 9), |shape| shape.apis = Arc::default());
    let fleet = snapshot([tainted("B"), bare, tainted("A")]);
    let failure =
        schedule(&fleet, &deployment(1, Rules::default()), None).expect_err("nothing fits");
    let text = "0/3 clusters are available: 1 cluster(s) did not have the API resource, 2 cluster(s) had \
                untolerated taint {k:NoSchedule}.";
    assert_eq!(failure.to_string(), text);
    assert_eq!(failure.waits_for(), WaitsFor::Clusters);
    let taken: Vec<(Filter, usize, &str)> = failure
        .first
        .refused
        .taken
        .iter()
        .map(|(reason, taken)| (reason.filter(), taken.clusters, &*taken.example))
        .collect();
    let wanted = [
        (Filter::ApiEnablement, 1, "C"),
        (Filter::TaintToleration, 2, "A"),
    ];
    assert_eq!(taken, wanted);
    let by_filter = failure.first.refused.by_filter();
    assert_eq!(by_filter[&Filter::TaintToleration], 2);

    // Counts are sorted as texts, and clusters that are being deleted count only in the sum.
    let leaving = Cluster {
        leaving: true,
        ..cluster("Z", 9)
    };
    let many = (0..10).map(|n| with(cluster(&format!("n{n}"), 9), |s| s.apis = Arc::default()));
    let fleet = snapshot(many.chain([leaving.clone(), tainted("A"), tainted("B")]));
    let result = schedule(&fleet, &deployment(1, Rules::default()), None);
    let text = "NoClusterFit: 0/13 clusters are available: 10 cluster(s) did not have the API resource, 2 \
                cluster(s) had untolerated taint {k:NoSchedule}.";
    assert_eq!(told(&result), text);
    for (fleet, count) in [(snapshot([]), 0), (snapshot([leaving]), 1)] {
        let result = schedule(&fleet, &deployment(1, Rules::default()), None);
        let text = format!("NoClusterFit: 0/{count} clusters are available: no cluster exists.");
        assert_eq!(told(&result), text);
    }
}

#[test]
fn affinities_look_at_names_labels_and_fields() {
    let one = with(cluster("A", 1), |shape| {
        shape.labels = [("env".into(), "prod".into())].into();
        shape.provider = Some("p".into());
        shape.zones = ["z1".into(), "z2".into()].into();
    });
    let set = |values: &[&str]| values.iter().map(|value| Arc::from(*value)).collect();
    let label = |test| Affinity {
        labels: vec![test],
        ..Affinity::default()
    };
    let field = |field, within, values: &[&str]| Affinity {
        fields: vec![FieldTest {
            field,
            within,
            values: set(values),
        }],
        ..Affinity::default()
    };
    let named = |names: &[&str], exclude: &[&str]| Affinity {
        names: set(names),
        exclude: set(exclude),
        ..Affinity::default()
    };
    let cases = [
        (Affinity::default(), true),
        (named(&["A"], &[]), true),
        (named(&["B"], &[]), false),
        (named(&[], &["A"]), false),
        (named(&["A"], &["A"]), false),
        (named(&[], &["B"]), true),
        (
            label(LabelTest::In("env".into(), set(&["prod", "dev"]))),
            true,
        ),
        (label(LabelTest::In("tier".into(), set(&["prod"]))), false),
        (label(LabelTest::NotIn("env".into(), set(&["prod"]))), false),
        (label(LabelTest::NotIn("tier".into(), set(&["gold"]))), true),
        (label(LabelTest::Exists("env".into())), true),
        (label(LabelTest::Exists("tier".into())), false),
        (label(LabelTest::Absent("env".into())), false),
        (label(LabelTest::Absent("tier".into())), true),
        (label(LabelTest::Never), false),
        (field(Field::Provider, true, &["p"]), true),
        (field(Field::Provider, false, &["p"]), false),
        (field(Field::Region, true, &["r"]), false),
        (field(Field::Region, false, &["r"]), true),
        (field(Field::Zone, true, &["z2", "z9"]), true),
        (field(Field::Zone, true, &["z9"]), false),
        (field(Field::Zone, false, &["z1"]), false),
        (field(Field::Zone, false, &["z9"]), true),
    ];
    for (affinity, wanted) in cases {
        assert_eq!(affinity.matches(&one), wanted, "{affinity:?}");
    }
}
