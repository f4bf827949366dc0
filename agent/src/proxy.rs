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
mod tunnels;

use crate::context::AgentContext;
use account::Account;
use common::backoff::Backoff;
use common::client::{ConnectError, Problem, Relay, Stream, classify};
use common::discovery::{CLUSTER_INFO, PUBLIC_NAMESPACE};
use common::env::Env;
use common::errors::chain;
use common::tunnel::{Begins, Mode, Place};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
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
use tokio_util::task::TaskTracker;
use tunnels::{Signs, Tunnel, Tunnels};

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
    /// It was agreed on, and then nothing came of it.
    #[error(
        "the hub took the connection of a tunnel, but not the tunnel ({0}): its log says why, if it refuses this agent"
    )]
    NotAccepted(String),
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

/// Tunnels, one after the other; never returns.
async fn keep(context: &AgentContext, passer: &Arc<Passer>, rng: &mut StdRng) {
    let mut backoff = Backoff::new(AGAIN.0, AGAIN.1);
    let mut certified = context.certified.clone();
    let mut generation = context.hub.generation();
    let mut tunnels = Tunnels::default();
    loop {
        certified.borrow_and_update();
        generation.borrow_and_update();
        let since = Instant::now();
        let error = match replace(context, passer, &mut tunnels, rng).await {
            Err(error) => error,
            Ok((tunnel, begins)) => {
                context.errors.clear(PART);
                tracing::info!(mode = %passer.mode, "users of the hub can reach this member");
                let begun = tunnel.begun().clone();
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
                    ended = tunnel.ended() => ended,
                    // Another certificate, or another way: a new tunnel first.
                    Ok(()) = certified.changed() => continue,
                    Ok(()) = generation.changed() => continue,
                    () = unused => continue,
                };
                tunnels.ended();
                if since.elapsed() >= STOOD {
                    backoff.reset();
                }
                Error::Ended(ended)
            }
        };
        let text = chain(&error).to_string();
        if backoff.failures() == 0 {
            match tunnels.stands() {
                true => tracing::warn!(error = text, "the tunnel to the hub cannot be replaced"),
                false => tracing::warn!(error = text, "users of the hub cannot reach this member"),
            }
        }
        context.errors.report(PART, &text);
        sleep(backoff.next(rng)).await;
    }
}

/// Dials a tunnel, which takes the place of the one before once the hub has accepted it.
async fn replace<'a>(
    context: &AgentContext,
    passer: &Arc<Passer>,
    tunnels: &'a mut Tunnels,
    rng: &mut StdRng,
) -> Result<(&'a mut Tunnel, Begins), Error> {
    let (stream, begins) = dial(context, rng).await?;
    let (passer, signs) = (passer.clone(), Signs::default());
    let service = service_fn(move |request| {
        let passer = passer.clone();
        async move { Ok::<_, Infallible>(passer.answer(request).await) }
    });
    let serving = serve::serve(TokioIo::new(stream), begins, service, signs.clone());
    let put = tunnels.put(Tunnel::new(serving, signs)).await;
    let tunnel = put.map_err(Error::NotAccepted)?;
    Ok((tunnel, begins))
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
