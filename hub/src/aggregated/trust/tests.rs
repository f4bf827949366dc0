//! Whose certificates are believed, each beside one that is not.

use super::*;
use common::names::ClusterName;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use serde_json::json;

type Ca = CertifiedIssuer<'static, KeyPair>;

const ORGANIZATION: &[u64] = &[2, 5, 4, 10];
const UNIT: &[u64] = &[2, 5, 4, 11];
const NAME: &[u64] = &[2, 5, 4, 3];

fn authority(name: &str) -> Ca {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, key()).expect("made")
}

fn now() -> DateTime<Utc> {
    "2026-01-01T00:00:00Z".parse().expect("a time")
}

fn key() -> KeyPair {
    common::chance::secret::key_pair().expect("a key")
}

/// A client certificate whose subject is these attributes.
fn client(ca: &Ca, subject: &[(&[u64], &str)]) -> Vec<CertificateDer<'static>> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    for (oid, value) in subject {
        // The library keeps one value of a kind: what comes twice has another spelling of it.
        let mut kind = DnType::CustomDnType(oid.to_vec());
        if params.distinguished_name.get(&kind).is_some() {
            kind = DnType::from_oid(oid);
        }
        params.distinguished_name.push(kind, *value);
    }
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let signed = params.signed_by(&key(), ca).expect("signed");
    vec![signed.der().clone()]
}

fn said(clients: &Ca, fronts: &Ca, names: &[&str]) -> BTreeMap<String, String> {
    let list = |names: &[&str]| json!(names).to_string();
    [
        ("client-ca-file", clients.pem()),
        ("requestheader-client-ca-file", fronts.pem()),
        ("requestheader-allowed-names", list(names)),
        ("requestheader-username-headers", list(&["X-Remote-User"])),
        ("requestheader-group-headers", list(&["X-Remote-Group"])),
        (
            "requestheader-extra-headers-prefix",
            list(&["X-Remote-Extra-"]),
        ),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into()
}

#[test]
fn a_front_proxy_has_its_authority_and_its_name() {
    let (clients, fronts) = (authority("clients"), authority("fronts"));
    let now = now();
    let only = Trust::parse(&said(&clients, &fronts, &["front"]), None).expect("usable");
    let front = |trust: &Trust, ca: &Ca, subject: &[(&[u64], &str)]| {
        trust.front(&client(ca, subject), now).is_ok()
    };
    assert!(front(&only, &fronts, &[(NAME, "front")]));
    assert!(!front(&only, &fronts, &[(NAME, "other")]));
    assert!(!front(&only, &fronts, &[(NAME, "other"), (NAME, "front")]));
    assert!(!front(&only, &fronts, &[(ORGANIZATION, "front")]));
    assert!(!front(&only, &clients, &[(NAME, "front")]));
    assert!(only.front(&[], now).is_err());
    let late = now + chrono::Duration::days(800_000);
    assert!(
        only.front(&client(&fronts, &[(NAME, "front")]), late)
            .is_err()
    );
    // Without names its authority is enough, unless it is that of everybody.
    let any = Trust::parse(&said(&clients, &fronts, &[]), None).expect("usable");
    assert!(front(&any, &fronts, &[(NAME, "other")]));
    assert!(!front(&any, &clients, &[(NAME, "other")]));
    let shared = Trust::parse(&said(&clients, &clients, &[]), None).err();
    assert!(shared.is_some_and(|why| why.contains("requestheader-allowed-names")));
    assert!(Trust::parse(&said(&clients, &clients, &["front"]), None).is_ok());
}

#[test]
fn an_agent_is_one_by_its_whole_subject() {
    let (clients, fronts) = (authority("clients"), authority("fronts"));
    let now = now();
    let trust = Trust::parse(&said(&clients, &fronts, &["front"]), None).expect("usable");
    let of = |cluster: &str| AgentSubject {
        cluster: ClusterName::parse(cluster).expect("a name"),
        registration: common::identity::RegistrationId::of_public_key(b"key"),
    };
    let (m1, m10) = (of("m1"), of("m10"));
    let (name, [agents, group]) = (m1.common_name(), m1.organizations());
    let agent = |ca: &Ca, subject: &[(&[u64], &str)]| {
        let judged = trust.agent(&client(ca, subject), now);
        judged.map(|(agent, _)| agent).ok()
    };
    let whole = [
        (NAME, name.as_str()),
        (ORGANIZATION, agents.as_str()),
        (ORGANIZATION, group.as_str()),
    ];
    assert_eq!(agent(&clients, &whole), Some(m1));
    assert_eq!(agent(&fronts, &whole), None, "another authority");
    let other = m10.cluster_group();
    for (why, subject) in [
        (
            "a group of another",
            vec![whole[0], whole[1], (ORGANIZATION, other.as_str())],
        ),
        ("one group", vec![whole[0], whole[2]]),
        (
            "a unit besides",
            vec![whole[0], whole[1], whole[2], (UNIT, "x")],
        ),
        ("no agent", vec![(NAME, "ann"), whole[1], whole[2]]),
        (
            "a second name",
            vec![whole[0], (NAME, "ann"), whole[1], whole[2]],
        ),
    ] {
        assert_eq!(agent(&clients, &subject), None, "{why}");
    }
}

#[test]
fn what_an_api_server_does_not_say_is_named() {
    let (clients, fronts) = (authority("clients"), authority("fronts"));
    let whole = said(&clients, &fronts, &["front"]);
    for (key, why) in [
        ("client-ca-file", "client-ca-file"),
        ("requestheader-client-ca-file", "--proxy-client-cert-file"),
        ("requestheader-username-headers", "no header"),
    ] {
        let mut less = whole.clone();
        less.remove(key);
        let error = Trust::parse(&less, None).err().expect("unusable");
        assert!(error.contains(why), "{key}: {error}");
        let mut junk = whole.clone();
        junk.insert(key.to_owned(), "junk".to_owned());
        assert!(Trust::parse(&junk, None).is_err(), "{key}");
    }
    let mut without = whole;
    without.remove("client-ca-file");
    assert!(Trust::parse(&without, Some(&clients.pem())).is_ok());
}
