//! An API server that holds what it is given, as far as rights and watches need one, and what it was asked. As a real
//! one it takes no write over another version or another object than the one that is named.

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
use tokio_util::sync::CancellationToken;

const CLUSTERS: &str = "/apis/cluster.karmada.io/v1alpha1/clusters/";

/// The server; clones share it.
#[derive(Clone, Default)]
pub(crate) struct Played(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Value>,
    /// The last version.
    version: u64,
    asked: Vec<&'static str>,
    happens: Option<(&'static str, Happening)>,
    /// How many requests are answered until there is no hub any more.
    left: Option<usize>,
    refuses_statuses: bool,
    allows: bool,
}

/// What happens at a write.
#[derive(Clone)]
pub(crate) enum Happening {
    /// Somebody annotates m1 just before.
    Annotated(Value),
    /// It is not carried out.
    Cut,
    /// It is carried out, and the answer is lost.
    Lost,
    /// It has come, and waits until it may go on.
    Held {
        come: CancellationToken,
        go: CancellationToken,
    },
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
                let (status, answer) = played
                    .carry_out(&parts.method, parts.uri.path(), &body)
                    .await?;
                let mut response = http::Response::new(Body::from(answer.to_string().into_bytes()));
                *response.status_mut() = status;
                Ok::<_, std::io::Error>(response)
            }
        });
        Client::new(service, "default")
    }

    async fn carry_out(
        &self,
        method: &Method,
        path: &str,
        body: &Value,
    ) -> std::io::Result<(StatusCode, Value)> {
        let happens = lock(&self.0).comes(method, path, body)?;
        match &happens {
            Some(Happening::Annotated(annotations)) => self.annotate(annotations),
            Some(Happening::Cut) => return Err(std::io::Error::other("it was cut")),
            Some(Happening::Held { come, go }) => {
                come.cancel();
                go.cancelled().await;
            }
            Some(Happening::Lost) | None => {}
        }
        let answer = lock(&self.0).answer(method, path, body);
        match happens {
            Some(Happening::Lost) => Err(std::io::Error::other("the answer was lost")),
            _ => Ok(answer),
        }
    }

    /// What was written since the last look that tells of rights and watches, in order, each as one word.
    pub(crate) fn asked(&self) -> Vec<&'static str> {
        std::mem::take(&mut lock(&self.0).asked)
    }

    /// What happens when this is written next, once.
    pub(crate) fn at_next(&self, word: &'static str, happening: Happening) {
        lock(&self.0).happens = Some((word, happening));
    }

    /// So many requests are answered, and none after them; or all are again.
    pub(crate) fn answers(&self, most: Option<usize>) {
        lock(&self.0).left = most;
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
        self.write(&json!({"metadata": {"annotations": annotations}}));
    }

    /// Somebody writes m1.
    pub(crate) fn write(&self, patch: &Value) {
        let path = format!("{CLUSTERS}m1");
        let (status, _) = lock(&self.0).change(&Method::PATCH, &path, patch);
        assert_eq!(status, StatusCode::OK);
    }

    /// Its agent writes the Lease of m1.
    pub(crate) fn renew(&self, at: &str) {
        let path = "/apis/coordination.k8s.io/v1/namespaces/karmada-cluster/leases/m1";
        let patch = json!({"spec": {"renewTime": at}});
        let (status, _) = lock(&self.0).change(&Method::PATCH, path, &patch);
        assert_eq!(status, StatusCode::OK);
    }

    /// m1 as it is.
    pub(crate) fn cluster(&self) -> Value {
        let state = lock(&self.0);
        state.objects[&format!("{CLUSTERS}m1")].clone()
    }
}

impl State {
    /// A request has come: what happens at it.
    fn comes(
        &mut self,
        method: &Method,
        path: &str,
        body: &Value,
    ) -> std::io::Result<Option<Happening>> {
        if let Some(left) = &mut self.left {
            let more = left.checked_sub(1);
            *left = more.ok_or_else(|| std::io::Error::other("there is no hub any more"))?;
        }
        let Some(word) = word(method, path, body) else {
            return Ok(None);
        };
        self.asked.push(word);
        let happens = self.happens.take_if(|(at, _)| *at == word);
        Ok(happens.map(|(_, happening)| happening))
    }

    fn answer(&mut self, method: &Method, path: &str, body: &Value) -> (StatusCode, Value) {
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
        match *method {
            Method::POST => self.create(path, body),
            Method::PATCH if self.refuses_statuses && path.ends_with("/status") => {
                refused(StatusCode::UNPROCESSABLE_ENTITY, "Invalid")
            }
            Method::PUT | Method::PATCH => self.change(method, path, body),
            Method::DELETE => match self.objects.remove(path) {
                Some(object) => (StatusCode::OK, object),
                None => refused(StatusCode::NOT_FOUND, "NotFound"),
            },
            _ => match self.objects.get(path) {
                Some(object) => (StatusCode::OK, object.clone()),
                None => refused(StatusCode::NOT_FOUND, "NotFound"),
            },
        }
    }

    fn create(&mut self, path: &str, body: &Value) -> (StatusCode, Value) {
        let name = body["metadata"]["name"].as_str().unwrap_or_default();
        let path = format!("{path}/{name}");
        if self.objects.contains_key(&path) {
            return refused(StatusCode::CONFLICT, "AlreadyExists");
        }
        self.version += 1;
        let mut object = body.clone();
        object["metadata"]["uid"] = json!(format!("u{}", self.version));
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.objects.insert(path, object.clone());
        (StatusCode::CREATED, object)
    }

    fn change(&mut self, method: &Method, path: &str, body: &Value) -> (StatusCode, Value) {
        let Some(object) = self.objects.get_mut(path.trim_end_matches("/status")) else {
            return refused(StatusCode::NOT_FOUND, "NotFound");
        };
        let (given, held) = (&body["metadata"], &object["metadata"]);
        let is_other = |field: &str| given[field].is_string() && given[field] != held[field];
        if is_other("resourceVersion") {
            return refused(StatusCode::CONFLICT, "Conflict");
        }
        if is_other("uid") {
            // A uid does not change; one that is put has to be the one that is meant.
            return match *method {
                Method::PUT => refused(StatusCode::CONFLICT, "Conflict"),
                _ => refused(StatusCode::UNPROCESSABLE_ENTITY, "Invalid"),
            };
        }
        let mut changed = object.clone();
        if method == Method::PUT {
            changed.clone_from(body);
            for field in ["uid", "resourceVersion"] {
                changed["metadata"][field] = held[field].clone();
            }
        } else {
            json_patch::merge(&mut changed, body);
        }
        if changed != *object {
            self.version += 1;
            changed["metadata"]["resourceVersion"] = json!(self.version.to_string());
            *object = changed;
        }
        (StatusCode::OK, object.clone())
    }
}

fn refused(status: StatusCode, reason: &str) -> (StatusCode, Value) {
    let answer = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "reason": reason, "message": "no", "code": status.as_u16()});
    (status, answer)
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
        (&Method::DELETE, _) if of_works => Some("unbind"),
        (&Method::POST, _) if path.ends_with("/subjectaccessreviews") => Some("ask"),
        (&Method::PATCH, _) if path.ends_with(WORKS_CRD) => Some("close"),
        _ => None,
    }
}
