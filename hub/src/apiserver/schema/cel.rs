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
mod price;
mod syntax;
mod types;
mod values;

use super::validate::old::Old;
use super::{Kind, Schema};
use crate::apiserver::error::{BadValue, FieldError, FieldErrorKind};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube_cel::KubeCelExt as _;
use kube_cel::cel::objects::{Key, Map, OptionalValue};
use kube_cel::cel::{Context, Program, Value as Cel};
use parts::Parts;
use price::{Budget, Price, Size};
use serde_json::Value;
use std::collections::HashMap;
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
    compiled: Arc<OnceLock<Compiled>>,
}

#[derive(Debug)]
struct Compiled {
    rule: Result<(Program, Price), String>,
    message: Option<(Program, Price)>,
    uses_old: bool,
    /// What the rule and its message read.
    parts: Parts,
}

/// What is told when the rules of one object have cost what they may.
const UNPAID: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// Longer messages are cut by nobody: the rule's own message takes their place.
const LONGEST_MESSAGE: usize = 5 * 1024;

impl CelRule {
    pub(super) fn new(given: &Value) -> Self {
        let text = |key: &str| Arc::from(given.get(key).and_then(Value::as_str).unwrap_or(""));
        Self {
            rule: text("rule"),
            message: text("message"),
            message_expression: text("messageExpression"),
            reason: text("reason"),
            field_path: text("fieldPath"),
            optional_old: given.get("optionalOldSelf").and_then(Value::as_bool) == Some(true),
            compiled: Arc::default(),
        }
    }

