//! Certificates that end and an authority that is replaced, while the agent stays Ready.

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as STANDARD;
use chrono::{DateTime, Utc};
use common::discovery::{CLUSTER_INFO, PUBLIC_NAMESPACE, Published};
use common::time::{Clock as _, SystemClock};
use common::tls;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use serde_json::{Value, json};
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

use super::rig::{CLUSTER, Hub, LONG, Side, ask, passed, two_ports};
use crate::env::{JSON, ProcessSpec, Relay, Scratch, binary, client, wait_for};

/// Life of the server's certificate: some are made and end in the course of the test.
const LIFE: Duration = Duration::from_secs(15);

/// The first certificate of a PEM, when it ends, and who issued it.
fn leaf(pem: &str) -> Result<(Vec<u8>, DateTime<Utc>, String)> {
    let first = tls::certificates(pem.as_bytes())?.swap_remove(0);
    let (_, ends) = tls::validity(&first)?;
    Ok((first.to_vec(), ends, tls::issuer(&first)?))
}

/// Who issued the certificate by which the agent works.
fn issuer_of(side: &Side) -> Result<String> {
    let kept = side.kept("certificate")?;
    Ok(leaf(kept.as_str().context("no certificate is kept")?)?.2)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_certificate_ends_and_agents_stay_ready() -> Result<()> {
    let scratch = Scratch::new("serve-certificate")?;
    let (ports, addresses) = two_ports()?;
    let life = format!("--server-certificate-lifetime={}s", LIFE.as_secs());
    let data = scratch.join("data");
    let hub = Hub::start(scratch.path(), &data, ports[0], &addresses[..1], &[&life]).await?;
    // Whatever comes later has to shake hands anew: no connection outlives a certificate.
    let relay = Relay::start(&hub.address).await?;
    let side = Side::join(scratch.path(), &hub, &relay.address().to_string()).await?;
    let before = hub.ready().await?;

    for _ in 0..2 {
        let (first, ends, _) = leaf(&hub.key_file("server.crt")?)?;
        wait_for("the end of a server certificate", LONG, async || {
            let (now, _, _) = leaf(&hub.key_file("server.crt")?)?;
            Ok(SystemClock.now() > ends && now != first)
        })
        .await?;
        let connections = relay.accepted();
        relay.close_established();
        hub.heartbeat().await?;
        ensure!(relay.accepted() > connections, "nothing was connected anew");
    }
    ensure!(hub.ready().await? == before, "Ready has changed meanwhile");
    passed(scratch, hub, side).await
}

/// How an agent stands in a rotation, as `towline-hub ca status` says: whether it has followed.
async fn followed(hub: &Hub, cluster: &str) -> Result<bool> {
    let said = hub.command(&["ca", "status", "-o", "json"]).await?.ok()?;
    let status: Value = serde_json::from_str(&said.stdout)?;
    ensure!(status["hubRuns"] == true, "{status}");
    let mut agents = status["agents"].as_array().into_iter().flatten();
    let agent = agents.find(|agent| agent["cluster"] == cluster);
    let agent = agent.with_context(|| format!("{cluster} is not in {status}"))?;
    Ok(agent["followed"] == true)
}

async fn wait_followed(hub: &Hub, cluster: &str) -> Result<()> {
    wait_for("an agent to follow", LONG, async || {
        followed(hub, cluster).await
    })
    .await
}

/// A step that is refused for the sake of one agent, and changes nothing.
async fn refused_for(hub: &Hub, laggard: &str, other: &str, why: &str) -> Result<()> {
    let before = hub.key_file("ca.crt")?;
    let said = hub.command(&["ca", "rotate"]).await?;
    ensure!(said.code != 0, "it went on: {}", said.stdout);
    let names = |name: &str| said.stderr.contains(&format!("  {name} (Ready"));
    ensure!(
        names(laggard) && !names(other) && said.stderr.contains(why),
        "{}",
        said.stderr
    );
    ensure!(hub.key_file("ca.crt")? == before, "something was changed");
    Ok(())
}

/// Takes a step. What it says holds when it says so: the hub publishes these many authorities.
async fn step(hub: &Hub, flags: &[&str], word: &str, published: usize) -> Result<()> {
    let said = hub
        .command(&[&["ca", "rotate"][..], flags].concat())
        .await?
        .ok()?;
    ensure!(said.stdout.contains(word), "{}", said.stdout);
    let maps: Api<ConfigMap> = Api::namespaced(hub.client().await?, PUBLIC_NAMESPACE);
    let found = Published::read(&maps.get(CLUSTER_INFO).await?).map_err(anyhow::Error::msg)?;
    ensure!(
        found.authorities.len() == published,
        "{} are published",
        found.authorities.len()
    );
    closed_for_its_owner(&hub.data)
}

/// Everything in a data directory belongs to its owner and is closed for everybody else.
fn closed_for_its_owner(data: &Path) -> Result<()> {
    let owner = std::fs::metadata(data)?.uid();
    let mut folders = vec![data.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            // What is being written has another name for a moment.
            let Ok(found) = std::fs::metadata(&path) else {
                continue;
            };
            ensure!(
                found.uid() == owner && found.mode() & 0o077 == 0,
                "{} belongs to {} with mode {:o}",
                path.display(),
                found.uid(),
                found.mode()
            );
            if found.is_dir() {
                folders.push(path);
            }
        }
    }
    Ok(())
}

