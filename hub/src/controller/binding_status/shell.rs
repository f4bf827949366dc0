//! Writes down what members say: in the binding, and in the template.
//!
//! Answers are gathered: the first change is written at once, further ones of the same binding ever later while they
//! keep coming.

use super::{Observed, Work, collect, decide, expected, is_stirring};
use crate::controller::bindings::{Bindings, Error, about, about_template, about_template_of};
use crate::controller::scheduler::Placing;
use crate::propagation::Binding;
use crate::world::{self, Change, ObjectName, TemplateName, World};
use common::controller::{Controller, Reconcile, Requeue};
use common::gvk::Gvk;
use common::lock::lock;
use common::names::EXECUTION_PREFIX;
use common::queue::{Priority, Queue};
use common::rest::{Call, MERGE_PATCH};
use common::time::SharedClock;
use kube::Client;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

/// How long a second change waits, and how long any does at the most.
const PACE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// The controller.
pub struct Answers {
    client: Client,
    world: World,
    bindings: Bindings,
    placing: Placing,
    clock: SharedClock,
    /// Bindings of which something happened that is to be answered.
    stirred: Mutex<BTreeSet<ObjectName>>,
    paces: Mutex<BTreeMap<ObjectName, Pace>>,
    /// Bindings whose status does not tell yet where they were placed, and since when.
    placed: Mutex<BTreeMap<ObjectName, Instant>>,
}

/// When something came last, and how long it was made to wait.
#[derive(Debug, Clone, Copy)]
struct Pace {
    came: Instant,
    waits: Duration,
}

impl Pace {
    /// The next change of the same binding.
    fn next(before: Option<Self>, now: Instant) -> Self {
        let waits = match before {
            Some(before) if now < before.came + 2 * PACE.1 => {
                (2 * before.waits).clamp(PACE.0, PACE.1)
            }
            _ => Duration::ZERO,
        };
        Self { came: now, waits }
    }
}

impl Answers {
    /// A controller that is woken by what the world tells.
    pub fn watching(
        client: Client,
        (bindings, placing): (Bindings, Placing),
        clock: SharedClock,
        world: &World,
    ) -> Controller<Arc<Self>> {
        let answers = Arc::new(Self {
            client,
            world: world.clone(),
            bindings,
            placing,
            clock,
            stirred: Mutex::default(),
            paces: Mutex::default(),
            placed: Mutex::default(),
        });
        let controller = Controller::new(Arc::clone(&answers));
        let views = &world.propagation;
        for view in [&views.bindings, &views.cluster_bindings] {
            let (me, queue) = (Arc::clone(&answers), controller.queue());
            view.on_change(move |change| {
                me.binding_changed(change, &queue);
            });
        }
        let queue = controller.queue();
        // What was looked at before its template was known is not written on it yet.
        views.on_templates_listed(move |binding| queue.add_with(binding, Priority::Backlog));
        let queue = controller.queue();
        views.on_kinds_changed(move |binding| queue.add_with(binding, Priority::Backlog));
        let (me, queue) = (answers, controller.queue());
        world.works.on_change(move |change| {
            me.work_changed(change, &queue);
        });
        controller
    }

    fn binding_changed(&self, change: &Change<world::Binding>, queue: &Queue<ObjectName>) {
        let (Some(new), old) = (change.after(), change.before()) else {
            self.forget(&change.name);
            return;
        };
        if let Some(old) = old
            && is_stirring(
                &old.binding,
                &new.binding,
                !old.binding.spec.clusters.is_empty(),
            )
        {
            lock(&self.stirred).insert(change.name.clone());
        }
        // What becomes of it in members comes soon, and is told with it.
        if old.is_none_or(|old| old.generation != new.generation) {
            queue.add_after(change.name.clone(), PACE.0);
        }
    }

