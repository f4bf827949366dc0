//! Whose tunnel is taken: that of an agent whose registration is in force, by its whole certificate.

use super::rig::{LONG, Stage, target};
use crate::env::{Identity, Process};
use anyhow::{Context as _, Result, ensure};
use common::api::cluster::Cluster;
use common::client::{Dialer, Stream};
use common::env::Env;
use common::labels::REGISTRATION_ID;
use common::tunnel::Begins;
use hyper_util::rt::TokioIo;
use kube::api::Api;
use tokio::io::AsyncReadExt as _;
use tokio::time::timeout;

const AGENTS: &str = "system:karmada:agents";

/// The agent's end of a tunnel that does nothing.
struct Idle(TokioIo<Stream>);

impl Idle {
    /// Dials as somebody; none when the hub does not begin to speak.
    async fn dial(stage: &Stage, identity: &Identity) -> Result<Option<Self>> {
        let target = target(stage, identity).await?;
        let dialer = Dialer::new(&target, &[Begins::AtOnce.alpn()], &Env::system())?;
        let Ok(stream) = dialer.dial().await else {
            return Ok(None);
        };
        let mut stream = TokioIo::new(stream);
        let mut first = [0; 24];
        let begun = timeout(LONG, stream.read_exact(&mut first)).await?;
        let speaks = begun.is_ok() && first.starts_with(b"PRI * HTTP/2.0");
        Ok(speaks.then_some(Self(stream)))
    }

    /// Reads until nothing more comes.
    async fn ends(mut self) -> Result<()> {
        let over = async {
            let mut piece = [0; 1024];
            while matches!(self.0.read(&mut piece).await, Ok(1..)) {}
        };
        timeout(LONG, over).await.context("the tunnel stands")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn access_takes_tunnels_of_registered_agents() -> Result<()> {
    let mut stage = Stage::set("access-tunnels", "impersonate").await?;
    let clusters: Api<Cluster> = Api::all(stage.fleet.client().await?);
    let cluster = clusters.get("m1").await?;
    let annotations = cluster.metadata.annotations.unwrap_or_default();
    let id = annotations.get(REGISTRATION_ID).context("registered")?;
    let group = format!("towline:cluster:m1:{id}");
    let other = format!("towline:cluster:m1:{}", "0".repeat(32));
    let longer = format!("towline:cluster:m10:{id}");
    let pki = &stage.lab.hub.pki;
    for (why, name, groups) in [
        ("an administrator", "admin", ["system:masters", AGENTS]),
        (
            "another cluster",
            "system:karmada:agent:m2",
            [AGENTS, group.as_str()],
        ),
        (
            "another's group",
            "system:karmada:agent:m1",
            [AGENTS, longer.as_str()],
        ),
        (
            "not in force",
            "system:karmada:agent:m1",
            [AGENTS, other.as_str()],
        ),
        (
            "no agents' group",
            "system:karmada:agent:m1",
            ["dev", group.as_str()],
        ),
    ] {
        let dialled = Idle::dial(&stage, &pki.client(name, &groups)?).await?;
        ensure!(dialled.is_none(), "{why}: its tunnel is taken");
    }
    let own = pki.client("system:karmada:agent:m1", &[AGENTS, group.as_str()])?;
    let old = Idle::dial(&stage, &own).await?;
    let old = old.context("the tunnel of what is registered is not taken")?;

    // The cluster is registered once more, by another key: the old one's tunnel ends, and none comes back.
    stage.agent.stop(LONG).await?;
    let state = stage.scratch.join("towline").join("agent-m1-state");
    std::fs::remove_dir_all(&state)?;
    let token = stage.fleet.token(&["--cluster", "m1", "--replace"]).await?;
    let flags = ["--proxy", "impersonate"];
    let spec = stage
        .fleet
        .agent_spec(&stage.lab.members[0].kubeconfig, "m1", &token, &flags)?;
    stage.agent = Process::start(spec)?;
    old.ends().await?;
    ensure!(
        Idle::dial(&stage, &own).await?.is_none(),
        "an old one is taken"
    );
    stage.opened().await?;
    stage.passed().await;
    Ok(())
}
