//! Carries out WorkloadRebalancers: each asks once for bindings to be placed afresh, which the scheduler does, and goes
//! some time after that, if it says so.

pub mod decide;

use super::bindings::{Bindings, Error};
use crate::world::{ObjectName, Rebalancer, World};
use common::api::rebalancer::WorkloadReference;
use common::controller::{Controller, Reconcile, Requeue};
use common::names::binding_name;
use common::queue::Priority;
use common::rest::{Call, MERGE_PATCH};
use common::time::SharedClock;
use decide::{Decision, Observed, decide};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Client;
use serde_json::{Value, json};
use std::time::Duration;

const KIND: &str = "WorkloadRebalancer";
const API: &str = "/apis/apps.karmada.io/v1alpha1/workloadrebalancers";

/// The controller.
pub struct Rebalancers {
    client: Client,
    world: World,
    bindings: Bindings,
    clock: SharedClock,
}

impl Rebalancers {
    /// Woken by the objects themselves.
    pub fn watching(
        client: Client,
        bindings: Bindings,
        clock: SharedClock,
        world: &World,
    ) -> Controller<Self> {
        let controller = Controller::new(Self {
            client,
            world: world.clone(),
            bindings,
            clock,
        });
        let queue = controller.queue();
        world.propagation.rebalancers.on_change(move |change| {
            if change.new.is_some() {
                queue.add_with(change.name.clone(), Priority::Urgent);
            }
        });
        controller
    }

    fn observe(&self, held: &Rebalancer) -> Observed {
        let seconds = |time: &Time| time.0.as_second();
        let created = held.metadata.creation_timestamp.as_ref();
        let asked = |workload: &WorkloadReference| {
            let binding = self.world.propagation.binding(&name_of(workload))?;
            let time = &binding.binding.spec.reschedule_triggered_at;
            Some((workload.clone(), time.as_ref().map(seconds)))
        };
        Observed {
            spec: held.spec.clone(),
            generation: held.metadata.generation.unwrap_or(0),
            status: held.status.clone().unwrap_or_default(),
            created: created.map_or(0, seconds),
            bindings: held.spec.workloads.iter().filter_map(asked).collect(),
        }
    }

    async fn apply(
        &self,
        name: &str,
        held: &Rebalancer,
        decision: &Decision,
    ) -> Result<Requeue, Error> {
        for workload in &decision.absent {
            // A view may be behind: that nothing is there is said for good.
            if self.bindings.exists(&name_of(workload)).await? {
                let name = &workload.name;
                return Err(Error::Undecided(format!(
                    "the binding of {name:?} was made just now"
                )));
            }
        }
        for workload in &decision.asked {
            self.ask(workload, held).await?;
        }
        if let Some(status) = &decision.status {
            let patch = json!({ "status": status });
            let uri = format!("{API}/{name}/status");
            self.patch("patch the status of", name, &uri, &patch)
                .await?;
        }
        match decision.ends_in {
            None => Ok(Requeue::Never),
            Some(Duration::ZERO) if decision.status.is_none() => self.end(name, held).await,
            Some(time) => Ok(Requeue::After(time)),
        }
    }

    /// Has a binding placed afresh.
    async fn ask(&self, workload: &WorkloadReference, held: &Rebalancer) -> Result<(), Error> {
        let Some(seen) = self.world.propagation.binding(&name_of(workload)) else {
            return Ok(());
        };
        let version = &seen.binding.resource_version;
        let time = &held.metadata.creation_timestamp;
        let patch = json!({
            "metadata": {"resourceVersion": version},
            "spec": {"rescheduleTriggeredAt": time},
        });
        self.bindings.patch(&seen.binding, &patch).await.map(drop)
    }

    async fn patch(
        &self,
        verb: &'static str,
        name: &str,
        uri: &str,
        patch: &Value,
    ) -> Result<(), Error> {
        let call = Call::patch(uri, MERGE_PATCH, patch).metadata_only();
        match call.send(&self.client).await {
            Ok(_) => Ok(()),
            Err(error) if error.code() == Some(404) => Ok(()),
            Err(error) => Err(Error::request(verb, KIND, name, error)),
        }
    }

    async fn end(&self, name: &str, held: &Rebalancer) -> Result<Requeue, Error> {
        let metadata = &held.metadata;
        let as_seen = json!({"uid": metadata.uid, "resourceVersion": metadata.resource_version});
        let uri = format!("{API}/{name}");
        let options = json!({ "preconditions": as_seen });
        match Call::delete(&uri, &options).send(&self.client).await {
            Ok(_) => Ok(Requeue::Never),
            Err(error) if error.code() == Some(404) => Ok(Requeue::Never),
            Err(error) => Err(Error::request("delete", KIND, name, error)),
        }
    }
}

/// The binding of a workload.
fn name_of(workload: &WorkloadReference) -> ObjectName {
    let name = binding_name(&workload.kind, &workload.name);
    ObjectName::new(workload.namespace.as_deref(), &name)
}

impl Reconcile for Rebalancers {
    const NAME: &'static str = "rebalancer";
    type Key = ObjectName;
    type Error = Error;

    async fn ready(&self) {
        self.world.propagation.synced().await;
    }

    async fn reconcile(&self, key: &ObjectName) -> Result<Requeue, Error> {
        let views = &self.world.propagation;
        let Some(held) = views.rebalancers.get(key).and_then(|it| it.record) else {
            return Ok(Requeue::Never);
        };
        if held.metadata.deletion_timestamp.is_some() {
            return Ok(Requeue::Never);
        }
        let decision = decide(self.clock.now(), &self.observe(&held));
        self.apply(&key.name, &held, &decision).await
    }
}
