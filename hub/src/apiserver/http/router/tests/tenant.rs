//! Somebody who may do everything in one namespace, on every path of every kind.

use super::*;
use crate::apiserver::scheme::Resource;
use std::collections::BTreeMap;

const METHODS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn root(kind: &Resource) -> String {
    match kind.group.as_ref() {
        "" => format!("/api/{}", kind.version),
        group => format!("/apis/{group}/{}", kind.version),
    }
}

/// Kinds that come while the server runs.
async fn define(rig: &Rig) {
    let mut changes = rig.running.router.parts().scheme.changes();
    for (plural, group, scope) in [
        ("things", "a.example", "Namespaced"),
        ("worlds", "a.example", "Cluster"),
        ("namespaces", "b.example", "Namespaced"),
        ("namespaces", "c.example", "Cluster"),
    ] {
        let kind = format!("X{}", &plural[1..]);
        let crd = json!({
            "metadata": {"name": format!("{plural}.{group}")},
            "spec": {"group": group, "scope": scope,
                "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                        "spec": {"type": "object"}, "status": {"type": "object"}}}}}]},
        });
        let (code, said) = rig.ask(&Peer::Itself, "POST", CRDS, &crd).await;
        assert_eq!(code, 201, "{said}");
        let path = format!("/apis/{group}/v1/{plural}");
        while rig.ask(&Peer::Itself, "GET", &path, &NONE).await.0 != 200 {
            changes.changed().await.expect("follows");
        }
    }
}

/// Everything that is kept outside of a namespace.
async fn outside(rig: &Rig, namespace: &str) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    for kind in rig.running.router.parts().scheme.all() {
        if !kind.verbs.iter().any(|verb| &**verb == "list") {
            continue;
        }
        let path = format!("{}/{}", root(&kind), kind.plural);
        let (code, list) = rig.ask(&Peer::Itself, "GET", &path, &NONE).await;
        assert_eq!(code, 200, "{path}: {list}");
        for object in list["items"].as_array().into_iter().flatten() {
            let metadata = &object["metadata"];
            if metadata["namespace"] != namespace && metadata["name"] != namespace {
                let name = format!("{path} {} {}", metadata["namespace"], metadata["name"]);
                all.insert(name, metadata["uid"].clone());
            }
        }
    }
    all
}

/// A body that a request of this method would be carried out with.
fn body(kind: &Resource, method: &str, name: &str) -> Value {
    match method {
        "POST" | "PUT" => json!({"apiVersion": kind.api_version(), "kind": *kind.kind,
            "metadata": {"name": name, "labels": {"tenant": "was-here"}}}),
        "PATCH" => json!({"metadata": {"labels": {"tenant": "was-here"}}}),
        _ => NONE,
    }
}

async fn ask(rig: &Rig, peer: &Peer, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let text = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let kind = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let headers = [(CONTENT_TYPE.as_str(), kind)];
    let answer = rig.send(peer, (method, path), &headers, text).await;
    let code = answer.status().as_u16();
    // A watch that was let in has no end of its own.
    if code == 200 && path.contains("/watch/") {
        return (code, NONE);
    }
    let bytes = answer.into_body().collect().await.expect("a body");
    let value = serde_json::from_slice(&bytes.to_bytes()).unwrap_or_default();
    (code, value)
}

#[tokio::test]
async fn who_has_one_namespace_reaches_nothing_else_by_any_path() {
    let rig = Rig::begin().await;
    define(&rig).await;
    for name in ["mine", "other"] {
        let namespace = json!({"metadata": {"name": name}});
        let made = rig.ask(&Peer::Itself, "POST", "/api/v1/namespaces", &namespace);
        assert_eq!(made.await.0, 201);
    }
    let map = json!({"metadata": {"name": "other"}, "data": {"a": "b"}});
    let maps = "/api/v1/namespaces/other/configmaps";
    assert_eq!(rig.ask(&Peer::Itself, "POST", maps, &map).await.0, 201);
    let binding = json!({
        "metadata": {"name": "tenant"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "tenant"}],
    });
    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/mine/rolebindings";
    let mut changes = rig.running.router.parts().authorizer.changes();
    assert_eq!(
        rig.ask(&Peer::Itself, "POST", bindings, &binding).await.0,
        201
    );
    let tenant = somebody("tenant", &[]);
    let mine = "/api/v1/namespaces/mine/configmaps";
    while rig.ask(&tenant, "GET", mine, &NONE).await.0 != 200 {
        changes.changed().await.expect("follows");
    }
    let before = outside(&rig, "mine").await;
    for kind in rig.running.router.parts().scheme.all() {
        let (root, plural) = (root(&kind), &kind.plural);
        let mut tails = vec![String::new(), "/other".to_owned()];
        let known = kind.subresources.iter().map(|sub| sub.name.as_ref());
        for sub in known.chain(["status", "finalize", "nothing"]) {
            tails.push(format!("/other/{sub}"));
        }
        for (tail, method) in tails
            .iter()
            .flat_map(|tail| METHODS.map(|method| (tail, method)))
        {
            let body = body(&kind, method, "other");
            for watch in ["", "/watch"] {
                let at = |place: &str| format!("{root}{watch}{place}/{plural}{tail}");
                // What is not theirs is forbidden, whether or not there is such a path.
                for place in ["", "/namespaces/other", "/namespaces/mine%2F..%2Fother"] {
                    let path = at(place);
                    let (code, said) = ask(&rig, &tenant, method, &path, &body).await;
                    // Everybody may ask about themselves.
                    let asks = method == "POST" && plural.starts_with("self") && code < 500;
                    assert!(
                        matches!(code, 403 | 404) || asks,
                        "{method} {path}: {code} {said}"
                    );
                }
                if kind.namespaced {
                    continue;
                }
                let path = at("/namespaces/mine");
                let (code, said) = ask(&rig, &tenant, method, &path, &body).await;
                assert_eq!(code, 404, "{method} {path}: {said}");
            }
        }
    }
    // What is theirs they have, and what is not is as it was.
    for (method, path, code) in [
        ("GET", "/api/v1/namespaces/mine", 200),
        ("GET", "/apis/a.example/v1/namespaces/mine/things", 200),
        ("GET", "/apis/b.example/v1/namespaces/mine/namespaces", 200),
        (
            "GET",
            "/apis/b.example/v1/namespaces/mine/namespaces/other",
            404,
        ),
        ("DELETE", "/api/v1/namespaces/mine", 200),
    ] {
        let (got, said) = rig.ask(&tenant, method, path, &NONE).await;
        assert_eq!(got, code, "{method} {path}: {said}");
    }
    // All of it is there; what is new is what the server makes in every namespace.
    let after = outside(&rig, "mine").await;
    for (name, uid) in &before {
        assert_eq!(after.get(name), Some(uid), "{name}");
    }
    let own = |name: &&String| {
        let own = ["\"default\"", "\"kube-root-ca.crt\""];
        name.contains("\"other\"") && own.iter().any(|own| name.ends_with(own))
    };
    let new = after.keys().filter(|name| !before.contains_key(*name));
    let new: Vec<&String> = new.filter(|name| !own(name)).collect();
    assert!(new.is_empty(), "{new:?}");
    let (_, other) = rig
        .ask(&Peer::Itself, "GET", "/api/v1/namespaces/other", &NONE)
        .await;
    assert_eq!(other["metadata"]["labels"]["tenant"], NONE);
    rig.running.end().await;
}
