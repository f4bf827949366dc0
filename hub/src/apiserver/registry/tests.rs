//! What the verbs do to objects in a store.

mod deletion;
mod lists;
mod watches;
mod writes;
