//! A real node: containerd and kubelet in a sandbox, under a control plane in the same network.
//!
//! No image can be pulled here, so every image is packed and imported. There is no kube-proxy: a
//! relay leads from the Service `kubernetes` to the API server. Two more lead out of and into the
//! sandbox through sockets in the file system, which no network namespace hides.

use anyhow::{Context as _, Result};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::UnixStream;

use super::dirs::target_dir;
use super::image::Image;
use super::kubeconfig::write_private;
use super::parts::{Part, Parts};
use super::plane::Plane;
use super::process::{Process, ProcessSpec, Run, run};
use super::sandbox::{GATEWAY, SERVICE, Sandbox};
use super::wait::wait_for;

/// The image that holds the sandbox of a pod; it also serves as a workload.
pub(crate) const PAUSE_IMAGE: &str = "towline.lab/pause:1";
const SOCKET: &str = "containerd.sock";
const READY_WITHIN: Duration = Duration::from_secs(90);
const COMMAND_WITHIN: Duration = Duration::from_secs(60);

/// containerd and kubelet that run, and what connects them.
pub(crate) struct RealNode {
    kubelet: Process,
    containerd: Process,
    relays: Vec<Process>,
    ctr: PathBuf,
    dir: PathBuf,
}

impl RealNode {
    /// Relays of the sandbox, to be started before its control plane is waited for: from outside
    /// to the API server, and from pods to `kubernetes`.
    pub(crate) fn api_relays(sandbox: &Sandbox, dir: &Path, port: u16) -> Result<Vec<Process>> {
        let socket = dir.join("api.sock");
        let api = format!("127.0.0.1:{port}");
        Ok(vec![
            inside(sandbox, dir, "relay-api-in", &unix(&socket), &api)?,
            outside(dir, "relay-api-out", &api, &unix(&socket))?,
            inside(
                sandbox,
                dir,
                "relay-service",
                &format!("{SERVICE}:443"),
                &api,
            )?,
        ])
    }

    /// Starts the node and waits until it is ready.
    pub(crate) async fn start(parts: &Parts, sandbox: &Sandbox, plane: &Plane) -> Result<Self> {
        let dir = sandbox.dir().to_owned();
        std::fs::create_dir_all(dir.join("cni"))
            .with_context(|| format!("failed to create {}", dir.display()))?;
        let mut containerd = Process::start(sandbox.inside(containerd_spec(parts, &dir)?)?)?;
        let socket = dir.join(SOCKET);
        wait_for("containerd", READY_WITHIN, async || {
            containerd.check()?;
            Ok(UnixStream::connect(&socket).await.is_ok())
        })
        .await?;
        // A kubelet that finds no runtime ends.
        let node = Self {
            kubelet: Process::start(sandbox.inside(kubelet_spec(parts, &dir, plane)?)?)?,
            containerd,
            relays: Vec::new(),
            ctr: parts.path(Part::Ctr)?,
            dir,
        };
        let pause = parts.path(Part::Pause)?;
        let image = Image::of_program(PAUSE_IMAGE, &pause, "/pause", "65532:65532")?;
        node.import(&image).await?;
        super::plane::wait_nodes(&plane.client().await?, 1)
            .await
            .with_context(|| format!("see {}", node.kubelet.log().display()))?;
        Ok(node)
    }

    /// Lets pods reach something that listens outside on 127.0.0.1, at the gateway's same port.
    pub(crate) fn expose(&mut self, sandbox: &Sandbox, port: u16) -> Result<String> {
        let socket = self.dir.join(format!("{port}.sock"));
        let name = format!("relay-{port}");
        let target = format!("127.0.0.1:{port}");
        let gateway = format!("{GATEWAY}:{port}");
        self.relays.push(outside(
            &self.dir,
            &format!("{name}-out"),
            &unix(&socket),
            &target,
        )?);
        self.relays.push(inside(
            sandbox,
            &self.dir,
            &format!("{name}-in"),
            &gateway,
            &unix(&socket),
        )?);
        Ok(gateway)
    }

    /// Packs an image and gives it to the node.
    pub(crate) async fn import(&self, image: &Image) -> Result<()> {
        let scratch = self.dir.join("packing");
        if scratch.exists() {
            std::fs::remove_dir_all(&scratch).context("failed to clear a packing folder")?;
        }
        std::fs::create_dir_all(&scratch).context("failed to make a packing folder")?;
        let archive = self.dir.join("image.tar");
        image.pack(&scratch, &archive)?;
        let archive = archive.display().to_string();
        self.ctr(&["image", "import", &archive]).await?.ok()?;
        Ok(())
    }

    /// Runs containerd's own client on the images and containers of the node.
    pub(crate) async fn ctr(&self, args: &[&str]) -> Result<Run> {
        let mut command = tokio::process::Command::new(&self.ctr);
        command
            .arg("--address")
            .arg(self.socket())
            .args(["--namespace", "k8s.io"])
            .args(args);
        run(command, None, COMMAND_WITHIN).await
    }

