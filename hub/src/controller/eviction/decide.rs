//! Which clusters a binding leaves now, and which copies that it left behind go. Pure.

use super::brake::Word;
use super::taints::{Stay, evicts, stay};
use super::tasks::{Fate, Replacement, TAINT_MANAGER, TAINT_UNTOLERATED, fate};
use super::unhealthy::{self, APPLICATION_FAILURE, Since};
use crate::propagation::{Binding, Notice};
use crate::world;
use chrono::{DateTime, Utc};
use common::api::binding::{GracefulEvictionTask, TargetCluster};
use common::api::policy::{ClusterPurgeMode, PurgeMode};
use common::labels::{TAINT_NOT_READY, TAINT_UNREACHABLE};
use common::time::to_time;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// What the controller was told.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// How a copy goes whose binding does not say.
    pub purge_mode: ClusterPurgeMode,
    /// How long a task lasts that does not say.
    pub timeout: Duration,
}

/// A cluster that a binding is placed on, or leaves.
#[derive(Debug, Clone)]
pub struct Around {
    /// The Cluster.
    pub cluster: Arc<world::Cluster>,
    /// What the brake says of it.
    pub word: Word,
}

/// What was seen.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// The binding.
    pub held: &'a world::Binding,
    /// The clusters that it is about, those that are there.
    pub clusters: &'a BTreeMap<String, Around>,
    /// Since when it is not healthy in them.
    pub unhealthy: &'a Since,
    /// Whether it has its turn to leave.
    pub turn: bool,
}

/// What is to be done; at rest nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Decision {
    /// The binding as it is to be.
    pub binding: Option<Binding>,
    /// Clusters that it leaves.
    pub left: Vec<String>,
    /// Whether it has to leave some, and waits for its turn.
    pub wants_turn: bool,
    /// Clusters that it would leave, did the brake not hold.
    pub held: Vec<String>,
    /// Events, once it is written.
    pub events: Vec<Notice>,
    /// Clusters that it would leave, could what it says there be told to the next copy.
    pub blocked: Vec<Notice>,
    /// When to look again.
    pub again: Option<Duration>,
}

impl Decision {
    fn look_at(&mut self, now: DateTime<Utc>, at: DateTime<Utc>) {
        // Times of the API are whole seconds, and what ends is over strictly after.
        let wait = (at - now).to_std().unwrap_or_default() + Duration::from_millis(1);
        self.look_in(wait);
    }

    fn look_in(&mut self, wait: Duration) {
        self.again = Some(self.again.map_or(wait, |sooner| sooner.min(wait)));
    }
}

/// Decides about one binding.
pub fn decide(now: DateTime<Utc>, options: Options, seen: Seen<'_>) -> Decision {
    let mut decision = Decision::default();
    let binding = &seen.held.binding;
    // Without a placement nobody would place it anywhere else.
    if binding.deleting || binding.spec.placement.is_none() {
        return decision;
    }
    let mut wanted = binding.clone();
    end_tasks(now, options, seen, &mut wanted, &mut decision);
    leave(now, options, seen, &mut wanted, &mut decision);
    decision.binding = Some(wanted).filter(|it| it.spec != binding.spec);
    decision
}

/// How long a binding may stay on a cluster. One that is ready again has the taints of its silence until they are taken
/// off: nothing leaves it for these.
fn stays(binding: &Binding, cluster: &world::Cluster) -> Stay {
    let placement = binding.spec.placement.as_ref();
    let tolerations = placement.map_or(&[][..], |it| &it.cluster_tolerations);
    let ready = cluster.ready.as_ref();
    let ready = ready.is_some_and(|it| it.status == world::Status::True);
    if !ready || cluster.lifecycle.deleted.is_some() {
        return stay(tolerations, &cluster.taints);
    }
    let over = [TAINT_NOT_READY, TAINT_UNREACHABLE];
    let taints = cluster.taints.iter();
    let taints: Vec<_> = taints
        .filter(|it| !over.contains(&it.key.as_str()))
        .cloned()
        .collect();
    stay(tolerations, &taints)
}

