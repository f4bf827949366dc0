//! What each caller has of requests, watches, connections, answers and processors, so that all have some.
//! Whoever may do everything is not counted and does not wait: an administrator gets in however many
//! others there are.

use super::connection::{Connection, place};
use super::respond::Body;
use super::sending::kept;
use super::turns::{Cost, Turn, Turns};
use crate::access::{LISTS, LISTS_OF_USER, STREAMS_OF_USER};
use crate::apiserver::agents::is_agent;
use crate::apiserver::caller::{ANONYMOUS, Caller, MASTERS};
use crate::apiserver::error::ApiError;
use crate::limit::{InFlight, Ticket};
use common::identity::BOOTSTRAP_USER_PREFIX;
use http::Response;
use hyper::body::Body as _;
use std::sync::Arc;

/// Clones share everything.
#[derive(Clone)]
pub(super) struct Shares {
    requests: InFlight,
    /// Of callers without an identity of their own, by where they are.
    strange: InFlight,
    watches: InFlight,
    streams: InFlight,
    /// Lists over all clusters, of each user and of all.
    lists: [InFlight; 2],
    connections: InFlight,
    of_agents: InFlight,
    answers: InFlight,
    turns: Turns,
}

impl Shares {
    pub(super) fn new() -> Self {
        Self {
            requests: InFlight::requests(),
            strange: InFlight::strange_requests(),
            watches: InFlight::watches(),
            streams: InFlight::of(STREAMS_OF_USER),
            lists: [LISTS_OF_USER, LISTS].map(InFlight::of),
            connections: InFlight::connections(),
            of_agents: InFlight::connections_of_agents(),
            answers: InFlight::answers(),
            turns: Turns::new(),
        }
    }

    /// Lets a request begin, unless its user has too many; it counts as long as the ticket lives. Strangers
    /// are all one user, and those with a bootstrap token may be many: they are counted by where they are.
    pub(super) fn request(
        &self,
        caller: &Caller,
        connection: Option<&Arc<Connection>>,
    ) -> Result<Tickets, ApiError> {
        let Some(connection) = connection.filter(|_| is_shared(caller)) else {
            return Ok([enter(&self.requests, caller)?, None]);
        };
        let here = connection.stranger().ok_or_else(too_many)?;
        let who = seen_at(caller, connection);
        let there = self.strange.enter(&who).ok_or_else(too_many)?;
        Ok([Some(here), Some(there)])
    }

    /// Lets a watch begin, unless its user has too many.
    pub(super) fn watch(&self, caller: &Caller) -> Result<Option<Ticket>, ApiError> {
        enter(&self.watches, caller)
    }

    /// Lets a request to a member begin, unless its user has too many.
    pub(super) fn stream(&self, caller: &Caller) -> Result<Option<Ticket>, ApiError> {
        enter(&self.streams, caller)
    }

    /// Lets a list over all clusters begin, unless its user has too many, or the server: each takes memory, whoever asks.
    pub(super) fn list(&self, caller: &Caller) -> Result<Tickets, ApiError> {
        let [of_user, of_all] = &self.lists;
        let mine = enter(of_user, caller)?;
        let here = of_all.enter("").ok_or_else(too_many)?;
        Ok([mine, Some(here)])
    }

    /// Lets a connection be, unless its user has too many.
    pub(super) fn connection(&self, caller: &Caller) -> Result<Option<Ticket>, ApiError> {
        match is_agent(caller) {
            true => enter(&self.of_agents, caller),
            false => enter(&self.connections, caller),
        }
    }

    /// Waits until this caller may begin what costs so much.
    pub(super) async fn turn(
        &self,
        caller: &Caller,
        connection: Option<&Arc<Connection>>,
        cost: Cost,
    ) -> Option<Turn> {
        if caller.is_in(MASTERS) {
            return None;
        }
        match connection.filter(|_| is_shared(caller)) {
            None => self.turns.enter(&caller.user, cost).await,
            Some(connection) => self.turns.enter(&seen_at(caller, connection), cost).await,
        }
    }

    /// An answer that counts until it was sent: whoever asks and does not read fills the memory here.
    pub(super) fn sending(
        &self,
        response: Response<Body>,
        caller: &Caller,
        tickets: Tickets,
    ) -> Result<Response<Body>, ApiError> {
        if tickets.iter().all(Option::is_none) {
            return Ok(response);
        }
        let weight = match weight(&response) {
            0 => None,
            size => Some(self.answers.take(&caller.user, size).ok_or_else(too_many)?),
        };
        Ok(response.map(|body| kept(body, (tickets, weight))))
    }

    /// Room for the answer to what changes something, of about so many bytes, while that is carried out: once
    /// it is done it cannot be refused any more.
    pub(super) fn room(&self, caller: &Caller, bytes: usize) -> Result<Option<Ticket>, ApiError> {
        match bytes >> 20 {
            0 => Ok(None),
            _ if caller.is_in(MASTERS) => Ok(None),
            size => match self.answers.take(&caller.user, size) {
                Some(room) => Ok(Some(room)),
                None => Err(too_many()),
            },
        }
    }

    /// The answer to what was done; it counts as any other, and is sent even if there is no room for it.
    pub(super) fn sending_done(
        &self,
        response: Response<Body>,
        caller: &Caller,
        tickets: Tickets,
    ) -> Response<Body> {
        let weight = match weight(&response) {
            0 => None,
            _ if tickets.iter().all(Option::is_none) => None,
            size => Some(self.answers.add(&caller.user, size)),
        };
        response.map(|body| kept(body, (tickets, weight)))
    }
}

/// What an answer weighs, in MiB.
fn weight(response: &Response<Body>) -> usize {
    let size = response.body().size_hint().exact().unwrap_or_default();
    usize::try_from(size >> 20).unwrap_or(usize::MAX)
}

/// What a request counts as.
pub(super) type Tickets = [Option<Ticket>; 2];

/// Whether many who know nothing of each other come as this user.
fn is_shared(caller: &Caller) -> bool {
    caller.user == ANONYMOUS || caller.user.starts_with(BOOTSTRAP_USER_PREFIX)
}

/// One of them, as far as that can be told.
fn seen_at(caller: &Caller, connection: &Connection) -> String {
    format!("{} {}", caller.user, place(connection.address))
}

fn enter(of: &InFlight, caller: &Caller) -> Result<Option<Ticket>, ApiError> {
    if caller.is_in(MASTERS) {
        return Ok(None);
    }
    of.enter(&caller.user).map(Some).ok_or_else(too_many)
}

fn too_many() -> ApiError {
    ApiError::too_many_requests("too many requests, please try again later", 1)
}
