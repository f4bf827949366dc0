//! What is written like a call and stands for something else: `has`, and what goes over lists and maps.

use super::parser::Maker;
use super::syntax::{Entry, Fold, Item, Kind, Node};
use std::sync::Arc;

/// Where a fold keeps what it has so far.
pub(super) const SUM: &str = "@result";
/// A name that nothing can use.
const UNUSED: &str = "#unused";
const SORTED: &str = "@__sortBy_input__";

/// A call that is none: its target and arguments.
type Plain = (Option<Node>, Vec<Node>);

/// What a call stands for; the call itself if it is one.
pub(super) fn expanded(
    maker: &mut Maker,
    at: usize,
    target: Option<Node>,
    function: &str,
    mut arguments: Vec<Node>,
) -> Result<Node, Plain> {
    let Some(range) = target else {
        return match (function, arguments.pop()) {
            ("has", Some(only)) if arguments.is_empty() => Ok(has(maker, at, only)),
            (_, last) => {
                arguments.extend(last);
                Err((None, arguments))
            }
        };
    };
    let make = Make { at };
    let count = arguments.len();
    match (function, count) {
        ("all" | "exists" | "exists_one" | "existsOne", 2 | 3) => {
            let body = arguments.pop();
            let variables = variables(maker, arguments, "argument must be a simple name");
            Ok(make.quantifier(maker, function, range, variables, body))
        }
        ("map", 2 | 3) | ("filter", 2) => {
            let first = arguments.remove(0);
            let words = "argument is not an identifier";
            if function == "filter" {
                // What is kept is the variable itself.
                let kept = first.clone();
                let variables = variables(maker, vec![first], words);
                let test = arguments.pop();
                return Ok(make.listed(maker, range, variables, test, Some(kept)));
            }
            let variables = variables(maker, vec![first], words);
            let body = arguments.pop();
            Ok(make.listed(maker, range, variables, arguments.pop(), body))
        }
        ("transformList", 3 | 4) => {
            let (variables, test, body) = transform(maker, arguments);
            Ok(make.listed(maker, range, variables, test, body))
        }
        ("transformMap" | "transformMapEntry", 3 | 4) => {
            let (variables, test, body) = transform(maker, arguments);
            let keyed = function == "transformMap";
            Ok(make.mapped(maker, range, variables, test, body, keyed))
        }
        ("optMap" | "optFlatMap", 2) => {
            let body = arguments.pop();
            let words = format!("{function}() variable name must be a simple identifier");
            let variables = variables(maker, arguments, &words);
            Ok(make.optional(maker, range, variables, body, function == "optMap"))
        }
        ("sortBy", 2) => {
            let body = arguments.pop();
            let variables = variables(maker, arguments, "argument is not an identifier");
            Ok(make.sorted(maker, range, variables, body))
        }
        _ => Err((Some(range), arguments)),
    }
}

fn has(maker: &mut Maker, at: usize, argument: Node) -> Node {
    match argument.kind {
        Kind::Select { operand, field, .. } => {
            let kind = Kind::Select {
                operand,
                field,
                test: true,
            };
            maker.node(at, kind)
        }
        _ => maker.fault(argument.at, "invalid argument to has() macro"),
    }
}

/// Names of one or two variables.
type Variables = (Arc<str>, Option<Arc<str>>);

fn variables(maker: &mut Maker, given: Vec<Node>, words: &str) -> Variables {
    let mut names = Vec::new();
    for node in given {
        match &node.kind {
            Kind::Ident(name) if names.contains(name) => {
                maker.fault(node.at, &format!("duplicate variable name: {name}"));
            }
            Kind::Ident(name) => names.push(name.clone()),
            _ => {
                maker.fault(node.at, words);
            }
        }
    }
    let mut names = names.into_iter();
    let first = names.next().unwrap_or_else(|| Arc::from(UNUSED));
    (first, names.next())
}

