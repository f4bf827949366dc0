//! A hub that turned on its members: whoever may write Works there tries to own a member by them, against
//! an agent with the rights that are shipped. Each attack runs beside what is rightful.

pub(super) mod rig;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};

use crate::env::{APPLY, Version, ask, wait_for};
use rig::{CLUSTER, EXECUTION, Rig, SOON};

/// A DaemonSet that owns every node of the cluster it runs in.
pub(super) fn privileged(namespace: &str) -> Value {
    daemon_set(
        namespace,
        json!({"privileged": true}),
        json!([{"name": "all", "hostPath": {"path": "/"}}]),
    )
}

/// A DaemonSet that reads the agent's key.
pub(super) fn reads_key(namespace: &str) -> Value {
    let volumes = json!([{"name": "all", "secret": {"secretName": "towline-agent-credentials"}}]);
    daemon_set(
        namespace,
        json!({"allowPrivilegeEscalation": false}),
        volumes,
    )
}

fn daemon_set(namespace: &str, security: Value, volumes: Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": "evil", "namespace": namespace},
        "spec": {
            "selector": {"matchLabels": {"app": "evil"}},
            "template": {
                "metadata": {"labels": {"app": "evil"}},
                "spec": {
                    "containers": [{
                        "name": "evil", "image": crate::env::PAUSE_IMAGE, "securityContext": security,
                        "volumeMounts": [{"name": "all", "mountPath": "/all"}],
                    }],
                    "volumes": volumes,
                },
            },
        },
    })
}

fn config_map(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace}, "data": {"k": "evil"}})
}

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name,
        "labels": {"pod-security.kubernetes.io/enforce": "privileged"}}})
}

fn role(kind: &str, name: &str) -> Value {
    let mut role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
        "metadata": {"name": name}});
    match kind {
        "ClusterRole" => {
            role["rules"] = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
        }
        _ => {
            role["roleRef"] = json!({"apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole", "name": "cluster-admin"});
            role["subjects"] = json!([{"kind": "ServiceAccount", "name": "towline-agent",
                "namespace": "towline-system"}]);
        }
    }
    role
}

/// What a hostile hub tries, what it is told, and whether the API server's policy refuses it too: what
/// limits the policy itself is beyond every policy.
fn attacks() -> Vec<(&'static str, Value, &'static str, bool)> {
    const RESERVED: &str = "is reserved and no Work reaches it";
    const HOME: &str = "is the agent's own and no Work reaches it";
    const OWN: &str = "belongs to the agent's own installation and no Work reaches it";
    let image = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "towline-agent", "namespace": "towline-system"},
        "spec": {"selector": {"matchLabels": {"app.kubernetes.io/name": "towline-agent"}},
            "template": {"metadata": {"labels": {"app.kubernetes.io/name": "towline-agent"}},
                "spec": {"containers": [{"name": "agent", "image": "evil.example/agent:1"}]}}}});
    let secret = json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "towline-agent-credentials", "namespace": "towline-system"},
        "stringData": {"k": "evil"}});
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": "towline-agent", "namespace": "towline-system"}});
    let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "towline-agent"},
        "spec": {"policyName": "towline-agent", "validationActions": ["Audit"]}});
    vec![
        ("privileged", privileged("kube-system"), RESERVED, true),
        ("reads-key", reads_key("towline-system"), HOME, true),
        (
            "aws-auth",
            config_map("kube-system", "aws-auth"),
            RESERVED,
            true,
        ),
        (
            "coredns",
            config_map("kube-system", "coredns"),
            RESERVED,
            true,
        ),
        (
            "public",
            config_map("kube-public", "cluster-info"),
            RESERVED,
            true,
        ),
        ("pod-security", namespace("kube-system"), RESERVED, true),
        ("new-reserved", namespace("kube-evil"), RESERVED, true),
        ("own-namespace", namespace("towline-system"), HOME, true),
        ("own-image", image, HOME, true),
        ("own-secret", secret, HOME, true),
        ("own-account", account, HOME, true),
        (
            "own-role",
            role("ClusterRole", "towline-agent-workloads"),
            OWN,
            true,
        ),
        (
            "own-binding",
            role("ClusterRoleBinding", "towline-agent-more"),
            OWN,
            true,
        ),
        ("own-policy", policy, OWN, false),
    ]
}

fn api(client: &kube::Client, manifest: &Value) -> Api<DynamicObject> {
    let text = |path: &str| manifest.pointer(path).and_then(Value::as_str);
    let version = text("/apiVersion").unwrap_or_default();
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let kind = GroupVersionKind::gvk(group, version, text("/kind").unwrap_or_default());
    let kind = ApiResource::from_gvk(&kind);
    match text("/metadata/namespace") {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &kind),
        None => Api::all_with(client.clone(), &kind),
    }
}

