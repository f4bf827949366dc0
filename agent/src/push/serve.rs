//! Serves one cluster: reads its Secret, runs its agent, and tries again what failed.

use super::decide::Ground;
use crate::config::PushConfig;
use crate::run::{self, Beside};
use common::backoff::Backoff;
use common::client::member_client;
use common::env::Env;
use common::errors::chain;
use common::joined::{Invalid, Joined};
use common::names::{CLUSTER_NAMESPACE, ClusterName, InvalidClusterName};
use common::reserved::InvalidNamespace;
use futures::FutureExt as _;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use prometheus_client::metrics::counter::Counter;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

/// First wait before what failed is tried again, and the longest.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// An agent that worked for so long was a good one: the next is started soon.
const STEADY: Duration = Duration::from_secs(120);
/// How long an agent may go on after its Cluster is gone: what its Works brought is gone by then, and it only takes
/// itself out of the member.
const OUTLIVES: Duration = Duration::from_secs(120);

/// What it takes to serve any cluster.
#[derive(Clone)]
pub(super) struct Post {
    /// The hub, as this process and as no cluster's agent.
    pub(super) hub: Client,
    pub(super) config: Arc<PushConfig>,
    pub(super) env: Env,
    pub(super) failures: Counter,
}

/// How serving a cluster ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ended {
    /// It was told to, or had no reason to go on.
    Stopped,
    /// The agent has left the member.
    Left {
        /// UID of the Cluster that told it to.
        uid: String,
    },
}

