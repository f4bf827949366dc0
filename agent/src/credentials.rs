//! What the agent keeps about its registration, and the two places where it can lie.
//!
//! Everything is one document, written whole and only over the version that was read: of two replicas
//! that start at once one write wins, and the other reads what it says. It holds the private key, so
//! it lies in a Secret of the member or in a directory that only the agent's user can read.

mod directory;
mod secret;

use crate::registration::key::KeyPem;
use common::identity::{AgentSubject, RegistrationId};
use common::names::ClusterName;
use common::unregister::Mode;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The format that is written; a later one is refused rather than misread.
const FORMAT: u32 = 1;

/// Key of the document in the Secret, and its file name in the state directory.
const DOCUMENT: &str = common::names::CREDENTIALS_DOCUMENT;

/// One registration: a key, who it speaks for, and the hub it is good for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Registration {
    /// The cluster it speaks for.
    #[serde(with = "as_text::cluster")]
    pub cluster: ClusterName,
    /// UID of the member's `kube-system` when it was made.
    pub cluster_id: String,
    /// What the hub knows this registration by; stays the same at renewal.
    #[serde(with = "as_text::registration")]
    pub id: RegistrationId,
    /// Name of the CSR that asks for the certificate.
    pub csr_name: String,
    /// The private key.
    pub key: KeyPem,
    /// The certificate chain, once it is issued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
    /// The CA certificates of the hub as PEM: those that were pinned, then what the hub published.
    pub ca: String,
    /// Addresses of the hub, as `host:port`.
    pub servers: Vec<String>,
    /// What the operator had handed over when this registration was made.
    pub bootstrap: Fingerprint,
    /// The hub signs by another authority since the certificate was issued: it is renewed before its time,
    /// once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub signer_changed: bool,
}

impl Registration {
    /// The subject of its certificate.
    pub fn subject(&self) -> AgentSubject {
        AgentSubject {
            cluster: self.cluster.clone(),
            registration: self.id.clone(),
        }
    }
}

/// A digest of the bootstrap token, the pins and the cluster name: when it changes, the operator
/// asks for a new registration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fingerprint(pub String);

/// The document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stored {
    format: u32,
    /// What the agent works with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<Registration>,
    /// What it is asking for by a bootstrap: the first registration, or a new one. The use of the token belongs to its
    /// key, so nothing but another bootstrap takes its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<Registration>,
    /// The renewal of the current registration that it is asking for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renewal: Option<Registration>,
    /// The hub has told the current registration to leave; kept so that a restart does not forget it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(with = "as_text::mode")]
    pub told_to_leave: Option<Mode>,
}

impl Default for Stored {
    fn default() -> Self {
        Self::new(None, None)
    }
}

impl Stored {
    /// A document without a renewal.
    pub fn new(current: Option<Registration>, pending: Option<Registration>) -> Self {
        Self {
            format: FORMAT,
            current,
            pending,
            renewal: None,
            told_to_leave: None,
        }
    }

    fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let mut stored: Self = serde_json::from_slice(bytes).map_err(Error::Decode)?;
        if stored.format != FORMAT {
            return Err(Error::Format(stored.format));
        }
        // Agents of before kept a renewal where registrations are.
        let current = stored.current.as_ref().map(|current| &current.id);
        if let Some(renewal) = stored.pending.take_if(|it| Some(&it.id) == current) {
            stored.renewal = Some(renewal);
        }
        Ok(stored)
    }

    fn encode(&self) -> Result<Vec<u8>, Error> {
        serde_json::to_vec(self).map_err(Error::Encode)
    }
}

/// Which version of the document was read: absent, or a resourceVersion or digest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Version(Option<String>);

