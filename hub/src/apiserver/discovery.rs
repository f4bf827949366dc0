//! Which kinds there are, in the two forms that clients ask for. Pure.

use super::scheme::{Resource, Snapshot, Subresource};
use crate::apiserver::schema::builtin::schemas;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA256, SHA512, digest};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::sync::Arc;

/// The answer to `/version`: the version whose API this is.
pub fn version() -> Value {
    schemas().version.clone()
}

/// The answer to `/`.
pub fn paths(kinds: &Snapshot) -> Value {
    let mut paths: Vec<String> = [
        "/.well-known/openid-configuration",
        "/api",
        "/api/v1",
        "/apis",
        "/apis/",
        "/healthz",
        "/livez",
        "/metrics",
        "/metrics/slis",
        "/openapi/v3",
        "/openapi/v3/",
        "/openid/v1/jwks",
        "/readyz",
        "/version",
    ]
    .map(str::to_owned)
    .into();
    for (group, versions) in grouped(kinds) {
        if group.is_empty() {
            continue;
        }
        paths.push(format!("/apis/{group}"));
        paths.extend(versions.iter().map(|(v, _)| format!("/apis/{group}/{v}")));
    }
    paths.sort();
    json!({"paths": paths})
}

/// The answer to `/api`.
pub fn core_versions(address: &str) -> Value {
    json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    })
}

type Versions = Vec<(Arc<str>, Vec<Arc<Resource>>)>;

/// Groups in the order of discovery, their versions in the order of preference.
fn grouped(kinds: &Snapshot) -> Vec<(Arc<str>, Versions)> {
    let mut groups: Vec<(Arc<str>, Versions)> = Vec::new();
    for kind in kinds.all() {
        let group = match groups.iter().position(|(name, _)| *name == kind.group) {
            Some(at) => &mut groups[at].1,
            None => {
                groups.push((kind.group.clone(), Vec::new()));
                let last = groups.len() - 1;
                &mut groups[last].1
            }
        };
        match group.iter_mut().find(|(name, _)| *name == kind.version) {
            Some((_, of)) => of.push(kind.clone()),
            None => group.push((kind.version.clone(), vec![kind.clone()])),
        }
    }
    groups
}

fn group_entry(name: &str, versions: &Versions) -> Value {
    let shown: Vec<Value> = versions
        .iter()
        .map(|(version, _)| {
            json!({"groupVersion": format!("{name}/{version}"), "version": **version})
        })
        .collect();
    json!({"name": name, "preferredVersion": shown.first(), "versions": shown})
}

/// The answer to `/apis`.
pub fn groups(kinds: &Snapshot) -> Value {
    let groups: Vec<Value> = grouped(kinds)
        .iter()
        .filter(|(name, _)| !name.is_empty())
        .map(|(name, versions)| group_entry(name, versions))
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// The answer to `/apis/<group>`.
pub fn group(kinds: &Snapshot, group: &str) -> Option<Value> {
    let groups = grouped(kinds);
    let (name, versions) = groups.iter().find(|(name, _)| &**name == group)?;
    if name.is_empty() {
        return None;
    }
    let mut entry = group_entry(name, versions);
    entry["kind"] = json!("APIGroup");
    entry["apiVersion"] = json!("v1");
    Some(entry)
}

/// The answer to `/api/v1` and `/apis/<group>/<version>`.
pub fn resources(kinds: &Snapshot, group: &str, version: &str) -> Option<Value> {
    let mut entries: Vec<(String, Value)> = Vec::new();
    let of_version = kinds
        .all()
        .iter()
        .filter(|kind| *kind.group == *group && *kind.version == *version);
    for kind in of_version {
        entries.push((kind.plural.to_string(), resource_entry(kind)));
        for subresource in &kind.subresources {
            let name = format!("{}/{}", kind.plural, subresource.name);
            let entry = subresource_entry(kind, subresource, &name);
            // The status of a custom kind comes before its scale.
            let place = if kind.is_custom() && &*subresource.name == "status" {
                format!("{}/", kind.plural)
            } else {
                name
            };
            entries.push((place, entry));
        }
    }
    if entries.is_empty() {
        return None;
    }
    entries.sort_by(|(a, _), (b, _)| a.cmp(b));
    let entries: Vec<Value> = entries.into_iter().map(|(_, entry)| entry).collect();
    let group_version = if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    };
    let mut list = json!({
        "kind": "APIResourceList",
        "groupVersion": group_version,
        "resources": entries,
    });
    // The core group's list never named its own version.
    if !group.is_empty() {
        list["apiVersion"] = json!("v1");
    }
    Some(list)
}

