//! Several replicas of `towline-hub run` on one API server: an agent keeps a tunnel to one of them, and any answers for
//! its member.

use super::attacks::ON_ITS_WAY;
use super::door::{Door, served};
use super::hostile::{Hostile, NAME};
use super::rig::{LONG, Stage, apply, ask, ask_with, is_built_in, target, to};
use super::watch::Watch;
use crate::env::{FRONT_PROXY, Identity, Pki, Process, wait_for};
use anyhow::{Context as _, Result, ensure};
use common::client::{ClientOptions, Credentials, HostPort, HubTarget, hub_client};
use common::discovery::CaPin;
use common::env::Env;
use common::names::SYSTEM_NAMESPACE;
use common::time::{Clock as _, SystemClock, to_micro_time};
use common::tunnel::Place;
use http::Request;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::client::Body;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const APISERVICE: &str = "v1alpha1.proxy.towline.dev";
const ANN: [(&str, &str); 1] = [("x-remote-user", "ann")];
/// By which header a replica says that it passes a request on.
const HOP: &str = "towline-hop";
/// Requests at once while a replica is killed.
const LOAD: usize = 12;

/// Two replicas, the first of which leads and has the tunnel of `m1`.
struct Two {
    stage: Stage,
    second: Process,
    at: [HostPort; 2],
}

impl Two {
    async fn set(name: &str) -> Result<Self> {
        ensure!(!is_built_in(), "a built-in hub is one process");
        let stage = Stage::set(name, "impersonate").await?;
        let first = stage.serves_at()?;
        let (second, other) = stage.replica("towline-hub-2").await?;
        let two = Self {
            stage,
            second,
            at: [first, other],
        };
        two.told(2).await?;
        Ok(two)
    }

    /// Waits until agents are told of so many replicas.
    async fn told(&self, replicas: usize) -> Result<()> {
        let maps: Api<ConfigMap> = Api::namespaced(self.stage.fleet.client().await?, "kube-public");
        wait_for(&format!("word of {replicas} replicas"), LONG, async || {
            let place =
                Place::read(&maps.get("cluster-info").await?).map_err(anyhow::Error::msg)?;
            Ok(place.map_or(0, |place| place.servers.len()) == replicas)
        })
        .await
    }

    /// One replica itself, past the hub's API server, for its front proxy.
    async fn target(&self, replica: usize, identity: Option<&Identity>) -> Result<HubTarget> {
        let front = self.stage.lab.hub.front.client(FRONT_PROXY, &[])?;
        let mut target = target(&self.stage, identity.unwrap_or(&front)).await?;
        target.servers = vec![self.at[replica].clone()];
        Ok(target)
    }

    /// A client of one replica itself; nobody without an identity.
    async fn past(&self, replica: usize, identity: Option<&Identity>) -> Result<Client> {
        let mut target = self.target(replica, identity).await?;
        if identity.is_none() {
            target.credentials = Credentials::Anonymous;
        }
        let options = ClientOptions::new("test").one_at_a_time();
        Ok(hub_client(&target, &options, &Env::system())?)
    }

    /// A client of one replica, as the hub's API server.
    async fn front(&self, replica: usize) -> Result<Client> {
        let front = self.stage.lab.hub.front.client(FRONT_PROXY, &[])?;
        self.past(replica, Some(&front)).await
    }
}

async fn watch(client: &Client) -> Result<Watch> {
    let request = Request::get(to("m1", &format!("{MAPS}?watch=true")));
    Watch::by(
        client,
        request.header(ANN[0].0, ANN[0].1).body(Body::empty())?,
    )
    .await
}

async fn make(client: &Client, name: &str) -> Result<()> {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    let path = to("m1", MAPS);
    let made = ask_with(client, "POST", &path, &ANN, Some(&map)).await?;
    made.is(201, name)?;
    Ok(())
}

