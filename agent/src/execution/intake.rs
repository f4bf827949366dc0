//! What comes in: the Works of the hub, and of the member our objects and the autoscalers.
//!
//! Each takes what its watch tells into the state, and queues the Works that are concerned.

pub mod autoscalers;
pub mod objects;
pub mod works;
