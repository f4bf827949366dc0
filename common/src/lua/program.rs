//! From the text of a script to what can be run, any number of times and at once.

use mlua::chunk::Compiler;
use std::sync::Arc;

/// Why a script cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("<string>:{line}: {message}")]
pub struct CompileError {
    /// Where.
    pub line: u32,
    /// What is wrong there.
    pub message: String,
}

/// A script that was read.
#[derive(Debug, Clone)]
pub struct Program {
    pub(super) bytecode: Arc<[u8]>,
}

impl Program {
    /// Longest script, in bytes: how much may happen between two steps depends on it.
    pub const LONGEST: usize = 64 * 1024;

    /// Reads a script.
    pub fn compile(text: &str) -> Result<Self, CompileError> {
        if text.len() > Self::LONGEST {
            let message = format!("a script has at most {} bytes", Self::LONGEST);
            return Err(CompileError { line: 0, message });
        }
        Self::read(text).map_err(|error| {
            let told = match error {
                mlua::Error::SyntaxError { message, .. } => message,
                other => other.to_string(),
            };
            let told = super::machine::harmless(&told);
            // As ":line: message".
            let parts = told.strip_prefix(':').unwrap_or(&told).split_once(": ");
            let parts = parts.and_then(|(line, rest)| Some((line.parse().ok()?, rest.to_owned())));
            let (line, message) = parts.unwrap_or((0, told));
            CompileError { line, message }
        })
    }

    pub(super) fn read(text: &str) -> mlua::Result<Self> {
        let compiler = Compiler::new().set_optimization_level(1).set_debug_level(1);
        let bytecode = compiler.compile(text)?.into();
        Ok(Self { bytecode })
    }
}
