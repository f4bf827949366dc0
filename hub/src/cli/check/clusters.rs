//! Whether members are fresh and take Works: execution namespace, Lease, Ready, certificate, the agent's own
//! last error, what is orphaned, which reserved namespaces are open, and what users of the hub may reach.

use super::rights::{HIDDEN, is_forbidden};
use super::{Finding, Wrong};
use crate::apiserver::table::age;
use crate::cli::{CliError, Kind};
use chrono::{DateTime, Utc};
use common::api::cluster::{
    AgentInfo, Cluster, DUPLICATE_ID, QUARANTINED, READY, RESTORED, SyncMode, WROTE_TOO_MUCH,
};
use common::names::{CLUSTER_NAMESPACE, ClusterName, EXECUTION_PREFIX};
use common::time::{from_micro_time, from_time};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ListParams;
use kube::{Api, Client};
use serde::Serialize;
use std::collections::BTreeMap;

/// An agent that renews every 10 s is late after this many seconds.
const LEASE_LATE: i64 = 40;
/// The step that is about the certificate.
const CERTIFICATE: &str = "certificate";
/// A certificate renewed at a third of its life is late when so little is left.
const CERTIFICATE_LATE_DAYS: i64 = 7;

/// What was found of one cluster.
#[derive(Debug, Clone)]
pub(in crate::cli) struct Found {
    /// Its name.
    pub(in crate::cli) name: String,
    /// Whether its agent says that it is well.
    pub(in crate::cli) ready: Ready,
    /// Since when.
    pub(in crate::cli) since: Option<DateTime<Utc>>,
    /// When its agent's certificate ends.
    pub(in crate::cli) certificate: Option<DateTime<Utc>>,
    /// How many objects in the member have no Work.
    pub(in crate::cli) orphans: i64,
    /// What its owner opened it to users of the hub for.
    pub(in crate::cli) opened: Option<String>,
    /// Step by step.
    pub(in crate::cli) findings: Vec<Finding>,
}

/// The condition Ready, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(in crate::cli) enum Ready {
    /// Nobody hears of it.
    Unknown,
    /// Its agent says that it is not well.
    False,
    /// Its agent has not said anything yet.
    Never,
    /// Its agent says that it is well.
    True,
}

impl Ready {
    pub(in crate::cli) const ALL: [Self; 4] = [Self::Unknown, Self::False, Self::Never, Self::True];

    /// As people read it.
    pub(in crate::cli) fn shown(self) -> &'static str {
        match self {
            Self::Unknown => "Unknown",
            Self::False => "not Ready",
            Self::Never => "never Ready",
            Self::True => "Ready",
        }
    }

    fn of(cluster: &Cluster) -> Self {
        match cluster.condition(READY).map(|it| it.status.as_str()) {
            Some("True") => Self::True,
            Some("False") => Self::False,
            Some(_) => Self::Unknown,
            None => Self::Never,
        }
    }
}

/// What is known of a cluster beside its object.
#[derive(Debug, Clone, Default)]
struct Around {
    lease: Renewed,
    works: Works,
}

/// When an agent renewed its Lease last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Renewed {
    /// This kubeconfig may not see.
    Unseen,
    #[default]
    Never,
    At(DateTime<Utc>),
}

/// The state of an execution namespace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Works {
    /// This kubeconfig may not see.
    Unseen,
    #[default]
    Missing,
    Terminating,
    Active,
}

