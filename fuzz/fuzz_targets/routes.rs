//! A request line as bytes, on every kind that its path may mean: where it is judged, it is carried out.
#![no_main]

use http::Method;
use hub::apiserver::http::route::{Place, route};
use hub::apiserver::request::{Query, RequestInfo};
use hub::apiserver::scheme::{Resource, Scheme};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};
use std::sync::{Arc, LazyLock};

const METHODS: [Method; 6] = [
    Method::GET,
    Method::HEAD,
    Method::POST,
    Method::PUT,
    Method::PATCH,
    Method::DELETE,
];

/// All built-in kinds, and custom ones whose names a path can be misread by.
static KINDS: LazyLock<Scheme> = LazyLock::new(|| {
    let scheme = Scheme::new();
    let crds = [
        crd("things", "a.io", "Namespaced"),
        crd("worlds", "a.io", "Cluster"),
        crd("namespaces", "b.io", "Namespaced"),
        crd("namespaces", "c.io", "Cluster"),
        crd("watch", "c.io", "Cluster"),
    ];
    let served = crds.iter().map(|one| scheme.read(one)).collect();
    scheme.serve(served);
    scheme
});

fn crd(plural: &str, group: &str, scope: &str) -> Value {
    let kind = format!("K{plural}");
    json!({"metadata": {"name": format!("{plural}.{group}")},
        "spec": {"group": group, "scope": scope, "names": {"plural": plural, "kind": kind},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object"}}}]},
        "status": {"conditions": [{"type": "Established", "status": "True"}],
            "acceptedNames": {"plural": plural, "kind": kind}}})
}

fuzz_target!(|data: &[u8]| {
    let Ok(target) = std::str::from_utf8(data) else {
        return;
    };
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    let query = Query::read(query);
    for method in &METHODS {
        let Ok(info) = RequestInfo::read(method, path, &query) else {
            continue;
        };
        let found = KINDS.resource(&info.group, &info.version, &info.resource);
        if let Some(kind) = found.filter(|_| info.is_resource) {
            judged_is_carried_out(&info, method, &kind);
        }
    }
});

fn judged_is_carried_out(info: &RequestInfo, method: &Method, kind: &Arc<Resource>) {
    let Ok(route) = route(info, method, kind) else {
        return;
    };
    let itself = &*kind.storage_key == "/namespaces" && info.name == info.namespace;
    let same = match route.place {
        Place::In(namespace) => kind.namespaced && namespace == info.namespace,
        Place::Everywhere => kind.namespaced && info.namespace.is_empty(),
        Place::Cluster => !kind.namespaced && (info.namespace.is_empty() || itself),
    };
    assert!(same, "{route:?} of {info:?}");
    assert!(
        route.name.is_empty() || route.name == info.name,
        "{route:?} of {info:?}"
    );
    assert_eq!(route.subresource, info.subresource);
}
