//! The library `kube` of scripts: amounts, what pods need, and what they refer to.

use crate::interpreter::dependencies::of_pod_template;
use crate::interpreter::replicas::of_pod_template as requirements;
use crate::lua::{Context, Module, Native, NotConverted, Refused, Value, restore, type_name};
use crate::quantity::{Format, Quantity};
use serde_json::Value as Json;

/// Largest pod template.
const LARGEST_TEMPLATE: usize = 1024 * 1024;

/// What `require` finds.
pub(super) const MODULES: &[Module] = &[Module {
    name: "kube",
    functions: &[
        Native {
            name: "resourceAdd",
            call: resource_add,
        },
        Native {
            name: "getResourceQuantity",
            call: resource_quantity,
        },
        Native {
            name: "accuratePodRequirements",
            call: pod_requirements,
        },
        Native {
            name: "getPodDependencies",
            call: pod_dependencies,
        },
    ],
}];

/// An amount that a script names; nil is none, as is a number.
fn quantity(value: &Value) -> Result<(Quantity, Format), Refused> {
    let text = match value {
        Value::Nil => "0".to_owned(),
        Value::String(text) if text.as_bytes().len() <= 64 => text.to_string_lossy(),
        Value::Integer(number) => number.to_string(),
        Value::Number(number) => number.to_string(),
        other => {
            let what = type_name(other);
            return Err(Refused::Message(format!(
                "a quantity is expected, got {what}"
            )));
        }
    };
    let parsed = Quantity::parse(&text).map_err(|error| Refused::message(error.to_string()))?;
    let format = match text.ends_with('i') {
        true => Format::Binary,
        false => Format::Decimal,
    };
    Ok((parsed, format))
}

/// The sum of amounts, in the form of the first that is not zero.
fn resource_add(context: &Context<'_>, values: &[Value]) -> Result<Value, Refused> {
    let mut sum: i128 = 0;
    let mut form = None;
    for value in values {
        context.charge(64)?;
        let (amount, format) = quantity(value)?;
        sum = sum.saturating_add(amount.milli_ceil());
        if amount != Quantity::default() {
            form.get_or_insert(format);
        }
    }
    let format = form.unwrap_or(Format::Decimal);
    context.text(&Quantity::from_milli(sum).canonical(format).to_string())
}

fn resource_quantity(_: &Context<'_>, values: &[Value]) -> Result<Value, Refused> {
    let (amount, _) = quantity(values.first().unwrap_or(&Value::Nil))?;
    Ok(Value::Number(amount.approximate()))
}

/// A table of the script as JSON, charged while it is read, whatever comes of it: whoever catches the error that it is
/// too large is not to have it read again for nothing.
fn json(context: &Context<'_>, value: Option<&Value>) -> Result<Json, Refused> {
    let Some(value @ Value::Table(_)) = value else {
        return Err(Refused::message("a pod template is expected"));
    };
    let exported = context.export(value, LARGEST_TEMPLATE);
    let mut json = exported.map_err(|error| match error {
        NotConverted::Exceeded(what) => Refused::Stop(mlua::Error::external(what)),
        other => Refused::message(other.to_string()),
    })?;
    restore(&mut json, &[]);
    Ok(json)
}

/// JSON that a script is given in return.
fn given(context: &Context<'_>, json: &Json) -> Result<Value, Refused> {
    context.charge(json.to_string().len() * 4)?;
    Ok(context.import(json)?)
}

fn pod_requirements(context: &Context<'_>, values: &[Value]) -> Result<Value, Refused> {
    let template = json(context, values.first())?;
    let (found, problem) = template.get("spec").map(requirements).unwrap_or_default();
    if let Some(problem) = problem {
        let why = format!("the pod template cannot be read: {problem}");
        return Err(Refused::message(why));
    }
    match found {
        Some(found) => {
            let found = serde_json::to_value(found).unwrap_or_default();
            given(context, &found)
        }
        None => Ok(Value::Nil),
    }
}

fn pod_dependencies(context: &Context<'_>, values: &[Value]) -> Result<Value, Refused> {
    let template = json(context, values.first())?;
    let namespace = match values.get(1) {
        Some(Value::String(text)) => text.to_string_lossy(),
        _ => String::new(),
    };
    let namespace = match namespace.as_str() {
        "" => "default",
        other => other,
    };
    let found = of_pod_template(&template, namespace);
    let found = serde_json::to_value(found).unwrap_or_default();
    given(context, &found)
}

