//! The hub's certificate authorities: the one that signs, and those that are trusted beside it.
//!
//! `ca.crt` holds every trusted certificate, the one that signs first; `ca.key` is its key. While one
//! replaces another, `next-ca.key` is the key of the last certificate in `ca.crt`.

use super::files::{self, Error};
use super::sec1;
use chrono::{DateTime, Duration, Utc};
use common::chance::secret;
use rand::Rng as _;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{DistinguishedName, RootCertStore};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use x509_parser::extensions::ParsedExtension;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// How long an authority lives.
const LIFETIME: Duration = Duration::days(3650);
const BACKDATE: Duration = Duration::minutes(5);
const BUNDLE: &str = "ca.crt";
const KEY: &str = "ca.key";
const NEXT_KEY: &str = "next-ca.key";

/// What an authority is called; something random tells several apart.
const NAME: &str = "towline-hub-ca";

/// Every authority that is trusted.
pub struct Authorities {
    trusted: Vec<CertificateDer<'static>>,
    key_pem: String,
    /// Key of the last one, while it does not sign yet.
    next_key_pem: Option<String>,
    verifier: Arc<dyn ClientCertVerifier>,
    signing: Signing,
}

/// What is needed of the authority that signs.
struct Signing {
    common_name: String,
    name: Vec<u8>,
    key_id: Vec<u8>,
    not_after: DateTime<Utc>,
    key: EcdsaKeyPair,
}

impl PartialEq for Authorities {
    fn eq(&self, other: &Self) -> bool {
        self.trusted == other.trusted
            && self.key_pem == other.key_pem
            && self.next_key_pem == other.next_key_pem
    }
}

impl fmt::Debug for Authorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authorities")
            .field("trusted", &self.trusted.len())
            .field("signing", &self.signing.common_name)
            .finish_non_exhaustive()
    }
}

/// The authority that signs, as far as a certificate shows it.
#[derive(Clone, Copy)]
pub struct Signer<'a> {
    /// Its distinguished name, DER.
    pub name: &'a [u8],
    /// Its key's identifier.
    pub key_id: &'a [u8],
    /// No certificate of its holds longer.
    pub not_after: DateTime<Utc>,
    key: &'a EcdsaKeyPair,
}

impl fmt::Debug for Signer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer").finish_non_exhaustive()
    }
}

impl Signer<'_> {
    /// Signs by ECDSA over P-256 with SHA-256.
    pub(super) fn sign(&self, body: &[u8]) -> Result<Vec<u8>, Error> {
        let random = secret::system();
        let signature = self.key.sign(&random, body);
        signature
            .map(|signature| signature.as_ref().to_vec())
            .map_err(|_| Error::Key("a signature"))
    }
}

/// What one step of a replacement did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A new authority is trusted, the old one still signs.
    Introduced,
    /// The new one signs, the old one is still trusted.
    Promoted,
    /// Only the new one is left.
    Finished,
}

impl Authorities {
    /// Whether a folder has something of one.
    pub fn is_in(folder: &Path) -> Result<bool, Error> {
        Ok(files::read(&folder.join(BUNDLE))?.is_some()
            || files::read(&folder.join(KEY))?.is_some())
    }

    /// Reads the authorities in a folder, or makes the first one.
    pub fn open(folder: &Path, now: DateTime<Utc>) -> Result<Self, Error> {
        if files::read(&folder.join(BUNDLE))?.is_none() {
            if files::read(&folder.join(KEY))?.is_some() {
                return Err(Error::Missing(folder.join(BUNDLE)));
            }
            let (certificate, key) = make(now)?;
            // The key first: a certificate without its key would be taken for one that lost it.
            files::secret_file(&folder.join(KEY), key.as_bytes())?;
            files::secret_file(&folder.join(BUNDLE), certificate.as_bytes())?;
        }
        Self::read(folder)
    }

