//! Runs rules, and counts each step as a real server does, so that what it would pay for is paid for here
//! and what runs away ends.

mod bounds;
mod calls;
mod invalid;
mod lists;
mod numbers;
mod price;
mod texts;

use super::check::Checked;
use super::functions;
use super::syntax::{Entry, Fold, Item, Kind, Node, Tree};
use kube_cel::cel::common::ast::IdedExpr;
use kube_cel::cel::objects::{Key, Map};
use kube_cel::cel::{Context, Value as Cel};
use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use texts::Patterns;

pub(super) use bounds::Work;

pub(super) use lists::Lists;

/// What one expression may cost.
const MOST_OF_ONE: u64 = 1_000_000;
const LIST: u64 = 10;
const MAP: u64 = 30;

/// Why there is no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stop {
    /// It costs more than one expression may.
    Cost,
    /// It cannot be told; `&&` and `||` may do without it.
    Error(String),
}

impl Stop {
    fn no_such_overload() -> Self {
        Self::Error("no such overload".to_owned())
    }
}

type Told = Result<Cel, Stop>;

/// An expression that can be run.
#[derive(Debug)]
pub(super) struct Program {
    tree: Tree,
    checked: Checked,
    /// Calls of functions that a library has, over variables of the names of `calls::NAMES`.
    library: HashMap<usize, IdedExpr>,
    /// Patterns that are known before there are values.
    patterns: Patterns,
    /// Values of nodes that have the same one whatever is seen.
    constants: Vec<Option<Cel>>,
    /// Lists of such nodes, by the list's number, as sets.
    sets: HashMap<usize, HashSet<Key>>,
}

impl Program {
    pub(super) fn new(tree: Tree, checked: Checked) -> Self {
        let mut library = HashMap::new();
        calls::prepare(&tree.root, &checked, &mut library);
        let mut patterns = Patterns::new();
        texts::prepare(&tree.root, &mut patterns);
        let mut program = Self {
            patterns,
            constants: vec![None; tree.size],
            sets: HashMap::new(),
            tree,
            checked,
            library,
        };
        let mut found = Vec::new();
        constants(&program.tree.root, &mut found);
        let found: Vec<(usize, Option<Cel>)> = found
            .into_iter()
            .map(|node| {
                (
                    node.id,
                    program.start(Vec::new(), &mut Work::new()).node(node).ok(),
                )
            })
            .collect();
        for (id, value) in found {
            program.constants[id] = value;
        }
        sets(&program.tree.root, &mut program.sets);
        program
    }

    fn start<'a>(
        &'a self,
        variables: Vec<(Arc<str>, Result<Cel, String>)>,
        work: &'a mut Work,
    ) -> Run<'a> {
        Run {
            program: self,
            library: functions().new_inner_scope(),
            cost: 0,
            work,
            patterns: Patterns::new(),
            variables,
            lists: Lists::default(),
        }
    }

    pub(super) fn uses_old(&self) -> bool {
        self.checked.uses_old
    }

    /// Runs it; how much it cost, whatever came of it.
    pub(super) fn run(
        &self,
        this: Cel,
        old: Option<Cel>,
        lists: &Lists,
        work: &mut Work,
    ) -> (Told, u64) {
        let mut variables = vec![(Arc::from("self"), Ok(this))];
        variables.extend(old.map(|old| (Arc::from("oldSelf"), Ok(old))));
        let mut run = self.start(variables, work);
        run.lists = lists.clone();
        let told = run.node(&self.tree.root);
        (told, run.cost)
    }
}

struct Run<'a> {
    program: &'a Program,
    library: Context<'static>,
    cost: u64,
    work: &'a mut Work,
    patterns: Patterns,
    /// What is known of lists among all values.
    lists: Lists,
    /// The innermost last.
    variables: Vec<(Arc<str>, Result<Cel, String>)>,
}

