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
fn wrong_subjects_are_denied() {
    let key = TestKey::generate();
    let good = || RequestBuilder::rightful(&key, "m1");
    let of = |name: &str, orgs: &[&str]| RequestBuilder::of(name, orgs);
    let cn = "system:karmada:agent:m1";
    let own = key.subject("m1").cluster_group();
    let own = own.as_str();
    let of_m10 = key.subject("m10").cluster_group();
    let other_key = TestKey::generate().subject("m1").cluster_group();
    let upper = own.to_uppercase();
    let dotted = own.replace(":m1:", ":m1.x:");
    let colon = format!("{own}:x");
    let utf16 = |text: &str| {
        text.encode_utf16()
            .flat_map(u16::to_be_bytes)
            .collect::<Vec<_>>()
    };
    let mut bmp = good();
    bmp.rdns[0][0] = (CN, BMP, utf16(cn));
    let mut ia5 = good();
    ia5.rdns[0][0].1 = IA5;
    let mut not_printable = good();
    not_printable.rdns[0][0] = (CN, PRINTABLE, b"system:karmada:agent:m1\0".to_vec());
    let mut not_utf8 = good();
    not_utf8.rdns[0][0].2.push(0xff);
    let mut empty_rdn = good();
    empty_rdn.rdns.push(Vec::new());
    let mut no_name = good();
    no_name.rdns.remove(0);

    let cases = [
        (
            "two CNs",
            good().and(CN, UTF8, cn.as_bytes()),
            "exactly one common name",
        ),
        (
            "two CNs, other last",
            good().and(CN, UTF8, b"admin"),
            "exactly one common name",
        ),
        ("no CN", no_name, "exactly one common name"),
        (
            "three Os",
            good().and(O, UTF8, b"system:masters"),
            "organizations",
        ),
        (
            "the same O twice",
            good().and(O, UTF8, own.as_bytes()),
            "organizations",
        ),
        ("one O", of(cn, &[AGENTS_GROUP]), "organizations"),
        (
            "OU",
            good().and(OU, UTF8, b"x"),
            "neither a common name nor an organization",
        ),
        (
            "UID",
            good().and(UID, UTF8, b"x"),
            "neither a common name nor an organization",
        ),
        (
            "BMPString",
            bmp,
            "neither a UTF8String nor a PrintableString",
        ),
        (
            "IA5String",
            ia5,
            "neither a UTF8String nor a PrintableString",
        ),
        (
            "NUL in a PrintableString",
            not_printable,
            "neither a UTF8String nor",
        ),
        ("not UTF-8", not_utf8, "neither a UTF8String nor"),
        ("an empty RDN", empty_rdn, "malformed"),
        (
            "CN m1 with O of m10",
            of(cn, &[AGENTS_GROUP, &of_m10]),
            "organizations",
        ),
        (
            "id of another key",
            of(cn, &[AGENTS_GROUP, &other_key]),
            "not that of its public key",
        ),
        (
            "id in upper case",
            of(cn, &[AGENTS_GROUP, &upper]),
            "organizations",
        ),
        (
            "dot in the O's name",
            of(cn, &[AGENTS_GROUP, &dotted]),
            "organizations",
        ),
        (
            "colon after the id",
            of(cn, &[AGENTS_GROUP, &colon]),
            "organizations",
        ),
        (
            "colon in the name",
            of("system:karmada:agent:m1:x", &[AGENTS_GROUP, own]),
            "lower case",
        ),
        (
            "dot in the name",
            of("system:karmada:agent:m1.x", &[AGENTS_GROUP, own]),
            "lower case",
        ),
        (
            "NUL in the name",
            of("system:karmada:agent:m1\0", &[AGENTS_GROUP, own]),
            "lower case",
        ),
        (
            "empty name",
            of("system:karmada:agent:", &[AGENTS_GROUP, own]),
            "empty",
        ),
        (
            "reserved name",
            RequestBuilder::of(
                "system:karmada:agent:rbac-generator",
                &[AGENTS_GROUP, &own.replace(":m1:", ":rbac-generator:")],
            ),
            "reserved",
        ),
        (
            "another user",
            of("system:node:n1", &["system:nodes"]),
            "not the user of an agent",
        ),
        (
            "masters",
            of("admin", &["system:masters"]),
            "not the user of an agent",
        ),
    ];
    for (case, builder, text) in cases {
        assert_denied(&Csr::by_token(builder.pem(&key)).judge(), case, text);
    }
}

