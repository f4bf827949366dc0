//! Kubeconfig files, readable by their owner alone, and clients from them.

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use std::fs::{OpenOptions, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use super::pki::Identity;

/// Writes a file that only its owner can read, whatever was there before.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<()> {
    let write = || -> std::io::Result<()> {
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(path)?;
        file.set_permissions(Permissions::from_mode(0o600))?;
        file.write_all(text.as_bytes())
    };
    write().with_context(|| format!("failed to write {}", path.display()))
}

/// Writes a kubeconfig with one context called `name`.
pub(crate) fn write(
    path: &Path,
    name: &str,
    server: &str,
    ca_pem: &str,
    identity: &Identity,
) -> Result<()> {
    let config = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": {
            "server": server,
            "certificate-authority-data": STANDARD.encode(ca_pem),
        }}],
        "users": [{"name": name, "user": {
            "client-certificate-data": STANDARD.encode(&identity.cert),
            "client-key-data": STANDARD.encode(&identity.key),
        }}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    });
    let text = serde_yaml::to_string(&config).context("failed to write a kubeconfig as YAML")?;
    write_private(path, &text)
}

/// A client from a kubeconfig file; it belongs to the runtime it was made on.
pub(crate) async fn client(path: &Path) -> Result<Client> {
    // The project builds rustls with one provider, but tests may come here first.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let file = Kubeconfig::read_from(path)
        .with_context(|| format!("failed to read {}", path.display()))?;
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
        .await
        .with_context(|| format!("failed to use {}", path.display()))?;
    config.proxy_url = None;
    Client::try_from(config).with_context(|| format!("failed to use {}", path.display()))
}
