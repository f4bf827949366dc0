//! The hosts of a simulated fleet beside the hub: members, which are API servers, and the agents' own machines.

use super::super::rig::Served;
use super::wires::{Wires, World};
use crate::apiserver::authn::Peer;
use crate::apiserver::http::Link;
use crate::apiserver::keys::{FOLDER, Keys, server};
use crate::apiserver::store::MemoryDisk;
use crate::serve::kubeconfig;
use agent::config::{Config, RunArgs};
use chrono::{DateTime, Utc};
use clap::Parser;
use common::client::HostPort;
use common::env::Env;
use common::errors;
use common::names::{AGENT_NAME, AGENT_NAMESPACE};
use rustls::pki_types::CertificateDer;
use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Where the hub is.
pub(super) const HUB: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 6443);
/// Keys and authorities of simulations, which guard nothing.
const POOL: &str = include_str!("../keys/pool.pem");
const AUTHORITIES: &str = include_str!("../keys/authorities.pem");
const END_OF_KEY: &str = "-----END PRIVATE KEY-----\n";
const BEGIN_CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";
const BEGIN_KEY: &str = "-----BEGIN EC PRIVATE KEY-----";

/// The keys of the fleet that every run begins with.
pub(super) fn first_keys() -> Vec<String> {
    let [first, _] = keys();
    first
}

/// Keys: those of the fleet that every run begins with, and those of runs. Nobody draws a key that somebody had before.
fn keys() -> [Vec<String>; 2] {
    let keys = POOL.split_inclusive(END_OF_KEY).map(str::to_owned);
    let mut first: Vec<String> = keys.collect();
    let rest = first.split_off(first.len() / 2);
    [first, rest]
}

/// The keys of one run, in an order of its own.
pub(super) fn pool(seed: u64) -> Vec<String> {
    let [_, mut keys] = keys();
    let first = usize::try_from(seed).unwrap_or(0) % keys.len();
    keys.rotate_left(first);
    keys
}

/// Puts one of the authorities where a server finds it at its first start.
pub(super) fn authority(data: &Path, number: usize) {
    let pair = AUTHORITIES.split(BEGIN_CERTIFICATE).nth(number + 1);
    let (certificate, key) = pair
        .and_then(|pair| pair.split_once(BEGIN_KEY))
        .expect("a pair");
    let folder = data.join(FOLDER);
    fs::create_dir_all(&folder).expect("made");
    for (name, text) in [
        ("ca.crt", format!("{BEGIN_CERTIFICATE}{certificate}")),
        ("ca.key", format!("{BEGIN_KEY}{key}")),
    ] {
        fs::write(folder.join(name), text).expect("written");
    }
}

/// What a server at this address shows.
pub(super) fn chain(keys: &Keys, ip: IpAddr, now: DateTime<Utc>) -> Vec<CertificateDer<'static>> {
    let names = BTreeSet::from([ip.to_string()]);
    let made = server::current(keys, &names, chrono::Duration::days(90), now);
    made.expect("a certificate").key.cert.clone()
}

pub(super) fn ip(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, 10 + number)
}

/// Where a member's API server is.
pub(super) fn address(number: u8) -> HostPort {
    HostPort::new(&ip(number).to_string(), 6443)
}

/// Members beyond the third have an authority in common with one of the first three.
pub(super) fn authority_of(number: u8) -> usize {
    usize::from(number - 1) % 3 + 1
}

/// Where a member keeps its keys.
pub(super) fn data(dir: &Path, number: u8) -> PathBuf {
    dir.join(format!("member{number}"))
}

/// Writes the file by which a member's agent reaches it.
pub(super) fn kubeconfig_of_agent(dir: &Path, number: u8, keys: &Keys, now: DateTime<Utc>) {
    let groups = [
        "system:serviceaccounts".to_owned(),
        format!("system:serviceaccounts:{AGENT_NAMESPACE}"),
    ];
    let user = format!("system:serviceaccount:{AGENT_NAMESPACE}:{AGENT_NAME}");
    // Longer than clocks are wrong.
    let until = now + chrono::Duration::days(30);
    let url = address(number).url();
    let made = kubeconfig::make(keys, &url, &user, &groups, now, until);
    let path = dir.join(format!("m{number}.kubeconfig"));
    fs::write(path, made.expect("made")).expect("written");
}

/// A member.
pub(super) struct Member {
    /// What the hub calls it.
    pub(super) name: String,
    pub(super) number: u8,
    served: Served,
}

impl Member {
    /// With what `towline register` lays down for its agent.
    pub(super) async fn begin(
        disk: &MemoryDisk,
        dir: &Path,
        number: u8,
        world: &World,
        env: &Env,
    ) -> Self {
        authority(&data(dir, number), authority_of(number));
        let member = Self::on(disk, dir, number, world, env).await;
        member.lay_foundation().await;
        kubeconfig_of_agent(dir, number, &member.served.keys, env.clock.now());
        member
    }

    /// One over what is on this disk.
    pub(super) async fn on(
        disk: &MemoryDisk,
        dir: &Path,
        number: u8,
        world: &World,
        env: &Env,
    ) -> Self {
        let at = address(number);
        let served = Served::on(disk, &data(dir, number), &at.to_string(), env).await;
        let shown = chain(&served.keys, ip(number).into(), env.clock.now());
        let router = served.router.clone();
        world.add(&format!("member{number}"), at, router, &shown);
        Self {
            name: format!("m{number}"),
            number,
            served,
        }
    }