#[test]
fn wrong_encodings_are_denied() {
    let key = TestKey::generate();
    let good = RequestBuilder::rightful(&key, "m1");
    let der = good.der(&key);
    let text = good.pem(&key);
    let other = RequestBuilder::of("admin", &["system:masters"]).pem(&key);
    let mut trailing = good.clone();
    trailing.trailing = vec![0x05, 0x00];
    let mut version = good.clone();
    version.version = 1;
    let mut stolen = good.clone();
    stolen.public_key = Some(TestKey::generate().spki());
    let mut long_length = tlv(0x30, &[&der[4..]]);
    // The same content behind a length in a longer form.
    long_length.splice(1..2, [0x83, 0x00]);
    let p256_compressed = {
        let mut spki = key.spki();
        let at = spki.len() - 65;
        spki[at] = 5;
        spki
    };
    let mut compressed = good.clone();
    compressed.public_key = Some(p256_compressed);
    let label = "CERTIFICATE REQUEST";

    let cases = [
        ("junk before", format!("junk\n{text}"), "PEM block"),
        ("junk after", format!("{text}junk\n"), "PEM block"),
        ("a second block", format!("{text}{other}"), "PEM block"),
        (
            "a second block first",
            format!("{other}{text}"),
            "PEM block",
        ),
        (
            "mislabelled",
            pem("NEW CERTIFICATE REQUEST", &der),
            "PEM block",
        ),
        (
            "mislabelled certificate",
            pem("CERTIFICATE", &der),
            "PEM block",
        ),
        (
            "a header",
            text.replacen("-----\n", "-----\nA: b\n\n", 1),
            "PEM block",
        ),
        ("CR LF", text.replace('\n', "\r\n"), "PEM block"),
        ("76 columns", pem_of_width(label, &der, 76), "PEM block"),
        (
            "no newline at the end",
            text.trim_end().to_owned(),
            "PEM block",
        ),
        (
            "spaces",
            text.replacen("-----\n", "-----\n ", 1),
            "PEM block",
        ),
        ("empty", String::new(), "PEM block"),
        ("trailing DER", trailing.pem(&key), "nothing may"),
        ("a long length", pem(label, &long_length), "shortest form"),
        ("version 1", version.pem(&key), "malformed"),
        (
            "SAN",
            good.clone().with_dns_name("hub").pem(&key),
            "no attributes",
        ),
        ("another's key", stolen.pem(&key), "signature"),
        (
            "a point in another form",
            compressed.pem(&key),
            "key must be",
        ),
    ];
    for (case, request, text) in cases {
        assert_denied(&Csr::by_token(request).judge(), case, text);
    }
}

#[test]
fn an_rsa_key_is_denied() {
    let key = TestKey::generate();
    let mut builder = RequestBuilder::rightful(&key, "m1");
    let algorithm = tlv(
        0x30,
        &[
            &tlv(
                0x06,
                &[&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01]],
            ),
            &[0x05, 0x00],
        ],
    );
    builder.public_key = Some(tlv(0x30, &[&algorithm, &tlv(0x03, &[&[0; 300]])]));
    assert_denied(
        &Csr::by_token(builder.pem(&key)).judge(),
        "RSA",
        "key must be",
    );
}

#[test]
fn wrong_surroundings_are_denied() {
    let key = TestKey::generate();
    let good = Csr::by_token(RequestBuilder::rightful(&key, "m1").pem(&key));
    let change = |edit: fn(&mut Csr)| {
        let mut csr = good.clone();
        edit(&mut csr);
        csr
    };
    let cap = CERTIFICATE_LIFETIME_CAP;
    assert_eq!(cap, 7_776_000);
    let cases = [
        (
            "no lifetime",
            change(|c| c.expiration_seconds = None),
            "lifetime",
        ),
        (
            "a day too long",
            change(|c| c.expiration_seconds = Some(7_862_400)),
            "lifetime",
        ),
        (
            "a second too long",
            change(|c| c.expiration_seconds = Some(7_776_001)),
            "lifetime",
        ),
        (
            "negative",
            change(|c| c.expiration_seconds = Some(-1)),
            "lifetime",
        ),
        (
            "server auth",
            change(|c| c.usages.push("server auth".into())),
            "usages",
        ),
        ("any", change(|c| c.usages = strings(&["any"])), "usages"),
        (
            "one usage",
            change(|c| c.usages = strings(&["client auth"])),
            "usages",
        ),
        ("no usages", change(|c| c.usages.clear()), "usages"),
        (
            "a short name",
            change(|c| c.name = "towline-abc".into()),
            "name must be",
        ),
        (
            "a dotted name",
            change(|c| c.name.push('.')),
            "name must be",
        ),
        (
            "another name",
            change(|c| c.name = format!("x{}", c.name)),
            "name must be",
        ),
        (
            "no cluster id",
            change(|c| c.cluster_id = None),
            "cluster-id",
        ),
        (
            "an empty cluster id",
            change(|c| c.cluster_id = Some(String::new())),
            "cluster-id",
        ),
        (
            "a long cluster id",
            change(|c| c.cluster_id = Some("a".repeat(65))),
            "cluster-id",
        ),
        (
            "a newline",
            change(|c| c.cluster_id = Some("a\nb".into())),
            "cluster-id",
        ),
        (
            "a long request",
            change(|c| c.request.resize(4097, b'\n')),
            "4097 bytes",
        ),
        (
            "a token that is an agent",
            change(|c| c.groups.push(AGENTS_GROUP.into())),
            "neither",
        ),
        (
            "no token id",
            change(|c| c.username = "system:bootstrap:".into()),
            "neither",
        ),
        (
            "no token",
            change(|c| c.username = "alice".into()),
            "neither",
        ),
    ];
    for (case, csr, text) in cases {
        assert_denied(&csr.judge(), case, text);
    }
    let mut lasting = good.clone();
    lasting.expiration_seconds = i32::try_from(cap).ok();
    lasting.usages.push(TOLERATED_USAGE.to_owned());
    assert!(matches!(lasting.judge(), Verdict::Bootstrap(_)));
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
