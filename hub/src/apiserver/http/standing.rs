//! Whether who asked for an answer that is still being sent would get it if they asked now: their certificate
//! or token holds, they may act as whom they act, and they have the right.

use super::connection::Connection;
use crate::access::Over;
use crate::apiserver::authn::{Authenticator, Impersonators, Peer, impersonated};
use crate::apiserver::authz::{Attributes, Authorizer};
use crate::apiserver::caller::Caller;
use crate::apiserver::keys::Keys;
use crate::apiserver::registry::WatchStream;
use crate::apiserver::store::{Ended, Kind, Scope, Store};
use common::signal;
use futures::{FutureExt as _, StreamExt as _};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName};
use std::future::{pending, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// What tokens hang on.
const OF_TOKENS: [&str; 4] = ["/secrets", "/serviceaccounts", "/pods", "/nodes"];
/// After a change everything that is open is judged at once, and not again within this, however many follow:
/// there may be thousands.
const PAUSE: Duration = Duration::from_millis(300);
/// An answer whose identity has no end.
const FAR: Duration = Duration::from_secs(24 * 3600);
/// Clocks are read twice: what should have ended and has not is looked at again after this.
const AGAIN: Duration = Duration::from_millis(100);

/// Tells when anything has changed that rights hang on. Clones are one.
#[derive(Debug, Clone)]
pub struct Changes {
    /// Objects that tokens hang on have changed.
    tokens: signal::Sender<u64>,
    /// What is open has to be judged.
    told: signal::Sender<u64>,
}

impl Default for Changes {
    fn default() -> Self {
        Self {
            tokens: signal::Sender::new(0),
            told: signal::Sender::new(0),
        }
    }
}

impl Changes {
    /// Keeps telling, until the store closes.
    pub fn follow(
        &self,
        store: &Store,
        authorizer: &Authorizer,
        keys: &Keys,
    ) -> impl Future<Output = ()> + Send + use<> {
        let (mut rights, mut certificates) = (authorizer.changes(), keys.changes());
        let mut tokens = self.tokens.subscribe();
        let mut followers = JoinSet::new();
        for resource in OF_TOKENS {
            let since = store.snapshot(resource).revision;
            followers.spawn(follow(resource, store.clone(), since, self.tokens.clone()));
        }
        let told = self.told.clone();
        async move {
            loop {
                let changed = tokio::select! {
                    biased;
                    _ = followers.join_next() => return,
                    changed = rights.changed() => changed,
                    changed = certificates.changed() => changed,
                    changed = tokens.changed() => changed,
                };
                if changed.is_err() {
                    return;
                }
                told.send_modify(|times| *times += 1);
                sleep(PAUSE).await;
            }
        }
    }
}

/// Counts changes and deletions of a kind; ends with the store.
async fn follow(resource: &'static str, store: Store, mut since: u64, count: signal::Sender<u64>) {
    loop {
        if let Ok(mut watcher) = store.watch(resource, Scope::All, since) {
            let ended = loop {
                match watcher.next().await {
                    Ok(event) if event.kind == Kind::Added => {}
                    Ok(_) => count.send_modify(|times| *times += 1),
                    Err(ended) => break ended,
                }
            };
            if ended == Ended::Closed {
                return;
            }
        }
        since = store.snapshot(resource).revision;
        count.send_modify(|times| *times += 1);
    }
}

/// What decides.
#[derive(Clone)]
pub(super) struct Judges {
    pub(super) authenticator: Authenticator,
    pub(super) authorizer: Arc<Authorizer>,
    pub(super) impersonators: Arc<Impersonators>,
    pub(super) changes: Changes,
}

/// Who asked, and for what.
pub(super) struct Standing {
    judges: Judges,
    connection: Option<Arc<Connection>>,
    /// Where there is no connection.
    peer: Peer,
    /// What of the request's head says who asks.
    headers: HeaderMap,
    real: Arc<Caller>,
    caller: Arc<Caller>,
    wanted: Attributes,
    /// As of which changes it was found to hold.
    judged: AtomicU64,
}

/// A request that was allowed.
pub(super) struct Allowed<'a> {
    pub(super) connection: Option<&'a Arc<Connection>>,
    pub(super) peer: &'a Peer,
    pub(super) headers: &'a HeaderMap,
    pub(super) real: &'a Arc<Caller>,
    pub(super) caller: &'a Arc<Caller>,
    pub(super) wanted: Attributes,
}

