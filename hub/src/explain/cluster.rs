//! The way of one cluster: registration, agent, certificate, member, Works. Pure.

use super::mend::{in_member, on_hub, word};
use super::refusal::bare;
use super::{Broken, Cause, Detail, Mend, Report, Stage, Walk, said, template, work};
use crate::commands;
use chrono::{DateTime, Utc};
use common::api::cluster::{
    AgentInfo, Cluster, EXECUTION_SPACE_TERMINATING, QUARANTINED, READY, RESTORED, SyncMode,
    WROTE_TOO_MUCH,
};
use common::api::work::{APPLIED, Work};
use common::conditions;
use common::labels::{
    CERTIFICATE_END, HELD, QUARANTINED_SINCE, TAINT_NOT_READY, TAINT_UNREACHABLE,
    TAINT_UNSCHEDULABLE,
};
use common::names::AGENT_NAMESPACE;
use common::time::from_time;
use common::unregister::Mode;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// What to do about one that a restore holds.
const LET_IN: &str =
    "It comes from a backup, and may have been removed since; let it in if it is still meant.";
/// An agent that renews every 10 s is late after this many seconds.
const LEASE_LATE: i64 = 40;
/// Works that are named as not applied.
const NAMED: usize = 10;

/// What was read of a hub around one cluster.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The time of day.
    pub now: DateTime<Utc>,
    /// The object.
    pub cluster: Cluster,
    /// When its agent renewed its Lease last.
    pub renewed: Option<DateTime<Utc>>,
    /// Its Works.
    pub works: Vec<Work>,
    /// Why the hub's API server is not ready.
    pub hub: Option<String>,
    /// What was not looked at, because whoever asks may not.
    pub unseen: Vec<String>,
}

/// Why a cluster is not what it should be.
pub fn explain(seen: &Seen) -> Report {
    let mut walk = Walk::default();
    stages(seen, &mut walk);
    walk.report(
        format!("cluster/{}", name(&seen.cluster)),
        seen.unseen.clone(),
    )
}

fn stages(seen: &Seen, walk: &mut Walk) {
    if let Some(why) = &seen.hub {
        walk.breaks(template::hub_not_ready(why), Vec::new());
        return;
    }
    let cluster = &seen.cluster;
    let broken = sick(cluster, seen.renewed, seen.now);
    let at = broken.as_ref().map(|it| it.stage);
    let holds = |stage: Stage| at.is_none_or(|at| stage < at);
    if holds(Stage::Registration) {
        let since = cluster
            .metadata
            .creation_timestamp
            .as_ref()
            .and_then(from_time);
        let since = since.map_or_else(String::new, |it| format!(" since {}", day(it)));
        walk.holds(Stage::Registration, format!("in force{since}"), Vec::new());
    }
    if holds(Stage::Agent) {
        walk.holds(Stage::Agent, agent_said(seen), Vec::new());
    }
    if let Some(broken) = broken {
        walk.breaks(broken, conditions_of(cluster));
        return;
    }
    if let Some(error) = agent(cluster)
        .and_then(|it| it.last_error.as_deref())
        .filter(|it| !it.is_empty())
    {
        let words = "The agent says this itself; mend it in the member.";
        let what = format!("its agent is in trouble: {}", said(error));
        let broken = of(
            cluster,
            Stage::Ready,
            Cause::AgentError,
            what,
            in_member(name(cluster), words, logs()),
        );
        walk.breaks(broken, conditions_of(cluster));
        return;
    }
    walk.holds(
        Stage::Ready,
        format!("True; {}", taints(cluster)),
        Vec::new(),
    );
    works(seen, walk);
}

/// Why Works do not reach a cluster, or its member is not well; none when neither is so.
pub(super) fn sick(
    cluster: &Cluster,
    renewed: Option<DateTime<Utc>>,
    now: DateTime<Utc>,
) -> Option<Broken> {
    not_registered(cluster)
        .or_else(|| certificate_ended(cluster, now))
        .or_else(|| not_ready(cluster, renewed, now))
}

fn name(cluster: &Cluster) -> &str {
    cluster.metadata.name.as_deref().unwrap_or_default()
}

fn agent(cluster: &Cluster) -> Option<&AgentInfo> {
    cluster.status.as_ref()?.agent.as_ref()
}

fn of(cluster: &Cluster, stage: Stage, cause: Cause, what: String, mend: Mend) -> Broken {
    let cluster = Some(name(cluster).to_owned());
    Broken {
        stage,
        cause,
        cluster,
        what,
        mend,
    }
}

fn is_true<'a>(cluster: &'a Cluster, kind: &str) -> Option<&'a Condition> {
    cluster.condition(kind).filter(|it| it.status == "True")
}

