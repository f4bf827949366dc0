//! `towline token create`.

use super::list::remaining;
use super::placement::PlacementArgs;
use crate::cli::{CliError, ConnectArgs, Format, Kind, Output};
use crate::install::cluster_info::{self, ClusterInfo};
use crate::token_secret::{
    EXPIRATION, EXTRA_GROUPS, Placement, TOKEN_NAMESPACE, TOKEN_TYPE, USAGE_AUTHENTICATION,
    USES_MAX,
};
use chrono::{DateTime, SubsecRound as _, Utc};
use common::api::cluster::Cluster;
use common::chance::secret;
use common::client::HostPort;
use common::discovery::CaPin;
use common::duration;
use common::identity::BOOTSTRAP_GROUP;
use common::labels::{
    PART_OF, PART_OF_VALUE, QUARANTINED_SINCE, TOKEN_CLUSTER, TOKEN_PLACEMENT, TOKEN_REPLACE,
    TOKEN_USES,
};
use common::names::ClusterName;
use common::time::{Clock as _, SystemClock};
use common::token::BootstrapToken;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// Ids are short; a second draw finds a free one.
const ATTEMPTS: usize = 5;
/// Stands in the printed command for what the hub cannot know.
const MEMBER: &str = "MEMBER";
/// Stands in a command for the name that the Cluster is to have.
const NAME: &str = "NAME";

/// Arguments of `towline token create`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    connect: ConnectArgs,
    /// How long the token is good for; 0 for ever.
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = duration::parse)]
    ttl: Duration,
    /// The one cluster name it can claim; without it, any name that no Cluster has.
    #[arg(long, value_name = "NAME")]
    cluster: Option<ClusterName>,
    /// Register NAME anew, also where its Cluster exists: its agent lost its certificate, or the hub moved or was
    /// restored.
    #[arg(long, requires = "cluster")]
    replace: bool,
    /// How many clusters can register with it.
    #[arg(
        long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(USES_MAX))
    )]
    uses: u32,
    #[command(flatten)]
    placement: PlacementArgs,
    /// What the token is for, as `towline token list` shows it.
    #[arg(long, value_name = "TEXT", default_value = "")]
    description: String,
    /// Print the command to run in the member, instead of the token alone.
    #[arg(long)]
    print_register_command: bool,
    /// How the token is shown.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// What a token is good for.
#[derive(Debug)]
struct Limits {
    cluster: Option<ClusterName>,
    replace: bool,
    uses: u32,
    expires: Option<DateTime<Utc>>,
    placement: Placement,
    description: String,
}

/// What is printed for programs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Created {
    token: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<DateTime<Utc>>,
    hub: Vec<String>,
    ca_cert_hashes: Vec<String>,
    register_command: String,
}

/// Runs the verb.
pub(super) async fn run(args: Args, output: &Output) -> Result<(), CliError> {
    let usage = |message: &str| Err(CliError::message(Kind::Usage, message));
    if args.cluster.is_some() && args.uses > 1 {
        return usage("a token for one cluster has one use; leave out --uses or --cluster");
    }
    if args.replace && !args.placement.is_empty() {
        return usage("--replace keeps the Cluster as it is; change its placement there");
    }
    let now = SystemClock.now().trunc_subsecs(0);
    let ttl = chrono::Duration::from_std(args.ttl).ok();
    let expires = match ttl.map(|ttl| (ttl.is_zero(), now.checked_add_signed(ttl))) {
        Some((true, _)) => None,
        Some((false, Some(at))) => Some(at),
        _ => return usage("--ttl is longer than time can be counted"),
    };
    let limits = Limits {
        cluster: args.cluster,
        replace: args.replace,
        uses: args.uses,
        expires,
        placement: args.placement.into_placement()?,
        description: args.description,
    };
    let (client, _) = args.connect.connect("cli token").await?;
    if let Some(name) = &limits.cluster
        && let Some(note) = check_name(&client, name, limits.replace).await?
    {
        output.note(note);
    }
    let info = cluster_info(&client).await?;
    let token = create(&client, &limits).await?;
    show(
        output,
        args.output,
        args.print_register_command,
        &token,
        &limits,
        &info,
        now,
    )
}

