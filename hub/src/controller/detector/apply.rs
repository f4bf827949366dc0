//! Carries a decision out: the claim first, then the binding, then what is told of it.

use super::Detector;
use super::claim::has_any;
use super::decide::{Decision, Observed, Write};
use crate::controller::bindings::{Error, about, about_template};
use crate::propagation::{Template, Texts};
use common::gvk::Gvk;
use common::rest::{Call, MERGE_PATCH, METADATA_ONLY};
use kube::core::PartialObjectMeta;
use serde_json::Value;

impl Detector {
    pub(super) async fn apply(&self, seen: &Observed, decision: &Decision) -> Result<(), Error> {
        let template = &seen.template;
        if let Some(claim) = &decision.claim {
            let body = claim.body(Some(&template.resource_version));
            self.patch_template(template, &body).await?;
        }
        match (&decision.binding, &seen.binding) {
            (Some(Write::Create(binding)), _) => {
                self.bindings.create(binding).await?;
            }
            (Some(Write::Update(binding)), Some(known)) => {
                self.bindings.update(known, binding).await?;
            }
            // A view may be behind: what justifies a deletion is read from the hub itself.
            (Some(Write::Delete(uid)), Some(known)) if !self.is_claimed(template).await? => {
                self.bindings.delete(known, uid).await?;
            }
            _ => {}
        }
        let events = &decision.events;
        self.bindings.tell(&about_template(template), events).await;
        if let Some(Write::Create(binding) | Write::Update(binding)) = &decision.binding {
            let events = &decision.binding_events;
            self.bindings.tell(&about(binding), events).await;
        }
        Ok(())
    }

    async fn patch_template(&self, template: &Template, body: &Value) -> Result<(), Error> {
        let Some(uri) = self.uri_of(template) else {
            return Ok(());
        };
        let call = Call::patch(&uri, MERGE_PATCH, body).metadata_only();
        match call.send(&self.client).await {
            Ok(_) => Ok(()),
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

    /// Whether the hub says that some policy holds the template.
    async fn is_claimed(&self, template: &Template) -> Result<bool, Error> {
        let Some(uri) = self.uri_of(template) else {
            return Ok(true);
        };
        let failed = |error| Error::request("read", &template.kind, &template.name, error);
        match Call::get(&uri, METADATA_ONLY).send(&self.client).await {
            Ok(reply) => {
                let live: PartialObjectMeta = reply.json().map_err(failed)?;
                let texts = |texts: Option<Texts>| texts.unwrap_or_default();
                let same = live.metadata.uid.as_ref() == Some(&template.uid);
                let labels = texts(live.metadata.labels);
                let annotations = texts(live.metadata.annotations);
                Ok(same && has_any(&labels, &annotations))
            }
            Err(error) if error.code() == Some(404) => Ok(false),
            Err(error) => Err(failed(error)),
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
