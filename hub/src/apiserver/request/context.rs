//! What is known of a request before its verb runs.

use crate::apiserver::caller::Caller;
use crate::apiserver::error::ApiError;
use crate::apiserver::scheme::Resource;
use serde_json::Value;
use std::any::Any;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

/// Who asks for what, as the path, the query and the credentials say.
#[derive(Clone)]
pub struct Context {
    /// Who asks.
    pub caller: Arc<Caller>,
    /// The kind, in the version of the path.
    pub resource: Arc<Resource>,
    /// The namespace of the path; empty for cluster-wide requests.
    pub namespace: String,
    /// The name of the path; empty for requests to a collection.
    pub name: String,
    /// The subresource of the path, as `status`; empty for the object itself.
    pub subresource: String,
    /// `dryRun=All`: everything but the commit.
    pub dry_run: bool,
    /// The parameter `fieldManager`, or what the user agent says before its first slash.
    pub field_manager: String,
    /// The parameter `fieldValidation`; [`FieldValidation::Warn`] when there is none.
    pub field_validation: FieldValidation,
    /// What the answer's `Warning` headers say.
    pub warnings: Warnings,
    /// What the request holds until it waits for the disk.
    pub holding: Holding,
}

impl Context {
    /// Adds what every answer of a deprecated version carries.
    pub(in crate::apiserver) fn note_deprecation(&self) {
        let custom = self.resource.custom();
        if let Some(text) = custom.and_then(|custom| custom.deprecation.as_deref()) {
            self.warnings.add(text);
        }
        if (self.resource.group.as_ref(), self.resource.plural.as_ref()) == ("", "endpoints") {
            self.warnings
                .add("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice");
        }
    }
}

/// What happens to fields that a kind does not have, or that a body has twice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// They are dropped.
    Ignore,
    /// They are dropped, and the answer has a warning.
    #[default]
    Warn,
    /// The request is refused.
    Strict,
}

/// An answer carries no more of them.
const MOST_WARNED: usize = 100;

/// Warnings that a request collects. Clones share one list.
#[derive(Debug, Clone, Default)]
pub struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    /// Adds `text`, unless it is there already, or as many as an answer can carry.
    pub fn add(&self, text: impl Into<String>) {
        let text = text.into();
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if list.len() < MOST_WARNED && !list.contains(&text) {
            list.push(text);
        }
    }

    /// All so far, in order.
    pub fn all(&self) -> Vec<String> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// What a request holds while it keeps a processor busy, if anything: others may begin once it only
/// waits. Clones share it.
#[derive(Clone, Default)]
pub struct Holding(Arc<Mutex<Option<Box<dyn Any + Send>>>>);

impl Holding {
    /// Holds something.
    pub fn of(what: impl Any + Send) -> Self {
        Self(Arc::new(Mutex::new(Some(Box::new(what)))))
    }

    /// Lets it go.
    pub fn let_go(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// What a write is to its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// The object is new.
    Create,
    /// The object changes.
    Update,
    /// The object goes.
    Delete,
}

/// The answer of [`Admission`].
pub type AdmissionFuture<'a> = Pin<Box<dyn Future<Output = Result<(), ApiError>> + Send + 'a>>;

/// Rules that need more than the object: escalation of rights, what agents may write.
pub trait Admission: Send + Sync {
    /// Called with the object as it would be stored, after validation, before the commit. `object` is
    /// `None` for deletions, `old` for creations.
    fn admit<'a>(
        &'a self,
        context: &'a Context,
        operation: Operation,
        object: Option<&'a Value>,
        old: Option<&'a Value>,
    ) -> AdmissionFuture<'a>;
}
