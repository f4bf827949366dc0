//! How many requests of one user are under way, how many watches and connections are open, and how much of
//! answers nobody has taken yet: one that sends without end must not starve the others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Requests of one user at once; a watch counts until it has begun.
const REQUESTS: usize = 200;
/// Watches of one user at once. An agent has two or three, a large controller some dozens.
const WATCHES: usize = 1_000;
/// Connections of one user at once. An agent has three.
const CONNECTIONS: usize = 500;
/// Connections of one agent, which has three; those that it lost may not be noticed at once.
const OF_AGENT: usize = 32;
/// Requests of strangers at once: from one address, and on one connection.
const STRANGE_REQUESTS: usize = 200;
const ON_CONNECTION: usize = 50;
/// Answers of one user that are being sent, in MiB; a larger one may be alone.
const ANSWERS: usize = 256;

/// Counts requests, or what else one may have too much of, by user. Clones share the counts.
#[derive(Debug, Clone)]
pub struct InFlight {
    counts: Arc<Mutex<HashMap<String, usize>>>,
    most: usize,
}

/// What is counted, until it is dropped.
#[derive(Debug)]
pub struct Ticket {
    of: InFlight,
    user: String,
    count: usize,
}

impl InFlight {
    /// Of requests.
    pub fn requests() -> Self {
        Self::of(REQUESTS)
    }

    /// Of watches.
    pub fn watches() -> Self {
        Self::of(WATCHES)
    }

    /// Of connections.
    pub fn connections() -> Self {
        Self::of(CONNECTIONS)
    }

    /// Of connections of agents.
    pub fn connections_of_agents() -> Self {
        Self::of(OF_AGENT)
    }

    /// Of requests of strangers from one address.
    pub fn strange_requests() -> Self {
        Self::of(STRANGE_REQUESTS)
    }

    /// Of requests of strangers on one connection.
    pub fn of_connection() -> Self {
        Self::of(ON_CONNECTION)
    }

    /// Of MiB in answers.
    pub fn answers() -> Self {
        Self::of(ANSWERS)
    }

    /// Of anything, so many at most.
    pub fn of(most: usize) -> Self {
        Self {
            counts: Arc::default(),
            most,
        }
    }

    /// Lets one more in, unless the user has too many.
    pub fn enter(&self, user: &str) -> Option<Ticket> {
        self.take(user, 1)
    }

    /// Lets so much more in, unless the user has too much then; what comes alone is let in however much.
    pub fn take(&self, user: &str, count: usize) -> Option<Ticket> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let has = counts.get(user).copied().unwrap_or_default();
        if has > 0 && has.saturating_add(count) > self.most {
            return None;
        }
        Some(self.counted(&mut counts, user, count))
    }

    /// Counts so much more of what is there already, however much the user has.
    pub fn add(&self, user: &str, count: usize) -> Ticket {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        self.counted(&mut counts, user, count)
    }

    fn counted(&self, counts: &mut HashMap<String, usize>, user: &str, count: usize) -> Ticket {
        *counts.entry(user.to_owned()).or_insert(0) += count;
        Ticket {
            of: self.clone(),
            user: user.to_owned(),
            count,
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut counts = self
            .of
            .counts
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.user) {
            *count -= self.count;
            if *count == 0 {
                counts.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_has_a_limit_of_their_own() {
        let in_flight = InFlight::requests();
        let mut tickets: Vec<_> = (0..REQUESTS).map(|_| in_flight.enter("a")).collect();
        assert!(tickets.iter().all(Option::is_some));
        assert!(in_flight.enter("a").is_none());
        assert!(in_flight.enter("b").is_some());
        tickets.pop();
        assert!(in_flight.enter("a").is_some());
        drop(tickets);
        assert!(in_flight.counts.lock().expect("unpoisoned").is_empty());
    }

    #[test]
    fn what_is_too_much_may_be_alone() {
        let answers = InFlight::answers();
        let large = answers.take("a", ANSWERS + 1);
        assert!(large.is_some() && answers.take("a", 1).is_none());
        drop(large);
        let all = answers.take("a", ANSWERS - 1);
        let last = answers.take("a", 1);
        assert!(all.is_some() && last.is_some() && answers.take("a", 1).is_none());
        drop((all, last));
        // What is there is counted, and nothing comes beside it before it is gone.
        let more = [answers.add("a", ANSWERS), answers.add("a", 1)];
        assert!(answers.take("a", 1).is_none() && answers.take("b", 1).is_some());
        drop(more);
        assert!(answers.counts.lock().expect("unpoisoned").is_empty());
    }
}
