//! Registration under fire: killed after every step, twice at once, with the hub away in between, and
//! again after the certificate has ended.

use anyhow::{Context as _, Result, ensure};
use common::api::cluster::Cluster;
use common::api::work::{APPLIED, Work};
use common::labels::REGISTRATION_ID;
use common::names::{self, AGENT_NAMESPACE};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::time::Duration;

use crate::env::{
    Fleet, Identity, Lab, LabOptions, Parts, Process, Scratch, Seat, Wish, client, shared,
    wait_for, wait_for_some,
};

const WITHIN: Duration = Duration::from_secs(150);

/// One single-use token carries a registration through a kill after each step.
#[tokio::test(flavor = "multi_thread")]
async fn killed_after_each_step_it_ends_as_one_registration() -> Result<()> {
    let scratch = Scratch::new("registration-killed")?;
    let parts = Parts::from_env()?;
    let mut lab = Lab::start(&parts, scratch.path(), &LabOptions::new(1)).await?;
    let mut fleet = Fleet::start(&scratch.join("towline"), &lab.hub).await?;
    let token = fleet.token(&["--cluster", "fire"]).await?;
    let hub = fleet.client().await?;
    let seat = Seat::new(scratch.path(), "agent")?;
    let member = lab.members[0].kubeconfig.clone();
    let wish = Wish::new(&fleet, &member, "fire", &token);
    let spec = seat.spec(&wish, &[])?;
    fleet.hub.kill();

    // The key is stored.
    let mut agent = Process::start(spec)?;
    let pending = wait_for_some("a stored key", WITHIN, async || {
        agent.check()?;
        Ok(seat.stored().filter(|stored| stored["pending"].is_object()))
    });
    let pending = pending.await?["pending"].clone();
    agent.kill();
    let id = text(&pending, "id");
    let name = text(&pending, "csrName");

    // The request is made; nobody judges it.
    let csrs: Api<CertificateSigningRequest> = Api::all(hub.clone());
    agent.restart()?;
    wait_for("the CSR", WITHIN, async || {
        Ok(csrs.get_opt(&name).await?.is_some())
    })
    .await?;
    agent.kill();

    // It is approved; nobody signs it, and the hub is restarted before somebody does.
    lab.hub.manager.signal(Signal::STOP);
    fleet.hub.restart()?;
    wait_for("the approval", WITHIN, async || {
        fleet.hub.check()?;
        Ok(has_condition(&csrs.get(&name).await?, "Approved"))
    })
    .await?;
    agent.restart()?;
    // A built-in hub signs what it approves at once: there nobody waits.
    if !lab.hub.options.builtin {
        seat.wait_said("WaitingForApproval", WITHIN).await?;
    }
    agent.kill();
    fleet.hub.kill();
    lab.hub.manager.signal(Signal::CONT);

    // It is signed; the agent dies when it has stored the certificate.
    wait_for("the signature", WITHIN, async || {
        let status = csrs.get(&name).await?.status.unwrap_or_default();
        Ok(status.certificate.is_some())
    })
    .await?;
    agent.restart()?;
    wait_for("the stored certificate", WITHIN, async || {
        agent.check()?;
        let stored = seat.stored().unwrap_or_default();
        Ok(stored["current"]["certificate"].is_string())
    })
    .await?;
    agent.kill();

    fleet.hub.restart()?;
    agent.restart()?;
    fleet
        .wait_ready("fire", "True", WITHIN)
        .await
        .context("after all kills")?;
    let stored = seat.stored().context("nothing is stored")?;
    ensure!(
        text(&stored["current"], "id") == id,
        "another registration: {id}"
    );
    ensure!(
        in_force(&hub, "fire").await? == id,
        "the hub has another registration"
    );
    let clusters: Api<Cluster> = Api::all(hub.clone());
    let count = clusters.list(&Default::default()).await?.items.len();
    ensure!(count == 1, "{count} Clusters");
    let requests = csrs.list(&Default::default()).await?.items.len();
    ensure!(requests == 1, "{requests} CSRs for one registration");
    wait_token_spent(&hub, &token).await?;
    lab.stop().await;
    scratch.passed();
    Ok(())
}

