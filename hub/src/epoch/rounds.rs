//! One closing of watches for all who ask for it at about the same time: a fleet that goes at once would have every agent
//! open its watches again for each cluster that goes.

use super::{AUTHORIZER_LAG, Error, close};
use kube::Client;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Mutex;
use tokio::time::sleep;

/// Closings, one after the other.
#[derive(Debug, Default)]
pub struct Rounds {
    /// How many have begun.
    begun: AtomicU64,
    /// The last that ended; held by whoever closes.
    last: Mutex<Ended>,
}

#[derive(Debug, Default)]
struct Ended {
    number: u64,
    failure: Option<Arc<Error>>,
}

impl Rounds {
    /// Ends the Work watches that are open, as [`super::bump_and_wait`] does, after the rights of some agent were taken.
    /// A round that has begun may have missed them; one that begins later ends them whoever began it.
    pub async fn close(&self, client: &Client) -> Result<(), Error> {
        sleep(AUTHORIZER_LAG).await;
        let before = self.begun.load(Ordering::SeqCst);
        let mut last = self.last.lock().await;
        if last.number <= before {
            let mut number = None;
            let outcome = close(client, || number = Some(self.begin())).await;
            *last = Ended {
                // One that failed before it began has failed for all who wait.
                number: number.unwrap_or_else(|| self.begin()),
                failure: outcome.err().map(Arc::new),
            };
        }
        match &last.failure {
            None => Ok(()),
            Some(failure) => Err(Error::Together(Arc::clone(failure))),
        }
    }

    fn begin(&self) -> u64 {
        self.begun.fetch_add(1, Ordering::SeqCst) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::testing::{Asked, answering};
    use common::lock::lock;
    use futures::future::join_all;
    use http::{Method, StatusCode};
    use std::time::Duration;
    use tokio::task::yield_now;
    use tokio::time::advance;
    use tokio_util::sync::CancellationToken;

    /// How often the epoch was raised, or tried to be.
    fn raised(asked: &Asked) -> usize {
        let asked = lock(asked);
        asked.iter().filter(|it| it.0 == Method::PATCH).count()
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_come_together_share_a_round() {
        let (client, asked) = answering(|_, _| StatusCode::OK);
        let rounds = Rounds::default();
        for round in 1..=2 {
            let all = join_all((0..5).map(|_| rounds.close(&client))).await;
            assert!(all.iter().all(Result::is_ok), "{all:?}");
            assert_eq!(raised(&asked), round);
        }
    }

    /// A round that has begun may have raised the epoch before the watches were opened that must end.
    #[tokio::test(start_paused = true)]
    async fn who_comes_after_a_round_has_begun_waits_for_the_next() {
        let begun = CancellationToken::new();
        let begins = begun.clone();
        let (client, asked) = answering(move |method, _| {
            if method == Method::PATCH {
                begins.cancel();
            }
            StatusCode::OK
        });
        let rounds = Rounds::default();
        let late = async || {
            begun.cancelled().await;
            rounds.close(&client).await
        };
        let (first, second, third) = tokio::join!(rounds.close(&client), late(), late());
        assert!(first.is_ok() && second.is_ok() && third.is_ok());
        assert_eq!(raised(&asked), 2);
    }

    /// Nor does a round help whose rights authorizers may still have believed in when it began.
    #[tokio::test(start_paused = true)]
    async fn authorizers_are_waited_for_before_a_round_counts() {
        let (client, asked) = answering(|_, _| StatusCode::OK);
        let rounds = Arc::new(Rounds::default());
        let ask = || {
            let (client, rounds) = (client.clone(), Arc::clone(&rounds));
            tokio::spawn(async move { rounds.close(&client).await })
        };
        let first = ask();
        yield_now().await;
        advance(AUTHORIZER_LAG - Duration::from_millis(1)).await;
        let second = ask();
        for ended in [first, second] {
            assert!(ended.await.expect("it ends").is_ok());
        }
        assert_eq!(raised(&asked), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_round_that_fails_fails_for_all_of_it_and_is_tried_again() {
        // Without the CRD, and where it cannot be written.
        for fails in [Method::GET, Method::PATCH] {
            let (client, asked) = answering(move |method, _| match *method == fails {
                true => StatusCode::INTERNAL_SERVER_ERROR,
                false => StatusCode::OK,
            });
            let rounds = Rounds::default();
            let mut reads = 0;
            for _ in 0..2 {
                let all = join_all((0..3).map(|_| rounds.close(&client))).await;
                assert!(all.iter().all(Result::is_err), "{all:?}");
                let now = lock(&asked).len();
                assert!(now > reads && now <= reads + 3, "{reads} {now}");
                reads = now;
            }
        }
    }
}
