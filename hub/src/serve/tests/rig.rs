//! Servers and a hub on one thread without a socket, and what happened on them, in order.

use super::super::*;
use crate::apiserver::audit::Audit;
use crate::apiserver::http::Link;
use crate::apiserver::http::listener::Listener;
use crate::apiserver::serve::{Assembled, Foundation, Front, Running};
use crate::apiserver::store::{self, MemoryDisk, Store};
use bytes::Bytes;
use common::time::SimClock;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use serde_json::Value;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::JoinHandle;

pub(super) const CLUSTERS: &str = "/apis/cluster.karmada.io/v1alpha1/clusters";
pub(super) const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/karmada-cluster/leases";
pub(super) const NAMESPACES: &str = "/api/v1/namespaces";
const MERGE: &str = "application/merge-patch+json";

/// The flags of a hub, all as they are unless told otherwise.
#[derive(clap::Parser)]
struct Flags {
    #[command(flatten)]
    clusters: ClusterArgs,
    #[command(flatten)]
    liveness: LivenessArgs,
    #[command(flatten)]
    telemetry: TelemetryArgs,
}

/// What a hub with these flags does.
pub(super) fn config(flags: &[&str]) -> Config {
    let flags = ["towline-hub"].iter().chain(flags);
    let flags = <Flags as clap::Parser>::parse_from(flags);
    let mut config = flags.clusters.into_config(flags.telemetry).expect("flags");
    config.grace.signs = flags.liveness.into_config().expect("flags");
    config
}

/// What happened, in order. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Trace(Arc<Mutex<String>>);

impl Trace {
    pub(super) fn note(&self, text: &str) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push_str(text);
    }

    pub(super) fn whole(&self) -> String {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.clone()
    }
}

/// Two traces that are to be one: says where they part.
pub(super) fn assert_same(one: &str, again: &str) {
    let differs = one.lines().zip(again.lines()).enumerate();
    let mut differs = differs.filter(|(_, (one, again))| one != again);
    if let Some((number, (one, again))) = differs.next() {
        panic!("two runs of one seed part at line {number}:\n{one}\n{again}");
    }
    assert_eq!(
        one.len(),
        again.len(),
        "one run goes on where the other ends"
    );
}

/// Runs something on one thread under simulated time.
pub(super) fn alone<T>(run: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build();
    runtime.expect("a runtime").block_on(run)
}

/// A request with a body of JSON, or with none for null.
pub(super) async fn ask(link: &Link, method: &str, path: &str, body: Value) -> Response<Bytes> {
    let content = if method == "PATCH" {
        MERGE
    } else {
        "application/json"
    };
    let body = match body {
        Value::Null => Bytes::new(),
        body => body.to_string().into(),
    };
    let request = Request::builder().method(method).uri(path);
    let request = request
        .header("content-type", content)
        .body(Full::new(body));
    let Ok(answer) = tower::ServiceExt::oneshot(link.clone(), request.expect("a request")).await;
    let (head, body) = answer.into_parts();
    let body = body.collect().await.expect("a body").to_bytes();
    Response::from_parts(head, body)
}

/// Notes every event of a collection, in whole lines.
pub(super) async fn watch(link: Link, path: &'static str, note: impl Fn(&str)) {
    let request = Request::get(format!("{path}?watch=1&resourceVersion=0"));
    let request = request.body(Full::new(Bytes::new())).expect("a request");
    let Ok(answer) = tower::ServiceExt::oneshot(link, request).await;
    let (mut body, mut rest) = (answer.into_body(), Vec::new());
    while let Some(frame) = body.frame().await {
        // A large event comes in several frames.
        rest.extend_from_slice(&frame.expect("a frame").into_data().unwrap_or_default());
        let end = rest
            .iter()
            .rposition(|it| *it == b'\n')
            .map_or(0, |at| at + 1);
        let lines: Vec<u8> = rest.drain(..end).collect();
        if !lines.is_empty() {
            note(&String::from_utf8_lossy(&lines));
        }
    }
}

/// An API server over a disk in memory.
pub(super) struct Served {
    pub(super) router: Router,
    pub(super) keys: Keys,
    server: Assembled,
    writer: JoinHandle<()>,
    admin: AdminState,
}

impl Served {
    /// One over what is on this disk, whose keys lie in `dir`, and are made there unless they exist.
    pub(super) async fn on(disk: &MemoryDisk, dir: &Path, address: &str, env: &Env) -> Self {
        let opened = Store::simulated(disk, store::Options::default());
        if opened.is_err() {
            // One that is killed at what it writes while it opens goes no further.
            tokio::task::yield_now().await;
        }
        let (store, writer) = opened.expect("opens");
        let writer = tokio::spawn(writer);
        let admin = AdminState::default();
        let server = Assembled::new(Foundation {
            store,
            keys: Keys::open(dir, &env.clock).expect("keys"),
            audit: Audit::default(),
            data_dir: dir.to_owned(),
            address: address.to_owned(),
            busy: None,
            admin: admin.clone(),
            env: env.clone(),
        });
        let server = server.await.expect("a server");
        Self {
            router: server.router.clone(),
            keys: server.keys.clone(),
            server,
            writer,
            admin,
        }
    }

