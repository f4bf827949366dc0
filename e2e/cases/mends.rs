//! Carries out what `towline why` names as a mend, as a shell and kubectl would: the lab of built-in servers has neither.

use anyhow::{Context as _, Result, bail, ensure};
use kube::Client;
use serde_json::{Map, Value, json};

use crate::env::{JSON, JSON_PATCH, MERGE, Run, ask};

const API: &str = "/apis/policy.karmada.io/v1alpha1";

/// Words as a shell makes them.
fn words(command: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for character in command.chars() {
        match character {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            other => {
                if let Some(word) = words.last_mut() {
                    word.push(other);
                }
            }
        }
    }
    words
}

/// Where objects of a type lie.
fn collection(kind: &str, namespace: Option<&str>) -> Result<String> {
    let within = namespace
        .map(|it| format!("/namespaces/{it}"))
        .unwrap_or_default();
    Ok(match kind {
        "pp" => format!("{API}{within}/propagationpolicies"),
        "op" => format!("{API}{within}/overridepolicies"),
        "cpp" => format!("{API}/clusterpropagationpolicies"),
        "rb" => format!("/apis/work.karmada.io/v1alpha2{within}/resourcebindings"),
        "work" => format!("/apis/work.karmada.io/v1alpha1{within}/works"),
        "deployments.apps" => format!("/apis/apps/v1{within}/deployments"),
        "cluster" => "/apis/cluster.karmada.io/v1alpha1/clusters".to_owned(),
        other => bail!("no test knows {other}"),
    })
}

/// Does what a command says: to the API server of `client`, or by `towline`.
pub(super) async fn carry_out(
    client: &Client,
    towline: impl AsyncFn(&[&str]) -> Result<Run>,
    command: &str,
) -> Result<()> {
    if let Some(yaml) = command.strip_prefix("kubectl apply -f - <<'EOF'\n") {
        let yaml = yaml.strip_suffix("\nEOF").context("no end")?;
        return apply(client, &serde_yaml::from_str(yaml)?).await;
    }
    let all = words(command);
    let mut rest: Vec<&str> = all.iter().map(String::as_str).collect();
    let namespace = (rest.get(1) == Some(&"-n"))
        .then(|| rest.drain(1..3).nth(1))
        .flatten();
    let send = async |of: &str, form: &str, patch: &str| -> Result<()> {
        let (kind, name) = of.split_once('/').context("no name")?;
        let at = format!("{}/{name}", collection(kind, namespace)?);
        ask(client, "PATCH", &at, Some((form, patch))).await?.ok()?;
        Ok(())
    };
    let said = |part: &str, pairs: &[&str]| {
        let pairs = pairs.iter().filter_map(|it| it.split_once('='));
        let texts: Map<_, _> = pairs
            .map(|(key, value)| (key.to_owned(), json!(value)))
            .collect();
        json!({"metadata": {part: texts}}).to_string()
    };
    match rest[..] {
        ["kubectl", "patch", of, "--type=merge", "-p", patch] => send(of, MERGE, patch).await,
        ["kubectl", "patch", of, "--type=json", "-p", patch] => send(of, JSON_PATCH, patch).await,
        ["kubectl", "patch", kind, name, "--type=merge", "-p", patch] => {
            send(&format!("{kind}/{name}"), MERGE, patch).await
        }
        ["kubectl", "annotate", kind, name, ref pairs @ ..] => {
            let patch = said("annotations", pairs);
            send(&format!("{kind}/{name}"), MERGE, &patch).await
        }
        [
            "kubectl",
            "label",
            kind,
            name,
            "--overwrite",
            ref pairs @ ..,
        ] => {
            let patch = said("labels", pairs);
            send(&format!("{kind}/{name}"), MERGE, &patch).await
        }
        ["kubectl", "scale", kind, name, replicas] => {
            let replicas: i64 = replicas.trim_start_matches("--replicas=").parse()?;
            let patch = json!({"spec": {"replicas": replicas}}).to_string();
            send(&format!("{kind}/{name}"), MERGE, &patch).await
        }
        ["towline", ref args @ ..] => {
            towline(args).await?.ok()?;
            Ok(())
        }
        _ => bail!("no test carries out {command}"),
    }
}

/// Makes a policy.
async fn apply(client: &Client, object: &Value) -> Result<()> {
    let at = match object["kind"].as_str() {
        Some("PropagationPolicy") => {
            let namespace = object["metadata"]["namespace"].as_str();
            collection("pp", Some(namespace.context("no namespace")?))?
        }
        Some("ClusterPropagationPolicy") => collection("cpp", None)?,
        _ => bail!("no test applies {object}"),
    };
    ensure!(object["metadata"]["name"].is_string(), "{object}");
    ask(client, "POST", &at, Some((JSON, &object.to_string())))
        .await?
        .ok()?;
    Ok(())
}
