//! What the hub is told of live objects, and what stays of them: by the scripts that their Work carries, else by the
//! rules of built-in kinds.
//!
//! Scripts are strangers' words: each runs metered in an environment of its own, one at a time, and one that was stopped
//! has all others wait, so that the rest of the agent has most of the time. Nothing is read before an object asks.

use super::wire::LiveMeta;
use common::api::work::ResourceHealth;
use common::gvk::Gvk;
use common::harmless;
use common::interpreter::custom::{Failed, Problem, Rules, carried};
use common::interpreter::{has_no_status, health, reflect};
use common::lua::RunError;
use serde_json::Value;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::Mutex;

/// Longest text of a script that failed, in bytes.
const PROBLEM_MAX: usize = 1024;
/// How long scripts rest after one that used up what it may.
const REST: Duration = Duration::from_secs(1);

/// What a Work carries for its objects to be asked.
#[derive(Debug)]
pub struct Scripts {
    text: Box<str>,
    /// Of the text; never 0.
    pub hash: u64,
    rules: OnceLock<Option<(Gvk, Rules)>>,
}

impl Scripts {
    /// Of an annotation.
    pub fn new(text: &str) -> Self {
        Self {
            text: text.into(),
            hash: super::manifest::hash_bytes(text.as_bytes()).max(1),
            rules: OnceLock::new(),
        }
    }

    /// The annotation.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What is known of a kind.
    pub fn of(&self, gvk: &Gvk) -> Option<&Rules> {
        let read = self.rules.get_or_init(|| carried::read(&self.text));
        let (about, rules) = read.as_ref()?;
        (about == gvk).then_some(rules)
    }
}

/// What the hub is told of a live object.
#[derive(Debug, Clone, PartialEq)]
pub struct Shown {
    /// Its health; unknown where the script that knows it fails.
    pub health: ResourceHealth,
    /// Reflected status, as JSON.
    pub status: Option<Box<str>>,
    /// Which script fails, and why.
    pub problem: Option<Box<str>>,
    /// Hash of the scripts that the Work carried, 0 without.
    pub by: u64,
}

impl Shown {
    /// By the rules of built-in kinds.
    pub fn built_in(gvk: &Gvk, object: &Value) -> Self {
        let (health, status) = match has_no_status(gvk) {
            true => (ResourceHealth::Healthy, None),
            false => (health::health(gvk, object), reflect::reflect(gvk, object)),
        };
        Self {
            health,
            status: status.map(|status| status.to_string().into_boxed_str()),
            problem: None,
            by: 0,
        }
    }
}

/// Asks scripts, one after the other; clones share the turn.
#[derive(Debug, Clone, Default)]
pub struct Interpreter(Arc<Mutex<()>>);

impl Interpreter {
    /// What the hub is told of a live object, by what its Work carries.
    pub async fn show(&self, scripts: Option<&Scripts>, gvk: &Gvk, object: &Value) -> Shown {
        let mut shown = Shown::built_in(gvk, object);
        let Some(scripts) = scripts else {
            return shown;
        };
        shown.by = scripts.hash;
        // Objects of such a kind are seen by their metadata alone.
        let Some(rules) = scripts.of(gvk).filter(|_| !has_no_status(gvk)) else {
            return shown;
        };
        let mut failed = Vec::new();
        match self.ask(|| rules.health(object)).await {
            Some(Ok(health)) => shown.health = health,
            Some(Err(problem)) => {
                shown.health = ResourceHealth::Unknown;
                failed.push(problem.to_string());
            }
            None => {}
        }
        match self.ask(|| rules.reflect(object)).await {
            Some(Ok(status)) => shown.status = Some(status.to_string().into()),
            Some(Err(problem)) => {
                shown.status = None;
                failed.push(problem.to_string());
            }
            None => {}
        }
        if !failed.is_empty() {
            shown.problem = Some(harmless::line(&failed.join("; "), PROBLEM_MAX).into());
        }
        shown
    }

    /// What a script makes of a manifest and the live object; none where none is for that.
    pub async fn retain(
        &self,
        scripts: Option<&Scripts>,
        gvk: &Gvk,
        desired: &Value,
        live: &Value,
    ) -> Option<Result<Value, Failed>> {
        let rules = scripts?.of(gvk)?;
        self.ask(|| rules.retain(desired, live)).await
    }

