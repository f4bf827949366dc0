//! A member whose API server judges what is done as somebody: open for reading alone, it keeps that itself, whatever its
//! agent asks, and whoever has the agent's credentials.

use super::rig::{Answer, LONG, Stage, apply, ask, ask_with, becomes, to};
use crate::env::wait_for;
use anyhow::{Context as _, Result, ensure};
use common::names::{PROXY_NAME, USERS_NAMESPACE};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Client;
use kube::api::Api;
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const HERE: &str = "/api/v1/namespaces/default/configmaps/here";
/// What is GET and more than reading; nothing of it has to be there to be refused.
const REACHES: [&str; 5] = [
    "/api/v1/namespaces/default/pods/a/exec?command=id&stdout=1",
    "/api/v1/namespaces/default/pods/a/portforward",
    "/api/v1/namespaces/default/pods/a/proxy",
    "/api/v1/namespaces/default/services/a/proxy",
    "/api/v1/nodes/a/proxy",
];

#[tokio::test(flavor = "multi_thread")]
async fn access_for_reading_is_a_rule_of_the_member() -> Result<()> {
    let stage = Stage::installed("access-constrained").await?;
    let member = stage.member().await?;
    apply(&member, rights()).await?;
    let here = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "here", "namespace": "default"}});
    apply(&member, vec![here]).await?;
    let hub = stage.fleet.client().await?;
    let verbs = ["get", "create", "delete"];
    apply(&hub, super::rig::reach("ann", &["m1"], &verbs)).await?;

    // The agent of the stage runs with `--proxy impersonate`: it passes on whatever is asked.
    let words = "register --proxy read-only --proxy-user ann --proxy-group dev";
    stage.owner(words).await?;
    no_plain_right(&member).await?;
    let ann = stage.client("ann", &["dev"]).await?;
    becomes(&ann, &to("m1", HERE), 200, "here").await?;
    for path in [
        MAPS,
        "/api/v1/pods",
        "/version",
        "/apis",
        "/apis/apps/v1/namespaces/default/deployments",
    ] {
        ask(&ann, "GET", &to("m1", path), &[]).await?.is(200, "")?;
    }
    let refused = delete(&ann, &to("m1", HERE)).await?;
    refused.is(403, "impersonate-on:user-info:delete")?;
    captured(&stage, "ann", &[("impersonate-group", "dev")]).await?;

    // As ServiceAccounts, whoever they are.
    stage
        .owner("register --proxy-as service-accounts --proxy-user none")
        .await?;
    // What was answered is answered so for some seconds more.
    wait_for("Ann to be an account", LONG, async || {
        let refused = delete(&ann, &to("m1", HERE)).await?;
        refused.is(403, "impersonate-on:serviceaccount:delete")?;
        Ok(true)
    })
    .await?;
    ask(&ann, "GET", &to("m1", HERE), &[])
        .await?
        .is(200, "here")?;
    let account = "system:serviceaccount:towline-users:ann";
    captured(&stage, account, &[]).await?;
    let nobody = stage.captured().await?;
    wait_for("Ann to be nobody by name", LONG, async || {
        let answer = ask(&nobody, "GET", HERE, &[("impersonate-user", "ann")]).await?;
        answer.is(403, "")?;
        Ok(true)
    })
    .await?;

    // The owner's word for more is one for writing too.
    stage
        .owner("register --proxy impersonate --proxy-as users --proxy-user ann")
        .await?;
    wait_for("the right to write", LONG, async || {
        delete(&ann, &to("m1", HERE)).await?.is(200, "")?;
        Ok(true)
    })
    .await?;
    gone(&stage).await?;
    stage.passed().await;
    Ok(())
}

/// What was made for users of the hub leaves with the agent.
async fn gone(stage: &Stage) -> Result<()> {
    let member = stage.member().await?;
    let namespaces: Api<Namespace> = Api::all(member.clone());
    ensure!(namespaces.get_opt(USERS_NAMESPACE).await?.is_some());
    let file = stage.lab.members[0].kubeconfig.display().to_string();
    let words = ["unregister", "m1", "--yes", "--member-kubeconfig", &file];
    stage.fleet.cli(&words).await?.ok()?;
    let roles: Api<ClusterRole> = Api::all(member);
    wait_for("the end of it", LONG, async || {
        let left = namespaces.get_opt(USERS_NAMESPACE).await?;
        Ok(left.is_none() && roles.get_opt(PROXY_NAME).await?.is_none())
    })
    .await
}

async fn delete(client: &Client, path: &str) -> Result<Answer> {
    ask(client, "DELETE", path, &[]).await
}

/// A right to be somebody whatever is done would do for everything.
async fn no_plain_right(member: &Client) -> Result<()> {
    let roles: Api<ClusterRole> = Api::all(member.clone());
    let role = roles.get(PROXY_NAME).await?;
    let verbs = role.rules.context("no rules")?.into_iter();
    let verbs: Vec<String> = verbs.flat_map(|rule| rule.verbs).collect();
    ensure!(
        verbs
            .iter()
            .all(|verb| verb.starts_with("impersonate:") || verb.starts_with("impersonate-on:")),
        "{verbs:?}"
    );
    Ok(())
}

/// Whoever has the account of the agent reads as who is let in, and does nothing else as them, however it is asked.
async fn captured(stage: &Stage, user: &str, more: &[(&str, &str)]) -> Result<()> {
    let captured = stage.captured().await?;
    let mut headers = vec![("impersonate-user", user)];
    headers.extend(more);
    wait_for("the right to read", LONG, async || {
        ask(&captured, "GET", HERE, &headers)
            .await?
            .is(200, "here")?;
        Ok(true)
    })
    .await?;
    ask(&captured, "GET", MAPS, &headers)
        .await?
        .is(200, "ConfigMapList")?;
    ask(&captured, "DELETE", HERE, &headers)
        .await?
        .is(403, "impersonate-on")?;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "made"}});
    ask_with(&captured, "POST", MAPS, &headers, Some(&map))
        .await?
        .is(403, "impersonate-on")?;
    for path in REACHES {
        ask(&captured, "GET", path, &headers)
            .await?
            .is(403, "impersonate-on")?;
    }
    for other in ["bob", "system:admin", "system:serviceaccount:default:ann"] {
        let answer = ask(&captured, "GET", HERE, &[("impersonate-user", other)]).await?;
        ensure!(answer.code == 403, "{other}: {answer:?}");
    }
    headers.push(("impersonate-group", "system:masters"));
    let answer = ask(&captured, "GET", HERE, &headers).await?;
    ensure!(answer.code == 403, "{answer:?}");
    Ok(())
}

/// What Ann may do in the member, by each name under which she comes: whatever is asked here.
fn rights() -> Vec<Value> {
    let rbac = "rbac.authorization.k8s.io";
    vec![json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "ann"},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [
            {"apiGroup": rbac, "kind": "User", "name": "ann"},
            {"kind": "ServiceAccount", "name": "ann", "namespace": "towline-users"},
        ],
    })]
}
