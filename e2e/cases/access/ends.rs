//! Streams end with the rights they stand on, and a stream that is broken off never looks complete.

use super::door::Door;
use super::rig::{LONG, Stage, ask, ask_with, becomes, is_built_in, to};
use super::watch::Watch;
use crate::env::wait_for;
use anyhow::{Context as _, Result, ensure};
use common::names::PROXY_NAME;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use std::collections::BTreeSet;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn make(client: &Client, name: &str) -> Result<()> {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    ask_with(client, "POST", &to("m1", MAPS), &[], Some(&map))
        .await?
        .is(201, name)?;
    Ok(())
}

/// A right that is taken, an agent that dies, a hub that stops, and a cluster that leaves.
#[tokio::test(flavor = "multi_thread")]
async fn access_ends_with_its_rights() -> Result<()> {
    let mut stage = Stage::set("access-ends", "impersonate").await?;
    let ann = stage.client("ann", &[]).await?;
    let reader = stage.client("reader", &[]).await?;
    let (mut of_ann, mut of_reader) = (
        Watch::open(&ann, MAPS).await?,
        Watch::open(&reader, MAPS).await?,
    );
    counted(&stage, "m1", &["ann", "reader"]).await?;
    make(&ann, "first").await?;
    of_ann.sees("first").await?;
    of_reader.sees("first").await?;

    let bindings: Api<ClusterRoleBinding> = Api::all(stage.fleet.client().await?);
    bindings
        .delete("reach-reader", &DeleteParams::default())
        .await?;
    of_reader.breaks().await?;
    ask(&reader, "GET", &to("m1", MAPS), &[])
        .await?
        .is(403, "clusters/proxy")?;
    make(&ann, "second").await?;
    of_ann.sees("second").await?;

    // The member's owner lets Ann in no more, and again.
    let roles: Api<ClusterRole> = Api::all(stage.member().await?);
    let role = roles.get(PROXY_NAME).await?;
    let nobody = json!({"rules": []});
    let params = PatchParams::default();
    roles
        .patch(PROXY_NAME, &params, &Patch::Merge(&nobody))
        .await?;
    // A built-in member ends such a watch by itself, as it ends any.
    of_ann.ends_broken().await?;
    becomes(&ann, &to("m1", MAPS), 403, "--proxy-user +ann").await?;
    let again = json!({"rules": role.rules});
    roles
        .patch(PROXY_NAME, &params, &Patch::Merge(&again))
        .await?;
    stage.opened().await?;
    let of_ann = Watch::open(&ann, MAPS).await?;

    // The agent dies: what goes through it breaks, and comes back with it.
    stage.agent.kill();
    of_ann.breaks().await?;
    ask(&ann, "GET", &to("m1", MAPS), &[])
        .await?
        .is(503, "no tunnel")?;
    stage.agent.restart()?;
    stage.opened().await?;
    half_sent(&stage, &ann, &bindings).await?;

    // The cluster is unregistered: its tunnel goes with its rights.
    let of_ann = Watch::open(&ann, MAPS).await?;
    stage
        .fleet
        .cli(&["unregister", "m1", "--yes", "--force"])
        .await?
        .ok()?;
    of_ann.breaks().await?;
    counted(&stage, "m1", &[]).await?;
    stage.passed().await;
    Ok(())
}

/// What is still being sent when its right ends is answered so, and is not done.
async fn half_sent(stage: &Stage, ann: &Client, bindings: &Api<ClusterRoleBinding>) -> Result<()> {
    let doors = Door::all(stage).await?;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "late"}});
    let map = map.to_string();
    let (path, length) = (to("m1", MAPS), map.len());
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: hub\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    );
    let door = doors.first().context("no way in")?;
    let mut stream = door.begin(&format!("{head}{}", &map[..length - 3])).await?;
    counted(stage, "m1", &["ann"]).await?;
    let name = "reach-ann";
    let mut binding = bindings.get(name).await?;
    bindings.delete(name, &DeleteParams::default()).await?;
    wait_for("the end of what was asked", LONG, async || {
        Ok(!stage.metrics().await?.contains("user=\"ann\"}"))
    })
    .await?;
    // kube-apiserver passes on no answer before it has the whole of what is asked.
    if !is_built_in() {
        stream.write_all(&map.as_bytes()[length - 3..]).await?;
        stream.flush().await?;
    }
    let mut said = [0; 12];
    timeout(LONG, stream.read_exact(&mut said)).await??;
    ensure!(said == *b"HTTP/1.1 403", "{}", said.escape_ascii());
    let maps: Api<ConfigMap> = Api::namespaced(stage.member().await?, "default");
    ensure!(maps.get_opt("late").await?.is_none(), "it is there");
    binding.metadata = ObjectMeta {
        name: Some(name.to_owned()),
        ..ObjectMeta::default()
    };
    bindings.create(&PostParams::default(), &binding).await?;
    becomes(ann, &to("m1", MAPS), 200, "first").await
}

/// What is told of streams is those of these users, one each, and of nobody else.
async fn counted(stage: &Stage, cluster: &str, users: &[&str]) -> Result<()> {
    let of_cluster = match users.len() {
        0 => None,
        count => Some(format!("cluster=\"{cluster}\"}} {count}")),
    };
    let of_users = users.iter().map(|user| format!("user=\"{user}\"}} 1"));
    let wanted: [(&str, BTreeSet<String>); 3] = [
        (
            "towline_hub_tunnels ",
            BTreeSet::from([u8::from(!users.is_empty()).to_string()]),
        ),
        (
            "towline_hub_tunnel_streams{",
            of_cluster.into_iter().collect(),
        ),
        ("towline_hub_tunnel_streams_of_user{", of_users.collect()),
    ];
    wait_for(&format!("streams of {users:?}"), LONG, async || {
        let text = stage.metrics().await?;
        for (begin, wanted) in &wanted {
            let lines = text.lines().filter_map(|line| line.strip_prefix(begin));
            let told: BTreeSet<String> = lines.map(str::to_owned).collect();
            ensure!(told == *wanted, "{begin}: {told:?}");
        }
        Ok(true)
    })
    .await
}

/// The member's owner opened it for reading alone.
#[tokio::test(flavor = "multi_thread")]
async fn access_for_reading_reads_alone() -> Result<()> {
    let stage = Stage::set("access-reading", "read-only").await?;
    let ann = stage.client("ann", &[]).await?;
    ask(&ann, "GET", &to("m1", &format!("{MAPS}/here")), &[])
        .await?
        .is(200, "m1")?;
    let mut watch = Watch::open(&ann, MAPS).await?;
    watch.sees("here").await?;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "made"}});
    let made = ask_with(&ann, "POST", &to("m1", MAPS), &[], Some(&map)).await?;
    made.is(403, "opens it for reading alone")?;
    for path in [
        "/api/v1/namespaces/default/pods/a/exec?command=id",
        "/api/v1/namespaces/default/services/a/proxy/",
        "/api/v1/nodes/a/proxy/logs/",
    ] {
        ask(&ann, "GET", &to("m1", path), &[])
            .await?
            .is(403, "opens it for reading alone")?;
    }
    stage.passed().await;
    Ok(())
}
