//! The member's API as the delivery of Works sees it: raw requests, kinds, watches.

pub mod api;
pub mod kinds;
