//! What members really have, and in what a plan differs from it.

use super::hub::Fleet;
use crate::controller::binding::targets::targets;
use crate::controller::detector::wake;
use crate::plan::{Change, ClusterPlan, Plan, Subject, TemplatePlan, Verdict, unmarked};
use crate::snapshot::Snapshot;
use crate::world::ObjectName;
use common::api::binding::SCHEDULED;
use common::conditions;
use common::labels::{BINDING_NAME, BINDING_NAMESPACE, CLUSTER_BINDING_NAME};
use common::names::{EXECUTION_PREFIX, binding_name};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

type Shares = BTreeMap<String, Option<i32>>;

/// What there is.
pub(super) struct Real {
    snapshot: Snapshot,
    /// Manifests, by binding and cluster, without the system's marks.
    works: BTreeMap<(ObjectName, String), Value>,
}

impl Real {
    pub(super) async fn of(fleet: &Fleet) -> Self {
        let works = fleet.works().await.into_iter().filter_map(|work| {
            let metadata = &work["metadata"];
            let note = |key: &str| metadata["annotations"][key].as_str();
            let binding = match (note(BINDING_NAME), note(CLUSTER_BINDING_NAME)) {
                (Some(name), _) => ObjectName::new(note(BINDING_NAMESPACE), name),
                (None, Some(name)) => ObjectName::new(None, name),
                (None, None) => return None,
            };
            let cluster = metadata["namespace"]
                .as_str()?
                .strip_prefix(EXECUTION_PREFIX)?;
            let manifest = work["spec"]["workload"]["manifests"][0].clone();
            Some(((binding, cluster.to_owned()), unmarked(manifest)))
        });
        Self {
            works: works.collect(),
            snapshot: fleet.snapshot().await,
        }
    }

    /// Gives new templates of changes the UIDs that they got.
    pub(super) fn name_new(&self, changes: &mut [Change]) {
        for change in changes {
            let Change::Apply(object) = change else {
                continue;
            };
            let name = Subject::of(object).expect("sound").template();
            if let Some(template) = self.snapshot.templates.get(&name) {
                object["metadata"]["uid"] = json!(template.identity.uid);
            }
        }
    }

    fn shares(&self, key: &ObjectName) -> Shares {
        let held = self.snapshot.bindings.get(key);
        let all = held
            .into_iter()
            .flat_map(|held| targets(&held.binding.spec));
        all.map(|target| (target.name.clone(), target.replicas))
            .collect()
    }

    fn manifest(&self, key: &ObjectName, cluster: &str) -> Option<&Value> {
        self.works.get(&(key.clone(), cluster.to_owned()))
    }

    fn holder(&self, key: &ObjectName) -> Option<String> {
        let mut templates = self.snapshot.templates.values();
        let template = templates.find(|it| {
            let identity = &it.identity;
            *key == ObjectName::new(identity.namespace.as_deref(), &identity.binding_name())
        })?;
        Some(wake::holder(&template.identity)?.to_string())
    }

    fn unplaced(&self, key: &ObjectName) -> Option<String> {
        let held = self.snapshot.bindings.get(key)?;
        let condition = conditions::get(&held.status.conditions, SCHEDULED)?;
        (condition.status == "False").then(|| condition.message.clone())
    }

    fn keys(&self) -> BTreeSet<ObjectName> {
        let works = self.works.keys().map(|(key, _)| key.clone());
        works
            .chain(self.snapshot.bindings.keys().cloned())
            .collect()
    }
}

fn key_of(template: &TemplatePlan) -> ObjectName {
    let name = binding_name(&template.kind, &template.name);
    ObjectName::new(template.namespace.as_deref(), &name)
}

/// Where a plan places a template.
fn planned(template: &TemplatePlan) -> Shares {
    let placed = template.clusters.iter().filter(|it| is_target(it));
    placed
        .map(|it| (it.cluster.clone(), it.replicas.after))
        .collect()
}

fn is_target(one: &ClusterPlan) -> bool {
    let told = one.untold || one.manifest.is_some() || one.problem.is_some();
    one.verdict != Verdict::Leaves && told
}

/// Whether everything went to where the plan has it, or may have it.
pub(super) fn possible(plan: &Plan, before: &Real, after: &Real) -> Vec<String> {
    let mut wrong = Vec::new();
    let told: BTreeMap<ObjectName, &TemplatePlan> =
        plan.templates.iter().map(|it| (key_of(it), it)).collect();
    for key in before.keys().union(&after.keys()) {
        let really = after.shares(key);
        let Some(template) = told.get(key) else {
            if really != before.shares(key) {
                wrong.push(format!(
                    "{key} was to stay as it is: {:?}, and is {really:?}",
                    before.shares(key)
                ));
            }
            continue;
        };
        let others = template.or.iter().map(|or| -> Shares {
            or.iter()
                .map(|it| (it.cluster.clone(), it.replicas))
                .collect()
        });
        let mut all = std::iter::once(planned(template)).chain(others);
        if !all.any(|it| it == really) {
            wrong.push(format!(
                "{key} was to be {:?} or {:?}, and is {really:?}",
                planned(template),
                template.or
            ));
        }
    }
    wrong
}

