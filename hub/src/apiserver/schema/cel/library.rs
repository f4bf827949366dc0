//! Which functions rules have, and what they take and give.

use super::types::Type;
use std::collections::HashMap;
use std::sync::OnceLock;

/// One form of a function.
#[derive(Debug, Clone)]
pub(super) struct Form {
    /// Its name, unlike that of every other form.
    pub(super) id: &'static str,
    /// Whether it is called on its first argument.
    pub(super) member: bool,
    pub(super) takes: Vec<Type>,
    pub(super) gives: Type,
}

/// The forms of a function; nothing if there is no such function.
pub(super) fn forms(name: &str) -> Option<&'static [Form]> {
    static ALL: OnceLock<HashMap<&'static str, Vec<Form>>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        let mut all: HashMap<_, Vec<_>> = HashMap::new();
        let lines = include_str!("functions.txt").lines();
        for line in lines.filter(|line| !line.starts_with('#')) {
            let (name, form) = read(line);
            all.entry(name).or_default().push(form);
        }
        all
    });
    let name = name.strip_prefix('.').unwrap_or(name);
    all.get(name).map(Vec::as_slice)
}

/// The type that a name stands for, as in `type(x) == string`.
pub(super) fn named(name: &str) -> Option<Type> {
    let name = name.strip_prefix('.').unwrap_or(name);
    let of = match name {
        "bool" | "bytes" | "double" | "int" | "string" | "uint" | "duration" | "timestamp" => {
            plain(name)
        }
        "google.protobuf.Duration" => Type::Duration,
        "google.protobuf.Timestamp" => Type::Timestamp,
        "list" => Type::list(free("A")),
        "map" => Type::map(free("A"), free("B")),
        "null_type" => Type::Null,
        "optional_type" => Type::optional(free("V")),
        "type" => Type::of_type(Type::Dyn),
        "net.IP" => plain("ip"),
        "net.CIDR" => plain("cidr"),
        "kubernetes.Quantity" => plain("quantity"),
        "kubernetes.URL" => plain("url"),
        "kubernetes.Semver" => plain("semver"),
        "kubernetes.NamedFormat" => plain("format"),
        _ => return None,
    };
    Some(Type::of_type(of))
}

fn free(name: &str) -> Type {
    Type::Free(name.into())
}

/// `name id takes gives`, where what it takes may have blanks.
fn read(line: &'static str) -> (&'static str, Form) {
    let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
    let (id, signature) = rest.split_once(' ').unwrap_or((rest, ""));
    // The last pair of brackets that stands by itself has the arguments.
    let open = match signature.find(".(") {
        Some(dot) => dot + 1,
        None => 0,
    };
    let mut reader = Reader {
        text: signature.as_bytes(),
        at: 0,
    };
    let member = open > 0;
    let mut takes = Vec::new();
    if member {
        takes.push(reader.one());
        reader.at = open;
    }
    reader.at += 1;
    while reader.peek() != b')' {
        takes.push(reader.one());
        reader.skip(b", ");
    }
    reader.skip(b") ");
    let gives = reader.one();
    let form = Form {
        id,
        member,
        takes,
        gives,
    };
    (name, form)
}

struct Reader {
    text: &'static [u8],
    at: usize,
}

impl Reader {
    fn peek(&self) -> u8 {
        self.text.get(self.at).copied().unwrap_or(b')')
    }

    fn skip(&mut self, any: &[u8]) {
        while self.at < self.text.len() && any.contains(&self.peek()) {
            self.at += 1;
        }
    }

    fn one(&mut self) -> Type {
        let from = self.at;
        while self.peek().is_ascii_alphanumeric() {
            self.at += 1;
        }
        let word = String::from_utf8_lossy(&self.text[from..self.at]).into_owned();
        let mut of = Vec::new();
        if self.at < self.text.len() && self.peek() == b'(' {
            self.at += 1;
            while self.peek() != b')' {
                of.push(self.one());
                self.skip(b", ");
            }
            self.at += 1;
        }
        let mut of = of.into_iter();
        match (word.as_str(), of.next(), of.next()) {
            ("list", Some(of), None) => Type::list(of),
            ("map", Some(key), Some(value)) => Type::map(key, value),
            ("optional", Some(of), None) => Type::optional(of),
            ("type", Some(of), None) => Type::of_type(of),
            (word, ..) => plain(word),
        }
    }
}

fn plain(word: &str) -> Type {
    let object = |name: &str| Type::Object(name.into());
    match word {
        "bool" => Type::Bool,
        "bytes" => Type::Bytes,
        "double" => Type::Double,
        "duration" => Type::Duration,
        "dyn" => Type::Dyn,
        "int" => Type::Int,
        "string" => Type::Text,
        "timestamp" => Type::Timestamp,
        "uint" => Type::Uint,
        "ip" => Type::Opaque("net.IP".into(), Vec::new()),
        "cidr" => Type::Opaque("net.CIDR".into(), Vec::new()),
        "quantity" => object("kubernetes.Quantity"),
        "url" => object("kubernetes.URL"),
        "semver" => object("kubernetes.Semver"),
        "format" => object("kubernetes.NamedFormat"),
        "authorizer" => object("kubernetes.authorization.Authorizer"),
        "pathcheck" => object("kubernetes.authorization.PathCheck"),
        "groupcheck" => object("kubernetes.authorization.GroupCheck"),
        "resourcecheck" => object("kubernetes.authorization.ResourceCheck"),
        "decision" => object("kubernetes.authorization.Decision"),
        other => free(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_read_as_they_are_written() {
        let shown = |name: &str| -> Vec<String> {
            let forms = forms(name).unwrap_or_default();
            let one = |form: &Form| {
                let takes: Vec<String> = form.takes.iter().map(ToString::to_string).collect();
                format!(
                    "{} {} [{}] {}",
                    form.id,
                    form.member,
                    takes.join("; "),
                    form.gives
                )
            };
            forms.iter().map(one).collect()
        };
        assert_eq!(
            shown("orValue"),
            ["optional_orValue_value true [optional_type(A); A] A"]
        );
        assert_eq!(
            shown("getQuery"),
            ["url_get_query true [kubernetes.URL] map(string, list(string))"]
        );
        assert_eq!(shown("@in")[1], "in_map false [A; map(A, B)] bool");
        assert_eq!(
            shown("optional.none"),
            ["optional_none false [] optional_type(A)"]
        );
        assert!(forms("nothing").is_none());
        for line in include_str!("functions.txt").lines().skip(2) {
            let name = line.split(' ').next().expect("a name");
            for form in forms(name).expect(name) {
                let known = |of: &Type| !format!("{of}").chars().any(|c| c == '!');
                assert!(known(&form.gives) && form.takes.iter().all(known), "{line}");
                let free = |of: &Type| match of {
                    Type::Free(name) => matches!(name.as_ref(), "A" | "B"),
                    _ => true,
                };
                assert!(free(&form.gives) && form.takes.iter().all(free), "{line}");
            }
        }
    }
}