impl Run<'_> {
    fn pay(&mut self, cost: u64) -> Result<(), Stop> {
        self.cost = self.cost.saturating_add(cost);
        if self.cost > MOST_OF_ONE {
            return Err(Stop::Cost);
        }
        Ok(())
    }

    fn node(&mut self, node: &Node) -> Told {
        if let Some(Some(value)) = self.program.constants.get(node.id) {
            return Ok(value.clone());
        }
        match &node.kind {
            Kind::Null => Ok(Cel::Null),
            Kind::Bool(set) => Ok(Cel::Bool(*set)),
            Kind::Int(number) => Ok(Cel::Int(*number)),
            Kind::Uint(number) => Ok(Cel::UInt(*number)),
            Kind::Double(number) => Ok(Cel::Float(*number)),
            Kind::Text(text) => Ok(Cel::String(Arc::new(text.to_string()))),
            Kind::Bytes(bytes) => Ok(Cel::Bytes(Arc::new(bytes.to_vec()))),
            Kind::Ident(_) => self.attribute(node, true),
            Kind::Select { test: false, .. } => self.attribute(node, true),
            Kind::Select { operand, field, .. } => {
                let operand = self.attribute(operand, true)?;
                calls::there(&operand, field)
            }
            Kind::Call {
                target,
                function,
                arguments,
            } => self.call(node, target.as_deref(), function, arguments),
            Kind::List(items) => self.list(items),
            Kind::Map(entries) => self.map(entries),
            Kind::Message(_) => Err(Stop::no_such_overload()),
            Kind::Fold(fold) => self.fold(fold),
        }
    }

    /// A variable, or what stands below one. Within another one its own step is not counted.
    fn attribute(&mut self, node: &Node, counted: bool) -> Told {
        let own = u64::from(counted);
        match &node.kind {
            Kind::Ident(name) => {
                let plain = name.strip_prefix('.').unwrap_or(name);
                let found = self.variables.iter().rev();
                if let Some((_, value)) = found.into_iter().find(|(known, _)| **known == *plain) {
                    let value = value.clone();
                    self.pay(own)?;
                    return invalid::sound(value.map_err(Stop::Error)?);
                }
                calls::type_named(plain).ok_or_else(|| no_attribute(plain))
            }
            Kind::Select {
                operand,
                field,
                test: false,
            } => {
                if let Some(of) = node.qualified().and_then(|name| calls::type_named(&name)) {
                    return Ok(of);
                }
                let operand = self.base(operand, counted)?;
                self.pay(1)?;
                calls::field_of(&operand, field)
            }
            Kind::Call {
                target: None,
                function,
                arguments,
            } => match (function.as_ref(), arguments.as_slice()) {
                ("_[_]" | "_[?_]", [operand, index]) => {
                    let optional = &**function == "_[?_]";
                    let operand = self.base(operand, counted)?;
                    let index = match is_attribute(index) {
                        true => self.attribute(index, false)?,
                        false => self.node(index)?,
                    };
                    self.pay(1)?;
                    calls::indexed(&operand, &index, optional)
                }
                ("_?._", [operand, field]) => {
                    let operand = self.base(operand, counted)?;
                    self.pay(1)?;
                    let index = self.node(field)?;
                    calls::indexed(&operand, &index, true)
                }
                ("_?_:_", [test, yes, no]) => match self.node(test)? {
                    Cel::Bool(holds) => {
                        let branch = if holds { yes } else { no };
                        match is_attribute(branch) {
                            true => self.attribute(branch, false),
                            false => self.node(branch),
                        }
                    }
                    _ => Err(Stop::no_such_overload()),
                },
                _ => self.node(node),
            },
            _ => self.node(node),
        }
    }

    /// What an attribute is taken from; what is none itself becomes one by a step of its own.
    fn base(&mut self, node: &Node, counted: bool) -> Told {
        if is_attribute(node) {
            return self.attribute(node, counted);
        }
        let value = self.node(node)?;
        self.pay(u64::from(counted))?;
        Ok(value)
    }

    fn list(&mut self, items: &[Item]) -> Told {
        let mut list = Vec::with_capacity(items.len());
        for item in items {
            let value = self.node(&item.node)?;
            match item.optional {
                true => list.extend(calls::held(&value).flatten().cloned()),
                false => list.push(value),
            }
        }
        self.pay(LIST)?;
        Ok(Cel::List(Arc::new(list)))
    }

    fn map(&mut self, entries: &[Entry]) -> Told {
        let mut map = HashMap::with_capacity(entries.len());
        for entry in entries {
            let key = calls::key(&self.node(&entry.key)?)?;
            let value = self.node(&entry.value)?;
            let value = match entry.optional {
                true => calls::held(&value).flatten().cloned(),
                false => Some(value),
            };
            if let Some(value) = value {
                map.insert(key, value);
            }
        }
        self.pay(MAP)?;
        Ok(Cel::Map(Map { map: Arc::new(map) }))
    }

    fn call(
        &mut self,
        node: &Node,
        target: Option<&Node>,
        function: &str,
        arguments: &[Node],
    ) -> Told {
        match (function, arguments) {
            ("_&&_", [left, right]) => self.joined(left, right, false),
            ("_||_", [left, right]) => self.joined(left, right, true),
            ("_?_:_" | "_[_]" | "_[?_]" | "_?._", _) => self.attribute(node, true),
            ("@not_strictly_false", [of]) => {
                let holds = !matches!(self.node(of), Ok(Cel::Bool(false)));
                self.pay(1)?;
                Ok(Cel::Bool(holds))
            }
            ("or" | "orValue", [other]) if target.is_some() => {
                let target = self.node(target.unwrap_or(other))?;
                match (calls::held(&target), function) {
                    (Some(Some(value)), "orValue") => Ok(value.clone()),
                    (Some(Some(_)), _) => Ok(target.clone()),
                    (Some(None), _) => self.node(other),
                    (None, _) => Err(Stop::no_such_overload()),
                }
            }
            _ => self.plain_call(node, target, function, arguments),
        }
    }

    fn plain_call(
        &mut self,
        node: &Node,
        target: Option<&Node>,
        function: &str,
        arguments: &[Node],
    ) -> Told {
        let program = self.program;
        let whole = program.checked.namespaced(node);
        let target = target.filter(|_| whole.is_none());
        let function = whole.map_or(function, |name| name);
        let few = usize::from(target.is_some()) + arguments.len() <= 2;
        let mut values = Vec::with_capacity(1 + arguments.len());
        let mut failed = None;
        for one in target.into_iter().chain(arguments) {
            match self.node(one) {
                Ok(value) => values.push(value),
                // Of two, the other one is looked at all the same.
                Err(Stop::Error(why)) if few => {
                    failed = failed.or(Some(Stop::Error(why)));
                    values.push(Cel::Null);
                }
                Err(stop) => return Err(stop),
            }
        }
        let form = match (function, program.checked.forms(node)) {
            ("_==_", _) => "equals",
            ("_!=_", _) => "not_equals",
            (_, [only]) => only,
            _ => "",
        };
        if let Some(stop) = failed {
            self.pay(price::of(function, form, &values, &Cel::Null))?;
            return Err(stop);
        }
        if form == "in_list"
            && let [one, _] = values.as_slice()
            && let Some(set) = arguments.get(1).and_then(|list| program.sets.get(&list.id))
        {
            return Ok(Cel::Bool(calls::is_in(set, one)));
        }
        self.work.call(function, &values)?;
        let told = self.lists.known(function, &values);
        let known = told
            .or_else(|| calls::known(function, &values))
            .or_else(|| texts::known(function, &values))
            .or_else(|| {
                let user = texts::user(function, &values)?;
                let (known, read) = (&program.patterns, &mut self.patterns);
                Some(texts::with_pattern(user, &values, known, read, self.work))
            });
        let result = match known {
            Some(told) => told?,
            None => self.of_library(node, function, &values)?,
        };
        self.work.made(&result)?;
        self.pay(price::of(function, form, &values, &result))?;
        Ok(result)
    }

    fn of_library(&mut self, node: &Node, function: &str, values: &[Cel]) -> Told {
        let call = self.program.library.get(&node.id);
        let call = call.ok_or_else(|| no_attribute(function))?;
        for (name, value) in calls::NAMES.iter().zip(values) {
            let value = match (function, value) {
                ("quantity", Cel::String(text)) => texts::quantity(text)?,
                _ => value.clone(),
            };
            self.library.add_variable_from_value(*name, value);
        }
        // It was not written for values from anybody: what it did not think of is told as an error.
        let told = catch_unwind(AssertUnwindSafe(|| self.library.resolve(call)));
        let told = told.map_err(|_| Stop::Error(format!("{function} cannot be told")))?;
        told.map_err(|error| Stop::Error(calls::words(&error)))
    }

    /// `&&` or `||`, which are told by one side if it is `known`, whatever the other is.
    fn joined(&mut self, left: &Node, right: &Node, known: bool) -> Told {
        let mut failed = None;
        for side in [left, right] {
            match self.node(side) {
                Ok(Cel::Bool(told)) if told == known => return Ok(Cel::Bool(known)),
                Ok(Cel::Bool(_)) => {}
                Ok(_) => failed = failed.or(Some(Stop::no_such_overload())),
                Err(Stop::Cost) => return Err(Stop::Cost),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(Cel::Bool(!known)), Err)
    }

    fn fold(&mut self, fold: &Fold) -> Told {
        let range = self.node(&fold.range)?;
        let start = self.node(&fold.start)?;
        let place = self.variables.len();
        self.variables.push((fold.sum.clone(), Ok(start)));
        let folded = match &range {
            Cel::List(list) => (0..).zip(list.iter()).try_for_each(|(at, one)| {
                let first = match fold.second {
                    Some(_) => Cel::Int(at),
                    None => one.clone(),
                };
                self.round(fold, place, first, one)
            }),
            Cel::Map(map) => self.over_map(fold, place, map),
            _ => Err(Round::Stop(Stop::no_such_overload())),
        };
        self.variables.truncate(place + 1);
        let result = match folded {
            Ok(()) | Err(Round::Last) => self.node(&fold.result),
            Err(Round::Stop(stop)) => Err(stop),
        };
        self.variables.truncate(place);
        result
    }

    /// In the order of its keys, so that a rule says the same each time.
    fn over_map(&mut self, fold: &Fold, place: usize, map: &Map) -> Result<(), Round> {
        self.work.order(map.map.len()).map_err(Round::Stop)?;
        let mut all: Vec<(&Key, &Cel)> = map.map.iter().collect();
        all.sort_unstable_by_key(|(key, _)| *key);
        all.into_iter()
            .try_for_each(|(key, one)| self.round(fold, place, Cel::from(key), one))
    }

    /// What has come so far may be an error, which a later round of `all` or `exists` makes good.
    fn round(&mut self, fold: &Fold, place: usize, first: Cel, one: &Cel) -> Result<(), Round> {
        self.variables.truncate(place + 1);
        self.variables.push((fold.variable.clone(), Ok(first)));
        if let Some(second) = &fold.second {
            self.variables.push((second.clone(), Ok(one.clone())));
        }
        match self.node(&fold.condition) {
            Err(Stop::Cost) => return Err(Round::Stop(Stop::Cost)),
            Ok(Cel::Bool(false)) => return Err(Round::Last),
            _ => {}
        }
        match self.step(&fold.step, place) {
            Ok(None) => {}
            Ok(Some(sum)) => self.variables[place].1 = Ok(sum),
            Err(Stop::Error(error)) => self.variables[place].1 = Err(error),
            Err(Stop::Cost) => return Err(Round::Stop(Stop::Cost)),
        }
        Ok(())
    }

    /// One step; nothing if it leaves all as it was, or has put something to what there is already.
    fn step(&mut self, step: &Node, place: usize) -> Result<Option<Cel>, Stop> {
        let sum = self.variables[place].0.clone();
        let is_sum = |node: &Node| matches!(&node.kind, Kind::Ident(name) if *name == sum);
        let Kind::Call {
            function,
            arguments,
            target: None,
        } = &step.kind
        else {
            return self.node(step).map(Some);
        };
        match (function.as_ref(), arguments.as_slice()) {
            ("_?_:_", [test, yes, no]) if is_sum(no) => match self.node(test)? {
                Cel::Bool(true) => self.step(yes, place),
                Cel::Bool(false) => Ok(None),
                _ => Err(Stop::no_such_overload()),
            },
            ("_+_", [list, more]) if is_sum(list) => {
                let more = match (&more.kind, &self.variables[place].1) {
                    (Kind::List(_), Ok(Cel::List(_))) => self.node(more)?,
                    _ => return self.node(step).map(Some),
                };
                self.pay(2)?;
                if let (Ok(Cel::List(list)), Cel::List(more)) = (&mut self.variables[place].1, more)
                {
                    Arc::make_mut(list).extend(more.iter().cloned());
                }
                Ok(None)
            }
            ("cel.@mapInsert", [map, more @ ..]) if is_sum(map) => {
                let more = more.iter().map(|one| self.node(one));
                let more = more.collect::<Result<Vec<Cel>, Stop>>()?;
                self.pay(2)?;
                if let Ok(Cel::Map(map)) = &mut self.variables[place].1 {
                    calls::inserted(Arc::make_mut(&mut map.map), &more)?;
                }
                Ok(None)
            }
            _ => self.node(step).map(Some),
        }
    }
}