fn end_tasks(
    now: DateTime<Utc>,
    options: Options,
    seen: Seen<'_>,
    wanted: &mut Binding,
    decision: &mut Decision,
) {
    let held = seen.held;
    let replacement = Replacement::of(&held.binding.spec, &held.whole_status(), held.generation);
    let mut kept = Vec::new();
    for mut task in std::mem::take(&mut wanted.spec.graceful_eviction_tasks) {
        let name = &task.from_cluster;
        let is_target = wanted.spec.clusters.iter().any(|it| it.name == *name);
        let fate = match seen.clusters.get(name) {
            // What was there went with it.
            None => Fate::Ends,
            Some(around) => {
                let stays = stays(&held.binding, &around.cluster);
                let ready = around.cluster.ready.as_ref();
                let ready = ready.is_some_and(|it| it.status == world::Status::True);
                let welcome = stays == Stay::ForEver && ready && !is_target;
                match fate(now, &task, replacement, options.timeout, welcome) {
                    // The taint is tolerated for a while, and that is over: the scheduler would place it there again.
                    // The task stays as long as the taint; only the copy goes, once somebody is there to take it away.
                    // It is let go: what replaces it does not wait until it is gone.
                    Fate::Ends if stays.is_over(now) && stays != Stay::No => {
                        if ready || task.purge_mode == Some(PurgeMode::Directly) {
                            task.purge_mode = Some(PurgeMode::Directly);
                            task.suppress_deletion = Some(false);
                            task.grace_period_seconds = None;
                        }
                        Fate::Stays(None)
                    }
                    fate => fate,
                }
            }
        };
        match fate {
            Fate::Stays(until) => {
                until.into_iter().for_each(|at| decision.look_at(now, at));
                kept.push(task);
            }
            Fate::Begins => {
                task.creation_timestamp = Some(to_time(now));
                kept.push(task);
            }
            Fate::Ends => {
                let text = format!("Evict from cluster {name} succeed.");
                let notice = Notice::normal("EvictWorkloadFromClusterSucceed", text);
                decision.events.push(notice);
            }
            Fate::Returns => {
                let text = match task.reason == APPLICATION_FAILURE {
                    true => format!("Goes on in cluster {name}: nothing else took its place."),
                    false => {
                        format!("Cluster {name} is well again, and nothing else took its place.")
                    }
                };
                let notice = Notice::normal("EvictWorkloadFromClusterCancelled", text);
                decision.events.push(notice);
                wanted.spec.clusters.push(TargetCluster {
                    name: task.from_cluster,
                    replicas: task.replicas,
                    ..TargetCluster::default()
                });
            }
        }
    }
    wanted.spec.graceful_eviction_tasks = kept;
}

/// A cluster that a binding has to leave.
struct Due<'a> {
    target: &'a TargetCluster,
    cluster: &'a world::Cluster,
    cause: Cause,
    /// What the next copy is told.
    labels: BTreeMap<String, String>,
}

#[derive(Clone, Copy)]
enum Cause {
    Taints,
    Health,
}

fn leave(
    now: DateTime<Utc>,
    options: Options,
    seen: Seen<'_>,
    wanted: &mut Binding,
    decision: &mut Decision,
) {
    let held = seen.held;
    let mut due = Vec::new();
    for target in &held.binding.spec.clusters {
        let Some(around) = seen.clusters.get(&target.name) else {
            continue;
        };
        let by_taints = stays(&held.binding, &around.cluster);
        let by_health = unhealthy::stay(&held.binding.spec, seen.unhealthy, &target.name);
        let cause = match (by_taints.is_over(now), by_health.is_over(now)) {
            (true, _) => Cause::Taints,
            (false, true) => Cause::Health,
            (false, false) => {
                for stays in [by_taints, by_health] {
                    if let Stay::Until(end) = stays {
                        decision.look_at(now, end);
                    }
                }
                continue;
            }
        };
        match around.word {
            Word::Go => due.extend(due_by(cause, held, target, around, decision)),
            Word::Wait(wait) => decision.look_in(wait),
            Word::Held => decision.held.push(target.name.clone()),
        }
    }
    if due.is_empty() {
        return;
    }
    if !seen.turn {
        decision.wants_turn = true;
        return;
    }
    for due in due {
        let name = &due.target.name;
        let spec = &mut wanted.spec;
        spec.clusters.retain(|it| it.name != *name);
        decision.events.push(why(&due));
        decision.left.push(name.clone());
        let tasks = &mut spec.graceful_eviction_tasks;
        if !tasks.iter().any(|it| it.from_cluster == *name) {
            tasks.push(task(now, options, &held.binding, due));
        }
    }
}

