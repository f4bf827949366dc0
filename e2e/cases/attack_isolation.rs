//! One agent against another: whatever it asks, the answer is the same 403 and tells nothing.

use anyhow::{Result, ensure};
use kube::Client;
use serde_json::{Value, json};

use crate::env::{APPLY, JSON, JSON_PATCH, MERGE, PreparedHub, Registered, Version, ask};

/// Media types and bodies that make a server talk when it applies them before it decides.
fn patches(victim: &str) -> Vec<(&'static str, String)> {
    let json_patch = |operations: Value| (JSON_PATCH, operations.to_string());
    let merge = |patch: Value| (MERGE, patch.to_string());
    vec![
        merge(json!({})),
        merge(json!({"metadata": 7})),
        merge(json!({"metadata": {"resourceVersion": "1"}})),
        merge(json!({"metadata": {"uid": "0b7c3d6e-0000-4000-8000-000000000000"}})),
        merge(json!({"metadata": {"labels": 7}})),
        merge(json!({"spec": 7, "status": 7})),
        json_patch(json!([])),
        json_patch(json!([{"op": "test", "path": "/spec/id", "value": "a guess"}])),
        json_patch(json!([{"op": "test", "path": "/spec/id",
            "value": format!("id-that-only-{victim}-may-know")}])),
        json_patch(json!([{"op": "copy", "from": "/spec/id", "path": "/metadata/name"}])),
        json_patch(json!([{"op": "copy", "from": "/metadata/uid", "path": "/metadata/name"}])),
        json_patch(json!([{"op": "copy", "from": "/spec/id", "path": "/spec/syncMode"}])),
        json_patch(json!([{"op": "remove", "path": "/spec/no-such-field"}])),
        (
            APPLY,
            json!({"spec": {"id": "a guess"}, "status": {}}).to_string(),
        ),
        (
            APPLY,
            json!({"metadata": {"name": victim}, "spec": {"id": "a guess"}}).to_string(),
        ),
    ]
}

/// Everything there is of a victim, by path, with the name that stands for it in answers.
fn paths(victim: &str) -> Vec<String> {
    let cluster = format!("/apis/cluster.karmada.io/v1alpha1/clusters/{victim}");
    let lease = format!("/apis/coordination.k8s.io/v1/namespaces/karmada-cluster/leases/{victim}");
    let work = format!("/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-{victim}/works/w");
    vec![
        format!("{cluster}/status"),
        cluster,
        lease,
        format!("{work}/status"),
        work,
        format!("/api/v1/namespaces/karmada-es-{victim}"),
    ]
}

/// Asks with every patch, as a dry run too, and for reads; returns each answer's code and body.
async fn assault(client: &Client, victim: &str) -> Result<Vec<(u16, String)>> {
    let mut answers = Vec::new();
    for path in paths(victim) {
        for (media_type, patch) in patches(victim) {
            for query in [
                "",
                "?dryRun=All",
                "?fieldManager=a&dryRun=All",
                "?fieldManager=a",
            ] {
                if (media_type == APPLY) != query.contains("fieldManager") {
                    continue;
                }
                let path = format!("{path}{query}");
                let answer = ask(client, "PATCH", &path, Some((media_type, &patch))).await?;
                let answer = answer.forbidden()?;
                answers.push((answer.code, answer.body));
            }
        }
        for method in ["GET", "DELETE", "PUT"] {
            let body = (method == "PUT").then_some((JSON, "{}"));
            let answer = ask(client, method, &path, body).await?.forbidden()?;
            answers.push((answer.code, answer.body));
        }
    }
    Ok(answers)
}

async fn write_work(hub: &PreparedHub, owner: &Registered, name: &str) -> Result<()> {
    let work = json!({
        "apiVersion": "work.karmada.io/v1alpha1",
        "kind": "Work",
        "metadata": {"name": name, "annotations": {"marker": format!("id-that-only-{}-may-know", owner.name)}},
        "spec": {"workload": {"manifests": [{
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "c", "namespace": "default"},
        }]}},
    });
    ask(
        &hub.admin,
        "POST",
        &owner.works_path(),
        Some((JSON, &work.to_string())),
    )
    .await?
    .ok()?;
    Ok(())
}

