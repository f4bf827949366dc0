//! `labelSelector`.

use super::lexer::{Token, scan};
use crate::apiserver::error::FieldError;
use crate::apiserver::names;
use crate::apiserver::value::{list, text, texts};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// What the labels of an object must be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelSelector(Vec<Requirement>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Test {
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    Exists,
    Absent,
    Greater(i64),
    Less(i64),
}

impl LabelSelector {
    /// Reads a selector; the error is a sentence of the real server.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parser = Parser {
            words: scan(text),
            at: 0,
        };
        parser.parse().map(Self)
    }

    /// From a `LabelSelector` object, as it stands in specs.
    pub fn of_object(selector: &Value) -> Result<Self, String> {
        let mut terms: Vec<String> = Vec::new();
        let equal = selector["matchLabels"].as_object();
        for (key, value) in equal.into_iter().flatten() {
            terms.push(format!("{key}={}", value.as_str().unwrap_or_default()));
        }
        for term in list(selector, &["matchExpressions"]) {
            let key = text(term, &["key"]);
            let values = texts(term, &["values"]).join(",");
            terms.push(match text(term, &["operator"]) {
                "In" => format!("{key} in ({values})"),
                "NotIn" => format!("{key} notin ({values})"),
                "Exists" => key.to_owned(),
                "DoesNotExist" => format!("!{key}"),
                other => return Err(format!("{other:?} is not a valid label selector operator")),
            });
        }
        Self::parse(&terms.join(","))
    }

    /// Whether everything is selected.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an object with these labels is selected.
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.iter().all(|requirement| {
            let value = label(&requirement.key);
            match (&requirement.test, value) {
                (Test::In(set), Some(value)) => set.contains(value),
                (Test::NotIn(set), Some(value)) => !set.contains(value),
                (Test::Exists, value) => value.is_some(),
                (Test::Absent, value) => value.is_none(),
                (Test::NotIn(_), None) => true,
                (Test::In(_), None) => false,
                (Test::Greater(than), value) => number(value).is_some_and(|it| it > *than),
                (Test::Less(than), value) => number(value).is_some_and(|it| it < *than),
            }
        })
    }
}

fn number(value: Option<&str>) -> Option<i64> {
    value.and_then(|text| text.parse().ok())
}

struct Parser {
    words: Vec<(Token, String)>,
    at: usize,
}

impl Parser {
    fn peek(&self, values: bool) -> (Token, String) {
        let (token, text) = self
            .words
            .get(self.at)
            .cloned()
            .unwrap_or((Token::End, String::new()));
        match token {
            Token::In | Token::NotIn if values => (Token::Identifier, text),
            _ => (token, text),
        }
    }

    fn next(&mut self, values: bool) -> (Token, String) {
        let word = self.peek(values);
        self.at += 1;
        word
    }

