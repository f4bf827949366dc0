//! What README says to type, and every file of `examples`, on the hub of the demo.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::path::Path;

use super::{SOON, applied, typed};
use crate::env::{repository, wait_for};

/// How README names the hub's kubeconfig.
const HUB: &str = "hub.kubeconfig";

/// Types what README says about examples, in its order.
pub(super) async fn of_the_readme(kubectl: &Path, data: &Path) -> Result<()> {
    let readme = repository().join("README.md");
    let readme = std::fs::read_to_string(&readme).context("failed to read README.md")?;
    let hub = hub(data);
    let ours = |line: &&str| {
        line.starts_with("kubectl --kubeconfig hub.kubeconfig") || line.starts_with("towline get ")
    };
    let lines: Vec<&str> = readme.lines().filter(ours).collect();
    ensure!(lines.len() == 4, "README says {lines:?}");
    for line in lines {
        if line.starts_with("towline get ") {
            let web = Asked::new(kubectl, data, "deployment", "web", "shop");
            web.until("applied in both", |it| it["fullyApplied"] == true)
                .await?;
        }
        let said = typed(kubectl, &line.replace(HUB, &hub)).await?;
        if line.starts_with("towline get ") {
            let told = ["pp/web", "applied everywhere", "member1   4", "member2   2"];
            ensure!(told.iter().all(|it| said.contains(it)), "{said}");
        }
    }
    applied(kubectl, &hub, "web").await
}

/// Applies every other example, and looks at what becomes of it.
pub(super) async fn act(kubectl: &Path, data: &Path) -> Result<()> {
    let hub = hub(data);
    let files =
        std::fs::read_dir(repository().join("examples")).context("failed to read examples")?;
    let mut names = Vec::new();
    for file in files {
        names.push(file?.file_name().into_string().unwrap_or_default());
    }
    names.sort();
    ensure!(names.len() > 6, "only {names:?}");
    // Before what looks for them: replicas that are placed do not move to a cluster that fits later.
    for (cluster, region) in [("member1", "north"), ("member2", "south")] {
        let label = format!("label cluster {cluster} example.com/region={region}");
        typed(kubectl, &format!("kubectl --kubeconfig {hub} {label}")).await?;
    }
    for name in &names {
        typed(
            kubectl,
            &format!("kubectl --kubeconfig {hub} apply -f examples/{name}"),
        )
        .await?;
    }
    let of = |kind, name, namespace| Asked::new(kubectl, data, kind, name, namespace);
    let both = |it: &Value| clusters(it) == ["member1", "member2"];
    let first = |it: &Value| clusters(it) == ["member1"];
    of("deployment", "probe", "everywhere")
        .until("everywhere", |it| both(it) && it["fullyApplied"] == true)
        .await?;
    of("deployment", "queue", "failover")
        .until("in one cluster", |it| clusters(it).len() == 1)
        .await?;
    of("crd", "pipelines.example.com", "default")
        .until("in both", both)
        .await?;
    for kind in ["deployment", "configmap", "secret", "serviceaccount"] {
        of(kind, "worker", "dependencies")
            .until("in the first", first)
            .await?;
    }
    let api = of("deployment", "api", "regions");
    api.until("in both", |it| both(it) && it["fullyApplied"] == true)
        .await?;
    let member = data.join("member2.kubeconfig").display().to_string();
    let look = "-n regions get deployment api -o jsonpath={..image}";
    let image = typed(kubectl, &format!("kubectl --kubeconfig {member} {look}")).await?;
    ensure!(image.starts_with("registry.south.example.com/"), "{image}");
    Ok(())
}

fn hub(data: &Path) -> String {
    data.join("hub/admin.kubeconfig").display().to_string()
}

/// Where it is, as `towline get -o json` says.
fn clusters(answer: &Value) -> Vec<&str> {
    let clusters = answer["clusters"].as_array();
    let names = clusters.into_iter().flatten().map(|it| &it["cluster"]);
    names.filter_map(Value::as_str).collect()
}

/// What `towline get` is asked about.
struct Asked<'a> {
    kubectl: &'a Path,
    line: String,
}

impl<'a> Asked<'a> {
    fn new(kubectl: &'a Path, data: &Path, kind: &str, name: &str, namespace: &str) -> Self {
        let hub = hub(data);
        let line = format!("towline get {kind} {name} -n {namespace} -o json --kubeconfig {hub}");
        Self { kubectl, line }
    }

    async fn until(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Result<()> {
        wait_for(&format!("{}: {what}", self.line), SOON, async || {
            let said = typed(self.kubectl, &self.line).await?;
            let answers: Value = serde_json::from_str(&said)?;
            ensure!(holds(&answers[0]), "{said}");
            Ok(true)
        })
        .await
    }
}