/// In what there is something else than the plan has: of each template that it leaves open in something, than each of
/// the ways to which that may come.
pub(super) fn exact(
    plan: &Plan,
    ways: &[Plan],
    earlier: &[Plan],
    before: &Real,
    after: &Real,
) -> Vec<String> {
    let mut wrong = Vec::new();
    for key in before.keys().union(&after.keys()) {
        let told = told_of(plan, key);
        let is_open = told.is_some_and(TemplatePlan::is_open);
        let ways = if is_open { ways } else { &ways[..1] };
        let each = ways.iter().map(|plan| match told_of(plan, key) {
            Some(template) => of_told(key, template, earlier, before, after),
            None => of_untold(key, before, after),
        });
        wrong.extend(each.min_by_key(Vec::len).unwrap_or_default());
    }
    wrong
}

fn told_of<'p>(plan: &'p Plan, key: &ObjectName) -> Option<&'p TemplatePlan> {
    plan.templates.iter().find(|it| key_of(it) == *key)
}

/// Texts of what differs.
#[derive(Default)]
struct Differing(Vec<String>);

impl Differing {
    fn tell(&mut self, what: String, planned: &Value, really: &Value) {
        if planned != really {
            self.0
                .push(format!("{what}: planned {planned}, really {really}"));
        }
    }
}

/// A template of which a plan tells nothing stays as it is.
fn of_untold(key: &ObjectName, before: &Real, after: &Real) -> Vec<String> {
    let mut wrong = Differing::default();
    let what = format!("{key}, untold");
    wrong.tell(
        what.clone(),
        &json!(before.shares(key)),
        &json!(after.shares(key)),
    );
    wrong.tell(
        format!("{what}, holder"),
        &json!(before.holder(key)),
        &json!(after.holder(key)),
    );
    let (had, has) = (clusters(before, key), clusters(after, key));
    for cluster in had.union(&has) {
        let of = |real: &Real| json!(real.manifest(key, cluster));
        wrong.tell(
            format!("{key} in {cluster}, untold"),
            &of(before),
            &of(after),
        );
    }
    wrong.0
}

fn of_told(
    key: &ObjectName,
    template: &TemplatePlan,
    earlier: &[Plan],
    before: &Real,
    after: &Real,
) -> Vec<String> {
    let mut wrong = Differing::default();
    wrong.tell(
        format!("{key}"),
        &json!(planned(template)),
        &json!(after.shares(key)),
    );
    let policy = template.policy.after.as_ref();
    let policy = policy.and_then(|it| it.split_once(' '));
    wrong.tell(
        format!("{key}, holder"),
        &json!(policy.map(|it| it.1)),
        &json!(after.holder(key)),
    );
    wrong.tell(
        format!("{key}, unplaced"),
        &json!(template.unplaced.after),
        &json!(after.unplaced(key)),
    );
    let mut seen = BTreeSet::new();
    for one in &template.clusters {
        seen.insert(&one.cluster);
        let really = json!(after.manifest(key, &one.cluster));
        let problem = one.problem.as_deref().unwrap_or_default();
        let what = format!("{key} in {}, {:?} {problem}", one.cluster, one.verdict);
        match (&one.manifest, one.verdict) {
            (Some(_), _) if one.passing && really.is_null() => {}
            (Some(manifest), _) => wrong.tell(what, manifest, &really),
            (None, Verdict::Lost) => wrong.tell(what, &Value::Null, &really),
            // It stays as it was, or as a change before this one had it.
            (None, _) => {
                let mut manifests = earlier.iter().filter_map(|it| told_to(it, key, one));
                if !manifests.any(|it| *it == really) {
                    let was = json!(before.manifest(key, &one.cluster));
                    wrong.tell(what, &was, &really);
                }
            }
        }
    }
    for cluster in clusters(after, key).difference(&seen) {
        wrong.tell(
            format!("{key} in {cluster}, which no plan names"),
            &Value::Null,
            &json!(after.manifest(key, cluster)),
        );
    }
    wrong.0
}

/// What a cluster is told of a template by another plan.
fn told_to<'p>(plan: &'p Plan, key: &ObjectName, one: &ClusterPlan) -> Option<&'p Value> {
    let template = told_of(plan, key)?;
    let mut clusters = template.clusters.iter();
    let other = clusters.find(|it| it.cluster == one.cluster)?;
    other.manifest.as_ref()
}

fn clusters<'r>(real: &'r Real, key: &ObjectName) -> BTreeSet<&'r String> {
    let works = real.works.keys().filter(|(of, _)| of == key);
    works.map(|(_, cluster)| cluster).collect()
}
