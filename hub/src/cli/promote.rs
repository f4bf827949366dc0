//! `towline promote`: an object that a member has becomes a template of the hub, and its policy keeps it there.
//!
//! What runs there goes on: the policy takes over what it finds, and leaves it when it goes. The policy is written
//! before the template, so that no other takes the template meanwhile; where the template is refused, it goes again.

mod foreseen;
mod template;
#[cfg(test)]
mod tests;

use super::error::{request_error, rest_error};
use super::get::names::Asked;
use super::get::read::Hub;
use super::kubeconfig::way;
use super::output::Done;
use super::{CliError, ConnectArgs, Format, Kind, Output, clusters, plan};
use crate::plan::{Change, Options};
use crate::snapshot::trial::{Outcome, Trial};
use crate::snapshot::{Reader, Scope};
use common::mapper::Resource;
use common::names::ClusterName;
use common::rest::{self, Call, JSON};
use common::time::{Clock as _, SystemClock};
use foreseen::Foreseen;
use serde_json::{Value, json};

const WRITTEN: &str = "?fieldManager=towline-promote";

/// Arguments of `towline promote`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  towline promote deployment web -n shop -C member1            it is a template from then on, and goes on running
  towline promote deploy/web -n shop -C member1 --dry-run      what would be written, and what that would change there
  towline promote clusterrole ops -C member1 --dry-run -o yaml the template and its policy, for a file")]
pub(super) struct Args {
    /// The object, as kubectl names it: TYPE NAME or TYPE/NAME.
    #[arg(value_name = "TYPE/NAME", required = true)]
    words: Vec<String>,
    /// The member that has it.
    #[arg(short = 'C', long, value_name = "CLUSTER", required = true)]
    cluster: ClusterName,
    /// Its namespace; default: the kubeconfig's.
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// Name of the policy; default: NAME-KIND of the object.
    #[arg(long, alias = "policy-name", value_name = "NAME")]
    policy: Option<String>,
    /// Have the hub try it, and write nothing.
    #[arg(long)]
    dry_run: bool,
    /// Do not ask.
    #[arg(short, long)]
    yes: bool,
    /// How what was done is shown; as JSON and YAML, the template and its policy.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// Runs the verb.
pub(super) async fn run(args: Args, output: &Output) -> Result<(), CliError> {
    let (word, name) = one(&args.words)?;
    let (client, config) = args.connect.connect("cli promote").await?;
    let namespace = args.namespace.clone().unwrap_or(config.default_namespace);
    let progress = output.progress(format!("reading cluster {}", args.cluster));
    clusters::meant(&client, std::slice::from_ref(&args.cluster)).await?;
    let (options, shipped) = Options::of_flags(&[])?;
    let hub = Hub::discover(client.clone()).await?;
    let resource = hub.resolve(&word).map_err(|error| {
        error.hint("The hub has to serve its kind: promote its CustomResourceDefinition first.")
    })?;
    let there = Member {
        client: &client,
        cluster: &args.cluster,
        resource: &resource,
    };
    let live = there.read(&namespace, &name).await?;
    let unmet = |error: template::Unfit| {
        let hint = error.hint();
        CliError::new(Kind::Unmet, error).hint(hint)
    };
    let template = template::of(&live, &resource).map_err(unmet)?;
    let policy = template::policy(&template, &resource, &args.cluster, args.policy.as_deref());
    let policy = policy.map_err(unmet)?;

    progress.step("asking the hub");
    let hub = Writer {
        reader: Reader::new(client.clone(), options.skips.clone()),
    };
    let policy = hub.tried(&policy).await?;
    let template = hub.tried(&template).await?;
    let changes = [&policy, &template].map(|it| Change::Apply(Box::new(it.made.clone())));
    let scope = Scope {
        kinds: [resource.gvk.clone()].into(),
        ..Scope::default()
    };
    let foreseen = match hub.reader.read(&scope).await {
        Ok(mut snapshot) => {
            snapshot.shipped = shipped;
            let now = SystemClock.now();
            let plan = plan::foretold(now, &options, &hub.reader, &mut snapshot, &changes).await?;
            let foreseen = Foreseen::of(&plan, &template.made, &policy.made, &args.cluster);
            foreseen.map_err(|error| {
                CliError::new(Kind::Unmet, error)
                    .hint("Nothing was written; `towline plan -f FILE` says more of what `-o yaml` prints.")
            })?
        }
        Err(error) if error.source.code() == Some(403) => Foreseen::unknown(&template.made),
        Err(error) => return Err(rest_error(error)),
    };
    drop(progress);
    let told = foreseen.text(&live, &resource, &args.cluster, output.colours());
    match args.output {
        Format::Table => output.print(told)?,
        _ if !args.dry_run && !args.yes => output.note(told),
        _ => {}
    }
    if !args.dry_run {
        if !args.yes {
            let shown = template.trial.shown();
            output.confirm(&format!("promote {shown} of cluster {}?", args.cluster))?;
        }
        hub.write(&policy.trial, &template.trial).await?;
    }
    let written = [&policy.trial, &template.trial];
    match args.output {
        Format::Json | Format::Yaml => {
            let items = written.map(Trial::as_written);
            let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items});
            output.print_value(args.output, &list)?;
        }
        format => output.print_done(format, &written.map(|it| done(it, args.dry_run)))?,
    }
    if args.output == Format::Table && !args.dry_run {
        output.note("`towline get TYPE/NAME` says when its Work has taken it over.");
    }
    Ok(())
}

