//! What a replica says of itself, in an annotation of its Lease. Pure.

use crate::aggregated::certificate::id;
use crate::world::Record;
use common::client::HostPort;
use common::labels::REPLICA_ACCESS;
use common::tls;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Addresses of one replica beyond this many are left out.
const ADVERTISED_MAX: usize = 16;

/// Where a replica is reached, and by whom it is verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::aggregated) struct Said {
    /// By other replicas.
    pub(in crate::aggregated) peer: HostPort,
    /// By the hub's API server.
    pub(in crate::aggregated) service: HostPort,
    /// By agents; never empty.
    pub(in crate::aggregated) advertise: Vec<HostPort>,
    /// The authority of its certificate, one, and of nothing else.
    pub(in crate::aggregated) ca_pem: String,
}

impl Said {
    /// The text of the annotation.
    pub(super) fn written(&self) -> String {
        let advertise: Vec<String> = self.advertise.iter().map(HostPort::to_string).collect();
        json!({
            "peer": self.peer.to_string(),
            "service": self.service.to_string(),
            "advertise": advertise,
            "certificateAuthority": self.ca_pem,
        })
        .to_string()
    }

    /// Reads it from the Lease of this name, which is that of the authority: whoever has another's key is another.
    fn read(name: &str, text: &str) -> Result<Self, String> {
        let said: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let address = |value: &Value| -> Result<HostPort, String> {
            let text = value.as_str().ok_or("an address is no text")?;
            HostPort::parse(text).map_err(|error| error.to_string())
        };
        let advertise = said["advertise"].as_array().into_iter().flatten();
        let advertise: Vec<HostPort> = advertise
            .take(ADVERTISED_MAX)
            .map(address)
            .collect::<Result<_, _>>()?;
        if advertise.is_empty() {
            return Err("it has no address for agents".to_owned());
        }
        let ca_pem = said["certificateAuthority"].as_str();
        let ca_pem = ca_pem.ok_or("it has no certificate authority")?.to_owned();
        let authorities = tls::certificates(ca_pem.as_bytes()).map_err(|e| e.to_string())?;
        let [authority] = authorities.as_slice() else {
            return Err("it has more than one certificate authority".to_owned());
        };
        if id(authority).map_err(|error| error.to_string())? != name {
            return Err("its name is not that of its certificate authority".to_owned());
        }
        Ok(Self {
            peer: address(&said["peer"])?,
            service: address(&said["service"])?,
            advertise,
            ca_pem,
        })
    }
}

/// The Lease of a replica.
#[derive(Debug)]
pub(in crate::aggregated) struct Replica {
    /// What it says, or why that cannot be used.
    pub(super) said: Result<Said, String>,
}

impl Record for Replica {
    const KIND: &'static str = "Lease";

    type Kept = Arc<Self>;

    fn read(object: &str) -> serde_json::Result<Option<Self>> {
        #[derive(Deserialize)]
        struct Object {
            metadata: Metadata,
        }
        #[derive(Deserialize)]
        struct Metadata {
            #[serde(default)]
            name: String,
            #[serde(default)]
            annotations: BTreeMap<String, String>,
        }
        let Object { metadata } = serde_json::from_str(object)?;
        let text = metadata.annotations.get(REPLICA_ACCESS);
        let said = match text {
            None => Err(format!("it has no annotation {REPLICA_ACCESS}")),
            Some(text) => Said::read(&metadata.name, text),
        };
        Ok(Some(Self { said }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aggregated::certificate::Made;

    fn made() -> (String, Said) {
        tls::install_provider();
        let now = "2026-01-01T00:00:00Z".parse().expect("a time");
        let made = Made::new(&["192.0.2.1".to_owned()].into(), now).expect("made");
        let said = Said {
            peer: HostPort::new("192.0.2.1", 1),
            service: HostPort::new("hub.example", 2),
            advertise: vec![HostPort::new("::1", 3)],
            ca_pem: made.ca_pem,
        };
        (made.id, said)
    }

    #[test]
    fn what_is_written_is_read_under_its_own_name_alone() {
        let ((id, said), (other, others)) = (made(), made());
        assert_ne!(id, other);
        assert_eq!(Said::read(&id, &said.written()), Ok(said.clone()));
        assert!(Said::read(&other, &said.written()).is_err());
        let two = Said {
            ca_pem: format!("{}{}", said.ca_pem, others.ca_pem),
            ..said.clone()
        };
        assert!(Said::read(&id, &two.written()).is_err());
        let nowhere = Said {
            advertise: Vec::new(),
            ..said
        };
        for bad in ["", "{}", "7", &nowhere.written()] {
            assert!(Said::read(&id, bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_lease_that_says_nothing_is_no_error_of_the_others() {
        let read = Replica::read(r#"{"metadata": {"name": "x"}}"#).expect("an object");
        assert!(read.expect("held").said.is_err());
    }
}
