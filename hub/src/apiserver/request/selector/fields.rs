//! `fieldSelector`.

/// What some fields of an object must be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSelector(Vec<Term>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Term {
    field: String,
    value: String,
    equal: bool,
}

impl FieldSelector {
    /// Reads a selector; the error is a sentence of the real server.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut terms = Vec::new();
        for part in split(text) {
            if part.is_empty() {
                continue;
            }
            let (field, operator, value) = term(part)
                .ok_or_else(|| format!("invalid selector: '{text}'; can't understand '{part}'"))?;
            terms.push(Term {
                field: field.to_owned(),
                value: unescape(value)?,
                equal: operator != "!=",
            });
        }
        Ok(Self(terms))
    }

    /// Whether everything is selected.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The fields that it names.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|term| term.field.as_str())
    }

    /// The only value of `field` that can be selected, if there is one.
    pub fn exact(&self, field: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|term| term.equal && term.field == field)
            .map(|term| term.value.as_str())
    }

    /// Whether an object with these fields is selected; a field that it does not have is empty.
    pub fn matches(&self, field: impl Fn(&str) -> String) -> bool {
        self.0
            .iter()
            .all(|term| (field(&term.field) == term.value) == term.equal)
    }
}

/// At commas that are not escaped.
fn split(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                parts.push(text.get(start..at).unwrap_or_default());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text.get(start..).unwrap_or_default());
    parts
}

fn term(part: &str) -> Option<(&str, &str, &str)> {
    for (at, _) in part.char_indices() {
        let rest = part.get(at..)?;
        for operator in ["!=", "==", "="] {
            if let Some(value) = rest.strip_prefix(operator) {
                return Some((part.get(..at)?, operator, value));
            }
        }
    }
    None
}

fn unescape(text: &str) -> Result<String, String> {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(next @ ('\\' | ',' | '=')) => plain.push(next),
                Some(next) => {
                    return Err(format!(
                        "invalid field selector: invalid escape sequence: \\{next}"
                    ));
                }
                None => {
                    return Err("invalid field selector: invalid escape sequence: \\".to_owned());
                }
            },
            ',' | '=' => {
                // The real server names the character by its number.
                return Err(format!(
                    "invalid field selector: unescaped character in value: {}",
                    u32::from(c)
                ));
            }
            _ => plain.push(c),
        }
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selects(selector: &str) -> bool {
        FieldSelector::parse(selector)
            .expect("a selector")
            .matches(|field| match field {
                "metadata.name" => "a,b".to_owned(),
                "type" => "Opaque".to_owned(),
                _ => String::new(),
            })
    }

    #[test]
    fn selectors_select() {
        assert!(selects("") && selects("metadata.name=a\\,b,type!=x") && selects("none="));
        assert!(selects("type==Opaque") && !selects("type!=Opaque"));
        assert!(!selects("metadata.name=a") && !selects("none=1"));
    }

    #[test]
    fn what_is_wrong_is_said() {
        assert_eq!(
            FieldSelector::parse("a=1,b"),
            Err("invalid selector: 'a=1,b'; can't understand 'b'".to_owned())
        );
        assert!(FieldSelector::parse("a=\\x").is_err());
        assert!(FieldSelector::parse("a=b=c").is_err());
        assert_eq!(
            FieldSelector::parse("metadata.name=x,a!=b")
                .map(|it| it.exact("metadata.name").map(str::to_owned)),
            Ok(Some("x".to_owned()))
        );
    }
}
