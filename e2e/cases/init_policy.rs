//! The admission policies on real API servers: what an agent may do with its own objects, and no more.

use anyhow::{Context as _, Result, ensure};
use kube::Client;
use serde_json::{Value, json};
use std::time::Duration;

use crate::env::{
    Answer, JSON, JSON_PATCH, MERGE, PreparedHub, Registered, Version, ask, wait_for,
};

const AGENTS: &str = "towline-agents";
const TOKENS: &str = "towline-tokens";
const CSRS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

async fn patch(client: &Client, path: &str, patch: &Value) -> Result<Answer> {
    ask(client, "PATCH", path, Some((MERGE, &patch.to_string()))).await
}

async fn post(client: &Client, path: &str, object: &Value) -> Result<Answer> {
    ask(client, "POST", path, Some((JSON, &object.to_string()))).await
}

fn work(size: usize) -> Value {
    json!({
        "apiVersion": "work.karmada.io/v1alpha1",
        "kind": "Work",
        "metadata": {"name": "w", "finalizers": ["example.com/theirs"], "labels": {"a": "b"}},
        "spec": {"workload": {"manifests": [{
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "c", "namespace": "default"},
            "data": {"d": "x".repeat(size)},
        }]}},
    })
}

async fn own_cluster(m1: &Registered, admin: &Client) -> Result<()> {
    let status = format!("{}/status", m1.cluster_path());
    let version = json!({"status": {"kubernetesVersion": "v1.36.3"}});
    patch(&m1.client, &status, &version).await?.ok()?;
    // Beside the status everything is dropped by the API server: nothing of it may arrive.
    let before = ask(admin, "GET", &m1.cluster_path(), None)
        .await?
        .ok()?
        .json()?;
    for more in [
        json!({"spec": {"region": "elsewhere", "syncMode": "Push"}}),
        json!({"metadata": {"labels": {"tier": "gold"}}}),
        json!({"metadata": {"annotations": {"towline.dev/registration-id": "mine"}}}),
        json!({"metadata": {"finalizers": ["example.com/stay"]}}),
        json!({"metadata": {"ownerReferences": [
            {"apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": "u"},
        ]}}),
    ] {
        let answer = patch(&m1.client, &status, &more).await?;
        ensure!(answer.code == 200 || answer.code == 403, "{answer:?}");
        let after = ask(admin, "GET", &m1.cluster_path(), None)
            .await?
            .ok()?
            .json()?;
        for field in [
            "/spec",
            "/metadata/labels",
            "/metadata/annotations",
            "/metadata/finalizers",
            "/metadata/ownerReferences",
        ] {
            ensure!(
                before.pointer(field) == after.pointer(field),
                "{more} changed {field}"
            );
        }
    }
    Ok(())
}

/// Changes that bring field ownership along as nobody has it, to fill the store with.
fn ownership(api_version: &str) -> Vec<Value> {
    let fields: serde_json::Map<String, Value> = (0..2_000)
        .map(|number| (format!("f:{}{number}", "x".repeat(50)), json!({})))
        .collect();
    let entry = |operation: &str, fields: &Value| {
        json!({"metadata": {"managedFields": [{
            "manager": "flood",
            "operation": operation,
            "apiVersion": api_version,
            "time": "2026-01-01T00:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": fields,
        }]}})
    };
    ["Update", "Apply"]
        .into_iter()
        .flat_map(|operation| {
            [
                entry(operation, &json!({"f:spec": fields})),
                entry(operation, &json!({"f:metadata": {"f:labels": fields}})),
                entry(operation, &json!(fields)),
            ]
        })
        .collect()
}

/// What the server itself does not leave out, a policy must refuse.
fn stays_small(answer: &Answer) -> Result<()> {
    let refused = matches!(answer.code, 400 | 403 | 422);
    ensure!(
        refused || answer.body.len() < 16_384,
        "{} grew to {} bytes",
        answer.request,
        answer.body.len()
    );
    Ok(())
}

