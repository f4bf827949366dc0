//! As whom a grant is bound in a member: by the name of the user or group, or as the ServiceAccount that the user is
//! there. Pure.

use super::grant::{Grant, Who};
use crate::cli::{CliError, Kind};
use common::tunnel::Comes;

/// Why a grant would give nobody anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Idle {
    /// Users come in by their groups.
    ByGroups,
    /// Users come in without them.
    WithoutGroups,
}

/// What a grant is where users come in so; where that is not known, what it was before.
pub(super) fn bound(
    grant: &Grant,
    comes: Option<Comes>,
    before: Option<&Grant>,
    by_name: bool,
) -> Result<Grant, Idle> {
    let comes = match by_name {
        true => Some(Comes::Users),
        false => comes,
    };
    match (comes, grant.subject.kind) {
        (None, _) => Ok(before.unwrap_or(grant).clone()),
        (Some(Comes::Users), _) | (Some(Comes::Groups), Who::Group) => Ok(grant.clone()),
        (Some(Comes::ServiceAccounts), Who::User) => Ok(grant.as_service_account()),
        (Some(Comes::Groups), Who::User) => Err(Idle::ByGroups),
        (Some(Comes::ServiceAccounts), Who::Group) => Err(Idle::WithoutGroups),
    }
}

impl Idle {
    /// The refusal of a grant for this reason, in these clusters.
    pub(super) fn error(self, grant: &Grant, clusters: &[&str]) -> CliError {
        let (there, subject) = (clusters.join(", "), &grant.subject);
        let name = &subject.name;
        let (how, instead) = match self {
            Self::ByGroups => (
                "members of groups",
                "Grant it to a group of theirs: `towline access grant GROUP --group`.",
            ),
            Self::WithoutGroups => (
                "ServiceAccounts, without their groups",
                "Grant it to each user: `towline access grant USER`.",
            ),
        };
        let message = format!(
            "users of the hub come into {there} as {how}: a role for {subject} gives nobody anything there; nothing was granted"
        );
        CliError::message(Kind::Unmet, message).hint(format!(
            "{instead} Where its owner names {name} besides, --by-name grants it under that name."
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::super::grant::tests::{grant, user};
    use super::super::grant::{Named, VIEW};
    use super::*;

    #[test]
    fn a_grant_is_bound_as_whom_its_member_knows() {
        let ann = grant(user("ann"), VIEW, Some("shop"));
        let dev = grant(Named::new("dev", true).expect("a group"), VIEW, None);
        let account = ann.as_service_account();
        assert_ne!(ann, account);
        for (given, comes, want) in [
            (&ann, Comes::Users, Ok(&ann)),
            (&dev, Comes::Users, Ok(&dev)),
            (&ann, Comes::Groups, Err(Idle::ByGroups)),
            (&dev, Comes::Groups, Ok(&dev)),
            (&ann, Comes::ServiceAccounts, Ok(&account)),
            (&dev, Comes::ServiceAccounts, Err(Idle::WithoutGroups)),
        ] {
            let got = bound(given, Some(comes), None, false);
            assert_eq!(got, want.cloned(), "{given:?} {comes}");
            // Who is let in by name is bound so.
            assert_eq!(bound(given, Some(comes), None, true).as_ref(), Ok(given));
        }
        assert_eq!(bound(&ann, None, None, false).as_ref(), Ok(&ann));
        assert_eq!(bound(&ann, None, Some(&account), false), Ok(account));
        let told = Idle::ByGroups.error(&ann, &["m1", "m2"]);
        assert_eq!(told.kind, Kind::Unmet);
        assert!(
            told.to_string()
                .contains("into m1, m2 as members of groups"),
            "{told}"
        );
    }
}
