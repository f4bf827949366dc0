//! What is known of a template: which policy holds it, where it is, what each member says of it, and what is wrong.
//!
//! Pure. A binding alone tells the same but for what only the template itself has.

use super::share::{self, Share, is_false, why};
use super::waiting::Waiting;
use crate::controller::binding::condition::DEGRADED;
use crate::controller::detector::claim;
pub(super) use crate::explain::template::Bound;
use crate::propagation::{PolicyName, Template};
use chrono::{DateTime, Utc};
use common::api::binding::{FULLY_APPLIED, SCHEDULED};
use common::api::policy::DEFAULT_SCHEDULER;
use common::conditions;
use common::gvk::{GroupKind, Gvk};
use common::time::from_time;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// What is known beside the template and its binding, as far as this kubeconfig may see it.
#[derive(Debug, Clone, Default)]
pub(in crate::cli) struct Around {
    /// Why a cluster's words may be old, by clusters that are not Ready.
    pub(in crate::cli) silent: BTreeMap<String, String>,
    /// When the binding's Work was made, by clusters.
    pub(in crate::cli) works: BTreeMap<String, DateTime<Utc>>,
    /// Policies that wait for what does not exist.
    pub(in crate::cli) waiting: Vec<Waiting>,
}

/// What was read of one template.
#[derive(Debug, Clone, Copy)]
pub(in crate::cli) struct Seen<'a> {
    /// The object; none when only its binding is asked for.
    pub(in crate::cli) template: Option<&'a Value>,
    /// Its binding, if there is one.
    pub(in crate::cli) binding: Option<&'a Bound>,
    /// The rest.
    pub(in crate::cli) around: &'a Around,
}

/// Something wrong, and what to do next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(in crate::cli) struct Problem {
    /// What is wrong.
    pub(in crate::cli) what: String,
    /// The next thing to look at.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(in crate::cli) hint: String,
}

/// A template, and what became of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::cli) struct Answer {
    pub(in crate::cli) api_version: String,
    pub(in crate::cli) kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) namespace: Option<String>,
    pub(in crate::cli) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) created: Option<DateTime<Utc>>,
    /// The policy that holds it, as `pp/NAME` or `cpp/NAME`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) policy: Option<String>,
    /// Bindings whose templates refer to it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(in crate::cli) follows: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) binding: Option<String>,
    /// Absent until somebody said so or so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) scheduled: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) fully_applied: Option<bool>,
    /// Whether the hub cannot make its Works as they are to be.
    #[serde(skip_serializing_if = "is_false")]
    pub(in crate::cli) degraded: bool,
    /// Whether its policy waits for what does not exist, so that it stays as it is.
    #[serde(skip_serializing_if = "is_false")]
    pub(in crate::cli) waiting: bool,
    /// Replicas that are wanted in all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) replicas: Option<i64>,
    pub(in crate::cli) clusters: Vec<Share>,
    pub(in crate::cli) problems: Vec<Problem>,
}

impl Answer {
    /// What follows from what was read; none without both template and binding.
    pub(in crate::cli) fn of(seen: &Seen<'_>) -> Option<Self> {
        let template = seen.template.and_then(Template::of);
        let reference = match (&template, seen.binding) {
            (Some(template), _) => template.reference(),
            (None, Some(binding)) => binding.spec.resource.clone(),
            (None, None) => return None,
        };
        let of_binding = seen.binding.map(|it| &it.metadata);
        let created = match seen.template {
            Some(object) => object.pointer("/metadata/creationTimestamp").and_then(time),
            None => of_binding.and_then(|it| from_time(it.creation_timestamp.as_ref()?)),
        };
        let policy = template
            .as_ref()
            .and_then(|it| claim::holder(&it.labels, &it.annotations))
            .or_else(|| {
                let metadata = of_binding?;
                let (labels, annotations) = (&metadata.labels, &metadata.annotations);
                claim::holder(labels.as_ref()?, annotations.as_ref()?)
            });
        let mut waiting = seen.around.waiting.iter();
        let waiting = waiting.find(|it| it.holds_up(policy.as_ref(), template.as_ref()));
        let condition = |kind: &str| {
            let found = conditions::get(&seen.binding?.status.conditions, kind)?;
            Some(found.status == "True")
        };
        let of_template = seen
            .template
            .and_then(|it| it.pointer("/spec/replicas")?.as_i64());
        let of_spec = seen.binding.and_then(|it| it.spec.replicas).map(i64::from);
        let required = seen.binding.iter().flat_map(|it| &it.spec.required_by);
        let mut answer = Self {
            api_version: reference.api_version,
            kind: reference.kind,
            namespace: reference.namespace,
            name: reference.name,
            created,
            policy: policy.as_ref().map(short),
            follows: required.map(|it| it.name.clone()).collect(),
            binding: of_binding.and_then(|it| it.name.clone()),
            scheduled: condition(SCHEDULED),
            fully_applied: condition(FULLY_APPLIED),
            degraded: condition(DEGRADED) == Some(true),
            waiting: waiting.is_some(),
            replicas: of_template.or(of_spec),
            clusters: Vec::new(),
            problems: Vec::new(),
        };
        if let Some(binding) = seen.binding {
            answer.clusters = share::all(binding, seen.around);
        }
        answer.problems = answer.wrong(seen, waiting);
        Some(answer)
    }