/// As m1 against m2, and against a cluster that does not exist: the same answers, word for word.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_learns_nothing_of_another() -> Result<()> {
    let hub = PreparedHub::start("isolation", Version::V1_36).await?;
    let m1 = hub.register("m1").await?;
    let m2 = hub.register("m2").await?;
    write_work(&hub, &m1, "w").await?;
    write_work(&hub, &m2, "w").await?;
    let secret = "id-that-only-m2-may-know";

    let of_m2 = assault(&m1.client, "m2").await?;
    let of_nobody = assault(&m1.client, "m9").await?;
    ensure!(
        of_m2.len() == of_nobody.len() && of_m2.len() > 90,
        "{} answers",
        of_m2.len()
    );
    for ((_, real), (_, imagined)) in of_m2.iter().zip(&of_nobody) {
        ensure!(!real.contains(secret), "an answer tells of m2: {real}");
        ensure!(
            real == &imagined.replace("m9", "m2"),
            "{real}\ndiffers from\n{imagined}"
        );
    }

    // Lists, watches and creations, anywhere but at home.
    for path in [
        "/apis/cluster.karmada.io/v1alpha1/clusters".to_owned(),
        "/apis/cluster.karmada.io/v1alpha1/clusters?watch=true".to_owned(),
        "/apis/coordination.k8s.io/v1/namespaces/karmada-cluster/leases".to_owned(),
        "/apis/work.karmada.io/v1alpha1/works".to_owned(),
        "/apis/work.karmada.io/v1alpha1/works?watch=true".to_owned(),
        m2.works_path(),
        format!("{}?watch=true", m2.works_path()),
        "/apis/certificates.k8s.io/v1/certificatesigningrequests".to_owned(),
        "/apis/certificates.k8s.io/v1/certificatesigningrequests?watch=true".to_owned(),
        "/api/v1/secrets".to_owned(),
        "/api/v1/namespaces/kube-system/secrets".to_owned(),
        "/api/v1/namespaces/karmada-es-m1/secrets".to_owned(),
        "/api/v1/namespaces/karmada-es-m1/events".to_owned(),
        "/api/v1/namespaces/karmada-system/configmaps".to_owned(),
        "/api/v1/namespaces".to_owned(),
        "/api/v1/nodes".to_owned(),
    ] {
        ask(&m1.client, "GET", &path, None).await?.forbidden()?;
    }
    for path in [
        "/apis/cluster.karmada.io/v1alpha1/clusters".to_owned(),
        "/apis/coordination.k8s.io/v1/namespaces/karmada-cluster/leases".to_owned(),
        m1.works_path(),
        m2.works_path(),
        m2.events_path(),
        "/api/v1/namespaces/default/events".to_owned(),
        "/api/v1/namespaces/karmada-es-m1/secrets".to_owned(),
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings".to_owned(),
        "/apis/rbac.authorization.k8s.io/v1/namespaces/karmada-es-m1/rolebindings".to_owned(),
    ] {
        ask(
            &m1.client,
            "POST",
            &path,
            Some((JSON, "{\"metadata\":{\"name\":\"x\"}}")),
        )
        .await?
        .forbidden()?;
    }
    // Its own Cluster is the hub's too: read through the answer to a status patch, and no other way.
    for method in ["GET", "DELETE"] {
        ask(&m1.client, method, &m1.cluster_path(), None)
            .await?
            .forbidden()?;
    }

    // The rightful twins.
    let own = ask(
        &m1.client,
        "PATCH",
        &format!("{}/status", m1.cluster_path()),
        Some((MERGE, "{}")),
    )
    .await?
    .ok()?;
    ensure!(
        own.body.contains("id-that-only-m1-may-know"),
        "{}",
        own.body
    );
    let renew = r#"{"spec":{"renewTime":"2030-01-01T00:00:00.000000Z"}}"#;
    ask(&m1.client, "PATCH", &m1.lease_path(), Some((MERGE, renew)))
        .await?
        .ok()?;
    let works = ask(&m1.client, "GET", &m1.works_path(), None)
        .await?
        .ok()?
        .json()?;
    ensure!(
        works["items"].as_array().map(Vec::len) == Some(1),
        "{works}"
    );
    let status = r#"{"status":{"conditions":[]}}"#;
    ask(
        &m1.client,
        "PATCH",
        &format!("{}/w/status", m1.works_path()),
        Some((MERGE, status)),
    )
    .await?
    .ok()?;
    ask(&m2.client, "PATCH", &m2.lease_path(), Some((MERGE, renew)))
        .await?
        .ok()?;
    Ok(())
}
