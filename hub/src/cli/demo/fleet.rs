//! What the demo runs: a hub, members, and an agent for each.

use crate::apiserver::http::server::STRANGERS_OF_ADDRESS;
use crate::apiserver::serve::{Options, Running};
use crate::serve::{self, ADMIN, KubeconfigArgs, ServeArgs};
use anyhow::{Context as _, bail};
use clap::Parser as _;
use common::admin::AdminState;
use common::client::{ClientOptions, kubeconfig_client};
use common::discovery::CaPin;
use common::env::Env;
use common::tunnel::Mode;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use std::ffi::OsString;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::process::{Child, Command};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::story::{GRACE, Story};
use super::workloads;

/// The agent's user in a member, as the installation binds it, and its groups.
const AGENT_USER: &str = "system:serviceaccount:towline-system:towline-agent";
const AGENT_GROUPS: [&str; 2] = [
    "system:serviceaccounts",
    "system:serviceaccounts:towline-system",
];
/// How many members there are.
const MEMBERS: usize = 3;

/// `towline-hub serve`, as a command line of this program's own.
#[derive(Debug, clap::Parser)]
struct Serve {
    #[command(flatten)]
    args: ServeArgs,
}

/// `towline-hub kubeconfig`, likewise.
#[derive(Debug, clap::Parser)]
struct Kubeconfig {
    #[command(flatten)]
    args: KubeconfigArgs,
}

/// A hub and its members, all of them here.
pub(super) struct Fleet {
    /// The hub, with every right.
    pub(super) hub: Client,
    /// The hub's administrator's kubeconfig.
    pub(super) kubeconfig: PathBuf,
    /// The members, in order.
    pub(super) members: Vec<Member>,
    address: String,
    pin: String,
    dir: PathBuf,
    stop: CancellationToken,
    serving: JoinHandle<Result<(), serve::Error>>,
}

/// A member, and what plays its workloads.
pub(super) struct Member {
    /// Its name.
    pub(super) name: String,
    /// Its administrator's kubeconfig.
    pub(super) kubeconfig: PathBuf,
    /// Its agent's, with the rights that `towline register` gives.
    agent_kubeconfig: PathBuf,
    /// It, with every right.
    pub(super) client: Client,
    /// Its agent, while it runs.
    pub(super) agent: Option<Child>,
    running: Running,
    workloads: JoinHandle<()>,
}

impl Fleet {
    /// Starts the hub and the members below `dir`.
    pub(super) async fn start(dir: &Path, env: Env, story: &Story<'_>) -> anyhow::Result<Self> {
        std::fs::create_dir_all(dir)
            .with_context(|| format!("failed to create {}", dir.display()))?;
        story.say(&format!(
            "Starting a hub, and {MEMBERS} members: API servers of Towline's own, in this process. The members \
             have no nodes: no container runs, and what a Deployment says of its pods is played."
        ))?;
        let data = dir.join("hub");
        let stop = CancellationToken::new();
        let grace = format!("{}s", GRACE.as_secs());
        let flags: [OsString; 9] = [
            "serve".into(),
            "--data-dir".into(),
            data.clone().into(),
            "--listen".into(),
            "127.0.0.1:0".into(),
            "--cluster-monitor-grace-period".into(),
            grace.into(),
            // A hub that is not in a hurry waits five minutes.
            "--failover-eviction-timeout".into(),
            "1s".into(),
        ];
        let args = Serve::try_parse_from(flags).context("the demo's flags of the hub")?;
        let (tell, told) = oneshot::channel();
        let tell = move |_greeting| {
            // Who waits for it may have given up.
            let _ = tell.send(());
        };
        let hub = serve::serve(args.args, env.clone(), stop.clone(), tell);
        let mut serving = tokio::spawn(hub);
        tokio::select! {
            biased;
            ended = &mut serving => {
                ended.context("the hub failed")?.context("the hub failed")?;
                bail!("the hub ended");
            }
            _ = told => {}
        }
        let kubeconfig = data.join("admin.kubeconfig");
        let (client, config) = connect(&kubeconfig).await?;
        let authority = config.root_cert.as_deref().unwrap_or_default();
        let authority = authority
            .first()
            .context("the hub's kubeconfig has no CA")?;
        let pin = CaPin::of_certificate(authority).context("failed to pin the hub's CA")?;
        let host = config.cluster_url.host().unwrap_or_default();
        let port = config.cluster_url.port_u16().unwrap_or(443);
        let mut members = Vec::new();
        for number in 1..=MEMBERS {
            members.push(Member::start(dir, &format!("member{number}"), env.clone()).await?);
        }
        Ok(Self {
            hub: client,
            kubeconfig,
            members,
            address: format!("{host}:{port}"),
            pin: pin.to_string(),
            dir: dir.to_owned(),
            stop,
            serving,
        })
    }

    /// Runs a verb of this program on the hub, as an operator would.
    pub(super) async fn towline(&self, args: &[&str]) -> anyhow::Result<String> {
        let mut command = itself()?;
        command.args(args).arg("--kubeconfig").arg(&self.kubeconfig);
        let line = format!("towline {}", args.join(" "));
        let said = command
            .output()
            .await
            .with_context(|| format!("failed to run `{line}`"))?;
        if !said.status.success() {
            let why = String::from_utf8_lossy(&said.stderr);
            bail!("`{line}` ended with {}: {}", said.status, why.trim_end());
        }
        Ok(String::from_utf8_lossy(&said.stdout).into_owned())
    }

