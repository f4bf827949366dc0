//! Who gets which role in members, and the objects that say so. Pure.
//!
//! A grant is a Work of one binding; which grants there are is read from the Works. The hub's own right to reach those
//! members is one ClusterRole for each user or group, made of all of their grants.

use common::api::work::{Work, WorkSpec, WorkloadTemplate};
use common::labels::ACCESS;
use common::names::{ClusterName, EXECUTION_PREFIX, USERS_NAMESPACE, is_dns_label};
use common::tunnel::{
    AUTHENTICATED, Identity, PROXIED_USER, Unfit, in_member, on_hub, service_account,
};
use http::HeaderMap;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, RoleRef, Subject};
use kube::api::ObjectMeta;
use ring::digest::{SHA256, digest};
use serde::Serialize;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

const RBAC: &str = "rbac.authorization.k8s.io";
/// What the names of Works, bindings and roles of grants begin with.
const NAME: &str = "towline-access-";
/// The role that reads alone.
pub(super) const VIEW: &str = "view";
/// What the hub lets through for that role, and for every other one.
const READING: [&str; 1] = ["get"];
const ANYTHING: [&str; 5] = ["create", "delete", "get", "patch", "update"];
/// The groups of `clusters/proxy`: on a hub of Towline's own API server, and on one of kube-apiserver.
const GROUPS: [&str; 2] = ["cluster.karmada.io", "proxy.towline.dev"];

/// A user or a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) enum Who {
    User,
    Group,
}

/// Somebody, by the name that the hub knows them by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct Named {
    pub(super) kind: Who,
    pub(super) name: String,
}

/// Somebody, or a role, that no grant can be about.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unmeant {
    /// Not to be told to a member.
    #[error("{0:?} cannot be named to a member: {1}")]
    Unfit(String, Unfit),
    /// Everybody.
    #[error("group {AUTHENTICATED:?} is everybody, and does not come along into members")]
    Everybody,
    /// Every name at once.
    #[error("{0:?} names nobody: name one user, or one group by --group")]
    Nobody(String),
    /// No name of a role.
    #[error("--role {0:?} is no name of a ClusterRole")]
    Role(String),
    /// No name of a namespace.
    #[error("--namespace {0:?} is no name of a namespace")]
    Namespace(String),
}

impl Named {
    /// A user, or a group.
    pub(super) fn new(name: &str, is_group: bool) -> Result<Self, Unmeant> {
        if name.is_empty() || name == "*" {
            return Err(Unmeant::Nobody(name.to_owned()));
        }
        let kind = match is_group {
            true if name == AUTHENTICATED => return Err(Unmeant::Everybody),
            true => Who::Group,
            false => Who::User,
        };
        let unfit = |error| Unmeant::Unfit(name.to_owned(), error);
        let identity = Identity::of(name, &[]).map_err(unfit)?;
        identity.write(&mut HeaderMap::new()).map_err(unfit)?;
        Ok(Self {
            kind,
            name: name.to_owned(),
        })
    }

    /// Whose right a binding of the hub is; none for one of other names.
    pub(super) fn bound(binding: &ClusterRoleBinding) -> Option<Self> {
        let [subject] = binding.subjects.as_deref()? else {
            return None;
        };
        let named = Self::new(&subject.name, subject.kind == Who::Group.as_str()).ok()?;
        let name = binding.metadata.name.as_deref();
        (name == Some(named.right().as_str())).then_some(named)
    }

    /// What marks everything of theirs.
    pub(super) fn id(&self) -> String {
        hex(&[self.kind.as_str(), &self.name])
    }

    /// What members call them.
    pub(super) fn in_member(&self) -> String {
        in_member(&self.name)
    }

    /// The name of the hub's own role and binding of theirs.
    pub(super) fn right(&self) -> String {
        format!("{NAME}{}", self.id())
    }

