//! `towline interpret`: what the scripts of a customization make of an object, with no cluster.

use super::{CliError, Format, Kind, Output};
use crate::{shipped, yaml};
use anyhow::anyhow;
use common::api::binding::AggregatedStatusItem;
use common::api::interpreter::ResourceInterpreterCustomization;
use common::gvk::Gvk;
use common::interpreter::custom::{Customizations, Failed, Operation, Rules, check};
use common::interpreter::layers::Interpreter;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const KIND: &str = "ResourceInterpreterCustomization";

/// Try the scripts of ResourceInterpreterCustomizations, and those that ship with Towline, on objects, with no cluster.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
What the customizations of the files say nothing of, those that ship with Towline are asked.
Without --operation all are tried for which there is a script and the files have what it is given:
Retain needs --observed, AggregateStatus --status, ReviseReplica --replicas.

Examples:
  towline interpret -f customization.yaml -f object.yaml
  towline interpret -f customization.yaml -f object.yaml --operation ReviseReplica --replicas 3
  towline interpret -f customization.yaml -f object.yaml --operation Retain --observed live.yaml")]
pub(super) struct Args {
    /// Files with customizations and with the objects to try them on, in any order; - is stdin.
    #[arg(short = 'f', long = "filename", value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Only this: Retain, InterpretReplica, InterpretComponent, ReviseReplica, InterpretStatus, AggregateStatus,
    /// InterpretHealth or InterpretDependency.
    #[arg(long, value_name = "NAME", value_parser = operation)]
    operation: Option<Operation>,
    /// The object as the member has it, for Retain.
    #[arg(long, value_name = "FILE")]
    observed: Option<PathBuf>,
    /// What members say, for AggregateStatus: a list of clusterName, status, applied, appliedMessage and health.
    #[arg(long, value_name = "FILE")]
    status: Option<PathBuf>,
    /// How many replicas, for ReviseReplica.
    #[arg(long, value_name = "NUMBER")]
    replicas: Option<i32>,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

fn operation(text: &str) -> Result<Operation, String> {
    let named = |it: &&Operation| {
        it.name().eq_ignore_ascii_case(text) || it.function().eq_ignore_ascii_case(text)
    };
    let names = || Operation::ALL.map(Operation::name).join(", ");
    let found = Operation::ALL.iter().find(named).copied();
    found.ok_or_else(|| format!("it is none of {}", names()))
}

/// One question and its answer.
#[derive(Debug, Serialize, PartialEq)]
struct Tried {
    object: String,
    operation: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// What is tried, from the files.
#[derive(Debug, Default)]
struct Input {
    customizations: Vec<ResourceInterpreterCustomization>,
    objects: Vec<Value>,
    observed: Option<Value>,
    items: Option<Vec<AggregatedStatusItem>>,
    replicas: Option<i32>,
}

/// Tries the scripts.
pub(super) async fn run(args: Args, output: &Output) -> Result<(), CliError> {
    let tried = attempt(&read(&args)?, args.operation);
    match args.output {
        Format::Table => output.print(text(&tried))?,
        Format::Name => {
            let names: BTreeSet<&str> = tried.iter().map(|it| it.object.as_str()).collect();
            output.print(Vec::from_iter(names).join("\n"))?;
        }
        Format::Json | Format::Yaml => output.print_value(args.output, &tried)?,
    }
    let failed = tried.iter().filter(|it| it.error.is_some()).count();
    match (tried.len(), failed) {
        (0, _) => Err(CliError::message(Kind::Unmet, "there was nothing to try")
            .hint("Name an object of the kind that the customization is for, and what its operations are given.")),
        (_, 0) => Ok(()),
        (all, failed) => {
            let message = format!("{failed} of {all} scripts failed");
            Err(CliError::message(Kind::Unmet, message))
        }
    }
}

/// What is in the files.
fn read(args: &Args) -> Result<Input, CliError> {
    let mut input = Input {
        replicas: args.replicas,
        ..Input::default()
    };
    for file in &args.files {
        for document in documents(file)? {
            if document.get("kind").and_then(Value::as_str) == Some(KIND) {
                let read = ResourceInterpreterCustomization::deserialize(&document);
                let read = read.map_err(|error| unreadable(file, &error.into()))?;
                input.customizations.push(read);
            } else {
                input.objects.push(document);
            }
        }
    }
    if let Some(file) = &args.observed {
        input.observed = documents(file)?.into_iter().next();
    }
    if let Some(file) = &args.status {
        let list = documents(file)?.into_iter().next().unwrap_or_default();
        let items = Vec::<AggregatedStatusItem>::deserialize(&list);
        input.items = Some(items.map_err(|error| unreadable(file, &error.into()))?);
    }
    Ok(input)
}

fn unreadable(file: &Path, error: &anyhow::Error) -> CliError {
    let message = format!("failed to read {}: {error}", file.display());
    CliError::message(Kind::Config, message)
}

/// The objects of a file.
fn documents(file: &Path) -> Result<Vec<Value>, CliError> {
    let text = match file.as_os_str() == "-" {
        true => std::io::read_to_string(std::io::stdin()),
        false => std::fs::read_to_string(file),
    };
    let text = text.map_err(|error| unreadable(file, &error.into()))?;
    let mut found = Vec::new();
    let documents = yaml::documents(&text);
    for value in documents.map_err(|error| unreadable(file, &anyhow!("it {error}")))? {
        match value.get("items").and_then(Value::as_array) {
            Some(items) if value.get("kind").and_then(Value::as_str) == Some("List") => {
                found.extend(items.iter().cloned());
            }
            _ => found.push(value),
        }
    }
    found.retain(|value| !value.is_null());
    Ok(found)
}

/// Everything that can be tried, or one operation.
fn attempt(input: &Input, only: Option<Operation>) -> Vec<Tried> {
    let mut tried = Vec::new();
    for customization in &input.customizations {
        for (operation, error) in check(&customization.spec) {
            if only.is_none_or(|only| only == operation) {
                tried.push(Tried {
                    object: format!("{KIND} {}", name(customization)),
                    operation: operation.name(),
                    result: None,
                    error: Some(error.to_string()),
                });
            }
        }
    }
    if !tried.is_empty() {
        return tried;
    }
    let all = input.customizations.iter();
    let known = Customizations::new(all.map(|it| (name(it), &it.spec)));
    let known = Interpreter::new(Arc::new(known), shipped::customizations());
    for object in &input.objects {
        let word = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
        let gvk = Gvk::new(word("apiVersion"), word("kind"));
        let Some(gvk) = gvk else {
            continue;
        };
        let of = object.pointer("/metadata/name").and_then(Value::as_str);
        let of = format!("{} {}", word("kind"), of.unwrap_or_default());
        for operation in Operation::ALL {
            if only.is_some_and(|only| only != operation) {
                continue;
            }
            let rules = known.scripts(&gvk, operation);
            let Some(answer) = rules.and_then(|rules| ask(rules, operation, object, input)) else {
                continue;
            };
            let (result, error) = match answer {
                Ok(result) => (Some(result), None),
                Err(failed) => (None, Some(failed.problem.to_string())),
            };
            tried.push(Tried {
                object: of.clone(),
                operation: operation.name(),
                result,
                error,
            });
        }
    }
    tried
}

fn name(customization: &ResourceInterpreterCustomization) -> &str {
    customization.metadata.name.as_deref().unwrap_or_default()
}

fn ask(
    rules: &Rules,
    operation: Operation,
    object: &Value,
    input: &Input,
) -> Option<Result<Value, Failed>> {
    match operation {
        Operation::Retain => rules.retain(object, input.observed.as_ref()?),
        Operation::Replica => {
            Some(rules.replicas(object)?.map(
                |found| json!({"replicas": found.replicas, "requirements": found.requirements}),
            ))
        }
        Operation::Component => rules.components(object),
        Operation::ReviseReplica => rules.revise(object, input.replicas?),
        Operation::Status => rules.reflect(object),
        Operation::AggregateStatus => rules.aggregate(object, input.items.as_deref()?),
        Operation::Health => Some(rules.health(object)?.map(|health| json!(health))),
        Operation::Dependency => Some(rules.dependencies(object)?.map(|found| json!(found))),
    }
}

fn text(tried: &[Tried]) -> String {
    let mut text = String::new();
    for (at, one) in tried.iter().enumerate() {
        if at > 0 {
            text.push('\n');
        }
        let answer = match (&one.result, &one.error) {
            (Some(result), _) => common::yaml::document(result),
            (None, Some(error)) => format!("error: {error}"),
            (None, None) => String::new(),
        };
        text.push_str(&format!("{} of {}:\n", one.operation, one.object));
        for line in answer.lines() {
            text.push_str(&format!("  {line}\n"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::api::interpreter::{
        CustomizationRules, CustomizationSpec, CustomizationTarget, Script,
    };

    fn customization(health: &str) -> ResourceInterpreterCustomization {
        let script = |text: &str| {
            Some(Script {
                lua_script: text.to_owned(),
            })
        };
        let spec = CustomizationSpec {
            target: CustomizationTarget {
                api_version: "shop.example.com/v1".to_owned(),
                kind: "Till".to_owned(),
            },
            customizations: CustomizationRules {
                health_interpretation: script(health),
                replica_resource: script("function GetReplicas(o) return o.spec.n end"),
                replica_revision: script("function ReviseReplica(o, n) o.spec.n = n return o end"),
                ..CustomizationRules::default()
            },
        };
        ResourceInterpreterCustomization::new("tills", spec)
    }

    fn input(health: &str) -> Input {
        Input {
            customizations: vec![customization(health)],
            objects: vec![
                json!({"apiVersion": "shop.example.com/v1", "kind": "Till", "metadata": {"name": "a"}, "spec": {"n": 2}}),
                json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "b"}}),
            ],
            ..Input::default()
        }
    }

    #[test]
    fn what_can_be_asked_is_asked_and_shown() {
        let healthy = "function InterpretHealth(o) return o.spec.n > 1 end";
        let tried = attempt(&input(healthy), None);
        let want = "InterpretReplica of Till a:\n  replicas: 2\n  requirements: null\n\nInterpretHealth of Till a:\n  Healthy\n";
        assert_eq!(text(&tried), want);
        let revising = Input {
            replicas: Some(5),
            ..input(healthy)
        };
        let tried = attempt(&revising, Some(Operation::ReviseReplica));
        assert_eq!(tried.len(), 1);
        assert_eq!(tried[0].result.as_ref().expect("answered")["spec"]["n"], 5);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let tried = attempt(
            &input("function InterpretHealth(o)\nreturn o.a.b end"),
            None,
        );
        let want = "error: <string>:2: attempt to index nil with 'b'";
        assert!(text(&tried).contains(want), "{}", text(&tried));
        let tried = attempt(&input("\nfunction ("), None);
        assert_eq!(tried.len(), 1);
        let want = "InterpretHealth of ResourceInterpreterCustomization tills:\n  error: <string>:2: Expected identifier when parsing function name, got '('\n";
        assert_eq!(text(&tried), want);
    }

    #[test]
    fn screens_are_as_they_were_approved() {
        let well = Input {
            replicas: Some(5),
            ..input("function InterpretHealth(o) return o.spec.n > 1 end")
        };
        let ill = input("function InterpretHealth(o)\n  while true do end\nend");
        let unread = input("\nfunction (");
        for (name, input) in [("well", well), ("stopped", ill), ("unread", unread)] {
            let shown = text(&attempt(&input, None));
            crate::cli::approved::screens("cli/interpret/screens", name, |_, _| shown.clone());
        }
    }

    #[test]
    fn what_ships_is_tried_where_the_files_say_nothing() {
        let rollout = json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout",
            "metadata": {"name": "a", "namespace": "n", "generation": 1}, "spec": {"replicas": 3},
            "status": {"phase": "Healthy", "observedGeneration": "1"}});
        let mut input = Input {
            objects: vec![rollout],
            ..Input::default()
        };
        let health = |input: &Input| text(&attempt(input, Some(Operation::Health)));
        assert_eq!(health(&input), "InterpretHealth of Rollout a:\n  Healthy\n");
        let mut own = customization("function InterpretHealth() return false end");
        own.spec.target.api_version = "argoproj.io/v1alpha1".to_owned();
        own.spec.target.kind = "Rollout".to_owned();
        own.spec.customizations.replica_resource = None;
        input.customizations.push(own);
        assert_eq!(
            health(&input),
            "InterpretHealth of Rollout a:\n  Unhealthy\n"
        );
        // Operation by operation.
        let replicas = text(&attempt(&input, Some(Operation::Replica)));
        assert_eq!(
            replicas,
            "InterpretReplica of Rollout a:\n  replicas: 3\n  requirements: null\n"
        );
    }

