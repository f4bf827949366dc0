//! A member whose owner lets groups of the hub in: whoever is in one comes as one user, and is somebody by the group
//! alone.

use super::rig::{Stage, apply, ask, ask_with, becomes, reach, to};
use crate::env::client;
use anyhow::{Context as _, Result, ensure};
use common::names::{AGENT_NAMESPACE, PROXY_NAME};
use common::tunnel::{PROXIED, PROXIED_USER};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde::Deserialize as _;
use serde_json::{Value, json};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// What `towline register` with these flags lets the agent's account be.
async fn rules(stage: &Stage, flags: &[&str]) -> Result<Value> {
    let address = stage.fleet.address.clone();
    let mut words = vec!["register", &address, "--print", "--cluster-name", "m1"];
    let pin = stage.fleet.pin.clone();
    words.extend([
        "--token",
        "abcdef.0123456789abcdef",
        "--discovery-token-ca-cert-hash",
        &pin,
    ]);
    words.extend(flags);
    let printed = stage.fleet.towline.cli(words).await?.ok()?.stdout;
    for document in serde_yaml::Deserializer::from_str(&printed) {
        let object = Value::deserialize(document)?;
        if object["kind"] == "ClusterRole" && object["metadata"]["name"] == PROXY_NAME {
            return Ok(object["rules"].clone());
        }
    }
    anyhow::bail!("no role: {printed}")
}

async fn let_in(stage: &Stage, rules: &Value) -> Result<()> {
    let roles: Api<ClusterRole> = Api::all(stage.member().await?);
    let patch = Patch::Merge(json!({"rules": rules}));
    roles
        .patch(PROXY_NAME, &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

/// Who somebody is in the member.
async fn whoami(client: &Client) -> Result<Value> {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let said = ask_with(client, "POST", &to("m1", REVIEWS), &[], Some(&review)).await?;
    let said: Value = serde_json::from_str(&said.is(201, "userInfo")?.body)?;
    Ok(said["status"]["userInfo"].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn access_lets_groups_in() -> Result<()> {
    let stage = Stage::set("access-groups", "impersonate").await?;
    let hub = stage.fleet.client().await?;
    apply(&hub, reach("carl", &["m1"], &["get", "create"])).await?;
    apply(&hub, reach(PROXIED, &["m1"], &["get"])).await?;
    let carl = stage.client("carl", &["dev", "ops"]).await?;
    becomes(&carl, &to("m1", SECRETS), 403, "--proxy-user +carl").await?;

    let flags = [
        "--proxy",
        "impersonate",
        "--proxy-as",
        "groups",
        "--proxy-group",
        "dev",
    ];
    let rules = rules(&stage, &flags).await?;
    let_in(&stage, &rules).await?;
    // The group may list secrets, and nobody by name may anything.
    becomes(&carl, &to("m1", SECRETS), 200, "SecretList").await?;
    let answer = ask(&carl, "GET", &to("m1", MAPS), &[]).await?;
    let answer = answer.is(403, &format!("User \\\"{PROXIED}\\\" cannot list"))?;
    let warned = answer.headers.get("warning").context("no warning")?;
    ensure!(
        warned.to_str()?.contains("does not let group ops in"),
        "{warned:?}"
    );
    let who = whoami(&carl).await?;
    let groups = who["groups"].as_array().context("no groups")?;
    ensure!(
        who["username"] == PROXIED
            && groups.contains(&json!("dev"))
            && !groups.contains(&json!("ops"))
            && who["extra"] == json!({PROXIED_USER: ["carl"]}),
        "{who}"
    );

    // Ann is in no group that is let in, and has no place by name any more.
    let ann = stage.client("ann", &[]).await?;
    becomes(&ann, &to("m1", MAPS), 403, "you are in none of them").await?;
    let named = stage.client(PROXIED, &["dev"]).await?;
    becomes(
        &named,
        &to("m1", SECRETS),
        403,
        "is a name of the member's own",
    )
    .await?;
    captured(&stage).await?;

    // One by name besides, who is herself.
    let mut more = rules.clone();
    if let Some(names) = more[0]["resourceNames"].as_array_mut() {
        names.push(json!("ann"));
    }
    let_in(&stage, &more).await?;
    becomes(&ann, &to("m1", MAPS), 200, "here").await?;
    ensure!(whoami(&ann).await?["username"] == "ann");
    // The last group goes, and everybody with it.
    let_in(&stage, &json!([])).await?;
    becomes(&carl, &to("m1", SECRETS), 403, "its owner lets no user").await?;
    stage.passed().await;
    Ok(())
}

/// Whoever has the agent's account may be the one user in the groups that are listed, whatever name stands beside, and
/// nobody else.
async fn captured(stage: &Stage) -> Result<()> {
    let account = format!("system:serviceaccount:{AGENT_NAMESPACE}:{PROXY_NAME}");
    let of_all = format!("system:serviceaccounts:{AGENT_NAMESPACE}");
    let path = stage.scratch.join("captured.kubeconfig");
    let plane = &stage.lab.members[0];
    let kubeconfig = plane.kubeconfig_for(&path, &account, &["system:serviceaccounts", &of_all])?;
    let captured = client(&kubeconfig).await?;
    let extra = "impersonate-extra-towline.dev%2fuser";
    let as_dev = [("impersonate-user", PROXIED), ("impersonate-group", "dev")];
    ask(&captured, "GET", SECRETS, &as_dev)
        .await?
        .is(200, "SecretList")?;
    let forged = [as_dev[0], as_dev[1], (extra, "somebody")];
    ask(&captured, "GET", SECRETS, &forged)
        .await?
        .is(200, "SecretList")?;
    for headers in [
        vec![],
        vec![as_dev[0], ("impersonate-group", "ops")],
        vec![
            as_dev[0],
            as_dev[1],
            ("impersonate-group", "system:masters"),
        ],
        vec![("impersonate-user", "ann"), as_dev[1]],
        vec![("impersonate-user", "carl")],
        vec![("impersonate-user", "system:admin")],
        vec![as_dev[0], as_dev[1], ("impersonate-extra-scopes", "all")],
        vec![as_dev[0], as_dev[1], ("impersonate-uid", "1")],
        vec![as_dev[0]],
    ] {
        let answer = ask(&captured, "GET", SECRETS, &headers).await?;
        ensure!(answer.code == 403, "{headers:?}: {answer:?}");
    }
    Ok(())
}
