//! Commands that mend. Pure.

use super::Mend;
use crate::propagation::PolicyName;
use serde_json::Value;

/// Something to do on the hub.
pub(super) fn on_hub(what: impl Into<String>, commands: impl IntoIterator<Item = String>) -> Mend {
    Mend {
        what: what.into(),
        member: None,
        commands: commands.into_iter().collect(),
    }
}

/// Something to do in a member.
pub(super) fn in_member(
    member: &str,
    what: impl Into<String>,
    commands: impl IntoIterator<Item = String>,
) -> Mend {
    Mend {
        what: what.into(),
        member: Some(member.to_owned()),
        commands: commands.into_iter().collect(),
    }
}

/// A policy as kubectl takes it, such as `pp/web`.
pub(super) fn short(policy: &PolicyName) -> String {
    match policy.namespace {
        Some(_) => format!("pp/{}", policy.name),
        None => format!("cpp/{}", policy.name),
    }
}

/// The part of a command that says the namespace.
pub(super) fn within(namespace: Option<&str>) -> String {
    namespace.map_or_else(String::new, |it| format!(" -n {}", word(it)))
}

/// A merge patch of a policy.
pub(super) fn patch_policy(policy: &PolicyName, patch: &Value) -> String {
    let namespace = within(policy.namespace.as_deref());
    format!(
        "kubectl{namespace} patch {} --type=merge -p {}",
        short(policy),
        word(&patch.to_string())
    )
}

/// An object to apply.
pub(super) fn apply(object: &Value) -> String {
    let yaml = common::yaml::to_string(object).unwrap_or_else(|_| object.to_string());
    format!("kubectl apply -f - <<'EOF'\n{}\nEOF", yaml.trim_end())
}

/// A word as a shell takes it, in quotes where it needs them. What comes from elsewhere gets no further than that.
pub(super) fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@+".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// How somebody who looks after the hub sees whether it works.
pub(super) fn check() -> Mend {
    on_hub(
        "Wait a moment and ask again; if it stays so, see whether the hub's controllers run.",
        ["towline check".to_owned()],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stay_words() {
        for (text, wanted) in [
            ("m1", "m1"),
            ("", "''"),
            ("a b", "'a b'"),
            ("it's $(x)", r"'it'\''s $(x)'"),
        ] {
            assert_eq!(word(text), wanted);
        }
    }
}
