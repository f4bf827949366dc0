//! One round: ask the member, read the Cluster, decide, and write what changed.

use super::collect::Collected;
use super::decide::{self, Observed, Sums};
use super::enablements::{Discovery, Enablements};
use super::hub::{self, Answer, Error};
use super::made;
use super::metrics::Metrics;
use super::patch::status_patch;
use super::probe::{self, Health};
use super::rival::Rival;
use super::threshold::{Current, Threshold};
use crate::context::AgentContext;
use common::api::cluster::{ALLOWED_NAMESPACES_SHOWN, AgentInfo, ClusterStatus, READY};
use common::conditions;
use common::errors::chain;
use common::leader::Standing;
use common::time::to_time;
use common::tunnel::Mode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How often the member is asked which APIs it serves; the answer is mostly "not modified".
const DISCOVERY_INTERVAL: Duration = Duration::from_secs(30);
/// Changes of the sums alone are written at most this often.
const SLOW_INTERVAL: Duration = Duration::from_secs(60);
/// Attempts when others write the conditions at the same time.
const ATTEMPTS: usize = 4;
const DISCOVERY_PART: &str = "discovery";

/// What is kept between rounds.
pub(super) struct Ticker {
    context: AgentContext,
    metrics: Metrics,
    started: Instant,
    /// Whether the hub had our Cluster once.
    found: bool,
    threshold: Threshold,
    rival: Rival,
    discovery: Discovery,
    enablements: Option<Enablements>,
    discovered: Option<Instant>,
    slow_written: Option<Instant>,
    collected: Option<Arc<Mutex<Collected>>>,
}

impl Ticker {
    /// A ticker that has seen nothing. `collected` is none when nodes and pods are not summed up.
    pub(super) fn new(
        context: AgentContext,
        started: Instant,
        collected: Option<Arc<Mutex<Collected>>>,
    ) -> Self {
        let config = &context.config.status;
        Self {
            threshold: Threshold::new(config.success_threshold, config.failure_threshold),
            metrics: Metrics::register(&context),
            context,
            started,
            found: false,
            rival: Rival::default(),
            discovery: Discovery::default(),
            enablements: None,
            discovered: None,
            slow_written: None,
            collected,
        }
    }

    /// One round.
    pub(super) async fn tick(&mut self) -> Result<(), Error> {
        let started = Instant::now();
        let client = self.context.hub.client();
        let cluster = self.context.cluster.clone();
        let (member, answer) = tokio::join!(self.ask_member(), hub::read(&client, &cluster));
        let (health, version) = member;
        let mut answer = match answer {
            Err(error) => self.answer_absence(&client, error).await?,
            found => found?,
        };
        self.found = true;
        let cut_off = !health.ready && self.cannot_renew();
        if self.rival.is_at_work(cut_off, current(&answer)) {
            self.context.superseded.cancel();
            return Ok(());
        }
        for attempt in 1..=ATTEMPTS {
            self.context.cluster_view.send_replace(Some(answer.view()));
            let wanted = self.decide(&answer, health, version.clone());
            let Some(body) = self.worth_writing(&answer, &wanted)? else {
                break;
            };
            match hub::patch(&client, &cluster, &body).await {
                Ok(now) => {
                    // Whatever could wait went along with this write.
                    self.slow_written = Some(Instant::now());
                    if current(&now) == Current::NotTrue {
                        self.rival.denied();
                    }
                    self.context.cluster_view.send_replace(Some(now.view()));
                    break;
                }
                Err(error) if error.is_conflict() && attempt < ATTEMPTS => {
                    answer = hub::read(&client, &cluster).await?;
                }
                Err(error) => return Err(error),
            }
        }
        self.threshold.settle();
        self.metrics
            .seconds
            .observe(started.elapsed().as_secs_f64());
        Ok(())
    }

    /// With hand-made credentials a Cluster that was never there is made, if the operator said so.
    async fn answer_absence(&self, hub: &kube::Client, error: Error) -> Result<Answer, Error> {
        let config = &self.context.config.hub;
        let Some(message) = error.is_missing() else {
            return Err(error);
        };
        let cluster = &self.context.cluster;
        // One that goes while we are at work was deleted, and stays so.
        if config.kubeconfig.is_none() || self.found {
            return Err(error);
        }
        if !config.register_cluster {
            return Err(Error::Missing {
                cluster: cluster.as_str().to_owned(),
                message: message.to_owned(),
            });
        }
        made::make(hub, cluster, &self.context.cluster_id).await?;
        hub::read(hub, cluster).await
    }

