//! The Lease on the hub: says that the agent lives, and nothing else.
//!
//! It is renewed on a connection of its own with a deadline of its own, starts as soon as the agent is
//! registered, and never stops because of the member. A renewal that misses its deadline costs the
//! connection, since a dead one looks just like a slow one; the client sees to that, and goes on
//! with the next address of the hub. Besides [`liveness`] gives signs of life of which nothing is stored.

mod liveness;
mod pace;

pub use pace::Pace;

use crate::context::AgentContext;
use common::client::{AnswerWithin, ClientOptions};
use common::errors::chain;
use common::labels::AGENT_FIELD_MANAGER;
use common::liveness::{HEADER, value};
use common::lock::lock;
use common::names::CLUSTER_NAMESPACE;
use common::time::to_micro_time;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams, Request};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use rand::Rng as _;
use serde::de::IgnoredAny;
use serde_json::json;
use std::sync::Mutex;
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout};

/// The part's name in the agent's errors.
const PART: &str = "lease";

/// Why a renewal failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No connection could be prepared.
    #[error("failed to prepare the connection for the Lease")]
    Connect(#[source] crate::hub::ConnectError),
    /// The request could not be built.
    #[error("failed to build the renewal of the Lease")]
    Build(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The hub did not take it.
    #[error("failed to renew Lease \"{CLUSTER_NAMESPACE}/{cluster}\"")]
    Renew {
        /// The Lease's name.
        cluster: String,
        /// Why.
        #[source]
        source: Box<kube::Error>,
    },
    /// There is none, and it could not be made.
    #[error("failed to make Lease \"{CLUSTER_NAMESPACE}/{cluster}\", which the hub does not have")]
    Make {
        /// The Lease's name.
        cluster: String,
        /// Why.
        #[source]
        source: Box<kube::Error>,
    },
    /// The hub did not answer in time.
    #[error("the hub did not answer a renewal of the Lease within {0:?}")]
    Deadline(Duration),
}

impl Error {
    /// Whether the hub had time to say no.
    fn is_answer(&self) -> bool {
        let (Self::Renew { source, .. } | Self::Make { source, .. }) = self else {
            return false;
        };
        matches!(&**source, kube::Error::Api(status) if status.code < 500 && status.code != 429)
    }
}

#[derive(Debug, Clone)]
struct Metrics {
    seconds: Histogram,
    failures: Counter,
    last: Gauge,
}

impl Metrics {
    fn register(context: &AgentContext) -> Self {
        let metrics = Self {
            seconds: Histogram::new([
                0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
            ]),
            failures: Counter::default(),
            last: Gauge::default(),
        };
        context.register_metrics(|registry| {
            registry.register(
                "towline_lease_renewal_seconds",
                "Time from sending a renewal of the Lease to the hub's answer",
                metrics.seconds.clone(),
            );
            registry.register(
                "towline_lease_renewal_failures",
                "Renewals of the Lease that failed",
                metrics.failures.clone(),
            );
            registry.register(
                "towline_hub_last_contact_timestamp_seconds",
                "When the hub last took a renewal of the Lease",
                metrics.last.clone(),
            );
        });
        metrics
    }
}

/// Puts the metrics into the registry of a context.
#[cfg(test)]
pub(crate) fn register_metrics(context: &AgentContext) {
    Metrics::register(context);
}

/// The connection of its own; none before the first, and after one that did not answer.
#[derive(Default)]
struct Connection(Mutex<Option<Client>>);

impl Connection {
    fn held(&self) -> Option<Client> {
        lock(&self.0).clone()
    }

    fn put(&self, client: Option<Client>) {
        *lock(&self.0) = client;
    }
}

/// Renews until the agent shuts down, and gives signs of life meanwhile.
pub async fn run(context: AgentContext) {
    let connection = Connection::default();
    tokio::select! {
        biased;
        () = renewals(&context, &connection) => {}
        () = liveness::show(&context, &connection) => {}
    }
    liveness::farewell(&context).await;
}

async fn renewals(context: &AgentContext, connection: &Connection) {
    let config = &context.config.lease;
    let mut pace = Pace::new(config.duration, config.renew_fraction);
    let mut rng = context.chance.stream("heartbeat");
    let metrics = Metrics::register(context);
    let mut generation = context.hub.generation();
    loop {
        let started = Instant::now();
        let renewed = tokio::select! {
            biased;
            () = context.shutdown.cancelled() => return,
            renewed = renew(context, connection, pace.deadline()) => renewed,
        };
        let wait = match renewed {
            Ok(()) => {
                context.errors.clear(PART);
                metrics.seconds.observe(started.elapsed().as_secs_f64());
                metrics.last.set(context.clock.now().timestamp());
                heard(context, true);
                pace.renewed(rng.random())
            }
            Err(error) => {
                metrics.failures.inc();
                tracing::warn!(error = %chain(&error), "the Lease was not renewed");
                context.errors.report(PART, &chain(&error));
                heard(context, error.is_answer());
                pace.failed(started.elapsed(), rng.random())
            }
        };
        // Counted from the start of the attempt, so that a slow hub does not stretch the interval.
        tokio::select! {
            biased;
            () = context.shutdown.cancelled() => return,
            // New credentials or addresses: prove at once that they work, on a new connection.
            changed = generation.changed() => {
                connection.put(None);
                if changed.is_err() {
                    return;
                }
            }
            () = sleep_until(started + wait) => {}
        }
    }
}

/// Tells the other parts whether the hub answers.
fn heard(context: &AgentContext, is: bool) {
    context.heard.send_if_modified(|heard| {
        let other = *heard != is;
        *heard = is;
        other
    });
}

async fn renew(
    context: &AgentContext,
    connection: &Connection,
    deadline: Duration,
) -> Result<(), Error> {
    let options = ClientOptions::new("lease")
        .with_timeout(deadline)
        .one_at_a_time();
    let attempt = async {
        let client = match connection.held() {
            Some(client) => client,
            None => {
                let fresh = context.hub.connect(options).await;
                let fresh = fresh.map_err(Error::Connect)?;
                connection.put(Some(fresh.clone()));
                fresh
            }
        };
        send(&client, context, deadline).await
    };
    // The client's own deadline comes first; this one holds for whatever it does not cover.
    let outcome = timeout(deadline.mul_f64(1.25), attempt).await;
    outcome.unwrap_or_else(|_| {
        connection.put(None);
        Err(Error::Deadline(deadline))
    })
}

/// Where the Leases of clusters are.
fn leases() -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{CLUSTER_NAMESPACE}/leases")
}