/// What an agent needs to register a Cluster that exists.
#[derive(Debug)]
pub(in crate::cli) struct ForCluster {
    /// The right to ask, for this Cluster and once.
    pub(in crate::cli) token: BootstrapToken,
    /// Where the hub is.
    pub(in crate::cli) hub: Vec<HostPort>,
    /// The public keys of its authorities.
    pub(in crate::cli) pins: Vec<CaPin>,
}

/// Makes a token for a Cluster that exists, and reads what else its agent needs.
pub(in crate::cli) async fn for_cluster(
    client: &Client,
    cluster: &ClusterName,
    ttl: chrono::Duration,
) -> Result<ForCluster, CliError> {
    let info = cluster_info(client).await?;
    let hub = servers(&info)?;
    let pins = CaPin::of_pem(&info.ca_pem).map_err(|error| CliError::new(Kind::Unmet, error))?;
    let limits = Limits {
        cluster: Some(cluster.clone()),
        replace: true,
        uses: 1,
        expires: Some(SystemClock.now().trunc_subsecs(0) + ttl),
        placement: Placement::default(),
        description: format!("towline join {cluster}"),
    };
    let token = create(client, &limits).await?;
    Ok(ForCluster { token, hub, pins })
}

/// A token that nobody could use is refused now rather than when the agent tries it; else what else there is to do.
async fn check_name(
    client: &Client,
    name: &ClusterName,
    replace: bool,
) -> Result<Option<String>, CliError> {
    let clusters: Api<Cluster> = Api::all(client.clone());
    let found = clusters.get_opt(name.as_str()).await;
    let found = found
        .map_err(|e| CliError::api(format!("failed to get Cluster {:?}", name.as_str()), e))?;
    judge_name(name.as_str(), found.as_ref(), replace)
}

/// What there is to say of a token for this name.
fn judge_name(
    name: &str,
    found: Option<&Cluster>,
    replace: bool,
) -> Result<Option<String>, CliError> {
    match (found, replace) {
        (Some(_), false) => {
            let message = format!("Cluster {name:?} exists already");
            Err(CliError::message(Kind::Denied, message)
                .hint("Choose another name, or add --replace to register that Cluster anew."))
        }
        // An agent may know of a registration of which a restored hub does not, and is told to use this flag.
        (None, true) => Ok(Some(format!(
            "there is no Cluster {name:?}: the member that registers with this token makes it"
        ))),
        (None, false) => Ok(None),
        (Some(cluster), true) => {
            let annotations = cluster.metadata.annotations.as_ref();
            let since = annotations.and_then(|all| all.get(QUARANTINED_SINCE));
            // Why it was quarantined is not known here: a new certificate is no reason to lift it.
            Ok(since.map(|since| {
                format!(
                    "Cluster {name:?} is quarantined since {since}, and registering it anew leaves it so: once its \
                     agent has registered with this token, let it in by `kubectl annotate cluster {name} \
                     {QUARANTINED_SINCE}-`"
                )
            }))
        }
    }
}

async fn cluster_info(client: &Client) -> Result<ClusterInfo, CliError> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), cluster_info::NAMESPACE);
    let found = maps.get_opt(cluster_info::NAME).await;
    let found = found.map_err(|e| CliError::api("failed to get cluster-info", e))?;
    let text = found.and_then(|map| map.data?.remove(cluster_info::KUBECONFIG));
    let text = text.ok_or_else(|| {
        CliError::message(
            Kind::Unmet,
            "the hub has no ConfigMap kube-public/cluster-info",
        )
        .hint("Prepare the hub by `towline init`.")
    })?;
    ClusterInfo::parse(&text).map_err(|error| CliError::new(Kind::Unmet, error))
}

async fn create(client: &Client, limits: &Limits) -> Result<BootstrapToken, CliError> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), TOKEN_NAMESPACE);
    let mut attempt = 1;
    loop {
        let token = BootstrapToken::generate(&mut secret::rng());
        match secrets
            .create(&PostParams::default(), &secret(&token, limits))
            .await
        {
            Ok(_) => return Ok(token),
            Err(kube::Error::Api(status)) if status.code == 409 && attempt < ATTEMPTS => {
                attempt += 1;
            }
            Err(error) => return Err(CliError::api("failed to create the token's Secret", error)),
        }
    }
}

