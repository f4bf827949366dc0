//! A request runs in the member as whoever made it, and as nobody else whatever it says.

use super::rig::{Stage, apply, ask, ask_with, becomes, is_built_in, reach, to};
use anyhow::{Result, bail, ensure};
use kube::Client;
use serde_json::json;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// What is a WebSocket's handshake; sent over HTTP/1.1 alone it would take a connection over.
const SOCKET: [(&str, &str); 4] = [
    ("connection", "Upgrade"),
    ("upgrade", "websocket"),
    ("sec-websocket-version", "13"),
    ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
];

/// Ann sees in the member what the member shows her; each attack stands beside what it would abuse.
#[tokio::test(flavor = "multi_thread")]
async fn access_is_as_oneself() -> Result<()> {
    let stage = Stage::set("access-oneself", "impersonate").await?;
    let ann = stage.client("ann", &[]).await?;
    let map = format!("{MAPS}/here");

    // Her own rights in the member, no more.
    ask(&ann, "GET", &to("m1", &map), &[])
        .await?
        .is(200, "\"cluster\":\"m1\"")?;
    let secrets = to("m1", "/api/v1/namespaces/default/secrets");
    ask(&ann, "GET", &secrets, &[])
        .await?
        .is(403, "User \\\"ann\\\" cannot list resource \\\"secrets\\\"")?;
    let made = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "made"}});
    ask_with(&ann, "POST", &to("m1", MAPS), &[], Some(&made))
        .await?
        .is(201, "made")?;
    ask(&ann, "DELETE", &to("m1", &format!("{MAPS}/made")), &[])
        .await?
        .is(200, "")?;
    // By a group that the member's owner lists, and not by one that is not listed.
    let dev = stage.client("ann", &["dev", "ops"]).await?;
    let listed = ask(&dev, "GET", &secrets, &[]).await?;
    let listed = listed.is(200, "SecretList")?;
    let warnings: Vec<_> = listed.headers.get_all("warning").iter().collect();
    let [warning] = warnings.as_slice() else {
        bail!("{warnings:?}");
    };
    ensure!(warning.to_str()?.contains("group ops"), "{warning:?}");
    let master = stage.client("ann", &["dev", "system:masters"]).await?;
    let nodes = ask(&master, "GET", &to("m1", "/api/v1/nodes"), &[]).await?;
    nodes.is(403, "User \\\"ann\\\" cannot list resource \\\"nodes\\\"")?;

    on_the_hub(&stage, &ann, &map).await?;
    in_the_member(&stage, &map).await?;
    by_headers(&stage, &ann, &secrets, &map).await?;
    by_paths(&ann).await?;
    stage.passed().await;
    Ok(())
}

/// The hub's own rights: for this cluster, and for what runs something.
async fn on_the_hub(stage: &Stage, ann: &Client, map: &str) -> Result<()> {
    let bob = stage.client("bob", &[]).await?;
    ask(&bob, "GET", &to("m1", map), &[])
        .await?
        .is(403, "clusters/proxy")?;
    ask(ann, "GET", &to("m2", map), &[])
        .await?
        .is(403, "clusters/proxy")?;
    let admin = stage.fleet.client().await?;
    ask(&admin, "GET", &to("m2", map), &[])
        .await?
        .is(404, "\\\"m2\\\" not found")?;
    // A GET that would take the connection over is more than reading.
    let reader = stage.client("reader", &[]).await?;
    ask(&reader, "GET", &to("m1", map), &[])
        .await?
        .is(200, "m1")?;
    let exec = to("m1", "/api/v1/namespaces/default/pods/a/exec?command=id");
    for (who, code, says) in [
        (
            "reader",
            403,
            "cannot create resource \\\"clusters/proxy\\\"",
        ),
        // Nothing of the kind here: the member says so, to whoever may ask.
        ("ann", 404, "NotFound"),
    ] {
        let who = stage.plain_client(who).await?;
        ask(&who, "GET", &exec, &SOCKET).await?.is(code, says)?;
    }
    Ok(())
}

