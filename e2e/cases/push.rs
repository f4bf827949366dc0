//! Clusters that the hub reaches itself: joined, served by one process beside the hub, lost, and unjoined.

mod attack;
mod life;
mod rig;
