//! What a rule may cost. Whoever may write a definition, or an object of its kind, could otherwise keep
//! this server busy for hours with one request.
//!
//! The interpreter cannot be stopped, so the price is reckoned before a rule runs: from its text, once,
//! and from how large the lists, texts and objects are that it is about to see. It is what the rule could
//! cost at the worst; a rule that is cut short by its first answer pays as if it were not.

use super::on_a_large_stack;
use kube_cel::cel::Program;
use kube_cel::cel::common::ast::{EntryExpr, Expr, IdedExpr, LiteralValue};
use serde_json::Value;

/// Longest expression.
const MOST_TEXT: usize = 16 * 1024;
/// How deep an expression may be; whoever walks over it does so on its stack.
const MOST_DEEP: usize = 250;
/// What all rules of one request may cost: steps of the interpreter.
const MOST_STEPS: f64 = 3_000_000.0;
/// How long a text may become by replacing, joining and formatting.
const MOST_GROWN: f64 = 64.0 * 1024.0 * 1024.0;
/// How many bytes a call looks at in the time of one step.
const BYTES_PER_STEP: f64 = 4096.0;
/// Steps that building a regular expression takes.
const REGEX: f64 = 50.0;

/// What the rules of one request have left.
#[derive(Debug)]
pub(super) struct Budget(f64);

impl Default for Budget {
    fn default() -> Self {
        Self(MOST_STEPS)
    }
}

impl Budget {
    /// Pays, if there is enough; otherwise nothing more runs.
    pub(super) fn pay(&mut self, steps: f64) -> bool {
        self.0 -= steps;
        self.0 >= 0.0
    }
}

/// How large the values are that a rule sees.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Size {
    /// Members of the longest list or map.
    members: usize,
    /// Bytes of the longest text.
    text: usize,
    /// Values and bytes of text together.
    all: usize,
}

impl Size {
    pub(super) fn of(value: &Value) -> Self {
        let mut size = Self::default();
        size.see(value);
        size
    }

    /// The size of two values that are seen together.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            members: self.members.max(other.members),
            text: self.text.max(other.text),
            all: self.all + other.all,
        }
    }

    /// Steps that it takes to show such a value to a rule.
    pub(super) fn steps(self) -> f64 {
        float(self.all) / 16.0
    }

    fn see(&mut self, value: &Value) {
        self.all += 1;
        match value {
            Value::String(text) => self.see_text(text.len()),
            Value::Array(items) => {
                self.members = self.members.max(items.len());
                items.iter().for_each(|item| self.see(item));
            }
            Value::Object(fields) => {
                self.members = self.members.max(fields.len());
                for (key, inner) in fields {
                    self.see_text(key.len());
                    self.see(inner);
                }
            }
            _ => {}
        }
    }

    fn see_text(&mut self, length: usize) {
        self.text = self.text.max(length);
        self.all += length;
    }
}

/// What is known of an expression before its values are.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Price {
    /// Steps and calls within so many loops.
    loops: Vec<Steps>,
    deep: usize,
    /// Longest literal list or map.
    literal: usize,
    /// Additions, each of which may join two lists or texts.
    sums: usize,
    /// Whether texts are taken apart, so that a list can be as long as a text.
    splits: bool,
    /// By how much replacing with what is written in the rule can make a text longer.
    growth: f64,
    /// Replacing with, or joining, what the rule is given.
    grows: i32,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Steps {
    plain: f64,
    calls: f64,
    /// Loops that collect what they find, each time into a new list.
    lists: f64,
}

impl Price {
    fn of(expression: &IdedExpr) -> Self {
        let mut price = Self {
            growth: 1.0,
            ..Self::default()
        };
        price.walk(expression, 0, 1);
        price
    }

