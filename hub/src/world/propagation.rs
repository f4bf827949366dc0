//! The collections that only propagation looks at: policies, overrides, bindings and templates.

use super::templates::Templates;
use super::view::View;
use super::whole::Whole;
use super::{all, watched};
use common::api::binding::{
    ClusterResourceBinding, ResourceBinding, ResourceBindingSpec, ResourceBindingStatus,
};
use common::api::override_policy::{ClusterOverridePolicy, OverridePolicy, OverrideSpec};
use common::api::policy::{ClusterPropagationPolicy, PropagationPolicy, PropagationSpec};
use common::chance::Chance;
use common::controller::Metrics;
use common::watch::WatchConfig;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;

/// A PropagationPolicy or ClusterPropagationPolicy.
pub type Policy = Whole<PropagationSpec>;
/// An OverridePolicy or ClusterOverridePolicy.
pub type Override = Whole<OverrideSpec>;
/// A ResourceBinding or ClusterResourceBinding.
pub type Binding = Whole<ResourceBindingSpec, ResourceBindingStatus>;

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
    /// Bindings of templates in namespaces.
    pub bindings: View<Binding>,
    /// Bindings of the others.
    pub cluster_bindings: View<Binding>,
    /// The templates of every kind that a policy selects or a binding refers to.
    pub templates: Templates,
}

impl Propagation {
    pub(super) fn new(client: &Client, chance: &Chance, config: &WatchConfig) -> Self {
        let metadata = WatchConfig {
            metadata_only: true,
            ..config.clone()
        };
        let definitions = all::<CustomResourceDefinition, _>(client, "definitions", metadata);
        let config = || config.clone();
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
            bindings: all::<ResourceBinding, _>(client, "resourcebindings", config()),
            cluster_bindings: all::<ClusterResourceBinding, _>(
                client,
                "clusterresourcebindings",
                config(),
            ),
            templates: Templates::new(client, chance, definitions),
        }
    }

    pub(super) fn watches(
        &self,
        metrics: &Metrics,
        chance: &Chance,
    ) -> [BoxFuture<'static, ()>; 7] {
        let templates = self.templates.clone();
        [
            watched(&self.policies, metrics, chance),
            watched(&self.cluster_policies, metrics, chance),
            watched(&self.overrides, metrics, chance),
            watched(&self.cluster_overrides, metrics, chance),
            watched(&self.bindings, metrics, chance),
            watched(&self.cluster_bindings, metrics, chance),
            templates.run(metrics.clone(), chance.clone()).boxed(),
        ]
    }
}