fn name(manifest: &Value) -> &str {
    manifest["metadata"]["name"].as_str().unwrap_or_default()
}

/// What somebody decided of an object, without what its server and controllers write.
async fn decided(client: &kube::Client, manifest: &Value) -> Result<Option<Value>> {
    let Some(found) = api(client, manifest).get_opt(name(manifest)).await? else {
        return Ok(None);
    };
    let mut value = serde_json::to_value(found)?;
    if let Some(object) = value.as_object_mut() {
        object.remove("status");
        if manifest["kind"] == "Secret" {
            // The agent keeps its key there, and renews it.
            object.remove("data");
        }
    }
    let metadata = &value["metadata"];
    value["metadata"] = json!({"labels": metadata["labels"], "annotations": metadata["annotations"],
        "ownerReferences": metadata["ownerReferences"]});
    if let Some(annotations) = value["metadata"]["annotations"].as_object_mut() {
        annotations.retain(|key, _| !key.starts_with("deployment.kubernetes.io"));
    }
    Ok(Some(value))
}

/// Nothing of it is applied, each Work says by which rule; what is rightful is applied; the API server alone
/// refuses the same; and what the owner allows goes through, and shows.
#[tokio::test(flavor = "multi_thread")]
async fn hostile_hub_on_kube_apiserver() -> Result<()> {
    let mut rig = Rig::start("hostile", Version::default()).await?;
    for map in ["aws-auth", "coredns"] {
        let map = serde_json::from_value(json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": map}, "data": {"k": "rightful"}}))?;
        let maps = api(&rig.owner, &config_map("kube-system", ""));
        maps.create(&PostParams::default(), &map).await?;
    }
    applied_by_an_older_agent(&rig).await?;
    rig.start_agent().await?;
    let mut before = Vec::new();
    for (_, manifest, ..) in attacks() {
        before.push(decided(&rig.owner, &manifest).await?);
    }

    for (work, manifest, ..) in attacks() {
        let mut manifest = manifest;
        // Else an object that exists is left alone anyway.
        manifest["metadata"]["annotations"] =
            json!({"work.karmada.io/conflict-resolution": "overwrite"});
        rig.deliver(work, &[manifest]).await?;
    }
    let twin = [
        namespace("shop"),
        privileged("shop"),
        config_map("shop", "coredns"),
    ];
    rig.deliver("twin", &twin).await?;
    rig.applied("twin", "True", "").await?;
    for (work, _, rule, _) in attacks() {
        let said = rig.applied(work, "False", rule).await?;
        let opens = said.contains("--allow-namespace");
        ensure!(opens == rule.contains("reserved"), "{work}: {said}");
    }
    for ((work, manifest, ..), before) in attacks().iter().zip(&before) {
        let now = decided(&rig.owner, manifest).await?;
        ensure!(now == *before, "{work}: {before:?} became {now:?}");
    }
    leaves_what_an_older_agent_applied(&rig).await?;
    the_policy_alone_refuses(&rig).await?;

    // What the older agent left is an orphan from now on, which may have been counted by now.
    let said = rig.fleet.cli(&["check", CLUSTER]).await?;
    ensure!(said.stdout.contains("none allowed"), "{said:?}");
    rig.allow("kube-system").await?;
    rig.applied("privileged", "True", "").await?;
    rig.applied("pod-security", "True", "").await?;
    for work in [
        "public",
        "new-reserved",
        "reads-key",
        "own-image",
        "own-role",
    ] {
        rig.applied(work, "False", "no Work reaches it").await?;
    }
    says_what_is_allowed(&rig).await?;

    rig.withdraw().await?;
    rig.leave().await?;
    rig.passed().await;
    Ok(())
}

/// The policy is one that the oldest member's API server takes.
#[tokio::test(flavor = "multi_thread")]
async fn hostile_hub_on_the_oldest_member() -> Result<()> {
    let mut rig = Rig::start("hostile-oldest", Version::V1_30).await?;
    rig.start_agent().await?;
    rig.deliver("twin", &[namespace("shop"), privileged("shop")])
        .await?;
    rig.deliver("privileged", &[privileged("kube-system")])
        .await?;
    rig.applied("twin", "True", "").await?;
    rig.applied("privileged", "False", "is reserved").await?;
    the_policy_alone_refuses(&rig).await?;
    rig.leave().await?;
    rig.passed().await;
    Ok(())
}

/// The hub's own kubeconfig in place of the member's installs nothing there.
#[tokio::test(flavor = "multi_thread")]
async fn a_hub_is_no_member() -> Result<()> {
    let rig = Rig::bare("hub-is-no-member").await?;
    let said = rig.register(rig.fleet.kubeconfig(), &[]).await?.refused()?;
    ensure!(
        said.code == 5 && said.stderr.contains("is a hub"),
        "{said:?}"
    );
    ensure!(said.stderr.contains("--kubeconfig FILE"), "{said:?}");
    let hub = rig.fleet.client().await?;
    let found = api(&hub, &namespace("")).get_opt("towline-system").await?;
    ensure!(found.is_none(), "something was installed into the hub");
    rig.passed().await;
    Ok(())
}

fn older() -> Value {
    config_map("kube-system", "older")
}

/// What an agent that knew no reserved namespaces left in one.
async fn applied_by_an_older_agent(rig: &Rig) -> Result<()> {
    let mut map = older();
    map["metadata"]["labels"] = json!({"karmada.io/managed": "true"});
    map["metadata"]["annotations"] = json!({"work.karmada.io/name": "older",
        "work.karmada.io/namespace": EXECUTION});
    let params = PatchParams::apply("towline");
    let map: DynamicObject = serde_json::from_value(map)?;
    let maps = api(&rig.owner, &older());
    maps.patch("older", &params, &Patch::Apply(&map)).await?;
    Ok(())
}

/// It is neither changed nor deleted nor relieved of its marks; its Work goes.
async fn leaves_what_an_older_agent_applied(rig: &Rig) -> Result<()> {
    let maps = api(&rig.owner, &older());
    let before = maps.get("older").await?;
    let mut changed = older();
    changed["data"] = json!({"k": "changed"});
    rig.deliver("older", &[changed]).await?;
    rig.applied("older", "False", "is reserved").await?;
    rig.delete("older").await?;
    let after = maps.get("older").await?;
    ensure!(
        before.metadata.resource_version == after.metadata.resource_version,
        "it was written: {after:?}"
    );
    Ok(())
}

/// Without the agent's own rule, as its ServiceAccount, with every right that RBAC can give.
async fn the_policy_alone_refuses(rig: &Rig) -> Result<()> {
    let agent = rig.as_agent().await?;
    let bindings: Api<ClusterRoleBinding> = Api::all(rig.owner.clone());
    let all = serde_json::from_value(role("ClusterRoleBinding", "everything"))?;
    bindings.create(&PostParams::default(), &all).await?;
    for (work, manifest, _, by_policy) in attacks() {
        let version = manifest["apiVersion"].as_str().unwrap_or_default();
        let kind = api(&agent, &manifest);
        let path = format!("{}/{}", kind.resource_url(), name(&manifest));
        ensure!(path.contains(version), "{path}");
        let path = format!("{path}?fieldManager=towline&force=true&dryRun=All");
        let body = manifest.to_string();
        wait_for(&format!("the policy's word on {work}"), SOON, async || {
            let answer = ask(&agent, "PATCH", &path, Some((APPLY, &body))).await?;
            // Rights come a moment after their binding.
            if by_policy {
                answer.refused_by("towline-agent")?;
            } else {
                answer.ok()?;
            }
            Ok(true)
        })
        .await?;
        let path = path.replace("?fieldManager=towline&force=true", "?");
        let exists = decided(&rig.owner, &manifest).await?.is_some();
        // System namespaces are kept by the API server itself, and what is its own the agent takes away.
        let own = work.starts_with("own-") || manifest["kind"] == "Namespace";
        if by_policy && exists && !own {
            let answer = ask(&agent, "DELETE", &path, None).await?;
            answer.refused_by("towline-agent")?;
        }
    }
    for (manifest, verb) in [(privileged("shop"), "PATCH"), (namespace("shop"), "PATCH")] {
        let path = format!(
            "{}/{}",
            api(&agent, &manifest).resource_url(),
            name(&manifest)
        );
        let path = format!("{path}?fieldManager=towline&force=true&dryRun=All");
        let body = manifest.to_string();
        ask(&agent, verb, &path, Some((APPLY, &body))).await?.ok()?;
    }
    bindings
        .delete("everything", &DeleteParams::default())
        .await?;
    Ok(())
}

/// `towline check` names what the owner allows, for people and for programs.
async fn says_what_is_allowed(rig: &Rig) -> Result<()> {
    const WANT: &str = "allowed to Works: kube-system";
    wait_for("the agent's word on what is allowed", SOON, async || {
        let said = rig.fleet.cli(&["check", CLUSTER]).await?;
        Ok(said.stdout.contains(WANT))
    })
    .await?;
    let said = rig.fleet.cli(&["check", "-o", "json"]).await?;
    let found: Vec<Value> =
        serde_json::from_str(&said.stdout).with_context(|| format!("no JSON: {}", said.stdout))?;
    let mut of_cluster = found.iter().filter(|f| f["cluster"] == CLUSTER);
    let allowed = of_cluster.find(|f| f["step"] == "reserved namespaces");
    let allowed = allowed.context("the step is missing")?;
    ensure!(
        allowed["message"] == WANT && allowed["ok"] == true,
        "{allowed}"
    );
    Ok(())
}
