//! A member whose owner lets groups of the hub in: whoever is in one comes as one user, and is somebody by the group
//! alone.

use super::rig::{Stage, apply, ask, becomes, reach, to, whoami};
use anyhow::{Context as _, Result, ensure};
use common::names::PROXY_NAME;
use common::tunnel::{PROXIED, PROXIED_USER};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// What `towline register` with these flags lets the agent's account be.
async fn rules(stage: &Stage, flags: &[&str]) -> Result<Value> {
    let printed = stage.printed(flags).await?;
    let named = |it: &&Value| it["kind"] == "ClusterRole" && it["metadata"]["name"] == PROXY_NAME;
    let role = printed.iter().find(named).context("no role")?;
    Ok(role["rules"].clone())
}

async fn let_in(stage: &Stage, rules: &Value) -> Result<()> {
    let roles: Api<ClusterRole> = Api::all(stage.member().await?);
    let patch = Patch::Merge(json!({"rules": rules}));
    roles
        .patch(PROXY_NAME, &PatchParams::default(), &patch)
        .await?;
    Ok(())
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
    granted(&stage).await?;

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

/// A role for a user gives nothing there, and is refused before anything is written; one for a group holds.
async fn granted(stage: &Stage) -> Result<()> {
    let user = ["access", "grant", "dora", "-C", "m1", "-n", "default"];
    let idle = stage.fleet.cli(&user).await?;
    ensure!(
        idle.code == 7
            && idle
                .stderr
                .contains("users of the hub come into m1 as members of groups")
            && idle.stderr.contains("towline access grant GROUP --group"),
        "{idle:?}"
    );
    let nothing = stage.fleet.cli(&["access", "list", "dora"]).await?;
    ensure!(nothing.stdout.trim().is_empty(), "{nothing:?}");
    let dora = stage.client("dora", &["dev"]).await?;
    ask(&dora, "GET", &to("m1", MAPS), &[])
        .await?
        .is(403, "clusters/proxy")?;
    let group = [
        "access", "grant", "dev", "--group", "-C", "m1", "-n", "default", "--wait", "0",
    ];
    stage.fleet.cli(&group).await?.ok()?;
    becomes(&dora, &to("m1", MAPS), 200, "here").await?;
    // By name she is bound as she is known there, and not let in.
    let named = [
        "access",
        "grant",
        "dora",
        "-C",
        "m1",
        "-n",
        "default",
        "--by-name",
    ];
    let named = stage.fleet.cli(&named).await?;
    ensure!(
        named.code == 7 && named.stderr.contains("--proxy-user +dora"),
        "{named:?}"
    );
    for revoke in [
        &["access", "revoke", "dev", "--group", "--all"][..],
        &["access", "revoke", "dora", "--all"],
    ] {
        stage.fleet.cli(revoke).await?.ok()?;
    }
    Ok(())
}

/// Whoever has the agent's account may be the one user in the groups that are listed, whatever name stands beside, and
/// nobody else.
async fn captured(stage: &Stage) -> Result<()> {
    let captured = stage.captured().await?;
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