/// Looks at one cluster, or at all of them.
pub(in crate::cli) async fn look(
    client: &Client,
    only: Option<&ClusterName>,
    now: DateTime<Utc>,
) -> Result<Vec<Found>, CliError> {
    let clusters: Api<Cluster> = Api::all(client.clone());
    let leases: Api<Lease> = Api::namespaced(client.clone(), CLUSTER_NAMESPACE);
    let namespaces: Api<Namespace> = Api::all(client.clone());
    if let Some(name) = only {
        let failed = |e| CliError::api(format!("failed to get Cluster {:?}", name.as_str()), e);
        let cluster = clusters.get_opt(name.as_str()).await.map_err(failed)?;
        let Some(cluster) = cluster else {
            let message = format!("there is no Cluster {:?} on this hub", name.as_str());
            return Err(CliError::message(Kind::NotFound, message)
                .hint("`kubectl get clusters` lists those there are."));
        };
        let lease = leases.get_opt(name.as_str()).await;
        let lease = shown("the Lease", lease)?;
        let namespace = namespaces
            .get_metadata_opt(&name.execution_namespace())
            .await;
        let namespace = shown("the execution namespace", namespace)?;
        let around = Around {
            lease: lease.map_or(Renewed::Unseen, |lease| renewed(lease.as_ref())),
            works: namespace.map_or(Works::Unseen, |found| {
                found.map_or(Works::Missing, |found| works_of(&found.metadata))
            }),
        };
        return Ok(vec![found(&cluster, &around, now)]);
    }
    let all = ListParams::default();
    let failed = |e| CliError::api("failed to list Clusters", e);
    let listed = clusters.list(&all).await.map_err(failed)?;
    let (leases, never) = match shown("Leases", leases.list(&all).await)? {
        Some(listed) => (listed.items, Renewed::Never),
        None => (Vec::new(), Renewed::Unseen),
    };
    let renewals: BTreeMap<_, _> = leases
        .iter()
        .filter_map(|lease| Some((lease.metadata.name.as_deref()?, renewed(Some(lease)))))
        .collect();
    let (spaces, absent) = match shown("namespaces", namespaces.list_metadata(&all).await)? {
        Some(listed) => (listed.items, Works::Missing),
        None => (Vec::new(), Works::Unseen),
    };
    let spaces: BTreeMap<_, _> = spaces
        .iter()
        .filter_map(|space| Some((space.metadata.name.as_deref()?, works_of(&space.metadata))))
        .collect();
    let each = |cluster: &Cluster| {
        let name = cluster.metadata.name.as_deref().unwrap_or_default();
        let space = format!("{EXECUTION_PREFIX}{name}");
        let around = Around {
            lease: renewals.get(name).copied().unwrap_or(never),
            works: spaces.get(space.as_str()).copied().unwrap_or(absent),
        };
        found(cluster, &around, now)
    };
    Ok(listed.items.iter().map(each).collect())
}

/// What was read, or none where this kubeconfig may not: it sees everything else.
fn shown<T>(what: &'static str, read: Result<T, kube::Error>) -> Result<Option<T>, CliError> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if is_forbidden(&error) => Ok(None),
        Err(error) => Err(CliError::api(format!("failed to look at {what}"), error)),
    }
}

fn works_of(namespace: &ObjectMeta) -> Works {
    match namespace.deletion_timestamp {
        Some(_) => Works::Terminating,
        None => Works::Active,
    }
}

fn renewed(lease: Option<&Lease>) -> Renewed {
    let spec = lease.and_then(|lease| lease.spec.as_ref());
    let at = spec.and_then(|spec| from_micro_time(spec.renew_time.as_ref()?));
    at.map_or(Renewed::Never, Renewed::At)
}

impl Found {
    /// Whether the certificate should have been renewed.
    pub(in crate::cli) fn is_certificate_late(&self) -> bool {
        let mut findings = self.findings.iter();
        findings.any(|it| it.step == CERTIFICATE && it.seen.is_err())
    }

    /// One line for the cluster: the first thing that is wrong stands for it.
    pub(super) fn summary(self) -> Finding {
        let step = format!("cluster {}", self.name);
        let all: Vec<String> = self
            .findings
            .iter()
            .filter_map(|f| Some(format!("{} {}", f.step, f.seen.as_ref().ok()?)))
            .collect();
        let wrong = self
            .findings
            .into_iter()
            .find_map(|f| Some((f.step, f.seen.err()?)));
        match wrong {
            None => Finding::right(step, all.join(", ")),
            Some((what, Wrong { what: why, hint })) => {
                Finding::wrong(step, format!("{what}: {why}"), hint)
            }
        }
    }
}

fn found(cluster: &Cluster, around: &Around, now: DateTime<Utc>) -> Found {
    let orphaned = agent(cluster).and_then(|it| it.orphans.as_ref());
    let since = cluster.condition(READY).map(|it| &it.last_transition_time);
    Found {
        name: cluster.metadata.name.clone().unwrap_or_default(),
        ready: Ready::of(cluster),
        since: since.and_then(from_time),
        certificate: certificate_ends(cluster),
        orphans: orphaned.map_or(0, |it| it.count),
        opened: opened(cluster).map(str::to_owned),
        findings: vec![
            registration(cluster),
            works(cluster, around.works),
            lease(cluster, around.lease, now),
            ready(cluster),
            certificate(cluster, now),
            last_error(cluster),
            orphans(cluster),
            allowed(cluster),
            access(cluster),
        ],
    }
}

