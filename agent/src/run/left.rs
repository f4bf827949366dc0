//! Whether an agent that is unregistered has left, seen by another one: a replica that does not lead, or a later life.

use super::SETTLING;
use crate::credentials::{self, Store};
use crate::error::is_refusal;
use common::client::classify;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How often it is looked.
const LOOK: Duration = Duration::from_secs(2);

/// Ends once nothing of a registration is left that was told to leave: another replica, or a life before this one, has
/// taken the agent out of the member. Where it could be read first, what is refused for as long as a member needs that
/// has just started is not there either: the roles went. `was_read` says that it was read a moment ago.
pub(super) async fn has_left(store: &Store, mut was_read: bool) {
    let mut refused_since = None;
    loop {
        match look(store).await {
            Seen::Gone => return,
            Seen::Refused if was_read => {
                let since = *refused_since.get_or_insert_with(Instant::now);
                if since.elapsed() >= SETTLING {
                    return;
                }
            }
            Seen::Refused => {}
            Seen::There => {
                was_read = true;
                refused_since = None;
            }
            Seen::Unknown => refused_since = None,
        }
        sleep(LOOK).await;
    }
}

/// Whether nothing of it is left now.
pub(super) async fn is_left(store: &Store) -> bool {
    look(store).await == Seen::Gone
}

/// What is seen of a stored registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// It is there.
    There,
    /// It is not there.
    Gone,
    /// The member does not let us read it.
    Refused,
    /// It could not be read.
    Unknown,
}

async fn look(store: &Store) -> Seen {
    match store.load().await {
        Ok((stored, _)) if stored.current.is_none() && stored.pending.is_none() => Seen::Gone,
        Ok(_) => Seen::There,
        Err(credentials::Error::Secret { source, .. }) if is_refusal(&classify(&source)) => {
            Seen::Refused
        }
        Err(_) => Seen::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credentials::Stored;
    use crate::credentials::testing::registration;
    use crate::testing::{json as answer, service};
    use k8s_openapi::ByteString;
    use serde_json::json;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn reason(code: u16) -> &'static str {
        match code {
            403 => "Forbidden",
            404 => "NotFound",
            _ => "InternalError",
        }
    }

    /// A store whose registration is read like this, look by look.
    fn store(reads: fn(usize) -> u16) -> Store {
        let stored = Stored::new(Some(registration("m1", "a")), None);
        let document = serde_json::to_vec(&stored).expect("JSON");
        let looks = Arc::new(AtomicUsize::new(0));
        let member = service(move |_| {
            let code = reads(looks.fetch_add(1, Ordering::Relaxed));
            let document = document.clone();
            async move {
                match code {
                    200 => {
                        let secret = json!({"metadata": {"name": "s"}, "data":
                            {"credentials.json": ByteString(document)}});
                        answer(200, &secret)
                    }
                    _ => answer(
                        code,
                        &json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                        "code": code, "reason": reason(code), "message": "x"}),
                    ),
                }
            }
        });
        Store::in_member(member, "towline-system")
    }

    /// How long it takes to see that it has left.
    async fn seen_after(was_read: bool, reads: fn(usize) -> u16) -> Option<u64> {
        let store = store(reads);
        let began = Instant::now();
        let within = Duration::from_secs(300);
        let seen = tokio::time::timeout(within, has_left(&store, was_read)).await;
        seen.ok().map(|()| began.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn who_was_told_to_leave_sees_that_it_was_done() {
        for was_read in [true, false] {
            assert_eq!(seen_after(was_read, |_| 404).await, Some(0));
            let done = seen_after(was_read, |look| [200, 200, 404][look.min(2)]).await;
            assert_eq!(done, Some(4));
            assert_eq!(seen_after(was_read, |_| 200).await, None);
            // A member that cannot answer, or does not know its roles yet, proves nothing.
            assert_eq!(seen_after(was_read, |_| 500).await, None);
            let known = |look| if look < 10 { 403 } else { 200 };
            assert_eq!(seen_after(was_read, known).await, None);
            let went = |look| if look < 1 { 200 } else { 403 };
            assert_eq!(seen_after(was_read, went).await, Some(32));
        }
        assert_eq!(seen_after(true, |_| 403).await, Some(30));
        // A token that was no good before lets nobody leave.
        assert_eq!(seen_after(false, |_| 403).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn who_failed_asks_whether_it_was_done() {
        for (code, left) in [(404, true), (200, false), (403, false), (500, false)] {
            let reads: fn(usize) -> u16 = match code {
                404 => |_| 404,
                200 => |_| 200,
                403 => |_| 403,
                _ => |_| 500,
            };
            assert_eq!(is_left(&store(reads)).await, left, "{code}");
        }
    }
}