/// How a round ended that is not followed by another one.
enum Round {
    /// Nothing more can change what is told.
    Last,
    Stop(Stop),
}

fn no_attribute(name: &str) -> Stop {
    Stop::Error(format!("no such attribute(s): {name}"))
}

/// Variables and what stands below them, which are looked up in one go.
fn is_attribute(node: &Node) -> bool {
    match &node.kind {
        Kind::Ident(_) | Kind::Select { test: false, .. } => true,
        Kind::Call { function, .. } => {
            matches!(function.as_ref(), "_[_]" | "_[?_]" | "_?._" | "_?_:_")
        }
        _ => false,
    }
}

const CONVERSIONS: [&str; 9] = [
    "bool",
    "bytes",
    "double",
    "duration",
    "dyn",
    "int",
    "string",
    "timestamp",
    "uint",
];

/// What has the same value whatever is seen.
fn is_constant(node: &Node) -> bool {
    match &node.kind {
        Kind::List(items) => {
            let plain = |item: &Item| !item.optional && is_constant(&item.node);
            items.iter().all(plain)
        }
        Kind::Map(entries) => {
            let plain = |entry: &Entry| {
                !entry.optional && is_constant(&entry.key) && is_constant(&entry.value)
            };
            entries.iter().all(plain)
        }
        Kind::Call {
            target: None,
            function,
            arguments,
        } => {
            CONVERSIONS.contains(&function.as_ref())
                && matches!(arguments.as_slice(), [only] if is_constant(only))
        }
        _ => node.is_literal(),
    }
}

/// The outermost nodes that are constant.
fn constants<'a>(node: &'a Node, found: &mut Vec<&'a Node>) {
    if is_constant(node) {
        found.push(node);
    } else {
        for below in node.children() {
            constants(below, found);
        }
    }
}

/// Lists in which something is looked for, if they are of plain constants.
fn sets(node: &Node, all: &mut HashMap<usize, HashSet<Key>>) {
    if let Kind::Call {
        function,
        arguments,
        ..
    } = &node.kind
        && &**function == "@in"
        && let [_, list] = arguments.as_slice()
        && let Kind::List(items) = &list.kind
    {
        let keys = items.iter().map(|item| match &item.node.kind {
            Kind::Text(text) => Some(Key::String(Arc::new(text.to_string()))),
            Kind::Int(number) => Some(Key::Int(*number)),
            Kind::Uint(number) => Some(Key::Uint(*number)),
            Kind::Bool(set) => Some(Key::Bool(*set)),
            _ => None,
        });
        if let Some(keys) = keys.collect() {
            all.insert(list.id, keys);
        }
    }
    for below in node.children() {
        sets(below, all);
    }
}

#[cfg(test)]
mod tests;
