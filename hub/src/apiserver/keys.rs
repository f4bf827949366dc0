//! The keys of a hub: its certificate authorities, the server's certificate, the key of ServiceAccounts.
//!
//! They are files of mode 0600 in `pki/` of the data directory. The server's certificate is made anew
//! while running; an authority changes in steps ([`authority::Authorities::advance`]), so that everybody
//! learns of the next one before it signs; a key of ServiceAccounts at once
//! ([`account::AccountKeys::rotate`]), for its tokens are verified by this server.

pub mod account;
pub mod authority;
pub mod client;
mod der;
mod files;
pub mod revoked;
mod sealed;
mod sec1;
pub mod server;

pub use files::{Error, secret_file};
pub use sealed::seal_all;

use common::signal;
use common::time::SharedClock;
use revoked::Revoked;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

/// Where the keys lie below the data directory.
pub const FOLDER: &str = "pki";

/// Everything that is signed with, as it is now. Clones share it.
#[derive(Debug, Clone)]
pub struct Keys {
    folder: PathBuf,
    authorities: Arc<RwLock<Arc<authority::Authorities>>>,
    account: Arc<RwLock<Arc<account::AccountKeys>>>,
    revoked: Arc<RwLock<Arc<Revoked>>>,
    /// Moves when a certificate, or a token of a ServiceAccount, may be worth something else than before.
    changed: signal::Sender<u64>,
}

impl Keys {
    /// Reads the keys of a data directory, or makes them.
    pub fn open(data_dir: &Path, clock: &SharedClock) -> Result<Self, Error> {
        let folder = data_dir.join(FOLDER);
        files::folder(&folder)?;
        seal_all(&folder)?;
        let now = clock.now();
        let authorities = authority::Authorities::open(&folder, now)?;
        let account = account::AccountKeys::open(&folder)?;
        let revoked = Revoked::read(&folder)?;
        Ok(Self {
            folder,
            authorities: Arc::new(RwLock::new(Arc::new(authorities))),
            account: Arc::new(RwLock::new(Arc::new(account))),
            revoked: Arc::new(RwLock::new(Arc::new(revoked))),
            changed: signal::Sender::new(0),
        })
    }

    /// Whether a data directory has something of an authority, with which [`Keys::open`] makes none.
    pub fn has_authority(data_dir: &Path) -> Result<bool, Error> {
        authority::Authorities::is_in(&data_dir.join(FOLDER))
    }

    /// Reads the keys of a data directory that has them.
    pub fn existing(data_dir: &Path) -> Result<Self, Error> {
        let folder = data_dir.join(FOLDER);
        let authorities = authority::Authorities::read(&folder)?;
        let account = account::AccountKeys::read(&folder)?;
        let revoked = Revoked::read(&folder)?;
        Ok(Self {
            folder,
            authorities: Arc::new(RwLock::new(Arc::new(authorities))),
            account: Arc::new(RwLock::new(Arc::new(account))),
            revoked: Arc::new(RwLock::new(Arc::new(revoked))),
            changed: signal::Sender::new(0),
        })
    }

    /// The authorities, as they are now.
    pub fn authorities(&self) -> Arc<authority::Authorities> {
        self.authorities
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The keys of ServiceAccounts, as they are now.
    pub fn account(&self) -> Arc<account::AccountKeys> {
        self.account
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// What is revoked, as it is now.
    pub fn revoked(&self) -> Arc<Revoked> {
        let revoked = self.revoked.read();
        revoked.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes what is revoked, in its file and here.
    pub fn revoke(&self, with: impl FnOnce(&mut Revoked)) -> Result<(), Error> {
        let revoked = Revoked::change(&self.folder, with)?;
        self.take_revoked(revoked);
        Ok(())
    }

    /// Reads what is revoked again.
    pub fn reload_revoked(&self) -> Result<(), Error> {
        self.take_revoked(Revoked::read(&self.folder)?);
        Ok(())
    }

    fn take_revoked(&self, read: Revoked) {
        let mut now = self.revoked.write().unwrap_or_else(PoisonError::into_inner);
        if **now != read {
            *now = Arc::new(read);
            drop(now);
            self.changed.send_modify(|generation| *generation += 1);
        }
    }

    /// Which certificates hold, and tokens of which keys, is the same while this number is.
    pub fn generation(&self) -> u64 {
        *self.changed.borrow()
    }

    /// Tells when that number moves.
    pub fn changes(&self) -> signal::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Where the files lie.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Reads everything again; whether the authorities changed.
    pub fn reload(&self) -> Result<bool, Error> {
        let account = account::AccountKeys::read(&self.folder)?;
        if *self.account() != account {
            tracing::info!(
                key = account.id(),
                "the key of ServiceAccounts was replaced"
            );
            let mut now = self.account.write().unwrap_or_else(PoisonError::into_inner);
            *now = Arc::new(account);
            drop(now);
            // Whoever watches with a token of a key that was revoked is asked again.
            self.changed.send_modify(|generation| *generation += 1);
        }
        let read = authority::Authorities::read(&self.folder)?;
        let mut now = self
            .authorities
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let changed = **now != read;
        if changed {
            *now = Arc::new(read);
            drop(now);
            self.changed.send_modify(|generation| *generation += 1);
        }
        Ok(changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::time::SystemClock;

    #[test]
    fn other_keys_of_accounts_are_told_and_the_same_are_not() {
        let dir = tempfile::tempdir().expect("a folder");
        let clock: SharedClock = Arc::new(SystemClock);
        let keys = Keys::open(dir.path(), &clock).expect("made");
        let mut told = keys.changes();
        let reloaded = |told: &mut signal::Receiver<u64>| {
            assert!(!keys.reload().expect("read"), "the authorities stay");
            let moved = told.has_changed().expect("open");
            told.mark_unchanged();
            (moved, keys.generation())
        };
        assert_eq!(reloaded(&mut told), (false, 0));
        let token = keys.account().sign(&serde_json::json!({}));
        let token = token.expect("signed");
        // A key beside the earlier ones, then one that revokes them.
        for (revoke, generation) in [(false, 1), (true, 2)] {
            account::AccountKeys::rotate(keys.folder(), revoke, clock.now()).expect("rotated");
            assert_eq!(reloaded(&mut told), (true, generation));
            let holds = keys.account().verify(&token, clock.now()).is_some();
            assert_eq!(holds, !revoke);
            assert_eq!(reloaded(&mut told), (false, generation));
        }
    }
}
