//! Each rule once held and once broken.

mod host;
mod recorded;
mod rules;

use super::*;
use serde_json::json;

fn target<'a>(operation: &'a str, group: &'a str, resource: &'a str) -> Target<'a> {
    Target {
        operation,
        group,
        resource,
        subresource: "",
        namespace: "ns",
        name: "p",
    }
}

/// What is told; none where it is taken.
fn told(resource: &str, object: &Value, old: Option<&Value>) -> Option<String> {
    let group = match resource {
        "resourcebindings" => "work.karmada.io",
        _ => POLICIES,
    };
    let target = target("UPDATE", group, resource);
    check(&target, object, old).err().map(|error| error.message)
}

#[test]
fn only_always_protects_and_only_the_object_itself() {
    let labelled = |value: &str| json!({"metadata": {"labels": {DELETION_PROTECTED: value}}});
    let configmap = target("DELETE", "", "configmaps");
    for (object, refused) in [
        (labelled("Always"), true),
        (labelled("always"), false),
        (labelled("Never"), false),
        (labelled(""), false),
        (json!({"metadata": {}}), false),
        (
            json!({"metadata": {"annotations": {DELETION_PROTECTED: "Always"}}}),
            false,
        ),
    ] {
        assert_eq!(
            check_deletion(&configmap, &object).is_err(),
            refused,
            "{object}"
        );
    }
    let status = Target {
        subresource: "status",
        ..configmap
    };
    assert!(check_deletion(&status, &labelled("Always")).is_ok());
    let error = check_deletion(&configmap, &labelled("Always")).expect_err("refused");
    assert_eq!(error.code, 403);
    assert_eq!(
        error.message,
        "configmaps \"p\" is forbidden: ValidatingAdmissionPolicy 'towline-protection' with binding \
         'towline-protection' denied request: This resource is protected, please make sure to remove the \
         label: resourcetemplate.karmada.io/deletion-protected"
    );
}

#[test]
fn a_permanent_id_comes_once_and_stays() {
    let with = |id: &str| json!({"metadata": {"labels": {POLICY_PERMANENT_ID: id}}});
    let none = json!({"metadata": {}});
    for (old, new, refused) in [
        (Some(with("a")), with("a"), false),
        (Some(with("a")), with("b"), true),
        (Some(with("a")), none.clone(), true),
        (Some(none.clone()), with("a"), false),
        (Some(with("")), with("a"), false),
        (None, with("a"), false),
    ] {
        let said = told("propagationpolicies", &new, old.as_ref());
        assert_eq!(said.is_some(), refused, "{old:?} {new}");
        assert!(said.is_none_or(|said| said.contains(&id_is_immutable(POLICY_PERMANENT_ID))));
        // The label of the other kind says nothing here.
        assert_eq!(told("clusterpropagationpolicies", &new, old.as_ref()), None);
    }
}

#[test]
fn what_lies_in_a_namespace_selects_there() {
    let selecting = |namespaces: &[Value]| {
        let one = |namespace: &Value| json!({"kind": "ConfigMap", "namespace": namespace});
        json!({"spec": {"resourceSelectors": namespaces.iter().map(one).collect::<Vec<_>>()}})
    };
    let fine = selecting(&[json!("ns"), json!(""), Value::Null]);
    let foreign = selecting(&[json!("ns"), json!("elsewhere")]);
    for resource in ["propagationpolicies", "overridepolicies"] {
        assert_eq!(told(resource, &fine, None), None);
        let said = told(resource, &foreign, None).expect("refused");
        assert!(
            said.ends_with(
                "spec.resourceSelectors[1].namespace: Invalid value: \"elsewhere\": namespace of resource \
                 selector must be the same as the namespace of the policy"
            ),
            "{said}"
        );
    }
    for resource in ["clusterpropagationpolicies", "clusteroverridepolicies"] {
        assert_eq!(told(resource, &foreign, None), None);
    }
}

#[test]
fn override_rules_are_read_to_the_last() {
    let rules = |overriders: Value| json!({"spec": {"overrideRules": [{"overriders": {}}, {"overriders": overriders}]}});
    let field = |patch: Value| {
        rules(json!({"fieldOverrider": [{"fieldPath": "/data/a", "yaml": [patch]}]}))
    };
    let marks = |kind: &str, key: &str, value: &str| {
        rules(json!({kind: [{"operator": "add", "value": {key: value}}]}))
    };
    let missing = "fieldOverrider[0].yaml[0].value: Invalid value: null: value is required for add or replace";
    let cases = [
        (field(json!({"operator": "add", "value": 1})), ""),
        (field(json!({"operator": "replace", "value": ""})), ""),
        (field(json!({"operator": "remove"})), ""),
        (field(json!({"operator": "add"})), missing),
        (field(json!({"operator": "replace"})), missing),
        (
            field(json!({"operator": "remove", "value": 1})),
            "fieldOverrider[0].yaml[0].value: Invalid value: 1: value is not allowed for remove operation",
        ),
        (marks("labelsOverrider", "a.b/c", "d"), ""),
        (
            marks("labelsOverrider", "a b", "c"),
            "labelsOverrider[0].value: Invalid value: \"a b\": name part must consist of",
        ),
        (
            marks("labelsOverrider", "a", "b c"),
            "labelsOverrider[0].value: Invalid value: \"b c\": a valid label must be",
        ),
        (marks("annotationsOverrider", "A.B/c", "any text"), ""),
        (
            marks("annotationsOverrider", "a b", "c"),
            "annotationsOverrider[0].value: Invalid value: \"a b\": name part must consist of",
        ),
    ];
    for (object, wanted) in cases {
        for resource in ["overridepolicies", "clusteroverridepolicies"] {
            let said = told(resource, &object, None);
            match wanted {
                "" => assert_eq!(said, None, "{object}"),
                wanted => {
                    let said = said.unwrap_or_else(|| panic!("{object} is taken"));
                    let wanted = format!("spec.overrideRules[1].overriders.{wanted}");
                    assert!(said.contains(&wanted), "{said}");
                }
            }
        }
    }
}

#[test]
fn what_a_template_refers_to_is_told_in_json() {
    let with = |text: &str| json!({"metadata": {"annotations": {BINDING_DEPENDENCIES: text}}});
    for (text, refused) in [
        ("", false),
        ("[]", false),
        ("[{\"kind\":\"Secret\"}]", false),
        ("[", true),
    ] {
        let said = told("resourcebindings", &with(text), None);
        assert_eq!(said.is_some(), refused, "{text}");
    }
}
