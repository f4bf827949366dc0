//! From what the views hold to what is decided on.

use super::Detector;
use super::choose::{is_in_force, rank};
use super::decide::{Decision, Observed};
use super::shown;
use super::wake::Edit;
use crate::controller::bindings::{Error, required_by};
use crate::controller::dependencies::{attach, sought};
use crate::propagation::{Binding, Dependent, Policy, PolicyName, Template};
use crate::world::{ObjectName, TemplateName};
use common::gvk::Gvk;
use common::interpreter::replicas::Replicas;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::Api;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

impl Detector {
    /// What was seen around a template; none when it is gone or is never propagated.
    pub(super) async fn observe(
        &self,
        key: &TemplateName,
        edited: Option<Edit>,
    ) -> Result<Option<Observed>, Error> {
        let world = &self.world.propagation;
        let Some(held) = world.templates.get(key).and_then(|held| held.record) else {
            return Ok(None);
        };
        let template = held.identity.clone();
        if self.skips.template(&template) {
            return Ok(None);
        }
        if let Some(holder) = super::wake::holder(&template)
            && self.is_unreadable(&holder)
        {
            // What it says is not known: nothing is released for that.
            return Err(Error::Undecided(format!(
                "the policy {holder} cannot be read, so what it holds stays as it is; write it anew as its kind describes it"
            )));
        }
        let policies = self.policies(&template);
        let name = ObjectName::new(template.namespace.as_deref(), &template.binding_name());
        let binding = world.binding(&name).map(|held| held.binding.clone());
        if let Some(parent) = binding.as_ref().and_then(|it| self.unreadable_parent(it)) {
            // Nor is it known what that takes along, and where to.
            return Err(Error::Undecided(format!(
                "the binding {parent} takes it along and cannot be read, so it stays where it is"
            )));
        }
        Ok(Some(Observed {
            edited,
            overrides: self.overrides(&policies),
            replicas: self.replicas(&template, &held),
            priority_classes: self.priority_classes(&policies, &template).await?,
            binding,
            dependents: self.dependents(&template),
            fresh_id: self.fresh_id(),
            template,
            policies,
        }))
    }

    /// What a template asks for.
    fn replicas(
        &self,
        template: &Template,
        held: &crate::world::Template,
    ) -> Result<Option<Replicas>, String> {
        let Some(gvk) = gvk_of(template) else {
            return Ok(None);
        };
        let interpreter = self.world.propagation.kinds.interpreter();
        let found = interpreter.replicas(&gvk, &held.object());
        found.map_err(|failed| failed.to_string())
    }

    fn is_unreadable(&self, policy: &PolicyName) -> bool {
        let views = &self.world.propagation;
        let view = match policy.namespace {
            Some(_) => &views.policies,
            None => &views.cluster_policies,
        };
        let name = ObjectName::new(policy.namespace.as_deref(), &policy.name);
        view.get(&name).is_some_and(|held| held.record.is_none())
    }

    /// Of the bindings that take one along, one that is there and cannot be read.
    fn unreadable_parent(&self, binding: &Binding) -> Option<ObjectName> {
        let views = &self.world.propagation;
        required_by(binding).into_iter().find(|name| {
            let held = views.bindings_of(name).get(name);
            held.is_some_and(|held| held.record.is_none())
        })
    }

    /// The policies that may select a template, and those that it shows.
    fn policies(&self, template: &Template) -> Vec<Arc<Policy>> {
        let mut all = Vec::new();
        if let Some(namespace) = &template.namespace {
            all.extend(self.policies_beside(Some(namespace)));
        }
        all.extend(self.policies_beside(None));
        all
    }

    /// The policies of a namespace, without looking at those of others; without one, those of the hub.
    pub(super) fn policies_beside(&self, namespace: Option<&str>) -> Vec<Arc<Policy>> {
        let world = &self.world.propagation;
        let mut beside = Vec::new();
        let Some(namespace) = namespace else {
            world.cluster_policies.for_each(|_, held| {
                let policy = held.record.as_ref().map(|it| Arc::clone(&it.policy));
                beside.extend(policy);
            });
            return beside;
        };
        for name in self.policies_in.names(&Arc::from(namespace)) {
            let held = world.policies.get(&name).and_then(|held| held.record);
            beside.extend(held.map(|it| Arc::clone(&it.policy)));
        }
        beside
    }

    fn overrides(&self, policies: &[Arc<Policy>]) -> BTreeSet<PolicyName> {
        let world = &self.world.propagation;
        let wanted = policies
            .iter()
            .flat_map(|policy| super::wake::overrides_of(policy));
        let there = |name: &PolicyName| {
            let object = ObjectName::new(name.namespace.as_deref(), &name.name);
            match name.namespace {
                Some(_) => world.overrides.get(&object).is_some(),
                None => world.cluster_overrides.get(&object).is_some(),
            }
        };
        wanted.filter(there).collect()
    }

