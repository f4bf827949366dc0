//! What a rule is found to be when its definition is made, without any object.

use super::declared::Declared;
use super::parser::{Unread, parse};
use super::syntax::told;
use super::types::Type;
use super::{check, cost, on_a_large_stack, price};
use serde_json::Value;

/// The type under which rules of a schema see its values.
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

    /// Reads an expression; what is wrong with it otherwise, in the reference's words.
    pub(crate) fn judge(&self, text: &str, optional_old: bool) -> Result<Judged, String> {
        on_a_large_stack(|| self.judged(text, optional_old))
    }

    fn judged(&self, text: &str, optional_old: bool) -> Result<Judged, String> {
        price::short_enough(text)?;
        let tree = match parse(text) {
            Ok(tree) => tree,
            Err(Unread::Deep) => return Err(price::too_deep()),
            Err(Unread::Faults(faults)) => return Err(told(text, faults)),
            Err(Unread::Syntax) => {
                return Err(price::why_not(text));
            }
        };
        let checked = check::check(&tree, &self.declared, optional_old)
            .map_err(|faults| told(text, faults))?;
        Ok(Judged {
            gives: checked.of(&tree.root).clone(),
            cost: cost::most(&tree, &checked, &self.declared),
            uses_old: checked.uses_old,
        })
    }
}

#[cfg(test)]
mod tests;
