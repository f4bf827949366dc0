//! The client layer on a real API server, with a relay in between that breaks things.

use anyhow::{Context as _, Result, ensure};
use common::chance::Chance;
use common::client::{
    ClientOptions, Credentials, HostPort, HubTarget, Problem, classify, hub_client,
    kubeconfig_client,
};
use common::env::Env;
use common::leader::{self, Election};
use common::proxy::ProxyChoice;
use common::tls::CertificateSwap;
use common::watch::{Collection, Event, WatchConfig, watch};
use futures::StreamExt as _;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{Api, PostParams};
use std::pin::pin;
use std::time::Duration;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::env::{ConnectProxy, Parts, Plane, PlaneOptions, Relay, Scratch};

/// How long anything may take; the machine is shared.
const SOON: Duration = Duration::from_secs(150);
const OPTIONS: ClientOptions = ClientOptions::new("test");

async fn plane(scratch: &Scratch) -> Result<Plane> {
    Plane::start(
        &Parts::from_env()?,
        &scratch.path().join("hub"),
        PlaneOptions::hub(),
    )
    .await
}

/// A client with every right that goes through a relay.
async fn through(
    plane: &Plane,
    scratch: &Scratch,
    relay: &Relay,
    options: &ClientOptions,
) -> Result<Client> {
    let admin = plane.pki.client("lab", &["system:masters"])?;
    let path = scratch
        .path()
        .join(format!("relay-{}.kubeconfig", relay.address().port()));
    plane.kubeconfig_at(&path, &relay.address().to_string(), &admin)?;
    let made = kubeconfig_client(Some(&path), None, options, &Env::system()).await?;
    Ok(made.0)
}

/// Creates an object of a kind that no controller of the lab writes to `default` by itself.
async fn create(client: &Client, name: &str) -> Result<()> {
    let api: Api<Secret> = Api::namespaced(client.clone(), "default");
    let mut secret = Secret::default();
    secret.metadata.name = Some(name.to_owned());
    api.create(&PostParams::default(), &secret).await?;
    Ok(())
}

/// An idle watch on a connection that is dropped silently goes on elsewhere, with nothing lost, soon
/// enough for a Work of that moment to be applied within a minute. Requests go on at their deadline.
#[tokio::test(flavor = "multi_thread")]
async fn silence_is_noticed_and_nothing_is_lost() -> Result<()> {
    let scratch = Scratch::new("network-silence")?;
    let mut plane = plane(&scratch).await?;
    let direct = plane.client().await?;
    let relay = Relay::start(&plane.address()).await?;
    let watching = through(&plane, &scratch, &relay, &OPTIONS).await?;
    let events = watch::<Secret>(
        watching,
        Collection::of::<Secret>(Some("default")),
        WatchConfig::new(&Chance::from_os()),
    );
    let mut events = pin!(events);
    while !matches!(events.next().await, Some(Event::InitDone { .. })) {}
    create(&direct, "before").await?;
    let Some(Event::Applied(before)) = events.next().await else {
        anyhow::bail!("the watch is not open")
    };
    ensure!(
        before.metadata.name.as_deref() == Some("before"),
        "{before:?}"
    );

    let quick = OPTIONS.with_timeout(Duration::from_secs(10));
    let asking = through(&plane, &scratch, &relay, &quick).await?;
    asking.apiserver_version().await?;

    relay.silence_established();
    create(&direct, "meanwhile").await?;
    let begun = Instant::now();

    let problem = asking
        .apiserver_version()
        .await
        .map(|_| ())
        .map_err(|error| classify(&error));
    ensure!(matches!(problem, Err(Problem::Timeout(_))), "{problem:?}");
    asking
        .apiserver_version()
        .await
        .context("a new connection works")?;

    let mut told = Vec::new();
    loop {
        let event = timeout(SOON, events.next()).await.context("no event")?;
        match event.context("a watch has no end")? {
            Event::Disconnected { .. } => told.push("disconnected"),
            Event::Resumed { gap } => {
                ensure!(gap >= Duration::from_secs(5), "{gap:?}");
                told.push("resumed");
            }
            Event::Applied(secret) if secret.metadata.name.as_deref() == Some("meanwhile") => break,
            other => anyhow::bail!("{other:?}"),
        }
    }
    assert_eq!(told, ["disconnected", "resumed"]);
    println!(
        "an object written into the silence was seen after {:?}",
        begun.elapsed()
    );
    plane.stop().await;
    scratch.passed();
    Ok(())
}

