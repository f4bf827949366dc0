//! A whole server for tests of what it takes and refuses.

use crate::apiserver::audit::Audit;
use crate::apiserver::authn::Peer;
use crate::apiserver::http::Link;
use crate::apiserver::keys::Keys;
use crate::apiserver::serve::{Assembled, Foundation};
use crate::apiserver::store::{self, MemoryDisk, Store};
use bytes::Bytes;
use common::admin::AdminState;
use common::env::Env;
use common::time::SimClock;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use std::sync::Arc;
use tempfile::TempDir;
use tower::ServiceExt as _;

/// A server in this process, with the kinds of a hub and two of somebody's own.
pub(super) struct Host {
    server: Assembled,
    link: Link,
    _dir: TempDir,
}

impl Host {
    pub(super) async fn begin() -> Self {
        common::tls::install_provider();
        let dir = tempfile::tempdir().expect("a folder");
        let clock = SimClock::starting_at("2026-01-01T00:00:00Z".parse().expect("a time"));
        let env = Env::seeded(Arc::new(clock), 1);
        let opened = Store::simulated(&MemoryDisk::default(), store::Options::default());
        let (store, writer) = opened.expect("opens");
        tokio::spawn(writer);
        let foundation = Foundation {
            store,
            keys: Keys::open(dir.path(), &env.clock).expect("keys"),
            audit: Audit::default(),
            data_dir: dir.path().to_owned(),
            address: "hub:6443".to_owned(),
            busy: None,
            admin: AdminState::default(),
            env,
        };
        let server = Assembled::new(foundation).await.expect("a server");
        let link = server.router.link_of(Peer::Itself);
        let host = Self {
            server,
            link,
            _dir: dir,
        };
        let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let ours = crate::install::crds::desired();
        let mut all: Vec<Value> = ours.iter().map(|crd| crd.value().clone()).collect();
        all.extend([
            crd("widgets", "Widget", "Namespaced"),
            crd("gadgets", "Gadget", "Cluster"),
        ]);
        for crd in all {
            let (code, answer) = host.ask("POST", crds, "application/json", &crd).await;
            assert!(code == 201 || code == 409, "{answer}");
        }
        host
    }

    /// The code and the object of an answer.
    pub(super) async fn ask(
        &self,
        method: &str,
        path: &str,
        media: &str,
        body: &Value,
    ) -> (u16, Value) {
        let body = match body {
            Value::Null => Bytes::new(),
            body => body.to_string().into(),
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", media);
        let request = request.body(Full::new(body)).expect("a request");
        let Ok(answer) = self.link.clone().oneshot(request).await;
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await.expect("a body");
        let body = serde_json::from_slice(&body.to_bytes());
        (code, body.unwrap_or_default())
    }

    pub(super) async fn end(self) {
        self.server.end().await;
    }

    /// The answer to one action of a scenario.
    pub(super) async fn act(&self, namespace: &str, action: &Value) -> (u16, Value) {
        let json = "application/json";
        if let Some(object) = action.get("create") {
            let kind = object["kind"].as_str().expect("a kind");
            return self
                .ask("POST", &path(kind, namespace, ""), json, object)
                .await;
        }
        let named = |verb: &str| {
            let (kind, name) = action[verb].as_str()?.split_once('/')?;
            Some(path(kind, namespace, &format!("/{name}")))
        };
        if let Some(path) = named("patch") {
            let merge = "application/merge-patch+json";
            return self.ask("PATCH", &path, merge, &action["with"]).await;
        }
        let path = named("delete").unwrap_or_else(|| panic!("{action} is unknown"));
        self.ask("DELETE", &path, json, &Value::Null).await
    }
}

fn crd(plural: &str, kind: &str, scope: &str) -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.example.org")},
        "spec": {
            "group": "example.org", "scope": scope,
            "names": {"plural": plural, "kind": kind},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
            }],
        },
    })
}

/// Where objects of a kind are; `rest` follows.
pub(super) fn path(kind: &str, namespace: &str, rest: &str) -> String {
    const POLICY: &str = "/apis/policy.karmada.io/v1alpha1";
    const CONFIG: &str = "/apis/config.karmada.io/v1alpha1";
    let (prefix, plural, namespaced) = match kind {
        "ConfigMap" => ("/api/v1", "configmaps", true),
        "Deployment" => ("/apis/apps/v1", "deployments", true),
        "Widget" => ("/apis/example.org/v1", "widgets", true),
        "Gadget" => ("/apis/example.org/v1", "gadgets", false),
        "PropagationPolicy" => (POLICY, "propagationpolicies", true),
        "ClusterPropagationPolicy" => (POLICY, "clusterpropagationpolicies", false),
        "OverridePolicy" => (POLICY, "overridepolicies", true),
        "ClusterOverridePolicy" => (POLICY, "clusteroverridepolicies", false),
        "ClusterTaintPolicy" => (POLICY, "clustertaintpolicies", false),
        "ResourceBinding" => ("/apis/work.karmada.io/v1alpha2", "resourcebindings", true),
        "Work" => ("/apis/work.karmada.io/v1alpha1", "works", true),
        "Cluster" => ("/apis/cluster.karmada.io/v1alpha1", "clusters", false),
        "ResourceInterpreterCustomization" => (CONFIG, "resourceinterpretercustomizations", false),
        "ResourceInterpreterWebhookConfiguration" => {
            (CONFIG, "resourceinterpreterwebhookconfigurations", false)
        }
        other => panic!("{other} has no path"),
    };
    if namespaced {
        format!("{prefix}/namespaces/{namespace}/{plural}{rest}")
    } else {
        format!("{prefix}/{plural}{rest}")
    }
}
