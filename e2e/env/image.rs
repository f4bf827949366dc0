//! Packs container images without an engine: one layer of files, and what a runtime must know.

use anyhow::{Context as _, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::dirs::repository;
use super::towline::binary;

/// What goes into an image.
pub(crate) struct Image {
    /// Its full name, as manifests write it.
    pub(crate) name: String,
    /// Files: where they come from and where they go (absolute).
    pub(crate) files: Vec<(PathBuf, PathBuf)>,
    /// The program it starts, with arguments.
    pub(crate) entrypoint: Vec<String>,
    /// The user it starts as.
    pub(crate) user: String,
}

impl Image {
    /// An image with one program and the libraries it is linked to.
    pub(crate) fn of_program(name: &str, program: &Path, place: &str, user: &str) -> Result<Self> {
        let mut files = vec![(program.to_owned(), PathBuf::from(place))];
        for library in libraries(program)? {
            files.push((library.clone(), library));
        }
        Ok(Self {
            name: name.to_owned(),
            files,
            entrypoint: vec![place.to_owned()],
            user: user.to_owned(),
        })
    }

    /// An image with programs of this machine in `/bin`, the first of them its entrypoint.
    pub(crate) fn of_programs(name: &str, programs: &[&str], user: &str) -> Result<Self> {
        let folders = std::env::var_os("PATH").unwrap_or_default();
        let folders: Vec<PathBuf> = std::env::split_paths(&folders).collect();
        let mut files = Vec::new();
        for program in programs {
            let mut found = folders.iter().map(|folder| folder.join(program));
            let path = found.find(|path| path.is_file());
            let path = path.with_context(|| format!("this machine has no {program}"))?;
            let path = path.canonicalize().context("failed to follow a link")?;
            files.extend(libraries(&path)?.into_iter().map(|it| (it.clone(), it)));
            files.push((path, Path::new("/bin").join(program)));
        }
        let first = programs.first().context("an image has a program")?;
        Ok(Self {
            name: name.to_owned(),
            files,
            entrypoint: vec![format!("/bin/{first}")],
            user: user.to_owned(),
        })
    }

    /// The agent's image, under the name that the shipped manifest gives it.
    pub(crate) fn agent() -> Result<Self> {
        Self::shipped("manifests/agent/deployment.yaml", "towline-agent")
    }

    /// The same of the hub, with the agent that a built-in one runs beside itself.
    pub(crate) fn hub() -> Result<Self> {
        let mut image = Self::shipped("manifests/hub/deployment.yaml", "towline-hub")?;
        image.files.extend(Self::agent()?.files);
        Ok(image)
    }

    fn shipped(manifest: &str, program: &str) -> Result<Self> {
        let manifest = repository().join(manifest);
        let text = std::fs::read_to_string(&manifest)
            .with_context(|| format!("failed to read {}", manifest.display()))?;
        let name = text
            .lines()
            .find_map(|line| line.trim().strip_prefix("image: "))
            .with_context(|| format!("{} names no image", manifest.display()))?;
        let place = format!("/usr/local/bin/{program}");
        Self::of_program(name, &binary(program)?, &place, "65532:65532")
    }

    /// Writes the image as an archive that `ctr image import` reads.
    pub(crate) fn pack(&self, dir: &Path, archive: &Path) -> Result<()> {
        let root = dir.join("root");
        for (from, to) in &self.files {
            let place = root.join(to.strip_prefix("/").unwrap_or(to));
            if let Some(parent) = place.parent() {
                std::fs::create_dir_all(parent)
                    .with_context(|| format!("failed to create {}", parent.display()))?;
            }
            std::fs::copy(from, &place)
                .with_context(|| format!("failed to copy {} to an image", from.display()))?;
        }
        let layer = dir.join("layer.tar");
        tar(&layer, &root, &["."])?;
        let bytes =
            std::fs::read(&layer).with_context(|| format!("failed to read {}", layer.display()))?;
        let digest = ring::digest::digest(&ring::digest::SHA256, &bytes);
        let digest: String = digest.as_ref().iter().map(|b| format!("{b:02x}")).collect();
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        let config = serde_json::json!({
            "architecture": architecture,
            "os": "linux",
            "config": {"Entrypoint": self.entrypoint, "User": self.user, "WorkingDir": "/"},
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{digest}")]},
        });
        let manifest = serde_json::json!([{
            "Config": "config.json",
            "RepoTags": [self.name],
            "Layers": ["layer.tar"],
        }]);
        for (name, value) in [("config.json", config), ("manifest.json", manifest)] {
            let path = dir.join(name);
            std::fs::write(&path, value.to_string())
                .with_context(|| format!("failed to write {}", path.display()))?;
        }
        tar(archive, dir, &["manifest.json", "config.json", "layer.tar"])
    }
}

/// The libraries that a program loads, its loader included; none for a static one.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("ldd")
        .arg(program)
        .output()
        .context("failed to run ldd")?;
    // ldd fails on a static program, which is the answer: nothing.
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text
        .split_whitespace()
        .filter(|word| word.starts_with('/') && !word.ends_with(':'))
        .map(PathBuf::from)
        .collect())
}

fn tar(archive: &Path, folder: &Path, names: &[&str]) -> Result<()> {
    let status = Command::new("tar")
        .args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner"])
        .arg("--directory")
        .arg(folder)
        .arg("--create")
        .arg("--file")
        .arg(archive)
        .args(names)
        .status()
        .context("failed to run tar")?;
    if !status.success() {
        bail!("failed to pack {} ({status})", archive.display());
    }
    Ok(())
}
