//! Namespaces of the kernel for a real node: whatever a kubelet and a container runtime do to
//! processes, mounts and networks stays inside and goes when the sandbox goes.
//!
//! One process holds it, with a network, a mount table and process ids of its own. When that
//! process dies, in whatever way, the kernel kills everything inside and takes mounts and devices
//! back; only folders of control groups are left, and removed.

use anyhow::{Context as _, Result, bail};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::process::{Process, ProcessSpec};

/// The gateway of the pods' network, and the node's address.
pub(crate) const GATEWAY: &str = "10.88.0.1";
/// The address of the Service `kubernetes`.
pub(crate) const SERVICE: &str = "10.0.0.1";

/// The first process inside. It sets the network up, hides what a node would write to outside its
/// own folder, and shows kubelet the kernel settings that it would otherwise change for the whole
/// machine. Then it waits and reaps.
const HOLDER: &str = r#"
set -eu
ip link set lo up
# With an address of its own: a bridge otherwise takes one from its ports, and pods lose the gateway
# for half a minute whenever another pod goes.
ip link add cni0 address 0a:58:0a:58:00:01 type bridge
ip addr add "$GATEWAY/16" dev cni0
ip addr add "$SERVICE/32" dev cni0
ip link set cni0 up
for folder in /run /var/log /var/lib; do mount -t tmpfs tmpfs "$folder"; done
mkdir -p "$DIR/sysctl"
pretend() { echo "$2" >"$DIR/sysctl/${1##*/}"; mount --bind "$DIR/sysctl/${1##*/}" "/proc/sys/$1"; }
pretend vm/overcommit_memory 1
pretend vm/panic_on_oom 0
pretend kernel/panic 10
pretend kernel/panic_on_oops 1
pretend kernel/keys/root_maxkeys 1000000
pretend kernel/keys/root_maxbytes 25000000
touch "$DIR/up"
trap 'exit 0' TERM
while :; do sleep 3600 & wait $! || true; done
"#;

/// Where containerd keeps the tasks that run, below the node's folder.
const TASKS: &str = "containerd/state/io.containerd.runtime.v2.task/k8s.io";
/// Where their control groups lie in every hierarchy.
const CGROUP: &str = "k8s.io";

/// What a machine must have for a real node; each entry says what is missing.
pub(crate) fn missing_for_a_real_node() -> Vec<String> {
    let mut missing = Vec::new();
    if !rustix::process::geteuid().is_root() {
        missing.push("root (a node makes namespaces and mounts)".to_owned());
    }
    for (path, package) in [
        ("/usr/lib/cni/bridge", "containernetworking-plugins"),
        ("/usr/sbin/ip", "iproute2"),
        ("/usr/bin/pkg-config", "pkg-config"),
        ("/usr/include/seccomp.h", "libseccomp-dev"),
    ] {
        let on_merged = path.replacen("/usr/", "/", 1);
        if !Path::new(path).exists() && !Path::new(&on_merged).exists() {
            missing.push(format!("Debian package {package} ({path})"));
        }
    }
    missing
}

/// A sandbox that is held.
pub(crate) struct Sandbox {
    holder: Process,
    dir: PathBuf,
}

impl Sandbox {
    /// Makes one; `dir` is for its files and for the node's.
    pub(crate) async fn start(dir: &Path) -> Result<Self> {
        let missing = missing_for_a_real_node();
        if !missing.is_empty() {
            bail!(
                "a real node needs, and this machine lacks: {}",
                missing.join("; ")
            );
        }
        std::fs::create_dir_all(dir)
            .with_context(|| format!("failed to create {}", dir.display()))?;
        let up = dir.join("up");
        if up.exists() {
            std::fs::remove_file(&up)
                .with_context(|| format!("failed to remove {}", up.display()))?;
        }
        let spec = ProcessSpec::new("sandbox", Path::new("unshare"), dir)
            .args(["--net", "--mount", "--propagation=private", "--pid"])
            .args(["--fork", "--kill-child=KILL", "--mount-proc", "--"])
            .args(["bash", "-c", HOLDER])
            .env("DIR", dir)
            .env("GATEWAY", GATEWAY)
            .env("SERVICE", SERVICE);
        let mut holder = Process::start(spec)?;
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        while !up.exists() {
            holder.check()?;
            if tokio::time::Instant::now() > deadline {
                bail!(
                    "the sandbox did not come up; see {}",
                    holder.log().display()
                );
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(Self {
            holder,
            dir: dir.to_owned(),
        })
    }

    /// A process that shares the sandbox's network, and is otherwise outside.
    pub(crate) fn in_network(&self, spec: ProcessSpec) -> Result<ProcessSpec> {
        Ok(wrap(spec, vec![self.enter("net", "net")?]))
    }

    /// A process that lives inside altogether.
    pub(crate) fn inside(&self, spec: ProcessSpec) -> Result<ProcessSpec> {
        let flags = vec![
            self.enter("net", "net")?,
            self.enter("mount", "mnt")?,
            self.enter("pid", "pid_for_children")?,
        ];
        Ok(wrap(spec, flags))
    }

    fn enter(&self, flag: &str, file: &str) -> Result<OsString> {
        let pid = self.holder.pid().context("the sandbox has ended")?;
        Ok(format!("--{flag}=/proc/{pid}/ns/{file}").into())
    }

    /// Its folder.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The process that holds it.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.holder.pid()
    }

    /// Ends everything inside, and removes its control groups.
    pub(crate) fn end(&mut self) {
        self.holder.kill();
        remove_cgroups(&self.dir);
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.end();
    }
}

fn wrap(mut spec: ProcessSpec, flags: Vec<OsString>) -> ProcessSpec {
    let program = std::mem::replace(&mut spec.program, PathBuf::from("nsenter"));
    let mut args = flags;
    args.push("--".into());
    args.push(program.into_os_string());
    args.append(&mut spec.args);
    spec.args = args;
    spec
}

/// Folders of control groups outlive the processes that were in them. Containers that ended took
/// theirs along; of those that were killed, containerd's state below `dir` still has the ids.
pub(crate) fn remove_cgroups(dir: &Path) {
    let tasks = dir.join(TASKS);
    let ids = std::fs::read_dir(&tasks).into_iter().flatten().flatten();
    let ids: Vec<OsString> = ids.map(|entry| entry.file_name()).collect();
    let root = Path::new("/sys/fs/cgroup");
    let hierarchies = std::fs::read_dir(root).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = hierarchies.map(|entry| entry.path()).collect();
    folders.push(root.to_owned());
    for parent in folders.iter().map(|folder| folder.join(CGROUP)) {
        for group in ids.iter().map(|id| parent.join(id)) {
            for _ in 0..100 {
                // The killed take a moment to leave.
                if !group.exists() || remove_tree(&group).is_ok() {
                    break;
                }
                pause();
            }
            if group.exists() {
                eprintln!("could not remove the control group {}", group.display());
            }
        }
        // Fails while another runtime on this machine uses it, as it should.
        let _ = std::fs::remove_dir(parent);
    }
}

/// Called from `drop` too, where nothing can be awaited.
#[expect(
    clippy::disallowed_methods,
    reason = "a bounded wait for the kernel, without a runtime"
)]
fn pause() {
    std::thread::sleep(Duration::from_millis(20));
}

fn remove_tree(folder: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)?.flatten() {
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    std::fs::remove_dir(folder)
}
