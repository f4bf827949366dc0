//! The collections that only propagation looks at: policies, overrides, bindings and templates.

use super::binding::Binding;
use super::held::{ObjectName, Told};
use super::index::Index;
use super::interpreter::Kinds;
use super::templates::{TemplateName, Templates};
use super::view::{Record, View};
use super::whole::Whole;
use super::{all, watched};
use crate::propagation;
use common::api::binding::{ClusterResourceBinding, ResourceBinding};
use common::api::interpreter::ResourceInterpreterCustomization;
use common::api::override_policy::{ClusterOverridePolicy, OverridePolicy, OverrideSpec};
use common::api::policy::{
    ClusterPropagationPolicy, PropagationPolicy, PropagationSpec, ResourceSelector,
};
use common::api::rebalancer::{RebalancerSpec, RebalancerStatus, WorkloadRebalancer};
use common::api::taint_policy::{ClusterTaintPolicy, ClusterTaintSpec};
use common::chance::Chance;
use common::controller::Metrics;
use common::gvk::GroupKind;
use common::interpreter::custom::Customizations;
use common::watch::WatchConfig;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::sync::Arc;

/// A PropagationPolicy or ClusterPropagationPolicy.
#[derive(Debug)]
pub struct Policy {
    /// What decisions look at.
    pub policy: Arc<propagation::Policy>,
    /// Its finalizers.
    pub finalizers: Vec<String>,
}

impl Record for Policy {
    const KIND: &'static str = "policy";

    type Kept = Arc<Self>;

    fn read(object: &str) -> serde_json::Result<Option<Self>> {
        let Whole { metadata, spec, .. } = serde_json::from_str::<Whole<PropagationSpec>>(object)?;
        let name = propagation::PolicyName {
            namespace: metadata.namespace,
            name: metadata.name.unwrap_or_default(),
        };
        let label = name.id_label();
        let id = metadata
            .labels
            .as_ref()
            .and_then(|labels| labels.get(label));
        Ok(Some(Self {
            policy: Arc::new(propagation::Policy {
                id: id.cloned().unwrap_or_default(),
                name,
                deleting: metadata.deletion_timestamp.is_some(),
                spec,
            }),
            finalizers: metadata.finalizers.unwrap_or_default(),
        }))
    }
}

/// An OverridePolicy or ClusterOverridePolicy.
#[derive(Debug)]
pub struct Override {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// What it wants; nothing but its selectors where the rest cannot be read, and not even these where they cannot.
    pub spec: OverrideSpec,
    /// Why it cannot be read.
    pub problem: Option<String>,
}

/// What of an override says whom it is about.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Selecting {
    #[serde(default)]
    resource_selectors: Vec<ResourceSelector>,
}

impl Record for Override {
    const KIND: &'static str = "override policy";

    type Kept = Arc<Self>;

    fn read(object: &str) -> serde_json::Result<Option<Self>> {
        let (metadata, spec, problem) = match serde_json::from_str::<Whole<OverrideSpec>>(object) {
            Ok(whole) => (whole.metadata, whole.spec, None),
            Err(problem) => {
                // Whom it is about, if that can be read; else it may be about everything.
                let selecting = serde_json::from_str::<Whole<Selecting>>(object);
                let resource_selectors = selecting.map(|it| it.spec.resource_selectors);
                let spec = OverrideSpec {
                    resource_selectors: resource_selectors.unwrap_or_default(),
                    ..OverrideSpec::default()
                };
                let whole = serde_json::from_str::<Whole<IgnoredAny>>(object)?;
                (whole.metadata, spec, Some(problem.to_string()))
            }
        };
        let metadata = ObjectMeta {
            managed_fields: None,
            ..metadata
        };
        Ok(Some(Self {
            metadata,
            spec,
            problem,
        }))
    }
}

/// A WorkloadRebalancer.
pub type Rebalancer = Whole<RebalancerSpec, RebalancerStatus>;

/// What says where templates go, and where they went; clones share it.
#[derive(Clone)]
pub struct Propagation {
    /// Policies of namespaces.
    pub policies: View<Policy>,
    /// Policies of the whole hub.
    pub cluster_policies: View<Policy>,
    /// Overrides of namespaces.
    pub overrides: View<Override>,
    /// Overrides of the whole hub.
    pub cluster_overrides: View<Override>,
    /// Which taints clusters get by their conditions.
    pub taint_policies: View<Whole<ClusterTaintSpec>>,
    /// Bindings of templates in namespaces.
    pub bindings: View<Binding>,
    /// Bindings of the others.
    pub cluster_bindings: View<Binding>,
    /// Both by the kind of their template.
    of_kind: [Index<GroupKind>; 2],
    /// What asks for templates to be placed afresh.
    pub rebalancers: View<Rebalancer>,
    /// What is known of kinds.
    pub kinds: Kinds,
    /// The templates of every kind that a policy selects or a binding refers to.
    pub templates: Templates,
}