/// Two variables, a test or none, and what is made of them.
fn transform(maker: &mut Maker, mut given: Vec<Node>) -> (Variables, Option<Node>, Option<Node>) {
    let body = given.pop();
    let test = if given.len() > 2 { given.pop() } else { None };
    let variables = variables(maker, given, "argument must be a simple name");
    (variables, test, body)
}

struct Make {
    at: usize,
}

impl Make {
    fn sum(&self, maker: &mut Maker) -> Node {
        maker.ident(self.at, SUM)
    }

    fn call(&self, maker: &mut Maker, function: &str, arguments: Vec<Node>) -> Node {
        maker.call(self.at, function, arguments)
    }

    fn fold(&self, maker: &mut Maker, fold: Fold) -> Node {
        maker.node(self.at, Kind::Fold(Box::new(fold)))
    }

    fn member(&self, maker: &mut Maker, function: &str, target: Node) -> Node {
        let kind = Kind::Call {
            target: Some(Box::new(target)),
            function: function.into(),
            arguments: Vec::new(),
        };
        maker.node(self.at, kind)
    }

    fn quantifier(
        &self,
        maker: &mut Maker,
        function: &str,
        range: Node,
        (variable, second): Variables,
        body: Option<Node>,
    ) -> Node {
        let body = body.into_iter();
        let sum = self.sum(maker);
        let (start, condition, step, result);
        match function {
            "all" => {
                start = Kind::Bool(true);
                condition = self.call(maker, "@not_strictly_false", vec![sum]);
                let sum = self.sum(maker);
                step = self.call(maker, "_&&_", [sum].into_iter().chain(body).collect());
                result = self.sum(maker);
            }
            "exists" => {
                start = Kind::Bool(false);
                let not = self.call(maker, "!_", vec![sum]);
                condition = self.call(maker, "@not_strictly_false", vec![not]);
                let sum = self.sum(maker);
                step = self.call(maker, "_||_", [sum].into_iter().chain(body).collect());
                result = self.sum(maker);
            }
            _ => {
                start = Kind::Int(0);
                condition = maker.node(self.at, Kind::Bool(true));
                let one = maker.node(self.at, Kind::Int(1));
                let more = self.call(maker, "_+_", vec![sum, one]);
                let same = self.sum(maker);
                step = self.call(maker, "_?_:_", body.chain([more, same]).collect());
                let sum = self.sum(maker);
                let one = maker.node(self.at, Kind::Int(1));
                result = self.call(maker, "_==_", vec![sum, one]);
            }
        }
        let start = maker.node(self.at, start);
        let fold = Fold {
            range,
            variable,
            second,
            sum: SUM.into(),
            start,
            condition,
            step,
            result,
        };
        self.fold(maker, fold)
    }

    /// A list of what is made of each that passes the test.
    fn listed(
        &self,
        maker: &mut Maker,
        range: Node,
        variables: Variables,
        test: Option<Node>,
        body: Option<Node>,
    ) -> Node {
        let sum = self.sum(maker);
        let items = body.into_iter().map(|node| Item {
            node,
            optional: false,
        });
        let one = maker.node(self.at, Kind::List(items.collect()));
        let step = self.call(maker, "_+_", vec![sum, one]);
        let start = maker.node(self.at, Kind::List(Vec::new()));
        self.collected(maker, range, variables, test, step, start)
    }

    /// A map of what is made of each that passes the test.
    fn mapped(
        &self,
        maker: &mut Maker,
        range: Node,
        variables: Variables,
        test: Option<Node>,
        body: Option<Node>,
        keyed: bool,
    ) -> Node {
        let mut arguments = vec![self.sum(maker)];
        if keyed {
            arguments.push(maker.ident(self.at, &variables.0));
        }
        arguments.extend(body);
        let step = self.call(maker, "cel.@mapInsert", arguments);
        let start = maker.node(self.at, Kind::Map(Vec::<Entry>::new()));
        self.collected(maker, range, variables, test, step, start)
    }

