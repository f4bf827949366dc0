//! What is to be written for one template: its claim, and its binding.
//!
//! Pure. The reference leaves a template with a policy that no longer selects it, and leaves what a deleted policy
//! placed. Here such a template goes to the next policy, or is released: its claim and its binding go, and with
//! the binding its Works, whose objects stay where `preserveResourcesOnDeletion` says so.

use super::choose::{best, is_in_force, preemptor, rank};
use super::claim::{self, MetadataPatch};
use super::content::{self, Held};
use super::keep;
use super::wake::{self, Edit};
use crate::controller::dependencies::attach;
use crate::propagation::{Binding, Dependent, Notice, Owner, Policy, PolicyName, Template, group};
use common::api::policy::ActivationPreference;
use common::interpreter::replicas::Replicas;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What was seen around one template. What the detector skips (see [`super::skip`]) is not decided on at all.
#[derive(Debug, Clone)]
pub struct Observed {
    /// The template.
    pub template: Template,
    /// What its author changed (see [`super::wake::edit`]) since this was last carried out. What was listed after a
    /// start was not edited, as far as anybody knows.
    pub edited: Option<Edit>,
    /// At least those that may select it (see [`super::wake`]), and the one that holds it.
    pub policies: Vec<Arc<Policy>>,
    /// Override policies that exist, at least of those that these policies depend on.
    pub overrides: BTreeSet<PolicyName>,
    /// What it asks for, by the rules of its kind (see [`common::interpreter::replicas`]); the error says why nobody
    /// knows.
    pub replicas: Result<Option<Replicas>, String>,
    /// Numbers of the PriorityClasses of policies in force that select the template.
    pub priority_classes: BTreeMap<String, i32>,
    /// The binding of its name, if there is one.
    pub binding: Option<Binding>,
    /// Bindings whose templates refer to it, and that may take it along (see [`attach::may_follow`]).
    pub dependents: Vec<Dependent>,
    /// The permanent id that a new binding gets: a UUID that nobody has.
    pub fresh_id: String,
}

/// What is to be done, in this order. At rest it is all empty.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Decision {
    /// The policy that holds the template from now on.
    pub holder: Option<PolicyName>,
    /// A change of the template.
    pub claim: Option<MetadataPatch>,
    /// A change of its binding.
    pub binding: Option<Write>,
    /// Events on the template, told once all of this is done.
    pub events: Vec<Notice>,
    /// Events on the binding.
    pub binding_events: Vec<Notice>,
    /// Why not all of it could be decided; what it waits for wakes the template again.
    pub problem: Option<Problem>,
    /// Whether the rest is decided when the binding is as it is written now, by which the template is woken again.
    pub goes_on: bool,
}

/// What becomes of a binding.
#[derive(Debug, Clone, PartialEq)]
pub enum Write {
    /// It is created, see [`Binding::object`].
    Create(Box<Binding>),
    /// It is changed into this, see [`Binding::patch`].
    Update(Box<Binding>),
    /// It is deleted, when its UID is still this one and the hub confirms what that rests on.
    Delete(String),
    /// It is deleted likewise, as that of a former template of the same name; the next one follows.
    Replace(String),
}

/// Why a template does not get what its policy says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// Overrides that the policy depends on do not exist.
    #[error("waiting for dependent overrides: {0}")]
    Overrides(String),
    /// Nobody knows what it asks for.
    #[error("{0}")]
    Replicas(String),
    /// A class that the policy names does not exist.
    #[error("priorityclasses.scheduling.k8s.io {0:?} not found")]
    PriorityClass(String),
    /// The binding belongs to another template, whose binding has the same name.
    #[error("binding {name:?} already belongs to {other}; rename one of the two")]
    NameTaken {
        /// The binding.
        name: String,
        /// Kind, group and name of the other template.
        other: String,
    },
    /// The binding is being deleted; the next one follows.
    #[error("binding {0:?} is being deleted")]
    Deleting(String),
}

