//! A hub by `towline-hub serve` in a folder of its own, and one member with its agent.

use anyhow::{Context as _, Result, ensure};
use common::api::cluster::{Cluster, READY};
use common::api::work::{APPLIED, Work};
use common::conditions::is_true;
use common::discovery::CaPin;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, PostParams};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::env::{
    Parts, Plane, PlaneOptions, Process, ProcessSpec, Run, Scratch, Seat, Towline, Wish, binary,
    client, free_ports, wait_for, wait_for_some,
};

/// How long anything may take on a machine that builds beside the lab.
pub(super) const LONG: Duration = Duration::from_secs(180);
/// The cluster's name.
pub(super) const CLUSTER: &str = "m1";

/// A hub, and what its commands are told.
pub(super) struct Hub {
    /// Its data directory.
    pub(super) data: PathBuf,
    /// Where it listens, as `host:port`.
    pub(super) address: String,
    /// The process.
    pub(super) process: Process,
}

impl Hub {
    /// Starts one, with more flags, and waits until it is ready.
    pub(super) async fn start(
        dir: &Path,
        data: &Path,
        port: u16,
        advertise: &[String],
        flags: &[&str],
    ) -> Result<Self> {
        Self::start_with(dir, data, port, advertise, flags, &[]).await
    }

    /// The same, with more in its environment.
    pub(super) async fn start_with(
        dir: &Path,
        data: &Path,
        port: u16,
        advertise: &[String],
        flags: &[&str],
        environment: &[(&str, &Path)],
    ) -> Result<Self> {
        let program = ProcessSpec::new("towline-hub-serve", &binary("towline-hub")?, dir);
        Self::start_spec(program, data, port, advertise, flags, environment).await
    }

    /// The same, by a program as it is given: as another user, for instance.
    pub(super) async fn start_spec(
        program: ProcessSpec,
        data: &Path,
        port: u16,
        advertise: &[String],
        flags: &[&str],
        environment: &[(&str, &Path)],
    ) -> Result<Self> {
        let address = format!("127.0.0.1:{port}");
        let mut spec = program
            .arg("serve")
            .arg("--data-dir")
            .arg(data)
            .args(["--listen", &address])
            .args(["--advertise", &advertise.join(",")])
            // A machine that stands still for a while is none of these tests' business.
            .args(["--cluster-monitor-grace-period=150s"])
            .args(flags);
        for (name, value) in environment {
            spec = spec.env(name, value);
        }
        let mut hub = Self {
            data: data.to_owned(),
            address,
            process: Process::start(spec)?,
        };
        hub.wait_ready().await?;
        Ok(hub)
    }

    /// Waits until it says that it is ready.
    pub(super) async fn wait_ready(&mut self) -> Result<()> {
        let kubeconfig = self.kubeconfig();
        let process = &mut self.process;
        wait_for("readiness of the hub", LONG, async || {
            process.check()?;
            let hub = client(&kubeconfig).await?;
            Ok(ask(&hub, "/readyz").await? == "ok")
        })
        .await
    }

