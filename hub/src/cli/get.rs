//! `towline get`: templates, bindings and Works, with what members say of them.
//!
//! What `kubectl get` shows of a template is one object on the hub. This follows it: which policy holds it, where
//! it was placed, what each member answered, and, when something is wrong, where to look next.

pub(super) mod answer;
mod follow;
mod members;
pub(super) mod names;
pub(super) mod read;
pub(super) mod share;
mod table;
#[cfg(test)]
mod tests;
pub(super) mod waiting;
pub(super) mod works;

use super::output::Named;
use super::{CliError, ConnectArgs, Format, Kind, Output, Table, clusters};
use answer::Answer;
use common::client::ClientOptions;
use common::mapper::Resource;
use common::names::ClusterName;
use common::time::{Clock as _, SystemClock};
use names::Asked;
use read::{Hub, Scope};
use std::collections::BTreeSet;
use std::time::Duration;
use table::View;
use works::Delivery;

/// How much longer than one member the client waits.
const MARGIN: Duration = Duration::from_secs(5);

/// Arguments of `towline get`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  towline get deployment web -n shop     one template: its policy, its binding, a line for each cluster
  towline get deployments -A             every Deployment on a line: where, how many are ready, why not
  towline get deploy/web cm/web -n shop  several, by type and name
  towline get bindings -n shop           whatever is propagated from a namespace
  towline get deploy -n shop -w          those of a namespace, and from then on what changes
  towline get works -C member1           what a member was told to run, and what it says
  towline get pods -A --all              as they are in every member, rows as they come
  towline get pods -s members -C m1,m2   those of two")]
pub(super) struct Args {
    /// TYPE, TYPE NAME... or TYPE/NAME..., as kubectl takes them; types by plural, singular or short name, with
    /// `.GROUP` behind. `bindings` and `works` are types too.
    #[arg(value_name = "TYPE [NAME...] | TYPE/NAME", required = true)]
    words: Vec<String>,
    /// Namespace; default: the kubeconfig's. Works are shown of every cluster without it.
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// Objects of all namespaces.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
    /// Only objects with these labels, such as `app=web,tier!=db`.
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    selector: Option<String>,
    /// Only what is in these clusters.
    #[arg(short = 'C', long, value_name = "CLUSTER", value_delimiter = ',')]
    clusters: Vec<ClusterName>,
    /// Every cluster; without --operation-scope members are asked.
    #[arg(long, conflicts_with = "clusters")]
    all: bool,
    /// Who is asked: the hub, for what is propagated; members themselves, for whatever they have, through the
    /// connections that their agents dialled; or all of them.
    #[arg(short = 's', long, value_enum, value_name = "WHO")]
    operation_scope: Option<Reach>,
    /// How long one member may take, in seconds.
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    cluster_timeout: Duration,
    /// Go on showing what changes.
    #[arg(short, long)]
    watch: bool,
    /// How they are shown.
    #[arg(short, long, value_enum, default_value_t)]
    output: Shape,
    #[command(flatten)]
    connect: ConnectArgs,
}

impl Args {
    /// Whether members are asked, and not the hub for what it knows of them.
    fn of_members(&self) -> bool {
        match self.operation_scope {
            Some(scope) => scope != Reach::Hub,
            None => self.all,
        }
    }
}

/// How answers are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
enum Shape {
    /// Aligned columns for people.
    #[default]
    Table,
    /// More columns, and nothing cut.
    Wide,
    /// JSON for programs.
    Json,
    /// YAML for programs and files.
    Yaml,
    /// TYPE/NAME alone.
    Name,
}

impl Shape {
    fn format(self) -> Format {
        match self {
            Self::Json => Format::Json,
            Self::Yaml => Format::Yaml,
            Self::Name => Format::Name,
            Self::Table | Self::Wide => Format::Table,
        }
    }
}

/// Who is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Reach {
    /// The hub.
    #[value(alias = "karmada")]
    Hub,
    /// Members.
    Members,
    /// The hub and members.
    All,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: u16 = text
        .parse()
        .map_err(|_| "a whole number of seconds".to_owned())?;
    match seconds {
        0 => Err("at least 1".to_owned()),
        some => Ok(Duration::from_secs(some.into())),
    }
}

