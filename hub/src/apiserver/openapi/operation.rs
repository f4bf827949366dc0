//! One operation of a path: what it takes, what it answers, and what it is called.

use super::{META, kind_of, reference};
use crate::apiserver::scheme::Resource;
use serde_json::{Map, Value, json};

/// What objects are written in.
const WRITTEN: [&str; 2] = ["application/json", "application/yaml"];
/// What events are written in, beside that.
const STREAMED: &str = "application/json;stream=watch";
/// Parameters of a list, in every form that it has.
const LISTED: [&str; 11] = [
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "shardSelector",
    "timeoutSeconds",
    "watch",
];
/// Parameters of a deletion.
const DELETED: [&str; 5] = [
    "dryRun",
    "gracePeriodSeconds",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "orphanDependents",
    "propagationPolicy",
];
/// Parameters of a write.
const WRITE: [&str; 3] = ["dryRun", "fieldManager", "fieldValidation"];

/// An operation, before what all operations of a path take is said once for the path.
pub(super) struct Operation {
    /// `get`, `put`, …
    pub(super) method: &'static str,
    /// Everything it takes beside the body.
    pub(super) parameters: Vec<Value>,
    /// What else is said of it.
    pub(super) said: Map<String, Value>,
}

/// What is asked of what, and under which path.
pub(super) struct Subject<'a> {
    /// The kind that the path is about.
    pub(super) resource: &'a Resource,
    /// The subresource; empty for objects themselves.
    pub(super) sub: &'a str,
    /// Group, version and kind of what comes and goes.
    pub(super) kind: Value,
    /// The schema of what comes and goes.
    pub(super) schema: &'a str,
    /// Whether it is about every namespace.
    pub(super) everywhere: bool,
}

impl<'a> Subject<'a> {
    /// Objects of a kind.
    pub(super) fn objects(resource: &'a Resource, schema: &'a str) -> Self {
        Self {
            resource,
            sub: "",
            kind: kind_of(resource),
            schema,
            everywhere: false,
        }
    }

    fn new_operation(&self, method: &'static str, action: &str, named: bool) -> Operation {
        let mut parameters = vec![query("pretty")];
        if named {
            let of = format!("name of the {}", self.resource.kind);
            parameters.push(in_path("name", &of));
        }
        if self.resource.namespaced && !self.everywhere {
            let of = "object name and auth scope, such as for teams and projects";
            parameters.push(in_path("namespace", of));
        }
        let mut said = Map::new();
        said.insert("x-kubernetes-action".to_owned(), json!(action));
        let kind = self.kind.clone();
        said.insert("x-kubernetes-group-version-kind".to_owned(), kind);
        said.insert("tags".to_owned(), json!([tag(self.resource)]));
        Operation {
            method,
            parameters,
            said,
        }
    }

    /// The name that clients give to the function: `readCoordinationV1NamespacedLease`.
    fn identifier(&self, verb: &str, rest: &str, end: &str) -> Value {
        let scope = match (self.resource.namespaced, self.everywhere) {
            (true, false) => "Namespaced",
            _ => "",
        };
        let everywhere = if self.everywhere {
            "ForAllNamespaces"
        } else {
            ""
        };
        let place = place(self.resource);
        let (kind, sub) = (&self.resource.kind, capital(self.sub));
        json!(format!(
            "{verb}{place}{rest}{scope}{kind}{sub}{end}{everywhere}"
        ))
    }

    /// `of the specified`, with the subresource before it if there is one.
    fn of(&self, verb: &str, article: &str) -> String {
        let kind = &self.resource.kind;
        match self.sub {
            "" => format!("{verb}{article}{kind}"),
            sub => format!("{verb} {sub} of{article}{kind}"),
        }
    }

    fn custom(&self) -> bool {
        self.resource.is_custom()
    }

    /// GET of one.
    pub(super) fn read(&self) -> Operation {
        let mut operation = self.new_operation("get", "get", true);
        if self.custom() {
            operation.parameters.push(query("resourceVersion"));
        }
        operation.say("operationId", self.identifier("read", "", ""));
        operation.say("description", self.of("read", " the specified "));
        operation.answers(&[200], self.schema, false);
        operation
    }

    /// GET of many; `schema` is that of the list.
    pub(super) fn list(&self) -> Operation {
        let mut operation = self.new_operation("get", "list", false);
        operation.parameters.extend(LISTED.map(query));
        operation.say("operationId", self.identifier("list", "", ""));
        let watched = !self.custom() && has(self.resource, "watch");
        let verb = if watched { "list or watch" } else { "list" };
        operation.say("description", self.of(verb, " objects of kind "));
        operation.answers(&[200], self.schema, !self.custom());
        operation
    }

