//! Floods by two agents and by strangers, each of them against what the others need of a built-in hub:
//! renewals of their Leases, probes, and an administrator who gets in.
//!
//! `TOWLINE_FLOOD_SECONDS=60` makes each flood that long, with a hundred agents, and prints how long renewals
//! took; without it, a flood lasts until a few agents have renewed some times.

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use common::api::cluster::{Cluster, READY};
use common::time::{Clock as _, SystemClock};
use futures::future::try_join_all;
use kube::Client;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use super::SOON;
use super::wire::{connector, stall};
use crate::env::{
    JSON, JSON_PATCH, MERGE, Parts, Plane, PlaneOptions, PreparedHub, Registered, Scratch, Towline,
    ask, wait_for,
};

/// Of a flood without a length: how many agents, and how often each renews meanwhile.
const AGENTS: usize = 8;
const RENEWALS: usize = 10;
/// Of one with a length.
const AGENTS_LONG: usize = 100;
/// Between two renewals of one agent; ten times as often as an agent does.
const RENEW_EVERY: Duration = Duration::from_secs(1);
/// What the hub may hold at any time, in MiB: a build for tests, with all that the floods keep.
const MEMORY_MAX: u64 = 1024;
/// Requests of an attacker at a time.
const AT_ONCE: usize = 16;

/// How long, when it is said.
fn length() -> Option<Duration> {
    let said = std::env::var("TOWLINE_FLOOD_SECONDS").ok()?;
    said.parse().ok().map(Duration::from_secs)
}

