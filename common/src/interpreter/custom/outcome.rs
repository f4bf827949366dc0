//! Why a script gave nothing that can be used.

use super::Operation;
use crate::lua::{CompileError, NotConverted, RunError};

/// A script that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("ResourceInterpreterCustomization {customization}, {}: {problem}", operation.name())]
pub struct Failed {
    /// Whose script it is.
    pub customization: String,
    /// What it was asked.
    pub operation: Operation,
    /// Why.
    pub problem: Problem,
}

/// What is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// It cannot be read.
    #[error(transparent)]
    Syntax(#[from] CompileError),
    /// It ended in an error, or was ended.
    #[error(transparent)]
    Run(#[from] RunError),
    /// It defines no such function.
    #[error("not found function {0}")]
    NoFunction(&'static str),
    /// What it defines is none.
    #[error("{0} is not a function: {1}")]
    NotAFunction(&'static str, &'static str),
    /// The result is of another type.
    #[error("{0}")]
    Type(String),
    /// The result is no object.
    #[error(transparent)]
    Result(#[from] NotConverted),
    /// The result is another object.
    #[error(transparent)]
    Identity(#[from] crate::interpreter::guard::Forbidden),
}
