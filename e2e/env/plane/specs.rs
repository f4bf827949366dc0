//! The processes of a plane, with their flags.

use anyhow::{Context as _, Result};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::PlaneOptions;
use super::files::{FRONT_PROXY, Files};
use crate::env::kubeconfig;
use crate::env::parts::{Part, Parts};
use crate::env::pki::Pki;
use crate::env::process::ProcessSpec;
use crate::env::sandbox::GATEWAY;
use crate::env::towline::binary;

pub(super) fn etcd_spec(parts: &Parts, dir: &Path, port: u16, peer: u16) -> Result<ProcessSpec> {
    let client_url = format!("http://127.0.0.1:{port}");
    let peer_url = format!("http://127.0.0.1:{peer}");
    Ok(ProcessSpec::new("etcd", &parts.path(Part::Etcd)?, dir)
        .arg(format!("--data-dir={}", dir.join("etcd").display()))
        .arg(format!("--listen-client-urls={client_url}"))
        .arg(format!("--advertise-client-urls={client_url}"))
        .arg(format!("--listen-peer-urls={peer_url}"))
        .arg(format!("--initial-advertise-peer-urls={peer_url}"))
        .arg(format!("--initial-cluster=default={peer_url}"))
        // A lab that loses power has nothing to lose.
        .args(["--unsafe-no-fsync", "--log-level=warn"]))
}

/// Gives a built-in server, before its first start, the CA that its clients trust.
pub(super) fn give_ca(dir: &Path, pki: &Pki) -> Result<()> {
    let data = dir.join("data");
    let keys = data.join("pki");
    std::fs::create_dir_all(&keys)
        .and_then(|()| std::fs::set_permissions(&data, Permissions::from_mode(0o700)))
        .and_then(|()| std::fs::set_permissions(&keys, Permissions::from_mode(0o700)))
        .with_context(|| format!("failed to create {}", keys.display()))?;
    kubeconfig::write_private(&keys.join("ca.crt"), &pki.ca_pem())?;
    kubeconfig::write_private(&keys.join("ca.key"), &pki.ca_key_pem())
}

/// `towline-hub serve` with the plane's CA, so that whatever the plane's CA signs counts.
pub(super) fn builtin_spec(
    dir: &Path,
    options: &PlaneOptions,
    pki: &Pki,
    port: u16,
) -> Result<ProcessSpec> {
    give_ca(dir, pki)?;
    serve_spec(dir, options, port)
}

/// The command line of a built-in plane, by its options as they are now.
pub(super) fn serve_spec(dir: &Path, options: &PlaneOptions, port: u16) -> Result<ProcessSpec> {
    let address = format!("127.0.0.1:{port}");
    let own = std::slice::from_ref(&address);
    let advertised = match options.advertised.as_slice() {
        [] => own,
        told => told,
    };
    let advertised = advertised.iter().map(|told| format!("--advertise={told}"));
    let names = options.names.iter().map(|name| format!("--tls-san={name}"));
    Ok(
        ProcessSpec::new("towline-hub-serve", &binary("towline-hub")?, dir)
            .arg("serve")
            .arg("--data-dir")
            .arg(dir.join("data"))
            .args(["--listen", &address])
            .args(advertised)
            .args(names)
            .args(&options.apiserver_args)
            .args(&options.hub_flags),
    )
}

pub(super) fn apiserver_spec(
    parts: &Parts,
    dir: &Path,
    options: &PlaneOptions,
    port: u16,
    etcd_port: u16,
) -> Result<ProcessSpec> {
    let file = |name: &str| dir.join(name).display().to_string();
    let program = parts.path(Part::ApiServer(options.version))?;
    Ok(ProcessSpec::new("kube-apiserver", &program, dir)
        .arg(format!("--etcd-servers=http://127.0.0.1:{etcd_port}"))
        .arg(format!("--secure-port={port}"))
        .arg(format!("--cert-dir={}", dir.display()))
        .arg(format!("--tls-cert-file={}", file("apiserver.crt")))
        .arg(format!("--tls-private-key-file={}", file("apiserver.key")))
        .arg(format!("--client-ca-file={}", file("ca.crt")))
        .arg(format!(
            "--service-account-key-file={}",
            file("service-account.pub")
        ))
        .arg(format!(
            "--service-account-signing-key-file={}",
            file("service-account.key")
        ))
        .args([
            "--service-account-issuer=https://kubernetes.default.svc",
            "--authorization-mode=RBAC,Node",
            "--enable-bootstrap-token-auth",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--allow-privileged",
            "--profiling=false",
            // A plane that a test kills must not hold the test up.
            "--shutdown-delay-duration=0s",
        ])
        .args(front_flags(dir, options))
        .args(place_flags(dir, options))
        .args(&options.apiserver_args))
}