    /// The administrator's kubeconfig.
    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.data.join("admin.kubeconfig")
    }

    /// A new client by the administrator's kubeconfig of the moment.
    pub(super) async fn client(&self) -> Result<Client> {
        client(&self.kubeconfig()).await
    }

    /// Ends it in order.
    pub(super) async fn stop(&mut self) -> Result<()> {
        let ended = self.process.stop(LONG).await?;
        ensure!(ended.success(), "the hub ended with {ended}");
        Ok(())
    }

    /// A file of its keys.
    pub(super) fn key_file(&self, name: &str) -> Result<String> {
        let path = self.data.join("pki").join(name);
        std::fs::read_to_string(&path).with_context(|| format!("no {}", path.display()))
    }

    /// Runs `towline-hub` with arguments and the data directory.
    pub(super) async fn command(&self, args: &[&str]) -> Result<Run> {
        hub_command(args, &self.data).await
    }

    /// The Ready condition: its status, and when it last changed.
    pub(super) async fn ready(&self) -> Result<(String, String)> {
        self.ready_of(CLUSTER).await
    }

    async fn ready_of(&self, name: &str) -> Result<(String, String)> {
        let api: Api<Cluster> = Api::all(self.client().await?);
        let cluster = api.get(name).await?;
        let ready = cluster.condition(READY).context("no condition Ready yet")?;
        Ok((
            ready.status.clone(),
            ready.last_transition_time.0.to_string(),
        ))
    }

    /// Waits until the cluster is Ready.
    pub(super) async fn wait_cluster(&self) -> Result<(String, String)> {
        self.wait_ready_of(CLUSTER).await
    }

    async fn wait_ready_of(&self, name: &str) -> Result<(String, String)> {
        wait_for_some("Ready of the cluster", LONG, async || {
            let ready = self.ready_of(name).await?;
            ensure!(ready.0 == "True", "it is {ready:?}");
            Ok(Some(ready))
        })
        .await
    }

    /// Waits for a heartbeat that the hub has taken since this was called.
    pub(super) async fn heartbeat(&self) -> Result<()> {
        let mut seen = Vec::new();
        wait_for("a heartbeat", LONG, async || {
            let hub = self.client().await?;
            let api: Api<Lease> = Api::namespaced(hub, common::names::CLUSTER_NAMESPACE);
            let renewed = api.get(CLUSTER).await?.spec.and_then(|s| s.renew_time);
            let renewed = renewed.map(|time| time.0.to_string());
            if seen.last() != Some(&renewed) {
                seen.push(renewed);
            }
            ensure!(seen.len() > 1, "seen are {seen:?}");
            Ok(true)
        })
        .await
    }

    /// Delivers a ConfigMap and waits until the agent says that it is applied.
    pub(super) async fn deliver(&self, name: &str) -> Result<()> {
        let manifest = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "default"}, "data": {"k": "v"},
        });
        let work: Work = serde_json::from_value(json!({
            "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work", "metadata": {"name": name},
            "spec": {"workload": {"manifests": [manifest]}},
        }))?;
        let namespace = format!("{}{CLUSTER}", common::names::EXECUTION_PREFIX);
        let works: Api<Work> = Api::namespaced(self.client().await?, &namespace);
        works.create(&PostParams::default(), &work).await?;
        wait_for(&format!("Applied of Work {name}"), LONG, async || {
            let status = works.get(name).await?.status.unwrap_or_default();
            Ok(is_true(&status.conditions, APPLIED))
        })
        .await
    }
}

/// Runs `towline-hub` with arguments and a data directory.
pub(super) async fn hub_command(args: &[&str], data: &Path) -> Result<Run> {
    let mut command = tokio::process::Command::new(binary("towline-hub")?);
    command.args(args).arg("--data-dir").arg(data);
    crate::env::run(command, None, LONG).await
}

/// The body of an answer.
pub(super) async fn ask(client: &Client, path: &str) -> Result<String> {
    let request = http::Request::get(path).body(Vec::new())?;
    let answer = client.request_text(request);
    let answer = tokio::time::timeout(Duration::from_secs(10), answer).await;
    Ok(answer.context("no answer within 10 s")??)
}

/// The member, its agent and their files.
pub(super) struct Side {
    member: Plane,
    seat: Seat,
    agent: Process,
}

/// A member for one test.
async fn member(dir: &Path) -> Result<Plane> {
    let options = PlaneOptions {
        builtin: true,
        nodes: 0,
        scheduler: false,
        ..PlaneOptions::member("member")
    };
    Plane::start(&Parts::from_env()?, &dir.join("member"), options).await
}

impl Side {
    /// Registers the member with a hub that it is to find at `address`, and waits until it is Ready.
    pub(super) async fn join(dir: &Path, hub: &Hub, address: &str) -> Result<Self> {
        Self::join_as(CLUSTER, dir, hub, address).await
    }

    /// The same by another name; each has a folder of its own.
    pub(super) async fn join_as(
        cluster: &str,
        dir: &Path,
        hub: &Hub,
        address: &str,
    ) -> Result<Self> {
        Self::join_with(cluster, dir, hub, address, &[]).await
    }

