use super::*;
use crate::testing::{TestServer, handler, serve, server_config, text};
use crate::time::{SharedClock, SystemClock};
use crate::tls::testing::{authority, leaf, leaf_with};
use rcgen::{CertifiedIssuer, KeyPair};
use std::sync::Arc;

type Ca = CertifiedIssuer<'static, KeyPair>;

fn token() -> BootstrapToken {
    BootstrapToken::parse("abcdef.0123456789abcdef").expect("valid")
}

fn pin(ca: &Ca) -> CaPin {
    CaPin::of_pem(ca.pem().as_bytes()).expect("a CA").remove(0)
}

fn kubeconfig(bundle: &str) -> String {
    let data = BASE64_STANDARD.encode(bundle);
    format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: ''\n  cluster:\n    server: https://hub.test:6443\n    certificate-authority-data: {data}\n"
    )
}

/// A cluster-info with this bundle, signed by this token when there is one.
fn cluster_info(bundle: &str, signer: Option<&BootstrapToken>) -> String {
    let document = kubeconfig(bundle);
    let mut data = serde_json::json!({ "kubeconfig": document });
    if let Some(signer) = signer {
        let key = format!("jws-kubeconfig-{}", signer.id());
        data[key] = sign_jws(signer, data["kubeconfig"].as_str().expect("text")).into();
    }
    serde_json::json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": data }).to_string()
}

async fn hub(ca: &Ca, body: String) -> TestServer {
    hub_with(leaf(ca, &["127.0.0.1"]), 200, body).await
}

async fn hub_with(identity: (String, String), status: u16, body: String) -> TestServer {
    let answer = handler(move |request| {
        assert_eq!(
            request.uri().path(),
            "/api/v1/namespaces/kube-public/configmaps/cluster-info"
        );
        assert!(
            !request.headers().contains_key("authorization"),
            "the token stays here"
        );
        text(status, body.clone())
    });
    serve(server_config(&identity, true), answer).await
}

async fn run(servers: &[HostPort], pins: &[CaPin]) -> Result<VerifiedHub, Error> {
    run_at(Arc::new(SystemClock), servers, pins).await
}

async fn run_at(
    clock: SharedClock,
    servers: &[HostPort],
    pins: &[CaPin],
) -> Result<VerifiedHub, Error> {
    let proxy = ProxyChoice::direct();
    let env = Env::seeded(clock, 1);
    discover_within(Duration::ZERO, servers, &proxy, &token(), pins, &env).await
}

#[tokio::test]
async fn a_pinned_hub_with_a_signature_is_found() {
    let ca = authority("hub");
    let server = hub(&ca, cluster_info(&ca.pem(), Some(&token()))).await;
    let found = run(std::slice::from_ref(&server.address), &[pin(&ca)])
        .await
        .expect("verified");
    assert_eq!(CaPin::of_pem(&found.ca_pem).expect("CAs"), [pin(&ca)]);
    let advertised = HostPort::parse("hub.test:6443").expect("valid");
    assert_eq!(
        found.servers(std::slice::from_ref(&server.address)),
        [server.address.clone(), advertised]
    );
}

#[tokio::test]
async fn of_a_mixed_bundle_only_pinned_authorities_are_kept() {
    let (ca, other) = (authority("hub"), authority("attacker"));
    let bundle = other.pem() + &ca.pem();
    let server = hub(&ca, cluster_info(&bundle, Some(&token()))).await;
    let found = run(std::slice::from_ref(&server.address), &[pin(&ca)])
        .await
        .expect("verified");
    assert_eq!(CaPin::of_pem(&found.ca_pem).expect("CAs"), [pin(&ca)]);

    // The same bundle served under the other CA's certificate hands nothing over.
    let server = hub(&other, cluster_info(&bundle, Some(&token()))).await;
    let error = run(std::slice::from_ref(&server.address), &[pin(&ca)])
        .await
        .expect_err("foreign");
    assert!(
        matches!(&error, Error::ForeignIssuer { issuer, .. } if issuer == "CN=attacker"),
        "{error}"
    );
}

