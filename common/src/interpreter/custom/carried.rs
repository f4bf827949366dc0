//! Scripts on their way to members: what only a member can ask goes along in the Work, as the annotation
//! [`crate::labels::INTERPRETATION`].
//!
//! Pure. `{"apiVersion", "kind", "scripts": {OPERATION: {"customization", "luaScript"}}}`.

use super::{Operation, Rules, Script};
use crate::gvk::Gvk;
use crate::lua::Program;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What members ask.
pub const IN_MEMBERS: [Operation; 3] = [Operation::Retain, Operation::Status, Operation::Health];

/// Longest text, in bytes: all annotations of an object have twice as many.
pub const LONGEST: usize = 128 * 1024;

/// Scripts that do not go into one Work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the scripts for {api_version} {kind} that members run have {length} bytes; retention, statusReflection and \
     healthInterpretation of one kind have at most {LONGEST} together"
)]
pub struct TooLong {
    api_version: String,
    kind: String,
    length: usize,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Carried {
    api_version: String,
    kind: String,
    scripts: BTreeMap<String, One>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct One {
    customization: String,
    lua_script: String,
}

/// What a Work of this kind carries; none when no script is for members. `scripts` has the rules that decide about an
/// operation.
pub fn write<'a>(
    gvk: &Gvk,
    rules: impl Fn(Operation) -> Option<&'a Rules>,
) -> Result<Option<String>, TooLong> {
    let one = |operation: Operation| {
        let script = rules(operation)?.scripts(operation).first()?;
        let one = One {
            customization: script.customization.clone(),
            lua_script: script.text.to_string(),
        };
        Some((operation.name().to_owned(), one))
    };
    let scripts: BTreeMap<String, One> = IN_MEMBERS.into_iter().filter_map(one).collect();
    if scripts.is_empty() {
        return Ok(None);
    }
    let carried = Carried {
        api_version: gvk.api_version(),
        kind: gvk.kind.clone(),
        scripts,
    };
    // Texts by texts always serialise.
    let text = serde_json::to_string(&carried).unwrap_or_default();
    if text.len() > LONGEST {
        return Err(TooLong {
            api_version: carried.api_version,
            kind: carried.kind,
            length: text.len(),
        });
    }
    Ok(Some(text))
}

/// Reads what a Work carries; none of a text that is not of this form.
pub fn read(text: &str) -> Option<(Gvk, Rules)> {
    if text.len() > LONGEST {
        return None;
    }
    let carried: Carried = serde_json::from_str(text).ok()?;
    let gvk = Gvk::new(&carried.api_version, &carried.kind)?;
    let scripts = IN_MEMBERS.into_iter().filter_map(|operation| {
        let one = carried.scripts.get(operation.name())?;
        let script = Script {
            customization: one.customization.clone(),
            operation,
            program: Program::compile(&one.lua_script),
            text: one.lua_script.as_str().into(),
        };
        Some((operation, vec![Arc::new(script)]))
    });
    Some((gvk, Rules(scripts.collect())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::interpreter::{self, CustomizationRules, CustomizationSpec};
    use crate::api::work::ResourceHealth;
    use crate::interpreter::custom::Customizations;
    use crate::interpreter::layers::Interpreter;
    use serde_json::json;

    fn layer(name: &str, rules: CustomizationRules) -> Arc<Customizations> {
        let mut spec = CustomizationSpec {
            customizations: rules,
            ..CustomizationSpec::default()
        };
        spec.target.api_version = "shop.example.com/v1".to_owned();
        spec.target.kind = "Till".to_owned();
        Arc::new(Customizations::new([(name, &spec)]))
    }

    fn script(text: &str) -> Option<interpreter::Script> {
        Some(interpreter::Script {
            lua_script: text.to_owned(),
        })
    }

    #[test]
    fn a_member_asks_what_the_hub_would() {
        let gvk = Gvk::new("shop.example.com/v1", "Till").expect("sound");
        let ours = CustomizationRules {
            health_interpretation: script("function InterpretHealth(o) return o.open end"),
            replica_resource: script("function GetReplicas() return 1 end"),
            ..CustomizationRules::default()
        };
        let theirs = CustomizationRules {
            health_interpretation: script("function InterpretHealth() return false end"),
            retention: script("function Retain(d, o) d.open = o.open return d end"),
            ..CustomizationRules::default()
        };
        let known = Interpreter::new(layer("ours", ours), layer("theirs", theirs));
        let text = known.carried(&gvk).expect("short").expect("scripts");
        // Only what a member asks goes there.
        assert!(!text.contains("GetReplicas"), "{text}");
        let (of, rules) = read(&text).expect("reads");
        assert_eq!(of, gvk);
        let live = json!({"open": true});
        let health = rules.health(&live).expect("asked");
        assert_eq!(health.expect("answers"), ResourceHealth::Healthy);
        let kept = rules.retain(&json!({"open": false}), &live).expect("asked");
        assert_eq!(kept.expect("answers"), live);
        assert!(rules.reflect(&live).is_none());
        let other = Gvk::new("v1", "ConfigMap").expect("sound");
        assert_eq!(known.carried(&other), Ok(None));
    }

    #[test]
    fn a_text_that_is_none_of_ours_is_none() {
        for text in [
            "",
            "{}",
            "[]",
            r#"{"apiVersion":"","kind":"","scripts":{}}"#,
        ] {
            assert!(read(text).is_none(), "{text}");
        }
        let bad = r#"{"apiVersion":"a/v1","kind":"B","scripts":{"InterpretHealth":{"customization":"c","luaScript":"="}}}"#;
        let (_, rules) = read(bad).expect("reads");
        let failed = rules.health(&json!({})).expect("asked");
        let failed = failed.expect_err("no Lua").to_string();
        assert!(
            failed.starts_with("ResourceInterpreterCustomization c, InterpretHealth: <string>:1:")
        );
    }

    #[test]
    fn what_does_not_go_into_a_work_is_an_error() {
        let gvk = Gvk::new("shop.example.com/v1", "Till").expect("sound");
        let long = format!(
            "function InterpretHealth() return true end --{}",
            "\"".repeat(65_000)
        );
        let rules = CustomizationRules {
            health_interpretation: script(&long),
            retention: script(&long),
            ..CustomizationRules::default()
        };
        let known = Interpreter::new(layer("long", rules), Arc::default());
        let told = known.carried(&gvk).expect_err("too long").to_string();
        assert!(
            told.contains("shop.example.com/v1 Till") && told.contains("131072"),
            "{told}"
        );
    }
}
