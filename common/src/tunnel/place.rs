//! Where agents dial their tunnels, on a hub whose API server takes none: said in ConfigMap `kube-public/cluster-info`,
//! which only the hub and its administrators write, and which agents read over the connection that they verified.

use crate::client::HostPort;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};

/// Addresses beyond this many are left out.
const SERVERS_MAX: usize = 16;

/// Where to dial, and by whom the other end is verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The addresses, in the order in which they are tried.
    pub servers: Vec<HostPort>,
    /// The authorities of its certificate, and of nothing else.
    pub ca_pem: String,
}

impl Place {
    /// The key in the ConfigMap.
    pub const KEY: &str = "tunnel";

    /// The text there.
    pub fn written(&self) -> String {
        let servers: Vec<String> = self.servers.iter().map(HostPort::to_string).collect();
        json!({"certificateAuthority": self.ca_pem, "servers": servers}).to_string()
    }

    /// Reads it; none where the ConfigMap names no place, and tunnels end where everything else does.
    pub fn read(map: &ConfigMap) -> Result<Option<Self>, String> {
        let data = map.data.as_ref();
        let Some(text) = data.and_then(|data| data.get(Self::KEY)) else {
            return Ok(None);
        };
        let said: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let servers = said["servers"].as_array().into_iter().flatten();
        let servers = servers.take(SERVERS_MAX).map(|server| {
            let server = server.as_str().ok_or("an address is no text")?;
            HostPort::parse(server).map_err(|error| error.to_string())
        });
        let servers = servers.collect::<Result<Vec<_>, String>>()?;
        if servers.is_empty() {
            return Err("it has no address".to_owned());
        }
        let ca = said["certificateAuthority"].as_str();
        let ca_pem = ca.ok_or("it has no certificate authority")?.to_owned();
        Ok(Some(Self { servers, ca_pem }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn map(text: &str) -> ConfigMap {
        ConfigMap {
            data: Some(BTreeMap::from([(Place::KEY.to_owned(), text.to_owned())])),
            ..ConfigMap::default()
        }
    }

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        let place = Place {
            servers: vec![HostPort::new("hub.test", 10443), HostPort::new("::1", 1)],
            ca_pem: "PEM".to_owned(),
        };
        assert_eq!(Place::read(&map(&place.written())), Ok(Some(place)));
        assert_eq!(Place::read(&ConfigMap::default()), Ok(None));
        for bad in [
            "",
            "{}",
            r#"{"servers": [], "certificateAuthority": "PEM"}"#,
            r#"{"servers": [7], "certificateAuthority": "PEM"}"#,
            r#"{"servers": ["a:b"], "certificateAuthority": "PEM"}"#,
            r#"{"servers": ["a:1"]}"#,
        ] {
            assert!(Place::read(&map(bad)).is_err(), "{bad}");
        }
    }
}
