//! `towline apply`: puts objects on the hub and says where they go, in one step.
//!
//! What kubectl applies stays on the hub until a policy selects it; this writes that policy too. Both are server-side
//! applies, so that what somebody else wrote is not lost without a word.

mod policy;
#[cfg(test)]
mod tests;

use super::error::{request_error, rest_error};
use super::files;
use super::output::Done;
use super::{CliError, ConnectArgs, Format, Kind, Output};
use crate::controller::detector::skip::Skips;
use crate::snapshot::Reader;
use crate::snapshot::trial::Trial;
use common::names::ClusterName;
use common::rest::{self, APPLY_PATCH, Call};
pub(super) use policy::Wanted;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Who owns the fields.
const FIELD_MANAGER: &str = "towline-apply";
/// Writes of one policy, and those that another command's writes come between.
const TRIES: usize = 5;
/// A version that no object has: an apply that names it makes an object, and is a conflict where there is one.
const ABSENT: &str = "1";

/// Arguments of `towline apply`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  towline apply -f web.yaml -C member1,member2     run it in two clusters
  towline apply -f web.yaml --all                  run it in every cluster, and in those to come
  towline apply -f web.yaml --all --divide         divide its replicas among them by the room they have
  towline apply -f web.yaml -C member1 --dry-run   what would be written; `towline plan` says what would move")]
#[command(group = clap::ArgGroup::new("where").required(true).args(["clusters", "all"]))]
pub(super) struct Args {
    /// Files or folders of objects; - for stdin.
    #[arg(short, long = "filename", value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// The clusters that they go to.
    #[arg(short = 'C', long, value_name = "CLUSTER", value_delimiter = ',')]
    clusters: Vec<ClusterName>,
    /// They go to every cluster.
    #[arg(long)]
    all: bool,
    /// Replicas are divided among the clusters; otherwise each cluster runs all of them.
    #[arg(long)]
    divide: bool,
    /// Name of the policy; default: that of the first object.
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// Take over fields that somebody else wrote.
    #[arg(long)]
    force_conflicts: bool,
    /// Have the hub try it, and write nothing.
    #[arg(long)]
    dry_run: bool,
    /// Namespace of objects that name none; default: the kubeconfig's.
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// How what was done is shown.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// Runs the verb.
pub(super) async fn run(args: Args, output: &Output) -> Result<(), CliError> {
    let objects = files::objects(&args.files)?;
    let (client, config) = args.connect.connect("cli apply").await?;
    let namespace = args.namespace.clone().unwrap_or(config.default_namespace);
    let hub = Hub {
        reader: Reader::new(client, Skips::default()),
        args: &args,
        namespace: &namespace,
    };
    let mut wanted = Wanted::new(&args.clusters, args.divide);
    let mut trials = Vec::new();
    let namespaces = namespaces(&objects);
    for object in &objects {
        let trial = hub.trial(object).await?;
        let written = trial.as_written();
        wanted.take(&written, trial.is_namespaced());
        trials.push(trial);
    }
    let policies = wanted.policies(args.policy.as_deref());
    if policies.is_empty() {
        let message = "nothing in the files goes to clusters: a policy, a Namespace or what only the hub has is not \
                       propagated by itself";
        return Err(
            CliError::message(Kind::Usage, message).hint("`kubectl apply` puts it on the hub.")
        );
    }
    let mut judged = Vec::new();
    for policy in &policies {
        judged.push(hub.judged(policy, "nothing was applied").await?);
    }
    let progress = output.progress("applying");
    let mut done = Vec::new();
    for trial in &trials {
        let applied = hub.apply(trial, &namespaces).await;
        done.push(output.or_done(applied, args.output, &done)?);
    }
    for (policy, trial) in policies.iter().zip(judged) {
        let applied = hub.apply_policy(policy, trial, &namespaces).await;
        done.push(output.or_done(applied, args.output, &done)?);
    }
    drop(progress);
    output.print_done(args.output, &done)?;
    if args.output == Format::Table && !args.dry_run {
        output.note("`towline get TYPE/NAME` says what becomes of it.");
    }
    Ok(())
}

struct Hub<'a> {
    reader: Reader,
    args: &'a Args,
    namespace: &'a str,
}

