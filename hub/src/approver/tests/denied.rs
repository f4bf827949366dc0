//! Requests that are denied, and what is said.

use super::*;

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
