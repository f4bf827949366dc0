//! Each operation: what its function is given, and what of the answer is believed.

use super::kube::MODULES;
use super::{Failed, LIMITS, Operation, Problem, Rules, Script};
use crate::api::binding::{AggregatedStatusItem, ReplicaRequirements};
use crate::api::work::ResourceHealth;
use crate::interpreter::dependencies::Dependency;
use crate::interpreter::guard::Guarded;
use crate::interpreter::reflect::STATUS_LIMIT;
use crate::interpreter::replicas::Replicas;
use crate::interpreter::requests::Amount;
use crate::lua::{Machine, Value, restore, type_name, type_number};
use serde::Deserialize as _;
use serde_json::{Value as Json, json};

/// Largest object that a script may make; an API server stores no larger one.
const LARGEST_OBJECT: usize = 1536 * 1024;
/// Largest list and requirements.
const LARGEST_ANSWER: usize = 64 * 1024;
/// Most dependencies of one object.
const MOST_DEPENDENCIES: usize = 256;

/// An answer with the machine that its tables lie in.
struct Answer {
    machine: Machine,
    values: Vec<Value>,
}

impl Answer {
    fn first(&self) -> &Value {
        self.values.first().unwrap_or(&Value::Nil)
    }

    /// A value that has to be a table, as JSON.
    fn table(&self, at: usize, what: &str, limit: usize) -> Result<Json, Problem> {
        let value = self.values.get(at).unwrap_or(&Value::Nil);
        if !matches!(value, Value::Table(_)) {
            return Err(no_table(what, value));
        }
        Ok(self.machine.export(value, limit)?)
    }

    /// One field of the first value, which has to be a table, as JSON.
    fn field(&self, name: &str, what: &str, limit: usize) -> Result<Json, Problem> {
        let Value::Table(table) = self.first() else {
            return Err(no_table(what, self.first()));
        };
        let field = table.raw_get(name).unwrap_or(Value::Nil);
        Ok(self.machine.export(&field, limit)?)
    }
}

fn no_table(what: &str, value: &Value) -> Problem {
    let found = type_name(value);
    Problem::Type(format!(
        "expect the returned {what} type is table but got {found}"
    ))
}

impl Script {
    fn call(&self, arguments: &[&Json]) -> Result<Answer, Problem> {
        let program = self.program.as_ref().map_err(Clone::clone)?;
        let machine = Machine::new(LIMITS, MODULES)?;
        let arguments = arguments.iter().map(|json| machine.import(json));
        let arguments = arguments.collect::<Result<_, _>>()?;
        machine.load(program)?;
        let name = self.operation.function();
        let function = machine.global(name);
        let function = match function {
            Value::Function(function) => function,
            Value::Nil => return Err(Problem::NoFunction(name)),
            other => return Err(Problem::NotAFunction(name, type_name(&other))),
        };
        let values = machine.run(&function, arguments)?;
        Ok(Answer { machine, values })
    }

    fn failed(&self, problem: Problem) -> Failed {
        Failed {
            customization: self.customization.clone(),
            operation: self.operation,
            problem,
        }
    }
}

impl Rules {
    fn ask<T>(
        &self,
        operation: Operation,
        of: impl FnOnce(&Script) -> Result<T, Problem>,
    ) -> Option<Result<T, Failed>> {
        let script = self.scripts(operation).first()?;
        Some(of(script).map_err(|problem| script.failed(problem)))
    }

    /// The replicas of a template, and what one needs.
    pub fn replicas(&self, template: &Json) -> Option<Result<Replicas, Failed>> {
        self.ask(Operation::Replica, |script| {
            let answer = script.call(&[template])?;
            let replicas = match answer.first() {
                Value::Integer(number) => whole(&number.to_string())?,
                // As in Go, a fraction goes.
                Value::Number(number) => whole(&number.trunc().to_string())?,
                other => {
                    let number = type_number(other);
                    return Err(Problem::Type(format!("result type {number} is not number")));
                }
            };
            let requirements = match answer.values.get(1) {
                None | Some(Value::Nil) => None,
                Some(_) => Some(requirements(answer.table(
                    1,
                    "requires",
                    LARGEST_ANSWER,
                )?)?),
            };
            Ok(Replicas {
                replicas,
                requirements: requirements.filter(|it| *it != ReplicaRequirements::default()),
            })
        })
    }

    /// A manifest with another number of replicas.
    pub fn revise(&self, manifest: &Json, replicas: i32) -> Option<Result<Json, Failed>> {
        self.ask(Operation::ReviseReplica, |script| {
            let answer = script.call(&[manifest, &json!(replicas)])?;
            let revised = answer.table(0, "requires", LARGEST_OBJECT)?;
            object(revised, manifest, &[manifest])
        })
    }

    /// A manifest with what the member decided of the live object.
    pub fn retain(&self, desired: &Json, observed: &Json) -> Option<Result<Json, Failed>> {
        self.ask(Operation::Retain, |script| {
            let answer = script.call(&[desired, observed])?;
            let retained = answer.table(0, "requires", LARGEST_OBJECT)?;
            object(retained, desired, &[desired, observed])
        })
    }

    /// The status that is reported of a live object.
    pub fn reflect(&self, live: &Json) -> Option<Result<Json, Failed>> {
        self.ask(Operation::Status, |script| {
            let answer = script.call(&[live])?;
            let mut status = answer.table(0, "replica", STATUS_LIMIT)?;
            restore(&mut status, &[live.get("status").unwrap_or(&Json::Null)]);
            map(status)
        })
    }

