//! Whether members are fresh: Lease, Ready, certificate, the agent's own last error.

use super::{Finding, Wrong};
use crate::cli::{CliError, Kind};
use chrono::{DateTime, Utc};
use common::api::cluster::{Cluster, DUPLICATE_ID, QUARANTINED, READY};
use common::names::{CLUSTER_NAMESPACE, ClusterName};
use common::time::{from_micro_time, from_time};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use kube::{Api, Client};
use std::collections::BTreeMap;

/// An agent that renews every 10 s is late after this many seconds.
const LEASE_LATE: i64 = 40;
/// A certificate renewed at a third of its life is late when so little is left.
const CERTIFICATE_LATE_DAYS: i64 = 7;

/// Looks at one cluster step by step, or at all of them in a line each.
pub(super) async fn look(
    client: &Client,
    only: Option<&ClusterName>,
    now: DateTime<Utc>,
) -> Result<Vec<Finding>, CliError> {
    let clusters: Api<Cluster> = Api::all(client.clone());
    let leases: Api<Lease> = Api::namespaced(client.clone(), CLUSTER_NAMESPACE);
    if let Some(name) = only {
        let failed = |e| CliError::api(format!("failed to get Cluster {:?}", name.as_str()), e);
        let cluster = clusters.get_opt(name.as_str()).await.map_err(failed)?;
        let Some(cluster) = cluster else {
            let message = format!("there is no Cluster {:?} on this hub", name.as_str());
            return Err(CliError::message(Kind::NotFound, message)
                .hint("`kubectl get clusters` lists those there are."));
        };
        let lease = leases.get_opt(name.as_str()).await.map_err(failed)?;
        return Ok(judge(&cluster, lease.as_ref().and_then(renewed), now));
    }
    let all = ListParams::default();
    let failed = |e| CliError::api("failed to list Clusters", e);
    let found = clusters.list(&all).await.map_err(failed)?;
    let leases = leases.list(&all).await.map_err(failed)?;
    let renewals: BTreeMap<_, _> = leases
        .items
        .iter()
        .filter_map(|lease| Some((lease.metadata.name.clone()?, renewed(lease)?)))
        .collect();
    let line = |cluster: &Cluster| {
        let name = cluster.metadata.name.clone().unwrap_or_default();
        summary(judge(cluster, renewals.get(&name).copied(), now), name)
    };
    Ok(found.items.iter().map(line).collect())
}

fn renewed(lease: &Lease) -> Option<DateTime<Utc>> {
    from_micro_time(lease.spec.as_ref()?.renew_time.as_ref()?)
}

/// The first thing that is wrong stands for the cluster.
fn summary(findings: Vec<Finding>, name: String) -> Finding {
    let step = format!("cluster {name}");
    let all: Vec<String> = findings
        .iter()
        .filter_map(|f| Some(format!("{} {}", f.step, f.seen.as_ref().ok()?)))
        .collect();
    let wrong = findings
        .into_iter()
        .find_map(|f| Some((f.step, f.seen.err()?)));
    match wrong {
        None => Finding::right(step, all.join(", ")),
        Some((what, Wrong { what: why, hint })) => {
            Finding::wrong(step, format!("{what}: {why}"), hint)
        }
    }
}

fn judge(cluster: &Cluster, renewed: Option<DateTime<Utc>>, now: DateTime<Utc>) -> Vec<Finding> {
    vec![
        registration(cluster),
        lease(renewed, now),
        ready(cluster),
        certificate(cluster, now),
        last_error(cluster),
    ]
}

fn registration(cluster: &Cluster) -> Finding {
    const STEP: &str = "registration";
    if cluster.metadata.deletion_timestamp.is_some() {
        let hint = "Wait, or run `towline unregister` with --force if the member is gone.";
        return Finding::wrong(STEP, "it is being unregistered", hint);
    }
    for (type_, hint) in [
        (
            QUARANTINED,
            "Find out why the agent writes so much, then lift the quarantine.",
        ),
        (
            DUPLICATE_ID,
            "Another member was refused for having this one's id: is it a copy?",
        ),
    ] {
        if let Some(found) = cluster.condition(type_).filter(|c| c.status == "True") {
            return Finding::wrong(STEP, format!("{type_}: {}", found.message), hint);
        }
    }
    Finding::right(STEP, "in force")
}

