//! What an installation of the agent can differ in, and how flags and what is installed meet.
//!
//! Pure.

use super::allow;
use super::proxy::{Proxy, ProxyArgs};
use crate::cli::{CliError, Kind, Output};
use common::joined::Joined;
use common::names::AGENT_NAMESPACE;
use common::reserved::{ALLOW_NAMESPACE, InvalidNamespace, Reserved};
use serde_json::{Value, json};

/// The image of this version.
pub(super) const IMAGE: &str = concat!("ghcr.io/towline/towline-agent:", env!("CARGO_PKG_VERSION"));
const REPOSITORY: &str = "ghcr.io/towline/towline-agent:";
/// On the pod template: the version of the bootstrap that the pods were started for.
pub(super) const BOOTSTRAP_VERSION: &str = "towline.dev/bootstrap-version";
/// The role that may do everything.
pub(super) const CLUSTER_ADMIN: &str = "cluster-admin";

/// Flags of an installation.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Installation")]
pub(super) struct SettingsArgs {
    /// Image of the agent. Default: the one that is installed if it is your own, else this version's.
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    /// Secret in namespace towline-system with which the image is pulled.
    #[arg(long, value_name = "NAME")]
    image_pull_secret: Option<String>,
    /// Number of replicas; one works, the others stand by. Default: as installed, else 1.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=10))]
    replicas: Option<u32>,
    #[command(flatten)]
    rights: RightsArgs,
}

/// What an agent may do in its member, and who comes in by it.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Installation")]
pub(in crate::cli) struct RightsArgs {
    /// Kinds the agent may bring into the member, such as `default,secrets,widgets.example.com`; `+KIND` for one more.
    /// Default: as installed, else `default`, the common workload kinds.
    #[arg(
        long,
        value_name = "KINDS",
        value_delimiter = ',',
        conflicts_with = "cluster_admin"
    )]
    allow: Option<Vec<String>>,
    /// Reserved namespace (kube-*, towline-*) that Works may reach all the same; repeat for several, `none`
    /// to allow none again. Whoever owns the hub then owns what runs there. Default: as installed.
    #[arg(long, value_name = "NAMESPACE", value_delimiter = ',')]
    allow_namespace: Option<Vec<String>>,
    /// ClusterRole of this cluster that Works may bind to users and groups in namespaces that are not reserved, such as
    /// `view`; `+NAME` for one more, `none` for none. Whoever owns the hub then gives its rights there to whom they
    /// choose. Default: as installed, else none.
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        conflicts_with = "cluster_admin"
    )]
    allow_role: Option<Vec<String>>,
    /// Let the agent do everything in the member: whoever owns the hub then owns the member too.
    #[arg(long)]
    cluster_admin: bool,
    #[command(flatten)]
    proxy: ProxyArgs,
}

impl SettingsArgs {
    /// Those by which these users of the hub are let in, whatever they ask; none for nobody.
    pub(super) fn letting_in(users: &[&str]) -> Self {
        RightsArgs {
            proxy: ProxyArgs::letting_in(users),
            ..RightsArgs::default()
        }
        .into()
    }
}

impl From<RightsArgs> for SettingsArgs {
    fn from(rights: RightsArgs) -> Self {
        Self {
            rights,
            ..Self::default()
        }
    }
}

/// What is installed; the default is nothing.
#[derive(Debug, Clone, Default)]
pub(super) struct Installed {
    /// Whether there is a Deployment of the agent.
    pub(super) exists: bool,
    /// The Deployment.
    pub(super) deployment: Value,
    /// Rules of the role for workloads.
    pub(super) rules: Option<Vec<Value>>,
    /// The role the workloads binding refers to.
    pub(super) role: Option<String>,
    /// Rules of the role that lists who is let in.
    pub(super) proxy: Vec<Value>,
    /// Rules of the role of the ServiceAccounts that users come in as; none without that role.
    pub(super) accounts: Option<Vec<Value>>,
}

/// What may be brought into the member.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Allowed {
    /// These kinds; empty for the manifest's own.
    Kinds(Vec<String>),
    /// These rules, as installed.
    Rules(Vec<Value>),
    /// Everything.
    ClusterAdmin,
}

/// An installation.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Settings {
    /// Image.
    pub(super) image: String,
    /// Whether that is somebody's own image, kept although no flag names it.
    pub(super) image_kept: bool,
    /// Pull Secret.
    pub(super) image_pull_secret: Option<String>,
    /// Replicas.
    pub(super) replicas: u64,
    /// Rights over workloads.
    pub(super) allowed: Allowed,
    /// ClusterRoles that Works may bind.
    pub(super) roles: Vec<String>,
    /// Reserved namespaces that Works may reach.
    pub(super) reserved: Reserved,
    /// Who of the hub's users is let in.
    pub(super) proxy: Proxy,
    /// See [`BOOTSTRAP_VERSION`].
    pub(super) bootstrap_version: Option<String>,
}

