//! How many requests of one user are under way, and how many watches open: one that sends without end
//! must not starve the others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Requests of one user at once; a watch counts until it has begun.
const REQUESTS: usize = 200;
/// Watches of one user at once. An agent has two or three, a large controller some dozens.
const WATCHES: usize = 1_000;

/// Counts requests, or watches, by user. Clones share the counts.
#[derive(Debug, Clone)]
pub struct InFlight {
    counts: Arc<Mutex<HashMap<String, usize>>>,
    most: usize,
}

/// One request that is under way, or one watch; it counts until it is dropped.
#[derive(Debug)]
pub struct Ticket {
    of: InFlight,
    user: String,
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

    fn of(most: usize) -> Self {
        Self {
            counts: Arc::default(),
            most,
        }
    }

    /// Lets one more in, unless the user has too many.
    pub fn enter(&self, user: &str) -> Option<Ticket> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(user.to_owned()).or_insert(0);
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(Ticket {
            of: self.clone(),
            user: user.to_owned(),
        })
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
            *count -= 1;
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
}
