//! `towline access`: gives users and groups of the hub a role in members, takes it back, and shows who has what.
//!
//! Each grant goes to its member as a Work, and the hub lets through whoever has one. Whom a member's agent may act as, and
//! which roles it may bind, stays its owner's word: what is missing of that is what the owner is told to type.

pub(super) mod asking;
mod bound;
mod grant;
mod hub;
pub(super) mod standing;

use super::error::{ended, or_later};
use super::kubeconfig::way;
use super::output::{Done, Named as _};
use super::{CliError, ConnectArgs, Format, Kind, Output, clusters};
use asking::Asking;
use bound::{Idle, bound};
use common::api::work::Work;
use common::names::ClusterName;
use common::{duration, harmless};
use futures::{StreamExt as _, stream};
use grant::{Grant, Named, Unmeant, VIEW};
use hub::{Hub, Put};
use kube::{Client, ResourceExt as _};
use standing::{Holds, Standing, Why, applied, table};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How often it is looked whether members have what was granted.
const POLL: Duration = Duration::from_millis(500);
/// After so long an agent knows whom its owner has let in.
const KNOWN: Duration = Duration::from_secs(10);
/// Characters of why something could not be done.
const SAID: usize = 400;
/// Members that are asked at the same time.
const AT_ONCE: usize = 32;

/// Arguments of `towline access`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Give somebody a role in members, and let them through the hub to these.
    Grant(GrantArgs),
    /// Take back what was granted.
    Revoke(RevokeArgs),
    /// Show what is granted, and whether members have it.
    List(ListArgs),
}

#[derive(Debug, clap::Args)]
struct Whom {
    /// User of the hub, or with --group a group, by the name that the hub knows them by.
    #[arg(value_name = "NAME")]
    name: String,
    /// NAME is a group.
    #[arg(long)]
    group: bool,
}

#[derive(Debug, clap::Args)]
struct Where {
    /// The clusters.
    #[arg(
        short = 'C',
        long,
        value_name = "CLUSTER",
        value_delimiter = ',',
        required_unless_present = "all"
    )]
    clusters: Vec<ClusterName>,
    /// Every cluster that the hub has now.
    #[arg(long, conflicts_with = "clusters")]
    all: bool,
}

