//! How many requests of one user are under way: one that sends without end must not starve the others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Requests of one user at once; watches do not count.
const PER_USER: usize = 200;

/// Counts requests by user. Clones share the counts.
#[derive(Debug, Clone, Default)]
pub struct InFlight(Arc<Mutex<HashMap<String, usize>>>);

/// One request that is under way; it counts until it is dropped.
#[derive(Debug)]
pub struct Ticket {
    of: InFlight,
    user: String,
}

impl InFlight {
    /// Lets one more request in, unless the user has too many.
    pub fn enter(&self, user: &str) -> Option<Ticket> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(user.to_owned()).or_insert(0);
        if *count >= PER_USER {
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
        let mut counts = self.of.0.lock().unwrap_or_else(PoisonError::into_inner);
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
        let in_flight = InFlight::default();
        let mut tickets: Vec<_> = (0..PER_USER).map(|_| in_flight.enter("a")).collect();
        assert!(tickets.iter().all(Option::is_some));
        assert!(in_flight.enter("a").is_none());
        assert!(in_flight.enter("b").is_some());
        tickets.pop();
        assert!(in_flight.enter("a").is_some());
        drop(tickets);
        assert!(in_flight.0.lock().expect("unpoisoned").is_empty());
    }
}
