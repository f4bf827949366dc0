//! A data directory with something of everything in it, which every later build has to open: see
//! `hub/tests/store/directory.rs`.
//!
//! `TOWLINE_KEEP_DIRECTORY=FOLDER` keeps it there, each file by itself in gzip.

use anyhow::{Context as _, Result, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::slice::from_ref;

use super::rig::{Hub, LONG, Side, end, two_ports};
use crate::env::{JSON, Scratch, Towline, ask, wait_for};

/// It lies in the repository, once for each format.
const LARGEST: u64 = 300 << 10;

/// A definition with two versions, defaults, and a rule.
fn gadgets() -> Value {
    let size = json!({"type": "integer", "default": 7, "minimum": 1});
    let spec = json!({
        "type": "object", "default": {}, "properties": {"size": size, "color": {"type": "string"}},
        "x-kubernetes-validations": [{"rule": "!has(self.size) || self.size < 100", "message": "too large"}],
    });
    let status = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let schema = json!({"type": "object", "properties": {"spec": spec, "status": status}});
    let version = |name: &str, storage: bool| {
        json!({
            "name": name, "served": true, "storage": storage, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": schema},
            "additionalPrinterColumns": [
                {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
            ],
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "gadgets.fixture.towline.dev"},
        "spec": {
            "group": "fixture.towline.dev", "scope": "Namespaced",
            "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget"},
            "versions": [version("v1alpha1", false), version("v1", true)],
        },
    })
}

/// What people make, beside what the hub makes of a registration: path and object.
fn objects() -> Vec<(String, Value)> {
    let pods = json!({"metadata": {"labels": {"app": "a"}},
        "spec": {"containers": [{"name": "a", "image": "example.com/a:1"}]}});
    let named = |name: &str| json!({"name": name});
    let core = |plural: &str| format!("/api/v1/namespaces/fixture/{plural}");
    let rbac =
        |plural: &str| format!("/apis/rbac.authorization.k8s.io/v1/namespaces/fixture/{plural}");
    let (group, path) = ("rbac.authorization.k8s.io", str::to_owned);
    vec![
        (
            path("/api/v1/namespaces"),
            json!({"metadata": named("fixture")}),
        ),
        (
            core("configmaps"),
            json!({"metadata": named("a"), "data": {"text": "ünï\n\"'\\"}}),
        ),
        (
            core("secrets"),
            json!({"metadata": named("a"), "stringData": {"worth": "nothing"}}),
        ),
        (core("serviceaccounts"), json!({"metadata": named("a")})),
        (
            rbac("roles"),
            json!({"metadata": named("reader"), "rules": [
                {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]},
            ]}),
        ),
        (
            rbac("rolebindings"),
            json!({"metadata": named("reader"),
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "reader"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": "reader"}]}),
        ),
        (
            path("/apis/apps/v1/namespaces/fixture/deployments"),
            json!({"metadata": named("a"), "spec": {
            "selector": {"matchLabels": {"app": "a"}}, "template": pods}}),
        ),
        (
            core("events"),
            json!({"metadata": named("a.1"), "type": "Normal", "reason": "Made",
            "involvedObject": {"kind": "ConfigMap", "namespace": "fixture", "name": "a"}}),
        ),
        (
            path("/apis/apiextensions.k8s.io/v1/customresourcedefinitions"),
            gadgets(),
        ),
        (
            path("/apis/cluster.karmada.io/v1alpha1/clusters"),
            json!({
            "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
            "metadata": {"name": "m2", "labels": {"stage": "test"}}, "spec": {"syncMode": "Pull"}}),
        ),
    ]
}

async fn fill(hub: &Hub, dir: &Path) -> Result<()> {
    let client = hub.client().await?;
    for (path, object) in objects() {
        let body = object.to_string();
        ask(&client, "POST", &path, Some((JSON, &body)))
            .await?
            .ok()?;
    }
    let gadget = json!({"apiVersion": "fixture.towline.dev/v1alpha1", "kind": "Gadget",
        "metadata": {"name": "a", "finalizers": ["fixture.towline.dev/kept"]},
        "spec": {"color": "red"}})
    .to_string();
    let path = "/apis/fixture.towline.dev/v1alpha1/namespaces/fixture/gadgets";
    wait_for("a custom object", LONG, async || {
        let made = ask(&client, "POST", path, Some((JSON, &gadget))).await?;
        ensure!(made.code == 201, "{made:?}");
        Ok(true)
    })
    .await?;
    let work = json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
        "metadata": {"name": "waits"}, "spec": {"workload": {"manifests": [
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "w", "namespace": "default"}},
        ]}}})
    .to_string();
    let path = "/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-m2/works";
    wait_for("a Work of the cluster without an agent", LONG, async || {
        let made = ask(&client, "POST", path, Some((JSON, &work))).await?;
        ensure!(made.code == 201, "{made:?}");
        Ok(true)
    })
    .await?;
    let kubeconfig = hub.kubeconfig().display().to_string();
    let token = [
        "token",
        "create",
        "--cluster",
        "m3",
        "--kubeconfig",
        &kubeconfig,
    ];
    Towline::new(dir)?.cli(token).await?.ok().map(drop)
}

/// The files of a folder and those below it, by their paths in it.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push(path.strip_prefix(folder)?.to_owned());
            }
        }
    }
    Ok(found)
}

/// Each file in gzip below `target`; how long they are together.
fn pack(data: &Path, target: &Path) -> Result<u64> {
    let mut length = 0;
    for file in files(data)? {
        let mut packed = target.join(&file).into_os_string();
        packed.push(".gz");
        let packed = PathBuf::from(packed);
        fs::create_dir_all(packed.parent().context("it has a folder")?)?;
        let mut encoder = GzEncoder::new(fs::File::create(&packed)?, Compression::best());
        encoder.write_all(&fs::read(data.join(&file))?)?;
        encoder.finish()?;
        length += fs::metadata(&packed)?.len();
    }
    Ok(length)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_is_kept_with_something_of_everything() -> Result<()> {
    let scratch = Scratch::new("serve-kept")?;
    let (ports, [address, _]) = two_ports()?;
    let (dir, data) = (scratch.path(), scratch.join("data"));
    let mut hub = Hub::start(dir, &data, ports[0], from_ref(&address), &[]).await?;
    let mut side = Side::join(dir, &hub, &address).await?;
    hub.deliver("first").await?;
    fill(&hub, dir).await?;
    hub.deliver("second").await?;
    end(&mut hub, &mut side).await?;
    let kept = std::env::var_os("TOWLINE_KEEP_DIRECTORY").map(PathBuf::from);
    let length = pack(&data, &kept.unwrap_or_else(|| scratch.join("kept")))?;
    ensure!(length <= LARGEST, "it has {length} bytes");
    scratch.passed();
    Ok(())
}
