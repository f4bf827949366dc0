//! The way into this member for users of the hub: a tunnel that the agent dials, [`common::tunnel`], whose requests it
//! passes on to the member's API server as the users who ask. The member's owner turns it on, by `--proxy`.
//!
//! The Lease never shares it, and nothing else waits for it.

mod account;
pub mod decide;
mod listed;
mod open;
mod pass;
mod refusal;
mod serve;

use crate::context::AgentContext;
use account::Account;
use common::backoff::Backoff;
use common::client::{ConnectError, Problem, Relay, Stream, classify};
use common::discovery::{CLUSTER_INFO, PUBLIC_NAMESPACE};
use common::env::Env;
use common::errors::chain;
use common::tunnel::{Begins, Mode, Place};
use hyper::service::service_fn;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use pass::Passer;
use rand::Rng as _;
use rand::rngs::StdRng;
use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

/// The part's name in the agent's errors.
const PART: &str = "proxy";
/// First wait before the hub is dialled again, and the longest.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// A tunnel in which HTTP/2 began is replaced by one that lies still when nobody used it between two looks at it. They are
/// so far apart, and up to as far again, so that not all agents of a fleet do it at once.
const UNUSED: Duration = Duration::from_secs(10 * 60);
/// A tunnel that stood for so long was a good one: the next is dialled soon.
const STOOD: Duration = Duration::from_secs(30);

/// Why there is no tunnel.
#[derive(Debug, thiserror::Error)]
enum Error {
    /// The credentials are no certificate, or not to be read.
    #[error("failed to prepare the tunnel to the hub")]
    Prepare(#[source] common::client::Error),
    /// No kubeconfig can be dialled with.
    #[error(
        "a tunnel needs a registration of the agent's own: it cannot be dialled with --hub-kubeconfig"
    )]
    ByHand,
    /// The hub is too old, or another one.
    #[error(
        "this hub takes no tunnels: `towline-hub run` takes them with --access-bind-address, `towline-hub serve` always"
    )]
    NotTaken,
    /// The hub says it in no way that is known.
    #[error(
        "failed to read from ConfigMap \"{PUBLIC_NAMESPACE}/{CLUSTER_INFO}\" of the hub where it takes tunnels: {0}"
    )]
    Place(String),
    /// Nothing answers.
    #[error("failed to dial the tunnel to the hub")]
    Dial(#[source] ConnectError),
    /// It was there.
    #[error("the tunnel to the hub ended: {0}")]
    Ended(String),
}

/// Keeps one tunnel to the hub until the agent shuts down; none when the member's owner wants none.
pub async fn run(context: AgentContext) {
    let mode = context.config.proxy;
    if mode == Mode::Off {
        return context.shutdown.cancelled().await;
    }
    let env = Env {
        clock: context.clock.clone(),
        chance: context.chance.clone(),
        network: context.network.clone(),
        sockets: None,
    };
    let relay = match Relay::new(&context.member_config, &context.member_proxy, &env) {
        Ok(relay) => relay,
        Err(error) => {
            let error = chain(&error).to_string();
            tracing::error!(error, "the member cannot be reached for users of the hub");
            context.errors.report(PART, &error);
            return context.shutdown.cancelled().await;
        }
    };
    let namespace = &context.config.member.namespace;
    let account = Account::new(context.member.clone(), namespace);
    let passer = Arc::new(Passer {
        cluster: context.cluster.clone(),
        mode,
        relay,
        account,
        open: Arc::default(),
        taken: TaskTracker::new(),
        end: CancellationToken::new(),
    });
    let _ends = passer.end.clone().drop_guard();
    let mut rng = context.chance.stream("tunnel");
    tokio::select! {
        biased;
        () = context.shutdown.cancelled() => {}
        () = passer.open.follow(&passer.account) => {}
        () = keep(&context, &passer, &mut rng) => {}
    }
}

/// A tunnel that stands; ends when it is dropped.
struct Tunnel {
    task: AbortOnDropHandle<String>,
    /// Cancelled once HTTP/2 began in it.
    begun: CancellationToken,
    /// Has it take no more requests, and end with the last one.
    retire: CancellationToken,
}