/// Two replicas that start at once are one registration; one works, and when it dies the other does.
#[tokio::test(flavor = "multi_thread")]
async fn two_replicas_at_once_are_one_registration() -> Result<()> {
    let scratch = Scratch::new("registration-replicas")?;
    let shared = shared().await?;
    let fleet = &shared.fleet;
    let member = shared.member().await?;
    let local = member.client().await?;
    let token = fleet.token(&["--cluster", "twins"]).await?;
    hand_over(&local, fleet, "twins", &token).await?;
    let mut replicas = Vec::new();
    for name in ["one", "two"] {
        let spec = Seat::new(scratch.path(), name)?.bare_spec(&member.kubeconfig)?;
        let spec = spec.env("HOSTNAME", name).args([
            "--leader-elect-lease-duration=4s",
            "--leader-elect-renew-deadline=3s",
            "--leader-elect-retry-period=500ms",
        ]);
        replicas.push(Process::start(spec)?);
    }
    fleet.wait_ready("twins", "True", WITHIN).await?;
    for replica in &mut replicas {
        replica.check()?;
    }
    let hub = fleet.client().await?;
    let secrets: Api<Secret> = Api::namespaced(local.clone(), AGENT_NAMESPACE);
    let stored = secrets
        .get(names::CREDENTIALS_SECRET)
        .await?
        .data
        .unwrap_or_default();
    let document = stored.get("credentials.json").context("no document")?;
    let document: Value = serde_json::from_slice(&document.0)?;
    let id = text(&document["current"], "id");
    ensure!(
        in_force(&hub, "twins").await? == id,
        "the hub has another registration"
    );
    wait_token_spent(&hub, &token).await?;

    let leases: Api<Lease> = Api::namespaced(local.clone(), AGENT_NAMESPACE);
    let leader = holder(&leases).await?;
    let dead = usize::from(leader.starts_with("two"));
    replicas[dead].kill();
    let heartbeat = renewal(&hub, "twins").await?;
    wait_for("another leader", WITHIN, async || {
        Ok(holder(&leases).await? != leader)
    })
    .await?;
    wait_for("its heartbeat", WITHIN, async || {
        Ok(renewal(&hub, "twins").await? != heartbeat)
    })
    .await?;
    ensure!(fleet.ready("twins").await?.as_deref() == Some("True"));
    ensure!(in_force(&hub, "twins").await? == id, "it registered anew");

    // The hub's word is enough to take everything of the agent out of the member.
    fleet.cli(&["unregister", "twins", "--yes"]).await?.ok()?;
    fleet.wait_gone("twins", WITHIN).await?;
    let namespaces: Api<Namespace> = Api::all(local.clone());
    wait_for("the end of the agent's namespace", WITHIN, async || {
        Ok(namespaces.get_opt(AGENT_NAMESPACE).await?.is_none())
    })
    .await?;
    let roles: Api<ClusterRole> = Api::all(local);
    for name in [names::AGENT_NAME, names::AGENT_WORKLOADS] {
        wait_for("the end of its roles", WITHIN, async || {
            Ok(roles.get_opt(name).await?.is_none())
        })
        .await?;
    }
    let alive = 1 - dead;
    ensure!(
        replicas[alive].wait_ended(WITHIN).await?.success(),
        "it did not end well"
    );
    member.give_back();
    scratch.passed();
    Ok(())
}

