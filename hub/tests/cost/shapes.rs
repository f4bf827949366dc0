//! Shapes of requests, each of any length.

#[path = "shapes/bodies.rs"]
mod bodies;
#[path = "shapes/built_in.rs"]
mod built_in;
#[path = "shapes/customs.rs"]
mod customs;
#[path = "shapes/metadatas.rs"]
mod metadatas;
#[path = "shapes/patches.rs"]
mod patches;
#[path = "shapes/questions.rs"]
mod questions;
#[path = "shapes/workloads.rs"]
mod workloads;

use super::bodies::object;
use serde_json::{Value, json};

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const JSON_PATCH: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

const CORE: &str = "/api/v1/namespaces/default";
const APPS: &str = "/apis/apps/v1/namespaces/default";
const WORK: &str = "/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-m1/works";
const RULED: &str = "/apis/a.example/v1/namespaces/default/ruled";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const CSR: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const CRD: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const AUTHORIZATION: &str = "/apis/authorization.k8s.io/v1";

/// A request.
pub(crate) struct Ask {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) headers: Vec<(&'static str, &'static str)>,
    pub(crate) body: Vec<u8>,
}

impl Ask {
    pub(crate) fn get(path: &str) -> Self {
        Self {
            method: "GET",
            path: path.to_owned(),
            headers: Vec::new(),
            body: Vec::new(),
        }
    }

    pub(crate) fn new(method: &'static str, path: &str, media: &str, body: Vec<u8>) -> Self {
        let known = [JSON, YAML, JSON_PATCH, MERGE, STRATEGIC, APPLY];
        let media = known.into_iter().find(|known| *known == media);
        Self {
            headers: vec![("content-type", media.unwrap_or(JSON))],
            body,
            method,
            ..Self::get(path)
        }
    }
}

/// A request whose length is chosen.
pub(crate) struct Shape {
    pub(crate) name: String,
    /// How many of what it is made of, at the most.
    pub(crate) count: usize,
    pub(crate) ask: Box<dyn Fn(usize) -> Ask>,
    /// What it is answered with, where that shows that it got as far as it should.
    pub(crate) code: Option<u16>,
}

/// What is there before.
pub(crate) fn objects() -> Vec<(&'static str, Value)> {
    let pod = json!({"containers": [{"name": "a", "image": "b"}]});
    let labels = json!({"a": "b"});
    let deployment = json!({"spec": {"selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod}}});
    let service = json!({"spec": {"ports": [{"port": 80}], "selector": labels}});
    let work = json!({"spec": {"workload": {"manifests": []}}});
    vec![
        (
            "/api/v1/namespaces",
            object("v1", "Namespace", "karmada-es-m1", json!({})),
        ),
        (
            "/api/v1/namespaces/default/configmaps",
            object("v1", "ConfigMap", "a", json!({})),
        ),
        (
            "/api/v1/namespaces/default/serviceaccounts",
            object("v1", "ServiceAccount", "default", json!({})),
        ),
        (
            "/api/v1/namespaces/default/services",
            object("v1", "Service", "a", service),
        ),
        ("/api/v1/nodes", object("v1", "Node", "a", json!({}))),
        (
            "/apis/apps/v1/namespaces/default/deployments",
            object("apps/v1", "Deployment", "a", deployment),
        ),
        (WORK, object("work.karmada.io/v1alpha1", "Work", "a", work)),
        (
            RULED,
            object("a.example/v1", "Ruled", "a", json!({"spec": {}})),
        ),
    ]
}

fn shape(
    name: &str,
    count: usize,
    code: impl Into<Option<u16>>,
    ask: impl Fn(usize) -> Ask + 'static,
) -> Shape {
    Shape {
        name: name.to_owned(),
        count,
        ask: Box::new(ask),
        code: code.into(),
    }
}

/// A dry run: what is measured three times is there once.
fn dry(path: &str) -> String {
    let more = if path.contains('?') { '&' } else { '?' };
    format!("{path}{more}dryRun=All&fieldManager=x")
}

fn post(path: &'static str, body: impl Fn(usize) -> Value + 'static) -> impl Fn(usize) -> Ask {
    move |n| Ask::new("POST", &dry(path), JSON, body(n).to_string().into_bytes())
}

fn patch(
    path: &'static str,
    media: &'static str,
    body: impl Fn(usize) -> Value + 'static,
) -> impl Fn(usize) -> Ask {
    move |n| Ask::new("PATCH", &dry(path), media, body(n).to_string().into_bytes())
}

fn yaml(text: impl Fn(usize) -> String + 'static) -> impl Fn(usize) -> Ask {
    move |n| {
        let path = dry(&format!("{CORE}/configmaps"));
        Ask::new("POST", &path, YAML, text(n).into_bytes())
    }
}

fn asked(path: impl Fn(usize) -> String + 'static) -> impl Fn(usize) -> Ask {
    move |n| Ask::get(&path(n))
}

fn map_of(data: Value) -> Value {
    object("v1", "ConfigMap", "b", json!({"data": data}))
}

fn metadata(more: Value) -> Value {
    object("v1", "ConfigMap", "b", json!({"metadata": more}))
}

fn pod(spec: Value) -> Value {
    object("v1", "Pod", "b", json!({"spec": spec}))
}

fn one_container(more: Value) -> Value {
    let mut container = json!({"name": "a", "image": "b"});
    for (key, value) in more.as_object().into_iter().flatten() {
        container[key] = value.clone();
    }
    pod(json!({"containers": [container]}))
}

fn ruled(key: &str, value: Value) -> Value {
    object("a.example/v1", "Ruled", "b", json!({"spec": {key: value}}))
}

fn work(conditions: Value) -> Value {
    json!([{"op": "add", "path": "/status", "value": {"conditions": conditions}}])
}

/// All of them.
pub(crate) fn all() -> Vec<Shape> {
    let mut all = bodies::all();
    all.extend(metadatas::all());
    all.extend(patches::all());
    all.extend(customs::all());
    all.extend(workloads::all());
    all.extend(built_in::all());
    all.extend(questions::all());
    all
}
