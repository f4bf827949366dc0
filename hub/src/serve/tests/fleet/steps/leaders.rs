//! The times in which an agent's replicas lead do not overlap.

use crate::serve::tests::fleet::books::{Books, Key, text};
use common::names::AGENT_NAME;
use serde_json::Value;
use std::time::Duration;

/// How long one that fell silent is waited for, less what a clock of milliseconds does not tell.
const PATIENCE: Duration = Duration::from_millis(14_990);

/// A Lease of a member is told: it goes to somebody else when it is given up, or was not renewed for its time.
pub(super) fn step(
    books: &mut Books,
    member: &str,
    key: &Key,
    old: Option<&Value>,
    new: Option<&Value>,
) {
    if key.name != AGENT_NAME {
        return;
    }
    let now = books.now();
    let before = books.led.insert(member.to_owned(), now);
    let holder =
        |lease: Option<&Value>| lease.map(|it| text(it, "/spec/holderIdentity").to_owned());
    let (Some(led), Some(leads), Some(before)) = (holder(old), holder(new), before) else {
        return;
    };
    let silent = now - before;
    if !led.is_empty() && !leads.is_empty() && led != leads && silent < PATIENCE {
        let silent = silent.as_secs_f64();
        books.problem(format!(
            "leaders: {leads} leads in {member}, and {led} had renewed {silent:.3} s before"
        ));
    }
}
