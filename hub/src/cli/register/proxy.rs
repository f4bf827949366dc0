//! Who of the hub's users is let into the member, and what for: flags, what is installed, and the role's rules.
//!
//! Pure.

use super::list;
use crate::cli::{CliError, Kind};
use common::tunnel::{HUB_PREFIX, Mode};
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
    /// Group of the hub that comes along with such users; as --proxy-user.
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
            groups: None,
        }
    }
}

/// Who is let in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Proxy {
    /// What for.
    pub(super) mode: Mode,
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
        let named = args.users.is_some() || args.groups.is_some();
        let texts = agent.as_array().into_iter().flatten();
        let mut texts = texts.filter_map(Value::as_str);
        let installed = texts.find_map(|text| Mode::named(text.strip_prefix(FLAG)?));
        let mode = args.mode.or(installed).unwrap_or_default();
        if named && mode == Mode::Off {
            let message = "--proxy-user and --proxy-group say who is let in, and --proxy is off";
            return Err(CliError::message(Kind::Usage, message)
                .hint("Add --proxy read-only, or --proxy impersonate."));
        }
        Ok(Self {
            mode,
            users: names("--proxy-user", args.users, "users", rules)?,
            groups: names("--proxy-group", args.groups, "groups", rules)?,
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
        let all = [("users", &self.users), ("groups", &self.groups)];
        // A rule that names nobody is one for everybody.
        let some = all.into_iter().filter(|(_, names)| !names.is_empty());
        some.map(rule).collect()
    }

    /// Whether a way is open that nobody may take.
    pub(super) fn lets_nobody_in(&self) -> bool {
        self.mode != Mode::Off && self.users.is_empty()
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
    let names = list::names(flag, given, named_by(rules, resource, "impersonate"))?;
    for name in &names {
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
            users: some(users),
            groups: some(groups),
        }
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
