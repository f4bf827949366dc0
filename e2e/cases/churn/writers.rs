//! Writers, and what they were answered. Each has objects of its own, so that it knows what is there
//! unless the server failed it, and then it looks.

use anyhow::{Context as _, Result};
use common::signal;
use kube::Client;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::check::Ack;
use super::kinds::{Kind, read};
use crate::env::{Answer, JSON, MERGE, ask};

/// Objects of one writer.
const OBJECTS: u32 = 6;
/// Every so many writes of what is there is a deletion.
const DELETES: u64 = 6;
/// A writer writes no faster, for other tests want the machine as well.
const PACE: Duration = Duration::from_millis(25);
/// An answer that does not come is one that was lost.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// What all writers of a kind were answered.
pub(crate) struct Acks {
    list: Mutex<Vec<Ack>>,
    count: signal::Sender<usize>,
}

impl Acks {
    pub(crate) fn new() -> Arc<Self> {
        let (list, count) = (Mutex::default(), signal::Sender::new(0));
        Arc::new(Self { list, count })
    }

    pub(crate) fn push(&self, ack: Ack) {
        self.list.lock().expect("whole").push(ack);
        self.count.send_modify(|count| *count += 1);
    }

    /// How many there are; changes with each.
    pub(crate) fn count(&self) -> signal::Receiver<usize> {
        self.count.subscribe()
    }

    pub(crate) fn take(&self) -> Vec<Ack> {
        std::mem::take(&mut *self.list.lock().expect("whole"))
    }
}

/// One writer.
pub(crate) struct Writer {
    pub(crate) client: Client,
    pub(crate) kind: Kind,
    pub(crate) index: u32,
    pub(crate) acks: Arc<Acks>,
}

impl Writer {
    /// Creates, changes and deletes until it is stopped; ends between two writes.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let mut known: BTreeMap<u32, Option<Value>> = BTreeMap::new();
        let mut doubted: BTreeMap<u32, u128> = BTreeMap::new();
        let mut pace = tokio::time::interval(PACE);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for turn in u64::from(self.index) * 1_000_000.. {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                _ = pace.tick() => {}
            }
            // A walk that meets the same objects again and again.
            let step = turn.wrapping_mul(6_364_136_223_846_793_005).rotate_left(17);
            let number = self.index * 100 + u32::try_from(step % u64::from(OBJECTS)).unwrap_or(0);
            let deletes = match known.get(&number) {
                Some(Some(object)) if step.is_multiple_of(DELETES) => read(object),
                _ => None,
            };
            match self.turn(number, known.remove(&number), turn, step).await {
                Ok(object) => {
                    // A kill may have swallowed the answer, and of a kind without a log the event too.
                    if let (Some(uid), None) = (doubted.remove(&number), &object) {
                        self.acks.push(Ack::Gone { uid });
                    }
                    known.insert(number, object);
                }
                // Nobody knows what became of the write: the next turn looks.
                Err(error) => {
                    eprintln!("{:?} {number}: {error:#}", self.kind);
                    doubted.extend(deletes.map(|(_, version)| (number, version.uid)));
                }
            }
        }
    }

    /// One request; returns what is there now.
    async fn turn(
        &self,
        number: u32,
        known: Option<Option<Value>>,
        turn: u64,
        step: u64,
    ) -> Result<Option<Value>> {
        let (kind, path) = (self.kind, self.kind.path(number));
        let Some(known) = known else {
            let answer = self.ask("GET", &path, None).await?;
            if answer.code == 404 {
                return Ok(None);
            }
            let object = answer.ok()?.json()?;
            let (number, version) = read(&object).context("an object without a version")?;
            self.acks.push(Ack::Read { number, version });
            return Ok(Some(object));
        };
        let Some(mut object) = known else {
            let object = kind.object(number, turn).to_string();
            let answer = self
                .ask("POST", &kind.collection(), Some((JSON, &object)))
                .await?;
            return self.wrote(&answer.ok()?, true);
        };
        if step.is_multiple_of(DELETES) {
            let (_, version) = read(&object).context("an object without a version")?;
            self.ask("DELETE", &path, None).await?.ok()?;
            self.acks.push(Ack::Gone { uid: version.uid });
            return Ok(None);
        }
        if step % DELETES == 1 {
            // The server reads, changes and writes by itself.
            let patch =
                serde_json::json!({"metadata": {"annotations": {"patched": turn.to_string()}}});
            let patch = patch.to_string();
            let answer = self.ask("PATCH", &path, Some((MERGE, &patch))).await?;
            return self.wrote(&answer.ok()?, true);
        }
        let renewal = kind.change(&mut object, turn);
        let answer = self
            .ask("PUT", &path, Some((JSON, &object.to_string())))
            .await?;
        self.wrote(&answer.ok()?, !renewal)
    }

    async fn ask(&self, method: &str, path: &str, content: Option<(&str, &str)>) -> Result<Answer> {
        let answer = ask(&self.client, method, path, content);
        tokio::time::timeout(ANSWER_WITHIN, answer)
            .await
            .with_context(|| format!("no answer to {method} {path}"))?
    }

    fn wrote(&self, answer: &Answer, firm: bool) -> Result<Option<Value>> {
        let object = answer.json()?;
        let (number, version) = read(&object).context("an answer without a version")?;
        self.acks.push(Ack::Wrote {
            number,
            version,
            firm,
        });
        Ok(Some(object))
    }
}
