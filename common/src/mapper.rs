//! From kinds to resources, by what an API server itself says.
//!
//! Each group version is asked for once and kept; a kind that is not in it makes it be asked again, for a
//! CustomResourceDefinition may have come.

use crate::gvk::Gvk;
use crate::rest::{Call, Error, JSON, Reply};
use kube::core::ApiResource;
use serde::Deserialize;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// How a kind is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    /// The kind.
    pub gvk: Gvk,
    /// Plural name, as in URLs.
    pub plural: String,
    /// Whether its objects lie in namespaces.
    pub namespaced: bool,
}

impl Resource {
    /// `resource.group`, as roles and `--allow` name it.
    pub fn qualified(&self) -> String {
        if self.gvk.group.is_empty() {
            self.plural.clone()
        } else {
            format!("{}.{}", self.plural, self.gvk.group)
        }
    }

    /// The URL of the collection over all namespaces.
    pub fn collection(&self) -> String {
        format!(
            "{}/{}",
            group_version_path(&self.gvk.api_version()),
            self.plural
        )
    }

    /// The URL of the collection in one namespace.
    pub fn collection_in(&self, namespace: &str) -> String {
        let base = group_version_path(&self.gvk.api_version());
        format!("{base}/namespaces/{namespace}/{}", self.plural)
    }

    /// As kube names it.
    pub fn api_resource(&self) -> ApiResource {
        ApiResource {
            group: self.gvk.group.clone(),
            version: self.gvk.version.clone(),
            api_version: self.gvk.api_version(),
            kind: self.gvk.kind.clone(),
            plural: self.plural.clone(),
        }
    }

    /// The URL of an object. Of some kinds a name may hold what ends a path in a URL.
    pub fn object(&self, namespace: &str, name: &str) -> String {
        let base = group_version_path(&self.gvk.api_version());
        let name = segment(name);
        if self.namespaced {
            format!("{base}/namespaces/{namespace}/{}/{name}", self.plural)
        } else {
            format!("{base}/{}/{name}", self.plural)
        }
    }
}

/// A text as one segment of a path, or one value of a query.
pub fn segment(text: &str) -> String {
    let mut segment = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' => segment.push(char::from(byte)),
            b'-' | b'.' | b'_' | b'~' | b':' | b'@' => segment.push(char::from(byte)),
            _ => segment.push_str(&format!("%{byte:02X}")),
        }
    }
    segment
}

#[derive(Deserialize)]
struct ApiResources {
    #[serde(default)]
    resources: Vec<ApiResourceEntry>,
}

#[derive(Deserialize)]
struct ApiResourceEntry {
    #[serde(default)]
    name: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    namespaced: bool,
    #[serde(default)]
    verbs: Vec<String>,
}

/// A resource, and what can be done with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    /// The resource.
    pub resource: Resource,
    /// Verbs, as `list` and `patch`.
    pub verbs: Vec<String>,
}

impl Served {
    /// Whether it knows a verb.
    pub fn can(&self, verb: &str) -> bool {
        self.verbs.iter().any(|known| known == verb)
    }
}

/// Where the resources of a group version are told.
pub fn group_version_path(api_version: &str) -> String {
    if api_version.contains('/') {
        format!("/apis/{api_version}")
    } else {
        format!("/api/{api_version}")
    }
}

/// The resources that are told there, without subresources.
pub fn resources(api_version: &str, reply: &Reply) -> Result<Vec<Served>, Error> {
    let list: ApiResources = reply.json()?;
    let main = list.resources.into_iter().filter(|r| !r.name.contains('/'));
    let served = main.filter_map(|entry| {
        Some(Served {
            resource: Resource {
                gvk: Gvk::new(api_version, &entry.kind)?,
                plural: entry.name,
                namespaced: entry.namespaced,
            },
            verbs: entry.verbs,
        })
    });
    Ok(served.collect())
}

#[derive(Deserialize)]
struct ApiGroup {
    #[serde(default)]
    versions: Vec<ApiGroupVersion>,
}

#[derive(Deserialize)]
struct ApiGroupVersion {
    #[serde(default)]
    version: String,
}

