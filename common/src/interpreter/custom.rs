//! ResourceInterpreterCustomizations: what their scripts say of objects of the kinds that they are for.
//!
//! Pure. Each script is read once and runs in an environment of its own each time. What it gives is untrusted: its type is
//! checked, its size is bounded, and it decides neither which object it is about nor whose that is.

pub mod carried;
mod kube;
mod operations;
mod outcome;
#[cfg(test)]
mod tests;

pub use outcome::{Failed, Problem};

use crate::api::interpreter::{CustomizationRules, CustomizationSpec};
use crate::gvk::Gvk;
use crate::lua::{CompileError, Limits, Program};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// What one call may use up: some tens of milliseconds of a processor.
pub const LIMITS: Limits = Limits {
    steps: 500_000,
    bytes: 16 * 1024 * 1024,
};

/// What a script can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// Which values of the member stay.
    Retain,
    /// How many replicas, and what one needs.
    Replica,
    /// Parts with replicas of their own.
    Component,
    /// Writes a share of the replicas.
    ReviseReplica,
    /// Which status is reported.
    Status,
    /// One status of many.
    AggregateStatus,
    /// Whether it is well.
    Health,
    /// What it needs beside it.
    Dependency,
}

impl Operation {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Retain,
        Self::Replica,
        Self::Component,
        Self::ReviseReplica,
        Self::Status,
        Self::AggregateStatus,
        Self::Health,
        Self::Dependency,
    ];

    /// Its name, as Karmada has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Retain => "Retain",
            Self::Replica => "InterpretReplica",
            Self::Component => "InterpretComponent",
            Self::ReviseReplica => "ReviseReplica",
            Self::Status => "InterpretStatus",
            Self::AggregateStatus => "AggregateStatus",
            Self::Health => "InterpretHealth",
            Self::Dependency => "InterpretDependency",
        }
    }

    /// The function that a script for it defines.
    pub fn function(self) -> &'static str {
        match self {
            Self::Retain => "Retain",
            Self::Replica => "GetReplicas",
            Self::Component => "GetComponents",
            Self::ReviseReplica => "ReviseReplica",
            Self::Status => "ReflectStatus",
            Self::AggregateStatus => "AggregateStatus",
            Self::Health => "InterpretHealth",
            Self::Dependency => "GetDependencies",
        }
    }

    /// Its script in a customization; none when there is none, or when it is empty.
    pub fn script(self, rules: &CustomizationRules) -> Option<&str> {
        let script = match self {
            Self::Retain => &rules.retention,
            Self::Replica => &rules.replica_resource,
            Self::Component => &rules.component_resource,
            Self::ReviseReplica => &rules.replica_revision,
            Self::Status => &rules.status_reflection,
            Self::AggregateStatus => &rules.status_aggregation,
            Self::Health => &rules.health_interpretation,
            Self::Dependency => &rules.dependency_interpretation,
        };
        let text = script.as_ref().map(|script| script.lua_script.as_str());
        text.filter(|text| !text.is_empty())
    }
}

/// One script.
#[derive(Debug)]
struct Script {
    customization: String,
    operation: Operation,
    program: Result<Program, CompileError>,
    text: Arc<str>,
}

/// What is known of one kind, by its operations.
#[derive(Debug, Clone, Default)]
pub struct Rules(BTreeMap<Operation, Vec<Arc<Script>>>);

impl Rules {
    /// Whether a script is there for an operation.
    pub fn has(&self, operation: Operation) -> bool {
        self.0.contains_key(&operation)
    }

    fn scripts(&self, operation: Operation) -> &[Arc<Script>] {
        self.0.get(&operation).map_or(&[], Vec::as_slice)
    }
}

/// All customizations, by the kinds that they are for.
#[derive(Clone, Default)]
pub struct Customizations(BTreeMap<Gvk, Arc<Rules>>);

/// How many; their scripts would be hundreds of kilobytes in a log.
impl fmt::Debug for Customizations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Customizations({} kinds)", self.0.len())
    }
}

impl Customizations {
    /// Of customizations by their names. Where several have a script for the same operation on the same kind, the first
    /// by name wins; those that say what an object needs are all asked.
    pub fn new<'a>(all: impl IntoIterator<Item = (&'a str, &'a CustomizationSpec)>) -> Self {
        let sorted: BTreeMap<&str, &CustomizationSpec> = all.into_iter().collect();
        let mut kinds: BTreeMap<Gvk, Rules> = BTreeMap::new();
        for (name, spec) in sorted {
            let Some(gvk) = Gvk::new(&spec.target.api_version, &spec.target.kind) else {
                continue;
            };
            let rules = kinds.entry(gvk).or_default();
            for operation in Operation::ALL {
                let Some(text) = operation.script(&spec.customizations) else {
                    continue;
                };
                let scripts = rules.0.entry(operation).or_default();
                if scripts.is_empty() || operation == Operation::Dependency {
                    scripts.push(Arc::new(Script {
                        customization: name.to_owned(),
                        operation,
                        program: Program::compile(text),
                        text: text.into(),
                    }));
                }
            }
        }
        let kinds = kinds.into_iter().filter(|(_, rules)| !rules.0.is_empty());
        Self(kinds.map(|(gvk, rules)| (gvk, Arc::new(rules))).collect())
    }

    /// The same, of which these are all that are for one kind.
    #[must_use]
    pub fn with<'a>(
        &self,
        gvk: &Gvk,
        all: impl IntoIterator<Item = (&'a str, &'a CustomizationSpec)>,
    ) -> Self {
        let mut kinds = self.0.clone();
        kinds.remove(gvk);
        kinds.extend(Self::new(all).0.into_iter().filter(|(kind, _)| kind == gvk));
        Self(kinds)
    }

    /// What is known of a kind.
    pub fn of(&self, gvk: &Gvk) -> Option<&Arc<Rules>> {
        self.0.get(gvk)
    }

    /// The kinds that something is known of.
    pub fn kinds(&self) -> impl Iterator<Item = &Gvk> {
        self.0.keys()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// What is wrong with the scripts of a customization, before they are asked anything.
pub fn check(spec: &CustomizationSpec) -> Vec<(Operation, CompileError)> {
    let scripts = Operation::ALL.into_iter();
    let scripts = scripts.filter_map(|it| Some((it, it.script(&spec.customizations)?)));
    scripts
        .filter_map(|(operation, text)| Some((operation, Program::compile(text).err()?)))
        .collect()
}
