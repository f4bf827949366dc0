//! Who may have the credentials of members, and where they may be sent: each attack beside its rightful twin.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::rig::{CLUSTERS, Rig, SECRETS, works};
use crate::env::{MERGE, Relay, ask, client};

/// The process beside the hub sees Clusters and reads what `towline join` wrote by name; it has no Work, no other Secret,
/// and writes nothing. Agents of other clusters read none of it.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_but_its_process_reads_what_join_wrote() -> Result<()> {
    let mut rig = Rig::begin("push-rights", 2).await?;
    let near = rig.lab.members[0].kubeconfig.clone();
    rig.join("near", &near, &[]).await?;
    // A cluster with an agent of its own, whose certificate lies in its state.
    let mut agent = rig
        .fleet
        .join(&rig.lab.members[1].kubeconfig, "pulled")
        .await?;
    let own = client(&rig.own).await?;
    let secret = format!("{SECRETS}/near");
    let read = ask(&own, "GET", &secret, None).await?.ok()?.json()?;
    ensure!(read["data"]["token"].is_string(), "no token");
    ask(&own, "GET", CLUSTERS, None).await?.ok()?;

    let patch = (MERGE, r#"{"metadata":{"labels":{"a":"b"}}}"#);
    for cluster in ["pulled", "near"] {
        ask(&own, "GET", &works(cluster), None).await?.forbidden()?;
        let at = format!("{CLUSTERS}/{cluster}");
        ask(&own, "PATCH", &at, Some(patch)).await?.forbidden()?;
        let status = format!("{at}/status");
        ask(&own, "PATCH", &status, Some((MERGE, "{}")))
            .await?
            .forbidden()?;
        ask(&own, "DELETE", &at, None).await?.forbidden()?;
    }
    for place in [
        SECRETS,
        "/api/v1/secrets",
        "/api/v1/namespaces/kube-system/secrets",
        "/api/v1/namespaces/default/secrets/near",
        "/apis/coordination.k8s.io/v1/namespaces/karmada-cluster/leases/near",
    ] {
        ask(&own, "GET", place, None).await?.forbidden()?;
    }
    ask(&own, "PATCH", &secret, Some(patch))
        .await?
        .forbidden()?;
    ask(&own, "DELETE", &secret, None).await?.forbidden()?;

    // What an agent has that serves another cluster: its certificate's user and groups.
    let registration = |cluster: Value| {
        let found = cluster["metadata"]["annotations"]["towline.dev/registration-id"].as_str();
        found.map(str::to_owned).context("not registered")
    };
    for name in ["pulled", "near"] {
        let cluster = rig.get(&format!("{CLUSTERS}/{name}")).await?;
        let id = registration(cluster.context("no Cluster")?)?;
        let subject = common::identity::AgentSubject {
            cluster: common::names::ClusterName::parse(name)?,
            registration: common::identity::RegistrationId::parse(&id).context("no id")?,
        };
        let [first, second] = subject.organizations();
        let groups = [first.as_str(), second.as_str()];
        let file = rig.file(&format!("{name}-agent.kubeconfig"), "")?;
        let file = std::path::Path::new(&file);
        rig.lab
            .hub
            .kubeconfig_for(file, &subject.common_name(), &groups)?;
        let agent = client(file).await?;
        ask(&agent, "GET", &works(name), None).await?.ok()?;
        let other = if name == "near" { "pulled" } else { "near" };
        ask(&agent, "GET", &works(other), None).await?.forbidden()?;
        for place in [SECRETS, &secret, CLUSTERS] {
            ask(&agent, "GET", place, None).await?.forbidden()?;
        }
    }
    agent.check()?;
    agent.kill();
    rig.end().await
}

/// Whoever may write Clusters, and no Secrets, has the token of a member sent nowhere: not by a Cluster that names
/// another's Secret, nor by one whose address, proxy or TLS is changed.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_sent_where_join_said_and_nowhere_else() -> Result<()> {
    let mut rig = Rig::begin("push-sent", 1).await?;
    let near = rig.lab.members[0].kubeconfig.clone();
    rig.join("near", &near, &[]).await?;
    let evil = Relay::start(&rig.lab.members[0].address()).await?;
    let to_evil = format!("https://{}", evil.address());
    let cluster = rig
        .get(&format!("{CLUSTERS}/near"))
        .await?
        .context("no Cluster")?;
    let joined = cluster["metadata"]["annotations"]["towline.dev/joined"].clone();
    let made = |name: &str, secret: Value| {
        json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
            "metadata": {"name": name, "annotations": {"towline.dev/joined": joined}},
            "spec": {"syncMode": "Push", "apiEndpoint": to_evil, "secretRef": secret}})
    };
    // Another cluster's Secret, and one of another namespace that looks like its own.
    let others = json!({"namespace": "karmada-cluster", "name": "near"});
    rig.create(CLUSTERS, &made("thief", others)).await?;
    rig.logs("names another Secret than karmada-cluster/thief")
        .await?;
    let token = rig
        .get(&format!("{SECRETS}/near"))
        .await?
        .context("no Secret")?;
    let copy = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "elsewhere"},
        "data": token["data"]});
    rig.create("/api/v1/namespaces/default/secrets", &copy)
        .await?;
    let elsewhere = json!({"namespace": "default", "name": "elsewhere"});
    rig.create(CLUSTERS, &made("elsewhere", elsewhere)).await?;
    rig.logs("names another Secret than karmada-cluster/elsewhere")
        .await?;
    // One that has no Secret.
    let own = json!({"namespace": "karmada-cluster", "name": "nobody"});
    rig.create(CLUSTERS, &made("nobody", own)).await?;
    rig.logs("karmada-cluster/nobody").await?;

    // The right Cluster, with another way to it.
    let at = format!("{CLUSTERS}/near");
    let here = cluster["spec"]["apiEndpoint"].clone();
    rig.patch(&at, &json!({"spec": {"apiEndpoint": to_evil}}))
        .await?;
    rig.logs("spec.apiEndpoint of the Cluster is not what")
        .await?;
    rig.patch(
        &at,
        &json!({"spec": {"apiEndpoint": here, "proxyURL": format!("http://{}", evil.address())}}),
    )
    .await?;
    rig.logs("spec.proxyURL of the Cluster is not what").await?;
    rig.patch(
        &at,
        &json!({"spec": {"proxyURL": null, "insecureSkipTLSVerification": true}}),
    )
    .await?;
    rig.logs("spec.insecureSkipTLSVerification is set").await?;
    ensure!(evil.accepted() == 0, "somebody came");

    // Put back as it was, it is served.
    rig.patch(&at, &json!({"spec": {"insecureSkipTLSVerification": null}}))
        .await?;
    rig.work("near", ("default", "after"), "True").await?;
    rig.ready("near", &["True"]).await?;
    ensure!(evil.accepted() == 0, "somebody came");
    let log = rig.push.log_text();
    let token = rig
        .get(&format!("{SECRETS}/near"))
        .await?
        .context("no Secret")?;
    let token = token["data"]["token"]
        .as_str()
        .context("no token")?
        .to_owned();
    let token = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, token)?;
    ensure!(
        !log.contains(&String::from_utf8(token)?),
        "the token is logged"
    );
    rig.end().await
}
