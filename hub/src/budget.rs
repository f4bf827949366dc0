//! How many certificate requests one requester may have at a time. Pure: who counts them hands them in.
//!
//! Each is some 10 KiB that everybody's API server keeps for an hour, and is judged, perhaps signed. An
//! agent needs one when it renews; a token one for each of its uses.

use common::identity::{AGENTS_GROUP, BOOTSTRAP_GROUP, CLUSTER_GROUP_PREFIX};
use std::collections::HashMap;

/// What an agent may have.
const OF_AGENT: Budget = Budget {
    waiting: 20,
    open: 20,
    all: 20,
};
/// What a token may have: many members may register by one at once, and some thousand in an hour. A few of them that ask
/// again and again for what they do not get, each refusal being kept for an hour, must not shut out the others; and
/// whoever stole one is to get no further than that.
const OF_TOKEN: Budget = Budget {
    waiting: 200,
    open: 1_000,
    all: 5_000,
};
/// What anybody else may have.
const OF_OTHER: Budget = Budget {
    waiting: 100,
    open: 100,
    all: 500,
};
/// What all may have; past it only who has next to none gets in.
const IN_ALL: usize = 20_000;
const FEW: usize = 2;

/// How far a request has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Nobody has decided, or it is approved and not signed yet.
    Waiting,
    /// Denied, or failed.
    Refused,
    /// Signed.
    Issued,
}

/// How many of one requester.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Budget {
    /// That wait.
    waiting: usize,
    /// Without a certificate: those, and those that were refused.
    open: usize,
    /// With those that were signed.
    all: usize,
}

impl Budget {
    /// What one request takes of it.
    fn of(state: State) -> Self {
        Self {
            waiting: usize::from(state == State::Waiting),
            open: usize::from(state != State::Issued),
            all: 1,
        }
    }
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
    state: State,
}

impl Ledger {
    /// Takes a request in, as it is now.
    pub(crate) fn put(&mut self, name: &str, user: &str, state: State) {
        self.remove(name);
        let request = Request {
            user: user.to_owned(),
            state,
        };
        let (has, one) = (
            self.requesters.entry(user.to_owned()).or_default(),
            Budget::of(state),
        );
        has.waiting += one.waiting;
        has.open += one.open;
        has.all += one.all;
        self.requests.insert(name.to_owned(), request);
    }

    /// Forgets a request that is gone.
    pub(crate) fn remove(&mut self, name: &str) {
        let Some(gone) = self.requests.remove(name) else {
            return;
        };
        if let Some(has) = self.requesters.get_mut(&gone.user) {
            let one = Budget::of(gone.state);
            has.waiting -= one.waiting;
            has.open -= one.open;
            has.all -= one.all;
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
        let has = self.requesters.get(user).copied().unwrap_or_default();
        let may = budget(groups);
        has.waiting + under_way < may.waiting
            && has.open + under_way < may.open
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
            let state = [State::Issued, State::Refused, State::Waiting][n % 3];
            ledger.put(&format!("r{n}"), "m1", state);
        }
        assert!(!ledger.allows("m1", &agent, 0));
        assert!(ledger.allows("m2", &agent, 0) && !ledger.allows("m2", &agent, OF_AGENT.all));
        ledger.put("r0", "m1", State::Issued);
        assert!(!ledger.allows("m1", &agent, 0), "counted once");
        ledger.remove("r0");
        ledger.remove("r0");
        assert!(ledger.allows("m1", &agent, 0));
        // Of a token those that wait are few, those that were signed as many as members join.
        for n in 0..OF_TOKEN.waiting {
            ledger.put(&format!("t{n}"), "token", State::Waiting);
        }
        assert!(!ledger.allows("token", &token, 0));
        for n in 0..OF_TOKEN.waiting {
            ledger.put(&format!("t{n}"), "token", State::Issued);
        }
        assert!(ledger.allows("token", &token, 0));
        assert!(ledger.allows("bob", &others, OF_OTHER.open - 1));
        assert!(!ledger.allows("bob", &others, OF_OTHER.open));
        for n in 1..OF_AGENT.all {
            ledger.remove(&format!("r{n}"));
        }
        assert!(!ledger.requesters.contains_key("m1"));
    }

    /// What some members were refused, again and again, shuts the others of their token out only when it is a flood.
    #[test]
    fn refusals_by_a_token_leave_room_for_others_and_end_all_the_same() {
        let (token, other) = (groups(&[BOOTSTRAP_GROUP]), groups(&["devs"]));
        let mut ledger = Ledger::default();
        for n in 0..OF_TOKEN.open {
            assert!(ledger.allows("token", &token, 0), "{n}");
            ledger.put(&format!("t{n}"), "token", State::Waiting);
            ledger.put(&format!("t{n}"), "token", State::Refused);
        }
        assert!(!ledger.allows("token", &token, 0));
        ledger.remove("t0");
        assert!(ledger.allows("token", &token, 0) && !ledger.allows("token", &token, 1));
        for n in 0..OF_OTHER.open {
            assert!(ledger.allows("bob", &other, 0), "{n}");
            ledger.put(&format!("b{n}"), "bob", State::Refused);
        }
        assert!(!ledger.allows("bob", &other, 0));
    }

    #[test]
    fn when_all_have_too_many_who_has_none_still_gets_in() {
        let mut ledger = Ledger::default();
        for n in 0..IN_ALL {
            ledger.put(&format!("r{n}"), &format!("u{}", n % 4_000), State::Issued);
        }
        let agent = groups(&[AGENTS_GROUP]);
        assert!(!ledger.allows("u1", &agent, 0), "it has five");
        assert!(ledger.allows("new", &agent, 1) && !ledger.allows("new", &agent, FEW));
    }
}