/// Any replica answers for the member; one is killed under load, and comes back; each is told to go.
#[tokio::test(flavor = "multi_thread")]
async fn access_by_any_replica() -> Result<()> {
    let mut two = Two::set("access-replicas").await?;
    let hub = two.stage.fleet.client().await?;
    let (near, far) = (two.front(0).await?, two.front(1).await?);
    let here = to("m1", &format!("{MAPS}/here"));
    let exec = to("m1", "/api/v1/namespaces/default/pods/a/exec?command=id");
    let socket = [
        ("x-remote-user", "ann"),
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    for client in [&near, &far] {
        ask(client, "GET", &here, &ANN).await?.is(200, "m1")?;
        // Nothing of the kind there, which the member says.
        ask(client, "GET", &exec, &socket)
            .await?
            .is(404, "NotFound")?;
        let bob = [("x-remote-user", "bob")];
        ask(client, "GET", &here, &bob)
            .await?
            .is(403, "clusters/proxy")?;
        // One list of all members has those whose tunnels are elsewhere.
        let all = ask(client, "GET", &to("*", MAPS), &ANN).await?;
        ensure!(all.is(200, "here")?.headers.get("warning").is_none());
        let nobodys = to("m9", MAPS);
        let admin = [("x-remote-user", "x"), ("x-remote-group", "system:masters")];
        ask(client, "GET", &nobodys, &admin)
            .await?
            .is(404, "not found")?;
    }
    let (mut of_near, mut of_far) = (watch(&near).await?, watch(&far).await?);
    make(&far, "first").await?;
    of_near.sees("first").await?;
    of_far.sees("first").await?;

    let member = Hostile::start(&two.stage).await?;
    for replica in 0..2 {
        carries(&two, &member, replica).await?;
    }

    // The one that has the tunnel, and leads, is killed: what went through it breaks off and never looks whole.
    let load = Load::begin(&far, &here).await?;
    two.stage.fleet.hub.kill();
    of_near.breaks().await?;
    of_far.breaks().await?;
    wait_for("an answer of the other replica", LONG, async || {
        ask(&far, "GET", &here, &ANN).await?.is(200, "m1")?;
        Ok(true)
    })
    .await?;
    load.end().await?;
    stood_in(&two, &hub).await?;

    // It comes back, by another certificate: the tunnel is at the other one now.
    two.stage.fleet.hub.restart()?;
    wait_for("an answer of the first replica", LONG, async || {
        // Its authority is another one, and told a moment later.
        let near = two.front(0).await?;
        ask(&near, "GET", &here, &ANN).await?.is(200, "m1")?;
        Ok(true)
    })
    .await?;
    let near = two.front(0).await?;
    let of_near = watch(&near).await?;
    make(&near, "second").await?;

    // The one that leads is told to go: the first one has everything, and the last one takes it back.
    two.second.stop(LONG).await?;
    of_near.breaks().await?;
    two.stage.opened().await?;
    two.told(1).await?;
    two.stage.fleet.hub.stop(LONG).await?;
    let services: Api<APIService> = Api::all(hub.clone());
    ensure!(services.get_opt(APISERVICE).await?.is_none(), "it stays");
    two.told(0).await?;
    // That of the one that was killed has not run out yet.
    let left = leases(&hub).await?;
    ensure!(left.len() <= 1, "Leases stay: {left:?}");
    two.stage.passed().await;
    Ok(())
}

/// The API server is sent to the other one though it does not lead: the Lease of the one that led is renewed here.
async fn stood_in(two: &Two, hub: &Client) -> Result<()> {
    let election: Api<Lease> = Api::namespaced(hub.clone(), SYSTEM_NAMESPACE);
    let led = |lease: Lease| lease.spec.and_then(|spec| spec.holder_identity);
    let holder = led(election.get("towline-hub").await?);
    let ann = two.stage.client("ann", &[]).await?;
    let here = to("m1", &format!("{MAPS}/here"));
    wait_for("an answer through the API server", LONG, async || {
        let now = json!({"spec": {"renewTime": to_micro_time(SystemClock.now())}});
        let renewed = election
            .patch("towline-hub", &PatchParams::default(), &Patch::Merge(&now))
            .await?;
        ensure!(led(renewed) == holder, "another one leads by now");
        ask(&ann, "GET", &here, &[]).await?.is(200, "m1")?;
        Ok(true)
    })
    .await
}

/// What goes both ways arrives, and a reader who takes nothing holds up nobody, whichever replica is asked.
async fn carries(two: &Two, member: &Hostile, replica: usize) -> Result<()> {
    let door = Door::to(&two.target(replica, None).await?, "X-Remote-User: ann\r\n")?;
    let mut taken = door.take_over(&to(NAME, "/echo")).await?;
    for said in ["there", "and back"] {
        taken.write_all(said.as_bytes()).await?;
        let mut back = vec![0; said.len()];
        timeout(LONG, taken.read_exact(&mut back)).await??;
        ensure!(back == said.as_bytes(), "{back:?}");
    }
    let front = two.front(replica).await?;
    let before = member.heard.sent.load(Ordering::Relaxed);
    let endless = Request::get(to(NAME, "/endless")).header(ANN[0].0, ANN[0].1);
    let slow = front.send(endless.body(Body::empty())?).await?;
    ensure!(slow.status() == 200, "{}", slow.status());
    served(&front, &to(NAME, "/plain"), &ANN, "plain").await?;
    served(&front, &to("m1", &format!("{MAPS}/here")), &ANN, "m1").await?;
    let sent = member.heard.sent.load(Ordering::Relaxed) - before;
    ensure!(sent < ON_ITS_WAY, "{sent} bytes lie somewhere");
    Ok(())
}

/// The Leases of replicas.
async fn leases(hub: &Client) -> Result<Vec<Lease>> {
    let leases: Api<Lease> = Api::namespaced(hub.clone(), SYSTEM_NAMESPACE);
    let of = ListParams::default().labels("towline.dev/replica=true");
    Ok(leases.list(&of).await?.items)
}

/// Requests one after the other, many at once. Each fails, or is answered whole.
struct Load {
    asking: JoinSet<Result<()>>,
    stop: CancellationToken,
    failed: Arc<AtomicUsize>,
}

impl Load {
    async fn begin(client: &Client, path: &str) -> Result<Self> {
        let (stop, failed) = (CancellationToken::new(), Arc::new(AtomicUsize::new(0)));
        let answered = Arc::new(AtomicUsize::new(0));
        let mut asking = JoinSet::new();
        for _ in 0..LOAD {
            let (client, path) = (client.clone(), path.to_owned());
            let (stop, failed, answered) = (stop.clone(), failed.clone(), answered.clone());
            asking.spawn(async move {
                while !stop.is_cancelled() {
                    match ask(&client, "GET", &path, &ANN).await {
                        Ok(answer) if answer.code == 200 => {
                            let map: Value = serde_json::from_str(&answer.body)
                                .with_context(|| format!("cut short: {}", answer.body))?;
                            ensure!(map["data"]["cluster"] == "m1", "{map}");
                            answered.fetch_add(1, Ordering::Relaxed);
                        }
                        Ok(answer) => {
                            ensure!(answer.code == 503, "{answer:?}");
                            failed.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(_) => drop(failed.fetch_add(1, Ordering::Relaxed)),
                    }
                }
                Ok(())
            });
        }
        wait_for("answers under load", LONG, async || {
            Ok(answered.load(Ordering::Relaxed) > 10 * LOAD)
        })
        .await?;
        ensure!(failed.load(Ordering::Relaxed) == 0, "some fail beforehand");
        Ok(Self {
            asking,
            stop,
            failed,
        })
    }

    async fn end(mut self) -> Result<()> {
        self.stop.cancel();
        while let Some(ended) = self.asking.join_next().await {
            ended??;
        }
        ensure!(self.failed.load(Ordering::Relaxed) > 0, "nobody noticed");
        Ok(())
    }
}

/// A replica that the test plays: whoever may write Leases of the hub makes one.
struct Played {
    id: String,
    pki: Pki,
}

impl Played {
    async fn make(name: &str, hub: &Client) -> Result<Self> {
        let pki = Pki::new(name)?;
        let pin = CaPin::of_certificate(&pki.ca_der())?.to_string();
        let digest = pin.strip_prefix("sha256:").context("a digest")?;
        let id = format!("towline-hub-access-{}", &digest[..32]);
        let said = json!({
            "peer": "127.0.0.1:9", "service": "127.0.0.1:9", "advertise": ["127.0.0.1:9"],
            "certificateAuthority": pki.ca_pem(),
        });
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {
                "name": id, "namespace": SYSTEM_NAMESPACE,
                "labels": {"towline.dev/replica": "true"},
                "annotations": {"towline.dev/replica-access": said.to_string()},
            },
            "spec": {"holderIdentity": name, "leaseDurationSeconds": 60},
        });
        apply(hub, vec![lease]).await?;
        Ok(Self { id, pki })
    }
}

