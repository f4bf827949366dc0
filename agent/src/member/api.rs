//! The member's API with what holds for every request about Works: so many at a time, kinds as the member
//! serves them, and what no Work reaches.

use super::kinds::Kinds;
use common::gvk::Gvk;
use common::mapper::{Resource, RestMapper, group_version_path, resources};
use common::reserved::{Named, Reserved, Rule};
use common::rest::{Call, Error, JSON, Reply};
use serde_json::Value;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// The member's API.
pub struct Member {
    client: kube::Client,
    permits: Arc<Semaphore>,
    mapper: RestMapper,
    /// Which kinds are watched.
    pub kinds: Kinds,
    reserved: Reserved,
}

impl Member {
    /// The API behind `client`; `permits` bounds the requests at the same time.
    pub fn new(client: kube::Client, permits: Arc<Semaphore>, reserved: Reserved) -> Self {
        Self {
            client,
            permits,
            mapper: RestMapper::default(),
            kinds: Kinds::default(),
            reserved,
        }
    }

    /// The client, for watches.
    pub fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// Sends a request, within the limit.
    pub async fn ask(&self, call: Call<'_>) -> Result<Reply, Error> {
        let _permit = self.permits.acquire().await;
        call.send(&self.client).await
    }

    /// How a kind is served; none when it is not served now.
    pub async fn resolve(&self, gvk: &Gvk) -> Result<Option<Arc<Resource>>, Error> {
        if let Some(known) = self.mapper.known(gvk) {
            return Ok(Some(known));
        }
        let _permit = self.permits.acquire().await;
        self.mapper.resolve(&self.client, gvk).await
    }

    /// The namespace of an object that a manifest puts into `named`: none for cluster-scoped kinds. Has the kind
    /// watched.
    pub async fn namespace_of<'n>(&self, gvk: &Gvk, named: &'n str) -> &'n str {
        let namespaced = match self.resolve(gvk).await {
            Ok(Some(resource)) => {
                self.kinds.ensure(&resource);
                resource.namespaced
            }
            _ => !named.is_empty(),
        };
        if namespaced { named } else { "" }
    }

    /// Forgets a kind that the member does not serve any more; a Work that names it brings it back.
    pub fn forget(&self, gvk: &Gvk) {
        self.mapper.forget(gvk);
        self.kinds.forget(gvk);
    }

    /// The rule that keeps Works from an object of the member, if there is one.
    pub fn reserved(&self, gvk: &Gvk, namespace: &str, name: &str) -> Option<Rule> {
        self.reserved.rule(Named {
            group: &gvk.group,
            kind: &gvk.kind,
            namespace,
            name,
        })
    }

    /// Every kind that can be listed and patched, in one version each.
    pub async fn all_kinds(&self) -> Result<Vec<Arc<Resource>>, Error> {
        let mut versions = vec!["v1".to_owned()];
        let groups: Value = self.ask(Call::get("/apis", JSON)).await?.json()?;
        for group in groups["groups"].as_array().into_iter().flatten() {
            if let Some(version) = group["preferredVersion"]["groupVersion"].as_str() {
                versions.push(version.to_owned());
            }
        }
        let mut kinds = Vec::new();
        for version in versions {
            let uri = group_version_path(&version);
            // An aggregated API that is down hides its kinds, and no others.
            let reply = match self.ask(Call::get(&uri, JSON)).await {
                Ok(reply) => reply,
                Err(error) if error.code().is_some() => continue,
                Err(error) => return Err(error),
            };
            let served = resources(&version, &reply)?.into_iter();
            let whole = served.filter(|served| served.can("list") && served.can("patch"));
            kinds.extend(whole.map(|served| Arc::new(served.resource)));
        }
        Ok(kinds)
    }
}
