//! A Cluster as this process reads it: nothing that its agent writes.

use super::decide::Seen;
use common::joined::Way;
use common::labels::{JOINED, UNREGISTER};
use common::unregister::Mode;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;

/// A Cluster, narrowly.
#[derive(Debug, Deserialize)]
pub(super) struct Record {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    #[serde(default)]
    uid: String,
    deletion_timestamp: Option<IgnoredAny>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

impl Metadata {
    /// Whether its agent is told to leave the member.
    fn is_unregistered(&self) -> bool {
        let asked = self.annotations.get(UNREGISTER);
        self.deletion_timestamp.is_some() && asked.is_some_and(|mode| Mode::parse(mode).is_some())
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    sync_mode: String,
    api_endpoint: Option<String>,
    #[serde(rename = "proxyURL")]
    proxy_url: Option<String>,
    secret_ref: Option<SecretRef>,
    #[serde(rename = "insecureSkipTLSVerification")]
    insecure: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct SecretRef {
    namespace: String,
    name: String,
}

impl Record {
    /// Its name, and what is decided by.
    pub(super) fn seen(mut self) -> (String, Seen) {
        let some = |text: Option<String>| text.filter(|text| !text.is_empty());
        let spec = self.spec;
        let unregistered = self.metadata.is_unregistered();
        let seen = Seen {
            uid: self.metadata.uid,
            push: spec.sync_mode == "Push",
            joined: self.metadata.annotations.remove(JOINED),
            secret: spec
                .secret_ref
                .map(|secret| (secret.namespace, secret.name)),
            way: Way {
                api_endpoint: some(spec.api_endpoint),
                proxy_url: some(spec.proxy_url),
            },
            insecure: spec.insecure == Some(true),
            unregistered,
        };
        (self.metadata.name, seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_read_whatever_its_status_holds() {
        let record: Record = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "m1", "uid": "u", "annotations": {JOINED: "s/7"}},
            "spec": {"syncMode": "Push", "apiEndpoint": "https://m1:6443", "proxyURL": "",
                "secretRef": {"namespace": "karmada-cluster", "name": "m1"}},
            "status": 7,
        }))
        .expect("decodes");
        let (name, seen) = record.seen();
        assert_eq!((name.as_str(), seen.joined.as_deref()), ("m1", Some("s/7")));
        assert!(seen.push && !seen.insecure && seen.way.proxy_url.is_none());
        assert_eq!(seen.way.api_endpoint.as_deref(), Some("https://m1:6443"));
        assert!(!seen.unregistered);
    }

    #[test]
    fn a_cluster_is_unregistered_once_it_is_being_deleted_and_says_so() {
        let (at, mode) = (Some("2026-01-01T00:00:00Z"), Some("remove-workloads"));
        for (deleted, annotation, unregistered) in [
            (None, mode, false),
            (at, None, false),
            (at, Some("yes"), false),
            (at, mode, true),
            (at, Some("keep-workloads"), true),
        ] {
            let mut metadata = serde_json::json!({"name": "m1"});
            if let Some(at) = deleted {
                metadata["deletionTimestamp"] = at.into();
            }
            if let Some(mode) = annotation {
                metadata["annotations"][UNREGISTER] = mode.into();
            }
            let record = serde_json::json!({ "metadata": metadata });
            let record: Record = serde_json::from_value(record).expect("decodes");
            let said = record.seen().1.unregistered;
            assert_eq!(said, unregistered, "{deleted:?} {annotation:?}");
        }
    }
}
