//! `towline access`: roles in members that are given on the hub, as far as the members' owners let it.

use super::rig::{LONG, Stage, apply, ask, ask_with, becomes, to};
use crate::env::{Run, wait_for};
use anyhow::{Context as _, Result, ensure};
use common::api::work::{APPLIED, Work};
use common::labels::{ACCESS, MANAGED};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, RoleBinding};
use kube::Client;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// What is granted holds once the owner has typed what the command says, and gives nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn access_is_granted_as_far_as_the_owner_lets() -> Result<()> {
    let mut stage = Stage::installed("access-grants").await?;
    let here = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "here", "namespace": "default"}});
    apply(&stage.member().await?, vec![here]).await?;
    let maps = to("m1", MAPS);
    let ann = stage.client("ann", &[]).await?;
    ask(&ann, "GET", &maps, &[])
        .await?
        .is(403, "clusters/proxy")?;

    let grant = ["access", "grant", "ann", "-C", "m1", "-n", "default"];
    let refused = stage.fleet.cli(&grant).await?;
    ensure!(refused.code == 7, "{refused:?}");
    shows(
        &refused,
        "user/ann",
        ["view", "default", "m1", "False", "False"],
    )?;
    let typed = typed(&refused)?;
    ensure!(
        typed == "register --allow-role +view --proxy-user +ann",
        "{refused:?}"
    );
    becomes(&ann, &maps, 403, "--proxy-user +ann").await?;
    stage.owner(&typed).await?;
    let granted = stage.fleet.cli(&grant).await?.ok()?;
    shows(
        &granted,
        "user/ann",
        ["view", "default", "m1", "True", "True"],
    )?;
    ask(&ann, "GET", &maps, &[]).await?.is(200, "here")?;

    nothing_else(&stage, &ann).await?;
    no_other_role(&stage, &ann).await?;
    nobody_else(&stage, &ann).await?;
    everywhere(&stage).await?;
    listed(&stage).await?;
    revoked(&mut stage, &ann).await?;
    stage.passed().await;
    Ok(())
}

/// A row of a table: who, and what follows.
fn shows<const N: usize>(run: &Run, who: &str, cells: [&str; N]) -> Result<()> {
    let mut rows = run.stdout.lines().map(|line| line.split_whitespace());
    let found = rows.any(|mut row| row.next() == Some(who) && row.take(N).eq(cells));
    ensure!(found, "no row {who} {cells:?}: {run:?}");
    Ok(())
}

/// What the owner of m1 is told to type, without the program.
fn typed(run: &Run) -> Result<String> {
    let mut lines = run.stderr.lines();
    let line = lines.find_map(|line| line.strip_prefix("m1: its owner types there: towline "));
    Ok(line.with_context(|| format!("{run:?}"))?.to_owned())
}

/// Neither in the member nor on the hub.
async fn nothing_else(stage: &Stage, ann: &Client) -> Result<()> {
    for path in [
        "/api/v1/namespaces/default/secrets",
        "/api/v1/namespaces/kube-system/configmaps",
        "/api/v1/nodes",
    ] {
        ask(ann, "GET", &to("m1", path), &[])
            .await?
            .is(403, "User \\\"ann\\\" cannot list resource")?;
    }
    let made = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "made"}});
    ask_with(ann, "POST", &to("m1", MAPS), &[], Some(&made))
        .await?
        .is(403, "cannot create resource \\\"clusters/proxy\\\"")?;
    ask(ann, "GET", &to("m2", MAPS), &[])
        .await?
        .is(403, "clusters/proxy")?;
    let bob = stage.client("bob", &[]).await?;
    ask(&bob, "GET", &to("m1", MAPS), &[])
        .await?
        .is(403, "clusters/proxy")?;
    Ok(())
}

