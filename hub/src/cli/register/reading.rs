//! Reading alone as a rule of the member's own, where its API server has constrained impersonation (Kubernetes 1.36): the
//! account that acts as users then needs a right for what is done as them besides the right to be them. Pure.

use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// What an API server of Kubernetes says of the feature in its metrics, before its stage.
const FEATURE: &str = "kubernetes_feature_enabled{name=\"ConstrainedImpersonation\",";
/// The group of rights to be somebody where what is done as them is judged besides.
pub(super) const AUTHENTICATION: &str = "authentication.k8s.io";
/// Subresources that tell something; all others run something, reach further, or are for writing.
const TELL: [&str; 3] = ["log", "scale", "status"];
/// What is done in reading, of objects by name and without.
const GET: &str = "get";
const MANY: [&str; 2] = ["list", "watch"];
/// What somebody asks who they are and what they may by, which makes nothing.
const CREATE: &str = "create";
const OF_ONESELF: [(&str, &[&str]); 2] = [
    (AUTHENTICATION, &["selfsubjectreviews"]),
    (
        "authorization.k8s.io",
        &["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
    ),
];
/// The same of paths that are no objects.
const PATHS: [&str; 2] = ["get", "head"];

/// As whom somebody is acted, as verbs call it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Acted {
    /// As a user, with groups and whatever else.
    User,
    /// As a ServiceAccount.
    Account,
}

impl Acted {
    const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user-info",
            Self::Account => "serviceaccount",
        }
    }

    /// The verb of the right to be them.
    pub(super) fn verb(self) -> String {
        format!("impersonate:{}", self.as_str())
    }

    fn on(self, verb: &str) -> String {
        format!("impersonate-on:{}:{verb}", self.as_str())
    }
}

/// Whether metrics of an API server say that it judges what is done as somebody.
pub(super) fn is_constrained(metrics: &str) -> bool {
    let mut lines = metrics.lines();
    lines.any(|line| line.starts_with(FEATURE) && line.ends_with("} 1"))
}

/// What a member's API server can be asked for by name, by group: resources, and those of their subresources that tell
/// something.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Readable(BTreeMap<String, BTreeSet<String>>);

impl Readable {
    /// By its lists of `APIGroupDiscoveryList`.
    pub(super) fn of(lists: &[Value]) -> Self {
        let items = |value: &'_ Value| value.as_array().cloned().unwrap_or_default();
        let gets = |of: &Value| items(&of["verbs"]).iter().any(|verb| verb == GET);
        let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for group in lists.iter().flat_map(|list| items(&list["items"])) {
            let name = group["metadata"]["name"].as_str().unwrap_or_default();
            for version in items(&group["versions"]) {
                for of in items(&version["resources"]) {
                    let Some(resource) = of["resource"].as_str() else {
                        continue;
                    };
                    let known = all.entry(name.to_owned()).or_default();
                    if gets(&of) {
                        known.insert(resource.to_owned());
                    }
                    let subresources = items(&of["subresources"]).into_iter();
                    let tell = subresources.filter(|it| {
                        let name = it["subresource"].as_str().unwrap_or_default();
                        TELL.contains(&name) && gets(it)
                    });
                    known.extend(tell.filter_map(|it| {
                        let name = it["subresource"].as_str()?;
                        Some(format!("{resource}/{name}"))
                    }));
                }
            }
        }
        all.retain(|_, resources| !resources.is_empty());
        Self(all)
    }

    /// The rules by which an account reads as whom it may be, and does nothing else. A list reaches nothing further,
    /// whatever it is of; what is asked for by name is named, for no rule can leave anything out.
    pub(super) fn rules(&self, as_whom: &[Acted]) -> Vec<Value> {
        let verbs = |of: &[&str]| -> Vec<String> {
            let all = as_whom.iter();
            all.flat_map(|whom| of.iter().map(|verb| whom.on(verb)))
                .collect()
        };
        if as_whom.is_empty() {
            return Vec::new();
        }
        let mut rules = vec![
            json!({"nonResourceURLs": ["*"], "verbs": verbs(&PATHS)}),
            json!({"apiGroups": ["*"], "resources": ["*"], "verbs": verbs(&MANY)}),
        ];
        rules.extend(self.0.iter().map(|(group, resources)| {
            json!({"apiGroups": [group], "resources": resources, "verbs": verbs(&[GET])})
        }));
        rules.extend(OF_ONESELF.iter().map(|(group, resources)| {
            json!({"apiGroups": [group], "resources": resources, "verbs": verbs(&[CREATE])})
        }));
        rules
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_tell_whether_what_is_done_is_judged() {
        let line = |rest: &str| format!("# HELP x\n{FEATURE}{rest}\nother 1\n");
        assert!(is_constrained(&line("stage=\"BETA\"} 1")));
        assert!(is_constrained(&line("stage=\"\"} 1")));
        assert!(!is_constrained(&line("stage=\"BETA\"} 0")));
        assert!(!is_constrained(
            "kubernetes_feature_enabled{name=\"Other\",stage=\"BETA\"} 1"
        ));
        assert!(!is_constrained(""));
    }

    #[test]
    fn what_is_read_by_name_is_what_tells_and_nothing_that_reaches_further() {
        let get = json!(["get"]);
        let sub = |name: &str| json!({"subresource": name, "verbs": get});
        let core = json!({"items": [{"metadata": {}, "versions": [{"version": "v1", "resources": [
            {"resource": "pods", "verbs": ["create", "get", "list"], "subresources": [
                sub("attach"), sub("exec"), sub("log"), sub("portforward"), sub("proxy"), sub("status"),
                {"subresource": "binding", "verbs": ["create"]},
            ]},
            {"resource": "bindings", "verbs": ["create"]},
        ]}]}]});
        let others = json!({"items": [
            {"metadata": {"name": "apps"}, "versions": [
                {"version": "v1", "resources": [{"resource": "deployments", "verbs": get, "subresources": [sub("scale")]}]},
                {"version": "v2", "resources": [{"resource": "widgets", "verbs": get}]},
            ]},
            {"metadata": {"name": "odd"}, "versions": [{"resources": [{"verbs": get}, {"resource": "x", "verbs": []}]}]},
        ]});
        let readable = Readable::of(&[core, others]);
        let rules = readable.rules(&[Acted::User, Acted::Account]);
        let on = |verb: &str| {
            json!([
                format!("impersonate-on:user-info:{verb}"),
                format!("impersonate-on:serviceaccount:{verb}")
            ])
        };
        assert_eq!(
            json!(rules[2..]),
            json!([
                {"apiGroups": [""], "resources": ["pods", "pods/log", "pods/status"], "verbs": on("get")},
                {"apiGroups": ["apps"], "resources": ["deployments", "deployments/scale", "widgets"], "verbs": on("get")},
                {"apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"], "verbs": on("create")},
                {"apiGroups": ["authorization.k8s.io"],
                    "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"], "verbs": on("create")},
            ])
        );
        assert_eq!(
            rules[1]["verbs"],
            json!([
                "impersonate-on:user-info:list",
                "impersonate-on:user-info:watch",
                "impersonate-on:serviceaccount:list",
                "impersonate-on:serviceaccount:watch",
            ])
        );
        assert!(readable.rules(&[]).is_empty());
        // Whatever it is asked, it gives no right to be somebody, and none that would be one for everything.
        for rule in &rules {
            for verb in rule["verbs"].as_array().expect("verbs") {
                assert!(
                    verb.as_str()
                        .is_some_and(|it| it.starts_with("impersonate-on:")),
                    "{rule}"
                );
            }
        }
    }
}
