//! The programs that a lab runs, built from Go modules that are pinned in `e2e/modules`.
//!
//! Each module's binaries lie in a folder named after the content of its `go.mod`, and of our own code
//! where that is more than a call, so a changed pin builds anew and two checkouts can share one cache
//! (`TOWLINE_LAB_CACHE`). `KUBEBUILDER_ASSETS` supplies what it holds in place of the newest version's build.

use anyhow::{Context as _, Result, bail};
use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::str::FromStr;
use std::time::Duration;
use tokio::process::Command;
use tokio::time::{Instant, MissedTickBehavior};

use super::dirs::{repository, target_dir};

/// A Kubernetes minor version that `e2e/modules` pins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) enum Version {
    /// The newest.
    #[default]
    V1_36,
    /// The oldest hub.
    V1_33,
    /// The oldest member.
    V1_30,
}

impl Version {
    fn minor(self) -> &'static str {
        match self {
            Self::V1_36 => "1.36",
            Self::V1_33 => "1.33",
            Self::V1_30 => "1.30",
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.minor())
    }
}

impl FromStr for Version {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let all = [Self::V1_36, Self::V1_33, Self::V1_30];
        let text = text.trim_start_matches('v');
        let minor: Vec<&str> = text.split('.').take(2).collect();
        let minor = minor.join(".");
        all.into_iter()
            .find(|version| version.minor() == minor)
            .with_context(|| {
                format!("no Kubernetes {text:?} in e2e/modules; there are 1.36, 1.33 and 1.30")
            })
    }
}

/// One program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Part {
    /// The store of a plane.
    Etcd,
    /// Makes a store of a snapshot.
    Etcdutl,
    /// Plays nodes and pods.
    Kwok,
    /// kube-apiserver.
    ApiServer(Version),
    /// kube-controller-manager.
    ControllerManager(Version),
    /// kube-scheduler.
    Scheduler(Version),
    /// kubectl, the newest.
    Kubectl,
    /// kubelet, for the real node.
    Kubelet,
    /// containerd, for the real node.
    Containerd,
    /// containerd's shim for runc.
    Shim,
    /// containerd's own client.
    Ctr,
    /// Runs the containers.
    Runc,
    /// Waits; holds the sandboxes of pods.
    Pause,
    /// Informers of client-go.
    Informer,
    /// Installs charts.
    Helm,
}

impl Part {
    fn module(self) -> String {
        match self {
            Self::Etcd | Self::Etcdutl => "etcd".into(),
            Self::Kwok => "kwok".into(),
            Self::ApiServer(version)
            | Self::ControllerManager(version)
            | Self::Scheduler(version) => format!("kubernetes-{version}"),
            Self::Kubectl | Self::Kubelet => format!("kubernetes-{}", Version::default()),
            Self::Containerd | Self::Shim | Self::Ctr | Self::Runc | Self::Pause => {
                "containers".into()
            }
            Self::Informer => "informer".into(),
            Self::Helm => "helm".into(),
        }
    }

    fn binary(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::Etcdutl => "etcdutl",
            Self::Kwok => "kwok",
            Self::ApiServer(_) => "kube-apiserver",
            Self::ControllerManager(_) => "kube-controller-manager",
            Self::Scheduler(_) => "kube-scheduler",
            Self::Kubectl => "kubectl",
            Self::Kubelet => "kubelet",
            Self::Containerd => "containerd",
            Self::Shim => "containerd-shim-runc-v2",
            Self::Ctr => "ctr",
            Self::Runc => "runc",
            Self::Pause => "pause",
            Self::Informer => "informer",
            Self::Helm => "helm",
        }
    }

    fn package(self) -> String {
        match self {
            Self::Etcd | Self::Informer => ".".into(),
            Self::Etcdutl => "go.etcd.io/etcd/etcdutl/v3".into(),
            Self::Kwok => "sigs.k8s.io/kwok/cmd/kwok".into(),
            Self::Containerd | Self::Shim | Self::Ctr => {
                format!("github.com/containerd/containerd/v2/cmd/{}", self.binary())
            }
            Self::Runc => "github.com/opencontainers/runc".into(),
            Self::Pause => "./pause".into(),
            Self::Helm => "helm.sh/helm/v4/cmd/helm".into(),
            _ => format!("k8s.io/kubernetes/cmd/{}", self.binary()),
        }
    }

    fn tags(self) -> &'static str {
        match self {
            Self::Containerd | Self::Shim | Self::Ctr => "no_btrfs,no_devmapper,no_zfs",
            Self::Runc => "seccomp",
            _ => "",
        }
    }

    /// The programs of the real node, beside its control plane.
    pub(crate) fn of_the_node() -> [Self; 6] {
        [
            Self::Kubelet,
            Self::Containerd,
            Self::Shim,
            Self::Ctr,
            Self::Runc,
            Self::Pause,
        ]
    }

    /// What `KUBEBUILDER_ASSETS` may hold, by the convention of the field.
    fn is_asset(self) -> bool {
        matches!(self, Self::Etcd | Self::Kubectl) || self == Self::ApiServer(Version::default())
    }
}

