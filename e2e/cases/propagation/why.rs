//! Seeded failures on a hub: `towline why` names the link that is broken, and what it names as its mend mends it.
//!
//! The test plays the members' agents and their kubelets; it types the commands.

use anyhow::{Context as _, Result, ensure};
use kube::Client;
use serde_json::{Value, json};

use super::rig::{MINE, Rig, SOON, THEIRS, path, policy};
use crate::env::{Answer, MERGE, Parts, ask, left_out, wait_for, wait_for_some};

const CLUSTERS: &str = "/apis/cluster.karmada.io/v1alpha1/clusters";

/// Whether there is no kubectl by which a mend could be typed.
pub(super) fn nobody_types() -> bool {
    let found = Parts::from_env().is_ok_and(|it| it.any_kubectl().is_some());
    if !found {
        left_out("mends typed on a hub", "there is no kubectl");
    }
    !found
}

/// What `towline why` says, as programs read it.
pub(super) async fn why(rig: &Rig, words: &[&str]) -> Result<Value> {
    let mut args = vec!["why"];
    args.extend(words);
    args.extend(["-n", MINE, "-o", "json"]);
    let run = rig.cli(&args).await?;
    ensure!(
        [0, 7].contains(&run.code),
        "{}: {}",
        run.command,
        run.stderr
    );
    let said: Value = serde_json::from_str(&run.stdout).with_context(|| run.stdout.clone())?;
    ensure!(
        (run.code == 0) == (said["well"] == true),
        "{} and {said}",
        run.code
    );
    Ok(said)
}

/// Waits until it names a link and a cause.
pub(super) async fn says(rig: &Rig, object: &str, stage: &str, cause: &str) -> Result<Value> {
    wait_for_some(
        &format!("{object} to be broken by {cause}"),
        SOON,
        async || {
            let said = why(rig, &[object]).await?;
            let broken = &said["broken"];
            ensure!(
                broken["stage"] == stage && broken["cause"] == cause,
                "it says {broken}"
            );
            Ok(Some(said))
        },
    )
    .await
}

/// Waits until a cause is no longer what is wrong.
async fn no_longer(rig: &Rig, object: &str, cause: &str) -> Result<()> {
    wait_for(&format!("{object} without {cause}"), SOON, async || {
        let said = why(rig, &[object]).await?;
        ensure!(said["broken"]["cause"] != cause, "{}", said["broken"]);
        Ok(true)
    })
    .await
}

/// What is broken, what mends it, and that it does.
pub(super) async fn mends(rig: &Rig, object: &str, stage: &str, cause: &str) -> Result<()> {
    let said = says(rig, object, stage, cause).await?;
    let mend = &said["broken"]["mend"];
    ensure!(mend["member"].is_null(), "{mend}");
    for command in mend["commands"].as_array().context("no commands")? {
        let command = command.as_str().context("no text")?;
        rig.types(&command.replace("REGION", "north")).await?;
    }
    no_longer(rig, object, cause).await
}

/// Types the first command of a mend.
async fn first_mend(rig: &Rig, said: &Value) -> Result<()> {
    let command = said["broken"]["mend"]["commands"][0].as_str();
    rig.types(command.unwrap_or_default()).await
}

fn workload(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"replicas": 2, "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c",
            "image": "example.org/c:1", "resources": {"requests": {"cpu": "1"}},
            "envFrom": [{"configMapRef": {"name": "settings"}}]}]}}}})
}

/// A policy for one Deployment, with this placement.
fn placing(name: &str, placement: &Value) -> Value {
    let mut object = policy(name, "apps/v1", "Deployment", Some(name));
    object["spec"]["placement"] = placement.clone();
    object
}

/// A Deployment of its own for a failure, held by a policy with this placement.
async fn placed(rig: &Rig, name: &str, placement: &Value) -> Result<String> {
    rig.create(&path("Deployment", MINE), &workload(name))
        .await?;
    rig.create(&path("PropagationPolicy", MINE), &placing(name, placement))
        .await?;
    Ok(format!("deploy/{name}"))
}

