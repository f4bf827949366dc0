//! The kinds an agent may bring into its member: `--allow` to rules.
//!
//! Pure. A kind is named as kubectl does, `deployments.apps` or `configmaps`; `default` stands for the
//! kinds of `manifests/agent/workloads.yaml`.

use crate::cli::{CliError, Kind};
use common::names::is_dns_label;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// What an agent does with an object of a Work.
const VERBS: [&str; 7] = [
    "get", "list", "watch", "create", "update", "patch", "delete",
];

/// Groups of kinds that are usually named without one.
const KNOWN: [(&str, &[&str]); 5] = [
    (
        "apps",
        &["daemonsets", "deployments", "replicasets", "statefulsets"],
    ),
    ("autoscaling", &["horizontalpodautoscalers"]),
    ("batch", &["cronjobs", "jobs"]),
    ("networking.k8s.io", &["ingresses", "networkpolicies"]),
    ("policy", &["poddisruptionbudgets"]),
];

/// The rules for `allowed`; `default` are those of the manifest.
pub(super) fn rules(allowed: &[String], default: &[Value]) -> Result<Vec<Value>, CliError> {
    let mut groups: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for item in allowed {
        if item == "default" {
            for rule in default {
                for group in texts(&rule["apiGroups"]) {
                    groups
                        .entry(group)
                        .or_default()
                        .extend(texts(&rule["resources"]));
                }
            }
            continue;
        }
        let (resource, group) = split(item)?;
        groups.entry(group).or_default().insert(resource);
    }
    let rule =
        |(group, resources)| json!({"apiGroups": [group], "resources": resources, "verbs": VERBS});
    Ok(groups.into_iter().map(rule).collect())
}

fn texts(list: &Value) -> impl Iterator<Item = String> {
    let items = list.as_array().into_iter().flatten();
    items.filter_map(|item| item.as_str().map(str::to_owned))
}

fn split(item: &str) -> Result<(String, String), CliError> {
    let (resource, group) = item.split_once('.').unwrap_or((item, ""));
    let whole = !item.ends_with('.');
    let valid =
        whole && is_dns_label(resource) && (group.is_empty() || group.split('.').all(is_dns_label));
    if !valid {
        let message = format!("--allow {item:?} must be a kind such as deployments.apps");
        return Err(CliError::message(Kind::Usage, message).hint(
            "Name kinds in the plural, as `kubectl api-resources` shows them; or `default`.",
        ));
    }
    let known = || KNOWN.iter().find(|(_, kinds)| kinds.contains(&resource));
    let group = match group {
        "" => known().map_or("", |(group, _)| group),
        group => group,
    };
    Ok((resource.to_owned(), group.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(allowed: &[&str]) -> Result<String, String> {
        let default = [json!({"apiGroups": ["apps"], "resources": ["deployments"], "verbs": []})];
        let allowed: Vec<String> = allowed.iter().map(|s| (*s).to_owned()).collect();
        let rules = rules(&allowed, &default).map_err(|e| e.to_string())?;
        let show = |rule: &Value| {
            let resources: Vec<_> = texts(&rule["resources"]).collect();
            format!(
                "{}:{}",
                rule["apiGroups"][0].as_str().unwrap_or("?"),
                resources.join("+")
            )
        };
        Ok(rules.iter().map(show).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn kinds_become_rules() {
        let cases: [(&[&str], &str); 4] = [
            (&["default"], "apps:deployments"),
            (&["default", "secrets"], ":secrets apps:deployments"),
            (
                &["deployments", "jobs", "configmaps"],
                ":configmaps apps:deployments batch:jobs",
            ),
            (
                &["widgets.example.com", "widgets.example.com"],
                "example.com:widgets",
            ),
        ];
        for (allowed, want) in cases {
            assert_eq!(shown(allowed).as_deref(), Ok(want));
        }
        for bad in ["*", "Deployment", "a/b", "", "x.", "secrets/status"] {
            assert!(shown(&[bad]).is_err(), "{bad}");
        }
    }
}
