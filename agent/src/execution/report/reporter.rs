//! Has the hub told what became of Works: what the work on a Work finds at once, what its objects do later.

use super::super::Scope;
use super::super::conditions::Verdict;
use super::super::contact::Contact;
use super::super::events::{Events, news};
use super::super::state::Shared;
use super::super::writes::WorkWriter;
use common::controller::{Failure, Reconcile, Requeue};
use common::errors::chain;
use common::queue::Queue;
use common::rest;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// How long the work on a Work waits for the hub to take a report, before it leaves that to others.
const WITHIN: Duration = Duration::from_secs(3);

/// The statuses of Works on the hub. Its queue holds the Works whose objects changed.
pub struct Reporter {
    pub(crate) scope: Scope,
    pub(crate) state: Shared,
    pub(crate) works: Arc<WorkWriter>,
    pub(crate) contact: Arc<Contact>,
    pub(crate) events: Arc<Events>,
    pub(crate) queue: Queue<Arc<str>>,
}

/// A status that the hub did not take.
#[derive(Debug, thiserror::Error)]
#[error("failed to report")]
pub struct Error(#[source] rest::Error);

impl Failure for Error {
    fn reason(&self) -> &'static str {
        if self.0.is_outage() {
            "HubUnreachable"
        } else {
            "ReportRefused"
        }
    }
}

impl Reconcile for Reporter {
    const NAME: &'static str = "report";
    type Key = Arc<str>;
    type Error = Error;

    async fn reconcile(&self, work: &Arc<str>) -> Result<Requeue, Error> {
        self.contact.rested().await;
        self.works.write_status(work).await.map_err(Error)?;
        Ok(Requeue::Never)
    }
}

impl Reporter {
    /// Sets what the conditions should say, and tells by Events what is new.
    pub fn set_verdicts(&self, name: &str, verdicts: Vec<Verdict>) {
        let mut state = self.state.lock();
        let Some(record) = state.works.get_mut(name) else {
            return;
        };
        let uid = record.uid.clone();
        let news = news(&self.scope, name, &record.conditions, &verdicts);
        record.verdicts = verdicts;
        drop(state);
        for (kind, message) in news {
            self.events.add(name, &uid, kind, message);
        }
    }

    /// Reports now; later when the hub does not take it.
    pub async fn report(&self, name: &Arc<str>) {
        if self.contact.rests_until().is_some() {
            self.report_soon(name, true);
            return;
        }
        match timeout(WITHIN, self.works.write_status(name)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(work = %name, error = %chain(&error), "failed to report");
                self.report_soon(name, true);
            }
            Err(_) => {
                // Whether it was written shows when it is tried again.
                self.contact.timed_out();
                self.report_soon(name, true);
            }
        }
    }

    /// Has the hub told what changed, once that was gathered; soon when a health has changed.
    pub fn report_soon(&self, work: &Arc<str>, urgent: bool) {
        let pace = self.state.lock().works.get(work).map(|record| record.pace);
        let delay = pace
            .unwrap_or_default()
            .delay(tokio::time::Instant::now(), urgent);
        self.queue.add_after(work.clone(), delay);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execution::conditions::dispatching;
    use crate::execution::testing::{Handles, lines, refusal, scripted, wire};
    use futures::poll;
    use serde_json::json;
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const STATUS: &str =
        "PATCH /apis/work.karmada.io/v1alpha1/namespaces/karmada-es-m1/works/w/status";

    #[tokio::test(start_paused = true)]
    async fn a_report_waits_for_the_hub_and_is_written_once() {
        let after = json!({"metadata": {"name": "w", "uid": "1", "resourceVersion": "6"}});
        let (hub, asked) = scripted(move |_| Some((200, after.clone())));
        let parts = Handles::new(hub, scripted(|_| None).0).await;
        let work = parts.knows(&wire("w", "1", &[]));
        let verdict = dispatching(false);
        parts.reporter.set_verdicts(&work, vec![verdict]);
        parts.contact.lost();
        let mut reported = pin!(parts.reporter.reconcile(&work));
        assert!(poll!(&mut reported).is_pending());
        assert_eq!(lines(&asked), [""; 0]);
        parts.contact.answered();
        reported.await.expect("written");
        parts
            .reporter
            .reconcile(&work)
            .await
            .expect("nothing to do");
        assert_eq!(lines(&asked), [STATUS]);
        assert_eq!(*parts.state.lock().works["w"].resource_version, *"6");
    }

    #[tokio::test(start_paused = true)]
    async fn a_work_that_changed_meanwhile_is_read_and_told_again() {
        let tries = Arc::new(AtomicUsize::new(0));
        let (hub, asked) = scripted(move |line| {
            let now = json!({"metadata": {"name": "w", "uid": "1", "resourceVersion": "8"}});
            if line.starts_with("PATCH") && tries.fetch_add(1, Ordering::Relaxed) == 0 {
                return Some(refusal(409, "Conflict"));
            }
            Some((200, now))
        });
        let parts = Handles::new(hub, scripted(|_| None).0).await;
        let work = parts.knows(&wire("w", "1", &[]));
        parts.reporter.set_verdicts(&work, vec![dispatching(false)]);
        parts.reporter.report(&work).await;
        let asked = asked.lock().expect("sound");
        assert_eq!(asked.len(), 3);
        assert_eq!(asked[0].1["metadata"]["resourceVersion"], "5");
        assert_eq!(asked[2].1["metadata"]["resourceVersion"], "8");
        assert!(parts.reporter.queue.is_idle());
    }

    #[tokio::test(start_paused = true)]
    async fn a_work_that_never_stands_still_is_told_of_later() {
        let (hub, _) = scripted(|line| match line.starts_with("PATCH") {
            true => Some(refusal(409, "Conflict")),
            false => Some((
                200,
                json!({"metadata": {"name": "w", "uid": "1", "resourceVersion": "8"}}),
            )),
        });
        let parts = Handles::new(hub, scripted(|_| None).0).await;
        let work = parts.knows(&wire("w", "1", &[]));
        parts.reporter.set_verdicts(&work, vec![dispatching(false)]);
        parts.reporter.report(&work).await;
        assert!(!parts.reporter.queue.is_idle());
        let error = parts.reporter.reconcile(&work).await.expect_err("refused");
        assert_eq!(error.reason(), "ReportRefused");
    }

    #[tokio::test(start_paused = true)]
    async fn a_hub_that_is_away_is_told_later_and_left_alone() {
        let (hub, _) = scripted(|_| Some(refusal(503, "ServiceUnavailable")));
        let parts = Handles::new(hub, scripted(|_| None).0).await;
        let work = parts.knows(&wire("w", "1", &[]));
        parts.reporter.set_verdicts(&work, vec![dispatching(false)]);
        parts.reporter.report(&work).await;
        assert!(parts.contact.rests_until().is_some());
        assert!(!parts.reporter.queue.is_idle());
        parts.contact.answered();
        let error = parts.reporter.reconcile(&work).await.expect_err("away");
        assert_eq!(error.reason(), "HubUnreachable");
    }
}
