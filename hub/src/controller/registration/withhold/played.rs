//! An API server that holds what it is given, as far as rights and watches need one, and what it was asked.

use crate::epoch::WORKS_CRD;
use crate::permissions::{self, Registration};
use common::labels::{CLOSING_WATCHES, QUARANTINED_SINCE};
use common::lock::lock;
use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

const CLUSTERS: &str = "/apis/cluster.karmada.io/v1alpha1/clusters/";

/// The server; clones share it.
#[derive(Clone, Default)]
pub(crate) struct Played(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Value>,
    asked: Vec<&'static str>,
    refuses_statuses: bool,
    allows: bool,
}

impl Played {
    /// One that holds Cluster m1 with these annotations, and what carries the rights of `registration`.
    pub(crate) async fn holding(registration: &Registration, annotations: &Value) -> Self {
        let played = Self::default();
        let ensured = permissions::ensure(&played.client(), registration).await;
        assert_eq!(ensured.expect("they are written"), 7);
        let cluster = json!({
            "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
            "metadata": {"name": "m1", "uid": registration.cluster_uid, "resourceVersion": "7",
                "annotations": annotations},
            "spec": {"syncMode": "Pull"},
        });
        let mut state = lock(&played.0);
        state.objects.insert(format!("{CLUSTERS}m1"), cluster);
        state.asked.clear();
        drop(state);
        played
    }

    pub(crate) fn client(&self) -> Client {
        let played = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let played = played.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.expect("a body").to_bytes();
                let body = serde_json::from_slice(&body).unwrap_or_default();
                let (status, answer) =
                    lock(&played.0).answer(&parts.method, parts.uri.path(), &body);
                let mut response = http::Response::new(Body::from(answer.to_string().into_bytes()));
                *response.status_mut() = status;
                Ok::<_, std::io::Error>(response)
            }
        });
        Client::new(service, "default")
    }

    /// What was written since the last look that tells of rights and watches, in order, each as one word.
    pub(crate) fn asked(&self) -> Vec<&'static str> {
        std::mem::take(&mut lock(&self.0).asked)
    }

    /// From now on statuses are not taken, or are again.
    pub(crate) fn refuse_statuses(&self, refuses: bool) {
        lock(&self.0).refuses_statuses = refuses;
    }

    /// From now on whoever is asked about may watch Works, whatever the bindings say, or may not again.
    pub(crate) fn allow(&self, allows: bool) {
        lock(&self.0).allows = allows;
    }

    /// Somebody annotates m1.
    pub(crate) fn annotate(&self, annotations: &Value) {
        let mut state = lock(&self.0);
        let cluster = state.objects.get_mut(&format!("{CLUSTERS}m1"));
        let patch = json!({"metadata": {"annotations": annotations}});
        json_patch::merge(cluster.expect("there"), &patch);
    }

    /// m1 as it is.
    pub(crate) fn cluster(&self) -> Value {
        let state = lock(&self.0);
        state.objects[&format!("{CLUSTERS}m1")].clone()
    }
}

impl State {
    fn answer(&mut self, method: &Method, path: &str, body: &Value) -> (StatusCode, Value) {
        if let Some(word) = word(method, path, body) {
            self.asked.push(word);
        }
        // A watch that ends at once, and a definition of which nothing is looked at.
        if path.ends_with("/works") || path.ends_with(WORKS_CRD) {
            return (
                StatusCode::OK,
                json!({"metadata": {"resourceVersion": "1"}}),
            );
        }
        if path.ends_with("/subjectaccessreviews") {
            let status = json!({"allowed": self.allows});
            let answer = json!({"metadata": {}, "spec": {}, "status": status});
            return (StatusCode::CREATED, answer);
        }
        let refused = |status: StatusCode, reason: &str| {
            let answer = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "reason": reason, "message": "no", "code": status.as_u16()});
            (status, answer)
        };
        match *method {
            Method::POST => {
                let name = body["metadata"]["name"].as_str().unwrap_or_default();
                self.objects.insert(format!("{path}/{name}"), body.clone());
                (StatusCode::CREATED, body.clone())
            }
            Method::PUT => {
                self.objects.insert(path.to_owned(), body.clone());
                (StatusCode::OK, body.clone())
            }
            Method::PATCH if self.refuses_statuses && path.ends_with("/status") => {
                refused(StatusCode::UNPROCESSABLE_ENTITY, "Invalid")
            }
            _ => {
                let object = self.objects.get_mut(path.trim_end_matches("/status"));
                let Some(object) = object else {
                    return refused(StatusCode::NOT_FOUND, "NotFound");
                };
                if method == Method::PATCH {
                    json_patch::merge(object, body);
                }
                (StatusCode::OK, object.clone())
            }
        }
    }
}

fn word(method: &Method, path: &str, body: &Value) -> Option<&'static str> {
    let annotation = |key: &str| body["metadata"]["annotations"].get(key);
    let of_works = path.contains("/karmada-es-m1/rolebindings/");
    match (method, path.strip_prefix(CLUSTERS)) {
        (&Method::PATCH, Some("m1/status")) => Some("show"),
        (&Method::PATCH, Some("m1")) if annotation(QUARANTINED_SINCE).is_some() => Some("mark"),
        (&Method::PATCH, Some("m1")) => annotation(CLOSING_WATCHES).map(|noted| match noted {
            Value::Null => "forget",
            _ => "note",
        }),
        (&Method::PUT, _) if of_works => match body["subjects"].as_array() {
            Some(subjects) if !subjects.is_empty() => Some("bind"),
            _ => Some("unbind"),
        },
        (&Method::POST, _) if path.ends_with("/subjectaccessreviews") => Some("ask"),
        (&Method::PATCH, _) if path.ends_with(WORKS_CRD) => Some("close"),
        _ => None,
    }
}
