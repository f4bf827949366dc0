//! Requests that must not be signed: subjects, encodings, surroundings, tokens.

use anyhow::Result;
use common::identity::AGENTS_GROUP;

use super::hub::{Draft, Hub, Outcome, TokenLimits, assert_code};
use super::request::{BMP, CN, O, OU, RequestBuilder, TestKey, UID, UTF8, pem};

/// Every wrong subject and encoding is denied by the hub, with a reason; the rightful request that
/// follows it, by the same token, is signed.
#[tokio::test(flavor = "multi_thread")]
async fn only_the_canonical_request_is_signed() -> Result<()> {
    let hub = Hub::start("attack-requests").await?;
    let key = TestKey::generate();
    let token = hub.token(TokenLimits::default()).await?;
    let good = || RequestBuilder::rightful(&key, "m1");
    let own = key.subject("m1").cluster_group();
    let of_m10 = key.subject("m10").cluster_group();
    let cn = "system:karmada:agent:m1";
    let utf16: Vec<u8> = cn.encode_utf16().flat_map(u16::to_be_bytes).collect();
    let mut bmp = good();
    bmp.rdns[0][0] = (CN, BMP, utf16);
    let mut trailing = good();
    trailing.trailing = vec![0x05, 0x00];
    let of = |name: &str, orgs: &[&str]| RequestBuilder::of(name, orgs).pem(&key);
    let text = good().pem(&key);
    let masters = of("admin", &["system:masters"]);
    let cases = [
        ("two CNs", good().and(CN, UTF8, b"admin").pem(&key)),
        (
            "two equal CNs",
            good().and(CN, UTF8, cn.as_bytes()).pem(&key),
        ),
        ("three Os", good().and(O, UTF8, b"system:masters").pem(&key)),
        ("OU", good().and(OU, UTF8, b"x").pem(&key)),
        ("UID", good().and(UID, UTF8, b"x").pem(&key)),
        ("BMPString", bmp.pem(&key)),
        ("SAN", good().with_dns_name("hub").pem(&key)),
        ("a second block", format!("{text}{masters}")),
        ("a second block first", format!("{masters}{text}")),
        ("junk after", format!("{text}junk\n")),
        ("trailing DER", trailing.pem(&key)),
        ("CN m1 with O of m10", of(cn, &[AGENTS_GROUP, &of_m10])),
        (
            "colon in the name",
            of("system:karmada:agent:m1:x", &[AGENTS_GROUP, &own]),
        ),
        (
            "dot in the name",
            of("system:karmada:agent:m1.x", &[AGENTS_GROUP, &own]),
        ),
        ("dot in the id", of(cn, &[AGENTS_GROUP, &format!("{own}.")])),
        (
            "the reserved name",
            of(
                "system:karmada:agent:rbac-generator",
                &[AGENTS_GROUP, &own.replace(":m1:", ":rbac-generator:")],
            ),
        ),
        ("another's registration", {
            let other = TestKey::generate().subject("m1").cluster_group();
            of(cn, &[AGENTS_GROUP, &other])
        }),
        ("masters", masters.clone()),
        ("without our organizations", of(cn, &["system:masters"])),
        (
            "mislabelled",
            pem("NEW CERTIFICATE REQUEST", &good().der(&key)),
        ),
    ];
    for (case, request) in cases {
        let draft = Draft::new(request);
        let client = hub.client_of(&token)?;
        match hub.ask(&client, &draft).await {
            Ok(name) => {
                hub.outcome(&name)
                    .await?
                    .assert_denied(case, "RequestNotAllowed");
            }
            // The API server itself reads the first block and refuses what it cannot.
            Err(kube::Error::Api(status)) => {
                assert!([400, 403, 422].contains(&status.code), "{case}: {status:?}");
            }
            Err(other) => return Err(other.into()),
        }
    }
    let mut usages = Draft::new(text.clone());
    usages.usages.push("server auth");
    hub.try_register(&token, &usages)
        .await?
        .assert_denied("server auth", "RequestNotAllowed");

    let mut twin = good();
    let last = twin.rdns.pop().unwrap_or_default();
    twin.rdns[1].extend(last);
    let twin = hub
        .try_register(&token, &Draft::new(twin.pem(&key)))
        .await?;
    assert!(
        matches!(twin, Outcome::Issued(_)),
        "both Os in one set: {twin:?}"
    );
    hub.stop().await
}

/// What the admission policy refuses before anybody judges it; the rightful twin passes.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_of_another_form_cannot_be_made() -> Result<()> {
    let hub = Hub::start("attack-forms").await?;
    let key = TestKey::generate();
    let token = hub.token(TokenLimits::default()).await?;
    let client = hub.client_of(&token)?;
    let good = Draft::new(RequestBuilder::rightful(&key, "m1").pem(&key));
    let edit = |edit: &dyn Fn(&mut Draft)| {
        let mut draft = good.clone();
        edit(&mut draft);
        draft
    };
    let cases = [
        ("a short name", edit(&|d| d.name = "towline-abc".into())),
        (
            "another name",
            edit(&|d| d.name = d.name.replace("towline-", "node-csr-")),
        ),
        ("no lifetime", edit(&|d| d.expiration_seconds = None)),
        (
            "a lifetime over the cap",
            edit(&|d| d.expiration_seconds = Some(7_776_001)),
        ),
        (
            "another signer",
            edit(&|d| d.signer = "example.com/signer".into()),
        ),
        (
            "a long cluster id",
            edit(&|d| d.cluster_id = Some("a".repeat(65))),
        ),
        (
            "labels",
            edit(&|d| d.labels = Some(serde_json::json!({"a": "b"}))),
        ),
        (
            "a long request",
            edit(&|d| d.request.push_str(&"\n".repeat(4096))),
        ),
    ];
    for (case, draft) in cases {
        assert_code(case, hub.ask(&client, &draft).await, 403);
    }
    let outcome = hub.try_register(&token, &good).await?;
    assert!(matches!(outcome, Outcome::Issued(_)), "{outcome:?}");
    hub.stop().await
}