fn secret(token: &BootstrapToken, limits: &Limits) -> Secret {
    let mut data = BTreeMap::from(
        [
            ("token-id", token.id()),
            ("token-secret", token.secret().expose().as_str()),
            (EXTRA_GROUPS, BOOTSTRAP_GROUP),
            (USAGE_AUTHENTICATION, "true"),
            ("usage-bootstrap-signing", "true"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned())),
    );
    if let Some(expires) = limits.expires {
        let text = expires.to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
        data.insert(EXPIRATION.to_owned(), text);
    }
    if !limits.description.is_empty() {
        data.insert("description".to_owned(), limits.description.clone());
    }
    let mut annotations = BTreeMap::from([(TOKEN_USES.to_owned(), limits.uses.to_string())]);
    if let Some(cluster) = &limits.cluster {
        annotations.insert(TOKEN_CLUSTER.to_owned(), cluster.to_string());
    }
    if limits.replace {
        annotations.insert(TOKEN_REPLACE.to_owned(), "true".to_owned());
    }
    if limits.placement != Placement::default() {
        let placement = serde_json::to_string(&limits.placement);
        let placement = placement.expect("invariant: a placement is plain JSON");
        annotations.insert(TOKEN_PLACEMENT.to_owned(), placement);
    }
    Secret {
        metadata: ObjectMeta {
            name: Some(token.secret_name()),
            namespace: Some(TOKEN_NAMESPACE.to_owned()),
            labels: Some(BTreeMap::from([(
                PART_OF.to_owned(),
                PART_OF_VALUE.to_owned(),
            )])),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        },
        type_: Some(TOKEN_TYPE.to_owned()),
        string_data: Some(data),
        ..Secret::default()
    }
}

fn show(
    output: &Output,
    format: Format,
    command: bool,
    token: &BootstrapToken,
    limits: &Limits,
    info: &ClusterInfo,
    now: DateTime<Utc>,
) -> Result<(), CliError> {
    let created = Created {
        token: token.bearer().expose().clone(),
        cluster: limits.cluster.as_ref().map(ToString::to_string),
        expires: limits.expires,
        hub: addresses(info)?,
        ca_cert_hashes: pins(info)?,
        register_command: String::new(),
    };
    let created = Created {
        register_command: register_command(&created),
        ..created
    };
    match format {
        Format::Table => {
            let name = created
                .cluster
                .as_deref()
                .unwrap_or("any name that no Cluster has");
            let until = limits
                .expires
                .map_or("never".to_owned(), |at| remaining(at, now));
            output.note(format!(
                "good for {name}, {} use(s), expires {until}",
                limits.uses
            ));
            if command {
                output.note(to_replace(&created));
            }
            output.print(if command {
                &created.register_command
            } else {
                &created.token
            })
        }
        // Its name without the secret would be worth nothing.
        Format::Name => output.print(&created.token),
        Format::Json | Format::Yaml => output.print_value(format, &created),
    }
}

/// What whoever runs the command writes in it.
fn to_replace(created: &Created) -> String {
    let name = match created.cluster {
        Some(_) => String::new(),
        None => format!(", and the cluster's name in place of {NAME}"),
    };
    format!("write the member's kubeconfig in place of {MEMBER}{name}")
}

/// The command to run beside the member. The token goes in by stdin: arguments can be seen by others.
fn register_command(created: &Created) -> String {
    let mut command = format!("echo {} | towline register", created.token);
    for hub in &created.hub {
        command.push(' ');
        command.push_str(hub);
    }
    // Without it the kubeconfig that is set would be taken, and where this is printed that is the hub's.
    command.push_str(&format!(" --kubeconfig {MEMBER}"));
    let name = created.cluster.as_deref().unwrap_or(NAME);
    command.push_str(&format!(" --cluster-name {name} --token-file -"));
    for pin in &created.ca_cert_hashes {
        command.push_str(&format!(" --discovery-token-ca-cert-hash {pin}"));
    }
    command
}

fn addresses(info: &ClusterInfo) -> Result<Vec<String>, CliError> {
    let servers = servers(info)?;
    Ok(servers.iter().map(ToString::to_string).collect())
}

fn servers(info: &ClusterInfo) -> Result<Vec<HostPort>, CliError> {
    let parse = |server: &String| {
        HostPort::parse(server).map_err(|error| {
            CliError::new(Kind::Unmet, error)
                .hint("Run `towline init` again with --advertise HOST:PORT.")
        })
    };
    info.servers.iter().map(parse).collect()
}

