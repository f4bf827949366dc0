//! The deciders of propagation together, against what Karmada was recorded to decide.

mod failover;
mod reference;
