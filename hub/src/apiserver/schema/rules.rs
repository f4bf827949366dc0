//! What a CustomResourceDefinition demands of a value beyond its type.

use super::Schema;
use super::cel::CelRule;
use regex::{Regex, RegexBuilder};
use serde_json::{Number, Value};
use std::sync::{Arc, OnceLock};

/// What a CustomResourceDefinition demands of a value beyond its type.
#[derive(Debug, Clone, Default)]
pub(in crate::apiserver) struct Rules {
    pub(super) required: Vec<Arc<str>>,
    pub(super) one_of_values: Vec<Value>,
    pub(super) pattern: Option<Pattern>,
    pub(super) minimum: Option<Number>,
    pub(super) exclusive_minimum: bool,
    pub(super) maximum: Option<Number>,
    pub(super) exclusive_maximum: bool,
    pub(super) multiple_of: Option<f64>,
    pub(super) min_length: Option<u64>,
    pub(super) max_length: Option<u64>,
    pub(super) min_items: Option<u64>,
    pub(super) max_items: Option<u64>,
    pub(super) unique_items: bool,
    pub(super) min_properties: Option<u64>,
    pub(super) max_properties: Option<u64>,
    pub(super) all_of: Vec<Schema>,
    pub(super) any_of: Vec<Schema>,
    pub(super) one_of: Vec<Schema>,
    pub(super) not: Option<Box<Schema>>,
    /// What is demanded of the metadata of a whole object, whose type is that of all metadata.
    pub(super) metadata: Option<Box<Schema>>,
    pub(super) cel: Vec<CelRule>,
}

impl Rules {
    /// Nothing at all.
    pub(super) const fn none() -> Self {
        Self {
            required: Vec::new(),
            one_of_values: Vec::new(),
            pattern: None,
            minimum: None,
            exclusive_minimum: false,
            maximum: None,
            exclusive_maximum: false,
            multiple_of: None,
            min_length: None,
            max_length: None,
            min_items: None,
            max_items: None,
            unique_items: false,
            min_properties: None,
            max_properties: None,
            all_of: Vec::new(),
            any_of: Vec::new(),
            one_of: Vec::new(),
            not: None,
            metadata: None,
            cel: Vec::new(),
        }
    }
}

/// A regular expression, compiled when it is first used.
#[derive(Debug, Clone)]
pub(super) struct Pattern {
    pub(super) text: Arc<str>,
    compiled: Arc<OnceLock<Option<Regex>>>,
}

impl Pattern {
    pub(super) fn new(text: &str) -> Self {
        Self {
            text: text.into(),
            compiled: Arc::default(),
        }
    }

    /// Whether it is found in a text; `None` if it is no regular expression.
    pub(super) fn matches(&self, text: &str) -> Option<bool> {
        let compiled = self.compiled.get_or_init(|| compile(&self.text));
        compiled.as_ref().map(|regex| regex.is_match(text))
    }
}

/// What a pattern may take when it is compiled, as the library has it of itself.
const LARGEST: usize = 10 * 1024 * 1024;

/// A pattern that is compiled.
pub(crate) fn compile(pattern: &str) -> Option<Regex> {
    compile_within(pattern, LARGEST)
}

/// The same, if it takes no more than so many bytes.
pub(crate) fn compile_within(pattern: &str, most: usize) -> Option<Regex> {
    let pattern = translated(pattern)?;
    RegexBuilder::new(&pattern).size_limit(most).build().ok()
}

/// As Go reads it: its short classes are those of ASCII, and within a class only `^`, `-`, `]` and
/// a backslash mean anything.
fn translated(pattern: &str) -> Option<String> {
    let mut rust = String::with_capacity(pattern.len() + 16);
    let mut chars = pattern.chars();
    let mut in_class = false;
    while let Some(c) = chars.next() {
        let rest = chars.as_str();
        match c {
            '\\' => match chars.next() {
                Some('d') => rust.push_str("[0-9]"),
                Some('D') => rust.push_str("[^0-9]"),
                Some('w') => rust.push_str("[0-9A-Za-z_]"),
                Some('W') => rust.push_str("[^0-9A-Za-z_]"),
                Some('s') => rust.push_str("[\\t\\n\\f\\r ]"),
                Some('S') => rust.push_str("[^\\t\\n\\f\\r ]"),
                Some('b') if !in_class => rust.push_str("(?-u:\\b)"),
                Some('/') => rust.push('/'),
                Some(other) => rust.extend(['\\', other]),
                None => return None,
            },
            '[' if in_class => match named_class(rest) {
                Named::Is(named) => {
                    rust.extend(["[", named]);
                    chars = rest.get(named.len()..)?.chars();
                }
                Named::Unknown => return None,
                Named::No => rust.push_str("\\["),
            },
            '[' => {
                in_class = true;
                rust.push('[');
                if let Some(rest) = rest.strip_prefix('^') {
                    rust.push('^');
                    chars = rest.chars();
                }
                if let Some(rest) = chars.as_str().strip_prefix(']') {
                    rust.push_str("\\]");
                    chars = rest.chars();
                }
            }
            ']' if in_class => {
                in_class = false;
                rust.push(']');
            }
            '&' | '~' if in_class => rust.extend(['\\', c]),
            other => rust.push(other),
        }
    }
    Some(rust)
}

/// What Go knows by a name within a class, as `[:alpha:]`; each also with `^` before it.
const CLASSES: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
    "space", "upper", "word", "xdigit",
];

/// What a bracket within a class begins.
enum Named<'p> {
    /// A class with a name: what of it stands behind the bracket.
    Is(&'p str),
    /// The same with a name that there is not.
    Unknown,
    /// Nothing: it stands for itself.
    No,
}

fn named_class(behind: &str) -> Named<'_> {
    let name = behind.strip_prefix(':');
    let Some((name, _)) = name.and_then(|name| name.split_once(":]")) else {
        return Named::No;
    };
    let known = CLASSES.contains(&name.strip_prefix('^').unwrap_or(name));
    match behind.get(..name.len() + 3) {
        Some(named) if known => Named::Is(named),
        _ => Named::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_read_as_go_reads_them() {
        let cases = [
            (r"^\d+$", "12", true),
            (r"^\d+$", "١", false),
            (r"^[\w.-]+$", "a_b.c", true),
            (r"^[a-z&&b]+$", "&", true),
            (r"^[[a]+$", "[", true),
            (r"^[[:alpha:]]+$", "ab", true),
            (r"^[^/]+$", "a/b", false),
            (r"^(a|b)?\/c$", "/c", true),
            (r"^[]a]+$", "]a", true),
            // What looks like the end of a name ends only what began as one.
            (r"^[[:alpha:]][a:][b]$", "x:b", true),
            (r"^[[:alpha:]][a:][b]$", "xab", true),
            (r"^[[:alpha:]][a:][b]$", "x]b", false),
            (r"^[[:^digit:]x]+$", "a:x", true),
            (r"^[[:]+$", "[:", true),
            (r"^[[:a]+$", "a:[", true),
            (r"^[a:]+[:b]$", "a::", true),
        ];
        for (pattern, text, matches) in cases {
            let pattern = pattern.replace("\\\\", "\\");
            assert_eq!(
                Pattern::new(&pattern).matches(text),
                Some(matches),
                "{pattern}"
            );
        }
        for pattern in ["(", "[[:nothing:]]", "[[:a]b:]", "[a", "\\"] {
            assert_eq!(Pattern::new(pattern).matches("x"), None, "{pattern}");
        }
    }
}
