//! How grants stand in members, and what their owners are to type where one does not hold. Pure.

use super::grant::{Grant, VIEW, Who};
use crate::cli::output::Named;
use crate::cli::{Colours, Table};
use common::api::work::{APPLIED, Work};
use common::harmless;
use common::names::AGENT_NAME;
use common::tunnel::Mode;
use serde::{Serialize, Serializer};
use std::collections::BTreeSet;

/// What binds a role in all of a member; its owner allows it as any other kind.
const EVERYWHERE: &str = "clusterrolebindings.rbac.authorization.k8s.io";
/// Characters of what a member says.
const SAID: usize = 400;
/// Characters that a shell takes as they are.
const PLAIN: &str = ":@._+/-=";

/// Whether something holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) enum Holds {
    Yes,
    /// Not, and why.
    No(Why),
    /// Nobody says, and why.
    Unknown(String),
}

/// What keeps a grant from holding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) enum Why {
    /// The agent lacks the right to bind the role.
    MayNotBind(String),
    /// The member's owner does not let this one in.
    NotLetIn,
    /// The member's owner opens it for reading alone.
    ReadingAlone,
    /// The member's owner opens it to nobody.
    NoTunnel,
    /// Somebody took it back.
    Revoked(&'static str),
    /// Whatever else it says.
    Other(String),
}

impl Why {
    pub(in crate::cli) fn text(&self) -> &str {
        match self {
            Self::MayNotBind(said) | Self::Other(said) => said,
            Self::Revoked(how) => how,
            Self::NotLetIn => "its owner does not let them in",
            Self::ReadingAlone => "its owner opens it for reading alone",
            Self::NoTunnel => "its agent has opened no tunnel to the hub",
        }
    }
}

impl Holds {
    fn word(&self) -> &'static str {
        match self {
            Self::Yes => "True",
            Self::No(_) => "False",
            Self::Unknown(_) => "Unknown",
        }
    }

    fn text(&self) -> Option<&str> {
        match self {
            Self::Yes => None,
            Self::No(why) => Some(why.text()),
            Self::Unknown(why) => Some(why),
        }
    }

    fn why(&self) -> Option<&Why> {
        match self {
            Self::No(why) => Some(why),
            Self::Yes | Self::Unknown(_) => None,
        }
    }
}

impl Serialize for Holds {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.word())
    }
}

/// Whether a member has what a Work brings.
pub(super) fn applied(work: &Work) -> Holds {
    if work.metadata.deletion_timestamp.is_some() {
        let why = "it is being revoked, and its agent has not confirmed that yet";
        return Holds::No(Why::Revoked(why));
    }
    let conditions = work.status.iter().flat_map(|it| &it.conditions);
    let mut applied = conditions.filter(|it| it.type_ == APPLIED);
    match applied.next() {
        Some(it) if it.status == "True" => Holds::Yes,
        Some(it) if it.status == "False" => {
            let said = harmless::line(&it.message, SAID);
            Holds::No(match lacks_the_role(&it.message) {
                true => Why::MayNotBind(said),
                false => Why::Other(said),
            })
        }
        _ => Holds::Unknown("its agent has not said anything of it yet".to_owned()),
    }
}

/// Whether it is for its own rights that an agent brought no binding: it may write none, or none of this role.
fn lacks_the_role(said: &str) -> bool {
    said.contains("the agent may not ")
        || (said.contains("is attempting to grant RBAC permissions not currently held")
            && said.contains(AGENT_NAME))
}

/// A grant in one member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Standing {
    pub(super) cluster: String,
    #[serde(flatten)]
    pub(super) grant: Grant,
    /// Whether the member has the binding.
    pub(super) applied: Holds,
    /// Whether the member lets them in, where it was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) let_in: Option<Holds>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) message: Option<String>,
    /// What the member's owner is to type there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) owner_command: Option<String>,
}

impl Standing {
    /// What is known of a grant.
    pub(super) fn new(
        cluster: String,
        grant: Grant,
        applied: Holds,
        let_in: Option<Holds>,
    ) -> Self {
        let texts = [Some(&applied), let_in.as_ref()].into_iter().flatten();
        let texts: Vec<&str> = texts.filter_map(Holds::text).collect();
        Self {
            message: (!texts.is_empty()).then(|| texts.join("; ")),
            owner_command: command("towline register", &grant, &applied, let_in.as_ref()),
            cluster,
            grant,
            applied,
            let_in,
        }
    }

    /// The same, where it is known which members were joined: their owners have another command.
    pub(super) fn among(mut self, joined: &BTreeSet<String>) -> Self {
        if joined.contains(&self.cluster) {
            let verb = format!("towline join {} --cluster-kubeconfig FILE", self.cluster);
            let let_in = self.let_in.as_ref();
            self.owner_command = command(&verb, &self.grant, &self.applied, let_in);
        }
        self
    }

    /// Whether something keeps it from holding.
    pub(super) fn is_broken(&self) -> bool {
        let all = [Some(&self.applied), self.let_in.as_ref()];
        all.into_iter().flatten().any(|it| it.why().is_some())
    }