fn pins(info: &ClusterInfo) -> Result<Vec<String>, CliError> {
    let pins = CaPin::of_pem(&info.ca_pem).map_err(|error| CliError::new(Kind::Unmet, error))?;
    Ok(pins.iter().map(ToString::to_string).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::error::scripted;
    use crate::token_secret::Token;
    use k8s_openapi::ByteString;

    fn limits() -> Limits {
        Limits {
            cluster: ClusterName::parse("m1").ok(),
            replace: true,
            uses: 1,
            expires: DateTime::from_timestamp(1_800_000_000, 0),
            placement: Placement {
                region: Some("eu".into()),
                ..Placement::default()
            },
            description: "lab".into(),
        }
    }

    #[test]
    fn what_is_written_is_what_the_hub_reads() {
        let token = BootstrapToken::generate(&mut secret::rng());
        let mut secret = secret(&token, &limits());
        // What the API server makes of it.
        let data = secret.string_data.take().expect("data");
        secret.data = Some(
            data.into_iter()
                .map(|(k, v)| (k, ByteString(v.into_bytes())))
                .collect(),
        );
        secret.metadata.creation_timestamp = Some(common::time::to_time(
            DateTime::from_timestamp(1_700_000_000, 0).expect("ok"),
        ));
        let read = Token::read(&secret).expect("the hub understands it");
        let limits = limits();
        assert_eq!(read.cluster, limits.cluster);
        assert_eq!(read.expires, limits.expires);
        assert_eq!(read.placement, limits.placement);
        assert!(read.replace && !read.is_spent());
    }

    #[test]
    fn a_name_is_judged_by_the_cluster_that_has_it() {
        let plain = Cluster::new("m1", Default::default());
        let mut quarantined = plain.clone();
        let since = "2026-01-01T00:00:00Z".to_owned();
        quarantined.metadata.annotations =
            Some(BTreeMap::from([(QUARANTINED_SINCE.to_owned(), since)]));
        for (found, replace, want) in [
            (None, false, Ok(None)),
            (Some(&plain), false, Err("exists already")),
            (Some(&quarantined), false, Err("exists already")),
            (Some(&plain), true, Ok(None)),
            // A hub that was restored does not have those that came since.
            (None, true, Ok(Some("there is no Cluster \"m1\""))),
            (
                Some(&quarantined),
                true,
                Ok(Some(
                    "kubectl annotate cluster m1 towline.dev/quarantined-since-`",
                )),
            ),
        ] {
            let judged = judge_name("m1", found, replace).map_err(|error| error.to_string());
            match (&judged, want) {
                (Ok(note), Ok(want)) => {
                    let told = want
                        .is_none_or(|want| note.as_ref().is_some_and(|note| note.contains(want)));
                    assert!(told && note.is_some() == want.is_some(), "{judged:?}");
                }
                (Err(error), Err(want)) => assert!(error.contains(want), "{error}"),
                _ => panic!("{found:?}, replace {replace}: {judged:?}"),
            }
        }
    }

    #[tokio::test]
    async fn a_cluster_that_is_not_there_can_be_registered_anew() {
        let (client, asked) = scripted::hub(|_| scripted::refusal(404, "not found"));
        let name = ClusterName::parse("m1").expect("a name");
        let noted = check_name(&client, &name, true).await.expect("made");
        assert!(noted.is_some_and(|note| note.contains("no Cluster")));
        assert_eq!(scripted::by(&asked, &http::Method::GET).len(), 1);
    }

    #[test]
    fn the_command_can_be_run_with_the_members_kubeconfig() {
        let created = Created {
            token: "abcdef.0123456789abcdef".into(),
            cluster: Some("m1".into()),
            expires: None,
            hub: vec!["hub:6443".into(), "[::1]:6443".into()],
            ca_cert_hashes: vec!["sha256:aa".into()],
            register_command: String::new(),
        };
        assert_eq!(
            register_command(&created),
            "echo abcdef.0123456789abcdef | towline register hub:6443 [::1]:6443 \
             --kubeconfig MEMBER --cluster-name m1 --token-file - --discovery-token-ca-cert-hash sha256:aa"
        );
        assert!(!to_replace(&created).contains(NAME));
        let unnamed = Created {
            cluster: None,
            ..created
        };
        assert!(register_command(&unnamed).contains(NAME) && to_replace(&unnamed).contains(NAME));
    }
}
