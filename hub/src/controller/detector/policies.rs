//! Gives every policy its permanent id and finalizer, and lets it go when it holds nothing any more.

use super::holdings::Holdings;
use super::marks;
use super::skip::Skips;
use crate::controller::bindings::Error;
use crate::propagation::{Policy, PolicyName};
use crate::world::{ObjectName, Told, World};
use common::chance::{Chance, SharedStream};
use common::controller::{Controller, Reconcile, Requeue};
use common::gvk::Gvk;
use common::rest::{Call, MERGE_PATCH};
use common::uuid::random_uuid;
use kube::Client;
use std::time::Duration;

const API: &str = "/apis/policy.karmada.io/v1alpha1";
/// How long to wait for the templates of a kind to be listed.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// The controller.
pub struct Policies {
    client: Client,
    world: World,
    holdings: Holdings,
    skips: Skips,
    draws: SharedStream,
}

impl Policies {
    /// Woken by policies, and by templates that leave one.
    pub fn watching(
        client: Client,
        holdings: Holdings,
        skips: Skips,
        chance: &Chance,
        world: &World,
    ) -> Controller<Self> {
        let controller = Controller::new(Self {
            client,
            world: world.clone(),
            holdings,
            skips,
            draws: chance.shared_stream("policies"),
        });
        let views = &world.propagation;
        for policies in [&views.policies, &views.cluster_policies] {
            let queue = controller.queue();
            policies.on_change(move |change| {
                if change.new.is_some() {
                    queue.add(change.name.clone());
                }
            });
        }
        let queue = controller.queue();
        views.templates.listen(move |_, told| {
            let Told::Changed(change) = told else { return };
            let holder = change
                .before()
                .and_then(|it| super::wake::holder(&it.identity));
            if let Some(holder) = holder {
                queue.add(ObjectName::new(holder.namespace.as_deref(), &holder.name));
            }
        });
        controller
    }

    /// Whether every template that a policy selects is known.
    fn knows_all(&self, policy: &Policy) -> bool {
        let templates = &self.world.propagation.templates;
        let selectors = policy.spec.resource_selectors.iter();
        let mut kinds = selectors.filter_map(|it| Gvk::new(&it.api_version, &it.kind));
        kinds.all(|it| {
            self.skips.kind(&it.api_version(), &it.kind) || templates.is_synced(&it.group_kind())
        })
    }
}

impl Reconcile for Policies {
    const NAME: &'static str = "policy";
    type Key = ObjectName;
    type Error = Error;

    async fn ready(&self) {
        self.world.propagation.synced().await;
    }

    async fn reconcile(&self, key: &ObjectName) -> Result<Requeue, Error> {
        let views = &self.world.propagation;
        let namespaced = !key.namespace.is_empty();
        let view = if namespaced {
            &views.policies
        } else {
            &views.cluster_policies
        };
        let Some(held) = view.get(key) else {
            return Ok(Requeue::Never);
        };
        let Some(record) = &held.record else {
            return Ok(Requeue::Never);
        };
        let name = PolicyName {
            namespace: namespaced.then(|| key.namespace.to_string()),
            name: key.name.to_string(),
        };
        let policy = &record.policy;
        if policy.deleting && !self.knows_all(policy) {
            return Ok(Requeue::After(LOOK_AGAIN));
        }
        let holds = self.holdings.is_any(&name);
        let fresh_id = self.draws.draw(random_uuid);
        let patch = marks::patch(policy, &held.version, &record.finalizers, holds, &fresh_id);
        let Some(patch) = patch else {
            return Ok(Requeue::Never);
        };
        let (uri, kind) = if namespaced {
            let uri = format!(
                "{API}/namespaces/{}/propagationpolicies/{}",
                key.namespace, key.name
            );
            (uri, "PropagationPolicy")
        } else {
            (
                format!("{API}/clusterpropagationpolicies/{}", key.name),
                "ClusterPropagationPolicy",
            )
        };
        match Call::patch(&uri, MERGE_PATCH, &patch)
            .metadata_only()
            .send(&self.client)
            .await
        {
            Ok(_) => Ok(Requeue::Never),
            Err(error) if error.code() == Some(404) => Ok(Requeue::Never),
            Err(error) => Err(Error::request("mark", kind, &key.name, error)),
        }
    }
}
