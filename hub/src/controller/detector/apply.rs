//! Carries a decision out: the claim first, then the binding, then what is told of it.

use super::Detector;
use super::claim;
use super::contenders::binding_of;
use super::decide::{Decision, Observed, Write};
use super::keep;
use crate::controller::bindings::{Error, about, about_template, name_of};
use crate::propagation::{Binding, PolicyName, Template, Texts};
use crate::world::TemplateName;
use common::controller::Requeue;
use common::gvk::Gvk;
use common::rest::{Call, MERGE_PATCH, METADATA_ONLY};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::PartialObjectMeta;
use serde_json::Value;
use std::time::Duration;

/// How long to wait for the templates of a kind to be listed.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

impl Detector {
    pub(super) async fn apply(&self, seen: &Observed, decision: &Decision) -> Result<(), Error> {
        let template = &seen.template;
        if let Some(claim) = &decision.claim {
            let body = claim.body(Some(&template.resource_version));
            self.patch_template(template, &body).await?;
        }
        match (&decision.binding, &seen.binding) {
            (Some(Write::Create(binding)), _) => self.create(binding).await?,
            (Some(Write::Update(binding)), Some(known)) => self.update(known, binding).await?,
            // A view may be behind: what justifies a deletion is read from the hub itself.
            (Some(Write::Delete(uid)), Some(known)) => {
                let holder = decision.holder.as_ref();
                if self.is_held_by(template, holder).await? {
                    self.bindings.delete(known, uid).await?;
                }
            }
            (Some(Write::Replace(uid)), Some(known)) if self.is_there(template).await? => {
                self.bindings.delete(known, uid).await?;
            }
            _ => {}
        }
        let events = &decision.events;
        self.bindings.tell(&about_template(template), events);
        if let Some(Write::Create(binding) | Write::Update(binding)) = &decision.binding {
            let events = &decision.binding_events;
            self.bindings.tell(&about(binding), events);
        }
        Ok(())
    }

    async fn create(&self, binding: &Binding) -> Result<(), Error> {
        let placed = self.placing.place(binding, None);
        let created = self.bindings.create(&placed).await;
        self.placing.noted(binding, created.map(drop))
    }

    async fn update(&self, known: &Binding, wanted: &Binding) -> Result<(), Error> {
        let held = self.world.propagation.binding(&name_of(known));
        let held = held.filter(|held| held.binding.resource_version == known.resource_version);
        let Some(held) = held else {
            return self.bindings.update(known, wanted).await;
        };
        let placed = self.placing.place(wanted, Some(&held));
        let updated = self.bindings.update(known, &placed).await;
        self.placing.noted(known, updated)
    }

    async fn patch_template(&self, template: &Template, body: &Value) -> Result<(), Error> {
        let Some(uri) = self.uri_of(template) else {
            return Ok(());
        };
        let call = Call::patch(&uri, MERGE_PATCH, body).metadata_only();
        match call.send(&self.client).await {
            Ok(reply) => {
                // What its members get is made of what the view has: with the claim, or it is written twice.
                if let Some(gvk) = Gvk::new(&template.api_version, &template.kind) {
                    self.bindings
                        .await_template(&gvk.group_kind(), &reply)
                        .await;
                }
                Ok(())
            }
            // It is gone, and so is whatever was to be said about it.
            Err(error) if error.code() == Some(404) => Ok(()),
            Err(error) => Err(Error::request(
                "claim",
                &template.kind,
                &template.name,
                error,
            )),
        }
    }

    /// Whether the hub says that this policy holds the template, or that none does; a Lazy one may hold what has no
    /// binding.
    async fn is_held_by(
        &self,
        template: &Template,
        holder: Option<&PolicyName>,
    ) -> Result<bool, Error> {
        let Some(live) = self.live(template).await? else {
            return Ok(true);
        };
        let texts = |texts: Option<Texts>| texts.unwrap_or_default();
        let (labels, annotations) = (texts(live.labels), texts(live.annotations));
        Ok(match holder {
            Some(holder) => claim::holder(&labels, &annotations).as_ref() == Some(holder),
            None => !claim::has_any(&labels, &annotations),
        })
    }

    /// Whether the hub has this very template, and so no former one of its name.
    async fn is_there(&self, template: &Template) -> Result<bool, Error> {
        Ok(self.live(template).await?.is_some())
    }

    /// What the hub itself says of the template; none when it is gone.
    async fn live(&self, template: &Template) -> Result<Option<ObjectMeta>, Error> {
        let failed = |error| Error::request("read", &template.kind, &template.name, error);
        let Some(uri) = self.uri_of(template) else {
            let why = format!(
                "nothing is known of {} {:?} now",
                template.kind, template.name
            );
            return Err(Error::Undecided(why));
        };
        match Call::get(&uri, METADATA_ONLY).send(&self.client).await {
            Ok(reply) => {
                let live: PartialObjectMeta = reply.json().map_err(failed)?;
                let same = live.metadata.uid.as_ref() == Some(&template.uid);
                Ok(same.then_some(live.metadata))
            }
            Err(error) if error.code() == Some(404) => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    /// A template that is gone takes its binding along: the garbage collector would, but may take half a minute to
    /// hear of a new kind of template.
    pub(super) async fn forget(&self, key: &TemplateName) -> Result<Requeue, Error> {
        let templates = &self.world.propagation.templates;
        let Some(held) = self.world.propagation.binding(&binding_of(key)) else {
            return Ok(Requeue::Never);
        };
        let owner = held.binding.owner.as_ref().filter(|owner| {
            let gvk = Gvk::new(&owner.api_version, &owner.kind);
            gvk.is_some_and(|gvk| gvk.group_kind() == key.kind) && *owner.name == *key.name.name
        });
        if owner.is_none() || held.binding.deleting || templates.get(key).is_some() {
            return Ok(Requeue::Never);
        }
        if !templates.is_synced(&key.kind) {
            return Ok(Requeue::After(LOOK_AGAIN));
        }
        let Some(resource) = templates.resource(&key.kind) else {
            return Ok(Requeue::Never);
        };
        let uri = resource.object(&key.name.namespace, &key.name.name);
        match Call::get(&uri, METADATA_ONLY).send(&self.client).await {
            // It came back: the view tells it soon.
            Ok(_) => Ok(Requeue::Never),
            Err(error) if error.code() == Some(404) => {
                let binding = &held.binding;
                match keep::first_in(binding, &self.world) {
                    // Its change wakes this name once more.
                    Some(first) => self.bindings.update(binding, &first).await?,
                    None => self.bindings.delete(binding, &binding.uid).await?,
                }
                Ok(Requeue::Never)
            }
            Err(error) => Err(Error::request(
                "read",
                &key.kind.kind,
                &key.name.name,
                error,
            )),
        }
    }

    /// The URL of a template; none while its kind is not watched.
    fn uri_of(&self, template: &Template) -> Option<String> {
        let gvk = Gvk::new(&template.api_version, &template.kind)?;
        let templates = &self.world.propagation.templates;
        let resource = templates.resource(&gvk.group_kind())?;
        let namespace = template.namespace.as_deref().unwrap_or_default();
        Some(resource.object(namespace, &template.name))
    }
}
