//! What an expression costs at the worst, before any value of it is there: reckoned from the bounds of
//! the schema, as a real server reckons it, for what is too dear there must be refused here and nothing
//! else. Pure.

mod calls;
mod range;

use super::check::Checked;
use super::declared::Declared;
use super::syntax::{Fold, Kind, Node, Tree};
use super::types::Type;
use range::Range;
use std::collections::HashMap;
use std::sync::Arc;

const LIST: u64 = 10;
const MAP: u64 = 30;
const MESSAGE: u64 = 40;
/// For each letter of a text that is gone through.
const LETTER: f64 = 0.1;
/// For each letter of a pattern.
const PATTERN: f64 = 0.25;

/// The most that an expression over such a value costs.
pub(super) fn most(tree: &Tree, checked: &Checked, this: &Declared) -> u64 {
    let mut reckoner = Reckoner {
        checked,
        this,
        paths: HashMap::new(),
        variables: Vec::new(),
        sizes: HashMap::new(),
        entries: HashMap::new(),
    };
    reckoner.node(&tree.root).max
}

/// Fields, `@items`, `@keys` and `@values` on the way to a value, after its variable.
type Path = Vec<Arc<str>>;

/// What is known of the members of a list or map.
#[derive(Debug, Clone, Copy)]
struct Entries {
    is_map: bool,
    key: Range,
    value: Range,
}

impl Entries {
    fn union(self, other: Self) -> Self {
        Self {
            is_map: self.is_map,
            key: self.key.union(other.key),
            value: self.value.union(other.value),
        }
    }
}

struct Variable {
    name: Arc<str>,
    path: Path,
    size: Option<Range>,
    entries: Option<Entries>,
}

struct Reckoner<'a> {
    checked: &'a Checked,
    this: &'a Declared,
    paths: HashMap<usize, Path>,
    variables: Vec<Variable>,
    sizes: HashMap<usize, Range>,
    entries: HashMap<usize, Entries>,
}