    /// What it costs with values of this size; `None` if it must not run at all.
    pub(super) fn steps(&self, size: Size) -> Option<f64> {
        let text = float(size.text.max(16));
        let grown = text * self.growth * text.powi(self.grows) * float(1 + self.sums);
        if grown > MOST_GROWN {
            return None;
        }
        let mut members = size.members.max(self.literal);
        if self.splits {
            members = members.max(size.text);
        }
        let members = float(members.max(1)) * float(1 + self.sums);
        let call = 1.0 + (float(size.all) + grown) / BYTES_PER_STEP;
        let mut rounds = 1.0;
        let mut all = 0.0;
        for steps in &self.loops {
            let lists = steps.lists * members * members / 64.0;
            all += rounds * (steps.plain + steps.calls * call + lists);
            rounds *= members;
        }
        Some(all)
    }

    fn at(&mut self, level: usize) -> &mut Steps {
        if self.loops.len() <= level {
            self.loops.resize(level + 1, Steps::default());
        }
        &mut self.loops[level]
    }

    fn walk(&mut self, expression: &IdedExpr, level: usize, deep: usize) {
        self.deep = self.deep.max(deep);
        self.at(level).plain += 1.0;
        let below = deep + 1;
        match &expression.expr {
            Expr::Call(call) => {
                self.call(&call.func_name, &call.args, level);
                let target = call.target.as_deref();
                for part in target.into_iter().chain(&call.args) {
                    self.walk(part, level, below);
                }
            }
            Expr::Comprehension(inner) => {
                if matches!(inner.accu_init.expr, Expr::List(_)) {
                    self.at(level).lists += 1.0;
                }
                self.walk(&inner.iter_range, level, below);
                self.walk(&inner.accu_init, level, below);
                self.walk(&inner.loop_cond, level + 1, below);
                self.walk(&inner.loop_step, level + 1, below);
                self.walk(&inner.result, level, below);
            }
            Expr::List(list) => {
                self.literal = self.literal.max(list.elements.len());
                for item in &list.elements {
                    self.walk(item, level, below);
                }
            }
            Expr::Map(map) => {
                self.literal = self.literal.max(map.entries.len());
                for entry in &map.entries {
                    self.entry(&entry.expr, level, below);
                }
            }
            Expr::Struct(inner) => {
                for entry in &inner.entries {
                    self.entry(&entry.expr, level, below);
                }
            }
            Expr::Select(select) => self.walk(&select.operand, level, below),
            Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => {}
        }
    }

    fn entry(&mut self, entry: &EntryExpr, level: usize, deep: usize) {
        match entry {
            EntryExpr::StructField(field) => self.walk(&field.value, level, deep),
            EntryExpr::MapEntry(entry) => {
                self.walk(&entry.key, level, deep);
                self.walk(&entry.value, level, deep);
            }
        }
    }

    fn call(&mut self, name: &str, arguments: &[IdedExpr], level: usize) {
        self.at(level).calls += 1.0;
        match name {
            "_+_" => {
                // What a loop collects is added to its list; that is counted with the loop.
                self.sums += usize::from(level == 0);
            }
            "matches" | "find" | "findAll" => {
                self.splits |= name == "findAll";
                self.at(level).plain += REGEX;
            }
            "split" => self.splits = true,
            "range" | "lists.range" => {
                let length = arguments.first().and_then(whole).unwrap_or(usize::MAX / 2);
                self.literal = self.literal.max(length);
            }
            "replace" => match arguments.get(1).and_then(literal_length) {
                Some(length) => self.growth *= float(1 + length),
                None => self.grows += 1,
            },
            "join" | "format" | "flatten" | "quote" | "strings.quote" => self.growth *= 4.0,
            _ => {}
        }
    }
}

fn whole(expression: &IdedExpr) -> Option<usize> {
    match &expression.expr {
        Expr::Literal(LiteralValue::Int(number)) => usize::try_from(*number.inner()).ok(),
        _ => None,
    }
}

fn literal_length(expression: &IdedExpr) -> Option<usize> {
    match &expression.expr {
        Expr::Literal(LiteralValue::String(text)) => Some(text.inner().len()),
        _ => None,
    }
}