/// How the hub is asked. A request that the client itself gives up takes the connection of all others with it: each member
/// has its own time before that.
fn options(of_members: bool, each: Duration) -> ClientOptions {
    let options = ClientOptions::new("cli get");
    match of_members {
        true => {
            let longest = options.request_timeout.max(each.saturating_add(MARGIN));
            options.with_timeout(longest)
        }
        false => options,
    }
}

/// What a type is to the hub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sort {
    Template,
    Binding,
    Work,
}

/// What was found.
#[derive(Debug, Default)]
struct Found {
    answers: Vec<Answer>,
    works: Vec<Delivery>,
    types: usize,
    /// Whether only one namespace was looked at.
    one_namespace: bool,
}

impl Named for Answer {
    fn named(&self) -> String {
        format!("{}/{}", self.resource(), self.name)
    }
}

impl Named for Delivery {
    fn named(&self) -> String {
        format!("work.work.karmada.io/{}", self.name)
    }
}

/// Runs the verb.
pub(super) async fn run(args: Args, output: &Output) -> Result<(), CliError> {
    let usage = |message: &str| CliError::message(Kind::Usage, message);
    let asked = Asked::read(&args.words).map_err(|error| CliError::new(Kind::Usage, error))?;
    let named = matches!(asked, Asked::Named(_));
    if named && args.all_namespaces {
        return Err(usage(
            "a resource cannot be retrieved by name across all namespaces",
        ));
    }
    if named && args.selector.is_some() {
        return Err(usage(
            "name cannot be provided when a selector is specified",
        ));
    }
    let options = options(args.of_members(), args.cluster_timeout);
    let (client, config) = args.connect.connect_by(&options).await?;
    let hub = Hub::discover(client).await?;
    let namespace = args.namespace.clone().unwrap_or(config.default_namespace);
    if args.of_members() {
        return members::run(&hub, &asked, &args, &namespace, output).await;
    }
    let progress = output.progress("reading the hub");
    clusters::known(&hub.client(), &args.clusters).await?;
    let found = read_all(&hub, &asked, &args, &namespace).await?;
    drop(progress);
    if found.is_empty() && !matches!(args.output, Shape::Json | Shape::Yaml) {
        let place = match found.one_namespace {
            true => format!(" in namespace {namespace}"),
            false => String::new(),
        };
        output.note(format!("nothing was found{place}"));
    } else {
        found.show(&args, Shown::First { named }, output)?;
    }
    match args.watch {
        true => follow::follow(&hub, &asked, &args, &namespace, found, output).await,
        false => Ok(()),
    }
}

/// All that was asked for, as it is.
async fn read_all(
    hub: &Hub,
    asked: &Asked,
    args: &Args,
    namespace: &str,
) -> Result<Found, CliError> {
    let mut found = match asked {
        Asked::All(types) => all(hub, types, args, namespace).await?,
        Asked::Named(pairs) => each(hub, pairs, namespace).await?,
    };
    found.only(&args.clusters);
    Ok(found)
}

/// Which time something is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    /// With headings; one template by its name with all that is known of it.
    First {
        /// Whether it was asked for by name.
        named: bool,
    },
    /// What changed of it, a line each.
    Again,
}

impl Found {
    fn is_empty(&self) -> bool {
        self.answers.is_empty() && self.works.is_empty()
    }

    fn only(&mut self, clusters: &[ClusterName]) {
        if clusters.is_empty() {
            return;
        }
        let meant = |name: &str| clusters.iter().any(|it| it.as_str() == name);
        self.works.retain(|it| meant(&it.cluster));
        for answer in &mut self.answers {
            answer.clusters.retain(|it| meant(&it.cluster));
        }
        self.answers.retain(|it| !it.clusters.is_empty());
    }

    /// What is another than it was, or new.
    fn since(&self, last: &Self) -> Self {
        let answers = self.answers.iter().filter(|it| !last.answers.contains(it));
        let works = self.works.iter().filter(|it| !last.works.contains(it));
        Self {
            answers: answers.cloned().collect(),
            works: works.cloned().collect(),
            types: self.types,
            one_namespace: self.one_namespace,
        }
    }

