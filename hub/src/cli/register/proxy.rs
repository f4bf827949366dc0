//! Who of the hub's users is let into the member, and what for: flags, what is installed, and the role's rules.
//!
//! Pure.

use super::list;
use crate::cli::{CliError, Kind};
use common::tunnel::{HUB_PREFIX, Mode, PROXIED, PROXIED_USER};
use serde_json::{Value, json};

/// The agent's flag.
const FLAG: &str = "--proxy=";

/// Flags of an installation.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Access for users of the hub")]
pub(super) struct ProxyArgs {
    /// What of this cluster users of the hub may reach through the agent's own connection, each as themselves:
    /// nothing, reading alone, or whatever this cluster lets them do. Default: as installed, else off.
    #[arg(long = "proxy", value_name = "MODE")]
    mode: Option<Mode>,
    /// User of the hub who is let in, under their own name; repeat for several, `+NAME` for one more, `none` for
    /// nobody. What they may do here is what RBAC of this cluster gives them. Default: as installed, else nobody.
    #[arg(long = "proxy-user", value_name = "NAME", value_delimiter = ',')]
    users: Option<Vec<String>>,
    /// As whom they come in: users, each under their own name and with the groups that are let in, or groups, where
    /// everybody in such a group comes as user `towline:proxied`, without being named here, and the audit log of this
    /// cluster has their name. Default: as installed, else users.
    #[arg(long = "proxy-as", value_name = "WHOM")]
    whom: Option<Whom>,
    /// Group of the hub that comes along with such users, or lets its members in; as --proxy-user.
    #[arg(long = "proxy-group", value_name = "NAME", value_delimiter = ',')]
    groups: Option<Vec<String>>,
}

impl ProxyArgs {
    /// See [`super::SettingsArgs::letting_in`].
    pub(super) fn letting_in(users: &[&str]) -> Self {
        let some = !users.is_empty();
        Self {
            mode: some.then_some(Mode::Impersonate),
            users: some.then(|| users.iter().map(|user| (*user).to_owned()).collect()),
            whom: None,
            groups: None,
        }
    }
}

/// As whom users of the hub come in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
enum Whom {
    /// As themselves.
    #[default]
    Users,
    /// As one user, in their groups.
    Groups,
}

/// Who is let in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Proxy {
    /// What for.
    pub(super) mode: Mode,
    whom: Whom,
    users: Vec<String>,
    groups: Vec<String>,
}

impl Proxy {
    /// Flags first, then what is installed: the arguments of the agent, and the rules of the role.
    pub(super) fn resolve(
        args: ProxyArgs,
        agent: &Value,
        rules: &[Value],
    ) -> Result<Self, CliError> {
        let named = args.users.is_some() || args.groups.is_some() || args.whom.is_some();
        let texts = agent.as_array().into_iter().flatten();
        let mut texts = texts.filter_map(Value::as_str);
        let installed = texts.find_map(|text| Mode::named(text.strip_prefix(FLAG)?));
        let mode = args.mode.or(installed).unwrap_or_default();
        if named && mode == Mode::Off {
            let message =
                "--proxy-user, --proxy-group and --proxy-as say who is let in, and --proxy is off";
            return Err(CliError::message(Kind::Usage, message)
                .hint("Add --proxy read-only, or --proxy impersonate."));
        }
        let by_groups = named_by(rules, "users", "impersonate")
            .iter()
            .any(|name| name == PROXIED);
        let whom = args
            .whom
            .unwrap_or(if by_groups { Whom::Groups } else { Whom::Users });
        let groups = names("--proxy-group", args.groups, "groups", rules)?;
        if args.whom == Some(Whom::Groups) && groups.is_empty() {
            let message = "--proxy-as groups lets members of groups in, and no group is named";
            return Err(CliError::message(Kind::Usage, message)
                .hint("Add --proxy-group NAME, for each group of the hub."));
        }
        Ok(Self {
            mode,
            whom,
            users: names("--proxy-user", args.users, "users", rules)?,
            groups,
        })
    }

    /// The agent's flag; none for what it does without.
    pub(super) fn flag(&self) -> Option<String> {
        (self.mode != Mode::Off).then(|| format!("{FLAG}{}", self.mode))
    }

