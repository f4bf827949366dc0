//! What is asked: the path and the query of a request, its body as it came, the options that its verb takes,
//! and what is known of it before the verb runs. Pure.

mod body;
mod context;
mod info;
mod options;
mod selector;

pub use body::{Body, MediaType};
pub use context::{
    Admission, AdmissionFuture, Context, FieldValidation, Holding, Operation, Warnings,
};
pub use info::{Malformed, Query, RequestInfo, is_escaped, unescape};
pub(in crate::apiserver) use options::EXACT;
pub use options::{DeleteOptions, ListOptions, PatchKind, Preconditions, Propagation};
pub use selector::{FieldSelector, LabelSelector};
