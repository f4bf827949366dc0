//! The hub as users run it in a cluster of their own: the shipped manifests and images, as pods of a real node. By them
//! a cluster is joined, given a Work, reached by a user, and let go.

use super::rig::{LONG, apply, ask, becomes, led, reach};
use crate::env::{
    GATEWAY, Image, Part, Parts, Plane, PlaneOptions, Process, ProcessSpec, Run, SERVICE, Scratch,
    Towline, binary, client, repository, run, wait_for,
};
use anyhow::{Context as _, Result, ensure};
use common::names::SYSTEM_NAMESPACE;
use serde_json::json;
use std::path::PathBuf;

const APISERVICE: &str = "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.proxy.towline.dev";
const MAP: &str = "/api/v1/namespaces/default/configmaps/by-work";
const HUB: &str = "deploy/towline-hub";
const PUSH: &str = "deploy/towline-push";

/// A hub with a real node that has the images, and a member that its pods reach.
struct Ground {
    scratch: Scratch,
    parts: Parts,
    hub: Plane,
    member: Plane,
    /// The member, by the address that pods reach.
    reached: PathBuf,
}

impl Ground {
    async fn lay(name: &str) -> Result<Self> {
        let scratch = Scratch::new(name)?;
        let parts = Parts::from_env()?;
        let (hub_dir, member_dir) = (scratch.join("hub"), scratch.join("member"));
        let (mut hub, member) = futures::try_join!(
            Plane::start(&parts, &hub_dir, PlaneOptions::real("hub")),
            Plane::start(&parts, &member_dir, PlaneOptions::member("member")),
        )?;
        let node = hub.node.as_ref().context("the hub has a node")?;
        node.import(&Image::hub()?).await?;
        node.import(&Image::agent()?).await?;
        let address = hub.expose(member.port)?;
        let reached = scratch.join("reached.kubeconfig");
        let owner = member.pki.client("owner", &["system:masters"])?;
        member.kubeconfig_at(&reached, &address, &owner)?;
        let towline = Towline::new(&scratch.join("towline"))?;
        let kubeconfig = hub.kubeconfig.display().to_string();
        let advertised = format!("{GATEWAY}:{}", hub.port);
        let init = ["init", "--kubeconfig", &kubeconfig];
        let init = init.into_iter().chain(["--advertise", &advertised]);
        towline.cli(init).await?.ok()?;
        Ok(Self {
            scratch,
            parts,
            hub,
            member,
            reached,
        })
    }

    /// kubectl on the hub.
    async fn kubectl(&self, args: &[&str]) -> Result<Run> {
        let mut command = tokio::process::Command::new(self.parts.path(Part::Kubectl)?);
        command
            .arg("--kubeconfig")
            .arg(&self.hub.kubeconfig)
            .args(args)
            .current_dir(repository());
        run(command, None, LONG).await?.ok()
    }

    /// The same in the hub's own namespace.
    async fn here(&self, args: &[&str]) -> Result<Run> {
        self.kubectl(&[&["--namespace", SYSTEM_NAMESPACE][..], args].concat())
            .await
    }

    /// Waits until all replicas of a Deployment are what it says.
    async fn rolled_out(&self, deployment: &str) -> Result<()> {
        let status = ["rollout", "status", deployment, "--timeout=150s"];
        match self.here(&status).await {
            Ok(_) => Ok(()),
            Err(error) => {
                let pods = self.here(&["describe", "pods"]).await;
                Err(error.context(format!("{}: {pods:?}", self.logs(deployment).await)))
            }
        }
    }

    async fn logs(&self, deployment: &str) -> String {
        let logs = ["logs", deployment, "--all-pods", "--tail=-1"];
        let said = self.here(&logs).await;
        said.map_or_else(|error| format!("{error:#}"), |run| run.stdout)
    }

