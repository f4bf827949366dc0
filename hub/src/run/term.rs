//! One term of leadership: every controller, from what it reads until it ends.

use super::parts::Parts;
use super::{Error, Hub};
use crate::config::Propagating;
use crate::controller::binding::sync::Sync;
use crate::controller::binding_status::Answers;
use crate::controller::bindings::Bindings;
use crate::controller::cluster::{self, Clusters};
use crate::controller::detector::policies::Policies;
use crate::controller::detector::{Detector, Holdings, Unsettled};
use crate::controller::events::Events;
use crate::controller::eviction::Evictions;
use crate::controller::fleet::Fleet;
use crate::controller::monitor::Monitor;
use crate::controller::namespace::{Namespaces, Spaces};
use crate::controller::notices::Notices;
use crate::controller::quarantine::Quarantine;
use crate::controller::rebalancer::Rebalancers;
use crate::controller::registration::Registrar;
use crate::controller::rights::Rights;
use crate::controller::scheduler::{Placing, Scheduler};
use crate::controller::taint_policy::TaintPolicies;
use crate::epoch::Rounds;
use crate::install::repair::{Known, Repair};
use crate::world::World;
use common::admin::Check;
use common::controller::{Controller, Reconcile};
use common::env::Env;
use common::signal;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Requests of agents judged at once.
const CONCURRENT_REGISTRATIONS: usize = 8;
/// Clusters whose permissions are compared at once.
const CONCURRENT_RIGHTS: usize = 2;
/// Quarantines settled at once; those that take rights wait together for watches to end.
const CONCURRENT_QUARANTINES: usize = 16;

/// Of bindings whose Works are written, and of those that leave clusters, there are so many times as many at once as
/// of others.
const WORKERS_OF_WORKS: usize = 4;

impl Hub {
    /// Everything a leader does, until `stop`; before it leads, it only reads.
    pub(super) async fn term(
        &self,
        identity: &str,
        mut leading: signal::Receiver<bool>,
        stop: CancellationToken,
        known: Known,
    ) -> Result<(), Error> {
        let Env { clock, chance, .. } = self.env.clone();
        let world = World::new(
            &self.client,
            &chance,
            self.config.propagation.shipped.clone(),
        );
        let mut parts = Parts::new(stop.clone(), Some(leading.clone()));
        let client = || self.client.clone();
        let (repair, in_force) = Repair::new(client(), known, chance.clone());
        parts.drop_at_end("repair", repair.run());
        let proof = show(in_force.clone(), self.policies.clone());
        parts.drop_at_end("proof of the policies", proof);
        let registrar =
            Registrar::new(client(), clock.clone(), in_force, world.clusters_of.clone());
        // Who gives or takes the rights of a cluster does so one at a time.
        let claims = registrar.claims();
        let registrar = registrar.watching(&world);
        self.start(&mut parts, registrar.workers(CONCURRENT_REGISTRATIONS));
        let options = cluster::decide::Options {
            deletion_timeout: self.config.deletion_timeout,
            failover_after: self.config.failover.after,
        };
        let events = Events::new(client(), clock.clone(), identity);
        // Who ends watches at the same time does so together.
        let watches = Arc::new(Rounds::default());
        let clusters = Clusters::watching(
            client(),
            clock.clone(),
            events,
            Arc::clone(&watches),
            options,
            &world,
        );
        self.start(
            &mut parts,
            clusters.workers(self.config.concurrent_clusters),
        );
        let rights = Rights::new(client(), claims.clone()).watching(&world);
        self.start(&mut parts, rights.workers(CONCURRENT_RIGHTS));
        self.propagate(&mut parts, &world, identity);
        let budget = self.config.write_budget;
        let quarantine = Quarantine::new(client(), clock, budget, (claims, watches));
        let quarantine = quarantine.watching(&world);
        self.start(&mut parts, quarantine.workers(CONCURRENT_QUARANTINES));
        let monitor = Monitor::new(
            self.monitor.clone(),
            self.env.clone(),
            self.config.grace,
            self.metrics.monitor.clone(),
            &world,
        );
        let monitor = monitor.hearing(self.signs.as_ref());
        parts.begin("monitor", monitor.run(leading.clone(), stop.clone()));
        if let Some(begins) = self.begins.clone() {
            let all = world.clone();
            parts.drop_at_end("word of the start", async move {
                all.synced().await;
                begins.send_replace(false);
                std::future::pending::<()>().await;
            });
        }
        // Last: every listener is there.
        let metrics = self.metrics.controllers.clone();
        let contacts = Fleet::hear(&world);
        let (reading, stopped) = (world.clone().run(metrics, chance), stop.clone());
        parts.begin("world", async move {
            stopped.run_until_cancelled_owned(reading).await;
        });
        let leads = *leading.borrow();
        if !leads {
            tracing::info!("the leader is silent: reading everything, to take over soon");
        }
        let led = stop.run_until_cancelled(leading.wait_for(|leads| *leads));
        if let Some(Ok(_)) = led.await {
            tracing::info!("leading");
            self.metrics.fleet.look_at(&world, contacts);
            self.metrics.sizes.look_at(&world);
        }
        let ended = parts.end().await;
        self.metrics.clear();
        ended
    }