/// What is to be done about one template.
pub fn decide(seen: &Observed) -> Decision {
    if seen.template.deleting {
        return ending(seen);
    }
    let choice = choose(seen);
    let missing = choice
        .policy
        .and_then(|policy| missing_overrides(policy, seen));
    let mut decision = match (choice.policy, missing) {
        // It waits with the policy that it has, and with none when that is gone.
        (Some(policy), Some(problem)) => Decision {
            claim: match choice.held {
                true => None,
                false => claim_of(seen, None),
            },
            binding: kept(seen, policy),
            ..failed(policy, problem)
        },
        (Some(policy), None) => held(seen, policy),
        (None, _) => released(seen),
    };
    if let Some(first) = decision
        .binding
        .as_ref()
        .and_then(|it| said_first(seen, it))
    {
        return going_on(seen, first);
    }
    decision.holder = match &decision.problem {
        Some(Problem::Overrides(_)) if !choice.held => None,
        _ => choice.policy.map(|policy| policy.name.clone()),
    };
    if decision.problem.is_none() {
        decision.events.splice(0..0, choice.notice);
    }
    if let Some(Write::Create(binding) | Write::Update(binding)) = &decision.binding {
        let conflict = attach::conflict(binding, &attach::those_placed(&seen.dependents));
        decision.binding_events.extend(conflict);
    }
    decision
}

/// What is written of a binding in the place of this, so that objects stay where a policy says so last.
fn said_first(seen: &Observed, write: &Write) -> Option<Binding> {
    let binding = seen.binding.as_ref()?;
    let policies = seen.policies.iter().map(AsRef::as_ref);
    match write {
        Write::Create(_) => None,
        Write::Update(wanted) => keep::first_released(binding, wanted, policies),
        Write::Delete(_) | Write::Replace(_) => keep::first(binding, policies),
    }
}

/// The rest is decided when the binding is so. What the template shows stays until then, and with it the policy.
fn going_on(seen: &Observed, first: Binding) -> Decision {
    Decision {
        holder: wake::holder(&seen.template),
        binding: Some(Write::Update(Box::new(first))),
        goes_on: true,
        ..Decision::default()
    }
}

/// A template that is being deleted: its binding ends with it, and that is not for a policy to say any more. It may take
/// as long as somebody's finalizer does, for ever if they like: neither a policy that is deleted too waits for it, nor what
/// takes it along.
fn ending(seen: &Observed) -> Decision {
    let policies = || seen.policies.iter().map(AsRef::as_ref);
    let goes = |name: &PolicyName| policies().any(|it: &Policy| it.name == *name && it.deleting);
    let holder = wake::holder(&seen.template);
    if !holder.as_ref().is_some_and(goes) {
        let binding = left(seen);
        return Decision {
            holder: holder.filter(|_| binding.is_some()),
            binding,
            ..Decision::default()
        };
    }
    // When the binding ends there is no policy any more that could be asked.
    let binding = seen.binding.as_ref();
    match binding.and_then(|it| keep::first(it, policies())) {
        Some(first) => going_on(seen, first),
        None => Decision {
            claim: claim_of(seen, None),
            binding: left(seen),
            ..Decision::default()
        },
    }
}

/// The binding of a template that is being deleted, without those that no longer take it along.
fn left(seen: &Observed) -> Option<Write> {
    let binding = seen.binding.as_ref();
    let known = binding.filter(|it| usable(it, &seen.template).is_ok())?;
    let wanted = attach::without_those_gone(known, &seen.dependents)?;
    if !is_ours(&wanted) {
        return Some(Write::Delete(known.uid.clone()));
    }
    update(known, wanted)
}

struct Choice<'a> {
    policy: Option<&'a Policy>,
    /// Whether the template already shows it.
    held: bool,
    /// That one policy took it from another.
    notice: Option<Notice>,
}

fn choose(seen: &Observed) -> Choice<'_> {
    let template = &seen.template;
    let policies = || seen.policies.iter().map(AsRef::as_ref);
    let claimed = claim::holder(&template.labels, &template.annotations).and_then(|name| {
        policies().find(|policy: &&Policy| {
            policy.name == name && is_in_force(policy) && rank(policy, template).is_some()
        })
    });
    let Some(holder) = claimed else {
        return Choice {
            policy: best(policies(), template),
            held: false,
            notice: None,
        };
    };
    let ready = policies().filter(|policy| missing_overrides(policy, seen).is_none());
    match preemptor(ready, holder, template) {
        Some(winner) => Choice {
            policy: Some(winner),
            held: false,
            notice: Some(preempted(winner, holder)),
        },
        None => Choice {
            policy: Some(holder),
            held: true,
            notice: None,
        },
    }
}

