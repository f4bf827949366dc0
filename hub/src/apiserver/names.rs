//! What names, labels and annotation keys may look like, in the words of the real server.

const ALNUM_MESSAGE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const QUALIFIED: &str = "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

/// How the objects of a kind may be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameRule {
    /// Dotted lower case words.
    Subdomain,
    /// One lower case word of at most 63 bytes.
    Label,
    /// Anything that can stand between two slashes.
    PathSegment,
}

impl NameRule {
    /// What is wrong with `name`; with `prefix` it is the beginning of a name to be generated.
    pub(crate) fn check(self, name: &str, prefix: bool) -> Vec<String> {
        match self {
            Self::PathSegment => path_segment(name, prefix),
            Self::Subdomain => subdomain(&masked(name, prefix)),
            Self::Label => label(&masked(name, prefix)),
        }
    }
}

/// A prefix may end in a dash, which the generated suffix follows.
fn masked(name: &str, prefix: bool) -> String {
    match name.strip_suffix('-') {
        Some(rest) if prefix && !rest.is_empty() => {
            let mut kept: String = rest.to_owned();
            kept.pop();
            kept.push('a');
            kept
        }
        _ => name.to_owned(),
    }
}

fn too_long(max: usize) -> String {
    format!("must be no more than {max} bytes")
}

/// Names are counted in other words than labels.
fn name_too_long(max: usize) -> String {
    format!("must be no more than {max} characters")
}

fn lower_alnum(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

fn is_label(text: &str) -> bool {
    let bytes = text.as_bytes();
    matches!((bytes.first(), bytes.last()), (Some(first), Some(last)) if lower_alnum(*first) && lower_alnum(*last))
        && bytes.iter().all(|byte| lower_alnum(*byte) || *byte == b'-')
}

fn is_name_part(text: &str) -> bool {
    let bytes = text.as_bytes();
    matches!((bytes.first(), bytes.last()), (Some(first), Some(last)) if first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric())
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

/// What is wrong with a dotted lower case name.
pub(crate) fn subdomain(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.len() > 253 {
        wrong.push(name_too_long(253));
    }
    if !text.split('.').all(is_label) {
        wrong.push(SUBDOMAIN.to_owned());
    }
    wrong
}

/// What is wrong with one lower case word.
pub(crate) fn label(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.len() > 63 {
        wrong.push(name_too_long(63));
    }
    if text.contains('.') {
        wrong.push("must not contain dots".to_owned());
    } else if !is_label(text) {
        wrong.push(LABEL.to_owned());
    }
    wrong
}

pub(crate) fn label_1035(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.len() > 63 {
        wrong.push(name_too_long(63));
    }
    if !is_label(text) || !text.starts_with(|first: char| first.is_ascii_lowercase()) {
        wrong.push(LABEL_1035.to_owned());
    }
    wrong
}

fn path_segment(text: &str, prefix: bool) -> Vec<String> {
    if !prefix && (text == "." || text == "..") {
        return vec![format!("may not be '{text}'")];
    }
    ['/', '%']
        .into_iter()
        .filter(|bad| text.contains(*bad))
        .map(|bad| format!("may not contain '{bad}'"))
        .collect()
}

/// What is wrong with a key of labels, annotations, finalizers.
pub(crate) fn qualified(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let parts: Vec<&str> = text.split('/').collect();
    let name = match parts.as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                wrong.push("prefix part must be non-empty".to_owned());
            } else {
                wrong.extend(
                    subdomain(prefix)
                        .into_iter()
                        .map(|why| format!("prefix part {why}")),
                );
            }
            *name
        }
        _ => {
            wrong.push(format!(
                "a valid label key {ALNUM_MESSAGE} {QUALIFIED} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ));
            return wrong;
        }
    };
    if name.is_empty() {
        wrong.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        wrong.push(format!("name part {}", too_long(63)));
    }
    if !is_name_part(name) {
        wrong.push(format!("name part {ALNUM_MESSAGE} {QUALIFIED}"));
    }
    wrong
}

/// What is wrong with the value of a label.
pub(crate) fn label_value(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.len() > 63 {
        wrong.push(too_long(63));
    }
    if !text.is_empty() && !is_name_part(text) {
        wrong.push(LABEL_VALUE.to_owned());
    }
    wrong
}

/// What is wrong with a key of a ConfigMap or a Secret.
pub(crate) fn config_key(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.len() > 253 {
        wrong.push(too_long(253));
    }
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if text.is_empty() || !text.bytes().all(legal) {
        wrong.push("a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')".to_owned());
    }
    match text {
        "." => wrong.push("must not be '.'".to_owned()),
        ".." => wrong.push("must not be '..'".to_owned()),
        _ if text.starts_with("..") => wrong.push("must not start with '..'".to_owned()),
        _ => {}
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_by_rule() {
        use NameRule::{Label, PathSegment, Subdomain};
        let cases = [
            (Subdomain, "a.b-c.d0", false, true),
            (Subdomain, "A", false, false),
            (Subdomain, "a..b", false, false),
            (Subdomain, "", false, false),
            (Subdomain, "abc-", true, true),
            (Subdomain, "abc-", false, false),
            (Subdomain, "-", true, false),
            (Label, "a.b", false, false),
            (Label, "0a", false, true),
            (PathSegment, "system:node/x", false, false),
            (PathSegment, "system:node:X", false, true),
            (PathSegment, "..", false, false),
            (PathSegment, "..", true, true),
            (PathSegment, "a%b", false, false),
        ];
        for (rule, name, prefix, good) in cases {
            let wrong = rule.check(name, prefix);
            assert_eq!(wrong.is_empty(), good, "{rule:?} {name}: {wrong:?}");
        }
        assert_eq!(Label.check(&"a".repeat(64), false).len(), 1);
    }

    #[test]
    fn keys_and_values() {
        let good = ["a", "a/b", "example.com/My_name.x", "0"];
        let bad = ["", "/a", "a/", "a/b/c", "-a", "EX/a", "a b"];
        for key in good {
            assert_eq!(qualified(key), Vec::<String>::new(), "{key}");
        }
        for key in bad {
            assert!(!qualified(key).is_empty(), "{key}");
        }
        assert!(label_value("").is_empty() && label_value("a_B.c").is_empty());
        assert!(!label_value("a b").is_empty() && !label_value(&"a".repeat(64)).is_empty());
        assert!(config_key(".a_B-c").is_empty());
        assert!(!config_key("..a").is_empty() && !config_key("a/b").is_empty());
    }
}
