mod denied;

use super::testing::{
    BMP, CN, IA5, O, OU, PRINTABLE, RequestBuilder, TestKey, UID, UTF8, pem, pem_of_width, tlv,
};
use super::*;
use proptest::prelude::*;

const NAME: &str = "towline-0123456789abcdefghijklmnopqrstuv";

/// An owned CSR whose parts a case changes.
#[derive(Clone)]
struct Csr {
    name: String,
    cluster_id: Option<String>,
    signer: String,
    expiration_seconds: Option<i32>,
    usages: Vec<String>,
    request: Vec<u8>,
    username: String,
    groups: Vec<String>,
}

impl Csr {
    fn by_token(request: impl Into<Vec<u8>>) -> Self {
        Self {
            name: NAME.to_owned(),
            cluster_id: Some("5f0c1f0e-93f5-4b2c-a8a5-7f9c0c3f2f11".to_owned()),
            signer: SIGNER.to_owned(),
            expiration_seconds: Some(3600),
            usages: strings(&["digital signature", "client auth"]),
            request: request.into(),
            username: "system:bootstrap:abcdef".to_owned(),
            groups: strings(&["system:bootstrappers", BOOTSTRAP_GROUP, AUTHENTICATED]),
        }
    }

    fn by_agent(agent: &AgentSubject, request: impl Into<Vec<u8>>) -> Self {
        let mut groups = agent.organizations().to_vec();
        groups.push(AUTHENTICATED.to_owned());
        Self {
            cluster_id: None,
            username: agent.common_name(),
            groups,
            ..Self::by_token(request)
        }
    }

