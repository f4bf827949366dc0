//! The API server as a whole: from a data directory to a router that answers, and what keeps it so.

mod assembled;
#[cfg(test)]
mod tests;
mod upkeep;

pub use assembled::{Assembled, Foundation, Front};

use super::audit::{Audit, Destination};
use super::backup;
use super::control::Busy;
use super::error::ApiError;
use super::http::listener::listen;
use super::http::router::Router;
use super::keys::{self, FOLDER, Keys};
use super::store::{self, Make, OpenError, Store};
use assembled::Tasks;
use common::admin::AdminState;
use common::env::Env;
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

/// Why the API server cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database is not there, not ours, or damaged.
    #[error("failed to open the store in {dir}")]
    Store {
        /// The data directory.
        dir: PathBuf,
        /// Why.
        #[source]
        source: OpenError,
    },
    /// A key or certificate cannot be read or made.
    #[error(transparent)]
    Keys(#[from] keys::Error),
    /// The keys of a hub are there, or a restore was begun, and there are no objects.
    #[error(transparent)]
    NoDatabase(#[from] store::NoDatabase),
    /// The objects are there, the keys are not.
    #[error(
        "{dir} holds the objects of a hub, but its keys in {FOLDER} are gone, and with others every agent and every \
         kubeconfig would be a stranger's. Put the folder back; or restore a backup, which has it, into another \
         directory (towline-hub restore), and serve that or copy its {FOLDER} from there; or begin an empty hub in \
         another directory: agents have to be registered again, and nothing in their members is deleted",
        dir = .0.display()
    )]
    NoKeys(PathBuf),
    /// The audit log cannot be written.
    #[error("failed to open the audit log ({to:?})")]
    Audit {
        /// Where it was to go.
        to: Destination,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The address is taken or not ours.
    #[error("failed to listen on {address}")]
    Listen {
        /// Address and port as they were asked for.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Objects that every API server has could not be made.
    #[error("failed to make {what}")]
    Seed {
        /// Which objects.
        what: &'static str,
        /// Why.
        #[source]
        source: ApiError,
    },
    /// TLS cannot be set up.
    #[error("failed to set up TLS")]
    Tls(#[source] rustls::Error),
}

/// How the server is reached and for how long its certificates live.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where everything is kept.
    pub data_dir: PathBuf,
    /// Where it listens.
    pub listen: SocketAddr,
    /// Names and addresses in its certificate.
    pub names: BTreeSet<String>,
    /// Life of its certificate.
    pub certificate_lifetime: chrono::Duration,
    /// `host:port` as discovery says it; filled in from the listener when empty.
    pub address: String,
    /// The file of encryption keys; one in the data directory unless named.
    pub key_file: Option<PathBuf>,
    /// The audit log, or `-` for standard output; one in the data directory unless named.
    pub audit_log: Option<PathBuf>,
    /// Connections from one address that have shown no certificate that holds.
    pub strangers_of_address: usize,
    /// Whether those who will use it are busy with their start; nobody is unless given.
    pub busy: Option<Busy>,
    /// Whether an empty hub begins where one has lost its objects.
    pub new_database: bool,
}

/// An API server that listens.
pub struct Running {
    /// Answers requests, also in this process.
    pub router: Router,
    /// What is signed with.
    pub keys: Keys,
    /// The store below.
    pub store: Store,
    /// Where it listens.
    pub address: SocketAddr,
    /// Tells of changed authorities.
    pub authorities: common::signal::Receiver<u64>,
    tasks: Tasks,
}

impl Running {
    /// Opens what is in a data directory and begins to serve it. Ready for requests when it returns.
    pub async fn begin(options: Options, admin: AdminState, env: Env) -> Result<Self, Error> {
        let failed = |source| Error::Listen {
            address: options.listen,
            source,
        };
        let listener = listen(options.listen).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let foundation = Foundation {
            address: match options.address.as_str() {
                "" => address.to_string(),
                given => given.to_owned(),
            },
            ..open(&options, admin, env).await?
        };
        let front = Front {
            names: options.names,
            certificate_lifetime: options.certificate_lifetime,
            strangers_of_address: options.strangers_of_address,
        };
        let assembled = Assembled::new(foundation).await?;
        assembled.listen(listener, address, front)
    }

    /// Ends watches and connections, then the controllers, then the store.
    pub async fn end(self) {
        self.tasks.end(&self.store).await;
    }
}

/// Opens what is in a data directory.
async fn open(options: &Options, admin: AdminState, env: Env) -> Result<Foundation, Error> {
    let dir = options.data_dir.clone();
    let make = match options.new_database {
        true => Make::Always,
        false => Make::AtFirst,
    };
    let store = open_store(&dir, options.key_file.clone(), make).await?;
    {
        let registry = admin.registry.lock();
        let mut registry = registry.unwrap_or_else(PoisonError::into_inner);
        store::metrics::register(&mut registry, &store, &dir);
    }
    // A first start makes them before any object.
    if !store.is_empty() && !Keys::has_authority(&dir)? {
        return Err(Error::NoKeys(dir));
    }
    let keys = Keys::open(&dir, &env.clock)?;
    let audit_log = Destination::of(options.audit_log.as_deref(), &dir);
    let audit = Audit::open(&audit_log).map_err(|source| Error::Audit {
        to: audit_log.clone(),
        source,
    })?;
    if let Err(error) = backup::sweep(&dir) {
        tracing::warn!(%error, "failed to remove what was left of a backup");
    }
    Ok(Foundation {
        store,
        keys,
        audit,
        data_dir: dir,
        address: options.address.clone(),
        busy: options.busy.clone(),
        admin,
        env,
    })
}

async fn open_store(dir: &Path, key_file: Option<PathBuf>, make: Make) -> Result<Store, Error> {
    let path = dir.to_owned();
    let options = store::Options {
        key_file,
        make,
        ..store::Options::default()
    };
    let opened = tokio::task::spawn_blocking(move || Store::open(&path, options));
    match opened.await {
        Ok(Ok(store)) => Ok(store),
        Ok(Err(OpenError::NoDatabase(why))) => Err(Error::NoDatabase(why)),
        Ok(Err(source)) => Err(Error::Store {
            dir: dir.to_owned(),
            source,
        }),
        Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
    }
}
