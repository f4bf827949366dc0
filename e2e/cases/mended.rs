//! Failures where an agent of the shipped rights meets them in a member: `towline why` on the hub names the link, and
//! what it prints as the mend is typed, on the hub or in the member, and mends it.
//!
//! The agent is a process beside the member, in place of its pod: what a rollout of its Deployment would do the test
//! does. No kubelet runs: the test says of pods what one would.

use anyhow::{Context as _, Result, ensure};
use kube::Client;
use serde_json::{Value, json};

use super::desk::Desk;
use super::hostile::rig::{CLUSTER, EXECUTION, Rig, SOON};
use crate::env::{JSON, MERGE, Parts, PlaneOptions, Run, ask, left_out, wait_for, wait_for_some};

const SHOP: &str = "shop";
/// A namespace into which no Work reaches until the member's owner says so.
const RESERVED: &str = "kube-tools";

/// A hub, a member, and whoever looks after both.
struct Yard {
    rig: Rig,
    hub: Client,
    desk: Desk,
}

/// The namespace of a kind's objects, or one of them.
fn path(kind: &str, namespace: &str, name: &str) -> String {
    let (group, plural) = match kind {
        "Deployment" => ("apis/apps/v1", "deployments"),
        "PropagationPolicy" => ("apis/policy.karmada.io/v1alpha1", "propagationpolicies"),
        "ConfigMap" => ("api/v1", "configmaps"),
        "Secret" => ("api/v1", "secrets"),
        "Service" => ("api/v1", "services"),
        "Pod" => ("api/v1", "pods"),
        "ResourceQuota" => ("api/v1", "resourcequotas"),
        other => unreachable!("no test asks for {other}"),
    };
    let slash = if name.is_empty() { "" } else { "/" };
    format!("/{group}/namespaces/{namespace}/{plural}{slash}{name}")
}

async fn create(client: &Client, at: &str, object: &Value) -> Result<()> {
    ask(client, "POST", at, Some((JSON, &object.to_string())))
        .await?
        .ok()?;
    Ok(())
}

async fn get(client: &Client, at: &str) -> Result<Option<Value>> {
    let answer = ask(client, "GET", at, None).await?;
    match answer.code {
        404 => Ok(None),
        _ => Ok(Some(answer.ok()?.json()?)),
    }
}

/// One pod, in the way of which stands whatever the test says.
fn workload(name: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "app",
                "image": "registry.invalid/app:1", "envFrom": [{"configMapRef": {"name": "settings", "optional": name != "needy"}}]}]}}}})
}

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}})
}

impl Yard {
    async fn open(name: &str) -> Result<Option<Self>> {
        let Some(kubectl) = Parts::from_env()?.any_kubectl() else {
            left_out("mends typed in members", "there is no kubectl");
            return Ok(None);
        };
        let mut hub = PlaneOptions::hub().hub_flags(&["--cluster-monitor-grace-period=30s"]);
        // Templates are not run on a hub.
        let idle = "--controllers=*,bootstrapsigner,tokencleaner,-deployment-controller,-replicaset-controller";
        hub.manager_args.push(idle.to_owned());
        let mut member = PlaneOptions::member("member");
        // A built-in server is no member; and nothing here needs a node.
        (member.builtin, member.nodes, member.scheduler) = (false, 0, false);
        let mut rig = Rig::of(name, hub, member).await?;
        rig.register(&rig.member.kubeconfig, &[]).await?.ok()?;
        rig.start_agent().await?;
        let hub = rig.fleet.client().await?;
        let yard = Self {
            desk: Desk::new(rig.scratch.join("desk"), &kubectl)?,
            rig,
            hub,
        };
        // From there a hub propagates nothing: what goes there somebody wrote as a Work.
        for (client, namespace) in [(&yard.hub, SHOP), (&yard.rig.owner, RESERVED)] {
            let object = json!({"metadata": {"name": namespace}});
            create(client, "/api/v1/namespaces", &object).await?;
        }
        Ok(Some(yard))
    }

