//! Steps that are looked at of one cluster, each a finding.

use super::CERTIFICATE;
use super::read::{Renewed, Works};
use crate::apiserver::table::age;
use crate::cli::check::Finding;
use crate::cli::check::rights::HIDDEN;
use crate::commands;
use crate::controller::registration::condition::is_gone;
use chrono::{DateTime, Utc};
use common::api::cluster::{
    AgentInfo, Cluster, DUPLICATE_ID, QUARANTINED, READY, RESTORED, SyncMode, WROTE_TOO_MUCH,
};
use common::names::EXECUTION_PREFIX;
use common::time::from_time;
use common::unregister::Mode;

/// An agent that renews every 10 s is late after this many seconds.
const LEASE_LATE: i64 = 40;
/// A certificate renewed at a third of its life is late when so little is left.
const CERTIFICATE_LATE_DAYS: i64 = 7;

/// Whether Works can be written for it.
pub(super) fn works(cluster: &Cluster, works: Works) -> Finding {
    const STEP: &str = "Works";
    let name = cluster.metadata.name.as_deref().unwrap_or_default();
    let namespace = format!("{EXECUTION_PREFIX}{name}");
    match works {
        Works::Active => Finding::right(STEP, format!("namespace {namespace}")),
        Works::Unseen => Finding::right(STEP, HIDDEN),
        Works::Missing => Finding::wrong(
            STEP,
            format!("there is no namespace {namespace}"),
            "See that the hub's controllers run: they make it.",
        ),
        Works::Terminating => Finding::wrong(
            STEP,
            format!("namespace {namespace} is Terminating: no Work can be written"),
            "Somebody deleted it: see by `kubectl get works -n NAMESPACE` what it waits for; the hub \
             makes it anew when it is gone.",
        ),
    }
}

pub(super) fn agent(cluster: &Cluster) -> Option<&AgentInfo> {
    cluster.status.as_ref()?.agent.as_ref()
}

/// What Works left behind without having been deleted.
pub(super) fn orphans(cluster: &Cluster) -> Finding {
    const STEP: &str = "orphans";
    let name = cluster.metadata.name.as_deref().unwrap_or_default();
    match agent(cluster).and_then(|agent| agent.orphans.as_ref()) {
        None => Finding::right(STEP, "not reported"),
        Some(report) if report.count == 0 => Finding::right(STEP, "none"),
        Some(report) => Finding::wrong(
            STEP,
            format!("{} objects in the member have no Work", report.count),
            format!(
                "List them by `towline orphans {name}`, and settle them by --adopt or --delete."
            ),
        ),
    }
}

/// The owner's choice, and no error; but whoever looks after the fleet should know it.
pub(super) fn allowed(cluster: &Cluster) -> Finding {
    const STEP: &str = "reserved namespaces";
    let allowed = agent(cluster).map_or(&[][..], |agent| &agent.allowed_namespaces);
    match allowed {
        [] => Finding::right(STEP, "none allowed"),
        names => Finding::right(STEP, format!("allowed to Works: {}", names.join(", "))),
    }
}

pub(super) fn opened(cluster: &Cluster) -> Option<&str> {
    agent(cluster)?.proxy.as_deref()
}

/// What users of the hub may reach of it.
pub(super) fn access(cluster: &Cluster) -> Finding {
    const STEP: &str = "access";
    match opened(cluster) {
        None => Finding::right(STEP, "off"),
        Some(mode) => Finding::right(STEP, format!("opened: {mode}")),
    }
}

pub(super) fn registration(cluster: &Cluster, now: DateTime<Utc>) -> Finding {
    const STEP: &str = "registration";
    if cluster.metadata.deletion_timestamp.is_some() {
        let name = cluster.metadata.name.as_deref().unwrap_or_default();
        let force = commands::leave(name, cluster.spec.sync_mode, Mode::Force);
        let hint = format!("Wait, or run `{force}` if the member is gone.");
        return Finding::wrong(STEP, "it is being unregistered", hint);
    }
    for type_ in [QUARANTINED, DUPLICATE_ID] {
        let found = cluster.condition(type_).filter(|c| c.status == "True");
        // Nobody takes back that somebody asked for the id.
        let is_over = |since| type_ == DUPLICATE_ID && is_gone(since, now);
        if let Some(found) = found.filter(|c| !is_over(&c.last_transition_time)) {
            let hint = match (type_, found.reason.as_str()) {
                (QUARANTINED, RESTORED) => {
                    "It comes from a backup: if it was not removed since, lift the quarantine."
                }
                (QUARANTINED, WROTE_TOO_MUCH) => {
                    "Find out why the agent writes so much, then lift the quarantine."
                }
                (QUARANTINED, _) => "Somebody set the quarantine: ask why, then lift it.",
                _ => "Another member was refused for having this one's id: is it a copy?",
            };
            return Finding::wrong(STEP, format!("{type_}: {}", found.message), hint);
        }
    }
    Finding::right(STEP, "in force")
}

