//! Roles and bindings, found by whom they are about. Pure.

use super::Decision;
use super::rule::{Action, Rule};
use crate::apiserver::caller::Caller;
use crate::apiserver::error::{ApiError, GroupResource};
use crate::go::quote;
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

pub(super) const RBAC: &str = "rbac.authorization.k8s.io";

/// What a binding refers to.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RoleRef {
    #[serde(default)]
    pub(super) api_group: String,
    #[serde(default)]
    pub(super) kind: String,
    #[serde(default)]
    pub(super) name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct Subject {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
}

#[derive(Debug, Clone)]
struct Binding {
    name: String,
    role: RoleRef,
    subjects: Vec<Subject>,
}

/// Whom a subject means: a user or a group by name. A ServiceAccount is a user.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Whom {
    User(String),
    Group(String),
}

impl Subject {
    /// `namespace` is that of the binding; empty for a cluster-wide one.
    fn whom(&self, namespace: &str) -> Option<Whom> {
        match self.kind.as_str() {
            "User" => Some(Whom::User(self.name.clone())),
            "Group" => Some(Whom::Group(self.name.clone())),
            "ServiceAccount" => {
                let own = self.namespace.as_str();
                let namespace = if own.is_empty() { namespace } else { own };
                (!namespace.is_empty())
                    .then(|| Whom::User(format!("system:serviceaccount:{namespace}:{}", self.name)))
            }
            _ => None,
        }
    }

    fn shown(&self, namespace: &str) -> String {
        if self.kind != "ServiceAccount" {
            return format!("{} {}", self.kind, quote(&self.name));
        }
        let own = self.namespace.as_str();
        let namespace = if own.is_empty() { namespace } else { own };
        format!(
            "{} {}",
            self.kind,
            quote(&format!("{}/{namespace}", self.name))
        )
    }
}

/// The bindings of one namespace, or the cluster-wide ones.
#[derive(Debug, Default)]
struct Bindings {
    by_name: BTreeMap<String, Binding>,
    by_whom: HashMap<Whom, BTreeSet<String>>,
}

impl Bindings {
    fn remove(&mut self, name: &str, namespace: &str) {
        let Some(old) = self.by_name.remove(name) else {
            return;
        };
        for whom in old.subjects.iter().filter_map(|s| s.whom(namespace)) {
            if let Some(names) = self.by_whom.get_mut(&whom) {
                names.remove(name);
                if names.is_empty() {
                    self.by_whom.remove(&whom);
                }
            }
        }
    }

    fn put(&mut self, binding: Binding, namespace: &str) {
        self.remove(&binding.name, namespace);
        for whom in binding.subjects.iter().filter_map(|s| s.whom(namespace)) {
            self.by_whom
                .entry(whom)
                .or_default()
                .insert(binding.name.clone());
        }
        self.by_name.insert(binding.name.clone(), binding);
    }

    /// The bindings that are about a caller, by name.
    fn about(&self, caller: &Caller) -> impl Iterator<Item = &Binding> {
        let groups = caller.groups.iter().cloned().map(Whom::Group);
        let whoms = std::iter::once(Whom::User(caller.user.clone())).chain(groups);
        let names: BTreeSet<&String> = whoms
            .filter_map(|whom| self.by_whom.get(&whom))
            .flatten()
            .collect();
        names.into_iter().filter_map(|name| self.by_name.get(name))
    }
}

/// Every role and binding.
#[derive(Debug, Default)]
pub(super) struct Index {
    cluster_roles: HashMap<String, Arc<[Rule]>>,
    roles: HashMap<(String, String), Arc<[Rule]>>,
    cluster_bindings: Bindings,
    bindings: HashMap<String, Bindings>,
}

/// Which kind of object the index is told about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    ClusterRole,
    ClusterRoleBinding,
    Role,
    RoleBinding,
}

impl Kind {
    pub(super) const ALL: [Self; 4] = [
        Self::ClusterRole,
        Self::ClusterRoleBinding,
        Self::Role,
        Self::RoleBinding,
    ];

