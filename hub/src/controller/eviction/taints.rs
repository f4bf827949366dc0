//! How long something may stay on a cluster with NoExecute taints, by what it tolerates. Pure.

use crate::scheduler::from_api;
use chrono::{DateTime, Duration, Utc};
use common::api::cluster::{Taint, TaintEffect};
use common::time::from_time;
use k8s_openapi::api::core::v1::Toleration;
use std::collections::BTreeSet;

/// How long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stay {
    /// As long as the taints and tolerations are what they are.
    ForEver,
    /// Until then.
    Until(DateTime<Utc>),
    /// No longer: a taint is not tolerated.
    No,
}

impl Stay {
    /// Whether it is over.
    pub fn is_over(self, now: DateTime<Utc>) -> bool {
        match self {
            Self::ForEver => false,
            Self::Until(end) => end < now,
            Self::No => true,
        }
    }
}

/// Whether a taint makes anything leave.
pub fn evicts(taint: &Taint) -> bool {
    taint.effect == TaintEffect::NoExecute
}

/// How long something with these tolerations may stay under these taints. For each taint the first toleration that
/// is about it counts; one that ends does so for every taint that it is about. A taint whose time is not known yet ends
/// nothing.
pub fn stay(tolerations: &[Toleration], taints: &[Taint]) -> Stay {
    let tolerations: Vec<_> = tolerations
        .iter()
        .filter_map(|it| Some((from_api::toleration(it)?, it.toleration_seconds)))
        .collect();
    let taints: Vec<_> = taints
        .iter()
        .filter(|it| evicts(it))
        .map(|it| (from_api::taint(it), it.time_added.as_ref()))
        .collect();
    let mut used = BTreeSet::new();
    for (taint, _) in &taints {
        let first = tolerations.iter().position(|(it, _)| it.tolerates(taint));
        let Some(first) = first else {
            return Stay::No;
        };
        used.insert(first);
    }
    let ends = used.into_iter().filter_map(|place| {
        let (toleration, seconds) = tolerations.get(place)?;
        let seconds = Duration::try_seconds((*seconds)?)?;
        let about = taints.iter().filter(|(it, _)| toleration.tolerates(it));
        let ends = about.filter_map(|(_, added)| from_time((*added)?)?.checked_add_signed(seconds));
        ends.min()
    });
    ends.min().map_or(Stay::ForEver, Stay::Until)
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::time::to_time;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_700_000_000 + seconds, 0).expect("in range")
    }

    fn taint(key: &str, effect: TaintEffect, added: Option<i64>) -> Taint {
        Taint {
            key: key.to_owned(),
            value: Some("1".to_owned()),
            effect,
            time_added: added.map(|it| to_time(at(it))),
        }
    }

    fn tolerations(all: &Value) -> Vec<Toleration> {
        serde_json::from_value(all.clone()).expect("tolerations")
    }

    #[test]
    fn the_first_toleration_of_each_taint_counts() {
        use TaintEffect::{NoExecute, NoSchedule};
        let exists = |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute"});
        let ends = |key: &str, seconds: i64| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds});
        let any = |seconds: Value| json!({"operator": "Exists", "tolerationSeconds": seconds});
        let x = || taint("x", NoExecute, Some(0));
        let y = || taint("y", NoExecute, Some(100));
        let cases = [
            (json!([]), vec![], Stay::ForEver),
            (
                json!([]),
                vec![taint("x", NoSchedule, Some(0))],
                Stay::ForEver,
            ),
            (json!([]), vec![x()], Stay::No),
            (json!([exists("y")]), vec![x()], Stay::No),
            (json!([exists("x")]), vec![x()], Stay::ForEver),
            (json!([exists("x")]), vec![x(), y()], Stay::No),
            (
                json!([{"key": "x", "value": "1", "effect": "NoExecute"}]),
                vec![x()],
                Stay::ForEver,
            ),
            (
                json!([{"key": "x", "value": "2", "effect": "NoExecute"}]),
                vec![x()],
                Stay::No,
            ),
            (
                json!([{"key": "x", "operator": "Exists", "effect": "NoSchedule"}]),
                vec![x()],
                Stay::No,
            ),
            (
                json!([{"key": "x", "operator": "Is", "effect": "NoExecute"}]),
                vec![x()],
                Stay::No,
            ),
            (json!([ends("x", 30)]), vec![x()], Stay::Until(at(30))),
            (json!([ends("x", 0)]), vec![x()], Stay::Until(at(0))),
            (
                json!([ends("x", 30)]),
                vec![taint("x", NoExecute, None)],
                Stay::ForEver,
            ),
            // Thirty seconds for the one, for ever for the other.
            (
                json!([ends("x", 30), exists("y")]),
                vec![x(), y()],
                Stay::Until(at(30)),
            ),
            (
                json!([exists("x"), ends("x", 30)]),
                vec![x()],
                Stay::ForEver,
            ),
            // One that is used for y ends for x too, though x is tolerated for ever by an earlier one.
            (
                json!([exists("x"), any(json!(5))]),
                vec![x(), y()],
                Stay::Until(at(5)),
            ),
            (
                json!([any(json!(null)), ends("x", 30)]),
                vec![x(), y()],
                Stay::ForEver,
            ),
            (json!([any(json!(i64::MAX))]), vec![x()], Stay::ForEver),
        ];
        for (given, taints, want) in cases {
            let found = stay(&tolerations(&given), &taints);
            assert_eq!(found, want, "{given} {taints:?}");
        }
    }

    #[test]
    fn what_ends_is_over_strictly_after() {
        assert!(!Stay::Until(at(0)).is_over(at(0)));
        assert!(Stay::Until(at(0)).is_over(at(1)));
        assert!(Stay::No.is_over(at(0)));
        assert!(!Stay::ForEver.is_over(at(0)));
    }

    proptest! {
        /// Another taint never lets anything stay longer.
        #[test]
        fn taints_only_shorten(
            all in proptest::collection::vec((0_usize..3, 0_i64..50), 0..5),
            given in proptest::collection::vec((0_usize..3, proptest::option::of(0_i64..50)), 0..4),
        ) {
            let key = |place: usize| ["x", "y", "z"].get(place).copied().unwrap_or_default();
            let given: Vec<Value> = given.into_iter().map(|(place, seconds)| {
                json!({"key": key(place), "operator": "Exists", "tolerationSeconds": seconds})
            }).collect();
            let given = tolerations(&json!(given));
            let all: Vec<Taint> = all
                .into_iter()
                .map(|(place, added)| taint(key(place), TaintEffect::NoExecute, Some(added)))
                .collect();
            let order = |it: Stay| match it {
                Stay::No => (0, at(0)),
                Stay::Until(end) => (1, end),
                Stay::ForEver => (2, at(0)),
            };
            let mut last = Stay::ForEver;
            for taints in 0..=all.len() {
                let now = stay(&given, all.get(..taints).unwrap_or_default());
                prop_assert!(order(now) <= order(last), "{now:?} after {last:?}");
                last = now;
            }
        }
    }
}
