//! `towline plan`: what a change of policies, overrides, templates or clusters would do, before it is made.
//!
//! Reads the hub and has it try what files say, and writes nothing.

pub(super) mod screen;
#[cfg(test)]
mod tests;

use super::error::rest_error;
use super::taint::change::Change as Taints;
use super::{CliError, ConnectArgs, Format, Kind, Output, files};
use crate::config::{Config, RunArgs};
use crate::plan::{self, Change, Options, Plan, Refused, Subject, foretells};
use crate::snapshot::trial::{Outcome, Trial};
use crate::snapshot::{Reader, Scope, Snapshot};
use chrono::{DateTime, Utc};
use clap::Parser;
use common::gvk::Gvk;
use common::interpreter::custom::Customizations;
use common::names::ClusterName;
use common::time::{Clock as _, SystemClock};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

/// How often kinds are read that only follow from what others decided.
const DEPTH: usize = 8;
/// Something changes, as terraform has it.
const CHANGES: u8 = 2;
/// The plan could not be made, or not all of it.
pub(super) const FAILED: u8 = 1;

/// Arguments of `towline plan`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  towline plan -f policy.yaml                what applying a file would move, and what overrides would change
  towline plan -f shop/ -n shop              a folder; objects that name no namespace are of shop
  towline plan --delete -f policy.yaml       what deleting what a file names would do
  towline plan --cordon member1              what runs on without member1 taking anything new
  towline plan --taint member1:drain:NoExecute
  towline plan --without member1             what goes where when member1 is unregistered

Exit code: 0 when nothing changes, 2 when something does, 1 for an error or a change that the hub refuses.")]
pub(super) struct Args {
    /// Files or folders of objects that are applied one after another; - for stdin.
    #[arg(short, long = "filename", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// What the files name is deleted instead.
    #[arg(long, requires = "files")]
    delete: bool,
    /// Clusters that take nothing new.
    #[arg(long, value_name = "CLUSTER", value_delimiter = ',')]
    cordon: Vec<ClusterName>,
    /// Clusters that take something new again.
    #[arg(long, value_name = "CLUSTER", value_delimiter = ',')]
    uncordon: Vec<ClusterName>,
    /// Taints that are put on a cluster, or taken off with a - behind.
    #[arg(long, value_name = "CLUSTER:KEY=VALUE:EFFECT")]
    taint: Vec<String>,
    /// Clusters that are unregistered.
    #[arg(long, value_name = "CLUSTER", value_delimiter = ',')]
    without: Vec<ClusterName>,
    /// Namespace of objects that name none; default: the kubeconfig's.
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// How it is shown.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    /// A flag that the hub was started with and that says where templates go, such as
    /// `--skipped-propagating-namespaces=kube-.*`; the defaults otherwise.
    #[arg(long, value_name = "FLAG", allow_hyphen_values = true)]
    hub_flag: Vec<String>,
    #[command(flatten)]
    connect: ConnectArgs,
}

#[derive(Debug, Parser)]
#[command(name = "towline-hub", no_binary_name = true)]
struct HubFlags {
    #[command(flatten)]
    args: RunArgs,
}

impl Options {
    /// As a hub has them that was started with `flags`, with the customizations that it ships.
    pub(super) fn of_flags(flags: &[String]) -> Result<(Self, Arc<Customizations>), CliError> {
        let usage = |error: anyhow::Error| CliError::new(Kind::Usage, error);
        let parsed = HubFlags::try_parse_from(flags).map_err(|error| usage(error.into()))?;
        let config = parsed
            .args
            .into_config()
            .map_err(|error| usage(error.into()))?;
        Ok((Self::from(&config), config.propagation.shipped))
    }
}

impl From<&Config> for Options {
    fn from(config: &Config) -> Self {
        Self {
            skips: config.propagation.skips.clone(),
            eviction: config.failover.eviction,
        }
    }
}

/// Runs the verb; the code says whether anything changes. Every error has the code of one.
pub(super) async fn run(args: Args, output: &Output) -> ExitCode {
    match planned(&args, output).await {
        Ok(plan) => {
            let code = match (plan.refused.is_empty(), plan.changes()) {
                (false, _) => FAILED,
                (true, true) => CHANGES,
                (true, false) => 0,
            };
            let shown = match args.output {
                Format::Table => output.print(screen::text(&plan, output.colours())),
                Format::Name => output.print(screen::names(&plan)),
                format => output.print_value(format, &plan),
            };
            shown.map_or_else(|error| failed(output, &error), |()| code.into())
        }
        Err(error) => failed(output, &error),
    }
}

