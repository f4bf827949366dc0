//! A hub whose clusters the test plays: no agent runs, so that what a member says is the test's own word.

use anyhow::{Context as _, Result, ensure};
use common::identity::{AgentSubject, RegistrationId};
use common::labels::{REGISTRATION_ID, WORK_FINALIZER};
use common::names::{ClusterName, EXECUTION_PREFIX};
use kube::Client;
use serde_json::{Value, json};
use std::time::Duration;

use crate::cases::desk::Desk;
use crate::env::{
    Answer, Fleet, JSON, MERGE, Parts, Plane, PlaneOptions, Run, Scratch, ask, client, wait_for,
    wait_for_some,
};

/// How long anything may take; the machine is shared.
pub(super) const SOON: Duration = Duration::from_secs(180);
/// The namespace of the tenant who attacks, and that of the one who is attacked.
pub(super) const MINE: &str = "mine";
pub(super) const THEIRS: &str = "theirs";

/// Nobody renews a Lease here.
const FLAGS: [&str; 2] = [
    "--cluster-monitor-grace-period=12h",
    "--cluster-startup-grace-period=12h",
];

/// The hub.
pub(super) struct Rig {
    pub(super) admin: Client,
    /// Has `admin` in the namespace [`MINE`], and nothing else.
    pub(super) tenant: Client,
    plane: Plane,
    fleet: Fleet,
    desk: Option<Desk>,
    scratch: Scratch,
}

/// The collection of a namespace's objects of a kind.
pub(super) fn path(kind: &str, namespace: &str) -> String {
    let (group, plural) = match kind {
        "ConfigMap" => ("api/v1", "configmaps"),
        "Secret" => ("api/v1", "secrets"),
        "Service" => ("api/v1", "services"),
        "Deployment" => ("apis/apps/v1", "deployments"),
        "Role" => ("apis/rbac.authorization.k8s.io/v1", "roles"),
        "PropagationPolicy" => ("apis/policy.karmada.io/v1alpha1", "propagationpolicies"),
        "OverridePolicy" => ("apis/policy.karmada.io/v1alpha1", "overridepolicies"),
        "ResourceBinding" => ("apis/work.karmada.io/v1alpha2", "resourcebindings"),
        "Work" => ("apis/work.karmada.io/v1alpha1", "works"),
        "Event" => ("api/v1", "events"),
        other => unreachable!("no test asks for {other}"),
    };
    format!("/{group}/namespaces/{namespace}/{plural}")
}

/// A policy that places objects of a kind, or one of them, on every cluster.
pub(super) fn policy(name: &str, api_version: &str, kind: &str, of: Option<&str>) -> Value {
    let mut selector = json!({"apiVersion": api_version, "kind": kind});
    if let Some(of) = of {
        selector["name"] = json!(of);
    }
    json!({"metadata": {"name": name}, "spec": {"resourceSelectors": [selector], "placement": {}}})
}

