//! The certificates of this hub that a lost kubeconfig holds or names.

use super::Meant;
use crate::apiserver::authn::{Peer, serial};
use crate::apiserver::keys::Keys;
use crate::apiserver::keys::revoked::{Revoked, Whom};
use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, Utc};
use rustls::pki_types::CertificateDer;
use serde_json::Value;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// The largest file that can be a certificate with its chain, in bytes.
const LARGEST: u64 = 1 << 20;

/// The certificates of this hub in a kubeconfig or in files that it names, and which of these cannot be read. Users of
/// other API servers stand in the same file, in any order: what one of them names may well be elsewhere.
pub(super) fn certificates(
    path: &Path,
    keys: &Keys,
    now: DateTime<Utc>,
) -> anyhow::Result<(Vec<Meant>, Vec<String>)> {
    let text = std::fs::read_to_string(path);
    let text = text.with_context(|| format!("failed to read {}", path.display()))?;
    let config: Value = serde_yaml::from_str(&text)
        .with_context(|| format!("{} is no kubeconfig", path.display()))?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let users = config["users"].as_array().into_iter().flatten();
    let mut all: Vec<Meant> = Vec::new();
    let mut unread = Vec::new();
    for user in users {
        let held = match of_user(&user["user"], folder) {
            Ok(Some(held)) => held,
            Ok(None) => continue,
            Err((file, error)) => {
                let name = user["name"].as_str().unwrap_or_default();
                unread.push(format!(
                    "{file:?}, which {} names for its user {name:?}, cannot be read: {error}",
                    path.display()
                ));
                continue;
            }
        };
        let Some((whom, mut what)) = ours(&held.pem, keys, now) else {
            continue;
        };
        if let Some(file) = held.file {
            what = format!("{what} read from {},", file.display());
        }
        // Two users may have the same one.
        if !all.iter().any(|(known, _)| *known == whom) {
            all.push((whom, what));
        }
    }
    if !all.is_empty() {
        return Ok((all, unread));
    }
    if !unread.is_empty() {
        bail!(
            "{}; nothing was changed: fetch what is missing, or use --serial or --user",
            unread.join("; ")
        );
    }
    bail!(
        "{} holds no certificate that this hub would take, and names no file with one, so nothing was changed; where \
         it is another file, use --serial or --user",
        path.display()
    )
}

/// What a kubeconfig's user has for a certificate.
struct Held {
    pem: Vec<u8>,
    /// Where it was read, unless it stands in the kubeconfig itself.
    file: Option<PathBuf>,
}

/// The certificate of a kubeconfig's user, by kubectl's rule: what stands in it comes before a file, whose path is
/// relative to the kubeconfig's folder. None when there is none.
fn of_user(user: &Value, folder: &Path) -> Result<Option<Held>, (PathBuf, io::Error)> {
    let filled = |key: &str| user[key].as_str().filter(|text| !text.is_empty());
    if let Some(encoded) = filled("client-certificate-data") {
        let pem = STANDARD.decode(encoded).ok();
        return Ok(pem.map(|pem| Held { pem, file: None }));
    }
    let Some(name) = filled("client-certificate") else {
        return Ok(None);
    };
    let file = folder.join(name);
    match read(&file) {
        Ok(pem) => Ok(Some(Held {
            pem,
            file: Some(file),
        })),
        Err(error) => Err((file, error)),
    }
}

/// Reads a certificate's file. Whoever wrote the kubeconfig chose it: devices, pipes and what is larger than any certificate
/// are not read.
fn read(file: &Path) -> io::Result<Vec<u8>> {
    let metadata = std::fs::metadata(file)?;
    if !metadata.is_file() || metadata.len() > LARGEST {
        return Err(io::Error::other("it is no file of a certificate"));
    }
    let mut content = Vec::new();
    std::fs::File::open(file)?
        .take(LARGEST)
        .read_to_end(&mut content)?;
    Ok(content)
}

/// The certificate, if it is of this hub and its time is not over; whether it is revoked does not matter.
fn ours(pem: &[u8], keys: &Keys, now: DateTime<Utc>) -> Option<Meant> {
    let chain: Vec<CertificateDer<'static>> = common::tls::certificates(pem).ok()?;
    let Peer::Known { caller, .. } =
        Peer::of(&chain, &keys.authorities(), &Revoked::default(), now)
    else {
        return None;
    };
    let (_, certificate) = X509Certificate::from_der(chain.first()?).ok()?;
    let serial = serial(&certificate);
    let user = caller.user;
    let what = format!("the certificate of user {user:?}, serial number {serial},");
    Some((Whom::Serial(serial), what))
}
