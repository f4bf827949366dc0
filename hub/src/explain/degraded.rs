//! What members say of objects that do not go, or that are not healed: the condition `Degraded` of Works, in a report.
//!
//! Pure. The words and reasons are the agent's; only names that the hub has itself get into a command.

#[cfg(test)]
mod tests;

use super::mend::{in_member, on_hub, within, word};
use super::work::describe;
use super::{Broken, Cause, Link, Mend, Report, SAID, Stage, State};
use common::api::work::{DEGRADED, Work};
use common::conditions;
use common::gvk::Gvk;
use common::harmless;
use common::labels::HOLD_UNTIL;
use common::names::EXECUTION_PREFIX;
use serde_json::Value;

/// The reason of objects that are not as wanted, and are not brought there now.
const HEALING_PAUSED: &str = "HealingPaused";
/// What an agent says of an object that somebody holds.
const HELD: &str = "is held until ";
/// And of one that somebody changes back again and again.
const FOUGHT: &str = "is changed by others again and again";

/// Has a report tell what members say of these Works, behind what was found before.
pub fn told(mut report: Report, works: &[Work]) -> Report {
    let found = works.iter().filter_map(|work| degraded(work, &report));
    let mut found: Vec<Broken> = found.collect();
    // What waits may yet go by itself.
    found.sort_by_key(|it| it.cause == Cause::Deleting);
    for broken in found {
        if report.broken.is_some() {
            report.also.push(broken);
            continue;
        }
        let state = match broken.cause {
            Cause::Deleting => State::Waiting,
            _ => State::Broken,
        };
        report.links.push(Link {
            stage: broken.stage,
            state,
            what: broken.what.clone(),
            details: Vec::new(),
        });
        report.well = false;
        report.broken = Some(broken);
    }
    report
}

/// What a Work's member says of it, unless the report has it, or knows that nobody is there to say otherwise.
fn degraded(work: &Work, report: &Report) -> Option<Broken> {
    let conditions = &work.status.as_ref()?.conditions;
    let told = conditions::get(conditions, DEGRADED).filter(|it| it.status == "True")?;
    let namespace = work.metadata.namespace.as_deref()?;
    let name = work.metadata.name.as_deref()?;
    let cluster = namespace
        .strip_prefix(EXECUTION_PREFIX)
        .unwrap_or(namespace);
    let words = harmless::line(&told.message, SAID);
    let mut known = report.broken.iter().chain(&report.also);
    let is_settled = |it: &Broken| {
        let is_here = it.cluster.as_deref() == Some(cluster);
        it.stage == Stage::Hub || is_here && (is_away(it) || it.what.contains(&words))
    };
    if known.any(is_settled) {
        return None;
    }
    let describe = describe(work);
    // Nobody heals what is suspended or goes: what was said of that is of an earlier time.
    let heals =
        work.spec.suspend_dispatching != Some(true) && work.metadata.deletion_timestamp.is_none();
    if told.reason == HEALING_PAUSED && !heals {
        return None;
    }
    let (cause, mend) = match told.reason.as_str() {
        "DeletionBlocked" => blocked(&told.message, cluster, describe),
        HEALING_PAUSED => paused(&told.message, cluster, work),
        _ => {
            let mend = on_hub("See what its agent says.", [describe]);
            (Cause::Refused, mend)
        }
    };
    Some(Broken {
        stage: Stage::Work,
        cause,
        cluster: Some(cluster.to_owned()),
        what: format!("{cluster}, work/{name}: {words}"),
        mend,
    })
}

/// Whether a cluster has nobody who carries out its Works: what was said of them before need not be so any more.
fn is_away(broken: &Broken) -> bool {
    use Cause::{AgentGone, CertificateEnded, ClusterMissing, NotRegistered, Quarantined};
    let away = [
        AgentGone,
        CertificateEnded,
        ClusterMissing,
        NotRegistered,
        Quarantined,
    ];
    away.contains(&broken.cause)
}

/// A Work that is being deleted: why it is not gone, in words behind others, and what to do.
pub(super) fn leaving(work: &Work, cluster: &str) -> (Cause, String, Mend) {
    let status = work.status.as_ref();
    let told = status.and_then(|it| conditions::get(&it.conditions, DEGRADED));
    let told = told.filter(|it| it.status == "True" && it.reason != HEALING_PAUSED);
    let message = told.map_or("", |it| it.message.as_str());
    let (cause, mend) = blocked(message, cluster, describe(work));
    let words = told.map(|_| format!(": {}", super::said(message)));
    (cause, words.unwrap_or_default(), mend)
}

/// What left a Work, or goes with it, does not go.
fn blocked(message: &str, cluster: &str, describe: String) -> (Cause, Mend) {
    if message.contains("the agent may not ") {
        let what = format!(
            "Have the owner of {cluster} allow the agent what it names, beside what was allowed before; it goes on by \
             itself."
        );
        return (Cause::PermissionMissing, on_hub(what, [describe]));
    }
    let what = format!(
        "Wait, or mend in {cluster} what it waits for; a finalizer is taken off by whoever put it there."
    );
    (Cause::Deleting, on_hub(what, [describe]))
}

/// An object is not as its manifest says, and is not brought there now.
fn paused(message: &str, cluster: &str, work: &Work) -> (Cause, Mend) {
    let (cause, what, commands) = if message.contains(HELD) {
        let what = format!(
            "Somebody holds it by the annotation {HOLD_UNTIL}: take that off when it may be as wanted again, or let \
             the time pass."
        );
        let take_off = format!("{HOLD_UNTIL}-");
        let commands = commands(work, message, HELD, ["annotate", &take_off]);
        (Cause::Suspended, what, commands)
    } else {
        let what = "See who changes there what the Work says, and have them leave it alone, or leave those fields out \
                    of the template."
            .to_owned();
        let show = ["get", "-o yaml --show-managed-fields"];
        let commands = commands(work, message, FOUGHT, show);
        (Cause::Conflict, what, commands)
    };
    (cause, in_member(cluster, what, commands))
}

/// Commands of kubectl about the objects of a Work of which its member says this.
fn commands(work: &Work, message: &str, says: &str, [verb, rest]: [&str; 2]) -> Vec<String> {
    let manifests = work.spec.workload.manifests.iter();
    let about = manifests.filter_map(|manifest| {
        let text = |pointer: &str| manifest.pointer(pointer).and_then(Value::as_str);
        let (kind, name) = (text("/kind")?, text("/metadata/name")?);
        let gvk = Gvk::new(text("/apiVersion")?, kind)?;
        let namespace = text("/metadata/namespace").filter(|it| !it.is_empty());
        let place = namespace.map_or_else(String::new, |it| format!("{it}/"));
        let told = format!("{kind} {place}{name} {says}");
        let mut notes = message.split("; ");
        notes.any(|note| note.starts_with(&told)).then_some(())?;
        let mut resource = kind.to_lowercase();
        if !gvk.group.is_empty() {
            resource = format!("{resource}.{}", gvk.group);
        }
        let (within, resource, name) = (within(namespace), word(&resource), word(name));
        Some(format!("kubectl{within} {verb} {resource} {name} {rest}"))
    });
    about.collect()
}