    pub(super) fn plural(self) -> &'static str {
        match self {
            Self::ClusterRole => "clusterroles",
            Self::ClusterRoleBinding => "clusterrolebindings",
            Self::Role => "roles",
            Self::RoleBinding => "rolebindings",
        }
    }
}

impl Index {
    /// Takes an object in. One that cannot be read gives nothing.
    pub(super) fn put(&mut self, kind: Kind, namespace: &str, name: &str, object: &Value) {
        match kind {
            Kind::ClusterRole => {
                self.cluster_roles.insert(name.to_owned(), rules_of(object));
            }
            Kind::Role => {
                let key = (namespace.to_owned(), name.to_owned());
                self.roles.insert(key, rules_of(object));
            }
            Kind::ClusterRoleBinding | Kind::RoleBinding => {
                let binding = read_binding(name, object);
                match (kind, binding) {
                    (_, None) => self.remove(kind, namespace, name),
                    (Kind::ClusterRoleBinding, Some(binding)) => {
                        self.cluster_bindings.put(binding, "");
                    }
                    (_, Some(binding)) => {
                        let bindings = self.bindings.entry(namespace.to_owned()).or_default();
                        bindings.put(binding, namespace);
                    }
                }
            }
        }
    }

    /// Forgets a kind.
    pub(super) fn clear(&mut self, kind: Kind) {
        match kind {
            Kind::ClusterRole => self.cluster_roles.clear(),
            Kind::Role => self.roles.clear(),
            Kind::ClusterRoleBinding => self.cluster_bindings = Bindings::default(),
            Kind::RoleBinding => self.bindings.clear(),
        }
    }

    /// Forgets an object.
    pub(super) fn remove(&mut self, kind: Kind, namespace: &str, name: &str) {
        match kind {
            Kind::ClusterRole => {
                self.cluster_roles.remove(name);
            }
            Kind::Role => {
                self.roles.remove(&(namespace.to_owned(), name.to_owned()));
            }
            Kind::ClusterRoleBinding => self.cluster_bindings.remove(name, ""),
            Kind::RoleBinding => {
                let Some(bindings) = self.bindings.get_mut(namespace) else {
                    return;
                };
                bindings.remove(name, namespace);
                if bindings.by_name.is_empty() {
                    self.bindings.remove(namespace);
                }
            }
        }
    }

    /// The rules a reference leads to, or why it leads nowhere.
    fn resolve(&self, role: &RoleRef, namespace: &str) -> Result<Arc<[Rule]>, String> {
        let missing = |kind: &str| {
            let on = GroupResource::new(RBAC, kind);
            ApiError::not_found(&on, &role.name).message
        };
        match role.kind.as_str() {
            "ClusterRole" => {
                let found = self.cluster_roles.get(&role.name);
                found.cloned().ok_or_else(|| missing("clusterrole"))
            }
            "Role" => {
                let key = (namespace.to_owned(), role.name.clone());
                self.roles.get(&key).cloned().ok_or_else(|| missing("role"))
            }
            other => Err(format!("unsupported role reference kind: {}", quote(other))),
        }
    }

    /// The rules of a role that a binding in `namespace` is to refer to.
    pub(super) fn referred(
        &self,
        role: &RoleRef,
        namespace: &str,
    ) -> Result<Arc<[Rule]>, ApiError> {
        self.resolve(role, namespace).map_err(|why| {
            let plural = match role.kind.as_str() {
                "ClusterRole" => "clusterroles",
                "Role" => "roles",
                _ => return ApiError::internal(why),
            };
            ApiError::not_found(&GroupResource::new(RBAC, plural), &role.name)
        })
    }