impl Rig {
    /// A hub with the clusters `m1` and `m2`, and two tenants.
    pub(super) async fn begin(name: &str) -> Result<Self> {
        let scratch = Scratch::new(name)?;
        let mut options = PlaneOptions::hub().hub_flags(&FLAGS);
        // Templates are not run on a hub: what their status says is what members say.
        let idle = "--controllers=*,bootstrapsigner,tokencleaner,-deployment-controller,-replicaset-controller";
        options.manager_args.push(idle.to_owned());
        let plane = Plane::start(&Parts::from_env()?, &scratch.join("hub"), options).await?;
        let fleet = Fleet::start(&scratch.join("towline"), &plane).await?;
        let file = plane.kubeconfig_for(&scratch.join("tenant.kubeconfig"), "tenant", &[])?;
        let kubectl = Parts::from_env()?.any_kubectl();
        let desk = kubectl.map(|it| Desk::new(scratch.join("desk"), &it));
        let rig = Self {
            desk: desk.transpose()?,
            admin: plane.client().await?,
            tenant: client(&file).await?,
            plane,
            fleet,
            scratch,
        };
        for namespace in [MINE, THEIRS] {
            let object = json!({"metadata": {"name": namespace}});
            rig.create("/api/v1/namespaces", &object).await?;
        }
        let rights = json!({"metadata": {"name": "tenant"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "tenant"}]});
        let bindings = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{MINE}/rolebindings");
        rig.create(&bindings, &rights).await?;
        wait_for("the tenant's rights", SOON, async || {
            let policies = path("PropagationPolicy", MINE);
            Ok(ask(&rig.tenant, "GET", &policies, None).await?.code == 200)
        })
        .await?;
        for name in ["m1", "m2"] {
            rig.join(name).await?;
        }
        Ok(rig)
    }

    /// Makes a cluster that is Ready and has every kind that tests place.
    async fn join(&self, name: &str) -> Result<()> {
        let id = RegistrationId::of_public_key(name.as_bytes());
        let cluster = json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
            "metadata": {"name": name, "annotations": {REGISTRATION_ID: id.as_str()}},
            "spec": {"syncMode": "Pull", "id": format!("id-of-{name}")}});
        let clusters = "/apis/cluster.karmada.io/v1alpha1/clusters";
        self.create(clusters, &cluster).await?;
        let kinds = |list: &[&str]| -> Value {
            let one = |kind: &&str| json!({"kind": kind, "name": kind.to_lowercase() + "s"});
            list.iter().map(one).collect()
        };
        let status = json!({"status": {"kubernetesVersion": "v1.36.0", "apiEnablements": [
            {"groupVersion": "apps/v1", "resources": kinds(&["Deployment"])},
            {"groupVersion": "rbac.authorization.k8s.io/v1", "resources": kinds(&["Role"])},
            {"groupVersion": "v1", "resources": kinds(&["ConfigMap", "Secret", "Service"])},
        ], "conditions": [{"type": "Ready", "status": "True", "reason": "ClusterReady", "message": "",
            "lastTransitionTime": "2020-01-01T00:00:00Z"}]}});
        let of_status = format!("{clusters}/{name}/status");
        ask(
            &self.admin,
            "PATCH",
            &of_status,
            Some((MERGE, &status.to_string())),
        )
        .await?
        .ok()?;
        let space = format!("/api/v1/namespaces/karmada-es-{name}");
        wait_for("the execution namespace, and no taint", SOON, async || {
            let cluster = self.get(&format!("{clusters}/{name}")).await?;
            let taints = cluster.context("no Cluster")?["spec"]["taints"].clone();
            ensure!(taints.as_array().is_none_or(Vec::is_empty), "{taints}");
            Ok(self.get(&space).await?.is_some())
        })
        .await
    }

    /// A client that is the agent of a cluster, once the hub has given it its rights.
    pub(super) async fn agent(&self, name: &str) -> Result<Client> {
        let subject = AgentSubject {
            cluster: ClusterName::parse(name)?,
            registration: RegistrationId::of_public_key(name.as_bytes()),
        };
        let [first, second] = subject.organizations();
        let file = self.scratch.join(format!("{name}.kubeconfig"));
        let groups = [first.as_str(), second.as_str()];
        let file = self
            .plane
            .kubeconfig_for(&file, &subject.common_name(), &groups)?;
        let agent = client(&file).await?;
        let works = path("Work", &format!("{EXECUTION_PREFIX}{name}"));
        wait_for(&format!("the rights of {name}"), SOON, async || {
            ask(&agent, "GET", &works, None).await?.ok()?;
            Ok(true)
        })
        .await?;
        Ok(agent)
    }

    /// A command of `towline` on the hub, as the administrator.
    pub(super) async fn cli(&self, args: &[&str]) -> Result<Run> {
        self.fleet.cli(args).await
    }

    /// Types a command as the administrator; it has to work.
    pub(super) async fn types(&self, command: &str) -> Result<()> {
        let desk = self.desk.as_ref().context("there is no kubectl")?;
        let typed = desk.typed(command, self.fleet.kubeconfig(), SOON).await?;
        typed.ok()?;
        Ok(())
    }

    /// Creates an object as the administrator.
    pub(super) async fn create(&self, path: &str, object: &Value) -> Result<()> {
        as_user(&self.admin, "POST", path, object).await?.ok()?;
        Ok(())
    }

    /// Changes an object as the administrator.
    pub(super) async fn patch(&self, path: &str, patch: &Value) -> Result<()> {
        let patch = patch.to_string();
        ask(&self.admin, "PATCH", path, Some((MERGE, &patch)))
            .await?
            .ok()?;
        Ok(())
    }

    /// Deletes an object as the administrator.
    pub(super) async fn delete(&self, path: &str) -> Result<()> {
        ask(&self.admin, "DELETE", path, None).await?.ok()?;
        Ok(())
    }

    /// An object, if there is one.
    pub(super) async fn get(&self, path: &str) -> Result<Option<Value>> {
        let answer = ask(&self.admin, "GET", path, None).await?;
        if answer.code == 404 {
            return Ok(None);
        }
        Ok(Some(answer.ok()?.json()?))
    }

    /// The Works of a cluster whose manifests have a name; Works that go are let go, as an agent would.
    pub(super) async fn works(&self, cluster: &str, name: &str) -> Result<Vec<Value>> {
        let collection = path("Work", &format!("karmada-es-{cluster}"));
        let all = self.get(&collection).await?.context("no list")?;
        let mut found = Vec::new();
        for work in all["items"].as_array().into_iter().flatten() {
            let metadata = &work["metadata"];
            if !metadata["deletionTimestamp"].is_null() {
                let at = format!(
                    "{collection}/{}",
                    metadata["name"].as_str().unwrap_or_default()
                );
                let others = metadata["finalizers"].as_array().into_iter().flatten();
                let others: Vec<&Value> = others.filter(|it| *it != WORK_FINALIZER).collect();
                let patch = json!({"metadata": {"finalizers": others}}).to_string();
                ask(&self.admin, "PATCH", &at, Some((MERGE, &patch))).await?;
                continue;
            }
            let manifest = &work["spec"]["workload"]["manifests"][0]["metadata"];
            if manifest["name"] == name {
                found.push(work.clone());
            }
        }
        Ok(found)
    }

    /// Waits until a cluster is to have the only object of a name, and returns its Work.
    pub(super) async fn placed(&self, cluster: &str, name: &str) -> Result<Value> {
        let what = format!("the Work for {name} in {cluster}");
        wait_for_some(&what, SOON, async || {
            let works = self.works(cluster, name).await?;
            ensure!(works.len() < 2, "there are {}", works.len());
            Ok(works.into_iter().next())
        })
        .await
    }

    /// Waits until an object is gone.
    pub(super) async fn gone(&self, path: &str) -> Result<()> {
        wait_for(&format!("the end of {path}"), SOON, async || {
            // Works that go are let go.
            for cluster in ["m1", "m2"] {
                self.works(cluster, "").await?;
            }
            let left = self.get(path).await?;
            ensure!(left.is_none(), "it is there: {}", left.unwrap_or_default());
            Ok(true)
        })
        .await
    }

    /// Ends the test.
    pub(super) async fn end(mut self) -> Result<()> {
        if !self.plane.options.builtin {
            self.fleet.hub.check()?;
        }
        self.plane.stop().await;
        self.scratch.passed();
        Ok(())
    }
}