impl Settings {
    /// Flags first, then what is installed, then the defaults.
    pub(super) fn resolve(args: SettingsArgs, installed: &Installed) -> Result<Self, CliError> {
        let pod = &installed.deployment["spec"]["template"];
        let image = pod["spec"]["containers"][0]["image"].as_str();
        // An image of ours is upgraded; one from elsewhere was chosen for a reason.
        let own = image.filter(|image| !image.starts_with(REPOSITORY));
        let pull_secret = pod["spec"]["imagePullSecrets"][0]["name"].as_str();
        let was_admin = installed.role.as_deref() == Some(CLUSTER_ADMIN);
        let allowed = match args.rights.cluster_admin || (args.rights.allow.is_none() && was_admin)
        {
            true => Allowed::ClusterAdmin,
            false => allow::kinds(args.rights.allow, installed.rules.as_deref())?,
        };
        Ok(Self {
            image_kept: args.image.is_none() && own.is_some(),
            image: args
                .image
                .or(own.map(str::to_owned))
                .unwrap_or_else(|| IMAGE.to_owned()),
            image_pull_secret: args.image_pull_secret.or(pull_secret.map(str::to_owned)),
            replicas: args
                .replicas
                .map(u64::from)
                .or(installed.deployment["spec"]["replicas"].as_u64())
                .unwrap_or(1),
            allowed,
            roles: allow::roles(
                args.rights.allow_role,
                installed.rules.as_deref().unwrap_or_default(),
            )?,
            proxy: Proxy::resolve(args.rights.proxy, installed)?,
            reserved: allowed_namespaces(args.rights.allow_namespace, pod)?,
            bootstrap_version: pod["metadata"]["annotations"][BOOTSTRAP_VERSION]
                .as_str()
                .map(str::to_owned),
        })
    }
}

impl Settings {
    /// Says what Works reach, and what keeps them from the rest: whether the member's API server does.
    pub(super) fn tell_guards(&self, guarded: bool, output: &Output) {
        if !guarded {
            output.note(
                "this API server has no ValidatingAdmissionPolicy, as Kubernetes 1.30 or newer has: that no \
                 Work reaches reserved namespaces is kept by the agent alone",
            );
        }
        let allowed = self.reserved.allowed();
        if !allowed.is_empty() {
            let names = allowed.join(", ");
            output.note(format!(
                "Works reach the reserved namespaces {names}: whoever owns the hub owns what runs there"
            ));
        }
    }
}

/// What a Deployment would look like whose agent was told what `towline join` was told before.
pub(super) fn flags_of(joined: &Joined) -> Value {
    let mut args = vec![format!("--proxy={}", joined.mode)];
    let allowed = joined.allowed.iter();
    args.extend(allowed.map(|name| format!("{ALLOW_NAMESPACE}={name}")));
    json!({"spec": {"template": {"spec": {"containers": [{"args": args}]}}}})
}

