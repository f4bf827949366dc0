//! The objects of an installation: the files of `manifests/agent`, and what settings change in them.
//!
//! Pure.

use super::allow;
use super::settings::{Allowed, BOOTSTRAP_VERSION, CLUSTER_ADMIN, Settings};
use crate::cli::{CliError, Kind};
use common::names::{AGENT_NAME, AGENT_WORKLOADS, INSTALLATION_ANNOTATION, PROXY_NAME};
use common::reserved::ALLOW_NAMESPACE;
use ring::digest::{SHA256, digest};
use serde::Deserialize as _;
use serde_json::{Value, json};

/// An object as JSON.
pub(super) type Object = Value;

/// The files, in the order in which they are applied.
const FILES: [(&str, &str); 6] = [
    (
        "namespace.yaml",
        include_str!("../../../../manifests/agent/namespace.yaml"),
    ),
    (
        "policy.yaml",
        include_str!("../../../../manifests/agent/policy.yaml"),
    ),
    (
        "rbac.yaml",
        include_str!("../../../../manifests/agent/rbac.yaml"),
    ),
    (
        "workloads.yaml",
        include_str!("../../../../manifests/agent/workloads.yaml"),
    ),
    (
        "proxy.yaml",
        include_str!("../../../../manifests/agent/proxy.yaml"),
    ),
    (
        "deployment.yaml",
        include_str!("../../../../manifests/agent/deployment.yaml"),
    ),
];

/// The file for users who come in as ServiceAccounts.
const USERS: (&str, &str) = (
    "users.yaml",
    include_str!("../../../../manifests/agent/users.yaml"),
);

/// Everything to apply, in order; the Deployment is last.
pub(super) fn render(settings: &Settings) -> Result<Vec<Object>, CliError> {
    let mut objects = match settings.proxy.accounts() {
        Some(rules) => {
            let mut of_users = read(&[USERS])?;
            let mut roles = of_users.iter_mut().filter(|it| it["kind"] == "Role");
            if let Some(role) = roles.next() {
                role["rules"] = rules.into();
            }
            of_users
        }
        None => Vec::new(),
    };
    objects.extend(read(&FILES)?);
    for object in &mut objects {
        let name = object["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        match (object["kind"].as_str().unwrap_or_default(), name.as_str()) {
            ("Deployment", AGENT_NAME) => set_deployment(object, settings),
            ("ValidatingAdmissionPolicy", AGENT_NAME) => {
                set_policy(object, &settings.reserved.allowed());
            }
            ("ClusterRole", PROXY_NAME) => object["rules"] = settings.proxy.rules().into(),
            ("ClusterRole", AGENT_WORKLOADS) => set_rules(object, settings)?,
            ("ClusterRoleBinding", AGENT_WORKLOADS)
                if settings.allowed == Allowed::ClusterAdmin =>
            {
                object["roleRef"]["name"] = CLUSTER_ADMIN.into();
            }
            _ => {}
        }
    }
    Ok(objects)
}

/// Gives the agent's pods a name for what they are started by, which they repeat in their report; one
/// that differs whenever their template does. Returns it.
pub(super) fn name_installation(objects: &mut [Object]) -> Option<String> {
    let mut deployments = objects.iter_mut().filter(|o| o["kind"] == "Deployment");
    let template = &mut deployments.next()?["spec"]["template"];
    let sum = digest(&SHA256, template.to_string().as_bytes());
    let hex = sum.as_ref().iter().take(8).map(|b| format!("{b:02x}"));
    let name: String = hex.collect();
    template["metadata"]["annotations"][INSTALLATION_ANNOTATION] = name.as_str().into();
    Some(name)
}

/// The objects as one YAML file.
pub(super) fn yaml(objects: &[Object]) -> Result<String, CliError> {
    let mut text = String::new();
    for object in objects {
        text.push_str("---\n");
        let object = common::yaml::to_string(object);
        text.push_str(&object.map_err(|error| CliError::new(Kind::Internal, error))?);
    }
    Ok(text)
}

