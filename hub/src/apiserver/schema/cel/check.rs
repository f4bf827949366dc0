//! Whether an expression makes sense with the types of what it reads, and what it gives. Pure.

use super::declared::{Declared, Objects};
use super::library::{self, Form};
use super::syntax::{Entry, Fault, Fold, Item, Kind, Node, Tree};
use super::types::{Known, Type, more_general};
use std::collections::HashMap;
use std::sync::Arc;

/// What is known of a tree's nodes.
#[derive(Debug)]
pub(super) struct Checked {
    types: Vec<Type>,
    forms: HashMap<usize, Vec<&'static str>>,
    /// Nodes that are functions of a longer name, and not called on anything.
    namespaced: HashMap<usize, Arc<str>>,
    /// Whether `oldSelf` is read.
    pub(super) uses_old: bool,
}

impl Checked {
    pub(super) fn of(&self, node: &Node) -> &Type {
        self.types.get(node.id).unwrap_or(&Type::Dyn)
    }

    /// The forms that a call may have.
    pub(super) fn forms(&self, node: &Node) -> &[&'static str] {
        self.forms.get(&node.id).map_or(&[], Vec::as_slice)
    }

    /// The whole name of a function of which a part looks like a value.
    pub(super) fn namespaced(&self, node: &Node) -> Option<&Arc<str>> {
        self.namespaced.get(&node.id)
    }
}

/// Checks a tree over `self`, and over `oldSelf`, which may be one that is not there.
pub(super) fn check(
    tree: &Tree,
    this: &Declared,
    optional_old: bool,
) -> Result<Checked, Vec<Fault>> {
    let old = if optional_old {
        Type::optional(this.of.clone())
    } else {
        this.of.clone()
    };
    let mut checker = Checker {
        objects: &this.objects(),
        scopes: vec![("self".into(), this.of.clone()), ("oldSelf".into(), old)],
        known: Known::default(),
        free: 0,
        types: vec![Type::Error; tree.size],
        forms: HashMap::new(),
        namespaced: HashMap::new(),
        uses_old: false,
        faults: Vec::new(),
    };
    checker.node(&tree.root);
    if !checker.faults.is_empty() {
        return Err(checker.faults);
    }
    let types = checker.types.iter();
    let types = types.map(|of| checker.known.applied(of, true)).collect();
    let checked = Checked {
        types,
        forms: checker.forms,
        namespaced: checker.namespaced,
        uses_old: checker.uses_old,
    };
    let mut faults = Vec::new();
    literals(&tree.root, &checked, false, &mut faults);
    if faults.is_empty() {
        Ok(checked)
    } else {
        Err(faults)
    }
}

struct Checker<'a> {
    objects: &'a Objects,
    /// Variables, the innermost last.
    scopes: Vec<(Arc<str>, Type)>,
    known: Known,
    free: usize,
    types: Vec<Type>,
    forms: HashMap<usize, Vec<&'static str>>,
    namespaced: HashMap<usize, Arc<str>>,
    uses_old: bool,
    faults: Vec<Fault>,
}