    fn work_changed(&self, change: &Change<world::Work>, queue: &Queue<ObjectName>) {
        let (old, new) = (change.before(), change.after());
        let leaves = new.is_none_or(|it| it.deleting);
        if leaves && let Some(of) = old.filter(|it| self.is_of_now(it)) {
            lock(&self.stirred).extend(of.binding.clone());
        }
        let now = Instant::now();
        for name in [old, new]
            .into_iter()
            .flatten()
            .filter_map(|it| it.binding.clone())
        {
            let mut paces = lock(&self.paces);
            let pace = Pace::next(paces.get(&name).copied(), now);
            paces.insert(name.clone(), pace);
            drop(paces);
            // What leaves is told with what comes in its place.
            let waits = if leaves {
                pace.waits.max(PACE.0)
            } else {
                pace.waits
            };
            queue.add_after(name, waits);
        }
    }

    fn forget(&self, name: &ObjectName) {
        lock(&self.stirred).remove(name);
        lock(&self.paces).remove(name);
        lock(&self.placed).remove(name);
    }

    /// Whether a Work is of a binding that is there and stays: one of a former binding of the same name says nothing
    /// about the next.
    fn is_of_now(&self, work: &world::Work) -> bool {
        let binding = work.binding.as_ref();
        let held = binding.and_then(|name| self.world.propagation.binding(name));
        held.is_some_and(|held| {
            let binding = &held.binding;
            !binding.deleting && work.binding_id.as_deref() == Some(binding.id())
        })
    }

    fn template(&self, binding: &Binding) -> Option<(Gvk, Arc<world::Template>)> {
        let of = &binding.spec.resource;
        let gvk = Gvk::new(&of.api_version, &of.kind)?;
        let name = TemplateName::of(of)?;
        let template = self.world.propagation.templates.get(&name)?;
        Some((gvk, template.record?))
    }
}

impl Reconcile for Answers {
    const NAME: &'static str = "binding-status";
    type Key = ObjectName;
    type Error = Error;

    async fn ready(&self) {
        self.world.synced().await;
    }

    async fn reconcile(&self, key: &ObjectName) -> Result<Requeue, Error> {
        let Some(held) = self.world.propagation.binding(key) else {
            self.forget(key);
            return Ok(Requeue::Never);
        };
        let names = self.world.works_of.names(key).into_iter();
        let works = names.filter_map(|name| {
            let work = self.world.works.get(&name)?.record?;
            Some(Work {
                cluster: name.namespace.strip_prefix(EXECUTION_PREFIX)?.to_owned(),
                deleting: work.deleting,
                status: work.status(),
            })
        });
        let works: Vec<Work> = works.collect();
        let items = collect(&held.binding.spec.resource, &works);
        let template = self.template(&held.binding);
        let before_and_after = template.as_ref().and_then(|(gvk, template)| {
            let object = template.object();
            let interpreter = self.world.propagation.kinds.interpreter();
            let items = expected(&held.binding.spec, &items);
            let after = interpreter.aggregate(gvk, &object, &items)?;
            Some((object.get("status").cloned().unwrap_or_default(), after))
        });
        let seen = Observed {
            binding: held.binding.clone(),
            status: held.whole_status(),
            works,
            template: before_and_after,
            stirred: lock(&self.stirred).contains(key),
        };
        let now = self.clock.now();
        let said = self.placing.said(now, key, &held);
        if said.is_some() && self.awaits_works(key, &seen) {
            return Ok(Requeue::After(PACE.0));
        }
        let mut decision = decide(now, &seen, &items);
        let mut placed = Vec::new();
        if let Some(said) = said {
            let status = decision.status.get_or_insert_with(|| seen.status.clone());
            said.write_into(now, status);
            placed = said.events;
        }
        let patch = decision.status_patch(&seen);
        let patch = patch.map_err(|error| Error::Form(key.to_string(), error))?;
        if let Some(patch) = patch {
            self.bindings
                .patch_status(&held.binding, &patch["status"])
                .await?;
            self.placing.told(key, held.generation);
            self.bindings.tell(&about(&held.binding), &placed);
            self.bindings
                .tell(&about_template_of(&held.binding), &placed);
            self.bindings.tell(&about(&held.binding), &decision.events);
        }
        if let (Some((_, template)), Some(patch)) = (&template, decision.template_patch(&seen)) {
            self.write_template(template, &patch).await?;
        }
        if let Some((_, template)) = &template {
            let about = about_template(&template.identity);
            self.bindings.tell(&about, &decision.template_events);
        }
        lock(&self.stirred).remove(key);
        lock(&self.placed).remove(key);
        Ok(Requeue::Never)
    }
}