/// Several addresses, IPv6 literals, a CONNECT proxy with a password, and a certificate that is
/// exchanged while the client runs.
#[tokio::test(flavor = "multi_thread")]
async fn ways_to_the_hub_and_exchanged_certificates_work() -> Result<()> {
    let scratch = Scratch::new("network-ways")?;
    let mut plane = plane(&scratch).await?;
    let proxy = ConnectProxy::start(Some("lab:s3cret")).await?;
    let ipv6 = Relay::start_on("[::1]:0".parse()?, &plane.address()).await?;
    let dead = HostPort::new("127.0.0.1", crate::env::free_port()?);
    let swap = CertificateSwap::empty();
    let ways = [
        (vec![dead, plane.address().parse()?], ProxyChoice::direct()),
        (
            vec![ipv6.address().to_string().parse()?],
            ProxyChoice::direct(),
        ),
        (
            vec![ipv6.address().to_string().parse()?],
            ProxyChoice::explicit(&format!("http://lab:s3cret@{}", proxy.address()))?,
        ),
    ];
    for (servers, proxy) in ways {
        let target = HubTarget {
            servers,
            ca_pem: plane.pki.ca_pem().into_bytes(),
            proxy,
            credentials: Credentials::Certificate(swap.clone()),
        };
        let client = hub_client(&target, &OPTIONS, &Env::system())?;
        for user in ["first", "second"] {
            let identity = plane.pki.client(user, &["some"])?;
            swap.set(identity.cert.as_bytes(), identity.key.as_bytes())?;
            let api: Api<SelfSubjectReview> = Api::all(client.clone());
            let review = api
                .create(&PostParams::default(), &SelfSubjectReview::default())
                .await?;
            let known = review
                .status
                .and_then(|s| s.user_info)
                .and_then(|u| u.username);
            assert_eq!(known.as_deref(), Some(user), "by {:?}", target.servers);
        }
    }
    assert_eq!((proxy.tunnels(), proxy.refused()), (2, 0));
    assert!(ipv6.accepted() >= 4);
    plane.stop().await;
    scratch.passed();
    Ok(())
}

/// A leader whose API server falls silent stops before the other begins; one that is told to go on
/// goes on until the other's renewal shows.
#[tokio::test(flavor = "multi_thread")]
async fn leaders_follow_the_lease_through_silence() -> Result<()> {
    let scratch = Scratch::new("network-leaders")?;
    let mut plane = plane(&scratch).await?;
    let relay = Relay::start(&plane.address()).await?;
    let direct = plane.client().await?;
    let stop = CancellationToken::new();
    let mut pairs = Vec::new();
    for (lease, keep) in [("strict", false), ("steady", true)] {
        let run = |client: Client, who: &str| {
            let mut election = Election::new("default", lease, who);
            election.lead_while_unreachable = keep;
            leader::run(election, client, Env::system(), stop.clone())
        };
        let mut first = run(through(&plane, &scratch, &relay, &OPTIONS).await?, "first");
        first.leading.wait_for(|leads| *leads).await?;
        pairs.push((first, run(direct.clone(), "second"), keep));
    }
    relay.black_hole(true);
    let begun = Instant::now();
    for (first, second, keep) in &mut pairs {
        if !*keep {
            timeout(SOON, first.leading.wait_for(|leads| !*leads)).await??;
            ensure!(!*second.leading.borrow(), "two leaders at once");
        }
        timeout(SOON, second.leading.wait_for(|leads| *leads)).await??;
        assert_eq!(*first.leading.borrow(), *keep);
    }
    println!("followed after {:?}", begun.elapsed());
    relay.black_hole(false);
    for (first, _, _) in &mut pairs {
        timeout(SOON, first.leading.wait_for(|leads| !*leads)).await??;
    }
    stop.cancel();
    for (first, second, _) in pairs {
        first.task.await?;
        second.task.await?;
    }
    plane.stop().await;
    scratch.passed();
    Ok(())
}
