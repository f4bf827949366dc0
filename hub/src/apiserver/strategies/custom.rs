//! Kinds of CustomResourceDefinitions.

use super::Generation;
use super::generic::{Generic, Meta};

const COMMON: Generic = Generic {
    unconditional: false,
    status_metadata: Meta::Kept,
    ..Generic::PLAIN
};

/// Without a status that is written by itself: a change of the status is one like any other.
pub(super) static PLAIN: Generic = Generic {
    generation: Generation::ContentAndStatus,
    ..COMMON
};

/// With one.
pub(super) static WITH_STATUS: Generic = Generic {
    generation: Generation::Content,
    ..COMMON
};
