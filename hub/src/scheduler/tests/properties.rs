//! What holds for every fleet and every demand.

use super::Strategy;
use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::Strategy as Draw;

/// One cluster: room, how many are there already, region, and what is wrong with it.
type Drawn = (i64, i64, u8, Wrong);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wrong {
    Nothing,
    Tainted,
    NoApi,
    NotMeant,
    Leaving,
    Evicted,
}

fn drawn() -> impl Draw<Value = Drawn> {
    let wrong = prop_oneof![
        6 => Just(Wrong::Nothing),
        1 => Just(Wrong::Tainted),
        1 => Just(Wrong::NoApi),
        1 => Just(Wrong::NotMeant),
        1 => Just(Wrong::Leaving),
        1 => Just(Wrong::Evicted),
    ];
    let here = prop_oneof![3 => Just(0_i64), 1 => 1..30_i64];
    (0..40_i64, here, 0..4_u8, wrong)
}

fn strategy() -> impl Draw<Value = Strategy> {
    let weights = vec(0..5_i64, 12).prop_map(|weights| {
        let named = weights
            .iter()
            .enumerate()
            .filter(|(_, weight)| **weight > 0);
        Strategy::Static(Weights {
            by_name: named.map(|(n, weight)| (name(n).into(), *weight)).collect(),
            others: Vec::new(),
        })
    });
    prop_oneof![
        Just(Strategy::Duplicated),
        weights,
        Just(Strategy::Dynamic),
        Just(Strategy::Aggregated),
    ]
}

fn spread() -> impl Draw<Value = Spread> {
    let bounds = || {
        (1..4_usize, 0..4_usize).prop_map(|(least, more)| Bounds {
            least,
            most: least + more,
        })
    };
    prop_oneof![
        2 => Just(Spread::All),
        1 => bounds().prop_map(Spread::Clusters),
        1 => (bounds(), bounds()).prop_map(|(regions, clusters)| Spread::Regions { regions, clusters }),
    ]
}

fn name(n: usize) -> String {
    format!("c{n:02}")
}

fn built(fleet: &[Drawn]) -> Vec<Cluster> {
    let each = fleet
        .iter()
        .enumerate()
        .map(|(n, (room, _, region, wrong))| Cluster {
            leaving: *wrong == Wrong::Leaving,
            ..with(cluster(&name(n), *room), |shape| {
                shape.region = Some(format!("r{region}").into());
                if *wrong == Wrong::NoApi {
                    shape.apis = Arc::default();
                }
                if *wrong == Wrong::Tainted {
                    shape.taints = vec![Taint {
                        key: "k".into(),
                        value: "".into(),
                        effect: Effect::NoExecute,
                    }];
                }
            })
        });
    each.collect()
}

fn case(
    fleet: &[Drawn],
    replicas: i64,
    strategy: Strategy,
    spread: Spread,
    uid: &str,
) -> (Demand, Previous) {
    let of = |wanted: Wrong| {
        let each = fleet
            .iter()
            .enumerate()
            .filter(move |(_, drawn)| drawn.3 == wanted);
        each.map(|(n, _)| Arc::from(name(n))).collect()
    };
    let rules = Rules {
        affinity: Affinity {
            exclude: of(Wrong::NotMeant),
            ..Affinity::default()
        },
        strategy,
        spread,
        ..Rules::default()
    };
    let demand = Demand {
        uid: uid.into(),
        evicted: of(Wrong::Evicted),
        ..deployment(replicas, rules)
    };
    let here = fleet.iter().enumerate().filter(|(_, drawn)| drawn.1 > 0);
    let targets = here.map(|(n, drawn)| target(&name(n), drawn.1));
    (demand, previous(targets.collect()))
}

/// Whether a filter allows a cluster; where it is already, taints and missing APIs keep nobody away.
fn allows(drawn: &Drawn) -> bool {
    match drawn.3 {
        Wrong::Nothing => true,
        Wrong::Tainted | Wrong::NoApi => drawn.1 > 0,
        Wrong::NotMeant | Wrong::Leaving | Wrong::Evicted => false,
    }
}

/// With what stays by name.
fn by_name(mut result: Result<Placement, Unplaceable>) -> Result<Placement, Unplaceable> {
    if let Err(why) = &mut result {
        why.kept.sort();
    }
    result
}