    async fn ask_member(&mut self) -> (Health, Option<String>) {
        let member = &self.context.member;
        let health = probe::health(member).await.health();
        self.metrics.ready(health.ready);
        if !health.ready {
            return (health, None);
        }
        let version = probe::version(member).await;
        let due = self
            .discovered
            .is_none_or(|at| at.elapsed() >= DISCOVERY_INTERVAL);
        if due {
            self.discovered = Some(Instant::now());
            match self.discovery.refresh(member).await {
                Ok(()) => self.context.errors.clear(DISCOVERY_PART),
                Err(error) => {
                    tracing::warn!(error = %chain(&error), "the member's APIs are not fully known");
                    self.context.errors.report(DISCOVERY_PART, &chain(&error));
                }
            }
            self.enablements = Some(self.discovery.enablements());
        }
        (health, version)
    }

    fn decide(
        &mut self,
        answer: &Answer,
        health: Health,
        version: Option<String>,
    ) -> ClusterStatus {
        let now = self.started.elapsed();
        let current = current(answer);
        let believed = self.threshold.observe(now, health.ready, current);
        let certified = self.context.certified.borrow().clone();
        let collected = self.collected.as_ref();
        let collected = collected.map(|c| c.lock().unwrap_or_else(PoisonError::into_inner));
        let sums = collected
            .as_ref()
            .map_or(Sums::Off, |collected| collected.sums(now));
        if let Sums::Known(ledger) = &sums {
            self.metrics.sums(&ledger.sums());
        }
        decide::wanted(
            self.context.clock.now(),
            &Observed {
                seen: &answer.status,
                health,
                believed,
                version,
                enablements: self.enablements.as_ref(),
                sums,
                models: answer.models(),
                agent: AgentInfo {
                    version: Some(env!("CARGO_PKG_VERSION").to_owned()),
                    certificate_expiration_time: certified.ends.map(to_time),
                    certificate_issuer: certified.issuer,
                    trusted_authorities: certified.authorities,
                    last_error: self.context.errors.text(),
                    orphans: self.context.orphans.borrow().clone(),
                    allowed_namespaces: self.allowed_namespaces(),
                    proxy: self.proxy(),
                },
                unregister: decide::acknowledged(
                    answer.unregister(),
                    *self.context.told_to_leave.borrow(),
                ),
            },
        )
    }

    /// Whether there is an election among replicas, and its Lease cannot be read.
    fn cannot_renew(&self) -> bool {
        let standing = self.context.standing.as_ref();
        standing.is_some_and(|standing| matches!(*standing.borrow(), Standing::Failing(_)))
    }

    fn proxy(&self) -> Option<String> {
        let mode = self.context.config.proxy;
        (mode != Mode::Off).then(|| mode.to_string())
    }

    fn allowed_namespaces(&self) -> Vec<String> {
        let mut allowed = self.context.config.member.reserved.allowed();
        allowed.truncate(ALLOWED_NAMESPACES_SHOWN);
        allowed
    }

    /// The body to send; none when nothing changed, or nothing that cannot wait.
    fn worth_writing(
        &self,
        answer: &Answer,
        wanted: &ClusterStatus,
    ) -> Result<Option<serde_json::Value>, Error> {
        let due = self
            .slow_written
            .is_none_or(|at| at.elapsed() >= SLOW_INTERVAL);
        if !due && !decide::urgent(&answer.status, wanted) {
            return Ok(None);
        }
        status_patch(&answer.status, wanted, answer.resource_version()).map_err(|source| {
            Error::Build {
                cluster: self.context.cluster.as_str().to_owned(),
                source: Box::new(source),
            }
        })
    }
}

/// What the hub has of the member's readiness.
fn current(answer: &Answer) -> Current {
    match conditions::get(&answer.status.conditions, READY) {
        None => Current::Absent,
        Some(ready) if ready.status == "True" => Current::True,
        Some(_) => Current::NotTrue,
    }
}
