//! `towline work create`: objects for a member, without a template or a policy.

use super::error::ended;
use super::files;
use super::output::{Done, Named};
use super::{CliError, ConnectArgs, Format, Kind, Output, Table};
use common::names::ClusterName;
use kube::api::{DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use serde::Serialize;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Arguments of `towline work`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Have objects applied in members as they stand in files.
    Create(CreateArgs),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  towline work create --from-file web.yaml -C member1
  towline work create tools --from-file tools/ -C member1,member2
  towline work create --from-file web.yaml -C member1 --dry-run -o yaml")]
struct CreateArgs {
    /// Name of the Work; default: that of the first object.
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Files or folders of objects; - for stdin. All of them are in one Work.
    #[arg(
        short,
        long,
        visible_alias = "filename",
        value_name = "FILE",
        required = true
    )]
    from_file: Vec<PathBuf>,
    /// The clusters whose members apply them.
    #[arg(
        short = 'C',
        long,
        value_name = "CLUSTER",
        value_delimiter = ',',
        required = true
    )]
    clusters: Vec<ClusterName>,
    /// Have the hub try it, and write nothing.
    #[arg(long)]
    dry_run: bool,
    /// How the Works are shown.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// A Work as the hub has it.
#[derive(Debug, Serialize)]
#[serde(transparent)]
struct Created(Value);

impl Named for Created {
    fn named(&self) -> String {
        let name = self.0["metadata"]["name"].as_str().unwrap_or_default();
        format!("work.work.karmada.io/{name}")
    }
}

/// Runs the verb.
pub(super) async fn run(args: Args, output: &Output) -> Result<(), CliError> {
    match args.verb {
        Verb::Create(args) => create(args, output).await,
    }
}

async fn create(args: CreateArgs, output: &Output) -> Result<(), CliError> {
    let objects = files::objects(&args.from_file)?;
    let (client, _) = args.connect.connect("cli work").await?;
    let progress = output.progress("creating Works");
    let (works, failed) = create_each(&client, &args, &objects).await;
    drop(progress);
    if !works.is_empty() {
        show(&works, &args, output)?;
    }
    ended(failed, output)
}

/// The Works that were made, and what failed: a cluster that takes none keeps no other from its own.
async fn create_each(
    client: &Client,
    args: &CreateArgs,
    objects: &[Value],
) -> (Vec<Created>, Vec<CliError>) {
    let (mut works, mut failed) = (Vec::new(), Vec::new());
    for cluster in &args.clusters {
        match create_one(client, args, cluster, objects).await {
            Ok(made) => works.push(made),
            Err(error) => {
                let is_outage = error.is_outage();
                failed.push(error);
                if is_outage {
                    break;
                }
            }
        }
    }
    (works, failed)
}

async fn create_one(
    client: &Client,
    args: &CreateArgs,
    cluster: &ClusterName,
    objects: &[Value],
) -> Result<Created, CliError> {
    let internal = |error: serde_json::Error| CliError::new(Kind::Internal, error);
    let gvk = GroupVersionKind::gvk("work.karmada.io", "v1alpha1", "Work");
    let resource = ApiResource::from_gvk(&gvk);
    let namespace = cluster.execution_namespace();
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &resource);
    let work = work(args.name.as_deref(), &namespace, objects);
    let name = work["metadata"]["name"].as_str();
    let name = name.unwrap_or_default().to_owned();
    let work: DynamicObject = serde_json::from_value(work).map_err(internal)?;
    let params = PostParams {
        dry_run: args.dry_run,
        field_manager: Some("towline-work".to_owned()),
    };
    let made = api.create(&params, &work).await;
    let made = made.map_err(|error| failed(cluster, &name, error))?;
    serde_json::to_value(made).map(Created).map_err(internal)
}

fn show(works: &[Created], args: &CreateArgs, output: &Output) -> Result<(), CliError> {
    match args.output {
        Format::Table => {
            let done = works.iter().map(|work| Done {
                namespace: work.0["metadata"]["namespace"].as_str().map(str::to_owned),
                dry_run: args.dry_run,
                ..Done::new(work.named(), "created")
            });
            output.print_done(args.output, &done.collect::<Vec<_>>())?;
        }
        format => output.print_values(format, works, |_| Table::default())?,
    }
    if args.output == Format::Table && !args.dry_run {
        output.note("`towline get works -C CLUSTER` says what becomes of it.");
    }
    Ok(())
}

/// The Work of a namespace.
fn work(name: Option<&str>, namespace: &str, objects: &[Value]) -> Value {
    let first = objects.first().map(|it| it["metadata"]["name"].clone());
    let name = name.map(|it| json!(it)).or(first).unwrap_or_default();
    json!({
        "apiVersion": "work.karmada.io/v1alpha1",
        "kind": "Work",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"workload": {"manifests": objects}},
    })
}

fn failed(cluster: &ClusterName, name: &str, error: kube::Error) -> CliError {
    let attempt = format!("failed to create Work {name:?} for cluster {cluster}");
    let error_of = |code: u16, hint: &str| (code, hint.to_owned());
    let hints = [
        error_of(404, "`kubectl get clusters` lists the clusters there are."),
        error_of(
            409,
            "There is one of that name: name another, or change it by `kubectl edit`.",
        ),
    ];
    let code = match &error {
        kube::Error::Api(status) => status.code,
        _ => 0,
    };
    let told = CliError::api(attempt, error);
    let hint = hints.into_iter().find(|it| it.0 == code);
    hint.into_iter()
        .fold(told, |told, (_, hint)| told.hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::error::scripted;
    use http::Method;

    #[tokio::test]
    async fn a_cluster_that_takes_no_work_keeps_no_other_from_its_own() {
        let (client, asked) = scripted::hub(|ask| match ask.path.contains("karmada-es-m2") {
            true => scripted::refusal(409, "exists"),
            false => Some((201, ask.body.clone())),
        });
        let clusters = ["m1", "m2", "m3"].map(ClusterName::parse);
        let args = CreateArgs {
            name: None,
            from_file: Vec::new(),
            clusters: clusters
                .into_iter()
                .collect::<Result<_, _>>()
                .expect("names"),
            dry_run: false,
            output: Format::Table,
            connect: ConnectArgs {
                kubeconfig: None,
                context: None,
                before: "",
            },
        };
        let objects = [json!({"kind": "ConfigMap", "metadata": {"name": "a"}})];
        let (works, failed) = create_each(&client, &args, &objects).await;
        let made: Vec<&Value> = works
            .iter()
            .map(|it| &it.0["metadata"]["namespace"])
            .collect();
        assert_eq!(made, ["karmada-es-m1", "karmada-es-m3"]);
        assert_eq!(scripted::by(&asked, &Method::POST).len(), 3);
        let [error] = failed.as_slice() else {
            panic!("{failed:?}");
        };
        assert_eq!(error.kind, Kind::Denied);
        assert!(error.to_string().contains("cluster m2"), "{error}");
    }

    #[test]
    fn a_work_has_every_object_and_a_name() {
        let objects =
            ["a", "b"].map(|name| json!({"kind": "ConfigMap", "metadata": {"name": name}}));
        let unnamed = work(None, "karmada-es-m1", &objects);
        assert_eq!(
            unnamed["metadata"],
            json!({"name": "a", "namespace": "karmada-es-m1"})
        );
        assert_eq!(unnamed["spec"]["workload"]["manifests"], json!(objects));
        let named = work(Some("tools"), "karmada-es-m1", &objects);
        assert_eq!(named["metadata"]["name"], "tools");
        assert_eq!(Created(named).named(), "work.work.karmada.io/tools");
    }
}
