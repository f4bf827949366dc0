//! A script of a customization, an object and what else it is given, as bytes: that it ends within its bounds, says
//! the same each time, decides neither which object it is about nor whose that is, and leaves nothing to the next one.
#![no_main]

use common::api::binding::AggregatedStatusItem;
use common::api::interpreter::{CustomizationRules, CustomizationSpec, Script};
use common::gvk::Gvk;
use common::interpreter::custom::{Customizations, Failed, LIMITS, Operation, Rules, carried};
use common::interpreter::guard::Guarded;
use common::interpreter::reflect::STATUS_LIMIT;
use common::lua::{Machine, Program, Value as Lua};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};
use std::sync::{Arc, LazyLock};

/// Longest text of an error: the script's own is cut at 2 KiB.
const LONGEST_ERROR: usize = 4 * 1024;
/// Largest object that an API server stores, of which strings may be told twice as long.
const LARGEST: usize = 4 * 1024 * 1024;

/// A script that finds whatever an earlier one left.
static INNOCENT: LazyLock<Arc<Rules>> = LazyLock::new(|| {
    let script = "function InterpretHealth(obj)
        return left == nil and string.left == nil and obj.status.ready == 3 and ('x'):upper() == 'X'
    end";
    rules(Operation::Health, script)
});

fn gvk() -> Gvk {
    Gvk::new("shop.example.com/v1", "Till").expect("sound")
}

fn rules(operation: Operation, script: &str) -> Arc<Rules> {
    let script = Some(Script {
        lua_script: script.to_owned(),
    });
    let mut all = CustomizationRules::default();
    let field = match operation {
        Operation::Retain => &mut all.retention,
        Operation::Replica => &mut all.replica_resource,
        Operation::Component => &mut all.component_resource,
        Operation::ReviseReplica => &mut all.replica_revision,
        Operation::Status => &mut all.status_reflection,
        Operation::AggregateStatus => &mut all.status_aggregation,
        Operation::Health => &mut all.health_interpretation,
        Operation::Dependency => &mut all.dependency_interpretation,
    };
    *field = script;
    let mut spec = CustomizationSpec {
        customizations: all,
        ..CustomizationSpec::default()
    };
    spec.target.api_version = "shop.example.com/v1".to_owned();
    spec.target.kind = "Till".to_owned();
    let known = Customizations::new([("fuzz", &spec)]);
    known.of(&gvk()).map(Arc::clone).unwrap_or_default()
}

fn object() -> Value {
    json!({"apiVersion": "shop.example.com/v1", "kind": "Till",
        "metadata": {"name": "a", "namespace": "shop", "generation": 2,
            "labels": {"x": "y", "towline.dev/mark": "m"}, "annotations": {}},
        "spec": {"tills": 4, "args": [], "template": {"spec": {"containers": [{"name": "c",
            "resources": {"requests": {"cpu": "100m"}}}]}}},
        "status": {"ready": 3, "conditions": [{"type": "Ready", "status": "True"}]}})
}

fn ask(rules: &Rules, operation: Operation, object: &Value) -> Option<Result<Value, Failed>> {
    let item = |name: &str| AggregatedStatusItem {
        cluster_name: name.to_owned(),
        status: object.get("status").cloned(),
        ..AggregatedStatusItem::default()
    };
    Some(match operation {
        Operation::Retain => rules.retain(object, object)?,
        Operation::Replica => rules.replicas(object)?.map(|it| {
            assert!(it.replicas >= 0);
            json!([it.replicas, it.requirements])
        }),
        Operation::Component => rules.components(object)?,
        Operation::ReviseReplica => rules.revise(object, 7)?,
        Operation::Status => rules.reflect(object)?,
        Operation::AggregateStatus => rules.aggregate(object, &[item("m1"), item("m2")])?,
        Operation::Health => rules.health(object)?.map(|it| json!(it)),
        Operation::Dependency => rules.dependencies(object)?.map(|it| json!(it)),
    })
}

// The first byte is the operation; the rest a script, and after a zero byte an object.
fuzz_target!(|data: &[u8]| {
    let Some((choice, rest)) = data.split_first() else {
        return;
    };
    let mut parts = rest.splitn(2, |byte| *byte == 0);
    let Some(Ok(script)) = parts.next().map(std::str::from_utf8) else {
        return;
    };
    let object = parts.next().and_then(|it| serde_json::from_slice(it).ok());
    let object = object.filter(Value::is_object).unwrap_or_else(self::object);
    let operation = Operation::ALL[usize::from(*choice) % Operation::ALL.len()];
    let rules = rules(operation, script);
    let Some(said) = ask(&rules, operation, &object) else {
        return;
    };
    assert_eq!(
        ask(&rules, operation, &object),
        Some(said.clone()),
        "it says something else"
    );
    match &said {
        Ok(value) => {
            let length = value.to_string().len();
            assert!(length <= LARGEST, "an answer of {length} bytes");
            if operation == Operation::Status {
                assert!(length <= 2 * STATUS_LIMIT, "a status of {length} bytes");
            }
            if matches!(operation, Operation::Retain | Operation::ReviseReplica) {
                assert_eq!(Guarded::of(&object).check(value), Ok(()));
            }
        }
        Err(failed) => {
            let told = failed.to_string();
            assert!(
                told.len() <= LONGEST_ERROR,
                "an error of {} bytes",
                told.len()
            );
            assert!(!told.contains(char::is_control), "{told:?}");
        }
    }
    if let Ok(program) = Program::compile(script)
        && let Ok(machine) = Machine::new(LIMITS, &[])
    {
        if machine.load(&program).is_ok()
            && let Lua::Function(function) = machine.global(operation.function())
        {
            let _ = machine.run(&function, Vec::new());
        }
        let steps = machine.steps();
        assert!(
            (0.0..=f64::from(LIMITS.steps)).contains(&steps),
            "{steps} steps"
        );
    }
    let _ = carried::read(script);
    let health = ask(&INNOCENT, Operation::Health, &self::object());
    assert_eq!(
        health,
        Some(Ok(json!("Healthy"))),
        "it left something behind"
    );
});