    /// What is in this and not in `later`, by name.
    fn gone(&self, later: &Self) -> Vec<String> {
        let places = |found: &Self| -> BTreeSet<(String, String)> {
            let answers = found.answers.iter();
            let answers = answers.map(|it| (it.namespace.clone().unwrap_or_default(), it.named()));
            let works = found
                .works
                .iter()
                .map(|it| (it.cluster.clone(), it.named()));
            answers.chain(works).collect()
        };
        let (before, after) = (places(self), places(later));
        before.difference(&after).map(|it| it.1.clone()).collect()
    }

    fn show(&self, args: &Args, time: Shown, output: &Output) -> Result<(), CliError> {
        let view = View {
            wide: args.output == Shape::Wide,
            namespaces: args.all_namespaces,
            types: self.types > 1,
            now: SystemClock.now(),
            width: output.width(),
            colours: output.colours(),
        };
        let Self { answers, works, .. } = self;
        let format = args.output.format();
        if time == (Shown::First { named: true }) && format == Format::Table {
            let details: Vec<String> = answers.iter().map(|it| view.detail(it)).collect();
            return output.print(details.join("\n"));
        }
        let headed = |table: Table| match time {
            Shown::First { .. } => table,
            Shown::Again => table.without_headings(),
        };
        match works.is_empty() {
            true => output.print_values(format, answers, |all| headed(view.list(all))),
            false => output.print_values(format, works, |all| headed(view.works(all))),
        }
    }
}

/// Every object of some types.
async fn all(hub: &Hub, types: &[String], args: &Args, namespace: &str) -> Result<Found, CliError> {
    let here = Scope {
        namespace: (!args.all_namespaces).then(|| namespace.to_owned()),
        selector: args.selector.clone(),
        ..Scope::default()
    };
    let mut found = Found::default();
    for word in types {
        let resource = hub.resolve(word)?;
        let sort = sort(&resource)?;
        found.one_namespace |=
            here.namespace.is_some() && resource.namespaced && sort != Sort::Work;
        match sort {
            Sort::Template => found.answers.extend(hub.templates(&resource, &here).await?),
            Sort::Binding => found
                .answers
                .extend(hub.every_binding(&resource, &here).await?),
            Sort::Work if types.len() > 1 => return Err(alone()),
            Sort::Work => {
                let given = Scope {
                    namespace: args.namespace.clone(),
                    ..here.clone()
                };
                found.works.extend(hub.works(&resource, &given).await?);
            }
        }
        // Bindings are shown as their templates, which are of many types.
        found.types += if sort == Sort::Binding { 2 } else { 1 };
    }
    Ok(found)
}

/// Objects by name.
async fn each(hub: &Hub, pairs: &[(String, String)], namespace: &str) -> Result<Found, CliError> {
    let mut found = Found::default();
    for (word, name) in pairs {
        let resource = hub.resolve(word)?;
        match sort(&resource)? {
            Sort::Template => found
                .answers
                .push(hub.template(&resource, namespace, name).await?),
            Sort::Binding => found
                .answers
                .push(hub.binding(&resource, namespace, name).await?),
            Sort::Work => return Err(alone()),
        }
    }
    Ok(found)
}

fn alone() -> CliError {
    CliError::message(Kind::Usage, "works are listed alone, and not by name")
        .hint("`towline get works -n karmada-es-CLUSTER` lists those of a cluster; `kubectl get work` shows one.")
}

/// What a type is; policies and clusters are none of these.
fn sort(resource: &Resource) -> Result<Sort, CliError> {
    let group = resource.gvk.group.as_str();
    match (group, resource.gvk.kind.as_str()) {
        ("work.karmada.io", "Work") => Ok(Sort::Work),
        ("work.karmada.io", "ResourceBinding" | "ClusterResourceBinding") => Ok(Sort::Binding),
        ("work.karmada.io" | "policy.karmada.io" | "cluster.karmada.io", _) => {
            let qualified = resource.qualified();
            let message =
                format!("{qualified} are not propagated: there is nothing of them in members");
            Err(CliError::message(Kind::Usage, message)
                .hint(format!("`kubectl get {qualified}` shows them.")))
        }
        _ => Ok(Sort::Template),
    }
}
