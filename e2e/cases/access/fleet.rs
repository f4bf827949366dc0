//! `towline get` of two hundred members at once, some of which are dead and some slow.
//!
//! Each is registered by a token of its own use and dials a tunnel of its own, by the agent's own code, in this process;
//! one is an agent as it ships. What is behind all of them is the API server of one member, and before it, for those
//! that are slow, a relay that keeps back what it carries.

use super::rig::{LONG, Stage, apply, ask, becomes, reach, target, to};
use crate::env::{Enrolled, Given, Identity, Relay, agent_config};
use anyhow::{Context as _, Result, ensure};
use common::client::{ClientOptions, Dialer, Stream, kubeconfig_client};
use common::env::Env;
use common::names::ClusterName;
use common::tunnel::Begins;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use std::collections::BTreeSet;
use std::process::Stdio;
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

const MEMBERS: usize = 200;
/// Asked before all others, by their names: whoever waits for them in turn would wait for long.
const SLOW: [&str; 5] = ["a-slow-1", "a-slow-2", "a-slow-3", "a-slow-4", "a-slow-5"];
/// Its agent is not there.
const GONE: &str = "dead-agent";
/// Its API server is not there.
const HEADLESS: &str = "dead-apiserver";
/// Nobody reads what comes through its tunnel.
const DEAF: &str = "dead-machine";
/// How many register, and are looked at, at the same time.
const AT_ONCE: usize = 16;
/// So many register by one token.
const USES: usize = 50;
/// Exit code where a server does not answer.
const UNAVAILABLE: i32 = 6;

type Names = BTreeSet<String>;

/// The members, and what they stand on.
struct Fleet {
    stage: Stage,
    deaf: Enrolled,
    _others: Vec<Enrolled>,
    quick: Names,
    /// Before the API server of the slow ones.
    slow: Relay,
    _dead: Relay,
    _agents: JoinSet<()>,
}

fn names(of: &[&str]) -> Names {
    of.iter().map(|name| (*name).to_owned()).collect()
}

impl Fleet {
    async fn start() -> Result<Self> {
        let stage = Stage::set("access-fleet", "impersonate").await?;
        let others = MEMBERS - SLOW.len() - 3 - 1;
        let quick: Names = (1..=others).map(|n| format!("quick-{n:03}")).collect();
        let quick: Names = quick.into_iter().chain(["m1".to_owned()]).collect();
        let config = agent_config(&["--proxy=impersonate", "--registration-timeout=10m"])?;
        let env = Env::system();
        let wanted = quick.iter().filter(|name| *name != "m1").cloned();
        let wanted = wanted
            .chain(names(&SLOW))
            .chain(names(&[GONE, HEADLESS, DEAF]));
        let wanted: Vec<String> = wanted.collect();
        let mut agents = Vec::new();
        for some in wanted.chunks(USES) {
            let uses = some.len().to_string();
            let flags = ["token", "create", "-o", "json", "--uses", &uses];
            let given = Given::read(&stage.fleet.cli(&flags).await?.ok()?.stdout)?;
            let registered = some.iter().map(|name| {
                let (given, config, env, dir) = (&given, &config, &env, stage.scratch.path());
                async move { Enrolled::by(given, ClusterName::parse(name)?, config, env, dir).await }
            });
            let registered = stream::iter(registered).buffer_unordered(AT_ONCE);
            agents.extend(registered.try_collect::<Vec<_>>().await?);
        }

        let options = ClientOptions::new("agent");
        let plane = &stage.lab.members[0];
        let member = kubeconfig_client(Some(&plane.kubeconfig), None, &options, &env).await?;
        let (slow, dead) = (
            Relay::start(&plane.address()).await?,
            Relay::start(&plane.address()).await?,
        );
        dead.refuse(true);
        let (mut deaf, mut others, mut work) = (None, Vec::new(), JoinSet::new());
        for agent in agents {
            let name = agent.registration.cluster.to_string();
            let (client, mut reached) = member.clone();
            let by = match name.as_str() {
                GONE => continue,
                DEAF => {
                    deaf = Some(agent);
                    continue;
                }
                HEADLESS => Some(dead.address()),
                name if SLOW.contains(&name) => Some(slow.address()),
                _ => None,
            };
            if let Some(by) = by {
                reached.cluster_url = format!("https://{by}").parse()?;
            }
            let stop = CancellationToken::new();
            let context =
                agent.context(&config, &env, (client, reached), &stop, |way| Arc::new(way));
            work.spawn(agent::proxy::run(context.await?));
            others.push(agent);
        }
        let fleet = Self {
            stage,
            deaf: deaf.context("nobody is deaf")?,
            _others: others,
            quick,
            slow,
            _dead: dead,
            _agents: work,
        };
        fleet.opened().await?;
        Ok(fleet)
    }

    /// Every member, however it is.
    fn all(&self) -> Names {
        let others = names(&[GONE, HEADLESS, DEAF])
            .into_iter()
            .chain(names(&SLOW));
        others.chain(self.quick.clone()).collect()
    }

    /// Lets Ann through to all of them, and waits until they answer. The connections of the slow ones to their API server
    /// stand from then on, so that what is kept back is an answer.
    async fn opened(&self) -> Result<()> {
        let all = self.all();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let hub = self.stage.fleet.client().await?;
        apply(&hub, reach("ann", &all, &["get"])).await?;
        let ann = self.stage.client("ann", &[]).await?;
        let answering = self.quick.iter().cloned().chain(names(&SLOW));
        let looks = answering.map(|name| {
            let ann = ann.clone();
            async move { becomes(&ann, &to(&name, "/api"), 200, "APIVersions").await }
        });
        let looks = stream::iter(looks).buffer_unordered(AT_ONCE);
        looks.try_collect::<Vec<()>>().await?;
        let no_server = "its API server does not answer";
        becomes(&ann, &to(HEADLESS, "/api"), 503, no_server).await
    }