/// Whether Works can be written for it.
fn works(cluster: &Cluster, works: Works) -> Finding {
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

fn agent(cluster: &Cluster) -> Option<&AgentInfo> {
    cluster.status.as_ref()?.agent.as_ref()
}

/// What Works left behind without having been deleted.
fn orphans(cluster: &Cluster) -> Finding {
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
fn allowed(cluster: &Cluster) -> Finding {
    const STEP: &str = "reserved namespaces";
    let allowed = agent(cluster).map_or(&[][..], |agent| &agent.allowed_namespaces);
    match allowed {
        [] => Finding::right(STEP, "none allowed"),
        names => Finding::right(STEP, format!("allowed to Works: {}", names.join(", "))),
    }
}

fn opened(cluster: &Cluster) -> Option<&str> {
    agent(cluster)?.proxy.as_deref()
}

/// What users of the hub may reach of it.
fn access(cluster: &Cluster) -> Finding {
    const STEP: &str = "access";
    match opened(cluster) {
        None => Finding::right(STEP, "off"),
        Some(mode) => Finding::right(STEP, format!("opened: {mode}")),
    }
}

fn registration(cluster: &Cluster) -> Finding {
    const STEP: &str = "registration";
    if cluster.metadata.deletion_timestamp.is_some() {
        let hint = "Wait, or run `towline unregister` with --force if the member is gone.";
        return Finding::wrong(STEP, "it is being unregistered", hint);
    }
    for type_ in [QUARANTINED, DUPLICATE_ID] {
        if let Some(found) = cluster.condition(type_).filter(|c| c.status == "True") {
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

fn lease(cluster: &Cluster, renewed: Renewed, now: DateTime<Utc>) -> Finding {
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

fn certificate_ends(cluster: &Cluster) -> Option<DateTime<Utc>> {
    from_time(agent(cluster)?.certificate_expiration_time.as_ref()?)
}

fn certificate(cluster: &Cluster, now: DateTime<Utc>) -> Finding {
    const STEP: &str = CERTIFICATE;
    let Some(ends) = certificate_ends(cluster) else {
        return Finding::right(STEP, "not reported");
    };
    let days = (ends - now).num_days();
    if ends <= now {
        let name = cluster.metadata.name.as_deref().unwrap_or_default();
        let hint = match cluster.spec.sync_mode {
            SyncMode::Pull => format!(
                "Bring it back with a new token: `towline token create --cluster {name} --replace`."
            ),
            // An agent of its own is not to be installed in it.
            SyncMode::Push => {
                format!("Join it again: `towline join {name} --cluster-kubeconfig FILE`.")
            }
        };
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
    use super::*;
    use crate::cli::Colours;
    use common::api::cluster::{ClusterStatus, OrphanReport};
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
        let around = Around {
            lease: renewed.map_or(Renewed::Never, |it| Renewed::At(at(it))),
            works: Works::Active,
        };
        let line = found(&cluster, &around, at(100)).summary();
        line.seen.err().map(|wrong| wrong.what)
    }

    #[test]
    fn a_lease_that_may_not_be_read_is_no_silent_agent() {
        for (renewed, want) in [
            (Renewed::Unseen, Ok(HIDDEN)),
            (Renewed::Never, Err("the agent never")),
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
    fn one_that_was_joined_is_brought_back_by_joining_it() {
        let mut cluster = healthy();
        let agent = cluster.status.as_mut().expect("there").agent.as_mut();
        agent.expect("there").certificate_expiration_time = Some(to_time(at(50)));
        for (mode, command) in [
            (
                SyncMode::Pull,
                "towline token create --cluster m1 --replace",
            ),
            (SyncMode::Push, "towline join m1 --cluster-kubeconfig FILE"),
        ] {
            cluster.spec.sync_mode = mode;
            let wrong = certificate(&cluster, at(100)).seen.expect_err("it ended");
            assert!(wrong.hint.contains(&format!("`{command}`")), "{wrong:?}");
        }
    }

    #[test]
    fn where_works_lie_is_looked_at() {
        let namespace = |deleted: Option<i64>| ObjectMeta {
            deletion_timestamp: deleted.map(|seconds| to_time(at(seconds))),
            ..ObjectMeta::default()
        };
        assert_eq!(works_of(&namespace(None)), Works::Active);
        let going = works_of(&namespace(Some(0)));
        for (state, want) in [
            (Works::Active, None),
            (Works::Unseen, None),
            (going, Some("namespace karmada-es-m1 is Terminating")),
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

    #[test]
    fn screens_are_as_they_were_approved() {
        let around = |renewed| Around {
            lease: Renewed::At(at(renewed)),
            works: Works::Active,
        };
        let well = || found(&healthy(), &around(95), at(100));
        let silent = found(&healthy(), &around(-19_200), at(100));
        let one = silent.findings.clone();
        let all = vec![well().summary(), silent.summary()];
        let evil = Finding::wrong("agent", "\u{1b}[2Jgone\u{202e}\nok     all", "")
            .line(Colours::default());
        assert_eq!(
            evil,
            "WRONG  agent                  \\u{1b}[2Jgone\\u{202e} ok all"
        );
        for (name, findings) in [
            ("one-well", well().findings),
            ("one-silent", one),
            ("all", all),
        ] {
            crate::cli::approved::screens("cli/check/screens", name, |_, colours| {
                findings.iter().map(|it| it.line(colours) + "\n").collect()
            });
        }
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
