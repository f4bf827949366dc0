//! Puts taints on clusters, and takes them off, as ClusterTaintPolicies say by the clusters' conditions.
//!
//! What a policy has put on stays when the policy goes, or means the cluster no longer: whoever made it takes it off.

pub mod decide;
#[cfg(test)]
mod tests;

use super::bindings::{Bindings, Error, about_cluster};
use crate::propagation::Notice;
use crate::world::{Cluster, ObjectName, World};
use common::api::cluster::Taint;
use common::controller::{Controller, Reconcile, Requeue};
use common::queue::{Priority, Queue};
use common::rest::{Call, MERGE_PATCH};
use common::time::SharedClock;
use decide::{decide, in_order};
use kube::Client;
use serde_json::json;
use std::sync::Arc;

const CLUSTERS: &str = "/apis/cluster.karmada.io/v1alpha1/clusters";

/// The controller.
pub struct TaintPolicies {
    client: Client,
    world: World,
    bindings: Bindings,
    clock: SharedClock,
    failover: bool,
}

impl TaintPolicies {
    /// A controller that is woken by what the world tells; whether there is `failover` says which taints come and go by
    /// Ready alone.
    pub fn watching(
        client: Client,
        bindings: Bindings,
        clock: SharedClock,
        failover: bool,
        world: &World,
    ) -> Controller<Arc<Self>> {
        let policies = Arc::new(Self {
            client,
            world: world.clone(),
            bindings,
            clock,
            failover,
        });
        let controller = Controller::new(Arc::clone(&policies));
        let queue = controller.queue();
        world.clusters.on_change(move |change| {
            if looks(change.before()) != looks(change.after()) {
                queue.add(change.name.clone());
            }
        });
        let queue = controller.queue();
        world.propagation.taint_policies.on_change(move |change| {
            if change.before().map(|it| &it.spec) != change.after().map(|it| &it.spec) {
                policies.wake_all(&queue);
            }
        });
        controller
    }

    fn wake_all(&self, queue: &Queue<ObjectName>) {
        self.world
            .clusters
            .for_each_name(|name| queue.add_with(name.clone(), Priority::Backlog));
    }
}

/// What policies look at of a cluster.
fn looks(cluster: Option<&Cluster>) -> impl PartialEq {
    cluster.map(|it| {
        let shape = it.placing.as_ref().map(|it| Arc::clone(&it.shape));
        (it.conditions.clone(), it.taints.clone(), shape)
    })
}

impl Reconcile for TaintPolicies {
    const NAME: &'static str = "clustertaintpolicy";
    type Key = ObjectName;
    type Error = Error;

    async fn ready(&self) {
        self.world.clusters.synced().await;
        self.world.propagation.taint_policies.synced().await;
    }

    async fn reconcile(&self, key: &ObjectName) -> Result<Requeue, Error> {
        let views = &self.world.propagation;
        let Some(held) = self.world.clusters.get(key) else {
            return Ok(Requeue::Never);
        };
        let Some(cluster) = &held.record else {
            return Ok(Requeue::Never);
        };
        let mut policies = Vec::new();
        views
            .taint_policies
            .for_each(|_, held| policies.extend(held.record.clone()));
        in_order(&mut policies);
        let Some(taints) = decide(self.clock.now(), self.failover, cluster, &policies) else {
            return Ok(Requeue::Never);
        };
        let patch = json!({
            "metadata": {"resourceVersion": held.version, "uid": cluster.lifecycle.uid},
            "spec": {"taints": taints},
        });
        let uri = format!("{CLUSTERS}/{}", key.name);
        let call = Call::patch(&uri, MERGE_PATCH, &patch).metadata_only();
        match call.send(&self.client).await {
            Ok(_) => {
                let notice = Notice::normal("TaintClusterSucceed", told(&key.name, &taints));
                let about = about_cluster(&key.name, &cluster.lifecycle.uid);
                self.bindings.tell(&about, &[notice]);
                Ok(Requeue::Never)
            }
            Err(error) if error.code() == Some(404) => Ok(Requeue::Never),
            Err(error) => Err(Error::request("taint", "Cluster", &key.name, error)),
        }
    }
}

fn told(name: &str, taints: &[Taint]) -> String {
    let shown = taints
        .iter()
        .map(|it| format!("{{Key:{},Effect:{:?}}}", it.key, it.effect));
    let shown = shown.collect::<Vec<_>>().join("; ");
    format!("Update Cluster({name}) with taints(cluster now has taints([{shown}])) succeed")
}