/// A failure to read or write the document.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Somebody else wrote first; read again.
    #[error("the stored credentials were changed by another replica")]
    Conflict,
    /// The member's API refused or did not answer.
    #[error("failed to {verb} Secret \"{namespace}/{name}\"", name = common::names::CREDENTIALS_SECRET)]
    Secret {
        /// What was tried.
        verb: &'static str,
        /// Where.
        namespace: String,
        /// Why it failed.
        #[source]
        source: Box<kube::Error>,
    },
    /// The state directory refused.
    #[error("failed to {verb} {path:?}")]
    File {
        /// What was tried.
        verb: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
    /// Two agents on one directory.
    #[error("state directory {0:?} is in use by another agent")]
    InUse(PathBuf),
    /// The document is not one of ours.
    #[error("failed to read the stored credentials; delete them to register anew with a new token")]
    Decode(#[source] serde_json::Error),
    /// The document is newer than this agent.
    #[error("the stored credentials have format {0}, which this version does not know")]
    Format(u32),
    /// The document could not be encoded.
    #[error("failed to encode the credentials")]
    Encode(#[source] serde_json::Error),
}

/// Where the document lies.
#[derive(Debug)]
pub enum Store {
    /// In a Secret of the member.
    Secret(Box<secret::SecretStore>),
    /// In a directory of this machine.
    Directory(directory::DirectoryStore),
}

impl Store {
    /// A store in the namespace `namespace` of the member.
    pub fn in_member(member: kube::Client, namespace: &str) -> Self {
        Self::Secret(Box::new(secret::SecretStore::new(member, namespace)))
    }

    /// A store in a directory, made when absent and locked until the store is dropped.
    pub fn in_directory(path: PathBuf) -> Result<Self, Error> {
        directory::DirectoryStore::open(path).map(Self::Directory)
    }

    /// Reads the document; an absent one is empty.
    pub async fn load(&self) -> Result<(Stored, Version), Error> {
        match self {
            Self::Secret(store) => store.load().await,
            Self::Directory(store) => store.load(),
        }
    }

    /// Writes the document over the version that was read.
    pub async fn save(&self, stored: &Stored, over: &Version) -> Result<Version, Error> {
        match self {
            Self::Secret(store) => store.save(stored, over).await,
            Self::Directory(store) => store.save(stored, over),
        }
    }

    /// Removes the document, which may be absent.
    pub async fn remove(&self) -> Result<(), Error> {
        match self {
            Self::Secret(store) => store.remove().await,
            Self::Directory(store) => store.remove(),
        }
    }
}

/// Replaces a file of the state directory whole, readable by our user alone.
pub(crate) fn replace_file(path: &std::path::Path, bytes: &[u8]) -> Result<(), Error> {
    directory::replace(path, bytes)
}

mod as_text {
    //! Checked names as the text they are.

    macro_rules! as_text {
        ($module:ident, $type:ty, $parse:expr, $what:literal) => {
            pub(super) mod $module {
                pub(in super::super) fn serialize<S: serde::Serializer>(
                    value: &$type,
                    serializer: S,
                ) -> Result<S::Ok, S::Error> {
                    serializer.serialize_str(value.as_str())
                }

                pub(in super::super) fn deserialize<'de, D: serde::Deserializer<'de>>(
                    deserializer: D,
                ) -> Result<$type, D::Error> {
                    let text = <String as serde::Deserialize>::deserialize(deserializer)?;
                    $parse(&text).ok_or_else(|| serde::de::Error::custom($what))
                }
            }
        };
    }

    pub(super) mod mode {
        use common::unregister::Mode;

        pub(in super::super) fn serialize<S: serde::Serializer>(
            value: &Option<Mode>,
            serializer: S,
        ) -> Result<S::Ok, S::Error> {
            match value {
                Some(mode) => serializer.serialize_str(mode.as_str()),
                None => serializer.serialize_none(),
            }
        }

        pub(in super::super) fn deserialize<'de, D: serde::Deserializer<'de>>(
            deserializer: D,
        ) -> Result<Option<Mode>, D::Error> {
            let text = <Option<String> as serde::Deserialize>::deserialize(deserializer)?;
            Ok(text.as_deref().and_then(Mode::parse))
        }
    }

    as_text!(
        cluster,
        common::names::ClusterName,
        |text: &str| common::names::ClusterName::parse(text).ok(),
        "not a cluster name"
    );
    as_text!(
        registration,
        common::identity::RegistrationId,
        common::identity::RegistrationId::parse,
        "not a registration id"
    );
}

#[cfg(test)]
pub(crate) mod testing {
    //! Registrations for tests.

    use super::{Fingerprint, Registration};
    use crate::registration::key;
    use common::names::ClusterName;

    /// A registration of `cluster` without a certificate.
    pub(crate) fn registration(cluster: &str, bootstrap: &str) -> Registration {
        let (key, id) = key::generate().expect("key");
        Registration {
            cluster: ClusterName::parse(cluster).expect("valid"),
            cluster_id: "uid".into(),
            id,
            csr_name: "towline-0123".into(),
            key,
            certificate: None,
            ca: "CA".into(),
            servers: vec!["hub.example:6443".into()],
            bootstrap: Fingerprint(bootstrap.into()),
            signer_changed: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_read_back_and_hide_the_key() {
        let stored = Stored::new(Some(testing::registration("m1", "a")), None);
        let bytes = stored.encode().expect("encoded");
        assert_eq!(Stored::decode(&bytes).expect("decoded"), stored);
        assert!(!format!("{stored:?}").contains("PRIVATE"));
        assert_eq!(
            Stored::decode(br#"{"format":1}"#).expect("of before"),
            Stored::default()
        );
        let later = br#"{"format":2}"#;
        assert!(matches!(Stored::decode(later), Err(Error::Format(2))));
        assert!(matches!(Stored::decode(b"{"), Err(Error::Decode(_))));
    }

    #[test]
    fn a_renewal_of_an_agent_of_before_goes_on() {
        let current = testing::registration("m1", "a");
        let renewal = Registration {
            id: current.id.clone(),
            ..testing::registration("m1", "a")
        };
        let anew = testing::registration("m1", "b");
        for (pending, left, renews) in
            [(&renewal, None, Some(&renewal)), (&anew, Some(&anew), None)]
        {
            let stored = Stored::new(Some(current.clone()), Some(pending.clone()));
            let read = Stored::decode(&stored.encode().expect("encoded")).expect("decoded");
            assert_eq!(
                (read.pending.as_ref(), read.renewal.as_ref()),
                (left, renews)
            );
            assert_eq!(read.current.as_ref(), Some(&current));
        }
    }
}
