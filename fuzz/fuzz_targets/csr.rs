//! A certificate request as bytes: what the judge says of it, and that the signer reads the same in it.
#![no_main]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, Utc};
use common::identity::{AGENTS_GROUP, SIGNER};
use common::time::{SharedClock, SimClock};
use hub::apiserver::authn::Peer;
use hub::apiserver::keys::{Keys, authority::pem};
use hub::apiserver::signer::{self, form};
use hub::approver::{CsrView, Verdict, issued_subject, judge};
use libfuzzer_sys::fuzz_target;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::json;
use std::sync::{Arc, LazyLock};

const NAME: &str = "towline-0123456789abcdef0123456789abcdef";
const MASTERS: &str = "system:masters";
const LABEL: &str = "CERTIFICATE REQUEST";
/// SubjectPublicKeyInfo of a P-256 key up to its point.
const SPKI: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

fn now() -> DateTime<Utc> {
    DateTime::from_timestamp(1_800_000_000, 0).expect("in range")
}

/// The keys of a hub, in memory once they are read.
static KEYS: LazyLock<Keys> = LazyLock::new(|| {
    let folder = std::env::temp_dir().join(format!("towline-fuzz-csr-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let clock: SharedClock = Arc::new(SimClock::starting_at(now()));
    let keys = Keys::open(&folder, &clock).expect("keys");
    std::fs::remove_dir_all(&folder).expect("a folder");
    keys
});

/// Signs requests, for those that mutation could never sign.
static HOLDER: LazyLock<EcdsaKeyPair> = LazyLock::new(|| {
    let (algorithm, random) = (&ECDSA_P256_SHA256_ASN1_SIGNING, SystemRandom::new());
    let made = EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("a key");
    EcdsaKeyPair::from_pkcs8(algorithm, made.as_ref(), &random).expect("a key")
});

fn tlv(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let mut value = vec![tag];
    match u8::try_from(content.len()) {
        Ok(short) if short < 0x80 => value.push(short),
        Ok(long) => value.extend([0x81, long]),
        Err(_) => {
            value.push(0x82);
            value.extend((content.len() as u16).to_be_bytes());
        }
    }
    value.extend(content);
    value
}

/// A request that is rightly signed, with this subject and these attributes.
fn signed(subject: &[u8], attributes: &[u8]) -> Vec<u8> {
    let info = tlv(
        0x30,
        &[
            &[2, 1, 0],
            subject,
            &SPKI,
            HOLDER.public_key().as_ref(),
            &tlv(0xa0, &[attributes]),
        ],
    );
    let id = tlv(6, &[&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2]]);
    let signature = HOLDER.sign(&SystemRandom::new(), &info).expect("signed");
    let signature = tlv(3, &[&[0], signature.as_ref()]);
    tlv(0x30, &[&info, &tlv(0x30, &[&id]), &signature])
}

/// Attributes of a name: one byte with type and form of string, one with the length, the text.
fn name(mut data: &[u8]) -> Vec<u8> {
    let mut rdns = Vec::new();
    while let [form, length, rest @ ..] = data {
        let (text, after) = rest.split_at(usize::from(*length).min(rest.len()));
        let kind = match form & 3 {
            0 => 3,
            1 | 2 => 10,
            _ => 11,
        };
        let string = [0x0c, 0x13, 0x16, 0x1e][usize::from(form >> 2 & 3)];
        let pair = tlv(0x30, &[&[6, 3, 0x55, 4, kind], &tlv(string, &[text])]);
        rdns.extend(tlv(0x31, &[&pair]));
        data = after;
    }
    tlv(0x30, &[&rdns])
}

// The first byte chooses how much of the request is made for the rest: nothing, its PEM, its signature,
// its subject too.
fuzz_target!(|data: &[u8]| {
    let Some((choice, rest)) = data.split_first() else {
        return;
    };
    if rest.len() > 4096 {
        return;
    }
    let (request, groups) = match choice & 3 {
        0 => (rest.to_vec(), choice >> 2),
        1 => (pem(LABEL, rest).into_bytes(), choice >> 2),
        2 => {
            let cut = rest
                .iter()
                .position(|byte| *byte == 0xff)
                .unwrap_or(rest.len());
            let (subject, attributes) = rest.split_at(cut);
            let attributes = attributes.get(1..).unwrap_or_default();
            (
                pem(LABEL, &signed(subject, attributes)).into_bytes(),
                choice >> 2,
            )
        }
        _ => (
            pem(LABEL, &signed(&name(rest), &[])).into_bytes(),
            choice >> 2,
        ),
    };
    let own = form::organizations(&request);
    let (username, groups) = if groups & 1 == 0 {
        let groups = vec!["system:bootstrappers:towline".to_owned()];
        ("system:bootstrap:abcdef".to_owned(), groups)
    } else {
        ("system:karmada:agent:m1".to_owned(), own.clone())
    };
    let usages = ["client auth".to_owned(), "digital signature".to_owned()];
    let view = CsrView {
        name: NAME,
        cluster_id: Some("c"),
        signer: SIGNER,
        expiration_seconds: Some(3600),
        usages: &usages,
        request: &request,
        username: &username,
        groups: &groups,
    };
    let verdict = judge(&view);
    assert_eq!(verdict, judge(&view));
    let _ = issued_subject(rest);

    let object = json!({
        "spec": {"signerName": SIGNER, "usages": usages, "request": STANDARD.encode(&request)},
        "status": {"conditions": [{"type": "Approved", "status": "True"}]},
    });
    let object = serde_json::from_value(object).expect("a request");
    let settled = signer::decide(&object, &KEYS, now()).expect("an approved one is settled");
    let certificate = settled["certificate"].as_str();
    let certificate = certificate.map(|text| STANDARD.decode(text).expect("base64"));
    let admitted = form::check(&request).is_ok();
    if let Verdict::Bootstrap(registration) = &verdict {
        let certificate = certificate.as_ref().expect("what is admitted is signed");
        assert!(admitted);
        // Two parsers read one request: the subject that was judged is the one that was certified.
        assert_eq!(
            issued_subject(certificate).as_ref(),
            Ok(&registration.subject)
        );
    }
    let Some(certificate) = certificate else {
        return;
    };
    let chain = common::tls::certificates(&certificate).expect("PEM");
    if let Some(Ok(caller)) = Peer::of(&chain, &KEYS.authorities(), now()).caller(now()) {
        assert_eq!(
            caller.is_in(MASTERS),
            own.iter().any(|group| group == MASTERS),
            "who is a master was seen to be one before"
        );
        let agent = caller.is_in(AGENTS_GROUP) && matches!(verdict, Verdict::Bootstrap(_));
        assert!(!agent || own.iter().any(|group| group == AGENTS_GROUP));
    }
});
