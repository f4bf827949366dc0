//! Rights that would undo ours: bindings of somebody else that name our identities, or give every
//! bootstrap token what ours must not have.
//!
//! Such a binding is left over from another installation or from a tutorial. `init` stops and names it;
//! `init --adopt` takes the offending subjects out, and the binding with them when no other is left.

use super::cluster_info;
use super::object::ObjectKey;
use super::plan::{Action, Step};
use super::rbac;
use common::identity::{
    AGENT_USER_PREFIX, AGENTS_GROUP, BOOTSTRAP_GROUP, CLUSTER_GROUP_PREFIX, KARMADA_TOKENS_PREFIX,
};
use common::names::SYSTEM_NAMESPACE;
use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, RoleBinding, Subject,
};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use kube::{Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Debug;

/// Every token is in this group, whoever made it.
const ALL_TOKENS_GROUP: &str = "system:bootstrappers";
/// And in this one, with every other user.
const ALL_USERS_GROUP: &str = "system:authenticated";
/// Objects per page of a list.
const PAGE: u32 = 500;

/// A binding, as far as it matters here.
#[derive(Debug, Clone, PartialEq)]
pub struct Binding {
    /// Which one.
    pub key: ObjectKey,
    /// For a write that must not undo another.
    pub resource_version: Option<String>,
    /// Name of the role, and whether it is a ClusterRole.
    pub role: (String, bool),
    /// Who is bound.
    pub subjects: Vec<Subject>,
}

/// A binding with subjects that must go.
#[derive(Debug, Clone, PartialEq)]
pub struct Offence {
    /// The binding.
    pub binding: Binding,
    /// Why, one sentence part for each subject.
    pub reasons: Vec<String>,
    /// The subjects that may stay.
    pub remaining: Vec<Subject>,
}

impl Offence {
    /// The step that removes it.
    pub fn step(&self) -> Step {
        Step {
            key: self.binding.key.clone(),
            action: Action::Remove(self.reasons.clone()),
        }
    }
}

/// Finds the offending bindings. `rules` holds the rules of every ClusterRole.
pub fn judge(bindings: &[Binding], rules: &BTreeMap<String, Vec<PolicyRule>>) -> Vec<Offence> {
    bindings
        .iter()
        .filter(|binding| !is_ours(&binding.key))
        .filter_map(|binding| {
            let mut reasons = Vec::new();
            let mut remaining = Vec::new();
            for subject in &binding.subjects {
                match offends(binding, subject, rules) {
                    Some(reason) => reasons.push(reason),
                    None => remaining.push(subject.clone()),
                }
            }
            let binding = binding.clone();
            (!reasons.is_empty()).then_some(Offence {
                binding,
                reasons,
                remaining,
            })
        })
        .collect()
}

/// Reads every binding of the hub and judges it.
pub async fn find(client: &Client) -> Result<Vec<Offence>, kube::Error> {
    let roles: Vec<ClusterRole> = list(&Api::all(client.clone())).await?;
    let rules = roles
        .into_iter()
        .map(|role| (role.name_any(), role.rules.unwrap_or_default()))
        .collect();
    let cluster: Vec<ClusterRoleBinding> = list(&Api::all(client.clone())).await?;
    let namespaced: Vec<RoleBinding> = list(&Api::all(client.clone())).await?;
    let cluster = cluster.into_iter().map(|b| Binding {
        key: key("ClusterRoleBinding", &b),
        resource_version: b.resource_version(),
        role: (b.role_ref.name, true),
        subjects: b.subjects.unwrap_or_default(),
    });
    let namespaced = namespaced.into_iter().map(|b| Binding {
        key: key("RoleBinding", &b),
        resource_version: b.resource_version(),
        role: (b.role_ref.name, b.role_ref.kind == "ClusterRole"),
        subjects: b.subjects.unwrap_or_default(),
    });
    let bindings: Vec<Binding> = cluster.chain(namespaced).collect();
    Ok(judge(&bindings, &rules))
}

/// Takes the offending subjects out.
pub async fn remove(client: &Client, offence: &Offence) -> Result<(), kube::Error> {
    let ObjectKey {
        namespace, name, ..
    } = &offence.binding.key;
    match namespace {
        Some(namespace) => {
            let api = Api::<RoleBinding>::namespaced(client.clone(), namespace);
            cut(&api, name, offence).await
        }
        None => {
            cut(
                &Api::<ClusterRoleBinding>::all(client.clone()),
                name,
                offence,
            )
            .await
        }
    }
}

async fn cut<K>(api: &Api<K>, name: &str, offence: &Offence) -> Result<(), kube::Error>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let resource_version = offence.binding.resource_version.clone();
    if offence.remaining.is_empty() {
        let preconditions = Preconditions {
            resource_version,
            uid: None,
        };
        let params = DeleteParams::default().preconditions(preconditions);
        api.delete(name, &params).await?;
    } else {
        let patch = json!({
            "metadata": {"resourceVersion": resource_version},
            "subjects": offence.remaining,
        });
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
    }
    Ok(())
}

