//! Signs of life between two renewals of the Lease, where the agent is told to give them: patches of the Lease that
//! change nothing, so that the hub stores nothing.
//!
//! They go over the heartbeat's own connection. One that is not answered soon is sent beside it over the connection
//! that everything else uses, which is there anyway: a connection that died costs no more than that.

use super::{Connection, Error, leases};
use crate::context::AgentContext;
use common::labels::AGENT_FIELD_MANAGER;
use common::liveness::{HEADER, value};
use kube::Client;
use kube::api::{Patch, PatchParams, Request};
use serde::de::IgnoredAny;
use serde_json::json;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout};

/// The rhythm of signs. Pure.
#[derive(Debug, Clone, Copy)]
pub(super) struct Beat(pub(super) Duration);

impl Beat {
    /// After which time without an answer a sign is sent over the other connection, too.
    fn beside(self) -> Duration {
        self.0 / 4
    }

    /// How long a sign may take on both: two more fit in before the hub misses the agent.
    fn deadline(self) -> Duration {
        self.0 * 3 / 4
    }

    /// The wait from the start of a sign until the next, after so many failures; soon at first, then at the usual
    /// pace, for whoever refuses does so at once, and everybody.
    fn wait(self, failures: u32) -> Duration {
        match failures {
            0 => self.0,
            _ => (self.0 / 8).saturating_mul(1 << (failures - 1).min(3)),
        }
    }
}

/// Gives signs for ever, if it is to.
pub(super) async fn show(context: &AgentContext, connection: &Connection) {
    let Some(beat) = context.config.lease.liveness.map(Beat) else {
        return std::future::pending().await;
    };
    let mut next = Instant::now() + beat.wait(0);
    let mut failures = 0;
    loop {
        sleep_until(next).await;
        let began = Instant::now();
        let own = connection.held();
        let given = either(
            beat.beside(),
            async {
                match own {
                    Some(own) => give(&own, context, beat.0).await.is_ok(),
                    None => false,
                }
            },
            async { give(&context.hub.client(), context, beat.0).await.is_ok() },
        );
        let is_given = timeout(beat.deadline(), given).await.unwrap_or(false);
        failures = if is_given { 0 } else { failures + 1 };
        next = (began + beat.wait(failures)).max(Instant::now());
    }
}

/// Whether one of two succeeds; the second begins when the first has failed, or takes longer than `beside`.
async fn either(
    beside: Duration,
    first: impl Future<Output = bool>,
    second: impl Future<Output = bool>,
) -> bool {
    let mut first = pin!(first);
    if let Ok(done) = timeout(beside, &mut first).await {
        return done || second.await;
    }
    let mut second = pin!(second);
    tokio::select! {
        biased;
        done = &mut first => done || second.await,
        done = &mut second => done || first.await,
    }
}

/// Says that no sign follows, because this process ends in order: its Lease alone counts from now on.
pub(super) async fn farewell(context: &AgentContext) {
    let Some(beat) = context.config.lease.liveness.map(Beat) else {
        return;
    };
    let client = context.hub.client();
    let said = give(&client, context, Duration::ZERO);
    if !matches!(timeout(beat.deadline(), said).await, Ok(Ok(()))) {
        tracing::warn!("the hub was not told that no sign of life follows; it may miss this agent");
    }
}

/// Patches the Lease without changing anything.
async fn give(client: &Client, context: &AgentContext, next: Duration) -> Result<(), Error> {
    let cluster = context.cluster.as_str();
    let parameters = PatchParams {
        field_manager: Some(AGENT_FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let mut request = Request::new(leases())
        .patch(cluster, &parameters, &Patch::Merge(&json!({})))
        .map_err(|e| Error::Build(Box::new(e)))?;
    request.headers_mut().insert(HEADER, value(next));
    let answered: Result<IgnoredAny, _> = client.request(request).await;
    answered.map(|_| ()).map_err(|source| Error::Renew {
        cluster: cluster.to_owned(),
        source: Box::new(source),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::sleep;

    #[tokio::test(start_paused = true)]
    async fn the_second_begins_when_the_first_fails_or_is_slow() {
        let after = |millis: u64, done: bool| async move {
            sleep(Duration::from_millis(millis)).await;
            done
        };
        let never = || async {
            std::future::pending::<()>().await;
            false
        };
        let beside = Duration::from_millis(250);
        let table = [
            // Of the first and the second what becomes of them and how long they take; the end and its time.
            (true, 100, true, 100, true, 100),
            (false, 100, true, 100, true, 200),
            (false, 100, false, 100, false, 200),
            (true, 400, true, 500, true, 400),
            (true, 400, true, 100, true, 350),
            (false, 400, true, 500, true, 750),
        ];
        for (first, at, second, takes, want, ends) in table {
            let began = Instant::now();
            let done = either(beside, after(at, first), after(takes, second)).await;
            assert_eq!(done, want, "{at} {takes}");
            assert_eq!(began.elapsed(), Duration::from_millis(ends), "{at} {takes}");
        }
        let began = Instant::now();
        assert!(either(beside, never(), after(100, true)).await);
        assert_eq!(began.elapsed(), Duration::from_millis(350));
    }

    /// However many signs are lost, three are tried within the time in which the hub waits for one.
    #[test]
    fn signs_that_are_lost_are_made_up() {
        let beat = Beat(Duration::from_secs(1));
        assert!(beat.wait(1) < beat.deadline() && beat.wait(2) < beat.deadline());
        let last_try = beat.wait(0) + beat.deadline() * 2;
        assert!(last_try + beat.beside() < Duration::from_millis(2_800));
        let waits: Vec<_> = (1..7).map(|it| beat.wait(it).as_millis()).collect();
        assert_eq!(waits, [125, 250, 500, 1_000, 1_000, 1_000]);
    }
}
