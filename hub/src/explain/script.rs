//! Scripts of customizations that say nothing of a template: which, of what, in which line, and what mends it. Pure.

use super::mend::{self, on_hub};
use super::template::Seen;
use super::{Broken, Cause, Mend, Stage, said};
use common::interpreter::custom::{Failed, Operation};
use serde_json::json;

/// What the hub's script for an operation fails at.
pub(super) fn stopped(seen: &Seen, operation: Operation) -> Option<Broken> {
    let failed = seen.scripts.iter().find(|it| it.operation == operation)?;
    let (stage, what) = match operation {
        Operation::Replica => (
            Stage::Binding,
            "nobody knows how many replicas it asks for, so its binding is not written",
        ),
        Operation::Dependency => (
            Stage::Binding,
            "nobody knows what it refers to, so nothing new goes along with it",
        ),
        Operation::ReviseReplica => (
            Stage::Work,
            "a cluster's share of the replicas cannot be written into it",
        ),
        _ => (
            Stage::Health,
            "what clusters say of it does not get into its own status",
        ),
    };
    let name = &failed.customization;
    let field = field(operation);
    if name.starts_with(crate::shipped::PREFIX) {
        return Some(Broken {
            stage,
            cause: Cause::ScriptFailed,
            cluster: None,
            what: said(&format!("{what}: {}", told(failed))),
            mend: mend_of_any(),
        });
    }
    let patch = json!([{"op": "remove", "path": format!("/spec/customizations/{field}")}]);
    let words = format!(
        "Correct {field} of the ResourceInterpreterCustomization {name}, as `towline interpret` tries it on files; or \
         take it out."
    );
    let remove = format!(
        "kubectl patch ric/{} --type=json -p '{patch}'",
        mend::word(name)
    );
    Some(Broken {
        stage,
        cause: Cause::ScriptFailed,
        cluster: None,
        what: said(&format!("{what}: {}", told(failed))),
        mend: on_hub(words, [remove]),
    })
}

/// What follows from a member's message, if it is about a script.
pub(super) fn read(message: &str) -> Option<(Cause, Mend)> {
    let is_of_a_script = message.contains("ResourceInterpreterCustomization ");
    is_of_a_script.then(in_member)
}

/// What follows from a script that fails in a member. Which one is a member's word, and gets into no command.
pub(super) fn in_member() -> (Cause, Mend) {
    (Cause::ScriptFailed, mend_of_any())
}

fn mend_of_any() -> Mend {
    let words = "Correct the script of the customization that is named, as `towline interpret` tries it on files; one \
                 whose name begins with shipped/ came with the hub, and a customization of your own goes before it.";
    let list = "kubectl get resourceinterpretercustomizations".to_owned();
    on_hub(words, [list])
}

/// Whose script it is, what it was asked, in which line it fails and why.
fn told(failed: &Failed) -> String {
    let problem = failed.problem.to_string();
    let of = failed.operation.name();
    let line = problem.strip_prefix("<string>:");
    match line.and_then(|it| it.split_once(": ")) {
        Some((line, why)) if line.bytes().all(|it| it.is_ascii_digit()) => {
            format!("{}, {of}, line {line}: {why}", failed.customization)
        }
        _ => format!("{}, {of}: {problem}", failed.customization),
    }
}

/// Where a customization has the script for an operation.
fn field(operation: Operation) -> &'static str {
    match operation {
        Operation::Retain => "retention",
        Operation::Replica => "replicaResource",
        Operation::Component => "componentResource",
        Operation::ReviseReplica => "replicaRevision",
        Operation::Status => "statusReflection",
        Operation::AggregateStatus => "statusAggregation",
        Operation::Health => "healthInterpretation",
        Operation::Dependency => "dependencyInterpretation",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::api::interpreter::CustomizationRules;

    #[test]
    fn scripts_lie_where_they_are_said_to_be() {
        for operation in Operation::ALL {
            let rules = json!({field(operation): {"luaScript": "return 1"}});
            let rules: CustomizationRules = serde_json::from_value(rules).expect("rules");
            assert_eq!(operation.script(&rules), Some("return 1"), "{operation:?}");
        }
    }
}