struct Field {
    hub: PreparedHub,
    agents: Vec<Registered>,
    attackers: [Registered; 2],
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dear_requests_of_two_agents_are_their_own_matter() -> Result<()> {
    let field = Field::begin("flood-dear").await?;
    let zeros = vec!["0"; 100_000].join(",");
    let patch = format!(r#"[{{"op":"add","path":"/status","value":{{"conditions":[{zeros}]}}}}]"#);
    let patch = Arc::new(patch);
    field
        .hold("dear requests", |attacker| {
            let status = format!("{}/w/status?dryRun=All", attacker.works_path());
            let (client, patch) = (attacker.client.clone(), patch.clone());
            move || {
                let (client, patch, status) = (client.clone(), patch.clone(), status.clone());
                async move {
                    let content = Some((JSON_PATCH, patch.as_str()));
                    let _ = ask(&client, "PATCH", &status, content).await;
                    let _ = ask(&client, "GET", "/openapi/v3/api/v1", None).await;
                }
            }
        })
        .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_that_take_no_answer_shut_nobody_out() -> Result<()> {
    let field = Field::begin("flood-strangers").await?;
    let connector = connector(&field.hub.plane, true, "h2")?;
    field
        .hold("strangers that take no answer", |_| {
            let connector = connector.clone();
            move || {
                let connector = connector.clone();
                async move {
                    // One after the other, as soon as the server has ended the last.
                    if let Ok(mut stream) = connector.connect().await {
                        let _ = stall(&mut stream, "/version", 200).await;
                    }
                }
            }
        })
        .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificate_requests_of_two_agents_are_few() -> Result<()> {
    let field = Field::begin("flood-requests").await?;
    let requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let key = common::chance::secret::key_pair()?;
    let request = rcgen::CertificateParams::new(Vec::new())?.serialize_request(&key)?;
    let request = Arc::new(BASE64_STANDARD.encode(request.pem()?));
    let number = Arc::new(AtomicUsize::new(0));
    field
        .hold("certificate requests", |attacker| {
            let (client, request) = (attacker.client.clone(), request.clone());
            let number = number.clone();
            move || {
                let (client, request) = (client.clone(), request.clone());
                let name = format!("towline-{:032}", number.fetch_add(1, Ordering::Relaxed));
                async move {
                    let body = json!({"metadata": {"name": name}, "spec": {
                        "request": *request, "signerName": "kubernetes.io/kube-apiserver-client",
                        "expirationSeconds": 3600, "usages": ["digital signature", "client auth"]}});
                    let body = body.to_string();
                    let _ = ask(&client, "POST", requests, Some((JSON, &body))).await;
                }
            }
        })
        .await
}

impl Field {
    async fn begin(name: &str) -> Result<Self> {
        let scratch = Scratch::new(name)?;
        let mut options = PlaneOptions::hub();
        options.builtin = true;
        let plane = Plane::start(&Parts::from_env()?, &scratch.join("hub"), options).await?;
        let hub = PreparedHub {
            admin: plane.client().await?,
            towline: Towline::new(scratch.path())?,
            plane,
            scratch,
        };
        let count = length().map_or(AGENTS, |_| AGENTS_LONG);
        let mut agents = Vec::new();
        for number in 0..count {
            agents.push(hub.register(&format!("agent-{number}")).await?);
        }
        let attackers = [hub.register("evil-1").await?, hub.register("evil-2").await?];
        for agent in agents.iter().chain(&attackers) {
            wait_for("an agent's rights", SOON, async || {
                Ok(renew(&agent.client, &agent.lease_path()).await? == 200)
            })
            .await?;
            let status = format!("{}/status", agent.cluster_path());
            let now = now("%Y-%m-%dT%H:%M:%SZ");
            let ready = json!({"status": {"conditions": [{"type": READY, "status": "True",
                "reason": "ClusterReady", "message": "well", "lastTransitionTime": now}]}});
            let body = ready.to_string();
            ask(&agent.client, "PATCH", &status, Some((MERGE, &body)))
                .await?
                .ok()?;
        }
        for attacker in &attackers {
            let work = json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
                "metadata": {"name": "w"}, "spec": {"workload": {"manifests": []}}});
            let body = work.to_string();
            ask(
                &hub.admin,
                "POST",
                &attacker.works_path(),
                Some((JSON, &body)),
            )
            .await?
            .ok()?;
        }
        Ok(Self {
            hub,
            agents,
            attackers,
        })
    }

    /// Floods from both attackers, and holds that the others get on.
    async fn hold<F, T>(mut self, what: &str, attack: impl Fn(&Registered) -> F) -> Result<()>
    where
        F: Fn() -> T + Clone + Send + Sync + 'static,
        T: Future<Output = ()> + Send + 'static,
    {
        let pids = self.hub.plane.pids();
        let pid = pids.first().context("a hub has a process")?.1;
        let before = memory(pid)?;
        let stop = CancellationToken::new();
        let sent = Arc::new(AtomicUsize::new(0));
        let mut floods = JoinSet::new();
        for attacker in &self.attackers {
            let attack = attack(attacker);
            for _ in 0..AT_ONCE {
                let (attack, stop, sent) = (attack.clone(), stop.clone(), sent.clone());
                floods.spawn(async move {
                    let endless = async {
                        loop {
                            attack().await;
                            sent.fetch_add(1, Ordering::Relaxed);
                        }
                    };
                    tokio::select! {
                        biased;
                        () = stop.cancelled() => {}
                        () = endless => {}
                    }
                });
            }
        }
        let most = Arc::new(AtomicUsize::new(0));
        let renewing = self.agents.iter().enumerate().map(|(number, agent)| {
            let begin = RENEW_EVERY.mul_f64(number as f64 / self.agents.len() as f64);
            renewals(agent, begin)
        });
        let renewing = try_join_all(renewing);
        let took = tokio::select! {
            biased;
            took = renewing => took?,
            failed = self.others(pid, &most) => return failed,
        };
        stop.cancel();
        while floods.join_next().await.is_some() {}
        let mut took: Vec<Duration> = took.into_iter().flatten().collect();
        took.sort_unstable();
        let at = |percent: usize| took[(took.len() * percent / 100).min(took.len() - 1)];
        let most = most.load(Ordering::Relaxed);
        eprintln!(
            "{what}: {} sent; {} renewals, p50 {:?}, p99 {:?}, longest {:?}; memory {before} MiB before, {most} at most",
            sent.load(Ordering::Relaxed),
            took.len(),
            at(50),
            at(99),
            at(100),
        );
        self.nobody_is_unknown().await?;
        self.requests_are_few().await?;
        wait_for("memory to come back", SOON, async || {
            let now = memory(pid)?;
            ensure!(now <= before + MEMORY_MAX / 2, "it is {now} MiB");
            Ok(true)
        })
        .await?;
        self.hub.plane.stop().await;
        self.hub.scratch.passed();
        Ok(())
    }

    /// Probes and an administrator, again and again; ends only when one of them fails.
    async fn others(&self, pid: u32, most: &AtomicUsize) -> Result<()> {
        let mut ticks = interval(RENEW_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            for path in ["/livez", "/readyz", "/healthz"] {
                let request = super::wire::request("GET", path, "");
                super::wire::exchange(&self.hub.plane, true, &request)
                    .await?
                    .is(&[200])?;
            }
            let admin = self.hub.plane.client().await?;
            ask(&admin, "GET", "/api/v1/namespaces/default", None)
                .await?
                .ok()?;
            let now = memory(pid)?;
            ensure!(now <= MEMORY_MAX, "the hub holds {now} MiB");
            most.fetch_max(usize::try_from(now)?, Ordering::Relaxed);
        }
    }

    async fn nobody_is_unknown(&self) -> Result<()> {
        let clusters: Api<Cluster> = Api::all(self.hub.admin.clone());
        for agent in &self.agents {
            let cluster = clusters.get(&agent.name).await?;
            let ready = cluster.condition(READY).context("no condition Ready")?;
            ensure!(ready.status == "True", "{}: {ready:?}", agent.name);
        }
        Ok(())
    }

    /// Whatever was sent, each attacker has no more certificate requests than an agent may have.
    async fn requests_are_few(&self) -> Result<()> {
        use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
        let requests: Api<CertificateSigningRequest> = Api::all(self.hub.admin.clone());
        let all = requests.list(&ListParams::default()).await?;
        ensure!(all.items.len() <= 2 * 20, "{} are kept", all.items.len());
        Ok(())
    }
}

/// Renews for as long as a flood lasts; how long each took. One that is refused fails.
async fn renewals(agent: &Registered, begin: Duration) -> Result<Vec<Duration>> {
    let path = agent.lease_path();
    let began = Instant::now();
    let mut ticks = tokio::time::interval_at(began + begin, RENEW_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut took = Vec::new();
    let goes_on = |done: usize| match length() {
        Some(length) => began.elapsed() < length,
        None => done < RENEWALS,
    };
    while goes_on(took.len()) {
        ticks.tick().await;
        let asked = Instant::now();
        let code = timeout(SOON, renew(&agent.client, &path))
            .await
            .with_context(|| format!("no answer to a renewal of {}", agent.name))??;
        ensure!(
            code == 200,
            "a renewal of {} is answered {code}",
            agent.name
        );
        took.push(asked.elapsed());
    }
    Ok(took)
}

fn now(format: &str) -> String {
    SystemClock.now().format(format).to_string()
}

async fn renew(client: &Client, path: &str) -> Result<u16> {
    let now = now("%Y-%m-%dT%H:%M:%S%.6fZ");
    let body: Value = json!({"spec": {"renewTime": now}});
    let answer = ask(client, "PATCH", path, Some((MERGE, &body.to_string()))).await?;
    Ok(answer.code)
}

/// Resident memory of a process, in MiB.
fn memory(pid: u32) -> Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.context("no VmRSS")?.trim().trim_end_matches(" kB");
    Ok(kib.trim().parse::<u64>()? / 1024)
}