/// The type and the name of the one object that is meant.
fn one(words: &[String]) -> Result<(String, String), CliError> {
    let usage = |message: String| CliError::message(Kind::Usage, message);
    match Asked::read(words).map_err(|error| usage(error.to_string()))? {
        Asked::Named(pairs) if pairs.len() == 1 => Ok(pairs.into_iter().next().unwrap_or_default()),
        Asked::Named(_) => Err(usage("one object is promoted at a time".to_owned())),
        Asked::All(types) => {
            let message = format!("no object of {} is named", types.join(","));
            Err(usage(message).hint("It is TYPE NAME or TYPE/NAME; `towline get TYPE -s members -C CLUSTER` lists them."))
        }
    }
}

fn done(trial: &Trial, dry_run: bool) -> Done {
    let namespace = trial.name.namespace.to_string();
    Done {
        namespace: Some(namespace).filter(|it| !it.is_empty()),
        dry_run,
        ..Done::new(trial.shown(), "created")
    }
}

/// A type in a member, asked through the hub.
struct Member<'a> {
    client: &'a kube::Client,
    cluster: &'a ClusterName,
    resource: &'a Resource,
}

impl Member<'_> {
    /// An object as whoever runs the command sees it there.
    async fn read(&self, namespace: &str, name: &str) -> Result<Value, CliError> {
        let (cluster, resource) = (self.cluster.as_str(), self.resource);
        let way = way(self.client, cluster).await?;
        let uri = format!("{}{}", way.path(cluster), resource.object(namespace, name));
        let reply = Call::get(&uri, JSON).send(self.client).await;
        let object = reply.and_then(|reply| reply.json());
        object.map_err(|error| {
            let shown = format!("{}/{name}", resource.qualified());
            if error.code() == Some(404) && !names(&error) {
                let version = resource.gvk.api_version();
                let message = format!(
                    "cluster {cluster} does not serve {} of {version}, as the hub does",
                    resource.plural
                );
                return CliError::message(Kind::NotFound, message);
            }
            let missing = error.code() == Some(404);
            let told = request_error(
                format!("failed to read {shown} of cluster {cluster}"),
                error,
            );
            match missing {
                true if resource.namespaced => told.hint("-n NAMESPACE looks elsewhere."),
                _ => told,
            }
        })
    }
}

/// Whether a refusal names an object: otherwise it is the path that is not there.
fn names(error: &rest::Error) -> bool {
    matches!(error, rest::Error::Refused { status, .. } if status["details"]["name"].is_string())
}

/// An object that the hub would take.
struct Tried {
    trial: Trial,
    /// As the hub would have it.
    made: Value,
}

/// Makes objects on the hub.
struct Writer {
    reader: Reader,
}

impl Writer {
    /// Has the hub try to make an object; one that is there already is not changed.
    async fn tried(&self, object: &Value) -> Result<Tried, CliError> {
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        let trial = self
            .reader
            .trial(object, namespace)
            .await
            .map_err(rest_error)?;
        let kind = object["kind"].as_str().unwrap_or_default();
        let trial = trial.ok_or_else(|| {
            let message =
                format!("the hub serves no kind {kind}: is it a hub that `towline init` prepared?");
            CliError::message(Kind::NotFound, message)
        })?;
        let shown = format!("{kind} {}", trial.name);
        if trial.live.is_some() {
            let message = format!("{shown} exists on the hub; nothing was written");
            let hint = match template::is_policy(kind) {
                true => "--policy NAME names another policy.",
                false => {
                    "`towline get TYPE/NAME` says where it goes; a policy with conflictResolution: Overwrite takes over what a member has."
                }
            };
            return Err(CliError::message(Kind::Unmet, message).hint(hint));
        }
        match self.reader.attempt(&trial).await.map_err(rest_error)? {
            Outcome::Made(made) => Ok(Tried { trial, made: *made }),
            Outcome::Unknown(why) => {
                let namespace = trial.name.namespace.to_string();
                Err(
                    CliError::message(Kind::Unmet, format!("the hub cannot have {shown}: {why}"))
                        .hint(format!(
                            "`kubectl create namespace {namespace}` makes its namespace on the hub."
                        )),
                )
            }
            Outcome::Refused(why) => Err(CliError::message(
                Kind::Denied,
                format!("the hub refuses {shown}: {why}"),
            )),
        }
    }

    /// Writes the policy, then the template.
    async fn write(&self, policy: &Trial, template: &Trial) -> Result<(), CliError> {
        let failed = |trial: &Trial, error| {
            request_error(format!("failed to create {}", trial.shown()), error)
        };
        let made = self.reader.send(policy, WRITTEN).await;
        let made = made.map_err(|error| failed(policy, error))?;
        let Err(error) = self.reader.send(template, WRITTEN).await else {
            return Ok(());
        };
        let told = failed(template, error);
        let uid = &made["metadata"]["uid"];
        let uri = policy.uri();
        let call = Call::delete(&uri, &json!({"preconditions": {"uid": uid}}));
        Err(match call.send(self.reader.client()).await {
            Ok(_) => told.hint("Nothing was written: its policy was taken back."),
            Err(error) => told.hint(format!(
                "Its policy was written, and could not be taken back ({error}): delete {} yourself.",
                policy.shown()
            )),
        })
    }
}
