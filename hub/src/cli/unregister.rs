//! `towline unregister`: takes a member off the hub, and the agent out of the member.
//!
//! The Cluster is annotated with what is to happen to the workloads, and deleted. The agent cleans up
//! and removes itself, the hub finishes; this command only asks, watches and tells.

mod member;
mod plan;
mod same;
mod watched;

use super::get::read;
use super::output::Done;
use super::{CliError, ConnectArgs, Format, Kind, Output, access};
use crate::commands;
use common::api::cluster::{Cluster, SyncMode};
use common::api::work::Work;
use common::duration;
use common::labels::UNREGISTER;
use common::names::{CLUSTER_NAMESPACE, ClusterName};
use common::unregister::Mode;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client};
use plan::Plan;
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;
use watched::{End, Watched};

const FIELD_MANAGER: &str = "towline-unregister";

/// Arguments of `towline unregister`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    leaving: Leaving,
    /// Kubeconfig of the member, to remove an agent that cannot remove itself.
    #[arg(long, value_name = "FILE")]
    member_kubeconfig: Option<PathBuf>,
    /// Context of --member-kubeconfig.
    #[arg(long, value_name = "NAME", requires = "member_kubeconfig")]
    member_context: Option<String>,
}

/// How a cluster is to leave.
#[derive(Debug, clap::Args)]
pub(super) struct Leaving {
    /// The cluster's name on the hub.
    #[arg(value_name = "CLUSTER")]
    cluster: ClusterName,
    #[command(flatten)]
    connect: ConnectArgs,
    /// Leave everything running in the member; only Towline's labels are taken off.
    #[arg(long, conflicts_with = "force")]
    keep_workloads: bool,
    /// The member is gone, or never comes back: do not wait for its agent.
    #[arg(long)]
    force: bool,
    /// How what was done is shown.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    /// Go ahead without asking.
    #[arg(long)]
    yes: bool,
    /// How long to wait until the Cluster is gone; 0 not to wait.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration::parse)]
    wait: Duration,
    /// How the member is reached, if it is.
    #[arg(skip)]
    pub(super) member: Option<ConnectArgs>,
    /// Whether its agent runs beside the hub.
    #[arg(skip)]
    pub(super) joined: bool,
}

/// Runs the verb.
pub(super) async fn run(args: Args, output: &Output) -> Result<(), CliError> {
    let mut leaving = args.leaving;
    leaving.member = args.member_kubeconfig.map(|file| ConnectArgs {
        kubeconfig: Some(file),
        context: args.member_context,
        before: "member-",
    });
    leave(leaving, output).await
}

/// Has a cluster leave.
pub(super) async fn leave(args: Leaving, output: &Output) -> Result<(), CliError> {
    let mode = match (args.force, args.keep_workloads) {
        (true, _) => Mode::Force,
        (false, true) => Mode::KeepWorkloads,
        (false, false) => Mode::RemoveWorkloads,
    };
    let name = args.cluster.as_str();
    if args.wait.is_zero() && args.member.is_some() {
        let message = "--wait 0 does not go with the member's kubeconfig: the agent is removed once the Cluster is gone";
        return Err(CliError::message(Kind::Usage, message)
            .hint("Give a time to wait for that, or leave the kubeconfig out."));
    }
    // A wrong file should not be found out after the Cluster is gone.
    let member = match &args.member {
        Some(connect) => Some(member::Member::connect(connect).await?),
        None => None,
    };
    let (client, _) = args.connect.connect("cli unregister").await?;
    let clusters: Api<Cluster> = Api::all(client.clone());
    let cluster = get(&clusters, name).await?;
    if let Some(member) = &member {
        let id = cluster.as_ref().and_then(|known| known.spec.id.as_deref());
        member.refuse_another(name, id).await?;
    }
    let Some(cluster) = cluster else {
        let error = CliError::message(
            Kind::NotFound,
            format!("there is no Cluster {name:?} on this hub"),
        );
        let Some(member) = member else {
            return Err(error.hint("`kubectl get clusters` lists those there are."));
        };
        output.note(format!(
            "there is no Cluster {name:?} on this hub; only the agent is removed"
        ));
        confirm(&args, output, "Remove the agent from the member?")?;
        return member.remove(output).await;
    };
    refuse_other_verb(&cluster, args.joined, mode)?;
    let plan = Plan {
        cluster: &cluster,
        works: count_works(&client, &args.cluster).await?,
        mode,
        member: member.is_some(),
    };
    for line in plan.lines() {
        output.note(line);
    }
    let verb = if args.joined { "Unjoin" } else { "Unregister" };
    confirm(&args, output, &format!("{verb} cluster {name:?}?"))?;
    let watched = match args.wait.is_zero() {
        true => None,
        false => Some(Watched::begin(&clusters, name).await),
    };
    announce(&clusters, &cluster, mode).await?;
    let may_forget = access::forget(&client, &args.cluster, output).await;
    let doing = if args.joined {
        "unjoined"
    } else {
        "unregistered"
    };
    let Some(watched) = watched else {
        let done = Done::cluster(name, format!("is being {doing}"));
        return output.print_done(args.output, &[done]);
    };
    let end = watched.wait(&client, &args, output).await?;
    // Its grants stood until now: another command may have written the rights by them once more.
    if may_forget {
        access::forget(&client, &args.cluster, output).await;
    }
    if args.joined {
        forget_secret(&client, &cluster).await?;
    }
    let silent = end == End::Unanswered && mode != Mode::Force && plan::answers(&cluster);
    if let Some(member) = member {
        member.remove(output).await?;
    } else if silent {
        output.note(plan::left_behind(name, args.joined));
    }
    let done = match silent {
        true => format!("is {doing}; its agent did not answer"),
        false => format!("is {doing}"),
    };
    output.print_done(args.output, &[Done::cluster(name, done)])
}

