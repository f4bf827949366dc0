//! Writes to the hub: finalizers and statuses of Works.

use super::contact::Contact;
use super::report::{report, written};
use super::state::Shared;
use super::wire::WireWork;
use crate::hub::HubHandle;
use common::labels::WORK_FINALIZER;
use common::rest::{Call, Error, MERGE_PATCH, METADATA_ONLY};
use common::time::SharedClock;
use serde_json::json;
use std::sync::Arc;
use tokio::time::Instant;

/// How often a write is tried again that met a newer version.
const TRIES: usize = 4;

/// The Works of the hub, for writing.
pub struct WorkWriter {
    /// The execution namespace.
    pub(super) namespace: Arc<str>,
    pub(super) hub: HubHandle,
    pub(super) contact: Arc<Contact>,
    pub(super) state: Shared,
    pub(super) clock: SharedClock,
}

/// Why a finalizer was not written.
#[derive(Debug)]
pub enum NotWritten {
    /// The hub is left alone until then.
    Rests(Instant),
    /// It was tried.
    Failed(Error),
}

impl WorkWriter {
    fn work_uri(&self, name: &str) -> String {
        format!(
            "/apis/work.karmada.io/v1alpha1/namespaces/{}/works/{name}",
            self.namespace
        )
    }

    /// Makes the status of a Work say what it should. Writes nothing when it does.
    pub async fn write_status(&self, name: &str) -> Result<(), Error> {
        let written = self.try_status(name).await;
        if let Err(error) = &written {
            self.contact.failed(error);
        }
        written
    }

    async fn try_status(&self, name: &str) -> Result<(), Error> {
        let uri = format!("{}/status", self.work_uri(name));
        let mut conflict = None;
        for _ in 0..TRIES {
            let Some(report) = report(&self.state.lock(), name, self.clock.now()) else {
                return Ok(());
            };
            let call = Call::patch(&uri, MERGE_PATCH, &report.patch).metadata_only();
            match call.send(&self.hub.client()).await {
                Ok(reply) => {
                    let after: WireWork = reply.json()?;
                    if let Some(record) = self.state.lock().works.get_mut(name)
                        && *record.uid == *after.metadata.uid
                    {
                        written(record, report, &after.metadata);
                        record.pace.told(Instant::now());
                    }
                    return Ok(());
                }
                Err(error) if error.code() == Some(404) => return Ok(()),
                Err(error) if error.code() == Some(409) => {
                    if !self.refresh(name).await? {
                        return Ok(());
                    }
                    conflict = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        // It moves faster than we write. No watch need bring it back: what was in the way may be its last change.
        conflict.map_or(Ok(()), Err)
    }

    /// Puts our finalizer on the Work of that UID, or takes it off. Returns whether the Work is still that Work.
    pub async fn write_finalizer(
        &self,
        name: &str,
        uid: &str,
        present: bool,
    ) -> Result<bool, NotWritten> {
        if let Some(until) = self.contact.rests_until() {
            return Err(NotWritten::Rests(until));
        }
        let written = self.try_finalizer(name, uid, present).await;
        written.map_err(|error| {
            self.contact.failed(&error);
            NotWritten::Failed(error)
        })
    }

    async fn try_finalizer(&self, name: &str, uid: &str, present: bool) -> Result<bool, Error> {
        let uri = self.work_uri(name);
        let mut conflict = None;
        for _ in 0..TRIES {
            let patch = {
                let state = self.state.lock();
                let record = state.works.get(name);
                let Some(record) = record.filter(|record| *record.uid == *uid) else {
                    return Ok(false);
                };
                if record.has_finalizer() == present {
                    return Ok(true);
                }
                let mut finalizers: Vec<&str> = record
                    .finalizers
                    .iter()
                    .map(|f| &**f)
                    .filter(|f| *f != WORK_FINALIZER)
                    .collect();
                if present {
                    finalizers.push(WORK_FINALIZER);
                }
                json!({"metadata": {"uid": record.uid, "resourceVersion": record.resource_version,
                    "finalizers": finalizers}})
            };
            let call = Call::patch(&uri, MERGE_PATCH, &patch).metadata_only();
            match call.send(&self.hub.client()).await {
                Ok(reply) => return Ok(self.take_metadata(name, &reply.json::<WireWork>()?)),
                Err(error) if error.code() == Some(404) => return Ok(false),
                Err(error) if error.code() == Some(409) => {
                    if !self.refresh(name).await? {
                        return Ok(false);
                    }
                    conflict = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        conflict.map_or(Ok(false), Err)
    }

    /// Reads the metadata of a Work; returns whether it is still the Work we know.
    async fn refresh(&self, name: &str) -> Result<bool, Error> {
        let uri = self.work_uri(name);
        match Call::get(&uri, METADATA_ONLY)
            .send(&self.hub.client())
            .await
        {
            Ok(reply) => Ok(self.take_metadata(name, &reply.json::<WireWork>()?)),
            Err(error) if error.code() == Some(404) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Takes over version and finalizers alone: the rest comes by the watch.
    fn take_metadata(&self, name: &str, wire: &WireWork) -> bool {
        let mut state = self.state.lock();
        let Some(record) = state.works.get_mut(name) else {
            return false;
        };
        if *record.uid != *wire.metadata.uid {
            return false;
        }
        record.resource_version = wire.metadata.resource_version.as_str().into();
        record.finalizers = wire
            .metadata
            .finalizers
            .iter()
            .map(|f| f.as_str().into())
            .collect();
        // The watch may have told of its end before this answer came.
        if record.gone {
            record.ended();
        }
        true
    }
}
