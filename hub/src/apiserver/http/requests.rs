//! Certificate requests are counted by who makes them: past a budget there is none to have, before anything
//! of the request is read.

use crate::apiserver::caller::{Caller, MASTERS};
use crate::apiserver::error::ApiError;
use crate::apiserver::request::RequestInfo;
use crate::apiserver::store::{Kind, Scope, Store, Stored, Watcher};
use crate::budget::{Ledger, State as Progress};
use serde::Deserialize;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const REQUESTS: &str = "certificates.k8s.io/certificatesigningrequests";
/// When to ask again, in seconds: what was decided is deleted an hour later.
const RETRY_AFTER: u32 = 60;

/// Who has how many, as the store says. Clones share it.
#[derive(Clone)]
pub struct Requests(Arc<Mutex<State>>);

struct State {
    store: Store,
    /// As of what the watcher has told.
    ledger: Ledger,
    watcher: Option<Watcher>,
    /// Of each user: being made.
    under_way: HashMap<String, usize>,
}

/// A request that is being made.
pub(super) struct UnderWay {
    of: Requests,
    user: String,
}

impl Requests {
    /// Those of a store.
    pub fn of(store: Store) -> Self {
        Self(Arc::new(Mutex::new(State {
            store,
            ledger: Ledger::default(),
            watcher: None,
            under_way: HashMap::new(),
        })))
    }

    /// Lets a request for a certificate be made, unless its user has too many; other requests are not counted.
    pub(super) fn begin(
        &self,
        caller: &Caller,
        info: &RequestInfo,
    ) -> Result<Option<UnderWay>, ApiError> {
        let counts = info.verb == "create"
            && (
                info.group.as_str(),
                info.resource.as_str(),
                info.subresource.as_str(),
            ) == ("certificates.k8s.io", "certificatesigningrequests", "");
        if !counts || caller.is_in(MASTERS) {
            return Ok(None);
        }
        let mut state = self.lock();
        state.catch_up();
        let under_way = state.under_way.get(&caller.user).copied().unwrap_or(0);
        if !state.ledger.allows(&caller.user, &caller.groups, under_way) {
            return Err(ApiError::too_many_requests(
                "too many certificate signing requests of this user; each is deleted an hour after it was decided",
                RETRY_AFTER,
            ));
        }
        state.under_way.insert(caller.user.clone(), under_way + 1);
        Ok(Some(UnderWay {
            of: self.clone(),
            user: caller.user.clone(),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Counts what has happened since it was asked last: what was answered is counted, or requests that
    /// follow each other closely would all be the first one.
    fn catch_up(&mut self) {
        loop {
            let Some(watcher) = &mut self.watcher else {
                self.begin_anew();
                return;
            };
            match watcher.try_next() {
                Ok(None) => return,
                Ok(Some(event)) if event.kind == Kind::Deleted => {
                    self.ledger.remove(event.object.name());
                }
                Ok(Some(event)) => put(&mut self.ledger, &event.object),
                // Asked so seldom that the history is gone.
                Err(_) => self.watcher = None,
            }
        }
    }

    fn begin_anew(&mut self) {
        let snapshot = self.store.snapshot(REQUESTS);
        self.ledger = Ledger::default();
        for stored in snapshot.table.iter() {
            put(&mut self.ledger, stored);
        }
        let watcher = self.store.watch(REQUESTS, Scope::All, snapshot.revision);
        self.watcher = watcher.ok();
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut state = self.of.lock();
        if let Some(count) = state.under_way.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                state.under_way.remove(&self.user);
            }
        }
    }
}

fn put(ledger: &mut Ledger, stored: &Stored) {
    if let Some((user, state)) = read(&stored.json()) {
        ledger.put(stored.name(), &user, state);
    }
}

/// Who made a request, and how far it has come.
fn read(json: &[u8]) -> Option<(String, Progress)> {
    #[derive(Deserialize)]
    struct Request {
        #[serde(default)]
        spec: Spec,
        #[serde(default)]
        status: Status,
    }
    #[derive(Default, Deserialize)]
    struct Spec {
        #[serde(default)]
        username: String,
    }
    #[derive(Default, Deserialize)]
    struct Status {
        #[serde(default)]
        certificate: String,
        /// As they are: one that cannot be read must not keep a request from being counted.
        #[serde(default)]
        conditions: Value,
    }
    let Request { spec, status } = serde_json::from_slice(json).ok()?;
    let mut conditions = status.conditions.as_array().into_iter().flatten();
    let state = if !status.certificate.is_empty() {
        Progress::Issued
    } else if conditions.any(|it| it["type"] == "Denied" || it["type"] == "Failed") {
        Progress::Refused
    } else {
        Progress::Waiting
    };
    Some((spec.username, state))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_request_waits_until_it_is_refused_or_signed() {
        let condition = |type_: &str| json!([7, {"type": type_, "status": "True"}]);
        let cases = [
            (json!({}), Progress::Waiting),
            (json!({"conditions": null}), Progress::Waiting),
            (
                json!({"conditions": condition("Approved")}),
                Progress::Waiting,
            ),
            (
                json!({"conditions": condition("Denied")}),
                Progress::Refused,
            ),
            (
                json!({"conditions": condition("Failed")}),
                Progress::Refused,
            ),
            (
                json!({"conditions": condition("Approved"), "certificate": "eA=="}),
                Progress::Issued,
            ),
        ];
        for (status, want) in cases {
            let request = json!({"spec": {"username": "bob"}, "status": status}).to_string();
            let found = read(request.as_bytes());
            assert_eq!(found, Some(("bob".to_owned(), want)), "{request}");
        }
        let new = json!({"spec": {"username": "bob"}}).to_string();
        assert_eq!(
            read(new.as_bytes()),
            Some(("bob".to_owned(), Progress::Waiting))
        );
    }
}
