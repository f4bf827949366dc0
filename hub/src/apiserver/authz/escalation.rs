//! Nobody grants what they do not have, unless they were explicitly allowed to.

use super::cover::missing;
use super::index::{Index, RBAC, aggregate, role_ref_of, rules_of};
use super::rule::{Rule, quoted_list};
use super::{Attributes, Authorizer};
use crate::apiserver::caller::{Caller, MASTERS};
use crate::apiserver::error::{ApiError, GroupResource};
use crate::go::quote;
use serde_json::Value;

/// A write of a role or a binding.
#[derive(Debug, Clone, Copy)]
pub struct Grant<'a> {
    /// Who writes.
    pub caller: &'a Caller,
    /// Plural name of the kind.
    pub resource: &'a str,
    /// Namespace; empty for cluster-wide kinds.
    pub namespace: &'a str,
    /// Name in the path; empty at a creation.
    pub path_name: &'a str,
    /// The object as it is to be.
    pub object: &'a Value,
    /// As it was.
    pub old: Option<&'a Value>,
}

impl Authorizer {
    /// Refuses a role or binding that gives more than its writer has.
    pub fn check_grant(&self, grant: &Grant<'_>) -> Result<(), ApiError> {
        if grant.caller.is_in(MASTERS) || only_collected(grant) {
            return Ok(());
        }
        match grant.resource {
            "roles" | "clusterroles" => self.check_role(grant),
            "rolebindings" | "clusterrolebindings" => self.check_binding(grant),
            _ => Ok(()),
        }
    }

    fn check_role(&self, grant: &Grant<'_>) -> Result<(), ApiError> {
        if self.may(grant, "escalate", grant.resource, grant.path_name) {
            return Ok(());
        }
        self.check_covered(grant, &rules_of(grant.object))?;
        let aggregates = |role: &Value| {
            let selectors = &role["aggregationRule"]["clusterRoleSelectors"];
            selectors.as_array().is_some_and(|list| !list.is_empty())
        };
        // What an aggregation gathers is not known in advance, so it needs every right.
        if aggregates(grant.object) || grant.old.is_some_and(aggregates) {
            let everything = || vec!["*".to_owned()];
            let all = [
                Rule {
                    verbs: everything(),
                    api_groups: everything(),
                    resources: everything(),
                    ..Rule::default()
                },
                Rule {
                    verbs: everything(),
                    non_resource_urls: everything(),
                    ..Rule::default()
                },
            ];
            let (owned, _) = self.rules(grant.caller, grant.namespace);
            let owned = owned.iter().flat_map(|role| role.iter());
            if !missing(owned, &all).is_empty() {
                return Err(grant
                    .forbidden("must have cluster-admin privileges to use the aggregationRule"));
            }
        }
        Ok(())
    }

    fn check_binding(&self, grant: &Grant<'_>) -> Result<(), ApiError> {
        let Some(role) = role_ref_of(grant.object) else {
            return Ok(());
        };
        let plural = match role.kind.as_str() {
            "ClusterRole" => "clusterroles",
            "Role" => "roles",
            _ => "",
        };
        if !plural.is_empty() && self.may(grant, "bind", plural, &role.name) {
            return Ok(());
        }
        let rules = self.read(|index: &Index| index.referred(&role, grant.namespace))?;
        self.check_covered(grant, &rules)
    }

    fn may(&self, grant: &Grant<'_>, verb: &str, resource: &str, name: &str) -> bool {
        let asked = Attributes {
            verb: verb.to_owned(),
            group: RBAC.to_owned(),
            resource: resource.to_owned(),
            namespace: grant.namespace.to_owned(),
            name: name.to_owned(),
            ..Attributes::default()
        };
        self.decide(grant.caller, &asked).allowed
    }

