use super::*;
use common::time::{Clock, SharedClock};
use rcgen::{CertificateParams, DnType};
use std::sync::atomic::{AtomicUsize, Ordering};
use x509_parser::prelude::{FromDer as _, X509Certificate};

struct Fixed;
impl Clock for Fixed {
    fn now(&self) -> DateTime<Utc> {
        "2026-01-01T00:00:00Z".parse().expect("a time")
    }
}

fn csr(user: Option<&str>) -> String {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    if let Some(user) = user {
        params.distinguished_name.push(DnType::CommonName, user);
    }
    params
        .distinguished_name
        .push(DnType::OrganizationName, "group");
    let key = common::chance::secret::key_pair().expect("a key");
    let request = params.serialize_request(&key).expect("a request");
    pem("CERTIFICATE REQUEST", request.der())
}

fn request(text: &str, usages: &[&str], conditions: &[&str]) -> CertificateSigningRequest {
    let conditions: Vec<Value> = conditions
        .iter()
        .map(|kind| json!({"type": kind, "status": "True"}))
        .collect();
    serde_json::from_value(json!({
        "metadata": {"name": "r"},
        "spec": {"signerName": SIGNER, "request": STANDARD.encode(text), "usages": usages,
                 "expirationSeconds": 600},
        "status": {"conditions": conditions},
    }))
    .expect("a request")
}

fn keys() -> (tempfile::TempDir, Keys) {
    let dir = tempfile::tempdir().expect("a folder");
    let clock: SharedClock = Arc::new(Fixed);
    let keys = Keys::open(dir.path(), &clock).expect("made");
    (dir, keys)
}

const USAGES: [&str; 2] = ["digital signature", "client auth"];

#[test]
fn an_approved_request_is_signed_as_it_asks() {
    let (_dir, keys) = keys();
    let now = Fixed.now();
    let status = decide(
        &request(&csr(Some("u")), &USAGES, &["Approved"]),
        &keys,
        now,
    );
    let certificate = status.expect("settled")["certificate"].clone();
    let text = STANDARD
        .decode(certificate.as_str().expect("text"))
        .expect("base64");
    let der = common::tls::certificates(&text).expect("PEM");
    let (_, read) = X509Certificate::from_der(&der[0]).expect("a certificate");
    assert_eq!(read.subject().to_string(), "CN=u, O=group");
    let until = now + Duration::seconds(600);
    assert_eq!(read.validity().not_after.timestamp(), until.timestamp());
    assert!(keys.authorities().verify(&der[0], &[], now).is_ok());
}

#[test]
fn nothing_is_signed_that_is_not_approved_or_not_for_clients() {
    let (_dir, keys) = keys();
    let now = Fixed.now();
    let good = csr(Some("u"));
    for conditions in [
        &[][..],
        &["Denied"],
        &["Approved", "Denied"],
        &["Approved", "Failed"],
    ] {
        assert_eq!(
            decide(&request(&good, &USAGES, conditions), &keys, now),
            None
        );
    }
    let mut broken = csr(Some("u"));
    let middle = broken.len() - 60;
    let other = if &broken[middle..=middle] == "A" {
        "B"
    } else {
        "A"
    };
    broken.replace_range(middle..=middle, other);
    let usages = ["server auth", "client auth"];
    for (text, usages) in [
        (good.as_str(), &usages[..]),
        (good.as_str(), &[]),
        (csr(None).as_str(), &USAGES),
        (broken.as_str(), &USAGES),
        ("x", &USAGES),
    ] {
        let status = decide(&request(text, usages, &["Approved"]), &keys, now).expect("settled");
        assert_eq!(status["conditions"][1]["type"], "Failed", "{usages:?}");
    }
}

/// An API server with one approved request, which refuses the first writes as one whose disk is full.
fn full_disk(refusals: usize) -> (Client, Arc<AtomicUsize>) {
    let mut object = json!(request(&csr(Some("u")), &USAGES, &["Approved"]));
    object["apiVersion"] = json!("certificates.k8s.io/v1");
    object["kind"] = json!("CertificateSigningRequest");
    object["metadata"]["resourceVersion"] = json!("7");
    let writes = Arc::new(AtomicUsize::new(0));
    let counted = writes.clone();
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (mut object, counted) = (object.clone(), counted.clone());
        async move {
            let uri = request.uri().to_string();
            if uri.contains("watch=true") {
                std::future::pending::<()>().await;
            }
            let (code, body) = if request.method() == http::Method::PATCH {
                match counted.fetch_add(1, Ordering::SeqCst) {
                    before if before < refusals => (
                        507,
                        json!({"kind": "Status", "status": "Failure", "code": 507,
                            "reason": "InsufficientStorage", "message": "the disk is full"}),
                    ),
                    _ => (200, object),
                }
            } else if uri.contains("/r") && !uri.contains('?') {
                (200, object)
            } else {
                object["metadata"]["managedFields"] = Value::Null;
                (
                    200,
                    json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "7"},
                        "items": [object]}),
                )
            };
            let answer = http::Response::builder().status(code);
            let body = kube::client::Body::from(body.to_string().into_bytes());
            answer.body(body).map_err(std::io::Error::other)
        }
    });
    (Client::new(service, "default"), writes)
}

#[tokio::test(start_paused = true)]
async fn a_request_that_could_not_be_written_is_signed_later() {
    let (_dir, keys) = keys();
    let (client, writes) = full_disk(3);
    let env = Env::seeded(Arc::new(Fixed), 1);
    let signing = tokio::spawn(run(
        client,
        keys,
        env,
        Metrics::unread(),
        CancellationToken::new(),
    ));
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(60);
    while writes.load(Ordering::SeqCst) < 4 {
        assert!(
            tokio::time::Instant::now() < deadline,
            "{writes:?} writes: it was given up"
        );
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    signing.abort();
}
