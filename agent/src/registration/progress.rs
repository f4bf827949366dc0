//! The steps of registration and renewal, each stored before the next: a thin shell around the store
//! and the hub's CSR API.

use super::decide::Csr;
use super::key;
use crate::credentials::{self, Fingerprint, Registration, Store, Stored, Version};
use crate::following::decide::News;
use common::identity::{CSR_PREFIX, RegistrationId, SIGNER};
use common::labels;
use common::names::ClusterName;
use common::unregister::Mode;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestSpec,
};
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use rand::Rng;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Random characters in the name of a CSR; names cannot be guessed, and we may not list them.
const NAME_LENGTH: usize = 32;

/// What a new key is for.
#[derive(Debug, Clone)]
pub struct Purpose {
    /// The cluster.
    pub cluster: ClusterName,
    /// UID of the member's `kube-system`.
    pub cluster_id: String,
    /// The registration that is renewed; none for a new one, whose id follows from its key.
    pub renews: Option<RegistrationId>,
    /// The pinned CA certificates.
    pub ca: String,
    /// The hub's addresses.
    pub servers: Vec<String>,
    /// The bootstrap this comes from.
    pub bootstrap: Fingerprint,
}

/// A step that failed.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// The store.
    #[error(transparent)]
    Store(credentials::Error),
    /// The hub.
    #[error("failed to {action} at the hub")]
    Hub {
        /// What was tried.
        action: &'static str,
        /// What went wrong.
        #[source]
        source: Box<kube::Error>,
    },
    /// Key or request.
    #[error(transparent)]
    Key(#[from] key::Error),
}

/// Where a registration or renewal stands.
#[derive(Debug, Clone)]
pub struct Progress {
    store: Arc<Store>,
    asks: Asks,
    /// The document as read or written last.
    pub stored: Stored,
    version: Version,
    /// The CSR of what is asked for as seen last.
    pub csr: Csr,
}

/// What is asked for. Both may be under way at once, and neither touches the other's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asks {
    /// A registration, by a bootstrap.
    ToRegister,
    /// A renewal, by the certificate that is in force.
    ToRenew,
}

impl Asks {
    fn of(self, stored: &Stored) -> Option<&Registration> {
        match self {
            Self::ToRegister => stored.pending.as_ref(),
            Self::ToRenew => stored.renewal.as_ref(),
        }
    }

    fn place(self, stored: &mut Stored) -> &mut Option<Registration> {
        match self {
            Self::ToRegister => &mut stored.pending,
            Self::ToRenew => &mut stored.renewal,
        }
    }
}

impl Progress {
    /// Reads where things stand; what is asked for is a registration.
    pub async fn load(store: Arc<Store>) -> Result<Self, credentials::Error> {
        let (stored, version) = store.load().await?;
        Ok(Self {
            store,
            asks: Asks::ToRegister,
            stored,
            version,
            csr: Csr::Unread,
        })
    }

    /// The same for renewals.
    pub fn renewing(self) -> Self {
        Self {
            asks: Asks::ToRenew,
            csr: Csr::Unread,
            ..self
        }
    }

    fn asked(&self) -> Option<&Registration> {
        self.asks.of(&self.stored)
    }

    /// Makes a key and stores it as what is asked for, in place of an older one.
    pub async fn make_key(
        &mut self,
        purpose: Purpose,
        rng: &mut impl Rng,
    ) -> Result<(), StepError> {
        let (key, id) = key::generate()?;
        let pending = Registration {
            cluster: purpose.cluster,
            cluster_id: purpose.cluster_id,
            id: purpose.renews.unwrap_or(id),
            csr_name: csr_name(rng),
            key,
            certificate: None,
            ca: purpose.ca,
            servers: purpose.servers,
            bootstrap: purpose.bootstrap,
            signer_changed: false,
        };
        let mut next = self.stored.clone();
        *self.asks.place(&mut next) = Some(pending);
        self.save(next).await
    }