async fn own_lease(m1: &Registered) -> Result<()> {
    let path = m1.lease_path();
    for time in ["2026-01-01T00:00:00.000001Z", "9999-12-31T23:59:59.000000Z"] {
        patch(&m1.client, &path, &json!({"spec": {"renewTime": time}}))
            .await?
            .ok()?;
    }
    for more in [
        json!({"spec": {"holderIdentity": "m2"}}),
        json!({"spec": {"leaseDurationSeconds": 2_147_483_647}}),
        json!({"spec": {"leaseDurationSeconds": null}}),
        json!({"spec": {"leaseTransitions": 1}}),
        json!({"spec": {"acquireTime": "2026-01-01T00:00:00.000000Z"}}),
        json!({"metadata": {"labels": {"a": "b"}}}),
        json!({"metadata": {"annotations": {"a": "b"}}}),
        json!({"metadata": {"finalizers": ["example.com/stay"]}}),
        json!({"metadata": {"ownerReferences": null}}),
    ] {
        patch(&m1.client, &path, &more).await?.refused_by(AGENTS)?;
    }
    for flood in ownership("coordination.k8s.io/v1") {
        stays_small(&patch(&m1.client, &path, &flood).await?)?;
    }
    Ok(())
}

async fn own_work(m1: &Registered, admin: &Client) -> Result<()> {
    // As large as etcd takes it: the policy must be cheap enough for that.
    post(admin, &m1.works_path(), &work(1_000_000))
        .await?
        .ok()?;
    let path = format!("{}/w", m1.works_path());
    let ours = "karmada.io/execution-controller";
    let theirs = "example.com/theirs";
    let finalizers = |list: &[&str]| json!({"metadata": {"finalizers": list}});

    patch(&m1.client, &path, &finalizers(&[theirs, ours]))
        .await?
        .ok()?;
    let status = json!({"status": {"conditions": [{
        "type": "Applied", "status": "True", "reason": "AppliedSuccessful", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]}});
    patch(&m1.client, &format!("{path}/status"), &status)
        .await?
        .ok()?;
    for more in [
        finalizers(&[ours]),
        finalizers(&[theirs, ours, "example.com/mine"]),
        json!({"metadata": {"labels": {"a": "c"}}}),
        json!({"metadata": {"labels": null}}),
        json!({"metadata": {"annotations": {"a": "b"}}}),
        json!({"metadata": {"ownerReferences": [
            {"apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": "u"},
        ]}}),
        json!({"spec": {"workload": {"manifests": []}}}),
        json!({"spec": {"suspendDispatching": true}}),
    ] {
        patch(&m1.client, &path, &more).await?.refused_by(AGENTS)?;
    }
    let operations = r#"[{"op":"remove","path":"/spec/workload/manifests/0"}]"#;
    ask(&m1.client, "PATCH", &path, Some((JSON_PATCH, operations)))
        .await?
        .refused_by(AGENTS)?;
    // Through the status subresource the rest is dropped.
    let before = ask(admin, "GET", &path, None).await?.ok()?.json()?;
    let more = json!({"spec": {"workload": {"manifests": []}}, "metadata": {"labels": {"a": "c"}}});
    patch(&m1.client, &format!("{path}/status"), &more).await?;
    let after = ask(admin, "GET", &path, None).await?.ok()?.json()?;
    ensure!(
        before["spec"] == after["spec"],
        "the status subresource changed the spec"
    );
    ensure!(
        before["metadata"]["labels"] == after["metadata"]["labels"],
        "or the labels"
    );

    // Its last word on a Work that goes away.
    patch(admin, &path, &finalizers(&[ours])).await?.ok()?;
    ask(admin, "DELETE", &path, None).await?.ok()?;
    patch(&m1.client, &path, &finalizers(&[])).await?.ok()?;
    let gone = ask(admin, "GET", &path, None).await?;
    ensure!(gone.code == 404, "{gone:?}");
    Ok(())
}

fn event(change: &Value) -> Value {
    let mut event = json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": "w."},
        "involvedObject": {
            "apiVersion": "work.karmada.io/v1alpha1",
            "kind": "Work",
            "namespace": "karmada-es-m1",
            "name": "w",
        },
        "reason": "SyncSucceed",
        "message": "applied",
        "source": {"component": "towline-agent"},
        "type": "Normal",
    });
    json_merge(&mut event, change);
    event
}

