//! Helm installs, upgrades and rolls back a chart of our own (`e2e/cases/helm/chart`). Every command ends
//! with the same code on either kind of server, and leaves the same objects.

use anyhow::{Context as _, Result, ensure};
use kube::Client;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::env::{
    Part, Parts, Plane, PlaneOptions, Run, Scratch, ask, left_out, repository, run, wait_for,
};

const WITHIN: Duration = Duration::from_secs(180);
const RELEASE: &str = "shop";
const NAMESPACE: &str = "charts";

/// Helm, and a server.
pub(super) struct Rig {
    helm: PathBuf,
    scratch: PathBuf,
    kubeconfig: PathBuf,
    client: Client,
}

/// What a release leaves on the server; `None` for what is not there.
#[derive(Debug, PartialEq, Eq)]
struct Left<'a> {
    /// The text in its ConfigMap, its Secret (in base64) and its custom object.
    texts: Option<(&'a str, &'a str, &'a str)>,
    port: Option<i64>,
    account: bool,
    more: bool,
    /// The selector of its Deployment.
    deployment: Option<&'a str>,
}

const FIRST: Left<'_> = Left {
    texts: Some(("one", "b25l", "one")),
    port: Some(80),
    account: true,
    more: false,
    deployment: None,
};
const SECOND: Left<'_> = Left {
    texts: Some(("two", "dHdv", "two")),
    port: Some(81),
    account: false,
    more: true,
    deployment: Some("lab"),
};
const NOTHING: Left<'_> = Left {
    texts: None,
    port: None,
    account: false,
    more: false,
    deployment: None,
};
/// What the second revision sets.
const SET: &str = "text=two,port=81,account=false,more=true,deployment=true";

impl Rig {
    /// `None`, said aloud, where Helm was not built. It works by this kubeconfig; what it left is seen by `client`.
    pub(super) fn new(scratch: &Path, kubeconfig: &Path, client: Client) -> Result<Option<Self>> {
        let helm = match Parts::from_env()?.path(Part::Helm) {
            Ok(helm) => helm,
            Err(error) => {
                left_out("Helm", &format!("{error:#}"));
                return Ok(None);
            }
        };
        Ok(Some(Self {
            helm,
            scratch: scratch.to_owned(),
            kubeconfig: kubeconfig.to_owned(),
            client,
        }))
    }

    /// Everything that a release goes through.
    pub(super) async fn lives(&self) -> Result<()> {
        install(self).await?;
        upgrade(self).await?;
        fail_and_roll_back(self).await?;
        uninstall(self).await
    }