    fn check_covered(&self, grant: &Grant<'_>, wanted: &[Rule]) -> Result<(), ApiError> {
        let (owned, problems) = self.rules(grant.caller, grant.namespace);
        let owned = owned.iter().flat_map(|role| role.iter());
        let lacking = missing(owned, wanted);
        if lacking.is_empty() {
            return Ok(());
        }
        let mut why = format!(
            "user {} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
            quote(&grant.caller.user),
            quoted_list(&grant.caller.groups),
            lacking.join("\n"),
        );
        if let Some(problems) = aggregate(problems) {
            why.push_str(&format!("; resolution errors: [{problems}]"));
        }
        Err(grant.forbidden(&why))
    }
}

impl Grant<'_> {
    fn forbidden(&self, why: &str) -> ApiError {
        let name = self.object["metadata"]["name"].as_str().unwrap_or_default();
        ApiError::forbidden(&GroupResource::new(RBAC, self.resource), name, why)
    }
}

/// Whether a write changes nothing but what the garbage collector has to change.
fn only_collected(grant: &Grant<'_>) -> bool {
    let Some(old) = grant.old else {
        return false;
    };
    let bare = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object["metadata"].as_object_mut() {
            for field in [
                "ownerReferences",
                "finalizers",
                "managedFields",
                "resourceVersion",
            ] {
                metadata.remove(field);
            }
        }
        object
    };
    bare(grant.object) == bare(old)
}

#[cfg(test)]
mod tests {
    use super::super::index::Kind;
    use super::*;
    use serde_json::json;

    fn authorizer() -> Authorizer {
        let authorizer = Authorizer::default();
        authorizer.write(|index| {
            let role = json!({"rules": [
                {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]},
                {"verbs": ["*"], "apiGroups": [RBAC], "resources": ["roles", "rolebindings"]},
            ]});
            index.put(Kind::ClusterRole, "", "small", &role);
            let all = json!({"rules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]});
            index.put(Kind::ClusterRole, "", "all", &all);
            let bind = json!({"roleRef": {"kind": "ClusterRole", "name": "small"},
                              "subjects": [{"kind": "User", "name": "u"}]});
            index.put(Kind::RoleBinding, "a", "small", &bind);
        });
        authorizer
    }

    fn check(resource: &str, object: &Value, old: Option<&Value>) -> Result<(), ApiError> {
        let caller = Caller {
            user: "u".to_owned(),
            ..Caller::default()
        };
        authorizer().check_grant(&Grant {
            caller: &caller,
            resource,
            namespace: "a",
            path_name: "",
            object,
            old,
        })
    }

    #[test]
    fn only_what_is_held_can_be_granted() {
        let role = |verb: &str| {
            json!({"metadata": {"name": "r"},
                   "rules": [{"verbs": [verb], "apiGroups": [""], "resources": ["pods"]}]})
        };
        assert_eq!(check("clusterroles", &role("get"), None), Ok(()));
        let refused = check("clusterroles", &role("list"), None).expect_err("more than held");
        assert_eq!(refused.code, 403);
        assert_eq!(
            refused.message,
            "clusterroles.rbac.authorization.k8s.io \"r\" is forbidden: user \"u\" (groups=[]) is \
             attempting to grant RBAC permissions not currently held:\n\
             {APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"list\"]}"
        );
        // Every verb on roles includes escalate.
        assert_eq!(check("roles", &role("list"), None), Ok(()));
    }

    #[test]
    fn a_binding_gives_what_its_role_holds() {
        let bind = |name: &str| json!({"metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name": name}});
        assert_eq!(check("rolebindings", &bind("small"), None), Ok(()));
        assert_eq!(
            check("rolebindings", &bind("all"), None).map_err(|e| e.code),
            Err(403)
        );
        assert_eq!(
            check("rolebindings", &bind("none"), None).map_err(|e| e.code),
            Err(404)
        );
        let mut released = bind("all");
        released["metadata"]["finalizers"] = json!(["x"]);
        assert_eq!(check("rolebindings", &bind("all"), Some(&released)), Ok(()));
    }
}
