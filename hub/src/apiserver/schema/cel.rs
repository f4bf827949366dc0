//! Rules in CEL (`x-kubernetes-validations`).

mod check;
mod cost;
mod declared;
mod judge;
mod lexer;
mod library;
mod macros;
mod parser;
mod parts;
mod run;
mod seen;
mod syntax;
mod types;
mod values;

use super::Schema;
use super::validate::Verdict;
use super::validate::old::{Known, Old};
use crate::apiserver::error::{BadValue, FieldError, FieldErrorKind};
use kube_cel::KubeCelExt as _;
use kube_cel::cel::objects::OptionalValue;
use kube_cel::cel::{Context, Value as Cel};
use parts::Parts;
use run::{Lists, Program, Stop, Work};
use seen::{escaped, to_cel, type_name};
use serde_json::Value;
use std::sync::{Arc, OnceLock};
use std::thread;

pub(crate) use judge::Scope;

/// One rule, compiled when it is first used.
#[derive(Debug, Clone)]
pub(super) struct CelRule {
    rule: Arc<str>,
    message: Arc<str>,
    message_expression: Arc<str>,
    reason: Arc<str>,
    field_path: Arc<str>,
    optional_old: bool,
    scope: Arc<Scope>,
    compiled: Arc<OnceLock<Compiled>>,
}

#[derive(Debug)]
struct Compiled {
    rule: Result<Program, String>,
    message: Option<Program>,
    uses_old: bool,
    /// What the rule and its message read.
    parts: Parts,
}

/// What all rules of one object may cost.
const MOST_OF_ALL: u64 = 10_000_000;
/// What is told when they have.
const UNPAID: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// Longer messages are cut by nobody: the rule's own message takes their place.
const LONGEST_MESSAGE: usize = 5 * 1024;

impl CelRule {
    /// A rule over values of a scope.
    pub(super) fn new(given: &Value, scope: &Arc<Scope>) -> Self {
        let text = |key: &str| Arc::from(given.get(key).and_then(Value::as_str).unwrap_or(""));
        Self {
            rule: text("rule"),
            message: text("message"),
            message_expression: text("messageExpression"),
            reason: text("reason"),
            field_path: text("fieldPath"),
            optional_old: given.get("optionalOldSelf").and_then(Value::as_bool) == Some(true),
            scope: scope.clone(),
            compiled: Arc::default(),
        }
    }

    fn compiled(&self) -> &Compiled {
        self.compiled.get_or_init(|| {
            let rule = self.scope.program(&self.rule, self.optional_old);
            let uses_old = rule.as_ref().is_ok_and(Program::uses_old);
            let expression = &self.message_expression;
            let message = (!expression.is_empty())
                .then(|| self.scope.program(expression, self.optional_old).ok());
            let mut parts = Parts::of(&self.rule);
            parts.add(expression);
            Compiled {
                rule,
                message: message.flatten(),
                uses_old,
                parts,
            }
        })
    }

    fn shown(&self) -> &str {
        if self.message.is_empty() {
            self.rule.trim()
        } else {
            self.message.trim()
        }
    }

    /// What is told of a value for which it does not hold; why nothing can be told, if the message
    /// costs too much.
    fn message(
        &self,
        this: &Cel,
        old: Option<&Cel>,
        lists: &Lists,
        (budget, work): (&mut u64, &mut Work),
    ) -> Result<String, String> {
        let plain = || {
            if self.message.is_empty() {
                format!("failed rule: {}", self.shown())
            } else {
                self.shown().to_owned()
            }
        };
        let Some(program) = &self.compiled().message else {
            return Ok(plain());
        };
        let (told, cost) = program.run(this.clone(), old.cloned(), lists, work);
        let Some(left) = budget.checked_sub(cost) else {
            return Err(
                "messageExpression evaluation failed due to running out of cost budget, no further \
                 validation rules will be run"
                    .to_owned(),
            );
        };
        *budget = left;
        let text = match told {
            Ok(Cel::String(text)) => text.trim().to_owned(),
            Err(Stop::Cost) => {
                let shown = Value::from(self.message_expression.as_ref());
                return Err(format!(
                    "no further validation rules will be run due to call cost exceeds limit for \
                     messageExpression: {shown}"
                ));
            }
            _ => return Ok(plain()),
        };
        let fits = !text.is_empty() && text.len() <= LONGEST_MESSAGE && !text.contains('\n');
        Ok(if fits { text } else { plain() })
    }

    fn kind(&self) -> FieldErrorKind {
        match self.reason.as_ref() {
            "FieldValueForbidden" => FieldErrorKind::Forbidden,
            "FieldValueRequired" => FieldErrorKind::Required,
            "FieldValueDuplicate" => FieldErrorKind::Duplicate,
            _ => FieldErrorKind::Invalid,
        }
    }
}

