//! `towline events`: what the hub's controllers say, the newest last; of everything, or of one template with its binding
//! and its policy.

use super::get::names::Asked;
use super::get::read::{self, Hub, Scope};
use super::output::Named;
use super::{CliError, ConnectArgs, Format, Kind, Output, Table, clusters};
use crate::apiserver::table::age;
use chrono::{DateTime, Utc};
use common::names::{ClusterName, binding_name};
use common::time::{Clock as _, SystemClock, from_micro_time, from_time};
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use serde::Serialize;
use std::collections::BTreeSet;

/// Arguments of `towline events`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  towline events -n shop                    of a namespace
  towline events deployment/web -n shop     of a template, its binding and its policy
  towline events -C member1                 of a cluster and of its Works
  towline events -A --warnings              all that went wrong")]
pub(super) struct Args {
    /// TYPE/NAME of a template: Events of it, of its binding and of its policy.
    #[arg(value_name = "TYPE/NAME", conflicts_with_all = ["clusters", "all_namespaces"])]
    of: Option<String>,
    /// Namespace; default: the kubeconfig's.
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// Events of all namespaces.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
    /// Events of these clusters and of their Works.
    #[arg(
        short = 'C',
        long,
        value_name = "CLUSTER",
        value_delimiter = ',',
        conflicts_with = "namespace"
    )]
    clusters: Vec<ClusterName>,
    /// Only warnings.
    #[arg(long)]
    warnings: bool,
    /// How they are shown.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// An Event.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Told {
    #[serde(skip_serializing_if = "Option::is_none")]
    last: Option<DateTime<Utc>>,
    /// How often.
    count: i64,
    #[serde(rename = "type")]
    sort: String,
    reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    /// `KIND/NAME` of what it is about.
    object: String,
    message: String,
    /// The Event itself.
    name: String,
}

impl Named for Told {
    fn named(&self) -> String {
        format!("event/{}", self.name)
    }
}

/// What Events are about: kind and name.
type About = BTreeSet<(String, String)>;

/// Runs the verb.
pub(super) async fn run(args: Args, output: &Output) -> Result<(), CliError> {
    let pair = args.of.as_deref().map(pair).transpose()?;
    let (client, config) = args.connect.connect("cli events").await?;
    clusters::known(&client, &args.clusters).await?;
    let namespace = args.namespace.clone().unwrap_or(config.default_namespace);
    let mut spaces = vec![Some(namespace.clone())];
    let mut about = None;
    if args.all_namespaces {
        spaces = vec![None];
    } else if let Some((word, name)) = &pair {
        let hub = Hub::discover(client.clone()).await?;
        let resource = hub.resolve(word)?;
        let answer = hub.template(&resource, &namespace, name).await?;
        about = Some(answer.about());
        if !resource.namespaced {
            // Of what has no namespace Events lie in default.
            spaces = vec![Some("default".to_owned())];
        }
    } else if !args.clusters.is_empty() {
        let names = args.clusters.iter();
        spaces = names.map(|it| Some(it.execution_namespace())).collect();
        spaces.push(Some("default".to_owned()));
    }
    let progress = output.progress("reading Events");
    let (mut events, mut unreadable) = (Vec::new(), 0);
    for space in spaces {
        let api: Api<Event> = match &space {
            Some(space) => Api::namespaced(client.clone(), space),
            None => Api::all(client.clone()),
        };
        let found = read::readable(&api, &Scope::default()).await;
        let (found, wrong) =
            found.map_err(|error| CliError::api("failed to list Events", error))?;
        unreadable += wrong;
        let shared = space.as_deref() == Some("default");
        let of_cluster = |event: &Told| {
            args.clusters.is_empty()
                || !shared
                || args
                    .clusters
                    .iter()
                    .any(|it| event.object == format!("Cluster/{it}"))
        };
        events.extend(found.iter().map(told).filter(of_cluster));
    }
    drop(progress);
    if unreadable > 0 {
        output.note(format!("{unreadable} Events cannot be read"));
    }
    chosen(&mut events, about.as_ref(), args.warnings);
    if events.is_empty() && args.output == Format::Table {
        output.note("there are no such Events; they are kept for about an hour");
        return Ok(());
    }
    let now = SystemClock.now();
    let wide = args.all_namespaces || !args.clusters.is_empty();
    output.print_values(args.output, &events, |events| table(events, wide, now))
}

fn pair(word: &str) -> Result<(String, String), CliError> {
    let usage = |error: anyhow::Error| CliError::new(Kind::Usage, error);
    let asked = Asked::read(&[word.to_owned()]).map_err(|error| usage(error.into()))?;
    let one = match asked {
        Asked::Named(pairs) => pairs.into_iter().next(),
        Asked::All(_) => None,
    };
    one.ok_or_else(|| usage(anyhow::anyhow!("{word:?} is not TYPE/NAME")))
        .map_err(|error| error.hint("Such as deployment/web."))
}

/// Those that are asked for, the newest last.
fn chosen(events: &mut Vec<Told>, about: Option<&About>, warnings: bool) {
    events.retain(|it| !warnings || it.sort == "Warning");
    if let Some(about) = about {
        events.retain(|it| {
            let object = it.object.split_once('/');
            object.is_some_and(|(kind, name)| about.contains(&(kind.to_owned(), name.to_owned())))
        });
    }
    events.sort_by(|a, b| (a.last, &a.object, &a.name).cmp(&(b.last, &b.object, &b.name)));
}