    /// Makes a template, and a policy that places it in the member.
    async fn place(&self, namespace: &str, object: &Value) -> Result<String> {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
        let (kind, name) = (
            text("/kind").context("no kind")?,
            text("/metadata/name").context("no name")?,
        );
        let policy = json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
            "metadata": {"name": name}, "spec": {"placement": {"clusterAffinity": {"clusterNames": [CLUSTER]}},
                "resourceSelectors": [{"apiVersion": object["apiVersion"], "kind": kind, "name": name}]}});
        create(
            &self.hub,
            &path("PropagationPolicy", namespace, ""),
            &policy,
        )
        .await?;
        create(&self.hub, &path(kind, namespace, ""), object).await?;
        Ok(format!("{}/{name}", kind.to_lowercase()))
    }

    async fn why(&self, namespace: &str, object: &str) -> Result<Value> {
        let words = ["why", object, "-n", namespace, "-o", "json"];
        let run = self.rig.fleet.cli(&words).await?;
        ensure!(
            [0, 7].contains(&run.code),
            "{}: {}",
            run.command,
            run.stderr
        );
        serde_json::from_str(&run.stdout).with_context(|| run.stdout.clone())
    }

    /// Waits until it names a link and a cause, and returns what mends it.
    async fn says(&self, namespace: &str, object: &str, stage: &str, cause: &str) -> Result<Value> {
        wait_for_some(
            &format!("{object} to be broken by {cause}"),
            SOON,
            async || {
                let broken = self.why(namespace, object).await?["broken"].clone();
                let found = broken["stage"] == stage && broken["cause"] == cause;
                ensure!(found, "it says {broken}");
                Ok(Some(broken["mend"].clone()))
            },
        )
        .await
    }

    /// Waits until a cause is no longer what is wrong.
    async fn no_longer(&self, namespace: &str, object: &str, cause: &str) -> Result<()> {
        wait_for(&format!("{object} without {cause}"), SOON, async || {
            let broken = self.why(namespace, object).await?["broken"].clone();
            ensure!(broken["cause"] != cause, "{broken}");
            Ok(true)
        })
        .await
    }

    async fn well(&self, namespace: &str, object: &str) -> Result<()> {
        wait_for(&format!("{object} to be well"), SOON, async || {
            let said = self.why(namespace, object).await?;
            ensure!(said["well"] == true, "{said}");
            Ok(true)
        })
        .await
    }

    /// Types the commands of a mend where it says that they are typed.
    async fn types(&self, mend: &Value, words: &[(&str, &str)]) -> Result<Vec<Run>> {
        let in_member = mend["member"] == CLUSTER;
        ensure!(in_member || mend["member"].is_null(), "{mend}");
        let kubeconfig = match in_member {
            true => self.rig.member.kubeconfig.clone(),
            false => self.rig.fleet.kubeconfig().to_owned(),
        };
        let mut runs = Vec::new();
        for command in mend["commands"].as_array().context("no commands")? {
            let mut line = command.as_str().context("no text")?.to_owned();
            for (word, value) in words {
                line = line.replace(word, value);
            }
            if line.contains("towline register ") {
                // No pod of the agent ever runs here.
                line.push_str(" --wait=0 --replicas=0");
            }
            let run = self.desk.typed(&line, &kubeconfig, SOON).await?;
            runs.push(run.ok()?);
        }
        ensure!(!runs.is_empty(), "{mend}");
        Ok(runs)
    }

    /// What is broken, and that what mends it does.
    async fn mends(&self, namespace: &str, object: &str, stage: &str, cause: &str) -> Result<()> {
        let mend = self.says(namespace, object, stage, cause).await?;
        self.types(&mend, &[]).await?;
        self.no_longer(namespace, object, cause).await
    }

    /// The pod of a Deployment that runs this image.
    async fn pod(&self, name: &str, image: &str) -> Result<String> {
        let member = &self.rig.owner;
        let pods = path("Pod", SHOP, "");
        wait_for_some(&format!("a pod of {name} with {image}"), SOON, async || {
            let found = get(member, &format!("{pods}?labelSelector=app%3D{name}")).await?;
            let found = found.context("no list")?;
            let mut all = found["items"].as_array().into_iter().flatten();
            let one = all.find(|it| it["spec"]["containers"][0]["image"] == image);
            Ok(one.and_then(|it| it["metadata"]["name"].as_str().map(str::to_owned)))
        })
        .await
    }

    async fn status(&self, at: &str, status: &Value) -> Result<()> {
        let patch = json!({ "status": status }).to_string();
        let at = format!("{at}/status");
        ask(&self.rig.owner, "PATCH", &at, Some((MERGE, &patch)))
            .await?
            .ok()?;
        Ok(())
    }

    /// What a kubelet says of the only container of a pod, and what controllers make of that.
    async fn container(&self, name: &str, image: &str, state: &Value) -> Result<()> {
        let pod = self.pod(name, image).await?;
        let ready = !state["running"].is_null();
        let condition = json!({"type": "Ready", "status": if ready { "True" } else { "False" }});
        let container = json!({"name": "app", "image": image, "imageID": "", "ready": ready, "restartCount": 0,
            "state": state});
        let phase = if ready { "Running" } else { "Pending" };
        let status =
            json!({"phase": phase, "conditions": [condition], "containerStatuses": [container]});
        self.status(&path("Pod", SHOP, &pod), &status).await?;
        Ok(())
    }

    /// A Deployment whose container waits for this reason.
    async fn failing(&self, name: &str, reason: &str, message: &str) -> Result<String> {
        let object = self.place(SHOP, &workload(name)).await?;
        let state = json!({"waiting": {"reason": reason, "message": message}});
        self.container(name, "registry.invalid/app:1", &state)
            .await?;
        Ok(object)
    }

    async fn runs(&self, name: &str, image: &str) -> Result<()> {
        let state = json!({"running": {"startedAt": "2020-01-01T00:00:00Z"}});
        self.container(name, image, &state).await
    }
}

