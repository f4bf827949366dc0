//! What a hub publishes of itself, read by somebody who is connected to it and has verified it. Pure.
//!
//! Over such a connection the document needs no signature: it is the hub's own word.

use super::{ClusterInfo, pem, pin};
use crate::client::HostPort;
use k8s_openapi::api::core::v1::ConfigMap;
use rustls::pki_types::CertificateDer;

/// Namespace of the ConfigMap that says it.
pub const PUBLIC_NAMESPACE: &str = "kube-public";
/// Its name.
pub const CLUSTER_INFO: &str = "cluster-info";

/// Most authorities that are believed to be one hub's: a replacement has two.
const AUTHORITIES_MAX: usize = 16;
/// Addresses beyond this many are left out.
const SERVERS_MAX: usize = 16;

/// The authorities and addresses of a hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// Certificates of authorities, the one that signs first; never empty.
    pub authorities: Vec<CertificateDer<'static>>,
    /// The addresses it advertises, in the order in which they are to be tried.
    pub servers: Vec<HostPort>,
}

impl Published {
    /// Reads the ConfigMap; says what is wrong with one that cannot be used.
    pub fn read(map: &ConfigMap) -> Result<Self, String> {
        let data = map.data.as_ref();
        let text = data.and_then(|data| data.get("kubeconfig"));
        let text = text.ok_or("it has no key \"kubeconfig\"")?;
        let ClusterInfo {
            mut authorities,
            mut servers,
        } = ClusterInfo::parse(text)?;
        // A certificate that may not issue others would verify nobody.
        authorities.retain(|der| pin::is_authority(der));
        if authorities.is_empty() {
            return Err("none of its certificates is one of an authority".to_owned());
        }
        if authorities.len() > AUTHORITIES_MAX {
            let count = authorities.len();
            return Err(format!(
                "it has {count} CA certificates, more than {AUTHORITIES_MAX}"
            ));
        }
        servers.truncate(SERVERS_MAX);
        Ok(Self {
            authorities,
            servers,
        })
    }

    /// The authorities as PEM, in the form in which discovery keeps them too.
    pub fn ca_pem(&self) -> String {
        String::from_utf8_lossy(&pem(&self.authorities)).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::testing::{authority, leaf};
    use base64::Engine as _;
    use base64::prelude::BASE64_STANDARD;
    use std::collections::BTreeMap;

    fn map(kubeconfig: &str) -> ConfigMap {
        ConfigMap {
            data: Some(BTreeMap::from([(
                "kubeconfig".to_owned(),
                kubeconfig.to_owned(),
            )])),
            ..ConfigMap::default()
        }
    }

    fn info(pem: &str) -> ConfigMap {
        let cluster = serde_json::json!({
            "server": "https://hub:6443",
            "certificate-authority-data": BASE64_STANDARD.encode(pem),
        });
        map(&serde_json::json!({"clusters": [{"name": "", "cluster": cluster}]}).to_string())
    }

    #[test]
    fn authorities_and_addresses_are_read() {
        let (old, new) = (authority("old"), authority("new"));
        let both = old.pem() + &new.pem();
        let read = Published::read(&info(&both)).expect("usable");
        assert_eq!(read.servers, [HostPort::new("hub", 6443)]);
        assert_eq!(read.authorities.len(), 2);
        let again = crate::tls::certificates(read.ca_pem().as_bytes()).expect("PEM");
        assert_eq!(again, read.authorities);
    }

    #[test]
    fn what_verifies_nobody_is_refused() {
        let ca = authority("hub");
        let (certificate, _) = leaf(&ca, &["hub"]);
        let many: String = (0..=AUTHORITIES_MAX).map(|_| ca.pem()).collect();
        for bad in [
            ConfigMap::default(),
            map(""),
            map("clusters: []"),
            info(""),
            info("junk"),
            info(&certificate),
            info(&many),
        ] {
            let refused = Published::read(&bad);
            assert!(refused.is_err(), "{bad:?}: {refused:?}");
        }
        let mixed = Published::read(&info(&(certificate + &ca.pem()))).expect("usable");
        assert_eq!(mixed.authorities.len(), 1, "only what may issue is kept");
    }
}