/// Whom the member's owner lets in.
async fn in_the_member(stage: &Stage, map: &str) -> Result<()> {
    let hub = stage.fleet.client().await?;
    apply(&hub, reach("carl", &["m1"], &["get"])).await?;
    let carl = stage.client("carl", &[]).await?;
    becomes(&carl, &to("m1", map), 403, "--proxy-user +carl").await?;
    // The hub's administrators are nobody's there.
    let admin = stage.fleet.client().await?;
    ask(&admin, "GET", &to("m1", "/api/v1/nodes"), &[])
        .await?
        .is(403, "its owner lets no user")?;
    // A ServiceAccount of the hub is not the member's of that name.
    let robot = "system:serviceaccount:default:robot";
    apply(&hub, reach(robot, &["m1"], &["get"])).await?;
    let twin = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "robot", "namespace": "default"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "viewer"},
        "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": "default"}],
    });
    let member = stage.member().await?;
    apply(&member, vec![twin.clone()]).await?;
    let as_robot = stage.client(robot, &[]).await?;
    let renamed = "towline:hub:system:serviceaccount:default:robot";
    becomes(&as_robot, &to("m1", map), 403, renamed).await?;
    let mut bound = twin;
    bound["metadata"]["name"] = json!("robot-of-the-hub");
    bound["subjects"] = json!([{
        "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": format!("towline:hub:{robot}"),
    }]);
    apply(&member, vec![bound]).await?;
    becomes(&as_robot, &to("m1", map), 200, "m1").await
}

/// What headers say of who asks is what the hub's own authentication makes of it.
async fn by_headers(stage: &Stage, ann: &Client, secrets: &str, map: &str) -> Result<()> {
    let plain = stage.plain_client("ann").await?;
    for headers in [
        vec![("impersonate-user", "admin")],
        vec![
            ("impersonate-user", "ann"),
            ("impersonate-group", "system:masters"),
        ],
        vec![
            ("connection", "Impersonate-User"),
            ("impersonate-user", "admin"),
        ],
    ] {
        ask(&plain, "GET", secrets, &headers)
            .await?
            .is(403, "cannot impersonate")?;
    }
    for headers in [
        vec![
            ("x-remote-user", "admin"),
            ("x-remote-group", "system:masters"),
        ],
        vec![("towline-user", "carl"), ("towline-group", "dev")],
        vec![("towline-group", "dev"), ("towline-stream", "forged")],
    ] {
        ask(ann, "GET", secrets, &headers)
            .await?
            .is(403, "User \\\"ann\\\"")?;
    }
    // Whoever may act as Ann on the hub is Ann in the member.
    let admin = stage.fleet.client().await?;
    ask(
        &admin,
        "GET",
        &to("m1", map),
        &[("impersonate-user", "ann")],
    )
    .await?
    .is(200, "m1")?;
    let got = ask(&admin, "GET", secrets, &[("impersonate-user", "ann")]).await?;
    got.is(403, "User \\\"ann\\\"")?;
    Ok(())
}

/// No way of writing a path leads elsewhere.
async fn by_paths(ann: &Client) -> Result<()> {
    for path in [
        "/../../m2/proxy/api",
        "/%2e%2e/%2e%2e/m2/proxy/api",
        "/api/v1/namespaces/default/..%2f..%2fsecrets",
        "//api/v1/secrets",
        "/api/v1/namespaces/default/configmaps/%5c..%5chere",
        "/api//v1",
        "/%252e%252e/secrets",
    ] {
        let answer = ask(ann, "GET", &to("m1", path), &[]).await?;
        ensure!(
            matches!(answer.code, 400 | 404 | 500) && !answer.body.contains("\"items\""),
            "{path}: {} {}",
            answer.code,
            answer.body
        );
    }
    let odd = ask(ann, "GET", &to("%6d1", "/api"), &[]).await?;
    match is_built_in() {
        true => odd.is(400, "must begin with")?,
        // Read and written anew on the way: it is the same path to everybody.
        false => odd.is(200, "APIVersions")?,
    };
    ask(ann, "GET", &to("m1", "/api"), &[])
        .await?
        .is(200, "APIVersions")?;
    Ok(())
}
