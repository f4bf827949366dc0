//! A client for hubs that give `update` where we send patches, as Karmada's registration does: a merge
//! patch that is refused is carried out here and sent as an update, and from then on all of its kind are.
//!
//! What the patch says of `resourceVersion` and `uid` goes into the update and means the same there.

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Limited};
use kube::client::Body;
use serde_json::Value;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use tower::BoxError;

/// Longest object that is read to be updated.
const OBJECT_MAX: usize = 16 * 1024 * 1024;
/// How often an update is tried that met a newer version, when the patch asks for none.
const TRIES: usize = 3;

/// What is updated instead of patched: resources as rights name them, `works/status` for one.
#[derive(Debug, Clone, Default)]
pub struct ByUpdate(Arc<Mutex<HashSet<String>>>);

impl ByUpdate {
    /// A client over `client`. Clients of the same `ByUpdate` remember together.
    pub fn client(&self, client: kube::Client) -> kube::Client {
        let this = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (this, client) = (this.clone(), client.clone());
            async move { this.send(client, request).await }
        });
        kube::Client::new::<_, Body, _>(service, "default")
    }

    async fn send(
        &self,
        client: kube::Client,
        request: Request<Body>,
    ) -> Result<Response<Body>, BoxError> {
        let is_merge = request.method() == Method::PATCH
            && request
                .headers()
                .get(header::CONTENT_TYPE)
                .is_some_and(|kind| kind == "application/merge-patch+json");
        let Some(resource) = resource(request.uri()).filter(|_| is_merge) else {
            return Ok(client.send(request).await?);
        };
        let (head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let mut refusal = None;
        if !self.remembered().contains(&resource) {
            let patch = Request::from_parts(head.clone(), Body::from(body.to_vec()));
            let answer = client.send(patch).await?;
            if answer.status() != StatusCode::FORBIDDEN {
                return Ok(answer);
            }
            refusal = Some(answer);
        }
        let updated = update(&client, &head, &body).await?;
        if updated.status() == StatusCode::FORBIDDEN
            && let Some(refusal) = refusal
        {
            // Neither is allowed: what was asked for first is what to tell.
            return Ok(refusal);
        }
        if updated.status().is_success() && self.remembered().insert(resource.clone()) {
            tracing::info!(resource, "the hub gives update and not patch: updating");
        }
        Ok(updated)
    }

    fn remembered(&self) -> std::sync::MutexGuard<'_, HashSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the object, changes it as the patch says, and sends it whole.
async fn update(
    client: &kube::Client,
    head: &http::request::Parts,
    patch: &Bytes,
) -> Result<Response<Body>, BoxError> {
    let patch: Value = serde_json::from_slice(patch)?;
    let pinned = patch.pointer("/metadata/resourceVersion").is_some();
    let path = head.uri.path();
    // The object itself: few have the right to read a subresource.
    let whole = object_path(path).unwrap_or(path);
    let mut tries = 0;
    loop {
        tries += 1;
        let get = Request::get(whole)
            .header(header::ACCEPT, "application/json")
            .body(Body::empty())?;
        let answer = client.send(get).await?;
        if !answer.status().is_success() {
            return Ok(answer);
        }
        let (answered, body) = answer.into_parts();
        let body = Limited::new(body, OBJECT_MAX).collect().await?.to_bytes();
        let before: Value = serde_json::from_slice(&body)?;
        let mut after = before.clone();
        json_patch::merge(&mut after, &patch);
        if after == before {
            return Ok(Response::from_parts(answered, Body::from(body.to_vec())));
        }
        let mut put =
            Request::put(head.uri.clone()).header(header::CONTENT_TYPE, "application/json");
        if let Some(accept) = head.headers.get(header::ACCEPT) {
            put = put.header(header::ACCEPT, accept);
        }
        let put = put.body(Body::from(serde_json::to_vec(&after)?))?;
        let answer = client.send(put).await?;
        if answer.status() != StatusCode::CONFLICT || pinned || tries >= TRIES {
            return Ok(answer);
        }
    }
}

/// The parts of the path of one object: its resource, its name, and the subresource if there is one.
fn parts(path: &str) -> Option<(&str, &str, Option<&str>)> {
    let mut words = path.split('/').filter(|word| !word.is_empty());
    // The version, or the group and the version.
    let skipped = match words.next()? {
        "api" => 1,
        "apis" => 2,
        _ => return None,
    };
    let words: Vec<&str> = words.skip(skipped).collect();
    match words[..] {
        ["namespaces", _, resource, name] | [resource, name] => Some((resource, name, None)),
        ["namespaces", _, resource, name, sub] | [resource, name, sub] => {
            Some((resource, name, Some(sub)))
        }
        _ => None,
    }
}

fn resource(uri: &Uri) -> Option<String> {
    let (resource, _, sub) = parts(uri.path())?;
    Some(match sub {
        Some(sub) => format!("{resource}/{sub}"),
        None => resource.to_owned(),
    })
}

/// The path of the object, without its subresource.
fn object_path(path: &str) -> Option<&str> {
    let (_, _, sub) = parts(path)?;
    match sub {
        Some(sub) => path.strip_suffix(sub)?.strip_suffix('/'),
        None => Some(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::api::{Api, DynamicObject, Patch, PatchParams};
    use kube::core::{ApiResource, GroupVersionKind};
    use serde_json::json;

    /// One object, as a hub keeps it that gives these verbs, and the requests that came.
    struct Hub {
        verbs: &'static [Method],
        object: Value,
        /// How many updates meet a newer version first.
        conflicts: usize,
        asked: Vec<String>,
    }

    type Shared = Arc<Mutex<Hub>>;

    fn hub(verbs: &'static [Method], conflicts: usize) -> (Shared, kube::Client) {
        let object = json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
            "metadata": {"name": "w", "namespace": "es", "resourceVersion": "5"},
            "spec": {"workload": {}}, "status": {"conditions": []}});
        let hub = Arc::new(Mutex::new(Hub {
            verbs,
            object,
            conflicts,
            asked: Vec::new(),
        }));
        let shared = hub.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let hub = shared.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await?.to_bytes();
                let mut hub = hub.lock().expect("no panic");
                hub.asked
                    .push(format!("{} {}", head.method, head.uri.path()));
                let (code, answer) = if !hub.verbs.contains(&head.method) {
                    (
                        403,
                        json!({"kind": "Status", "code": 403, "reason": "Forbidden",
                        "message": format!("cannot {}", head.method)}),
                    )
                } else if head.method == Method::PUT && hub.conflicts > 0 {
                    hub.conflicts -= 1;
                    (
                        409,
                        json!({"kind": "Status", "code": 409, "reason": "Conflict"}),
                    )
                } else {
                    if head.method != Method::GET {
                        hub.object = serde_json::from_slice(&body)?;
                    }
                    (200, hub.object.clone())
                };
                let mut answer = Response::new(Body::from(answer.to_string().into_bytes()));
                *answer.status_mut() = StatusCode::from_u16(code)?;
                Ok::<_, BoxError>(answer)
            }
        });
        (hub, kube::Client::new(service, "default"))
    }

    async fn patch(client: &kube::Client, patch: &Value) -> Result<(), u16> {
        let gvk = GroupVersionKind::gvk("work.karmada.io", "v1alpha1", "Work");
        let api: Api<DynamicObject> =
            Api::namespaced_with(client.clone(), "es", &ApiResource::from_gvk(&gvk));
        let done = api
            .patch_status("w", &PatchParams::default(), &Patch::Merge(patch))
            .await;
        match done {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) => Err(status.code),
            Err(_) => Err(0),
        }
    }

    const WORK: &str = "/apis/work.karmada.io/v1alpha1/namespaces/es/works/w";

    #[tokio::test]
    async fn where_patches_are_refused_updates_are_sent_and_that_is_remembered() {
        let (hub, client) = hub(&[Method::GET, Method::PUT], 1);
        let client = ByUpdate::default().client(client);
        let report = json!({"status": {"conditions": [{"type": "Applied"}]}});
        assert_eq!(patch(&client, &report).await, Ok(()));
        let object = hub.lock().expect("no panic").object.clone();
        assert_eq!(object["status"]["conditions"][0]["type"], "Applied");
        assert_eq!(object["metadata"]["resourceVersion"], "5", "as it was read");
        let status = format!("{WORK}/status");
        let get_put = [format!("GET {WORK}"), format!("PUT {status}")];
        let mut want = vec![format!("PATCH {status}")];
        // Once more: the first update met a newer version.
        want.extend(get_put.iter().chain(&get_put).cloned());
        assert_eq!(hub.lock().expect("no panic").asked, want);
        // A second one: no patch is tried, and what changes nothing is not written.
        assert_eq!(patch(&client, &report).await, Ok(()));
        want.push(format!("GET {WORK}"));
        assert_eq!(hub.lock().expect("no panic").asked, want);
    }

    #[tokio::test]
    async fn a_version_in_the_patch_is_a_condition_of_the_update() {
        let (hub, client) = hub(&[Method::GET, Method::PUT], 1);
        let client = ByUpdate::default().client(client);
        let report = json!({"metadata": {"resourceVersion": "4"}, "status": {}, "spec": null});
        assert_eq!(patch(&client, &report).await, Err(409));
        assert_eq!(
            hub.lock().expect("no panic").asked.len(),
            3,
            "the caller reads anew"
        );
    }

    #[tokio::test]
    async fn patches_that_are_taken_cost_nothing_more_and_refusals_are_told() {
        let (shared, client) = hub(&[Method::PATCH], 0);
        let client = ByUpdate::default().client(client);
        assert_eq!(patch(&client, &json!({"status": {}})).await, Ok(()));
        assert_eq!(shared.lock().expect("no panic").asked.len(), 1);
        let (shared, client) = hub(&[Method::GET], 0);
        let client = ByUpdate::default().client(client);
        assert_eq!(patch(&client, &json!({"status": {"x": 1}})).await, Err(403));
        assert_eq!(shared.lock().expect("no panic").asked.len(), 3);
    }

    #[test]
    fn resources_are_named_as_rights_name_them() {
        let name = |path: &str| resource(&path.parse().expect("a path"));
        assert_eq!(
            name(&format!("{WORK}/status?x=1")).as_deref(),
            Some("works/status")
        );
        assert_eq!(name(WORK).as_deref(), Some("works"));
        let cluster = "/apis/cluster.karmada.io/v1alpha1/clusters/c/status";
        assert_eq!(name(cluster).as_deref(), Some("clusters/status"));
        assert_eq!(object_path(cluster), cluster.strip_suffix("/status"));
        assert_eq!(name("/api/v1/namespaces/n").as_deref(), Some("namespaces"));
        assert_eq!(name("/version"), None);
    }
}