impl Propagation {
    pub(super) fn new(
        client: &Client,
        chance: &Chance,
        config: &WatchConfig,
        shipped: Arc<Customizations>,
    ) -> Self {
        let metadata = WatchConfig {
            metadata_only: true,
            ..config.clone()
        };
        let definitions = all::<CustomResourceDefinition, _>(client, "definitions", metadata);
        let config = || config.clone();
        let bindings = all::<ResourceBinding, _>(client, "resourcebindings", config());
        let cluster_bindings =
            all::<ClusterResourceBinding, _>(client, "clusterresourcebindings", config());
        let of_kind = [&bindings, &cluster_bindings].map(|view: &View<Binding>| {
            view.index(|_, held| {
                let template = TemplateName::of(&held.binding.spec.resource);
                template.into_iter().map(|it| it.kind).collect()
            })
        });
        Self {
            policies: all::<PropagationPolicy, _>(client, "propagationpolicies", config()),
            cluster_policies: all::<ClusterPropagationPolicy, _>(
                client,
                "clusterpropagationpolicies",
                config(),
            ),
            overrides: all::<OverridePolicy, _>(client, "overridepolicies", config()),
            cluster_overrides: all::<ClusterOverridePolicy, _>(
                client,
                "clusteroverridepolicies",
                config(),
            ),
            taint_policies: all::<ClusterTaintPolicy, _>(client, "clustertaintpolicies", config()),
            bindings,
            cluster_bindings,
            of_kind,
            rebalancers: all::<WorkloadRebalancer, _>(client, "workloadrebalancers", config()),
            kinds: Kinds::new(
                all::<ResourceInterpreterCustomization, _>(
                    client,
                    "resourceinterpretercustomizations",
                    config(),
                ),
                shipped,
            ),
            templates: Templates::new(client, chance, definitions),
        }
    }

    /// A binding of either kind.
    pub fn binding(&self, name: &ObjectName) -> Option<Arc<Binding>> {
        self.bindings_of(name).get(name)?.record
    }

    /// The view that holds bindings with such a name.
    pub fn bindings_of(&self, name: &ObjectName) -> &View<Binding> {
        if name.namespace.is_empty() {
            &self.cluster_bindings
        } else {
            &self.bindings
        }
    }

    /// Calls `each` with every binding whose template is of a kind that has been listed for the first time: what was
    /// looked at before its template was known is looked at again.
    pub fn on_templates_listed(&self, each: impl Fn(ObjectName) + Send + Sync + 'static) {
        let me = self.clone();
        self.templates.listen(move |kind, told| {
            if let Told::Complete { first: true, .. } = told {
                me.bindings_of_kind(kind).into_iter().for_each(&each);
            }
        });
    }

    /// Calls `each` with every binding whose template is of a kind that a customization was about, or is now.
    pub fn on_kinds_changed(&self, each: impl Fn(ObjectName) + Send + 'static) {
        let me = self.clone();
        self.kinds.on_change(move |kind| {
            me.bindings_of_kind(kind).into_iter().for_each(&each);
        });
    }

    /// The bindings whose templates are of a kind.
    fn bindings_of_kind(&self, kind: &GroupKind) -> Vec<ObjectName> {
        let found = self.of_kind.iter().map(|index| index.names(kind));
        found.flatten().collect()
    }

    /// Waits until all but the templates was listed once.
    pub async fn synced(&self) {
        self.policies.synced().await;
        self.cluster_policies.synced().await;
        self.kinds.view.synced().await;
        self.overrides.synced().await;
        self.cluster_overrides.synced().await;
        self.bindings.synced().await;
        self.cluster_bindings.synced().await;
    }

    pub(super) fn watches(
        &self,
        metrics: &Metrics,
        chance: &Chance,
    ) -> [BoxFuture<'static, ()>; 10] {
        let templates = self.templates.clone();
        [
            watched(&self.policies, metrics, chance),
            watched(&self.cluster_policies, metrics, chance),
            watched(&self.overrides, metrics, chance),
            watched(&self.cluster_overrides, metrics, chance),
            watched(&self.taint_policies, metrics, chance),
            watched(&self.bindings, metrics, chance),
            watched(&self.cluster_bindings, metrics, chance),
            watched(&self.rebalancers, metrics, chance),
            watched(&self.kinds.view, metrics, chance),
            templates.run(metrics.clone(), chance.clone()).boxed(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn an_override_that_cannot_be_read_still_says_whom_it_is_about() {
        let selectors = json!([{"apiVersion": "v1", "kind": "ConfigMap"}]);
        // What it wants, how many selectors are read of it, whether all of it is.
        let cases: [(Value, usize, bool); 4] = [
            (json!({"resourceSelectors": selectors}), 1, true),
            (
                json!({"resourceSelectors": selectors, "overrideRules": 1}),
                1,
                false,
            ),
            (json!({"resourceSelectors": 1}), 0, false),
            (json!(1), 0, false),
        ];
        for (spec, wanted, whole) in cases {
            let object = json!({"metadata": {"name": "p"}, "spec": spec});
            let read = Override::read(&object.to_string()).expect("an object");
            let read = read.expect("held");
            let found = (read.spec.resource_selectors.len(), read.problem.is_none());
            assert_eq!(found, (wanted, whole), "{spec}");
            assert_eq!(read.metadata.name.as_deref(), Some("p"));
        }
    }
}