/// A hub that runs as another user than this test, where that is root: commands on its directory are root's.
struct Guest {
    /// Where that user may look; other folders of a test are root's own.
    _base: TempDir,
    program: ProcessSpec,
    data: PathBuf,
}

/// Nobody of this machine.
const GUEST: u32 = 64_123;

impl Guest {
    fn new(logs: &Path) -> Result<Self> {
        let base = tempfile::tempdir()?;
        let data = base.path().join("data");
        let program = base.path().join("towline-hub");
        std::fs::copy(binary("towline-hub")?, &program)?;
        std::fs::create_dir(&data)?;
        std::fs::set_permissions(&data, Permissions::from_mode(0o700))?;
        let mut spec = ProcessSpec::new("towline-hub-serve", &program, logs);
        if rustix::process::geteuid().is_root() {
            std::fs::set_permissions(base.path(), Permissions::from_mode(0o755))?;
            chown(&data, Some(GUEST), Some(GUEST))?;
            let user = GUEST.to_string();
            spec = ProcessSpec::new("towline-hub-serve", Path::new("setpriv"), logs)
                .args(["--reuid", &user, "--regid", &user, "--clear-groups"])
                .args(["--pdeathsig", "KILL", "--"])
                .arg(&program);
        }
        Ok(Self {
            _base: base,
            program: spec,
            data,
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_authority_is_replaced_and_agents_stay_ready() -> Result<()> {
    let scratch = Scratch::new("serve-authority")?;
    let (ports, addresses) = two_ports()?;
    let guest = Guest::new(scratch.path())?;
    let hub = Hub::start_spec(
        guest.program.clone(),
        &guest.data,
        ports[0],
        &addresses[..1],
        &[],
        &[],
    )
    .await?;
    let relay = Relay::start(&hub.address).await?;
    let address = relay.address().to_string();
    let mut side = Side::join(scratch.path(), &hub, &address).await?;
    let second = scratch.join("m2");
    std::fs::create_dir(&second)?;
    let mut other = Side::join_as("m2", &second, &hub, &address).await?;
    let before = hub.ready().await?;
    let old_kubeconfig = scratch.join("old.kubeconfig");
    std::fs::copy(hub.kubeconfig(), &old_kubeconfig)?;
    let old = leaf(&hub.key_file("ca.crt")?)?.2;
    let anew = async |hub: &Hub| {
        relay.close_established();
        hub.heartbeat().await
    };

    // Both are published; the old one signs. One agent is away meanwhile.
    other.kill();
    step(&hub, &[], "still signs", 2).await?;
    let trusts = |count: usize| {
        move |kept: &Value| {
            let pem = kept.as_str().unwrap_or_default().as_bytes();
            tls::certificates(pem).is_ok_and(|kept| kept.len() == count)
        }
    };
    side.wait_kept("ca", "the agent to trust both", trusts(2))
        .await?;
    ensure!(issuer_of(&side)? == old, "it renewed for nothing");
    anew(&hub).await?;
    wait_followed(&hub, CLUSTER).await?;
    refused_for(&hub, "m2", CLUSTER, "has not read").await?;
    other.restart()?;
    wait_followed(&hub, "m2").await?;

    // The new one signs; agents do not wait for the end of their certificates. One is away again.
    other.kill();
    step(&hub, &[], "new certificate authority signs", 2).await?;
    wait_for("a certificate by the new authority", LONG, async || {
        Ok(issuer_of(&side)? != old && leaf(&hub.key_file("server.crt")?)?.2 != old)
    })
    .await?;
    anew(&hub).await?;
    wait_followed(&hub, CLUSTER).await?;
    refused_for(&hub, "m2", CLUSTER, "still has a certificate by").await?;

    // Only the new one is left, at the cost of the one that is away.
    step(&hub, &["--force"], "complete", 1).await?;
    side.wait_kept("ca", "the agent to let go of the old one", trusts(1))
        .await?;
    anew(&hub).await?;
    hub.deliver("after-rotation").await?;
    ensure!(side.holds("after-rotation").await?, "nothing was delivered");
    let stale = client(&old_kubeconfig).await?;
    let refused = ask(&stale, "/version").await;
    ensure!(
        refused.is_err(),
        "the old authority still counts: {refused:?}"
    );

    // What it keeps is enough for a new start, of the agent and of the hub.
    side.restart()?;
    hub.heartbeat().await?;
    let mut hub = hub;
    hub.stop().await?;
    hub.process.restart()?;
    hub.wait_ready().await?;
    hub.heartbeat().await?;
    ensure!(hub.ready().await? == before, "Ready has changed meanwhile");
    other.end_member().await;
    passed(scratch, hub, side).await
}

/// Keys that the hub could not read at its next start are told now.
#[tokio::test(flavor = "multi_thread")]
async fn keys_that_cannot_be_read_are_told_by_readyz() -> Result<()> {
    let scratch = Scratch::new("serve-keys")?;
    let (ports, addresses) = two_ports()?;
    let data = scratch.join("data");
    let mut hub = Hub::start(scratch.path(), &data, ports[0], &addresses[..1], &[]).await?;
    let (file, aside) = (data.join("pki/ca.key"), data.join("pki/aside"));
    std::fs::rename(&file, &aside)?;
    let client = hub.client().await?;
    wait_for("/readyz to name the keys", LONG, async || {
        let said = crate::env::ask(&client, "GET", "/readyz?verbose", None).await?;
        Ok(said.code == 500 && format!("{said:?}").contains("keys"))
    })
    .await?;
    std::fs::rename(&aside, &file)?;
    hub.wait_ready().await?;
    hub.stop().await?;
    scratch.passed();
    Ok(())
}

/// The administrator's certificate ends while the hub runs.
#[tokio::test(flavor = "multi_thread")]
async fn the_administrators_certificate_is_renewed_before_it_ends() -> Result<()> {
    let scratch = Scratch::new("serve-administrator")?;
    let (ports, addresses) = two_ports()?;
    let data = scratch.join("data");
    let life = format!("--admin-certificate-lifetime={}s", LIFE.as_secs());
    let mut hub = Hub::start(scratch.path(), &data, ports[0], &addresses[..1], &[&life]).await?;
    let shown = |hub: &Hub| -> Result<(Vec<u8>, DateTime<Utc>)> {
        let text = std::fs::read_to_string(hub.kubeconfig())?;
        let config: Value = serde_yaml::from_str(&text)?;
        let chain = &config["users"][0]["user"]["client-certificate-data"];
        let chain = STANDARD.decode(chain.as_str().context("no certificate")?)?;
        let (first, ends, _) = leaf(std::str::from_utf8(&chain)?)?;
        Ok((first, ends))
    };
    let (first, ends) = shown(&hub)?;
    wait_for("another certificate", LONG, async || {
        let (now, until) = shown(&hub)?;
        Ok(now != first && until > ends && SystemClock.now() < until)
    })
    .await?;
    wait_for("the end of the first", LONG, async || {
        Ok(SystemClock.now() > ends)
    })
    .await?;
    ensure!(ask(&hub.client().await?, "/readyz").await? == "ok");
    hub.stop().await?;
    scratch.passed();
    Ok(())
}

/// Tokens of ServiceAccounts outlive the key that signed them, unless that is revoked.
#[tokio::test(flavor = "multi_thread")]
async fn the_key_of_service_accounts_is_replaced() -> Result<()> {
    let scratch = Scratch::new("serve-accounts")?;
    let (ports, addresses) = two_ports()?;
    let data = scratch.join("data");
    let mut hub = Hub::start(scratch.path(), &data, ports[0], &addresses[..1], &[]).await?;
    let client = hub.client().await?;
    let token = async |seconds: i64| -> Result<Value> {
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"expirationSeconds": seconds}})
        .to_string();
        let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
        let made = crate::env::ask(&client, "POST", path, Some((JSON, &body))).await?;
        made.ok()?.json()
    };
    let holds = async |token: &Value| -> Result<bool> {
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
            "spec": {"token": token["status"]["token"]}})
        .to_string();
        let path = "/apis/authentication.k8s.io/v1/tokenreviews";
        let said = crate::env::ask(&client, "POST", path, Some((JSON, &body))).await?;
        Ok(said.ok()?.json()?["status"]["authenticated"] == true)
    };
    // However long it is asked for, a year is the most.
    let first = token(i64::from(u32::MAX)).await?;
    ensure!(
        first["spec"]["expirationSeconds"] == 365 * 24 * 3600,
        "{first}"
    );
    let rotate = ["service-account-key", "rotate"];
    let said = hub.command(&rotate).await?.ok()?.stdout;
    ensure!(said.contains("hold until they end"), "{said}");
    let second = token(3600).await?;
    ensure!(
        holds(&first).await? && holds(&second).await?,
        "one does not hold"
    );
    hub.command(&[&rotate[..], &["--revoke"]].concat())
        .await?
        .ok()?;
    let third = token(3600).await?;
    ensure!(holds(&third).await?, "a new token does not hold");
    ensure!(
        !holds(&first).await? && !holds(&second).await?,
        "a token of a revoked key holds"
    );
    closed_for_its_owner(&data)?;
    hub.stop().await?;
    scratch.passed();
    Ok(())
}