impl Where {
    /// Those that are named; none for all.
    fn named(&self) -> &[ClusterName] {
        match self.all {
            true => &[],
            false => &self.clusters,
        }
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  towline access grant ann -C m1,m2 -n shop     ann reads what is in namespace shop of both
  towline access grant dev --group --role edit --all
  towline access grant system:serviceaccount:ci:robot -C m1 -n shop --role edit

Exit code 7 says that a member refused, or does not let them in; what its owner can type is told, and once
that is typed the grant holds.")]
struct GrantArgs {
    #[command(flatten)]
    whom: Whom,
    #[command(flatten)]
    places: Where,
    /// ClusterRole of the members: view, edit, admin, or another one that they have.
    #[arg(long, value_name = "NAME", default_value = VIEW)]
    role: String,
    /// Namespace of the members in which the role holds; default: in all of each, and in what is in no namespace.
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// Bind the user or group by that name, where others come in as members of groups or as ServiceAccounts, and the
    /// member's owner names this one besides.
    #[arg(long)]
    by_name: bool,
    /// How long to wait until members have it; 0 not to wait, and not to ask whether they let anybody in. What a member
    /// refused its agent tries again within a minute.
    #[arg(long, value_name = "DURATION", default_value = "90s", value_parser = duration::parse)]
    wait: Duration,
    /// How the grants are shown.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    connect: ConnectArgs,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  towline access revoke ann --all                     everything
  towline access revoke ann -C m1 -n shop --role edit  what was granted so")]
struct RevokeArgs {
    #[command(flatten)]
    whom: Whom,
    #[command(flatten)]
    places: Where,
    /// Only this role; default: all of theirs.
    #[arg(long, value_name = "NAME")]
    role: Option<String>,
    /// Only what was granted for this namespace.
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// How long to wait until members have taken it back; 0 not to wait.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration::parse)]
    wait: Duration,
    /// How what was revoked is shown.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    connect: ConnectArgs,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  towline access list
  towline access list ann -C m1")]
struct ListArgs {
    /// Only this user of the hub, or with --group this group.
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// NAME is a group.
    #[arg(long, requires = "name")]
    group: bool,
    /// Only these clusters.
    #[arg(short = 'C', long, value_name = "CLUSTER", value_delimiter = ',')]
    clusters: Vec<ClusterName>,
    /// How the grants are shown.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// Runs the verb.
pub(super) async fn run(args: Args, output: &Output) -> Result<(), CliError> {
    match args.verb {
        Verb::Grant(args) => grant(args, output).await,
        Verb::Revoke(args) => revoke(args, output).await,
        Verb::List(args) => list(args, output).await,
    }
}

async fn grant(args: GrantArgs, output: &Output) -> Result<(), CliError> {
    let subject = Named::new(&args.whom.name, args.whom.group).map_err(usage)?;
    let grant = Grant::new(subject, &args.role, args.namespace.as_deref()).map_err(usage)?;
    let (client, _) = args.connect.connect("cli access").await?;
    let meant = clusters::meant(&client, args.places.named()).await?;
    // A hub that leads nobody into members gives nobody a way there.
    let first = meant.first().map_or("", String::as_str);
    let way = way(&client, first).await?;
    let hub = Hub::new(client.clone());
    let progress = output.progress(format!("granting in {} clusters", meant.len()));
    let asking = Asking::oneself(&client, way);
    let grants = bound_in(&hub, &asking, &grant, meant, args.by_name).await?;
    let deadline = Instant::now() + args.wait;
    let Put {
        grants,
        new,
        mut failed,
    } = hub.put_each(grants, &grant.subject).await;
    if grants.is_empty() {
        drop(progress);
        return ended(failed, output);
    }
    let awaited = Awaited {
        grants,
        new,
        deadline,
    };
    progress.step("waiting for the members");
    let found = match awaited.settled(&hub, &grant.subject).await {
        Ok(found) => found,
        Err(error) => {
            drop(progress);
            failed.push(error);
            return ended(failed, output);
        }
    };
    let let_in = match args.wait.is_zero() {
        true => BTreeMap::new(),
        false => {
            let asking = Asking::of(&client, way, &grant.subject, &grant.role).await;
            awaited.asked(&asking).await
        }
    };
    drop(progress);
    let all = found.into_iter().map(|(cluster, applied)| {
        let let_in = let_in.get(&cluster).cloned();
        let grant = awaited.grants.get(&cluster).unwrap_or(&grant).clone();
        Standing::new(cluster, grant, applied, let_in)
    });
    let all = with_commands(&client, all.collect()).await;
    show(&all, args.output, output)?;
    if !args.wait.is_zero() {
        failed.extend(told(&all).err());
    }
    ended(failed, output)
}

/// Lets nobody through any more to a cluster that leaves. Who may not change others' rights is told who may, and it is said
/// whether it was done.
pub(super) async fn forget(client: &Client, cluster: &ClusterName, output: &Output) -> bool {
    let forgotten = Hub::new(client.clone()).forget(cluster).await;
    if let Err(error) = &forgotten {
        let why = harmless::line(&format!("{:#}", error.source), SAID);
        output.note(format!(
            "the hub may still let through to {cluster}, and to another cluster of that name, whoever was granted access to \
             it: {why}; `towline access revoke NAME --all` of somebody who may grant takes that back"
        ));
    }
    forgotten.is_ok()
}

/// The grant as it is bound in each member, by what their agents say of whom users come in as.
async fn bound_in(
    hub: &Hub,
    asking: &Asking<'_>,
    grant: &Grant,
    meant: BTreeSet<String>,
    by_name: bool,
) -> Result<BTreeMap<String, Grant>, CliError> {
    let each = meant.into_iter().map(|cluster| async move {
        let comes = match by_name {
            true => None,
            false => asking.ask(&cluster).await.comes,
        };
        (cluster, comes)
    });
    let comes: BTreeMap<String, _> = stream::iter(each).buffer_unordered(AT_ONCE).collect().await;
    let works = hub.works(Some(&grant.subject)).await?;
    let before: Vec<(String, Grant)> = works.iter().filter_map(Grant::of).collect();
    let mut grants = BTreeMap::new();
    let mut idle: BTreeMap<Idle, Vec<&str>> = BTreeMap::new();
    for (cluster, comes) in &comes {
        let same = |it: &&(String, Grant)| {
            let given = (&it.1.role, &it.1.namespace);
            it.0 == *cluster && given == (&grant.role, &grant.namespace)
        };
        let before = before.iter().find(same).map(|(_, grant)| grant);
        match bound(grant, *comes, before, by_name) {
            Ok(bound) => drop(grants.insert(cluster.clone(), bound)),
            Err(why) => idle.entry(why).or_default().push(cluster),
        }
    }
    match idle.pop_first() {
        Some((why, clusters)) => Err(why.error(grant, &clusters)),
        None => Ok(grants),
    }
}

/// The members that are waited for.
struct Awaited {
    /// The grant, as it is bound in each.
    grants: BTreeMap<String, Grant>,
    /// Those to which it was not granted before. What others refused then they may be about to try again, because their
    /// owners mended it.
    new: BTreeSet<String>,
    deadline: Instant,
}

impl Awaited {
    /// Whether each has it, once it says so or the time is over.
    async fn settled(
        &self,
        hub: &Hub,
        subject: &Named,
    ) -> Result<BTreeMap<String, Holds>, CliError> {
        loop {
            let Some(works) = or_later(hub.works(Some(subject)).await, self.deadline)? else {
                sleep(POLL).await;
                continue;
            };
            let theirs = works.iter().filter_map(|work| {
                let (cluster, carried) = Grant::of(work)?;
                (self.grants.get(&cluster) == Some(&carried)).then(|| (cluster, applied(work)))
            });
            let mut theirs: BTreeMap<String, Holds> = theirs.collect();
            let gone = || Holds::No(Why::Revoked("somebody revoked it meanwhile"));
            let found = self.grants.keys().map(|cluster| {
                let holds = theirs.remove(cluster);
                (cluster.clone(), holds.unwrap_or_else(gone))
            });
            let found: BTreeMap<String, Holds> = found.collect();
            let open = found.iter().any(|(cluster, holds)| match holds {
                Holds::Yes => false,
                Holds::No(_) => !self.new.contains(cluster),
                Holds::Unknown(_) => true,
            });
            if !open || Instant::now() >= self.deadline {
                return Ok(found);
            }
            sleep(POLL).await;
        }
    }

    /// Whether each lets them in.
    async fn asked(&self, asking: &Result<Asking<'_>, String>) -> BTreeMap<String, Holds> {
        let patience = self.deadline.min(Instant::now() + KNOWN);
        let each = self.grants.keys().map(|cluster| async move {
            let asking = match asking {
                Ok(asking) => asking,
                Err(why) => return (cluster.clone(), Holds::Unknown(why.clone())),
            };
            loop {
                let asked = asking.ask(cluster).await;
                let refuses = matches!(asked.holds, Holds::No(_));
                let until = match refuses && !self.new.contains(cluster) {
                    true => patience,
                    false if asked.again => self.deadline,
                    false => return (cluster.clone(), asked.holds),
                };
                if Instant::now() >= until {
                    return (cluster.clone(), asked.holds);
                }
                sleep(POLL).await;
            }
        });
        let answers = stream::iter(each).buffer_unordered(AT_ONCE);
        answers.collect().await
    }
}

fn show(all: &[Standing], format: Format, output: &Output) -> Result<(), CliError> {
    output.print_values(format, all, |all| table(all, output.colours()))?;
    if format == Format::Table {
        for it in all {
            if let Some(command) = &it.owner_command {
                let joins = command.starts_with("towline join");
                let there = if joins { "" } else { " there" };
                output.note(format!("{}: its owner types{there}: {command}", it.cluster));
            }
        }
    }
    Ok(())
}

/// The exit code of a grant that does not hold everywhere.
fn told(all: &[Standing]) -> Result<(), CliError> {
    let broken = all.iter().filter(|it| it.is_broken()).count();
    let open = all.iter().filter(|it| it.is_open()).count();
    let of = all.len();
    if broken > 0 {
        let message = format!("the grant does not hold in {broken} of {of} clusters");
        if all.iter().any(Standing::is_revoked) {
            return Err(CliError::message(Kind::Unmet, message)
                .hint("What was revoked meanwhile is not granted any more; grant it again once that is confirmed."));
        }
        return Err(CliError::message(Kind::Unmet, message)
            .hint("It stays granted, and holds once what is told above is mended; `towline access revoke` takes it back."));
    }
    if open > 0 {
        let message = format!("{open} of {of} clusters have not said whether they have it");
        return Err(CliError::message(Kind::Unavailable, message)
            .hint("It stays granted, and holds once their agents are there: `towline check NAME` walks to one."));
    }
    Ok(())
}

async fn revoke(args: RevokeArgs, output: &Output) -> Result<(), CliError> {
    let subject = Named::new(&args.whom.name, args.whom.group).map_err(usage)?;
    let (client, _) = args.connect.connect("cli access").await?;
    let hub = Hub::new(client);
    let meant = |cluster: &str, grant: &Grant| {
        let named = args.places.named();
        (named.is_empty() || named.iter().any(|it| it.as_str() == cluster))
            && args.role.as_ref().is_none_or(|role| *role == grant.role)
            && (args.namespace.is_none() || args.namespace == grant.namespace)
    };
    let works = hub.works(Some(&subject)).await?;
    let goes = works.into_iter().filter_map(|work| {
        let (cluster, grant) = Grant::of(&work)?;
        meant(&cluster, &grant).then_some((cluster, grant, work))
    });
    let mut goes: Vec<(String, Grant, Work)> = goes.collect();
    goes.sort_by(|one, other| (&one.1, &one.0).cmp(&(&other.1, &other.0)));
    if goes.is_empty() {
        // What a cluster left behind that went together with its grants.
        if hub.let_through(&subject, |_| false).await? {
            let how = "reaches no cluster any more in which nothing is granted";
            let done = Done::new(subject.to_string(), how.to_owned());
            return output.print_done(args.output, &[done]);
        }
        let message = format!("nothing of the kind is granted to {subject}");
        return Err(
            CliError::message(Kind::NotFound, message).hint("`towline access list` shows what is.")
        );
    }
    let progress = output.progress("revoking");
    let uids: BTreeSet<String> = goes.iter().filter_map(|(.., work)| work.uid()).collect();
    let is_going = |work: &Work| work.uid().is_some_and(|uid| uids.contains(&uid));
    // The hub's own right goes first: it ends what is under way, whether or not the member can be reached.
    hub.let_through(&subject, is_going).await?;
    let mut failed = Vec::new();
    let mut gone = Vec::new();
    for one in goes {
        match hub.delete(&one.2).await {
            Ok(()) => gone.push(one),
            Err(error) => {
                let is_outage = error.is_outage();
                failed.push(error);
                if is_outage {
                    break;
                }
            }
        }
    }
    // A grant of the same that came between read the Works as if they stayed.
    failed.extend(hub.let_through(&subject, is_going).await.err());
    if gone.is_empty() {
        drop(progress);
        return ended(failed, output);
    }
    let deadline = Instant::now() + args.wait;
    let awaited: BTreeSet<String> = gone.iter().filter_map(|(.., work)| work.uid()).collect();
    let left: BTreeSet<String> = loop {
        let works = match hub.works(Some(&subject)).await {
            Ok(works) => works,
            Err(error) => {
                drop(progress);
                failed.push(error);
                return ended(failed, output);
            }
        };
        let left = works.iter().filter_map(Work::uid);
        let left: BTreeSet<String> = left.filter(|it| awaited.contains(it)).collect();
        if left.is_empty() || Instant::now() >= deadline {
            break left;
        }
        sleep(POLL).await;
    };
    drop(progress);
    let done = gone.iter().map(|(cluster, grant, work)| {
        let confirmed = work.uid().is_some_and(|uid| !left.contains(&uid));
        let how = match confirmed {
            true => format!("revoked in {cluster}"),
            false => format!("revoked on the hub, and {cluster} has not confirmed it"),
        };
        let of = Standing::new(cluster.clone(), grant.clone(), Holds::Yes, None);
        let place = grant.namespace.as_ref();
        let place = place.map_or_else(String::new, |it| format!(" for namespace {it}"));
        let shown = format!("{} {}{place}", grant.subject, grant.role);
        match args.output {
            Format::Table => Done::new(shown, how),
            _ => Done::new(of.named(), how),
        }
    });
    output.print_done(args.output, &done.collect::<Vec<_>>())?;
    if !left.is_empty() && !args.wait.is_zero() {
        let message = format!("{} of {} have not been confirmed", left.len(), gone.len());
        failed.push(CliError::message(Kind::Unavailable, message).hint(
            "The hub lets them through to these no more; the members' agents take the roles back once they are there.",
        ));
    }
    ended(failed, output)
}

async fn list(args: ListArgs, output: &Output) -> Result<(), CliError> {
    let subject = args.name.as_deref();
    let subject = subject.map(|name| Named::new(name, args.group));
    let subject = subject.transpose().map_err(usage)?;
    let (client, _) = args.connect.connect("cli access").await?;
    let works = Hub::new(client.clone()).works(subject.as_ref()).await?;
    let standing = works.iter().filter_map(|work| {
        let (cluster, grant) = Grant::of(work)?;
        Some(Standing::new(cluster, grant, applied(work), None))
    });
    let meant = |it: &Standing| {
        let named = &args.clusters;
        named.is_empty() || named.iter().any(|name| name.as_str() == it.cluster)
    };
    let mut all = with_commands(&client, standing.filter(meant).collect()).await;
    all.sort_by(|one, other| (&one.grant, &one.cluster).cmp(&(&other.grant, &other.cluster)));
    if all.is_empty() && args.output == Format::Table {
        output.note("nothing is granted; `towline access grant NAME -C CLUSTER` does");
        return Ok(());
    }
    show(&all, args.output, output)
}

/// The same with the commands of whoever owns a joined cluster; nobody is asked which these are where none has to act.
async fn with_commands(client: &Client, all: Vec<Standing>) -> Vec<Standing> {
    if all.iter().all(|it| it.owner_command.is_none()) {
        return all;
    }
    let joined = clusters::joined(client).await;
    all.into_iter().map(|it| it.among(&joined)).collect()
}

fn usage(error: Unmeant) -> CliError {
    CliError::new(Kind::Usage, error)
}
