//! Strangers with a bootstrap token that is good for one agent, or for another cluster: each asks for a certificate of a
//! cluster of its own.

use super::REQUESTS;
use crate::apiserver::http::Link;
use agent::registration::key;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use common::identity::{AgentSubject, SIGNER};
use common::labels::CLUSTER_ID;
use common::names::ClusterName;
use http::Request;
use http_body_util::Full;
use serde_json::json;

/// What they have.
pub(super) const TOKEN: &str = "stolen.0123456789abcdef";
/// How many agents it lets in.
pub(super) const USES: u32 = 1;
/// What those have from this number on: it is bound to the first member.
const BOUND: &str = "repla1.0123456789abcdef";
pub(super) const FIRST_BOUND: u8 = 10;

/// Asks once, over a connection on which no certificate is shown. What comes of it is told by the request itself.
pub(super) async fn ask(hub: Link, number: u8) {
    let name = format!("x{number}");
    let (key, registration) = key::generate().expect("a key");
    let subject = AgentSubject {
        cluster: ClusterName::parse(&name).expect("a name"),
        registration: registration.clone(),
    };
    let request = key::request(&key, &subject).expect("a request");
    let body = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": format!("towline-{}", registration.as_str()),
            "annotations": {CLUSTER_ID: format!("of-{name}")}},
        "spec": {"request": BASE64_STANDARD.encode(request), "signerName": SIGNER,
            "usages": ["digital signature", "client auth"], "expirationSeconds": 86_400}});
    let token = if number < FIRST_BOUND { TOKEN } else { BOUND };
    let request = Request::post(REQUESTS)
        .header("content-type", "application/json")
        .header("authorization", format!("Bearer {token}"))
        .body(Full::new(Bytes::from(body.to_string())));
    let Ok(answer) = tower::ServiceExt::oneshot(hub, request.expect("a request")).await;
    let status = answer.status().as_u16();
    // The hub may refuse whatever it can do nothing with now.
    assert!(
        status == 201 || status == 401 || status >= 500,
        "{name}: {status}"
    );
}