    /// The rules of the role.
    pub(super) fn rules(&self) -> Vec<Value> {
        let rule = |(resource, names): (&str, &Vec<String>)| {
            json!({
                "apiGroups": [""],
                "resources": [resource],
                "resourceNames": names,
                "verbs": ["impersonate"],
            })
        };
        let mut users = self.users.clone();
        let by_groups = self.whom == Whom::Groups && !self.groups.is_empty();
        users.extend(by_groups.then(|| PROXIED.to_owned()));
        let all = [("users", &users), ("groups", &self.groups)];
        // A rule that names nobody is one for everybody.
        let some = all.into_iter().filter(|(_, names)| !names.is_empty());
        let mut rules: Vec<Value> = some.map(rule).collect();
        rules.extend(by_groups.then(|| {
            // Whatever the name is: it gives nothing.
            json!({
                "apiGroups": ["authentication.k8s.io"],
                "resources": [format!("userextras/{PROXIED_USER}")],
                "verbs": ["impersonate"],
            })
        }));
        rules
    }

    /// Whether a way is open that nobody may take.
    pub(super) fn lets_nobody_in(&self) -> bool {
        let by_groups = self.whom == Whom::Groups && !self.groups.is_empty();
        self.mode != Mode::Off && self.users.is_empty() && !by_groups
    }
}

/// The names of rules that give a verb on a resource.
pub(super) fn named_by(rules: &[Value], resource: &str, verb: &str) -> Vec<String> {
    let has = |list: &Value, one: &str| {
        list.as_array()
            .is_some_and(|list| list.iter().any(|it| it == one))
    };
    let rules = rules
        .iter()
        .filter(|rule| has(&rule["resources"], resource) && has(&rule["verbs"], verb));
    let names = rules.filter_map(|rule| rule["resourceNames"].as_array());
    let names = names.flatten().filter_map(Value::as_str);
    names.map(str::to_owned).collect()
}

