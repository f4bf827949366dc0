//! Row H8: what a real API server refuses by our schemas, and the columns that kubectl shows.

use anyhow::{Context as _, Result};
use common::api::cluster::Cluster;
use kube::api::{Api, DynamicObject, PostParams};
use kube::core::ApiResource;
use serde_json::{Value, json};

use super::play::{Played, rig};
use crate::env::{Parts, left_out};

/// The API server's words about a Cluster; none when it takes it.
async fn refusal(name: &str, spec: Value, status: Value) -> Result<Option<String>> {
    let rig = rig().await?;
    let client = rig.client().await?;
    let kind = ApiResource::erase::<Cluster>(&());
    let clusters: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
    let object: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
        "metadata": {"name": name}, "spec": spec, "status": status,
    }))?;
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    match clusters.create(&params, &object).await {
        Ok(_) => Ok(None),
        Err(kube::Error::Api(status)) if status.code == 422 => Ok(Some(status.message.clone())),
        Err(error) => Err(error.into()),
    }
}

fn model(grade: i64, ranges: &[(&str, &str, &str)]) -> Value {
    let range =
        |(name, min, max): &(&str, &str, &str)| json!({"name": name, "min": min, "max": max});
    json!({"grade": grade, "ranges": ranges.iter().map(range).collect::<Vec<_>>()})
}

#[tokio::test]
async fn h8_what_is_not_valid_is_refused_with_its_reason() -> Result<()> {
    let pull = |more: Value| {
        let mut spec = json!({"syncMode": "Pull"});
        spec.as_object_mut()
            .expect("an object")
            .extend(more.as_object().cloned().unwrap_or_default());
        spec
    };
    let none = || json!({});
    let taint = json!({"key": "a/b", "effect": "NoSchedule"});
    let good: Vec<(String, Value)> = vec![
        ("x".repeat(48), pull(none())),
        (
            "zone".into(),
            pull(json!({"zone": "z", "region": "eu-1", "provider": "p"})),
        ),
        (
            "endpoint".into(),
            pull(json!({"apiEndpoint": "https://[::1]:6443/x"})),
        ),
        (
            "hostport".into(),
            pull(json!({"apiEndpoint": "10.0.0.1:6443"})),
        ),
        ("proxy".into(), pull(json!({"proxyURL": "socks5://p:1080"}))),
        (
            "taint".into(),
            pull(json!({"taints": [taint, {"key": "a/b", "effect": "NoExecute"}]})),
        ),
        (
            "models".into(),
            pull(json!({"resourceModels": [
                model(0, &[("cpu", "0", "1000m")]), model(3, &[("cpu", "1", "4")]),
            ]})),
        ),
    ];
    for (name, spec) in good {
        assert_eq!(refusal(&name, spec, none()).await?, None, "{name}");
    }
    let bad: Vec<(String, Value, &str)> = vec![
        (
            "x".repeat(49),
            pull(none()),
            "must be no more than 48 characters",
        ),
        (
            "a.b".into(),
            pull(none()),
            "must consist of lower case letters",
        ),
        ("rbac-generator".into(), pull(none()), "is reserved"),
        (
            "mode".into(),
            json!({"syncMode": "Sideways"}),
            "supported values: \"Pull\", \"Push\"",
        ),
        ("mode".into(), none(), "spec.syncMode"),
        (
            "zones".into(),
            pull(json!({"zone": "a", "zones": ["b"]})),
            "cannot co-exist",
        ),
        (
            "zones".into(),
            pull(json!({"zones": ["a b"]})),
            "spec.zones: ",
        ),
        ("region".into(), pull(json!({"region": "-"})), "spec.region"),
        (
            "endpoint".into(),
            pull(json!({"apiEndpoint": "https://u@h"})),
            "without user",
        ),
        (
            "endpoint".into(),
            pull(json!({"apiEndpoint": "https://h?q"})),
            "without user",
        ),
        (
            "proxy".into(),
            pull(json!({"proxyURL": "ftp://h"})),
            "spec.proxyURL",
        ),
        (
            "secret".into(),
            pull(json!({"secretRef": {"namespace": "", "name": "x"}})),
            "spec.secretRef.namespace",
        ),
        (
            "taint".into(),
            pull(json!({"taints": [taint, taint]})),
            "Duplicate value",
        ),
        (
            "taint".into(),
            pull(json!({"taints": [{"key": "a", "effect": "Go"}]})),
            "effect",
        ),
        (
            "twice".into(),
            pull(json!({"resourceModels": [
                model(0, &[("cpu", "0", "1")]), model(0, &[("cpu", "1", "2")]),
            ]})),
            "Duplicate value",
        ),
        (
            "order".into(),
            pull(json!({"resourceModels": [
                model(1, &[("cpu", "0", "1")]), model(0, &[("cpu", "1", "2")]),
            ]})),
            "ascending",
        ),
        (
            "hole".into(),
            pull(json!({"resourceModels": [
                model(0, &[("cpu", "0", "1")]), model(1, &[("cpu", "2", "4")]),
            ]})),
            "must begin where",
        ),
        (
            "sets".into(),
            pull(json!({"resourceModels": [
                model(0, &[("cpu", "0", "1")]), model(1, &[("memory", "1", "2")]),
            ]})),
            "should be the same",
        ),
    ];
    for (name, spec, want) in bad {
        let said = refusal(&name, spec.clone(), none()).await?;
        let said = said.with_context(|| format!("{name} {spec} was taken"))?;
        assert!(said.contains(want), "{name} {spec}: {said}");
    }
    Ok(())
}

