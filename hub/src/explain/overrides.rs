//! What overrides make of a template, where they do not apply. Pure.

use super::mend::{self, on_hub};
use super::template::Bound;
use super::{Broken, Cause, Mend, Stage, said};
use crate::controller::binding::condition;
use common::conditions;
use serde_json::json;

/// What the hub says about Works that it cannot make.
pub(super) fn not_rendered(binding: &Bound) -> Option<Broken> {
    let condition = conditions::get(&binding.status.conditions, condition::DEGRADED)?;
    (condition.status == "True" && condition.reason == condition::REASON).then_some(())?;
    let what = said(&condition.message);
    let invalid = override_of(&condition.message);
    let (cause, mend) = match invalid {
        Some(mend) => (Cause::OverrideInvalid, mend),
        None => {
            let name = binding.metadata.name.as_deref().unwrap_or_default();
            let namespace = binding.metadata.namespace.as_deref();
            let kind = if namespace.is_some() { "rb" } else { "crb" };
            let describe = format!(
                "kubectl{} describe {kind} {}",
                mend::within(namespace),
                mend::word(name)
            );
            (
                Cause::WorkMissing,
                on_hub(
                    "The hub tries it again by itself; mend what it names.",
                    [describe],
                ),
            )
        }
    };
    Some(Broken {
        stage: Stage::Overrides,
        cause,
        cluster: None,
        what,
        mend,
    })
}

/// The override that does not apply, by the words of [`crate::controller::binding::overrides::OverrideError`].
fn override_of(message: &str) -> Option<Mend> {
    let (_, rest) = message.split_once("override policy(")?;
    let (name, rest) = rest.split_once(')')?;
    let (_, rest) = rest.split_once("does not apply, ")?;
    let rule = rest.split(':').next().unwrap_or_default().trim();
    let (namespace, kind, name) = match name.split_once('/') {
        Some((namespace, name)) => (Some(namespace), "op", name),
        None => (None, "cop", name),
    };
    let within = mend::within(namespace);
    let name = mend::word(name);
    let Some(path) = path_of(rule) else {
        let edit = format!("kubectl{within} edit {kind}/{name}");
        return Some(on_hub(
            "Write the override anew as its kind describes it.",
            [edit],
        ));
    };
    let patch = json!([{"op": "remove", "path": path}]);
    let remove = format!("kubectl{within} patch {kind}/{name} --type=json -p '{patch}'");
    Some(on_hub(
        format!("Correct {rule} of the override, or take it out."),
        [remove],
    ))
}

/// Where a rule lies in an override, from how it is named: `overrideRules[0].imageOverrider[1]`.
fn path_of(rule: &str) -> Option<String> {
    let mut path = "/spec".to_owned();
    let parts: Vec<&str> = rule.split('.').collect();
    for (at, part) in parts.iter().enumerate() {
        let (field, index) = match part.split_once('[') {
            Some((field, rest)) => (field, Some(rest.strip_suffix(']')?)),
            None => (*part, None),
        };
        let letters = !field.is_empty() && field.bytes().all(|it| it.is_ascii_alphabetic());
        letters.then_some(())?;
        path.push('/');
        path.push_str(field);
        if let Some(index) = index {
            index.parse::<usize>().ok()?;
            path.push('/');
            path.push_str(index);
        }
        // What a rule changes lies one deeper than it is named.
        if at == 0 && field == "overrideRules" && parts.len() > 1 {
            path.push_str("/overriders");
        }
    }
    (parts.first() != Some(&"spec")).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_rule_lies_follows_from_its_name() {
        for (rule, wanted) in [
            (
                "overrideRules[0].plaintext",
                Some("/spec/overrideRules/0/overriders/plaintext"),
            ),
            (
                "overrideRules[2].imageOverrider[1]",
                Some("/spec/overrideRules/2/overriders/imageOverrider/1"),
            ),
            ("overrideRules[0]", Some("/spec/overrideRules/0")),
            (
                "overriders.fieldOverrider[0]",
                Some("/spec/overriders/fieldOverrider/0"),
            ),
            ("spec", None),
            ("overrideRules[x]", None),
            ("../../etc", None),
        ] {
            assert_eq!(path_of(rule).as_deref(), wanted, "{rule}");
        }
    }
}
