//! Builds certificate requests, rightful ones and every wrong one an attacker could send.
//!
//! Used by the judge's own tests and, by path, by the attack tests against a real control plane; so it
//! knows nothing of the judge.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use common::chance::secret;
use common::identity::{AgentSubject, RegistrationId};
use common::names::ClusterName;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};

pub(crate) const CN: &[u8] = &[0x55, 0x04, 0x03];
pub(crate) const O: &[u8] = &[0x55, 0x04, 0x0a];
pub(crate) const OU: &[u8] = &[0x55, 0x04, 0x0b];
/// 0.9.2342.19200300.100.1.1
pub(crate) const UID: &[u8] = &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 0x01, 0x01];
pub(crate) const UTF8: u8 = 0x0c;
pub(crate) const PRINTABLE: u8 = 0x13;
pub(crate) const IA5: u8 = 0x16;
pub(crate) const BMP: u8 = 0x1e;

/// An ECDSA P-256 key.
pub(crate) struct TestKey {
    pkcs8: Vec<u8>,
    pair: EcdsaKeyPair,
}

impl TestKey {
    pub(crate) fn generate() -> Self {
        let random = secret::system();
        let algorithm = &ECDSA_P256_SHA256_ASN1_SIGNING;
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("a key");
        let pkcs8 = pkcs8.as_ref().to_vec();
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, &pkcs8, &random).expect("a key");
        Self { pkcs8, pair }
    }

    /// SubjectPublicKeyInfo.
    pub(crate) fn spki(&self) -> Vec<u8> {
        let algorithm = [
            tlv(0x06, &[&[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01]]),
            tlv(0x06, &[&[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07]]),
        ];
        let algorithm = tlv(0x30, &[&algorithm[0], &algorithm[1]]);
        let point = tlv(0x03, &[&[0], self.pair.public_key().as_ref()]);
        tlv(0x30, &[&algorithm, &point])
    }

    pub(crate) fn registration(&self) -> RegistrationId {
        RegistrationId::of_public_key(&self.spki())
    }

    pub(crate) fn subject(&self, cluster: &str) -> AgentSubject {
        AgentSubject {
            cluster: ClusterName::parse(cluster).expect("a cluster name"),
            registration: self.registration(),
        }
    }

    pub(crate) fn private_pem(&self) -> String {
        pem("PRIVATE KEY", &self.pkcs8)
    }
}

/// One attribute of a subject: type, string tag, bytes.
pub(crate) type Attribute = (&'static [u8], u8, Vec<u8>);

/// A request; every part can be made wrong.
#[derive(Clone)]
pub(crate) struct RequestBuilder {
    pub(crate) rdns: Vec<Vec<Attribute>>,
    pub(crate) version: u8,
    /// Content of the attributes field.
    pub(crate) attributes: Vec<u8>,
    /// Bytes after the request, inside the PEM.
    pub(crate) trailing: Vec<u8>,
    /// Another key than the one that signs.
    pub(crate) public_key: Option<Vec<u8>>,
}

impl RequestBuilder {
    /// The rightful request of `key` for `cluster`.
    pub(crate) fn rightful(key: &TestKey, cluster: &str) -> Self {
        let subject = key.subject(cluster);
        let [agents, own] = subject.organizations();
        Self::of(&subject.common_name(), &[&agents, &own])
    }

    /// One RDN for the name and one for each organisation.
    pub(crate) fn of(common_name: &str, organizations: &[&str]) -> Self {
        let mut rdns = vec![vec![(CN, UTF8, common_name.as_bytes().to_vec())]];
        rdns.extend(
            organizations
                .iter()
                .map(|o| vec![(O, UTF8, o.as_bytes().to_vec())]),
        );
        Self {
            rdns,
            version: 0,
            attributes: Vec::new(),
            trailing: Vec::new(),
            public_key: None,
        }
    }

    pub(crate) fn and(mut self, kind: &'static [u8], tag: u8, value: &[u8]) -> Self {
        self.rdns.push(vec![(kind, tag, value.to_vec())]);
        self
    }

    /// Asks for a DNS name beside the subject.
    pub(crate) fn with_dns_name(mut self, name: &str) -> Self {
        let names = tlv(0x30, &[&tlv(0x82, &[name.as_bytes()])]);
        let extension = tlv(
            0x30,
            &[&tlv(0x06, &[&[0x55, 0x1d, 0x11]]), &tlv(0x04, &[&names])],
        );
        let extensions = tlv(0x31, &[&tlv(0x30, &[&extension])]);
        let request = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x0e];
        self.attributes = tlv(0x30, &[&tlv(0x06, &[&request]), &extensions]);
        self
    }

    /// Signs and encodes.
    pub(crate) fn der(&self, key: &TestKey) -> Vec<u8> {
        let rdns: Vec<Vec<u8>> = self.rdns.iter().map(|rdn| set(rdn)).collect();
        let name = tlv(0x30, &[&rdns.concat()]);
        let spki = self.public_key.clone().unwrap_or_else(|| key.spki());
        let attributes = tlv(0xa0, &[&self.attributes]);
        let info = tlv(
            0x30,
            &[&[0x02, 0x01, self.version], &name, &spki, &attributes],
        );
        let algorithm = tlv(
            0x30,
            &[&tlv(
                0x06,
                &[&[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02]],
            )],
        );
        let signature = key
            .pair
            .sign(&secret::system(), &info)
            .expect("a signature");
        let signature = tlv(0x03, &[&[0], signature.as_ref()]);
        let mut der = tlv(0x30, &[&info, &algorithm, &signature]);
        der.extend(&self.trailing);
        der
    }

    pub(crate) fn pem(&self, key: &TestKey) -> String {
        pem("CERTIFICATE REQUEST", &self.der(key))
    }
}

/// PEM of 64 columns and LF.
pub(crate) fn pem(label: &str, der: &[u8]) -> String {
    pem_of_width(label, der, 64)
}

pub(crate) fn pem_of_width(label: &str, der: &[u8], columns: usize) -> String {
    let text = STANDARD.encode(der);
    let lines = text
        .as_bytes()
        .chunks(columns)
        .map(|line| String::from_utf8_lossy(line) + "\n");
    format!(
        "-----BEGIN {label}-----\n{}-----END {label}-----\n",
        lines.collect::<String>()
    )
}

fn set(rdn: &[Attribute]) -> Vec<u8> {
    let attributes: Vec<Vec<u8>> = rdn
        .iter()
        .map(|(kind, tag, value)| tlv(0x30, &[&tlv(0x06, &[kind]), &tlv(*tag, &[value])]))
        .collect();
    tlv(0x31, &[&attributes.concat()])
}

/// Tag, length, value.
pub(crate) fn tlv(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let length = content.len().to_be_bytes();
    let first = length
        .iter()
        .position(|byte| *byte != 0)
        .unwrap_or(length.len() - 1);
    let length = &length[first..];
    let mut value = vec![tag];
    if content.len() > 0x7f {
        value.push(0x80 | u8::try_from(length.len()).expect("a short length"));
    }
    value.extend(length);
    value.extend(content);
    value
}