#[tokio::test]
async fn a_valid_signature_over_another_authority_is_a_pin_mismatch() {
    let (ca, other) = (authority("hub"), authority("attacker"));
    let server = hub(&other, cluster_info(&other.pem(), Some(&token()))).await;
    let error = run(std::slice::from_ref(&server.address), &[pin(&ca)])
        .await
        .expect_err("not pinned");
    assert!(
        matches!(&error, Error::PinMismatch { found, .. } if *found == [pin(&other)]),
        "{error}"
    );
}

#[tokio::test]
async fn a_pinned_leaf_is_no_authority() {
    let ca = authority("hub");
    let identity = leaf(&ca, &["127.0.0.1"]);
    let own = CaPin::of_pem(identity.0.as_bytes()).expect("a leaf");
    let body = cluster_info(&identity.0, Some(&token()));
    let server = hub_with(identity, 200, body).await;
    let error = run(std::slice::from_ref(&server.address), &own)
        .await
        .expect_err("a leaf");
    assert!(matches!(error, Error::PinMismatch { .. }), "{error}");
}

#[tokio::test]
async fn a_missing_signature_is_said_to_be_missing() {
    let ca = authority("hub");
    let other = BootstrapToken::parse("zzzzzz.0123456789abcdef").expect("valid");
    let server = hub(&ca, cluster_info(&ca.pem(), Some(&other))).await;
    let error = run(std::slice::from_ref(&server.address), &[pin(&ca)])
        .await
        .expect_err("no signature");
    assert!(
        matches!(&error, Error::JwsMissing { token_id, .. } if token_id == "abcdef"),
        "{error}"
    );
    assert!(!error.to_string().contains("0123456789abcdef"));
}

#[tokio::test]
async fn a_signature_by_another_secret_is_refused_before_anything_is_read() {
    let ca = authority("hub");
    let forger = BootstrapToken::parse("abcdef.fedcba9876543210").expect("valid");
    // Not even YAML: were it read before the signature is judged, the error would be another.
    let document = "\u{7f}: [";
    let body = serde_json::json!({
        "data": { "kubeconfig": document, "jws-kubeconfig-abcdef": sign_jws(&forger, document) }
    });
    let server = hub(&ca, body.to_string()).await;
    let error = run(std::slice::from_ref(&server.address), &[pin(&ca)])
        .await
        .expect_err("forged");
    assert!(matches!(error, Error::JwsInvalid { .. }), "{error}");
}

#[tokio::test]
async fn a_clock_that_is_wrong_is_named() {
    let ca = authority("hub");
    let identity = leaf_with(&ca, &["127.0.0.1"], |params| {
        params.not_after = rcgen::date_time_ymd(2021, 1, 1);
    });
    let body = cluster_info(&ca.pem(), Some(&token()));
    let server = hub_with(identity, 200, body).await;
    let error = run(std::slice::from_ref(&server.address), &[pin(&ca)])
        .await
        .expect_err("expired");
    assert!(
        matches!(
            &error,
            Error::ClockSkew {
                problem: PeerProblem::Expired { .. },
                hub_time_shown: Some(_),
                ..
            }
        ),
        "{error}"
    );
    let then = DateTime::from_timestamp(1_600_000_000, 0).expect("in range");
    let clock = Arc::new(crate::time::SimClock::starting_at(then));
    let found = run_at(clock, std::slice::from_ref(&server.address), &[pin(&ca)]).await;
    let found = found.expect("valid by that clock");
    assert!(found.clock_ahead > TimeDelta::days(365));
}

