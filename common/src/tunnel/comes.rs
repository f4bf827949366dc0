//! As whom users of the hub come into a member.

use std::fmt;

/// As whom those come in whom the member's owner does not name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Comes {
    /// They do not: whoever comes in is named, and comes as themselves.
    #[default]
    Users,
    /// As one user, in their groups.
    Groups,
    /// Each as a ServiceAccount of their own.
    ServiceAccounts,
}

impl Comes {
    /// As it is written in flags and headers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Users => "users",
            Self::Groups => "groups",
            Self::ServiceAccounts => "service-accounts",
        }
    }

    /// That of this name.
    pub fn named(name: &str) -> Option<Self> {
        let all = [Self::Users, Self::Groups, Self::ServiceAccounts];
        all.into_iter().find(|one| one.as_str() == name)
    }
}

impl fmt::Display for Comes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::Comes;
    use clap::ValueEnum as _;

    #[test]
    fn flags_and_names_are_the_same() {
        for one in Comes::value_variants() {
            let flag = one.to_possible_value().expect("a value");
            assert_eq!(flag.get_name(), one.as_str());
            assert_eq!(Comes::named(flag.get_name()), Some(*one));
        }
        assert_eq!(Comes::named("everybody"), None);
    }
}