    fn compiled(&self) -> &Compiled {
        self.compiled.get_or_init(|| {
            let rule = price::compile(&self.rule);
            let uses_old = rule
                .as_ref()
                .is_ok_and(|(program, _)| program.references().has_variable("oldSelf"));
            let message = (!self.message_expression.is_empty())
                .then(|| price::compile(&self.message_expression).ok())
                .flatten();
            let mut parts = Parts::of(&self.rule);
            parts.add(&self.message_expression);
            Compiled {
                rule,
                message,
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

    fn message(&self, context: &Context<'_>, size: Size, budget: &mut Budget) -> String {
        let told = self
            .compiled()
            .message
            .as_ref()
            .and_then(|(program, price)| {
                if !budget.pay(price.steps(size)?) {
                    return None;
                }
                match program.execute(context).ok()? {
                    Cel::String(text) => Some(text.trim().to_owned()),
                    _ => None,
                }
            });
        told.filter(|text| {
            !text.is_empty() && text.len() <= LONGEST_MESSAGE && !text.contains('\n')
        })
        .unwrap_or_else(|| {
            if self.message.is_empty() {
                format!("failed rule: {}", self.shown())
            } else {
                self.shown().to_owned()
            }
        })
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
    /// Whether there is a rule here or below.
    pub(super) fn has_cel(&self) -> bool {
        let here = self.rules.as_ref().is_some_and(|rules| {
            !rules.cel.is_empty()
                || [&rules.all_of, &rules.any_of, &rules.one_of]
                    .into_iter()
                    .flatten()
                    .any(Self::has_cel)
        });
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
pub(super) fn check(
    schema: &Schema,
    value: &Value,
    old: Old<'_>,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let mut visit = Visit {
        budget: Budget::default(),
        paid: true,
        errors,
    };
    visit.check(schema, value, old, path);
}

/// The rules of one object, as they are checked one after another.
struct Visit<'a> {
    budget: Budget,
    /// Whether all rules could be paid so far; the first that cannot ends the visit.
    paid: bool,
    errors: &'a mut Vec<FieldError>,
}

impl Visit<'_> {
    fn check(&mut self, schema: &Schema, value: &Value, old: Old<'_>, path: &str) {
        if value.is_null() || !self.paid {
            return;
        }
        self.check_here(schema, schema, value, old, path);
        match value {
            Value::Object(object) => {
                for (key, inner) in object {
                    let declared = schema.property(key);
                    let Some(child) = declared.or_else(|| schema.additional()) else {
                        continue;
                    };
                    if child.definition().is_some() || !child.has_cel() {
                        continue;
                    }
                    let below = match (declared, path.is_empty()) {
                        (Some(_), true) => key.clone(),
                        (Some(_), false) => format!("{path}.{key}"),
                        (None, _) => format!("{path}[{key}]"),
                    };
                    self.check(child, inner, old.field(schema, key), &below);
                }
            }
            Value::Array(list) => {
                let Some(items) = schema.items().filter(|items| items.has_cel()) else {
                    return;
                };
                for (at, item) in list.iter().enumerate() {
                    let below = old.item(schema, at, item);
                    self.check(items, item, below, &format!("{path}[{at}]"));
                }
            }
            _ => {}
        }
    }

    fn check_here(
        &mut self,
        schema: &Schema,
        typed: &Schema,
        value: &Value,
        old: Old<'_>,
        path: &str,
    ) {
        let Some(rules) = &schema.rules else {
            return;
        };
        for nested in &rules.all_of {
            self.check_here(nested, typed, value, old, path);
        }
        if rules.cel.is_empty() || !self.paid {
            return;
        }
        let shown = if path.is_empty() { "<nil>" } else { path };
        let type_name = Value::from(type_name(typed));
        let size = match old.value() {
            Some(old) => Size::of(value).and(Size::of(old)),
            None => Size::of(value),
        };
        if !self.pay(Some(size.steps()), shown, &type_name) {
            return;
        }
        let mut parts = Parts::default();
        for rule in &rules.cel {
            parts.join(&rule.compiled().parts);
        }
        let seen = |value: &Value| to_cel(typed, parts.take(value).as_ref().unwrap_or(value));
        let this = seen(value);
        let before = old.value().map(seen);
        for rule in &rules.cel {
            let compiled = rule.compiled();
            let (program, price) = match &compiled.rule {
                Ok(program) => program,
                Err(why) => {
                    let detail = format!("rule compile error: {why}");
                    let error = FieldError::invalid(shown, type_name.clone(), detail);
                    self.errors.push(error);
                    continue;
                }
            };
            if compiled.uses_old && before.is_none() && !rule.optional_old {
                continue;
            }
            if !self.pay(price.steps(size), shown, &type_name) {
                return;
            }
            let mut context = functions().new_inner_scope();
            context.add_variable_from_value("self", this.clone());
            if rule.optional_old {
                let optional = before
                    .clone()
                    .map_or_else(OptionalValue::none, OptionalValue::of);
                context.add_variable_from_value("oldSelf", Cel::Opaque(Arc::new(optional)));
            } else if let Some(before) = &before {
                context.add_variable_from_value("oldSelf", before.clone());
            }
            match program.execute(&context) {
                Ok(Cel::Bool(true)) => {}
                Ok(_) => {
                    if !compiled.uses_old && old.is_same(value) {
                        continue;
                    }
                    let at = below(path, &rule.field_path);
                    let bad = match value {
                        Value::Object(_) | Value::Array(_) => BadValue::Omitted,
                        scalar => BadValue::Is(scalar.clone()),
                    };
                    let message = rule.message(&context, size, &mut self.budget);
                    let error = FieldError::new(at, rule.kind(), bad, message);
                    self.errors.push(error);
                }
                Err(why) => {
                    let detail = format!("{why} evaluating rule: {}", rule.shown());
                    let error = FieldError::invalid(shown, type_name.clone(), detail);
                    self.errors.push(error);
                }
            }
        }
    }

    /// Pays for a rule, or says that none runs any more.
    fn pay(&mut self, steps: Option<f64>, path: &str, type_name: &Value) -> bool {
        self.paid = self.paid && steps.is_some_and(|steps| self.budget.pay(steps));
        if !self.paid {
            let error = FieldError::invalid(path, type_name.clone(), UNPAID);
            self.errors.push(error);
        }
        self.paid
    }
}

/// Where an error is told: at the value, or at the field below that the rule names.
fn below(path: &str, field: &str) -> String {
    let field = field.strip_prefix('.').unwrap_or(field);
    match (path.is_empty(), field.is_empty()) {
        (true, true) => "<nil>".to_owned(),
        (true, false) => field.to_owned(),
        (false, true) => path.to_owned(),
        (false, false) => format!("{path}.{field}"),
    }
}

fn type_name(schema: &Schema) -> &'static str {
    match schema.kind() {
        Kind::Object => "object",
        Kind::Array => "array",
        Kind::String => "string",
        Kind::Integer => "integer",
        Kind::Number => "number",
        Kind::Boolean => "boolean",
        Kind::Any | Kind::IntOrString | Kind::Quantity => "",
    }
}

/// A value as rules see it: formats have types, and names of fields that are no names in CEL are
/// written differently.
fn to_cel(schema: &Schema, value: &Value) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(set) => Cel::Bool(*set),
        Value::Number(number) => match (schema.kind(), number.as_i64()) {
            (Kind::Number, _) | (_, None) => Cel::Float(number.as_f64().unwrap_or(f64::NAN)),
            (_, Some(whole)) => Cel::Int(whole),
        },
        Value::String(text) => text_to_cel(schema, text),
        Value::Array(list) => {
            let items = list.iter().map(|item| match schema.items() {
                Some(items) => to_cel(items, item),
                None => free(item),
            });
            Cel::List(Arc::new(items.collect()))
        }
        Value::Object(object) => {
            let is_map = schema.additional().is_some();
            let mut map = HashMap::with_capacity(object.len());
            for (key, inner) in object {
                let seen = match schema.child(key) {
                    Some(child) => to_cel(child, inner),
                    None => free(inner),
                };
                let name = if is_map {
                    key.clone()
                } else {
                    escaped(key).unwrap_or_else(|| key.clone())
                };
                map.insert(Key::String(Arc::new(name)), seen);
            }
            Cel::Map(Map { map: Arc::new(map) })
        }
    }
}

fn free(value: &Value) -> Cel {
    static ANY: OnceLock<Schema> = OnceLock::new();
    to_cel(ANY.get_or_init(Schema::default), value)
}

fn text_to_cel(schema: &Schema, text: &str) -> Cel {
    let plain = || Cel::String(Arc::new(text.to_owned()));
    if schema.kind() != Kind::String {
        return plain();
    }
    match schema.format() {
        Some("date-time") => values::timestamp(text).map_or_else(plain, Cel::Timestamp),
        Some("duration") => values::duration(text).map_or_else(plain, Cel::Duration),
        Some("byte") => STANDARD
            .decode(text)
            .map_or_else(|_| plain(), |bytes| Cel::Bytes(Arc::new(bytes))),
        _ => plain(),
    }
}

const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// The name of a field as CEL can say it; nothing if it cannot.
fn escaped(name: &str) -> Option<String> {
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '/');
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) || !name.chars().all(fits)
    {
        return None;
    }
    let name = name.replace("__", "__underscores__");
    let name = name.replace('.', "__dot__").replace('-', "__dash__");
    Some(name.replace('/', "__slash__"))
}

#[cfg(test)]
#[path = "cel/tests.rs"]
mod tests;