    #[test]
    fn operations_are_known_by_both_of_their_names() {
        assert_eq!(operation("interpretHealth"), Ok(Operation::Health));
        assert_eq!(operation("GetReplicas"), Ok(Operation::Replica));
        assert!(operation("everything").is_err());
    }

    /// What the guide has as files and commands prints what it says.
    #[test]
    fn commands_of_the_guide_print_what_it_says() {
        use clap::Parser as _;
        #[derive(clap::Parser)]
        struct Alone {
            #[command(flatten)]
            args: Args,
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let guide = std::fs::read_to_string(root.join("docs/customize.md")).expect("there");
        let folder = tempfile::tempdir().expect("a folder");
        let mut asked = None;
        let mut printed = 0;
        for block in guide.split("```").skip(1).step_by(2) {
            let (language, rest) = block.split_once('\n').expect("a language");
            match language {
                "yaml" => {
                    let name = rest.lines().next().and_then(|line| line.strip_prefix("# "));
                    std::fs::write(folder.path().join(name.expect("a name")), rest)
                        .expect("written");
                }
                "" => {
                    let words = rest.split_whitespace().skip(1);
                    let mut args = Alone::try_parse_from(words).expect("is a command").args;
                    let files = args.files.iter_mut();
                    for file in files.chain(&mut args.observed).chain(&mut args.status) {
                        *file = folder.path().join(&*file);
                    }
                    let input = read(&args).expect("is read");
                    asked = Some(text(&attempt(&input, args.operation)));
                }
                _ => {
                    assert_eq!(asked.take().as_deref(), Some(rest));
                    printed += 1;
                }
            }
        }
        assert_eq!(printed, 2);
    }
}