fn json_merge(target: &mut Value, change: &Value) {
    match (target, change) {
        (Value::Object(target), Value::Object(change)) => {
            for (key, value) in change {
                json_merge(target.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (target, change) => *target = change.clone(),
    }
}

async fn own_events(m1: &Registered) -> Result<()> {
    let path = m1.events_path();
    post(&m1.client, &path, &event(&json!({}))).await?.ok()?;
    post(
        &m1.client,
        &path,
        &event(&json!({"message": "x".repeat(1024)})),
    )
    .await?
    .ok()?;
    // What Karmada's agent says, in its controllers' names.
    for source in ["execution-controller", "work-status-controller"] {
        let said = json!({"source": {"component": source}, "reportingComponent": source});
        post(&m1.client, &path, &event(&said)).await?.ok()?;
    }
    for change in [
        json!({"message": "x".repeat(1025)}),
        json!({"involvedObject": {"kind": "ConfigMap", "apiVersion": "v1"}}),
        json!({"source": {"component": "kubelet"}}),
        json!({"reportingComponent": "kubelet"}),
        json!({"reportingComponent": "execution-controller"}),
        json!({"metadata": {"labels": {"a": "b"}}}),
        json!({"metadata": {"annotations": {"a": "x".repeat(100_000)}}}),
        json!({"involvedObject": {"fieldPath": "x".repeat(100_000)}}),
        json!({"source": {"host": "x".repeat(100_000)}}),
        json!({"related": {"kind": "Secret", "namespace": "kube-system", "name": "s"}}),
    ] {
        post(&m1.client, &path, &event(&change))
            .await?
            .refused_by(AGENTS)?;
    }
    Ok(())
}

fn csr(name: &str, change: &Value) -> Result<Value> {
    let key = common::chance::secret::key_pair()?;
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, "whatever");
    let pem = params.serialize_request(&key)?.pem()?;
    let mut csr = json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name, "annotations": {"towline.dev/cluster-id": "x".repeat(36)}},
        "spec": {
            "request": base64_of(&pem),
            "signerName": "kubernetes.io/kube-apiserver-client",
            "usages": ["digital signature", "client auth"],
            "expirationSeconds": 7_776_000,
        },
    });
    json_merge(&mut csr, change);
    Ok(csr)
}

fn base64_of(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}

/// The form of a request, the same for tokens and agents.
async fn requests_have_one_form(client: &Client, policy: &str, tag: char) -> Result<()> {
    let name = format!("towline-{}", String::from(tag).repeat(32));
    post(client, CSRS, &csr(&name, &json!({}))?).await?.ok()?;
    ask(client, "GET", &format!("{CSRS}/{name}"), None)
        .await?
        .ok()?;
    let other = |n: u32| format!("towline-{}{n}", String::from(tag).repeat(40));
    let long = "A".repeat(6000);
    let mut changes = vec![
        json!({"metadata": {"name": "towline-short"}}),
        json!({"metadata": {"name": format!("other-{}", "a".repeat(40))}}),
        json!({"metadata": {"name": null, "generateName": format!("towline-{}", "a".repeat(32))}}),
        json!({"metadata": {"labels": {"a": "b"}}}),
        json!({"metadata": {"annotations": {"a": "b"}}}),
        json!({"metadata": {"annotations": {"towline.dev/cluster-id": "x".repeat(65)}}}),
        json!({"metadata": {"finalizers": ["example.com/stay"]}}),
        json!({"metadata": {"ownerReferences": [
            {"apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": "u"},
        ]}}),
        json!({"spec": {"signerName": "kubernetes.io/kubelet-serving"}}),
        json!({"spec": {"signerName": "kubernetes.io/kube-apiserver-client-kubelet"}}),
        json!({"spec": {"signerName": "example.com/mine"}}),
        json!({"spec": {"expirationSeconds": 7_776_001}}),
        json!({"spec": {"expirationSeconds": null}}),
    ];
    for (number, flood) in (100..).zip(ownership("certificates.k8s.io/v1")) {
        stays_small(&post(client, CSRS, &csr(&other(number), &flood)?).await?)?;
    }
    let padded = format!("{}\n{long}", "-----BEGIN CERTIFICATE REQUEST-----");
    changes.push(json!({"spec": {"request": base64_of(&padded)}}));
    for (number, change) in (0..).zip(changes) {
        let request = csr(&other(number), &change)?;
        let answer = post(client, CSRS, &request).await?;
        // What the API server itself does not take never reaches a policy.
        let (invalid, forbidden) = (answer.code == 400 || answer.code == 422, answer.code == 403);
        ensure!(invalid || forbidden, "{change} was not refused: {answer:?}");
        if forbidden && answer.body.contains("ValidatingAdmissionPolicy") {
            answer.refused_by(policy)?;
        }
    }
    Ok(())
}