impl Standing {
    /// That of a request; none for the server's own, which may everything for ever.
    pub(super) fn of(judges: Judges, allowed: Allowed<'_>) -> Option<Arc<Self>> {
        if matches!(allowed.peer, Peer::Itself) {
            return None;
        }
        let peer = match allowed.connection {
            Some(_) => Peer::Unknown,
            None => allowed.peer.clone(),
        };
        let names_somebody =
            |name: &HeaderName| *name == AUTHORIZATION || name.as_str().starts_with("impersonate-");
        let headers = allowed.headers.iter();
        let headers = headers.filter(|(name, _)| names_somebody(name));
        let standing = Self {
            connection: allowed.connection.cloned(),
            peer,
            headers: headers.map(|(n, v)| (n.clone(), v.clone())).collect(),
            real: allowed.real.clone(),
            caller: allowed.caller.clone(),
            wanted: allowed.wanted,
            // What has changed since it was allowed is not known.
            judged: AtomicU64::new(u64::MAX),
            judges,
        };
        Some(Arc::new(standing))
    }

    /// Whether it would be allowed now; cheap while nothing has changed.
    pub(super) fn holds(&self) -> bool {
        let changes = self.changes();
        if self.judged.load(Ordering::Relaxed) == changes {
            return true;
        }
        let holds = self.is_allowed();
        if holds {
            self.judged.store(changes, Ordering::Relaxed);
        }
        holds
    }

    /// Each number only grows: their sum is the same while each of them is.
    fn changes(&self) -> u64 {
        let judges = &self.judges;
        let tokens = *judges.changes.tokens.borrow();
        judges.authorizer.generation() + judges.authenticator.keys.generation() + tokens
    }

    fn is_allowed(&self) -> bool {
        let judges = &self.judges;
        let real = judges
            .authenticator
            .authenticate(&self.peer(), &self.headers);
        if !real.is_ok_and(|real| real == *self.real) {
            return false;
        }
        let (authorizer, known) = (&judges.authorizer, &judges.impersonators);
        let acting = impersonated(&self.real, &self.headers, authorizer, known, &self.wanted);
        let same = match &acting {
            Ok(Some(acting)) => *acting == *self.caller,
            Ok(None) => self.real == self.caller,
            Err(_) => false,
        };
        same && authorizer.decide(&self.caller, &self.wanted).allowed
    }

    fn peer(&self) -> Arc<Peer> {
        let authenticator = &self.judges.authenticator;
        match &self.connection {
            Some(connection) => connection.peer(&authenticator.keys, authenticator.clock.now()),
            None => Arc::new(self.peer.clone()),
        }
    }

    /// Ends when it no longer holds.
    pub(super) async fn ended(self: Arc<Self>) {
        let mut told = self.judges.changes.told.subscribe();
        // Of what changed before that nobody is told.
        if !self.holds() {
            return;
        }
        loop {
            let authenticator = &self.judges.authenticator;
            let end = authenticator.ends(&self.peer(), &self.headers);
            let left = end.map_or(FAR, |end| {
                let left = (end - authenticator.clock.now()).to_std();
                left.unwrap_or_default().saturating_add(AGAIN).min(FAR)
            });
            let holds = match timeout(left, told.changed()).await {
                Ok(Ok(())) => self.holds(),
                // Nothing has changed but the time.
                Err(_) => self.is_allowed(),
                Ok(Err(_)) => return,
            };
            if !holds {
                return;
            }
        }
    }
}

/// Ends when it no longer holds; never for who may everything for ever.
pub(super) fn over(standing: Option<Arc<Standing>>) -> Over {
    match standing {
        Some(standing) => standing.ended().boxed(),
        None => pending().boxed(),
    }
}

/// Frames as long as it holds: none that came after it has ended, and an end soon, also when none comes.
pub(super) fn guarded(frames: WatchStream, standing: Option<Arc<Standing>>) -> WatchStream {
    let Some(standing) = standing else {
        return frames;
    };
    let each = standing.clone();
    let frames = frames.take_until(Box::pin(standing.ended()));
    Box::pin(frames.take_while(move |_| ready(each.holds())))
}