/// What the agent may not write, where it may not, and what is somebody else's.
#[tokio::test(flavor = "multi_thread")]
async fn what_an_agent_may_not_write_is_allowed_by_what_is_printed() -> Result<()> {
    let Some(mut yard) = Yard::open("mended-rights").await? else {
        return Ok(());
    };
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key"}});
    let key = yard.place(SHOP, &secret).await?;
    yard.mends(SHOP, &key, "applied", "PermissionMissing")
        .await?;
    yard.well(SHOP, &key).await?;

    let mut manifest = map("tools");
    manifest["metadata"]["namespace"] = json!(RESERVED);
    let works = format!("/apis/work.karmada.io/v1alpha1/namespaces/{EXECUTION}/works");
    let work = json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work", "metadata": {"name": "tools"},
        "spec": {"workload": {"manifests": [manifest]}}});
    create(&yard.hub, &works, &work).await?;
    let tools = format!("work/{EXECUTION}/tools");
    let mend = yard
        .says(RESERVED, &tools, "applied", "NamespaceReserved")
        .await?;
    yard.types(&mend, &[]).await?;
    yard.rig.stop_agent().await?;
    yard.rig.start_agent().await?;
    yard.well(RESERVED, &tools).await?;
    // What was allowed before stays so.
    yard.well(SHOP, &key).await?;

    let taken = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "taken"}, "data": {"a": "other"}});
    create(&yard.rig.owner, &path("ConfigMap", SHOP, ""), &taken).await?;
    let taken = yard.place(SHOP, &map("taken")).await?;
    yard.mends(SHOP, &taken, "applied", "Conflict").await?;
    yard.well(SHOP, &taken).await?;
    let live = get(&yard.rig.owner, &path("ConfigMap", SHOP, "taken")).await?;
    ensure!(
        live.context("gone")?["data"]["a"] == "b",
        "it was not taken over"
    );
    yard.rig.passed().await;
    Ok(())
}