    async fn ask<T>(
        &self,
        of: impl FnOnce() -> Option<Result<T, Failed>>,
    ) -> Option<Result<T, Failed>> {
        let _turn = self.0.lock().await;
        let answer = of();
        if let Some(Err(failed)) = &answer
            && matches!(failed.problem, Problem::Run(RunError::Exceeded(_)))
        {
            tokio::time::sleep(REST).await;
        }
        answer
    }
}

/// Whether a live object has everything that `wanted` says, whatever else is in it.
pub fn holds(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => wanted.iter().all(|(key, wanted)| {
            let live = live.get(key).unwrap_or(&Value::Null);
            holds(live, wanted)
        }),
        (Value::Array(live), Value::Array(wanted)) => {
            live.len() == wanted.len() && live.iter().zip(wanted).all(|(l, w)| holds(l, w))
        }
        // What is empty says nothing.
        (Value::Null, Value::Object(wanted)) => wanted.values().all(|it| holds(&Value::Null, it)),
        (Value::Null, Value::Array(wanted)) => wanted.is_empty(),
        (live, wanted) => live == wanted,
    }
}

/// The Work in `namespace` that a live object names.
pub fn named_work<'a>(meta: &'a LiveMeta, namespace: &str) -> Option<&'a str> {
    let work = meta.work.as_ref().filter(|(of, _)| of == namespace);
    work.map(|(_, name)| name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execution::testing::scripts;
    use serde_json::json;

    fn gvk() -> Gvk {
        Gvk::new("shop.example.com/v1", "Till").expect("sound")
    }

    #[tokio::test(start_paused = true)]
    async fn scripts_come_before_the_rules_of_built_in_kinds() {
        let asked = scripts(&[
            (
                "InterpretHealth",
                "function InterpretHealth(o) return o.status.open end",
            ),
            (
                "InterpretStatus",
                "function ReflectStatus(o) return {open = o.status.open} end",
            ),
        ]);
        let asked = Scripts::new(&asked);
        let live = json!({"status": {"open": false, "more": 1}});
        let interpreter = Interpreter::default();
        let shown = interpreter.show(Some(&asked), &gvk(), &live).await;
        let want = Shown {
            health: ResourceHealth::Unhealthy,
            status: Some(r#"{"open":false}"#.into()),
            problem: None,
            by: asked.hash,
        };
        assert_eq!(shown, want);
        // Another version is another kind, and of nothing carried everything is built in.
        let other = Gvk::new("shop.example.com/v2", "Till").expect("sound");
        let shown = interpreter.show(Some(&asked), &other, &live).await;
        assert_eq!(
            (shown.health, shown.by),
            (ResourceHealth::Healthy, asked.hash)
        );
        let bare = interpreter.show(None, &gvk(), &live).await;
        assert_eq!(bare, Shown::built_in(&gvk(), &live));
        assert!(asked.of(&other).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_script_that_fails_takes_nothing_else_along() {
        let asked = scripts(&[
            (
                "InterpretHealth",
                "function InterpretHealth() while true do end end",
            ),
            (
                "InterpretStatus",
                "function ReflectStatus() return {fine = true} end",
            ),
            (
                "Retain",
                "function Retain(d, o) d.spec = o.spec return d end",
            ),
        ]);
        let asked = Scripts::new(&asked);
        let interpreter = Interpreter::default();
        let begun = tokio::time::Instant::now();
        let shown = interpreter.show(Some(&asked), &gvk(), &json!({})).await;
        assert_eq!(shown.health, ResourceHealth::Unknown);
        assert_eq!(shown.status.as_deref(), Some(r#"{"fine":true}"#));
        let told = shown.problem.expect("a problem");
        assert!(
            told.starts_with(
                "ResourceInterpreterCustomization tills, InterpretHealth: the script was stopped"
            ),
            "{told}"
        );
        assert_eq!(begun.elapsed(), REST);
        let kept = interpreter
            .retain(Some(&asked), &gvk(), &json!({}), &json!({"spec": 1}))
            .await;
        assert_eq!(kept, Some(Ok(json!({"spec": 1}))));
    }

    #[test]
    fn what_is_wanted_is_held_by_more() {
        let live = json!({"a": {"b": 1, "c": [{"n": "x", "d": 2}]}, "e": 3});
        assert!(holds(
            &live,
            &json!({"a": {"b": 1, "c": [{"n": "x"}]}, "f": {}, "g": []})
        ));
        for wanted in [
            json!({"a": {"b": 2}}),
            json!({"a": {"c": []}}),
            json!({"a": {"c": [{"n": "y"}]}}),
            json!({"f": {"g": 1}}),
        ] {
            assert!(!holds(&live, &wanted), "{wanted}");
        }
    }
}