/// For reading an expression, which may be deeper than it may be for running.
const STACK: usize = 256 * 1024 * 1024;

/// Reads an expression: a chain of operators is as deep as it is long, and is read, and dropped, by
/// walking down.
fn on_a_large_stack<T: Send>(read: impl FnOnce() -> Result<T, String> + Send) -> Result<T, String> {
    thread::scope(|scope| {
        let reader = thread::Builder::new().stack_size(STACK);
        let reader = reader
            .spawn_scoped(scope, read)
            .map_err(|error| format!("no thread to read it: {error}"))?;
        reader
            .join()
            .unwrap_or_else(|_| Err("expression cannot be read".to_owned()))
    })
}

impl Schema {
    /// Whether there is a rule here or below, apart from branches: those alone are not looked at.
    pub(in crate::apiserver) fn has_rules(&self) -> bool {
        self.rules
            .as_ref()
            .is_some_and(|rules| !rules.cel.is_empty())
            || self.fields.iter().any(|(_, field)| field.has_rules())
            || self.items.as_ref().is_some_and(|items| items.has_rules())
            || self
                .additional
                .as_ref()
                .is_some_and(|values| values.has_rules())
    }

    /// Whether there is a rule here or below.
    fn has_cel(&self) -> bool {
        let here = self
            .rules
            .as_ref()
            .is_some_and(|rules| !rules.cel.is_empty() || rules.all_of.iter().any(Self::has_cel));
        here || self.fields.iter().any(|(_, field)| field.has_cel())
            || self.items.as_ref().is_some_and(|items| items.has_cel())
            || self
                .additional
                .as_ref()
                .is_some_and(|values| values.has_cel())
    }
}

/// All functions there are; registering them costs more than most rules.
fn functions() -> &'static Context<'static> {
    static FUNCTIONS: OnceLock<Context<'static>> = OnceLock::new();
    FUNCTIONS.get_or_init(|| Context::default().with_all())
}

/// Tells which rules do not hold.
pub(super) fn check<'a>(schema: &'a Schema, value: &'a Value, old: Old<'a>, verdict: &mut Verdict) {
    let mut visit = Visit {
        budget: MOST_OF_ALL,
        work: Work::new(),
        paid: true,
        known: Known::default(),
        verdict,
    };
    visit.check(schema, schema, value, old, "");
}

/// The rules of one object, as they are checked one after another.
struct Visit<'v> {
    budget: u64,
    work: Work,
    /// Whether all rules could be paid so far; the first that cannot ends the visit.
    paid: bool,
    known: Known,
    verdict: &'v mut Verdict,
}

