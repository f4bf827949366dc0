//! Agents with credentials made by hand, and what Karmada's own parts find on a hub of ours.

use anyhow::{Context as _, Result, ensure};
use common::api::cluster::Cluster;
use common::api::interpreter::UNREAD;
use common::api::work::{APPLIED, Work};
use common::conditions::is_true;
use common::names::{AGENT_NAMESPACE, CLUSTER_NAMESPACE};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::Client;
use kube::api::{Api, DeleteParams, PostParams};
use kube::client::Body;
use serde_json::{Value, json};
use std::time::Duration;

use crate::env::{
    CLUSTER_READY_WITHIN, Fleet, JSON, Lab, LabOptions, Parts, Process, ProcessSpec, Scratch, ask,
    binary, wait_for,
};

/// How long anything may take on a machine that builds beside the lab.
const LONG: Duration = Duration::from_secs(180);
const CLUSTER: &str = "handmade";
const WORKS: &str = "karmada-es-handmade";
/// A user of the operator's choice, in no group of ours.
const USER: &str = "handmade-agent";

async fn post(client: &Client, path: &str, body: &Value) -> Result<()> {
    ask(client, "POST", path, Some((JSON, &body.to_string())))
        .await?
        .ok()?;
    Ok(())
}

/// What Karmada's registration gives an agent: to update where ours are given patches, and to make its
/// Cluster and its Lease.
async fn grant_cluster_wide(admin: &Client) -> Result<()> {
    let rules = json!([
        {"apiGroups": ["cluster.karmada.io"], "resources": ["clusters"], "resourceNames": [CLUSTER],
            "verbs": ["get"]},
        {"apiGroups": ["cluster.karmada.io"], "resources": ["clusters"], "verbs": ["create", "list", "watch"]},
        {"apiGroups": ["cluster.karmada.io"], "resources": ["clusters/status"],
            "resourceNames": [CLUSTER], "verbs": ["update"]},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch", "update"]},
    ]);
    bind(
        admin,
        "/apis/rbac.authorization.k8s.io/v1/",
        ["ClusterRole", "clusterroles"],
        &rules,
    )
    .await
}

async fn grant_works(admin: &Client) -> Result<()> {
    let rules = json!([
        {"apiGroups": ["work.karmada.io"], "resources": ["works"],
            "verbs": ["get", "create", "list", "watch", "update", "delete"]},
        {"apiGroups": ["work.karmada.io"], "resources": ["works/status"], "verbs": ["update"]},
    ]);
    let place = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{WORKS}/");
    bind(admin, &place, ["Role", "roles"], &rules).await
}

async fn bind(admin: &Client, place: &str, [kind, plural]: [&str; 2], rules: &Value) -> Result<()> {
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
        "metadata": {"name": USER}, "rules": rules});
    post(admin, &format!("{place}{plural}"), &role).await?;
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": format!("{kind}Binding"),
        "metadata": {"name": USER},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": USER},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}]});
    let plural = plural.replace("roles", "rolebindings");
    post(admin, &format!("{place}{plural}"), &binding).await
}