/// The namespaces that the flag names, else those of the installed pods' own flag.
fn allowed_namespaces(flag: Option<Vec<String>>, pod: &Value) -> Result<Reserved, CliError> {
    let prefix = format!("{ALLOW_NAMESPACE}=");
    let allowed: Vec<String> = match flag {
        Some(names) if names == ["none"] => Vec::new(),
        Some(names) => names,
        None => {
            let args = pod["spec"]["containers"][0]["args"].as_array();
            let texts = args.into_iter().flatten().filter_map(Value::as_str);
            let values = texts.filter_map(|text| text.strip_prefix(&prefix));
            let names = values.flat_map(|value| value.split(','));
            names.map(str::to_owned).collect()
        }
    };
    Reserved::new(AGENT_NAMESPACE, allowed).map_err(|error| {
        let home = matches!(error, InvalidNamespace::Home(_));
        let error = CliError::new(Kind::Usage, error);
        match home {
            true => error.hint("Whoever may start a Pod there has the agent's key."),
            false => {
                error.hint("Reserved are namespaces whose names begin with kube- or towline-.")
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::tunnel::Mode;

    fn installed(image: &str) -> Installed {
        Installed {
            exists: true,
            deployment: json!({"spec": {"replicas": 2, "template": {
                "metadata": {"annotations": {BOOTSTRAP_VERSION: "7"}},
                "spec": {
                    "containers": [{"image": image, "args": ["run", "--allow-namespace=kube-system"]}],
                    "imagePullSecrets": [{"name": "pull"}],
                },
            }}}),
            rules: Some(vec![json!({"resources": ["secrets"]})]),
            role: Some("towline-agent-workloads".into()),
            ..Installed::default()
        }
    }

    #[test]
    fn what_no_flag_names_stays() {
        let args = SettingsArgs::default;
        let found = installed("registry.test/agent:1");
        let kept = Settings::resolve(args(), &found).expect("valid");
        assert_eq!(
            (kept.image.as_str(), kept.image_kept),
            ("registry.test/agent:1", true)
        );
        assert_eq!(
            (kept.replicas, kept.image_pull_secret.as_deref()),
            (2, Some("pull"))
        );
        assert_eq!(kept.bootstrap_version.as_deref(), Some("7"));
        assert!(matches!(kept.allowed, Allowed::Rules(_)));
        let ours = installed("ghcr.io/towline/towline-agent:0.0.1");
        let upgraded = Settings::resolve(args(), &ours).expect("valid");
        assert_eq!(
            (upgraded.image.as_str(), upgraded.image_kept),
            (IMAGE, false)
        );
        let admin = Installed {
            role: Some(CLUSTER_ADMIN.into()),
            ..found
        };
        let still = Settings::resolve(args(), &admin).expect("valid");
        assert_eq!(still.allowed, Allowed::ClusterAdmin);
    }

    #[test]
    fn roles_that_may_be_bound_stay_until_the_flag_names_others() {
        let mut found = installed("x");
        let bound = allow::binding(&["view".to_owned()]);
        found.rules.get_or_insert_default().extend(bound);
        let of = |roles: Option<&[&str]>, allow: Option<&[&str]>| {
            let owned = |it: &[&str]| it.iter().map(ToString::to_string).collect();
            let args = RightsArgs {
                allow_role: roles.map(owned),
                allow: allow.map(owned),
                ..RightsArgs::default()
            };
            let settings = Settings::resolve(args.into(), &found).expect("valid");
            (settings.roles, settings.allowed)
        };
        let kinds = || Allowed::Rules(vec![json!({"resources": ["secrets"]})]);
        assert_eq!(of(None, None), (vec!["view".to_owned()], kinds()));
        let both = vec!["edit".to_owned(), "view".to_owned()];
        assert_eq!(of(Some(&["+edit"]), None), (both, kinds()));
        assert_eq!(of(Some(&["none"]), None), (Vec::new(), kinds()));
        let other = Allowed::Kinds(vec!["default".to_owned()]);
        assert_eq!(
            of(None, Some(&["default"])),
            (vec!["view".to_owned()], other)
        );
    }

    #[test]
    fn what_was_said_at_a_join_stays() {
        let joined = Joined {
            server: "https://m".into(),
            ca_pem: None,
            server_name: None,
            token: common::secret::Secret::new("t".into()),
            proxy: None,
            proxy_headers: common::secret::Secret::default(),
            allowed: vec!["kube-a".into(), "kube-b".into()],
            mode: Mode::ReadOnly,
        };
        let installed = Installed {
            deployment: flags_of(&joined),
            ..Installed::default()
        };
        let kept = Settings::resolve(SettingsArgs::default(), &installed).expect("valid");
        assert_eq!(kept.reserved.allowed(), joined.allowed);
        assert_eq!(kept.proxy.mode, joined.mode);
    }

    #[test]
    fn allowed_namespaces_stay_until_the_flag_names_others() {
        let allowed = |flag: Option<&[&str]>| {
            let args = RightsArgs {
                allow_namespace: flag.map(|names| names.iter().map(ToString::to_string).collect()),
                ..RightsArgs::default()
            };
            let settings = Settings::resolve(args.into(), &installed("x"));
            settings.map(|settings| settings.reserved.allowed())
        };
        let kept = allowed(None).expect("valid");
        assert_eq!(kept, ["kube-system"]);
        let others = allowed(Some(&["kube-public", "towline-demo"])).expect("valid");
        assert_eq!(others, ["kube-public", "towline-demo"]);
        assert!(allowed(Some(&["none"])).expect("valid").is_empty());
        for (bad, want) in [
            ("shop", "is not reserved"),
            ("towline-system", "the agent's own"),
            ("kube-*", "no name of a namespace"),
        ] {
            let error = allowed(Some(&[bad])).expect_err(bad);
            assert_eq!(error.kind, Kind::Usage);
            assert!(error.to_string().contains(want), "{error}");
        }
    }

    #[test]
    fn flags_win() {
        let args = SettingsArgs {
            image: Some("x".into()),
            replicas: Some(3),
            rights: RightsArgs {
                allow: Some(vec!["default".into()]),
                ..RightsArgs::default()
            },
            ..SettingsArgs::default()
        };
        let settings = Settings::resolve(args, &installed("y")).expect("valid");
        assert_eq!((settings.image.as_str(), settings.image_kept), ("x", false));
        assert_eq!(settings.replicas, 3);
        assert_eq!(settings.allowed, Allowed::Kinds(vec!["default".into()]));
    }
}
