//! Lease, health and status of a Cluster: the reference's rows A7 to A14 and A35, with real planes.

mod content;
mod front;
mod health;
mod lease;
mod rig;