    /// The role by which they reach the clusters in which they have grants, each with the role that it gives, and what
    /// binds it to them; none when there is no grant.
    pub(super) fn reach<'a>(
        &self,
        grants: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Option<(ClusterRole, ClusterRoleBinding)> {
        let mut reading = BTreeSet::new();
        let mut anything = BTreeSet::new();
        for (cluster, role) in grants {
            match role {
                VIEW => reading.insert(cluster.to_owned()),
                _ => anything.insert(cluster.to_owned()),
            };
        }
        let reading = &reading - &anything;
        let all: BTreeSet<String> = reading.union(&anything).cloned().collect();
        let rule =
            |clusters: &BTreeSet<String>, groups: &[&str], resource: &str, verbs: &[&str]| {
                let texts =
                    |all: &[&str]| all.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
                // A rule without names would be one for every cluster.
                (!clusters.is_empty()).then(|| PolicyRule {
                    api_groups: Some(texts(groups)),
                    resources: Some(vec![resource.to_owned()]),
                    resource_names: Some(clusters.iter().cloned().collect()),
                    verbs: texts(verbs),
                    ..PolicyRule::default()
                })
            };
        let rules = [
            rule(&reading, &GROUPS, "clusters/proxy", &READING),
            rule(&anything, &GROUPS, "clusters/proxy", &ANYTHING),
            rule(&all, &GROUPS[..1], "clusters", &READING),
        ];
        let rules: Vec<PolicyRule> = rules.into_iter().flatten().collect();
        if rules.is_empty() {
            return None;
        }
        let metadata = ObjectMeta {
            name: Some(self.right()),
            labels: Some(self.labels()),
            ..ObjectMeta::default()
        };
        let role = ClusterRole {
            metadata: metadata.clone(),
            rules: Some(rules),
            ..ClusterRole::default()
        };
        let binding = ClusterRoleBinding {
            metadata,
            role_ref: cluster_role(&self.right()),
            subjects: Some(vec![Subject {
                api_group: Some(RBAC.to_owned()),
                kind: self.kind.as_str().to_owned(),
                name: self.name.clone(),
                namespace: None,
            }]),
        };
        Some((role, binding))
    }

    fn labels(&self) -> BTreeMap<String, String> {
        [(ACCESS.to_owned(), self.id())].into()
    }
}

impl Who {
    fn as_str(self) -> &'static str {
        match self {
            Self::User => "User",
            Self::Group => "Group",
        }
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Who::User => "user",
            Who::Group => "group",
        };
        write!(f, "{kind}/{}", self.name)
    }
}

/// What of a Kubernetes binding is an account of a namespace.
const ACCOUNT: &str = "ServiceAccount";

/// A role for somebody, in one namespace or in all of a member.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Grant {
    pub(super) subject: Named,
    pub(super) role: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) namespace: Option<String>,
    /// The ServiceAccount that the user is in the member; none where they come in by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) service_account: Option<String>,
}

impl Grant {
    /// A grant of what a command line names.
    pub(super) fn new(
        subject: Named,
        role: &str,
        namespace: Option<&str>,
    ) -> Result<Self, Unmeant> {
        let odd = matches!(role, "" | "." | "..") || role.contains(['/', '%', '*', ' ']);
        if odd || role.chars().any(char::is_control) {
            return Err(Unmeant::Role(role.to_owned()));
        }
        if let Some(namespace) = namespace.filter(|it| !is_dns_label(it)) {
            return Err(Unmeant::Namespace(namespace.to_owned()));
        }
        Ok(Self {
            subject,
            role: role.to_owned(),
            namespace: namespace.map(str::to_owned),
            service_account: None,
        })
    }

    /// The same for a user who comes in as a ServiceAccount.
    pub(super) fn as_service_account(&self) -> Self {
        Self {
            service_account: Some(service_account(&self.subject.in_member())),
            ..self.clone()
        }
    }

    /// The same as it is bound otherwise; a group is bound in one way alone.
    pub(super) fn bound_otherwise(&self) -> Option<Self> {
        match (self.subject.kind, &self.service_account) {
            (Who::Group, _) => None,
            (Who::User, None) => Some(self.as_service_account()),
            (Who::User, Some(_)) => Some(Self {
                service_account: None,
                ..self.clone()
            }),
        }
    }

    /// The name of its Works and of the binding in members: another one for every other grant.
    pub(super) fn name(&self) -> String {
        let namespace = self.namespace.as_deref().unwrap_or_default();
        let subject = &self.subject;
        let kind = match self.service_account {
            Some(_) => ACCOUNT,
            None => subject.kind.as_str(),
        };
        let all = [kind, &subject.name, &self.role, namespace];
        format!("{NAME}{}", hex(&all))
    }