/// A replica that passes on what was passed on, or that shows no certificate of one, beside one that passes on its own.
#[tokio::test(flavor = "multi_thread")]
async fn access_between_replicas_takes_one_hop() -> Result<()> {
    let mut two = Two::set("access-hop").await?;
    let hub = two.stage.fleet.client().await?;
    let here = to("m1", &format!("{MAPS}/here"));
    let (one, other) = (
        Played::make("one", &hub).await?,
        Played::make("other", &hub).await?,
    );
    let peer = one.pki.client(&one.id, &[])?;
    let (near, far) = (
        two.past(0, Some(&peer)).await?,
        two.past(1, Some(&peer)).await?,
    );
    let own = [("x-remote-user", "ann"), (HOP, &*one.id)];
    wait_for("a replica that is known", LONG, async || {
        ask(&near, "GET", &here, &own).await?.is(200, "m1")?;
        ask(&far, "GET", &here, &own).await?.is(421, "")?;
        Ok(true)
    })
    .await?;
    // It goes no further, and whoever asks is judged again.
    let tunnel = ask(&near, "HEAD", "/tunnels/m1", &own[1..]).await?;
    tunnel.is(200, "")?;
    let none = ask(&far, "HEAD", "/tunnels/m1", &own[1..]).await?;
    none.is(421, "")?;
    let bob = [("x-remote-user", "bob"), (HOP, &*one.id)];
    ask(&near, "GET", &here, &bob)
        .await?
        .is(403, "clusters/proxy")?;
    let nobody = ask(&near, "GET", &here, &own[1..]).await?;
    nobody.is(401, "Unauthorized")?;
    // What another one passed on, and what says nothing of who does.
    for named in [
        &[][..],
        &[(HOP, &*other.id)],
        &[(HOP, &*other.id), (HOP, &*one.id)],
        &[(HOP, &*one.id), (HOP, &*one.id)],
    ] {
        let headers = [&ANN[..], named].concat();
        for path in [&*here, "/tunnels/m1"] {
            let answer = ask(&near, "GET", path, &headers).await?;
            answer.is(508, "passed on between replicas once")?;
        }
    }
    // From the API server the header says nothing: a client may have sent it.
    let front = two.front(1).await?;
    ask(&front, "GET", &here, &own).await?.is(200, "m1")?;
    let asked = ask(&front, "HEAD", "/tunnels/m1", &own).await?;
    asked.is(404, "")?;

    let master = &["system:masters"][..];
    let plane = &two.stage.lab.hub;
    let more = one.pki.client(&one.id, master)?;
    for (why, identity) in [
        ("nobody", None),
        ("a user of that name", Some(plane.pki.client(&one.id, &[])?)),
        ("another one's name", Some(one.pki.client(&other.id, &[])?)),
        ("another name", Some(one.pki.client(FRONT_PROXY, &[])?)),
        ("more than its name", Some(more)),
        ("an administrator", Some(plane.pki.client("admin", master)?)),
    ] {
        let client = two.past(0, identity.as_ref()).await?;
        for (method, path) in [("GET", &*here), ("HEAD", "/tunnels/m1")] {
            let answer = ask(&client, method, path, &own).await?;
            answer.is(401, "").context(why)?;
        }
    }
    // It is a replica as long as its Lease says so.
    let leases: Api<Lease> = Api::namespaced(hub.clone(), SYSTEM_NAMESPACE);
    leases.delete(&one.id, &DeleteParams::default()).await?;
    wait_for("the end of a replica", LONG, async || {
        ask(&near, "GET", &here, &own).await?.is(401, "")?;
        Ok(true)
    })
    .await?;
    two.second.stop(LONG).await?;
    two.stage.passed().await;
    Ok(())
}
