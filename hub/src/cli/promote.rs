//! `towline promote`: an object that a member has becomes a template of the hub, and its policy keeps it there.
//!
//! What runs there goes on: the policy takes over what it finds, and leaves it when it goes. The policy is written
//! before the template, so that no other takes the template meanwhile; where the template is refused, it goes again.
//! Where nobody answered, it stays: the template may be there.

mod along;
mod answered;
mod foreseen;
mod template;
#[cfg(test)]
mod tests;
mod writer;

use super::error::{request_error, rest_error};
use super::get::names::Asked;
use super::get::read::Hub;
use super::kubeconfig::way;
use super::output::Done;
use super::{CliError, ConnectArgs, Format, Kind, Output, clusters, plan};
use crate::plan::{Change, Options};
use crate::snapshot::trial::Trial;
use crate::snapshot::{Reader, Scope, Snapshot};
use clap::ArgAction;
use common::mapper::Resource;
use common::names::ClusterName;
use common::rest::{self, Call, JSON};
use common::time::{Clock as _, SystemClock};
use foreseen::Foreseen;
use serde_json::{Value, json};
use writer::{Tried, Writer};

/// Arguments of `towline promote`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  towline promote deployment web -n shop -C member1            it is a template from then on, and goes on running
  towline promote deploy/web -n shop -C member1 --dry-run      what would be written, and what that would change there
  towline promote deploy/web -n shop -C member1 -d             with the ConfigMaps, Secrets and the like that it refers to
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
    /// Promote what it refers to as well, and have it go along: ConfigMaps, Secrets, claims and whatever the hub knows of
    /// its kind.
    #[arg(
        short,
        long,
        alias = "deps",
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_value_t = false,
        default_missing_value = "true",
        action = ArgAction::Set
    )]
    dependencies: bool,
    /// Make a policy that keeps it in that member; without one it goes to no member until some policy selects it.
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_value_t = true,
        default_missing_value = "true",
        action = ArgAction::Set
    )]
    auto_create_policy: bool,
    /// Name of the policy, where one is made; default: NAME-KIND of the object.
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
    let template = template::of(&live, &resource).map_err(unmet)?;
    let policy = match args.auto_create_policy {
        true => {
            let name = args.policy.as_deref();
            let mut policy =
                template::policy(&template, &resource, &args.cluster, name).map_err(unmet)?;
            policy["spec"]["propagateDeps"] = json!(args.dependencies);
            Some(policy)
        }
        false => None,
    };
    let template = match &policy {
        Some(_) => template,
        None => template::taking_over(template),
    };

    progress.step("asking the hub");
    let hub = Writer {
        reader: Reader::new(client.clone(), options.skips.clone()),
    };
    let policy = match &policy {
        Some(policy) => Some(hub.tried(policy).await?),
        None => None,
    };
    let template = hub.tried(&template).await?;
    let scope = Scope {
        kinds: [resource.gvk.clone()].into(),
        ..Scope::default()
    };
    let (mut snapshot, may_read) = match hub.reader.read(&scope).await {
        Ok(snapshot) => (snapshot, true),
        Err(error) if error.source.code() == Some(403) => (Snapshot::default(), false),
        Err(error) => return Err(rest_error(error)),
    };
    snapshot.shipped = shipped;
    let found = match args.dependencies {
        true => {
            let (interpreter, of) = (snapshot.interpreter(), &template.made);
            let takes_over = policy.is_none();
            along::find(&hub, &args.cluster, &interpreter, &resource, of, takes_over).await?
        }
        false => along::Found::default(),
    };
    let along = found.along.iter().map(|it| &it.tried);
    let written: Vec<&Tried> = policy.iter().chain(along).chain([&template]).collect();
    let foreseen = match may_read {
        true => {
            let changes = written.iter();
            let changes = changes.map(|it| Change::Apply(Box::new(it.made.clone())));
            let changes: Vec<Change> = changes.collect();
            let now = SystemClock.now();
            let plan = plan::foretold(now, &options, &hub.reader, &mut snapshot, &changes).await?;
            match &policy {
                Some(policy) => {
                    let foreseen = Foreseen::of(&plan, &template.made, &policy.made, &args.cluster);
                    foreseen.map_err(|error| {
                        CliError::new(Kind::Unmet, error)
                            .hint("Nothing was written; `towline plan -f FILE` says more of what `-o yaml` prints.")
                    })?
                }
                None => Foreseen::without_policy(&plan, &template.made, &args.cluster),
            }
        }
        false => Foreseen::unknown(&template.made),
    };
    drop(progress);
    let mut told = foreseen.text(&live, &resource, &args.cluster, output.colours());
    for one in &found.along {
        let (cluster, made) = (&args.cluster, &one.tried.made);
        told.push_str(&foreseen.of_another(
            &one.live,
            made,
            &one.resource,
            cluster,
            output.colours(),
        ));
    }
    for one in &found.stays {
        told.push_str(one);
        told.push_str(".\n");
    }
    match args.output {
        Format::Table => output.print(told)?,
        _ if !args.dry_run && !args.yes => output.note(told),
        _ => {}
    }
    let written: Vec<&Trial> = written.into_iter().map(|it| &it.trial).collect();
    if !args.dry_run {
        if !args.yes {
            let shown = template.trial.shown();
            output.confirm(&format!("promote {shown} of cluster {}?", args.cluster))?;
        }
        hub.write(&written).await?;
    }
    match args.output {
        Format::Json | Format::Yaml => {
            let items: Vec<Value> = written.iter().map(|it| it.as_written()).collect();
            let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items});
            output.print_value(args.output, &list)?;
        }
        format => {
            let done = written.iter().map(|it| done(it, args.dry_run));
            output.print_done(format, &done.collect::<Vec<_>>())?;
        }
    }
    if args.output == Format::Table && !args.dry_run && policy.is_some() {
        output.note("`towline get TYPE/NAME` says when its Work has taken it over.");
    }
    Ok(())
}