    /// What an agent needs in it.
    pub(super) async fn lay_foundation(&self) {
        let foundation = crate::cli::register::lay_foundation(self.served.router.client(), &[]);
        foundation.await.expect("laid");
    }

    /// Its API, with every right.
    pub(super) fn link(&self) -> Link {
        self.served.router.link_of(Peer::Itself)
    }

    pub(super) async fn end(self) {
        self.served.end().await;
    }

    /// Ends it in the middle of whatever it does.
    pub(super) async fn kill(self) {
        self.served.kill().await;
    }
}

/// What the hub's operator hands over.
#[derive(Clone)]
pub(super) struct Hand {
    pub(super) token: String,
    pub(super) pin: String,
    /// How many seconds its certificates live; they are renewed after a third of it.
    pub(super) life: u32,
}

#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    run: RunArgs,
}

/// What a member's agent is told, which is handed this.
pub(super) fn config(dir: &Path, number: u8, hand: &Hand, by_files: bool) -> Config {
    let host = format!("m{number}");
    config_on(dir, number, hand, (&host, by_files), &[])
}

/// The same on a host of this name, with these flags besides.
fn config_on(
    dir: &Path,
    number: u8,
    hand: &Hand,
    (host, by_files): (&str, bool),
    more: &[&str],
) -> Config {
    let name = format!("m{number}");
    let path = |what: &str| dir.join(format!("{host}.{what}")).display().to_string();
    fs::write(path("token"), &hand.token).expect("written");
    let kubeconfig = dir.join(format!("{name}.kubeconfig"));
    let mut flags = vec![
        "towline-agent".to_owned(),
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--hub={HUB}"),
        format!("--cluster-name={name}"),
        format!("--token-file={}", path("token")),
        format!("--discovery-token-ca-cert-hash={}", hand.pin),
        "--health-probe-bind-address=0".to_owned(),
        "--metrics-bind-address=0".to_owned(),
        format!("--cert-expiration-seconds={}", hand.life),
    ];
    if by_files {
        flags.push(format!("--state-dir={}", path("state")));
    }
    flags.extend(more.iter().map(|flag| (*flag).to_owned()));
    let config = Flags::try_parse_from(flags).expect("flags").run;
    config.into_config().expect("valid")
}

/// An agent that does not run.
pub(super) struct Stopped {
    config: Config,
    env: Env,
    /// Why it ended by itself the last time.
    error: Option<agent::error::Error>,
}

/// An agent that runs.
pub(super) struct Agent {
    stopped: Stopped,
    stop: CancellationToken,
    running: JoinHandle<Result<(), agent::error::Error>>,
}

impl Agent {
    /// The first start of a member's agent.
    pub(super) fn begin(
        dir: &Path,
        member: &Member,
        hand: &Hand,
        by_files: bool,
        world: &World,
        env: &Env,
    ) -> Self {
        let host = member.name.as_str();
        Self::on(dir, member, hand, (host, by_files), &[], world, env)
    }

    /// The same on a host of this name, which may keep what is its own in files, with these flags besides.
    pub(super) fn on(
        dir: &Path,
        member: &Member,
        hand: &Hand,
        (host, by_files): (&str, bool),
        more: &[&str],
        world: &World,
        env: &Env,
    ) -> Self {
        let number = &member.number;
        let wires = Wires {
            world: world.clone(),
            host: host.to_owned(),
            address: Ipv4Addr::new(198, 51, 100, *number).into(),
            delays: env.chance.shared_stream("network"),
        };
        let stopped = Stopped {
            config: config_on(dir, *number, hand, (host, by_files), more),
            env: env.clone().over(Arc::new(wires)),
            error: None,
        };
        stopped.start()
    }

    /// Stops it in order.
    pub(super) async fn stop(self) -> Stopped {
        self.stop.cancel();
        let ended = self.running.await.expect("no panic");
        ended.expect("ends in order");
        self.stopped
    }

    /// Ends it in the middle of whatever it does.
    pub(super) async fn kill(mut self) -> Stopped {
        self.running.abort();
        match self.running.await {
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            ended => self.stopped.error = ended.ok().and_then(Result::err),
        }
        self.stopped
    }

    /// Whether its process has ended by itself.
    pub(super) fn has_ended(&self) -> bool {
        self.running.is_finished()
    }

    /// Waits until it has left its member.
    pub(super) async fn left(self) {
        let ended = self.running.await.expect("no panic");
        ended.expect("ends in order");
    }
}

impl Stopped {
    /// Why it ended by itself the last time; none where it ended in order, or was ended.
    pub(super) fn error(&self) -> Option<String> {
        let error = self.error.as_ref()?;
        Some(errors::chain(error).to_string())
    }

    /// A new process on the same machine.
    pub(super) fn start(self) -> Agent {
        let stop = CancellationToken::new();
        let run = agent::run::run(self.config.clone(), self.env.clone(), stop.clone());
        Agent {
            // As in its own process it stays on one thread.
            running: tokio::task::spawn_local(run),
            stop,
            stopped: self,
        }
    }
}