    /// The same by an agent with more flags.
    pub(super) async fn join_with(
        cluster: &str,
        dir: &Path,
        hub: &Hub,
        address: &str,
        more: &[&str],
    ) -> Result<Self> {
        let member = member(dir).await?;
        let pin = CaPin::of_pem(hub.key_file("ca.crt")?.as_bytes())?;
        let pin = pin.first().context("the hub has a CA")?.to_string();
        let towline = Towline::new(dir)?;
        let kubeconfig = hub.kubeconfig().display().to_string();
        let token = ["token", "create", "--cluster", cluster];
        let token = token.iter().copied().chain(["--kubeconfig", &kubeconfig]);
        let token = towline.cli(token).await?.ok()?.stdout;
        let seat = Seat::new(dir, "agent")?;
        let wish = Wish {
            hub: address,
            pin: &pin,
            cluster,
            token: token
                .split_whitespace()
                .next()
                .context("no token was printed")?,
            member: &member.kubeconfig,
        };
        // A check a second, so that the hub's word about itself is read every five; heartbeats as often.
        let flags = [
            "--cert-rotation-checking-interval=1s",
            "--cluster-lease-duration=12s",
            "--cluster-status-update-frequency=2s",
        ];
        let agent = seat.start(&wish, &[&flags[..], more].concat())?;
        let mut side = Self {
            member,
            seat,
            agent,
        };
        hub.wait_ready_of(cluster).await.map_err(|error| {
            let ended = side.agent.check().err();
            ended
                .unwrap_or(error)
                .context(format!("see {}", dir.display()))
        })?;
        Ok(side)
    }

    /// A field of the registration that the agent keeps.
    pub(super) fn kept(&self, field: &str) -> Result<Value> {
        let stored = self.seat.stored().context("nothing is stored")?;
        Ok(stored["current"][field].clone())
    }

    /// Waits until a field of the registration is as it should be.
    pub(super) async fn wait_kept(
        &self,
        field: &str,
        what: &str,
        holds: impl Fn(&Value) -> bool,
    ) -> Result<()> {
        wait_for(what, LONG, async || {
            let kept = self.kept(field)?;
            ensure!(holds(&kept), "it is {kept}");
            Ok(true)
        })
        .await
    }

    /// Waits until the agent knows an address.
    pub(super) async fn wait_address(&self, address: &str) -> Result<()> {
        let what = format!("the agent to learn of {address}");
        let holds = |kept: &Value| {
            let mut known = kept.as_array().into_iter().flatten();
            known.any(|one| one == address)
        };
        self.wait_kept("servers", &what, holds).await
    }

    /// Ends the agent.
    pub(super) fn kill(&mut self) {
        self.agent.kill();
    }

    /// Has the agent end by itself.
    pub(super) async fn stop_in_order(&mut self) -> Result<()> {
        let ended = self.agent.stop(LONG).await?;
        ensure!(ended.success(), "the agent ended with {ended}");
        Ok(())
    }

    /// Has the agent stand still.
    pub(super) fn freeze(&self) {
        self.agent.signal(Signal::STOP);
    }

    /// Has it go on.
    pub(super) fn thaw(&self) {
        self.agent.signal(Signal::CONT);
    }

    /// Ends the member; its agent has ended.
    pub(super) async fn end_member(&mut self) {
        self.member.stop().await;
    }

    /// Ends the agent and starts it again: what it keeps has to be enough.
    pub(super) fn restart(&mut self) -> Result<()> {
        self.agent.restart()
    }

    /// Whether a ConfigMap is in the member.
    pub(super) async fn holds(&self, name: &str) -> Result<bool> {
        let maps: Api<ConfigMap> = Api::namespaced(self.member.client().await?, "default");
        Ok(maps.get_opt(name).await?.is_some())
    }
}

/// Ends everything, and fails when something has ended by itself.
pub(super) async fn passed(scratch: Scratch, mut hub: Hub, mut side: Side) -> Result<()> {
    end(&mut hub, &mut side).await?;
    scratch.passed();
    Ok(())
}

/// The same, and the files stay.
pub(super) async fn end(hub: &mut Hub, side: &mut Side) -> Result<()> {
    side.agent.check()?;
    hub.process.check()?;
    side.agent.kill();
    hub.stop().await?;
    side.member.stop().await;
    Ok(())
}

/// Two ports that are free.
pub(super) fn two_ports() -> Result<([u16; 2], [String; 2])> {
    let ports: [u16; 2] = free_ports()?;
    Ok((ports, ports.map(|port| format!("127.0.0.1:{port}"))))
}