    /// Bindings about a caller, cluster-wide ones first, with the namespace they lie in.
    fn about<'a>(
        &'a self,
        caller: &Caller,
        namespace: &'a str,
    ) -> impl Iterator<Item = (&'a Binding, &'a str)> {
        let own = self.bindings.get(namespace);
        let own = own.into_iter().flat_map(|own| own.about(caller));
        let own: Vec<_> = own.map(|binding| (binding, namespace)).collect();
        let wide = self.cluster_bindings.about(caller);
        wide.map(|binding| (binding, ""))
            .chain(own)
            .collect::<Vec<_>>()
            .into_iter()
    }

    pub(super) fn decide(&self, caller: &Caller, namespace: &str, action: &Action<'_>) -> Decision {
        let namespace = match action {
            Action::Resource { .. } => namespace,
            Action::Path { .. } => "",
        };
        let mut problems = Vec::new();
        let mut seen = HashSet::new();
        for (binding, place) in self.about(caller, namespace) {
            match self.resolve(&binding.role, place) {
                // What did not allow it the first time does not by another binding.
                Ok(rules) if !seen.insert(rules.as_ptr()) => {}
                Ok(rules) if rules.iter().any(|rule| rule.allows(action)) => {
                    return Decision {
                        allowed: true,
                        reason: format!("RBAC: allowed by {}", describe(binding, caller, place)),
                    };
                }
                Ok(_) => {}
                Err(problem) => problems.push(problem),
            }
        }
        Decision {
            allowed: false,
            reason: match aggregate(problems) {
                Some(problems) => format!("RBAC: {problems}"),
                None => String::new(),
            },
        }
    }

    /// The rules of each role that is bound to a caller, each role once however many bindings lead to it; and
    /// what leads nowhere.
    pub(super) fn rules(
        &self,
        caller: &Caller,
        namespace: &str,
    ) -> (Vec<Arc<[Rule]>>, Vec<String>) {
        let (mut rules, mut problems) = (Vec::new(), Vec::new());
        let mut seen = HashSet::new();
        for (binding, place) in self.about(caller, namespace) {
            match self.resolve(&binding.role, place) {
                Ok(found) if seen.insert(found.as_ptr()) => rules.push(found),
                Ok(_) => {}
                Err(problem) => problems.push(problem),
            }
        }
        (rules, problems)
    }
}

fn describe(binding: &Binding, caller: &Caller, namespace: &str) -> String {
    let about = binding.subjects.iter().find(|subject| {
        subject.whom(namespace).is_some_and(|whom| match whom {
            Whom::User(user) => user == caller.user,
            Whom::Group(group) => caller.is_in(&group),
        })
    });
    let (kind, name) = if namespace.is_empty() {
        ("ClusterRoleBinding", binding.name.clone())
    } else {
        ("RoleBinding", format!("{}/{namespace}", binding.name))
    };
    format!(
        "{kind} {} of {} {} to {}",
        quote(&name),
        binding.role.kind,
        quote(&binding.role.name),
        about
            .map(|subject| subject.shown(namespace))
            .unwrap_or_default(),
    )
}

/// Several problems as one text, each once.
pub(super) fn aggregate(mut problems: Vec<String>) -> Option<String> {
    let mut seen = BTreeSet::new();
    problems.retain(|problem| seen.insert(problem.clone()));
    match problems.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        many => Some(format!("[{}]", many.join(", "))),
    }
}

/// The rules of a role.
pub(super) fn rules_of(role: &Value) -> Arc<[Rule]> {
    let rules = role["rules"].as_array().into_iter().flatten();
    rules
        .filter_map(|rule| Rule::deserialize(rule).ok())
        .collect()
}

/// What a binding refers to.
pub(super) fn role_ref_of(binding: &Value) -> Option<RoleRef> {
    RoleRef::deserialize(&binding["roleRef"]).ok()
}