fn unmet(error: template::Unfit) -> CliError {
    let hint = error.hint();
    CliError::new(Kind::Unmet, error).hint(hint)
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
        self.read_opt(namespace, name).await?.ok_or_else(|| {
            let resource = self.resource;
            let message = format!(
                "{} {name:?} not found in cluster {}",
                resource.qualified(),
                self.cluster
            );
            let told = CliError::message(Kind::NotFound, message);
            match resource.namespaced {
                true => told.hint("-n NAMESPACE looks elsewhere."),
                false => told,
            }
        })
    }

    /// The same; none when there is none of that name.
    async fn read_opt(&self, namespace: &str, name: &str) -> Result<Option<Value>, CliError> {
        let (cluster, resource) = (self.cluster.as_str(), self.resource);
        let way = way(self.client, cluster).await?;
        let uri = format!("{}{}", way.path(cluster), resource.object(namespace, name));
        let reply = Call::get(&uri, JSON).send(self.client).await;
        let error = match reply.and_then(|reply| reply.json()) {
            Ok(object) => {
                // What is made of it on the hub is made with the rights of whoever runs the command.
                return match answered::is_of(&object, resource, namespace, name) {
                    true => Ok(Some(object)),
                    false => Err(self.other_than_asked(&object, name)),
                };
            }
            Err(error) => error,
        };
        match error.code() {
            Some(404) if names(&error) => Ok(None),
            Some(404) => {
                let version = resource.gvk.api_version();
                let message = format!(
                    "cluster {cluster} does not serve {} of {version}, as the hub does",
                    resource.plural
                );
                Err(CliError::message(Kind::NotFound, message))
            }
            _ => {
                let shown = format!("{}/{name}", resource.qualified());
                let attempt = format!("failed to read {shown} of cluster {cluster}");
                Err(request_error(attempt, error))
            }
        }
    }

    fn other_than_asked(&self, object: &Value, name: &str) -> CliError {
        let (cluster, resource) = (self.cluster, self.resource);
        let message = format!(
            "cluster {cluster} answered {}, asked for {} {name:?}; nothing was written",
            answered::shown(object),
            resource.qualified()
        );
        CliError::message(Kind::Unmet, message).hint(format!(
            "An API server answers what it is asked for: see what runs in {cluster}, and who does."
        ))
    }
}

/// Whether a refusal names an object: otherwise it is the path that is not there.
fn names(error: &rest::Error) -> bool {
    matches!(error, rest::Error::Refused { status, .. } if status["details"]["name"].is_string())
}