    /// The older form of a watch, of one or of many.
    pub(super) fn watch(&self, named: bool) -> Operation {
        let action = if named { "watch" } else { "watchlist" };
        let mut operation = self.new_operation("get", action, named);
        operation.parameters.extend(LISTED.map(query));
        let end = if named { "" } else { "List" };
        operation.say("operationId", self.identifier("watch", "", end));
        let kind = &self.resource.kind;
        operation.say("description", if named {
            format!("watch changes to an object of kind {kind}. deprecated: use the 'watch' parameter with a list operation instead, filtered to a single item with the 'fieldSelector' parameter.")
        } else {
            format!("watch individual changes to a list of {kind}. deprecated: use the 'watch' parameter with a list operation instead.")
        });
        operation.answers(&[200], &format!("{META}.WatchEvent"), true);
        operation
    }

    /// POST, to a collection or to a subresource of one object.
    pub(super) fn create(&self) -> Operation {
        let mut operation = self.new_operation("post", "post", !self.sub.is_empty());
        operation.parameters.extend(WRITE.map(query));
        operation.say("operationId", self.identifier("create", "", ""));
        operation.say("description", self.of("create", &self.article()));
        operation.answers(&[200, 201, 202], self.schema, false);
        self.takes(&mut operation, self.schema, true);
        operation
    }

    /// Replaces an object.
    pub(super) fn replace(&self) -> Operation {
        let mut operation = self.new_operation("put", "put", true);
        operation.parameters.extend(WRITE.map(query));
        operation.say("operationId", self.identifier("replace", "", ""));
        operation.say("description", self.of("replace", " the specified "));
        operation.answers(&[200, 201], self.schema, false);
        self.takes(&mut operation, self.schema, true);
        operation
    }

    /// Changes an object.
    pub(super) fn patch(&self) -> Operation {
        let mut operation = self.new_operation("patch", "patch", true);
        operation.parameters.extend(WRITE.map(query));
        operation.parameters.push(query("force"));
        operation.say("operationId", self.identifier("patch", "", ""));
        operation.say(
            "description",
            self.of("partially update", " the specified "),
        );
        // An apply may make what was not there, which only built-in kinds say.
        let codes: &[u16] = if self.custom() { &[200] } else { &[200, 201] };
        operation.answers(codes, self.schema, false);
        let mut types = vec![
            "application/apply-patch+yaml",
            "application/json-patch+json",
            "application/merge-patch+json",
        ];
        if self.resource.strategic {
            types.push("application/strategic-merge-patch+json");
        }
        operation.takes(&types, &format!("{META}.Patch"), true);
        operation
    }

    /// DELETE of one; `schema` is what it answers with.
    pub(super) fn delete(&self) -> Operation {
        let mut operation = self.new_operation("delete", "delete", true);
        operation.parameters.extend(DELETED.map(query));
        operation.say("operationId", self.identifier("delete", "", ""));
        operation.say("description", self.of("delete", &self.article()));
        operation.answers(&[200, 202], self.schema, false);
        self.takes(&mut operation, &format!("{META}.DeleteOptions"), false);
        operation
    }

    /// DELETE of many.
    pub(super) fn delete_collection(&self) -> Operation {
        let mut operation = self.new_operation("delete", "deletecollection", false);
        if self.custom() {
            operation.parameters.extend(LISTED.map(query));
        } else {
            let selected = LISTED
                .iter()
                .filter(|name| !["watch", "allowWatchBookmarks"].contains(name));
            let all = selected.chain(&DELETED);
            operation.parameters.extend(all.map(|name| query(name)));
            self.takes(&mut operation, &format!("{META}.DeleteOptions"), false);
        }
        let called = self.identifier("delete", "Collection", "");
        operation.say("operationId", called);
        let kind = &self.resource.kind;
        operation.say("description", format!("delete collection of {kind}"));
        operation.answers(&[200], &format!("{META}.Status"), false);
        operation
    }

    fn takes(&self, operation: &mut Operation, schema: &str, required: bool) {
        let types: &[&str] = if self.custom() { &WRITTEN } else { &["*/*"] };
        operation.takes(types, schema, required);
    }