/// The cache of built programs.
#[derive(Debug, Clone)]
pub(crate) struct Parts {
    modules: PathBuf,
    cache: PathBuf,
    assets: Option<PathBuf>,
}

impl Parts {
    /// The cache that the environment names, or `target/lab-bin`.
    pub(crate) fn from_env() -> Result<Self> {
        let cache = match std::env::var_os("TOWLINE_LAB_CACHE") {
            Some(path) if !path.is_empty() => PathBuf::from(path),
            _ => {
                let profile = target_dir()?;
                profile.parent().unwrap_or(&profile).join("lab-bin")
            }
        };
        let assets = std::env::var_os("KUBEBUILDER_ASSETS")
            .filter(|path| !path.is_empty())
            .map(PathBuf::from);
        Ok(Self {
            modules: repository().join("e2e/modules"),
            cache,
            assets,
        })
    }

    /// The path of a program that has been built.
    pub(crate) fn path(&self, part: Part) -> Result<PathBuf> {
        if let Some(path) = self.asset(part) {
            return Ok(path);
        }
        let path = self.folder(part)?.join(part.binary());
        if !path.exists() {
            bail!(
                "{} is not built ({} is missing); run `e2e/lab build`",
                part.binary(),
                path.display()
            );
        }
        Ok(path)
    }

    /// The lab's kubectl, else the machine's, if there is any.
    pub(crate) fn any_kubectl(&self) -> Option<PathBuf> {
        let on_path = || {
            let folders = std::env::var_os("PATH").unwrap_or_default();
            let all: Vec<PathBuf> = std::env::split_paths(&folders).collect();
            let found = all.into_iter().map(|folder| folder.join("kubectl"));
            found.into_iter().find(|path| path.is_file())
        };
        self.path(Part::Kubectl).ok().or_else(on_path)
    }

    /// The full version of Kubernetes, with its patch level, as `go.mod` pins it.
    pub(crate) fn git_version(&self, version: Version) -> Result<String> {
        let file = self.modules.join(format!("kubernetes-{version}/go.mod"));
        let text = read(&file)?;
        text.lines()
            .find_map(|line| {
                let line = line.trim().trim_start_matches("require ").trim();
                line.strip_prefix("k8s.io/kubernetes v")
            })
            .map(|found| {
                let found = found.split_whitespace().next().unwrap_or(found);
                format!("v{found}")
            })
            .with_context(|| format!("{} pins no k8s.io/kubernetes", file.display()))
    }

    /// The folder of kwok's own stages, copied from its module when it was built.
    pub(crate) fn kwok_stages(&self) -> Result<PathBuf> {
        Ok(self.folder(Part::Kwok)?.join("stages"))
    }

    /// Builds what is missing, saying so; two programs that build at once wait for each other.
    pub(crate) async fn build(&self, parts: &[Part]) -> Result<()> {
        std::fs::create_dir_all(&self.cache)
            .with_context(|| format!("failed to create {}", self.cache.display()))?;
        if self.missing(parts)?.is_empty() {
            return Ok(());
        }
        let path = self.cache.join(".lock");
        let lock =
            File::create(&path).with_context(|| format!("failed to create {}", path.display()))?;
        let lock = tokio::task::spawn_blocking(move || lock.lock().map(|()| lock))
            .await
            .context("the wait for a lock was interrupted")?
            .with_context(|| format!("failed to lock {}", path.display()))?;
        let result = self.build_missing(parts).await;
        drop(lock);
        result
    }

    async fn build_missing(&self, parts: &[Part]) -> Result<()> {
        // Looked at again: another program may have built it while we waited. One module at a time
        // and one set of tags at a time, for each is one `go build`, and two linkers are too many.
        while let Some(&first) = self.missing(parts)?.first() {
            let alike: Vec<Part> = self
                .missing(parts)?
                .into_iter()
                .filter(|part| part.module() == first.module() && part.tags() == first.tags())
                .collect();
            self.build_alike(&alike).await?;
        }
        Ok(())
    }