/// Rights given to all agents by mistake are none: the policy refuses what it does not list.
async fn a_careless_grant_is_none(
    hub: &PreparedHub,
    m1: &Registered,
    m2: &Registered,
) -> Result<()> {
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "careless"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [
            {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:karmada:agents"},
            {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:bootstrappers:towline"},
        ],
    });
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    post(&hub.admin, bindings, &binding).await?.ok()?;
    wait_for("the grant", Duration::from_secs(120), || async {
        Ok(ask(&m1.client, "GET", "/api/v1/secrets", None).await?.code == 200)
    })
    .await?;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}});
    post(&m1.client, "/api/v1/namespaces/default/configmaps", &map)
        .await?
        .refused_by(AGENTS)?;
    post(&m1.client, &m2.works_path(), &work(1))
        .await?
        .refused_by(AGENTS)?;
    let spec = json!({"spec": {"region": "elsewhere"}});
    patch(&m1.client, &m1.cluster_path(), &spec)
        .await?
        .refused_by(AGENTS)?;
    patch(
        &m1.client,
        &format!("{}/status", m2.cluster_path()),
        &json!({}),
    )
    .await?
    .refused_by(AGENTS)?;
    let renew = json!({"spec": {"renewTime": "2026-01-01T00:00:00.000001Z"}});
    patch(&m1.client, &m2.lease_path(), &renew)
        .await?
        .refused_by(AGENTS)?;
    ask(&m1.client, "DELETE", &m1.cluster_path(), None)
        .await?
        .refused_by(AGENTS)?;
    ask(&m1.client, "DELETE", &m2.lease_path(), None)
        .await?
        .refused_by(AGENTS)?;
    post(
        &m1.client,
        &m2.events_path(),
        &event(&json!({"involvedObject": {"namespace": "karmada-es-m2"}})),
    )
    .await?
    .refused_by(AGENTS)?;
    let eviction = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let token = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}});
    post(&m1.client, eviction, &token)
        .await?
        .refused_by(AGENTS)?;
    // A group of ours with another name is no agent at all.
    let odd = hub
        .client_of("somebody", &["system:karmada:agents".to_owned()])
        .await?;
    patch(&odd, &m1.lease_path(), &renew)
        .await?
        .refused_by(AGENTS)?;
    let token = hub
        .client_of(
            "system:bootstrap:abcdef",
            &["system:bootstrappers:towline".to_owned()],
        )
        .await?;
    post(&token, "/api/v1/namespaces/default/configmaps", &map)
        .await?
        .refused_by(TOKENS)?;
    patch(&token, &m1.lease_path(), &renew)
        .await?
        .refused_by(TOKENS)?;
    ask(&hub.admin, "DELETE", &format!("{bindings}/careless"), None)
        .await?
        .ok()?;
    Ok(())
}

