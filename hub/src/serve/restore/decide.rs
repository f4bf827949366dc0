//! What a restore makes of the registrations in a backup. Pure.
//!
//! A backup knows who was registered when it was made, and nothing of who was removed since. What is left of
//! the hub before it may tell; where nothing is left, nobody is let in before somebody said so.

use std::collections::BTreeMap;

/// Registrations that are in force: by the names of their clusters.
pub type Registrations = BTreeMap<String, String>;

/// What is known of the time after the backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Since<'a> {
    /// Who was registered at its end.
    Known(&'a Registrations),
    /// Nothing.
    Unknown,
    /// Nothing, and the operator vouches for whoever is in the backup.
    Confirmed,
}

/// What becomes of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Findings {
    /// Clusters of the backup whose agents are not let in until they are confirmed.
    pub held: Vec<String>,
    /// Clusters that were registered, or registered anew, since the backup.
    pub made_since: Vec<String>,
}

impl Findings {
    /// Of those that are held, who is let in by being confirmed, and who was registered anew since the backup and has to
    /// be so again.
    pub fn split_held(&self) -> (Vec<String>, Vec<String>) {
        let anew = |name: &String| self.made_since.contains(name);
        let (anew, removed) = self.held.iter().cloned().partition(anew);
        (removed, anew)
    }
}

/// Decides.
pub fn decide(backup: &Registrations, since: Since<'_>) -> Findings {
    let names = |of: &Registrations, but: &Registrations| {
        let others = of.iter().filter(|(name, id)| but.get(*name) != Some(id));
        others.map(|(name, _)| name.clone()).collect()
    };
    match since {
        Since::Known(later) => Findings {
            held: names(backup, later),
            made_since: names(later, backup),
        },
        Since::Unknown => Findings {
            held: backup.keys().cloned().collect(),
            made_since: Vec::new(),
        },
        Since::Confirmed => Findings::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(list: &[(&str, &str)]) -> Registrations {
        let pairs = list.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned()));
        pairs.collect()
    }

    #[test]
    fn who_was_removed_since_is_held_and_who_came_since_is_named() {
        let backup = of(&[("stays", "1"), ("removed", "2"), ("replaced", "3")]);
        let later = of(&[("stays", "1"), ("replaced", "4"), ("new", "5")]);
        let found = decide(&backup, Since::Known(&later));
        assert_eq!(found.held, ["removed", "replaced"]);
        assert_eq!(found.made_since, ["new", "replaced"]);
        let (removed, anew) = found.split_held();
        assert_eq!(removed, ["removed"]);
        assert_eq!(anew, ["replaced"]);
        assert_eq!(decide(&backup, Since::Known(&backup)), Findings::default());
        let found = decide(&backup, Since::Unknown);
        assert_eq!(found.held, ["removed", "replaced", "stays"]);
        assert_eq!(decide(&backup, Since::Confirmed), Findings::default());
    }
}