/// Names of a flag, else those of the installed rules.
fn names(
    flag: &str,
    given: Option<Vec<String>>,
    resource: &str,
    rules: &[Value],
) -> Result<Vec<String>, CliError> {
    let mut installed = named_by(rules, resource, "impersonate");
    installed.retain(|name| name != PROXIED);
    let names = list::names(flag, given, installed)?;
    for name in &names {
        if name == PROXIED {
            let message = format!("{flag} {name:?}: nobody comes from the hub under that name");
            return Err(CliError::message(Kind::Usage, message)
                .hint("--proxy-as groups lets members of groups in as that user."));
        }
        if name.is_empty() || name == "*" {
            let message = format!("{flag} {name:?}: name one user or group of the hub");
            return Err(CliError::message(Kind::Usage, message));
        }
        if name.starts_with("system:") {
            let message = format!("{flag} {name:?}: nobody comes from the hub under that name");
            let hint = format!(
                "What the hub calls {name:?} is \"{HUB_PREFIX}{name}\" here; let that in, and give it rights, if it is meant."
            );
            return Err(CliError::message(Kind::Usage, message).hint(hint));
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(mode: Option<Mode>, users: &[&str], groups: &[&str]) -> ProxyArgs {
        let some = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|it| (*it).to_owned()).collect();
            (!names.is_empty()).then_some(names)
        };
        ProxyArgs {
            mode,
            whom: None,
            users: some(users),
            groups: some(groups),
        }
    }

    #[test]
    fn groups_come_as_one_user_until_the_owner_says_otherwise() {
        let by_groups = |args: ProxyArgs, whom| ProxyArgs {
            whom: Some(whom),
            ..args
        };
        let open = by_groups(args(Some(Mode::Impersonate), &[], &["dev"]), Whom::Groups);
        let open = Proxy::resolve(open, &Value::Null, &[]).expect("valid");
        assert!(!open.lets_nobody_in());
        assert_eq!(
            json!(open.rules()),
            json!([
                {"apiGroups": [""], "resources": ["users"], "resourceNames": ["towline:proxied"], "verbs": ["impersonate"]},
                {"apiGroups": [""], "resources": ["groups"], "resourceNames": ["dev"], "verbs": ["impersonate"]},
                {"apiGroups": ["authentication.k8s.io"], "resources": ["userextras/towline.dev/user"],
                    "verbs": ["impersonate"]},
            ])
        );
        let agent = json!(["run", open.flag()]);
        let again = Proxy::resolve(args(None, &[], &[]), &agent, &open.rules());
        assert_eq!(again.expect("valid"), open);
        // One by name besides.
        let more = Proxy::resolve(args(None, &["+ann"], &[]), &agent, &open.rules());
        let more = more.expect("valid").rules();
        assert_eq!(more[0]["resourceNames"], json!(["ann", "towline:proxied"]));
        let users = by_groups(args(None, &[], &[]), Whom::Users);
        let users = Proxy::resolve(users, &agent, &open.rules()).expect("valid");
        assert_eq!(users.rules().len(), 1, "{:?}", users.rules());
        assert!(users.lets_nobody_in());
        // Of no group nobody comes, and no rule is there that would be one for everybody.
        let none = by_groups(args(Some(Mode::Impersonate), &[], &[]), Whom::Groups);
        let error = Proxy::resolve(none, &Value::Null, &[]).expect_err("no group");
        assert!(error.to_string().contains("no group is named"), "{error}");
        let last = Proxy::resolve(args(None, &[], &["none"]), &agent, &open.rules());
        let last = last.expect("valid");
        assert!(last.rules().is_empty() && last.lets_nobody_in());
    }

    #[test]
    fn nobody_is_let_in_until_somebody_is_named() {
        let fresh = Proxy::resolve(args(None, &[], &[]), &Value::Null, &[]).expect("valid");
        assert_eq!((fresh.flag(), fresh.rules()), (None, Vec::new()));
        let open = args(Some(Mode::ReadOnly), &[], &[]);
        let open = Proxy::resolve(open, &Value::Null, &[]).expect("valid");
        assert_eq!(open.flag().as_deref(), Some("--proxy=read-only"));
        assert!(open.rules().is_empty() && open.lets_nobody_in());
    }

    #[test]
    fn what_no_flag_names_stays() {
        let first = args(Some(Mode::Impersonate), &["bob", "ann", "bob"], &["dev"]);
        let first = Proxy::resolve(first, &Value::Null, &[]).expect("valid");
        assert_eq!(first.rules()[0]["resourceNames"], json!(["ann", "bob"]));
        assert_eq!(first.rules()[1]["resourceNames"], json!(["dev"]));
        let agent = json!(["run", first.flag()]);
        let again = Proxy::resolve(args(None, &[], &[]), &agent, &first.rules());
        assert_eq!(again.expect("valid"), first);
        let other = Proxy::resolve(args(None, &["none"], &["ops"]), &agent, &first.rules());
        let other = other.expect("valid");
        assert_eq!(other.rules().len(), 1);
        assert_eq!(other.rules()[0]["resourceNames"], json!(["ops"]));
        let more = Proxy::resolve(args(None, &["+carl"], &[]), &agent, &first.rules());
        let more = more.expect("valid").rules();
        assert_eq!(more[0]["resourceNames"], json!(["ann", "bob", "carl"]));
        assert_eq!(more[1]["resourceNames"], json!(["dev"]));
        let off = Proxy::resolve(args(Some(Mode::Off), &[], &[]), &agent, &first.rules());
        assert_eq!(off.expect("valid").flag(), None);
    }

    #[test]
    fn names_that_nobody_has_are_refused() {
        for (given, says) in [
            (
                args(Some(Mode::ReadOnly), &["system:admin"], &[]),
                "nobody comes",
            ),
            (
                args(Some(Mode::ReadOnly), &[], &["system:masters"]),
                "nobody comes",
            ),
            (
                args(Some(Mode::ReadOnly), &["towline:proxied"], &[]),
                "nobody comes",
            ),
            (args(Some(Mode::ReadOnly), &["*"], &[]), "name one user"),
            (args(Some(Mode::ReadOnly), &[""], &[]), "name one user"),
            (args(Some(Mode::ReadOnly), &["+"], &[]), "name one user"),
            (args(Some(Mode::ReadOnly), &["+ann", "bob"], &[]), "or none"),
            (args(None, &["ann"], &[]), "--proxy is off"),
        ] {
            let error = Proxy::resolve(given, &Value::Null, &[]).expect_err(says);
            assert_eq!(error.kind, Kind::Usage);
            assert!(error.to_string().contains(says), "{error}");
        }
    }
}
