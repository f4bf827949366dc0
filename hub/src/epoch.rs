//! Closes every open Work watch, by changing an epoch in the title of the schema of the Works CRD.
//!
//! A watch is authorized once, when it starts; it outlives the binding that allowed it. A CRD whose spec
//! changes is served by a new handler, and the watches of the old one end within about two seconds.
//! So after a registration's rights are taken away, and before anything is written that its agent must
//! not see, the hub raises the epoch and waits until a watch of its own has ended. It ends everybody's watches, each of
//! which is opened again: those who need that at about the same time share one ([`Rounds`]).
//!
//! The epoch is the last line of the schema's title, which `kubectl explain` does not print: text that
//! means nothing to anyone, that survives `kubectl apply` of the same CRD only because [`carry`] puts it
//! back. Hubs of before kept it behind the description; it is taken from there when it rises.

mod rounds;

pub use rounds::Rounds;

use common::identity::AgentSubject;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, Error as KubeError};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};

/// The CRD whose watches are closed.
pub const WORKS_CRD: &str = "works.work.karmada.io";
const MARK: &str = "Watch epoch: ";
/// Authorizers learn of a binding by a watch of their own; the rights must be gone when watches close.
const AUTHORIZER_LAG: Duration = Duration::from_millis(200);
/// Of several API servers the probe speaks for one; the others see the change at about the same time.
const OTHER_SERVERS: Duration = Duration::from_millis(800);
/// An API server ends in-flight requests first, at most twice its request timeout.
const CLOSE_DEADLINE: Duration = Duration::from_secs(125);
const DENY_DEADLINE: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(50);
/// Two hubs never write this at once (one leads), but `init` may be repairing the CRD.
const CONFLICT_RETRIES: usize = 8;

/// Why watches could not be closed, or not be seen to close.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A request to the API server failed.
    #[error("failed to {doing}")]
    Request {
        /// What was being done.
        doing: &'static str,
        /// The cause.
        #[source]
        source: Box<KubeError>,
    },
    /// The CRD lost a race too often.
    #[error("failed to raise the watch epoch: the Works CRD kept changing")]
    Conflict,
    /// The probe watch did not end.
    #[error("failed to see Work watches close within {0:?}")]
    StillOpen(Duration),
    /// The rights did not go.
    #[error("failed to see the rights of {0:?} end")]
    StillAllowed(String),
    /// What was done for several together failed.
    #[error(transparent)]
    Together(Arc<Error>),
}

/// Raises the epoch and waits until the Work watches that were open have ended.
pub async fn bump_and_wait(client: &Client) -> Result<(), Error> {
    sleep(AUTHORIZER_LAG).await;
    close(client, || {}).await
}

/// Closes every watch that is open when this `begins`; authorizers must know by then whose rights are gone.
async fn close(client: &Client, begins: impl FnOnce()) -> Result<(), Error> {
    let works = ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk("work.karmada.io", "v1alpha1", "Work"),
        "works",
    );
    let works: Api<DynamicObject> = Api::all_with(client.clone(), &works);
    // A Work of this name cannot exist (upper case), so the probe is as cheap as a watch can be.
    let params = WatchParams::default()
        .fields("metadata.name=EPOCH-PROBE")
        .timeout(290);
    let deadline = Instant::now() + CLOSE_DEADLINE;
    let probe = loop {
        match works.watch(&params, "0").await {
            Ok(probe) => break probe,
            // The storage of a CRD that changed just now is not ready yet.
            Err(KubeError::Api(status)) if status.code == 429 && Instant::now() < deadline => {
                sleep(POLL).await;
            }
            Err(source) => return Err(request("open a watch on Works")(source)),
        }
    };
    begins();
    raise(client).await?;
    let mut probe = probe.boxed();
    loop {
        match timeout_at(deadline, probe.try_next()).await {
            Err(_) => return Err(Error::StillOpen(CLOSE_DEADLINE)),
            Ok(Ok(Some(WatchEvent::Bookmark(_)))) => {}
            // An end, an error, a broken connection: this watch is over.
            Ok(_) => break,
        }
    }
    sleep(OTHER_SERVERS).await;
    Ok(())
}