    /// Reads the authorities in a folder.
    pub fn read(folder: &Path) -> Result<Self, Error> {
        let path = folder.join(BUNDLE);
        let bundle = files::read(&path)?.ok_or_else(|| Error::Missing(path.clone()))?;
        let mut trusted =
            common::tls::certificates(bundle.as_bytes()).map_err(|source| Error::Certificate {
                path: path.clone(),
                source,
            })?;
        let key_path = folder.join(KEY);
        let key_pem = files::read(&key_path)?.ok_or_else(|| Error::Missing(key_path.clone()))?;
        let wrong = |wanted| Error::Content {
            path: key_path.clone(),
            wanted,
        };
        let pair = sec1::from_pem(&key_pem).ok_or_else(|| wrong("a key of P-256 in PEM"))?;
        // Key and bundle change one after the other: after a crash in between, or to a reader of that very
        // moment, the key says which of them signs.
        let of_key = |der: &CertificateDer<'_>| has_key(der, pair.public_key_raw());
        let place = trusted.iter().position(of_key);
        let place = place.ok_or_else(|| wrong("the key of a certificate in ca.crt"))?;
        trusted[..=place].rotate_right(1);
        let signing = signing(&trusted[0], &pair)
            .ok_or_else(|| wrong("a key of P-256 and a certificate with a key identifier"))?;
        let mut roots = RootCertStore::empty();
        for certificate in &trusted {
            roots.add(certificate.clone()).map_err(|_| Error::Content {
                path: path.clone(),
                wanted: "certificates of authorities",
            })?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|_| Error::Content {
                path: path.clone(),
                wanted: "certificates of authorities",
            })?;
        Ok(Self {
            trusted,
            key_pem,
            next_key_pem: files::read(&folder.join(NEXT_KEY))?,
            verifier,
            signing,
        })
    }

    /// Puts the authorities of `later` in the place of those in `folder`; whether they are others. A folder that has none
    /// changes nothing.
    pub fn take_over(later: &Path, folder: &Path) -> Result<bool, Error> {
        if !Self::is_in(later)? {
            return Ok(false);
        }
        let later = Self::read(later)?;
        if Self::read(folder)? == later {
            return Ok(false);
        }
        let next = folder.join(NEXT_KEY);
        match (&later.next_key_pem, files::read(&next)?) {
            (Some(key), _) => files::secret_file(&next, key.as_bytes())?,
            (None, Some(_)) => std::fs::remove_file(&next).map_err(|source| Error::File {
                doing: "remove",
                path: next,
                source,
            })?,
            (None, None) => {}
        }
        files::secret_file(&folder.join(KEY), later.key_pem.as_bytes())?;
        files::secret_file(&folder.join(BUNDLE), later.bundle().as_bytes())?;
        Ok(true)
    }

    /// Every trusted certificate, the one that signs first.
    pub fn trusted(&self) -> &[CertificateDer<'static>] {
        &self.trusted
    }

    /// Their names, as a server names them to clients that choose among several certificates.
    pub fn names(&self) -> &[DistinguishedName] {
        self.verifier.root_hint_subjects()
    }

    /// Every trusted certificate as PEM.
    pub fn bundle(&self) -> String {
        let pems = self.trusted.iter().map(|der| pem("CERTIFICATE", der));
        pems.collect()
    }