fn told(event: &Event) -> Told {
    let series = event.series.as_ref();
    let last = series
        .and_then(|it| from_micro_time(it.last_observed_time.as_ref()?))
        .or_else(|| from_time(event.last_timestamp.as_ref()?))
        .or_else(|| from_micro_time(event.event_time.as_ref()?))
        .or_else(|| from_time(event.metadata.creation_timestamp.as_ref()?));
    let count = series.and_then(|it| it.count).or(event.count).unwrap_or(1);
    let object = &event.involved_object;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    Told {
        last,
        count: i64::from(count),
        sort: text(&event.type_),
        reason: text(&event.reason),
        namespace: object.namespace.clone().filter(|it| !it.is_empty()),
        object: format!("{}/{}", text(&object.kind), text(&object.name)),
        message: text(&event.message),
        name: text(&event.metadata.name),
    }
}

fn table(events: &[Told], namespaces: bool, now: DateTime<Utc>) -> Table {
    let mut headings = vec!["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"];
    if namespaces {
        headings.insert(0, "NAMESPACE");
    }
    let mut table = Table::of(headings);
    for event in events {
        let since = event.last.map_or_else(
            || "-".to_owned(),
            |last| age::shown((now - last).num_milliseconds()),
        );
        let since = match event.count {
            many if many > 1 => format!("{since} (x{many})"),
            _ => since,
        };
        let mut cells = Vec::new();
        if namespaces {
            cells.push(event.namespace.clone().unwrap_or_else(|| "-".to_owned()));
        }
        let message = event.message.lines().next().unwrap_or_default();
        cells.extend([
            since,
            event.sort.clone(),
            event.reason.clone(),
            event.object.clone(),
            message.to_owned(),
        ]);
        table.push(cells);
    }
    table
}

impl super::get::answer::Answer {
    /// What Events that concern it are about: itself, its binding, its policy.
    fn about(&self) -> About {
        let binding = match self.namespace {
            Some(_) => "ResourceBinding",
            None => "ClusterResourceBinding",
        };
        let mut about = About::from([
            (self.kind.clone(), self.name.clone()),
            (binding.to_owned(), binding_name(&self.kind, &self.name)),
        ]);
        let policy = self.policy.as_deref().and_then(|it| it.split_once('/'));
        about.extend(policy.map(|(short, name)| {
            let kind = match short {
                "pp" => "PropagationPolicy",
                _ => "ClusterPropagationPolicy",
            };
            (kind.to_owned(), name.to_owned())
        }));
        about
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn event(name: &str, kind: &str, of: &str, seconds: u32, sort: &str) -> Told {
        let event = json!({
            "metadata": {"name": name, "namespace": "shop"},
            "involvedObject": {"kind": kind, "name": of, "namespace": "shop"},
            "type": sort, "reason": "R", "message": "said\nand more",
            "eventTime": format!("2026-01-01T00:00:{seconds:02}.000000Z"),
        });
        told(&serde_json::from_value(event).expect("an Event"))
    }

    #[test]
    fn a_template_has_the_events_of_its_binding_and_policy() {
        let answer = crate::cli::get::answer::Answer {
            kind: "Deployment".to_owned(),
            namespace: Some("shop".to_owned()),
            name: "web".to_owned(),
            policy: Some("pp/front".to_owned()),
            ..crate::cli::get::answer::Answer::default()
        };
        let mut events = vec![
            event("b", "ResourceBinding", "web-deployment", 30, "Warning"),
            event("a", "Deployment", "web", 20, "Normal"),
            event("c", "PropagationPolicy", "front", 10, "Normal"),
            event("d", "Deployment", "other", 40, "Warning"),
            event("e", "PropagationPolicy", "web", 40, "Warning"),
        ];
        chosen(&mut events, Some(&answer.about()), false);
        let names: Vec<&str> = events.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["c", "a", "b"]);
        chosen(&mut events, None, true);
        assert_eq!(events.len(), 1);
        let now = "2026-01-01T00:01:30Z".parse().expect("a time");
        assert_eq!(
            table(&events, false, now).to_string(),
            "LAST SEEN   TYPE      REASON   OBJECT                           MESSAGE\n\
             60s         Warning   R        ResourceBinding/web-deployment   said\n"
        );
    }

    #[test]
    fn screens_are_as_they_were_approved() {
        let mut events = vec![
            event("a", "Deployment", "web", 20, "Normal"),
            event("b", "ResourceBinding", "web-deployment", 30, "Warning"),
        ];
        events[0].message = "Apply policy(shop/web) succeed".to_owned();
        events[0].reason = "ApplyPolicySucceed".to_owned();
        events[1].message = "override policy(shop/web) does not apply, overrideRules[0].plaintext: remove operation does \
                             not apply: doc is missing path: /spec/nothing"
            .to_owned();
        (events[1].reason, events[1].count) = ("SyncWorkFailed".to_owned(), 7);
        let now = "2026-01-01T00:01:30Z".parse().expect("a time");
        for (name, everywhere) in [("events", false), ("everywhere", true)] {
            crate::cli::approved::screens("cli/events/screens", name, |width, colours| {
                table(&events, everywhere, now)
                    .coloured(colours)
                    .within(Some(width))
            });
        }
    }

    #[test]
    fn what_is_repeated_is_counted_from_its_series() {
        let event = json!({
            "metadata": {"name": "a", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "involvedObject": {"kind": "Cluster", "name": "m1"}, "type": "Warning",
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "series": {"count": 7, "lastObservedTime": "2026-01-01T00:10:00.000000Z"},
        });
        let seen = told(&serde_json::from_value(event).expect("an Event"));
        assert_eq!((seen.count, seen.namespace), (7, None));
        assert_eq!(
            seen.last.map(|it| it.to_rfc3339()).as_deref(),
            Some("2026-01-01T00:10:00+00:00")
        );
        assert!(pair("web").is_err() && pair("deploy/web").is_ok() && pair("a/b/c").is_err());
    }
}