impl Reckoner<'_> {
    fn node(&mut self, node: &Node) -> Range {
        match &node.kind {
            Kind::Ident(name) => {
                let path = match self.variable(name) {
                    Some(variable) => variable.path.clone(),
                    None => vec![name.clone()],
                };
                self.paths.insert(node.id, path);
                Range::just(1)
            }
            Kind::Select {
                operand,
                field,
                test,
            } => self.select(node, operand, field, *test),
            Kind::Call { .. } => self.call(node),
            Kind::List(items) => {
                let mut sum = Range::just(LIST);
                let mut value = Range::EMPTY;
                for item in items {
                    sum = sum + self.node(&item.node);
                    value = value.union(self.size_or_unknown(&item.node));
                }
                let entries = Entries {
                    is_map: false,
                    key: Range::just(1),
                    value: value.or_zero(items.is_empty()),
                };
                self.entries.insert(node.id, entries);
                sum
            }
            Kind::Map(map) => {
                let mut sum = Range::just(MAP);
                let (mut key, mut value) = (Range::EMPTY, Range::EMPTY);
                for entry in map {
                    sum = sum + self.node(&entry.key) + self.node(&entry.value);
                    key = key.union(self.size_or_unknown(&entry.key));
                    value = value.union(self.size_or_unknown(&entry.value));
                }
                let entries = Entries {
                    is_map: true,
                    key: key.or_zero(map.is_empty()),
                    value: value.or_zero(map.is_empty()),
                };
                self.entries.insert(node.id, entries);
                sum
            }
            Kind::Message(_) => Range::just(MESSAGE),
            Kind::Fold(fold) if binds(fold) => self.bind(node, fold),
            Kind::Fold(fold) => self.fold(node, fold),
            _ => Range::just(0),
        }
    }

    fn select(&mut self, node: &Node, operand: &Node, field: &Arc<str>, test: bool) -> Range {
        let of = self.node(operand);
        if test {
            return of;
        }
        let step = matches!(
            self.checked.of(operand),
            Type::Map(_) | Type::Object(_) | Type::Free(_)
        );
        let mut path = self.path(operand);
        path.push(field.clone());
        self.paths.insert(node.id, path);
        of + Range::just(u64::from(step))
    }

    fn variable(&self, name: &str) -> Option<&Variable> {
        let all = self.variables.iter().rev();
        all.into_iter().find(|variable| *variable.name == *name)
    }

    fn path(&self, node: &Node) -> Path {
        if let Kind::Ident(name) = &node.kind
            && let Some(variable) = self.variable(name)
        {
            return variable.path.clone();
        }
        self.paths.get(&node.id).cloned().unwrap_or_default()
    }

    /// What the schema says of the value at a path.
    fn declared_size(&self, path: &[Arc<str>]) -> Option<Range> {
        let mut steps = path.iter();
        steps.next()?;
        let mut here = self.this;
        for step in steps {
            if &**step == "@keys" && here.is_map() {
                // Nothing bounds a key, and the reference takes that for a bound of none.
                return Some(Range::just(0));
            }
            here = here.below(step)?;
        }
        Some(Range {
            min: 0,
            max: here.most,
        })
    }

    fn size(&mut self, node: &Node) -> Option<Range> {
        if let Some(size) = self.sizes.get(&node.id) {
            return Some(*size);
        }
        let literal = match &node.kind {
            Kind::Text(text) => Some(text.chars().count()),
            Kind::Bytes(bytes) => Some(bytes.len()),
            Kind::List(items) => Some(items.len()),
            Kind::Map(entries) => Some(entries.len()),
            _ if node.is_literal() => Some(1),
            _ => None,
        };
        if let Some(size) = literal {
            return Some(Range::just(size as u64));
        }
        if let Some(size) = self.declared_size(&self.path(node)) {
            self.sizes.insert(node.id, size);
            return Some(size);
        }
        if self.checked.of(node).is_scalar() {
            return Some(Range::just(1));
        }
        match &node.kind {
            Kind::Ident(name) => self.variable(name).and_then(|variable| variable.size),
            _ => None,
        }
    }

    fn size_or_unknown(&mut self, node: &Node) -> Range {
        self.size(node).unwrap_or(Range::UNKNOWN)
    }

    fn entries(&self, node: &Node) -> Option<Entries> {
        if let Some(entries) = self.entries.get(&node.id) {
            return Some(*entries);
        }
        match &node.kind {
            Kind::Ident(name) => self.variable(name).and_then(|variable| variable.entries),
            _ => None,
        }
    }

    fn keep_size(&mut self, node: &Node, size: Option<Range>) {
        if let Some(size) = size {
            self.sizes.insert(node.id, size);
        }
    }

    fn push_sum(&mut self, name: &Arc<str>, start: &Node) {
        let variable = Variable {
            name: name.clone(),
            path: self.path(start),
            entries: self.entries(start),
            size: self.size(start),
        };
        self.variables.push(variable);
    }

    /// A variable that takes the keys, indices or values of a range.
    fn push_member(&mut self, name: &Arc<str>, range: &Node, step: &str, key: bool) {
        let mut path = self.path(range);
        path.push(step.into());
        let entries = self.entries(range);
        let size = entries.map(|of| if key { of.key } else { of.value });
        self.variables.push(Variable {
            name: name.clone(),
            path,
            size,
            entries: None,
        });
    }

    fn fold(&mut self, node: &Node, fold: &Fold) -> Range {
        let mut sum = self.node(&fold.range) + self.node(&fold.start);
        self.push_sum(&fold.sum, &fold.start);
        let inner = self.variables.len();
        let is_list = match self.entries(&fold.range) {
            Some(entries) => !entries.is_map,
            None => matches!(self.checked.of(&fold.range), Type::List(_)),
        };
        match (&fold.second, is_list) {
            (Some(second), true) => {
                self.push_member(&fold.variable, &fold.range, "@indices", true);
                self.push_member(second, &fold.range, "@items", false);
            }
            (Some(second), false) => {
                self.push_member(&fold.variable, &fold.range, "@keys", true);
                self.push_member(second, &fold.range, "@values", false);
            }
            (None, true) => self.push_member(&fold.variable, &fold.range, "@items", false),
            (None, false) => self.push_member(&fold.variable, &fold.range, "@keys", true),
        }
        let round = self.node(&fold.condition);
        let round = self.node(&fold.step) + round;
        self.variables.truncate(inner);
        sum = sum + self.node(&fold.result);
        self.variables.truncate(inner - 1);
        let rounds = self.size_or_unknown(&fold.range);
        sum = sum + rounds * round;
        match &fold.start.kind {
            Kind::List(_) | Kind::Map(_) => {
                self.keep_size(node, Some(rounds));
                if let Some(entries) = self.entries(&fold.step) {
                    self.entries.insert(node.id, entries);
                }
            }
            _ if fold.start.is_literal() => {
                let size = self.size(&fold.start);
                self.keep_size(node, size);
            }
            _ => {}
        }
        sum
    }

    fn bind(&mut self, node: &Node, fold: &Fold) -> Range {
        let mut sum = self.node(&fold.range) + self.node(&fold.start);
        self.push_sum(&fold.sum, &fold.start);
        sum = sum + self.node(&fold.result);
        self.variables.pop();
        let size = self.size(&fold.result);
        self.keep_size(node, size);
        if let Some(entries) = self.entries(&fold.result) {
            self.entries.insert(node.id, entries);
        }
        sum
    }
}

/// Whether a fold only gives a name to a value.
fn binds(fold: &Fold) -> bool {
    let over_nothing = matches!(&fold.range.kind, Kind::List(items) if items.is_empty());
    over_nothing && fold.condition.kind == Kind::Bool(false)
}
