//! One call of a script, in an environment of its own.

use super::clock;
use super::ledger::{Exceeded, Ledger, Limits};
use super::program::Program;
use mlua::chunk::ChunkMode;
use mlua::{Function, Lua, LuaOptions, MultiValue, StdLib, Table, Value, VmState};
use std::rc::Rc;
use std::sync::OnceLock;

/// Longest text of an error.
const LONGEST_ERROR: usize = 2048;

/// Why a call gave nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// The script's own error, with its line.
    #[error("{0}")]
    Failed(String),
    /// It was stopped.
    #[error(transparent)]
    Exceeded(#[from] Exceeded),
}

/// Why a function that we give to scripts gave nothing.
#[derive(Debug)]
pub enum Refused {
    /// An error that the script may catch; it is told with the line of whoever called.
    Message(String),
    /// The end of the call.
    Stop(mlua::Error),
}

impl From<mlua::Error> for Refused {
    fn from(error: mlua::Error) -> Self {
        Self::Stop(error)
    }
}

impl Refused {
    /// An error that the script may catch.
    pub fn message(text: impl Into<String>) -> Self {
        Self::Message(text.into())
    }
}

/// A function that scripts are given.
#[derive(Debug, Clone, Copy)]
pub struct Native {
    /// Its name in its module.
    pub name: &'static str,
    /// What it does. It has to charge for whatever takes longer with longer arguments.
    pub call: fn(&Context<'_>, &[Value]) -> Result<Value, Refused>,
}

/// What `require` finds by a name.
#[derive(Debug)]
pub struct Module {
    /// The name.
    pub name: &'static str,
    /// Its functions.
    pub functions: &'static [Native],
}

/// The call that is under way, as functions see it.
#[derive(Debug)]
pub struct Context<'a> {
    pub(super) lua: &'a Lua,
    pub(super) ledger: &'a Ledger,
}

impl Context<'_> {
    /// Charges for bytes that are made or read.
    pub fn charge(&self, bytes: usize) -> Result<(), Refused> {
        let steps = u32::try_from(bytes / 64).unwrap_or(u32::MAX);
        Ok(self.ledger.take(1.0 + f64::from(steps))?)
    }

    /// A text of the script.
    pub fn text(&self, text: &str) -> Result<Value, Refused> {
        Ok(Value::String(self.lua.create_string(text)?))
    }
}

/// Runs one script once.
#[derive(Debug)]
pub struct Machine {
    pub(super) lua: Lua,
    pub(super) ledger: Rc<Ledger>,
    globals: Table,
    /// Calls a function and says whether that went well.
    run: Function,
}

impl Machine {
    /// An environment with the library and these modules, which `require` finds.
    pub fn new(limits: Limits, modules: &'static [Module]) -> Result<Self, RunError> {
        let ledger = Rc::new(Ledger::new(limits));
        let made = Self::furnish(Rc::clone(&ledger), modules);
        made.map_err(|error| told(&ledger, &error))
    }

    fn furnish(ledger: Rc<Ledger>, modules: &'static [Module]) -> mlua::Result<Self> {
        static LIBRARY: OnceLock<Program> = OnceLock::new();
        let library = match LIBRARY.get() {
            Some(library) => library,
            None => {
                let read = Program::read(include_str!("library.lua"))?;
                LIBRARY.get_or_init(|| read)
            }
        };
        let options = LuaOptions::new().catch_rust_panics(false);
        let lua = Lua::new_with(StdLib::TABLE | StdLib::STRING | StdLib::MATH, options)?;
        lua.gc_stop();
        let charge = {
            let ledger = Rc::clone(&ledger);
            lua.create_function(move |_, steps: f64| ledger.take(steps))?
        };
        let weigh = {
            let ledger = Rc::clone(&ledger);
            lua.create_function(move |_, weight: f64| {
                ledger.weigh(weight);
                Ok(())
            })?
        };
        let exhausted = {
            let ledger = Rc::clone(&ledger);
            lua.create_function(move |_, ()| Err::<(), _>(ledger.exhausted()))?
        };
        let found = lua.create_table()?;
        for module in modules.iter().chain([&clock::MODULE]) {
            let functions = lua.create_table()?;
            for native in module.functions {
                functions.raw_set(native.name, function(&lua, &ledger, native.call)?)?;
            }
            found.raw_set(module.name, functions)?;
        }
        let library = lua.load(&*library.bytecode).set_name("=library");
        let library = library.set_mode(ChunkMode::Binary).into_function()?;
        let (globals, run) = library.call((charge, weigh, exhausted, found))?;
        let counted = Rc::clone(&ledger);
        lua.set_interrupt(move |lua| counted.step(lua).map(|()| VmState::Continue));
        Ok(Self {
            lua,
            ledger,
            globals,
            run,
        })
    }