    /// From policies to Works, and the answers back.
    fn propagate(&self, parts: &mut Parts, world: &World, identity: &str) {
        let Env { clock, chance, .. } = &self.env;
        let client = || self.client.clone();
        let events = Events::new(client(), clock.clone(), identity);
        let notices = Notices::default();
        let bindings = || Bindings::new(client(), world.clone(), notices.clone());
        let Propagating {
            skips,
            namespaces,
            workers,
            shipped: _,
        } = self.config.propagation.clone();
        let (holdings, unsettled) = (Holdings::default(), Unsettled::default());
        let placing = Placing::watching(world);
        let detector = Detector::watching(
            client(),
            (bindings(), placing.clone()),
            skips.clone(),
            (holdings.clone(), unsettled.clone()),
            chance,
            world,
        );
        let detected = detector.queue();
        self.start(parts, detector.workers(workers));
        let policies = Policies::watching(client(), holdings, skips.clone(), chance, world);
        self.start(parts, policies);
        let scheduler = Scheduler::watching(bindings(), placing.clone(), clock.clone(), world);
        let scheduled = scheduler.queue();
        self.start(parts, scheduler.workers(workers));
        let spaces = Spaces::watching(skips, namespaces, world);
        let brought = Namespaces::watching(client(), bindings(), spaces.clone(), world);
        self.start(parts, brought.workers(workers));
        let works = Sync::watching(
            client(),
            bindings(),
            (unsettled, spaces),
            clock.clone(),
            world,
        );
        let synced = works.queue();
        // What bounds them is how many Works are written at once.
        self.start(parts, works.workers(workers * WORKERS_OF_WORKS));
        let answers = Answers::watching(
            client(),
            (bindings(), placing.clone()),
            clock.clone(),
            world,
        );
        let answered = answers.queue();
        self.start(parts, answers.workers(workers));
        let evictions = Evictions::watching(
            client(),
            (bindings(), placing),
            clock.clone(),
            self.config.failover.eviction,
            self.metrics.eviction.clone(),
            world,
        );
        let evicted = evictions.queue();
        // What bounds them is their turns.
        self.start(parts, evictions.workers(workers * WORKERS_OF_WORKS));
        let failover = self.config.failover.after.is_some();
        let policies =
            TaintPolicies::watching(client(), bindings(), clock.clone(), failover, world);
        self.start(parts, policies.workers(workers));
        let rebalancers = Rebalancers::watching(client(), bindings(), clock.clone(), world);
        self.start(parts, rebalancers);
        let is_busy = move || {
            detected.is_busy()
                || scheduled.is_busy()
                || synced.is_busy()
                || answered.is_busy()
                || evicted.is_busy()
        };
        parts.drop_at_end("events", notices.tell(events, is_busy));
    }

    fn start<R: Reconcile>(&self, parts: &mut Parts, controller: Controller<R>) {
        let metrics = self.metrics.controllers.clone();
        let stop = parts.stop.clone();
        parts.spawn(
            R::NAME,
            controller.run(metrics, self.env.chance.clone(), stop),
        );
    }
}

/// Shows on /readyz whether anybody can be registered.
async fn show(mut in_force: signal::Receiver<bool>, check: Check) {
    loop {
        if *in_force.borrow_and_update() {
            check.ok();
        } else {
            check.fail("not proved to be in force; nobody is registered. See the log, or run `towline init`");
        }
        if in_force.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