/// Why an agent does not work.
#[derive(Debug, thiserror::Error)]
enum Error {
    /// A name that agents cannot have.
    #[error(transparent)]
    Name(#[from] InvalidClusterName),
    /// The Secret was not read.
    #[error("failed to get Secret \"{CLUSTER_NAMESPACE}/{0}\" of the hub")]
    Secret(String, #[source] Box<kube::Error>),
    /// It says too little.
    #[error("Secret \"{CLUSTER_NAMESPACE}/{0}\" of the hub is none of `towline join`")]
    Unreadable(String, #[source] Invalid),
    /// The Cluster says something else.
    #[error(
        "spec.{field} of the Cluster is not what Secret \"{CLUSTER_NAMESPACE}/{name}\" says, and its token is sent nowhere else; run `towline join` again, or put {wanted:?} back"
    )]
    Elsewhere {
        /// Which field.
        field: &'static str,
        /// Of which Cluster.
        name: String,
        /// What it should be.
        wanted: String,
    },
    /// A namespace that cannot be allowed.
    #[error(transparent)]
    Allowed(#[from] InvalidNamespace),
    /// No client.
    #[error("failed to prepare the connection to the member")]
    Client(#[source] common::client::Error),
    /// The agent gave up.
    #[error("its agent ended")]
    Agent(#[source] Box<crate::error::Error>),
    /// The agent broke.
    #[error("its agent panicked; this is a defect")]
    Panicked,
}

/// One cluster that is served.
#[derive(Clone)]
pub(super) struct Serving {
    pub(super) post: Post,
    pub(super) name: String,
    pub(super) ground: Ground,
    /// Ends it.
    pub(super) stop: CancellationToken,
    /// Says that its Cluster is gone.
    pub(super) gone: CancellationToken,
    /// Says that its Cluster is unregistered, or gone.
    pub(super) unregistered: CancellationToken,
}

impl Serving {
    /// Serves it until it is told to stop, or until its agent has left the member; for a while after its Cluster is gone.
    pub(super) async fn run(self) -> Ended {
        let (gone, name) = (self.gone.clone(), self.name.clone());
        let over = async {
            gone.cancelled().await;
            sleep(OUTLIVES).await;
            tracing::warn!(
                cluster = name,
                "the Cluster is gone, and its agent did not leave the member in time: what is left there \
                 is removed by `towline unjoin --cluster-kubeconfig`"
            );
        };
        tokio::select! {
            biased;
            ended = self.again() => ended,
            () = over => Ended::Stopped,
        }
    }

    async fn again(self) -> Ended {
        let mut rng = self.post.env.chance.stream("push");
        let mut backoff = Backoff::new(AGAIN.0, AGAIN.1);
        loop {
            let began = Instant::now();
            let span = tracing::info_span!("push", cluster = self.name);
            let once = self.clone().once().instrument(span).boxed_local();
            // One that panics harms no other.
            let ended = AssertUnwindSafe(once).catch_unwind().await;
            let error = match ended.unwrap_or(Err(Error::Panicked)) {
                Ok(Beside::Stopped) => return Ended::Stopped,
                Ok(Beside::Left) => {
                    let uid = self.ground.uid;
                    return Ended::Left { uid };
                }
                Err(error) => error,
            };
            if began.elapsed() >= STEADY {
                backoff.reset();
            }
            self.post.failures.inc();
            let pause = backoff.next(&mut rng);
            let error = chain(&error).to_string();
            tracing::error!(cluster = self.name, error, again_in = ?pause, "not served");
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Ended::Stopped,
                // Its Secret is gone with it: there is nothing to start by.
                () = self.gone.cancelled() => return Ended::Stopped,
                () = sleep(pause) => {}
            }
        }
    }

    async fn once(self) -> Result<Beside, Error> {
        let Self {
            post,
            name,
            ground,
            stop,
            unregistered,
            ..
        } = self;
        let cluster = ClusterName::parse(&name)?;
        let secrets: Api<Secret> = Api::namespaced(post.hub.clone(), CLUSTER_NAMESPACE);
        let found = tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(Beside::Stopped),
            found = secrets.get(&name) => found,
        };
        let secret = found.map_err(|error| Error::Secret(name.clone(), Box::new(error)))?;
        let read = Joined::read(&secret.data.unwrap_or_default());
        let joined = read.map_err(|error| Error::Unreadable(name.clone(), error))?;
        agrees(&name, &ground, &joined)?;
        let config = post.config.of(&cluster, &joined)?;
        let target = joined.target();
        let member = member_client(&target, &run::member_options(), &post.env).await;
        let member = member.map_err(Error::Client)?;
        let ended = run::beside(config, post.env, member, stop, unregistered).await;
        ended.map_err(|error| Error::Agent(Box::new(error)))
    }
}

/// Whether the Cluster shows the way that the Secret says.
fn agrees(name: &str, ground: &Ground, joined: &Joined) -> Result<(), Error> {
    let (shown, wanted) = (&ground.way, joined.way());
    let elsewhere = |field, wanted: Option<String>| {
        Err(Error::Elsewhere {
            field,
            name: name.to_owned(),
            wanted: wanted.unwrap_or_default(),
        })
    };
    if shown.api_endpoint != wanted.api_endpoint {
        return elsewhere("apiEndpoint", wanted.api_endpoint);
    }
    if shown.proxy_url != wanted.proxy_url {
        return elsewhere("proxyURL", wanted.proxy_url);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::joined::Way;
    use common::tunnel::Mode;

    #[test]
    fn a_token_goes_where_its_secret_says_and_nowhere_else() {
        let joined = Joined {
            server: "https://member:6443".into(),
            ca_pem: None,
            server_name: None,
            token: common::secret::Secret::new("secretive".into()),
            proxy: Some(common::secret::Secret::new("http://u:p@proxy:1".into())),
            proxy_headers: common::secret::Secret::default(),
            allowed: Vec::new(),
            mode: Mode::Off,
        };
        let ground = |endpoint: &str, proxy: Option<&str>| Ground {
            uid: "u".into(),
            joined: "1".into(),
            way: Way {
                api_endpoint: Some(endpoint.into()),
                proxy_url: proxy.map(str::to_owned),
            },
        };
        let own = ground("https://member:6443", Some("http://proxy:1"));
        assert!(agrees("m1", &own, &joined).is_ok());
        for (changed, field) in [
            (
                ground("https://evil:6443", Some("http://proxy:1")),
                "apiEndpoint",
            ),
            (
                ground("https://member:6443", Some("http://evil:1")),
                "proxyURL",
            ),
            (ground("https://member:6443", None), "proxyURL"),
        ] {
            let error = agrees("m1", &changed, &joined).expect_err("another way");
            let said = error.to_string();
            assert!(
                said.contains(field) && !said.contains("secretive"),
                "{said}"
            );
            assert!(!said.contains("u:p"), "{said}");
        }
    }
}