    /// Starts the agent of a member; a token is needed only the first time.
    pub(super) fn agent(&mut self, index: usize, token: Option<&str>) -> anyhow::Result<()> {
        let member = &mut self.members[index];
        let file = self.dir.join(format!("{}.token", member.name));
        if let Some(token) = token {
            write_private(&file, token)?;
        }
        let log = self.dir.join(format!("agent-{}.log", member.name));
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&log)
            .with_context(|| format!("failed to open {}", log.display()))?;
        let mut command = itself()?;
        command
            .arg("demo-agent")
            .arg("--kubeconfig")
            .arg(&member.agent_kubeconfig)
            .args(["--hub", &self.address, "--cluster-name", &member.name])
            .args(["--proxy", Mode::Impersonate.as_str()])
            .args(["--discovery-token-ca-cert-hash", &self.pin])
            .arg("--token-file")
            .arg(&file)
            .args(["--health-probe-bind-address=0", "--metrics-bind-address=0"])
            // A second replica there is none, and a killed one is not waited for.
            .arg("--leader-elect=false")
            .args([
                "--cluster-success-threshold=1s",
                "--cluster-lease-duration=4s",
            ])
            .arg("--cluster-status-update-frequency=1s")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true);
        let child = command.spawn().context("failed to start an agent")?;
        member.agent = Some(child);
        Ok(())
    }

    /// Ends everything, agents first.
    pub(super) async fn end(self) {
        for member in self.members {
            member.end().await;
        }
        self.stop.cancel();
        // How the hub ended no longer matters.
        let _ = self.serving.await;
    }
}

impl Member {
    /// Ends its agent, then itself.
    pub(super) async fn end(mut self) {
        if let Some(mut agent) = self.agent.take() {
            // It may have ended by itself.
            let _ = agent.kill().await;
        }
        self.workloads.abort();
        self.running.end().await;
    }

    async fn start(dir: &Path, name: &str, env: Env) -> anyhow::Result<Self> {
        let data = dir.join(name);
        let options = Options {
            data_dir: data.clone(),
            listen: ([127, 0, 0, 1], 0).into(),
            names: ["127.0.0.1", "localhost"].map(str::to_owned).into(),
            certificate_lifetime: chrono::Duration::days(90),
            strangers_of_address: STRANGERS_OF_ADDRESS,
            busy: None,
            new_database: false,
            address: String::new(),
            key_file: None,
            audit_log: None,
        };
        let running = Running::begin(options, AdminState::default(), env.clone())
            .await
            .with_context(|| format!("failed to start {name}"))?;
        let server = running.address.to_string();
        let issue = |file: &str, user: &str, groups: &[&str]| {
            let flags = [
                "kubeconfig",
                "--ttl",
                "24h",
                "--server",
                &server,
                "--user",
                user,
            ];
            let groups = groups.iter().flat_map(|group| ["--group", group]);
            let flags = flags.into_iter().chain(groups).map(OsString::from);
            let flags = flags.chain(["--data-dir".into(), data.clone().into()]);
            let args =
                Kubeconfig::try_parse_from(flags).context("the demo's flags of a kubeconfig")?;
            let path = dir.join(file);
            write_private(&path, &serve::print_kubeconfig(&args.args, &env.clock)?)?;
            anyhow::Ok(path)
        };
        let masters = [crate::apiserver::caller::MASTERS];
        let kubeconfig = issue(&format!("{name}.kubeconfig"), "towline-demo", &masters)?;
        let agent = format!("agent-{name}.kubeconfig");
        let agent_kubeconfig = issue(&agent, AGENT_USER, &AGENT_GROUPS)?;
        let client = running.router.client();
        let workloads = tokio::spawn(workloads::run(client.clone(), env.clock));
        crate::cli::register::lay_foundation(client.clone(), &[ADMIN])
            .await
            .map_err(|error| error.source)
            .with_context(|| format!("failed to prepare {name} for its agent"))?;
        give_everything(&client)
            .await
            .with_context(|| format!("failed to let {ADMIN} into {name}"))?;
        Ok(Self {
            name: name.to_owned(),
            kubeconfig,
            agent_kubeconfig,
            client,
            agent: None,
            running,
            workloads,
        })
    }
}

/// Lets whoever looks at the demo do everything in a member that they reach through the hub.
async fn give_everything(member: &Client) -> anyhow::Result<()> {
    let name = "demo-admin";
    let binding = serde_json::json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": ADMIN}],
    });
    let bindings: Api<ClusterRoleBinding> = Api::all(member.clone());
    let params = PatchParams::apply("towline-demo");
    bindings
        .patch(name, &params, &Patch::Apply(&binding))
        .await?;
    Ok(())
}

async fn connect(path: &Path) -> anyhow::Result<(Client, kube::Config)> {
    let options = ClientOptions::new("demo");
    kubeconfig_client(Some(path), None, &options, &Env::system())
        .await
        .with_context(|| format!("failed to use {}", path.display()))
}

/// This program, with nothing of the environment that changes what Towline does.
fn itself() -> anyhow::Result<Command> {
    let program = std::env::current_exe().context("failed to find this program's own path")?;
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TOWLINE_") {
            command.env_remove(name);
        }
    }
    // Everything is on this machine.
    for name in [
        "HTTPS_PROXY",
        "https_proxy",
        "ALL_PROXY",
        "all_proxy",
        "KUBECONFIG",
    ] {
        command.env_remove(name);
    }
    Ok(command)
}

fn write_private(path: &Path, text: &str) -> anyhow::Result<()> {
    use std::io::Write as _;
    let mut options = std::fs::OpenOptions::new();
    let options = options.create(true).truncate(true).write(true).mode(0o600);
    options
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("failed to write {}", path.display()))
}
