//! Requests beyond the budget of whoever makes them, against an API server that is played.

use super::*;
use bytes::Bytes;
use common::identity::SIGNER;
use common::time::SystemClock;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use kube::client::Body;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;

const PATH: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests/";

/// What of requests was asked, by method and name; the names that start with `gone` are not there.
type Asked = Arc<Mutex<Vec<(Method, String)>>>;

fn played(user: &'static str, group: &'static str) -> (Client, Asked) {
    let asked = Asked::default();
    let noted = asked.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let name = request.uri().path().trim_start_matches(PATH).to_owned();
        let method = request.method().clone();
        noted
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((method, name.clone()));
        async move { Ok::<_, Infallible>(answer(&name, user, group)) }
    });
    (Client::new(service, "default"), asked)
}

fn answer(name: &str, user: &str, group: &str) -> Response<Full<Bytes>> {
    let (code, body) = if name.starts_with("gone") {
        let status: Value = json!({"kind": "Status", "apiVersion": "v1", "metadata": {},
            "status": "Failure", "reason": "NotFound", "code": 404, "message": "gone"});
        (StatusCode::NOT_FOUND, status)
    } else {
        // Denied already: there is nothing to decide.
        let object = json!({"kind": "CertificateSigningRequest", "apiVersion": "certificates.k8s.io/v1",
            "metadata": {"name": name, "uid": "u", "resourceVersion": "1"},
            "spec": {"request": "eA==", "signerName": SIGNER, "username": user, "groups": [group],
                "usages": ["client auth"]},
            "status": {"conditions": [{"type": "Denied", "status": "True"}]}});
        (StatusCode::OK, object)
    };
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
    *response.status_mut() = code;
    response
}

fn registrar(client: Client) -> Registrar {
    let (_, admitting) = signal::channel(true);
    Registrar::new(client, Arc::new(SystemClock), admitting, Index::default())
}

fn deleted(asked: &Asked) -> Vec<String> {
    let asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
    let deletions = asked.iter().filter(|(method, _)| method == Method::DELETE);
    deletions.map(|(_, name)| name.clone()).collect()
}

#[tokio::test]
async fn the_first_requests_of_an_agent_are_kept_and_those_beyond_its_budget_deleted() {
    let (client, asked) = played("system:karmada:agent:m1", "system:karmada:agents");
    let registrar = registrar(client);
    let names: Vec<String> = (0..25).map(|n| format!("towline-{n:032}")).collect();
    for name in &names {
        registrar
            .reconcile(&name.as_str().into())
            .await
            .expect("no error");
    }
    assert_eq!(deleted(&asked), names[20..]);
    // Those that are kept are not counted twice, and one that is gone makes room.
    registrar
        .reconcile(&names[0].as_str().into())
        .await
        .expect("no error");
    registrar
        .ledger()
        .put("gone", "system:karmada:agent:m1", State::Waiting);
    registrar.ledger().remove(&names[0]);
    registrar
        .reconcile(&names[20].as_str().into())
        .await
        .expect("no error");
    assert_eq!(deleted(&asked).len(), 6, "the budget is full");
    registrar.reconcile(&"gone".into()).await.expect("no error");
    registrar
        .reconcile(&names[20].as_str().into())
        .await
        .expect("no error");
    assert_eq!(deleted(&asked).len(), 6, "there is room");
}

#[tokio::test]
async fn requests_of_others_are_left_alone() {
    let (client, asked) = played("bob", "devs");
    let registrar = registrar(client);
    for n in 0..300 {
        let name = format!("towline-{n:032}");
        registrar
            .reconcile(&name.as_str().into())
            .await
            .expect("no error");
    }
    assert_eq!(deleted(&asked), Vec::<String>::new());
}
