//! `towline taint`: puts taints on Clusters and takes them off, as kubectl does with nodes.

pub(super) mod change;

use super::output::Done;
use super::{CliError, ConnectArgs, Format, Kind, Output};
use change::{Change, Unfit};
use common::api::cluster::Cluster;
use common::names::ClusterName;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

const FIELD_MANAGER: &str = "towline-taint";
/// How often somebody else may write the Cluster meanwhile.
const ATTEMPTS: usize = 5;

/// Arguments of `towline taint`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  towline taint clusters m1 dedicated=db:NoSchedule
  towline taint m1 m2 drain:NoExecute
  towline taint m1 dedicated-")]
pub(super) struct Args {
    /// Clusters, then taints: KEY=VALUE:EFFECT or KEY:EFFECT to put on, KEY:EFFECT- or KEY- to take off.
    #[arg(value_name = "CLUSTER... TAINT", required = true, num_args = 2..)]
    words: Vec<String>,
    /// Replace the value of a taint that is there.
    #[arg(long)]
    overwrite: bool,
    /// Say what would be done, and do nothing.
    #[arg(long)]
    dry_run: bool,
    /// How what was done is shown.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// Runs the verb.
pub(super) async fn run(args: Args, output: &Output) -> Result<(), CliError> {
    let (names, change) = read(&args.words)?;
    let edit = Edit {
        change,
        overwrite: args.overwrite,
        dry_run: args.dry_run,
    };
    let done = edit.change.done(args.overwrite);
    let clusters = connect(&args.connect, "cli taint").await?;
    let mut all = Vec::new();
    for name in names {
        let changed = edit.apply(&clusters, &name).await;
        output.or_done(changed, args.output, &all)?;
        all.push(Done {
            dry_run: args.dry_run,
            ..Done::cluster(name.as_str(), done)
        });
    }
    output.print_done(args.output, &all)
}

/// The words before the first taint are clusters; the kind may stand before them.
fn read(words: &[String]) -> Result<(Vec<ClusterName>, Change), CliError> {
    let usage = |message: String| CliError::message(Kind::Usage, message);
    let is_taint = |word: &String| word.contains([':', '=']) || word.ends_with('-');
    let kind = [
        "cluster",
        "clusters",
        "cluster.cluster.karmada.io",
        "clusters.cluster.karmada.io",
    ];
    let named = words
        .first()
        .is_some_and(|word| kind.contains(&word.as_str()))
        && words.len() > 2;
    let words = words.get(usize::from(named)..).unwrap_or_default();
    let from = words.iter().position(is_taint).unwrap_or(words.len());
    let (names, taints) = words.split_at(from);
    if let Some(late) = taints.iter().find(|word| !is_taint(word)) {
        let message = format!("all resources must be specified before taint changes: {late}");
        return Err(usage(message));
    }
    if names.is_empty() {
        return Err(usage("no cluster is named".to_owned())
            .hint("Name clusters, then taints: towline taint m1 dedicated=db:NoSchedule"));
    }
    if taints.is_empty() {
        return Err(usage("at least one taint update is required".to_owned())
            .hint("A taint is KEY=VALUE:EFFECT, or KEY- to take it off."));
    }
    let names: Result<Vec<ClusterName>, _> =
        names.iter().map(|name| ClusterName::parse(name)).collect();
    let names = names.map_err(|error| CliError::new(Kind::Usage, error))?;
    let change = Change::parse(taints.iter().map(String::as_str));
    let change = change.map_err(|error| CliError::new(Kind::Usage, error))?;
    Ok((names, change))
}

/// Clusters of a hub.
pub(super) async fn connect(
    connect: &ConnectArgs,
    purpose: &'static str,
) -> Result<Api<Cluster>, CliError> {
    let (client, _) = connect.connect(purpose).await?;
    Ok(Api::all(client))
}

/// One change of the taints of a Cluster.
pub(super) struct Edit {
    pub(super) change: Change,
    pub(super) overwrite: bool,
    pub(super) dry_run: bool,
}

impl Edit {
    /// Carries it out; false when the taints are so already. What others write meanwhile stays.
    pub(super) async fn apply(
        &self,
        clusters: &Api<Cluster>,
        name: &ClusterName,
    ) -> Result<bool, CliError> {
        let shown = name.as_str();
        for attempt in 1.. {
            let cluster = clusters.get(shown).await.map_err(|error| {
                let error = CliError::api(format!("failed to get Cluster {shown:?}"), error);
                match error.kind {
                    Kind::NotFound => error.hint("`kubectl get clusters` lists those there are."),
                    _ => error,
                }
            })?;
            let before = &cluster.spec.taints;
            let after = self.change.apply(before, self.overwrite);
            let after = after.map_err(|unfit| {
                let kind = match unfit {
                    Unfit::Present(_) => Kind::Denied,
                    Unfit::Absent(_) => Kind::NotFound,
                };
                CliError::new(
                    kind,
                    anyhow::Error::new(unfit).context(format!("Cluster {shown:?}")),
                )
            })?;
            if after == *before {
                return Ok(false);
            }
            let version = cluster.metadata.resource_version.as_deref();
            let params = PatchParams {
                field_manager: Some(FIELD_MANAGER.to_owned()),
                dry_run: self.dry_run,
                ..PatchParams::default()
            };
            let body = json!({"metadata": {"resourceVersion": version}, "spec": {"taints": after}});
            let written = clusters.patch(shown, &params, &Patch::Merge(&body)).await;
            match written {
                Ok(_) => return Ok(true),
                Err(kube::Error::Api(status)) if status.is_conflict() && attempt < ATTEMPTS => {}
                Err(error) => {
                    let attempt = format!("failed to write the taints of Cluster {shown:?}");
                    return Err(CliError::api(attempt, error));
                }
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(words: &[&str]) -> Result<(Vec<String>, Change), String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let (names, change) = read(&words).map_err(|error| error.to_string())?;
        Ok((names.iter().map(ToString::to_string).collect(), change))
    }

    #[test]
    fn flags_may_follow_taints() {
        let line = "towline taint m1 a:NoSchedule b- --kubeconfig X --dry-run -o name";
        let read = crate::cli::command().try_get_matches_from(line.split(' '));
        let read = read.expect("read");
        let (_, read) = read.subcommand().expect("a verb");
        let words: Vec<&String> = read.get_many("words").expect("words").collect();
        assert_eq!(words, ["m1", "a:NoSchedule", "b-"]);
        assert!(read.get_flag("dry_run") && read.contains_id("kubeconfig"));
    }

    #[test]
    fn clusters_come_before_taints() {
        let change = Change::parse(["a:NoSchedule"]).expect("a change");
        for words in [
            &["m1", "a:NoSchedule"][..],
            &["clusters", "m1", "a:NoSchedule"],
            &["cluster", "m1", "a:NoSchedule"],
        ] {
            let read = read_all(words).expect("read");
            assert_eq!(read, (vec!["m1".to_owned()], change.clone()), "{words:?}");
        }
        // A cluster may have the name of the kind.
        assert!(read_all(&["cluster", "a:NoSchedule"]).is_ok());
    }

    #[test]
    fn what_cannot_be_meant_is_said() {
        for (words, text) in [
            (
                &["m1", "a:NoSchedule", "m2"][..],
                "before taint changes: m2",
            ),
            (&["m1", "m2"], "at least one taint"),
            (&["a:NoSchedule", "b:NoSchedule"], "no cluster is named"),
            (&["M1", "a:NoSchedule"], "M1"),
        ] {
            let error = read_all(words).expect_err("refused");
            assert!(error.contains(text), "{words:?}: {error}");
        }
    }
}
