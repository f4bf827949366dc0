//! Policies that wait for what does not exist: nothing is done by them meanwhile, and bindings do not say so.

use super::read::{Hub, Scope, pages};
use crate::cli::CliError;
use crate::controller::detector::choose;
use crate::controller::detector::wake::overrides_of;
use crate::explain::policy::waits;
use crate::propagation::{Policy, PolicyName, Template};
use common::api::override_policy::{ClusterOverridePolicy, OverridePolicy};
use common::api::policy::{ClusterPropagationPolicy, PropagationPolicy};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::{Api, Client};
use std::collections::BTreeSet;

/// A policy that waits.
#[derive(Debug, Clone)]
pub(in crate::cli) struct Waiting {
    pub(in crate::cli) policy: Policy,
    /// For what.
    pub(in crate::cli) what: String,
}

impl Waiting {
    /// Whether it holds up a template: that which `holder` holds, or one that it would hold.
    pub(super) fn holds_up(
        &self,
        holder: Option<&PolicyName>,
        template: Option<&Template>,
    ) -> bool {
        let selects = |template| {
            choose::is_in_force(&self.policy) && choose::rank(&self.policy, template).is_some()
        };
        match holder {
            Some(holder) => self.policy.name == *holder,
            None => template.is_some_and(selects),
        }
    }
}

impl Hub {
    /// The policies that wait, of one namespace, or of all, and of those for all namespaces. Who may not see a part of
    /// it sees the rest.
    pub(super) async fn waiting(&self, namespace: Option<&str>) -> Result<Vec<Waiting>, CliError> {
        let mut policies = self.policies(namespace).await?;
        policies.retain(|it| {
            !it.spec.dependent_overrides.is_empty() || it.spec.schedule_priority.is_some()
        });
        let mut overrides: BTreeSet<PolicyName> = policies.iter().flat_map(overrides_of).collect();
        for name in overrides.clone() {
            let found = has_override(&self.client, &name).await;
            if seen("OverridePolicies", found)? == Some(false) {
                overrides.remove(&name);
            }
        }
        let named = policies
            .iter()
            .filter_map(|it| it.spec.schedule_priority.as_ref());
        let mut classes: BTreeSet<String> =
            named.map(|it| it.priority_class_name.clone()).collect();
        for name in classes.clone() {
            let found = has_class(&self.client, &name).await;
            if seen("PriorityClasses", found)? == Some(false) {
                classes.remove(&name);
            }
        }
        let each = policies.into_iter().filter_map(|policy| {
            let what = waits(&policy, &overrides, &classes)?.what;
            Some(Waiting { policy, what })
        });
        Ok(each.collect())
    }

    async fn policies(&self, namespace: Option<&str>) -> Result<Vec<Policy>, CliError> {
        let client = || self.client.clone();
        let namespaced: Api<PropagationPolicy> = match namespace {
            Some(namespace) => Api::namespaced(client(), namespace),
            None => Api::all(client()),
        };
        let of_hub: Api<ClusterPropagationPolicy> = Api::all(client());
        let scope = Scope::default();
        let namespaced = seen("PropagationPolicies", pages(&namespaced, &scope).await)?;
        let of_hub = seen("ClusterPropagationPolicies", pages(&of_hub, &scope).await)?;
        let namespaced = namespaced.into_iter().flatten();
        let namespaced = namespaced.map(|it| Policy::of(&it.metadata, &it.spec));
        let of_hub = of_hub.into_iter().flatten();
        let of_hub = of_hub.map(|it| Policy::of(&it.metadata, &it.spec.0));
        Ok(namespaced.chain(of_hub).collect())
    }
}

/// What was read; none where that is denied.
fn seen<T>(what: &str, read: Result<T, kube::Error>) -> Result<Option<T>, CliError> {
    match read {
        Ok(found) => Ok(Some(found)),
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(None),
        Err(error) => Err(CliError::api(format!("failed to read {what}"), error)),
    }
}

/// Whether an override policy exists.
pub(in crate::cli) async fn has_override(
    client: &Client,
    name: &PolicyName,
) -> Result<bool, kube::Error> {
    match &name.namespace {
        Some(namespace) => {
            let api: Api<OverridePolicy> = Api::namespaced(client.clone(), namespace);
            Ok(api.get_metadata_opt(&name.name).await?.is_some())
        }
        None => {
            let api: Api<ClusterOverridePolicy> = Api::all(client.clone());
            Ok(api.get_metadata_opt(&name.name).await?.is_some())
        }
    }
}

/// Whether a PriorityClass exists.
pub(in crate::cli) async fn has_class(client: &Client, name: &str) -> Result<bool, kube::Error> {
    let api: Api<PriorityClass> = Api::all(client.clone());
    Ok(api.get_metadata_opt(name).await?.is_some())
}
