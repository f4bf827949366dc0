//! The keys of a hub: its certificate authorities, the server's certificate, the key of ServiceAccounts.
//!
//! They are files of mode 0600 in `pki/` of the data directory. The server's certificate is made anew
//! while running; an authority changes in steps ([`authority::Authorities::advance`]), so that everybody
//! learns of the next one before it signs.

pub mod account;
pub mod authority;
pub mod client;
mod der;
mod files;
pub mod server;

pub use files::{Error, secret_file};

use common::time::SharedClock;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

/// Where the keys lie below the data directory.
pub const FOLDER: &str = "pki";

/// Everything that is signed with, as it is now. Clones share it.
#[derive(Debug, Clone)]
pub struct Keys {
    folder: PathBuf,
    authorities: Arc<RwLock<Arc<authority::Authorities>>>,
    account: Arc<account::AccountKey>,
}

impl Keys {
    /// Reads the keys of a data directory, or makes them.
    pub fn open(data_dir: &Path, clock: &SharedClock) -> Result<Self, Error> {
        let folder = data_dir.join(FOLDER);
        files::folder(&folder)?;
        let now = clock.now();
        let authorities = authority::Authorities::open(&folder, now)?;
        let account = account::AccountKey::open(&folder)?;
        Ok(Self {
            folder,
            authorities: Arc::new(RwLock::new(Arc::new(authorities))),
            account: Arc::new(account),
        })
    }

    /// Reads the keys of a data directory that has them.
    pub fn existing(data_dir: &Path) -> Result<Self, Error> {
        let folder = data_dir.join(FOLDER);
        let authorities = authority::Authorities::read(&folder)?;
        let account = account::AccountKey::open(&folder)?;
        Ok(Self {
            folder,
            authorities: Arc::new(RwLock::new(Arc::new(authorities))),
            account: Arc::new(account),
        })
    }

    /// The authorities, as they are now.
    pub fn authorities(&self) -> Arc<authority::Authorities> {
        self.authorities
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The key of ServiceAccounts.
    pub fn account(&self) -> &account::AccountKey {
        &self.account
    }

    /// Where the files lie.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Reads the authorities again; whether they changed.
    pub fn reload(&self) -> Result<bool, Error> {
        let read = authority::Authorities::read(&self.folder)?;
        let mut now = self
            .authorities
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let changed = **now != read;
        if changed {
            *now = Arc::new(read);
        }
        Ok(changed)
    }
}
