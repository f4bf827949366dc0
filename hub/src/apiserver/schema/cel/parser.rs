//! Reads an expression. What is no expression at all is left to another reader, which has the
//! reference's words for it.

use super::lexer::{Token, Word, words};
use super::macros;
use super::syntax::{Entry, Fault, Item, Kind, Node, Tree};
use std::sync::Arc;

/// How deep an expression may be; whoever walks over it does so on its stack.
pub(super) const MOST_DEEP: usize = 250;

/// How many nodes it may have. A text has far fewer, but for macros that stand for what they are called
/// on twice: a chain of them doubles with each.
const MOST_NODES: usize = 200_000;

/// Why there is no tree.
#[derive(Debug)]
pub(super) enum Unread {
    /// It is no expression.
    Syntax,
    /// It is deeper than it may be.
    Deep,
    /// It is one, but for this.
    Faults(Vec<Fault>),
}

/// Reads all of a text.
pub(super) fn parse(text: &str) -> Result<Tree, Unread> {
    let tokens = words(text).ok_or(Unread::Syntax)?;
    let mut parser = Parser {
        tokens: &tokens,
        next: 0,
        deep: 0,
        maker: Maker::default(),
    };
    let root = parser.expression()?;
    if parser.word() != &Word::End {
        return Err(Unread::Syntax);
    }
    if !parser.maker.faults.is_empty() {
        return Err(Unread::Faults(parser.maker.faults));
    }
    if parser.maker.is_full() || root.depth() > MOST_DEEP {
        return Err(Unread::Deep);
    }
    Ok(Tree {
        root,
        size: parser.maker.count,
    })
}

/// Makes nodes, and keeps what is wrong with them.
#[derive(Default)]
pub(super) struct Maker {
    count: usize,
    pub(super) faults: Vec<Fault>,
}

impl Maker {
    /// Whether there are as many nodes as there may be.
    pub(super) const fn is_full(&self) -> bool {
        self.count > MOST_NODES
    }

    pub(super) fn node(&mut self, at: usize, kind: Kind) -> Node {
        let id = self.count;
        self.count += 1;
        Node { id, at, kind }
    }

    pub(super) fn call(&mut self, at: usize, function: &str, arguments: Vec<Node>) -> Node {
        let kind = Kind::Call {
            target: None,
            function: function.into(),
            arguments,
        };
        self.node(at, kind)
    }

    pub(super) fn ident(&mut self, at: usize, name: &str) -> Node {
        self.node(at, Kind::Ident(name.into()))
    }

    pub(super) fn fault(&mut self, at: usize, message: &str) -> Node {
        self.faults.push(Fault {
            at,
            message: message.to_owned(),
        });
        self.node(at, Kind::Null)
    }
}

struct Parser<'a> {
    tokens: &'a [Token],
    next: usize,
    deep: usize,
    maker: Maker,
}

type Read = Result<Node, Unread>;