/// A certificate that ended while the agent was away: a new token bound to the Cluster brings it back
/// with everything in the member as it was, and the older certificates are dead.
#[tokio::test(flavor = "multi_thread")]
async fn an_expired_agent_comes_back_by_a_new_token() -> Result<()> {
    let scratch = Scratch::new("registration-expired")?;
    let shared = shared().await?;
    let fleet = &shared.fleet;
    let member = shared.member().await?;
    let hub = fleet.client().await?;
    let token = fleet.token(&["--cluster", "late"]).await?;
    let seat = Seat::new(scratch.path(), "agent")?;
    let wish = Wish::new(fleet, &member.kubeconfig, "late", &token);
    let mut agent = seat.start(&wish, &["--cert-rotation-checking-interval=1s"])?;
    fleet.wait_ready("late", "True", WITHIN).await?;
    work(&hub, "late", "first").await?;
    let maps: Api<ConfigMap> = Api::namespaced(member.client().await?, "default");
    let made = maps.get("late-first").await?.uid();
    let clusters: Api<Cluster> = Api::all(hub.clone());
    let cluster = clusters.get("late").await?.uid();
    let id = in_force(&hub, "late").await?;
    agent.kill();

    // As the hub's signer would have made it, years ago.
    let mut document = seat.stored().context("nothing is stored")?;
    let earlier = identity(&document["current"]);
    let group = format!("towline:cluster:late:{id}");
    let groups = ["system:karmada:agents", group.as_str()];
    let past = ((2020, 1, 1), (2021, 1, 1));
    let ended = shared
        .hub
        .pki
        .client_valid("system:karmada:agent:late", &groups, past)?;
    document["current"]["certificate"] = json!(ended.cert);
    document["current"]["key"] = json!(ended.key);
    seat.store(&document)?;
    agent.restart()?;
    let said = seat.wait_said("CertificateExpired", WITHIN).await?;
    ensure!(said.message.contains("--replace"), "{said:?}");
    agent.check()?;

    let token = fleet.token(&["--cluster", "late", "--replace"]).await?;
    seat.hand_over(&token)?;
    wait_for("a new registration", WITHIN, async || {
        agent.check()?;
        Ok(in_force(&hub, "late").await? != id)
    })
    .await?;
    work(&hub, "late", "second").await?;
    fleet.wait_ready("late", "True", WITHIN).await?;
    ensure!(
        clusters.get("late").await?.uid() == cluster,
        "the Cluster was made anew"
    );
    ensure!(
        maps.get("late-first").await?.uid() == made,
        "an object was made anew"
    );
    let stored = seat.stored().context("nothing is stored")?;
    ensure!(in_force(&hub, "late").await? == text(&stored["current"], "id"));

    let path = scratch.join("earlier.kubeconfig");
    shared
        .hub
        .kubeconfig_at(&path, &shared.hub.address(), &earlier)?;
    let earlier: Api<Cluster> = Api::all(client(&path).await?);
    let patch = Patch::Merge(json!({}));
    let refused = earlier
        .patch_status("late", &PatchParams::default(), &patch)
        .await;
    ensure!(
        matches!(&refused, Err(kube::Error::Api(status)) if status.code == 403),
        "an earlier certificate got {refused:?}"
    );

    fleet.cli(&["unregister", "late", "--yes"]).await?.ok()?;
    fleet.wait_gone("late", WITHIN).await?;
    ensure!(
        agent.wait_ended(WITHIN).await?.success(),
        "it did not end well"
    );
    wait_for("the end of what the Works made", WITHIN, async || {
        Ok(maps.get_opt("late-first").await?.is_none()
            && maps.get_opt("late-second").await?.is_none())
    })
    .await?;
    member.give_back();
    scratch.passed();
    Ok(())
}

/// The certificate changes under a running agent: same process, same registration, nothing missed.
#[tokio::test(flavor = "multi_thread")]
async fn certificates_rotate_while_the_agent_runs() -> Result<()> {
    let scratch = Scratch::new("registration-rotation")?;
    let shared = shared().await?;
    let fleet = &shared.fleet;
    let member = shared.member().await?;
    let hub = fleet.client().await?;
    let token = fleet.token(&["--cluster", "rotates"]).await?;
    let seat = Seat::new(scratch.path(), "agent")?;
    let wish = Wish::new(fleet, &member.kubeconfig, "rotates", &token);
    // Ten minutes are the shortest life; two in a hundred of it are twelve seconds.
    let mut agent = seat.start(
        &wish,
        &[
            "--cert-expiration-seconds=600",
            "--cert-rotation-remaining-time-threshold=0.98",
            "--cert-rotation-checking-interval=1s",
            "--cluster-status-update-frequency=1s",
        ],
    )?;
    fleet.wait_ready("rotates", "True", WITHIN).await?;
    let id = in_force(&hub, "rotates").await?;
    let process = agent.pid();
    let mut ends = certificate_ends(&hub, "rotates").await?;
    for round in 0..2 {
        wait_for("a renewal shown on the Cluster", WITHIN, async || {
            agent.check()?;
            Ok(certificate_ends(&hub, "rotates").await? != ends)
        })
        .await?;
        ends = certificate_ends(&hub, "rotates").await?;
        work(&hub, "rotates", &format!("round{round}")).await?;
    }
    ensure!(fleet.ready("rotates").await?.as_deref() == Some("True"));
    ensure!(agent.pid() == process && in_force(&hub, "rotates").await? == id);
    let stored = seat.stored().context("nothing is stored")?;
    ensure!(text(&stored["current"], "id") == id);

    fleet
        .cli(&["unregister", "rotates", "--yes", "--keep-workloads"])
        .await?
        .ok()?;
    fleet.wait_gone("rotates", WITHIN).await?;
    ensure!(
        agent.wait_ended(WITHIN).await?.success(),
        "it did not end well"
    );
    ensure!(seat.stored().is_none(), "the registration is still stored");
    // The workloads stay, and nothing on them says whose they were.
    let maps: Api<ConfigMap> = Api::namespaced(member.client().await?, "default");
    for round in 0..2 {
        let name = format!("rotates-round{round}");
        let kept = maps.get(&name).await?;
        let labels = kept.labels();
        ensure!(!labels.contains_key(common::labels::MANAGED), "{labels:?}");
        maps.delete(&name, &Default::default()).await?;
    }
    member.give_back();
    scratch.passed();
    Ok(())
}

fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_default().to_owned()
}

fn identity(registration: &Value) -> Identity {
    Identity {
        cert: text(registration, "certificate"),
        key: text(registration, "key"),
    }
}

fn has_condition(csr: &CertificateSigningRequest, kind: &str) -> bool {
    let conditions = csr
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|all| all.iter().any(|condition| condition.type_ == kind))
}

/// The registration that the hub has in force.
async fn in_force(hub: &Client, cluster: &str) -> Result<String> {
    let clusters: Api<Cluster> = Api::all(hub.clone());
    let found = clusters.get(cluster).await?;
    let id = found.annotations().get(REGISTRATION_ID).cloned();
    id.context("the Cluster names no registration")
}

async fn certificate_ends(hub: &Client, cluster: &str) -> Result<Option<String>> {
    let clusters: Api<Cluster> = Api::all(hub.clone());
    let status = serde_json::to_value(clusters.get(cluster).await?.status)?;
    Ok(status["agent"]["certificateExpirationTime"]
        .as_str()
        .map(str::to_owned))
}

async fn wait_token_spent(hub: &Client, token: &str) -> Result<()> {
    let secrets: Api<Secret> = Api::namespaced(hub.clone(), "kube-system");
    let name = format!("bootstrap-token-{}", &token[..6]);
    wait_for("the end of the spent token", WITHIN, async || {
        Ok(secrets.get_opt(&name).await?.is_none())
    })
    .await
}

async fn holder(leases: &Api<Lease>) -> Result<String> {
    let spec = leases
        .get(names::AGENT_NAME)
        .await?
        .spec
        .unwrap_or_default();
    spec.holder_identity
        .filter(|holder| !holder.is_empty())
        .context("nobody leads")
}

async fn renewal(hub: &Client, cluster: &str) -> Result<String> {
    let leases: Api<Lease> = Api::namespaced(hub.clone(), names::CLUSTER_NAMESPACE);
    let spec = leases.get(cluster).await?.spec.unwrap_or_default();
    Ok(format!("{:?}", spec.renew_time))
}

/// The agent's namespace, and a bootstrap in its Secret.
pub(super) async fn hand_over(
    member: &Client,
    fleet: &Fleet,
    cluster: &str,
    token: &str,
) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(member.clone());
    let namespace = serde_json::from_value(json!({"metadata": {"name": AGENT_NAMESPACE}}))?;
    namespaces
        .create(&PostParams::default(), &namespace)
        .await?;
    let secrets: Api<Secret> = Api::namespaced(member.clone(), AGENT_NAMESPACE);
    let secret = serde_json::from_value(json!({
        "metadata": {"name": names::BOOTSTRAP_SECRET},
        "stringData": {
            "hub": fleet.address,
            "cluster-name": cluster,
            "token": token,
            "ca-cert-hashes": fleet.pin,
        },
    }))?;
    secrets.create(&PostParams::default(), &secret).await?;
    Ok(())
}

/// Writes a Work with one ConfigMap `<cluster>-<name>`, and waits until it is applied.
async fn work(hub: &Client, cluster: &str, name: &str) -> Result<()> {
    let works: Api<Work> = Api::namespaced(hub.clone(), &format!("karmada-es-{cluster}"));
    let work = serde_json::from_value(json!({
        "apiVersion": "work.karmada.io/v1alpha1",
        "kind": "Work",
        "metadata": {"name": name},
        "spec": {"workload": {"manifests": [{
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": format!("{cluster}-{name}"), "namespace": "default"},
            "data": {"a": "1"},
        }]}},
    }))?;
    works.create(&PostParams::default(), &work).await?;
    wait_for(&format!("Work {name} of {cluster}"), WITHIN, async || {
        let status = works.get(name).await?.status.unwrap_or_default();
        Ok(status
            .conditions
            .iter()
            .any(|c| c.type_ == APPLIED && c.status == "True"))
    })
    .await
}
