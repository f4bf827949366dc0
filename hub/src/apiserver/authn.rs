//! Who asks: by certificate, by bootstrap token, by a ServiceAccount's token, or as nobody.

mod account;
mod bootstrap;
mod certificate;
mod impersonate;

use account::Held;
pub use account::{API_AUDIENCE, Claims, ISSUER};
pub use bootstrap::judge as judge_bootstrap;
pub use certificate::{Peer, Shown, serial};
pub use impersonate::{Impersonators, impersonated};

use super::caller::{AUTHENTICATED, Caller};
use super::error::ApiError;
use super::keys::Keys;
use super::store::{Key, Store};
use chrono::{DateTime, Utc};
use common::time::SharedClock;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use serde_json::Value;

/// Decides who asks. Cheap to clone.
#[derive(Clone)]
pub struct Authenticator {
    pub(super) keys: Keys,
    pub(super) store: Store,
    pub(super) clock: SharedClock,
}

impl Authenticator {
    /// One over these keys and Secrets.
    pub fn new(keys: Keys, store: Store, clock: SharedClock) -> Self {
        Self { keys, store, clock }
    }

    /// Who asks; an identity that does not hold is an error, none at all is nobody.
    pub fn authenticate(&self, peer: &Peer, headers: &HeaderMap) -> Result<Caller, ApiError> {
        let mut refused = false;
        match peer.caller(self.clock.now()) {
            Some(Ok(caller)) => return Ok(authenticated(caller)),
            Some(Err(problem)) => {
                tracing::debug!(problem, "a client certificate was refused");
                refused = true;
            }
            None => {}
        }
        if let Some(token) = bearer(headers) {
            return match self.token(&token, &[API_AUDIENCE.to_owned()]) {
                Some(Ok((caller, _))) => Ok(authenticated(caller)),
                Some(Err(why)) => {
                    tracing::debug!(why, "a token was refused");
                    Err(ApiError::unauthorized())
                }
                None => Err(ApiError::unauthorized()),
            };
        }
        if refused {
            return Err(ApiError::unauthorized());
        }
        Ok(Caller::anonymous())
    }

    /// Whom a token speaks for and for which of these audiences, or why it does not; `None` when
    /// nothing is known of it.
    pub fn token(&self, token: &str, audiences: &[String]) -> Option<Result<Held, String>> {
        if let Some(caller) = self.bootstrap_token(token) {
            // A bootstrap token names no audience, and is for this server.
            let here = |audience: &&String| *audience == API_AUDIENCE;
            let audiences: Vec<String> = audiences.iter().filter(here).cloned().collect();
            return (!audiences.is_empty()).then_some(Ok((caller, audiences)));
        }
        self.account_token(token, audiences)
    }

    /// When the credential of a request ends by itself.
    pub fn ends(&self, peer: &Peer, headers: &HeaderMap) -> Option<DateTime<Utc>> {
        if let Peer::Known { .. } | Peer::Itself = peer {
            return peer.ends();
        }
        let token = bearer(headers)?;
        self.bootstrap_token_ends(&token)
            .or_else(|| self.account_token_ends(&token))
    }

    /// A token that says this.
    pub fn sign(&self, claims: &Claims<'_>) -> Result<String, ApiError> {
        let signed = self.keys.account().sign(&claims.to_value());
        signed.map_err(ApiError::internal)
    }

    /// The public keys that verify tokens of ServiceAccounts.
    pub fn key_set(&self) -> Value {
        self.keys.account().key_set(self.clock.now())
    }

    /// An object of the store.
    pub(super) fn object(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let stored = self.store.get(resource, &Key::new(namespace, name))?;
        Some(stored.value())
    }
}

/// Everybody with an identity is of this group too.
pub(super) fn authenticated(mut caller: Caller) -> Caller {
    if !caller.is_in(AUTHENTICATED) {
        caller.groups.push(AUTHENTICATED.to_owned());
    }
    caller
}

/// The token of the first Authorization header, if it is one.
fn bearer(headers: &HeaderMap) -> Option<String> {
    let header = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = header.trim().split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then(|| token.to_owned())
}