    /// Stores another name for the CSR of what is asked for.
    pub async fn rename_csr(&mut self, rng: &mut impl Rng) -> Result<(), StepError> {
        let mut next = self.stored.clone();
        if let Some(asked) = self.asks.place(&mut next) {
            asked.csr_name = csr_name(rng);
        }
        self.save(next).await
    }

    /// Stores that the hub has told us to leave.
    pub async fn remember_to_leave(&mut self, mode: Mode) -> Result<(), StepError> {
        let mut next = self.stored.clone();
        next.told_to_leave = Some(mode);
        self.save(next).await
    }

    /// Stores what the hub published of itself, in the current registration and in its renewal.
    pub async fn follow_hub(&mut self, news: &News) -> Result<(), StepError> {
        let mut next = self.stored.clone();
        let of = next.current.as_ref().map(|current| current.id.clone());
        let both = next.current.iter_mut().chain(&mut next.renewal);
        for registration in both.filter(|one| Some(&one.id) == of.as_ref()) {
            registration.ca.clone_from(&news.ca);
            registration.servers.clone_from(&news.servers);
            registration.signer_changed |= news.signer_changed;
        }
        self.save(next).await
    }

    /// Makes what was asked for the current registration.
    pub async fn store_certificate(&mut self, chain: String) -> Result<(), StepError> {
        let Some(mut done) = self.asked().cloned() else {
            return Ok(());
        };
        done.certificate = Some(chain);
        let next = match self.asks {
            // All else was about the earlier one.
            Asks::ToRegister => Stored::new(Some(done), None),
            Asks::ToRenew => {
                let current = self.stored.current.as_ref();
                let renewed = current.is_some_and(|current| current.id == done.id);
                let mut next = self.stored.clone();
                next.renewal = None;
                if renewed {
                    next.current = Some(done);
                }
                next
            }
        };
        self.save(next).await
    }

    /// Reads the CSR of what is asked for.
    pub async fn read_csr(&mut self, client: kube::Client) -> Result<(), StepError> {
        let Some(pending) = self.asked() else {
            return Ok(());
        };
        let api: Api<CertificateSigningRequest> = Api::all(client);
        let found = api.get_opt(&pending.csr_name).await;
        let found = found.map_err(|e| hub_error("read the CSR", e))?;
        let spki = key::public_key(&pending.key)?;
        self.csr = found.map_or(Csr::Absent, |csr| judge(csr, &spki));
        Ok(())
    }

    /// Creates the CSR of what is asked for; one that is there already is read.
    pub async fn create_csr(
        &mut self,
        client: kube::Client,
        seconds: i32,
    ) -> Result<(), StepError> {
        let Some(pending) = self.asked() else {
            return Ok(());
        };
        let csr = CertificateSigningRequest {
            metadata: ObjectMeta {
                name: Some(pending.csr_name.clone()),
                annotations: Some(BTreeMap::from([(
                    labels::CLUSTER_ID.into(),
                    pending.cluster_id.clone(),
                )])),
                ..ObjectMeta::default()
            },
            spec: CertificateSigningRequestSpec {
                request: ByteString(key::request(&pending.key, &pending.subject())?.into_bytes()),
                signer_name: SIGNER.into(),
                usages: Some(vec!["digital signature".into(), "client auth".into()]),
                expiration_seconds: Some(seconds),
                ..CertificateSigningRequestSpec::default()
            },
            status: None,
        };
        let api: Api<CertificateSigningRequest> = Api::all(client);
        match api.create(&PostParams::default(), &csr).await {
            Ok(_) => self.csr = Csr::Waiting,
            // Ours, by a sibling or a life before this one, or somebody else's: reading tells.
            Err(kube::Error::Api(status)) if status.code == 409 => self.csr = Csr::Unread,
            Err(e) => return Err(hub_error("create the CSR", e)),
        }
        Ok(())
    }

    async fn save(&mut self, next: Stored) -> Result<(), StepError> {
        match self.store.save(&next, &self.version).await {
            Ok(version) => {
                self.stored = next;
                self.version = version;
            }
            // Another replica was first: what it wrote is what counts.
            Err(credentials::Error::Conflict) => {
                let (stored, version) = self.store.load().await.map_err(StepError::Store)?;
                self.stored = stored;
                self.version = version;
            }
            Err(e) => return Err(StepError::Store(e)),
        }
        self.csr = Csr::Unread;
        Ok(())
    }
}

