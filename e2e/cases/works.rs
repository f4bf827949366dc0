//! Delivery of Works, against real planes. The engine runs in the test's process, so that its requests
//! can be counted and its stops and starts chosen.

mod anew;
mod apart;
mod diagnosis;
mod kept;
mod kills;
mod labels;
mod left_alone;
mod lives;
mod merged;
mod restored;
mod rig;
mod rows;
mod scenarios;
mod stored;
mod webhook;

pub(super) use left_alone::left_alone_for_five_minutes;
