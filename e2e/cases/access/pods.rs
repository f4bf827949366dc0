//! The hub as users run it in a cluster: the shipped manifests and images, as pods of a real node. By them a cluster is
//! joined, given a Work, reached by a user, and let go.

use super::rig::{LONG, apply, ask, becomes, led, reach};
use crate::env::{
    GATEWAY, Image, Part, Parts, Plane, PlaneOptions, Process, ProcessSpec, Run, SERVICE, Scratch,
    Towline, binary, client, repository, run, wait_for, write_private,
};
use anyhow::{Context as _, Result, bail, ensure};
use common::names::SYSTEM_NAMESPACE;
use serde_json::json;
use std::path::{Path, PathBuf};

const APISERVICE: &str = "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.proxy.towline.dev";
const MAP: &str = "/api/v1/namespaces/default/configmaps/by-work";
const HUB: &str = "deploy/towline-hub";
const PUSH: &str = "deploy/towline-push";
/// Where a built-in hub is a pod.
const NAMESPACE: &str = "towline-hub";
const POD: &str = "towline-hub-0";
/// The encryption key that it is given.
const KEY: &str = "aes256gcm:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n";

/// A cluster with a real node that has the images, and a member that its pods reach.
struct Ground {
    scratch: Scratch,
    parts: Parts,
    plane: Plane,
    member: Plane,
    /// The member, by the address that pods reach.
    reached: PathBuf,
    /// Where the hub's pods are.
    namespace: &'static str,
    /// The kubeconfig of the hub.
    hub: PathBuf,
}

impl Ground {
    async fn lay(name: &str, namespace: &'static str) -> Result<Self> {
        let scratch = Scratch::new(name)?;
        let parts = Parts::from_env()?;
        let (plane_dir, member_dir) = (scratch.join("plane"), scratch.join("member"));
        let (mut plane, member) = futures::try_join!(
            Plane::start(&parts, &plane_dir, PlaneOptions::real("hub")),
            Plane::start(&parts, &member_dir, PlaneOptions::member("member")),
        )?;
        let node = plane.node.as_ref().context("it has a node")?;
        node.import(&Image::hub()?).await?;
        node.import(&Image::agent()?).await?;
        let address = plane.expose(member.port)?;
        let reached = scratch.join("reached.kubeconfig");
        let owner = member.pki.client("owner", &["system:masters"])?;
        member.kubeconfig_at(&reached, &address, &owner)?;
        Ok(Self {
            scratch,
            parts,
            hub: plane.kubeconfig.clone(),
            plane,
            member,
            reached,
            namespace,
        })
    }

    /// Makes the cluster itself a hub.
    async fn init(&self) -> Result<()> {
        let towline = Towline::new(&self.scratch.join("towline"))?;
        let kubeconfig = self.hub.display().to_string();
        let advertised = format!("{GATEWAY}:{}", self.plane.port);
        let init = ["init", "--kubeconfig", &kubeconfig];
        let init = init.into_iter().chain(["--advertise", &advertised]);
        towline.cli(init).await?.ok()?;
        Ok(())
    }

    async fn kubectl(&self, args: &[&str], input: Option<&str>) -> Result<Run> {
        let mut command = tokio::process::Command::new(self.parts.path(Part::Kubectl)?);
        command
            .arg("--kubeconfig")
            .arg(&self.plane.kubeconfig)
            .args(args)
            .current_dir(repository());
        run(command, input, LONG).await?.ok()
    }

    /// Applies a kustomization as its reader does.
    async fn apply(&self, folder: &str) -> Result<()> {
        let args = ["apply", "--validate=strict", "-k", folder];
        self.kubectl(&args, None).await?;
        Ok(())
    }

    /// kubectl where the hub's pods are.
    async fn here(&self, args: &[&str]) -> Result<Run> {
        let args = [&["--namespace", self.namespace][..], args].concat();
        self.kubectl(&args, None).await
    }

    /// Waits until all replicas are what their template says.
    async fn rolled_out(&self, what: &str) -> Result<()> {
        let status = ["rollout", "status", what, "--timeout=150s"];
        match self.here(&status).await {
            Ok(_) => Ok(()),
            Err(error) => {
                let pods = self.here(&["describe", "pods"]).await;
                Err(error.context(format!("{}: {pods:?}", self.logs().await)))
            }
        }
    }