fn not_registered(cluster: &Cluster) -> Option<Broken> {
    let name = name(cluster);
    let stage = Stage::Registration;
    if cluster.metadata.deletion_timestamp.is_some() {
        let command = commands::leave(name, cluster.spec.sync_mode, Mode::Force);
        let mend = on_hub(
            "Wait; or, when the member is gone for good, end it.",
            [command],
        );
        let what = format!("{name} is being unregistered");
        return Some(of(cluster, stage, Cause::Deleting, what, mend));
    }
    if let Some(condition) = is_true(cluster, QUARANTINED) {
        let command = format!("kubectl annotate cluster {name} {QUARANTINED_SINCE}-");
        let mend = match condition.reason.as_str() {
            RESTORED => on_hub(LET_IN, [command]),
            WROTE_TOO_MUCH => on_hub(
                "Find out why its agent writes so much, then give it its rights back.",
                [command],
            ),
            _ => on_hub(
                "Somebody quarantined it: ask why, then give it its rights back.",
                [command],
            ),
        };
        let what = format!("{name} is quarantined: {}", said(&condition.message));
        return Some(of(cluster, stage, Cause::Quarantined, what, mend));
    }
    // The annotation decides; its condition is written later, or not while the hub's store takes no writes.
    let annotations = cluster.metadata.annotations.as_ref();
    if let Some(since) = annotations.and_then(|it| it.get(QUARANTINED_SINCE)) {
        let labels = cluster.metadata.labels.as_ref();
        let (cause, words, what) = match labels.is_some_and(|it| it.contains_key(HELD)) {
            true => (
                Cause::NotRegistered,
                LET_IN,
                format!("{name} was restored and is not let in"),
            ),
            false => (
                Cause::Quarantined,
                "Find out why it was quarantined, then give its agent its rights back.",
                format!("{name} is quarantined since {}", said(since)),
            ),
        };
        let command = format!("kubectl annotate cluster {name} {QUARANTINED_SINCE}-");
        return Some(of(cluster, stage, cause, what, on_hub(words, [command])));
    }
    if let Some(condition) = is_true(cluster, EXECUTION_SPACE_TERMINATING) {
        let command = format!(
            "kubectl -n {}{name} get works",
            common::names::EXECUTION_PREFIX
        );
        let mend = on_hub(
            "See what it waits for; the hub makes it anew when it is gone.",
            [command],
        );
        let what = format!("{name} takes no Works: {}", said(&condition.message));
        return Some(of(
            cluster,
            Stage::Namespace,
            Cause::NamespaceGone,
            what,
            mend,
        ));
    }
    None
}

/// When the certificate ends that its agent has.
fn ends(cluster: &Cluster) -> Option<DateTime<Utc>> {
    let annotations = cluster.metadata.annotations.as_ref();
    let issued = annotations.and_then(|it| it.get(CERTIFICATE_END)?.parse().ok());
    let reported =
        agent(cluster).and_then(|it| from_time(it.certificate_expiration_time.as_ref()?));
    issued.max(reported)
}

fn certificate_ended(cluster: &Cluster, now: DateTime<Utc>) -> Option<Broken> {
    let ended = ends(cluster).filter(|it| *it <= now)?;
    let name = name(cluster);
    let what = format!("the certificate of {name}'s agent ended {}", day(ended));
    let again = commands::register_again(name, cluster.spec.sync_mode);
    let mend = match cluster.spec.sync_mode {
        SyncMode::Pull => on_hub(
            format!(
                "Register it anew: run in {name} what this prints; nothing in the member is deleted."
            ),
            [format!("{again} --print-register-command")],
        ),
        SyncMode::Push => on_hub(
            "Join it again, with a kubeconfig of somebody who may create roles there; nothing in the member is deleted.",
            [again],
        ),
    };
    Some(of(
        cluster,
        Stage::Agent,
        Cause::CertificateEnded,
        what,
        mend,
    ))
}

fn not_ready(
    cluster: &Cluster,
    renewed: Option<DateTime<Utc>>,
    now: DateTime<Utc>,
) -> Option<Broken> {
    let name = name(cluster);
    let ready = cluster.condition(READY);
    match ready.map(|it| it.status.as_str()) {
        Some("True") => None,
        Some("False") => {
            let message = ready.map_or("", |it| &it.message);
            let what = format!("{name} is not ready: {}", said(message));
            let words = "Mend the member's API server; it says there what is wrong.";
            let mend = in_member(
                name,
                words,
                ["kubectl get --raw '/readyz?verbose'".to_owned()],
            );
            Some(of(cluster, Stage::Ready, Cause::MemberNotReady, what, mend))
        }
        status => {
            let what = match (renewed, status) {
                (Some(renewed), _) => {
                    let seconds = (now - renewed).num_seconds().max(0);
                    format!("{name}'s agent does not answer: its Lease was renewed {seconds} s ago")
                }
                (None, Some(_)) => format!("{name}'s agent does not answer"),
                (None, None) => format!("{name}'s agent has never answered"),
            };
            if cluster.spec.sync_mode == SyncMode::Push {
                let words = "Its agent runs beside the hub: see that `towline-agent push` runs there, and what it logs \
                             of this cluster.";
                let mend = on_hub(words, []);
                return Some(of(cluster, Stage::Agent, Cause::AgentGone, what, mend));
            }
            let words = format!(
                "Start the agent in {name} again; if that does not help, read its log, and try `towline check --server \
                 HUB:PORT` from there."
            );
            let restart =
                format!("kubectl -n {AGENT_NAMESPACE} rollout restart deployment/towline-agent");
            let mend = in_member(name, words, [restart].into_iter().chain(logs()));
            Some(of(cluster, Stage::Agent, Cause::AgentGone, what, mend))
        }
    }
}