fn judge(csr: CertificateSigningRequest, spki: &[u8]) -> Csr {
    if !key::is_request_for(&csr.spec.request.0, spki) {
        return Csr::Foreign;
    }
    let status = csr.status.unwrap_or_default();
    let mut approved = false;
    for condition in status.conditions.unwrap_or_default() {
        let reason = condition.reason.unwrap_or_default();
        let message = condition.message.unwrap_or_default();
        match condition.type_.as_str() {
            "Denied" => return Csr::Denied { reason, message },
            "Failed" => return Csr::Failed { message },
            "Approved" => approved = true,
            _ => {}
        }
    }
    match status.certificate {
        Some(ByteString(chain)) if !chain.is_empty() => {
            Csr::Issued(String::from_utf8_lossy(&chain).into_owned())
        }
        _ if approved => Csr::Approved,
        _ => Csr::Waiting,
    }
}

fn csr_name(rng: &mut impl Rng) -> String {
    const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let mut name = String::from(CSR_PREFIX);
    name.extend((0..NAME_LENGTH).map(|_| char::from(ALPHABET[rng.random_range(0..36)])));
    name
}

fn hub_error(action: &'static str, source: kube::Error) -> StepError {
    StepError::Hub {
        action,
        source: Box::new(source),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credentials::testing::registration;
    use common::chance::Chance;
    use k8s_openapi::api::certificates::v1::CertificateSigningRequestCondition;

    #[test]
    fn csrs_are_judged_by_key_and_conditions() {
        let ours = registration("m1", "a");
        let spki = key::public_key(&ours.key).expect("public key");
        let request = key::request(&ours.key, &ours.subject()).expect("request");
        let csr = |conditions: &[&str], certificate: Option<&str>| {
            let mut csr = CertificateSigningRequest::default();
            csr.spec.request = ByteString(request.clone().into_bytes());
            let conditions = conditions
                .iter()
                .map(|type_| CertificateSigningRequestCondition {
                    type_: (*type_).into(),
                    status: "True".into(),
                    reason: Some("R".into()),
                    message: Some("M".into()),
                    ..CertificateSigningRequestCondition::default()
                });
            csr.status = Some(Default::default());
            if let Some(status) = &mut csr.status {
                status.conditions = Some(conditions.collect());
                status.certificate = certificate.map(|c| ByteString(c.into()));
            }
            judge(csr, &spki)
        };
        assert_eq!(csr(&[], None), Csr::Waiting);
        assert_eq!(csr(&["Approved"], None), Csr::Approved);
        assert_eq!(csr(&["Approved"], Some("C")), Csr::Issued("C".into()));
        let message = || "M".to_owned();
        let failed = Csr::Failed { message: message() };
        assert_eq!(csr(&["Approved", "Failed"], None), failed);
        let reason = "R".to_owned();
        let message = message();
        assert_eq!(csr(&["Denied"], None), Csr::Denied { reason, message });
        assert_eq!(judge(Default::default(), &spki), Csr::Foreign);
    }

    #[test]
    fn csr_names_are_long_and_differ() {
        let mut rng = Chance::seeded(1).stream("names");
        let (a, b) = (csr_name(&mut rng), csr_name(&mut rng));
        assert_ne!(a, b);
        let tail = a.strip_prefix(CSR_PREFIX).expect("our prefix");
        assert!(tail.len() == 32 && tail.bytes().all(|c| c.is_ascii_alphanumeric()));
        assert_eq!(tail, tail.to_lowercase());
    }

    #[tokio::test]
    async fn keys_survive_and_certificates_move_up() {
        let base = tempfile::tempdir().expect("directory");
        let store = Store::in_directory(base.path().join("s")).expect("opened");
        let store = Arc::new(store);
        let mut one = Progress::load(store.clone()).await.expect("loaded");
        let mut two = Progress::load(store.clone()).await.expect("loaded");
        let purpose = Purpose {
            cluster: ClusterName::parse("m1").expect("valid"),
            cluster_id: "uid".into(),
            renews: None,
            ca: "CA".into(),
            servers: vec![],
            bootstrap: Fingerprint("a".into()),
        };
        let mut rng = Chance::seeded(1).stream("names");
        let made = one.make_key(purpose.clone(), &mut rng).await;
        made.expect("stored");
        let made = two.make_key(purpose.clone(), &mut rng).await;
        made.expect("read");
        assert_eq!(one.stored, two.stored);
        two.rename_csr(&mut rng).await.expect("stored");
        one.store_certificate("C".into()).await.expect("read");
        assert_eq!(one.stored, two.stored);
        one.store_certificate("C".into()).await.expect("stored");
        let again = Progress::load(store).await.expect("loaded");
        assert_eq!(again.stored, one.stored);
        let current = again.stored.current.expect("registered");
        assert_eq!(current.certificate.as_deref(), Some("C"));
        assert_eq!(again.stored.pending, None);

        let renewal = Purpose {
            renews: Some(current.id.clone()),
            ..purpose
        };
        let mut one = one.renewing();
        one.make_key(renewal, &mut rng).await.expect("stored");
        let renewal = one.stored.renewal.expect("asked for");
        assert_eq!(renewal.id, current.id);
        assert_ne!(renewal.key, current.key);
    }

    /// The hub may have noted the use of the token for its key already, and taken the Cluster over.
    #[tokio::test]
    async fn a_renewal_leaves_a_registration_under_way_as_it_is() {
        let base = tempfile::tempdir().expect("directory");
        let store = Store::in_directory(base.path().join("s")).expect("opened");
        let store = Arc::new(store);
        let (current, anew) = (registration("m1", "a"), registration("m1", "b"));
        let mut stored = Stored::new(Some(current.clone()), Some(anew.clone()));
        stored.told_to_leave = Some(Mode::KeepWorkloads);
        let saved = store.save(&stored, &Version::default()).await;
        saved.expect("saved");
        let loaded = Progress::load(store.clone()).await.expect("loaded");
        let mut keeper = loaded.renewing();
        let mut rng = Chance::seeded(1).stream("names");
        let renewal = Purpose {
            cluster: current.cluster.clone(),
            cluster_id: current.cluster_id.clone(),
            renews: Some(current.id.clone()),
            ca: current.ca.clone(),
            servers: current.servers.clone(),
            bootstrap: current.bootstrap.clone(),
        };
        keeper.make_key(renewal, &mut rng).await.expect("stored");
        keeper.rename_csr(&mut rng).await.expect("stored");
        let news = News {
            ca: "NEWS".to_owned(),
            servers: vec!["other:6443".to_owned()],
            signer_changed: false,
        };
        keeper.follow_hub(&news).await.expect("stored");
        let (stored, _) = store.load().await.expect("loaded");
        assert_eq!(stored.pending.as_ref(), Some(&anew), "key and CSR");
        let asked = stored.renewal.expect("asked for");
        assert_eq!((&asked.id, asked.ca.as_str()), (&current.id, "NEWS"));

        let renewed = keeper.store_certificate("C".to_owned()).await;
        renewed.expect("stored");
        let (stored, _) = store.load().await.expect("loaded");
        assert_eq!(stored.pending.as_ref(), Some(&anew));
        assert_eq!(stored.renewal, None);
        assert_eq!(stored.told_to_leave, Some(Mode::KeepWorkloads));
        let current = stored.current.expect("registered");
        assert_eq!(
            (current.key, current.certificate.as_deref()),
            (asked.key, Some("C"))
        );

        // And what comes of the registration is all there is then.
        let mut registrar = Progress::load(store.clone()).await.expect("loaded");
        let registered = registrar.store_certificate("D".to_owned()).await;
        registered.expect("stored");
        let (stored, _) = store.load().await.expect("loaded");
        let mut anew = anew;
        anew.certificate = Some("D".to_owned());
        assert_eq!(stored, Stored::new(Some(anew), None));
    }
}