pub(super) fn lease(cluster: &Cluster, renewed: Renewed, now: DateTime<Utc>) -> Finding {
    const STEP: &str = "lease";
    let hint = match cluster.spec.sync_mode {
        SyncMode::Pull => {
            "Look at the agent: `kubectl -n towline-system logs deploy/towline-agent` \
             in the member, and `towline check --server HUB` from there."
        }
        SyncMode::Push => {
            "Its agent runs beside the hub: see that `towline-agent push` runs there, and what it logs of \
             this cluster."
        }
    };
    let renewed = match renewed {
        Renewed::At(renewed) => renewed,
        Renewed::Never => return Finding::wrong(STEP, "the agent never renewed it", hint),
        Renewed::Unreadable => {
            return Finding::wrong(STEP, "the time in it cannot be read", hint);
        }
        Renewed::Unseen => return Finding::right(STEP, HIDDEN),
    };
    let age = (now - renewed).num_seconds();
    if age.abs() > LEASE_LATE {
        let apart = age::shown(age.abs().saturating_mul(1000));
        let what = match age > 0 {
            true => format!("by its own time it was renewed {apart} ago"),
            false => format!("by its own time it is renewed in {apart}: its clock is another"),
        };
        return Finding::wrong(STEP, what, hint);
    }
    Finding::right(STEP, format!("{}s old", age.max(0)))
}

pub(super) fn ready(cluster: &Cluster) -> Finding {
    const STEP: &str = "Ready";
    match cluster.condition(READY) {
        Some(ready) if ready.status == "True" => Finding::right(STEP, "True"),
        Some(ready) => Finding::wrong(
            STEP,
            format!(
                "{} since {}: {}: {}",
                ready.status, ready.last_transition_time.0, ready.reason, ready.message
            ),
            "See what the agent says of the member's API server, `/readyz?verbose` there.",
        ),
        None => Finding::wrong(
            STEP,
            "the agent reported nothing yet",
            "Look at the agent's log.",
        ),
    }
}

pub(super) fn certificate_ends(cluster: &Cluster) -> Option<DateTime<Utc>> {
    from_time(agent(cluster)?.certificate_expiration_time.as_ref()?)
}

pub(super) fn certificate(cluster: &Cluster, now: DateTime<Utc>) -> Finding {
    const STEP: &str = CERTIFICATE;
    let Some(ends) = certificate_ends(cluster) else {
        return Finding::right(STEP, "not reported");
    };
    let days = (ends - now).num_days();
    if ends <= now {
        let name = cluster.metadata.name.as_deref().unwrap_or_default();
        let what = match cluster.spec.sync_mode {
            SyncMode::Pull => "Bring it back with a new token",
            SyncMode::Push => "Join it again",
        };
        let again = commands::register_again(name, cluster.spec.sync_mode);
        let hint = format!("{what}: `{again}`.");
        return Finding::wrong(STEP, format!("it expired {ends}"), hint);
    }
    // Short-lived ones are renewed in time as long as the agent reports no error.
    let started = cluster
        .metadata
        .creation_timestamp
        .as_ref()
        .and_then(from_time);
    let old = started.is_some_and(|at| (now - at).num_days() > CERTIFICATE_LATE_DAYS);
    if days < CERTIFICATE_LATE_DAYS && old {
        let what = format!("only {days} days left and not renewed");
        return Finding::wrong(STEP, what, "Look at the agent's log for what keeps it.");
    }
    Finding::right(STEP, format!("good until {ends}"))
}