    async fn build_alike(&self, parts: &[Part]) -> Result<()> {
        let Some(&first) = parts.first() else {
            return Ok(());
        };
        let module = self.modules.join(first.module());
        let folder = self.folder(first)?;
        let fresh = folder.join(".new");
        std::fs::create_dir_all(&fresh)
            .with_context(|| format!("failed to create {}", fresh.display()))?;
        let names: Vec<&str> = parts.iter().map(|part| part.binary()).collect();
        let names = names.join(", ");
        eprintln!("building {names} from e2e/modules/{} …", first.module());
        let mut command = Command::new("go");
        command
            .current_dir(&module)
            .args(["build", "-trimpath", "-ldflags"])
            .arg(self.ldflags(first)?)
            .args(["-tags", first.tags()])
            .arg("-o")
            // The trailing slash makes it a folder for any number of programs.
            .arg(fresh.join(""))
            .args(parts.iter().map(|part| part.package()))
            .env("GOFLAGS", "-buildvcs=false")
            .env("GOWORK", "off")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let started = Instant::now();
        let mut child = command
            .spawn()
            .context("failed to run go; is Go installed and on PATH?")?;
        let mut beat = tokio::time::interval(Duration::from_secs(20));
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        beat.tick().await;
        let status = loop {
            tokio::select! {
                biased;
                status = child.wait() => break status.context("failed to wait for go")?,
                _ = beat.tick() => eprintln!(
                    "  still building {names}: {} s (a first build takes minutes)",
                    started.elapsed().as_secs()
                ),
            }
        };
        if !status.success() {
            bail!("failed to build {names} in {} ({status})", module.display());
        }
        if first == Part::Kwok {
            copy_stages(&module, &folder).await?;
        }
        for part in parts {
            let built = match part {
                // Built as a package of our own, it takes its module's name.
                Part::Etcd | Part::Informer => fresh.join(part.module()),
                _ => fresh.join(part.binary()),
            };
            let place = folder.join(part.binary());
            std::fs::rename(&built, &place).with_context(|| {
                format!("failed to move {} to {}", built.display(), place.display())
            })?;
        }
        eprintln!("  built {names} in {} s", started.elapsed().as_secs());
        Ok(())
    }

    fn ldflags(&self, part: Part) -> Result<String> {
        let version = match part {
            Part::ApiServer(version)
            | Part::ControllerManager(version)
            | Part::Scheduler(version) => version,
            Part::Kubectl | Part::Kubelet => Version::default(),
            _ => return Ok("-s -w".to_owned()),
        };
        let git_version = self.git_version(version)?;
        let minor = version.minor().trim_start_matches("1.");
        let key = "k8s.io/component-base/version";
        Ok(format!(
            "-s -w -X {key}.gitVersion={git_version} -X {key}.gitMajor=1 -X {key}.gitMinor={minor}"
        ))
    }

    fn missing(&self, parts: &[Part]) -> Result<Vec<Part>> {
        let mut missing = Vec::new();
        for &part in parts {
            let built = self.folder(part)?.join(part.binary());
            if self.asset(part).is_none() && !built.exists() && !missing.contains(&part) {
                missing.push(part);
            }
        }
        Ok(missing)
    }

    fn asset(&self, part: Part) -> Option<PathBuf> {
        let path = self.assets.as_ref()?.join(part.binary());
        (part.is_asset() && path.exists()).then_some(path)
    }

    fn folder(&self, part: Part) -> Result<PathBuf> {
        let module = part.module();
        let mut text = read(&self.modules.join(&module).join("go.mod"))?;
        if part == Part::Informer {
            text.push_str(&read(&self.modules.join(&module).join("main.go"))?);
        }
        let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
        let key: String = digest.as_ref()[..6]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Ok(self.cache.join(format!("{module}-{key}")))
    }
}

/// kwok without stages plays nothing; its own lie in its module.
async fn copy_stages(module: &Path, folder: &Path) -> Result<()> {
    let output = Command::new("go")
        .current_dir(module)
        .args(["list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kwok"])
        .output()
        .await
        .context("failed to run go list")?;
    let source = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    let stages = folder.join("stages");
    std::fs::create_dir_all(&stages)
        .with_context(|| format!("failed to create {}", stages.display()))?;
    for stage in STAGES {
        let from = source.join("kustomize/stage").join(stage);
        let name = stage.replace('/', "-");
        let text = read(&from)?;
        std::fs::write(stages.join(&name), text)
            .with_context(|| format!("failed to write {name}"))?;
    }
    Ok(())
}

const STAGES: [&str; 5] = [
    "node/fast/node-initialize.yaml",
    "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-complete.yaml",
    "pod/fast/pod-delete.yaml",
];

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("failed to read {}", path.display()))
}