/// What the member's own API server refuses.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_member_forbids_is_named_and_mended() -> Result<()> {
    let Some(yard) = Yard::open("mended-rules").await? else {
        return Ok(());
    };
    let first = yard.place(SHOP, &map("first")).await?;
    yard.well(SHOP, &first).await?;
    let member = &yard.rig.owner;
    let few = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"},
        "spec": {"hard": {"count/services": "0"}}});
    create(member, &path("ResourceQuota", SHOP, ""), &few).await?;
    wait_for("the quota to count", SOON, async || {
        let found = get(member, &path("ResourceQuota", SHOP, "few")).await?;
        Ok(found.context("gone")?["status"]["hard"]["count/services"] == "0")
    })
    .await?;
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "door"},
        "spec": {"clusterIP": "None", "selector": {"app": "web"}}});
    let door = yard.place(SHOP, &service).await?;
    yard.mends(SHOP, &door, "applied", "Quota").await?;
    yard.well(SHOP, &door).await?;

    let api = "/apis/admissionregistration.k8s.io/v1";
    let rule = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "teams"}, "spec": {"failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
                "operations": ["CREATE", "UPDATE"], "resources": ["configmaps"]}]},
            "matchConditions": [{"name": "ours", "expression": "object.metadata.name == 'ruled'"}],
            "validations": [{"expression": "has(object.metadata.labels) && 'team' in object.metadata.labels",
                "message": "it names no team"}]}});
    create(member, &format!("{api}/validatingadmissionpolicies"), &rule).await?;
    let bound = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "teams"}, "spec": {"policyName": "teams", "validationActions": ["Deny"]}});
    create(
        member,
        &format!("{api}/validatingadmissionpolicybindings"),
        &bound,
    )
    .await?;
    wait_for("the rule to be in force", SOON, async || {
        let tried = path("ConfigMap", SHOP, "") + "?dryRun=All";
        let tried = ask(
            member,
            "POST",
            &tried,
            Some((JSON, &map("ruled").to_string())),
        )
        .await?;
        Ok(tried.code == 422 || tried.code == 403)
    })
    .await?;
    let ruled = yard.place(SHOP, &map("ruled")).await?;
    let mend = yard
        .says(SHOP, &ruled, "applied", "AdmissionRefused")
        .await?;
    let shown = yard.types(&mend, &[]).await?;
    ensure!(
        shown[0].stdout.contains("it names no team"),
        "{}",
        shown[0].stdout
    );
    // As the message says.
    let label =
        json!({"member": null, "commands": ["kubectl -n shop label configmap ruled team=front"]});
    yard.types(&label, &[]).await?;
    yard.well(SHOP, &ruled).await?;
    yard.rig.passed().await;
    Ok(())
}

/// Pods that do not run.
#[tokio::test(flavor = "multi_thread")]
async fn pods_that_do_not_run_do_after_what_is_printed() -> Result<()> {
    let Some(yard) = Yard::open("mended-pods").await? else {
        return Ok(());
    };
    let unpulled = yard
        .failing("unpulled", "ImagePullBackOff", "no such image")
        .await?;
    let mend = yard.says(SHOP, &unpulled, "health", "ImagePull").await?;
    let image = "registry.invalid/app:2";
    yard.types(&mend, &[("IMAGE", image)]).await?;
    yard.runs("unpulled", image).await?;
    yard.well(SHOP, &unpulled).await?;

    // What it says before it ends a node alone has; it is corrected in the template.
    let crashing = yard
        .failing("crashing", "CrashLoopBackOff", "back-off")
        .await?;
    let mend = yard.says(SHOP, &crashing, "health", "CrashLoop").await?;
    let logs = "kubectl -n shop logs deployments.apps/crashing -c app --previous";
    ensure!(
        mend["commands"] == json!([logs]) && mend["member"] == CLUSTER,
        "{mend}"
    );
    let words = mend["what"].as_str().unwrap_or_default();
    ensure!(
        words.contains("`kubectl -n shop edit deployments.apps crashing`"),
        "{words}"
    );
    let edit = json!({"commands": [format!("kubectl -n shop set image deployments.apps crashing app={image}")]});
    yard.types(&edit, &[]).await?;
    yard.runs("crashing", image).await?;
    yard.well(SHOP, &crashing).await?;

    let missing = "configmap \"settings\" not found";
    let needy = yard
        .failing("needy", "CreateContainerConfigError", missing)
        .await?;
    for step in [
        "kubectl -n shop create configmap settings ",
        "kubectl -n shop patch pp/needy ",
    ] {
        let mend = wait_for_some(step, SOON, async || {
            let mend = yard
                .says(SHOP, &needy, "health", "DependencyMissing")
                .await?;
            let is = mend["commands"][0]
                .as_str()
                .is_some_and(|it| it.starts_with(step));
            Ok(Some(mend).filter(|_| is))
        })
        .await?;
        yard.types(&mend, &[]).await?;
    }
    wait_for("what the pod needs, in the member", SOON, async || {
        let found = get(&yard.rig.owner, &path("ConfigMap", SHOP, "settings")).await?;
        Ok(found.is_some())
    })
    .await?;
    let pod = yard.pod("needy", "registry.invalid/app:1").await?;
    let running = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{"name": "app", "image": "registry.invalid/app:1", "imageID": "", "ready": true,
            "restartCount": 0, "state": {"running": {"startedAt": "2020-01-01T00:00:00Z"}}}]});
    yard.status(&path("Pod", SHOP, &pod), &running).await?;
    yard.well(SHOP, &needy).await?;
    let shown = yard
        .rig
        .fleet
        .cli(&["why", &needy, "-n", SHOP])
        .await?
        .ok()?;
    ensure!(shown.stdout.lines().count() == 5, "{}", shown.stdout);
    yard.rig.passed().await;
    Ok(())
}