fn read(files: &[(&str, &str)]) -> Result<Vec<Object>, CliError> {
    let mut objects = Vec::new();
    for (file, text) in files {
        for document in serde_yaml::Deserializer::from_str(text) {
            let object = Value::deserialize(document).map_err(|error| {
                let error = anyhow::Error::new(error);
                CliError::new(
                    Kind::Internal,
                    error.context(format!("failed to read {file}")),
                )
            })?;
            objects.push(object);
        }
    }
    Ok(objects)
}

fn set_deployment(object: &mut Object, settings: &Settings) {
    object["spec"]["replicas"] = settings.replicas.into();
    let template = &mut object["spec"]["template"];
    template["spec"]["containers"][0]["image"] = settings.image.as_str().into();
    let allowed = settings.reserved.allowed().into_iter();
    let flags = allowed.map(|name| format!("{ALLOW_NAMESPACE}={name}"));
    let flags = flags.chain(settings.proxy.flag());
    let args: Vec<String> = ["run".to_owned()].into_iter().chain(flags).collect();
    template["spec"]["containers"][0]["args"] = args.into();
    if let Some(secret) = &settings.image_pull_secret {
        template["spec"]["imagePullSecrets"] = json!([{ "name": secret }]);
    }
    if let Some(version) = &settings.bootstrap_version {
        template["metadata"]["annotations"] = json!({ BOOTSTRAP_VERSION: version });
    }
}

/// Has the policy allow what the agent's own flag allows.
fn set_policy(object: &mut Object, allowed: &[String]) {
    let quoted: Vec<String> = allowed.iter().map(|name| format!("'{name}'")).collect();
    let variables = object["spec"]["variables"].as_array_mut();
    for variable in variables.into_iter().flatten() {
        if variable["name"] == "allowed" {
            variable["expression"] = format!("[{}]", quoted.join(", ")).into();
        }
    }
}

