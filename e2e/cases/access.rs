//! Reaching into members through the connection that their agents dialled. Such a hub is always the built-in one; the
//! member is whatever the lab runs.

mod ends;
mod node;
mod oneself;
mod rig;
