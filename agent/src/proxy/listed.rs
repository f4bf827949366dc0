//! Whom the member's owner lets users of the hub be, by the rules of the account that acts as them. Pure.

use common::tunnel::{Comes, Identity, PROXIED, service_account, service_account_user};
use k8s_openapi::api::rbac::v1::PolicyRule;
use std::collections::BTreeSet;

/// A right to act as somebody: verb and API group, as Kubernetes asks for it plainly and where it asks for what is done
/// as them besides.
type Right = (&'static str, &'static str);

const PLAIN: Right = ("impersonate", "");
const AS_USER: Right = ("impersonate:user-info", "authentication.k8s.io");
const AS_ACCOUNT: Right = ("impersonate:serviceaccount", "authentication.k8s.io");

/// Whom the member's owner lets users of the hub be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Listed {
    users: Names,
    groups: Names,
    /// ServiceAccounts of the namespace that is theirs.
    accounts: Names,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Names {
    All,
    These(BTreeSet<String>),
}

impl Default for Names {
    fn default() -> Self {
        Self::These(BTreeSet::new())
    }
}

impl Names {
    /// Those that rules name of a resource, as RBAC reads them.
    fn of(rules: &[PolicyRule], resource: &str, rights: [Right; 2]) -> Self {
        let has = |list: &[String], one: &str| list.iter().any(|item| item == one || item == "*");
        let mut names = Self::default();
        for rule in rules {
            let groups = rule.api_groups.as_deref().unwrap_or_default();
            let given = |(verb, group): &Right| has(&rule.verbs, verb) && has(groups, group);
            let resources = rule.resources.as_deref().unwrap_or_default();
            if rights.iter().any(given) && has(resources, resource) {
                names.add(rule.resource_names.as_ref());
            }
        }
        names
    }

    fn has(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::These(names) => names.contains(name),
        }
    }

    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn add(&mut self, names: Option<&Vec<String>>) {
        match (self, names.filter(|names| !names.is_empty())) {
            (Self::These(all), Some(names)) => all.extend(names.iter().cloned()),
            (this, None) => *this = Self::All,
            (Self::All, Some(_)) => {}
        }
    }
}

impl Listed {
    /// What two roles say: that of the whole member, and that of the namespace of users' ServiceAccounts.
    pub(super) fn of(everywhere: &[PolicyRule], of_accounts: &[PolicyRule]) -> Self {
        Self {
            users: Names::of(everywhere, "users", [PLAIN, AS_USER]),
            groups: Names::of(everywhere, "groups", [PLAIN, AS_USER]),
            accounts: Names::of(of_accounts, "serviceaccounts", [PLAIN, AS_ACCOUNT]),
        }
    }

    /// As whom those come in who are not listed by their own names.
    pub(super) fn comes(&self) -> Comes {
        match (&self.users, self.accounts.is_empty()) {
            (Names::All, _) => Comes::Users,
            (_, false) => Comes::ServiceAccounts,
            (users, true) if users.has(PROXIED) => Comes::Groups,
            _ => Comes::Users,
        }
    }

    /// As whom a user of the hub comes in: by their own name if it is listed; else, where these are, as their
    /// ServiceAccount, whose groups are the member's to say, or as the one user who stands for everybody in a group
    /// that is listed.
    pub(super) fn whom(&self, of: &Identity) -> Result<Whom, NotLetIn> {
        let user = of.user().to_owned();
        let comes = self.comes();
        if comes == Comes::ServiceAccounts && !self.users.has(&user) {
            let account = service_account(&user);
            return match self.accounts.has(&account) {
                true => Ok(Whom {
                    user: service_account_user(&account),
                    ..Whom::default()
                }),
                false => Err(NotLetIn::User(user)),
            };
        }
        let groups = of.groups().iter().cloned();
        let (groups, left_out) = groups.partition::<Vec<_>, _>(|group| self.groups.has(group));
        if self.users.has(&user) {
            return Ok(Whom {
                user,
                named: None,
                groups,
                left_out,
            });
        }
        if comes != Comes::Groups {
            return Err(NotLetIn::User(user));
        }
        if groups.is_empty() {
            return Err(NotLetIn::Groups);
        }
        Ok(Whom {
            user: PROXIED.to_owned(),
            named: Some(user),
            groups,
            left_out,
        })
    }
}