/// Refuses a cluster that the other verb is for, which is named with what was said of the workloads.
fn refuse_other_verb(cluster: &Cluster, joined: bool, mode: Mode) -> Result<(), CliError> {
    let name = cluster.metadata.name.as_deref().unwrap_or_default();
    let of = cluster.spec.sync_mode;
    let what = match (of, joined) {
        (SyncMode::Push, true) | (SyncMode::Pull, false) => return Ok(()),
        (SyncMode::Push, false) => "was joined: the hub reaches it itself",
        (SyncMode::Pull, true) => "has an agent in the member",
    };
    let message = format!("Cluster {name:?} {what}; nothing was changed");
    let command = commands::leave(name, of, mode);
    Err(CliError::message(Kind::Denied, message).hint(format!("Use `{command}`.")))
}

/// The credentials go with their Cluster; this only has them gone when the command ends.
async fn forget_secret(client: &Client, cluster: &Cluster) -> Result<(), CliError> {
    let name = cluster.metadata.name.as_deref().unwrap_or_default();
    let secrets: Api<Secret> = Api::namespaced(client.clone(), CLUSTER_NAMESPACE);
    let failed = |e| {
        CliError::api(
            format!("failed to delete Secret {CLUSTER_NAMESPACE}/{name}"),
            e,
        )
    };
    let Some(secret) = secrets.get_opt(name).await.map_err(failed)? else {
        return Ok(());
    };
    let owners = secret.metadata.owner_references.unwrap_or_default();
    if !owners
        .iter()
        .any(|owner| Some(&owner.uid) == cluster.metadata.uid.as_ref())
    {
        return Ok(());
    }
    let same = DeleteParams {
        preconditions: Some(Preconditions {
            uid: secret.metadata.uid,
            ..Preconditions::default()
        }),
        ..DeleteParams::default()
    };
    match secrets.delete(name, &same).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        Err(error) => Err(failed(error)),
    }
}

fn confirm(args: &Leaving, output: &Output, question: &str) -> Result<(), CliError> {
    if args.yes {
        Ok(())
    } else {
        output.confirm(question)
    }
}

async fn get(clusters: &Api<Cluster>, name: &str) -> Result<Option<Cluster>, CliError> {
    let found = read::one(clusters, name).await;
    found.map_err(|e| CliError::api(format!("failed to get Cluster {name:?}"), e))
}

async fn count_works(client: &Client, cluster: &ClusterName) -> Result<usize, CliError> {
    let works: Api<Work> = Api::namespaced(client.clone(), &cluster.execution_namespace());
    let counted = read::count(&works).await;
    counted.map_err(|e| CliError::api("failed to count the cluster's Works", e))
}