async fn policies_hold(version: Version) -> Result<()> {
    let hub = PreparedHub::start(&format!("policy-{version}"), version).await?;
    let m1 = hub.register("m1").await?;
    let m2 = hub.register("m2").await?;
    own_cluster(&m1, &hub.admin).await.context("own Cluster")?;
    own_lease(&m1).await.context("own Lease")?;
    own_work(&m1, &hub.admin).await.context("own Works")?;
    own_events(&m1).await.context("own Events")?;
    requests_have_one_form(&m1.client, AGENTS, 'a')
        .await
        .context("requests of agents")?;
    let token = hub
        .client_of(
            "system:bootstrap:abcdef",
            &["system:bootstrappers:towline".to_owned()],
        )
        .await?;
    requests_have_one_form(&token, TOKENS, 't')
        .await
        .context("requests of tokens")?;
    a_careless_grant_is_none(&hub, &m1, &m2)
        .await
        .context("a careless grant")?;

    // The shared right to ask for a certificate ends with the registration's own rights.
    let binding =
        "/apis/rbac.authorization.k8s.io/v1/namespaces/karmada-es-m1/rolebindings/towline:agent";
    patch(
        &hub.admin,
        binding,
        &json!({"subjects": [], "metadata": {"finalizers": null}}),
    )
    .await?
    .ok()?;
    wait_for(
        "the end of m1's rights",
        Duration::from_secs(120),
        || async { Ok(ask(&m1.client, "GET", &m1.works_path(), None).await?.code == 403) },
    )
    .await?;
    let name = format!("towline-{}", "z".repeat(32));
    let answer = post(&m1.client, CSRS, &csr(&name, &json!({}))?)
        .await?
        .refused_by(AGENTS)?;
    ensure!(answer.body.contains("no longer in force"), "{answer:?}");
    post(&m2.client, CSRS, &csr(&name, &json!({}))?)
        .await?
        .ok()?;
    Ok(())
}

/// On the newest hub.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_writes_its_own_and_no_more() -> Result<()> {
    policies_hold(Version::V1_36).await
}

/// And on the oldest.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_writes_its_own_and_no_more_on_the_oldest_hub() -> Result<()> {
    policies_hold(Version::V1_33).await
}

/// A Ready Cluster is not deleted by a slip.
#[tokio::test(flavor = "multi_thread")]
async fn a_ready_cluster_is_not_deleted_without_a_word() -> Result<()> {
    let hub = PreparedHub::start("protected", Version::V1_36).await?;
    let m1 = hub.register("m1").await?;
    let m2 = hub.register("m2").await?;
    let ready = json!({"status": {"conditions": [{
        "type": "Ready", "status": "True", "reason": "ClusterReady", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]}});
    patch(&m1.client, &format!("{}/status", m1.cluster_path()), &ready)
        .await?
        .ok()?;
    let answer = ask(&hub.admin, "DELETE", &m1.cluster_path(), None).await?;
    let answer = answer.refused_by("towline-clusters")?;
    ensure!(answer.body.contains("towline unregister m1"), "{answer:?}");
    let all = "/apis/cluster.karmada.io/v1alpha1/clusters";
    ask(&hub.admin, "DELETE", all, None)
        .await?
        .refused_by("towline-clusters")?;

    let note = |mode: &str| json!({"metadata": {"annotations": {"towline.dev/unregister": mode}}});
    patch(&hub.admin, &m1.cluster_path(), &note("yes"))
        .await?
        .ok()?;
    ask(&hub.admin, "DELETE", &m1.cluster_path(), None)
        .await?
        .refused_by("towline-clusters")?;
    patch(&hub.admin, &m1.cluster_path(), &note("keep-workloads"))
        .await?
        .ok()?;
    ask(&hub.admin, "DELETE", &m1.cluster_path(), None)
        .await?
        .ok()?;
    // One that is not Ready may go.
    let gone = ask(&hub.admin, "DELETE", &m2.cluster_path(), None).await?;
    ensure!(gone.code == 200 || gone.code == 404, "{gone:?}");
    Ok(())
}