    /// What all pods said.
    async fn logs(&self) -> String {
        let of_all = ["-l", "app.kubernetes.io/part-of=towline", "--prefix"];
        let args = [&["logs", "--tail=-1"][..], &of_all].concat();
        match self.here(&args).await {
            Ok(said) => said.stdout,
            Err(error) => format!("{error:#}"),
        }
    }

    /// `towline` on the hub where pods are: what it reaches, they do.
    async fn towline(&self, args: &[&str]) -> Result<String> {
        let spec = ProcessSpec::new(args[0], &binary("towline")?, self.scratch.path());
        let spec = spec.args(args).arg("--kubeconfig").arg(&self.hub);
        let mut process = Process::start(self.plane.in_network(spec)?)?;
        let status = process.wait_ended(LONG).await?;
        let said = process.log_text();
        if !status.success() {
            bail!("{args:?}: {status}: {said}\n{}", self.logs().await);
        }
        Ok(said)
    }

    /// Joins the member, whose owner lets Ann in.
    async fn join(&self) -> Result<()> {
        let reached = self.reached.display().to_string();
        let join = ["join", "m1", "--cluster-kubeconfig", &reached];
        let lets_in = ["--proxy", "impersonate", "--proxy-user", "ann"];
        let args = [&join[..], &lets_in, &["--wait", "2m"]].concat();
        self.towline(&args).await?;
        Ok(())
    }

    /// No container has ended and been started again.
    async fn steady(&self) -> Result<()> {
        let counts = "jsonpath={.items[*].status.containerStatuses[*].restartCount}";
        let counts = self.here(&["get", "pods", "-o", counts]).await?.stdout;
        let mut all = counts.split_whitespace();
        ensure!(
            !counts.is_empty() && all.all(|count| count == "0"),
            "{counts}"
        );
        Ok(())
    }

    async fn end(mut self) {
        self.plane.stop().await;
        self.member.stop().await;
        self.scratch.passed();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn real_node_hub_with_access_and_push_by_kubectl() -> Result<()> {
    let ground = Ground::lay("access-pods", SYSTEM_NAMESPACE).await?;
    ground.init().await?;
    ground.apply("manifests/hub-access").await?;
    // Nothing balances loads here: agents dial each replica by its own address.
    let own = "TOWLINE_HUB_ACCESS_ADVERTISE=$(POD_IP):10443";
    ground.here(&["set", "env", HUB, own]).await?;
    ground.rolled_out(HUB).await?;
    ground.apply("manifests/hub/push").await?;
    // Nor is there a server of names.
    let names = json!({"spec": {"template": {"spec": {
        "hostAliases": [{"ip": SERVICE, "hostnames": ["kubernetes.default.svc"]}],
    }}}});
    let names = names.to_string();
    ground.here(&["patch", PUSH, "-p", &names]).await?;
    ground.rolled_out(PUSH).await?;
    ground.join().await?;

    let hub = ground.plane.client().await?;
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
        client(&ground.plane.kubeconfig_for(&file, name, &[])?).await
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
    ground.steady().await?;
    gone(&ground).await?;
    ground.end().await;
    Ok(())
}

/// A whole hub in one pod, which runs what serves joined clusters beside itself.
#[tokio::test(flavor = "multi_thread")]
async fn real_node_built_in_hub_by_kubectl() -> Result<()> {
    let mut ground = Ground::lay("access-one-pod", NAMESPACE).await?;
    let place = ground.scratch.join("volume");
    std::fs::create_dir(&place).context("failed to create a folder")?;
    let on_the_node =
        json!({"key": "kubernetes.io/hostname", "operator": "In", "values": ["localhost"]});
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "hub"},
        "spec": {
            "capacity": {"storage": "5Gi"}, "accessModes": ["ReadWriteOnce"], "local": {"path": place},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [on_the_node]}]}},
        },
    });
    apply(&ground.plane.client().await?, vec![volume]).await?;
    let file = repository().join("manifests/hub/built-in/statefulset.yaml");
    let text = std::fs::read_to_string(file).context("failed to read statefulset.yaml")?;
    // Nothing leads to a Service here: the hub is reached by the address of its pod.
    let advertised = "value: towline-hub.towline-hub.svc:6443";
    let env = "          env:\n";
    ensure!(text.contains(advertised) && text.contains(env), "{text}");
    let ip = "            - {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}\n";
    let text = text.replace(advertised, "value: $(POD_IP):6443");
    let text = text.replace(env, &format!("{env}{ip}"));
    let key = ground.scratch.join("hub.key");
    write_private(&key, KEY)?;
    let namespace = ["create", "namespace", NAMESPACE];
    ground.kubectl(&namespace, None).await?;
    let from = format!("--from-file=hub.key={}", key.display());
    let secret = ["create", "secret", "generic", "towline-hub-key", &from];
    ground.here(&secret).await?;
    let files = ["apply", "--validate=strict", "-f", "-"];
    ground.kubectl(&files, Some(&text)).await?;
    ground.rolled_out("statefulset/towline-hub").await?;

    let ip = ["get", "pod", POD, "-o", "jsonpath={.status.podIP}"];
    let server = format!("{}:6443", ground.here(&ip).await?.stdout);
    let kubeconfig = ["exec", POD, "--", "towline-hub", "kubeconfig"];
    let admin = ["--user", "ann", "--group", "system:masters"];
    let whose = ["--data-dir", "/data/hub", "--server", &server];
    let kubeconfig = [&kubeconfig[..], &admin, &whose].concat();
    let made = ground.here(&kubeconfig).await?.stdout;
    ground.hub = ground.scratch.join("hub.kubeconfig");
    write_private(&ground.hub, &made)?;
    ground.join().await?;
    let checked = ground.towline(&["check", "m1"]).await?;
    ensure!(checked.contains("its API server answers you"), "{checked}");
    taken_out(&ground, &key).await?;
    ground.towline(&["unjoin", "m1", "--yes"]).await?;
    ground.steady().await?;
    ground.end().await;
    Ok(())
}