/// An agent that ended, and one that lost its certificate.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_ended_comes_back_by_what_is_printed() -> Result<()> {
    let Some(mut yard) = Yard::open("mended-agent").await? else {
        return Ok(());
    };
    let calm = yard.place(SHOP, &map("calm")).await?;
    yard.well(SHOP, &calm).await?;
    let at = "/apis/apps/v1/namespaces/towline-system/deployments/towline-agent";
    let restarted = async |yard: &Yard| -> Result<Value> {
        let found = get(&yard.rig.owner, at).await?.context("no Deployment")?;
        let key = "/spec/template/metadata/annotations/kubectl.kubernetes.io~1restartedAt";
        Ok(found.pointer(key).cloned().unwrap_or_default())
    };
    yard.rig.stop_agent().await?;
    let mend = yard.says(SHOP, &calm, "agent", "AgentGone").await?;
    let first = json!({"member": mend["member"], "commands": [mend["commands"][0]]});
    yard.types(&first, &[]).await?;
    ensure!(!restarted(&yard).await?.is_null(), "nothing was rolled out");
    yard.rig.start_agent().await?;
    yard.well(SHOP, &calm).await?;

    // Its certificate is gone with what it was kept in; the hub says that it ended.
    yard.rig.stop_agent().await?;
    let secrets = path("Secret", "towline-system", "");
    let all = get(&yard.rig.owner, &secrets).await?.context("no list")?;
    let names = all["items"].as_array().into_iter().flatten();
    let mut lost = 0;
    for name in names.filter_map(|it| it["metadata"]["name"].as_str()) {
        if name.contains("credentials") {
            let at = path("Secret", "towline-system", name);
            ask(&yard.rig.owner, "DELETE", &at, None).await?.ok()?;
            lost += 1;
        }
    }
    ensure!(lost > 0, "{all}");
    let cluster = format!("/apis/cluster.karmada.io/v1alpha1/clusters/{CLUSTER}");
    let ended = "2020-01-01T00:00:00Z";
    let annotated = json!({"metadata": {"annotations": {"towline.dev/certificate-end": ended}}});
    let reported = json!({"status": {"agent": {"certificateExpirationTime": ended}}});
    for (at, patch) in [
        (cluster.clone(), annotated),
        (format!("{cluster}/status"), reported),
    ] {
        ask(&yard.hub, "PATCH", &at, Some((MERGE, &patch.to_string())))
            .await?
            .ok()?;
    }
    let mend = yard.says(SHOP, &calm, "agent", "CertificateEnded").await?;
    let anew = "towline token create --cluster target --replace --print-register-command";
    ensure!(mend["commands"] == json!([anew]), "{mend}");
    let printed = yard.types(&mend, &[]).await?;
    let register = printed[0].stdout.trim();
    ensure!(
        register.contains(" | towline register "),
        "it prints {register}"
    );
    let there = json!({"member": CLUSTER, "commands": [register]});
    let member = yard.rig.member.kubeconfig.display().to_string();
    yard.types(&there, &[("MEMBER", &member)]).await?;
    yard.rig.start_agent().await?;
    yard.well(SHOP, &calm).await?;
    yard.rig.passed().await;
    Ok(())
}
