//! Where the lab keeps things: the repository, the target folder, and scratch folders of tests.

use anyhow::{Context as _, Result};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// The root of the repository.
pub(crate) fn repository() -> PathBuf {
    let hub = Path::new(env!("CARGO_MANIFEST_DIR"));
    hub.parent().unwrap_or(hub).to_owned()
}

/// The profile's folder (`target/debug`) that this program was built into; its siblings are the
/// binaries under test.
pub(crate) fn target_dir() -> Result<PathBuf> {
    let me = std::env::current_exe().context("failed to find this program's own path")?;
    // target/<profile>/examples/lab or target/<profile>/deps/e2e-<hash>
    me.parent()
        .and_then(Path::parent)
        .map(Path::to_owned)
        .with_context(|| format!("{} does not lie in a target folder", me.display()))
}

/// A folder of a test: removed when the test says that it passed, kept and named otherwise, whether
/// it failed by a panic or an error.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
    passed: bool,
}

static NEXT: AtomicU32 = AtomicU32::new(0);

impl Scratch {
    /// Makes a fresh folder below `target/e2e`.
    pub(crate) fn new(name: &str) -> Result<Self> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let base = target_dir()?;
        let base = base.parent().unwrap_or(&base).join("e2e");
        let path = base.join(format!("{}-{number}-{name}", std::process::id()));
        std::fs::create_dir_all(&path)
            .with_context(|| format!("failed to create {}", path.display()))?;
        Ok(Self {
            path,
            passed: false,
        })
    }

    /// The test passed: nobody needs the logs. Planes in the folder must have ended.
    pub(crate) fn passed(mut self) {
        self.passed = true;
    }

    /// The folder.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A path in the folder.
    pub(crate) fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.passed || std::env::var_os("TOWLINE_LAB_KEEP").is_some() {
            eprintln!("logs are kept in {}", self.path.display());
        } else if let Err(error) = std::fs::remove_dir_all(&self.path) {
            eprintln!("failed to remove {}: {error}", self.path.display());
        }
    }
}
