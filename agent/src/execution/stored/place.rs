//! Where the volumes of the stored set lie: Secrets of the agent's namespace, or files of its state
//! directory.

use crate::credentials;
use common::names::{AGENT_NAME, WORKS_SECRET_PREFIX, WORKS_SECRETS};
use common::{errors, labels};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Key of the bytes in a Secret.
const DATA: &str = "works";

/// A volume could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// In the member.
    #[error("failed to {verb} Secret {name:?}")]
    Secret {
        /// What was tried.
        verb: &'static str,
        /// On which Secret.
        name: String,
        /// Why it failed.
        #[source]
        source: Box<kube::Error>,
    },
    /// In the state directory.
    #[error("failed to {verb} the stored Works: {reason}")]
    File {
        /// What was tried.
        verb: &'static str,
        /// Why it failed.
        reason: String,
    },
    /// There was no answer.
    #[error("failed to store the Works: the member did not answer within {} s", after.as_secs())]
    Unanswered {
        /// In that time.
        after: Duration,
    },
}

impl Error {
    /// Whether we may not: once the member's API server knows its roles, asking again changes nothing.
    pub fn is_denied(&self) -> bool {
        match self {
            Self::Secret { source, .. } => {
                matches!(&**source, kube::Error::Api(status) if status.code == 403)
            }
            Self::File { .. } | Self::Unanswered { .. } => false,
        }
    }
}

/// Where volumes lie.
#[derive(Debug, Clone)]
pub enum Place {
    /// In Secrets of the agent's namespace.
    Member(Box<Api<Secret>>),
    /// In files.
    Directory(PathBuf),
}

fn secret_name(volume: usize) -> String {
    format!("{WORKS_SECRET_PREFIX}{volume}")
}

impl Place {
    /// The place of an agent with that configuration.
    pub fn new(member: kube::Client, namespace: &str, state_dir: Option<&PathBuf>) -> Self {
        match state_dir {
            Some(directory) => Self::Directory(directory.clone()),
            None => Self::Member(Box::new(Api::namespaced(member, namespace))),
        }
    }

    /// The bytes of a volume; none when there is none.
    pub async fn read(&self, volume: usize) -> Result<Option<Vec<u8>>, Error> {
        match self {
            Self::Member(api) => {
                let name = secret_name(volume);
                let found = api.get_opt(&name).await.map_err(failed("read", &name))?;
                let data = found.map(|secret| secret.data.unwrap_or_default());
                Ok(data.map(|mut data| data.remove(DATA).map_or_else(Vec::new, |b| b.0)))
            }
            Self::Directory(directory) => match std::fs::read(file(directory, volume)) {
                Ok(bytes) => Ok(Some(bytes)),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(file_failed("read", &error)),
            },
        }
    }

    /// Replaces a volume, whole.
    pub async fn write(&self, volume: usize, bytes: Vec<u8>) -> Result<(), Error> {
        match self {
            Self::Member(api) => write_secret(api, &secret_name(volume), bytes).await,
            Self::Directory(directory) => {
                credentials::replace_file(&file(directory, volume), &bytes)
                    .map_err(|e| file_failed("write", &e))
            }
        }
    }

    /// Removes a volume, which may be absent.
    pub async fn remove(&self, volume: usize) -> Result<(), Error> {
        match self {
            Self::Member(api) => {
                let name = secret_name(volume);
                match api.delete(&name, &DeleteParams::default()).await {
                    Ok(_) => Ok(()),
                    Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
                    Err(error) => Err(failed("delete", &name)(error)),
                }
            }
            Self::Directory(directory) => match std::fs::remove_file(file(directory, volume)) {
                Ok(()) => Ok(()),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
                Err(error) => Err(file_failed("remove", &error)),
            },
        }
    }

    /// Removes every volume that there is.
    pub async fn clear(&self) -> Result<(), Error> {
        for volume in 0..WORKS_SECRETS {
            if self.read(volume).await?.is_some() {
                self.remove(volume).await?;
            }
        }
        Ok(())
    }
}

fn file(directory: &std::path::Path, volume: usize) -> PathBuf {
    directory.join(format!("works-{volume}"))
}

fn failed(verb: &'static str, name: &str) -> impl FnOnce(kube::Error) -> Error {
    let name = name.to_owned();
    move |source| Error::Secret {
        verb,
        name,
        source: Box::new(source),
    }
}

fn file_failed(verb: &'static str, error: &(dyn std::error::Error + 'static)) -> Error {
    Error::File {
        verb,
        reason: errors::chain(error).to_string(),
    }
}

/// A replace without a version is a write over whatever is there: the one that leads is right.
async fn write_secret(api: &Api<Secret>, name: &str, bytes: Vec<u8>) -> Result<(), Error> {
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(BTreeMap::from([
                (labels::PART_OF.into(), labels::PART_OF_VALUE.into()),
                (labels::MANAGED_BY.into(), AGENT_NAME.into()),
            ])),
            ..ObjectMeta::default()
        },
        type_: Some("Opaque".into()),
        data: Some(BTreeMap::from([(DATA.to_owned(), ByteString(bytes))])),
        ..Secret::default()
    };
    let params = PostParams {
        field_manager: Some(labels::AGENT_FIELD_MANAGER.into()),
        ..PostParams::default()
    };
    match api.replace(name, &params, &secret).await {
        Ok(_) => return Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        Err(error) => return Err(failed("write", name)(error)),
    }
    let created = api.create(&params, &secret).await;
    created.map(drop).map_err(failed("create", name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agents_role_names_every_volume() {
        let role = include_str!("../../../../manifests/agent/rbac.yaml");
        for volume in 0..WORKS_SECRETS {
            let line = format!("- {}\n", secret_name(volume));
            assert!(role.contains(&line), "{line}");
        }
    }

    #[tokio::test]
    async fn files_are_replaced_and_removed() {
        let base = tempfile::tempdir().expect("a directory");
        let place = Place::Directory(base.path().to_owned());
        assert_eq!(place.read(3).await.expect("readable"), None);
        place.write(3, b"one".to_vec()).await.expect("writable");
        place.write(3, b"two".to_vec()).await.expect("writable");
        assert_eq!(
            place.read(3).await.expect("readable"),
            Some(b"two".to_vec())
        );
        place.write(4, b"three".to_vec()).await.expect("writable");
        place.clear().await.expect("removable");
        assert_eq!(place.read(4).await.expect("readable"), None);
        place.remove(4).await.expect("absent is fine");
    }
}
