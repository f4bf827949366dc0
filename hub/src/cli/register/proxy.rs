//! Who of the hub's users is let into the member, and what for: flags, what is installed, and the role's rules.
//!
//! Pure.

use super::list;
use super::reading::{AUTHENTICATION, Acted, Readable};
use super::settings::Installed;
use crate::cli::{CliError, Kind};
use common::tunnel::{Comes, HUB_PREFIX, Mode, PROXIED, PROXIED_USER};
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
    /// As whom they come in: users, each under their own name and with the groups that are let in; groups, where
    /// everybody in such a group comes as user `towline:proxied`, without being named here, and the audit log of this
    /// cluster has their name; or service-accounts, where everybody whom the hub lets through comes as a ServiceAccount
    /// of namespace towline-users, without their groups. Default: as installed, else users.
    #[arg(long = "proxy-as", value_name = "WHOM")]
    whom: Option<Comes>,
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

/// Who is let in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Proxy {
    /// What for.
    pub(super) mode: Mode,
    comes: Comes,
    users: Vec<String>,
    groups: Vec<String>,
    /// Whether the role of ServiceAccounts is there, whatever it says.
    has_accounts: bool,
    /// What may be read, where the member judges that itself.
    readable: Option<Readable>,
}

impl Proxy {
    /// Flags first, then what is installed: the arguments of the agent, and the rules of the roles.
    pub(super) fn resolve(args: ProxyArgs, installed: &Installed) -> Result<Self, CliError> {
        let agent = &installed.deployment["spec"]["template"]["spec"]["containers"][0]["args"];
        let rules = installed.proxy.as_slice();
        let named = args.users.is_some() || args.groups.is_some() || args.whom.is_some();
        let texts = agent.as_array().into_iter().flatten();
        let mut texts = texts.filter_map(Value::as_str);
        let before = texts.find_map(|text| Mode::named(text.strip_prefix(FLAG)?));
        let mode = args.mode.or(before).unwrap_or_default();
        if named && mode == Mode::Off {
            let message =
                "--proxy-user, --proxy-group and --proxy-as say who is let in, and --proxy is off";
            return Err(CliError::message(Kind::Usage, message)
                .hint("Add --proxy read-only, or --proxy impersonate."));
        }
        let by_groups = listed(rules, "users").iter().any(|name| name == PROXIED);
        let by_accounts = installed.accounts.as_ref().is_some_and(|it| !it.is_empty());
        let comes = args.whom.unwrap_or(match (by_accounts, by_groups) {
            (true, _) => Comes::ServiceAccounts,
            (false, true) => Comes::Groups,
            (false, false) => Comes::Users,
        });
        let groups = names("--proxy-group", args.groups, "groups", rules)?;
        if args.whom == Some(Comes::Groups) && groups.is_empty() {
            let message = "--proxy-as groups lets members of groups in, and no group is named";
            return Err(CliError::message(Kind::Usage, message)
                .hint("Add --proxy-group NAME, for each group of the hub."));
        }
        Ok(Self {
            mode,
            comes,
            has_accounts: installed.accounts.is_some(),
            readable: None,
            users: names("--proxy-user", args.users, "users", rules)?,
            groups,
        })
    }

    /// The agent's flag; none for what it does without.
    pub(super) fn flag(&self) -> Option<String> {
        (self.mode != Mode::Off).then(|| format!("{FLAG}{}", self.mode))
    }

    /// Has reading alone be a rule of the member's own, which has this to read. No plain right may stand beside those, for
    /// it would do for everything.
    pub(super) fn constrain(&mut self, readable: Readable) {
        self.readable = Some(readable).filter(|_| self.mode == Mode::ReadOnly);
    }

    /// The group and the verb of the right to be somebody.
    fn right(&self, whom: Acted) -> (&'static str, String) {
        match self.readable {
            Some(_) => (AUTHENTICATION, whom.verb()),
            None => ("", "impersonate".to_owned()),
        }
    }