/// By exact name: a label could be put on anything.
fn is_ours(key: &ObjectKey) -> bool {
    match key.namespace.as_deref() {
        None => [rbac::BOOTSTRAP, rbac::AGENTS].contains(&key.name.as_str()),
        Some(SYSTEM_NAMESPACE) => key.name == rbac::POLICY_PROBE,
        Some(cluster_info::NAMESPACE) => key.name == rbac::CLUSTER_INFO,
        Some(_) => false,
    }
}

fn offends(
    binding: &Binding,
    subject: &Subject,
    rules: &BTreeMap<String, Vec<PolicyRule>>,
) -> Option<String> {
    let name = subject.name.as_str();
    let says = |what: &str| Some(format!("{} {name} {what}", subject.kind));
    match subject.kind.as_str() {
        "User" if name.starts_with(AGENT_USER_PREFIX) => says("is an agent's user"),
        "Group" if name == AGENTS_GROUP => says("is the group of all agents"),
        "Group" if name == BOOTSTRAP_GROUP => says("is the group of Towline's tokens"),
        "Group" if name.starts_with(KARMADA_TOKENS_PREFIX) => {
            says("is the group of another installation's tokens")
        }
        "Group" if name.starts_with(CLUSTER_GROUP_PREFIX) && !is_registration(&binding.key) => {
            says("is the group of one agent")
        }
        "Group" if name == ALL_TOKENS_GROUP || name == ALL_USERS_GROUP => {
            let (role, is_cluster_role) = &binding.role;
            // Requests are cluster-scoped: a RoleBinding gives no right on them.
            let grants = *is_cluster_role
                && binding.key.namespace.is_none()
                && rules
                    .get(role)
                    .is_some_and(|rules| rules.iter().any(mints_certificates));
            grants.then(|| format!("Group {name} may create certificate signing requests"))
        }
        _ => None,
    }
}

/// The hub's own bindings of one registration all have names of this prefix.
fn is_registration(key: &ObjectKey) -> bool {
    key.name.starts_with("towline:")
}

fn mints_certificates(rule: &PolicyRule) -> bool {
    let has = |list: &Option<Vec<String>>, wanted: &[&str]| {
        let list = list.as_deref().unwrap_or_default();
        list.iter().any(|item| wanted.contains(&item.as_str()))
    };
    has(&rule.api_groups, &["*", "certificates.k8s.io"])
        && has(&Some(rule.verbs.clone()), &["*", "create"])
        && has(
            &rule.resources,
            &[
                "*",
                "*/nodeclient",
                "certificatesigningrequests",
                "certificatesigningrequests/nodeclient",
            ],
        )
}

async fn list<K>(api: &Api<K>) -> Result<Vec<K>, kube::Error>
where
    K: Clone + DeserializeOwned + Debug,
{
    let mut items = Vec::new();
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let page = api.list(&params).await?;
        items.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(items),
        }
    }
}