async fn send(client: &Client, context: &AgentContext, within: Duration) -> Result<(), Error> {
    let cluster = context.cluster.as_str();
    let parameters = PatchParams {
        field_manager: Some(AGENT_FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let body = json!({ "spec": { "renewTime": to_micro_time(context.clock.now()) } });
    let mut request = Request::new(leases())
        .patch(cluster, &parameters, &Patch::Merge(&body))
        .map_err(|e| Error::Build(Box::new(e)))?;
    request.extensions_mut().insert(AnswerWithin(within));
    if let Some(next) = context.config.lease.liveness {
        request.headers_mut().insert(HEADER, value(next));
    }
    // The answer holds nothing of interest; who wrote what there decides nothing here.
    let answered: Result<IgnoredAny, _> = client.request(request).await;
    match answered {
        // A hub of ours makes it, and its agents may not. With hand-made credentials nobody else does.
        Err(kube::Error::Api(status))
            if status.code == 404 && context.config.hub.kubeconfig.is_some() =>
        {
            make(client, context).await
        }
        answered => answered.map(|_| ()).map_err(|source| Error::Renew {
            cluster: cluster.to_owned(),
            source: Box::new(source),
        }),
    }
}

/// Makes the Lease, renewed now, as Karmada's agent does.
async fn make(client: &Client, context: &AgentContext) -> Result<(), Error> {
    let cluster = context.cluster.as_str();
    let seconds = context.config.lease.duration.as_secs();
    // It goes with its Cluster, once that is known.
    let view = context.cluster_view.borrow().clone();
    let view = view.filter(|view| !view.uid.is_empty());
    let owner = view.map(|view| {
        json!([{"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "name": cluster,
            "uid": view.uid}])
    });
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": cluster, "namespace": CLUSTER_NAMESPACE,
            "ownerReferences": owner.unwrap_or_else(|| json!([]))},
        "spec": {"holderIdentity": cluster, "leaseDurationSeconds": seconds,
            "renewTime": to_micro_time(context.clock.now())},
    });
    // All of it is written here.
    let failed = |source| Error::Make {
        cluster: cluster.to_owned(),
        source: Box::new(source),
    };
    let lease = serde_json::from_value(lease).map_err(|e| failed(kube::Error::SerdeError(e)))?;
    let leases: Api<Lease> = Api::namespaced(client.clone(), CLUSTER_NAMESPACE);
    match leases.create(&PostParams::default(), &lease).await {
        Ok(_) => {
            tracing::info!(cluster, "the hub had no Lease of this cluster: made");
            Ok(())
        }
        // Somebody made it meanwhile; the next round renews it.
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Err(error) => Err(failed(error)),
    }
}

#[cfg(test)]
mod tests;
