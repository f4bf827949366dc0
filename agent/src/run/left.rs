//! Whether an agent that was told to leave has left, seen by one that does not lead.

use super::SETTLING;
use crate::credentials::{self, Store};
use crate::error::is_refusal;
use common::client::classify;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How often it is looked.
const LOOK: Duration = Duration::from_secs(2);

/// Ends once nothing of a registration is left that was told to leave: another replica, or a life before this one, has
/// taken the agent out of the member. What is refused for as long as a member needs that has just started is not there
/// either: the roles went.
pub(super) async fn has_left(store: &Store) {
    let mut refused_since = None;
    loop {
        sleep(LOOK).await;
        match store.load().await {
            Ok((stored, _)) if stored.current.is_none() => return,
            Err(credentials::Error::Secret { source, .. }) if is_refusal(&classify(&source)) => {
                let since = *refused_since.get_or_insert_with(Instant::now);
                if since.elapsed() >= SETTLING {
                    return;
                }
            }
            _ => refused_since = None,
        }
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

    /// How long it takes to see that it has left, where the stored registration is read like this, look by look.
    async fn seen_after(reads: fn(usize) -> u16) -> Option<Duration> {
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
        let store = Store::in_member(member, "towline-system");
        let began = Instant::now();
        let within = tokio::time::timeout(Duration::from_secs(300), has_left(&store)).await;
        within.ok().map(|()| began.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn who_was_told_to_leave_sees_that_it_was_done() {
        let seconds = Duration::from_secs;
        assert_eq!(seen_after(|_| 404).await, Some(seconds(2)));
        assert_eq!(
            seen_after(|look| [200, 200, 404][look.min(2)]).await,
            Some(seconds(6))
        );
        assert_eq!(seen_after(|_| 200).await, None);
        // A member that cannot answer, or does not know its roles yet, proves nothing.
        assert_eq!(seen_after(|_| 500).await, None);
        assert_eq!(
            seen_after(|look| if look < 10 { 403 } else { 200 }).await,
            None
        );
        assert_eq!(seen_after(|_| 403).await, Some(seconds(32)));
    }
}