/// A backup and the key come out of the pod, and are a hub elsewhere.
async fn taken_out(ground: &Ground, key: &Path) -> Result<()> {
    let out = async |args: &[&str], file: &Path| {
        let exec = ["exec", POD, "--", "towline-hub"];
        let args = [&exec[..], args, &["--data-dir", "/data/hub"]].concat();
        let output = std::fs::File::create(file).context("failed to make a file")?;
        let mut command = tokio::process::Command::new(ground.parts.path(Part::Kubectl)?);
        command
            .arg("--kubeconfig")
            .arg(&ground.plane.kubeconfig)
            .args(["--namespace", ground.namespace])
            .args(&args)
            .stdout(output);
        let status = command.status().await.context("failed to run kubectl")?;
        ensure!(status.success(), "{args:?}: {status}");
        anyhow::Ok(())
    };
    let exported = ground.scratch.join("exported.key");
    out(&["encryption", "export"], &exported).await?;
    let text = std::fs::read_to_string(&exported).context("failed to read the key")?;
    ensure!(text.ends_with(KEY), "another key was printed");
    let file = ground.scratch.join("hub.backup");
    out(&["backup", "-"], &file).await?;
    let mut restore = tokio::process::Command::new(binary("towline-hub")?);
    restore
        .args(["restore", "--confirm-all", "--data-dir"])
        .arg(ground.scratch.join("restored"))
        .arg("--encryption-key-file")
        .arg(key)
        .arg(file);
    run(restore, None, LONG).await?.ok()?;
    Ok(())
}

/// The rights of the manifests are enough.
async fn allowed(ground: &Ground) -> Result<()> {
    let said = ground.logs().await;
    let all = ["pod/towline-hub-", "pod/towline-push-"];
    ensure!(all.iter().all(|pod| said.contains(pod)), "{said}");
    ensure!(!said.contains("orbidden"), "{said}");
    Ok(())
}

/// The hub takes back what it announced, and then goes itself.
async fn gone(ground: &Ground) -> Result<()> {
    let hub = ground.plane.client().await?;
    becomes(&hub, APISERVICE, 200, "proxy.towline.dev").await?;
    ground.here(&["scale", HUB, "--replicas=0"]).await?;
    becomes(&hub, APISERVICE, 404, "not found").await?;
    for folder in ["manifests/hub/push", "manifests/hub-access"] {
        ground.kubectl(&["delete", "-k", folder], None).await?;
    }
    wait_for("the end of all pods", LONG, async || {
        let left = ground.here(&["get", "pods", "-o", "name"]).await?;
        Ok(left.stdout.is_empty())
    })
    .await
}
