//! `kube-public/cluster-info`: the CA and the addresses by which agents find the hub.
//!
//! A ConfigMap that exists, kubeadm's for instance, is left alone and used. One that is made here holds a
//! kubeconfig with exactly one cluster of the empty name, as kubeadm's does. That form has room for one
//! address; the full list stands in the cluster's extension [`SERVERS_EXTENSION`], inside the text that
//! the bootstrap signer signs, so that nobody can add one.

use super::object::Desired;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// Why a text is not cluster-info's kubeconfig.
#[derive(Debug, thiserror::Error)]
pub enum Invalid {
    /// Not YAML.
    #[error("cluster-info's kubeconfig is not YAML")]
    Syntax(#[source] serde_yaml::Error),
    /// Not what kubeadm writes.
    #[error("cluster-info's kubeconfig has no cluster with {0}")]
    Incomplete(&'static str),
}

/// Namespace of the ConfigMap.
pub const NAMESPACE: &str = "kube-public";
/// Name of the ConfigMap.
pub const NAME: &str = "cluster-info";
/// Key of the kubeconfig in the ConfigMap.
pub const KUBECONFIG: &str = "kubeconfig";
/// Name of the extension that lists every address, the first one included.
pub const SERVERS_EXTENSION: &str = common::labels::SERVERS_EXTENSION;

/// What the ConfigMap is to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterInfo {
    /// `https://host:port`, in the order in which agents try them; never empty.
    pub servers: Vec<String>,
    /// The CA certificates, PEM.
    pub ca_pem: Vec<u8>,
}

impl ClusterInfo {
    /// Reads a kubeconfig as [`Self::kubeconfig`], kubeadm or Karmada write it.
    pub fn parse(kubeconfig: &str) -> Result<Self, Invalid> {
        let config: Value = serde_yaml::from_str(kubeconfig).map_err(Invalid::Syntax)?;
        let cluster = &config["clusters"][0]["cluster"];
        let server = cluster["server"].as_str();
        let server = server.ok_or(Invalid::Incomplete("a server"))?.to_owned();
        let ca = cluster["certificate-authority-data"].as_str();
        let ca_pem = ca.and_then(|ca| STANDARD.decode(ca).ok());
        let ca_pem = ca_pem.ok_or(Invalid::Incomplete("a CA"))?;
        let extensions = cluster["extensions"].as_array();
        let listed = extensions
            .into_iter()
            .flatten()
            .find(|extension| extension["name"] == SERVERS_EXTENSION)
            .and_then(|extension| extension["extension"]["servers"].as_array());
        let servers = match listed {
            Some(servers) => servers
                .iter()
                .filter_map(|server| server.as_str().map(str::to_owned))
                .collect(),
            None => vec![server],
        };
        Ok(Self { servers, ca_pem })
    }

    /// The ConfigMap.
    pub fn desired(&self) -> Desired {
        Desired::new(json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": NAME, "namespace": NAMESPACE},
            "data": {KUBECONFIG: self.kubeconfig()},
        }))
    }

    /// The kubeconfig inside it.
    pub fn kubeconfig(&self) -> String {
        let mut cluster = json!({
            "certificate-authority-data": STANDARD.encode(&self.ca_pem),
            "server": self.servers.first(),
        });
        if self.servers.len() > 1 {
            cluster["extensions"] = json!([{
                "name": SERVERS_EXTENSION,
                "extension": {"servers": self.servers},
            }]);
        }
        let kubeconfig: Value = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "", "cluster": cluster}],
            "contexts": [],
            "current-context": "",
            "preferences": {},
            "users": [],
        });
        serde_yaml::to_string(&kubeconfig).expect("invariant: JSON is YAML")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(servers: &[&str]) -> ClusterInfo {
        ClusterInfo {
            servers: servers.iter().map(|s| (*s).to_owned()).collect(),
            ca_pem: b"PEM".to_vec(),
        }
    }

    #[test]
    fn one_address_makes_what_kubeadm_makes() {
        let text = info(&["https://hub:6443"]).kubeconfig();
        let config: Value = serde_yaml::from_str(&text).expect("YAML");
        assert_eq!(config["clusters"][0]["name"], "");
        assert_eq!(
            config["clusters"][0]["cluster"],
            json!({"certificate-authority-data": "UEVN", "server": "https://hub:6443"})
        );
    }

    #[test]
    fn several_addresses_stand_in_the_signed_text() {
        let text = info(&["https://hub:6443", "https://[::1]:6443"]).kubeconfig();
        let config: Value = serde_yaml::from_str(&text).expect("YAML");
        let cluster = &config["clusters"][0]["cluster"];
        assert_eq!(cluster["server"], "https://hub:6443");
        assert_eq!(
            cluster["extensions"][0]["extension"]["servers"],
            json!(["https://hub:6443", "https://[::1]:6443"])
        );
        assert_eq!(config["clusters"].as_array().map(Vec::len), Some(1));
    }

    #[test]
    fn what_was_written_reads_back() {
        for servers in [&["https://hub:6443"][..], &["https://a:1", "https://b:2"]] {
            let info = info(servers);
            assert_eq!(ClusterInfo::parse(&info.kubeconfig()).ok(), Some(info));
        }
        assert!(ClusterInfo::parse("clusters: []").is_err());
        assert!(ClusterInfo::parse("{").is_err());
    }
}