impl Tunnel {
    fn over(stream: Stream, begins: Begins, passer: Arc<Passer>) -> Self {
        let (begun, retire) = (CancellationToken::new(), CancellationToken::new());
        let service = service_fn(move |request| {
            let passer = passer.clone();
            async move { Ok::<_, Infallible>(passer.answer(request).await) }
        });
        let serving = serve::serve(stream, begins, service, begun.clone(), retire.clone());
        Self {
            task: AbortOnDropHandle::new(tokio::spawn(serving)),
            begun,
            retire,
        }
    }
}

/// Tunnels, one after the other; never returns.
async fn keep(context: &AgentContext, passer: &Arc<Passer>, rng: &mut StdRng) {
    let mut backoff = Backoff::new(AGAIN.0, AGAIN.1);
    let mut certified = context.certified.clone();
    let mut generation = context.hub.generation();
    let mut current: Option<Tunnel> = None;
    // What is under way in a tunnel that another one took the place of goes on there.
    let mut former: Vec<Tunnel> = Vec::new();
    loop {
        certified.borrow_and_update();
        generation.borrow_and_update();
        let since = Instant::now();
        let error = match dial(context, rng).await {
            Err(error) => error,
            Ok((stream, begins)) => {
                context.errors.clear(PART);
                tracing::info!(mode = %passer.mode, "users of the hub can reach this member");
                former.extend(current.take());
                for tunnel in &former {
                    tunnel.retire.cancel();
                }
                former.retain(|tunnel| !tunnel.task.is_finished());
                let tunnel = current.insert(Tunnel::over(stream, begins, passer.clone()));
                let begun = tunnel.begun.clone();
                let long = UNUSED + UNUSED.mul_f64(rng.random());
                let unused = async {
                    match begins {
                        Begins::WhenAsked => begun.cancelled().await,
                        // The next one would be no other.
                        Begins::AtOnce => pending().await,
                    }
                    passer.open.unused(long).await;
                };
                let ended = tokio::select! {
                    biased;
                    ended = &mut tunnel.task => ended,
                    // Another certificate, or another way: a new tunnel first.
                    Ok(()) = certified.changed() => continue,
                    Ok(()) = generation.changed() => continue,
                    () = unused => continue,
                };
                current = None;
                if since.elapsed() >= STOOD {
                    backoff.reset();
                }
                Error::Ended(ended.unwrap_or_else(|error| error.to_string()))
            }
        };
        let text = chain(&error).to_string();
        if backoff.failures() == 0 {
            tracing::warn!(error = text, "users of the hub cannot reach this member");
        }
        context.errors.report(PART, &text);
        sleep(backoff.next(rng)).await;
    }
}

async fn dial(context: &AgentContext, rng: &mut StdRng) -> Result<(Stream, Begins), Error> {
    let protocols = Begins::ALL.map(Begins::alpn);
    if context.hub.dialer(&protocols, None).is_none() {
        return Err(Error::ByHand);
    }
    let mut place = place(context).await?;
    if let Some(place) = &mut place {
        // Each is of one replica of the hub: agents spread over them.
        let first = rng.random_range(0..place.servers.len().max(1));
        place.servers.rotate_left(first);
    }
    let dialer = context.hub.dialer(&protocols, place.as_ref());
    let dialer = dialer.ok_or(Error::ByHand)?;
    let dialled = dialer.map_err(Error::Prepare)?.dial().await;
    let stream = dialled.map_err(|error| {
        let refuses = |problem: &Problem| matches!(problem, Problem::Protocol { .. });
        match error.attempts.iter().all(|one| refuses(&one.problem)) {
            true => Error::NotTaken,
            false => Error::Dial(error),
        }
    })?;
    let begins = Begins::of(stream.protocol()).ok_or(Error::NotTaken)?;
    Ok((stream, begins))
}

/// Where the hub takes tunnels, if that is not where everything else is answered. Read each time: it may have moved, and
/// its certificate is another one after each start.
async fn place(context: &AgentContext) -> Result<Option<Place>, Error> {
    let maps: Api<ConfigMap> = Api::namespaced(context.hub.client(), PUBLIC_NAMESPACE);
    match maps.get(CLUSTER_INFO).await {
        Ok(map) => Place::read(&map).map_err(Error::Place),
        // A hub that says nothing of itself names no other place.
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => Ok(None),
        Err(error) => Err(Error::Place(classify(&error).to_string())),
    }
}
