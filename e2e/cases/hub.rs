//! The hub beside an agent that the test plays: rows H1 to H9, and the monitor's promises on a real plane.

mod clusters;
mod monitor;
mod play;
mod schema;
