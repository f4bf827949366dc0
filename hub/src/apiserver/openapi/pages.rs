//! Documents of pages that are no kinds: versions, groups, keys of tokens.

use super::operation::identifier;
use super::{META, reference};
use crate::apiserver::scheme::Snapshot;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

const READ: [&str; 2] = ["application/json", "application/yaml"];

/// One page: where it is, what it is called, and what it answers with.
struct Page<'a> {
    path: &'a str,
    called: String,
    description: &'static str,
    tag: String,
    types: &'a [&'a str],
    /// The kind of the answer; a text where there is none.
    kind: &'static str,
}

/// The paths of all of them, below `/openapi/v3/`.
pub(super) fn paths(kinds: &Snapshot) -> Vec<String> {
    let fixed = [
        ".well-known/openid-configuration",
        "api",
        "apis",
        "openid/v1/jwks",
        "version",
    ];
    let groups = groups(kinds);
    let groups = groups.iter().map(|group| format!("apis/{group}"));
    fixed.into_iter().map(str::to_owned).chain(groups).collect()
}

/// Groups that have a page of their own: those of built-in kinds.
fn groups(kinds: &Snapshot) -> BTreeSet<&str> {
    let all = kinds.all().iter().filter(|kind| !kind.is_custom());
    let groups = all.map(|kind| &*kind.group);
    groups.filter(|group| !group.is_empty()).collect()
}

/// Paths and schemas of one of them.
pub(super) fn document(kinds: &Snapshot, path: &str) -> Option<Value> {
    let page = page(kinds, path)?;
    let shown = match page.kind {
        "" => json!({"type": "string"}),
        "Info" => reference(INFO),
        kind => reference(&format!("{META}.{kind}")),
    };
    let types = page.types.iter();
    let content: Map<String, Value> = types
        .map(|name| ((*name).to_owned(), json!({"schema": shown})))
        .collect();
    let mut operation = json!({
        "operationId": page.called,
        "tags": [page.tag],
        "responses": {
            "200": {"description": "OK", "content": content},
            "401": {"description": "Unauthorized"},
        },
    });
    if !page.description.is_empty() {
        operation["description"] = json!(page.description);
    }
    let mut document = json!({"paths": {format!("/{}/", page.path): {"get": operation}}});
    let mut schemas = Map::new();
    add(&mut schemas, page.kind);
    if !schemas.is_empty() {
        document["components"] = json!({"schemas": schemas});
    }
    Some(document)
}

fn page<'a>(kinds: &Snapshot, path: &'a str) -> Option<Page<'a>> {
    let named = |called: &str, description, tag: &str, types, kind| {
        Some(Page {
            path,
            called: called.to_owned(),
            description,
            tag: tag.to_owned(),
            types,
            kind,
        })
    };
    let versions = "get available API versions";
    match path {
        "api" => named("getCoreAPIVersions", versions, "core", &READ, "APIVersions"),
        "apis" => named("getAPIVersions", versions, "apis", &READ, "APIGroupList"),
        "version" => {
            let text = "get the version information for this server";
            named("getCodeVersion", text, "version", &READ[..1], "Info")
        }
        ".well-known/openid-configuration" => {
            let called = "getServiceAccountIssuerOpenIDConfiguration";
            named(called, "", "WellKnown", &READ[..1], "")
        }
        "openid/v1/jwks" => {
            let called = "getServiceAccountIssuerOpenIDKeyset";
            named(called, "", "openid", &["application/jwk-set+json"], "")
        }
        _ => {
            let group = path.strip_prefix("apis/")?;
            let group = groups(kinds).take(group)?;
            let group = group.strip_suffix(".k8s.io").unwrap_or(group);
            let called = format!("get{}APIGroup", identifier(group, true));
            let tag = identifier(group, false);
            let text = "get information of a group";
            named(&called, text, &tag, &READ, "APIGroup")
        }
    }
}

const INFO: &str = "io.k8s.apimachinery.pkg.version.Info";

/// Puts a kind among the schemas, with what it is made of.
fn add(schemas: &mut Map<String, Value>, kind: &str) {
    let filled = || json!({"type": "string", "default": ""});
    let list =
        |items: Value| json!({"type": "array", "items": items, "x-kubernetes-list-type": "atomic"});
    let inner =
        |kind: &str| json!({"allOf": [reference(&format!("{META}.{kind}"))], "default": {}});
    let addresses = || list(inner("ServerAddressByClientCIDR"));
    let versions = || list(inner("GroupVersionForDiscovery"));
    let (required, fields, parts) = match kind {
        "APIVersions" => (
            json!(["versions", "serverAddressByClientCIDRs"]),
            json!({"versions": list(filled()), "serverAddressByClientCIDRs": addresses()}),
            vec!["ServerAddressByClientCIDR"],
        ),
        "APIGroupList" => (
            json!(["groups"]),
            json!({"groups": list(inner("APIGroup"))}),
            vec!["APIGroup"],
        ),
        "APIGroup" => (
            json!(["name", "versions"]),
            json!({
                "name": filled(),
                "versions": versions(),
                "preferredVersion": inner("GroupVersionForDiscovery"),
                "serverAddressByClientCIDRs": addresses(),
            }),
            vec!["GroupVersionForDiscovery", "ServerAddressByClientCIDR"],
        ),
        "GroupVersionForDiscovery" => (
            json!(["groupVersion", "version"]),
            json!({"groupVersion": filled(), "version": filled()}),
            Vec::new(),
        ),
        "ServerAddressByClientCIDR" => (
            json!(["clientCIDR", "serverAddress"]),
            json!({"clientCIDR": filled(), "serverAddress": filled()}),
            Vec::new(),
        ),
        "Info" => {
            schemas.insert(INFO.to_owned(), info());
            return;
        }
        _ => return,
    };
    let mut shown = json!({"type": "object", "required": required, "properties": fields});
    if kind.starts_with("API") {
        for field in ["apiVersion", "kind"] {
            shown["properties"][field] = json!({"type": "string"});
        }
        let of = json!([{"group": "", "version": "v1", "kind": kind}]);
        shown["x-kubernetes-group-version-kind"] = of;
    }
    schemas.insert(format!("{META}.{kind}"), shown);
    for part in parts {
        add(schemas, part);
    }
}

/// The answer to `/version`.
fn info() -> Value {
    let required = [
        "major",
        "minor",
        "gitVersion",
        "gitCommit",
        "gitTreeState",
        "buildDate",
        "goVersion",
        "compiler",
        "platform",
    ];
    let besides = [
        "emulationMajor",
        "emulationMinor",
        "minCompatibilityMajor",
        "minCompatibilityMinor",
    ];
    let mut fields = Map::new();
    for field in required {
        fields.insert(field.to_owned(), json!({"type": "string", "default": ""}));
    }
    for field in besides {
        fields.insert(field.to_owned(), json!({"type": "string"}));
    }
    json!({"type": "object", "required": required, "properties": fields})
}
