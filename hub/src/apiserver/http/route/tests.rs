use super::*;
use crate::apiserver::request::Query;
use crate::apiserver::scheme::Scheme;
use serde_json::{Value, json};

const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

fn crd(plural: &str, group: &str, scope: &str) -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    json!({"metadata": {"name": format!("{plural}.{group}")},
        "spec": {"group": group, "scope": scope,
            "names": {"plural": plural, "kind": format!("K{plural}")},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema,
                          "subresources": {"status": {}}}]},
        "status": {"conditions": [{"type": "Established", "status": "True"}],
                   "acceptedNames": {"plural": plural, "kind": format!("K{plural}")}}})
}

/// Every kind there is, and custom ones with names that a path can be misread by.
fn kinds() -> Vec<Arc<Resource>> {
    let scheme = Scheme::new();
    let crds = [
        crd("things", "a.example", "Namespaced"),
        crd("worlds", "a.example", "Cluster"),
        crd("namespaces", "b.example", "Namespaced"),
        crd("namespaces", "c.example", "Cluster"),
        crd("status", "d.example", "Cluster"),
        crd("watch", "e.example", "Cluster"),
    ];
    scheme.set_crds(&crds);
    let all = scheme.all();
    assert!(all.len() > 50, "{}", all.len());
    all
}

fn read(method: &str, path: &str) -> Option<(RequestInfo, Method)> {
    let method = Method::from_bytes(method.as_bytes()).expect("a method");
    let info = RequestInfo::read(&method, path, &Query::read(None)).ok()?;
    Some((info, method))
}

fn root(kind: &Resource) -> String {
    match kind.group.as_ref() {
        "" => format!("/api/{}", kind.version),
        group => format!("/apis/{group}/{}", kind.version),
    }
}

/// What may follow the name of a kind.
fn tails(kind: &Resource) -> Vec<String> {
    let mut tails = vec![String::new(), "/".to_owned(), "/other".to_owned()];
    tails.push("/other/rest/more".to_owned());
    let known = kind.subresources.iter().map(|sub| sub.name.to_string());
    for sub in known.chain(["status".to_owned(), "finalize".to_owned()]) {
        tails.push(format!("/other/{sub}"));
    }
    tails
}

#[test]
fn nothing_is_carried_out_elsewhere_than_it_is_judged() {
    let mut routed = 0;
    for kind in kinds() {
        for before in ["", "/watch"] {
            for place in ["", "/namespaces/mine", "/namespaces/", "/namespaces/status"] {
                for tail in tails(&kind) {
                    let path = format!("{}{before}{place}/{}{tail}", root(&kind), kind.plural);
                    for method in METHODS {
                        let Some((info, method)) = read(method, &path) else {
                            continue;
                        };
                        if info.resource != *kind.plural {
                            continue;
                        }
                        let Ok(route) = route(&info, &method, &kind) else {
                            continue;
                        };
                        routed += 1;
                        let itself = &*kind.storage_key == "/namespaces"
                            && info.namespace == info.name
                            && info.of_namespace;
                        let judged = match route.place {
                            Scope::In(namespace) => {
                                kind.namespaced
                                    && !namespace.is_empty()
                                    && namespace == info.namespace
                            }
                            Scope::Everywhere => {
                                kind.namespaced
                                    && info.namespace.is_empty()
                                    && matches!(info.verb.as_str(), "list" | "watch")
                                    && route.name.is_empty()
                                    || info.verb == "watch" && info.namespace.is_empty()
                            }
                            Scope::Cluster => {
                                !kind.namespaced && (info.namespace.is_empty() || itself)
                            }
                        };
                        assert!(judged, "{method} {path}: {route:?} of {info:?}");
                        assert_eq!(route.name, info.name, "{method} {path}");
                        assert_eq!(route.subresource, info.subresource, "{method} {path}");
                    }
                }
            }
        }
    }
    assert!(routed > 1_000, "{routed}");
}

#[test]
fn kinds_of_the_cluster_have_no_path_below_a_namespace() {
    for kind in kinds().iter().filter(|kind| !kind.namespaced) {
        for tail in tails(kind) {
            for before in ["", "/watch"] {
                let path = format!(
                    "{}{before}/namespaces/mine/{}{tail}",
                    root(kind),
                    kind.plural
                );
                for method in METHODS {
                    let (info, method) = read(method, &path).expect("a path");
                    // `namespaces/mine/status` is about the Namespace.
                    if info.resource != *kind.plural || info.of_namespace {
                        continue;
                    }
                    let found = route(&info, &method, kind);
                    assert_eq!(found, Err(Misplaced::Path), "{method} {path}");
                }
            }
        }
    }
}