fn float(number: usize) -> f64 {
    // Beyond 2^53 a price is only about right, and far too high anyway.
    number as f64
}

/// An expression and its price; why there is none otherwise.
pub(super) fn compile(text: &str) -> Result<(Program, Price), String> {
    short_enough(text)?;
    // A chain of operators is as deep as it is long, and is read, and dropped, by walking down.
    on_a_large_stack(|| {
        let program = Program::compile(text).map_err(|error| error.to_string())?;
        let price = Price::of(program.expression());
        if price.deep > MOST_DEEP {
            return Err(too_deep());
        }
        Ok((program, price))
    })
}

/// Whether an expression is not longer than it may be.
pub(super) fn short_enough(text: &str) -> Result<(), String> {
    if text.len() > MOST_TEXT {
        return Err(format!(
            "expression code point size exceeds limit: size: {}, limit {MOST_TEXT}",
            text.len()
        ));
    }
    Ok(())
}

/// What is told of an expression that is nested too deep.
pub(super) fn too_deep() -> String {
    format!("expression recursion limit exceeded: {MOST_DEEP}")
}

/// What is wrong with a text that is no expression.
pub(super) fn why_not(text: &str) -> String {
    match Program::compile(text) {
        // The line that is shown is set off by a blank.
        Err(error) => error.to_string().replace("\n|", "\n |"),
        Ok(_) => "Syntax error: this is no expression".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn affordable(rule: &str, value: &Value) -> bool {
        let (_, price) = compile(rule).expect(rule);
        let steps = price.steps(Size::of(value));
        steps.is_some_and(|steps| Budget::default().pay(steps))
    }

    #[test]
    fn what_people_write_can_be_paid() {
        let value = json!({
            "name": "n".repeat(200),
            "list": vec![json!({"name": "x".repeat(60), "port": 80}); 64],
        });
        for rule in [
            "self.name.matches('^[a-z]+$') && size(self.list) < 65",
            "self.list.all(a, self.list.exists_one(b, a.name == b.name && a.port == b.port))",
            "self.list.map(a, a.name).all(n, n.startsWith('x'))",
            "self.name.replace('-', '_').replace('.', '__') != ''",
            "self.name.split('-').all(part, part.size() < 10)",
        ] {
            assert!(affordable(rule, &value), "{rule}");
        }
    }

    #[test]
    fn what_runs_away_cannot() {
        let value = json!({"list": vec![0; 10_000], "name": "n".repeat(20_000)});
        for rule in [
            "self.list.all(a, self.list.all(b, a + b >= 0))",
            "self.list.all(a, self.list.all(b, self.list.all(c, a + b + c >= 0)))",
            "self.name.replace('n', self.name).replace('n', self.name) != ''",
            "self.name.split('').all(a, self.name.split('').all(b, a == b))",
            "self.list.map(a, self.list.map(b, self.list)).size() > 0",
        ] {
            assert!(!affordable(rule, &value), "{rule}");
        }
    }

    #[test]
    fn an_expression_that_is_too_long_or_too_deep_is_none() {
        assert!(compile(&format!("1 == {}1", " ".repeat(MOST_TEXT))).is_err());
        for (open, inner, close) in [
            ("(", "1", ")"),
            ("1+", "1", ""),
            ("!", "true", ""),
            ("-", "1", ""),
            ("[", "1", "]"),
            ("true ? 1 : ", "1", ""),
        ] {
            let levels = (MOST_TEXT - 8) / (open.len() + close.len());
            let text = format!("{}{inner}{}", open.repeat(levels), close.repeat(levels));
            let read = compile(&text);
            assert!(read.is_err() || !matches!(open, "(" | "1+" | "["), "{open}");
            let text = format!("{}{inner}{}", open.repeat(20), close.repeat(20));
            assert!(compile(&text).is_ok(), "{text}");
        }
        let selected = format!("self{}", ".a".repeat(5000));
        assert!(compile(&selected).is_err());
    }
}