    fn parse(&mut self) -> Result<Vec<Requirement>, String> {
        let mut all = Vec::new();
        loop {
            let (token, text) = self.peek(true);
            match token {
                Token::Identifier | Token::Not => {
                    let one = self
                        .requirement()
                        .map_err(|why| format!("unable to parse requirement: {why}"))?;
                    all.push(one);
                    let (token, text) = self.next(true);
                    match token {
                        Token::End => return Ok(all),
                        Token::Comma => {
                            let (token, text) = self.peek(true);
                            if !matches!(token, Token::Identifier | Token::Not) {
                                return Err(format!(
                                    "found '{text}', expected: identifier after ','"
                                ));
                            }
                        }
                        _ => {
                            return Err(format!(
                                "found '{text}', expected: ',' or 'end of string'"
                            ));
                        }
                    }
                }
                Token::End => return Ok(all),
                _ => {
                    return Err(format!(
                        "found '{text}', expected: !, identifier, or 'end of string'"
                    ));
                }
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let (mut token, mut key) = self.next(true);
        let absent = token == Token::Not;
        if absent {
            (token, key) = self.next(true);
        }
        if token != Token::Identifier {
            return Err(format!("found '{key}', expected: identifier"));
        }
        let wrong = names::qualified(&key);
        if !wrong.is_empty() {
            return Err(FieldError::invalid("<nil>", json!(key), wrong.join("; ")).to_string());
        }
        if absent {
            return Ok(Requirement {
                key,
                test: Test::Absent,
            });
        }
        if matches!(self.peek(true).0, Token::End | Token::Comma) {
            return Ok(Requirement {
                key,
                test: Test::Exists,
            });
        }
        let (operator, text) = self.next(false);
        let values = match operator {
            Token::In | Token::NotIn => self.values()?,
            Token::Equals
            | Token::DoubleEquals
            | Token::NotEquals
            | Token::Greater
            | Token::Less => self.value()?,
            _ => {
                return Err(format!(
                    "found '{text}', expected: in, notin, =, ==, !=, gt, lt"
                ));
            }
        };
        let test = test(&key, operator, values)?;
        Ok(Requirement { key, test })
    }

    fn value(&mut self) -> Result<BTreeSet<String>, String> {
        if matches!(self.peek(true).0, Token::End | Token::Comma) {
            return Ok(BTreeSet::from([String::new()]));
        }
        match self.next(true) {
            (Token::Identifier, text) => Ok(BTreeSet::from([text])),
            (_, text) => Err(format!("found '{text}', expected: identifier")),
        }
    }

    fn values(&mut self) -> Result<BTreeSet<String>, String> {
        let (token, text) = self.next(true);
        if token != Token::Open {
            return Err(format!("found '{text}' expected: '('"));
        }
        let (token, text) = self.peek(true);
        match token {
            Token::Identifier | Token::Comma => {
                let set = self.identifiers()?;
                if self.next(true).0 != Token::Close {
                    return Err(format!("found '{text}', expected: ')'"));
                }
                Ok(set)
            }
            Token::Close => {
                self.at += 1;
                Ok(BTreeSet::from([String::new()]))
            }
            _ => Err(format!("found '{text}', expected: ',', ')' or identifier")),
        }
    }

    fn identifiers(&mut self) -> Result<BTreeSet<String>, String> {
        let mut set = BTreeSet::new();
        loop {
            let (token, text) = self.next(true);
            match token {
                Token::Identifier => {
                    set.insert(text);
                    let (token, text) = self.peek(true);
                    match token {
                        Token::Comma => {}
                        Token::Close => return Ok(set),
                        _ => return Err(format!("found '{text}', expected: ',' or ')'")),
                    }
                }
                Token::Comma => {
                    if set.is_empty() {
                        set.insert(String::new());
                    }
                    match self.peek(true).0 {
                        Token::Close => {
                            set.insert(String::new());
                            return Ok(set);
                        }
                        Token::Comma => {
                            self.at += 1;
                            set.insert(String::new());
                        }
                        _ => {}
                    }
                }
                _ => return Err(format!("found '{text}', expected: ',', or identifier")),
            }
        }
    }
}

fn test(key: &str, operator: Token, values: BTreeSet<String>) -> Result<Test, String> {
    for (index, value) in values.iter().enumerate() {
        let wrong = names::label_value(value);
        if !wrong.is_empty() {
            let path = format!("values[{index}][{key}]");
            return Err(FieldError::invalid(path, json!(value), wrong.join("; ")).to_string());
        }
    }
    let bound = |values: &BTreeSet<String>| {
        let text = values.first().cloned().unwrap_or_default();
        text.parse::<i64>().map_err(|_| {
            FieldError::invalid(
                "values[0]",
                json!(text),
                "for 'Gt', 'Lt' operators, the value must be an integer",
            )
            .to_string()
        })
    };
    Ok(match operator {
        Token::NotIn | Token::NotEquals => Test::NotIn(values),
        Token::Greater => Test::Greater(bound(&values)?),
        Token::Less => Test::Less(bound(&values)?),
        _ => Test::In(values),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn selects(selector: &str, labels: &[(&str, &str)]) -> bool {
        let labels: BTreeMap<&str, &str> = labels.iter().copied().collect();
        LabelSelector::parse(selector)
            .expect("a selector")
            .matches(|key| labels.get(key).copied())
    }

    #[test]
    fn selectors_select() {
        let labels = [("a", "1"), ("tier", "web"), ("in", "x")];
        let cases = [
            ("", true),
            ("a=1", true),
            ("a==1,tier=web", true),
            ("a!=1", false),
            ("b!=1", true),
            ("a in (1, 2)", true),
            ("a in (2)", false),
            ("a in ()", false),
            ("a notin (2,3)", true),
            ("b notin (2)", true),
            ("a", true),
            ("!a", false),
            ("!b", true),
            ("a>0", true),
            ("a<1", false),
            ("tier>0", false),
            ("in in (x)", true),
            ("in=x", true),
            ("b=", false),
            ("a in (,1)", true),
        ];
        for (selector, expected) in cases {
            assert_eq!(selects(selector, &labels), expected, "{selector}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let cases = [
            ("a=1,", "found '', expected: identifier after ','"),
            (
                ",",
                "found ',', expected: !, identifier, or 'end of string'",
            ),
            (
                "a in 1",
                "unable to parse requirement: found '1' expected: '('",
            ),
            (
                "a b",
                "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
            ),
            ("a=1 b=2", "found 'b', expected: ',' or 'end of string'"),
            (
                "!",
                "unable to parse requirement: found '', expected: identifier",
            ),
            (
                "a>x",
                "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer",
            ),
        ];
        for (selector, message) in cases {
            assert_eq!(LabelSelector::parse(selector), Err(message.to_owned()));
        }
        for bad in ["a/b/c=1", "a=b/c", "a in (x", "a in (x y)", "a,,b"] {
            assert!(LabelSelector::parse(bad).is_err(), "{bad}");
        }
    }
}
