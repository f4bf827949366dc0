//! The member's API as the delivery of Works sees it: raw requests, kinds, watches.

pub mod discovery;
pub mod kinds;
pub mod rest;
