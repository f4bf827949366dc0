//! `towline why`: walks the way of a template, a cluster or a Work, names the first broken link, and ends with what
//! mends it.
//!
//! What is found is decided by [`crate::explain`]; this reads what that needs, and shows what it says.

mod read;

use super::get::read::Hub;
use super::{CliError, ConnectArgs, Format, Kind, Output};
use crate::explain::{Report, text};
use common::names::{ClusterName, EXECUTION_PREFIX};

/// Arguments of `towline why`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  towline why deployment/web -n shop     from its policy to what its pods say in each member
  towline why cluster/m1                 registration, agent, certificate, taints, failing Works
  towline why work/karmada-es-m1/web     a Work; also `towline why work/web -C m1`

The exit code is 0 when all is well and 7 when something is broken.")]
pub(super) struct Args {
    /// TYPE/NAME or TYPE NAME, as kubectl takes them; cluster/NAME; work/NAMESPACE/NAME.
    #[arg(value_name = "TYPE/NAME", required = true, num_args = 1..=2)]
    words: Vec<String>,
    /// Namespace; default: the kubeconfig's.
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// The cluster of a Work.
    #[arg(short = 'C', long, value_name = "CLUSTER")]
    cluster: Option<ClusterName>,
    /// How it is shown.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// What is asked about.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Template(String, String),
    Cluster(String),
    /// Namespace, if it is said, and name.
    Work(Option<String>, String),
}

/// Runs the verb.
pub(super) async fn run(args: Args, output: &Output) -> Result<(), CliError> {
    let asked = Asked::read(&args.words)?;
    let (client, config) = args.connect.connect("cli why").await?;
    let progress = output.progress("reading the hub");
    let report = match asked {
        Asked::Cluster(name) => read::cluster(&client, &name).await?,
        Asked::Work(namespace, name) => {
            let of_cluster = args.cluster.map(|it| format!("{EXECUTION_PREFIX}{it}"));
            let namespace = namespace.or(of_cluster).or(args.namespace);
            let namespace = namespace.ok_or_else(|| {
                CliError::message(Kind::Usage, "whose Work is meant is not said")
                    .hint("Name its cluster by -C, or write work/NAMESPACE/NAME.")
            })?;
            read::work(&client, &namespace, &name).await?
        }
        Asked::Template(word, name) => {
            let hub = Hub::discover(client).await?;
            let namespace = args.namespace.unwrap_or(config.default_namespace);
            read::template(&hub, &word, &namespace, &name).await?
        }
    };
    drop(progress);
    show(&report, args.output, output)?;
    match report.well {
        true => Ok(()),
        false => Err(CliError::told(Kind::Unmet)),
    }
}

fn show(report: &Report, format: Format, output: &Output) -> Result<(), CliError> {
    match format {
        Format::Table => {
            let colours = output.colours();
            let paint = |state, word: &str| colours.state(state, word);
            output.print(text::render(report, output.width(), paint))
        }
        Format::Name if report.well => Ok(()),
        Format::Name => output.print(report.name()),
        Format::Json | Format::Yaml => output.print_value(format, report),
    }
}

impl Asked {
    fn read(words: &[String]) -> Result<Self, CliError> {
        let parts: Vec<&str> = match words {
            [one] => one.split('/').collect(),
            [first, rest] if !first.contains('/') => std::iter::once(first.as_str())
                .chain(rest.split('/'))
                .collect(),
            _ => Vec::new(),
        };
        let parts = if parts.iter().any(|it| it.is_empty()) {
            Vec::new()
        } else {
            parts
        };
        let sort = parts
            .first()
            .map(|it| it.to_lowercase())
            .unwrap_or_default();
        let is = |names: [&str; 3]| names.contains(&sort.as_str());
        let owned = |text: &str| text.to_owned();
        match parts[..] {
            [_, name] if is(["cluster", "clusters", "clusters.cluster.karmada.io"]) => {
                Ok(Self::Cluster(owned(name)))
            }
            [_, name] if is(["work", "works", "works.work.karmada.io"]) => {
                Ok(Self::Work(None, owned(name)))
            }
            [_, namespace, name] if is(["work", "works", "works.work.karmada.io"]) => {
                Ok(Self::Work(Some(owned(namespace)), owned(name)))
            }
            [kind, name] => Ok(Self::Template(owned(kind), owned(name))),
            _ => Err(
                CliError::message(Kind::Usage, "one object is asked about, as TYPE/NAME")
                    .hint("Such as deployment/web, cluster/m1 or work/karmada-es-m1/web."),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_name_one_object() {
        let read = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|it| (*it).to_owned()).collect();
            Asked::read(&words).ok()
        };
        let template = || Some(Asked::Template("deploy".into(), "web".into()));
        assert_eq!(read(&["deploy/web"]), template());
        assert_eq!(read(&["deploy", "web"]), template());
        assert_eq!(read(&["Cluster/m1"]), Some(Asked::Cluster("m1".into())));
        assert_eq!(read(&["work", "w"]), Some(Asked::Work(None, "w".into())));
        let whole = Some(Asked::Work(Some("karmada-es-m1".into()), "w".into()));
        assert_eq!(read(&["work/karmada-es-m1/w"]), whole);
        for words in [
            &["deploy"][..],
            &["deploy/"],
            &["deploy/a", "b"],
            &["deploy/a/b"],
            &["/a"],
        ] {
            assert_eq!(read(words), None, "{words:?}");
        }
    }
}
