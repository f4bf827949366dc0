//! What each caller has of requests, watches, connections, answers and processors, so that all have some.
//! Whoever may do everything is not counted and does not wait.

use super::limit::{InFlight, Ticket};
use super::respond::{self, Body};
use crate::apiserver::caller::{Caller, MASTERS};
use crate::apiserver::error::ApiError;
use http::Response;
use hyper::body::Body as _;
use std::sync::Arc;
use std::thread::available_parallelism;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bodies from this size on are read one after another.
const LARGE: usize = 128 * 1024;

/// Clones share everything.
#[derive(Clone)]
pub(super) struct Shares {
    requests: InFlight,
    watches: InFlight,
    connections: InFlight,
    answers: InFlight,
    /// For what keeps a thread busy: there is always one for what does not.
    turns: Arc<Semaphore>,
}

impl Shares {
    pub(super) fn new() -> Self {
        let threads = available_parallelism();
        let busy = threads.map_or(1, |threads| threads.get().saturating_sub(1).max(1));
        Self {
            requests: InFlight::requests(),
            watches: InFlight::watches(),
            connections: InFlight::connections(),
            answers: InFlight::answers(),
            turns: Arc::new(Semaphore::new(busy)),
        }
    }

    /// Lets a request begin, unless its user has too many; it counts as long as the ticket lives.
    pub(super) fn request(&self, caller: &Caller) -> Result<Option<Ticket>, ApiError> {
        enter(&self.requests, caller)
    }

    /// Lets a watch begin, unless its user has too many.
    pub(super) fn watch(&self, caller: &Caller) -> Result<Option<Ticket>, ApiError> {
        enter(&self.watches, caller)
    }

    /// Lets a connection be, unless its user has too many.
    pub(super) fn connection(&self, caller: &Caller) -> Result<Option<Ticket>, ApiError> {
        enter(&self.connections, caller)
    }

    /// Waits until this caller may keep a thread busy.
    pub(super) async fn turn(&self, caller: &Caller) -> Option<OwnedSemaphorePermit> {
        if caller.is_in(MASTERS) {
            return None;
        }
        self.turns.clone().acquire_owned().await.ok()
    }

    /// The same for a body of that size; a small one does not wait.
    pub(super) async fn turn_for(
        &self,
        body: usize,
        caller: &Caller,
    ) -> Option<OwnedSemaphorePermit> {
        match body >= LARGE {
            true => self.turn(caller).await,
            false => None,
        }
    }

    /// An answer that counts until it was sent: whoever asks and does not read fills the memory here.
    pub(super) fn sending(
        &self,
        response: Response<Body>,
        caller: &Caller,
        ticket: Option<Ticket>,
    ) -> Result<Response<Body>, ApiError> {
        let Some(ticket) = ticket else {
            return Ok(response);
        };
        let size = response.body().size_hint().exact().unwrap_or_default();
        let weight = match usize::try_from(size >> 20).unwrap_or(usize::MAX) {
            0 => None,
            size => Some(self.answers.take(&caller.user, size).ok_or_else(too_many)?),
        };
        Ok(response.map(|body| respond::kept(body, (ticket, weight))))
    }
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