/// Words that are names of fields alone.
pub(super) const RESERVED: [&str; 17] = [
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
/// Words that are never names, not even of fields.
pub(super) const KEYWORDS: [&str; 4] = ["in", "true", "false", "null"];

impl Parser<'_> {
    fn word(&self) -> &Word {
        &self.tokens[self.next].word
    }

    fn at(&self) -> usize {
        self.tokens[self.next].at
    }

    fn is(&self, sign: &str) -> bool {
        matches!(self.word(), Word::Sign(found) if *found == sign)
    }

    /// Passes over a sign, if it is there, and says where it stood.
    fn take(&mut self, sign: &str) -> Option<usize> {
        let at = self.at();
        self.is(sign).then(|| {
            self.next += 1;
            at
        })
    }

    fn want(&mut self, sign: &str) -> Result<usize, Unread> {
        self.take(sign).ok_or(Unread::Syntax)
    }

    fn name(&mut self) -> Result<(usize, Arc<str>), Unread> {
        match self.word() {
            Word::Name(name) if !KEYWORDS.contains(&name.as_ref()) => {
                let found = (self.at(), name.clone());
                self.next += 1;
                Ok(found)
            }
            _ => Err(Unread::Syntax),
        }
    }

    fn expression(&mut self) -> Read {
        self.deep += 1;
        if self.deep > MOST_DEEP {
            return Err(Unread::Deep);
        }
        let first = self.either()?;
        let read = match self.take("?") {
            None => first,
            Some(at) => {
                let yes = self.either()?;
                self.want(":")?;
                let no = self.expression()?;
                self.maker.call(at, "_?_:_", vec![first, yes, no])
            }
        };
        self.deep -= 1;
        Ok(read)
    }

    fn either(&mut self) -> Read {
        let first = self.both()?;
        let mut chain = Chain::new(first);
        while let Some(at) = self.take("||") {
            let term = self.both()?;
            chain.add(at, term);
        }
        Ok(chain.tree("_||_", &mut self.maker))
    }

    fn both(&mut self) -> Read {
        let first = self.relation()?;
        let mut chain = Chain::new(first);
        while let Some(at) = self.take("&&") {
            let term = self.relation()?;
            chain.add(at, term);
        }
        Ok(chain.tree("_&&_", &mut self.maker))
    }

    fn relation(&mut self) -> Read {
        const SIGNS: [(&str, &str); 6] = [
            ("<", "_<_"),
            ("<=", "_<=_"),
            (">=", "_>=_"),
            (">", "_>_"),
            ("==", "_==_"),
            ("!=", "_!=_"),
        ];
        let mut left = self.sum()?;
        loop {
            let at = self.at();
            let function = match self.word() {
                Word::Name(name) if name.as_ref() == "in" => "@in",
                Word::Sign(sign) => match SIGNS.iter().find(|(known, _)| known == sign) {
                    Some((_, function)) => function,
                    None => return Ok(left),
                },
                _ => return Ok(left),
            };
            self.next += 1;
            let right = self.sum()?;
            left = self.maker.call(at, function, vec![left, right]);
        }
    }

    fn sum(&mut self) -> Read {
        let mut left = self.product()?;
        loop {
            let (at, function) = match (self.take("+"), self.at()) {
                (Some(at), _) => (at, "_+_"),
                (None, _) => match self.take("-") {
                    Some(at) => (at, "_-_"),
                    None => return Ok(left),
                },
            };
            let right = self.product()?;
            left = self.maker.call(at, function, vec![left, right]);
        }
    }

    fn product(&mut self) -> Read {
        let mut left = self.unary()?;
        loop {
            let at = self.at();
            let function = match self.word() {
                Word::Sign("*") => "_*_",
                Word::Sign("/") => "_/_",
                Word::Sign("%") => "_%_",
                _ => return Ok(left),
            };
            self.next += 1;
            let right = self.unary()?;
            left = self.maker.call(at, function, vec![left, right]);
        }
    }

    fn unary(&mut self) -> Read {
        for (sign, function) in [("!", "!_"), ("-", "-_")] {
            let signed_number = sign == "-"
                && matches!(
                    self.tokens.get(self.next + 1).map(|token| &token.word),
                    Some(Word::Int(_) | Word::Double(_))
                );
            if !self.is(sign) || signed_number {
                continue;
            }
            let first = self.at();
            let mut count = 0;
            while self.take(sign).is_some() {
                count += 1;
            }
            let operand = self.member()?;
            return Ok(if count % 2 == 0 {
                operand
            } else {
                self.maker.call(first, function, vec![operand])
            });
        }
        self.member()
    }

    fn member(&mut self) -> Read {
        let mut node = self.primary()?;
        loop {
            if let Some(dot) = self.take(".") {
                let optional = self.take("?").is_some();
                let (at, field) = self.name()?;
                if optional {
                    let name = self.maker.node(at, Kind::Text(field));
                    node = self.maker.call(dot, "_?._", vec![node, name]);
                } else if let Some(open) = self.take("(") {
                    let arguments = self.arguments()?;
                    node = self.invoked(open, Some(node), field, arguments);
                } else {
                    let kind = Kind::Select {
                        operand: Box::new(node),
                        field,
                        test: false,
                    };
                    node = self.maker.node(dot, kind);
                }
            } else if let Some(open) = self.take("[") {
                let function = match self.take("?") {
                    Some(_) => "_[?_]",
                    None => "_[_]",
                };
                let index = self.expression()?;
                self.want("]")?;
                node = self.maker.call(open, function, vec![node, index]);
            } else {
                return Ok(node);
            }
        }
    }

    fn invoked(
        &mut self,
        at: usize,
        target: Option<Node>,
        function: Arc<str>,
        arguments: Vec<Node>,
    ) -> Node {
        match macros::expanded(&mut self.maker, at, target, &function, arguments) {
            Ok(node) => node,
            Err((target, arguments)) => {
                let kind = Kind::Call {
                    target: target.map(Box::new),
                    function,
                    arguments,
                };
                self.maker.node(at, kind)
            }
        }
    }

    fn arguments(&mut self) -> Result<Vec<Node>, Unread> {
        let mut all = Vec::new();
        if self.take(")").is_some() {
            return Ok(all);
        }
        loop {
            all.push(self.expression()?);
            if self.take(",").is_none() {
                self.want(")")?;
                return Ok(all);
            }
        }
    }

    fn primary(&mut self) -> Read {
        let at = self.at();
        let negative = self.take("-").is_some();
        let word = self.word().clone();
        let number = |parsed: Option<Kind>, what: &str, maker: &mut Maker| match parsed {
            Some(kind) => maker.node(at, kind),
            None => maker.fault(at, &format!("invalid {what} literal")),
        };
        let sign = if negative { "-" } else { "" };
        match word {
            Word::Int(digits) => {
                self.next += 1;
                let (radix, digits) = based(&digits);
                let parsed = i64::from_str_radix(&format!("{sign}{digits}"), radix).ok();
                Ok(number(parsed.map(Kind::Int), "int", &mut self.maker))
            }
            Word::Double(digits) => {
                self.next += 1;
                let parsed = format!("{sign}{digits}").parse().ok();
                let parsed = parsed.filter(|number: &f64| number.is_finite());
                Ok(number(parsed.map(Kind::Double), "double", &mut self.maker))
            }
            _ if negative => Err(Unread::Syntax),
            Word::Uint(digits) => {
                self.next += 1;
                let (radix, digits) = based(&digits);
                let parsed = u64::from_str_radix(digits, radix).ok();
                Ok(number(parsed.map(Kind::Uint), "uint", &mut self.maker))
            }
            Word::Text(text) => {
                self.next += 1;
                Ok(self.maker.node(at, Kind::Text(text)))
            }
            Word::Bytes(bytes) => {
                self.next += 1;
                Ok(self.maker.node(at, Kind::Bytes(bytes)))
            }
            Word::Sign("(") => {
                self.next += 1;
                let inner = self.expression()?;
                self.want(")")?;
                Ok(inner)
            }
            Word::Sign("[") => self.list(),
            Word::Sign("{") => self.map(),
            Word::Name(name) => {
                let literal = match name.as_ref() {
                    "true" => Kind::Bool(true),
                    "false" => Kind::Bool(false),
                    "null" => Kind::Null,
                    _ => return self.named(at, false),
                };
                self.next += 1;
                Ok(self.maker.node(at, literal))
            }
            Word::Sign(".") => {
                self.next += 1;
                self.named(at, true)
            }
            Word::Sign(_) | Word::End => Err(Unread::Syntax),
        }
    }

    /// A variable, a function that is called, or a message that is made.
    fn named(&mut self, begin: usize, rooted: bool) -> Read {
        if let Some(name) = self.message()? {
            return Ok(name);
        }
        let (at, name) = self.name()?;
        let reserved = RESERVED.contains(&name.as_ref());
        let full: Arc<str> = if rooted {
            format!(".{name}").into()
        } else {
            name.clone()
        };
        let node = match self.take("(") {
            Some(open) => {
                let arguments = self.arguments()?;
                (!reserved).then(|| self.invoked(open, None, full, arguments))
            }
            None => (!reserved).then(|| self.maker.node(at, Kind::Ident(full))),
        };
        Ok(node.unwrap_or_else(|| {
            self.maker
                .fault(begin, &format!("reserved identifier: {name}"))
        }))
    }

    fn message(&mut self) -> Result<Option<Node>, Unread> {
        let mut ahead = self.next;
        let mut parts = Vec::new();
        while let Some(Word::Name(name)) = self.tokens.get(ahead).map(|token| &token.word) {
            parts.push(name.as_ref());
            let dotted =
                matches!(self.tokens.get(ahead + 1), Some(token) if token.word == Word::Sign("."));
            ahead += 1 + usize::from(dotted);
            if !dotted {
                break;
            }
        }
        let opens = self.tokens.get(ahead).map(|token| &token.word) == Some(&Word::Sign("{"));
        if parts.is_empty() || !opens {
            return Ok(None);
        }
        let name = parts.join(".");
        self.next = ahead;
        let open = self.want("{")?;
        while self.take("}").is_none() {
            self.take("?");
            self.name()?;
            self.want(":")?;
            self.expression()?;
            if self.take(",").is_none() {
                self.want("}")?;
                break;
            }
        }
        Ok(Some(self.maker.node(open, Kind::Message(name.into()))))
    }

    fn list(&mut self) -> Read {
        let open = self.want("[")?;
        let mut items = Vec::new();
        while self.take("]").is_none() {
            let optional = self.take("?").is_some();
            let node = self.expression()?;
            items.push(Item { node, optional });
            if self.take(",").is_none() {
                self.want("]")?;
                break;
            }
        }
        Ok(self.maker.node(open, Kind::List(items)))
    }

    fn map(&mut self) -> Read {
        let open = self.want("{")?;
        let mut entries = Vec::new();
        while self.take("}").is_none() {
            let optional = self.take("?").is_some();
            let key = self.expression()?;
            self.want(":")?;
            let value = self.expression()?;
            entries.push(Entry {
                key,
                value,
                optional,
            });
            if self.take(",").is_none() {
                self.want("}")?;
                break;
            }
        }
        Ok(self.maker.node(open, Kind::Map(entries)))
    }
}

fn based(digits: &str) -> (u32, &str) {
    match digits.strip_prefix("0x") {
        Some(digits) => (16, digits),
        None => (10, digits),
    }
}

/// Terms of `&&` or `||`, which make a tree that is no deeper than it must be.
struct Chain {
    terms: Vec<Option<Node>>,
    signs: Vec<usize>,
}

impl Chain {
    fn new(first: Node) -> Self {
        Self {
            terms: vec![Some(first)],
            signs: Vec::new(),
        }
    }

    fn add(&mut self, at: usize, term: Node) {
        self.signs.push(at);
        self.terms.push(Some(term));
    }

    fn tree(mut self, function: &str, maker: &mut Maker) -> Node {
        self.part(0, self.signs.len(), function, maker)
    }

    /// Of the signs from `low` up to `high`, and the terms around them.
    fn part(&mut self, low: usize, high: usize, function: &str, maker: &mut Maker) -> Node {
        if low == high {
            let term = self.terms[low].take();
            return term.unwrap_or_else(|| maker.node(0, Kind::Null));
        }
        let middle = (low + high) / 2;
        let left = self.part(low, middle, function, maker);
        let right = self.part(middle + 1, high, function, maker);
        maker.call(self.signs[middle], function, vec![left, right])
    }
}