#[cfg(test)]
mod tests {
    use super::super::Operation;
    use super::super::tests::rules;
    use serde_json::json;

    #[test]
    fn what_pods_ask_for_is_read_of_numbers_too() {
        let script = "local kube = require('kube')
            function GetReplicas(o) return 1, kube.accuratePodRequirements(o.template) end";
        let rules = rules(&[(Operation::Replica, script)]);
        let template = json!({"template": {"spec": {"tolerations": [], "nodeSelector": {}, "containers": [
            {"resources": {"requests": {"cpu": 1, "memory": 1_048_576}, "limits": {}}},
            {"resources": {"limits": {"cpu": 0.25, "memory": "1Mi"}}}]}}});
        let found = rules.replicas(&template).expect("asked").expect("answers");
        let needs = serde_json::to_value(found.requirements).expect("JSON");
        assert_eq!(
            needs,
            json!({"resourceRequest": {"cpu": "1250m", "memory": "2Mi"}})
        );
    }

    #[test]
    fn amounts_are_added_and_read() {
        let replica = |body: &str| {
            let script = format!("local kube = require('kube') function GetReplicas() {body} end");
            let found = rules(&[(Operation::Replica, &script)])
                .replicas(&json!({}))
                .expect("asked");
            found.map_err(|failed| failed.to_string())
        };
        for (body, want) in [
            ("return kube.getResourceQuantity('2') * 2", Ok(4)),
            ("return kube.getResourceQuantity('1Ki')", Ok(1024)),
            ("return 3/2", Ok(1)),
            ("return kube.getResourceQuantity('900m')", Ok(0)),
            ("return kube.getResourceQuantity(nil)", Ok(0)),
            (
                "if kube.resourceAdd('1', '500m', nil) == '1500m' then return 1 end return 0",
                Ok(1),
            ),
            (
                "if kube.resourceAdd('1Gi', '1Gi') == '2Gi' then return 1 end return 0",
                Ok(1),
            ),
            (
                "if kube.resourceAdd() == '0' then return 1 end return 0",
                Ok(1),
            ),
            (
                "if kube.accuratePodRequirements({}) == nil then return 1 end return 0",
                Ok(1),
            ),
            (
                "return #kube.getPodDependencies({spec = {serviceAccountName = 'x'}}, nil)",
                Ok(1),
            ),
            (
                "local d = kube.getPodDependencies({spec = {serviceAccountName = 'x'}}) if d[1].namespace == 'default' then return 1 end return 0",
                Ok(1),
            ),
            (
                "kube.resourceAdd({})",
                Err("a quantity is expected, got table"),
            ),
            (
                "kube.accuratePodRequirements(nil)",
                Err("a pod template is expected"),
            ),
            (
                "kube.accuratePodRequirements({spec = {containers = {{resources = {requests = {cpu = 'much'}}}}}})",
                Err("the pod template cannot be read: \"much\" is not a quantity"),
            ),
            (
                "kube.accuratePodRequirements({spec = {nodeSelector = {disk = 1}}})",
                Err("the pod template cannot be read: "),
            ),
            (
                "local t = {} t.t = t kube.getPodDependencies(t)",
                Err("nested more than"),
            ),
        ] {
            match (replica(body), want) {
                (Ok(got), Ok(want)) => assert_eq!(got.replicas, want, "{body}"),
                (Err(text), Err(want)) => assert!(text.contains(want), "{body}: {text}"),
                (got, want) => panic!("{body}: {got:?}, not {want:?}"),
            }
        }
    }

    /// Each turn reads a megabyte before it is refused.
    #[test]
    fn what_is_refused_for_its_size_has_its_price() {
        let script = "local kube = require('kube')
            function GetReplicas()
              local numbers, big = {}, {}
              for i = 1, 5000 do numbers[i] = i end
              for i = 1, 40 do big[i] = numbers end
              for turn = 1, 50 do pcall(kube.getPodDependencies, big) end
              return 1
            end";
        let found = rules(&[(Operation::Replica, script)]).replicas(&json!({}));
        let failed = found.expect("asked").expect_err("is stopped").to_string();
        assert!(
            failed.contains("the script was stopped: it took more"),
            "{failed}"
        );
    }
}