impl Checker<'_> {
    fn fault(&mut self, at: usize, message: String) {
        self.faults.push(Fault { at, message });
    }

    fn mismatch(&mut self, at: usize, wanted: &Type, found: &Type) {
        self.fault(at, format!("expected type '{wanted}' but found '{found}'"));
    }

    fn undeclared(&mut self, at: usize, name: &str) -> Type {
        let name = name.strip_prefix('.').unwrap_or(name);
        let message = format!("undeclared reference to '{name}' (in container '')");
        self.fault(at, message);
        Type::Error
    }

    fn free(&mut self) -> Type {
        self.free += 1;
        Type::Free(format!("_var{}", self.free - 1).into())
    }

    fn node(&mut self, node: &Node) -> Type {
        let of = match &node.kind {
            Kind::Null => Type::Null,
            Kind::Bool(_) => Type::Bool,
            Kind::Int(_) => Type::Int,
            Kind::Uint(_) => Type::Uint,
            Kind::Double(_) => Type::Double,
            Kind::Text(_) => Type::Text,
            Kind::Bytes(_) => Type::Bytes,
            Kind::Ident(name) => match self.variable(name) {
                Some(of) => of,
                None => self.undeclared(node.at, name),
            },
            Kind::Select {
                operand,
                field,
                test,
            } => self.select(node, operand, field, *test),
            Kind::Call {
                target,
                function,
                arguments,
            } => self.call(node, target.as_deref(), function, arguments),
            Kind::List(items) => self.list(items),
            Kind::Map(entries) => self.map(node.at, entries),
            Kind::Message(name) => self.undeclared(node.at, name),
            Kind::Fold(fold) => self.fold(fold),
        };
        if let Some(place) = self.types.get_mut(node.id) {
            *place = of.clone();
        }
        of
    }

    fn variable(&mut self, name: &str) -> Option<Type> {
        let plain = name.strip_prefix('.').unwrap_or(name);
        let found = self.scopes.iter().enumerate().rev();
        let found = found
            .filter(|(at, _)| plain.len() == name.len() || *at < 2)
            .find(|(_, (known, _))| **known == *plain);
        if let Some((at, (_, of))) = found {
            // The second of all is `oldSelf`; what is called so further in is something else.
            self.uses_old |= at == 1;
            return Some(of.clone());
        }
        let named = library::named(plain)?;
        Some(self.fresh(&named, &mut HashMap::new()))
    }

    fn select(&mut self, node: &Node, operand: &Node, field: &str, test: bool) -> Type {
        if !test
            && let Some(name) = node.qualified()
            && let Some(of) = library::named(&name)
        {
            return of;
        }
        let of = self.field(node, operand, field, false);
        if test {
            return Type::Bool;
        }
        self.known.applied(&of, false)
    }

    fn field(&mut self, node: &Node, operand: &Node, field: &str, optional: bool) -> Type {
        let operand = self.node(operand);
        let operand = self.known.applied(&operand, false);
        let (target, was_optional) = operand.unwrapped();
        let found = match target {
            Type::Map(of) => of.1.clone(),
            Type::Object(name) => match self.field_of(name, field) {
                Some(of) => of,
                None => {
                    self.fault(node.at, format!("undefined field '{field}'"));
                    Type::Error
                }
            },
            Type::Free(_) => {
                let target = target.clone();
                self.known.fit(&Type::Dyn, &target);
                Type::Dyn
            }
            Type::Dyn | Type::Error => Type::Dyn,
            other => {
                let message = format!("type '{other}' does not support field selection");
                self.fault(node.at, message);
                Type::Dyn
            }
        };
        if was_optional || optional {
            Type::optional(found)
        } else {
            found
        }
    }

    fn field_of(&self, object: &str, field: &str) -> Option<Type> {
        let fields = self.objects.get(object)?;
        // A word that means something to CEL is a field's name all the same.
        let found = fields
            .get(field)
            .or_else(|| fields.get(&format!("__{field}__")));
        Some(found?.of.clone())
    }

    fn call(
        &mut self,
        node: &Node,
        target: Option<&Node>,
        function: &Arc<str>,
        arguments: &[Node],
    ) -> Type {
        if &**function == "_?._"
            && let [operand, name] = arguments
            && let Kind::Text(field) = &name.kind
        {
            self.forms.insert(node.id, vec!["select_optional_field"]);
            let of = self.field(node, operand, field, true);
            return self.known.applied(&of, false);
        }
        let mut given: Vec<(usize, Type)> = Vec::new();
        for argument in arguments {
            given.push((argument.at, self.node(argument)));
        }
        let Some(target) = target else {
            return match library::forms(function) {
                Some(forms) => self.resolved(node, function, forms, false, given),
                None => self.undeclared(node.at, function),
            };
        };
        if let Some(prefix) = target.qualified() {
            let whole: Arc<str> = format!("{prefix}.{function}").into();
            if let Some(forms) = library::forms(&whole) {
                self.namespaced.insert(node.id, whole.clone());
                return self.resolved(node, &whole, forms, false, given);
            }
        }
        given.insert(0, (target.at, self.node(target)));
        match library::forms(function) {
            Some(forms) => self.resolved(node, function, forms, true, given),
            None => self.undeclared(node.at, function),
        }
    }

    fn resolved(
        &mut self,
        node: &Node,
        function: &str,
        forms: &[Form],
        member: bool,
        given: Vec<(usize, Type)>,
    ) -> Type {
        if matches!(function, "_&&_" | "_||_") {
            let before = self.faults.len();
            for (at, of) in &given {
                if !self.known.fit(of, &Type::Bool) {
                    self.mismatch(*at, &Type::Bool, of);
                }
            }
            let form = forms.iter().map(|form| form.id).collect();
            self.forms.insert(node.id, form);
            let held = self.faults.len() == before;
            return if held { Type::Bool } else { Type::Error };
        }
        let given: Vec<Type> = given.into_iter().map(|(_, of)| of).collect();
        let mut gives: Option<Type> = None;
        let mut fitting = Vec::new();
        for form in forms.iter().filter(|form| form.member == member) {
            let mut names = HashMap::new();
            let takes: Vec<Type> = form
                .takes
                .iter()
                .map(|of| self.fresh(of, &mut names))
                .collect();
            let result = self.fresh(&form.gives, &mut names);
            if !self.known.fit_all(&given, &takes) {
                continue;
            }
            fitting.push(form.id);
            let result = self.known.applied(&result, false);
            gives = match gives {
                None => Some(result),
                Some(before) if before == Type::Dyn || before == result => Some(before),
                Some(_) => Some(Type::Dyn),
            };
        }
        let Some(gives) = gives else {
            let shown = given.iter().map(|of| self.known.applied(of, true));
            let mut shown: Vec<String> = shown.map(|of| of.to_string()).collect();
            let on = if member {
                shown.remove(0) + "."
            } else {
                String::new()
            };
            let name = function.strip_prefix('.').unwrap_or(function);
            let message = format!(
                "found no matching overload for '{name}' applied to '{on}({})'",
                shown.join(", ")
            );
            self.fault(node.at, message);
            return Type::Error;
        };
        self.forms.insert(node.id, fitting);
        gives
    }

    /// A form's type, with new types for those that it leaves open.
    fn fresh(&mut self, of: &Type, names: &mut HashMap<Arc<str>, Type>) -> Type {
        match of {
            Type::Free(name) => match names.get(name) {
                Some(known) => known.clone(),
                None => {
                    let free = self.free();
                    names.insert(name.clone(), free.clone());
                    free
                }
            },
            Type::List(of) => Type::list(self.fresh(of, names)),
            Type::Meta(of) => Type::of_type(self.fresh(of, names)),
            Type::Map(of) => {
                let key = self.fresh(&of.0, names);
                Type::map(key, self.fresh(&of.1, names))
            }
            Type::Opaque(name, of) => {
                let of = of.iter().map(|of| self.fresh(of, names)).collect();
                Type::Opaque(name.clone(), of)
            }
            other => other.clone(),
        }
    }

    fn list(&mut self, items: &[Item]) -> Type {
        let mut of = None;
        for item in items {
            let one = self.node(&item.node);
            let one = self.unwrapped(item.optional, item.node.at, one);
            of = Some(self.joined(of, one));
        }
        Type::list(of.unwrap_or_else(|| self.free()))
    }

    fn map(&mut self, at: usize, entries: &[Entry]) -> Type {
        let (mut keys, mut values) = (None, None);
        for entry in entries {
            let key = self.node(&entry.key);
            keys = Some(self.joined(keys, key));
            let value = self.node(&entry.value);
            let value = self.unwrapped(entry.optional, entry.value.at, value);
            values = Some(self.joined(values, value));
        }
        match (keys, values) {
            (Some(keys), Some(values)) => {
                let of = Type::map(keys, values);
                if of.is_huge() {
                    self.fault(at, "the type of a map is too large".to_owned());
                    return Type::Error;
                }
                of
            }
            _ => {
                let keys = self.free();
                Type::map(keys, self.free())
            }
        }
    }

    fn unwrapped(&mut self, optional: bool, at: usize, of: Type) -> Type {
        if !optional {
            return of;
        }
        let (inner, was_optional) = of.unwrapped();
        let inner = inner.clone();
        if !was_optional && inner != Type::Dyn {
            self.mismatch(at, &Type::optional(inner.clone()), &inner);
        }
        inner
    }

    /// The type of several members of one literal; where they differ, that is told later.
    fn joined(&mut self, before: Option<Type>, one: Type) -> Type {
        let Some(before) = before else {
            return one;
        };
        if self.known.fit(&before, &one) {
            return more_general(&before, &one).clone();
        }
        Type::Dyn
    }

    fn fold(&mut self, fold: &Fold) -> Type {
        let range = self.node(&fold.range);
        let sum = self.node(&fold.start);
        let range = self.known.applied(&range, false);
        let (first, second) = match &range {
            Type::List(of) if fold.second.is_some() => (Type::Int, (**of).clone()),
            Type::List(of) => ((**of).clone(), Type::Dyn),
            Type::Map(of) => (of.0.clone(), of.1.clone()),
            Type::Dyn | Type::Error | Type::Free(_) => {
                self.known.fit(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be \
                     list, map, or dynamic)"
                );
                self.fault(fold.range.at, message);
                (Type::Error, Type::Error)
            }
        };
        self.scopes.push((fold.sum.clone(), sum.clone()));
        let outer = self.scopes.len();
        self.scopes.push((fold.variable.clone(), first));
        if let Some(name) = &fold.second {
            self.scopes.push((name.clone(), second));
        }
        self.wanted(&fold.condition, &Type::Bool);
        self.wanted(&fold.step, &sum);
        self.scopes.truncate(outer);
        let result = self.node(&fold.result);
        self.scopes.truncate(outer - 1);
        self.known.applied(&result, false)
    }

    fn wanted(&mut self, node: &Node, wanted: &Type) {
        let found = self.node(node);
        if !self.known.fit(wanted, &found) {
            self.mismatch(node.at, wanted, &found);
        }
    }
}

