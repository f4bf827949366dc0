//! When a cluster may have room for more than before.

use super::*;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::strategy::Strategy as Draw;

const RESOURCES: [&str; 3] = ["pods", "cpu", "memory"];

/// Amounts that are free, and how many nodes are of each grade; a list of grades begins with its first number.
fn with_room(free: Option<&[(&str, i64)]>, nodes: Option<(i64, [i64; 2])>) -> Capacity {
    Capacity {
        free: free.map(amounts),
        nodes: nodes.map(|(least, counts)| Nodes {
            grades: Arc::new(vec![
                amounts(&[("cpu", least)]),
                amounts(&[("cpu", 2 * least), ("memory", 1)]),
            ]),
            counts: counts.to_vec(),
        }),
    }
}

#[test]
fn more_is_free_or_there_are_more_nodes() {
    let some = |pods, cpu| with_room(Some(&[("pods", pods), ("cpu", cpu)]), None);
    let of = |least, counts| with_room(Some(&[("pods", 9)]), Some((least, counts)));
    let silent = Capacity::default;
    let cases = [
        ("the same", some(2, 2), some(2, 2), false),
        ("less", some(2, 2), some(2, 1), false),
        ("less of all", some(2, 2), some(-1, 0), false),
        ("more", some(2, 2), some(2, 3), true),
        (
            "more of one, less of the other",
            some(2, 2),
            some(1, 3),
            true,
        ),
        ("still nothing", some(-3, 2), some(0, 2), false),
        ("something", some(-3, 2), some(1, 2), true),
        ("first report", silent(), some(0, 0), true),
        ("no report any more", some(2, 2), silent(), false),
        (
            "another resource, of which nothing is free",
            some(2, 2),
            with_room(Some(&[("pods", 2), ("cpu", 2), ("gpu", 0)]), None),
            false,
        ),
        (
            "another resource",
            some(2, 2),
            with_room(Some(&[("pods", 2), ("cpu", 2), ("gpu", 1)]), None),
            true,
        ),
        (
            "a resource less",
            some(2, 2),
            with_room(Some(&[("pods", 2)]), None),
            false,
        ),
        ("the same nodes", of(1, [1, 1]), of(1, [1, 1]), false),
        ("a node less", of(1, [1, 1]), of(1, [0, 1]), false),
        ("a node more", of(1, [1, 1]), of(1, [0, 2]), true),
        ("other grades", of(2, [1, 1]), of(1, [1, 1]), true),
        ("nodes are counted", some(9, 0), of(1, [0, 0]), true),
    ];
    for (name, before, after, wanted) in cases {
        assert_eq!(after.may_fit_more_than(&before), wanted, "{name}");
    }
}

fn drawn() -> impl Draw<Value = Capacity> {
    let free = option::of(vec(option::of(-2..6_i64), 3));
    let nodes = option::of((1..3_i64, [0..3_i64, 0..3_i64]));
    (free, nodes).prop_map(|(free, nodes)| {
        let free = free.map(|free| {
            let each = RESOURCES.into_iter().zip(free);
            let each = each.filter_map(|(name, amount)| Some((name, amount?)));
            each.collect::<Vec<_>>()
        });
        with_room(free.as_deref(), nodes)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn what_may_not_fit_more_fits_nothing_more(
        before in drawn(), after in drawn(), request in option::of((0..3_i64, 0..3_i64)),
    ) {
        let request = request.map(|(cpu, memory)| amounts(&[("cpu", cpu), ("memory", memory)]));
        let demand = Demand { request, ..deployment(1, Rules::default()) };
        let mut estimator = capacity::Estimator::new(&demand);
        let (was, is) = (estimator.room(&before), estimator.room(&after));
        prop_assert!(is <= was || after.may_fit_more_than(&before));
    }
}