fn logs() -> [String; 1] {
    [format!(
        "kubectl -n {AGENT_NAMESPACE} logs deployment/towline-agent"
    )]
}

fn day(time: DateTime<Utc>) -> String {
    time.format("%Y-%m-%d %H:%M UTC").to_string()
}

fn agent_said(seen: &Seen) -> String {
    let version = agent(&seen.cluster).and_then(|it| it.version.as_deref());
    let mut what = format!(
        "version {}",
        version.map_or_else(|| "not reported".to_owned(), said)
    );
    if let Some(renewed) = seen.renewed {
        let seconds = (seen.now - renewed).num_seconds();
        let late = if seconds > LEASE_LATE {
            ", which is late"
        } else {
            ""
        };
        what.push_str(&format!(", Lease {} s old{late}", seconds.max(0)));
    }
    if let Some(ends) = ends(&seen.cluster) {
        what.push_str(&format!(", certificate until {}", day(ends)));
    }
    what
}

fn taints(cluster: &Cluster) -> String {
    let shown = cluster.spec.taints.iter().map(|it| {
        let key = it.key.as_str();
        let what = match key {
            TAINT_UNSCHEDULABLE => "cordoned".to_owned(),
            TAINT_NOT_READY | TAINT_UNREACHABLE => "not ready".to_owned(),
            _ => format!("tainted {key}"),
        };
        format!("{what}, {:?}", it.effect)
    });
    let shown: Vec<String> = shown.collect();
    match shown.is_empty() {
        true => "no taints".to_owned(),
        false => shown.join("; "),
    }
}

fn conditions_of(cluster: &Cluster) -> Vec<Detail> {
    let all = cluster.status.iter().flat_map(|it| &it.conditions);
    let shown = all.map(|it| {
        let since = from_time(&it.last_transition_time)
            .map_or_else(String::new, |it| format!(" since {}", day(it)));
        Detail::new(
            said(&it.type_),
            format!("{}{since}: {}", it.status, said(&it.message)),
        )
    });
    shown.collect()
}

/// How its Works do.
fn works(seen: &Seen, walk: &mut Walk) {
    let of = seen.works.len();
    let failing = seen.works.iter().filter(|work| {
        let status = work.status.as_ref();
        let applied = status.and_then(|it| conditions::get(&it.conditions, APPLIED));
        applied.is_some_and(|it| it.status == "False")
    });
    let failing: Vec<&Work> = failing.collect();
    let Some(first) = failing.first() else {
        let applied = seen.works.iter().filter(|work| {
            let status = work.status.as_ref();
            status.is_some_and(|it| conditions::is_true(&it.conditions, APPLIED))
        });
        let applied = applied.count();
        if !seen.unseen.iter().any(|it| it.starts_with("Works: ")) {
            walk.holds(
                Stage::Applied,
                format!("{applied} of {of} Works"),
                Vec::new(),
            );
        }
        return;
    };
    let cluster = name(&seen.cluster);
    let what = format!("{} of {of} Works are not applied", failing.len());
    let found = work::judged(first, cluster);
    let mend = found.map_or_else(
        || {
            let work = first.metadata.name.as_deref().unwrap_or_default();
            on_hub(
                "See the first of them.",
                [format!("towline why work/{} -C {cluster}", word(work))],
            )
        },
        |it| it.mend,
    );
    let details = failing.iter().take(NAMED).map(|work| {
        let status = work.status.as_ref();
        let applied = status.and_then(|it| conditions::get(&it.conditions, APPLIED));
        let message = applied.map_or("", |it| &it.message);
        let name = work.metadata.name.clone().unwrap_or_default();
        Detail::new(format!("work/{name}"), said(bare(message)))
    });
    let broken = self::of(
        &seen.cluster,
        Stage::Applied,
        Cause::WorksFailing,
        what,
        mend,
    );
    walk.breaks(broken, details.collect());
}