fn failed(output: &Output, error: &CliError) -> ExitCode {
    output.fail(error);
    FAILED.into()
}

/// Makes the plan.
pub(super) async fn planned(args: &Args, output: &Output) -> Result<Plan, CliError> {
    let (options, shipped) = Options::of_flags(&args.hub_flag)?;
    if args.is_empty() {
        return Err(CliError::message(Kind::Usage, "nothing is to be planned")
            .hint("-f FILE, --cordon, --taint or --without says what is to change."));
    }
    for word in &args.taint {
        let (_, taint) = split(word)?;
        Taints::parse([taint]).map_err(|error| CliError::new(Kind::Usage, error))?;
    }
    let objects = match args.files.is_empty() {
        true => Vec::new(),
        false => files::objects(&args.files)?,
    };
    let (client, config) = args.connect.connect("cli plan").await?;
    let namespace = args.namespace.clone().unwrap_or(config.default_namespace);
    let progress = output.progress("reading the hub");
    let reader = Reader::new(client, options.skips.clone());
    let scope = Scope {
        kinds: objects.iter().filter_map(kind).filter(foretells).collect(),
        ..Scope::default()
    };
    let mut snapshot = reader.read(&scope).await.map_err(rest_error)?;
    snapshot.shipped = shipped;
    let mut asked = Asked::default();
    for object in &objects {
        asked
            .object(&reader, object, &namespace, args.delete)
            .await?;
    }
    asked.clusters(args, &snapshot)?;
    progress.step("planning");
    let plan = asked.plan(SystemClock.now(), &options, &reader, &mut snapshot);
    plan.await
}

impl Args {
    fn is_empty(&self) -> bool {
        self.files.is_empty()
            && self.cordon.is_empty()
            && self.uncordon.is_empty()
            && self.taint.is_empty()
            && self.without.is_empty()
    }
}

/// A cluster and the taint that is put on it or taken off.
fn split(word: &str) -> Result<(&str, &str), CliError> {
    word.split_once(':').ok_or_else(|| {
        let text = format!("{word:?} names no taint of a cluster");
        CliError::message(Kind::Usage, text)
            .hint("It is CLUSTER:KEY=VALUE:EFFECT, or CLUSTER:KEY- to take it off.")
    })
}

fn kind(object: &Value) -> Option<Gvk> {
    Gvk::new(object["apiVersion"].as_str()?, object["kind"].as_str()?)
}

/// What is asked for.
#[derive(Debug, Default)]
struct Asked {
    changes: Vec<Change>,
    refused: Vec<Refused>,
    unknown: Vec<String>,
}

impl Asked {
    /// An object of a file.
    async fn object(
        &mut self,
        reader: &Reader,
        object: &Value,
        namespace: &str,
        delete: bool,
    ) -> Result<(), CliError> {
        let trial = reader.trial(object, namespace).await.map_err(rest_error)?;
        let Some(trial) = trial else {
            let text = "the hub does not serve its kind yet: it is taken as the file has it";
            return self.taken(object.clone(), text, delete);
        };
        if delete {
            return self.deleted(&trial);
        }
        match reader.attempt(&trial).await.map_err(rest_error)? {
            Outcome::Made(object) => self.take(*object),
            Outcome::Unknown(why) => {
                let text =
                    format!("{why}: it is taken as the file has it, without the hub's defaults");
                self.taken(trial.as_written(), &text, false)?;
            }
            Outcome::Refused(why) => {
                let change = Change::Apply(Box::new(trial.as_written()));
                self.refused.extend(Refused::of(&change, why));
            }
        }
        Ok(())
    }

    /// As its file has it.
    fn taken(&mut self, object: Value, why: &str, delete: bool) -> Result<(), CliError> {
        if !delete {
            let shown = Subject::of(&object).map(|it| shown(&it));
            let shown = shown.unwrap_or_default();
            self.unknown.push(format!("{shown}: {why}"));
            self.take(object);
        }
        Ok(())
    }

    fn take(&mut self, object: Value) {
        if let Some(subject) = Subject::of(&object).filter(|it| !foretells(&it.kind)) {
            let text = format!("{}: plans do not say what it does", shown(&subject));
            self.unknown.push(text);
        }
        self.changes.push(Change::Apply(Box::new(object)));
    }

