//! What of a member its owner opens to users of the hub.

use std::fmt;

/// The member owner's word, and the last one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// Nothing: the agent opens no tunnel.
    #[default]
    Off,
    /// Reading: get, list, watch and logs, as the user who asks.
    ReadOnly,
    /// Whatever the member lets the user do who asks.
    Impersonate,
}

impl Mode {
    /// As it is written in flags.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::ReadOnly => "read-only",
            Self::Impersonate => "impersonate",
        }
    }

    /// The mode of this name.
    pub fn named(name: &str) -> Option<Self> {
        let all = [Self::Off, Self::ReadOnly, Self::Impersonate];
        all.into_iter().find(|mode| mode.as_str() == name)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::Mode;
    use clap::ValueEnum as _;

    #[test]
    fn flags_and_names_are_the_same() {
        for mode in Mode::value_variants() {
            let flag = mode.to_possible_value().expect("a value");
            assert_eq!(flag.get_name(), mode.as_str());
            assert_eq!(Mode::named(flag.get_name()), Some(*mode));
        }
        assert_eq!(Mode::named("on"), None);
    }
}
