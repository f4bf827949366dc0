//! Operations and their errors by the reference's cases, and against a library of the same standard.

use super::*;
use proptest::prelude::*;
use serde_json::json;

fn patched(document: Value, patch: Value) -> Result<Value, String> {
    let patch: Vec<PlaintextOverrider> = serde_json::from_value(patch).expect("a patch");
    let mut node = Node::Leaf(document);
    let operations = patch.iter().map(Operation::from);
    apply(&mut node, operations, &Budget::new()).map_err(|error| error.to_string())?;
    Ok(node.into_value())
}

fn one(operator: &str, path: &str, value: Option<Value>) -> Value {
    let mut operation = json!({"operator": operator, "path": path});
    if let Some(value) = value {
        operation["value"] = value;
    }
    json!([operation])
}

#[test]
fn operations_do_what_the_reference_does() {
    let document = json!({"a": 1, "l": [1, 2, 3], "o": {"x/y": 1, "~": 2}});
    let cases = [
        (
            "add",
            "/b",
            Some(json!(2)),
            json!({"a": 1, "b": 2, "l": [1, 2, 3], "o": {"x/y": 1, "~": 2}}),
        ),
        (
            "add",
            "/a",
            None,
            json!({"a": null, "l": [1, 2, 3], "o": {"x/y": 1, "~": 2}}),
        ),
        (
            "add",
            "/l/-",
            Some(json!(4)),
            json!({"a": 1, "l": [1, 2, 3, 4], "o": {"x/y": 1, "~": 2}}),
        ),
        (
            "add",
            "/l/0",
            Some(json!(0)),
            json!({"a": 1, "l": [0, 1, 2, 3], "o": {"x/y": 1, "~": 2}}),
        ),
        (
            "add",
            "/l/3",
            Some(json!(4)),
            json!({"a": 1, "l": [1, 2, 3, 4], "o": {"x/y": 1, "~": 2}}),
        ),
        (
            "add",
            "/l/-1",
            Some(json!(4)),
            json!({"a": 1, "l": [1, 2, 3, 4], "o": {"x/y": 1, "~": 2}}),
        ),
        ("add", "", Some(json!({"n": 1})), json!({"n": 1})),
        (
            "remove",
            "/a",
            None,
            json!({"l": [1, 2, 3], "o": {"x/y": 1, "~": 2}}),
        ),
        (
            "remove",
            "/l/1",
            None,
            json!({"a": 1, "l": [1, 3], "o": {"x/y": 1, "~": 2}}),
        ),
        (
            "remove",
            "/l/-1",
            None,
            json!({"a": 1, "l": [1, 2], "o": {"x/y": 1, "~": 2}}),
        ),
        (
            "remove",
            "/o/x~1y",
            None,
            json!({"a": 1, "l": [1, 2, 3], "o": {"~": 2}}),
        ),
        (
            "remove",
            "/o/~0",
            None,
            json!({"a": 1, "l": [1, 2, 3], "o": {"x/y": 1}}),
        ),
        (
            "replace",
            "/l/-3",
            Some(json!({})),
            json!({"a": 1, "l": [{}, 2, 3], "o": {"x/y": 1, "~": 2}}),
        ),
        (
            "replace",
            "/o",
            None,
            json!({"a": 1, "l": [1, 2, 3], "o": null}),
        ),
        ("replace", "", Some(json!([])), json!([])),
    ];
    for (operator, path, value, want) in cases {
        assert_eq!(
            patched(document.clone(), one(operator, path, value)),
            Ok(want),
            "{operator} {path}"
        );
    }
}

#[test]
fn errors_have_the_texts_of_the_reference() {
    let document = json!({"a": 1, "l": [1]});
    let missing = ": missing value";
    let cases = [
        ("add", "/b/c", format!("add operation does not apply: doc is missing path: \"/b/c\"{missing}")),
        ("add", "/a/c", format!("add operation does not apply: doc is missing path: \"/a/c\"{missing}")),
        ("add", "b", format!("add operation does not apply: doc is missing path: \"b\"{missing}")),
        ("remove", "/b/c", format!("remove operation does not apply: doc is missing path: \"/b/c\"{missing}")),
        ("remove", "", format!("remove operation does not apply: doc is missing path: \"\"{missing}")),
        ("remove", "/b", format!("error in remove for path: '/b': unable to remove nonexistent key: b{missing}")),
        ("replace", "/b/c", format!("replace operation does not apply: doc is missing path: /b/c{missing}")),
        ("replace", "/b", format!("replace operation does not apply: doc is missing key: /b{missing}")),
        ("replace", "/l/1", format!("replace operation does not apply: doc is missing key: /l/1{missing}")),
        ("replace", "/l/-", format!("replace operation does not apply: doc is missing key: /l/-{missing}")),
        (
            "add",
            "/l/2",
            "error in add for path: '/l/2': Unable to access invalid index: 2: invalid index referenced".into(),
        ),
        (
            "remove",
            "/l/-2",
            "error in remove for path: '/l/-2': Unable to access invalid index: -2: invalid index referenced"
                .into(),
        ),
    ];
    for (operator, path, want) in cases {
        let value = Some(json!(2));
        assert_eq!(
            patched(document.clone(), one(operator, path, value)),
            Err(want),
            "{operator} {path}"
        );
    }
}

#[test]
fn nothing_gets_deeper_than_a_stack_bears() {
    let nested = |levels| (0..levels).fold(json!(1), |inner, _| json!({"a": inner}));
    let at = "/a".repeat(60);
    assert!(patched(nested(60), one("replace", &at, Some(nested(40)))).is_ok());
    let deep = patched(nested(60), one("replace", &at, Some(nested(41)))).expect_err("deep");
    assert!(deep.ends_with("deeper than 100 levels"), "{deep}");
    let path = "/a".repeat(101);
    assert!(patched(nested(60), one("remove", &path, None)).is_err());
}

proptest! {
    /// What a library of the same standard makes of an operation that both know.
    #[test]
    fn agrees_with_another_implementation(
        operator in prop_oneof![Just("add"), Just("remove"), Just("replace")],
        path in "(/(a|l|o|0|1|x|-)){1,3}",
        value in prop_oneof![Just(json!(null)), Just(json!({"x": [1]})), Just(json!("t"))],
    ) {
        let document = json!({"a": 1, "l": [{"x": 1}, [2]], "o": {"0": {"x": []}, "l": [1]}});
        let mut wanted = document.clone();
        let operation = json!([{"op": operator, "path": path, "value": value}]);
        let operation: json_patch::Patch = serde_json::from_value(operation).expect("a patch");
        let other = json_patch::patch(&mut wanted, &operation).map(|()| wanted);
        let ours = patched(document, one(operator, &path, Some(value)));
        prop_assert_eq!(ours.ok(), other.ok());
    }
}