#[tokio::test]
async fn a_certificate_for_other_names_is_said_to_be_one() {
    let ca = authority("hub");
    let body = cluster_info(&ca.pem(), Some(&token()));
    let server = hub_with(leaf(&ca, &["hub.test"]), 200, body).await;
    let error = run(std::slice::from_ref(&server.address), &[pin(&ca)])
        .await
        .expect_err("wrong name");
    assert!(matches!(error, Error::WrongName { .. }), "{error}");
    assert!(error.to_string().contains("hub.test"), "{error}");
}

#[tokio::test]
async fn what_is_no_hub_is_said_to_be_none_and_redirects_are_not_followed() {
    let ca = authority("Portal");
    for (status, body) in [
        (200, "<html>"),
        (302, ""),
        (401, "{}"),
        (403, "{}"),
        (404, "{}"),
    ] {
        let server = hub_with(leaf(&ca, &["127.0.0.1"]), status, body.to_owned()).await;
        let error = run(std::slice::from_ref(&server.address), &[pin(&ca)])
            .await
            .expect_err("no hub");
        assert!(
            matches!(&error, Error::NotAHub { issuer, .. } if issuer == "CN=Portal"),
            "{status}: {error}"
        );
    }
}

#[tokio::test]
async fn every_address_is_tried_and_each_reason_told() {
    let ca = authority("hub");
    let free = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let refused = HostPort::new("127.0.0.1", free.local_addr().expect("bound").port());
    drop(free);
    let unknown = HostPort::new("no-such-host.invalid", 6443);
    let error = run(&[refused.clone(), unknown.clone()], &[pin(&ca)])
        .await
        .expect_err("none");
    let Error::Unreachable { attempts } = &error else {
        unreachable!("{error}")
    };
    assert!(
        matches!(attempts[0].problem, Problem::Refused { .. }),
        "{error}"
    );
    assert!(
        matches!(attempts[1].problem, Problem::Dns { .. }),
        "{error}"
    );
    let server = hub(&ca, cluster_info(&ca.pem(), Some(&token()))).await;
    run(&[refused, unknown, server.address.clone()], &[pin(&ca)])
        .await
        .expect("the last one");
}

#[test]
fn every_address_of_cluster_info_is_read() {
    let ca = authority("hub");
    let data = BASE64_STANDARD.encode(ca.pem());
    let document = serde_json::json!({"clusters": [{"name": "", "cluster": {
        "server": "https://hub.test:6443",
        "certificate-authority-data": data,
        "extensions": [
            {"name": "somebody.else", "extension": 7},
            {"name": SERVERS_EXTENSION, "extension": {
                "servers": ["https://hub.test:6443", "https://[fd00::1]:443"],
            }},
        ],
    }}]});
    let info = ClusterInfo::parse(&document.to_string()).expect("cluster-info");
    let servers: Vec<String> = info.servers.iter().map(ToString::to_string).collect();
    assert_eq!(servers, ["hub.test:6443", "[fd00::1]:443"]);
}

#[tokio::test]
async fn whoever_looks_without_a_token_is_told_of_a_wrong_pin() {
    let (ca, other) = (authority("hub"), authority("attacker"));
    let server = hub(&ca, cluster_info(&ca.pem(), None)).await;
    let proxy = ProxyChoice::direct();
    let look = async |pins: &[CaPin]| look(&server.address, &proxy, pins, &Env::system()).await;
    assert_eq!(look(&[pin(&ca)]).await.expect("verified"), [pin(&ca)]);
    assert_eq!(look(&[]).await.expect("served"), [pin(&ca)]);
    let error = look(&[pin(&other)]).await.expect_err("another's pin");
    assert!(
        matches!(&error, Error::PinMismatch { found, .. } if *found == [pin(&ca)]),
        "{error}"
    );

    // Who shows the hub's public document under a certificate of its own is no hub.
    let server = hub(&other, cluster_info(&ca.pem(), None)).await;
    let error = super::look(&server.address, &proxy, &[pin(&ca)], &Env::system()).await;
    let error = error.expect_err("foreign");
    assert!(matches!(error, Error::ForeignIssuer { .. }), "{error}");
}
