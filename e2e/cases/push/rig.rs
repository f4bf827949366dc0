//! A hub, members without an agent, and the process beside the hub.

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use common::client::{ClientOptions, kubeconfig_client};
use common::env::Env;
use kube::Client;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::env::{
    Fleet, JSON, Lab, LabOptions, MERGE, Parts, Process, ProcessSpec, Run, Scratch, ask, binary,
    free_port, run, wait_for, write_private,
};

/// How long anything may take; the machine is shared.
pub(super) const SOON: Duration = Duration::from_secs(180);
/// Where Clusters are.
pub(super) const CLUSTERS: &str = "/apis/cluster.karmada.io/v1alpha1/clusters";
/// Where what `towline join` writes lies.
pub(super) const SECRETS: &str = "/api/v1/namespaces/karmada-cluster/secrets";

/// A silent agent is noticed within the time that a test can bear.
const HUB_FLAGS: [&str; 2] = [
    "--cluster-monitor-grace-period=20s",
    "--cluster-startup-grace-period=20s",
];
/// Thresholds as short; a member of the lab is well from the start.
const PUSH_FLAGS: [&str; 6] = [
    "--cluster-status-update-frequency=1s",
    "--cluster-success-threshold=1s",
    "--cluster-failure-threshold=4s",
    "--cluster-lease-duration=8s",
    "--health-probe-bind-address=0",
    "--metrics-bind-address=0",
];

pub(super) struct Rig {
    pub(super) lab: Lab,
    pub(super) fleet: Fleet,
    /// The hub, with every right.
    pub(super) hub: Client,
    /// The kubeconfig of the process beside the hub.
    pub(super) own: PathBuf,
    pub(super) push: Process,
    scratch: Scratch,
}

impl Rig {
    /// A hub and members that nobody has joined yet.
    pub(super) async fn begin(name: &str, members: usize) -> Result<Self> {
        let scratch = Scratch::new(name)?;
        let mut options = LabOptions::new(members);
        options.hub = options.hub.hub_flags(&HUB_FLAGS);
        if options.hub.builtin {
            // It would start one of its own.
            options.hub.hub_flags.push("--push-program=none".to_owned());
        } else {
            let flag = format!("--access-bind-address=127.0.0.1:{}", free_port()?);
            options.hub.hub_flags.push(flag);
        }
        let lab = Lab::start(&Parts::from_env()?, &scratch.join("lab"), &options).await?;
        let fleet = Fleet::start(&scratch.join("towline"), &lab.hub).await?;
        let hub = fleet.client().await?;
        let own = scratch.join("push.kubeconfig");
        if lab.hub.options.builtin {
            user_kubeconfig(&lab, &own).await?;
        } else {
            account_kubeconfig(&hub, &lab, &own).await?;
        }
        let spec = ProcessSpec::new("push", &binary("towline-agent")?, scratch.path())
            .arg("push")
            .arg("--hub-kubeconfig")
            .arg(&own)
            .args(PUSH_FLAGS);
        let push = Process::start(spec)?;
        Ok(Self {
            lab,
            fleet,
            hub,
            own,
            push,
            scratch,
        })
    }

    /// `towline` on the hub.
    pub(super) async fn cli(&self, args: &[&str]) -> Result<Run> {
        self.fleet.cli(args).await
    }

    /// Joins a member under a name and waits until it is Ready.
    pub(super) async fn join(
        &mut self,
        name: &str,
        kubeconfig: &Path,
        more: &[&str],
    ) -> Result<Run> {
        let file = kubeconfig.display().to_string();
        let mut args = vec!["join", name, "--cluster-kubeconfig", &file, "--wait", "3m"];
        args.extend(more);
        let run = self.cli(&args).await?.ok();
        self.push.check()?;
        run.with_context(|| format!("see {}", self.push.log().display()))
    }

    /// A member's kubeconfig whose way leads through a proxy.
    pub(super) fn through(&self, member: usize, proxy: &str) -> Result<PathBuf> {
        let text = std::fs::read_to_string(&self.lab.members[member].kubeconfig)?;
        let mut config: Value = serde_yaml::from_str(&text)?;
        config["clusters"][0]["cluster"]["proxy-url"] = json!(proxy);
        let path = self.scratch.join(format!("proxied-{member}.kubeconfig"));
        write_private(&path, &serde_yaml::to_string(&config)?)?;
        Ok(path)
    }

    /// A file with something in it.
    pub(super) fn file(&self, name: &str, text: &str) -> Result<String> {
        let path = self.scratch.join(name);
        write_private(&path, text)?;
        Ok(path.display().to_string())
    }

    /// A client of a user of the hub.
    pub(super) async fn user(&self, name: &str) -> Result<Client> {
        let path = self.scratch.join(format!("{name}.kubeconfig"));
        let path = self.lab.hub.kubeconfig_for(&path, name, &[])?;
        // Without kube's own retries, which hide what was answered.
        let options = ClientOptions::new("test");
        let made = kubeconfig_client(Some(&path), None, &options, &Env::system()).await?;
        Ok(made.0)
    }

    /// Something of the hub, if it is there.
    pub(super) async fn get(&self, path: &str) -> Result<Option<Value>> {
        get(&self.hub, path).await
    }