/// How the API server passes requests on to aggregated APIs, as kubeadm has it.
fn front_flags(dir: &Path, options: &PlaneOptions) -> Vec<String> {
    if !options.aggregates {
        return Vec::new();
    }
    let file = |name: &str| dir.join(name).display().to_string();
    vec![
        format!(
            "--requestheader-client-ca-file={}",
            file("front-proxy-ca.crt")
        ),
        format!("--requestheader-allowed-names={FRONT_PROXY}"),
        "--requestheader-username-headers=X-Remote-User".to_owned(),
        "--requestheader-group-headers=X-Remote-Group".to_owned(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
        format!("--proxy-client-cert-file={}", file("front-proxy.crt")),
        format!("--proxy-client-key-file={}", file("front-proxy.key")),
    ]
}

/// Where the API server listens, and how it reaches a real node.
fn place_flags(dir: &Path, options: &PlaneOptions) -> Vec<String> {
    if !options.real_node {
        return vec![
            "--bind-address=127.0.0.1".to_owned(),
            "--advertise-address=127.0.0.1".to_owned(),
        ];
    }
    let file = |name: &str| dir.join(name).display().to_string();
    vec![
        // All addresses of the sandbox, which is reached by relays alone.
        "--bind-address=0.0.0.0".to_owned(),
        format!("--advertise-address={GATEWAY}"),
        "--kubelet-preferred-address-types=Hostname".to_owned(),
        format!(
            "--kubelet-client-certificate={}",
            file("kubelet-client.crt")
        ),
        format!("--kubelet-client-key={}", file("kubelet-client.key")),
    ]
}

pub(super) fn manager_spec(
    parts: &Parts,
    dir: &Path,
    options: &PlaneOptions,
    files: &Files,
) -> Result<ProcessSpec> {
    let file = |name: &str| dir.join(name).display().to_string();
    let program = parts.path(Part::ControllerManager(options.version))?;
    Ok(ProcessSpec::new("kube-controller-manager", &program, dir)
        .arg(format!("--kubeconfig={}", files.manager.display()))
        .arg(format!("--cluster-signing-cert-file={}", file("ca.crt")))
        .arg(format!("--cluster-signing-key-file={}", file("ca.key")))
        .arg(format!("--root-ca-file={}", file("ca.crt")))
        .arg(format!(
            "--service-account-private-key-file={}",
            file("service-account.key")
        ))
        .args([
            "--controllers=*,bootstrapsigner,tokencleaner",
            "--use-service-account-credentials",
            "--leader-elect=false",
            "--secure-port=0",
            "--kube-api-qps=100",
            "--kube-api-burst=200",
        ])
        .args(&options.manager_args))
}

pub(super) fn scheduler_spec(
    parts: &Parts,
    dir: &Path,
    options: &PlaneOptions,
    kubeconfig: &Path,
) -> Result<ProcessSpec> {
    let program = parts.path(Part::Scheduler(options.version))?;
    Ok(ProcessSpec::new("kube-scheduler", &program, dir)
        .arg(format!("--kubeconfig={}", kubeconfig.display()))
        .args(["--leader-elect=false", "--secure-port=0"]))
}

pub(super) fn kwok_spec(parts: &Parts, dir: &Path, kubeconfig: &Path) -> Result<ProcessSpec> {
    let stages = parts.kwok_stages()?;
    let mut files: Vec<PathBuf> = std::fs::read_dir(&stages)
        .with_context(|| format!("failed to read {}", stages.display()))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    files.sort();
    let configs = files.iter().map(|f| format!("--config={}", f.display()));
    Ok(ProcessSpec::new("kwok", &parts.path(Part::Kwok)?, dir)
        .arg(format!("--kubeconfig={}", kubeconfig.display()))
        .args([
            "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
            "--node-lease-duration-seconds=40",
        ])
        .args(configs))
}