    /// Whether it is granted no more.
    pub(super) fn is_revoked(&self) -> bool {
        matches!(self.applied, Holds::No(Why::Revoked(_)))
    }

    /// Whether it is not known yet whether the member has the binding.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.applied, Holds::Unknown(_))
    }
}

impl Named for Standing {
    fn named(&self) -> String {
        format!("work.work.karmada.io/{}", self.grant.name())
    }
}

/// What a member's owner is to type there for a grant to hold.
fn command(verb: &str, grant: &Grant, applied: &Holds, let_in: Option<&Holds>) -> Option<String> {
    let mut flags = Vec::new();
    if let Some(Why::MayNotBind(_)) = applied.why() {
        if grant.namespace.is_none() {
            flags.push(format!("--allow +{EVERYWHERE}"));
        }
        flags.push(format!(
            "--allow-role {}",
            quoted(&format!("+{}", grant.role))
        ));
    }
    let mode = match (let_in.and_then(Holds::why), grant.role.as_str()) {
        (Some(Why::NoTunnel), VIEW) => Some(Mode::ReadOnly),
        (Some(Why::NoTunnel | Why::ReadingAlone), _) => Some(Mode::Impersonate),
        _ => None,
    };
    flags.extend(mode.map(|mode| format!("--proxy {mode}")));
    if let Some(Why::NoTunnel | Why::NotLetIn) = let_in.and_then(Holds::why) {
        let flag = match grant.subject.kind {
            Who::User => "--proxy-user",
            Who::Group => "--proxy-group",
        };
        let name = format!("+{}", grant.subject.in_member());
        flags.push(format!("{flag} {}", quoted(&name)));
    }
    (!flags.is_empty()).then(|| format!("{verb} {}", flags.join(" ")))
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || PLAIN.contains(c);
    match word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// Grants in a table; whether members let them in is shown where it was asked.
pub(super) fn table(all: &[Standing], colours: Colours) -> Table {
    let asked = all.iter().any(|it| it.let_in.is_some());
    let mut headings = vec!["SUBJECT", "ROLE", "NAMESPACE", "CLUSTER", "APPLIED"];
    headings.extend(asked.then_some("LET IN"));
    headings.push("WHY NOT");
    let mut table = Table::of(headings);
    for it in all {
        let namespace = it.grant.namespace.as_deref().unwrap_or("<all>");
        let mut cells = vec![
            it.grant.subject.to_string(),
            it.grant.role.clone(),
            namespace.to_owned(),
            it.cluster.clone(),
            it.applied.word().to_owned(),
        ];
        if asked {
            let word = it.let_in.as_ref().map_or("", Holds::word);
            cells.push(word.to_owned());
        }
        cells.push(it.message.clone().unwrap_or_default());
        table.push(cells);
    }
    // Why not is what somebody has to mend: it is shown whole.
    table.uncut().coloured(colours)
}

#[cfg(test)]
mod tests {
    use super::super::grant::tests::{grant, user};
    use super::*;
    use crate::cli::access::grant::Named as Subject;
    use crate::cli::approved;
    use common::names::ClusterName;
    use serde_json::json;

    const MAY_NOT: &str = "Failed to apply all manifests (0/1): RoleBinding shop/x: the agent may not patch rolebindings";
    const GRANTING: &str = "user \"system:serviceaccount:towline-system:towline-agent\" (groups=[\"system:authenticated\"]) \
        is attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"\"]}";

    fn work(condition: Option<(&str, &str)>) -> Work {
        let cluster = ClusterName::parse("m1").expect("a name");
        let mut work = grant(user("ann"), VIEW, None).work(&cluster);
        let condition = condition.map(|(status, message)| {
            json!({"type": "Applied", "status": status, "reason": "R", "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z"})
        });
        let conditions: Vec<_> = condition.into_iter().collect();
        let status = json!({"conditions": conditions});
        work.status = Some(serde_json::from_value(status).expect("a status"));
        work
    }

    #[test]
    fn a_work_says_whether_the_member_has_it() {
        assert_eq!(applied(&work(Some(("True", "")))), Holds::Yes);
        assert!(matches!(applied(&work(None)), Holds::Unknown(_)));
        assert!(matches!(
            applied(&work(Some(("Unknown", "")))),
            Holds::Unknown(_)
        ));
        for (said, of_rights) in [
            (MAY_NOT, true),
            (GRANTING, true),
            ("namespaces \"shop\" not found", false),
            ("\u{1b}[2Jno", false),
        ] {
            let Holds::No(why) = applied(&work(Some(("False", said)))) else {
                panic!("{said} is no");
            };
            assert_eq!(matches!(why, Why::MayNotBind(_)), of_rights, "{said}");
            assert!(!why.text().contains(['\n', '\u{1b}']), "{why:?}");
        }
        let mut going = work(Some(("True", "")));
        let at = "2026-01-01T00:00:00Z".parse().expect("a time");
        going.metadata.deletion_timestamp = Some(common::time::to_time(at));
        assert!(matches!(applied(&going), Holds::No(Why::Revoked(_))));
    }

    #[test]
    fn the_owner_is_told_what_to_type_and_nothing_more() {
        let may_not = || Holds::No(Why::MayNotBind(MAY_NOT.to_owned()));
        let no = |why| Some(Holds::No(why));
        let robot = user("system:serviceaccount:ci:robot");
        let dev = Subject::new("dev team", true).expect("a group");
        for (who, role, applied, let_in, want) in [
            (user("ann"), VIEW, Holds::Yes, Some(Holds::Yes), None),
            (
                user("ann"),
                VIEW,
                may_not(),
                Some(Holds::Yes),
                Some("--allow +clusterrolebindings.rbac.authorization.k8s.io --allow-role +view"),
            ),
            (
                user("ann"),
                VIEW,
                Holds::Yes,
                no(Why::NoTunnel),
                Some("--proxy read-only --proxy-user +ann"),
            ),
            (
                robot,
                "edit",
                Holds::Yes,
                no(Why::NoTunnel),
                Some(
                    "--proxy impersonate --proxy-user +towline:hub:system:serviceaccount:ci:robot",
                ),
            ),
            (
                user("ann"),
                "edit",
                Holds::Yes,
                no(Why::ReadingAlone),
                Some("--proxy impersonate"),
            ),
            (
                dev,
                VIEW,
                Holds::Yes,
                no(Why::NotLetIn),
                Some("--proxy-group '+dev team'"),
            ),
            (
                user("ann"),
                VIEW,
                Holds::No(Why::Other("namespaces \"shop\" not found".to_owned())),
                Some(Holds::Unknown("nobody was asked".to_owned())),
                None,
            ),
        ] {
            let got = command(
                "towline register",
                &grant(who, role, None),
                &applied,
                let_in.as_ref(),
            );
            let want = want.map(|it| format!("towline register {it}"));
            assert_eq!(got, want);
        }
    }

    #[test]
    fn a_role_in_one_namespace_takes_no_other_kind() {
        let may_not = Holds::No(Why::MayNotBind(MAY_NOT.to_owned()));
        let not_in = Holds::No(Why::NotLetIn);
        let in_shop = grant(user("ann"), "edit", Some("shop"));
        assert_eq!(
            command("towline register", &in_shop, &may_not, Some(&not_in)).as_deref(),
            Some("towline register --allow-role +edit --proxy-user +ann")
        );
    }

    fn shown() -> Vec<Standing> {
        let of = |cluster: &str, grant: Grant, applied: Holds, let_in: Option<Holds>| {
            Standing::new(cluster.to_owned(), grant, applied, let_in)
        };
        let ann = || grant(user("ann"), VIEW, Some("shop"));
        let dev = Subject::new("dev", true).expect("a group");
        vec![
            of("m1", ann(), Holds::Yes, Some(Holds::Yes)),
            of(
                "m2",
                ann(),
                Holds::No(Why::MayNotBind(MAY_NOT.to_owned())),
                Some(Holds::No(Why::NotLetIn)),
            ),
            of("m3", ann(), Holds::Yes, Some(Holds::No(Why::NoTunnel))),
            of(
                "m4",
                grant(dev, "edit", None),
                Holds::Unknown("its agent has not said anything of it yet".to_owned()),
                Some(Holds::Unknown(
                    "you are not let in there yourself".to_owned(),
                )),
            ),
        ]
    }

    #[test]
    fn the_owner_of_a_joined_member_joins_it_again() {
        let joined = BTreeSet::from(["m2".to_owned()]);
        let all = shown().into_iter().map(|it| it.among(&joined));
        let commands: Vec<Option<String>> = all.map(|it| it.owner_command).collect();
        let wanted = [
            None,
            Some("towline join m2 --cluster-kubeconfig FILE --allow-role +view --proxy-user +ann"),
            Some("towline register --proxy read-only --proxy-user +ann"),
            None,
        ];
        assert_eq!(commands, wanted.map(|it| it.map(str::to_owned)));
    }

    #[test]
    fn grants_are_shown() {
        let asked = shown();
        let mut listed = shown();
        for it in &mut listed {
            let again = Standing::new(
                it.cluster.clone(),
                it.grant.clone(),
                it.applied.clone(),
                None,
            );
            *it = again;
        }
        for (name, all) in [("granted", asked), ("listed", listed)] {
            approved::screens("cli/access/screens", name, |width, colours| {
                table(&all, colours).within(Some(width))
            });
        }
    }

    #[test]
    fn programs_are_told_the_same() {
        let all = serde_json::to_value(shown()).expect("JSON");
        assert_eq!(
            all[1],
            json!({
                "cluster": "m2",
                "subject": {"kind": "User", "name": "ann"},
                "role": "view",
                "namespace": "shop",
                "applied": "False",
                "letIn": "False",
                "message": format!("{MAY_NOT}; its owner does not let them in"),
                "ownerCommand": "towline register --allow-role +view --proxy-user +ann",
            })
        );
        assert_eq!(all[0]["ownerCommand"], json!(null));
        assert!(shown()[1].is_broken() && !shown()[0].is_broken() && shown()[3].is_open());
    }
}
