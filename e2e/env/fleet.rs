//! Towline on a lab: a prepared hub that runs, tokens, and agents.

use anyhow::{Context as _, Result, ensure};
use common::api::cluster::{Cluster, READY};
use common::discovery::CaPin;
use kube::Client;
use kube::api::Api;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::kubeconfig::{client, write_private};
use super::plane::Plane;
use super::ports::free_port;
use super::process::{Process, ProcessSpec};
use super::towline::Towline;
use super::wait::wait_for;

const HUB_READY_WITHIN: Duration = Duration::from_secs(150);
/// An agent's first look takes a moment; a machine that builds beside it takes longer.
pub(crate) const CLUSTER_READY_WITHIN: Duration = Duration::from_secs(180);

/// A hub with Towline.
pub(crate) struct Fleet {
    /// Where agents find the hub.
    pub(crate) address: String,
    /// The pin of the hub's CA.
    pub(crate) pin: String,
    /// `towline-hub run`.
    pub(crate) hub: Process,
    /// The commands and the folder of logs.
    pub(crate) towline: Towline,
    kubeconfig: PathBuf,
    dir: PathBuf,
}

impl Fleet {
    /// Prepares the hub with the addresses that its plane advertises, starts `towline-hub run` with the
    /// flags that its plane has for it, and waits until it is ready.
    pub(crate) async fn start(dir: &Path, plane: &Plane) -> Result<Self> {
        let towline = Towline::new(dir)?;
        let kubeconfig = plane.kubeconfig.clone();
        if plane.options.builtin {
            // It is prepared from its start, and its controllers are part of it.
            let pin = CaPin::of_certificate(&plane.pki.ca_der()).context("failed to pin the CA")?;
            return Ok(Self {
                address: plane.address(),
                pin: pin.to_string(),
                hub: Process::absent("towline-hub", dir),
                towline,
                kubeconfig,
                dir: dir.to_owned(),
            });
        }
        let path = kubeconfig.display().to_string();
        let mut init = vec!["init", "--kubeconfig", &path];
        for address in &plane.options.advertised {
            init.extend(["--advertise", address]);
        }
        towline.cli(init).await?.ok()?;
        let pin = CaPin::of_certificate(&plane.pki.ca_der()).context("failed to pin the CA")?;
        let flags: Vec<&str> = plane.options.hub_flags.iter().map(String::as_str).collect();
        let (hub, _) = start_hub(&towline, "towline-hub", &kubeconfig, &flags).await?;
        Ok(Self {
            address: plane.address(),
            pin: pin.to_string(),
            hub,
            towline,
            kubeconfig,
            dir: dir.to_owned(),
        })
    }

    /// The hub's administrator's kubeconfig.
    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A client of the hub with every right.
    pub(crate) async fn client(&self) -> Result<Client> {
        client(&self.kubeconfig).await
    }

    /// `towline` with `--kubeconfig` of the hub after the given arguments.
    pub(crate) async fn cli(&self, args: &[&str]) -> Result<super::process::Run> {
        let path = self.kubeconfig.display().to_string();
        let all = args.iter().copied().chain(["--kubeconfig", &path]);
        self.towline.cli(all).await
    }

    /// A token by `towline token create` with more flags.
    pub(crate) async fn token(&self, flags: &[&str]) -> Result<String> {
        let args: Vec<&str> = ["token", "create"].iter().chain(flags).copied().collect();
        let run = self.cli(&args).await?.ok()?;
        let token = run.stdout.split_whitespace().next();
        Ok(token
            .context("`towline token create` printed nothing")?
            .to_owned())
    }

    /// What starts an agent for a member: state, log and token in files of its own.
    pub(crate) fn agent_spec(
        &self,
        member: &Path,
        cluster: &str,
        token: &str,
        flags: &[&str],
    ) -> Result<ProcessSpec> {
        let token_file = self.dir.join(format!("{cluster}.token"));
        write_private(&token_file, token)?;
        let spec = self
            .towline
            .agent_spec(&format!("agent-{cluster}"), member, &[])?
            .args(["--hub", &self.address, "--cluster-name", cluster])
            .args(["--discovery-token-ca-cert-hash", &self.pin])
            .arg("--token-file")
            .arg(token_file)
            // Many agents share this machine; a test that wants their metrics says where.
            .args(["--health-probe-bind-address=0", "--metrics-bind-address=0"])
            // A member of the lab is well from the start.
            .args(["--cluster-success-threshold=1s"]);
        Ok(spec.args(flags))
    }

