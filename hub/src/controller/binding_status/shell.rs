//! Writes down what members say: in the binding, and in the template.
//!
//! Answers are gathered: the first change is written at once, further ones of the same binding ever later while they
//! keep coming.

mod pace;
#[cfg(test)]
mod tests;

use super::{Observed, Work, collect, decide, decide_refused, expected, is_stirring};
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
use pace::{PACE, Pace};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use tokio::time::Instant;

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
    /// Bindings of templates whose status an API server refused the last time, with its words.
    refused: Mutex<BTreeMap<ObjectName, String>>,
    /// Those whose status was taken after one was refused, until what is told of the refusal is gone.
    taken: Mutex<BTreeSet<ObjectName>>,
}

impl Answers {
    fn new(
        client: Client,
        (bindings, placing): (Bindings, Placing),
        clock: SharedClock,
        world: &World,
    ) -> Self {
        Self {
            client,
            world: world.clone(),
            bindings,
            placing,
            clock,
            stirred: Mutex::default(),
            paces: Mutex::default(),
            placed: Mutex::default(),
            refused: Mutex::default(),
            taken: Mutex::default(),
        }
    }

    /// A controller that is woken by what the world tells.
    pub fn watching(
        client: Client,
        writers: (Bindings, Placing),
        clock: SharedClock,
        world: &World,
    ) -> Controller<Arc<Self>> {
        let answers = Arc::new(Self::new(client, writers, clock, world));
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
        lock(&self.refused).remove(name);
        lock(&self.taken).remove(name);
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

    /// The template that a binding speaks for: the one beside it, and none that was made anew under its name.
    fn template(&self, binding: &Binding) -> Option<(Gvk, Arc<world::Template>)> {
        let of = &binding.spec.resource;
        let gvk = Gvk::new(&of.api_version, &of.kind)?;
        let name = TemplateName::of_binding(binding)?;
        let template = self.world.propagation.templates.get(&name)?.record?;
        let is_meant = template.identity.uid == of.uid.as_deref().unwrap_or_default();
        is_meant.then_some((gvk, template))
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
            taken: lock(&self.taken).remove(key),
        };
        let now = self.clock.now();
        let said = self.placing.said(now, key, &held);
        if said.is_some() && self.awaits_works(key, &seen) {
            return Ok(Requeue::After(PACE.0));
        }
        let refused = lock(&self.refused).get(key).cloned();
        let mut decision = match &refused {
            Some(words) => decide_refused(now, &seen, &items, words),
            None => decide(now, &seen, &items),
        };
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
            let written = self.write_template(&held.binding, template, &patch).await;
            let words = written.as_ref().err().and_then(refusal);
            if let Some(words) = words {
                // They are told in the next turn. That comes soon after the first refusal alone: a webhook may word each
                // one anew.
                lock(&self.refused).insert(key.clone(), words);
                if refused.is_none() {
                    return Ok(Requeue::After(PACE.0));
                }
            }
            if !written? {
                decision.template_events.clear();
            }
        }
        if let Some((_, template)) = &template {
            let about = about_template(&template.identity);
            self.bindings.tell(&about, &decision.template_events);
        }
        lock(&self.stirred).remove(key);
        lock(&self.placed).remove(key);
        if lock(&self.refused).remove(key).is_some() || decision.again {
            // What was told of a refusal goes, by this or by an earlier life of the hub.
            lock(&self.taken).insert(key.clone());
            return Ok(Requeue::After(PACE.0));
        }
        Ok(Requeue::Never)
    }
}

/// Why an API server will not take a status, whenever it is asked.
fn refusal(error: &Error) -> Option<String> {
    let source = match error {
        Error::Request { source, .. } => source,
        Error::Impossible(why) => return Some(why.clone()),
        _ => return None,
    };
    let is_refused = matches!(source.code(), Some(400 | 422));
    is_refused
        .then(|| format!("the API server refuses the status made of what members say: {source}"))
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

    /// Writes a template's status; says whether it was written.
    async fn write_template(
        &self,
        binding: &Binding,
        template: &world::Template,
        patch: &Value,
    ) -> Result<bool, Error> {
        let of = &template.identity;
        let Some(gvk) = Gvk::new(&of.api_version, &of.kind) else {
            return Ok(false);
        };
        let Some(resource) = self.world.propagation.templates.resource(&gvk.group_kind()) else {
            return Ok(false);
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
                Ok(true)
            }
            // To ask again changes nothing: what wakes the binding next may come after a new definition.
            Err(error) if error.code() == Some(404) && self.template(binding).is_some() => {
                let kind = gvk.group_kind();
                Err(Error::Impossible(format!(
                    "the API server takes no status of {kind}: its definition has no status subresource"
                )))
            }
            // It is gone.
            Err(error) if error.code() == Some(404) => Ok(false),
            Err(error) => Err(Error::request(
                "write the status of",
                &of.kind,
                &of.name,
                error,
            )),
        }
    }
}