    /// The rules of the role.
    pub(super) fn rules(&self) -> Vec<Value> {
        let (group, verb) = self.right(Acted::User);
        let rule = |(resource, names): (&str, &Vec<String>)| {
            json!({
                "apiGroups": [group],
                "resources": [resource],
                "resourceNames": names,
                "verbs": [verb],
            })
        };
        let mut users = self.users.clone();
        let by_groups = self.comes == Comes::Groups && !self.groups.is_empty();
        users.extend(by_groups.then(|| PROXIED.to_owned()));
        let all = [("users", &users), ("groups", &self.groups)];
        // A rule that names nobody is one for everybody.
        let some = all.into_iter().filter(|(_, names)| !names.is_empty());
        let mut rules: Vec<Value> = some.map(rule).collect();
        rules.extend(by_groups.then(|| {
            // Whatever the name is: it gives nothing.
            json!({
                "apiGroups": [AUTHENTICATION],
                "resources": [format!("userextras/{PROXIED_USER}")],
                "verbs": [verb],
            })
        }));
        if let Some(readable) = &self.readable {
            let users = (!users.is_empty()).then_some(Acted::User);
            let accounts = (self.comes == Comes::ServiceAccounts).then_some(Acted::Account);
            let as_whom: Vec<Acted> = [users, accounts].into_iter().flatten().collect();
            rules.extend(readable.rules(&as_whom));
        }
        rules
    }

    /// The rules of the role of ServiceAccounts that users come in as; none where there is to be none. One that is there
    /// stays without rules when they come in otherwise.
    pub(super) fn accounts(&self) -> Option<Vec<Value>> {
        let (group, verb) = self.right(Acted::Account);
        let rule = json!({
            "apiGroups": [group],
            "resources": ["serviceaccounts"],
            "verbs": [verb],
        });
        match self.comes {
            Comes::ServiceAccounts => Some(vec![rule]),
            Comes::Users | Comes::Groups => self.has_accounts.then(Vec::new),
        }
    }

