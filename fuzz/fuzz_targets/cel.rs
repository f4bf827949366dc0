//! A definition with a rule, an object and what it was before, as bytes: whether the definition is
//! taken, what the rule costs at the worst, and what it says of the object.
#![no_main]

use hub::apiserver::schema::Schema;
use hub::apiserver::scheme::{Resource, Scheme};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};
use std::sync::{Arc, LazyLock};

static DEFINITIONS: LazyLock<Option<Arc<Resource>>> = LazyLock::new(|| {
    let group = "apiextensions.k8s.io";
    Scheme::new().resource(group, "v1", "customresourcedefinitions")
});

/// A schema with values of every type, for inputs that bring none.
static TYPES: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("cel.schema.json")).expect("a schema"));

/// A panic of the library that the run catches is no finding; what is not caught ends the target anyway.
static FOREIGN: LazyLock<()> = LazyLock::new(|| {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map_or("", |place| place.file());
        if !place.contains("/cel-") {
            eprintln!("{panic}");
        }
    }));
});

// A letter that says whether `oldSelf` may be missing, then lines: the rule, what it says when it does
// not hold, the schema of `spec`, its value, and its value before.
fuzz_target!(|data: &[u8]| {
    LazyLock::force(&FOREIGN);
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let mut lines = text.splitn(6, '\n');
    let mut line = || lines.next().unwrap_or("");
    let optional_old = line() == "?";
    let (rule, message) = (line(), line());
    let read = |text: &str| serde_json::from_str::<Value>(text).ok();
    let (schema, new, old) = (line(), read(line()), read(line()));
    let mut spec = if schema.is_empty() {
        TYPES.clone()
    } else {
        let Some(schema) = read(schema).filter(Value::is_object) else {
            return;
        };
        schema
    };
    let mut validation = json!({"rule": rule});
    if optional_old {
        validation["optionalOldSelf"] = json!(true);
    }
    if !message.is_empty() {
        validation["messageExpression"] = json!(message);
    }
    spec["x-kubernetes-validations"] = json!([validation]);
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    if !is_taken(&schema) {
        return;
    }
    let Some(new) = new else { return };
    let whole = |spec: Value| {
        json!({"apiVersion": "fuzz.example/v1", "kind": "Fuzz", "metadata": {"name": "one"},
            "spec": spec})
    };
    let (new, old) = (whole(new), old.map(whole));
    let said = validate(&schema, &new, old.as_ref());
    assert_eq!(said, validate(&schema, &new, old.as_ref()), "{rule}");
    if is_definite(rule, message, &schema) {
        let mistaken = said.iter().find(|one| one.contains("no such overload"));
        assert_eq!(mistaken, None);
    }
});

/// Whether a definition of this schema may be made, but for what it costs: one that was there before
/// may be too dear.
fn is_taken(schema: &Value) -> bool {
    let Some(definitions) = DEFINITIONS.as_ref() else {
        return false;
    };
    let mut definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "fuzzes.fuzz.example"},
        "spec": {"group": "fuzz.example", "scope": "Namespaced",
            "names": {"plural": "fuzzes", "singular": "fuzz", "kind": "Fuzz", "listKind": "FuzzList"},
            "conversion": {"strategy": "None"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema}}]},
    });
    if definitions.decode(&mut definition).is_err() {
        return false;
    }
    definitions.apply_defaults(&mut definition);
    let mut errors = definitions.validate(&definition, None).errors.into_iter();
    errors.all(|error| error.to_string().contains("cost"))
}

/// What is wrong with an object. The schema is read anew, so that nothing is kept from before.
fn validate(schema: &Value, new: &Value, old: Option<&Value>) -> Vec<String> {
    let verdict = Schema::of_crd(schema, false).validate(new, old);
    verdict.errors.iter().map(ToString::to_string).collect()
}

/// Whether every type is known before there are values: then no function is called with what it does
/// not take.
fn is_definite(rule: &str, message: &str, schema: &Value) -> bool {
    // `dyn` says so itself; null is taken for a time; `format` takes anything; and a type's name or an
    // empty list may be of any type.
    const LOOSE: [&str; 6] = ["dyn", "null", "format", "type", "none", "flatten"];
    const OPEN: [&str; 4] = [
        "nullable",
        "int-or-string",
        "preserve-unknown",
        "embedded-resource",
    ];
    let schema = schema.to_string();
    let mut texts = [rule, message].into_iter();
    !texts.any(|text| LOOSE.iter().any(|word| text.contains(word)))
        && !OPEN.iter().any(|word| schema.contains(word))
}