/// What an agent says of a Work.
async fn tell(agent: &Client, work: &Value, conditions: &[Value], health: &str) -> Result<Answer> {
    let text = |key: &str| {
        work["metadata"][key]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let at = format!(
        "{}/{}/status",
        path("Work", &text("namespace")),
        text("name")
    );
    let manifest = &work["spec"]["workload"]["manifests"][0]["metadata"];
    let status = json!({"status": {"conditions": conditions, "manifestStatuses": [{"identifier": {"ordinal": 0,
        "group": "apps", "version": "v1", "kind": "Deployment", "resource": "", "namespace": manifest["namespace"],
        "name": manifest["name"]}, "health": health, "status": {"readyReplicas": 2}}]}});
    ask(agent, "PATCH", &at, Some((MERGE, &status.to_string()))).await
}

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "2020-01-01T00:00:00Z"})
}

fn applied() -> Value {
    condition(
        "Applied",
        "True",
        "AppliedSuccessful",
        "Manifest has been successfully applied",
    )
}

async fn cluster_status(rig: &Rig, name: &str, status: &Value) -> Result<()> {
    let patch = json!({ "status": status }).to_string();
    let at = format!("{CLUSTERS}/{name}/status");
    ask(&rig.admin, "PATCH", &at, Some((MERGE, &patch)))
        .await?
        .ok()?;
    Ok(())
}