fn drawn_of<'a>(fleet: &'a [Drawn], target: &Target) -> &'a Drawn {
    let n: usize = target.cluster[1..].parse().expect("a number");
    &fleet[n]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn sums_are_exact_and_no_refused_cluster_gets_anything(
        fleet in vec(drawn(), 0..12), replicas in 1..120_i64, strategy in strategy(), spread in spread(),
        uid in "[a-z]{0,3}", fresh: bool,
    ) {
        let duplicated = strategy == Strategy::Duplicated;
        let (demand, previous) = case(&fleet, replicas, strategy, spread, &uid);
        let previous = Previous { fresh, ..previous };
        let snapshot = snapshot(built(&fleet));
        match schedule(&snapshot, &demand, Some(&previous)) {
            Ok(placement) => {
                let sum: i64 = placement.targets.iter().map(|target| target.replicas).sum();
                let copies = if duplicated { i64::try_from(placement.targets.len()).expect("few") } else { 1 };
                prop_assert_eq!(sum, replicas * copies);
                for target in &placement.targets {
                    prop_assert!(target.replicas > 0);
                    prop_assert!(allows(drawn_of(&fleet, target)), "{:?}", target);
                }
            }
            Err(why) => {
                let stays = |target: &&Target| {
                    !matches!(drawn_of(&fleet, target).3, Wrong::Leaving | Wrong::Evicted)
                };
                let stays: Vec<Target> = previous.targets.iter().filter(stays).cloned().collect();
                prop_assert_eq!(&why.kept, &stays);
                let taken: usize = why.first.refused.taken.values().map(|taken| taken.clusters).sum();
                let refused = fleet.iter().filter(|drawn| !allows(drawn) && drawn.3 != Wrong::Leaving);
                prop_assert_eq!(taken, refused.count());
            }
        }
    }

    #[test]
    fn the_order_of_input_does_not_matter_and_a_second_look_moves_nothing(
        fleet in vec(drawn(), 1..12), replicas in 1..120_i64, strategy in strategy(), spread in spread(),
        uid in "[a-z]{0,3}", turn in 0..12_usize,
    ) {
        let capacity_moves = !matches!(spread, Spread::All);
        // Of equals it leaves those that are named last.
        let by_order = strategy == Strategy::Aggregated;
        let (demand, before) = case(&fleet, replicas, strategy, spread, &uid);
        let mut clusters = built(&fleet);
        let first = schedule(&snapshot(clusters.clone()), &demand, Some(&before));
        let by = turn % clusters.len();
        clusters.rotate_left(by);
        clusters.reverse();
        let mut turned = before.clone();
        if !by_order {
            turned.targets.reverse();
        }
        let again = schedule(&snapshot(clusters.clone()), &demand, Some(&turned));
        prop_assert_eq!(by_name(first.clone()), by_name(again));
        if let (Ok(placement), false) = (first, capacity_moves) {
            let second = schedule(&snapshot(clusters), &demand, Some(&previous(placement.targets.clone())));
            prop_assert!(!second.expect("placed").differs(&placement.targets));
        }
    }

    #[test]
    fn more_replicas_leave_those_that_are_there_and_fewer_add_none(
        fleet in vec(drawn(), 1..12), replicas in 1..200_i64, aggregated: bool, uid in "[a-z]{0,3}",
    ) {
        let strategy = if aggregated { Strategy::Aggregated } else { Strategy::Dynamic };
        let (demand, before) = case(&fleet, replicas, strategy, Spread::All, &uid);
        let here = before.targets.iter().filter(|target| allows(drawn_of(&fleet, target)));
        let here: Vec<&Target> = here.collect();
        let sum: i64 = here.iter().map(|target| target.replicas).sum();
        if let Ok(placement) = schedule(&snapshot(built(&fleet)), &demand, Some(&before)) {
            let now = |cluster: &str| {
                let found = placement.targets.iter().find(|target| &*target.cluster == cluster);
                found.map_or(0, |target| target.replicas)
            };
            for target in &here {
                if sum <= replicas {
                    prop_assert!(now(&target.cluster) >= target.replicas);
                } else {
                    prop_assert!(now(&target.cluster) <= target.replicas);
                }
            }
            if sum >= replicas {
                prop_assert!(placement.targets.iter().all(|t| here.iter().any(|h| h.cluster == t.cluster)));
            }
            for target in &placement.targets {
                let (room, placed, ..) = drawn_of(&fleet, target);
                prop_assert!(target.replicas <= room + placed);
            }
        }
    }

    /// What waits for room is not looked at again for a cluster that has less of it.
    #[test]
    fn what_did_not_fit_does_not_fit_into_less(
        fleet in vec(drawn(), 1..12), less in vec(0..40_i64, 12), replicas in 1..200_i64, strategy in strategy(),
        spread in spread(), uid in "[a-z]{0,3}", fresh: bool,
    ) {
        let (demand, previous) = case(&fleet, replicas, strategy, spread, &uid);
        let previous = Previous { fresh, ..previous };
        let smaller = fleet.iter().zip(&less).map(|((room, here, region, wrong), less)| {
            (*room.min(less), *here, *region, *wrong)
        });
        let smaller: Vec<Drawn> = smaller.collect();
        let fits = |fleet: &[Drawn]| schedule(&snapshot(built(fleet)), &demand, Some(&previous)).is_ok();
        if !demand.rules.may_fit_into_less(0) {
            prop_assert!(fits(&fleet) || !fits(&smaller));
        }
    }

    /// Seat by seat, as the rule says, is what counting does at once.
    #[test]
    fn seats_are_those_of_giving_them_one_by_one(
        votes in vec(prop_oneof![0..6_i64, 0..1000_i64], 1..9), seats in 0..300_i64, turned: bool,
    ) {
        use apportion::{Party, Ties, apportion};
        let parties: Vec<Party> = votes.iter().enumerate().map(|(rank, votes)| Party { rank, votes: *votes }).collect();
        let ties = if turned { Ties::AgainstName } else { Ties::ByName };
        let mut slowly = vec![0_i64; votes.len()];
        let silent = votes.iter().all(|votes| *votes == 0);
        for _ in 0..seats {
            let next = (0..votes.len()).filter(|n| silent || votes[*n] > 0).min_by(|one, other| {
                let (a, b) = (if silent { 1 } else { votes[*one] }, if silent { 1 } else { votes[*other] });
                let (s, t) = (slowly[*one], slowly[*other]);
                let names = if turned { other.cmp(one) } else { one.cmp(other) };
                (b * (2 * s + 1)).cmp(&(a * (2 * t + 1))).then(s.cmp(&t)).then(names)
            });
            slowly[next.expect("somebody")] += 1;
        }
        prop_assert_eq!(apportion(seats, &parties, ties), slowly);
    }

    /// However many there are: no seat is lost, and giving one more from there is what the rule says.
    #[test]
    fn very_many_seats_cost_no_more(
        votes in vec(0..i64::from(i32::MAX), 1..9), seats in 1_000_000_000..i64::from(i32::MAX), turned: bool,
    ) {
        use apportion::{Party, Ties, apportion};
        let parties = votes.iter().enumerate().map(|(rank, votes)| Party { rank, votes: *votes });
        let parties: Vec<Party> = parties.collect();
        let ties = if turned { Ties::AgainstName } else { Ties::ByName };
        let given = apportion(seats, &parties, ties);
        prop_assert_eq!(given.iter().sum::<i64>(), seats);
        let more = apportion(seats + 1, &parties, ties);
        let grown = given.iter().zip(&more).filter(|(before, after)| before != after);
        prop_assert_eq!(grown.count(), 1);
    }

    /// Walking every path, as the rule says, finds what counting finds.
    #[test]
    fn regions_are_those_of_trying_every_choice(
        sizes in vec((1..4_usize, 0..4_i64), 1..7), least in 1..4_usize, more in 0..4_usize, clusters in 0..9_usize,
    ) {
        let (mut names, mut text) = (Vec::new(), Vec::new());
        for (region, (size, fit)) in sizes.iter().enumerate() {
            let fit = usize::try_from(*fit).expect("small").min(*size);
            for n in 0..*size {
                let name = format!("{}{n}", char::from(b'a' + u8::try_from(region).expect("few")));
                let room = if n < fit { 5 } else { 1 };
                let shaped = with(cluster(&name, room), |shape| shape.region = Some(format!("r{region}").into()));
                text.push(shaped);
            }
            names.push((*size, if fit == 0 { 0 } else { 1000 * fit }, region));
        }
        names.sort_by_key(|(size, weight, region)| (*size, std::cmp::Reverse(*weight), *region));
        let most = least + more;
        let mut paths: Vec<Vec<usize>> = Vec::new();
        walk(&names, (least, most, clusters), 0, &mut Vec::new(), &mut paths);
        let sum = |path: &[usize]| path.iter().map(|n| names[*n].1).sum::<usize>();
        let size = |path: &[usize]| path.iter().map(|n| names[*n].0).sum::<usize>();
        paths.sort_by_key(|path| std::cmp::Reverse((sum(path), size(path))));
        for path in &mut paths {
            path.sort_by_key(|n| (std::cmp::Reverse(names[*n].1), names[*n].2));
        }
        let mut best: Option<&Vec<usize>> = paths.first();
        for path in &paths {
            best = best.map(|best| if path.len() < best.len() && best.starts_with(path) { path } else { best });
        }
        let wanted: Option<BTreeSet<String>> = best.map(|best| best.iter().map(|n| format!("r{}", names[*n].2)).collect());
        let spread = Spread::Regions {
            regions: Bounds { least, most },
            clusters: Bounds { least: clusters, most: 100 },
        };
        let rules = Rules { spread, ..Rules::default() };
        let fleet = snapshot(text);
        let result = schedule(&fleet, &deployment(3, rules), None);
        let regions = result.ok().map(|placement| {
            let each = placement.targets.iter().filter_map(|t| fleet.get(&t.cluster)?.shape.region.clone());
            each.map(|region| region.to_string()).collect::<BTreeSet<String>>()
        });
        prop_assert_eq!(regions, wanted);
    }
}

fn walk(
    regions: &[(usize, usize, usize)],
    wanted: (usize, usize, usize),
    from: usize,
    path: &mut Vec<usize>,
    found: &mut Vec<Vec<usize>>,
) {
    let (least, most, clusters) = wanted;
    let sum: usize = path.iter().map(|n| regions[*n].0).sum();
    if path.len() >= least && path.len() <= most && sum >= clusters {
        found.push(path.clone());
        return;
    }
    if path.len() == most {
        return;
    }
    for next in from..regions.len() {
        path.push(next);
        walk(regions, wanted, next + 1, path, found);
        path.pop();
    }
}
