//! Every way registration can fail: an exit status and a reason of its own, a message that helps, and
//! nothing of anyone else's touched. Each stands beside a registration that succeeds.

use anyhow::{Context as _, Result, ensure};
use common::api::cluster::Cluster;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, DeleteParams};
use std::time::Duration;

use crate::env::{Fleet, Middleman, Pki, Said, Scratch, Seat, Wish, free_port, shared, wait_for};

/// How long an agent may take to see that it cannot register.
const WITHIN: Duration = Duration::from_secs(120);

/// Runs an agent to its end and checks how it ends, and that it says so.
async fn fails(seat: &Seat, wish: &Wish<'_>, flags: &[&str], want: (i32, &str)) -> Result<Said> {
    let (status, reason) = want;
    let mut agent = seat.start(wish, flags)?;
    let ended = agent.wait_ended(WITHIN).await?;
    let log = agent.log_text();
    ensure!(
        ended.code() == Some(status),
        "{reason}: it ended by {ended}\n{log}"
    );
    let said = seat.said()?;
    ensure!(said.phase == "Failed" && said.reason == reason, "{said:?}");
    ensure!(
        log.contains(&said.message),
        "the log lacks {:?}",
        said.message
    );
    let secret = wish.token.split('.').nth(1).unwrap_or(wish.token);
    ensure!(
        !log.contains(secret),
        "{reason}: the log holds the token's secret"
    );
    Ok(said)
}

/// The hub's CA, the token and the name: what the agent finds out by itself or is told.
#[tokio::test(flavor = "multi_thread")]
async fn errors_of_pin_token_and_name() -> Result<()> {
    let scratch = Scratch::new("registration-errors")?;
    let shared = shared().await?;
    let fleet = &shared.fleet;
    let (first, second) = (shared.member().await?, shared.member().await?);
    let seat = |name: &str| Seat::new(scratch.path(), name);
    let (own, other) = (&first.kubeconfig, &second.kubeconfig);

    // The rightful twin, whom nothing of what follows may touch.
    let token = fleet.token(&["--cluster", "errors-a"]).await?;
    let twin = seat("twin")?;
    let mut agent = twin.start(&Wish::new(fleet, own, "errors-a", &token), &[])?;
    fleet
        .wait_ready("errors-a", "True", WITHIN)
        .await
        .context("the twin")?;
    // Ready first, and then the taint of a cluster that was not.
    let clusters: Api<Cluster> = Api::all(fleet.client().await?);
    wait_for("the end of the twin's taints", WITHIN, async || {
        let taints = clusters.get("errors-a").await?.spec.taints;
        Ok(taints.is_empty())
    })
    .await?;
    let before = frozen(fleet, "errors-a").await?;

    let fresh = fleet.token(&["--cluster", "errors-b"]).await?;
    let good = Wish::new(fleet, other, "errors-b", &fresh);
    let pin = format!("sha256:{}", "0".repeat(64));
    let said = fails(
        &seat("pin")?,
        &Wish { pin: &pin, ..good },
        &[],
        (11, "WrongPin"),
    )
    .await?;
    ensure!(said.message.contains("wrong pin"), "{said:?}");

    let gone = "aaaaaa.0123456789abcdef";
    let wish = Wish {
        token: gone,
        ..good
    };
    let said = fails(&seat("deleted")?, &wish, &[], (12, "TokenRejected")).await?;
    ensure!(said.message.contains("aaaaaa"), "{said:?}");

    // Run out by its time: the hub no longer vouches for itself to it.
    let short = fleet.token(&["--cluster", "errors-b", "--ttl=3s"]).await?;
    no_longer_signed(fleet, &short[..6]).await?;
    let wish = Wish {
        token: &short,
        ..good
    };
    fails(&seat("expired")?, &wish, &[], (12, "TokenRejected")).await?;

    let mistyped = format!("{}.0123456789abcdef", &fresh[..6]);
    let wish = Wish {
        token: &mistyped,
        ..good
    };
    fails(&seat("mistyped")?, &wish, &[], (21, "SignatureInvalid")).await?;

    // Bound to errors-b, asking for another name that nobody has.
    let wish = Wish {
        cluster: "errors-c",
        ..good
    };
    let said = fails(&seat("bound")?, &wish, &[], (13, "TokenForAnotherCluster")).await?;
    ensure!(said.message.contains("denied"), "{said:?}");

    let open = fleet.token(&[]).await?;
    let wish = Wish {
        cluster: "errors-a",
        token: &open,
        ..good
    };
    let said = fails(&seat("taken")?, &wish, &[], (14, "ClusterNameTaken")).await?;
    ensure!(said.message.contains("errors-a"), "{said:?}");

    // The same member by another name.
    let wish = Wish {
        member: own,
        cluster: "errors-d",
        token: &open,
        ..good
    };
    let said = fails(&seat("duplicate")?, &wish, &[], (15, "ClusterIdTaken")).await?;
    ensure!(said.message.contains("has been registered"), "{said:?}");

    // None of them spent anything: the bound token still registers, once.
    let right = seat("right")?;
    let mut late = right.start(&good, &[])?;
    fleet
        .wait_ready("errors-b", "True", WITHIN)
        .await
        .context("after the errors")?;
    ensure!(
        frozen(fleet, "errors-a").await? == before,
        "the twin's Cluster was written"
    );
    agent.check()?;

    for (cluster, process) in [("errors-a", &mut agent), ("errors-b", &mut late)] {
        fleet.cli(&["unregister", cluster, "--yes"]).await?.ok()?;
        fleet.wait_gone(cluster, WITHIN).await?;
        let ended = process.wait_ended(WITHIN).await?;
        ensure!(ended.success(), "the agent of {cluster} ended by {ended}");
    }
    for name in ["errors-c", "errors-d"] {
        let clusters: Api<Cluster> = Api::all(fleet.client().await?);
        ensure!(clusters.get_opt(name).await?.is_none(), "{name} exists");
    }
    first.give_back();
    second.give_back();
    scratch.passed();
    Ok(())
}