/// Who somebody is in the member.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Whom {
    /// The user.
    pub(super) user: String,
    /// Who that is by their own name, where it is another one.
    pub(super) named: Option<String>,
    /// Their groups there.
    pub(super) groups: Vec<String>,
    /// Those that stay behind.
    pub(super) left_out: Vec<String>,
}

impl Whom {
    /// Whether they still may be who they were, with each of the groups.
    pub(super) fn holds(&self, now: &Result<Self, NotLetIn>) -> bool {
        now.as_ref().is_ok_and(|now| {
            let mut groups = self.groups.iter();
            (&self.user, &self.named) == (&now.user, &now.named)
                && groups.all(|group| now.groups.contains(group))
        })
    }
}

/// Why somebody does not come in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotLetIn {
    /// The user is not listed.
    #[error(
        "its owner lets no user {0:?} of the hub in; `towline register --proxy-user +{0}`, run on it, does (for a joined \
         one: `towline join NAME --cluster-kubeconfig FILE --proxy-user +{0}`)"
    )]
    User(String),
    /// Nor is any of their groups.
    #[error(
        "its owner lets groups of the hub in, and you are in none of them; `towline register --proxy-group +GROUP`, \
         run on it, lets one more in (for a joined one: `towline join NAME --cluster-kubeconfig FILE --proxy-group +GROUP`)"
    )]
    Groups,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn listed(rules: Value) -> Listed {
        let rules: Vec<PolicyRule> = serde_json::from_value(rules).expect("rules");
        Listed::of(&rules, &[])
    }

    #[test]
    fn whom_a_role_lists_may_come_in_and_nobody_else() {
        assert_eq!(listed(json!([])), Listed::default());
        let some = listed(json!([
            {"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"], "resourceNames": ["ann"]},
            {"verbs": ["impersonate"], "apiGroups": [""], "resources": ["groups"], "resourceNames": ["dev"]},
            {"verbs": ["get"], "apiGroups": [""], "resources": ["users"], "resourceNames": ["bob"]},
            {"verbs": ["impersonate"], "apiGroups": ["x"], "resources": ["users"]},
        ]));
        let whom = |listed: &Listed, user: &str, groups: &[&str]| {
            let groups: Vec<String> = groups.iter().map(|it| (*it).to_owned()).collect();
            listed.whom(&Identity::of(user, &groups).expect("fit"))
        };
        let ann = whom(&some, "ann", &["dev", "ops"]).expect("let in");
        assert_eq!((ann.user.as_str(), &ann.named), ("ann", &None));
        assert_eq!(
            (ann.groups, ann.left_out),
            (vec!["dev".to_owned()], vec!["ops".to_owned()])
        );
        for user in ["bob", "dev"] {
            let refused = whom(&some, user, &["dev"]).expect_err("not listed");
            assert_eq!(refused, NotLetIn::User(user.to_owned()));
        }
        let all = listed(json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]));
        let ann = whom(&all, "ann", &["dev", "ops"]).expect("let in");
        assert_eq!((ann.user.as_str(), ann.left_out.len()), ("ann", 0));
    }

    #[test]
    fn members_of_groups_come_as_one_user_who_is_nobody_else() {
        let some = listed(json!([
            {"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"], "resourceNames": [PROXIED, "ann"]},
            {"verbs": ["impersonate"], "apiGroups": [""], "resources": ["groups"], "resourceNames": ["dev", "web"]},
        ]));
        let whom = |user: &str, groups: &[&str]| {
            let groups: Vec<String> = groups.iter().map(|it| (*it).to_owned()).collect();
            some.whom(&Identity::of(user, &groups).expect("fit"))
        };
        let bob = whom("bob", &["dev", "ops"]).expect("let in");
        assert_eq!(
            (bob.user.as_str(), bob.named.as_deref()),
            (PROXIED, Some("bob"))
        );
        assert_eq!(
            (bob.groups.clone(), bob.left_out.clone()),
            (vec!["dev".to_owned()], vec!["ops".to_owned()])
        );
        assert_eq!(whom("ann", &["dev"]).expect("let in").user, "ann");
        assert_eq!(whom("bob", &["ops"]), Err(NotLetIn::Groups));
        assert_eq!(whom("bob", &[]), Err(NotLetIn::Groups));
        // Nobody of the hub has that name, whatever the hub says.
        assert!(Identity::of(PROXIED, &["dev".to_owned()]).is_err());

        assert!(bob.holds(&whom("bob", &["dev", "web"])));
        assert!(
            !bob.holds(&whom("bob", &["web"])),
            "a group that is let in no more"
        );
        assert!(!bob.holds(&whom("carl", &["dev"])));
        assert!(!bob.holds(&whom("bob", &[])));
    }

    fn accounts(verb: &str, group: &str, names: &[&str]) -> Vec<PolicyRule> {
        let rule = json!([{
            "verbs": [verb], "apiGroups": [group], "resources": ["serviceaccounts"], "resourceNames": names,
        }]);
        serde_json::from_value(rule).expect("rules")
    }

    #[test]
    fn users_come_as_accounts_of_one_namespace_without_groups() {
        let by_name = json!([
            {"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"], "resourceNames": ["bob"]},
            {"verbs": ["impersonate"], "apiGroups": [""], "resources": ["groups"], "resourceNames": ["dev"]},
        ]);
        let by_name: Vec<PolicyRule> = serde_json::from_value(by_name).expect("rules");
        let whom = |listed: &Listed, user: &str| {
            let identity = Identity::of(user, &["dev".to_owned()]).expect("fit");
            listed.whom(&identity)
        };
        for rules in [
            accounts("impersonate", "", &[]),
            accounts("impersonate:serviceaccount", "authentication.k8s.io", &[]),
        ] {
            let all = Listed::of(&by_name, &rules);
            assert_eq!(all.comes(), Comes::ServiceAccounts);
            let ann = whom(&all, "ann").expect("let in");
            assert_eq!(ann.user, "system:serviceaccount:towline-users:ann");
            assert!(ann.groups.is_empty() && ann.named.is_none() && ann.left_out.is_empty());
            // Who is named is themselves, and has their groups.
            let bob = whom(&all, "bob").expect("let in");
            assert_eq!((bob.user.as_str(), bob.groups.len()), ("bob", 1));
            assert!(!ann.holds(&whom(&Listed::of(&by_name, &[]), "ann")));
            assert!(ann.holds(&whom(&all, "ann")));
        }
        let one = Listed::of(&[], &accounts("impersonate", "", &["ann"]));
        assert!(whom(&one, "ann").is_ok());
        assert_eq!(whom(&one, "carl"), Err(NotLetIn::User("carl".to_owned())));
    }

    #[test]
    fn a_right_to_be_an_account_is_one_of_that_namespace() {
        // Of all namespaces, of another verb, and of the group that the other verb has.
        let everywhere = accounts("impersonate", "", &[]);
        assert_eq!(Listed::of(&everywhere, &[]), Listed::default());
        for (verb, group) in [
            ("get", ""),
            ("impersonate:serviceaccount", ""),
            ("impersonate", "authentication.k8s.io"),
            ("impersonate:user-info", "authentication.k8s.io"),
        ] {
            let listed = Listed::of(&[], &accounts(verb, group, &[]));
            assert_eq!(listed, Listed::default(), "{verb} {group}");
        }
        let users = json!([
            {"verbs": ["impersonate:user-info"], "apiGroups": ["authentication.k8s.io"],
                "resources": ["users"], "resourceNames": ["ann"]},
            {"verbs": ["impersonate:user-info"], "apiGroups": [""], "resources": ["users"], "resourceNames": ["bob"]},
        ]);
        let users = listed(users);
        let whom = |user: &str| users.whom(&Identity::of(user, &[]).expect("fit"));
        assert!(whom("ann").is_ok() && whom("bob").is_err());
        assert_eq!(users.comes(), Comes::Users);
    }
}