fn missing_overrides(policy: &Policy, seen: &Observed) -> Option<Problem> {
    let there = |name: &&String| {
        seen.overrides.contains(&PolicyName {
            namespace: policy.name.namespace.clone(),
            name: (*name).clone(),
        })
    };
    let names = policy.spec.dependent_overrides.iter();
    let missing: Vec<&str> = names.filter(|it| !there(it)).map(String::as_str).collect();
    (!missing.is_empty()).then(|| Problem::Overrides(missing.join(", ")))
}

fn claim_of(seen: &Observed, policy: Option<&Policy>) -> Option<MetadataPatch> {
    claim::patch(policy, &seen.template.labels, &seen.template.annotations)
}

/// A policy holds the template.
fn held(seen: &Observed, policy: &Policy) -> Decision {
    let mut decision = match wanted(seen, policy) {
        Ok(binding) => Decision {
            events: match binding {
                Some(Write::Create(_) | Write::Update(_)) => vec![applied(policy)],
                _ => Vec::new(),
            },
            binding,
            ..Decision::default()
        },
        Err(problem) => Decision {
            binding: kept(seen, policy),
            ..failed(policy, problem)
        },
    };
    decision.claim = claim_of(seen, Some(policy));
    decision
}

/// The binding of a template whose policy is not carried out now. It goes on showing whose it was, so that it is known as
/// ours when no next policy comes, and follows those that take it along: they wait for it. Of the policy only that is
/// written that objects stay, for the template may be deleted meanwhile; of one that waits for an edit nothing.
fn kept(seen: &Observed, policy: &Policy) -> Option<Write> {
    let template = &seen.template;
    let binding = seen.binding.as_ref();
    let Some(known) = binding.filter(|it| claim::has_any(&it.labels, &it.annotations)) else {
        return followed(seen);
    };
    usable(known, template).ok()?;
    let dependents = attach::those_placed(&seen.dependents);
    let wanted = content::attached(template, known, &dependents, &seen.fresh_id);
    let first = keep::first(&wanted, [policy]).filter(|_| !waits_for_edit(seen, policy));
    update(known, first.unwrap_or(wanted))
}

fn wanted(seen: &Observed, policy: &Policy) -> Result<Option<Write>, Problem> {
    if let Some(binding) = &seen.binding {
        let template = &seen.template;
        if is_former(binding, template) {
            return Ok(Some(Write::Replace(binding.uid.clone())));
        }
        usable(binding, template)?;
    }
    if waits_for_edit(seen, policy) {
        return Ok(kept(seen, policy));
    }
    let held = Held {
        policy,
        replicas: match &seen.replicas {
            Ok(replicas) => replicas.as_ref(),
            Err(error) => return Err(Problem::Replicas(error.clone())),
        },
        priority: priority(policy, seen)?,
    };
    Ok(write(
        seen,
        Some(&held),
        &attach::those_placed(&seen.dependents),
    ))
}

/// Whether what a policy says is in force only when the template's author changes that.
fn waits_for_edit(seen: &Observed, policy: &Policy) -> bool {
    let lazy = policy.spec.activation_preference == Some(ActivationPreference::Lazy);
    lazy && !is_edited(seen)
}

/// Whether the author changed what the template says since its binding was written: that was seen, or its replicas are
/// others than the binding's, which are written of nothing else.
fn is_edited(seen: &Observed) -> bool {
    let asked = seen.replicas.as_ref().ok().and_then(Option::as_ref);
    let claimed = seen.binding.as_ref();
    let claimed = claimed.filter(|it| claim::has_any(&it.labels, &it.annotations));
    let scaled = asked
        .zip(claimed)
        .is_some_and(|(asked, binding)| asked.replicas != binding.spec.replicas.unwrap_or(0));
    scaled || seen.edited == Some(Edit::Content)
}

fn write(seen: &Observed, held: Option<&Held<'_>>, dependents: &[Dependent]) -> Option<Write> {
    let known = seen.binding.as_ref();
    let mut wanted = content::wanted(&seen.template, known, held, dependents, &seen.fresh_id);
    let Some(known) = known else {
        return Some(Write::Create(Box::new(wanted)));
    };
    // Of the template's versions only those count in which its author or its holder changed: a status has a version
    // too, and so has what was written before this process began.
    let holder = |it: &Binding| claim::holder(&it.labels, &it.annotations);
    let version = &known.spec.resource.resource_version;
    if seen.edited.is_none() && holder(known) == holder(&wanted) && version.is_some() {
        wanted.spec.resource.resource_version.clone_from(version);
    }
    update(known, wanted)
}