    /// What signs client certificates.
    pub fn signer(&self) -> Signer<'_> {
        Signer {
            name: &self.signing.name,
            key_id: &self.signing.key_id,
            not_after: self.signing.not_after,
            key: &self.signing.key,
        }
    }

    /// What signs the server's certificate.
    pub(super) fn issuer(&self) -> Result<Issuer<'static, KeyPair>, Error> {
        let key = sec1::from_pem(&self.key_pem).ok_or(Error::Key("the authority's key"))?;
        Ok(Issuer::new(params(&self.signing.common_name), key))
    }

    /// When the authority that signs ends.
    pub fn not_after(&self) -> DateTime<Utc> {
        self.signing.not_after
    }

    /// Whether a client's certificate is of one of the authorities and valid now.
    pub fn verify(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: DateTime<Utc>,
    ) -> Result<(), rustls::Error> {
        let seconds = u64::try_from(now.timestamp()).unwrap_or(0);
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
        let verified = self
            .verifier
            .verify_client_cert(certificate, intermediates, now);
        verified.map(|_| ())
    }

    /// The next step of a replacement; the first one while none is under way.
    pub fn next_step(&self) -> Step {
        match (self.trusted.as_slice(), &self.next_key_pem) {
            ([_, _, ..], Some(_)) => Step::Promoted,
            ([_, _, ..], None) => Step::Finished,
            _ => Step::Introduced,
        }
    }

    /// Takes a step of a replacement, in the files of `folder`. Whoever asks has judged what it does to agents, so
    /// another one that is next is not taken.
    pub fn advance(folder: &Path, step: Step, now: DateTime<Utc>) -> Result<(), Error> {
        let authorities = Self::read(folder)?;
        if authorities.next_step() != step {
            return Err(Error::NotNext(folder.to_owned()));
        }
        let bundle = |certificates: &[CertificateDer<'static>]| -> String {
            let pems = certificates.iter().map(|der| pem("CERTIFICATE", der));
            pems.collect()
        };
        let (bundle_path, key_path) = (folder.join(BUNDLE), folder.join(KEY));
        match (authorities.trusted.as_slice(), &authorities.next_key_pem) {
            ([old @ .., new], Some(key)) if !old.is_empty() => {
                // Cut short before its end, this step is taken again: the next key is still there.
                let promoted = *key == authorities.key_pem;
                let swapped = match promoted {
                    true => authorities.trusted.clone(),
                    false => [std::slice::from_ref(new), old].concat(),
                };
                files::secret_file(&key_path, key.as_bytes())?;
                files::secret_file(&bundle_path, bundle(&swapped).as_bytes())?;
                let path = folder.join(NEXT_KEY);
                std::fs::remove_file(&path).map_err(|source| Error::File {
                    doing: "remove",
                    path,
                    source,
                })
            }
            ([first, _, ..], None) => {
                files::secret_file(&bundle_path, pem("CERTIFICATE", first).as_bytes())
            }
            (trusted, _) => {
                let (certificate, key) = make(now)?;
                files::secret_file(&folder.join(NEXT_KEY), key.as_bytes())?;
                let text = bundle(trusted) + &certificate;
                files::secret_file(&bundle_path, text.as_bytes())
            }
        }
    }
}

/// A new authority: its certificate and its key, PEM.
fn make(now: DateTime<Utc>) -> Result<(String, String), Error> {
    const WHAT: &str = "a certificate authority";
    let (key, text) = sec1::make(WHAT)?;
    let mut params = params(&format!("{NAME}-{:08x}", secret::rng().random::<u32>()));
    super::server::valid(&mut params, now - BACKDATE, now + LIFETIME);
    let certificate = params.self_signed(&key);
    let certificate = certificate.map_err(|error| Error::Make(WHAT, error))?;
    Ok((pem("CERTIFICATE", certificate.der()), text))
}

fn params(common_name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, common_name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    params
}

/// What signs.
fn signing(certificate: &CertificateDer<'_>, pair: &KeyPair) -> Option<Signing> {
    let (_, read) = X509Certificate::from_der(certificate).ok()?;
    let random = secret::system();
    let der = pair.serialized_der();
    let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, der, &random).ok()?;
    let key_id =
        read.extensions()
            .iter()
            .find_map(|extension| match extension.parsed_extension() {
                ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0.to_vec()),
                _ => None,
            })?;
    let common_name = read.subject().iter_common_name().next()?.as_str().ok()?;
    Some(Signing {
        common_name: common_name.to_owned(),
        name: read.subject().as_raw().to_vec(),
        key_id,
        not_after: DateTime::from_timestamp(read.validity().not_after.timestamp(), 0)?,
        key,
    })
}

fn has_key(certificate: &CertificateDer<'_>, public: &[u8]) -> bool {
    X509Certificate::from_der(certificate)
        .is_ok_and(|(_, read)| *read.public_key().subject_public_key.data == *public)
}

