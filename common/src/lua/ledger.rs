//! What a call may use up, and how it ends when it wants more.

use mlua::Lua;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// What one call may use up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Steps: one for each call, turn of a loop and step of a pattern, more of them the more memory the call has, and as many
    /// as its work is worth for each function of the library.
    pub steps: u32,
    /// Bytes of memory beside the arguments; nothing is given back before the call ends.
    pub bytes: usize,
}

/// What was used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Exceeded {
    /// It ran for too long.
    #[error("the script was stopped: it took more than the {0} steps that a call may take")]
    Steps(u32),
    /// It made too much.
    #[error("the script was stopped: it made more than the {0} bytes that a call may make")]
    Bytes(usize),
}

/// Bytes of memory that make each step a step longer: one instruction may look at all of them.
const BYTES_A_STEP: usize = 64 * 1024;

/// Whether a table was a list or a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    List,
    Map,
}

/// What is left of the limits, and what is known of the tables that were given.
#[derive(Debug)]
pub(super) struct Ledger {
    limits: Limits,
    left: Cell<f64>,
    /// Memory before the script began.
    before: Cell<usize>,
    /// What each step of a pattern costs beside.
    weight: Cell<f64>,
    exceeded: Cell<Option<Exceeded>>,
    /// By the addresses of tables, which stay theirs: nothing is collected.
    pub(super) shapes: RefCell<BTreeMap<usize, Shape>>,
}

impl Ledger {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            left: Cell::new(f64::from(limits.steps)),
            before: Cell::new(0),
            weight: Cell::new(0.0),
            exceeded: Cell::new(None),
            shapes: RefCell::default(),
        }
    }

    /// From here on memory is counted.
    pub(super) fn begin(&self, lua: &Lua) -> mlua::Result<()> {
        let used = lua.used_memory();
        self.before.set(used);
        lua.set_memory_limit(used.saturating_add(self.limits.bytes))?;
        Ok(())
    }

    /// One step of the engine.
    pub(super) fn step(&self, lua: &Lua) -> mlua::Result<()> {
        let made = lua.used_memory().saturating_sub(self.before.get()) / BYTES_A_STEP;
        let made = u32::try_from(made).unwrap_or(u32::MAX);
        self.take(1.0 + f64::from(made) + self.weight.get())
    }

    /// Charges steps; what is no number of them is too many.
    pub(super) fn take(&self, steps: f64) -> mlua::Result<()> {
        let left = self.left.get() - steps;
        if left >= 0.0 {
            self.left.set(left);
            return Ok(());
        }
        // Whatever follows is refused too, the handler of an error among it.
        self.left.set(0.0);
        Err(self.exceed(Exceeded::Steps(self.limits.steps)))
    }

    /// From here on each step costs more by this.
    pub(super) fn weigh(&self, weight: f64) {
        self.weight.set(weight);
    }

    /// No more memory is to be had, and no script gets past that.
    pub(super) fn exhausted(&self) -> mlua::Error {
        self.left.set(0.0);
        self.exceed(Exceeded::Bytes(self.limits.bytes))
    }

    fn exceed(&self, what: Exceeded) -> mlua::Error {
        let first = self.exceeded.get().unwrap_or(what);
        self.exceeded.set(Some(first));
        mlua::Error::external(first)
    }

    /// What was used up, if anything was.
    pub(super) fn exceeded(&self) -> Option<Exceeded> {
        self.exceeded.get()
    }

    /// How many steps were taken.
    pub(super) fn steps(&self) -> f64 {
        f64::from(self.limits.steps) - self.left.get()
    }
}