    /// Runs Helm on the chart's namespace.
    async fn helm(&self, args: &[&str]) -> Result<Run> {
        let mut command = tokio::process::Command::new(&self.helm);
        command
            .args(args)
            .args(["--namespace", NAMESPACE, "--kubeconfig"])
            .arg(&self.kubeconfig)
            .current_dir(repository().join("e2e/cases/helm"));
        for name in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            command.env(name, self.scratch.join(name));
        }
        run(command, None, WITHIN).await
    }

    /// The same for what has to be refused, with a word of why.
    async fn refused(&self, args: &[&str], why: &str) -> Result<()> {
        let run = self.helm(args).await?;
        ensure!(run.code == 1 && run.stderr.contains(why), "{run:?}");
        Ok(())
    }

    async fn json(&self, args: &[&str]) -> Result<Value> {
        let run = self.helm(&[args, &["-o", "json"]].concat()).await?.ok()?;
        serde_json::from_str(&run.stdout).with_context(|| format!("no JSON: {run:?}"))
    }

    /// Revisions of the release and what became of them.
    async fn history(&self) -> Result<Vec<(u64, String)>> {
        let history = self.json(&["history", RELEASE]).await?;
        let all = history.as_array().into_iter().flatten();
        let each = all.map(|one| {
            let status = one["status"].as_str().unwrap_or_default();
            (
                one["revision"].as_u64().unwrap_or_default(),
                status.to_owned(),
            )
        });
        Ok(each.collect())
    }

    async fn get(&self, group: &str, plural: &str, name: &str) -> Result<Option<Value>> {
        let path = format!("{group}/namespaces/{NAMESPACE}/{plural}/{name}");
        let answer = ask(&self.client, "GET", &path, None).await?;
        if answer.code == 404 {
            return Ok(None);
        }
        answer.ok()?.json().map(Some)
    }

    /// Fails unless this is what is there.
    async fn left(&self, wanted: &Left<'_>) -> Result<()> {
        let core = "/api/v1";
        let map = self.get(core, "configmaps", RELEASE).await?;
        let secret = self.get(core, "secrets", RELEASE).await?;
        let gizmo = self
            .get("/apis/helm.towline.dev/v1", "gizmos", RELEASE)
            .await?;
        let service = self.get(core, "services", RELEASE).await?;
        let deployment = self.get("/apis/apps/v1", "deployments", RELEASE).await?;
        let text = |object: &Option<Value>, path: &str| {
            let found = object.as_ref()?.pointer(path)?;
            found.as_str().map(str::to_owned)
        };
        let texts = (
            text(&map, "/data/text"),
            text(&secret, "/data/text"),
            text(&gizmo, "/spec/text"),
        );
        let selector = text(&deployment, "/spec/selector/matchLabels/app");
        let found = Left {
            texts: match &texts {
                (Some(map), Some(secret), Some(gizmo)) => Some((map, secret, gizmo)),
                (None, None, None) => None,
                some => anyhow::bail!("only some of it is there: {some:?}"),
            },
            port: service.and_then(|it| it.pointer("/spec/ports/0/port")?.as_i64()),
            account: self.get(core, "serviceaccounts", RELEASE).await?.is_some(),
            more: self
                .get(core, "configmaps", &format!("{RELEASE}-more"))
                .await?
                .is_some(),
            deployment: selector.as_deref(),
        };
        ensure!(
            found == *wanted,
            "there is {found:?}, and should be {wanted:?}"
        );
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chart_lives_its_life() -> Result<()> {
    let scratch = Scratch::new("helm")?;
    let parts = Parts::from_env()?;
    let mut plane = Plane::start(&parts, &scratch.join("hub"), PlaneOptions::hub()).await?;
    let client = plane.client().await?;
    if let Some(rig) = Rig::new(scratch.path(), &plane.kubeconfig, client)? {
        rig.lives().await?;
    }
    plane.stop().await;
    scratch.passed();
    Ok(())
}

async fn install(rig: &Rig) -> Result<()> {
    let chart = ["install", RELEASE, "chart", "--create-namespace"];
    // What is waited for is what no controller has to make ready.
    let waits = [&chart[..], &["--wait", "--timeout", "120s"]].concat();
    rig.helm(&waits).await?.ok()?;
    rig.left(&FIRST).await?;
    let hook = rig.get("/api/v1", "configmaps", "shop-hook").await?;
    ensure!(hook.is_some(), "the hook's object is not there");
    let gizmo = rig
        .get("/apis/helm.towline.dev/v1", "gizmos", RELEASE)
        .await?;
    let size = gizmo.context("no custom object")?["spec"]["size"].clone();
    ensure!(size == 7, "no default: {size}");
    rig.refused(&chart, "cannot reuse a name").await?;
    let list = rig.json(&["list"]).await?;
    let first = &list[0];
    ensure!(
        first["name"] == RELEASE && first["revision"] == "1" && first["status"] == "deployed",
        "{list}"
    );
    Ok(())
}

async fn upgrade(rig: &Rig) -> Result<()> {
    let tried = [
        "upgrade",
        RELEASE,
        "chart",
        "--set",
        SET,
        "--dry-run=server",
    ];
    rig.helm(&tried).await?.ok()?;
    rig.left(&FIRST).await?;
    rig.helm(&["upgrade", RELEASE, "chart", "--set", SET])
        .await?
        .ok()?;
    rig.left(&SECOND).await?;
    let values = rig.json(&["get", "values", RELEASE]).await?;
    ensure!(
        values
            == json!({"text": "two", "port": 81, "account": false, "more": true,
        "deployment": true}),
        "{values}"
    );
    let manifest = rig.helm(&["get", "manifest", RELEASE]).await?.ok()?.stdout;
    ensure!(
        manifest.contains("name: shop-more") && !manifest.contains("kind: ServiceAccount"),
        "{manifest}"
    );
    // Nothing changes, and nothing is written but the release.
    let before = rig.get("/api/v1", "configmaps", RELEASE).await?;
    rig.helm(&["upgrade", RELEASE, "chart", "--reuse-values"])
        .await?
        .ok()?;
    let after = rig.get("/api/v1", "configmaps", RELEASE).await?;
    ensure!(before == after, "{before:?} became {after:?}");
    Ok(())
}

async fn fail_and_roll_back(rig: &Rig) -> Result<()> {
    let upgrade = ["upgrade", RELEASE, "chart", "--reuse-values", "--set"];
    for (set, why) in [
        ("selector=other", "field is immutable"),
        ("port=99999", "must be between 1 and 65535"),
        ("text=much-too-long", "Too long"),
    ] {
        rig.refused(&[&upgrade[..], &[set]].concat(), why).await?;
    }
    let status = rig.json(&["status", RELEASE]).await?;
    ensure!(status["info"]["status"] == "failed", "{}", status["info"]);
    rig.helm(&["rollback", RELEASE, "1"]).await?.ok()?;
    rig.left(&FIRST).await?;
    rig.helm(&["rollback", RELEASE, "2"]).await?.ok()?;
    rig.left(&SECOND).await?;
    let wanted: Vec<(u64, String)> = [
        (1, "superseded"),
        (2, "superseded"),
        (3, "superseded"),
        (4, "failed"),
        (5, "failed"),
        (6, "failed"),
        (7, "superseded"),
        (8, "deployed"),
    ]
    .map(|(revision, status)| (revision, status.to_owned()))
    .to_vec();
    let history = rig.history().await?;
    ensure!(history == wanted, "{history:?}");
    Ok(())
}

async fn uninstall(rig: &Rig) -> Result<()> {
    rig.helm(&["uninstall", RELEASE, "--wait"]).await?.ok()?;
    wait_for("nothing of the release to be left", WITHIN, async || {
        rig.left(&NOTHING).await.map(|()| true)
    })
    .await?;
    let list = rig.json(&["list", "--all-namespaces"]).await?;
    ensure!(list == json!([]), "{list}");
    // Definitions and what hooks made stay, as Helm says.
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gizmos.helm.towline.dev";
    ask(&rig.client, "GET", path, None).await?.ok()?;
    let hook = rig.get("/api/v1", "configmaps", "shop-hook").await?;
    ensure!(hook.is_some(), "the hook's object went too");
    rig.refused(&["history", RELEASE], "release: not found")
        .await
}
