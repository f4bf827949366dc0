//! Who may do what: roles and their bindings, read from the store, and decided without a request.

mod bootstrap;
mod cover;
mod escalation;
mod feed;
mod index;
mod reconcile;
mod rule;

pub use bootstrap::objects as bootstrap_objects;
pub use escalation::Grant;
pub use reconcile::{Reconciled, reconciled};
pub(super) use rule::quoted_list;
pub use rule::{Action, Rule};

use super::caller::{Caller, MASTERS};
use super::error::{ApiError, GroupResource};
use crate::go::quote;
use common::signal;
use index::Index;
use std::sync::{Arc, PoisonError, RwLock};

/// What is asked of the authorizer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attributes {
    /// `get`, `list`, `create`, …; of a path the method in lower case.
    pub verb: String,
    /// API group; `*` for any in reviews.
    pub group: String,
    /// Plural name; empty when a path is asked about.
    pub resource: String,
    /// Part of the object; empty for the object itself.
    pub subresource: String,
    /// Empty for what lies in none, and for all of them at once.
    pub namespace: String,
    /// Name of the object; empty for a collection.
    pub name: String,
    /// Path, when it is not about a resource.
    pub path: Option<String>,
}

impl Attributes {
    fn action(&self) -> Action<'_> {
        match &self.path {
            Some(path) => Action::Path {
                verb: &self.verb,
                path,
            },
            None => Action::Resource {
                verb: &self.verb,
                group: &self.group,
                resource: &self.resource,
                subresource: &self.subresource,
                name: &self.name,
            },
        }
    }

    /// The answer to somebody who may not.
    pub fn forbidden(&self, caller: &Caller, reason: &str) -> ApiError {
        let (user, verb) = (quote(&caller.user), &self.verb);
        let (on, mut why) = match &self.path {
            Some(path) => (
                GroupResource::new("", ""),
                format!("User {user} cannot {verb} path {}", quote(path)),
            ),
            None => {
                let mut resource = self.resource.clone();
                if !self.subresource.is_empty() {
                    resource.push('/');
                    resource.push_str(&self.subresource);
                }
                let place = if self.namespace.is_empty() {
                    "at the cluster scope".to_owned()
                } else {
                    format!("in the namespace {}", quote(&self.namespace))
                };
                let why = format!(
                    "User {user} cannot {verb} resource {} in API group {} {place}",
                    quote(&resource),
                    quote(&self.group),
                );
                (
                    GroupResource::new(self.group.as_str(), self.resource.as_str()),
                    why,
                )
            }
        };
        if !reason.is_empty() {
            why.push_str(": ");
            why.push_str(reason);
        }
        ApiError::forbidden(&on, &self.name, &why)
    }
}

/// What was decided, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Whether it may be.
    pub allowed: bool,
    /// By which binding, or what could not be read; may be empty.
    pub reason: String,
}

/// The roles and bindings that are in force, and what follows from them.
#[derive(Debug)]
pub struct Authorizer {
    index: RwLock<Index>,
    /// Moves with every change: what is open may have to be closed.
    changed: signal::Sender<u64>,
}

impl Default for Authorizer {
    fn default() -> Self {
        Self {
            index: RwLock::default(),
            changed: signal::Sender::new(0),
        }
    }
}

impl Authorizer {
    /// Whether somebody may, and by which rule.
    pub fn decide(&self, caller: &Caller, asked: &Attributes) -> Decision {
        if caller.is_in(MASTERS) {
            return Decision {
                allowed: true,
                reason: String::new(),
            };
        }
        self.read(|index| index.decide(caller, &asked.namespace, &asked.action()))
    }

    /// Decides; the error is the answer to whoever may not.
    pub fn check(&self, caller: &Caller, asked: &Attributes) -> Result<(), ApiError> {
        let decision = self.decide(caller, asked);
        if decision.allowed {
            return Ok(());
        }
        Err(asked.forbidden(caller, &decision.reason))
    }

    /// Every rule that holds for a caller in a namespace, by role, and what could not be resolved.
    pub fn rules(&self, caller: &Caller, namespace: &str) -> (Vec<Arc<[Rule]>>, Vec<String>) {
        self.read(|index| index.rules(caller, namespace))
    }

    /// Tells of every change of roles and bindings.
    pub fn changes(&self) -> signal::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Decisions are the same while this number is.
    pub fn generation(&self) -> u64 {
        *self.changed.borrow()
    }

    fn read<T>(&self, with: impl FnOnce(&Index) -> T) -> T {
        with(&self.index.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write(&self, with: impl FnOnce(&mut Index)) {
        with(&mut self.index.write().unwrap_or_else(PoisonError::into_inner));
        self.changed.send_modify(|version| *version += 1);
    }
}