/// From the template to a placement: what is wrong lies on the hub.
#[tokio::test(flavor = "multi_thread")]
async fn what_keeps_a_template_on_the_hub_is_named_and_mended() -> Result<()> {
    if nobody_types() {
        return Ok(());
    }
    let rig = Rig::begin("why-hub").await?;
    let deployments = path("Deployment", MINE);
    // No policy; a policy of another namespace; one that waits for an override.
    rig.create(&deployments, &workload("free")).await?;
    mends(&rig, "deploy/free", "policy", "NoPolicy").await?;
    rig.create(&deployments, &workload("abroad")).await?;
    rig.create(
        &path("PropagationPolicy", THEIRS),
        &placing("abroad", &json!({})),
    )
    .await?;
    mends(&rig, "deploy/abroad", "policy", "PolicyElsewhere").await?;
    rig.create(&deployments, &workload("waits")).await?;
    let mut waits = placing("waits", &json!({}));
    waits["spec"]["dependentOverrides"] = json!(["late"]);
    rig.create(&path("PropagationPolicy", MINE), &waits).await?;
    mends(&rig, "deploy/waits", "policy", "OverrideMissing").await?;

    // No cluster is meant; none has the labels; they are tainted; too few; too little room.
    let unknown = placed(
        &rig,
        "unknown",
        &json!({"clusterAffinity": {"clusterNames": ["m9"]}}),
    )
    .await?;
    mends(&rig, &unknown, "placement", "NoClusterFits").await?;
    let labels = json!({"clusterAffinity": {"labelSelector": {"matchLabels": {"tier": "gold"}}}});
    let labelled = placed(&rig, "labelled", &labels).await?;
    mends(&rig, &labelled, "placement", "NoClusterFits").await?;
    let many = json!({"spreadConstraints": [{"spreadByField": "cluster", "minGroups": 5, "maxGroups": 5}]});
    let spread = placed(&rig, "spread", &many).await?;
    mends(&rig, &spread, "placement", "SpreadImpossible").await?;
    let regions = json!({"spreadConstraints": [{"spreadByField": "region", "minGroups": 1, "maxGroups": 1},
        {"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}]});
    let nowhere = placed(&rig, "nowhere", &regions).await?;
    mends(&rig, &nowhere, "placement", "FieldMissing").await?;
    let only = |cluster: &str| json!({"clusterAffinity": {"clusterNames": [cluster]}});
    let taint =
        json!({"spec": {"taints": [{"key": "dedicated", "value": "db", "effect": "NoSchedule"}]}});
    rig.patch(&format!("{CLUSTERS}/m2"), &taint).await?;
    let tainted = placed(&rig, "tainted", &only("m2")).await?;
    mends(&rig, &tainted, "placement", "Tainted").await?;
    rig.cli(&["cordon", "m1"]).await?.ok()?;
    let cordoned = placed(&rig, "cordoned", &only("m1")).await?;
    mends(&rig, &cordoned, "placement", "Tainted").await?;
    cluster_status(
        &rig,
        "m1",
        &json!({"resourceSummary": {"allocatable": {"cpu": "1", "memory": "8Gi", "pods": "10"}}}),
    )
    .await?;
    let mut divided = only("m1");
    divided["replicaScheduling"] =
        json!({"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"});
    let large = placed(&rig, "large", &divided).await?;
    mends(&rig, &large, "placement", "LittleRoom").await?;
    cluster_status(&rig, "m1", &json!({"resourceSummary": null})).await?;

    // A kind that no cluster serves: one of Kubernetes itself, and one that is defined on the hub.
    widget(&rig).await?;
    let jobs = format!("/apis/batch/v1/namespaces/{MINE}/jobs");
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "once"}, "spec": {"template": {"spec":
        {"restartPolicy": "Never", "containers": [{"name": "c", "image": "example.org/c:1"}]}}}});
    rig.create(&jobs, &job).await?;
    rig.create(
        &path("PropagationPolicy", MINE),
        &policy("once", "batch/v1", "Job", Some("once")),
    )
    .await?;
    says(&rig, "job/once", "placement", "ApiMissing").await?;

    // An override that does not apply; what somebody suspended.
    let broken = json!({"metadata": {"name": "broken"}, "spec": {"resourceSelectors": [
        {"apiVersion": "apps/v1", "kind": "Deployment", "name": "overridden"}], "overrideRules": [{"overriders":
            {"plaintext": [{"path": "/spec/nothing/there", "operator": "remove"}]}}]}});
    rig.create(&path("OverridePolicy", MINE), &broken).await?;
    let overridden = placed(&rig, "overridden", &json!({})).await?;
    mends(&rig, &overridden, "overrides", "OverrideInvalid").await?;
    let mut held = placing("held", &json!({}));
    held["spec"]["suspension"] = json!({"dispatching": true});
    rig.create(&deployments, &workload("held")).await?;
    rig.create(&path("PropagationPolicy", MINE), &held).await?;
    mends(&rig, "deploy/held", "work", "Suspended").await?;
    rig.end().await
}

/// Has clusters serve a group version with kinds from now on, beside what they serve.
pub(super) async fn serves(rig: &Rig, version: &str, kind: &str) -> Result<()> {
    for name in ["m1", "m2"] {
        let cluster = rig.get(&format!("{CLUSTERS}/{name}")).await?;
        let mut served = cluster.context("no Cluster")?["status"]["apiEnablements"].clone();
        let more = json!({"groupVersion": version, "resources": [{"kind": kind, "name": kind.to_lowercase() + "s"}]});
        served.as_array_mut().context("a list")?.push(more);
        cluster_status(rig, name, &json!({"apiEnablements": served})).await?;
    }
    Ok(())
}

/// A kind of the hub's own: what defines it goes to the clusters, and then so does what is of it.
async fn widget(rig: &Rig) -> Result<()> {
    serves(rig, "apiextensions.k8s.io/v1", "CustomResourceDefinition").await?;
    let names = json!({"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"});
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
            "names": names, "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}});
    rig.create(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        &crd,
    )
    .await?;
    let widgets = format!("/apis/example.com/v1/namespaces/{MINE}/widgets");
    wait_for("the hub to serve widgets", SOON, async || {
        Ok(rig.get(&widgets).await?.is_some())
    })
    .await?;
    let widget =
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "gear"}});
    rig.create(&widgets, &widget).await?;
    let selects = policy("gear", "example.com/v1", "Widget", Some("gear"));
    rig.create(&path("PropagationPolicy", MINE), &selects)
        .await?;
    let said = says(rig, "widgets/gear", "placement", "ApiMissing").await?;
    first_mend(rig, &said).await?;
    // What an agent would do: it applies the definition, and says what its member serves.
    rig.placed("m1", "widgets.example.com").await?;
    serves(rig, "example.com/v1", "Widget").await?;
    no_longer(rig, "widgets/gear", "ApiMissing").await?;
    rig.placed("m1", "gear").await?;
    Ok(())
}

