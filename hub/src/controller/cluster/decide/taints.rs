//! The taints that a Cluster has by its condition Ready, and what others may do about these. Pure.

use super::super::observe::ClusterState;
use chrono::{DateTime, Utc};
use common::api::cluster::{Taint, TaintEffect};
use common::labels::{TAINT_NOT_READY, TAINT_UNREACHABLE};
use common::time::{from_time, to_time};
use std::time::Duration;

/// What was decided about failover, besides the taints.
pub(super) struct Failover {
    /// When to look again, while it is too early.
    pub(super) left: Option<Duration>,
    /// The key of the taint that the hub itself put on.
    pub(super) taint: Option<String>,
}

/// Whether a taint stays that another controller puts on a Cluster whose Ready has this status. What would be taken off
/// here must not be put on there, and the other way round: each would undo the other's word without end.
pub fn may_put_on(ready: Option<&str>, failover: bool, key: &str, effect: TaintEffect) -> bool {
    match effect {
        TaintEffect::NoSchedule => !is_by_ready(key),
        // It may come before its time.
        TaintEffect::NoExecute => !is_by_ready(key) || !failover || lost(ready) == Some(key),
        TaintEffect::PreferNoSchedule => true,
    }
}

/// Whether a taint stays away that another controller takes off a Cluster.
pub fn may_take_off(failover: bool, key: &str, effect: TaintEffect) -> bool {
    match effect {
        TaintEffect::NoSchedule => !is_by_ready(key),
        TaintEffect::NoExecute => !is_by_ready(key) || !failover,
        TaintEffect::PreferNoSchedule => true,
    }
}

/// Whether taints of a key come and go by Ready.
fn is_by_ready(key: &str) -> bool {
    [TAINT_NOT_READY, TAINT_UNREACHABLE].contains(&key)
}

/// The key of the taint by which a Cluster is left when its Ready has this status for long.
fn lost(ready: Option<&str>) -> Option<&'static str> {
    match ready {
        Some("Unknown") => Some(TAINT_UNREACHABLE),
        Some("False") => Some(TAINT_NOT_READY),
        _ => None,
    }
}

fn is(taint: &Taint, key: &str, effect: TaintEffect) -> bool {
    taint.key == key && taint.effect == effect
}

/// The taints a Cluster should have: the users' own as they are, NoExecute with the time it was added,
/// ours by Ready. A Cluster that takes no Works is not ready for them, whatever its agent says.
pub(super) fn by_ready(
    now: DateTime<Utc>,
    cluster: &ClusterState,
    terminating: bool,
) -> Vec<Taint> {
    let (wanted, unwanted): (Option<&str>, &[&str]) = match cluster.ready.as_deref() {
        Some("True") if terminating => (Some(TAINT_NOT_READY), &[TAINT_UNREACHABLE]),
        Some("True") => (None, &[TAINT_NOT_READY, TAINT_UNREACHABLE]),
        Some("Unknown") => (Some(TAINT_UNREACHABLE), &[TAINT_NOT_READY]),
        None | Some(_) => (Some(TAINT_NOT_READY), &[TAINT_UNREACHABLE]),
    };
    let ours = |taint: &Taint, key: &str| is(taint, key, TaintEffect::NoSchedule);
    let mut taints: Vec<Taint> = cluster
        .taints
        .iter()
        .filter(|taint| !unwanted.iter().any(|key| ours(taint, key)))
        .cloned()
        .collect();
    for taint in &mut taints {
        if taint.effect == TaintEffect::NoExecute && taint.time_added.is_none() {
            taint.time_added = Some(to_time(now));
        }
    }
    if let Some(key) = wanted
        && !taints.iter().any(|taint| ours(taint, key))
    {
        taints.push(Taint {
            key: key.to_owned(),
            value: None,
            effect: TaintEffect::NoSchedule,
            time_added: Some(to_time(now)),
        });
    }
    taints
}

/// A cluster that was heard and is not ready for long gets the taint that what is there leaves by, and loses it
/// when it is ready again: any such taint while failover is on, and its own when it was turned off since. How long is
/// measured from the hub's own taint, for what an agent says of time is data.
pub(super) fn failover(
    now: DateTime<Utc>,
    after: Option<Duration>,
    cluster: &ClusterState,
    taints: &mut Vec<Taint>,
) -> Failover {
    let lost = lost(cluster.ready.as_deref());
    let own = cluster.failover_taint.as_deref();
    taints.retain(|taint| {
        let key = taint.key.as_str();
        let is_kept_here = after.is_some() || own == Some(key);
        let by_ready = is_by_ready(key) && taint.effect == TaintEffect::NoExecute;
        !(by_ready && is_kept_here) || Some(key) == lost
    });
    let has = |key: &str| {
        let mut all = taints.iter();
        all.any(|taint| is(taint, key, TaintEffect::NoExecute))
    };
    let settled = |left| Failover {
        left,
        taint: own.filter(|key| has(key)).map(str::to_owned),
    };
    let (Some(after), Some(key)) = (after, lost) else {
        return settled(None);
    };
    if has(key) {
        return settled(None);
    }
    let since = taints
        .iter()
        .find(|taint| is(taint, key, TaintEffect::NoSchedule))
        .and_then(|taint| from_time(taint.time_added.as_ref()?));
    let Some(since) = since else {
        return settled(None);
    };
    let passed = (now - since).to_std().unwrap_or_default();
    let left = after.saturating_sub(passed);
    if !left.is_zero() {
        return settled(Some(left));
    }
    taints.push(Taint {
        key: key.to_owned(),
        value: None,
        effect: TaintEffect::NoExecute,
        time_added: Some(to_time(now)),
    });
    Failover {
        left: None,
        taint: Some(key.to_owned()),
    }
}