#[test]
fn one_object_in_a_namespace_has_no_path_without_it() {
    // Of a kind called `namespaces`, what such a path names is a namespace.
    let kinds = kinds();
    let all = kinds.iter().filter(|kind| kind.namespaced);
    for kind in all.filter(|kind| &*kind.plural != "namespaces") {
        for tail in tails(kind) {
            let path = format!("{}/{}{tail}", root(kind), kind.plural);
            for method in ["POST", "PUT", "PATCH", "DELETE"] {
                let (info, method) = read(method, &path).expect("a path");
                let found = route(&info, &method, kind);
                assert!(found.is_err(), "{method} {path}: {found:?}");
            }
            if !tail.trim_matches('/').is_empty() {
                let (info, method) = read("GET", &path).expect("a path");
                assert_eq!(route(&info, &method, kind), Err(Misplaced::Path), "{path}");
            }
        }
    }
}

#[test]
fn across_namespaces_there_is_a_path_for_what_can_be_listed() {
    for (group, plural, want) in [
        ("", "configmaps", Misplaced::Method),
        (
            "authorization.k8s.io",
            "localsubjectaccessreviews",
            Misplaced::Path,
        ),
        ("a.example", "things", Misplaced::Path),
    ] {
        let mut all = kinds().into_iter();
        let kind = all
            .find(|kind| &*kind.group == group && &*kind.plural == plural)
            .expect("a kind");
        let path = format!("{}/{plural}", root(&kind));
        let (info, method) = read("POST", &path).expect("a path");
        assert_eq!(route(&info, &method, &kind), Err(want), "{path}");
    }
}

#[test]
fn a_namespace_is_found_by_its_own_path_alone() {
    let kinds = kinds();
    let of = |group: &str| {
        let mut all = kinds.iter();
        all.find(|kind| &*kind.group == group && &*kind.plural == "namespaces")
            .expect("a kind")
    };
    let cluster = |name, subresource| {
        Ok(Route {
            place: Scope::Cluster,
            name,
            subresource,
        })
    };
    let inside = |name, subresource| {
        Ok(Route {
            place: Scope::In("a"),
            name,
            subresource,
        })
    };
    for (group, method, path, want) in [
        ("", "GET", "/api/v1/namespaces", cluster("", "")),
        ("", "DELETE", "/api/v1/namespaces/a", cluster("a", "")),
        (
            "",
            "PUT",
            "/api/v1/namespaces/a/finalize",
            cluster("a", "finalize"),
        ),
        ("", "GET", "/api/v1/watch/namespaces/a", cluster("a", "")),
        (
            "",
            "GET",
            "/api/v1/namespaces/a/namespaces",
            Err(Misplaced::Path),
        ),
        (
            "",
            "DELETE",
            "/api/v1/namespaces/a/namespaces/b",
            Err(Misplaced::Path),
        ),
        (
            "",
            "DELETE",
            "/api/v1/namespaces/a/namespaces/a",
            Err(Misplaced::Path),
        ),
        (
            "",
            "PUT",
            "/api/v1/namespaces/a/namespaces/b/finalize",
            Err(Misplaced::Path),
        ),
        (
            "",
            "GET",
            "/api/v1/watch/namespaces/a/namespaces/b",
            Err(Misplaced::Path),
        ),
        // A kind of somebody else's with that name is no Namespace.
        (
            "b.example",
            "GET",
            "/apis/b.example/v1/namespaces/a/namespaces/b",
            inside("b", ""),
        ),
        (
            "b.example",
            "GET",
            "/apis/b.example/v1/namespaces/a",
            inside("a", ""),
        ),
        (
            "c.example",
            "GET",
            "/apis/c.example/v1/namespaces",
            cluster("", ""),
        ),
        (
            "c.example",
            "GET",
            "/apis/c.example/v1/namespaces/a",
            Err(Misplaced::Path),
        ),
        (
            "c.example",
            "PUT",
            "/apis/c.example/v1/namespaces/a/status",
            Err(Misplaced::Path),
        ),
    ] {
        let (info, method) = read(method, path).expect("a path");
        assert_eq!(route(&info, &method, of(group)), want, "{method} {path}");
    }
}