/// From the Work to pods: what is wrong lies in a member.
#[tokio::test(flavor = "multi_thread")]
async fn what_keeps_a_template_from_running_in_a_member_is_named() -> Result<()> {
    if nobody_types() {
        return Ok(());
    }
    let rig = Rig::begin("why-members").await?;
    let agent = rig.agent("m1").await?;
    let object = placed(
        &rig,
        "web",
        &json!({"clusterAffinity": {"clusterNames": ["m1"]}}),
    )
    .await?;
    let work = rig.placed("m1", "web").await?;
    says(&rig, &object, "applied", "HubIsLate").await?;
    // Its Namespace goes by a Work that no binding made.
    let (space, named) = (rig.placed("m1", MINE).await?, format!("ns/{MINE}"));
    says(&rig, &named, "applied", "HubIsLate").await?;
    tell(&agent, &space, &[applied()], "Unknown").await?.ok()?;
    no_longer(&rig, &named, "HubIsLate").await?;
    let refusals = [
        (
            "PermissionMissing",
            "Deployment mine/web: the agent may not patch deployments.apps in the namespace \"mine\"; \
            allow it in the member with `towline register --allow deployments.apps` or with a role",
            "--allow default,deployments.apps",
        ),
        (
            "NamespaceReserved",
            "Deployment kube-x/web: namespace \"kube-x\" is reserved and no Work reaches it, unless the \
            member's owner allows it by `towline register --allow-namespace kube-x`",
            "--allow-namespace kube-x",
        ),
        (
            "Quota",
            "Deployment mine/web: deployments.apps \"web\" is forbidden: exceeded quota: few, requested: \
            count/deployments.apps=1, used: count/deployments.apps=1, limited: count/deployments.apps=1",
            "patch resourcequota few",
        ),
        (
            "AdmissionRefused",
            "Deployment mine/web: admission webhook \"images.example.com\" denied the request: no",
            "webhook",
        ),
    ];
    for (cause, message, command) in refusals {
        let message = format!("Failed to apply all manifests (0/1): {message}");
        let refused = condition("Applied", "False", "AppliedFailed", &message);
        tell(&agent, &work, &[refused], "Unknown").await?.ok()?;
        let said = says(&rig, &object, "applied", cause).await?;
        let mend = &said["broken"]["mend"];
        ensure!(mend["member"] == "m1", "{mend}");
        ensure!(
            mend["commands"][0]
                .as_str()
                .unwrap_or_default()
                .contains(command),
            "{mend}"
        );
    }
    let owned = condition(
        "Applied",
        "False",
        "AppliedFailed",
        "Failed to apply all manifests (0/1): Deployment mine/web: \
        .spec.replicas is owned by \"other\"; set the annotation work.karmada.io/conflict-resolution: overwrite on the \
        manifest to take over",
    );
    tell(&agent, &work, &[owned], "Unknown").await?.ok()?;
    let said = says(&rig, &object, "applied", "Conflict").await?;
    first_mend(&rig, &said).await?;
    wait_for("a Work that takes it over", SOON, async || {
        let work = rig.placed("m1", "web").await?;
        let manifest = &work["spec"]["workload"]["manifests"][0]["metadata"]["annotations"];
        Ok(manifest["work.karmada.io/conflict-resolution"] == "overwrite")
    })
    .await?;

    // What agents find out of pods that do not run: taken on both foundations, and followed to what mends it.
    for (reason, cause, message) in [
        (
            "ImagePullBackOff",
            "ImagePull",
            "pod web-1, container c: ImagePullBackOff: no such image",
        ),
        (
            "CrashLoopBackOff",
            "CrashLoop",
            "pod web-1, container c: CrashLoopBackOff, exit code 1: no such file",
        ),
        (
            "FailedCreate",
            "Quota",
            "FailedCreate: pods \"web-1\" is forbidden: exceeded quota: few, requested: pods=1, \
            used: pods=1, limited: pods=1",
        ),
        (
            "Unschedulable",
            "Unschedulable",
            "pod web-1: Unschedulable: 0/3 nodes are available",
        ),
    ] {
        let found = condition("WorkloadHealthy", "False", reason, message);
        tell(&agent, &work, &[applied(), found], "Unhealthy")
            .await?
            .ok()?;
        let said = says(&rig, &object, "health", cause).await?;
        let what = said["broken"]["what"].as_str().unwrap_or_default();
        ensure!(what.contains(message), "{what}");
    }
    let missing = condition(
        "WorkloadHealthy",
        "False",
        "CreateContainerConfigError",
        "pod web-1, container c: CreateContainerConfigError: configmap \"settings\" not found",
    );
    tell(&agent, &work, &[applied(), missing], "Unhealthy")
        .await?
        .ok()?;
    let said = says(&rig, &object, "health", "DependencyMissing").await?;
    let create = said["broken"]["mend"]["commands"][0]
        .as_str()
        .unwrap_or_default();
    ensure!(
        create.starts_with("kubectl -n mine create configmap settings"),
        "{create}"
    );
    rig.create(
        &path("ConfigMap", MINE),
        &json!({"metadata": {"name": "settings"}}),
    )
    .await?;
    let said = says(&rig, &object, "health", "DependencyMissing").await?;
    first_mend(&rig, &said).await?;
    rig.placed("m1", "settings").await?;

    // Whatever a member says, it is one harmless line.
    let evil = "\u{1b}[2J\u{202e}all is well\r\n".repeat(500);
    let found = condition("WorkloadHealthy", "False", "CrashLoopBackOff", &evil);
    tell(&agent, &work, &[applied(), found], "Unhealthy")
        .await?
        .ok()?;
    says(&rig, &object, "health", "CrashLoop").await?;
    let shown = rig.cli(&["why", &object, "-n", MINE]).await?;
    let hidden = |it: char| it.is_control() && it != '\n' || it == '\u{202e}';
    ensure!(!shown.stdout.contains(hidden), "{:?}", shown.stdout);
    ensure!(
        shown.stdout.len() < 8192 && shown.code == 7,
        "{} bytes, {}",
        shown.stdout.len(),
        shown.code
    );

    // The agent itself: silent, shut out, its certificate at its end.
    tell(&agent, &work, &[applied()], "Healthy").await?.ok()?;
    wait_for("all to be well", SOON, async || {
        let shown = rig.cli(&["why", &object, "-n", MINE]).await?;
        ensure!(shown.code == 0, "{}", shown.stdout);
        ensure!(shown.stdout.lines().count() == 5, "{}", shown.stdout);
        Ok(true)
    })
    .await?;
    let work_name = format!(
        "work/karmada-es-m1/{}",
        work["metadata"]["name"].as_str().unwrap_or_default()
    );
    for other in ["cluster/m1", &work_name] {
        let shown = rig.cli(&["why", other]).await?.ok()?;
        ensure!(shown.stdout.lines().count() == 5, "{}", shown.stdout);
    }
    let ready = |status: &str| json!({"conditions": [condition("Ready", status, "Told", "told")]});
    cluster_status(&rig, "m1", &ready("Unknown")).await?;
    for asked in [&object, "cluster/m1"] {
        says(&rig, asked, "agent", "AgentGone").await?;
    }
    let ended = json!({"metadata": {"annotations": {"towline.dev/certificate-end": "2020-01-01T00:00:00Z"}}});
    rig.patch(&format!("{CLUSTERS}/m1"), &ended).await?;
    let said = says(&rig, "cluster/m1", "agent", "CertificateEnded").await?;
    first_mend(&rig, &said).await?;
    let again = json!({"metadata": {"annotations": {"towline.dev/certificate-end": "2099-01-01T00:00:00Z"}}});
    rig.patch(&format!("{CLUSTERS}/m1"), &again).await?;
    cluster_status(&rig, "m1", &ready("True")).await?;
    wait_for("a cluster on which all is well", SOON, async || {
        Ok(why(&rig, &["cluster/m1"]).await?["well"] == true)
    })
    .await?;
    rig.end().await
}