pub(super) fn last_error(cluster: &Cluster) -> Finding {
    const STEP: &str = "agent";
    let agent = agent(cluster);
    let version = agent
        .and_then(|agent| agent.version.as_deref())
        .unwrap_or("not reported");
    match agent.and_then(|agent| agent.last_error.as_deref()) {
        Some(error) if !error.is_empty() => Finding::wrong(
            STEP,
            error,
            "The agent says this itself; correct it in the member.",
        ),
        _ => Finding::right(STEP, format!("version {version}")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{at, healthy};
    use super::*;
    use common::api::cluster::OrphanReport;
    use common::conditions;
    use common::time::to_time;

    #[test]
    fn a_lease_that_may_not_be_read_is_no_silent_agent() {
        for (renewed, want) in [
            (Renewed::Unseen, Ok(HIDDEN)),
            (Renewed::Never, Err("the agent never")),
            (Renewed::Unreadable, Err("the time in it")),
            (Renewed::At(at(95)), Ok("5s old")),
            (Renewed::At(at(10)), Err("by its own time")),
        ] {
            let seen = lease(&healthy(), renewed, at(100)).seen;
            match (&seen, want) {
                (Ok(seen), Ok(want)) => assert_eq!(seen, want),
                (Err(wrong), Err(want)) => assert!(wrong.what.starts_with(want), "{wrong:?}"),
                _ => panic!("{renewed:?}: {seen:?}"),
            }
        }
    }

    #[test]
    fn one_that_was_joined_is_brought_back_by_joining_it_and_leaves_by_unjoin() {
        let mut cluster = healthy();
        cluster.metadata.deletion_timestamp = Some(to_time(at(0)));
        let agent = cluster.status.as_mut().expect("there").agent.as_mut();
        agent.expect("there").certificate_expiration_time = Some(to_time(at(50)));
        for (mode, command, force) in [
            (
                SyncMode::Pull,
                "towline token create --cluster m1 --replace",
                "towline unregister m1 --force",
            ),
            (
                SyncMode::Push,
                "towline join m1 --cluster-kubeconfig FILE",
                "towline unjoin m1 --force",
            ),
        ] {
            cluster.spec.sync_mode = mode;
            let wrong = registration(&cluster, at(100))
                .seen
                .expect_err("it is deleted");
            assert!(wrong.hint.contains(&format!("`{force}`")), "{wrong:?}");
            let wrong = certificate(&cluster, at(100)).seen.expect_err("it ended");
            assert!(wrong.hint.contains(&format!("`{command}`")), "{wrong:?}");
        }
    }

    #[test]
    fn an_id_that_was_asked_for_is_a_fault_while_it_can_be_seen_by_whom() {
        for (type_, late) in [(DUPLICATE_ID, true), (QUARANTINED, false)] {
            let mut cluster = healthy();
            let status = cluster.status.as_mut().expect("there");
            let shown = conditions::new(type_, true, "R", "m", at(0));
            conditions::set(&mut status.conditions, shown, at(0));
            assert!(registration(&cluster, at(3599)).seen.is_err(), "{type_}");
            let seen = registration(&cluster, at(3600)).seen;
            assert_eq!(seen.is_ok(), late, "{type_}");
        }
    }

    #[test]
    fn where_works_lie_is_looked_at() {
        for (state, want) in [
            (Works::Active, None),
            (Works::Unseen, None),
            (
                Works::Terminating,
                Some("namespace karmada-es-m1 is Terminating"),
            ),
            (Works::Missing, Some("there is no namespace karmada-es-m1")),
        ] {
            let wrong = works(&healthy(), state).seen.err().map(|wrong| wrong.what);
            match want {
                None => assert_eq!(wrong, None, "{state:?}"),
                Some(want) => assert!(wrong.is_some_and(|w| w.starts_with(want)), "{state:?}"),
            }
        }
    }

    #[test]
    fn what_a_member_holds_beyond_its_works_is_told() {
        let mut cluster = healthy();
        let shown = |cluster: &Cluster| (orphans(cluster).seen, allowed(cluster).seen);
        let (left, open) = shown(&cluster);
        assert_eq!(left, Ok("not reported".into()));
        assert_eq!(open, Ok("none allowed".into()));
        let status = cluster.status.as_mut().expect("there");
        let agent = status.agent.as_mut().expect("there");
        agent.allowed_namespaces = vec!["kube-public".into(), "kube-system".into()];
        agent.orphans = Some(OrphanReport {
            count: 3,
            objects: Vec::new(),
        });
        let (left, open) = shown(&cluster);
        let left = left.expect_err("three are left");
        assert!(left.what.starts_with("3 objects"), "{left:?}");
        assert!(left.hint.contains("`towline orphans m1`"), "{left:?}");
        assert_eq!(
            open,
            Ok("allowed to Works: kube-public, kube-system".into())
        );
        assert_eq!(access(&cluster).seen, Ok("off".into()));
        let status = cluster.status.as_mut().expect("there");
        status.agent.as_mut().expect("there").proxy = Some("read-only".into());
        assert_eq!(access(&cluster).seen, Ok("opened: read-only".into()));
    }
}
