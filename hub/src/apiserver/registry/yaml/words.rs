//! What Go says where there is no YAML, and what stands before and around words.

use super::MOST_TOLD;

/// Why a text is not YAML, in Go's words: the problem alone, and the line it is in.
pub(super) fn words(why: &serde_yaml::Error, bytes: &[u8]) -> String {
    let text = why.to_string();
    let (problem, rest) = match text.split_once(" at line ") {
        Some((problem, rest)) => (problem, rest),
        None => (text.split(", while ").next().unwrap_or(&text), ""),
    };
    let problem = problem.split(" at position ").next().unwrap_or(problem);
    match problem {
        "unknown anchor" => {
            let start = why.location().map_or(0, |at| at.index());
            let name = alias(bytes.get(start..).unwrap_or_default());
            return format!("yaml: unknown anchor '{name}' referenced");
        }
        "recursion limit exceeded" => {
            if let Some(name) = endless(bytes) {
                return format!("yaml: anchor '{name}' value contains itself");
            }
        }
        _ => {}
    }
    let digits = rest.split(' ').next().unwrap_or_default();
    // Go counts lines from nothing, does not tell that of the first, and adds one for what is wrong
    // with a single word.
    let line = digits.parse::<usize>().unwrap_or(1).saturating_sub(1);
    let of_words = rest.contains("while scanning")
        || rest.contains("while parsing a quoted scalar")
        || problem.contains("not allowed in this context")
        || problem.contains("cannot start any token");
    match line {
        0 => format!("yaml: {problem}"),
        line => format!("yaml: line {}: {problem}", line + usize::from(of_words)),
    }
}

/// The name of an anchor, or of what refers to it, behind its sign.
fn alias(text: &[u8]) -> String {
    let name = text.get(1..).unwrap_or_default();
    let end = name
        .iter()
        .position(|byte| !byte.is_ascii_alphanumeric() && !matches!(byte, b'_' | b'-'));
    let name = end.and_then(|end| name.get(..end)).unwrap_or(name);
    String::from_utf8_lossy(name).into_owned()
}

/// The first anchor that something behind it refers to.
fn endless(bytes: &[u8]) -> Option<String> {
    let mut anchors = Vec::new();
    for (at, byte) in bytes.iter().enumerate() {
        let rest = bytes.get(at..).unwrap_or_default();
        match byte {
            b'&' if anchors.len() < MOST_TOLD => anchors.push(alias(rest)),
            b'*' if anchors.contains(&alias(rest)) => return Some(alias(rest)),
            _ => {}
        }
    }
    None
}

/// The tag that stands at the end of a text, nothing if there is none.
pub(super) fn tag(before: &[u8]) -> &[u8] {
    let before = before.trim_ascii_end();
    let start = before
        .iter()
        .rposition(|byte| byte.is_ascii_whitespace() || matches!(byte, b'[' | b'{' | b','));
    let word = before.get(start.map_or(0, |at| at + 1)..);
    word.filter(|word| word.starts_with(b"!!"))
        .unwrap_or_default()
}

/// The number of the last line that begins with a key.
pub(super) fn last_line(text: &str, key: &str) -> usize {
    let begins = |line: &str| {
        let rest = line.trim_start().trim_start_matches("- ").strip_prefix(key);
        rest.is_some_and(|rest| rest.trim_start().starts_with(':'))
    };
    let lines = text.lines().enumerate();
    lines
        .filter(|(_, line)| begins(line))
        .last()
        .map_or(1, |(index, _)| index + 1)
}
