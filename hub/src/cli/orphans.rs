//! `towline orphans`: what Works left behind in a member without having been deleted, and what is to
//! become of it.
//!
//! The agent names them in its Cluster's status and touches none of them by itself: a hub that was
//! restored or emptied must not cost a member its workloads. What is done is an operator's word, written
//! where only operators write: into a Work.

mod settle;

use super::output::Named;
use super::{CliError, ConnectArgs, Format, Kind, Output, Table};
use common::api::cluster::{Cluster, OrphanReport, OrphanedObject, READY};
use common::duration;
use common::names::ClusterName;
use common::shutdown::on_signals;
use kube::Api;
use settle::{Settlement, Way};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Arguments of `towline orphans`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The cluster's name on the hub.
    #[arg(value_name = "CLUSTER")]
    cluster: ClusterName,
    #[command(flatten)]
    connect: ConnectArgs,
    /// Write the Works anew as the agent saw them last, so that the hub has the objects again.
    #[arg(long, conflicts_with = "delete")]
    adopt: bool,
    /// Delete the objects from the member.
    #[arg(long)]
    delete: bool,
    /// Only what this Work left behind, several times for several.
    #[arg(long, value_name = "NAME")]
    work: Vec<String>,
    /// Go ahead without asking.
    #[arg(long)]
    yes: bool,
    /// How long to wait until it is done.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration::parse)]
    wait: Duration,
    /// How the objects are shown.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

impl Named for OrphanedObject {
    fn named(&self) -> String {
        let kind = self.kind.to_lowercase();
        match self.group.as_str() {
            "" => format!("{kind}/{}", self.name),
            group => format!("{kind}.{group}/{}", self.name),
        }
    }
}

/// Runs the verb.
pub(super) async fn run(args: Args, output: &Output) -> Result<(), CliError> {
    let (client, _) = args.connect.connect("cli orphans").await?;
    let clusters: Api<Cluster> = Api::all(client.clone());
    let cluster = get(&clusters, &args.cluster).await?;
    let report = report(&cluster)?;
    let way = match (args.adopt, args.delete) {
        (true, _) => Some(Way::Adopt),
        (_, true) => Some(Way::Delete),
        _ => None,
    };
    meant(report, &args.work)?;
    let found = chosen(report, &args.work);
    let Some(way) = way else {
        return show(&args, &cluster, report, &found, output);
    };
    if found.is_empty() {
        output.note("nothing is orphaned");
        return Ok(());
    }
    let works = by_work(&found).len();
    let all = total(report, &args.work, &found);
    let question = match way {
        Way::Adopt => format!("Write {works} Works anew, which the agent saw last?"),
        Way::Delete => format!(
            "Delete what {works} Works left behind in member {}, {all} objects?",
            args.cluster,
        ),
    };
    if !args.yes {
        output.confirm(&question)?;
    }
    // Not before the question: until there is something to take back, a signal just ends the process.
    let stop = CancellationToken::new();
    on_signals(stop.clone()).map_err(|error| {
        let error = anyhow::Error::new(error).context("failed to listen for signals");
        CliError::new(Kind::Internal, error)
    })?;
    let settlement = Settlement::new(client, &args.cluster, way, args.wait, stop);
    let all = usize::try_from(all).unwrap_or(usize::MAX);
    let settled = settlement.run(&args.work, found, all, output).await?;
    let done = match way {
        Way::Adopt => "objects have a Work again",
        Way::Delete => "objects are deleted",
    };
    output.print(format!("{settled} {done}"))
}

async fn get(clusters: &Api<Cluster>, name: &ClusterName) -> Result<Cluster, CliError> {
    let found = clusters.get_opt(name.as_str()).await;
    let found = found
        .map_err(|e| CliError::api(format!("failed to get Cluster {:?}", name.as_str()), e))?;
    found.ok_or_else(|| {
        let text = format!("there is no Cluster {:?} on this hub", name.as_str());
        CliError::message(Kind::NotFound, text)
            .hint("`kubectl get clusters` lists those there are.")
    })
}

/// What the agent reports.
fn report(cluster: &Cluster) -> Result<&OrphanReport, CliError> {
    let agent = cluster.status.as_ref().and_then(|s| s.agent.as_ref());
    let report = agent.and_then(|agent| agent.orphans.as_ref());
    report.ok_or_else(|| {
        let text = "the cluster's agent has not said yet what is orphaned";
        CliError::message(Kind::Unavailable, text)
            .hint("It says so once it has listed its Works: see that the cluster is Ready.")
    })
}

/// That each of the named Works left something, where there is anything at all: whoever settles all of it twice is right.
fn meant(report: &OrphanReport, works: &[String]) -> Result<(), CliError> {
    let all = by_work(&report.objects);
    let missing = works.iter().find(|it| !all.contains_key(*it));
    let Some(missing) = missing.filter(|_| !all.is_empty()) else {
        return Ok(());
    };
    let there: Vec<&str> = all.keys().map(String::as_str).collect();
    let there = there.join(", ");
    let message = format!("Work {missing} left nothing; orphans are of: {there}");
    let error = CliError::message(Kind::NotFound, message);
    let are_all = report.count <= i64::try_from(report.objects.len()).unwrap_or(i64::MAX);
    Err(match are_all {
        true => error,
        false => error.hint("More are not named yet: settle these first."),
    })
}