/// A kind whose CRD is being deleted is no longer offered to writers.
fn verbs(kind: &Resource) -> Vec<&str> {
    let mut verbs = texts(&kind.verbs);
    if kind.custom().is_some_and(|custom| custom.ending) {
        verbs.retain(|verb| !["create", "patch", "update"].contains(verb));
    }
    verbs
}

/// A list of resources as servers write it: for people who read it raw, in the order they know.
pub fn written(list: &Value) -> String {
    const LIST: [&str; 4] = ["kind", "apiVersion", "groupVersion", "resources"];
    const ENTRY: [&str; 10] = [
        "name",
        "singularName",
        "namespaced",
        "group",
        "version",
        "kind",
        "verbs",
        "shortNames",
        "categories",
        "storageVersionHash",
    ];
    fn member(object: &Value, name: &str, order: &[&str]) -> Option<String> {
        let value = object.get(name)?;
        let shown = match value.as_array() {
            Some(entries) if name == "resources" => {
                let entries: Vec<String> = entries.iter().map(|e| object_of(e, order)).collect();
                format!("[{}]", entries.join(","))
            }
            _ => value.to_string(),
        };
        Some(format!("{name:?}:{shown}"))
    }
    fn object_of(object: &Value, order: &[&str]) -> String {
        let members: Vec<String> = order
            .iter()
            .filter_map(|name| member(object, name, &ENTRY))
            .collect();
        format!("{{{}}}", members.join(","))
    }
    object_of(list, &LIST) + "\n"
}

fn texts(list: &[Arc<str>]) -> Vec<&str> {
    list.iter().map(AsRef::as_ref).collect()
}

fn resource_entry(kind: &Resource) -> Value {
    let mut entry = json!({
        "name": &*kind.plural,
        "singularName": &*kind.singular,
        "namespaced": kind.namespaced,
        "kind": &*kind.kind,
        "verbs": verbs(kind),
    });
    if !kind.short_names.is_empty() {
        entry["shortNames"] = json!(texts(&kind.short_names));
    }
    if !kind.categories.is_empty() {
        entry["categories"] = json!(texts(&kind.categories));
    }
    // Kinds that are stored say in which version.
    if kind.verbs.iter().any(|verb| &**verb == "watch") {
        // Two kinds are stored as they were before they had this version.
        let stored = match &*kind.group {
            "events.k8s.io" => "/v1/Event".to_owned(),
            "apiextensions.k8s.io" => format!("{}/v1beta1/{}", kind.group, kind.kind),
            group => format!("{group}/{}/{}", kind.storage_version, kind.kind),
        };
        let hash = digest(&SHA256, stored.as_bytes());
        entry["storageVersionHash"] = json!(STANDARD.encode(&hash.as_ref()[..8]));
    }
    entry
}

fn is_own(kind: &Resource, subresource: &Subresource) -> bool {
    let (group, version, _) = &subresource.kind;
    *group == kind.group && *version == kind.version
}

fn subresource_entry(kind: &Resource, subresource: &Subresource, name: &str) -> Value {
    let (group, version, body) = &subresource.kind;
    let mut entry = json!({
        "name": name,
        "singularName": "",
        "namespaced": kind.namespaced,
        "kind": &**body,
        "verbs": texts(&subresource.verbs),
    });
    if !is_own(kind, subresource) {
        entry["group"] = json!(&**group);
        entry["version"] = json!(&**version);
    }
    entry
}