    /// The status of a template out of what its members reflect.
    ///
    /// Of what the script returns only the status is read: the rest is the object, which may be large.
    pub fn aggregate(
        &self,
        template: &Json,
        items: &[AggregatedStatusItem],
    ) -> Option<Result<Json, Failed>> {
        self.ask(Operation::AggregateStatus, |script| {
            let items = serde_json::to_value(items).unwrap_or_default();
            let answer = script.call(&[template, &items])?;
            let mut status = answer.field("status", "requires", LARGEST_OBJECT)?;
            let before: Vec<&Json> = template.get("status").into_iter().collect();
            restore(&mut status, &before);
            map(status)
        })
    }

    /// Whether a live object is well.
    pub fn health(&self, live: &Json) -> Option<Result<ResourceHealth, Failed>> {
        self.ask(Operation::Health, |script| {
            let answer = script.call(&[live])?;
            match answer.first() {
                Value::Boolean(true) => Ok(ResourceHealth::Healthy),
                Value::Boolean(false) => Ok(ResourceHealth::Unhealthy),
                other => {
                    let number = type_number(other);
                    Err(Problem::Type(format!("result type {number} is not bool")))
                }
            }
        })
    }

    /// What an object refers to, by all scripts.
    pub fn dependencies(&self, object: &Json) -> Option<Result<Vec<Dependency>, Failed>> {
        if !self.has(Operation::Dependency) {
            return None;
        }
        let mut found: Vec<Dependency> = Vec::new();
        for script in self.scripts(Operation::Dependency) {
            match dependencies(script, object) {
                Ok(more) => found.extend(more),
                Err(problem) => return Some(Err(script.failed(problem))),
            }
        }
        Some(Ok(unique(found)))
    }

    /// The parts of a template with replicas of their own, as the script gives them.
    pub fn components(&self, template: &Json) -> Option<Result<Json, Failed>> {
        self.ask(Operation::Component, |script| {
            let answer = script.call(&[template])?;
            if answer.first().is_nil() {
                return Ok(Json::Null);
            }
            let mut list = answer.table(0, "requires", LARGEST_ANSWER)?;
            restore(&mut list, &[]);
            Ok(list)
        })
    }
}

/// A number of replicas.
fn whole(text: &str) -> Result<i32, Problem> {
    let whole = text.parse::<i32>().ok().filter(|whole| *whole >= 0);
    whole.ok_or_else(|| Problem::Type(format!("{text} is no number of replicas")))
}

fn map(json: Json) -> Result<Json, Problem> {
    match json {
        Json::Object(_) => Ok(json),
        // A table with nothing in it is whatever it has to be.
        Json::Null => Ok(json!({})),
        Json::Array(items) if items.is_empty() => Ok(json!({})),
        _ => Err(Problem::Type("the returned status is a list".to_owned())),
    }
}

/// An object that a script made of another one, which it still has to be.
fn object(mut made: Json, before: &Json, inputs: &[&Json]) -> Result<Json, Problem> {
    restore(&mut made, inputs);
    Guarded::of(before).check(&made)?;
    Ok(made)
}

fn requirements(mut json: Json) -> Result<ReplicaRequirements, Problem> {
    restore(&mut json, &[]);
    if let Some(Json::Object(amounts)) = json.get_mut("resourceRequest") {
        for (name, amount) in amounts {
            let Ok(sound) = Amount::deserialize(&*amount) else {
                return Err(Problem::Type(format!(
                    "resourceRequest of {name} is not a quantity"
                )));
            };
            *amount = Json::String(sound.into_text());
        }
    }
    let read = ReplicaRequirements::deserialize(&json);
    read.map_err(|error| Problem::Type(format!("the returned requirements: {error}")))
}

fn dependencies(script: &Script, object: &Json) -> Result<Vec<Dependency>, Problem> {
    let answer = script.call(&[object])?;
    let mut list = answer.table(0, "requires", LARGEST_ANSWER)?;
    restore(&mut list, &[]);
    let list = match list {
        Json::Array(list) => list,
        Json::Null => Vec::new(),
        _ => {
            return Err(Problem::Type(
                "the returned dependencies are no list".to_owned(),
            ));
        }
    };
    let mut found = Vec::with_capacity(list.len());
    for (at, mut item) in list.into_iter().enumerate() {
        if let Some(map) = item.as_object_mut() {
            map.retain(|_, value| value.as_str() != Some(""));
        }
        let lacks = |field: &str| item.get(field).is_none_or(Json::is_null);
        let wrong = |what: String| Err(Problem::Type(format!("dependencies[{at}]{what}")));
        for (field, what) in [
            ("apiVersion", "missing required apiVersion"),
            ("kind", "missing required kind"),
        ] {
            if lacks(field) {
                return wrong(format!(".{field}: {what}"));
            }
        }
        if lacks("name") && lacks("labelSelector") {
            return wrong(": dependency can not leave name and labelSelector all empty".to_owned());
        }
        match Dependency::deserialize(&item) {
            Ok(dependency) => found.push(dependency),
            Err(error) => return wrong(format!(": {error}")),
        }
    }
    // Many parts of one object may need the same.
    let found = unique(found);
    if found.len() > MOST_DEPENDENCIES {
        return Err(Problem::Type(format!(
            "more than {MOST_DEPENDENCIES} dependencies"
        )));
    }
    Ok(found)
}

/// Each once, in an order that does not depend on that of scripts.
fn unique(mut all: Vec<Dependency>) -> Vec<Dependency> {
    all.sort_by_cached_key(|it| {
        let labels = serde_json::to_string(&it.label_selector).unwrap_or_default();
        let names = (it.namespace.clone(), it.name.clone());
        (it.api_version.clone(), it.kind.clone(), names, labels)
    });
    all.dedup();
    all
}