/// The objects of the named Works; of all when none is named.
fn chosen(report: &OrphanReport, works: &[String]) -> Vec<OrphanedObject> {
    let wanted = |object: &&OrphanedObject| works.is_empty() || works.contains(&object.work);
    report.objects.iter().filter(wanted).cloned().collect()
}

/// How many there are, as far as is known.
fn total(report: &OrphanReport, works: &[String], found: &[OrphanedObject]) -> i64 {
    if works.is_empty() {
        report.count
    } else {
        i64::try_from(found.len()).unwrap_or(i64::MAX)
    }
}

/// Objects by their Work.
fn by_work(objects: &[OrphanedObject]) -> BTreeMap<String, Vec<OrphanedObject>> {
    let mut works: BTreeMap<String, Vec<OrphanedObject>> = BTreeMap::new();
    for object in objects {
        let list = works.entry(object.work.clone()).or_default();
        list.push(object.clone());
    }
    works
}

fn show(
    args: &Args,
    cluster: &Cluster,
    report: &OrphanReport,
    found: &[OrphanedObject],
    output: &Output,
) -> Result<(), CliError> {
    if cluster.condition(READY).is_none_or(|c| c.status != "True") {
        output.note("the cluster is not Ready: this is what its agent said last");
    }
    let hidden = report.count - i64::try_from(report.objects.len()).unwrap_or(i64::MAX);
    if hidden > 0 {
        output.note(format!(
            "{hidden} more are not named; they follow when these are settled"
        ));
    }
    if found.is_empty() && args.output == Format::Table {
        output.note("nothing is orphaned");
        return Ok(());
    }
    output.print_values(args.output, found, table)?;
    if args.output == Format::Table {
        output.note("settle them by --adopt or --delete; until then they stay as they are");
    }
    Ok(())
}

fn table(objects: &[OrphanedObject]) -> Table {
    let mut table = Table::new(["WORK", "KIND", "NAMESPACE", "NAME"]);
    for object in objects {
        let kind = match object.group.as_str() {
            "" => object.kind.clone(),
            group => format!("{}.{group}", object.kind),
        };
        let namespace = match object.namespace.as_str() {
            "" => "<none>".to_owned(),
            namespace => namespace.to_owned(),
        };
        table.row([object.work.clone(), kind, namespace, object.name.clone()]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(work: &str, name: &str) -> OrphanedObject {
        OrphanedObject {
            work: work.into(),
            group: "apps".into(),
            kind: "Deployment".into(),
            name: name.into(),
            uid: format!("uid-{name}"),
            ..OrphanedObject::default()
        }
    }

    #[test]
    fn objects_are_chosen_and_shown_by_their_work() {
        let report = OrphanReport {
            count: 9,
            objects: vec![object("w", "a"), object("v", "b"), object("w", "c")],
        };
        let some = chosen(&report, &["w".to_owned()]);
        assert_eq!(by_work(&some)["w"].len(), 2);
        assert_eq!(total(&report, &["w".to_owned()], &some), 2);
        assert_eq!(total(&report, &[], &some), 9);
        assert_eq!(
            table(&some).to_string(),
            "WORK   KIND              NAMESPACE   NAME\n\
             w      Deployment.apps   <none>      a\n\
             w      Deployment.apps   <none>      c\n"
        );
    }

    #[test]
    fn a_work_that_left_nothing_is_named() {
        let report = OrphanReport {
            count: 2,
            objects: vec![object("w", "a"), object("v", "b")],
        };
        let works = ["w", "nosuch"].map(str::to_owned);
        assert!(meant(&report, &[]).is_ok() && meant(&report, &works[..1]).is_ok());
        let error = meant(&report, &works).expect_err("a name that is wrong");
        assert_eq!(error.kind, Kind::NotFound);
        let text = error.to_string();
        assert_eq!(
            text,
            "error: Work nosuch left nothing; orphans are of: v, w"
        );
        assert!(meant(&OrphanReport::default(), &works).is_ok());
    }

    #[test]
    fn screens_are_as_they_were_approved() {
        let mut map = object("settings-5cdf", "settings-of-the-front-end");
        (map.group, map.kind, map.namespace) = (String::new(), "ConfigMap".into(), "shop".into());
        let found = [object("web-66457cb699", "web"), map];
        crate::cli::approved::screens("cli/orphans/screens", "orphans", |width, colours| {
            table(&found).coloured(colours).within(Some(width))
        });
    }

    #[test]
    fn an_agent_that_said_nothing_is_no_agent_without_orphans() {
        let error = report(&Cluster::default()).expect_err("nothing was said");
        assert_eq!(error.kind, Kind::Unavailable);
    }
}
