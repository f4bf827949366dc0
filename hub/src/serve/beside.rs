//! A data directory as the commands beside a hub find it: whether it is one, whether a hub runs on it, and
//! what that hub says.
//!
//! A hub that runs is asked by the administrator's kubeconfig in the directory. The database of one that
//! is stopped is opened for as long as it takes to read it.

use super::kubeconfig::ADMIN_FILE;
use crate::apiserver::keys::FOLDER;
use crate::apiserver::store::{self, Make, OpenError, Options, Store};
use anyhow::Context as _;
use common::client::{ClientOptions, kubeconfig_client};
use common::env::Env;
use kube::Client;
use kube::api::ObjectList;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Deadline of a request; the hub is on this machine.
const REQUEST: Duration = Duration::from_secs(10);
/// How long a hub may take to put in force what was written into its directory.
const TAKEN_WITHIN: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(250);

/// Why a folder is no data directory.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unfit {
    /// There is none.
    #[error(
        "there is no directory {}; --data-dir names the one that `towline-hub serve` was given",
        .0.display()
    )]
    Absent(PathBuf),
    /// It is something else.
    #[error(
        "{} is not a data directory of towline-hub: there is no folder {FOLDER} in it; --data-dir names the one that `towline-hub serve` was given",
        .0.display()
    )]
    Other(PathBuf),
    /// It is closed to us.
    #[error(
        "{} belongs to user {owner} and cannot be read by user {us}: run this as root or as that user",
        dir.display()
    )]
    Closed {
        /// The directory.
        dir: PathBuf,
        /// Its owner's number.
        owner: u32,
        /// Ours.
        us: u32,
    },
    /// The system says otherwise.
    #[error("failed to look into {}", dir.display())]
    Unread {
        /// The directory.
        dir: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// A data directory with a hub's keys in it.
#[derive(Debug)]
pub(super) struct Beside {
    dir: PathBuf,
}

impl Beside {
    /// Checks that it is one.
    pub(super) fn open(dir: &Path) -> Result<Self, Unfit> {
        let at = || dir.to_owned();
        let closed = |source: io::Error| match (source.kind(), std::fs::metadata(dir)) {
            (io::ErrorKind::PermissionDenied, Ok(found)) => Unfit::Closed {
                dir: at(),
                owner: found.uid(),
                us: rustix::process::geteuid().as_raw(),
            },
            _ => Unfit::Unread { dir: at(), source },
        };
        match std::fs::metadata(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Unfit::Absent(at()));
            }
            Err(source) => return Err(closed(source)),
            Ok(_) => {}
        }
        match std::fs::metadata(dir.join(FOLDER)) {
            Ok(found) if found.is_dir() => Ok(Self { dir: at() }),
            Ok(_) => Err(Unfit::Other(at())),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                Err(Unfit::Other(at()))
            }
            Err(source) => Err(closed(source)),
        }
    }

    /// The directory.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where the keys lie.
    pub(super) fn keys(&self) -> PathBuf {
        self.dir.join(FOLDER)
    }

    /// The administrator's kubeconfig.
    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.dir.join(ADMIN_FILE)
    }

    /// Whether a hub runs on it.
    pub(super) fn is_served(&self) -> anyhow::Result<bool> {
        Ok(store::is_served(&self.dir)?)
    }

    /// Keeps other commands from replacing keys while the file lives.
    pub(super) fn lock_keys(&self) -> Result<File, OpenError> {
        store::lock_keys(&self.dir)
    }

    /// The store of a hub that is stopped. Where it is gone that is told, and none is made: an empty one would
    /// be taken for the hub's by its next start.
    pub(super) async fn store(&self) -> Result<Store, OpenError> {
        let dir = self.dir.clone();
        let options = Options {
            make: Make::Never,
            ..Options::default()
        };
        let opened = tokio::task::spawn_blocking(move || Store::open(&dir, options));
        let opened = opened.await;
        opened.unwrap_or_else(|failed| std::panic::resume_unwind(failed.into_panic()))
    }

    /// A client of the hub that runs, by the kubeconfig of this moment.
    pub(super) async fn client(&self) -> anyhow::Result<Client> {
        let options = ClientOptions::new("hub command").with_timeout(REQUEST);
        let path = self.kubeconfig();
        let (client, _) = kubeconfig_client(Some(&path), None, &options, &Env::system())
            .await
            .context("failed to make a client of the hub that runs")?;
        Ok(client)
    }

    /// All objects of a resource: of the hub that runs, or of the database of one that is stopped.
    pub(super) async fn list<T>(
        &self,
        group: &str,
        version: &str,
        plural: &str,
    ) -> anyhow::Result<Vec<T>>
    where
        T: DeserializeOwned + Clone,
    {
        if self.is_served()? {
            let path = format!("/apis/{group}/{version}/{plural}");
            let request = http::Request::get(path).body(Vec::new())?;
            let client = self.client().await?;
            let list = client.request::<ObjectList<T>>(request).await;
            let list = list.with_context(|| {
                format!(
                    "failed to ask the hub that runs in {} for {plural}",
                    self.dir.display()
                )
            })?;
            return Ok(list.items);
        }
        let store = self.store().await?;
        let resource = format!("{group}/{plural}");
        let found = store.snapshot(&resource);
        let all = found.table.iter();
        let read = all.map(|stored| serde_json::from_value(stored.value()));
        let read = read.collect::<Result<_, _>>();
        store.close().await;
        read.with_context(|| format!("failed to read the {plural} in the database"))
    }

    /// Waits until the hub that runs shows that it has taken over what was written.
    pub(super) async fn until<F, S>(&self, what: &str, shows: S) -> anyhow::Result<()>
    where
        F: Future<Output = anyhow::Result<bool>>,
        S: Fn(Client) -> F,
    {
        let deadline = Instant::now() + TAKEN_WITHIN;
        loop {
            let seen = async { shows(self.client().await?).await };
            let problem = match seen.await {
                Ok(true) => return Ok(()),
                Ok(false) => None,
                Err(error) => Some(error),
            };
            if !self.is_served()? {
                anyhow::bail!("the hub ended meanwhile; its next start takes over {what}");
            }
            if Instant::now() >= deadline {
                let waited = common::duration::format(TAKEN_WITHIN);
                let failed = format!(
                    "{what} is written into {}, but the hub that runs there has not taken it over within \
                     {waited}; see its log and its /readyz",
                    self.dir.display()
                );
                return Err(match problem {
                    Some(error) => error.context(failed),
                    None => anyhow::Error::msg(failed),
                });
            }
            sleep(POLL).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_directory_is_named_as_that() {
        let base = tempfile::tempdir().expect("a folder");
        let error = |dir: &Path| Beside::open(dir).expect_err("no hub's").to_string();
        let absent = error(&base.path().join("hbu"));
        assert!(absent.contains("there is no directory") && absent.contains("--data-dir"));
        let other = error(base.path());
        assert!(
            other.contains("is not a data directory of towline-hub"),
            "{other}"
        );
        std::fs::write(base.path().join("file"), "x").expect("written");
        assert!(error(&base.path().join("file")).contains("is not a data directory"));
        std::fs::create_dir(base.path().join(FOLDER)).expect("made");
        assert!(Beside::open(base.path()).is_ok());
    }
}