impl Hub<'_> {
    async fn trial(&self, object: &Value) -> Result<Trial, CliError> {
        let trial = self.reader.trial(object, self.namespace).await;
        trial.map_err(rest_error)?.ok_or_else(|| {
            let text = |key: &str| object[key].as_str().unwrap_or_default();
            let message = format!(
                "the hub does not serve kind {} of {}",
                text("kind"),
                text("apiVersion")
            );
            CliError::message(Kind::NotFound, message)
                .hint("Apply its CustomResourceDefinition first; `kubectl api-resources` lists the kinds there are.")
        })
    }

    /// What a policy becomes, unless it would leave something out; `then` says what became of the command.
    async fn judged(&self, policy: &Value, then: &str) -> Result<Trial, CliError> {
        let trial = self.trial(policy).await?;
        left_out(trial.live.as_ref(), policy, then)?;
        Ok(trial)
    }

    /// Applies a policy as it was judged: by the version that was read, so that what another command makes it select
    /// meanwhile is judged too, and not lost.
    async fn apply_policy(
        &self,
        policy: &Value,
        mut trial: Trial,
        namespaces: &BTreeSet<&str>,
    ) -> Result<Done, CliError> {
        for _ in 0..TRIES {
            let mut body = trial.as_written();
            body["metadata"]["resourceVersion"] = known_version(trial.live.as_ref());
            let error = match self.send(&trial, &body, namespaces).await {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            if error.code() != Some(409) {
                return Err(failed(&trial.shown(), error));
            }
            let again = self.judged(policy, "it stays as it is").await?;
            if known_version(again.live.as_ref()) == body["metadata"]["resourceVersion"] {
                // Nothing came between: it is about fields that somebody else wrote.
                return Err(failed(&trial.shown(), error));
            }
            trial = again;
        }
        let message = format!("failed to apply {}: others keep changing it", trial.shown());
        Err(CliError::message(Kind::Denied, message).hint("Try again."))
    }

    /// Applies an object; `namespaces` are those that the same files make.
    async fn apply(&self, trial: &Trial, namespaces: &BTreeSet<&str>) -> Result<Done, CliError> {
        let sent = self.send(trial, &trial.as_written(), namespaces).await;
        sent.map_err(|error| failed(&trial.shown(), error))
    }

    async fn send(
        &self,
        trial: &Trial,
        body: &Value,
        namespaces: &BTreeSet<&str>,
    ) -> Result<Done, rest::Error> {
        let dry_run = if self.args.dry_run { "&dryRun=All" } else { "" };
        let force = self.args.force_conflicts;
        let uri = format!(
            "{}?fieldManager={FIELD_MANAGER}&force={force}{dry_run}",
            trial.uri()
        );
        let call = Call::patch(&uri, APPLY_PATCH, body);
        let shown = trial.shown();
        let reply = call.send(self.reader.client()).await;
        let object = match reply.and_then(|reply| reply.json::<Value>()) {
            Ok(object) => object,
            Err(error)
                if self.args.dry_run
                    && error.code() == Some(404)
                    && namespaces.contains(&*trial.name.namespace) =>
            {
                return Ok(Done {
                    namespace: Some(trial.name.namespace.to_string()),
                    dry_run: true,
                    ..Done::new(shown, "created (not tried before its namespace is there)")
                });
            }
            Err(error) => return Err(error),
        };
        let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
        let done = match &trial.live {
            None => "created",
            Some(live) if version(live) == version(&object) => "unchanged",
            Some(_) => "configured",
        };
        Ok(Done {
            object: shown,
            namespace: object["metadata"]["namespace"].as_str().map(str::to_owned),
            done: done.to_owned(),
            dry_run: self.args.dry_run,
        })
    }
}

/// The Namespaces among objects.
fn namespaces(objects: &[Value]) -> BTreeSet<&str> {
    let namespaces = objects
        .iter()
        .filter(|it| it["apiVersion"] == "v1" && it["kind"] == "Namespace");
    namespaces
        .filter_map(|it| it["metadata"]["name"].as_str())
        .collect()
}

/// The version that an apply is to name, for it to change what was read and nothing else.
fn known_version(live: Option<&Value>) -> Value {
    let version = live.and_then(|live| live.pointer("/metadata/resourceVersion"));
    version.cloned().unwrap_or_else(|| json!(ABSENT))
}

/// Refuses a policy that would no longer send something where it sends it now.
fn left_out(live: Option<&Value>, policy: &Value, then: &str) -> Result<(), CliError> {
    let selectors = |policy: &Value| policy["spec"]["resourceSelectors"].as_array().cloned();
    let wanted = selectors(policy).unwrap_or_default();
    let now = live.and_then(selectors).unwrap_or_default();
    let same = |one: &Value, other: &Value| {
        ["apiVersion", "kind", "namespace", "name", "labelSelector"]
            .iter()
            .all(|key| one[key] == other[key])
    };
    let Some(left) = now
        .iter()
        .find(|it| !wanted.iter().any(|one| same(one, it)))
    else {
        return Ok(());
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (kind, name) = (text(&policy["kind"]), text(&policy["metadata"]["name"]));
    let what = match text(&left["name"]) {
        none if none.is_empty() => format!("other objects of kind {}", text(&left["kind"])),
        of => format!("{} {of}", text(&left["kind"])),
    };
    let message = format!("{kind} {name:?} sends {what} to clusters, and would no longer; {then}");
    Err(CliError::message(Kind::Unmet, message).hint(format!(
        "Name all of its objects at once, or another policy by --policy NAME; `kubectl edit {} {name}` changes this one.",
        kind.to_lowercase()
    )))
}

fn failed(shown: &str, error: rest::Error) -> CliError {
    let conflict = error.code() == Some(409);
    let error = request_error(format!("failed to apply {shown}"), error);
    match conflict {
        true => error.hint("--force-conflicts takes over what somebody else wrote."),
        false => error,
    }
}
