//! How many certificate requests one requester may have at a time. Pure: who counts them hands them in.
//!
//! Each is some 10 KiB that everybody's API server keeps for an hour, and is judged, perhaps signed. An
//! agent needs one when it renews; a token one for each of its uses.

use common::identity::{AGENTS_GROUP, BOOTSTRAP_GROUP, CLUSTER_GROUP_PREFIX};
use std::collections::HashMap;

/// What an agent may have.
const OF_AGENT: Budget = Budget { open: 20, all: 20 };
/// What a token may have: many members may register by one at once, and some thousand in an hour.
const OF_TOKEN: Budget = Budget {
    open: 200,
    all: 5_000,
};
/// What anybody else may have.
const OF_OTHER: Budget = Budget {
    open: 100,
    all: 500,
};
/// What all may have; past it only who has next to none gets in.
const IN_ALL: usize = 20_000;
const FEW: usize = 2;

/// How many of one requester.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Budget {
    /// Without a certificate yet: waiting, denied or failed.
    open: usize,
    /// With those that were signed.
    all: usize,
}

/// Who has how many.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    requests: HashMap<String, Request>,
    requesters: HashMap<String, Budget>,
}

#[derive(Debug)]
struct Request {
    user: String,
    issued: bool,
}

impl Ledger {
    /// Takes a request in, as it is now.
    pub(crate) fn put(&mut self, name: &str, user: &str, issued: bool) {
        self.remove(name);
        let request = Request {
            user: user.to_owned(),
            issued,
        };
        let has = self
            .requesters
            .entry(user.to_owned())
            .or_insert(Budget { open: 0, all: 0 });
        has.all += 1;
        has.open += usize::from(!issued);
        self.requests.insert(name.to_owned(), request);
    }

    /// Forgets a request that is gone.
    pub(crate) fn remove(&mut self, name: &str) {
        let Some(gone) = self.requests.remove(name) else {
            return;
        };
        if let Some(has) = self.requesters.get_mut(&gone.user) {
            has.all -= 1;
            has.open -= usize::from(!gone.issued);
            if has.all == 0 {
                self.requesters.remove(&gone.user);
            }
        }
    }

    /// Whether a request is counted.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.requests.contains_key(name)
    }

    /// Whether a requester may have one more beside those that are counted and so many under way.
    pub(crate) fn allows(&self, user: &str, groups: &[String], under_way: usize) -> bool {
        let none = Budget { open: 0, all: 0 };
        let has = self.requesters.get(user).copied().unwrap_or(none);
        let may = budget(groups);
        has.open + under_way < may.open
            && has.all + under_way < may.all
            && (self.requests.len() < IN_ALL || has.all + under_way < FEW)
    }
}

fn budget(groups: &[String]) -> Budget {
    let any = |is: fn(&str) -> bool| groups.iter().any(|group| is(group));
    if any(|group| group == AGENTS_GROUP || group.starts_with(CLUSTER_GROUP_PREFIX)) {
        OF_AGENT
    } else if any(|group| group == BOOTSTRAP_GROUP) {
        OF_TOKEN
    } else {
        OF_OTHER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(of: &[&str]) -> Vec<String> {
        of.iter().map(|group| (*group).to_owned()).collect()
    }

    #[test]
    fn each_requester_has_a_budget_and_gets_it_back() {
        let mut ledger = Ledger::default();
        let (agent, token) = (groups(&[AGENTS_GROUP]), groups(&[BOOTSTRAP_GROUP]));
        let others = groups(&["devs"]);
        for n in 0..OF_AGENT.all {
            assert!(ledger.allows("m1", &agent, 0), "{n}");
            ledger.put(&format!("r{n}"), "m1", n % 2 == 0);
        }
        assert!(!ledger.allows("m1", &agent, 0));
        assert!(ledger.allows("m2", &agent, 0) && !ledger.allows("m2", &agent, OF_AGENT.all));
        ledger.put("r0", "m1", true);
        assert!(!ledger.allows("m1", &agent, 0), "counted once");
        ledger.remove("r0");
        ledger.remove("r0");
        assert!(ledger.allows("m1", &agent, 0));
        // Of a token those that wait are few, those that were signed as many as members join.
        for n in 0..OF_TOKEN.open {
            ledger.put(&format!("t{n}"), "token", false);
        }
        assert!(!ledger.allows("token", &token, 0));
        for n in 0..OF_TOKEN.open {
            ledger.put(&format!("t{n}"), "token", true);
        }
        assert!(ledger.allows("token", &token, 0));
        assert!(ledger.allows("bob", &others, OF_OTHER.open - 1));
        assert!(!ledger.allows("bob", &others, OF_OTHER.open));
        for n in 1..OF_AGENT.all {
            ledger.remove(&format!("r{n}"));
        }
        assert!(!ledger.requesters.contains_key("m1"));
    }

    #[test]
    fn when_all_have_too_many_who_has_none_still_gets_in() {
        let mut ledger = Ledger::default();
        for n in 0..IN_ALL {
            ledger.put(&format!("r{n}"), &format!("u{}", n % 4_000), true);
        }
        let agent = groups(&[AGENTS_GROUP]);
        assert!(!ledger.allows("u1", &agent, 0), "it has five");
        assert!(ledger.allows("new", &agent, 1) && !ledger.allows("new", &agent, FEW));
    }
}
