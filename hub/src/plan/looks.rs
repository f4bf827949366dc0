//! How much is looked at while a plan is made: counted in tests alone.

#[cfg(test)]
use std::cell::Cell;

#[cfg(test)]
thread_local! {
    static LOOKS: Cell<u64> = const { Cell::new(0) };
}

/// One object more.
pub(super) fn one() {
    #[cfg(test)]
    LOOKS.with(|looks| looks.set(looks.get() + 1));
}

/// How many they were in this thread.
#[cfg(test)]
pub(super) fn all() -> u64 {
    LOOKS.with(Cell::get)
}