    fn socket(&self) -> PathBuf {
        self.dir.join(SOCKET)
    }

    /// Names and ids of what runs.
    pub(crate) fn pids(&self) -> Vec<(String, u32)> {
        [&self.kubelet, &self.containerd]
            .into_iter()
            .chain(&self.relays)
            .filter_map(|process| Some((process.name().to_owned(), process.pid()?)))
            .collect()
    }
}

fn unix(path: &Path) -> String {
    format!("unix:{}", path.display())
}

fn relay_spec(dir: &Path, name: &str, listen: &str, to: &str) -> Result<ProcessSpec> {
    let lab = target_dir()?.join("examples/lab");
    Ok(ProcessSpec::new(name, &lab, dir).args(["relay", listen, to]))
}

fn outside(dir: &Path, name: &str, listen: &str, to: &str) -> Result<Process> {
    Process::start(relay_spec(dir, name, listen, to)?)
}

fn inside(sandbox: &Sandbox, dir: &Path, name: &str, listen: &str, to: &str) -> Result<Process> {
    Process::start(sandbox.in_network(relay_spec(dir, name, listen, to)?)?)
}

fn containerd_spec(parts: &Parts, dir: &Path) -> Result<ProcessSpec> {
    let program = parts.path(Part::Containerd)?;
    let runc = parts.path(Part::Runc)?;
    let folder = dir.display();
    let config = format!(
        r#"version = 3
root = "{folder}/containerd/root"
state = "{folder}/containerd/state"
disabled_plugins = ["io.containerd.nri.v1.nri", "io.containerd.tracing.processor.v1.otlp"]

[grpc]
address = "{folder}/containerd.sock"

[plugins.'io.containerd.cri.v1.runtime']
restrict_oom_score_adj = true

[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ["/usr/lib/cni"]
conf_dir = "{folder}/cni"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
BinaryName = "{}"
SystemdCgroup = false

[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "{PAUSE_IMAGE}"
"#,
        runc.display()
    );
    write_private(&dir.join("containerd.toml"), &config)?;
    let network = serde_json::json!({
        "cniVersion": "1.0.0",
        "name": "lab",
        "plugins": [{
            "type": "bridge",
            "bridge": "cni0",
            "isGateway": true,
            "isDefaultGateway": true,
            "ipam": {
                "type": "host-local",
                "dataDir": dir.join("addresses"),
                "ranges": [[{
                    "subnet": "10.88.0.0/16",
                    "rangeStart": "10.88.0.10",
                    "gateway": GATEWAY,
                }]],
            },
        }],
    });
    write_private(&dir.join("cni/10-lab.conflist"), &network.to_string())?;
    // The shim is looked up on PATH; runc and CNI plugins want the system's tools.
    let shim = parts.path(Part::Shim)?;
    let folder = shim.parent().unwrap_or(&shim).display();
    let path = std::env::var("PATH").unwrap_or_default();
    Ok(ProcessSpec::new("containerd", &program, dir)
        .arg("--config")
        .arg(dir.join("containerd.toml"))
        .env("PATH", format!("{folder}:{path}")))
}

fn kubelet_spec(parts: &Parts, dir: &Path, plane: &Plane) -> Result<ProcessSpec> {
    let kubeconfig = dir.join("kubelet.kubeconfig");
    plane.kubeconfig_for(&kubeconfig, "system:node:localhost", &["system:nodes"])?;
    write_private(&dir.join("resolv.conf"), "")?;
    let folder = dir.display();
    let config = serde_json::json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "127.0.0.1",
        "port": 10250,
        "readOnlyPort": 0,
        "healthzPort": 0,
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": plane.dir.join("ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": false,
        "enforceNodeAllocatable": [],
        "failCgroupV1": false,
        "failSwapOn": false,
        "evictionHard": {},
        "localStorageCapacityIsolation": false,
        "containerRuntimeEndpoint": format!("unix://{folder}/containerd.sock"),
        "resolvConf": dir.join("resolv.conf"),
        "podLogsDir": dir.join("pod-logs"),
        "volumePluginDir": dir.join("volume-plugins"),
        "staticPodPath": "",
        "registerNode": true,
        "nodeStatusUpdateFrequency": "5s",
        // Tests change Secrets and wait for pods to see them.
        "syncFrequency": "10s",
    });
    write_private(&dir.join("kubelet.json"), &config.to_string())?;
    Ok(
        ProcessSpec::new("kubelet", &parts.path(Part::Kubelet)?, dir)
            .arg(format!("--config={folder}/kubelet.json"))
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .arg(format!("--root-dir={folder}/kubelet"))
            .arg(format!("--cert-dir={folder}/kubelet-pki"))
            .arg(format!("--node-ip={GATEWAY}"))
            .arg("--hostname-override=localhost"),
    )
}