    /// The Work that carries it to a member.
    pub(super) fn work(&self, cluster: &ClusterName) -> Work {
        let mut metadata = json!({"name": self.name()});
        let kind = match &self.namespace {
            Some(namespace) => {
                metadata["namespace"] = namespace.as_str().into();
                "RoleBinding"
            }
            None => "ClusterRoleBinding",
        };
        let bound = match &self.service_account {
            Some(account) => {
                // Whose account that is cannot be read from its name.
                metadata["annotations"] = json!({ (PROXIED_USER): self.subject.name });
                json!({"kind": ACCOUNT, "name": account, "namespace": USERS_NAMESPACE})
            }
            None => json!({
                "apiGroup": RBAC,
                "kind": self.subject.kind.as_str(),
                "name": self.subject.in_member(),
            }),
        };
        let binding = json!({
            "apiVersion": format!("{RBAC}/v1"),
            "kind": kind,
            "metadata": metadata,
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": self.role},
            "subjects": [bound],
        });
        let spec = WorkSpec {
            workload: WorkloadTemplate {
                manifests: vec![binding],
            },
            ..WorkSpec::default()
        };
        let mut work = Work::new(&self.name(), spec);
        work.metadata.namespace = Some(cluster.execution_namespace());
        work.metadata.labels = Some(self.subject.labels());
        work
    }

    /// The grant that a Work carries, and its cluster; none for a Work that is another one than its name says.
    pub(super) fn of(work: &Work) -> Option<(String, Self)> {
        let namespace = work.metadata.namespace.as_deref()?;
        let cluster = namespace.strip_prefix(EXECUTION_PREFIX)?.to_owned();
        let [binding] = work.spec.workload.manifests.as_slice() else {
            return None;
        };
        let (subject, role) = (&binding["subjects"][0], &binding["roleRef"]["name"]);
        let (is_group, is_account) = (
            subject["kind"] == Who::Group.as_str(),
            subject["kind"] == ACCOUNT,
        );
        let name = match is_account {
            true => binding["metadata"]["annotations"][PROXIED_USER].as_str()?,
            false => on_hub(subject["name"].as_str()?),
        };
        let named = Named::new(name, is_group).ok()?;
        let within = binding["metadata"]["namespace"].as_str();
        let mut grant = Self::new(named, role.as_str()?, within).ok()?;
        if is_account {
            grant = grant.as_service_account();
            let account = grant.service_account.as_deref();
            if subject["namespace"] != USERS_NAMESPACE || subject["name"].as_str() != account {
                return None;
            }
        }
        let own = work.metadata.name.as_deref() == Some(grant.name().as_str());
        own.then_some((cluster, grant))
    }
}

fn cluster_role(name: &str) -> RoleRef {
    RoleRef {
        api_group: RBAC.to_owned(),
        kind: "ClusterRole".to_owned(),
        name: name.to_owned(),
    }
}