impl Answers {
    /// Whether its Works are still being written: its status tells where it was placed once they are there, and what
    /// came of that with the same write.
    fn awaits_works(&self, key: &ObjectName, seen: &Observed) -> bool {
        let works = seen.works.iter().filter(|work| !work.deleting);
        let there: BTreeSet<&str> = works.map(|work| work.cluster.as_str()).collect();
        let mut targets = seen.binding.spec.clusters.iter();
        if targets.all(|target| there.contains(target.name.as_str())) {
            return false;
        }
        let now = Instant::now();
        let since = *lock(&self.placed).entry(key.clone()).or_insert(now);
        now < since + PACE.1
    }

    async fn write_template(&self, template: &world::Template, patch: &Value) -> Result<(), Error> {
        let of = &template.identity;
        let Some(gvk) = Gvk::new(&of.api_version, &of.kind) else {
            return Ok(());
        };
        let Some(resource) = self.world.propagation.templates.resource(&gvk.group_kind()) else {
            return Ok(());
        };
        let namespace = of.namespace.as_deref().unwrap_or_default();
        let uri = format!("{}/status", resource.object(namespace, &of.name));
        let call = Call::patch(&uri, MERGE_PATCH, patch).metadata_only();
        match call.send(&self.client).await {
            Ok(reply) => {
                // What is written next is what differs from the view: one without this takes what was for what is.
                self.bindings
                    .await_template(&gvk.group_kind(), &reply)
                    .await;
                Ok(())
            }
            // It is gone, or has no status of its own.
            Err(error) if error.code() == Some(404) => Ok(()),
            Err(error) => Err(Error::request(
                "write the status of",
                &of.kind,
                &of.name,
                error,
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::notices::Notices;
    use crate::world::testing::{at_once, unreachable};
    use common::time::SystemClock;
    use serde_json::json;
    use std::pin::pin;
    use tokio::time::timeout;

    #[test]
    fn changes_that_keep_coming_wait_ever_longer() {
        let begun = Instant::now();
        let first = Pace::next(None, begun);
        assert_eq!(first.waits, Duration::ZERO);
        let mut pace = first;
        for expected in [100, 200, 400, 800, 1000, 1000] {
            pace = Pace::next(Some(pace), begun);
            assert_eq!(pace.waits, Duration::from_millis(expected));
        }
        let later = Pace::next(Some(pace), begun + Duration::from_secs(2));
        assert_eq!(later.waits, Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_status_that_was_written_is_seen_before_the_next_is_made() {
        let template = |version: &str, ready: u32| {
            json!({"metadata": {"namespace": "n", "name": "web", "uid": "u", "resourceVersion": version},
                "status": {"readyReplicas": ready}})
        };
        let (world, written) = (unreachable(), template("8", 2));
        let gvk = Gvk::new("apps/v1", "Deployment").expect("a kind");
        let view = world.propagation.templates.told_of(&gvk);
        view.listed(&[template("7", 1)]).await;
        let client = at_once(written.to_string());
        let answers = Answers {
            bindings: Bindings::new(client.clone(), world.clone(), Notices::default()),
            client,
            placing: Placing::watching(&world),
            world,
            clock: Arc::new(SystemClock),
            stirred: Mutex::default(),
            paces: Mutex::default(),
            placed: Mutex::default(),
        };
        let held = view.get(&ObjectName::new(Some("n"), "web"));
        let held = held.and_then(|it| it.record).expect("held");
        let patch = json!({"status": written["status"]});
        let mut write = pin!(answers.write_template(&held, &patch));
        let early = timeout(Duration::from_secs(1), write.as_mut()).await;
        assert!(early.is_err(), "the view does not have it yet");
        view.sent(&[written]).await;
        let done = timeout(Duration::from_secs(1), write).await;
        done.expect("it has it now").expect("written");
    }
}