    /// Numbers of the classes that are named by policies which may hold a template: no other can leave it undecided. They
    /// are few, and rarely change.
    async fn priority_classes(
        &self,
        policies: &[Arc<Policy>],
        template: &Template,
    ) -> Result<BTreeMap<String, i32>, Error> {
        let named = policies
            .iter()
            .filter(|policy| is_in_force(policy) && rank(policy, template).is_some())
            .filter_map(|policy| policy.spec.schedule_priority.as_ref());
        let names: BTreeSet<String> = named.map(|it| it.priority_class_name.clone()).collect();
        let classes: Api<PriorityClass> = Api::all(self.client.clone());
        let mut numbers = BTreeMap::new();
        for name in names {
            let class = classes.get_opt(&name).await;
            let class = class.map_err(|error| {
                Error::Undecided(format!("failed to read PriorityClass {name:?}: {error}"))
            })?;
            numbers.extend(class.map(|class| (name, class.value)));
        }
        Ok(numbers)
    }

    /// Puts what a template refers to into its binding, with whatever else is written there.
    pub(super) fn add_dependencies(
        &self,
        key: &TemplateName,
        seen: &Observed,
        decision: &mut Decision,
    ) -> Result<(), Error> {
        let held = self.world.propagation.templates.get(key);
        let object = held.and_then(|held| Some(held.record?.object()));
        let is_required = |name: &ObjectName| self.required.count(name) > 0;
        let interpreter = self.world.propagation.kinds.interpreter();
        let shown = shown::add(seen, object.as_ref(), &interpreter, is_required, decision);
        shown.map_err(|error| Error::Form(seen.template.binding_name(), error))
    }

    /// The bindings that may take a template along.
    fn dependents(&self, template: &Template) -> Vec<Dependent> {
        let world = &self.world.propagation;
        let keys = sought::keys_of_template(template);
        let names: BTreeSet<ObjectName> = keys
            .iter()
            .flat_map(|key| self.seekers.names(key))
            .collect();
        let held = names.iter().filter_map(|name| world.binding(name));
        let held: Vec<_> = held.collect();
        attach::those_of(template, held.iter().map(|held| &held.binding))
    }
}

pub(super) fn gvk_of(template: &Template) -> Option<Gvk> {
    Gvk::new(&template.api_version, &template.kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::bindings::Bindings;
    use crate::controller::detector::{Holdings, Unsettled, skip::Skips};
    use crate::controller::notices::Notices;
    use crate::controller::scheduler::Placing;
    use crate::world::testing::{answering, unreachable};
    use common::chance::Chance;
    use common::labels::POLICY_PERMANENT_ID;
    use common::lock::lock;
    use http::StatusCode;
    use serde_json::json;

    #[tokio::test]
    async fn only_classes_of_policies_that_select_a_template_are_read() {
        let path = |class: &str| format!("/apis/scheduling.k8s.io/v1/priorityclasses/{class}");
        let readable = path("named");
        let (client, asked) = answering(move |_, path| match path {
            _ if path == readable => StatusCode::OK,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        });
        let world = unreachable();
        let bindings = Bindings::new(client.clone(), world.clone(), Notices::default());
        let detector = Detector::new(
            client,
            (bindings, Placing::watching(&world)),
            Skips::default(),
            (Holdings::default(), Unsettled::default()),
            &Chance::seeded(1),
            &world,
        );
        let kind = Gvk::new("apps/v1", "Deployment").expect("a kind");
        // Policies, the template that they select, their id and the class that they name.
        let policies = [
            ("selects", "web", "i", "named"),
            ("of-another", "db", "i", "of-another"),
            ("not-in-force", "web", "", "not-in-force"),
        ];
        let policies = policies.map(|(name, template, id, class)| {
            json!({"metadata": {"namespace": "n", "name": name, "resourceVersion": "1",
                    "labels": {POLICY_PERMANENT_ID: id}},
                "spec": {"placement": {}, "resourceSelectors":
                        [{"apiVersion": kind.api_version(), "kind": kind.kind, "name": template}],
                    "schedulePriority":
                        {"priorityClassSource": "KubePriorityClass", "priorityClassName": class}}})
        });
        let views = &world.propagation;
        views.policies.listed(&policies).await;
        let template = |name: &str| json!({"metadata": {"namespace": "n", "name": name, "uid": "t", "resourceVersion": "1"}});
        let templates = ["web", "other"].map(template);
        views.templates.told_of(&kind).listed(&templates).await;
        for (name, read) in [("web", &["named"][..]), ("other", &[])] {
            let name = TemplateName {
                kind: kind.group_kind(),
                name: ObjectName::new(Some("n"), name),
            };
            let seen = detector.observe(&name, None).await.expect("decided");
            let classes = seen.expect("held").priority_classes;
            assert!(classes.keys().eq(read), "{classes:?}");
            let asked = std::mem::take(&mut *lock(&asked)).into_iter();
            let paths: Vec<String> = asked.map(|(_, path, _)| path).collect();
            let wanted: Vec<String> = read.iter().map(|class| path(class)).collect();
            assert_eq!(paths, wanted);
        }
    }
}
