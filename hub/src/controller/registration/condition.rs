//! One condition of a Cluster that the hub writes beside those of its agent.
//!
//! The list is the agent's and other controllers' too, so it is kept as it is, value by value, and
//! written back only over the version that was read.

use super::Error;
use super::observe::clusters;
use crate::approver::Denial;
use chrono::{DateTime, Utc};
use common::api::cluster::{
    DUPLICATE_ID, EXECUTION_SPACE_TERMINATING, QUARANTINED, READY, UNREGISTERING,
};
use common::api::schema::CONDITIONS_MAX;
use common::labels::HUB_FIELD_MANAGER;
use common::names::ClusterName;
use common::time::{from_time, to_time};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use serde::Deserialize as _;
use serde_json::{Value, json};

/// An agent writes its status every few seconds at most; five misses in a row are a fault.
const CONFLICT_RETRIES: usize = 5;

/// For how long API servers keep a request that was denied, in seconds: what the message names is there as long.
const DENIED_KEPT: i64 = 3600;

/// What is said of a cluster id that another asked for.
const DUPLICATE_MESSAGE: &str = "another agent asked to be registered with the cluster ID of this cluster \
     and was refused; which one, the denied CertificateSigningRequests tell: kubectl get csr";

/// A condition to be shown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shown<'a> {
    /// Type.
    pub(crate) type_: &'a str,
    /// Status.
    pub(crate) status: bool,
    /// Reason.
    pub(crate) reason: &'a str,
    /// Message.
    pub(crate) message: &'a str,
}

/// Tells the Cluster that rightfully has a cluster id that another asked for it and was refused.
///
/// Nothing in it is the other's choice, so it is written once an hour, however often and under whatever names
/// somebody asks: who it was is in the requests that were denied, as long as these are there.
pub(super) async fn show_duplicate(
    client: &Client,
    now: DateTime<Utc>,
    holder: &ClusterName,
    denial: &Denial,
) -> Result<(), Error> {
    show(client, now, holder, duplicate(denial)).await
}

fn duplicate(denial: &Denial) -> Shown<'static> {
    Shown {
        type_: DUPLICATE_ID,
        status: true,
        reason: denial.reason.as_str(),
        message: DUPLICATE_MESSAGE,
    }
}