fn set_rules(object: &mut Object, settings: &Settings) -> Result<(), CliError> {
    let default = object["rules"].as_array().cloned().unwrap_or_default();
    let mut rules = match &settings.allowed {
        // The role stays as shipped; the binding refers to another one.
        Allowed::ClusterAdmin => return Ok(()),
        Allowed::Kinds(kinds) if kinds.is_empty() => default,
        Allowed::Kinds(kinds) => allow::rules(kinds, &default)?,
        Allowed::Rules(rules) => rules.clone(),
    };
    rules.extend(allow::binding(&settings.roles));
    object["rules"] = rules.into();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::register::settings::{IMAGE, Installed, SettingsArgs};
    use clap::Parser as _;
    use common::labels::{FIELD_MANAGER, RETAINED_FIELD_MANAGER};
    use common::names::{
        AGENT_NAMESPACE, BOOTSTRAP_SECRET, CREDENTIALS_SECRET, STATUS_CONFIG_MAP, USERS_NAMESPACE,
        WORKS_SECRET_PREFIX,
    };
    use common::reserved::{RESERVED_PREFIXES, Reserved};
    use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;

    fn settings() -> Settings {
        Settings::resolve(SettingsArgs::default(), &Installed::default()).expect("valid")
    }

    fn find<'a>(objects: &'a [Object], kind: &str, name: &str) -> &'a Object {
        let wanted = |o: &&Object| o["kind"] == kind && o["metadata"]["name"] == name;
        objects.iter().find(wanted).expect("among them")
    }

    #[test]
    fn without_flags_the_files_are_applied_as_they_are() {
        let objects = render(&settings()).expect("renders");
        assert_eq!(
            objects,
            read(&FILES).expect("parses"),
            "defaults are those of the files"
        );
        let deployment = find(&objects, "Deployment", "towline-agent");
        assert_eq!(
            deployment["spec"]["template"]["spec"]["containers"][0]["image"],
            IMAGE
        );
        assert_eq!(objects.last(), Some(deployment));
    }

    #[test]
    fn users_who_are_accounts_have_a_namespace_of_their_own() {
        #[derive(clap::Parser)]
        struct Cli {
            #[command(flatten)]
            settings: SettingsArgs,
        }
        let flags = ["x", "--proxy=impersonate", "--proxy-as=service-accounts"];
        let args = Cli::try_parse_from(flags).expect("flags").settings;
        let open = Settings::resolve(args, &Installed::default()).expect("valid");
        let objects = render(&open).expect("renders");
        assert_eq!(objects[..3], read(&[USERS]).expect("parses")[..]);
        assert_eq!(objects[3..].len(), read(&FILES).expect("parses").len());
        let role = &objects[1];
        assert_eq!(find(&objects, "Namespace", USERS_NAMESPACE), &objects[0]);
        assert_eq!(
            (
                &role["kind"],
                &role["metadata"]["name"],
                &role["metadata"]["namespace"]
            ),
            (&json!("Role"), &json!(PROXY_NAME), &json!(USERS_NAMESPACE))
        );
        // Nothing in it gives a right in the whole cluster.
        assert!(
            objects[..3]
                .iter()
                .all(|it| !it.to_string().contains("ClusterRole"))
        );
        let mut others = render(&settings()).expect("renders");
        others.retain(|it| it["metadata"]["namespace"] == USERS_NAMESPACE);
        assert!(others.is_empty());
    }

    #[test]
    fn kustomize_lists_the_same_files() {
        let text = include_str!("../../../../manifests/agent/kustomization.yaml");
        let kustomization: Value = serde_yaml::from_str(text).expect("YAML");
        let listed: Vec<_> = kustomization["resources"]
            .as_array()
            .expect("a list")
            .to_vec();
        assert_eq!(listed, FILES.map(|(file, _)| Value::from(file)));
    }

    #[test]
    fn an_installation_has_another_name_when_its_pods_differ() {
        let name = |settings: &Settings| {
            let mut objects = render(settings).expect("renders");
            let name = name_installation(&mut objects).expect("a Deployment");
            let pod = &find(&objects, "Deployment", "towline-agent")["spec"]["template"];
            let given = pod["metadata"]["annotations"].clone();
            assert_eq!(given[INSTALLATION_ANNOTATION], name.as_str());
            assert_eq!(
                given[BOOTSTRAP_VERSION].as_str(),
                settings.bootstrap_version.as_deref()
            );
            name
        };
        let base = settings();
        assert_eq!(name(&base), name(&base));
        let scaled = Settings {
            replicas: 2,
            ..settings()
        };
        assert_eq!(name(&base), name(&scaled));
        let upgraded = Settings {
            image: "x:2".into(),
            ..settings()
        };
        assert_ne!(name(&base), name(&upgraded));
        let handed = |version: &str| Settings {
            bootstrap_version: Some(version.into()),
            ..settings()
        };
        assert_ne!(name(&base), name(&handed("7")));
        assert_ne!(name(&handed("8")), name(&handed("7")));
    }

    #[test]
    fn the_policy_and_the_agent_are_told_the_same() {
        let reserved = Reserved::new(AGENT_NAMESPACE, ["kube-system", "towline-demo"]);
        let settings = Settings {
            reserved: reserved.expect("valid"),
            ..settings()
        };
        let objects = render(&settings).expect("renders");
        let policy = find(&objects, "ValidatingAdmissionPolicy", AGENT_NAME);
        let variables = policy["spec"]["variables"].as_array().expect("a list");
        let allowed = variables.iter().find(|v| v["name"] == "allowed");
        let allowed = allowed.expect("a variable");
        assert_eq!(allowed["expression"], "['kube-system', 'towline-demo']");
        let pod = &find(&objects, "Deployment", AGENT_NAME)["spec"]["template"]["spec"];
        let flags = [
            "run",
            "--allow-namespace=kube-system",
            "--allow-namespace=towline-demo",
        ];
        assert_eq!(pod["containers"][0]["args"], json!(flags));
    }

    #[test]
    fn the_policy_names_what_the_agents_rule_names() {
        let objects = render(&settings()).expect("renders");
        let policy = find(&objects, "ValidatingAdmissionPolicy", AGENT_NAME);
        let typed: ValidatingAdmissionPolicy =
            serde_json::from_value(policy.clone()).expect("a policy");
        let back = serde_json::to_value(typed).expect("JSON");
        assert_eq!(&back, policy, "only fields that the API knows");
        let binding = find(&objects, "ValidatingAdmissionPolicyBinding", AGENT_NAME);
        assert_eq!(binding["spec"]["policyName"], AGENT_NAME);
        assert_eq!(binding["spec"]["validationActions"], json!(["Deny"]));
        assert_eq!(policy["spec"]["failurePolicy"], "Fail");
        let text = policy["spec"].to_string();
        for prefix in RESERVED_PREFIXES {
            assert!(
                text.contains(&format!("startsWith('{prefix}')")),
                "{prefix}"
            );
        }
        for name in [AGENT_NAMESPACE, AGENT_WORKLOADS, STATUS_CONFIG_MAP] {
            assert!(text.contains(&format!("'{name}'")), "{name}");
        }
        for manager in [FIELD_MANAGER, RETAINED_FIELD_MANAGER] {
            assert!(text.contains(&format!("'{manager}'")), "{manager}");
        }
        let user = format!("'system:serviceaccount:{AGENT_NAMESPACE}:{AGENT_NAME}'");
        assert!(text.contains(&user), "{user}");
        for secret in [BOOTSTRAP_SECRET, CREDENTIALS_SECRET, WORKS_SECRET_PREFIX] {
            assert!(secret.starts_with("towline-agent-"), "{secret}");
        }
    }

    /// Kinds by which whoever may write one could take the member over, from any namespace.
    #[test]
    fn the_default_rights_hold_no_kind_that_gives_power() {
        let objects = render(&settings()).expect("renders");
        let rules = &find(&objects, "ClusterRole", AGENT_WORKLOADS)["rules"];
        let rules = rules.as_array().expect("a list");
        let listed = |key: &str| {
            let lists = rules.iter().filter_map(|rule| rule[key].as_array());
            lists
                .flatten()
                .filter_map(Value::as_str)
                .collect::<Vec<_>>()
        };
        let groups = [
            "",
            "apps",
            "autoscaling",
            "batch",
            "networking.k8s.io",
            "policy",
        ];
        assert_eq!(listed("apiGroups"), groups);
        let resources = listed("resources");
        let powers = [
            "*",
            "secrets",
            "pods",
            "nodes",
            "persistentvolumes",
            "roles",
            "rolebindings",
            "clusterroles",
            "clusterrolebindings",
            "ingressclasses",
        ];
        for power in powers {
            assert!(!resources.contains(&power), "{power}");
        }
        assert!(resources.iter().all(|resource| !resource.contains('/')));
    }

    #[test]
    fn settings_change_what_they_name() {
        let settings = Settings {
            image: "x:1".into(),
            image_pull_secret: Some("pull".into()),
            replicas: 2,
            allowed: Allowed::Kinds(vec!["default".into(), "secrets".into()]),
            roles: vec!["view".into()],
            bootstrap_version: Some("7".into()),
            ..settings()
        };
        let objects = render(&settings).expect("renders");
        let deployment = &find(&objects, "Deployment", "towline-agent")["spec"];
        assert_eq!(deployment["replicas"], 2);
        let pod = &deployment["template"];
        assert_eq!(pod["spec"]["imagePullSecrets"][0]["name"], "pull");
        assert_eq!(pod["metadata"]["annotations"][BOOTSTRAP_VERSION], "7");
        let rules = &find(&objects, "ClusterRole", "towline-agent-workloads")["rules"];
        assert!(rules.to_string().contains("secrets"), "{rules}");
        let roles = allow::binding(&["view".to_owned()]);
        assert!(rules.as_array().is_some_and(|it| it.ends_with(&roles)));
        let admin = Settings {
            allowed: Allowed::ClusterAdmin,
            ..settings
        };
        let objects = render(&admin).expect("renders");
        let binding = find(&objects, "ClusterRoleBinding", "towline-agent-workloads");
        assert_eq!(binding["roleRef"]["name"], CLUSTER_ADMIN);
    }
}
