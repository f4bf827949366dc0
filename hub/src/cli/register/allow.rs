//! The kinds an agent may bring into its member, and the roles that it may bind there: `--allow` and `--allow-role` to
//! rules.
//!
//! Pure. A kind is named as kubectl does, `deployments.apps` or `configmaps`; `default` stands for the
//! kinds of `manifests/agent/workloads.yaml`.

use super::list;
use super::proxy::named_by;
use super::settings::Allowed;
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

/// The flag by which an owner names the kinds.
const ALLOW: &str = "--allow";
/// The flag by which an owner names the roles.
const ALLOW_ROLE: &str = "--allow-role";
const RBAC: &str = "rbac.authorization.k8s.io";

/// The ClusterRoles that Works may bind to users: those of the flag, else those of the installed rules.
pub(super) fn roles(
    given: Option<Vec<String>>,
    installed: &[Value],
) -> Result<Vec<String>, CliError> {
    let roles = list::names(
        ALLOW_ROLE,
        given,
        named_by(installed, "clusterroles", "bind"),
    )?;
    let odd = |name: &&String| name.is_empty() || name.contains(['*', '/', '%']);
    if let Some(name) = roles.iter().find(odd) {
        let message = format!("{ALLOW_ROLE} {name:?}: name a ClusterRole of this cluster");
        return Err(CliError::message(Kind::Usage, message).hint("Such as view, edit or admin."));
    }
    Ok(roles)
}

/// The rules by which these roles and no others may be bound, to anybody, in namespaces: a role that is bound in all of
/// them is bound by another kind, which is allowed as every kind is.
pub(super) fn binding(roles: &[String]) -> Vec<Value> {
    match roles {
        // A rule without names would be one for every role.
        [] => Vec::new(),
        some => vec![
            bindings(),
            json!({
                "apiGroups": [RBAC], "resources": ["clusterroles"], "resourceNames": some, "verbs": ["bind"],
            }),
        ],
    }
}

fn bindings() -> Value {
    json!({"apiGroups": [RBAC], "resources": ["rolebindings"], "verbs": VERBS})
}

/// Installed rules without those by which roles may be bound.
pub(super) fn without_binding(rules: &[Value]) -> Vec<Value> {
    let binds = |rule: &Value| rule["verbs"] == json!(["bind"]);
    let some = rules.iter().any(binds);
    let ours = |rule: &Value| binds(rule) || (some && *rule == bindings());
    let kept = rules.iter().filter(|rule| !ours(rule));
    kept.cloned().collect()
}

/// What kinds a flag allows: its own; or, each with a `+` before it, those besides what is installed.
pub(super) fn kinds(
    given: Option<Vec<String>>,
    installed: Option<&[Value]>,
) -> Result<Allowed, CliError> {
    let installed = installed.map(without_binding);
    let Some(given) = given else {
        return Ok(installed.map_or_else(|| Allowed::Kinds(Vec::new()), Allowed::Rules));
    };
    if !given.iter().any(|it| it.starts_with(list::BESIDE)) {
        return Ok(Allowed::Kinds(given));
    }
    let Some(installed) = installed else {
        let all = list::names(ALLOW, Some(given), vec!["default".to_owned()])?;
        return Ok(Allowed::Kinds(all));
    };
    let more = list::names(ALLOW, Some(given), Vec::new())?;
    let mut all = installed;
    for rule in rules(&more, &[])? {
        if !all.contains(&rule) {
            all.push(rule);
        }
    }
    Ok(Allowed::Rules(all))
}

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
        for (given, want) in [
            (None, &["view"][..]),
            (Some(&["+edit"][..]), &["edit", "view"]),
            (Some(&["system:node-reader"]), &["system:node-reader"]),
            (Some(&["none"]), &[]),
        ] {
            let given = given.map(|it: &[&str]| it.iter().map(|it| (*it).to_owned()).collect());
            let installed = binding(&["view".to_owned()]);
            assert_eq!(roles(given, &installed).expect("valid"), want);
        }
        for bad in ["", "*", "a/b", "+*"] {
            assert!(roles(Some(vec![bad.to_owned()]), &[]).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_role_is_bound_by_its_name_alone_and_nothing_else_changes() {
        let kinds = vec![
            json!({"apiGroups": [RBAC], "resources": ["roles"], "verbs": VERBS}),
            json!({"apiGroups": ["apps"], "resources": ["deployments"], "verbs": VERBS}),
        ];
        let named = binding(&["edit".to_owned(), "view".to_owned()]);
        let bind: Vec<_> = named
            .iter()
            .filter(|rule| rule["resources"] == json!(["clusterroles"]))
            .collect();
        assert_eq!(bind.len(), 1);
        assert_eq!(bind[0]["resourceNames"], json!(["edit", "view"]));
        assert_eq!(bind[0]["verbs"], json!(["bind"]));
        assert!(binding(&[]).is_empty());
        let all: Vec<Value> = kinds.iter().chain(&named).cloned().collect();
        assert_eq!(without_binding(&all), kinds);
        // Of somebody who allowed the kinds themselves they stay.
        let by_kind = vec![bindings()];
        assert_eq!(without_binding(&by_kind), by_kind);
    }

    #[test]
    fn kinds_replace_what_is_installed_or_come_to_it() {
        let of = |given: Option<&[&str]>, installed: Option<&[Value]>| {
            let given = given.map(|it| it.iter().map(|it| (*it).to_owned()).collect());
            kinds(given, installed)
        };
        let shown = |all: &[&str]| {
            Ok(Allowed::Kinds(
                all.iter().map(|it| (*it).to_owned()).collect(),
            ))
        };
        let (apps, secrets) = (
            json!({"apiGroups": ["apps"], "resources": ["deployments"], "verbs": VERBS}),
            json!({"apiGroups": [""], "resources": ["secrets"], "verbs": VERBS}),
        );
        let mut installed = vec![apps.clone()];
        installed.extend(binding(&["view".to_owned()]));
        let same = |got: Result<Allowed, CliError>, want: Result<Allowed, CliError>| {
            assert_eq!(got.expect("valid"), want.expect("valid"));
        };
        same(of(None, None), shown(&[]));
        same(
            of(Some(&["secrets"]), Some(&installed)),
            shown(&["secrets"]),
        );
        same(
            of(Some(&["+secrets"]), None),
            shown(&["default", "secrets"]),
        );
        same(
            of(None, Some(&installed)),
            Ok(Allowed::Rules(vec![apps.clone()])),
        );
        let both = vec![apps.clone(), secrets];
        same(
            of(Some(&["+secrets"]), Some(&installed)),
            Ok(Allowed::Rules(both)),
        );
        same(
            of(Some(&["+deployments"]), Some(&installed)),
            Ok(Allowed::Rules(vec![apps])),
        );
        for given in [&["+secrets", "jobs"][..], &["+Secrets"]] {
            assert!(of(Some(given), Some(&installed)).is_err(), "{given:?}");
        }
    }

    #[test]
    fn what_is_no_kind_is_refused() {
        for bad in ["*", "Deployment", "a/b", "", "x.", "secrets/status"] {
            assert!(shown(&[bad]).is_err(), "{bad}");
        }
    }
}
