use crate::apiserver::schema::Schema;
use serde_json::{Value, json};

fn told(schema: Value, new: Value, old: Option<Value>) -> Vec<String> {
    let schema = Schema::of_crd(&schema, false);
    let errors = schema.validate(&new, old.as_ref()).errors;
    errors.iter().map(ToString::to_string).collect()
}

fn spec(rules: Value) -> Value {
    json!({"type": "object", "properties": {"spec": {"type": "object",
        "x-kubernetes-validations": rules,
        "properties": {"replicas": {"type": "integer"}, "max-replicas": {"type": "integer"},
                       "name": {"type": "string"},
                       "at": {"type": "string", "format": "date-time"}}}}})
}

#[test]
fn a_rule_that_does_not_hold_is_told() {
    let rules = json!([{"rule": "self.replicas <= self.max__dash__replicas"}]);
    assert_eq!(
        told(
            spec(rules.clone()),
            json!({"spec": {"replicas": 3, "max-replicas": 2}}),
            None
        ),
        ["spec: Invalid value: failed rule: self.replicas <= self.max__dash__replicas"]
    );
    let fine = json!({"spec": {"replicas": 1, "max-replicas": 2}});
    assert!(told(spec(rules), fine, None).is_empty());
}

#[test]
fn messages_reasons_and_paths_are_those_of_the_rule() {
    let rules = json!([
        {"rule": "self.replicas > 1", "messageExpression": "'got ' + string(self.replicas)",
         "reason": "FieldValueForbidden", "fieldPath": ".replicas"},
        {"rule": "has(self.name)", "message": " a name, please "},
        {"rule": "self.at < timestamp('2020-01-01T00:00:00Z')", "message": "too late"},
    ]);
    assert_eq!(
        told(
            spec(rules),
            json!({"spec": {"replicas": 1, "at": "2024-01-01T00:00:00Z"}}),
            None
        ),
        [
            "spec.replicas: Forbidden: got 1",
            "spec: Invalid value: a name, please",
            "spec: Invalid value: too late"
        ]
    );
}

#[test]
fn transitions_compare_with_what_was() {
    let rules = json!([{"rule": "self.name == oldSelf.name", "message": "fixed"}]);
    let new = json!({"spec": {"name": "b"}});
    assert!(told(spec(rules.clone()), new.clone(), None).is_empty());
    let old = json!({"spec": {"name": "a"}});
    assert_eq!(
        told(spec(rules), new, Some(old)),
        ["spec: Invalid value: fixed"]
    );
    let optional = json!([{"rule": "oldSelf.hasValue() || self.name == 'first'",
                           "optionalOldSelf": true, "message": "begin with first"}]);
    let new = json!({"spec": {"name": "b"}});
    assert_eq!(
        told(spec(optional), new, None),
        ["spec: Invalid value: begin with first"]
    );
}

#[test]
fn what_did_not_change_is_forgiven() {
    let rules = json!([{"rule": "self.replicas > 1"}]);
    let bad = json!({"spec": {"replicas": 0}});
    assert!(told(spec(rules), bad.clone(), Some(bad)).is_empty());
}

#[test]
fn nothing_is_evaluated_over_an_object_of_wrong_types() {
    let rules = json!([{"rule": "self.replicas > 1"}]);
    assert_eq!(
        told(spec(rules), json!({"spec": {"replicas": "x"}}), None),
        [
            "spec.replicas: Invalid value: \"string\": spec.replicas in body must be of type integer: \"string\"",
            "<nil>: Invalid value: null: some validation rules were not checked because the object was \
          invalid; correct the existing errors to complete validation"
        ]
    );
}

#[test]
fn rules_that_run_away_are_not_run() {
    let rule = "self.list.all(a, self.list.all(b, self.list.all(c, a + b + c > 0)))";
    let schema = json!({"type": "object", "x-kubernetes-validations": [{"rule": rule}],
        "properties": {"list": {"type": "array", "items": {"type": "integer"}}}});
    assert!(told(schema.clone(), json!({"list": [1, 2, 3]}), None).is_empty());
    let told = told(schema, json!({"list": vec![1; 20_000]}), None);
    assert_eq!(told.len(), 1);
    assert!(told[0].contains("actual cost limit exceeded"), "{told:?}");
}

#[test]
fn days_and_spans_are_times() {
    let schema = json!({"type": "object", "properties": {
        "day": {"type": "string", "format": "date"},
        "lasts": {"type": "string", "format": "duration"}},
        "x-kubernetes-validations": [
            {"rule": "self.day < timestamp('2024-03-01T00:00:00Z') && self.day.getDate() == 29"},
            {"rule": "self.lasts == duration('48h')"}]});
    let days = json!({"day": "2024-02-29", "lasts": "2 days"});
    assert_eq!(told(schema, days, None), [""; 0]);
}

#[test]
fn all_rules_of_an_object_share_what_they_may_go_through() {
    let schema = json!({"type": "object", "properties": {
        "long": {"type": "string"},
        "list": {"type": "array", "items": {"type": "string"}}},
        "x-kubernetes-validations": [
            {"rule": "self.list.all(x, self.long != x)"},
            {"rule": "self.list.all(x, x != self.long)"}]});
    // Each of them reads a little more than half of it.
    let value = json!({"long": "x".repeat(1_000_000), "list": vec!["x"; 2100]});
    let told = told(schema, value, None);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("call cost exceeds limit"), "{told:?}");
}

/// Policies of a hub on kube-apiserver run elsewhere, but what is no expression is none anywhere.
#[test]
fn expressions_of_admission_policies_can_be_read() {
    let mut read = 0;
    for desired in crate::install::admission::desired() {
        let spec = &desired.value()["spec"];
        for list in ["matchConditions", "variables", "validations"] {
            for one in spec[list].as_array().into_iter().flatten() {
                for key in ["expression", "messageExpression"] {
                    if let Some(text) = one[key].as_str() {
                        assert!(super::parser::parse(text).is_ok(), "{text}");
                        read += 1;
                    }
                }
            }
        }
    }
    assert!(read > 40, "only {read} were read");
}