#[tokio::test]
async fn values_that_some_clients_cannot_decode_are_refused() -> Result<()> {
    let condition = |time: &str| {
        json!({"conditions": [{
            "type": "Ready", "status": "True", "reason": "R", "message": "", "lastTransitionTime": time,
        }]})
    };
    let pull = json!({"syncMode": "Pull"});
    let fine = condition("2026-01-02T03:04:05.123456789Z");
    assert_eq!(refusal("times", pull.clone(), fine).await?, None);
    for status in [
        condition("9999-12-31T23:59:59.999999-12:00"),
        condition("2026-01-02T03:04:05+99:99"),
        condition("2026-01-02T03:04:05.1234567890123456789Z"),
        json!({"nodeSummary": {"totalNum": 1_u64 << 62}}),
        json!({"agent": {"lastError": "x".repeat(5000)}}),
        json!({"apiEnablements": vec![json!({"groupVersion": "v1"}); 2001]}),
    ] {
        // A status is wiped at creation, so it is put on a Cluster that exists.
        let said = write_status(&status).await?;
        assert!(said.is_some(), "{} was taken", common_start(&status));
    }
    assert_eq!(
        write_status(&condition("2026-01-02T03:04:05Z")).await?,
        None
    );
    Ok(())
}

async fn write_status(status: &Value) -> Result<Option<String>> {
    use kube::api::{Patch, PatchParams};
    let rig = rig().await?;
    let client = rig.client().await?;
    let kind = ApiResource::erase::<Cluster>(&());
    let clusters: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
    if clusters.get_opt("statuses").await?.is_none() {
        Played::create(&client, "statuses").await?;
    }
    let patch = Patch::Merge(json!({"status": status}));
    match clusters
        .patch_status("statuses", &PatchParams::default(), &patch)
        .await
    {
        Ok(_) => Ok(None),
        Err(kube::Error::Api(status)) if status.code == 422 => Ok(Some(status.message.clone())),
        Err(error) => Err(error.into()),
    }
}

fn common_start(status: &Value) -> String {
    status.to_string().chars().take(120).collect()
}

#[tokio::test]
async fn kubectl_shows_the_columns_users_know() -> Result<()> {
    let rig = rig().await?;
    let client = rig.client().await?;
    let played = Played::create(&client, "columns").await?;
    played.post(true, "up").await?;
    let Some(program) = Parts::from_env()?.any_kubectl() else {
        left_out("the columns that kubectl shows", "there is no kubectl");
        return Ok(());
    };
    let kubectl = async |args: &[&str]| -> Result<Vec<String>> {
        let mut command = tokio::process::Command::new(&program);
        command
            .arg("--kubeconfig")
            .arg(rig.fleet.kubeconfig())
            .args(args);
        let output = command.output().await?;
        let text = String::from_utf8(output.stdout)?;
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
        text.lines()
            .next()
            .map(words)
            .with_context(|| format!("kubectl {args:?}: {error}"))
    };
    let columns = kubectl(&["get", "clusters"]).await?;
    assert_eq!(columns, ["NAME", "VERSION", "MODE", "READY", "AGE"]);
    let columns = kubectl(&["get", "clusters", "-o", "wide"]).await?;
    assert_eq!(
        columns[5..],
        ["ZONES", "REGION", "PROVIDER", "API-ENDPOINT", "PROXY-URL"]
    );
    let shown = kubectl(&["get", "clusters", "columns", "--no-headers"]).await?;
    assert_eq!(shown[..3], ["columns", "Pull", "True"], "{shown:?}");
    let kinds = kubectl(&[
        "api-resources",
        "--categories=karmada-io",
        "--no-headers",
        "-o",
        "name",
    ])
    .await?;
    assert!(!kinds.is_empty());
    for (short, columns) in [
        ("wk", ["NAME", "WORKLOAD-KIND", "APPLIED", "AGE"]),
        ("rb", ["NAME", "SCHEDULED", "FULLYAPPLIED", "AGE"]),
        ("crb", ["NAME", "SCHEDULED", "FULLYAPPLIED", "AGE"]),
        ("pp", ["NAME", "CONFLICT-RESOLUTION", "PRIORITY", "AGE"]),
        ("cpp", ["NAME", "CONFLICT-RESOLUTION", "PRIORITY", "AGE"]),
    ] {
        let table = table(short).await?;
        assert_eq!(table, columns, "{short}");
    }
    Ok(())
}

/// The columns that the API server would print, by the kind's short name in discovery.
async fn table(short: &str) -> Result<Vec<String>> {
    let rig = rig().await?;
    let client = rig.client().await?;
    let path = match short {
        "wk" => "/apis/work.karmada.io/v1alpha1/works",
        "rb" => "/apis/work.karmada.io/v1alpha2/resourcebindings",
        "crb" => "/apis/work.karmada.io/v1alpha2/clusterresourcebindings",
        "pp" => "/apis/policy.karmada.io/v1alpha1/propagationpolicies",
        _ => "/apis/policy.karmada.io/v1alpha1/clusterpropagationpolicies",
    };
    let request = http::Request::get(path)
        .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        .body(Vec::new())?;
    let table: Value = client.request(request).await?;
    let columns = table["columnDefinitions"]
        .as_array()
        .context("no columns")?;
    Ok(columns
        .iter()
        .filter_map(|c| c["name"].as_str())
        .map(str::to_uppercase)
        .collect())
}
