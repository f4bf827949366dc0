//! A Cluster as this process reads it: nothing that its agent writes.

use super::decide::Seen;
use common::joined::Way;
use common::labels::JOINED;
use serde::Deserialize;
use std::collections::BTreeMap;

/// A Cluster, narrowly.
#[derive(Debug, Deserialize)]
pub(super) struct Record {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    name: String,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
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
    }
}
