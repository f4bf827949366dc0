//! What a rule is found to be when its CRD is made, without any object.

use super::check::Checked;
use super::declared::Declared;
use super::parser::{MOST_DEEP, Unread, parse};
use super::run::Program;
use super::syntax::{Tree, told};
use super::types::Type;
use super::{check, cost, on_a_large_stack};
use serde_json::Value;

/// Longest expression.
const MOST_TEXT: usize = 16 * 1024;

/// The type under which rules of a schema see its values.
#[derive(Debug)]
pub(crate) struct Scope {
    declared: Declared,
}

/// An expression that makes sense.
pub(crate) struct Judged {
    /// What it gives.
    gives: Type,
    /// The most that it costs, once.
    pub(crate) cost: u64,
    /// Whether it reads what was before.
    pub(crate) uses_old: bool,
}

impl Judged {
    /// Whether it gives a truth.
    pub(crate) fn is_bool(&self) -> bool {
        self.gives == Type::Bool
    }

    /// Whether it gives a text.
    pub(crate) fn is_text(&self) -> bool {
        self.gives == Type::Text
    }
}

impl Scope {
    /// What rules of a schema see; nothing where they see nothing. `whole` is for the root of an object.
    pub(crate) fn of(schema: &Value, whole: bool) -> Option<Self> {
        let declared = super::declared::declared(schema, whole)?;
        Some(Self { declared })
    }

    /// How often values of the schema can be in one object, if nothing bounds them.
    pub(crate) fn most_often(&self) -> u64 {
        super::declared::most_often(self.declared.least)
    }

    /// What rules see of which nothing is known.
    pub(crate) fn of_anything() -> Self {
        let declared = Declared::anything();
        Self { declared }
    }

    /// Judges an expression; what is wrong with it otherwise, in the reference's words.
    pub(crate) fn judge(&self, text: &str, optional_old: bool) -> Result<Judged, String> {
        on_a_large_stack(|| {
            let (tree, checked) = self.read(text, optional_old)?;
            Ok(Judged {
                gives: checked.of(&tree.root).clone(),
                cost: cost::most(&tree, &checked, &self.declared),
                uses_old: checked.uses_old,
            })
        })
    }

    /// An expression that can be run; why it cannot otherwise.
    pub(super) fn program(&self, text: &str, optional_old: bool) -> Result<Program, String> {
        on_a_large_stack(|| {
            let (tree, checked) = self.read(text, optional_old)?;
            Ok(Program::new(tree, checked))
        })
    }

    fn read(&self, text: &str, optional_old: bool) -> Result<(Tree, Checked), String> {
        if text.len() > MOST_TEXT {
            return Err(format!(
                "expression code point size exceeds limit: size: {}, limit {MOST_TEXT}",
                text.len()
            ));
        }
        let tree = parse(text).map_err(|why| match why {
            Unread::Deep => format!("expression recursion limit exceeded: {MOST_DEEP}"),
            Unread::Faults(faults) => told(text, faults),
            Unread::Syntax => why_not(text),
        })?;
        let checked = check::check(&tree, &self.declared, optional_old)
            .map_err(|faults| told(text, faults))?;
        Ok((tree, checked))
    }
}

/// What is wrong with a text that is no expression.
fn why_not(text: &str) -> String {
    match kube_cel::cel::Program::compile(text) {
        // The line that is shown is set off by a blank.
        Err(error) => error.to_string().replace("\n|", "\n |"),
        Ok(_) => "Syntax error: this is no expression".to_owned(),
    }
}

#[cfg(test)]
mod tests;
