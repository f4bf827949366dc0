//! What Go's standard library reads and writes, where clients know API servers by it: quoted strings,
//! numbers, values in messages, paths into objects, and what is wrong with a text that is not JSON; and what words of
//! YAML stand for to its library of that. Pure.

mod jsonpath;
mod number;
pub(crate) mod print;
mod quote;
pub(crate) mod strict;
pub(crate) mod syntax;
pub(crate) mod yaml;

pub(crate) use jsonpath::JsonPath;
pub(crate) use number::settle as settle_numbers;
pub(crate) use quote::{escape_html, quote};