/// A digest of texts, each apart from the next.
fn hex(texts: &[&str]) -> String {
    let sum = digest(&SHA256, texts.join("\0").as_bytes());
    let bytes = sum.as_ref().iter().take(16);
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(in crate::cli::access) fn user(name: &str) -> Named {
        Named::new(name, false).expect("a user")
    }

    pub(in crate::cli::access) fn grant(
        subject: Named,
        role: &str,
        namespace: Option<&str>,
    ) -> Grant {
        Grant::new(subject, role, namespace).expect("a grant")
    }

    fn m1() -> ClusterName {
        ClusterName::parse("m1").expect("a name")
    }

    #[test]
    fn a_work_binds_one_role_to_whom_the_member_knows() {
        let robot = user("system:serviceaccount:ci:robot");
        let here = grant(robot.clone(), "edit", Some("shop")).work(&m1());
        let binding = &here.spec.workload.manifests[0];
        assert_eq!(binding["kind"], "RoleBinding");
        assert_eq!(binding["metadata"]["namespace"], "shop");
        assert_eq!(binding["roleRef"]["name"], "edit");
        assert_eq!(
            binding["subjects"],
            json!([{"apiGroup": RBAC, "kind": "User", "name": "towline:hub:system:serviceaccount:ci:robot"}])
        );
        assert_eq!(here.metadata.namespace.as_deref(), Some("karmada-es-m1"));
        let everywhere = grant(robot, "edit", None).work(&m1());
        let binding = &everywhere.spec.workload.manifests[0];
        assert_eq!(binding["kind"], "ClusterRoleBinding");
        assert_eq!(binding["metadata"]["namespace"], json!(null));
    }

    #[test]
    fn a_work_that_was_changed_is_no_grant() {
        let mut work = grant(user("ann"), VIEW, None).work(&m1());
        assert!(Grant::of(&work).is_some());
        work.spec.workload.manifests[0]["roleRef"]["name"] = json!("cluster-admin");
        assert_eq!(Grant::of(&work), None);
        let mut twice = grant(user("ann"), VIEW, None).work(&m1());
        let again = twice.spec.workload.manifests[0].clone();
        twice.spec.workload.manifests.push(again);
        assert_eq!(Grant::of(&twice), None);
    }

    #[test]
    fn a_work_binds_the_account_of_whom_it_says() {
        let ann = grant(user("Ann@corp.com"), VIEW, Some("shop"));
        let account = ann.as_service_account();
        let work = account.work(&m1());
        let binding = &work.spec.workload.manifests[0];
        let name = service_account("Ann@corp.com");
        assert_eq!(
            binding["subjects"],
            json!([{"kind": "ServiceAccount", "name": name, "namespace": "towline-users"}])
        );
        // One is not the other, and both are Ann's.
        assert_ne!(work.metadata.name, ann.work(&m1()).metadata.name);
        assert_eq!(work.metadata.labels, ann.work(&m1()).metadata.labels);
        assert_eq!(account.bound_otherwise(), Some(ann.clone()));
        assert_eq!(ann.bound_otherwise(), Some(account));
        for (path, value) in [
            ("/subjects/0/name", json!("bob")),
            ("/subjects/0/namespace", json!("shop")),
            ("/subjects/0/kind", json!("User")),
            ("/metadata/annotations/towline.dev~1user", json!("bob")),
        ] {
            let mut other = work.clone();
            let manifest = &mut other.spec.workload.manifests[0];
            *manifest.pointer_mut(path).expect(path) = value;
            assert_eq!(Grant::of(&other), None, "{path}");
        }
    }

    #[test]
    fn the_hub_lets_through_to_clusters_by_name_and_for_what_the_role_does() {
        let ann = user("ann");
        assert!(ann.reach(std::iter::empty()).is_none());
        let grants = [("m2", "edit"), ("m1", VIEW), ("m2", VIEW)];
        let (role, binding) = ann.reach(grants.into_iter()).expect("rights");
        let rules = role.rules.expect("rules");
        let shown: Vec<(Vec<String>, Vec<String>, Vec<String>)> = rules
            .into_iter()
            .map(|it| {
                let names = it.resource_names.expect("every rule names its clusters");
                (it.resources.unwrap_or_default(), names, it.verbs)
            })
            .collect();
        let texts = |all: &[&str]| all.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        assert_eq!(
            shown,
            [
                (texts(&["clusters/proxy"]), texts(&["m1"]), texts(&["get"])),
                (texts(&["clusters/proxy"]), texts(&["m2"]), texts(&ANYTHING)),
                (texts(&["clusters"]), texts(&["m1", "m2"]), texts(&["get"])),
            ]
        );
        // On the hub everybody has the hub's own name.
        let robot = user("system:serviceaccount:ci:robot");
        let (_, of_robot) = robot.reach([("m1", VIEW)].into_iter()).expect("rights");
        let subject = &of_robot.subjects.expect("one")[0];
        assert_eq!(subject.name, "system:serviceaccount:ci:robot");
        assert_ne!(of_robot.metadata.name, binding.metadata.name);
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for (name, is_group) in [
            ("", false),
            ("*", true),
            ("a\nb", false),
            ("system:authenticated", true),
        ] {
            assert!(Named::new(name, is_group).is_err(), "{name:?}");
        }
        for (role, namespace) in [
            ("", None),
            ("a/b", None),
            ("..", None),
            ("*", None),
            (VIEW, Some("kube system")),
            (VIEW, Some("")),
        ] {
            assert!(
                Grant::new(user("ann"), role, namespace).is_err(),
                "{role:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn a_grant_is_read_from_its_work(
            name in "(system:)?[ -~äß]{1,20}",
            is_group in any::<bool>(),
            role in "[a-z:]{1,10}",
            namespace in prop::option::of("[a-z]{1,10}"),
        ) {
            prop_assume!(name != "*" && name != AUTHENTICATED);
            let subject = Named::new(&name, is_group);
            prop_assume!(subject.is_ok());
            let given = grant(subject.expect("assumed"), &role, namespace.as_deref());
            let otherwise = given.bound_otherwise();
            for given in [Some(given), otherwise].into_iter().flatten() {
                prop_assert_eq!(Grant::of(&given.work(&m1())), Some(("m1".to_owned(), given)));
            }
        }

        #[test]
        fn other_grants_have_other_names(a in "[ab]{0,2}", b in "[ab]{0,2}", role in "[ab]{1,2}", is_group in any::<bool>()) {
            prop_assume!(!a.is_empty() && !b.is_empty());
            let one = grant(Named::new(&a, false).expect("one"), &role, Some("n"));
            let other = grant(Named::new(&b, is_group).expect("one"), "a", Some("n"));
            prop_assert_eq!(one == other, one.name() == other.name());
            prop_assert_eq!(one.subject == other.subject, one.subject.id() == other.subject.id());
        }
    }
}
