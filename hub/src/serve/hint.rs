//! What to do about an error of `towline-hub`, where that does not stand in the error itself.

use crate::apiserver::serve as api;
use crate::apiserver::store::OpenError;
use crate::cli::advice;
use common::client::{self, classify_error};
use std::error::Error;
use std::io;

/// Sentences that follow an error.
pub fn hints(error: &(dyn Error + 'static)) -> Vec<String> {
    let mut hints = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        hints.extend(hint(error));
        next = error.source();
    }
    if hints.is_empty() {
        hints.extend(advice(&classify_error(error)));
    }
    hints
}

fn hint(error: &(dyn Error + 'static)) -> Option<String> {
    // It speaks for the one below, which its sources leave out.
    if let Some(super::Error::Api(below)) = error.downcast_ref() {
        return hint(below);
    }
    if let Some(api::Error::Listen { address, source }) = error.downcast_ref() {
        return match source.kind() {
            io::ErrorKind::AddrInUse => Some(format!(
                "Something listens on port {} already, perhaps another hub. End it, or name another address by --listen.",
                address.port()
            )),
            io::ErrorKind::PermissionDenied => {
                Some("Ports below 1024 are root's. Name another by --listen.".to_owned())
            }
            io::ErrorKind::AddrNotAvailable => Some(format!(
                "{} is not an address of this machine. Name one by --listen, or 0.0.0.0 for all.",
                address.ip()
            )),
            _ => None,
        };
    }
    if let Some(error) = error.downcast_ref::<OpenError>() {
        return match error {
            OpenError::Locked { .. } => {
                Some("End the hub that serves it first, or name another --data-dir.".to_owned())
            }
            OpenError::Io { path, source, .. } => of_file(source, &path.display().to_string()),
            _ => None,
        };
    }
    if let Some(error) = error.downcast_ref::<client::Error>() {
        return match error {
            client::Error::Context { .. } => Some("Name one of them by --context NAME.".to_owned()),
            client::Error::InCluster(_) | client::Error::Kubeconfig(..) => {
                Some("Name a kubeconfig of the hub's API server by --kubeconfig FILE.".to_owned())
            }
            _ => None,
        };
    }
    None
}

fn of_file(error: &io::Error, path: &str) -> Option<String> {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Some(format!(
            "User {} may not. Run this as the owner of the data directory, or give {path} to this user.",
            rustix::process::geteuid().as_raw()
        )),
        io::ErrorKind::StorageFull => Some("Free some space on that disk.".to_owned()),
        io::ErrorKind::ReadOnlyFilesystem => {
            Some("Name a directory on a disk that takes writes by --data-dir.".to_owned())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_that_people_meet_say_what_to_do() {
        let listen = |kind: io::ErrorKind| {
            hints(&super::super::Error::Api(api::Error::Listen {
                address: "127.0.0.1:443".parse().expect("an address"),
                source: kind.into(),
            }))
        };
        assert!(listen(io::ErrorKind::AddrInUse)[0].contains("port 443"));
        assert!(listen(io::ErrorKind::PermissionDenied)[0].contains("--listen"));
        let denied = OpenError::Io {
            action: "open",
            path: "/var/lib/towline/hub.db".into(),
            source: io::ErrorKind::PermissionDenied.into(),
        };
        assert!(hints(&denied)[0].contains("owner of the data directory"));
        assert!(hints(&io::Error::other("x")).is_empty());
    }
}
