//! Tables of taints by the condition Ready, and of failover.

use super::*;

#[test]
fn a_cluster_that_is_not_ready_for_long_is_left() {
    let of = |key: &str, effect, added| taint(key, effect, Some(added));
    let unreachable = |added| of(TAINT_UNREACHABLE, TaintEffect::NoSchedule, added);
    let not_ready = |added| of(TAINT_NOT_READY, TaintEffect::NoSchedule, added);
    let leave = |key: &str, added| of(key, TaintEffect::NoExecute, added);
    let users = || of("user", TaintEffect::NoExecute, -5);
    let options = Options {
        failover_after: Some(Duration::from_secs(60)),
        ..OPTIONS
    };
    let again = |seconds| Requeue::After(Duration::from_secs(seconds));
    let table = [
        (
            Some("Unknown"),
            vec![],
            Some(vec![unreachable(0)]),
            again(60),
        ),
        (Some("Unknown"), vec![unreachable(-50)], None, again(10)),
        (
            Some("Unknown"),
            vec![unreachable(-60)],
            Some(vec![unreachable(-60), leave(TAINT_UNREACHABLE, 0)]),
            Requeue::Never,
        ),
        (
            Some("Unknown"),
            vec![unreachable(-90), leave(TAINT_UNREACHABLE, -30)],
            None,
            Requeue::Never,
        ),
        (
            Some("False"),
            vec![not_ready(-60)],
            Some(vec![not_ready(-60), leave(TAINT_NOT_READY, 0)]),
            Requeue::Never,
        ),
        // It says something else now: the time begins anew.
        (
            Some("False"),
            vec![unreachable(-90), leave(TAINT_UNREACHABLE, -30)],
            Some(vec![not_ready(0)]),
            again(60),
        ),
        (
            Some("True"),
            vec![unreachable(-90), users(), leave(TAINT_UNREACHABLE, -30)],
            Some(vec![users()]),
            Requeue::Never,
        ),
        // One that never was ready is lost to nobody.
        (None, vec![not_ready(-90)], None, Requeue::Never),
        // A clock that went back.
        (Some("Unknown"), vec![unreachable(9)], None, again(60)),
    ];
    for (ready, before, after, requeue) in table {
        let mut observed = living(ready);
        observed.cluster.taints = before;
        let decision = decide(at(0), options, &observed);
        assert_eq!(decision.requeue, requeue, "{ready:?} {observed:?}");
        let changed = decision
            .effects
            .into_iter()
            .find_map(|effect| match effect {
                Effect::UpdateCluster(change) => change.taints,
                _ => None,
            });
        assert_eq!(changed, after, "{ready:?}");
    }
}

/// What failover put on a Cluster goes when that is ready again, also when failover was turned off meanwhile; what
/// others put on stays then.
#[test]
fn a_taint_of_failover_is_taken_off_by_who_put_it_on() {
    type Case = (
        Option<Duration>,
        &'static str,
        Vec<Taint>,
        Option<&'static str>,
        Option<Vec<Taint>>,
        Option<Option<String>>,
    );
    let seen = || taint(TAINT_UNREACHABLE, TaintEffect::NoSchedule, Some(-90));
    let leave = |added| taint(TAINT_UNREACHABLE, TaintEffect::NoExecute, Some(added));
    let (on, off) = (Some(Duration::from_secs(60)), None);
    let own = Some(TAINT_UNREACHABLE);
    let noted = || Some(Some(TAINT_UNREACHABLE.to_owned()));
    let cases: [Case; 9] = [
        // It is put on, and that is noted in the same write.
        (
            on,
            "Unknown",
            vec![seen()],
            None,
            Some(vec![seen(), leave(0)]),
            noted(),
        ),
        // Somebody else's is there before.
        (on, "Unknown", vec![seen(), leave(-5)], None, None, None),
        (on, "Unknown", vec![seen(), leave(-5)], own, None, None),
        (on, "True", vec![leave(-5)], own, Some(vec![]), Some(None)),
        (on, "True", vec![leave(-5)], None, Some(vec![]), None),
        // Turned off since.
        (off, "Unknown", vec![seen(), leave(-5)], own, None, None),
        (off, "True", vec![leave(-5)], own, Some(vec![]), Some(None)),
        (off, "True", vec![leave(-5)], None, None, None),
        // Somebody took it off: what is put on later is not the hub's.
        (off, "True", vec![], own, None, Some(None)),
    ];
    for (number, case) in cases.into_iter().enumerate() {
        let (failover_after, ready, before, own, taints, failover_taint) = case;
        let options = Options {
            failover_after,
            ..OPTIONS
        };
        let mut observed = living(Some(ready));
        observed.cluster.taints = before;
        observed.cluster.failover_taint = own.map(str::to_owned);
        let decision = decide(at(0), options, &observed);
        assert_eq!(check(&observed, &decision), Vec::<&str>::new());
        let mut changes = decision.effects.iter().map(|effect| match effect {
            Effect::UpdateCluster(change) => (change.taints.clone(), change.failover_taint.clone()),
            other => unreachable!("{other:?}"),
        });
        let change = changes.next().unwrap_or_default();
        assert_eq!(change, (taints, failover_taint), "case {number}");
    }
}

#[test]
fn taints_follow_ready() {
    let not_ready = || taint(TAINT_NOT_READY, TaintEffect::NoSchedule, Some(0));
    let unreachable = || taint(TAINT_UNREACHABLE, TaintEffect::NoSchedule, Some(0));
    let users = || taint(TAINT_UNREACHABLE, TaintEffect::NoExecute, Some(-5));
    let table = [
        (None, vec![], Some(vec![not_ready()])),
        (None, vec![unreachable()], Some(vec![not_ready()])),
        (Some("False"), vec![unreachable()], Some(vec![not_ready()])),
        (
            Some("Unknown"),
            vec![not_ready()],
            Some(vec![unreachable()]),
        ),
        (Some("True"), vec![not_ready(), unreachable()], Some(vec![])),
        (Some("True"), vec![users()], None),
        (
            Some("Unknown"),
            vec![users()],
            Some(vec![users(), unreachable()]),
        ),
        (Some("False"), vec![not_ready()], None),
        (
            Some("True"),
            vec![taint("a", TaintEffect::NoExecute, None)],
            Some(vec![taint("a", TaintEffect::NoExecute, Some(0))]),
        ),
    ];
    for (ready, before, after) in table {
        let mut observed = living(ready);
        observed.cluster.taints = before;
        assert_eq!(
            change(&observed).and_then(|change| change.taints),
            after,
            "{ready:?}"
        );
    }
}
