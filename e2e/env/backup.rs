//! A plane's store, saved while it runs, put back, and emptied.
//!
//! For etcd that is what operators do: a snapshot by etcd's own maintenance API, the same bytes that
//! `etcdctl snapshot save` writes, and `etcdutl snapshot restore`. A built-in plane has commands of its own.

use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Request;
use http::header::HOST;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, DeleteParams};
use serde_json::{Deserializer, Value};
use std::fs::remove_dir_all;
use std::path::Path;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio_util::task::AbortOnDropHandle;

use super::parts::{Part, Parts};
use super::plane::Plane;
use super::process::run;
use super::towline::binary;

/// The file of a built-in plane's data that no backup holds.
const ENCRYPTION_KEY: &str = "encryption.key";

/// A lab's store has some megabytes; a machine that builds beside it takes its time.
const WITHIN: Duration = Duration::from_secs(120);

/// What a restored etcd does with its revisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Revisions {
    /// They go on where the snapshot was taken, and so come again.
    GoBack,
    /// They jump ahead, as Kubernetes advises, and all before is compacted.
    JumpAhead,
}

impl Plane {
    /// Saves all that it stores, while it runs.
    pub(crate) async fn backup(&self, file: &Path) -> Result<()> {
        if self.options.builtin {
            let data = self.dir.join("data");
            let mut command = Command::new(binary("towline-hub")?);
            command.args(["backup", "--data-dir"]).arg(data).arg(file);
            return run(command, None, WITHIN).await?.ok().map(drop);
        }
        let snapshot = snapshot(self.etcd_ports[0]).await;
        let snapshot = snapshot.context("failed to take a snapshot of etcd")?;
        std::fs::write(file, snapshot)
            .with_context(|| format!("failed to write {}", file.display()))
    }

    /// Puts back what was saved, in place of all that it stores now; it is ready afterwards.
    pub(crate) async fn restore(
        &mut self,
        parts: &Parts,
        file: &Path,
        revisions: Revisions,
    ) -> Result<()> {
        self.kill_all();
        if self.options.builtin {
            let data = self.dir.join("data");
            // Only what operators keep apart from a backup is left: the key by which it is encrypted.
            let key = self.dir.join(ENCRYPTION_KEY);
            if !key.exists() {
                let kept = std::fs::copy(data.join(ENCRYPTION_KEY), &key);
                kept.context("no encryption key to keep")?;
            }
            remove(&data)?;
            let mut command = Command::new(binary("towline-hub")?);
            command
                .args(["restore", "--confirm-all", "--encryption-key-file"])
                .arg(&key)
                .arg("--data-dir")
                .arg(&data)
                .arg(file);
            run(command, None, WITHIN).await?.ok()?;
        } else {
            remove(&self.dir.join("etcd"))?;
            let peer = format!("http://127.0.0.1:{}", self.etcd_ports[1]);
            let mut command = Command::new(parts.path(Part::Etcdutl)?);
            command
                .args(["snapshot", "restore"])
                .arg(file)
                .arg("--data-dir")
                .arg(self.dir.join("etcd"))
                .arg(format!("--initial-cluster=default={peer}"))
                .arg(format!("--initial-advertise-peer-urls={peer}"));
            if revisions == Revisions::JumpAhead {
                command.args(["--bump-revision=1000000000", "--mark-compacted"]);
            }
            run(command, None, WITHIN).await?.ok()?;
        }
        self.start_again().await
    }

    /// Loses all that it stores, and keeps its keys; it is ready afterwards.
    pub(crate) async fn lose_everything(&mut self) -> Result<()> {
        self.kill_all();
        if self.options.builtin {
            let data = self.dir.join("data");
            for entry in std::fs::read_dir(&data).context("no data of the built-in plane")? {
                let path = entry?.path();
                // With it the keys of its authority stay readable.
                if path.is_file() && !path.ends_with(ENCRYPTION_KEY) {
                    std::fs::remove_file(&path)
                        .with_context(|| format!("failed to remove {}", path.display()))?;
                }
            }
            // Keys without a database are refused, unless this is what is wanted.
            self.apiserver.spec_mut().args.push("--new-database".into());
        } else {
            remove(&self.dir.join("etcd"))?;
        }
        self.start_again().await
    }

    fn kill_all(&mut self) {
        for process in [&mut self.manager, &mut self.apiserver, &mut self.etcd] {
            process.kill();
        }
    }

    async fn start_again(&mut self) -> Result<()> {
        self.etcd.restart()?;
        // The wait for its readiness starts the rest again.
        self.restart_api().await?;
        if self.options.builtin {
            return Ok(());
        }
        // A controller manager that gave up at that very moment makes no ServiceAccount.
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client().await?, "default");
        match accounts.delete("default", &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            deleted => drop(deleted.context("failed to delete a ServiceAccount")?),
        }
        self.wait_usable().await
    }
}

fn remove(folder: &Path) -> Result<()> {
    remove_dir_all(folder).with_context(|| format!("failed to remove {}", folder.display()))
}

/// The bytes of a snapshot; they end with a digest that whoever restores them checks.
async fn snapshot(port: u16) -> Result<Vec<u8>> {
    let stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let _connection = AbortOnDropHandle::new(tokio::spawn(connection));
    let request = Request::post("/v3/maintenance/snapshot")
        .header(HOST, format!("127.0.0.1:{port}"))
        .body(Full::new(Bytes::from_static(b"{}")))?;
    let answer = async {
        let answer = sender.send_request(request).await?;
        anyhow::Ok((
            answer.status(),
            answer.into_body().collect().await?.to_bytes(),
        ))
    };
    let (status, body) = tokio::time::timeout(WITHIN, answer)
        .await
        .with_context(|| format!("no answer within {WITHIN:?}"))??;
    if !status.is_success() {
        bail!("etcd answered {status}: {}", String::from_utf8_lossy(&body));
    }
    let mut snapshot = Vec::new();
    for part in Deserializer::from_slice(&body).into_iter::<Value>() {
        let part = part.context("a part is no JSON")?;
        let blob = part["result"]["blob"].as_str();
        let blob = blob.with_context(|| format!("a part has no bytes: {}", part["error"]))?;
        snapshot.extend(STANDARD.decode(blob).context("a part is no base64")?);
    }
    Ok(snapshot)
}
