//! The verbs of stock kubectl that change something, at a member.

use super::kubectls::Kubectl;
use super::rig::{LONG, Stage};
use crate::env::{Run, wait_for};
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// What is applied: a ConfigMap that says something, and a Deployment.
const SAID: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: said}
data: {first: SAID}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: registry.invalid/web:1}]}
"#;
/// A Pod that goes at once when it is told to, on one of the member's nodes.
const POD: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: drained, labels: {app: drained}}
spec:
  nodeName: node-1
  terminationGracePeriodSeconds: 0
  containers: [{name: web, image: registry.invalid/web:1}]
"#;
const EDITOR: &str = "sed -i s/before/after/";
/// Within which each verb that waits gives up by itself.
const TIMEOUT: &str = "--timeout=120s";

/// kubectl in a namespace of the member.
struct Session<'s> {
    kubectl: &'s Kubectl,
    space: String,
}

/// All of them, in a namespace for each kubectl.
pub(super) async fn all(stage: &Stage, kubectl: &Kubectl, number: usize) -> Result<()> {
    let space = format!("verbs-{number}");
    let made = ["create", "namespace", &space];
    kubectl.tells(&made, "created").await?;
    let session = Session {
        kubectl,
        space: space.clone(),
    };
    session.applies().await.context("apply")?;
    session.patches().await.context("patch")?;
    session.rolls_out().await.context("rollout")?;
    session.drains().await.context("drain")?;
    session.debugs(stage).await.context("debug")?;
    session.deletes().await.context("delete")?;
    let gone = ["delete", "namespace", &space, "--wait", TIMEOUT];
    kubectl.tells(&gone, "deleted").await
}