/// A block of PEM.
pub fn pem(label: &str, der: &[u8]) -> String {
    crate::approver::pem::encode(label, der)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().expect("a time")
    }

    #[test]
    fn the_first_start_makes_what_later_ones_read() {
        let dir = tempfile::tempdir().expect("a folder");
        let now = at("2026-01-01T00:00:00Z");
        let made = Authorities::open(dir.path(), now).expect("made");
        assert_eq!(made.not_after(), now + LIFETIME);
        let read = Authorities::open(dir.path(), now + Duration::days(9)).expect("read");
        assert!(made == read);
        std::fs::remove_file(dir.path().join(KEY)).expect("removed");
        assert!(matches!(
            Authorities::open(dir.path(), now),
            Err(Error::Missing(_))
        ));
    }

    #[test]
    fn authorities_of_another_folder_are_taken_over_whole() {
        let base = tempfile::tempdir().expect("a folder");
        let [backup, later, none] = ["backup", "later", "none"].map(|name| base.path().join(name));
        for folder in [&backup, &later] {
            std::fs::create_dir(folder).expect("made");
        }
        let now = at("2026-01-01T00:00:00Z");
        Authorities::open(&later, now).expect("made");
        for name in [KEY, BUNDLE] {
            std::fs::copy(later.join(name), backup.join(name)).expect("copied");
        }
        let taken = |from: &Path| Authorities::take_over(from, &backup).expect("read");
        let read = |folder: &Path| Authorities::read(folder).expect("read");
        assert!(!taken(&none), "there is nothing to take");
        assert!(!taken(&later), "they are the same");
        for step in [Step::Introduced, Step::Promoted, Step::Finished] {
            Authorities::advance(&later, step, now).expect("a step");
            assert!(taken(&later), "{step:?}");
            assert!(read(&backup) == read(&later), "{step:?}");
        }
    }

    /// A crash between any two writes of a step leaves a hub that starts, and a step that is taken again.
    #[test]
    fn a_step_that_is_cut_short_is_taken_again() {
        let dir = tempfile::tempdir().expect("a folder");
        let now = at("2026-01-01T00:00:00Z");
        let path = |name| dir.path().join(name);
        let text = |name| std::fs::read_to_string(path(name)).expect("there");
        let step = |step| Authorities::advance(dir.path(), step, now).expect("a step");
        let first = Authorities::open(dir.path(), now).expect("made");

        // Of the first step only the next key was written.
        std::fs::write(path(NEXT_KEY), "lost with its certificate").expect("written");
        assert!(Authorities::read(dir.path()).expect("read").trusted() == first.trusted());
        step(Step::Introduced);

        // Of the second only the key, then all but the removal of the next key.
        let both = text(BUNDLE);
        let next = text(NEXT_KEY);
        std::fs::write(path(KEY), &next).expect("written");
        let half = Authorities::read(dir.path()).expect("read");
        assert!(half.trusted()[1] == first.trusted()[0], "the new one signs");
        step(Step::Promoted);
        let whole = Authorities::read(dir.path()).expect("read");
        assert!(half.trusted() == whole.trusted() && text(BUNDLE) != both);
        std::fs::write(path(NEXT_KEY), &next).expect("written");
        step(Step::Promoted);
        assert!(Authorities::read(dir.path()).expect("read") == whole);
        step(Step::Finished);
    }

    #[test]
    fn an_authority_is_replaced_in_three_steps() {
        let dir = tempfile::tempdir().expect("a folder");
        let now = at("2026-01-01T00:00:00Z");
        let first = Authorities::open(dir.path(), now).expect("made");
        let old = first.trusted()[0].clone();
        let later = now + Duration::days(1);
        let step = |step| Authorities::advance(dir.path(), step, later).expect("a step");
        step(Step::Introduced);
        let both = Authorities::read(dir.path()).expect("read");
        assert_eq!((both.trusted().len(), &both.trusted()[0]), (2, &old));
        step(Step::Promoted);
        let promoted = Authorities::read(dir.path()).expect("read");
        assert_eq!(
            (promoted.trusted().len(), &promoted.trusted()[1]),
            (2, &old)
        );
        step(Step::Finished);
        let finished = Authorities::read(dir.path()).expect("read");
        assert_eq!(finished.trusted().len(), 1);
        assert!(finished.trusted()[0] != old);
    }

    /// Two that replace an authority at once judge the same step; only one of them takes it.
    #[test]
    fn a_step_that_was_judged_is_taken_and_no_other() {
        let dir = tempfile::tempdir().expect("a folder");
        let now = at("2026-01-01T00:00:00Z");
        Authorities::open(dir.path(), now).expect("made");
        let all = [Step::Introduced, Step::Promoted, Step::Finished];
        for step in all {
            let before = Authorities::read(dir.path()).expect("read");
            assert_eq!(before.next_step(), step);
            for other in all.into_iter().filter(|other| *other != step) {
                let refused = Authorities::advance(dir.path(), other, now);
                assert!(matches!(refused, Err(Error::NotNext(_))), "{refused:?}");
            }
            assert!(Authorities::read(dir.path()).expect("read") == before);
            Authorities::advance(dir.path(), step, now).expect("a step");
        }
        let refused = Authorities::advance(dir.path(), Step::Promoted, now);
        let said = refused.expect_err("it is over").to_string();
        assert!(said.contains("ca status"), "{said}");
    }
}
