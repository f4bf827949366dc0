//! Writes to the hub: finalizers and statuses of Works.

use super::Engine;
use crate::execution::report::{report, written};
use crate::execution::wire::WireWork;
use crate::member::rest::{Call, Error, MERGE_PATCH, METADATA_ONLY};
use common::labels::WORK_FINALIZER;
use serde_json::json;
use std::sync::Arc;
use tokio::time::Instant;

/// How often a write is tried again that met a newer version.
const TRIES: usize = 4;

impl Engine {
    fn work_uri(&self, name: &str) -> String {
        format!(
            "/apis/work.karmada.io/v1alpha1/namespaces/{}/works/{name}",
            self.namespace
        )
    }

    /// Makes the status of a Work say what it should. Writes nothing when it does.
    pub(super) async fn write_report(&self, name: &Arc<str>) -> Result<(), Error> {
        let uri = format!("{}/status", self.work_uri(name));
        for _ in 0..TRIES {
            let Some(report) = report(&self.state(), name, self.clock.now()) else {
                return Ok(());
            };
            let call = Call::patch(&uri, MERGE_PATCH, &report.patch).metadata_only();
            match call.send(&self.hub.client()).await {
                Ok(reply) => {
                    let after: WireWork = reply.json()?;
                    if let Some(record) = self.state().works.get_mut(name)
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
                }
                Err(error) => return Err(error),
            }
        }
        // It moves faster than we write; the watch brings it back.
        Ok(())
    }

    /// Puts our finalizer on a Work, or takes it off. Returns whether the Work is still that Work.
    pub(super) async fn write_finalizer(
        &self,
        name: &Arc<str>,
        present: bool,
    ) -> Result<bool, Error> {
        let uri = self.work_uri(name);
        for _ in 0..TRIES {
            let patch = {
                let state = self.state();
                let Some(record) = state.works.get(name) else {
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
                Ok(reply) => {
                    self.take_metadata(name, &reply.json::<WireWork>()?);
                    return Ok(true);
                }
                Err(error) if error.code() == Some(404) => return Ok(false),
                Err(error) if error.code() == Some(409) => {
                    if !self.refresh(name).await? {
                        return Ok(false);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Reads the metadata of a Work; returns whether it is still the Work we know.
    async fn refresh(&self, name: &Arc<str>) -> Result<bool, Error> {
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
    fn take_metadata(&self, name: &Arc<str>, wire: &WireWork) -> bool {
        let mut state = self.state();
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
        true
    }
}
