//! The first stage: who asks, and whom they act as.

use super::Router;
use super::authorize::attributes;
use super::head::{Head, Socket};
use crate::apiserver::authn::{Peer, impersonated};
use crate::apiserver::caller::Caller;
use crate::apiserver::error::ApiError;
use std::sync::Arc;

/// Who asks.
#[derive(Debug, PartialEq)]
pub(super) struct Identity {
    /// By the certificate or the token.
    pub(super) real: Arc<Caller>,
    /// Whom they act as: the same, unless they say otherwise.
    pub(super) caller: Arc<Caller>,
}

/// An identity that does not hold.
#[derive(Debug, PartialEq)]
pub(super) struct Unauthenticated {
    /// As far as it is known who asks.
    pub(super) real: Arc<Caller>,
    pub(super) error: ApiError,
}

impl Router {
    pub(super) fn authenticate(
        &self,
        head: &Head,
        socket: Option<&Socket>,
        peer: &Peer,
    ) -> Result<Identity, Unauthenticated> {
        let token = socket.map_or(Ok(()), |socket| socket.token);
        let real = match token {
            Ok(()) => self.parts.authenticator.authenticate(peer, &head.headers),
            Err(()) => Err(ApiError::unauthorized()),
        };
        let real = real.map_err(|error| Unauthenticated {
            real: Arc::new(Caller::anonymous()),
            error,
        })?;
        let real = Arc::new(real);
        let acting = impersonated(
            &real,
            &head.headers,
            &self.parts.authorizer,
            &self.impersonators,
            &attributes(&head.info),
        );
        match acting {
            Ok(acting) => Ok(Identity {
                caller: acting.map_or_else(|| real.clone(), Arc::new),
                real,
            }),
            Err(error) => Err(Unauthenticated { real, error }),
        }
    }
}