    fn collected(
        &self,
        maker: &mut Maker,
        range: Node,
        (variable, second): Variables,
        test: Option<Node>,
        step: Node,
        start: Node,
    ) -> Node {
        let step = match test {
            None => step,
            Some(test) => {
                let same = self.sum(maker);
                self.call(maker, "_?_:_", vec![test, step, same])
            }
        };
        let condition = maker.node(self.at, Kind::Bool(true));
        let result = self.sum(maker);
        let fold = Fold {
            range,
            variable,
            second,
            sum: SUM.into(),
            start,
            condition,
            step,
            result,
        };
        self.fold(maker, fold)
    }

    /// `body` with a name for a value: a fold over nothing.
    fn bound(&self, maker: &mut Maker, name: Arc<str>, value: Node, body: Option<Node>) -> Node {
        let range = maker.node(self.at, Kind::List(Vec::new()));
        let condition = maker.node(self.at, Kind::Bool(false));
        let step = maker.ident(self.at, &name);
        let result = body.unwrap_or_else(|| maker.node(self.at, Kind::Null));
        let fold = Fold {
            range,
            variable: UNUSED.into(),
            second: None,
            sum: name,
            start: value,
            condition,
            step,
            result,
        };
        self.fold(maker, fold)
    }

    fn optional(
        &self,
        maker: &mut Maker,
        target: Node,
        (variable, _): Variables,
        body: Option<Node>,
        wraps: bool,
    ) -> Node {
        let again = copied(maker, &target);
        let value = self.member(maker, "value", again);
        let made = self.bound(maker, variable, value, body);
        let made = if wraps {
            self.call(maker, "optional.of", vec![made])
        } else {
            made
        };
        let there = self.member(maker, "hasValue", target);
        let none = self.call(maker, "optional.none", Vec::new());
        self.call(maker, "_?_:_", vec![there, made, none])
    }

    fn sorted(
        &self,
        maker: &mut Maker,
        target: Node,
        variables: Variables,
        body: Option<Node>,
    ) -> Node {
        let input = maker.ident(self.at, SORTED);
        let keys = self.listed(maker, input, variables, None, body);
        let input = maker.ident(self.at, SORTED);
        let kind = Kind::Call {
            target: Some(Box::new(input)),
            function: "@sortByAssociatedKeys".into(),
            arguments: vec![keys],
        };
        let call = maker.node(self.at, kind);
        self.bound(maker, SORTED.into(), target, Some(call))
    }
}

/// The same once more, with numbers of its own.
fn copied(maker: &mut Maker, node: &Node) -> Node {
    if maker.is_full() {
        return maker.node(node.at, Kind::Null);
    }
    let mut boxed = |node: &Node| Box::new(copied(maker, node));
    let kind = match &node.kind {
        Kind::Select {
            operand,
            field,
            test,
        } => Kind::Select {
            operand: boxed(operand),
            field: field.clone(),
            test: *test,
        },
        Kind::Call {
            target,
            function,
            arguments,
        } => Kind::Call {
            target: target.as_deref().map(&mut boxed),
            function: function.clone(),
            arguments: arguments.iter().map(|one| *boxed(one)).collect(),
        },
        Kind::List(items) => Kind::List(
            items
                .iter()
                .map(|item| Item {
                    node: *boxed(&item.node),
                    optional: item.optional,
                })
                .collect(),
        ),
        Kind::Map(entries) => Kind::Map(
            entries
                .iter()
                .map(|entry| Entry {
                    key: *boxed(&entry.key),
                    value: *boxed(&entry.value),
                    optional: entry.optional,
                })
                .collect(),
        ),
        Kind::Fold(fold) => Kind::Fold(Box::new(Fold {
            range: *boxed(&fold.range),
            variable: fold.variable.clone(),
            second: fold.second.clone(),
            sum: fold.sum.clone(),
            start: *boxed(&fold.start),
            condition: *boxed(&fold.condition),
            step: *boxed(&fold.step),
            result: *boxed(&fold.result),
        })),
        plain => plain.clone(),
    };
    maker.node(node.at, kind)
}
