//! Whom the hub's API server asks while no replica leads: the one that was told to it may be gone, and the next one leads
//! only when its Lease has run out.

use super::announce::Announcement;
use super::replicas::Replicas;
use super::replicas::decide::stands_in;
use common::client::HostPort;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How often the replica that the API server asks is asked whether it is there.
const EVERY: Duration = Duration::from_secs(2);
/// After so many times without an answer it is not.
const MISSED: u32 = 2;
/// How often it is read which one that is.
const READ_EVERY: Duration = Duration::from_secs(30);

impl Announcement {
    /// Stands in for the replica that the API server is told to ask, whenever that one does not answer and this one is
    /// the first that does; never returns. Whoever leads tells it anew.
    pub(super) async fn stand_in(&mut self, replicas: &Replicas) {
        let mut complained = false;
        loop {
            let told = self.told().await;
            if !missed(replicas, told.as_ref()).await || self.told().await != told {
                continue;
            }
            let Ok(others) = replicas.staying().await else {
                continue;
            };
            let ids: Vec<&str> = others.iter().map(|peer| peer.id.as_str()).collect();
            if !stands_in(replicas.id(), &ids) {
                continue;
            }
            match self.tell_instead(replicas, &others).await {
                Ok(()) => {
                    complained = false;
                    tracing::warn!(
                        "the replica that the hub's API server asked does not answer: it asks this one"
                    );
                }
                Err(error) if !complained => {
                    complained = true;
                    tracing::warn!(
                        error,
                        "failed to stand in for a replica that does not answer"
                    );
                }
                Err(_) => {}
            }
        }
    }
}

/// Whether another replica that is told did not answer, before it is to be read again who that is.
async fn missed(replicas: &Replicas, told: Option<&HostPort>) -> bool {
    let until = Instant::now() + READ_EVERY;
    let mut missed = 0;
    while missed < MISSED {
        if Instant::now() >= until {
            return false;
        }
        sleep(EVERY).await;
        let mut living = replicas.living().into_iter();
        let peer = living.find(|peer| told == Some(&peer.said().service));
        missed = match peer {
            Some(peer) if !replicas.is_there(&peer).await => missed + 1,
            _ => 0,
        };
    }
    true
}
