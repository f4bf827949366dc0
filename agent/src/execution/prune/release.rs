//! Taking our marks off objects that stay.

use super::unmark::unmark;
use super::{Gone, Pruner, is_absent, lacks_path};
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
    /// Takes our marks off an object of this Work and leaves it running; another Work that wants it gets it as it is.
    pub async fn release_object(&self, work: &str, key: &Arc<ObjectKey>) -> Result<Gone, Error> {
        if let Some(fate) = self.pass_on(work, key).await? {
            return Ok(fate);
        }
        self.let_go(work, key, None).await?;
        Ok(Gone::Yes)
    }

    /// Hands an object that stays over to another Work that wants it, if there is one: without our marks it would be
    /// refused to that Work.
    async fn pass_on(&self, work: &str, key: &Arc<ObjectKey>) -> Result<Option<Gone>, Error> {
        let Some((resource, uri)) = self.locate(key).await? else {
            return Ok(None);
        };
        let key = &self.state.lock().placed(key);
        let rule = self
            .member
            .reserved(&resource.gvk, &key.namespace, &key.name);
        if rule.is_some() || self.state.lock().heir(key, work).is_none() {
            return Ok(None);
        }
        let known = {
            let state = self.state.lock();
            state.live(key).map(|live| {
                let marked = live.work.as_deref() == Some(work);
                let ours = marked || state.has_claim(work, key, &live.uid);
                (live.uid.to_string(), ours)
            })
        };
        let (uid, ours) = match known {
            Some(known) => known,
            None => match self.read_meta(&uri).await {
                Ok(Some(meta)) => {
                    let ours = self.is_of(work, key, &meta);
                    (meta.uid, ours)
                }
                Ok(None) => return Ok(None),
                // Whoever lets it go looks for another path.
                Err(error) if lacks_path(&error) => return Ok(None),
                Err(error) => return Err(error),
            },
        };
        let text = format!("{} {}/{}", resource.gvk.kind, key.namespace, key.name);
        Ok(ours
            .then(|| self.hand_over(work, key, &uid, &text))
            .flatten())
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
        let key = &self.state.lock().placed(key);
        if let Some(rule) = self
            .member
            .reserved(&resource.gvk, &key.namespace, &key.name)
        {
            // Not even our marks are taken off there.
            tracing::warn!(object = %key.name, %rule, "left as it is");
            return Ok(());
        }
        let ours = |meta: &LiveMeta| self.is_of(work, key, meta);
        let mut released = self.release_at(&uri, kept_from, ours).await;
        if released.as_ref().is_err_and(lacks_path)
            && let Some((_, uri)) = self.locate_anew(key, &uri).await?
        {
            released = self.release_at(&uri, kept_from, ours).await;
        }
        // What is not there needs no release.
        if !released.as_ref().is_err_and(lacks_path) {
            released?;
        }
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
                Err(error) if is_absent(&error) => return Ok(()),
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
                Err(error) if is_absent(&error) => return Ok(()),
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
                    match self.release_at(&uri, None, ours).await {
                        // Gone since it was listed, with its kind.
                        Err(error) if lacks_path(&error) => continue,
                        released => released?,
                    }
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
