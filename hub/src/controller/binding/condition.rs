//! What a binding shows of Works that cannot be made, or are made of less than is to be known: the condition `Degraded`,
//! as long as it is so.
//!
//! Pure. Events are gone after an hour; an override that does not apply, or a script that fails, stays until somebody
//! mends it.

use chrono::{DateTime, Utc};
use common::api::binding::ResourceBindingSpec;
use common::conditions;
use common::gvk::Gvk;
use common::interpreter::custom::Operation;
use common::interpreter::layers::Interpreter;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::Value;

/// Why, in one word; also that of the event.
pub const REASON: &str = "SyncWorkFailed";
/// Why, where nobody knows what the template asks for or refers to.
pub const SCRIPT: &str = "InterpreterFailed";
/// The condition.
pub const DEGRADED: &str = "Degraded";
/// Most of what it tells, in bytes: of a thousand clusters most fail for the same reason.
pub const MESSAGE: usize = 4 * 1024;

/// Why nobody knows how many replicas a template asks for, or what is to go along with it: its Works stay as they were
/// made before.
pub fn unread(
    interpreter: &Interpreter,
    template: &Value,
    spec: &ResourceBindingSpec,
) -> Option<String> {
    let gvk = Gvk::new(&spec.resource.api_version, &spec.resource.kind)?;
    let replicas = interpreter.scripts(&gvk, Operation::Replica);
    let replicas = replicas.and_then(|it| it.replicas(template)?.err());
    let follows = spec.propagate_deps == Some(true);
    let dependencies = follows.then(|| interpreter.dependencies(&gvk, template));
    let dependencies = dependencies.flatten().and_then(Result::err);
    let replicas = replicas.map(|it| it.to_string());
    let dependencies = dependencies.map(|it| it.to_string());
    let texts: Vec<String> = replicas.into_iter().chain(dependencies).collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}

/// The conditions of a binding as they are to be with a reason and a text; none when nothing changes.
pub fn decide(
    now: DateTime<Utc>,
    before: &[Condition],
    problem: Option<(&str, &str)>,
) -> Option<Vec<Condition>> {
    let mut after = before.to_vec();
    match problem {
        None => after.retain(|it| it.type_ != DEGRADED),
        Some((reason, problem)) => {
            let end = problem.floor_char_boundary(MESSAGE);
            let condition = conditions::new(DEGRADED, true, reason, &problem[..end], now);
            conditions::set(&mut after, condition, now);
        }
    }
    (after != before).then_some(after)
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::api::interpreter::CustomizationSpec;
    use common::interpreter::custom::Customizations;
    use serde_json::json;
    use std::sync::Arc;

    #[test]
    fn it_is_there_as_long_as_something_is_wrong() {
        let at = |second| DateTime::from_timestamp(second, 0).expect("in range");
        let scheduled = conditions::new("Scheduled", true, "Success", "", at(0));
        let healthy = vec![scheduled];
        assert_eq!(decide(at(1), &healthy, None), None);

        let wrong = decide(at(1), &healthy, Some((REASON, "no"))).expect("a change");
        assert_eq!(wrong.len(), 2);
        assert!(conditions::is_true(&wrong, DEGRADED));
        assert_eq!(decide(at(2), &wrong, Some((REASON, "no"))), None);
        let other = decide(at(2), &wrong, Some((REASON, "never"))).expect("a change");
        let told = conditions::get(&other, DEGRADED).expect("there");
        assert_eq!(told.message, "never");
        assert_eq!(told.last_transition_time, common::time::to_time(at(1)));
        assert_eq!(decide(at(3), &other, None), Some(healthy));
    }

    #[test]
    fn it_is_no_longer_than_a_condition_should_be() {
        let at = DateTime::from_timestamp(0, 0).expect("in range");
        let told = decide(at, &[], Some((SCRIPT, &"\u{e4}".repeat(MESSAGE)))).expect("a change");
        assert_eq!(told[0].message.len(), MESSAGE);
    }

    #[test]
    fn scripts_that_fail_are_named_where_they_are_asked() {
        let script = |text: &str| json!({ "luaScript": text });
        let spec: CustomizationSpec = serde_json::from_value(json!({
            "target": {"apiVersion": "example.com/v1", "kind": "Widget"},
            "customizations": {
                "replicaResource": script("function GetReplicas(o)\n  return o.spec.n.m\nend"),
                "dependencyInterpretation": script("function GetDependencies(o) while true do end end"),
            },
        }))
        .expect("a spec");
        let known = Arc::new(Customizations::new([("widgets", &spec)]));
        let known = Interpreter::new(known, Arc::default());
        let template = json!({"spec": {}});
        let mut of = ResourceBindingSpec::default();
        of.resource.api_version = "example.com/v1".into();
        of.resource.kind = "Widget".into();
        let replicas = "ResourceInterpreterCustomization widgets, InterpretReplica: <string>:2: ";
        let text = unread(&known, &template, &of).expect("it fails");
        assert!(text.starts_with(replicas) && !text.contains("; "), "{text}");
        of.propagate_deps = Some(true);
        let text = unread(&known, &template, &of).expect("both fail");
        assert!(text.contains("; ResourceInterpreterCustomization widgets, InterpretDependency: the script was stopped"), "{text}");
        of.resource.kind = "Other".into();
        assert_eq!(unread(&known, &template, &of), None);
    }

    #[test]
    fn what_an_object_does_not_say_of_what_goes_along_is_told() {
        let tls = json!([{"hosts": ["a.b"], "secretName": "t1"}, {"hosts": ["c.d"]}]);
        let template = json!({"metadata": {"namespace": "shop"}, "spec": {"tls": tls}});
        let mut of = ResourceBindingSpec::default();
        of.resource.api_version = "networking.k8s.io/v1".into();
        of.resource.kind = "Ingress".into();
        let known = Interpreter::default();
        assert_eq!(unread(&known, &template, &of), None);
        of.propagate_deps = Some(true);
        let text = unread(&known, &template, &of).expect("nobody knows");
        let words = ["dependencies[1]", "spec.tls", "secretName"];
        assert!(words.iter().all(|it| text.contains(it)), "{text}");
    }
}