impl Visit<'_> {
    /// The rules of a schema, or of a branch of one, which has no types of its own.
    fn check<'a>(
        &mut self,
        rules: &'a Schema,
        schema: &'a Schema,
        value: &'a Value,
        old: Old<'a>,
        path: &str,
    ) {
        if value.is_null() || !self.paid {
            return;
        }
        self.check_here(rules, schema, value, old, path);
        let branches = rules.rules.iter().flat_map(|rules| &rules.all_of);
        for branch in branches.filter(|branch| branch.has_cel()) {
            self.check(branch, schema, value, old.of_branch(), path);
        }
        match value {
            Value::Object(object) => {
                for (key, inner) in object {
                    let declared = rules.property(key);
                    let Some(below) = declared.or_else(|| rules.additional()) else {
                        continue;
                    };
                    let Some(typed) = schema.child(key) else {
                        continue;
                    };
                    if below.definition().is_some() || !below.has_cel() {
                        continue;
                    }
                    let place = match (declared, path.is_empty()) {
                        (Some(_), true) => key.clone(),
                        (Some(_), false) => format!("{path}.{key}"),
                        (None, _) => format!("{path}[{key}]"),
                    };
                    let old = old.key(key, typed, inner);
                    self.check(below, typed, inner, old, &place);
                }
            }
            Value::Array(list) => {
                let items = rules.items().filter(|items| items.has_cel());
                let Some((items, typed)) = items.zip(schema.items()) else {
                    return;
                };
                let before = old.items(schema);
                for (at, item) in list.iter().enumerate() {
                    let old = before.of(at, typed, item);
                    self.check(items, typed, item, old, &format!("{path}[{at}]"));
                }
            }
            _ => {}
        }
    }

    fn check_here(
        &mut self,
        rules: &Schema,
        schema: &Schema,
        value: &Value,
        old: Old<'_>,
        path: &str,
    ) {
        let Some(rules) = rules.rules.as_ref().filter(|rules| !rules.cel.is_empty()) else {
            return;
        };
        let shown = if path.is_empty() { "<nil>" } else { path };
        let type_name = Value::from(type_name(schema));
        if self.budget == 0 {
            self.paid = false;
            return self.told(shown, &type_name, UNPAID.to_owned());
        }
        let mut parts = Parts::default();
        for rule in &rules.cel {
            parts.join(&rule.compiled().parts);
        }
        let mut lists = Lists::default();
        let mut seen = |value: &Value| {
            let taken = parts.take(value);
            to_cel(schema, taken.as_ref().unwrap_or(value), &mut lists)
        };
        let this = seen(value);
        let before = old.value().map(&mut seen);
        for rule in &rules.cel {
            let compiled = rule.compiled();
            let program = match &compiled.rule {
                Ok(program) => program,
                Err(why) => {
                    self.told(shown, &type_name, format!("rule compile error: {why}"));
                    continue;
                }
            };
            if compiled.uses_old && before.is_none() && !rule.optional_old {
                continue;
            }
            let given = if rule.optional_old {
                let optional = before
                    .clone()
                    .map_or_else(OptionalValue::none, OptionalValue::of);
                Some(Cel::Opaque(Arc::new(optional)))
            } else {
                before.clone()
            };
            let (outcome, cost) = program.run(this.clone(), given, &lists, &mut self.work);
            let Some(left) = self.budget.checked_sub(cost) else {
                self.paid = false;
                return self.told(shown, &type_name, UNPAID.to_owned());
            };
            self.budget = left;
            match outcome {
                Ok(Cel::Bool(true)) => {}
                Ok(_) => {
                    let forgiven = !compiled.uses_old && old.unchanged(&mut self.known);
                    let at = below(path, &rule.field_path, schema);
                    // A message sees what was before as it was, whatever its rule sees.
                    let paying = (&mut self.budget, &mut self.work);
                    let error = match rule.message(&this, before.as_ref(), &lists, paying) {
                        Ok(message) => {
                            let bad = match value {
                                Value::Object(_) | Value::Array(_) => BadValue::Omitted,
                                scalar => BadValue::Is(scalar.clone()),
                            };
                            let kind = rule.kind();
                            let message = match kind {
                                FieldErrorKind::Duplicate => String::new(),
                                _ => message,
                            };
                            FieldError::new(at, kind, bad, message)
                        }
                        Err(why) => {
                            self.paid = false;
                            FieldError::invalid(at, type_name.clone(), why)
                        }
                    };
                    if forgiven {
                        self.verdict.forgiven.push(error);
                    } else {
                        self.verdict.errors.push(error);
                    }
                    if !self.paid {
                        return;
                    }
                }
                Err(Stop::Cost) => {
                    let detail = format!(
                        "'operation cancelled: actual cost limit exceeded': no further validation \
                         rules will be run due to call cost exceeds limit for rule: {}",
                        rule.shown()
                    );
                    self.paid = false;
                    return self.told(shown, &type_name, detail);
                }
                Err(Stop::Error(why)) => {
                    let detail = if why.starts_with("no such overload") {
                        format!(
                            "'{why}': call arguments did not match a supported operator, function \
                             or macro signature for rule: {}",
                            rule.shown()
                        )
                    } else {
                        format!("{why} evaluating rule: {}", rule.shown())
                    };
                    self.told(shown, &type_name, detail);
                }
            }
        }
    }

    fn told(&mut self, path: &str, type_name: &Value, detail: String) {
        let error = FieldError::invalid(path, type_name.clone(), detail);
        self.verdict.errors.push(error);
    }
}

/// Where an error is told: at the value, or at the field below that the rule names.
fn below(path: &str, field: &str, schema: &Schema) -> String {
    let mut told = path.to_owned();
    let mut here = Some(schema);
    for step in steps(field) {
        let declared = here.and_then(|schema| schema.property(&step));
        let is_key = declared.is_none() && here.is_some_and(|schema| schema.additional().is_some());
        here = declared.or_else(|| here.and_then(Schema::additional));
        if is_key {
            told = format!("{told}[{step}]");
        } else if told.is_empty() {
            told = step;
        } else {
            told = format!("{told}.{step}");
        }
    }
    if told.is_empty() {
        told = "<nil>".to_owned();
    }
    told
}

/// The names in a path like `.a['b.c']`.
fn steps(path: &str) -> Vec<String> {
    let mut steps = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        let (step, after) = match rest
            .strip_prefix("['")
            .and_then(|text| text.split_once("']"))
        {
            Some((quoted, after)) => (quoted.replace("\\'", "'"), after),
            None => {
                let text = rest.strip_prefix('.').unwrap_or(rest);
                let end = text.find(['.', '[']).unwrap_or(text.len());
                let (name, after) = text.split_at(end);
                (name.to_owned(), after)
            }
        };
        if step.is_empty() && after == rest {
            break;
        }
        steps.push(step);
        rest = after;
    }
    steps
}

#[cfg(test)]
#[path = "cel/tests.rs"]
mod tests;