    fn judge(&self) -> Verdict {
        judge(&CsrView {
            name: &self.name,
            cluster_id: self.cluster_id.as_deref(),
            signer: &self.signer,
            expiration_seconds: self.expiration_seconds,
            usages: &self.usages,
            request: &self.request,
            username: &self.username,
            groups: &self.groups,
        })
    }
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[track_caller]
fn assert_denied(verdict: &Verdict, case: &str, text: &str) {
    match verdict {
        Verdict::Deny(denial) => assert!(
            denial.message.contains(text),
            "{case}: denied with {:?}, not {text:?}",
            denial.message
        ),
        other => panic!("{case}: {other:?}"),
    }
}

#[test]
fn the_rightful_request_registers() {
    let key = TestKey::generate();
    let csr = Csr::by_token(RequestBuilder::rightful(&key, "m1").pem(&key));
    let Verdict::Bootstrap(request) = csr.judge() else {
        panic!("{:?}", csr.judge())
    };
    assert_eq!(request.subject, key.subject("m1"));
    assert_eq!(request.token_id, "abcdef");
    assert_eq!(Some(request.cluster_id), csr.cluster_id);
}

#[test]
fn both_organizations_in_one_set_are_the_same_request() {
    let key = TestKey::generate();
    let mut builder = RequestBuilder::rightful(&key, "m1");
    let last = builder.rdns.pop().expect("two organizations");
    builder.rdns[1].extend(last);
    builder.rdns.reverse();
    for attribute in builder.rdns.iter_mut().flatten() {
        attribute.1 = PRINTABLE;
    }
    let verdict = Csr::by_token(builder.pem(&key)).judge();
    assert!(matches!(verdict, Verdict::Bootstrap(_)), "{verdict:?}");
}

#[test]
fn a_request_of_rcgen_registers() {
    // The agent's own library; its key is made by it, so the id comes from its public key.
    use rcgen::{CertificateParams, DistinguishedName, DnType, PublicKeyData as _};
    let key = common::chance::secret::key_pair().expect("a key");
    let subject = AgentSubject {
        cluster: ClusterName::parse("m1").expect("valid"),
        registration: RegistrationId::of_public_key(&key.subject_public_key_info()),
    };
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let name = &mut params.distinguished_name;
    name.push(DnType::CommonName, subject.common_name());
    let [agents, own] = subject.organizations();
    name.push(DnType::OrganizationName, agents);
    name.push(DnType::CustomDnType(vec![2, 5, 4, 10]), own);
    let pem = params
        .serialize_request(&key)
        .expect("a request")
        .pem()
        .expect("PEM");
    let verdict = Csr::by_token(pem).judge();
    assert!(matches!(verdict, Verdict::Bootstrap(_)), "{verdict:?}");
}

#[test]
fn a_test_key_is_one_that_a_client_can_load() {
    use rcgen::PublicKeyData as _;
    let key = TestKey::generate();
    let loaded = rcgen::KeyPair::from_pem(&key.private_pem()).expect("PKCS #8");
    assert_eq!(loaded.subject_public_key_info(), key.spki());
}

#[test]
fn what_is_not_ours_is_ignored() {
    let key = TestKey::generate();
    let good = Csr::by_token(RequestBuilder::rightful(&key, "m1").pem(&key));
    let mut other_signer = good.clone();
    other_signer.signer = "kubernetes.io/kube-apiserver-client-kubelet".to_owned();
    assert_eq!(other_signer.judge(), Verdict::Ignore);
    let mut administrator = good.clone();
    administrator.username = "kubernetes-admin".to_owned();
    administrator.groups = strings(&["system:masters", AUTHENTICATED]);
    assert_eq!(administrator.judge(), Verdict::Ignore);
    let mut other_tokens = good;
    other_tokens.groups = strings(&["system:bootstrappers", AUTHENTICATED]);
    assert_eq!(other_tokens.judge(), Verdict::Ignore);
}

#[test]
fn a_token_of_karmadas_is_told_that_it_waits_in_vain() {
    let key = TestKey::generate();
    let mut karmadas = Csr::by_token(RequestBuilder::rightful(&key, "m1").pem(&key));
    let group = "system:bootstrappers:karmada:default-cluster-token";
    karmadas.groups = strings(&["system:bootstrappers", group, AUTHENTICATED]);
    assert_denied(&karmadas.judge(), "Karmada's token", "towline token create");
    // Who merely says so in a group is nobody's token.
    karmadas.username = "alice".to_owned();
    assert_eq!(karmadas.judge(), Verdict::Ignore);
}

#[test]
fn an_agent_renews_its_own_certificate_only() {
    let (old, new) = (TestKey::generate(), TestKey::generate());
    let agent = old.subject("m1");
    let [agents, own] = agent.organizations();
    // The next certificate may have another key; the registration stays that of the first.
    let request = RequestBuilder::of(&agent.common_name(), &[&agents, &own]);
    let renewal = Csr::by_agent(&agent, request.pem(&new));
    assert_eq!(renewal.judge(), Verdict::Renewal(agent.clone()));

    let m2 = old.subject("m2");
    let mut cases = Vec::new();
    cases.push(("another's name", Csr::by_agent(&m2, request.pem(&new))));
    let other = new.subject("m1");
    cases.push((
        "another registration",
        Csr::by_agent(&other, request.pem(&new)),
    ));
    let mut more = renewal.clone();
    more.groups.push("system:masters".to_owned());
    cases.push(("a caller with more groups", more));
    let mut fewer = renewal.clone();
    fewer.groups.retain(|group| group != AGENTS_GROUP);
    cases.push(("a caller with fewer groups", fewer));
    let mut impostor = renewal.clone();
    impostor.username = "system:karmada:agent:m2".to_owned();
    cases.push(("a caller of another name", impostor));
    for (case, csr) in cases {
        assert_denied(&csr.judge(), case, "only ask for its own");
    }
}

#[test]
fn an_issued_certificate_shows_its_subject() {
    let certificate = |common_name: &str, organizations: &[&str]| {
        let name = RequestBuilder::of(common_name, organizations);
        let key = TestKey::generate();
        // A request holds the name right after its version: reuse it as a certificate's subject.
        let request = name.der(&key);
        let mut outer = der::Reader::new(&request);
        let mut outer = der::enter(&mut outer, der::tag::SEQUENCE).expect("request");
        let mut info = der::enter(&mut outer, der::tag::SEQUENCE).expect("info");
        info.read(der::tag::INTEGER).expect("version");
        let subject = info.read(der::tag::SEQUENCE).expect("name").raw;
        let version = tlv(0xa0, &[&[0x02, 0x01, 0x02]]);
        let empty = tlv(0x30, &[]);
        let tbs = tlv(
            0x30,
            &[
                &version,
                &[0x02, 0x01, 0x07],
                &empty,
                &empty,
                &empty,
                subject,
            ],
        );
        pem(
            "CERTIFICATE",
            &tlv(0x30, &[&tbs, &empty, &[0x03, 0x01, 0x00]]),
        )
    };
    let agent = TestKey::generate().subject("m1");
    let [agents, own] = agent.organizations();
    let good = certificate(&agent.common_name(), &[&agents, &own]);
    assert_eq!(issued_subject(good.as_bytes()), Ok(agent.clone()));
    let chain = format!("{good}{good}");
    assert_eq!(issued_subject(chain.as_bytes()), Ok(agent.clone()));
    let masters = certificate(&agent.common_name(), &["system:masters"]);
    let refused = issued_subject(masters.as_bytes());
    assert!(
        matches!(refused, Err(NotOurCertificate::Subject { .. })),
        "{refused:?}"
    );
    assert_eq!(issued_subject(b"junk"), Err(NotOurCertificate::Pem));
}

proptest! {
    #[test]
    fn no_bytes_make_the_judge_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let request = pem("CERTIFICATE REQUEST", &bytes);
        let verdict = Csr::by_token(request).judge();
        prop_assert!(matches!(verdict, Verdict::Deny(_)));
        let _ = issued_subject(pem("CERTIFICATE", &bytes).as_bytes());
    }

    #[test]
    fn no_single_changed_byte_passes(at in 0usize..4000, to in any::<u8>()) {
        let key = TestKey::generate();
        let mut request = RequestBuilder::rightful(&key, "m1").pem(&key).into_bytes();
        let at = at % request.len();
        prop_assume!(request[at] != to);
        request[at] = to;
        prop_assert!(matches!(Csr::by_token(request).judge(), Verdict::Deny(_)));
    }
}