/// What stands between the agent and its hub or member.
#[tokio::test(flavor = "multi_thread")]
async fn errors_of_the_way_there() -> Result<()> {
    let scratch = Scratch::new("registration-way")?;
    let shared = shared().await?;
    let fleet = &shared.fleet;
    let member = shared.member().await?;
    let token = fleet.token(&["--cluster", "way"]).await?;
    let good = Wish::new(fleet, &member.kubeconfig, "way", &token);
    let seat = |name: &str| Seat::new(scratch.path(), name);
    let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
    let hub = &shared.hub;

    let inspector = Pki::new("Inspector")?.server(&names)?;
    let between = Middleman::start(&hub.address(), &hub.pki, &inspector).await?;
    let address = between.address();
    let wish = Wish {
        hub: &address,
        ..good
    };
    let said = fails(&seat("inspected")?, &wish, &[], (17, "ForeignIssuer")).await?;
    ensure!(said.message.contains("Inspector"), "{said:?}");

    for (name, validity) in [
        ("past", ((2020, 1, 1), (2021, 1, 1))),
        ("future", ((2098, 1, 1), (2099, 1, 1))),
    ] {
        let shows = hub.pki.server_valid(&names, validity)?;
        let between = Middleman::start(&hub.address(), &hub.pki, &shows).await?;
        let address = between.address();
        let wish = Wish {
            hub: &address,
            ..good
        };
        let said = fails(&seat(name)?, &wish, &[], (16, "ClockSkew")).await?;
        ensure!(said.message.contains("clock"), "{said:?}");
    }

    let shows = hub.pki.server(&["hub.elsewhere".to_owned()])?;
    let between = Middleman::start(&hub.address(), &hub.pki, &shows).await?;
    let address = between.address();
    let wish = Wish {
        hub: &address,
        ..good
    };
    fails(&seat("name")?, &wish, &[], (29, "WrongHubName")).await?;

    // Nobody listens: tried until the time is over, and said meanwhile.
    let nowhere = format!("127.0.0.1:{}", free_port()?);
    let wish = Wish {
        hub: &nowhere,
        ..good
    };
    let unreachable = seat("unreachable")?;
    let mut agent = unreachable.start(&wish, &["--registration-timeout=8s"])?;
    let said = unreachable.wait_said("HubUnreachable", WITHIN).await?;
    ensure!(
        said.phase == "Registering" && said.message.contains("refused"),
        "{said:?}"
    );
    let ended = agent.wait_ended(WITHIN).await?;
    ensure!(ended.code() == Some(18), "it ended by {ended}");
    let said = unreachable.said()?;
    ensure!(
        said.phase == "Failed" && said.message.contains(&nowhere),
        "{said:?}"
    );

    let path = scratch.join("nowhere.kubeconfig");
    let identity = member.pki.client("nobody", &[])?;
    member.kubeconfig_at(&path, &nowhere, &identity)?;
    let wish = Wish {
        member: &path,
        ..good
    };
    let timeout = ["--registration-timeout=3s"];
    fails(&seat("member")?, &wish, &timeout, (20, "MemberUnreachable")).await?;

    let mut spec = seat("nothing")?.bare_spec(&member.kubeconfig)?;
    spec = spec.arg("--state-dir").arg(scratch.join("nothing-state"));
    let mut agent = crate::env::Process::start(spec)?;
    let ended = agent.wait_ended(WITHIN).await?;
    ensure!(ended.code() == Some(10), "it ended by {ended}");

    // The rightful twin by the same token, with the hub's own certificate before it.
    let twin = seat("twin")?;
    let mut agent = twin.start(&good, &[])?;
    fleet.wait_ready("way", "True", WITHIN).await?;
    fleet.cli(&["unregister", "way", "--yes"]).await?.ok()?;
    fleet.wait_gone("way", WITHIN).await?;
    ensure!(
        agent.wait_ended(WITHIN).await?.success(),
        "it did not end well"
    );
    member.give_back();
    scratch.passed();
    Ok(())
}