/// The kinds of one API server, as far as they were asked for.
#[derive(Debug, Default)]
pub struct RestMapper {
    known: Mutex<HashMap<Gvk, Arc<Resource>>>,
}

impl RestMapper {
    /// A kind that was resolved before.
    pub fn known(&self, gvk: &Gvk) -> Option<Arc<Resource>> {
        self.known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(gvk)
            .cloned()
    }

    /// Forgets a kind that turned out to be gone.
    pub fn forget(&self, gvk: &Gvk) {
        self.known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(gvk);
    }

    /// Resolves a kind; none when the member does not serve it now.
    pub async fn resolve(
        &self,
        client: &kube::Client,
        gvk: &Gvk,
    ) -> Result<Option<Arc<Resource>>, Error> {
        if let Some(known) = self.known(gvk) {
            return Ok(Some(known));
        }
        let api_version = gvk.api_version();
        let uri = group_version_path(&api_version);
        let reply = match Call::get(&uri, JSON).send(client).await {
            Ok(reply) => reply,
            Err(error) if error.code() == Some(404) => return Ok(None),
            Err(error) => return Err(error),
        };
        // What cannot be patched cannot be delivered.
        let mut served = resources(&api_version, &reply)?.into_iter();
        let found = served.find(|served| served.resource.gvk == *gvk && served.can("patch"));
        Ok(found.map(|found| {
            let resource = Arc::new(found.resource);
            self.known
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(gvk.clone(), resource.clone());
            resource
        }))
    }
}

impl RestMapper {
    /// Resolves a kind in another version of its group, the one that the API server prefers of those that serve it;
    /// none when it serves the kind in no other version. A version that is down hides its kinds, and no others: it is
    /// an error only when no other one has the kind.
    pub async fn resolve_other(
        &self,
        client: &kube::Client,
        gvk: &Gvk,
    ) -> Result<Option<Arc<Resource>>, Error> {
        let mut refused = None;
        for version in versions(client, &gvk.group).await? {
            if version == gvk.version {
                continue;
            }
            let other = Gvk {
                version,
                ..gvk.clone()
            };
            match self.resolve(client, &other).await {
                Ok(None) => {}
                Err(error) if error.code().is_some() => refused = refused.or(Some(error)),
                found => return found,
            }
        }
        refused.map_or(Ok(None), Err)
    }
}

/// The versions of a group, in the order in which the API server prefers them.
async fn versions(client: &kube::Client, group: &str) -> Result<Vec<String>, Error> {
    if group.is_empty() {
        // Kubernetes has no other one.
        return Ok(vec!["v1".to_owned()]);
    }
    let reply = match Call::get(&format!("/apis/{group}"), JSON)
        .send(client)
        .await
    {
        Ok(reply) => reply,
        Err(error) if error.code() == Some(404) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let group: ApiGroup = reply.json()?;
    Ok(group.versions.into_iter().map(|it| it.version).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let resource = |version: &str, kind: &str, plural: &str, namespaced| Resource {
            gvk: Gvk::new(version, kind).expect("sound"),
            plural: plural.into(),
            namespaced,
        };
        let cm = resource("v1", "ConfigMap", "configmaps", true);
        assert_eq!(cm.object("n", "a"), "/api/v1/namespaces/n/configmaps/a");
        assert_eq!(cm.qualified(), "configmaps");
        let role = resource(
            "rbac.authorization.k8s.io/v1",
            "ClusterRole",
            "clusterroles",
            false,
        );
        assert_eq!(
            role.object("", "system:x"),
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:x"
        );
        assert_eq!(role.qualified(), "clusterroles.rbac.authorization.k8s.io");
    }

    #[test]
    fn a_name_is_one_segment_whatever_it_holds() {
        for (name, want) in [
            ("web", "web"),
            ("system:x@y.z-1_~", "system:x@y.z-1_~"),
            ("admin?dryRun=All", "admin%3FdryRun%3DAll"),
            ("a b#c/../%2f", "a%20b%23c%2F..%2F%252f"),
            ("\u{fc}", "%C3%BC"),
        ] {
            assert_eq!(segment(name), want);
        }
    }
}
