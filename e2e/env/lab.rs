//! A hub and its members, started side by side.

use anyhow::{Context as _, Result};
use futures::future::{join_all, try_join_all};
use std::path::{Path, PathBuf};

use super::parts::{Part, Parts, Version};
use super::plane::{Plane, PlaneOptions};

/// What a lab is to be.
#[derive(Debug, Clone)]
pub(crate) struct LabOptions {
    /// The hub.
    pub(crate) hub: PlaneOptions,
    /// Its members.
    pub(crate) members: Vec<PlaneOptions>,
}

impl LabOptions {
    /// A hub and `members` members called `member1`, `member2`, …, at the newest version.
    pub(crate) fn new(members: usize) -> Self {
        Self::versions(members, Version::default(), Version::default())
    }

    /// The same, at other versions.
    pub(crate) fn versions(members: usize, hub: Version, member: Version) -> Self {
        Self {
            hub: PlaneOptions::hub().version(hub),
            members: (1..=members)
                .map(|number| PlaneOptions::member(&format!("member{number}")).version(member))
                .collect(),
        }
    }

    /// The programs that the lab needs.
    pub(crate) fn parts(&self) -> Vec<Part> {
        let planes = self.members.iter().chain([&self.hub]);
        planes.flat_map(PlaneOptions::parts).collect()
    }
}

/// A hub and members that run.
pub(crate) struct Lab {
    /// The hub's control plane.
    pub(crate) hub: Plane,
    /// The members', in order.
    pub(crate) members: Vec<Plane>,
    dir: PathBuf,
}

impl Lab {
    /// Starts every plane below `dir`, all at once, and waits until all are ready.
    pub(crate) async fn start(parts: &Parts, dir: &Path, options: &LabOptions) -> Result<Self> {
        std::fs::create_dir_all(dir)
            .with_context(|| format!("failed to create {}", dir.display()))?;
        let all = options.members.iter().chain([&options.hub]);
        let mut planes = try_join_all(all.map(|plane| async move {
            let folder = dir.join(&plane.name);
            Plane::start(parts, &folder, plane.clone()).await
        }))
        .await?;
        let hub = planes.pop().context("a lab has a hub")?;
        Ok(Self {
            hub,
            members: planes,
            dir: dir.to_owned(),
        })
    }

    /// The folder of the lab.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Ends every plane.
    pub(crate) async fn stop(&mut self) {
        let planes = self.members.iter_mut().chain([&mut self.hub]);
        join_all(planes.map(Plane::stop)).await;
    }
}
