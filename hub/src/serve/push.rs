//! `towline-agent push` beside this process, while there are clusters without an agent of their own.
//!
//! It is a process of its own: what it has of members, this one does not have. It ends when its standard input does,
//! which nobody but this process holds open: so it never outlives it, however that ends.

use super::kubeconfig;
use crate::apiserver::keys::Keys;
use common::api::cluster::Cluster;
use common::backoff::Backoff;
use common::env::Env;
use common::errors::chain;
use common::labels::JOINED;
use common::watch::{Collection, Event, WatchConfig, watch};
use futures::StreamExt as _;
use kube::Client;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// Its kubeconfig in the data directory.
const FILE: &str = "push.kubeconfig";
/// The program, which lies beside this one.
const PROGRAM: &str = "towline-agent";
/// What the flag says for nobody.
const NOBODY: &str = "none";
/// Life of its certificate; it is started anew with another one when a third of it is left.
const LIFE: chrono::Duration = chrono::Duration::days(30);
/// How often it is looked whether that is so: a host that slept has another time.
const LOOK: Duration = Duration::from_secs(60);
/// How long the Leases of its agents last unless it is told otherwise.
const LEASE: Duration = Duration::from_secs(40);
/// How long it goes on after the last such Cluster is gone: the agent takes itself out of the member.
const LINGERS: Duration = Duration::from_secs(180);
/// First wait before it is started again, and the longest.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// It ran for so long: the next one is started soon.
const STEADY: Duration = Duration::from_secs(120);
/// How long it may take to end in order.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);

