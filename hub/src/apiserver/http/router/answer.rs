//! What happens to an answer that is there: it counts until it was sent, and goes on only while it is allowed.

use super::super::connection::Connection;
use super::super::respond::Body;
use super::super::sending::{is_one_piece, while_holds};
use super::super::shares::Tickets;
use super::super::standing::{Allowed, Judges, Standing};
use super::authorize::attributes;
use super::{Asked, READS, Router};
use crate::apiserver::authn::Peer;
use crate::apiserver::authz::Attributes;
use crate::apiserver::caller::Caller;
use crate::apiserver::error::ApiError;
use http::{HeaderMap, Response};
use hyper::body::Body as _;
use std::sync::Arc;

impl Router {
    pub(super) fn sent(
        &self,
        response: Response<Body>,
        asked: &Asked<'_>,
        caller: &Arc<Caller>,
        tickets: Tickets,
    ) -> Result<Response<Body>, ApiError> {
        if !READS.contains(&asked.info.verb.as_str()) {
            // What is done is done: that there is room for its answer was seen to before.
            return Ok(self.shares.sending_done(response, caller, tickets));
        }
        let response = self.while_allowed(response, asked, caller);
        self.shares.sending(response, caller, tickets)
    }

    /// A long answer goes on only as long as whoever asked would get it.
    fn while_allowed(
        &self,
        response: Response<Body>,
        asked: &Asked<'_>,
        caller: &Arc<Caller>,
    ) -> Response<Body> {
        if is_one_piece(&response.body().size_hint()) {
            return response;
        }
        match self.standing(asked, caller) {
            Some(standing) => response.map(|body| while_holds(body, move || standing.holds())),
            None => response,
        }
    }

    /// What tells whether an agent would still be allowed what only a registered one is.
    pub(in crate::apiserver::http) fn standing_of_agent(
        &self,
        connection: &Arc<Connection>,
        caller: &Arc<Caller>,
        right: Attributes,
    ) -> Option<Arc<Standing>> {
        let allowed = Allowed {
            connection: Some(connection),
            peer: &Peer::Unknown,
            headers: &HeaderMap::new(),
            real: caller,
            caller,
            wanted: right,
        };
        Standing::of(self.judges(), allowed)
    }

    /// What tells whether a request would still be allowed.
    pub(in crate::apiserver::http) fn standing(
        &self,
        asked: &Asked<'_>,
        caller: &Arc<Caller>,
    ) -> Option<Arc<Standing>> {
        self.standing_of(asked, caller, attributes(asked.info))
    }

    /// The same of one right that is used, where the request uses several.
    pub(in crate::apiserver::http) fn standing_of(
        &self,
        asked: &Asked<'_>,
        caller: &Arc<Caller>,
        wanted: Attributes,
    ) -> Option<Arc<Standing>> {
        let allowed = Allowed {
            connection: asked.connection,
            peer: asked.peer,
            headers: asked.headers,
            real: asked.real,
            caller,
            wanted,
        };
        Standing::of(self.judges(), allowed)
    }

    fn judges(&self) -> Judges {
        let parts = &self.parts;
        Judges {
            authenticator: parts.authenticator.clone(),
            authorizer: parts.authorizer.clone(),
            impersonators: self.impersonators.clone(),
            changes: parts.changes.clone(),
        }
    }
}