    fn article(&self) -> String {
        let kind = &self.resource.kind;
        if kind.ends_with('s') && !kind.ends_with("ss") {
            return " ".to_owned();
        }
        let first = kind.chars().next().unwrap_or_default();
        match first.to_ascii_lowercase() {
            'a' | 'e' | 'i' | 'o' | 'u' => " an ".to_owned(),
            _ => " a ".to_owned(),
        }
    }
}

impl Operation {
    /// What there is in a group and version.
    pub(super) fn resources(resource: &Resource) -> Self {
        let mut operation = Self {
            method: "get",
            parameters: Vec::new(),
            said: Map::new(),
        };
        operation.say("tags", json!([tag(resource)]));
        let called = format!("get{}APIResources", place(resource));
        operation.say("operationId", called);
        operation.say("description", "get available resources");
        operation.answers(&[200], &format!("{META}.APIResourceList"), false);
        operation
    }

    fn say(&mut self, key: &str, value: impl Into<Value>) {
        self.said.insert(key.to_owned(), value.into());
    }

    fn answers(&mut self, codes: &[u16], schema: &str, streamed: bool) {
        let shown = json!({"schema": reference(schema)});
        let types = WRITTEN.into_iter().chain(streamed.then_some(STREAMED));
        let content: Map<String, Value> =
            types.map(|name| (name.to_owned(), shown.clone())).collect();
        let mut all = Map::new();
        for code in codes {
            let text = match code {
                201 => "Created",
                202 => "Accepted",
                _ => "OK",
            };
            let answer = json!({"description": text, "content": content});
            all.insert(code.to_string(), answer);
        }
        all.insert("401".to_owned(), json!({"description": "Unauthorized"}));
        self.say("responses", all);
    }

    fn takes(&mut self, types: &[&str], schema: &str, required: bool) {
        let shown = json!({"schema": reference(schema)});
        let types = types.iter();
        let content: Map<String, Value> = types
            .map(|name| ((*name).to_owned(), shown.clone()))
            .collect();
        let mut body = json!({"content": content});
        if required {
            body["required"] = json!(true);
        }
        self.say("requestBody", body);
    }
}

/// Whether something can be done with a kind.
pub(super) fn has(resource: &Resource, verb: &str) -> bool {
    resource.verbs.iter().any(|one| &**one == verb)
}

fn query(name: &str) -> Value {
    let kind = match name {
        "force"
        | "allowWatchBookmarks"
        | "sendInitialEvents"
        | "watch"
        | "orphanDependents"
        | "ignoreStoreReadErrorWithClusterBreakingPotential" => "boolean",
        "limit" | "timeoutSeconds" | "gracePeriodSeconds" => "integer",
        _ => "string",
    };
    json!({"name": name, "in": "query", "schema": {"type": kind, "uniqueItems": true}})
}

fn in_path(name: &str, description: &str) -> Value {
    json!({
        "name": name,
        "in": "path",
        "description": description,
        "required": true,
        "schema": {"type": "string", "uniqueItems": true},
    })
}

/// The group as tags have it, without the ending that most have.
fn group(resource: &Resource) -> &str {
    match &*resource.group {
        "" => "core",
        group => group.strip_suffix(".k8s.io").unwrap_or(group),
    }
}

/// Group and version within names of functions.
fn place(resource: &Resource) -> String {
    identifier(group(resource), true) + &identifier(&resource.version, true)
}

fn tag(resource: &Resource) -> String {
    let version = identifier(&resource.version, false);
    format!("{}_{version}", identifier(group(resource), false))
}

/// A text without what no name may have in it; the letter after it is a capital.
pub(super) fn identifier(text: &str, mut upper: bool) -> String {
    let mut out = String::new();
    for (at, letter) in text.chars().enumerate() {
        if !(letter.is_alphabetic() || letter == '_' || at > 0 && letter.is_numeric()) {
            upper = true;
        } else if upper {
            out.extend(letter.to_uppercase());
            upper = false;
        } else {
            out.push(letter);
        }
    }
    out
}

fn capital(word: &str) -> String {
    let mut chars = word.chars();
    let first = chars.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(chars).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_functions_have_letters_and_digits_alone() {
        for (text, upper, name) in [
            ("coordination", true, "Coordination"),
            ("rbac.authorization", false, "rbacAuthorization"),
            ("a-1.example.com", true, "A1ExampleCom"),
            ("1a", true, "A"),
        ] {
            assert_eq!(identifier(text, upper), name);
        }
    }
}