    /// A tunnel whose other end nobody reads.
    async fn unheard(&self) -> Result<Stream> {
        let registration = &self.deaf.registration;
        let identity = Identity {
            cert: registration.certificate.clone().context("certified")?,
            key: registration.key.expose().to_owned(),
        };
        let target = target(&self.stage, &identity).await?;
        let dialer = Dialer::new(&target, &[Begins::AtOnce.alpn()], &Env::system())?;
        let stream = dialer.dial().await?;
        let ann = self.stage.client("ann", &[]).await?;
        // It is taken once a request goes into it, and is not refused at once.
        crate::env::wait_for("a tunnel that takes a request", LONG, async || {
            let path = to(DEAF, "/api");
            let asked = timeout(
                std::time::Duration::from_secs(1),
                ask(&ann, "GET", &path, &[]),
            );
            Ok(asked.await.is_err())
        })
        .await?;
        Ok(stream)
    }

    /// `towline get configmaps --all` as Ann.
    fn get(&self, flags: &[&str]) -> Result<Get> {
        let ann = self.stage.kubeconfig("ann", &[])?.display().to_string();
        let words = ["get", "configmaps", "--all", "--kubeconfig", &ann];
        let words = words.iter().chain(flags);
        let mut command = self.stage.fleet.towline.command(words)?;
        command.stdin(Stdio::null()).kill_on_drop(true);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let stdout = child.stdout.take().context("a pipe")?;
        Ok(Get {
            child,
            lines: BufReader::new(stdout).lines(),
            shown: Names::new(),
        })
    }
}

/// `towline get` while it runs.
struct Get {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    /// The clusters of which there are rows.
    shown: Names,
}

impl Get {
    /// Reads rows until those of these members are there.
    async fn shows(&mut self, wanted: &Names) -> Result<()> {
        let read = async {
            while !self.shown.is_superset(wanted) {
                let missing = || format!("of {:?}", wanted - &self.shown);
                let line = self.lines.next_line().await?;
                let line = line.with_context(|| format!("it ended without rows {}", missing()))?;
                let words: Vec<&str> = line.split_whitespace().collect();
                if let ["here", cluster, "1", _, "N"] = words[..] {
                    self.shown.insert(cluster.to_owned());
                }
            }
            Ok(())
        };
        timeout(LONG, read).await.context("rows are late")?
    }

    /// Its end: the exit code, and what it says of each member that did not answer.
    async fn ends(mut self) -> Result<(i32, Names, String)> {
        let mut said = String::new();
        let over = async {
            while self.lines.next_line().await?.is_some() {}
            let stderr = self.child.stderr.as_mut().context("a pipe")?;
            stderr.read_to_string(&mut said).await?;
            anyhow::Ok(self.child.wait().await?)
        };
        let status = timeout(LONG, over).await.context("it does not end")??;
        let lines = said.lines().filter_map(|line| line.split_once(": "));
        let named = lines.map(|(name, _)| name.to_owned()).collect();
        Ok((status.code().unwrap_or(-1), named, said))
    }
}

/// Rows of whoever answers are shown while others are waited for, and whoever does not answer is named.
#[tokio::test(flavor = "multi_thread")]
async fn access_asks_two_hundred_members_at_once() -> Result<()> {
    let fleet = Fleet::start().await?;
    ensure!(fleet.all().len() == MEMBERS, "{:?}", fleet.all());

    // Nothing of the slow ones is let go before all the others are shown.
    fleet.slow.hold(true);
    let mut get = fleet.get(&["--cluster-timeout", "300"])?;
    get.shows(&fleet.quick).await?;
    ensure!(get.shown == fleet.quick, "{:?}", get.shown);
    fleet.slow.hold(false);
    let all: Names = fleet.quick.iter().cloned().chain(names(&SLOW)).collect();
    get.shows(&all).await?;
    let (code, named, said) = get.ends().await?;
    ensure!(code == UNAVAILABLE, "{code}: {said}");
    ensure!(named.is_superset(&names(&[GONE, HEADLESS, DEAF])), "{said}");
    ensure!(named.is_disjoint(&all), "{said}");
    ensure!(said.contains("3 of 200 clusters did not answer"), "{said}");

    // The slow ones stay so, and one is dead that has a tunnel: each takes the time that it is given, and no more.
    fleet.slow.hold(true);
    let _unheard = fleet.unheard().await?;
    let mut get = fleet.get(&["--cluster-timeout", "10"])?;
    get.shows(&fleet.quick).await?;
    ensure!(get.shown == fleet.quick, "{:?}", get.shown);
    let (code, named, said) = get.ends().await?;
    ensure!(code == UNAVAILABLE, "{code}: {said}");
    let others = &fleet.all() - &fleet.quick;
    ensure!(named.is_superset(&others), "{said}");
    ensure!(named.is_disjoint(&fleet.quick), "{said}");
    ensure!(said.contains("8 of 200 clusters did not answer"), "{said}");
    ensure!(said.contains("no answer within 10 s"), "{said}");
    fleet.stage.passed().await;
    Ok(())
}