    /// `deployment.apps`, as kubectl writes it before a name.
    pub(in crate::cli) fn resource(&self) -> String {
        let group_kind = self.group_kind();
        group_kind.to_string().to_lowercase()
    }

    fn group_kind(&self) -> GroupKind {
        match Gvk::new(&self.api_version, &self.kind) {
            Some(gvk) => gvk.group_kind(),
            None => GroupKind {
                group: String::new(),
                kind: self.kind.clone(),
            },
        }
    }

    /// Replicas that are ready in all; none when no member counts any.
    pub(in crate::cli) fn ready(&self) -> Option<i64> {
        let counted: Vec<i64> = self.clusters.iter().filter_map(|it| it.ready).collect();
        (!counted.is_empty()).then(|| counted.iter().sum())
    }

    /// How many clusters have applied it.
    pub(in crate::cli) fn applied(&self) -> usize {
        let applied = |it: &&Share| it.applied == Some(true);
        self.clusters.iter().filter(applied).count()
    }

    /// How many clusters say that it does what it should.
    pub(in crate::cli) fn healthy(&self) -> usize {
        self.clusters.iter().filter(|it| it.is_healthy()).count()
    }

    /// Everything that is wrong, in the order of its way: policy, binding, placement, members.
    fn wrong(&self, seen: &Seen<'_>, waiting: Option<&Waiting>) -> Vec<Problem> {
        let waits = waiting.map(|it| problem(&it.what, why(self)));
        if self.policy.is_none() && self.follows.is_empty() {
            return waits.or_else(|| self.not_held()).into_iter().collect();
        }
        let mut problems: Vec<Problem> = waits.into_iter().collect();
        let Some(binding) = seen.binding else {
            if problems.is_empty() {
                problems.push(self.not_bound());
            }
            return problems;
        };
        problems.extend(self.not_placed(binding));
        problems.extend(self.not_made(binding));
        problems.extend(self.clusters.iter().filter_map(|it| it.problem(self)));
        problems
    }

    /// An override that does not apply, or a script that fails: members keep what they have.
    fn not_made(&self, binding: &Bound) -> Option<Problem> {
        let condition = conditions::get(&binding.status.conditions, DEGRADED)?;
        let what = format!("its Works cannot be made as wanted: {}", condition.message);
        self.degraded.then(|| problem(what, why(self)))
    }

    fn not_bound(&self) -> Problem {
        problem(
            format!("{} holds it, and it has no binding yet", self.held_by()),
            format!(
                "A Lazy policy places it when it is edited next. If that lasts otherwise: {}",
                why(self)
            ),
        )
    }

    fn held_by(&self) -> String {
        self.policy
            .clone()
            .unwrap_or_else(|| self.follows.join(", "))
    }

    /// Neither a policy nor another template takes it anywhere. A Namespace goes where something in it goes.
    fn not_held(&self) -> Option<Problem> {
        let what = "no policy holds it: it stays on the hub";
        (self.resource() != "namespace").then(|| problem(what, why(self)))
    }

    /// The scheduler's own words, or why it has none.
    fn not_placed(&self, binding: &Bound) -> Option<Problem> {
        let spec = &binding.spec;
        // What follows others is placed by them.
        let policy = self.policy.as_deref()?;
        let suspended = spec.suspension.as_ref().and_then(|it| it.scheduling) == Some(true);
        if suspended {
            let hint = "Somebody suspended it: spec.suspension.scheduling of its binding says so.";
            return Some(problem("its placement is suspended", hint));
        }
        let described = match policy.strip_prefix("pp/") {
            Some(name) => format!(
                "kubectl -n {} describe pp {name}",
                self.namespace.as_deref().unwrap_or_default()
            ),
            None => format!("kubectl describe {policy}"),
        };
        match conditions::get(&binding.status.conditions, SCHEDULED) {
            Some(condition) if condition.status == "True" => None,
            Some(condition) => Some(problem(
                format!("not placed: {}", condition.message),
                format!(
                    "Compare what the policy asks for (`{described}`) with the clusters (`kubectl get clusters \
                     --show-labels`)."
                ),
            )),
            None => {
                let by = spec.scheduler_name.as_deref().unwrap_or(DEFAULT_SCHEDULER);
                let hint = match by {
                    DEFAULT_SCHEDULER => {
                        "If that lasts, see whether the hub's controllers run: `towline check`."
                            .to_owned()
                    }
                    other => format!(
                        "Its policy leaves that to the scheduler {other:?}, which is not the hub's."
                    ),
                };
                Some(problem("not placed yet", hint))
            }
        }
    }
}

/// Something wrong.
pub(in crate::cli) fn problem(what: impl Into<String>, hint: impl Into<String>) -> Problem {
    Problem {
        what: what.into(),
        hint: hint.into(),
    }
}

/// A policy as kubectl takes it.
fn short(policy: &PolicyName) -> String {
    match policy.namespace {
        Some(_) => format!("pp/{}", policy.name),
        None => format!("cpp/{}", policy.name),
    }
}

fn time(value: &Value) -> Option<DateTime<Utc>> {
    let time = DateTime::parse_from_rfc3339(value.as_str()?).ok()?;
    Some(time.to_utc())
}
