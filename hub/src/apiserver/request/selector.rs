//! Label and field selectors: parsed as the real server parses them, with its words for what is wrong.

mod fields;
mod labels;
mod lexer;

pub use fields::FieldSelector;
pub use labels::LabelSelector;