fn key(kind: &str, object: &impl kube::ResourceExt) -> ObjectKey {
    ObjectKey {
        kind: kind.to_owned(),
        namespace: object.namespace(),
        name: object.name_any(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binding(
        namespace: Option<&str>,
        name: &str,
        role: &str,
        subjects: &[(&str, &str)],
    ) -> Binding {
        Binding {
            key: ObjectKey {
                kind: "Binding".into(),
                namespace: namespace.map(str::to_owned),
                name: name.into(),
            },
            resource_version: None,
            role: (role.into(), true),
            subjects: subjects
                .iter()
                .map(|(kind, name)| Subject {
                    kind: (*kind).into(),
                    name: (*name).into(),
                    ..Subject::default()
                })
                .collect(),
        }
    }

    fn rules() -> BTreeMap<String, Vec<PolicyRule>> {
        let rule = |resource: &str, verb: &str| {
            vec![PolicyRule {
                api_groups: Some(vec!["certificates.k8s.io".into()]),
                resources: Some(vec![resource.into()]),
                verbs: vec![verb.into()],
                ..PolicyRule::default()
            }]
        };
        BTreeMap::from([
            (
                "bootstrapper".into(),
                rule("certificatesigningrequests", "create"),
            ),
            (
                "nodeclient".into(),
                rule("certificatesigningrequests/nodeclient", "create"),
            ),
            ("all".into(), {
                let mut all = rule("*", "*");
                all[0].api_groups = Some(vec!["*".into()]);
                all
            }),
            ("viewer".into(), rule("certificatesigningrequests", "get")),
        ])
    }

    fn offends(binding: &Binding) -> bool {
        !judge(std::slice::from_ref(binding), &rules()).is_empty()
    }

    #[test]
    fn bindings_of_others_that_name_our_identities_are_found() {
        for (kind, name) in [
            ("User", "system:karmada:agent:rbac-generator"),
            ("Group", "system:karmada:agents"),
            (
                "Group",
                "system:bootstrappers:karmada:default-cluster-token",
            ),
            ("Group", "system:bootstrappers:towline"),
            ("Group", "towline:cluster:m1:0123"),
        ] {
            assert!(
                offends(&binding(None, "theirs", "viewer", &[(kind, name)])),
                "{name}"
            );
            assert!(
                offends(&binding(Some("ns"), "theirs", "viewer", &[(kind, name)])),
                "{name}"
            );
        }
    }

    #[test]
    fn our_own_bindings_and_those_about_others_are_left() {
        let agents = [("Group", "system:karmada:agents")];
        assert!(!offends(&binding(None, rbac::AGENTS, "viewer", &agents)));
        assert!(offends(&binding(
            Some("ns"),
            rbac::AGENTS,
            "viewer",
            &agents
        )));
        let probe = [("User", "system:karmada:agent:policy.probe")];
        assert!(!offends(&binding(
            Some(SYSTEM_NAMESPACE),
            rbac::POLICY_PROBE,
            "r",
            &probe
        )));
        let registration = [("Group", "towline:cluster:m1:0123")];
        assert!(!offends(&binding(
            None,
            "towline:cluster:m1",
            "r",
            &registration
        )));
        let kubeadm = [("Group", "system:bootstrappers:kubeadm:default-node-token")];
        assert!(!offends(&binding(
            None,
            "kubeadm",
            "bootstrapper",
            &kubeadm
        )));
    }

    #[test]
    fn every_token_may_not_ask_for_certificates() {
        for role in ["bootstrapper", "nodeclient", "all"] {
            for group in [ALL_TOKENS_GROUP, ALL_USERS_GROUP] {
                assert!(
                    offends(&binding(None, "b", role, &[("Group", group)])),
                    "{role}"
                );
            }
        }
        assert!(!offends(&binding(
            None,
            "b",
            "viewer",
            &[("Group", ALL_TOKENS_GROUP)]
        )));
        assert!(!offends(&binding(
            Some("ns"),
            "b",
            "all",
            &[("Group", ALL_TOKENS_GROUP)]
        )));
        assert!(!offends(&binding(
            None,
            "b",
            "all",
            &[("Group", "system:masters")]
        )));
    }

    #[test]
    fn other_subjects_of_a_binding_stay() {
        let subjects = [("Group", "system:karmada:agents"), ("User", "alice")];
        let found = judge(&[binding(None, "b", "viewer", &subjects)], &rules());
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].remaining.len(), 1);
        assert_eq!(found[0].remaining[0].name, "alice");
    }
}