impl Session<'_> {
    fn here<'a>(&'a self, args: &[&'a str]) -> Vec<&'a str> {
        [args, &["-n", &self.space]].concat()
    }

    async fn tells(&self, args: &[&str], text: &str) -> Result<()> {
        self.kubectl.tells(&self.here(args), text).await
    }

    /// Runs it on what is applied, which says this.
    async fn on(&self, args: &[&str], said: &str) -> Result<Run> {
        let input = SAID.replace("SAID", said);
        let args = [args, &["-f", "-"]].concat();
        self.kubectl.run(&self.here(&args), Some(&input)).await
    }

    /// What the ConfigMap says.
    async fn says(&self) -> Result<Value> {
        let get = ["get", "configmap", "said", "-o", "jsonpath={.data}"];
        let said = self.kubectl.says(&self.here(&get)).await?;
        serde_json::from_str(&said).context(said)
    }

    async fn applies(&self) -> Result<()> {
        for result in ["created", "unchanged"] {
            let said = self.on(&["apply"], "one").await?.ok()?.stdout;
            for object in ["configmap/said", "deployment.apps/web"] {
                ensure!(said.contains(&format!("{object} {result}")), "{said}");
            }
        }
        let same = self.on(&["diff"], "one").await?.ok()?.stdout;
        ensure!(same.is_empty(), "{same}");
        let differs = self.on(&["diff"], "two").await?;
        // 1 says that there is a difference, more that there was an error.
        ensure!(
            differs.code == 1 && differs.stdout.contains("+  first: two"),
            "{differs:?}"
        );
        ensure!(self.says().await?["first"] == "one", "diff wrote");

        let server = ["apply", "--server-side"];
        self.on(&server, "two").await?.ok()?;
        let other = [&server[..], &["--field-manager=other"]].concat();
        let refused = self.on(&other, "three").await?.refused()?;
        ensure!(
            refused.stderr.contains("conflict") && refused.stderr.contains(".data.first"),
            "{refused:?}"
        );
        ensure!(self.says().await?["first"] == "two", "a conflict wrote");
        let forced = [&other[..], &["--force-conflicts"]].concat();
        self.on(&forced, "three").await?.ok()?;
        ensure!(self.says().await?["first"] == "three", "nothing was forced");
        Ok(())
    }

    async fn patches(&self) -> Result<()> {
        let map = ["patch", "configmap", "said"];
        let merge = ["--type=merge", "-p", r#"{"data": {"merge": "before"}}"#];
        self.tells(&[&map[..], &merge].concat(), "patched").await?;
        let add = r#"[{"op": "add", "path": "/data/json", "value": "added"}]"#;
        let json = ["--type=json", "-p", add];
        self.tells(&[&map[..], &json].concat(), "patched").await?;
        // By its name the container is the one that is there: it keeps its image.
        let strategic = r#"{"spec": {"template": {"spec": {"containers": [{"name": "web", "args": ["more"]}]}}}}"#;
        let strategic = ["patch", "deployment", "web", "-p", strategic];
        self.tells(&strategic, "patched").await?;
        let containers = "jsonpath={.spec.template.spec.containers[*]['image','args']}";
        let containers = ["get", "deployment", "web", "-o", containers];
        let containers = self.kubectl.says(&self.here(&containers)).await?;
        ensure!(
            containers.contains("registry.invalid/web:1") && containers.contains("more"),
            "{containers}"
        );
        let editor = self.kubectl.clone().with("KUBE_EDITOR", EDITOR);
        let edit = ["edit", "configmap", "said"];
        editor.tells(&self.here(&edit), "edited").await?;
        let said = self.says().await?;
        ensure!(
            said["merge"] == "after" && said["json"] == "added" && said["first"] == "three",
            "{said}"
        );
        Ok(())
    }

    async fn rolls_out(&self) -> Result<()> {
        let web = "deployment/web";
        self.tells(&["rollout", "restart", web], "restarted")
            .await?;
        self.tells(
            &["rollout", "status", web, TIMEOUT],
            "successfully rolled out",
        )
        .await?;
        let available = ["wait", "--for=condition=Available", web, TIMEOUT];
        self.tells(&available, "condition met").await
    }

    /// A node is emptied by evictions, and takes Pods again.
    async fn drains(&self) -> Result<()> {
        let apply = self.here(&["apply", "-f", "-"]);
        self.kubectl.run(&apply, Some(POD)).await?.ok()?;
        let ours = "--pod-selector=app=drained";
        let drain = ["drain", "node-1", "--force", ours, TIMEOUT];
        let drained = self.kubectl.run(&drain, None).await?.ok()?;
        let evicts = format!("evicting pod {}/drained", self.space);
        ensure!(
            drained.stderr.contains(&evicts) || drained.stdout.contains(&evicts),
            "{drained:?}"
        );
        let none = self.here(&["get", "pod", "drained"]);
        self.kubectl.refuses(&none, "not found").await?;
        let closed = [
            "get",
            "node",
            "node-1",
            "-o",
            "jsonpath={.spec.unschedulable}",
        ];
        self.kubectl.tells(&closed, "true").await?;
        let open = ["uncordon", "node-1"];
        self.kubectl.tells(&open, "uncordoned").await
    }

    /// Pods that look into a node and beside a Pod; nothing runs them here, `access::node` has what does.
    async fn debugs(&self, stage: &Stage) -> Result<()> {
        let image = "--image=registry.invalid/debug:1";
        let profile = "--profile=general";
        let node = ["debug", "node/node-1", image, profile];
        self.tells(&node, "Creating debugging pod node-debugger-node-1-")
            .await?;
        let apply = self.here(&["apply", "-f", "-"]);
        self.kubectl.run(&apply, Some(POD)).await?.ok()?;
        let to = ["--copy-to=copied", "-c", "debugger", "--attach=false"];
        let copy = [&["debug", "drained", image, profile][..], &to].concat();
        let copy = self.here(&copy);
        self.kubectl.run(&copy, None).await?.ok()?;
        let names = "jsonpath={.spec.containers[*].name}";
        self.tells(&["get", "pod", "copied", "-o", names], "web debugger")
            .await?;
        let beside = ["debug", "drained", image, profile, "-c", "beside"];
        let beside = [&beside[..], &["--attach=false"]].concat();
        let beside = self.here(&beside);
        let names = "jsonpath={.spec.ephemeralContainers[*].name}";
        match stage.lab.members[0].options.builtin {
            // Its Pods have none, as nothing would run them.
            true => {
                self.kubectl
                    .refuses(&beside, "ephemeral containers are disabled")
                    .await
            }
            false => {
                self.kubectl.run(&beside, None).await?.ok()?;
                self.tells(&["get", "pod", "drained", "-o", names], "beside")
                    .await
            }
        }
    }

    async fn deletes(&self) -> Result<()> {
        let deleted = self.on(&["delete", "--wait", TIMEOUT], "three").await?;
        let deleted = deleted.ok()?.stdout;
        for object in [
            "configmap \"said\" deleted",
            "deployment.apps \"web\" deleted",
        ] {
            ensure!(deleted.contains(object), "{deleted}");
        }
        let gone = self.here(&["get", "deployment", "web"]);
        self.kubectl.refuses(&gone, "not found").await?;
        let pods = [
            "delete",
            "pods",
            "--all",
            "--force",
            "--grace-period=0",
            TIMEOUT,
        ];
        self.kubectl.run(&self.here(&pods), None).await?.ok()?;
        wait_for("the end of all Pods", LONG, async || {
            let left = self.here(&["get", "pods", "-o", "name"]);
            Ok(self.kubectl.says(&left).await?.is_empty())
        })
        .await
    }
}