    /// Whether a way is open that nobody may take.
    pub(super) fn lets_nobody_in(&self) -> bool {
        let everybody = match self.comes {
            Comes::Users => false,
            Comes::Groups => !self.groups.is_empty(),
            Comes::ServiceAccounts => true,
        };
        self.mode != Mode::Off && self.users.is_empty() && !everybody
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

/// The names of rules that give a right to be somebody, in either form.
fn listed(rules: &[Value], resource: &str) -> Vec<String> {
    let constrained = Acted::User.verb();
    let mut names = named_by(rules, resource, "impersonate");
    names.extend(named_by(rules, resource, &constrained));
    names
}

/// Names of a flag, else those of the installed rules.
fn names(
    flag: &str,
    given: Option<Vec<String>>,
    resource: &str,
    rules: &[Value],
) -> Result<Vec<String>, CliError> {
    let mut installed = listed(rules, resource);
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

    /// What is installed: the flag of the agent, and the rules of the role.
    fn installed(flag: Option<String>, rules: Vec<Value>) -> Installed {
        let args = json!(["run", flag]);
        Installed {
            deployment: json!({"spec": {"template": {"spec": {"containers": [{"args": args}]}}}}),
            proxy: rules,
            ..Installed::default()
        }
    }

    fn fresh(args: ProxyArgs) -> Result<Proxy, CliError> {
        Proxy::resolve(args, &Installed::default())
    }

    /// What is made of that once it is installed.
    fn again(of: &Proxy, args: ProxyArgs) -> Proxy {
        let installed = Installed {
            accounts: of.accounts(),
            ..installed(of.flag(), of.rules())
        };
        Proxy::resolve(args, &installed).expect("valid")
    }

    #[test]
    fn everybody_comes_as_an_account_until_the_owner_says_otherwise() {
        let nobody = || args(None, &[], &[]);
        let accounts = ProxyArgs {
            whom: Some(Comes::ServiceAccounts),
            ..args(Some(Mode::Impersonate), &[], &[])
        };
        let open = fresh(accounts).expect("valid");
        assert!(open.rules().is_empty() && !open.lets_nobody_in());
        assert_eq!(
            json!(open.accounts()),
            json!([{"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["impersonate"]}])
        );
        let kept = again(&open, nobody());
        assert_eq!(
            (kept.accounts(), kept.rules()),
            (open.accounts(), Vec::new())
        );
        // One by name besides.
        let more = again(&open, args(None, &["ann"], &[]));
        assert_eq!(more.accounts(), open.accounts());
        assert_eq!(more.rules()[0]["resourceNames"], json!(["ann"]));
        // What was there gives nothing once they come in otherwise, and nothing is made for it.
        let users = ProxyArgs {
            whom: Some(Comes::Users),
            ..nobody()
        };
        let users = again(&open, users);
        assert_eq!(users.accounts(), Some(Vec::new()));
        assert!(users.lets_nobody_in());
        assert_eq!(again(&users, nobody()).comes, Comes::Users);
        assert_eq!(fresh(nobody()).expect("valid").accounts(), None);
    }

    #[test]
    fn groups_come_as_one_user_until_the_owner_says_otherwise() {
        let by_groups = |args: ProxyArgs, whom| ProxyArgs {
            whom: Some(whom),
            ..args
        };
        let open = by_groups(args(Some(Mode::Impersonate), &[], &["dev"]), Comes::Groups);
        let open = fresh(open).expect("valid");
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
        let kept = again(&open, args(None, &[], &[]));
        assert_eq!(kept, open);
        // One by name besides.
        let more = again(&open, args(None, &["+ann"], &[]));
        let more = more.rules();
        assert_eq!(more[0]["resourceNames"], json!(["ann", "towline:proxied"]));
        let users = by_groups(args(None, &[], &[]), Comes::Users);
        let users = again(&open, users);
        assert_eq!(users.rules().len(), 1, "{:?}", users.rules());
        assert!(users.lets_nobody_in());
        // Of no group nobody comes, and no rule is there that would be one for everybody.
        let none = by_groups(args(Some(Mode::Impersonate), &[], &[]), Comes::Groups);
        let error = fresh(none).expect_err("no group");
        assert!(error.to_string().contains("no group is named"), "{error}");
        let last = again(&open, args(None, &[], &["none"]));
        assert!(last.rules().is_empty() && last.lets_nobody_in());
    }

    #[test]
    fn reading_alone_is_the_members_own_rule_where_it_can_be() {
        let pods = json!({"items": [{"metadata": {"name": ""}, "versions": [{"resources": [
            {"resource": "pods", "verbs": ["get"]},
        ]}]}]});
        let readable = Readable::of(&[pods]);
        let as_groups = ProxyArgs {
            whom: Some(Comes::Groups),
            ..args(Some(Mode::ReadOnly), &["ann"], &["dev"])
        };
        let as_accounts = ProxyArgs {
            whom: Some(Comes::ServiceAccounts),
            ..args(Some(Mode::ReadOnly), &[], &[])
        };
        for given in [as_groups, as_accounts] {
            let plain = fresh(given).expect("valid");
            let mut open = plain.clone();
            open.constrain(readable.clone());
            let all = [open.rules(), open.accounts().unwrap_or_default()].concat();
            assert!(
                all.iter()
                    .all(|rule| rule["verbs"] != json!(["impersonate"])),
                "no plain right stands beside: {all:?}"
            );
            let text = json!(all).to_string();
            assert!(
                text.contains("\"impersonate-on:") && text.contains(":get\""),
                "{text}"
            );
            // It is read as what it was made of.
            assert_eq!(again(&open, args(None, &[], &[])).rules(), plain.rules());
            // Whoever may do more by the owner's word needs the plain right.
            let mut more = again(&open, args(Some(Mode::Impersonate), &[], &[]));
            more.constrain(readable.clone());
            assert_eq!(
                (more.rules(), more.accounts()),
                (plain.rules(), plain.accounts())
            );
        }
        let mut nobody = fresh(args(Some(Mode::ReadOnly), &[], &["dev"])).expect("valid");
        nobody.constrain(readable);
        assert_eq!(nobody.rules().len(), 1, "{:?}", nobody.rules());
    }

    #[test]
    fn nobody_is_let_in_until_somebody_is_named() {
        let shut = fresh(args(None, &[], &[])).expect("valid");
        assert_eq!((shut.flag(), shut.rules()), (None, Vec::new()));
        let open = args(Some(Mode::ReadOnly), &[], &[]);
        let open = fresh(open).expect("valid");
        assert_eq!(open.flag().as_deref(), Some("--proxy=read-only"));
        assert!(open.rules().is_empty() && open.lets_nobody_in());
    }

    #[test]
    fn what_no_flag_names_stays() {
        let first = args(Some(Mode::Impersonate), &["bob", "ann", "bob"], &["dev"]);
        let first = fresh(first).expect("valid");
        assert_eq!(first.rules()[0]["resourceNames"], json!(["ann", "bob"]));
        assert_eq!(first.rules()[1]["resourceNames"], json!(["dev"]));
        let kept = again(&first, args(None, &[], &[]));
        assert_eq!(kept, first);
        let other = again(&first, args(None, &["none"], &["ops"]));
        assert_eq!(other.rules().len(), 1);
        assert_eq!(other.rules()[0]["resourceNames"], json!(["ops"]));
        let more = again(&first, args(None, &["+carl"], &[]));
        let more = more.rules();
        assert_eq!(more[0]["resourceNames"], json!(["ann", "bob", "carl"]));
        assert_eq!(more[1]["resourceNames"], json!(["dev"]));
        let off = again(&first, args(Some(Mode::Off), &[], &[]));
        assert_eq!(off.flag(), None);
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
            let error = fresh(given).expect_err(says);
            assert_eq!(error.kind, Kind::Usage);
            assert!(error.to_string().contains(says), "{error}");
        }
    }
}
