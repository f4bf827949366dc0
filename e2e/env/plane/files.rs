//! Keys, certificates and kubeconfigs of a plane, in its folder.

use anyhow::Result;
use std::path::{Path, PathBuf};

use super::PlaneOptions;
use crate::env::kubeconfig;
use crate::env::pki::Pki;
use crate::env::sandbox::{GATEWAY, SERVICE};

/// The name that a front proxy must have.
pub(crate) const FRONT_PROXY: &str = "front-proxy-client";

/// Keys, certificates and kubeconfigs of a plane.
pub(super) struct Files {
    pub(super) admin: PathBuf,
    pub(super) manager: PathBuf,
    pub(super) scheduler: PathBuf,
}

impl Files {
    pub(super) fn write(
        dir: &Path,
        (pki, front): (&Pki, &Pki),
        options: &PlaneOptions,
        port: u16,
    ) -> Result<Self> {
        let mut names: Vec<String> = ["localhost", "kubernetes", "kubernetes.default"]
            .into_iter()
            .chain([
                "kubernetes.default.svc",
                "127.0.0.1",
                "::1",
                GATEWAY,
                SERVICE,
            ])
            .map(str::to_owned)
            .collect();
        names.extend(options.names.iter().cloned());
        let server = pki.server(&names)?;
        let kubelet_client = pki.client("kube-apiserver", &["system:masters"])?;
        let front_proxy = front.client(FRONT_PROXY, &[])?;
        let (private, public) = pki.service_account();
        for (name, text) in [
            ("ca.crt", &pki.ca_pem()),
            ("ca.key", &pki.ca_key_pem()),
            ("apiserver.crt", &server.cert),
            ("apiserver.key", &server.key),
            ("front-proxy-ca.crt", &front.ca_pem()),
            ("front-proxy.crt", &front_proxy.cert),
            ("front-proxy.key", &front_proxy.key),
            ("kubelet-client.crt", &kubelet_client.cert),
            ("kubelet-client.key", &kubelet_client.key),
            ("service-account.key", &private),
            ("service-account.pub", &public),
        ] {
            kubeconfig::write_private(&dir.join(name), text)?;
        }
        let address = format!("https://127.0.0.1:{port}");
        let write = |file: &str, user: &str, groups: &[&str]| -> Result<PathBuf> {
            let path = dir.join(file);
            let identity = pki.client(user, groups)?;
            kubeconfig::write(&path, &options.name, &address, &pki.ca_pem(), &identity)?;
            Ok(path)
        };
        Ok(Self {
            admin: write("admin.kubeconfig", "lab-admin", &["system:masters"])?,
            manager: write("manager.kubeconfig", "system:kube-controller-manager", &[])?,
            scheduler: write("scheduler.kubeconfig", "system:kube-scheduler", &[])?,
        })
    }
}