/// An object with the kind that its collection has.
fn typed(path: &str, object: &Value) -> Value {
    let mut object = object.clone();
    let (place, plural) = path.rsplit_once('/').unwrap_or_default();
    let version = place.split("/namespaces").next().unwrap_or_default();
    let version = version
        .trim_start_matches("/apis/")
        .trim_start_matches("/api/");
    let kind = match plural {
        "namespaces" => "Namespace",
        "serviceaccounts" => "ServiceAccount",
        "configmaps" => "ConfigMap",
        "secrets" => "Secret",
        "services" => "Service",
        "deployments" => "Deployment",
        "roles" => "Role",
        "rolebindings" => "RoleBinding",
        "propagationpolicies" => "PropagationPolicy",
        "clusterpropagationpolicies" => "ClusterPropagationPolicy",
        "overridepolicies" => "OverridePolicy",
        "clusteroverridepolicies" => "ClusterOverridePolicy",
        _ => return object,
    };
    object["apiVersion"] = json!(version);
    object["kind"] = json!(kind);
    object
}

/// Sends an object as somebody.
pub(super) async fn as_user(
    user: &Client,
    method: &str,
    path: &str,
    object: &Value,
) -> Result<Answer> {
    ask(
        user,
        method,
        path,
        Some((JSON, &typed(path, object).to_string())),
    )
    .await
}