    /// `towline` where pods are: what it reaches, they do.
    async fn towline(&self, args: &[&str]) -> Result<()> {
        let spec = ProcessSpec::new("towline", &binary("towline")?, self.scratch.path());
        let spec = spec.args(args).arg("--kubeconfig");
        let spec = spec.arg(&self.hub.kubeconfig);
        let mut process = Process::start(self.hub.in_network(spec)?)?;
        let status = process.wait_ended(LONG).await?;
        let said = process.log_text();
        if !status.success() {
            let (hub, push) = (self.logs(HUB).await, self.logs(PUSH).await);
            anyhow::bail!("{args:?}: {status}: {said}\nhub: {hub}\npush: {push}");
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn real_node_hub_with_access_and_push_by_kubectl() -> Result<()> {
    let ground = Ground::lay("access-pods").await?;
    let apply_files = ["apply", "--validate=strict", "-k"];
    let files = |folder| [&apply_files[..], &[folder]].concat();
    ground.kubectl(&files("manifests/hub-access")).await?;
    // Nothing balances loads here: agents dial each replica by its own address.
    let own = "TOWLINE_HUB_ACCESS_ADVERTISE=$(POD_IP):10443";
    ground.here(&["set", "env", HUB, own]).await?;
    ground.rolled_out(HUB).await?;
    ground.kubectl(&files("manifests/hub/push")).await?;
    // Nor is there a server of names.
    let names = json!({"spec": {"template": {"spec": {
        "hostAliases": [{"ip": SERVICE, "hostnames": ["kubernetes.default.svc"]}],
    }}}});
    let names = names.to_string();
    ground.here(&["patch", PUSH, "-p", &names]).await?;
    ground.rolled_out(PUSH).await?;

    let reached = ground.reached.display().to_string();
    let join = [
        "join",
        "m1",
        "--cluster-kubeconfig",
        &reached,
        "--wait",
        "2m",
    ];
    let lets_in = ["--proxy", "impersonate", "--proxy-user", "ann"];
    ground.towline(&[&join[..], &lets_in].concat()).await?;

    let hub = ground.hub.client().await?;
    let member = ground.member.client().await?;
    let manifest = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "by-work", "namespace": "default"},
        "data": {"brought": "by pods"},
    });
    let work = json!({
        "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
        "metadata": {"name": "by-work", "namespace": "karmada-es-m1"},
        "spec": {"workload": {"manifests": [manifest]}},
    });
    apply(&hub, vec![work]).await?;
    becomes(&member, MAP, 200, "by pods").await?;

    // Through the hub's API server, a pod of the hub, the tunnel, and a pod beside it.
    let group = "rbac.authorization.k8s.io";
    let views = json!({
        "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "ann-views"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "ann"}],
    });
    apply(&member, vec![views]).await?;
    apply(&hub, reach("ann", &["m1"], &["get"])).await?;
    let path = led(false, "m1", MAP);
    let user = async |name: &str| {
        let file = ground.scratch.join(format!("{name}.kubeconfig"));
        client(&ground.hub.kubeconfig_for(&file, name, &[])?).await
    };
    let ann = user("ann").await?;
    becomes(&ann, &path, 200, "by pods").await?;
    let bob = user("bob").await?;
    ask(&bob, "GET", &path, &[])
        .await?
        .is(403, "clusters/proxy")?;
    allowed(&ground).await?;
    // Pods that are replaced one by one take it over.
    ground.here(&["rollout", "restart", HUB]).await?;
    ground.rolled_out(HUB).await?;
    becomes(&ann, &path, 200, "by pods").await?;

    allowed(&ground).await?;
    ground.towline(&["unjoin", "m1", "--yes"]).await?;
    becomes(&member, MAP, 404, "not found").await?;
    let restarts = "jsonpath={.items[*].status.containerStatuses[*].restartCount}";
    let restarts = ground.here(&["get", "pods", "-o", restarts]).await?.stdout;
    ensure!(
        restarts.contains('0') && restarts.split_whitespace().all(|count| count == "0"),
        "{restarts}"
    );
    gone(&ground).await?;
    let Ground {
        mut hub,
        mut member,
        scratch,
        ..
    } = ground;
    hub.stop().await;
    member.stop().await;
    scratch.passed();
    Ok(())
}

/// The rights of the manifests are enough.
async fn allowed(ground: &Ground) -> Result<()> {
    for deployment in [HUB, PUSH] {
        let said = ground.logs(deployment).await;
        ensure!(!said.is_empty() && !said.contains("orbidden"), "{said}");
    }
    Ok(())
}

/// The hub takes back what it announced, and then goes itself.
async fn gone(ground: &Ground) -> Result<()> {
    let hub = ground.hub.client().await?;
    becomes(&hub, APISERVICE, 200, "proxy.towline.dev").await?;
    ground.here(&["scale", HUB, "--replicas=0"]).await?;
    becomes(&hub, APISERVICE, 404, "not found").await?;
    for folder in ["manifests/hub/push", "manifests/hub-access"] {
        ground.kubectl(&["delete", "-k", folder]).await?;
    }
    wait_for("the end of all pods", LONG, async || {
        let left = ground.here(&["get", "pods", "-o", "name"]).await?;
        Ok(left.stdout.is_empty())
    })
    .await
}