    /// Registers a member under a name: a token bound to it, an agent, and a wait until it is Ready.
    pub(crate) async fn join(&self, member: &Path, cluster: &str) -> Result<Process> {
        let token = self.token(&["--cluster", cluster]).await?;
        let mut agent = Process::start(self.agent_spec(member, cluster, &token, &[])?)?;
        self.wait_ready(cluster, "True", CLUSTER_READY_WITHIN)
            .await
            .map_err(|error| match agent.check() {
                Ok(()) => error.context(format!("see {}", agent.log().display())),
                Err(ended) => ended,
            })?;
        Ok(agent)
    }

    /// The status of a Cluster's condition Ready; `None` while there is none.
    pub(crate) async fn ready(&self, cluster: &str) -> Result<Option<String>> {
        let api: Api<Cluster> = Api::all(self.client().await?);
        let found = api.get_opt(cluster).await?;
        Ok(found.and_then(|found| Some(found.condition(READY)?.status.clone())))
    }

    /// Waits until a Cluster's condition Ready has a status.
    pub(crate) async fn wait_ready(
        &self,
        cluster: &str,
        status: &str,
        within: Duration,
    ) -> Result<()> {
        let api: Api<Cluster> = Api::all(self.client().await?);
        let what = format!("Ready={status} of cluster {cluster}");
        wait_for(&what, within, || {
            let api = api.clone();
            async move {
                let found = api.get_opt(cluster).await?.context("no such Cluster yet")?;
                let ready = found.condition(READY).context("no condition Ready yet")?;
                ensure!(
                    ready.status == status,
                    "it is {} ({}: {})",
                    ready.status,
                    ready.reason,
                    ready.message
                );
                Ok(true)
            }
        })
        .await
    }

    /// Waits until a Cluster and its namespace are gone.
    pub(crate) async fn wait_gone(&self, cluster: &str, within: Duration) -> Result<()> {
        let client = self.client().await?;
        let clusters: Api<Cluster> = Api::all(client.clone());
        let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(client);
        let namespace = format!("{}{cluster}", common::names::EXECUTION_PREFIX);
        wait_for(&format!("the end of cluster {cluster}"), within, || {
            let (clusters, namespaces) = (clusters.clone(), namespaces.clone());
            let namespace = namespace.clone();
            async move {
                Ok(clusters.get_opt(cluster).await?.is_none()
                    && namespaces.get_opt(&namespace).await?.is_none())
            }
        })
        .await
    }
}

/// Starts `towline-hub run` and waits for its readiness; returns it and where it serves health and
/// metrics.
pub(crate) async fn start_hub(
    towline: &Towline,
    name: &str,
    kubeconfig: &Path,
    flags: &[&str],
) -> Result<(Process, String)> {
    let address = format!("127.0.0.1:{}", free_port()?);
    let mut all = vec!["--health-probe-bind-address", &address];
    if !flags
        .iter()
        .any(|it| it.starts_with("--metrics-bind-address"))
    {
        all.extend(["--metrics-bind-address", "0"]);
    }
    all.extend(flags);
    let mut hub = towline.hub(name, kubeconfig, &all)?;
    wait_for("readiness of towline-hub", HUB_READY_WITHIN, || {
        let alive = hub.check();
        let address = address.clone();
        async move {
            // One that has ended is not waited for: the wait's caller sees the log below.
            if alive.is_err() {
                return Ok(true);
            }
            Ok(http_get(&address, "/readyz").await?.0 == 200)
        }
    })
    .await
    .with_context(|| format!("see {}", hub.log().display()))?;
    hub.check()?;
    Ok((hub, address))
}

/// The status and body of a plain HTTP request.
pub(crate) async fn http_get(address: &str, path: &str) -> Result<(u16, String)> {
    let get = async {
        let mut stream = tokio::net::TcpStream::connect(address).await?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: lab\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    let answer = tokio::time::timeout(Duration::from_secs(10), get)
        .await
        .with_context(|| format!("no answer from {address}"))?
        .with_context(|| format!("failed to get {path} from {address}"))?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no HTTP answer")?;
    let status = head.split(' ').nth(1).context("no HTTP status")?;
    Ok((status.parse().context("no HTTP status")?, body.to_owned()))
}