/// An agent that has no more rights on the hub than Karmada's registration gives makes its Cluster and its
/// Lease, carries Works out and reports them, by updates; and while its namespace in the member is missing
/// it says that, and blames no other replica.
#[tokio::test(flavor = "multi_thread")]
async fn rights_as_karmada_gives_them_are_enough() -> Result<()> {
    let scratch = Scratch::new("by-hand")?;
    let parts = Parts::from_env()?;
    let mut lab = Lab::start(&parts, &scratch.join("lab"), &LabOptions::new(1)).await?;
    let fleet = Fleet::start(&scratch.join("towline"), &lab.hub).await?;
    let admin = fleet.client().await?;
    grant_cluster_wide(&admin).await?;

    let kubeconfig = lab
        .hub
        .kubeconfig_for(&scratch.join("hub.kubeconfig"), USER, &[])?;
    let spec = ProcessSpec::new(
        "agent-by-hand",
        &binary("towline-agent")?,
        &scratch.join("towline"),
    )
    .arg("run")
    .arg("--kubeconfig")
    .arg(&lab.members[0].kubeconfig)
    .arg("--hub-kubeconfig")
    .arg(kubeconfig)
    .args(["--cluster-name", CLUSTER, "--register-cluster"])
    .args(["--health-probe-bind-address=0", "--metrics-bind-address=0"])
    .args(["--cluster-success-threshold=1s"]);
    let agent = Process::start(spec)?;
    wait_for("the missing namespace to be told", LONG, async || {
        Ok(agent
            .log_text()
            .contains("kubectl create namespace towline-system"))
    })
    .await?;
    ensure!(
        !agent.log_text().contains("another replica"),
        "it blames somebody"
    );
    let member = lab.members[0].client().await?;
    let namespaces: Api<Namespace> = Api::all(member.clone());
    let namespace = serde_json::from_value(json!({"metadata": {"name": AGENT_NAMESPACE}}))?;
    namespaces
        .create(&PostParams::default(), &namespace)
        .await?;

    fleet
        .wait_ready(CLUSTER, "True", CLUSTER_READY_WITHIN)
        .await?;
    let clusters: Api<Cluster> = Api::all(admin.clone());
    let cluster = clusters.get(CLUSTER).await?;
    let id = namespaces.get("kube-system").await?.metadata.uid;
    ensure!(cluster.spec.id == id, "its id is {:?}", cluster.spec.id);
    let leases: Api<Lease> = Api::namespaced(admin.clone(), CLUSTER_NAMESPACE);
    wait_for("a Lease that is renewed", LONG, async || {
        let lease = leases.get(CLUSTER).await?.spec.unwrap_or_default();
        Ok(lease.renew_time.is_some() && lease.holder_identity.as_deref() == Some(CLUSTER))
    })
    .await?;

    // The namespace is the hub's to make; then the rights in it can be given.
    let on_hub: Api<Namespace> = Api::all(admin.clone());
    wait_for("the execution namespace", LONG, async || {
        Ok(on_hub.get_opt(WORKS).await?.is_some())
    })
    .await?;
    grant_works(&admin).await?;
    let works: Api<Work> = Api::namespaced(admin.clone(), WORKS);
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "carried", "namespace": "default"}, "data": {"k": "v"}});
    let work = |name: &str| {
        serde_json::from_value::<Work>(
            json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
            "metadata": {"name": name}, "spec": {"workload": {"manifests": [map]}}}),
        )
    };
    works.create(&PostParams::default(), &work("w")?).await?;
    wait_for("Applied of the Work", LONG, async || {
        let status = works.get("w").await?.status.unwrap_or_default();
        Ok(is_true(&status.conditions, APPLIED))
    })
    .await?;
    works.delete("w", &DeleteParams::default()).await?;
    wait_for("the end of the Work", LONG, async || {
        Ok(works.get_opt("w").await?.is_none())
    })
    .await?;
    let maps: Api<ConfigMap> = Api::namespaced(member, "default");
    ensure!(
        maps.get_opt("carried").await?.is_none(),
        "it left something behind"
    );
    // The Lease is renewed every ten seconds; what is there already is updated, too.
    for resource in ["leases", "clusters/status", "works", "works/status"] {
        let told = format!("updating resource=\"{resource}\"");
        wait_for(&format!("{resource} to be updated"), LONG, async || {
            Ok(agent.log_text().contains(&told))
        })
        .await?;
    }

    // A Work anywhere else is refused, whoever writes it.
    let misplaced: Api<Work> = Api::namespaced(admin.clone(), "default");
    let refused = misplaced.create(&PostParams::default(), &work("w")?).await;
    let refused = refused
        .err()
        .context("a Work in namespace default was taken")?
        .to_string();
    ensure!(
        refused.contains("karmada-es-<cluster>") && refused.contains("namespace default"),
        "{refused}"
    );
    interpreters_are_there(&admin).await?;

    drop(agent);
    lab.stop().await;
    scratch.passed();
    Ok(())
}

/// The kinds that Karmada's agent lists at its start are there; of the one that nobody here reads none is made.
async fn interpreters_are_there(admin: &Client) -> Result<()> {
    let group = "/apis/config.karmada.io/v1alpha1";
    let customization = json!({"apiVersion": "config.karmada.io/v1alpha1",
        "kind": "ResourceInterpreterCustomization", "metadata": {"name": "c"},
        "spec": {"target": {"apiVersion": "apps.example.com/v1", "kind": "Thing"},
            "customizations": {"healthInterpretation": {
                "luaScript": "function InterpretHealth(o) return true end"}}}});
    let webhook = json!({"apiVersion": "config.karmada.io/v1alpha1",
        "kind": "ResourceInterpreterWebhookConfiguration", "metadata": {"name": "w"},
        "webhooks": [{"name": "w.example.com", "clientConfig": {"url": "https://w.example.com/x", "caBundle": "Y2E="},
            "interpreterContextVersions": ["v1alpha1"], "timeoutSeconds": 3,
            "rules": [{"operations": ["InterpretReplica"], "apiGroups": ["apps.example.com"],
                "apiVersions": ["v1"], "kinds": ["Thing"]}]}]});
    let path = format!("{group}/resourceinterpretercustomizations");
    let body = customization.to_string();
    ask(admin, "POST", &path, Some((JSON, &body))).await?.ok()?;
    let listed = ask(admin, "GET", &path, None).await?.ok()?.json()?;
    ensure!(
        listed["items"][0]["spec"] == customization["spec"],
        "{listed}"
    );
    ask(admin, "DELETE", &format!("{path}/c"), None)
        .await?
        .ok()?;

    let path = format!("{group}/resourceinterpreterwebhookconfigurations");
    let request = http::Request::post(&path)
        .header(http::header::CONTENT_TYPE, JSON)
        .body(Body::from(webhook.to_string().into_bytes()))?;
    let answer = admin.send(request).await?;
    ensure!(answer.status() == 422, "{}", answer.status());
    let warned = answer.headers().get_all("warning").iter();
    let warned = warned
        .filter_map(|w| w.to_str().ok())
        .any(|w| w.contains(UNREAD));
    ensure!(warned, "{:?}", answer.headers());
    let body = webhook.to_string();
    let refused = ask(admin, "POST", &path, Some((JSON, &body))).await?;
    let refused = refused.json()?["message"].to_string();
    ensure!(refused.contains(UNREAD), "{refused}");
    let listed = ask(admin, "GET", &path, None).await?.ok()?.json()?;
    ensure!(listed["items"] == json!([]), "{listed}");
    Ok(())
}