/// Waits until the authorizer refuses `subject` its own Works: a watch opened from now on is refused.
pub async fn await_denied(client: &Client, subject: &AgentSubject) -> Result<(), Error> {
    let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(subject.common_name()),
            groups: Some(subject.organizations().to_vec()),
            resource_attributes: Some(ResourceAttributes {
                group: Some("work.karmada.io".to_owned()),
                resource: Some("works".to_owned()),
                verb: Some("watch".to_owned()),
                namespace: Some(subject.cluster.execution_namespace()),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let deadline = Instant::now() + DENY_DEADLINE;
    loop {
        let answer = reviews
            .create(&PostParams::default(), &review)
            .await
            .map_err(request("ask what an agent may do"))?;
        if !answer.status.is_some_and(|status| status.allowed) {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(Error::StillAllowed(subject.common_name()));
        }
        sleep(POLL).await;
    }
}

/// Copies the epoch of the CRD that is `live` into `desired`, so that a repair does not close watches.
pub fn carry(live: &Value, desired: &mut Value) {
    const SCHEMA: &str = "/schema/openAPIV3Schema";
    let lived = live["spec"]["versions"].as_array();
    let versions = desired["spec"]["versions"].as_array_mut();
    for version in versions.into_iter().flatten() {
        let mut lived = lived.into_iter().flatten();
        let lived = lived.find(|one| one["name"] == version["name"]);
        let said = |field: &str| {
            let schema = lived.and_then(|one| one.pointer(SCHEMA))?;
            split(schema.get(field)?.as_str()?).1
        };
        let (Some(epoch), Some(schema)) = (
            said("title").or_else(|| said("description")),
            version.pointer_mut(SCHEMA),
        ) else {
            continue;
        };
        let base = schema["title"].as_str().unwrap_or_default();
        schema["title"] = json!(stamp(split(base).0, epoch));
    }
}

/// Writes the next epoch into every version of the CRD.
async fn raise(client: &Client) -> Result<(), Error> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    for _ in 0..CONFLICT_RETRIES {
        let crd = crds
            .get(WORKS_CRD)
            .await
            .map_err(request("read the Works CRD"))?;
        let patch = next_epoch(&crd);
        let patch = serde_json::from_value(patch).expect("invariant: built as a JSON patch");
        let patched = crds
            .patch(
                WORKS_CRD,
                &PatchParams::default(),
                &Patch::<()>::Json(patch),
            )
            .await;
        match patched {
            Ok(_) => return Ok(()),
            Err(KubeError::Api(status)) if status.is_conflict() => {}
            Err(source) => return Err(request("raise the watch epoch")(source)),
        }
    }
    Err(Error::Conflict)
}

/// The JSON patch that raises the epoch of `crd` if nobody wrote it meanwhile.
fn next_epoch(crd: &CustomResourceDefinition) -> Value {
    let mut patch = vec![json!({
        "op": "replace",
        "path": "/metadata/resourceVersion",
        "value": crd.metadata.resource_version,
    })];
    for (index, version) in crd.spec.versions.iter().enumerate() {
        let schema = version
            .schema
            .as_ref()
            .and_then(|s| s.open_api_v3_schema.as_ref());
        let Some(schema) = schema else { continue };
        let (title, epoch) = split(schema.title.as_deref().unwrap_or_default());
        let (description, older) = split(schema.description.as_deref().unwrap_or_default());
        let mut put = |field: &str, value: String| {
            let path = format!("/spec/versions/{index}/schema/openAPIV3Schema/{field}");
            patch.push(json!({"op": "add", "path": path, "value": value}));
        };
        let next = epoch.or(older).unwrap_or(0).wrapping_add(1);
        put("title", stamp(title, next));
        if older.is_some() {
            put("description", description.to_owned());
        }
    }
    Value::Array(patch)
}

fn stamp(base: &str, epoch: u64) -> String {
    let between = if base.is_empty() { "" } else { "\n" };
    format!("{base}{between}{MARK}{epoch}")
}

/// Splits a text into what it says and the epoch on its last line.
fn split(text: &str) -> (&str, Option<u64>) {
    let (base, last) = text.rsplit_once('\n').unwrap_or(("", text));
    match last.strip_prefix(MARK).and_then(|epoch| epoch.parse().ok()) {
        Some(epoch) => (base, Some(epoch)),
        None => (text, None),
    }
}

fn request(doing: &'static str) -> impl FnOnce(KubeError) -> Error {
    move |source| Error::Request {
        doing,
        source: Box::new(source),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crd(schema: Value) -> CustomResourceDefinition {
        let mut shown = json!({"type": "object"});
        for (field, text) in schema.as_object().into_iter().flatten() {
            shown[field] = text.clone();
        }
        serde_json::from_value(json!({
            "metadata": {"name": WORKS_CRD, "resourceVersion": "7"},
            "spec": {
                "group": "work.karmada.io",
                "names": {"kind": "Work", "plural": "works"},
                "scope": "Namespaced",
                "versions": [{
                    "name": "v1alpha1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": shown},
                }],
            },
        }))
        .expect("a CRD")
    }

    #[test]
    fn an_epoch_rises_where_nobody_reads_it_and_texts_of_people_stay() {
        let path = |field: &str| format!("/spec/versions/0/schema/openAPIV3Schema/{field}");
        let put =
            |field: &str, text: &str| json!({"op": "add", "path": path(field), "value": text});
        for (before, after) in [
            (json!({}), vec![put("title", "Watch epoch: 1")]),
            (
                json!({"title": "Works", "description": "Works."}),
                vec![put("title", "Works\nWatch epoch: 1")],
            ),
            (
                json!({"title": "Works\nWatch epoch: 41"}),
                vec![put("title", "Works\nWatch epoch: 42")],
            ),
            (
                json!({"title": "Watch epoch: x"}),
                vec![put("title", "Watch epoch: x\nWatch epoch: 1")],
            ),
            (
                json!({"description": "Works.\nWatch epoch: 4"}),
                vec![put("title", "Watch epoch: 5"), put("description", "Works.")],
            ),
        ] {
            let patch = next_epoch(&crd(before.clone()));
            assert_eq!(patch[0]["value"], "7");
            let rest = patch.as_array().map(|all| all[1..].to_vec());
            assert_eq!(rest, Some(after), "{before}");
        }
    }

    #[test]
    fn a_repair_keeps_the_epoch_and_nothing_else() {
        let carried = |live: Value| {
            let value = |schema| serde_json::to_value(crd(schema)).expect("JSON");
            let mut desired = value(json!({"description": "New words."}));
            carry(&value(live), &mut desired);
            let schema = &desired["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
            assert_eq!(schema["description"], "New words.");
            schema["title"].clone()
        };
        let of = |epoch: &str| json!(epoch);
        let live = json!({"title": "Old\nWatch epoch: 5", "description": "Old words."});
        assert_eq!(carried(live), of("Watch epoch: 5"));
        let older = json!({"description": "Old words.\nWatch epoch: 5"});
        assert_eq!(carried(older), of("Watch epoch: 5"));
        assert_eq!(carried(json!({"title": "Old"})), Value::Null);
    }
}