/// The hub binds what the owner named, and nothing by any other Work.
async fn no_other_role(stage: &Stage, ann: &Client) -> Result<()> {
    let more = [
        "access",
        "grant",
        "ann",
        "-C",
        "m1",
        "--role",
        "cluster-admin",
    ];
    let refused = stage.fleet.cli(&more).await?;
    ensure!(refused.code == 7, "{refused:?}");
    shows(
        &refused,
        "user/ann",
        ["cluster-admin", "<all>", "m1", "False", "True"],
    )?;
    ensure!(
        typed(&refused)?
            == "register --allow +clusterrolebindings.rbac.authorization.k8s.io --allow-role +cluster-admin",
        "{refused:?}"
    );
    ask(ann, "GET", &to("m1", "/api/v1/nodes"), &[])
        .await?
        .is(403, "User \\\"ann\\\" cannot list resource")?;
    let reserved = ["access", "grant", "ann", "-C", "m1", "-n", "kube-system"];
    let refused = stage.fleet.cli(&reserved).await?;
    ensure!(
        refused.code == 7 && refused.stdout.contains("is reserved"),
        "{refused:?}"
    );

    // Whom the agent may act as is in no Work, whatever the owner allowed of bindings.
    let rbac = "rbac.authorization.k8s.io";
    let wider = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "towline-agent-proxy"},
        "rules": [{"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"], "resourceNames": ["bob"]}],
    });
    let also = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "also"},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "towline-agent-proxy"},
        "subjects": [{"apiGroup": rbac, "kind": "User", "name": "bob"}],
    });
    let admin = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "admin"},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": rbac, "kind": "User", "name": "ann"}],
    });
    let hub = stage.fleet.client().await?;
    for (name, manifest) in [("wider", wider), ("also", also), ("admin", admin)] {
        let work = json!({
            "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
            "metadata": {"name": name, "namespace": "karmada-es-m1"},
            "spec": {"workload": {"manifests": [manifest]}},
        });
        apply(&hub, vec![work]).await?;
        let works: Api<Work> = Api::namespaced(hub.clone(), "karmada-es-m1");
        wait_for(&format!("a word on Work {name}"), LONG, async || {
            let conditions = works.get(name).await?.status.unwrap_or_default().conditions;
            let applied = conditions.iter().find(|it| it.type_ == APPLIED);
            let applied = applied.context("no condition yet")?;
            ensure!(applied.status == "False", "it was applied: {applied:?}");
            Ok(true)
        })
        .await?;
    }
    let roles: Api<ClusterRole> = Api::all(stage.member().await?);
    let role = roles.get("towline-agent-proxy").await?;
    let listed = serde_json::to_string(&role.rules)?;
    ensure!(
        listed.contains("ann") && !listed.contains("bob"),
        "{listed}"
    );
    let bindings: Api<ClusterRoleBinding> = Api::all(stage.member().await?);
    for name in ["also", "admin"] {
        ensure!(bindings.get_opt(name).await?.is_none(), "{name} is there");
    }
    Ok(())
}

/// Of a second user the owner hears that they are not let in, and letting them in leaves the first one there; a group
/// comes along with them.
async fn nobody_else(stage: &Stage, ann: &Client) -> Result<()> {
    let grant = ["access", "grant", "bob", "-C", "m1", "-n", "default"];
    let refused = stage.fleet.cli(&grant).await?;
    ensure!(refused.code == 7, "{refused:?}");
    shows(
        &refused,
        "user/bob",
        ["view", "default", "m1", "True", "False"],
    )?;
    let typed = typed(&refused)?;
    ensure!(typed == "register --proxy-user +bob", "{refused:?}");
    stage.owner(&typed).await?;
    stage.fleet.cli(&grant).await?.ok()?;
    let bob = stage.client("bob", &[]).await?;
    for who in [&bob, ann] {
        ask(who, "GET", &to("m1", MAPS), &[])
            .await?
            .is(200, "here")?;
    }
    let revoke = ["access", "revoke", "bob", "-C", "m1"];
    stage.fleet.cli(&revoke).await?.ok()?;
    becomes(&bob, &to("m1", MAPS), 403, "clusters/proxy").await?;

    let group = [
        "access", "grant", "dev", "--group", "--all", "-n", "default",
    ];
    let asked = stage.fleet.cli(&group).await?.ok()?;
    // The administrator is not let in, and cannot know.
    shows(
        &asked,
        "group/dev",
        ["view", "default", "m1", "True", "Unknown"],
    )?;
    let in_dev = stage.client("bob", &["dev"]).await?;
    becomes(&in_dev, &to("m1", MAPS), 403, "User \\\"bob\\\"").await?;
    stage.owner("register --proxy-group +dev").await?;
    becomes(&in_dev, &to("m1", MAPS), 200, "here").await?;
    ask(&bob, "GET", &to("m1", MAPS), &[])
        .await?
        .is(403, "clusters/proxy")?;
    Ok(())
}