/// A Cluster that was taken away without a word: the agent stops, says so, and deletes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_registration_that_is_gone_is_told() -> Result<()> {
    let scratch = Scratch::new("registration-gone")?;
    let shared = shared().await?;
    let fleet = &shared.fleet;
    let member = shared.member().await?;
    let token = fleet.token(&["--cluster", "gone"]).await?;
    let seat = Seat::new(scratch.path(), "agent")?;
    let wish = Wish::new(fleet, &member.kubeconfig, "gone", &token);
    let mut agent = seat.start(&wish, &["--cluster-status-update-frequency=1s"])?;
    fleet.wait_ready("gone", "True", WITHIN).await?;
    agent.kill();
    // Only a Cluster that is not Ready may be deleted without `towline unregister`.
    fleet
        .wait_ready("gone", "Unknown", Duration::from_secs(120))
        .await?;
    let clusters: Api<Cluster> = Api::all(fleet.client().await?);
    clusters.delete("gone", &DeleteParams::default()).await?;
    fleet.wait_gone("gone", WITHIN).await?;

    agent.restart()?;
    let ended = agent.wait_ended(Duration::from_secs(120)).await?;
    ensure!(ended.code() == Some(28), "it ended by {ended}");
    let said = seat.said()?;
    ensure!(said.reason == "RegistrationGone", "{said:?}");
    ensure!(seat.stored().is_some(), "the registration was deleted");
    member.give_back();
    scratch.passed();
    Ok(())
}

/// Waits until a token has been cleaned away and cluster-info is not signed by it any more.
async fn no_longer_signed(fleet: &Fleet, id: &str) -> Result<()> {
    let client = fleet.client().await?;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "kube-system");
    let maps: Api<ConfigMap> = Api::namespaced(client, "kube-public");
    let secret = format!("bootstrap-token-{id}");
    let key = format!("jws-kubeconfig-{id}");
    wait_for("the end of a token's signature", WITHIN, async || {
        let info = maps.get("cluster-info").await?;
        let data = info.data.unwrap_or_default();
        Ok(secrets.get_opt(&secret).await?.is_none() && !data.contains_key(&key))
    })
    .await
}

/// What nobody else's registration may change: the Cluster but for its status.
async fn frozen(fleet: &Fleet, cluster: &str) -> Result<String> {
    let clusters: Api<Cluster> = Api::all(fleet.client().await?);
    let found = clusters.get(cluster).await?;
    let meta = &found.metadata;
    Ok(serde_json::json!([
        meta.uid,
        meta.generation,
        meta.annotations,
        meta.labels,
        found.spec
    ])
    .to_string())
}
