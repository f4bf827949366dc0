//! Taking our marks off objects that stay.

use super::Pruner;
use super::unmark::unmark;
use crate::execution::state::ObjectKey;
use crate::execution::wire::LiveMeta;
use common::errors::chain;
use common::labels::{MANAGED, MANAGED_VALUE};
use common::rest::{Call, Error, JSON_PATCH, METADATA_LIST, METADATA_ONLY};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Objects of a page when everything that is ours is looked for.
const PAGE: u32 = 200;
/// How long that may take when the agent leaves.
const RELEASE_WITHIN: Duration = Duration::from_secs(120);

impl Pruner {
    /// Takes our marks off an object of this Work and leaves it running.
    pub async fn release_object(&self, work: &str, key: &Arc<ObjectKey>) -> Result<(), Error> {
        self.let_go(work, key, None).await
    }

    /// The same, of an object that must not go with its Work; should the Work come back, it may have it again.
    pub(super) async fn keep_object(&self, work: &str, key: &Arc<ObjectKey>) -> Result<(), Error> {
        let from = format!("{}/{work}", self.scope.namespace);
        self.let_go(work, key, Some(&from)).await
    }

    async fn let_go(
        &self,
        work: &str,
        key: &Arc<ObjectKey>,
        kept_from: Option<&str>,
    ) -> Result<(), Error> {
        let Some((resource, uri)) = self.locate(key).await? else {
            return Ok(());
        };
        if let Some(rule) = self
            .member
            .reserved(&resource.gvk, &key.namespace, &key.name)
        {
            // Not even our marks are taken off there.
            tracing::warn!(object = %key.name, %rule, "left as it is");
            return Ok(());
        }
        self.release_at(&uri, kept_from, |meta| {
            meta.belongs_to(&self.scope.namespace, work)
                || self.state.lock().has_claim(work, key, &meta.uid)
        })
        .await?;
        let mut state = self.state.lock();
        state.set_live(key, None);
        state.disclaim(work, key);
        Ok(())
    }

    /// Takes our marks off the object at `uri` if `ours` says so. It remembers the Work that it is kept from, unless it
    /// was there before that.
    async fn release_at(
        &self,
        uri: &str,
        kept_from: Option<&str>,
        ours: impl Fn(&LiveMeta) -> bool,
    ) -> Result<(), Error> {
        for _ in 0..4 {
            let object: Value = match self.member.ask(Call::get(uri, METADATA_ONLY)).await {
                Ok(reply) => reply.json()?,
                Err(error) if error.code() == Some(404) => return Ok(()),
                Err(error) => return Err(error),
            };
            let meta = LiveMeta::read(&object);
            if !ours(&meta) {
                return Ok(());
            }
            let patch = unmark(&object, kept_from.filter(|_| !meta.adopted));
            let call = Call::patch(uri, JSON_PATCH, &patch).metadata_only();
            match self.member.ask(call).await {
                Ok(_) => return Ok(()),
                Err(error) if error.code() == Some(404) => return Ok(()),
                Err(error) if error.code() == Some(409) || error.code() == Some(422) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Takes our marks off whatever still carries them, also of Works that are gone already: the cluster
    /// is unregistered and everything in it stays.
    pub async fn release_rest(&self) {
        match timeout(RELEASE_WITHIN, self.release_all()).await {
            Ok(Ok(0)) => {}
            Ok(Ok(count)) => tracing::info!(count, "objects of vanished Works lost our marks"),
            Ok(Err(error)) => {
                tracing::warn!(error = %chain(&error), "some objects may still carry our marks");
            }
            Err(_) => tracing::warn!("some objects may still carry our marks: it took too long"),
        }
    }

    async fn release_all(&self) -> Result<usize, Error> {
        let mut count = 0;
        for resource in self.member.all_kinds().await? {
            let selector = format!("labelSelector={MANAGED}%3D{MANAGED_VALUE}&limit={PAGE}");
            let mut token = String::new();
            loop {
                let uri = format!("{}?{selector}&continue={token}", resource.collection());
                let list: Value = match self.member.ask(Call::get(&uri, METADATA_LIST)).await {
                    Ok(reply) => reply.json()?,
                    // What we may not see we have not made.
                    Err(error) if matches!(error.code(), Some(403..=405)) => break,
                    Err(error) => return Err(error),
                };
                for item in list["items"].as_array().into_iter().flatten() {
                    let ours = |meta: &LiveMeta| {
                        meta.managed
                            && meta
                                .work
                                .as_ref()
                                .is_some_and(|(ns, _)| **ns == *self.scope.namespace)
                    };
                    if !ours(&LiveMeta::read(item)) {
                        continue;
                    }
                    let text = |key: &str| item["metadata"][key].as_str().unwrap_or_default();
                    let (namespace, name) = (text("namespace"), text("name"));
                    if let Some(rule) = self.member.reserved(&resource.gvk, namespace, name) {
                        tracing::warn!(%name, %rule, "keeps our marks: take them off by hand");
                        continue;
                    }
                    let uri = resource.object(namespace, name);
                    self.release_at(&uri, None, ours).await?;
                    count += 1;
                }
                let next = list["metadata"]["continue"].as_str().unwrap_or_default();
                if next.is_empty() {
                    break;
                }
                // A token is base64; only these of its characters mean something in a query.
                next.clone_into(&mut token);
                token = token.replace('+', "%2B").replace('=', "%3D");
            }
        }
        Ok(count)
    }
}