    fn deleted(&mut self, trial: &Trial) -> Result<(), CliError> {
        let written = trial.as_written();
        let subject = Subject::of(&written);
        if trial.live.is_none() {
            let name = subject.map(|it| shown(&it)).unwrap_or_default();
            return Err(CliError::message(
                Kind::NotFound,
                format!("{name} not found"),
            ));
        }
        self.changes.extend(subject.map(Change::Delete));
        Ok(())
    }

    /// Clusters that are changed by flags.
    fn clusters(&mut self, args: &Args, snapshot: &Snapshot) -> Result<(), CliError> {
        let cordon = |words: &str| Taints::parse([words]);
        for name in &args.cordon {
            let taints = cordon(&format!(
                "{}:NoSchedule",
                common::labels::TAINT_UNSCHEDULABLE
            ));
            self.taints(name.as_str(), taints, snapshot)?;
        }
        for name in &args.uncordon {
            let taints = cordon(&format!(
                "{}:NoSchedule-",
                common::labels::TAINT_UNSCHEDULABLE
            ));
            self.taints(name.as_str(), taints, snapshot)?;
        }
        for word in &args.taint {
            let (name, taint) = split(word)?;
            self.taints(name, Taints::parse([taint]), snapshot)?;
        }
        for name in &args.without {
            let subject = Subject::of(&self.cluster(name.as_str(), snapshot)?);
            self.changes.extend(subject.map(Change::Delete));
        }
        Ok(())
    }

    /// A cluster as changes before leave it.
    fn cluster(&self, name: &str, snapshot: &Snapshot) -> Result<Value, CliError> {
        let changed = self.changes.iter().rev().find_map(|change| match change {
            Change::Apply(object)
                if object["kind"] == "Cluster" && object["metadata"]["name"] == name =>
            {
                Some(Value::clone(object))
            }
            _ => None,
        });
        let found = changed.or_else(|| Some(snapshot.clusters.get(name)?.object.clone()));
        let mut object = found.ok_or_else(|| {
            CliError::message(Kind::NotFound, format!("Cluster {name:?} not found"))
                .hint("`kubectl get clusters` lists those there are.")
        })?;
        object["apiVersion"] = json!("cluster.karmada.io/v1alpha1");
        object["kind"] = json!("Cluster");
        Ok(object)
    }

    fn taints<E: std::error::Error + Send + Sync + 'static>(
        &mut self,
        name: &str,
        change: Result<Taints, E>,
        snapshot: &Snapshot,
    ) -> Result<(), CliError> {
        let change = change.map_err(|error| CliError::new(Kind::Usage, error))?;
        let mut object = self.cluster(name, snapshot)?;
        let taints = object["spec"]["taints"].take();
        let before: Vec<_> = serde_json::from_value(taints).unwrap_or_default();
        let after = change.apply(&before, true);
        let after = after.map_err(|error| CliError::new(Kind::NotFound, error))?;
        object["spec"]["taints"] = json!(after);
        self.changes.push(Change::Apply(Box::new(object)));
        Ok(())
    }

    /// Makes the plan, and reads of the hub whatever that turns out to look at.
    async fn plan(
        mut self,
        now: DateTime<Utc>,
        options: &Options,
        reader: &Reader,
        snapshot: &mut Snapshot,
    ) -> Result<Plan, CliError> {
        let mut plan = foretold(now, options, reader, snapshot, &self.changes).await?;
        self.refused.append(&mut plan.refused);
        plan.refused = self.refused;
        self.unknown.append(&mut plan.unknown);
        plan.unknown = self.unknown;
        Ok(plan)
    }
}

/// The plan of changes; reads of the hub whatever it turns out to look at.
pub(super) async fn foretold(
    now: DateTime<Utc>,
    options: &Options,
    reader: &Reader,
    snapshot: &mut Snapshot,
    changes: &[Change],
) -> Result<Plan, CliError> {
    for _ in 0..DEPTH {
        let lacks = plan::lacks(now, options, snapshot, changes);
        if lacks.is_empty() {
            break;
        }
        for kind in &lacks {
            reader.templates(kind, snapshot).await.map_err(rest_error)?;
        }
    }
    let mut plan = plan::plan(now, options, snapshot, changes);
    let unreadable = snapshot.unreadable.iter();
    plan.unknown.extend(unreadable.map(|it| {
        let (kind, name) = (&it.kind, &it.name);
        format!(
            "{kind} {name} cannot be read, so what it decides stays as it is: {}",
            it.why
        )
    }));
    Ok(plan)
}

fn shown(subject: &Subject) -> String {
    format!("{} {}", subject.kind.kind, subject.name)
}