/// A role in all of a member is bound once the owner allows that kind too, and then no other role is.
async fn everywhere(stage: &Stage) -> Result<()> {
    let grant = ["access", "grant", "bob", "-C", "m1"];
    let refused = stage.fleet.cli(&grant).await?;
    ensure!(refused.code == 7, "{refused:?}");
    shows(
        &refused,
        "user/bob",
        ["view", "<all>", "m1", "False", "True"],
    )?;
    stage.owner(&typed(&refused)?).await?;
    stage.fleet.cli(&grant).await?.ok()?;
    let bob = stage.client("bob", &[]).await?;
    let elsewhere = to("m1", "/api/v1/namespaces/kube-system/configmaps");
    ask(&bob, "GET", &elsewhere, &[])
        .await?
        .is(200, "ConfigMapList")?;
    ask(&bob, "GET", &to("m1", "/api/v1/nodes"), &[])
        .await?
        .is(403, "User \\\"bob\\\" cannot list resource")?;
    let more = [
        "access",
        "grant",
        "bob",
        "-C",
        "m1",
        "--role",
        "cluster-admin",
    ];
    let refused = stage.fleet.cli(&more).await?;
    shows(
        &refused,
        "user/bob",
        ["cluster-admin", "<all>", "m1", "False", "True"],
    )?;
    stage
        .fleet
        .cli(&["access", "revoke", "bob", "--all"])
        .await?
        .ok()?;
    becomes(&bob, &elsewhere, 403, "clusters/proxy").await
}

async fn listed(stage: &Stage) -> Result<()> {
    let all = stage.fleet.cli(&["access", "list"]).await?.ok()?;
    shows(&all, "user/ann", ["view", "default", "m1", "True"])?;
    shows(&all, "group/dev", ["view", "default", "m1", "True"])?;
    ensure!(!all.stdout.contains("user/bob"), "{all:?}");
    let one = ["access", "list", "ann", "-C", "m1", "-o", "json"];
    let one = stage.fleet.cli(&one).await?.ok()?;
    let one: Value = serde_json::from_str(&one.stdout)?;
    let roles = one.as_array().into_iter().flatten();
    let roles: Vec<(&Value, &Value)> = roles.map(|it| (&it["role"], &it["applied"])).collect();
    let want = [
        (&json!("cluster-admin"), &json!("False")),
        (&json!("view"), &json!("True")),
        (&json!("view"), &json!("False")),
    ];
    ensure!(roles == want, "{one}");
    let names = ["access", "list", "dev", "--group", "-o", "name"];
    let names = stage.fleet.cli(&names).await?.ok()?;
    ensure!(
        names
            .stdout
            .starts_with("work.work.karmada.io/towline-access-"),
        "{names:?}"
    );
    Ok(())
}

/// With the member's agent there, and without it.
async fn revoked(stage: &mut Stage, ann: &Client) -> Result<()> {
    let all = ["access", "revoke", "ann", "--all"];
    let gone = stage.fleet.cli(&all).await?.ok()?;
    ensure!(
        gone.stdout
            .contains("user/ann view for namespace default revoked in m1"),
        "{gone:?}"
    );
    becomes(ann, &to("m1", MAPS), 403, "clusters/proxy").await?;
    let hub = stage.fleet.client().await?;
    let rights: Api<ClusterRole> = Api::all(hub);
    let of_access = ListParams::default().labels(ACCESS);
    ensure!(
        rights.list(&of_access).await?.items.len() == 1,
        "of dev alone"
    );
    let bindings: Api<RoleBinding> = Api::namespaced(stage.member().await?, "default");
    let ours = ListParams::default().labels(MANAGED);
    ensure!(bindings.list(&ours).await?.items.len() == 1, "of dev alone");
    let again = stage.fleet.cli(&all).await?;
    ensure!(again.code == 4, "{again:?}");

    stage.agent.kill();
    let in_dev = stage.client("bob", &["dev"]).await?;
    let unheard = [
        "access", "revoke", "dev", "--group", "--all", "--wait", "1s",
    ];
    let unheard = stage.fleet.cli(&unheard).await?;
    ensure!(
        unheard.code == 6 && unheard.stdout.contains("m1 has not confirmed it"),
        "{unheard:?}"
    );
    becomes(&in_dev, &to("m1", MAPS), 403, "clusters/proxy").await?;
    let silent = ["access", "grant", "ann", "-C", "m1", "--wait", "1s"];
    let silent = stage.fleet.cli(&silent).await?;
    ensure!(silent.code != 0, "{silent:?}");
    shows(&silent, "user/ann", ["view", "<all>", "m1", "Unknown"])?;
    stage.agent.restart()?;
    wait_for("the end of the last binding", LONG, async || {
        Ok(bindings.list(&ours).await?.items.is_empty())
    })
    .await
}
