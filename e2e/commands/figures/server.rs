//! A server to measure: started on nothing, started again, and what its processes hold in memory.

use anyhow::{Context as _, Result, ensure};
use common::client::{ClientOptions, kubeconfig_client};
use common::env::Env;
use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

use crate::commands::up::Foundation;
use crate::commands::vitals::{mib, processor_time, resident};
use crate::env::{Fleet, Parts, Plane, PlaneOptions, Scratch};

const READY_WITHIN: Duration = Duration::from_secs(120);
/// How often readiness is asked for: the figure is as exact as this.
const LOOK: Duration = Duration::from_millis(5);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a hub may take to end in order.
const STOP_WITHIN: Duration = Duration::from_secs(20);

/// How a hub ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::commands) enum Ends {
    /// It is told to, and gives its Lease up.
    InOrder,
    /// It is killed.
    Killed,
}

/// How people call it.
pub(in crate::commands) fn name(kind: Foundation) -> &'static str {
    match kind {
        Foundation::Builtin => "built-in",
        Foundation::Real => "kube-apiserver",
    }
}

/// A hub that runs.
pub(in crate::commands) struct Server {
    plane: Plane,
    fleet: Fleet,
}

impl Server {
    /// Starts it, and Towline on it with these flags.
    pub(in crate::commands) async fn start(
        kind: Foundation,
        scratch: &Scratch,
        flags: &[&str],
    ) -> Result<Self> {
        let parts = Parts::from_env()?;
        let mut options = PlaneOptions::hub().hub_flags(flags);
        options.builtin = kind == Foundation::Builtin;
        parts.build(&options.parts()).await?;
        let dir = scratch.join(name(kind));
        let plane = Plane::start(&parts, &dir.join("plane"), options).await?;
        let fleet = Fleet::start(&dir.join("towline"), &plane).await?;
        Ok(Self { plane, fleet })
    }

    /// Takes everything away and starts on nothing; returns after how long it was ready.
    pub(in crate::commands) async fn start_empty(&mut self) -> Result<Duration> {
        self.plane.apiserver.kill();
        self.plane.etcd.kill();
        self.plane.empty()?;
        let took = self.start_again().await?;
        // What `towline init` had made on it is gone too.
        if !self.plane.options.builtin {
            self.fleet.cli(&["init"]).await?.ok()?;
            self.fleet.hub.restart()?;
        }
        Ok(took)
    }

    /// Kills it and starts it on what it has; returns after how long it was ready.
    pub(in crate::commands) async fn start_again(&mut self) -> Result<Duration> {
        // It ends when its server is away for long, and its tokens may be those of other data.
        self.plane.manager.kill();
        self.plane.apiserver.kill();
        self.plane.etcd.kill();
        let began = Instant::now();
        self.plane.etcd.restart()?;
        self.plane.apiserver.restart()?;
        while !self.is_ready().await {
            self.plane.apiserver.check()?;
            ensure!(
                began.elapsed() < READY_WITHIN,
                "not ready within {READY_WITHIN:?}"
            );
            sleep(LOOK).await;
        }
        let took = began.elapsed();
        self.plane.manager.restart()?;
        if self.fleet.hub.ended()?.is_some() {
            self.fleet.hub.restart()?;
        }
        Ok(took)
    }

    /// Ends the process that decides and starts it again. Where that is no API server itself, its API server stays.
    pub(in crate::commands) async fn decide_again(&mut self, how: Ends) -> Result<()> {
        if self.plane.options.builtin {
            ensure!(how == Ends::Killed, "a built-in hub is only killed");
            self.start_again().await?;
            return Ok(());
        }
        if how == Ends::InOrder {
            self.fleet.hub.stop(STOP_WITHIN).await?;
        }
        self.fleet.hub.restart()
    }

    async fn is_ready(&self) -> bool {
        let asked = async {
            // A client of its own: nothing of the process before is remembered.
            let client = self.writer().await?;
            send(&client, Method::GET, "/readyz", Vec::new()).await
        };
        matches!(timeout(Duration::from_secs(5), asked).await, Ok(Ok(())))
    }

    /// A client with every right and a connection of its own.
    pub(in crate::commands) async fn writer(&self) -> Result<Client> {
        let options = ClientOptions::new("lab figures").with_timeout(REQUEST_TIMEOUT);
        let path = &self.plane.kubeconfig;
        let (client, _) = kubeconfig_client(Some(path), None, &options, &Env::system()).await?;
        Ok(client)
    }

    /// Resident memory by process, in MiB.
    pub(in crate::commands) fn memory(&mut self) -> Result<Vec<(String, f64)>> {
        self.of_each(|pid| Ok(mib(resident(pid)?)))
    }

    /// Processor time that each process has used.
    pub(in crate::commands) fn processor_time(&mut self) -> Result<Vec<(String, Duration)>> {
        self.of_each(processor_time)
    }

    fn of_each<T>(&mut self, of: impl Fn(u32) -> Result<T>) -> Result<Vec<(String, T)>> {
        let hub = self.fleet.hub.pid();
        let hub = hub.map(|pid| ("towline-hub".to_owned(), pid));
        let all = self.plane.pids().into_iter().chain(hub);
        all.map(|(name, pid)| Ok((name, of(pid)?))).collect()
    }

    /// Ends it.
    pub(in crate::commands) async fn stop(mut self) {
        self.fleet.hub.kill();
        self.plane.stop().await;
    }
}

/// Sends a request and reads the answer to its end; it has to be a success.
pub(in crate::commands) async fn send(
    client: &Client,
    method: Method,
    path: &str,
    body: Vec<u8>,
) -> Result<()> {
    let answer = ask(client, method, path, body).await?;
    let status = answer.status();
    let body = answer.into_body().collect().await;
    let body = body
        .with_context(|| format!("no answer to {path}"))?
        .to_bytes();
    anyhow::ensure!(
        status.is_success(),
        "{path}: {status}: {}",
        String::from_utf8_lossy(&body)
    );
    Ok(())
}

/// Sends a request; the answer's body is left to the caller.
pub(in crate::commands) async fn ask(
    client: &Client,
    method: Method,
    path: &str,
    body: Vec<u8>,
) -> Result<Response<Body>> {
    let kind = match method {
        Method::PATCH => "application/merge-patch+json",
        _ => "application/json",
    };
    let request = Request::builder()
        .method(&method)
        .uri(path)
        .header(http::header::CONTENT_TYPE, kind)
        .body(Body::from(body))?;
    let answer = client.send(request).await;
    answer.with_context(|| format!("{method} {path} failed"))
}
