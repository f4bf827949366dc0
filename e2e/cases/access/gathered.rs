//! `clusters/*/proxy`: one list of all clusters, judged cluster by cluster, with whoever is missing named.

use super::rig::{LONG, Stage, apply, ask, becomes, is_built_in, reach, to};
use crate::env::wait_for;
use anyhow::{Context as _, Result, ensure};
use http::header::WARNING;
use kube::Client;
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const TABLE: (&str, &str) = (
    "accept",
    "application/json;as=Table;g=meta.k8s.io;v=v1,application/json",
);

/// A list of all, and its warnings.
async fn list(client: &Client, headers: &[(&str, &str)]) -> Result<(Value, Vec<String>)> {
    let answer = ask(client, "GET", &to("*", MAPS), headers)
        .await?
        .is(200, "")?;
    let warnings = answer.headers.get_all(WARNING).iter();
    let warnings = warnings.map(|it| anyhow::Ok(it.to_str()?.to_owned()));
    let warnings = warnings.collect::<Result<_>>()?;
    Ok((serde_json::from_str(&answer.body)?, warnings))
}

/// Cluster and name of each object.
fn found(list: &Value) -> Vec<(&str, &str)> {
    let items = list["items"].as_array().into_iter().flatten();
    let from = "/metadata/annotations/resource.karmada.io~1cached-from-cluster";
    items
        .map(|it| (text(it, from), text(it, "/metadata/name")))
        .collect()
}

fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    let text = value.pointer(pointer).and_then(Value::as_str);
    text.unwrap_or_default()
}

/// On a hub of kube-apiserver it judges the right to `*` before it passes anything on.
fn every(names: &[&'static str]) -> Vec<&'static str> {
    let all = names.iter().copied();
    all.chain((!is_built_in()).then_some("*")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn access_lists_all_clusters_at_once() -> Result<()> {
    let stage = Stage::among("access-gathered", "impersonate", 2).await?;
    let mut closed = stage
        .fleet
        .join(&stage.lab.members[1].kubeconfig, "m2")
        .await?;
    let hub = stage.fleet.client().await?;
    apply(
        &hub,
        reach("ann", &every(&["m1", "m2"]), &["get", "create", "delete"]),
    )
    .await?;
    let ann = stage.client("ann", &[]).await?;
    // The rights that were just given count a moment later.
    becomes(&ann, &to("m2", MAPS), 503, "has no tunnel to this hub").await?;
    becomes(&ann, &to("*", MAPS), 200, "ConfigMapList").await?;

    let (all, warnings) = list(&ann, &[]).await?;
    ensure!(
        all["kind"] == "ConfigMapList" && all["apiVersion"] == "v1",
        "{all}"
    );
    ensure!(found(&all).contains(&("m1", "here")), "{all}");
    ensure!(
        warnings == ["299 - \"cluster m2 is missing: it has no tunnel to this hub\""],
        "{warnings:?}"
    );
    let (rows, _) = list(&ann, &[TABLE]).await?;
    let columns = rows["columnDefinitions"].as_array().context("no columns")?;
    let columns: Vec<&Value> = columns.iter().map(|it| &it["name"]).collect();
    ensure!(
        columns
            == [
                &json!("Name"),
                &json!("Cluster"),
                &json!("Data"),
                &json!("Age")
            ],
        "{rows}"
    );
    let mut shown = rows["rows"].as_array().context("no rows")?.iter();
    ensure!(
        shown.any(|it| it["cells"][0] == "here" && it["cells"][1] == "m1"),
        "{rows}"
    );
    let selected = format!(
        "{}?fieldSelector=metadata.name%3Dhere&limit=1",
        to("*", MAPS)
    );
    let selected = ask(&ann, "GET", &selected, &[]).await?.is(200, "")?;
    let selected: Value = serde_json::from_str(&selected.body)?;
    ensure!(found(&selected) == [("m1", "here")], "{selected}");

    lists_alone(&ann).await?;
    as_oneself(&stage, &hub).await?;
    // With m1 gone nobody answers, which is no empty list.
    let mut stage = stage;
    stage.agent.stop(LONG).await?;
    becomes(&ann, &to("*", MAPS), 503, "none of 2 clusters answered").await?;
    closed.stop(LONG).await?;
    stage.passed().await;
    Ok(())
}

/// Whatever is no list is refused, and nothing of it reaches a member.
async fn lists_alone(ann: &Client) -> Result<()> {
    for (method, path, why) in [
        (
            "GET",
            "/api/v1/namespaces/default/configmaps/here",
            "is none: name one cluster",
        ),
        ("GET", "/version", "is none: name one cluster"),
        (
            "GET",
            "/api/v1/namespaces/default/pods/p/log",
            "is none: name one cluster",
        ),
        (
            "GET",
            "/api/v1/namespaces/default/configmaps?watch=true",
            "not watched",
        ),
        (
            "GET",
            "/api/v1/namespaces/default/configmaps?resourceVersion=1",
            "leave resourceVersion out",
        ),
        (
            "GET",
            "/api/v1/namespaces/default/configmaps?continue=x",
            "leave continue out",
        ),
    ] {
        ask(ann, method, &to("*", path), &[]).await?.is(400, why)?;
    }
    // Rights to each cluster are none to all of them by one name.
    for (method, path) in [
        ("POST", MAPS),
        ("DELETE", MAPS),
        ("DELETE", "/api/v1/namespaces/default/configmaps/here"),
    ] {
        let answer = ask(ann, method, &to("*", path), &[]).await?;
        ensure!(
            matches!(answer.code, 400 | 403),
            "{method} {path}: {answer:?}"
        );
    }
    ask(ann, "GET", &to("m1", &format!("{MAPS}/here")), &[])
        .await?
        .is(200, "here")?;
    Ok(())
}

/// Each cluster is judged by itself; names of clusters are for who may list them.
async fn as_oneself(stage: &Stage, hub: &Client) -> Result<()> {
    apply(hub, reach("reader", &every(&["m1"]), &["get"])).await?;
    let reader = stage.client("reader", &[]).await?;
    becomes(&reader, &to("*", MAPS), 200, "here").await?;
    let (all, warnings) = list(&reader, &[]).await?;
    ensure!(found(&all).iter().all(|it| it.0 == "m1"), "{all}");
    ensure!(
        warnings == ["299 - \"cluster m2 is missing: you have no right to clusters/proxy of it\""],
        "{warnings:?}"
    );
    // The same without the right to list clusters.
    let mut unseeing = reach("reader", &every(&["m1"]), &["get"]);
    if let Some(rules) = unseeing[0]["rules"].as_array_mut() {
        rules.truncate(1);
    }
    apply(hub, unseeing).await?;
    wait_for("a list that names nobody", LONG, async || {
        let (all, warnings) = list(&reader, &[]).await?;
        ensure!(!found(&all).is_empty(), "{all}");
        Ok(warnings == ["299 - \"clusters that you may not reach are left out\""])
    })
    .await?;
    // Whom a member does not let in is told so of that member.
    apply(hub, reach("bob", &every(&["m1"]), &["get"])).await?;
    let bob = stage.client("bob", &[]).await?;
    becomes(&bob, &to("*", MAPS), 503, "its owner lets no user").await?;
    // Whoever may reach no cluster has no list.
    let nobody = stage.client("nobody", &[]).await?;
    ask(&nobody, "GET", &to("*", MAPS), &[])
        .await?
        .is(403, "clusters/proxy")?;
    Ok(())
}