/// What a copy says is lost with it: one that fails waits until all of it can be told, one whose cluster is lost goes
/// with what is known.
fn due_by<'a>(
    cause: Cause,
    held: &world::Binding,
    target: &'a TargetCluster,
    around: &'a Around,
    decision: &mut Decision,
) -> Option<Due<'a>> {
    let failover = held.binding.spec.failover.as_ref();
    let rules = failover.and_then(|it| match cause {
        Cause::Taints => it.cluster.as_ref()?.state_preservation.as_ref(),
        Cause::Health => it.application.as_ref()?.state_preservation.as_ref(),
    });
    let (labels, problems) = unhealthy::preserved(rules, held, &target.name);
    if matches!(cause, Cause::Health) && !problems.is_empty() {
        let text = format!(
            "Stays in cluster {}, where it is not healthy: failover.application.statePreservation of its policy asks for what is not there ({}).",
            target.name,
            problems.join("; ")
        );
        let notice = Notice::warning("EvictWorkloadFromClusterFailed", text);
        decision.blocked.push(notice);
        return None;
    }
    Some(Due {
        target,
        cluster: &around.cluster,
        cause,
        labels,
    })
}

fn task(
    now: DateTime<Utc>,
    options: Options,
    binding: &Binding,
    due: Due<'_>,
) -> GracefulEvictionTask {
    let spec = &binding.spec;
    let targets = spec.clusters.iter();
    let all = targets.map(|it| it.name.clone()).collect();
    let task = GracefulEvictionTask {
        from_cluster: due.target.name.clone(),
        replicas: due.target.replicas.filter(|replicas| *replicas > 0),
        creation_timestamp: Some(to_time(now)),
        clusters_before_failover: Some(all)
            .filter(|_| !due.labels.is_empty())
            .unwrap_or_default(),
        preserved_label_state: due.labels,
        ..GracefulEvictionTask::default()
    };
    match (due.cause, unhealthy::wanted(spec)) {
        (Cause::Health, Some(application)) => GracefulEvictionTask {
            purge_mode: Some(application.purge_mode),
            reason: APPLICATION_FAILURE.to_owned(),
            producer: application_failover(binding).to_owned(),
            grace_period_seconds: application.grace_period_seconds,
            suppress_deletion: (application.purge_mode == PurgeMode::Never).then_some(true),
            ..task
        },
        _ => GracefulEvictionTask {
            purge_mode: Some(purge_mode(options, binding)),
            reason: TAINT_UNTOLERATED.to_owned(),
            producer: TAINT_MANAGER.to_owned(),
            ..task
        },
    }
}

/// Karmada's name of who moves workloads that fail.
fn application_failover(binding: &Binding) -> &'static str {
    match binding.namespace {
        Some(_) => "resource-binding-application-failover-controller",
        None => "cluster-resource-binding-application-failover-controller",
    }
}

fn purge_mode(options: Options, binding: &Binding) -> PurgeMode {
    let failover = binding.spec.failover.as_ref();
    let cluster = failover.and_then(|it| it.cluster.as_ref());
    match cluster.map_or(options.purge_mode, |it| it.purge_mode) {
        ClusterPurgeMode::Directly => PurgeMode::Directly,
        ClusterPurgeMode::Gracefully => PurgeMode::Gracefully,
    }
}

fn why(due: &Due<'_>) -> Notice {
    let name = &due.target.name;
    match due.cause {
        Cause::Taints => {
            let taints = due.cluster.taints.iter().filter(|it| evicts(it));
            let taints: Vec<&str> = taints.map(|it| it.key.as_str()).collect();
            let taints = taints.join(", ");
            let text = format!("Leaves cluster {name}, which has NoExecute taints ({taints}).");
            Notice::warning(TAINT_UNTOLERATED, text)
        }
        Cause::Health => {
            let text = format!(
                "Leaves cluster {name}, where it was not healthy for longer than its policy tolerates."
            );
            Notice::warning(APPLICATION_FAILURE, text)
        }
    }
}