/// Sets a condition; a Cluster that is gone has none.
pub(crate) async fn show(
    client: &Client,
    now: DateTime<Utc>,
    cluster: &ClusterName,
    shown: Shown<'_>,
) -> Result<(), Error> {
    let name = cluster.as_str();
    let api = clusters(client);
    let mut tries = CONFLICT_RETRIES;
    loop {
        let read = api.get_opt(name).await;
        let Some(object) = read.map_err(Error::request("read Cluster", name))? else {
            return Ok(());
        };
        let Some(list) = with(&object.data["status"]["conditions"], now, shown) else {
            return Ok(());
        };
        let patch = json!({
            "metadata": {"resourceVersion": object.resource_version()},
            "status": {"conditions": list},
        });
        let params = PatchParams {
            field_manager: Some(HUB_FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patched = api.patch_status(name, &params, &Patch::Merge(patch)).await;
        tries -= 1;
        match patched {
            Err(kube::Error::Api(status)) if status.is_conflict() && tries > 0 => {}
            other => {
                return other
                    .map(drop)
                    .map_err(Error::request("show a condition of Cluster", name));
            }
        }
    }
}

/// The list with the condition in it; `None` when it is there already.
fn with(conditions: &Value, now: DateTime<Utc>, shown: Shown<'_>) -> Option<Vec<Value>> {
    let mut list = conditions.as_array().cloned().unwrap_or_default();
    let status = if shown.status { "True" } else { "False" };
    let mut condition = json!({
        "type": shown.type_, "status": status, "reason": shown.reason, "message": shown.message,
        "lastTransitionTime": to_time(now),
    });
    let Some(current) = list.iter_mut().find(|c| c["type"] == shown.type_) else {
        // What was never there need not be denied.
        if !shown.status {
            return None;
        }
        list.push(condition);
        make_room(&mut list);
        return Some(list);
    };
    let since = &current["lastTransitionTime"];
    let is_over = || {
        let since = Time::deserialize(since).ok();
        shown.type_ == DUPLICATE_ID && since.is_none_or(|since| is_gone(&since, now))
    };
    if current["status"] == status && !is_over() {
        condition["lastTransitionTime"] = since.clone();
    }
    let same = ["status", "reason", "message", "lastTransitionTime"]
        .iter()
        .all(|key| current[key] == condition[key]);
    if same {
        return None;
    }
    *current = condition;
    make_room(&mut list);
    Some(list)
}

/// Whether a request that was denied then is gone: nothing shows by then who asked for an id.
pub(crate) fn is_gone(denied: &Time, now: DateTime<Utc>) -> bool {
    from_time(denied).is_none_or(|denied| (now - denied).num_seconds() >= DENIED_KEPT)
}

/// Takes conditions that the hub makes nothing of from the end of a list that is longer than the API server takes: an
/// agent that fills it up must not keep the hub from saying what it has to.
pub(crate) fn make_room(list: &mut Vec<Value>) {
    const KNOWN: [&str; 5] = [
        READY,
        QUARANTINED,
        DUPLICATE_ID,
        EXECUTION_SPACE_TERMINATING,
        UNREGISTERING,
    ];
    while list.len() > CONDITIONS_MAX {
        let odd = |it: &Value| !KNOWN.iter().any(|known| it["type"] == *known);
        let Some(at) = list.iter().rposition(odd) else {
            return;
        };
        list.remove(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_700_000_000 + seconds, 0).expect("in range")
    }

    #[test]
    fn whoever_asks_for_an_id_is_told_of_once_an_hour() {
        let asked = |name: &str| Denial {
            reason: common::denial::DenialReason::ClusterIdTaken,
            message: format!("the cluster ID i or the cluster name {name} has been registered"),
        };
        let once = with(&json!([]), at(0), duplicate(&asked("a"))).expect("set");
        assert_eq!(with(&json!(once), at(3599), duplicate(&asked("b"))), None);
        let again = with(&json!(once), at(3600), duplicate(&asked("b"))).expect("set");
        assert_eq!(again[0]["lastTransitionTime"], "2023-11-14T23:13:20Z");
    }

    #[test]
    fn an_agent_that_fills_the_list_keeps_nothing_from_being_shown() {
        let odd = |number: usize| json!({"type": format!("Odd{number}"), "status": "True"});
        let mut full: Vec<Value> = (0..CONDITIONS_MAX).map(odd).collect();
        full[CONDITIONS_MAX - 1] = json!({"type": READY, "status": "True"});
        let shown = Shown {
            type_: QUARANTINED,
            status: true,
            reason: "R",
            message: "m",
        };
        let list = with(&json!(full), at(0), shown).expect("set");
        assert_eq!(list.len(), CONDITIONS_MAX);
        assert_eq!(list[..CONDITIONS_MAX - 2], full[..CONDITIONS_MAX - 2]);
        let types = [&list[CONDITIONS_MAX - 2], &list[CONDITIONS_MAX - 1]].map(|it| &it["type"]);
        assert_eq!(types, [READY, QUARANTINED], "the last odd one went");
        // What was longer before, by a schema of before, is as long as it may be.
        let more: Vec<Value> = (0..CONDITIONS_MAX + 9).map(odd).collect();
        let list = with(&json!(more), at(0), shown).expect("set");
        assert_eq!(list.len(), CONDITIONS_MAX);
        assert_eq!(list[CONDITIONS_MAX - 1]["type"], QUARANTINED);
        let mut more = more;
        more.push(json!({"type": QUARANTINED, "status": "False"}));
        let list = with(&json!(more), at(0), shown).expect("set");
        assert_eq!(list.len(), CONDITIONS_MAX);
        assert_eq!(list[CONDITIONS_MAX - 1]["status"], "True");
    }

    #[test]
    fn a_condition_is_set_once_beside_the_others() {
        let on = Shown {
            type_: "A",
            status: true,
            reason: "R",
            message: "m",
        };
        let odd = json!([{"type": "Odd", "lastTransitionTime": "+99:99"}]);
        let list = with(&odd, at(0), on).expect("set");
        assert_eq!(list[0], odd[0]);
        assert_eq!(list[1]["lastTransitionTime"], "2023-11-14T22:13:20Z");
        assert_eq!(with(&json!(list), at(5), on), None);
        let again = with(&json!(list), at(5), Shown { message: "n", ..on }).expect("set");
        assert_eq!(again[1]["lastTransitionTime"], "2023-11-14T22:13:20Z");
        let off = with(
            &json!(list),
            at(5),
            Shown {
                status: false,
                ..on
            },
        )
        .expect("set");
        assert_eq!(off[1]["lastTransitionTime"], "2023-11-14T22:13:25Z");
        assert_eq!(
            with(
                &odd,
                at(0),
                Shown {
                    status: false,
                    ..on
                }
            ),
            None
        );
    }
}