fn priority(policy: &Policy, seen: &Observed) -> Result<Option<i32>, Problem> {
    let Some(priority) = &policy.spec.schedule_priority else {
        return Ok(None);
    };
    let class = &priority.priority_class_name;
    let known = seen.priority_classes.get(class);
    known
        .copied()
        .map(Some)
        .ok_or_else(|| Problem::PriorityClass(class.clone()))
}

/// Whether a binding is that of a template which is gone, and in whose place this one was made.
fn is_former(binding: &Binding, template: &Template) -> bool {
    let is_same = |owner: &Owner| {
        owner.uid != template.uid
            && owner.name == template.name
            && owner.kind == template.kind
            && group(&owner.api_version) == template.group()
    };
    !binding.deleting && binding.owner.as_ref().is_some_and(is_same)
}

/// Whether a binding of the template's name is the template's.
fn usable(binding: &Binding, template: &Template) -> Result<(), Problem> {
    if binding.deleting {
        return Err(Problem::Deleting(binding.name.clone()));
    }
    let Some(owner) = binding
        .owner
        .as_ref()
        .filter(|owner| owner.uid != template.uid)
    else {
        return Ok(());
    };
    let (kind, group, name) = (&owner.kind, group(&owner.api_version), &owner.name);
    let dot = if group.is_empty() { "" } else { "." };
    Err(Problem::NameTaken {
        name: binding.name.clone(),
        other: format!("{kind}{dot}{group} {name}"),
    })
}

fn update(known: &Binding, wanted: Binding) -> Option<Write> {
    (*known != wanted).then(|| Write::Update(Box::new(wanted)))
}

/// No policy holds the template.
fn released(seen: &Observed) -> Decision {
    Decision {
        claim: claim_of(seen, None),
        binding: followed(seen),
        ..Decision::default()
    }
}

/// The binding of a template that at most others refer to.
fn followed(seen: &Observed) -> Option<Write> {
    let template = &seen.template;
    let known = seen.binding.as_ref();
    let ours = known.filter(|it| is_ours(it));
    if known.is_some_and(|known| is_former(known, template)) {
        return ours.map(|known| Write::Replace(known.uid.clone()));
    }
    if known.is_some_and(|known| usable(known, template).is_err()) {
        return None;
    }
    let dependents = attach::those_placed(&seen.dependents);
    if dependents.is_empty() {
        return ours.map(|known| Write::Delete(known.uid.clone()));
    }
    write(seen, None, &dependents)
}

/// Whether a binding is the detector's: one that shows neither a policy nor a dependent is somebody else's, or what
/// Karmada left.
fn is_ours(binding: &Binding) -> bool {
    claim::has_any(&binding.labels, &binding.annotations) || attach::is_attached(binding)
}

fn failed(policy: &Policy, problem: Problem) -> Decision {
    let mut events = vec![Notice::warning(
        "ApplyPolicyFailed",
        format!("Apply {} failed: {problem}", shown(policy)),
    )];
    if let Problem::Replicas(error) = &problem {
        events.insert(0, Notice::warning("GetReplicasFailed", error.as_str()));
    }
    Decision {
        events,
        problem: Some(problem),
        ..Decision::default()
    }
}

fn applied(policy: &Policy) -> Notice {
    Notice::normal(
        "ApplyPolicySucceed",
        format!("Apply {} succeed", shown(policy)),
    )
}

fn shown(policy: &Policy) -> String {
    match policy.name.namespace {
        Some(_) => format!("policy({})", policy.name),
        None => format!("cluster policy({})", policy.name),
    }
}

fn preempted(winner: &Policy, holder: &Policy) -> Notice {
    let named = |policy: &Policy| match policy.name.namespace {
        Some(_) => format!("propagation policy({})", policy.name),
        None => format!("cluster propagation policy({})", policy.name),
    };
    let subject = match winner.name.namespace {
        Some(_) => format!("Propagation policy({})", winner.name),
        None => format!("Cluster propagation policy({})", winner.name),
    };
    let message = format!("{subject} preempted {} successfully", named(holder));
    Notice::normal("PreemptPolicySucceed", message)
}