    /// Creates something on the hub.
    pub(super) async fn create(&self, path: &str, object: &Value) -> Result<()> {
        let body = object.to_string();
        ask(&self.hub, "POST", path, Some((JSON, &body)))
            .await?
            .ok()?;
        Ok(())
    }

    /// Changes something on the hub.
    pub(super) async fn patch(&self, path: &str, patch: &Value) -> Result<()> {
        let body = patch.to_string();
        ask(&self.hub, "PATCH", path, Some((MERGE, &body)))
            .await?
            .ok()?;
        Ok(())
    }

    /// Waits until a cluster's condition Ready has one of these statuses.
    pub(super) async fn ready(&self, name: &str, wanted: &[&str]) -> Result<()> {
        let what = format!("Ready {wanted:?} of {name}");
        wait_for(&what, SOON, async || {
            let ready = self.fleet.ready(name).await?.unwrap_or_default();
            ensure!(wanted.contains(&ready.as_str()), "it is {ready:?}");
            Ok(true)
        })
        .await
    }

    /// Waits until the process beside the hub has logged something.
    pub(super) async fn logs(&self, text: &str) -> Result<()> {
        wait_for(&format!("{text:?} in the log"), SOON, async || {
            Ok(self.push.log_text().contains(text))
        })
        .await
    }

    /// Has a Work bring a ConfigMap into a cluster, and waits until it says `applied`.
    pub(super) async fn work(&self, cluster: &str, map: (&str, &str), applied: &str) -> Result<()> {
        let (namespace, name) = map;
        let works = works(cluster);
        let manifest = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"namespace": namespace, "name": name}, "data": {"a": "b"}});
        let work = json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
            "metadata": {"name": name}, "spec": {"workload": {"manifests": [manifest]}}});
        self.create(&works, &work).await?;
        let at = format!("{works}/{name}");
        wait_for(&format!("Applied={applied} of {at}"), SOON, async || {
            let work = self.get(&at).await?.context("gone")?;
            let conditions = work["status"]["conditions"].as_array().cloned();
            let conditions = conditions.unwrap_or_default();
            let found = conditions.iter().find(|it| it["type"] == "Applied");
            let found = found.context("no condition Applied yet")?;
            ensure!(found["status"] == applied, "{found}");
            Ok(true)
        })
        .await
    }

    /// Ends the test.
    pub(super) async fn end(mut self) -> Result<()> {
        self.push.check()?;
        self.push.kill();
        self.lab.stop().await;
        self.scratch.passed();
        Ok(())
    }
}

/// The Works of a cluster.
pub(super) fn works(cluster: &str) -> String {
    format!("/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-{cluster}/works")
}

/// Something of a cluster, if it is there.
pub(super) async fn get(client: &Client, path: &str) -> Result<Option<Value>> {
    let answer = ask(client, "GET", path, None).await?;
    if answer.code == 404 {
        return Ok(None);
    }
    Ok(Some(answer.ok()?.json()?))
}

/// Names of what a collection has of an agent's. A member that is built in has Towline's roles for a hub, too.
pub(super) async fn ours(client: &Client, collection: &str) -> Result<Vec<String>> {
    let found = get(client, collection).await?.unwrap_or_default();
    let items = found["items"].as_array().cloned().unwrap_or_default();
    let names = items
        .iter()
        .filter_map(|it| it["metadata"]["name"].as_str());
    let ours = names.filter(|name| name.starts_with("towline-agent") || *name == "towline-system");
    Ok(ours.map(str::to_owned).collect())
}

/// The kubeconfig of the user that the process beside a built-in hub is.
async fn user_kubeconfig(lab: &Lab, path: &Path) -> Result<()> {
    let data = lab.hub.data_dir().display().to_string();
    let mut command = tokio::process::Command::new(binary("towline-hub")?);
    command.args(["kubeconfig", "--data-dir", &data]).args([
        "--user",
        "towline:push",
        "--ttl",
        "8760h",
    ]);
    let made = run(command, None, SOON).await?.ok()?;
    write_private(path, &made.stdout)
}

/// The kubeconfig of the ServiceAccount that the Deployment beside a hub of kube-apiserver has.
async fn account_kubeconfig(hub: &Client, lab: &Lab, path: &Path) -> Result<()> {
    let accounts = "/api/v1/namespaces/karmada-system/serviceaccounts";
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": "towline-push"}});
    let body = account.to_string();
    ask(hub, "POST", accounts, Some((JSON, &body)))
        .await?
        .ok()?;
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"audiences": [], "expirationSeconds": 86_400}});
    let at = format!("{accounts}/towline-push/token");
    let body = request.to_string();
    let made = ask(hub, "POST", &at, Some((JSON, &body)))
        .await?
        .ok()?
        .json()?;
    let Some(token) = made["status"]["token"].as_str() else {
        bail!("no token");
    };
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "push",
        "clusters": [{"name": "hub", "cluster": {
            "server": format!("https://{}", lab.hub.address()),
            "certificate-authority-data": STANDARD.encode(lab.hub.pki.ca_pem()),
        }}],
        "users": [{"name": "push", "user": {"token": token}}],
        "contexts": [{"name": "push", "context": {"cluster": "hub", "user": "push"}}],
    });
    write_private(path, &serde_yaml::to_string(&config)?)
}