/// Everything at once: the core group, or all others.
pub fn aggregated(kinds: &Snapshot, version: &str, core: bool) -> Value {
    let items: Vec<Value> = grouped(kinds)
        .iter()
        .filter(|(name, _)| name.is_empty() == core)
        .map(|(name, versions)| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|(version, kinds)| {
                    let mut kinds: Vec<&Arc<Resource>> = kinds.iter().collect();
                    kinds.sort_by(|a, b| a.plural.cmp(&b.plural));
                    let resources: Vec<Value> = kinds.iter().map(|k| aggregated_entry(k)).collect();
                    json!({
                        "version": &**version,
                        "resources": resources,
                        "freshness": "Current",
                    })
                })
                .collect();
            let metadata = if name.is_empty() {
                json!({})
            } else {
                json!({"name": &**name})
            };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": format!("apidiscovery.k8s.io/{version}"),
        "metadata": {},
        "items": items,
    })
}

fn aggregated_entry(kind: &Resource) -> Value {
    let response = |own: bool, group: &str, version: &str, body: &str| {
        // Built-in kinds leave out a group and version that are the list's.
        let (group, version) = if own && !kind.is_custom() {
            ("", "")
        } else {
            (group, version)
        };
        json!({"group": group, "version": version, "kind": body})
    };
    let mut entry = json!({
        "resource": &*kind.plural,
        "responseKind": response(true, &kind.group, &kind.version, &kind.kind),
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": &*kind.singular,
        "verbs": verbs(kind),
    });
    if !kind.short_names.is_empty() {
        entry["shortNames"] = json!(texts(&kind.short_names));
    }
    if !kind.categories.is_empty() {
        entry["categories"] = json!(texts(&kind.categories));
    }
    if !kind.subresources.is_empty() {
        let mut subresources: Vec<&Subresource> = kind.subresources.iter().collect();
        subresources.sort_by(|a, b| a.name.cmp(&b.name));
        let shown: Vec<Value> = subresources
            .iter()
            .map(|sub| {
                let (group, version, body) = &sub.kind;
                json!({
                    "subresource": &*sub.name,
                    "responseKind": response(is_own(kind, sub), group, version, body),
                    "verbs": texts(&sub.verbs),
                })
            })
            .collect();
        entry["subresources"] = json!(shown);
    }
    entry
}

/// The tag of a document.
pub fn etag(body: &[u8]) -> String {
    let mut tag = String::from("\"");
    for byte in digest(&SHA512, body).as_ref() {
        // Writing to a String cannot fail.
        let _ = write!(tag, "{byte:02X}");
    }
    tag.push('"');
    tag
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_written_in_the_known_order() {
        let kinds = Scheme::new();
        let list = resources(&kinds.snapshot(), "apps", "v1").expect("a group");
        let text = written(&list);
        assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON"), list);
        let begin = r#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"apps/v1","resources":[{"name":"controllerrevisions","singularName":"controllerrevision","namespaced":true,"kind":"ControllerRevision","verbs":["create""#;
        assert!(text.starts_with(begin), "{text}");
    }
    use crate::apiserver::scheme::Scheme;

    #[test]
    fn kinds_are_listed_as_clients_read_them() {
        let kinds = Scheme::new().snapshot();
        let core = resources(&kinds, "", "v1").expect("the core group");
        let find = |name: &str| {
            let list = core["resources"].as_array().expect("a list");
            list.iter()
                .find(|r| r["name"] == name)
                .cloned()
                .expect(name)
        };
        let namespaces = find("namespaces");
        assert_eq!(namespaces["shortNames"], json!(["ns"]));
        assert_eq!(namespaces["storageVersionHash"], "Q3oi5N2YM8M=");
        assert_eq!(find("namespaces/status")["singularName"], "");
        let token = find("serviceaccounts/token");
        assert_eq!(token["group"], "authentication.k8s.io");
        let aggregated = aggregated(&kinds, "v2", false);
        let first = &aggregated["items"][0];
        assert!(first["metadata"]["name"].is_string());
        assert_eq!(first["versions"][0]["freshness"], "Current");
        assert!(group(&kinds, "apps").is_some() && group(&kinds, "").is_none());
        assert!(resources(&kinds, "apps", "v9").is_none());
    }
}