/// Why it does not run.
#[derive(Debug, thiserror::Error)]
enum Error {
    /// Its kubeconfig.
    #[error("failed to make its kubeconfig")]
    Kubeconfig(#[source] crate::apiserver::keys::Error),
    /// The program.
    #[error("failed to run {0:?}; name the program by --push-program, or run it elsewhere")]
    Program(PathBuf, #[source] std::io::Error),
    /// It ended.
    #[error("it ended: {0}")]
    Ended(std::process::ExitStatus),
}

/// The process beside this one.
pub(super) struct Push {
    program: Option<PathBuf>,
    kubeconfig: PathBuf,
    server: String,
    keys: Keys,
    env: Env,
    /// What the Leases of its agents last.
    lease: Duration,
}

impl Push {
    /// By the program that the flag names.
    pub(super) fn new(
        flag: Option<&Path>,
        data_dir: &Path,
        server: String,
        keys: Keys,
        env: Env,
    ) -> Self {
        let beside = || {
            let own = std::env::current_exe().ok()?;
            Some(own.parent()?.join(PROGRAM))
        };
        let program = match flag {
            Some(named) if named.as_os_str() == NOBODY => None,
            Some(named) => Some(named.to_owned()),
            None => beside(),
        };
        Self {
            program,
            kubeconfig: data_dir.join(FILE),
            server,
            keys,
            env,
            lease: LEASE,
        }
    }

    /// Beside a hub that takes clusters for lost which are silent for so long.
    pub(super) fn with_grace(mut self, grace: Duration) -> Self {
        self.lease = lease(grace);
        self
    }

    /// Has it run while it has something to do. Never returns; dropped, it ends the process.
    pub(super) async fn run(&self, client: &Client) {
        let Some(program) = &self.program else {
            return std::future::pending().await;
        };
        let config = WatchConfig {
            metadata_only: true,
            ..WatchConfig::new(&self.env.chance)
        };
        let clusters = Collection::of::<Cluster>(None);
        let mut events = pin!(watch::<Record>(client.clone(), clusters, config));
        let mut joined = Joined::default();
        loop {
            while joined.now.is_empty() {
                if let Some(event) = events.next().await {
                    joined.heard(event);
                }
            }
            let mut keeping = pin!(self.keep(program));
            let mut ends: Option<Instant> = None;
            loop {
                let over = async {
                    match ends {
                        Some(at) => sleep_until(at).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    biased;
                    () = over => break,
                    () = keeping.as_mut() => {}
                    Some(event) = events.next() => joined.heard(event),
                }
                ends = match (joined.now.is_empty(), ends) {
                    (false, _) => None,
                    (true, None) => Some(Instant::now() + LINGERS),
                    (true, ends) => ends,
                };
            }
            tracing::info!("no cluster is left that has no agent of its own");
        }
    }

    /// Keeps the process running; never returns.
    async fn keep(&self, program: &Path) {
        let mut rng = self.env.chance.stream("push");
        let mut backoff = Backoff::new(AGAIN.0, AGAIN.1);
        loop {
            let began = Instant::now();
            let ended = self.once(program).await;
            if began.elapsed() >= STEADY {
                backoff.reset();
            }
            let Err(error) = ended else {
                continue;
            };
            let pause = backoff.next(&mut rng);
            let error = chain(&error).to_string();
            tracing::error!(error, again_in = ?pause, "clusters without an agent are not served");
            sleep(pause).await;
        }
    }

    /// None where its own default does: that may be set by its environment.
    fn lease_flag(&self) -> Option<String> {
        let seconds = self.lease.as_secs();
        (self.lease < LEASE).then(|| format!("--cluster-lease-duration={seconds}s"))
    }

    /// Runs it until it ends, or until its certificate is to be another one.
    async fn once(&self, program: &Path) -> Result<(), Error> {
        self.ensure_kubeconfig()?;
        let failed = |error| Error::Program(program.to_owned(), error);
        let mut process = Command::new(program)
            .args(["push", "--end-with-stdin", "--hub-kubeconfig"])
            .arg(&self.kubeconfig)
            .args(["--health-probe-bind-address=0", "--metrics-bind-address=0"])
            .args(self.lease_flag())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let held = process.stdin.take();
        tracing::info!(
            pid = process.id(),
            "an agent for clusters without one is started"
        );
        tokio::select! {
            biased;
            ended = process.wait() => return Err(ended.map_or_else(failed, Error::Ended)),
            () = self.is_renewed() => {}
        }
        drop(held);
        if timeout(STOP_TIMEOUT, process.wait()).await.is_err() {
            process.kill().await.map_err(failed)?;
        }
        Ok(())
    }

    /// Ends once its certificate is another one: the one that it was started with is old, or was revoked.
    async fn is_renewed(&self) {
        let mut changes = self.keys.changes();
        let mut failing = false;
        loop {
            tokio::select! {
                biased;
                Ok(()) = changes.changed() => {}
                () = sleep(LOOK) => {}
            }
            let renewed = self.ensure_kubeconfig();
            if let Err(error) = &renewed
                && !failing
            {
                let error = chain(error).to_string();
                tracing::error!(
                    error,
                    "clusters without an agent are served as long as that certificate holds"
                );
            }
            failing = renewed.is_err();
            if renewed.unwrap_or(false) {
                return;
            }
        }
    }

    /// Makes its kubeconfig anew unless the one that is there still serves; whether it did.
    fn ensure_kubeconfig(&self) -> Result<bool, Error> {
        let (path, server) = (&self.kubeconfig, &self.server);
        // Dated a second on: one of the same second as a revocation would be revoked with those before it.
        let now = self.env.clock.now() + chrono::Duration::seconds(1);
        kubeconfig::ensure_push(path, &self.keys, server, LIFE, now).map_err(Error::Kubeconfig)
    }
}

/// A Lease that is renewed several times before the hub takes its cluster for lost, in whole seconds.
fn lease(grace: Duration) -> Duration {
    match grace < LEASE {
        true => Duration::from_secs((grace * 4 / 5).as_secs().max(1)),
        false => LEASE,
    }
}

/// What matters of a Cluster.
#[derive(Debug, Deserialize)]
struct Record {
    metadata: Metadata,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    name: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

/// Names of the clusters that were joined.
#[derive(Debug, Default)]
struct Joined {
    now: BTreeSet<String>,
    /// What a list that is under way has told.
    fresh: Option<BTreeSet<String>>,
}

impl Joined {
    fn heard(&mut self, event: Event<Record>) {
        match event {
            Event::Init => self.fresh = Some(BTreeSet::new()),
            Event::Applied(Record { metadata }) => {
                let Metadata { name, annotations } = metadata;
                if annotations.contains_key(JOINED) {
                    if let Some(fresh) = &mut self.fresh {
                        fresh.insert(name.clone());
                    }
                    self.now.insert(name);
                } else {
                    self.forget(&name);
                }
            }
            // It is there, as it was.
            Event::Undecodable(odd) => {
                if let Some(fresh) = &mut self.fresh
                    && self.now.contains(&odd.key.name)
                {
                    fresh.insert(odd.key.name);
                }
            }
            Event::Deleted(key) => self.forget(&key.name),
            Event::InitDone { .. } => {
                if let Some(fresh) = self.fresh.take() {
                    self.now = fresh;
                }
            }
            Event::Disconnected { .. } | Event::Resumed { .. } => {}
        }
    }

    fn forget(&mut self, name: &str) {
        self.now.remove(name);
        if let Some(fresh) = &mut self.fresh {
            fresh.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::keys::revoked::{Entry, Whom};
    use chrono::{DateTime, Utc};
    use common::names::PUSH_USER;
    use common::time::SimClock;
    use serde_json::json;
    use std::sync::Arc;

    fn cluster(name: &str, joined: bool) -> Event<Record> {
        let annotations = if joined {
            json!({JOINED: "s/1"})
        } else {
            json!({})
        };
        let record = json!({"metadata": {"name": name, "annotations": annotations}});
        Event::Applied(serde_json::from_value(record).expect("decodes"))
    }

    #[test]
    fn leases_are_renewed_in_time_for_a_hub_of_less_patience() {
        for (grace, wanted) in [(1, 1), (5, 4), (39, 31), (40, 40), (600, 40)] {
            let lease = lease(Duration::from_secs(grace));
            assert_eq!(lease, Duration::from_secs(wanted), "{grace}");
        }
        assert_eq!(lease(Duration::from_millis(900)), Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_certificate_that_is_revoked_or_old_is_replaced_at_once() {
        let dir = tempfile::tempdir().expect("a folder");
        let start: DateTime<Utc> = "2026-01-01T00:00:00Z".parse().expect("a time");
        let env = Env::seeded(Arc::new(SimClock::starting_at(start)), 1);
        let keys = Keys::open(dir.path(), &env.clock).expect("keys");
        let server = "https://h:1".to_owned();
        let push = Push::new(None, dir.path(), server, keys.clone(), env.clone());
        assert!(push.ensure_kubeconfig().expect("made"));
        let made = || std::fs::read_to_string(&push.kubeconfig).expect("there");
        let renewed = async || timeout(3 * LOOK, push.is_renewed()).await.is_ok();
        let before = made();
        assert!(!renewed().await, "it serves");
        let mut renewal = pin!(push.is_renewed());
        assert!(futures::poll!(renewal.as_mut()).is_pending());
        let now = env.clock.now();
        let entry = Entry {
            whom: Whom::User(PUSH_USER.to_owned()),
            // All that were made until now: each begins five minutes before it is made.
            begun_by: Some(now - chrono::Duration::minutes(5)),
            until: None,
        };
        let revoked_at = Instant::now();
        keys.revoke(|revoked| revoked.add(entry, now))
            .expect("written");
        renewal.await;
        assert_eq!(revoked_at.elapsed(), Duration::ZERO);
        let again = made();
        assert_ne!(again, before);
        assert!(!renewed().await, "the new one serves");
        tokio::time::advance(Duration::from_secs(21 * 24 * 3600)).await;
        assert!(renewed().await, "a third of its life is left");
        assert_ne!(made(), again);
    }

    #[test]
    fn clusters_that_were_joined_are_known() {
        let mut joined = Joined::default();
        let names = |joined: &Joined| joined.now.iter().cloned().collect::<Vec<_>>();
        let done = || Event::InitDone {
            gap: None,
            version: "1".to_owned(),
        };
        for event in [
            Event::Init,
            cluster("m1", false),
            cluster("m2", true),
            done(),
        ] {
            joined.heard(event);
        }
        assert_eq!(names(&joined), ["m2"]);
        joined.heard(cluster("m1", true));
        joined.heard(cluster("m2", false));
        assert_eq!(names(&joined), ["m1"]);
        // A list that does not name it: it is gone, and not before the list is whole.
        joined.heard(Event::Init);
        assert_eq!(names(&joined), ["m1"]);
        joined.heard(done());
        assert_eq!(names(&joined), Vec::<String>::new());
    }
}
