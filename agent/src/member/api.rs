//! The member's API with what holds for every request about Works: so many at a time, kinds as the member
//! serves them, and what no Work reaches.

use super::kinds::Kinds;
use common::gvk::Gvk;
use common::mapper::{Resource, RestMapper, group_version_path, resources};
use common::reserved::{Named, Reserved, Rule};
use common::rest::{Call, Error, JSON, Reply};
use serde_json::Value;
use std::collections::HashSet;
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

    /// How a kind is served in whatever version of its group, the named one before others: an object is there in each
    /// of them, also when it was applied in one that is not served any more.
    pub async fn resolve_any(&self, gvk: &Gvk) -> Result<Option<Arc<Resource>>, Error> {
        if let Some(resource) = self.resolve(gvk).await? {
            return Ok(Some(resource));
        }
        let _permit = self.permits.acquire().await;
        self.mapper.resolve_other(&self.client, gvk).await
    }

    /// Asks anew, when it is wanted next, how a kind is served. Whoever watches it goes on.
    pub fn resolve_anew(&self, gvk: &Gvk) {
        self.mapper.forget(gvk);
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
        let groups: Value = self.ask(Call::get("/apis", JSON)).await?.json()?;
        let mut kinds = Vec::new();
        let mut seen = HashSet::new();
        for version in versions(&groups) {
            let uri = group_version_path(&version);
            // An aggregated API that is down hides its kinds, and no others.
            let reply = match self.ask(Call::get(&uri, JSON)).await {
                Ok(reply) => reply,
                Err(error) if error.code().is_some() => continue,
                Err(error) => return Err(error),
            };
            let served = resources(&version, &reply)?.into_iter();
            let whole = served.filter(|served| served.can("list") && served.can("patch"));
            for served in whole {
                if seen.insert(served.resource.gvk.group_kind()) {
                    kinds.push(Arc::new(served.resource));
                }
            }
        }
        Ok(kinds)
    }
}

/// Every version of every group, the preferred one of each before its others: some kinds are in those alone.
fn versions(groups: &Value) -> Vec<String> {
    let mut versions = vec!["v1".to_owned()];
    for group in groups["groups"].as_array().into_iter().flatten() {
        let others = group["versions"].as_array().into_iter().flatten();
        for version in std::iter::once(&group["preferredVersion"]).chain(others) {
            if let Some(version) = version["groupVersion"].as_str()
                && !versions.iter().any(|known| known == version)
            {
                versions.push(version.to_owned());
            }
        }
    }
    versions
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{json as answer, service};
    use serde_json::json;

    /// A Namespace is judged by what it holds: also by objects of kinds that the preferred version lacks.
    #[tokio::test]
    async fn a_kind_is_found_in_whichever_version_it_is_served() {
        let client = service(|request| async move {
            let kinds = |kinds: &[&str]| {
                let kind = |kind: &&str| {
                    json!({"name": kind.to_lowercase(), "kind": kind, "namespaced": true,
                        "verbs": ["list", "patch"]})
                };
                json!({"resources": kinds.iter().map(kind).collect::<Vec<_>>()})
            };
            let version = |version: &str| json!({"groupVersion": format!("example.org/{version}")});
            let told = match request.uri().path() {
                "/api/v1" => kinds(&["Pod"]),
                "/apis" => json!({"groups": [{"preferredVersion": version("v1"),
                    "versions": [version("v1"), version("v1alpha1")]}]}),
                "/apis/example.org/v1" => kinds(&["Till"]),
                _ => kinds(&["Till", "Drawer"]),
            };
            answer(200, &told)
        });
        let reserved = Reserved::new("towline-system", [""; 0]).expect("sound");
        let member = Member::new(client, Arc::new(Semaphore::new(1)), reserved);
        let kinds = member.all_kinds().await.expect("told");
        let told: Vec<String> = kinds.iter().map(|it| it.gvk.to_string()).collect();
        let want = [
            "v1, Kind=Pod",
            "example.org/v1, Kind=Till",
            "example.org/v1alpha1, Kind=Drawer",
        ];
        assert_eq!(told, want);
    }
}