/// Literals that can be seen to be none of what they are given for; and those of mixed members, which
/// only `format` may take.
fn literals(node: &Node, checked: &Checked, formats: bool, faults: &mut Vec<Fault>) {
    let mut formats = formats;
    match &node.kind {
        Kind::Call {
            function,
            arguments,
            ..
        } => {
            formats |= &**function == "format";
            if let Some(Kind::Text(text)) = arguments.first().map(|first| &first.kind) {
                let holds = match function.as_ref() {
                    "duration" => super::values::duration(text).is_some(),
                    "timestamp" => super::values::timestamp(text).is_some(),
                    "matches" => super::values::is_pattern(text),
                    _ => true,
                };
                if !holds {
                    let at = arguments.first().map_or(node.at, |first| first.at);
                    let message = format!("invalid {function} argument");
                    faults.push(Fault { at, message });
                }
            }
        }
        Kind::List(items) if !formats => {
            let of = |item: &Item| member_type(checked, &item.node, item.optional);
            let first = items.first().map(of);
            let other = items.iter().find(|item| Some(of(item)) != first);
            if let (Some(first), Some(other)) = (&first, other) {
                mixed(other.node.at, first, &of(other), faults);
            }
        }
        Kind::Map(entries) if !formats => {
            let keys = |entry: &Entry| member_type(checked, &entry.key, false);
            let values = |entry: &Entry| member_type(checked, &entry.value, entry.optional);
            if let Some(first) = entries.first() {
                for entry in entries {
                    mixed(entry.key.at, &keys(first), &keys(entry), faults);
                    mixed(entry.value.at, &values(first), &values(entry), faults);
                }
            }
        }
        _ => {}
    }
    for below in node.children() {
        literals(below, checked, formats, faults);
    }
}

fn member_type(checked: &Checked, node: &Node, optional: bool) -> Type {
    let of = checked.of(node);
    if optional {
        return of.unwrapped().0.clone();
    }
    of.clone()
}

fn mixed(at: usize, wanted: &Type, found: &Type, faults: &mut Vec<Fault>) {
    if wanted != found {
        let message = format!("expected type '{wanted}' but found '{found}'");
        faults.push(Fault { at, message });
    }
}
