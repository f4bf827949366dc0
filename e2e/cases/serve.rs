//! A hub of `towline-hub serve` over a long life, told in a minute: its certificates end, its authority is
//! replaced, it moves, it is restored, its disk fills. Nobody touches a member meanwhile.
//!
//! Hub and member are built-in servers whatever the rest of the lab runs on.

mod authority;
mod full;
mod kept;
mod moved;
mod restored;
mod rig;
mod signs;