fn read_binding(name: &str, object: &Value) -> Option<Binding> {
    let subjects = object["subjects"].as_array().into_iter().flatten();
    Some(Binding {
        name: name.to_owned(),
        role: role_ref_of(object)?,
        subjects: subjects
            .filter_map(|subject| Subject::deserialize(subject).ok())
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn caller(user: &str, groups: &[&str]) -> Caller {
        Caller {
            user: user.to_owned(),
            groups: groups.iter().map(|g| (*g).to_owned()).collect(),
            ..Caller::default()
        }
    }

    fn index() -> Index {
        let mut index = Index::default();
        let role = json!({"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]});
        index.put(Kind::ClusterRole, "", "reader", &role);
        index.put(Kind::Role, "a", "local", &role);
        let bind = |kind: &str, role: &str, subjects: Value| json!({"roleRef": {"apiGroup": RBAC, "kind": kind, "name": role}, "subjects": subjects});
        let group = json!([{"kind": "Group", "name": "readers"}]);
        index.put(
            Kind::ClusterRoleBinding,
            "",
            "readers",
            &bind("ClusterRole", "reader", group),
        );
        let account = json!([{"kind": "ServiceAccount", "name": "s"}]);
        index.put(
            Kind::RoleBinding,
            "a",
            "account",
            &bind("Role", "local", account),
        );
        let user = json!([{"kind": "User", "name": "u"}]);
        index.put(
            Kind::RoleBinding,
            "a",
            "gone",
            &bind("ClusterRole", "gone", user),
        );
        index
    }

    fn get(index: &Index, caller: &Caller, namespace: &str) -> Decision {
        let action = Action::Resource {
            verb: "get",
            group: "",
            resource: "pods",
            subresource: "",
            name: "x",
        };
        index.decide(caller, namespace, &action)
    }

    #[test]
    fn bindings_decide_and_say_so() {
        let index = index();
        let reader = caller("x", &["readers"]);
        assert_eq!(
            get(&index, &reader, "b").reason,
            "RBAC: allowed by ClusterRoleBinding \"readers\" of ClusterRole \"reader\" to Group \"readers\""
        );
        let account = caller("system:serviceaccount:a:s", &[]);
        assert_eq!(
            get(&index, &account, "a").reason,
            "RBAC: allowed by RoleBinding \"account/a\" of Role \"local\" to ServiceAccount \"s/a\""
        );
        assert!(!get(&index, &account, "b").allowed);
        assert_eq!(
            get(&index, &caller("u", &[]), "a"),
            Decision {
                allowed: false,
                reason: "RBAC: clusterrole.rbac.authorization.k8s.io \"gone\" not found".to_owned(),
            }
        );
    }

    #[test]
    fn a_role_counts_once_however_often_it_is_bound() {
        let mut index = index();
        let names: Vec<String> = (0..1_000).map(|n| n.to_string()).collect();
        let role = json!({"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"],
            "resourceNames": names}]});
        index.put(Kind::Role, "a", "large", &role);
        let bind = |role: &str| {
            json!({"roleRef": {"apiGroup": RBAC, "kind": "Role", "name": role},
                "subjects": [{"kind": "User", "name": "u"}]})
        };
        for number in 0..50 {
            index.put(
                Kind::RoleBinding,
                "a",
                &format!("b{number}"),
                &bind("large"),
            );
        }
        let caller = caller("u", &[]);
        let (rules, problems) = index.rules(&caller, "a");
        assert_eq!((rules.len(), problems.len()), (1, 1));
        assert_eq!(rules[0][0].resource_names, names);
        // It is one role by each of its bindings, and another one allows what it does not.
        assert!(!get(&index, &caller, "a").allowed);
        index.put(Kind::RoleBinding, "a", "z", &bind("local"));
        assert!(get(&index, &caller, "a").allowed);
        assert_eq!(index.rules(&caller, "a").0.len(), 2);
    }

    #[test]
    fn what_is_removed_or_changed_counts_no_more() {
        let mut index = index();
        let reader = caller("x", &["readers"]);
        let empty = json!({"roleRef": {"kind": "ClusterRole", "name": "reader"}});
        index.put(Kind::ClusterRoleBinding, "", "readers", &empty);
        assert!(!get(&index, &reader, "").allowed);
        let account = caller("system:serviceaccount:a:s", &[]);
        index.remove(Kind::RoleBinding, "a", "account");
        assert!(!get(&index, &account, "a").allowed);
        index.remove(Kind::RoleBinding, "a", "gone");
        assert!(index.bindings.is_empty());
        assert!(index.cluster_bindings.by_whom.is_empty());
    }
}