    /// Lets others in over what `listener` accepts.
    pub(super) fn listen(
        self,
        listener: impl Listener,
        at: SocketAddr,
        front: Front,
    ) -> (Running, JoinHandle<()>) {
        let running = self.server.listen(listener, at, front);
        (running.expect("TLS"), self.writer)
    }

    pub(super) async fn end(self) {
        self.server.end().await;
        self.writer.await.expect("ends");
    }

    /// Ends it in the middle of whatever it does.
    pub(super) async fn kill(self) {
        self.writer.abort();
        drop(self.server);
        // It says that it was aborted.
        let _ = self.writer.await;
    }
}

/// A hub on such a server, with its controllers.
pub(super) struct SimulatedHub {
    pub(super) served: Served,
    term: CancellationToken,
    running: JoinHandle<Result<(), run::Error>>,
}

impl SimulatedHub {
    /// At an address that agents are told. `client` makes what the controllers ask by.
    pub(super) async fn begin(
        dir: &Path,
        address: SocketAddr,
        env: &Env,
        client: impl FnOnce(&Router) -> Client,
    ) -> Self {
        Self::on(&MemoryDisk::default(), dir, address, &[], env, client).await
    }

    /// A new one with these flags, which nobody reaches but by its router, and what it has of the world.
    pub(super) async fn alone(dir: &Path, flags: &[&str]) -> (Self, Env) {
        common::tls::install_provider();
        let clock = SimClock::starting_at("2026-01-01T00:00:00Z".parse().expect("a time"));
        let env = Env::seeded(Arc::new(clock), 1);
        let address = SocketAddr::from(([192, 0, 2, 1], 6443));
        let disk = MemoryDisk::default();
        let hub = Self::on(&disk, dir, address, flags, &env, Router::client).await;
        (hub, env)
    }

    /// One over what is on this disk, with these flags.
    pub(super) async fn on(
        disk: &MemoryDisk,
        dir: &Path,
        address: SocketAddr,
        flags: &[&str],
        env: &Env,
        client: impl FnOnce(&Router) -> Client,
    ) -> Self {
        let served = Served::on(disk, dir, &address.to_string(), env).await;
        let config = config(flags);
        let nobody = Some(Path::new("none"));
        let keys = served.keys.clone();
        let hub = Hub {
            push: Push::new(nobody, dir, String::new(), keys, env.clone()),
            data_dir: dir.to_owned(),
            admin_kubeconfig: None,
            addresses: Addresses::new(address, &[]),
            advertised: Vec::new(),
            env: env.clone(),
            router: served.router.clone(),
            keys: served.keys.clone(),
            admin_life: chrono::Duration::days(1),
            admin: served.admin.clone(),
        };
        let client = client(&served.router);
        let mut known = hub.install(&client).await;
        while known.is_err() {
            // As it would be started anew.
            sleep(Duration::from_secs(1)).await;
            known = hub.install(&client).await;
        }
        let known = known.expect("installs");
        let controllers = InProcess::new(config, client, &served.admin, env.clone());
        let controllers = controllers.hearing(served.router.signs());
        let term = CancellationToken::new();
        let stop = term.clone();
        let running = tokio::spawn(async move { controllers.run(&stop, known).await });
        Self {
            served,
            term,
            running,
        }
    }

    pub(super) async fn end(self) {
        self.rest().await.end().await;
    }

    /// Lets others in over what `listener` accepts, for as long as what is returned lives.
    pub(super) fn listen(
        self,
        listener: impl Listener,
        at: SocketAddr,
        front: Front,
    ) -> impl Sized {
        (self.served.listen(listener, at, front), self.running)
    }

    /// Whether its controllers have ended by themselves.
    pub(super) fn has_ended(&self) -> bool {
        self.running.is_finished()
    }

    /// Ends its controllers alone.
    pub(super) async fn rest(self) -> Served {
        self.term.cancel();
        let ended = self.running.await.expect("joins");
        ended.expect("ends in order");
        self.served
    }

    /// Ends it in the middle of whatever it does.
    pub(super) async fn kill(self) {
        self.running.abort();
        if let Err(error) = self.running.await
            && error.is_panic()
        {
            std::panic::resume_unwind(error.into_panic());
        }
        self.served.kill().await;
    }
}