fn lease(renewed: Option<DateTime<Utc>>, now: DateTime<Utc>) -> Finding {
    const STEP: &str = "lease";
    const HINT: &str = "Look at the agent: `kubectl -n towline-system logs deploy/towline-agent` \
                        in the member, and `towline check --server HUB` from there.";
    let Some(renewed) = renewed else {
        return Finding::wrong(STEP, "the agent never renewed it", HINT);
    };
    let age = (now - renewed).num_seconds();
    if age.abs() > LEASE_LATE {
        return Finding::wrong(
            STEP,
            format!("by its own time it was renewed {age}s ago"),
            HINT,
        );
    }
    Finding::right(STEP, format!("{}s old", age.max(0)))
}

fn ready(cluster: &Cluster) -> Finding {
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

fn certificate(cluster: &Cluster, now: DateTime<Utc>) -> Finding {
    const STEP: &str = "certificate";
    let agent = cluster
        .status
        .as_ref()
        .and_then(|status| status.agent.as_ref());
    let ends = agent.and_then(|agent| from_time(agent.certificate_expiration_time.as_ref()?));
    let Some(ends) = ends else {
        return Finding::right(STEP, "not reported");
    };
    let days = (ends - now).num_days();
    if ends <= now {
        let hint =
            "Bring it back with a new token: `towline token create --cluster NAME --replace`.";
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

fn last_error(cluster: &Cluster) -> Finding {
    const STEP: &str = "agent";
    let agent = cluster
        .status
        .as_ref()
        .and_then(|status| status.agent.as_ref());
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
    use super::*;
    use common::api::cluster::{AgentInfo, ClusterStatus};
    use common::conditions;
    use common::time::to_time;

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_700_000_000 + seconds, 0).expect("in range")
    }

    fn healthy() -> Cluster {
        let mut cluster = Cluster::new("m1", Default::default());
        cluster.metadata.creation_timestamp = Some(to_time(at(-20 * 86_400)));
        let mut status = ClusterStatus::default();
        let ready = conditions::new(READY, true, "ClusterReady", "", at(0));
        conditions::set(&mut status.conditions, ready, at(0));
        status.agent = Some(AgentInfo {
            version: Some("0.1.0".into()),
            certificate_expiration_time: Some(to_time(at(60 * 86_400))),
            last_error: None,
            ..AgentInfo::default()
        });
        cluster.status = Some(status);
        cluster
    }

    fn first_wrong(edit: impl FnOnce(&mut Cluster), renewed: Option<i64>) -> Option<String> {
        let mut cluster = healthy();
        edit(&mut cluster);
        let findings = judge(&cluster, renewed.map(at), at(100));
        let line = summary(findings, "m1".into());
        line.seen.err().map(|wrong| wrong.what)
    }

    #[test]
    fn a_healthy_cluster_has_nothing_wrong() {
        assert_eq!(first_wrong(|_| {}, Some(95)), None);
    }

    #[test]
    fn the_first_thing_that_is_wrong_is_named() {
        fn status(cluster: &mut Cluster) -> &mut ClusterStatus {
            cluster.status.as_mut().expect("there")
        }
        let starts = |what: Option<String>, prefix: &str| {
            let what = what.expect(prefix);
            assert!(what.starts_with(prefix), "{what}");
        };
        starts(first_wrong(|_| {}, None), "lease: the agent never");
        starts(first_wrong(|_| {}, Some(10)), "lease: by its own time");
        starts(
            first_wrong(
                |c| status(c).conditions[0].status = "Unknown".into(),
                Some(99),
            ),
            "Ready: Unknown since",
        );
        starts(
            first_wrong(
                |c| {
                    let agent = status(c).agent.as_mut().expect("there");
                    agent.certificate_expiration_time = Some(to_time(at(50)));
                },
                Some(99),
            ),
            "certificate: it expired",
        );
        starts(
            first_wrong(
                |c| status(c).agent.as_mut().expect("there").last_error = Some("works: x".into()),
                Some(99),
            ),
            "agent: works: x",
        );
        starts(
            first_wrong(
                |c| c.metadata.deletion_timestamp = Some(to_time(at(0))),
                Some(99),
            ),
            "registration: it is being unregistered",
        );
    }
}