/// Says what is to happen, and deletes. Repeated, it changes what is to happen.
async fn announce(clusters: &Api<Cluster>, cluster: &Cluster, mode: Mode) -> Result<(), CliError> {
    let name = cluster.metadata.name.as_deref().unwrap_or_default();
    let failed = |what: &str| {
        let attempt = format!("failed to {what} Cluster {name:?}");
        move |error| CliError::api(attempt, error)
    };
    let body = json!({"metadata": {
        // A Cluster made anew under this name is another one.
        "uid": cluster.metadata.uid,
        "annotations": {UNREGISTER: mode.as_str()},
    }});
    let params = PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let annotated = clusters
        .patch_metadata(name, &params, &Patch::Merge(&body))
        .await;
    match annotated {
        // It is done, and the answer shows what its agent wrote there, which need not be readable.
        Ok(_) | Err(kube::Error::SerdeError(_)) => {}
        Err(error) => return Err(failed("annotate")(error)),
    }
    if cluster.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    let same = DeleteParams {
        preconditions: Some(Preconditions {
            uid: cluster.metadata.uid.clone(),
            ..Preconditions::default()
        }),
        ..DeleteParams::default()
    };
    match clusters.delete(name, &same).await {
        Ok(_) | Err(kube::Error::SerdeError(_)) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(failed("delete")(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::error::scripted;
    use http::Method;

    #[test]
    fn who_has_the_wrong_verb_is_told_the_other_with_the_same_flags() {
        let mut cluster = Cluster::new("m1", Default::default());
        for (of, joined, mode, want) in [
            (SyncMode::Pull, false, Mode::Force, None),
            (SyncMode::Push, true, Mode::Force, None),
            (
                SyncMode::Push,
                false,
                Mode::Force,
                Some("Use `towline unjoin m1 --force`."),
            ),
            (
                SyncMode::Pull,
                true,
                Mode::KeepWorkloads,
                Some("Use `towline unregister m1 --keep-workloads`."),
            ),
        ] {
            cluster.spec.sync_mode = of;
            let refused = refuse_other_verb(&cluster, joined, mode).err();
            let hints: Vec<String> = refused.into_iter().flat_map(|it| it.hints).collect();
            let want: Vec<&str> = want.into_iter().collect();
            assert_eq!(hints, want, "{of:?}, joined {joined}");
        }
    }

    #[tokio::test]
    async fn a_cluster_whose_agent_wrote_what_cannot_be_read_leaves() {
        let deep = (0..200).fold(json!({}), |it, _| json!({"f:a": it}));
        let managed = json!([{"fieldsType": "FieldsV1", "fieldsV1": deep}]);
        let cluster = json!({"metadata": {"name": "m1", "uid": "u", "managedFields": managed},
            "spec": {"syncMode": "Pull"}});
        let (client, asked) = scripted::hub(move |_| Some((200, cluster.clone())));
        let clusters: Api<Cluster> = Api::all(client);
        let read = get(&clusters, "m1").await.expect("it is read");
        let read = read.expect("it is there");
        let announced = announce(&clusters, &read, Mode::Force).await;
        announced.expect("it leaves");
        assert_eq!(scripted::by(&asked, &Method::DELETE).len(), 1);
    }

    /// One that was registered anew while somebody was asked is neither marked nor deleted.
    #[tokio::test]
    async fn only_the_cluster_that_was_read_is_announced() {
        let (client, asked) = scripted::hub(|ask| match ask.body["metadata"]["uid"].as_str() {
            Some("of the new one") | None => Some((200, json!({"metadata": {"name": "m1"}}))),
            Some(_) => scripted::refusal(409, "the uid does not match"),
        });
        let clusters: Api<Cluster> = Api::all(client);
        let read = json!({"metadata": {"name": "m1", "uid": "of the old one"}, "spec": {"syncMode": "Pull"}});
        let read: Cluster = serde_json::from_value(read).expect("a Cluster");
        let announced = announce(&clusters, &read, Mode::RemoveWorkloads).await;
        let error = announced.expect_err("another Cluster");
        assert_eq!(error.kind, Kind::Denied);
        assert!(scripted::by(&asked, &Method::DELETE).is_empty());
        let patches = scripted::by(&asked, &Method::PATCH);
        let [patch] = patches.as_slice() else {
            panic!("{patches:?}");
        };
        assert_eq!(patch.body["metadata"]["uid"], "of the old one");
    }
}
