use crate::apiserver::schema::Schema;
use serde_json::{Value, json};

fn told(schema: Value, new: Value, old: Option<Value>) -> Vec<String> {
    let whole = json!({"type": "object", "properties": {"spec": schema}});
    let schema = Schema::of_crd(&whole, false);
    let new = json!({"spec": new});
    let old = old.map(|old| json!({"spec": old}));
    let errors = schema.validate(&new, old.as_ref()).errors;
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn each_rule_is_told_in_the_known_words() {
    let cases = [
        (
            json!({"type": "integer"}),
            json!("x"),
            "spec: Invalid value: \"string\": spec in body must be of type integer: \"string\"",
        ),
        (
            json!({"type": "string"}),
            json!(1),
            "spec: Invalid value: \"integer\": spec in body must be of type string: \"integer\"",
        ),
        (
            json!({"x-kubernetes-int-or-string": true}),
            json!(true),
            "spec: Invalid value: \"boolean\": spec in body must be of type integer,string: \"boolean\"",
        ),
        (
            json!({"type": "object", "required": ["a"]}),
            json!({}),
            "spec.a: Required value",
        ),
        (
            json!({"type": "string", "format": "byte"}),
            json!(""),
            "spec: Invalid value: \"\": spec in body must be of type byte: \"\"",
        ),
        (
            json!({"type": "integer", "format": "int32"}),
            json!(2_147_483_648.0),
            "<nil>: Invalid value: \"\": Checked value must be of type integer with format int32 in spec",
        ),
        (
            json!({"type": "string", "enum": ["a", "b"]}),
            json!("c"),
            "spec: Unsupported value: \"c\": supported values: \"a\", \"b\"",
        ),
        (
            json!({"type": "string", "pattern": "^a+$"}),
            json!("b"),
            "spec: Invalid value: \"b\": spec in body should match '^a+$'",
        ),
        (
            json!({"type": "integer", "minimum": 1}),
            json!(0),
            "spec: Invalid value: 0: spec in body should be greater than or equal to 1",
        ),
        (
            json!({"type": "integer", "maximum": 1, "exclusiveMaximum": true}),
            json!(1),
            "spec: Invalid value: 1: spec in body should be less than 1",
        ),
        (
            json!({"type": "integer", "multipleOf": 2}),
            json!(3),
            "spec: Invalid value: 3: spec in body should be a multiple of 2",
        ),
        (
            json!({"type": "string", "maxLength": 2}),
            json!("abc"),
            "spec: Too long: may not be more than 2 bytes",
        ),
        (
            json!({"type": "string", "minLength": 2}),
            json!("a"),
            "spec: Invalid value: \"a\": spec in body should be at least 2 chars long",
        ),
        (
            json!({"type": "array", "items": {"type": "string"}, "maxItems": 1}),
            json!(["a", "b"]),
            "spec: Too many: 2: must have at most 1 item",
        ),
        (
            json!({"type": "array", "items": {"type": "string"}, "minItems": 1}),
            json!([]),
            "spec: Invalid value: 0: spec in body should have at least 1 items",
        ),
        (
            json!({"type": "array", "items": {"type": "integer"}}),
            json!([1, "x"]),
            "spec[1]: Invalid value: \"string\": spec[1] in body must be of type integer: \"string\"",
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "integer"}}),
            json!({"k": "x"}),
            "spec.k: Invalid value: \"string\": spec.k in body must be of type integer: \"string\"",
        ),
        (
            json!({"type": "object", "maxProperties": 1, "additionalProperties": {"type": "string"}}),
            json!({"a": "", "b": ""}),
            "spec: Too many: 2: must have at most 1 item",
        ),
        (
            json!({"type": "string", "format": "date-time"}),
            json!("x"),
            "spec: Invalid value: \"x\": spec in body must be of type date-time: \"x\"",
        ),
        (
            json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}),
            json!(["a", "b", "a", "a"]),
            "spec[2]: Duplicate value: \"a\"",
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"],
                "items": {"type": "object", "properties": {"n": {"type": "string"}}}}),
            json!([{"n": "a"}, {"n": "a"}]),
            "spec[1]: Duplicate value: {\"n\":\"a\"}",
        ),
        (
            json!({"type": "object", "not": {"required": ["a"]}, "properties": {"a": {"type": "string"}}}),
            json!({"a": ""}),
            "<nil>: Invalid value: \"\": \"spec\" must not validate the schema (not)",
        ),
    ];
    for (schema, value, want) in cases {
        assert_eq!(told(schema.clone(), value, None), [want], "{schema}");
    }
}

#[test]
fn alternatives_tell_the_nearest() {
    let one_of = json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                        "oneOf": [{"required": ["a"]}, {"required": ["b"]}]});
    assert_eq!(
        told(one_of.clone(), json!({}), None),
        [
            "<nil>: Invalid value: \"\": \"spec\" must validate one and only one schema (oneOf). Found none valid",
            "spec.a: Required value"
        ]
    );
    assert_eq!(
        told(one_of.clone(), json!({"a": "", "b": ""}), None),
        [
            "<nil>: Invalid value: \"\": \"spec\" must validate one and only one schema (oneOf). Found 2 valid alternatives"
        ]
    );
    assert!(told(one_of, json!({"a": ""}), None).is_empty());
    let any_of = json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]});
    for fine in [json!(1), json!("1")] {
        assert!(told(any_of.clone(), fine, None).is_empty());
    }
}

#[test]
fn what_was_wrong_before_and_did_not_change_is_forgiven() {
    let schema = json!({"type": "object", "properties": {
        "a": {"type": "string", "enum": ["x"]}, "b": {"type": "integer"}}});
    let old = json!({"a": "y", "b": 1});
    assert!(told(schema.clone(), json!({"a": "y", "b": 2}), Some(old.clone())).is_empty());
    assert_eq!(
        told(schema, json!({"a": "z", "b": 2}), Some(old)),
        ["spec.a: Unsupported value: \"z\": supported values: \"x\""]
    );
}

#[test]
fn objects_within_objects_are_objects() {
    let schema = json!({"type": "object", "x-kubernetes-embedded-resource": true,
                        "x-kubernetes-preserve-unknown-fields": true});
    assert_eq!(
        told(
            schema,
            json!({"kind": "", "metadata": {"labels": {"a b": "c"}}}),
            None
        ),
        [
            "spec.apiVersion: Required value",
            "spec.kind: Invalid value: \"\": must not be empty",
            "spec.metadata.labels: Invalid value: \"a b\": name part must consist of alphanumeric characters, \
          '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or \
          'my.name',  or '123-abc', regex used for validation is \
          '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
        ]
    );
}

#[test]
fn defaults_are_held_against_less() {
    let told = |schema: Value| {
        let errors = Schema::of_default(&schema).validate_default(&schema["default"], "d");
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        errors.join("; ")
    };
    let set =
        json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}});
    let with = |mut schema: Value, default: Value| {
        schema["default"] = default;
        schema
    };
    let either = json!({"x-kubernetes-int-or-string": true});
    assert_eq!(told(with(set.clone(), json!(["a", "a"]))), "");
    assert_eq!(
        told(with(set, json!(["a", 1]))),
        "d.[1]: Invalid value: \"integer\": [1] in body must be of type string: \"integer\""
    );
    assert_eq!(told(with(either, json!(true))), "");
    let rule = json!({"type": "string", "maxLength": 5,
                      "x-kubernetes-validations": [{"rule": "self == 'x'", "message": "no x"}]});
    assert_eq!(
        told(with(rule, json!("y"))),
        "d: Invalid value: \"y\": no x"
    );
}