    /// Runs the script itself, which defines its functions. From here on memory is counted.
    pub fn load(&self, program: &Program) -> Result<(), RunError> {
        let main = || {
            self.ledger.begin(&self.lua)?;
            let chunk = self.lua.load(&*program.bytecode).set_name("=<string>");
            let chunk = chunk.set_mode(ChunkMode::Binary);
            chunk.set_environment(self.globals.clone()).into_function()
        };
        let main = main().map_err(|error| told(&self.ledger, &error))?;
        self.run(&main, Vec::new()).map(drop)
    }

    /// A global of the script.
    pub fn global(&self, name: &str) -> Value {
        self.globals.raw_get(name).unwrap_or(Value::Nil)
    }

    /// Calls a function.
    pub fn run(&self, function: &Function, arguments: Vec<Value>) -> Result<Vec<Value>, RunError> {
        let mut given = MultiValue::from_vec(arguments);
        given.push_front(Value::Function(function.clone()));
        let called = self.run.call::<MultiValue>(given);
        // Whatever a script made of its end, it was the end.
        if let Some(exceeded) = self.ledger.exceeded() {
            return Err(exceeded.into());
        }
        let mut values = called.map_err(|error| told(&self.ledger, &error))?;
        match values.pop_front() {
            Some(Value::Boolean(true)) => Ok(values.into_iter().collect()),
            _ => Err(raised(
                &self.ledger,
                &values.pop_front().unwrap_or(Value::Nil),
            )),
        }
    }

    /// How many steps were taken until now.
    pub fn steps(&self) -> f64 {
        self.ledger.steps()
    }

    pub(super) fn context(&self) -> Context<'_> {
        Context {
            lua: &self.lua,
            ledger: &self.ledger,
        }
    }
}

/// A function of ours, which tells the library whether it went well.
fn function(
    lua: &Lua,
    ledger: &Rc<Ledger>,
    call: fn(&Context<'_>, &[Value]) -> Result<Value, Refused>,
) -> mlua::Result<Function> {
    let ledger = Rc::clone(ledger);
    lua.create_function(move |lua, values: MultiValue| {
        let values: Vec<Value> = values.into_iter().collect();
        let ledger = &*ledger;
        match call(&Context { lua, ledger }, &values) {
            Ok(value) => Ok((true, value)),
            Err(Refused::Message(text)) => {
                let text = lua.create_string(harmless(&text))?;
                Ok((false, Value::String(text)))
            }
            Err(Refused::Stop(error)) => Err(error),
        }
    })
}

/// What a script raised, as whoever called it is told.
fn raised(ledger: &Ledger, value: &Value) -> RunError {
    match value {
        Value::String(text) => failed(ledger, &text.to_string_lossy()),
        Value::Integer(number) => RunError::Failed(number.to_string()),
        Value::Number(number) => RunError::Failed(number.to_string()),
        Value::Error(error) => told(ledger, error),
        other => RunError::Failed(format!(
            "the script raised a {} instead of a text",
            type_name(other)
        )),
    }
}

/// An error of the engine, as whoever called the script is told.
pub(super) fn told(ledger: &Ledger, error: &mlua::Error) -> RunError {
    if let Some(exceeded) = ledger.exceeded() {
        return exceeded.into();
    }
    match error {
        mlua::Error::CallbackError { cause, .. } => told(ledger, cause),
        mlua::Error::RuntimeError(text) => failed(ledger, text),
        mlua::Error::MemoryError(_) => {
            ledger.exhausted();
            told(ledger, error)
        }
        other => RunError::Failed(harmless(&other.to_string())),
    }
}

fn failed(ledger: &Ledger, text: &str) -> RunError {
    if text == "not enough memory" {
        ledger.exhausted();
    }
    match ledger.exceeded() {
        Some(exceeded) => exceeded.into(),
        None => RunError::Failed(harmless(text)),
    }
}

/// A text of a script as it may be shown.
pub(super) fn harmless(text: &str) -> String {
    crate::harmless::line(text, LONGEST_ERROR)
}

/// The name of a value's type, as Lua has it.
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Integer(_) => "number",
        other => other.type_name(),
    }
}

/// The number of a value's type, as the reference tells it.
pub fn type_number(value: &Value) -> u8 {
    match type_name(value) {
        "nil" => 0,
        "boolean" => 1,
        "number" => 2,
        "string" => 3,
        "function" => 4,
        "thread" => 6,
        "table" => 7,
        _ => 5,
    }
}
