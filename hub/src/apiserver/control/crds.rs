//! CustomResourceDefinitions: their names are accepted, what they define is served, and with them goes
//! what they defined.

mod names;

use super::follow::{News, follow};
use super::{Failed, context, update};
use crate::apiserver::error::ApiError;
use crate::apiserver::registry::Registry;
use crate::apiserver::request::{DeleteOptions, ListOptions};
use crate::apiserver::scheme::Served;
use crate::apiserver::store::{Event, Kind, Scope, Stored};
use crate::apiserver::strategies::crds::{CLEANUP, condition, set_condition};
use bytes::Bytes;
use common::controller::{Controller, Reconcile, Requeue};
use common::queue::Queue;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const KIND: &str = "apiextensions.k8s.io/customresourcedefinitions";
const MANAGER: &str = "kube-apiserver";
/// CRDs that wait for finalizers of their objects are looked at so often.
const EVERY: Duration = Duration::from_millis(500);

/// A CRD as far as it is looked at all the time; schemas are large, and not read for that.
#[derive(Clone)]
struct Held {
    /// All of it, shared with the store.
    json: Bytes,
    /// Without its schemas and their owners.
    brief: Value,
    serves: Served,
}

type Crds = BTreeMap<String, Held>;

impl Held {
    fn read(registry: &Registry, json: Bytes) -> Self {
        let mut brief: Value = serde_json::from_slice(&json).unwrap_or_default();
        let serves = registry.scheme().read(&brief);
        if let Some(metadata) = brief["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
        let versions = brief["spec"]["versions"].as_array_mut();
        for version in versions.into_iter().flatten() {
            version.as_object_mut().map(|one| one.remove("schema"));
        }
        Self {
            json,
            brief,
            serves,
        }
    }

    fn whole(&self) -> Result<Value, ApiError> {
        decoded(&self.json)
    }
}

/// Serves what the store holds.
pub(super) fn load(registry: &Registry) {
    let all = registry.store().snapshot(KIND);
    let crds = read(registry, &all.table.iter().cloned().collect::<Vec<_>>());
    for crd in crds.values() {
        note_shape(registry, &crd.brief);
    }
    serve(registry, &crds);
}

fn read(registry: &Registry, all: &[Arc<Stored>]) -> Crds {
    let read = all.iter();
    read.map(|stored| {
        let held = Held::read(registry, stored.bytes());
        (stored.name().to_owned(), held)
    })
    .collect()
}

fn serve(registry: &Registry, crds: &Crds) {
    let all = crds.values().map(|held| held.serves.clone());
    registry.scheme().serve(all.collect());
}

/// Accepts names, serves and ends what CRDs define; its keys are their names.
pub(super) struct Definitions {
    registry: Registry,
    crds: Mutex<Crds>,
}

pub(super) fn controller(registry: &Registry) -> Controller<Arc<Definitions>> {
    let definitions = Arc::new(Definitions {
        registry: registry.clone(),
        crds: Mutex::default(),
    });
    let heard = Arc::clone(&definitions);
    Controller::new(definitions).source(move |queue| source(Arc::clone(&heard), queue))
}

async fn source(definitions: Arc<Definitions>, queue: Queue<Arc<str>>) {
    let registry = &definitions.registry;
    follow(registry, KIND, Scope::All, |news| {
        let mut crds = definitions.crds();
        match news {
            News::Anything(all) => {
                *crds = read(registry, &all);
                crds.keys().for_each(|name| queue.add(name.as_str().into()));
            }
            News::One(event) => {
                hear(registry, &mut crds, &event);
                queue.add(event.object.name().into());
                // Names that one gives up are another's.
                let refused = |held: &Held| !is(&held.brief, "NamesAccepted");
                let waiting = crds.iter().filter(|(_, held)| refused(held));
                waiting.for_each(|(name, _)| queue.add(name.as_str().into()));
            }
        }
        serve(registry, &crds);
    })
    .await;
}

fn hear(registry: &Registry, crds: &mut Crds, event: &Event) {
    let name = event.object.name();
    if event.kind == Kind::Deleted {
        crds.remove(name);
        return;
    }
    // What was written here comes by as well, and undoes nothing written since:
    // a kind that is served would vanish for a moment.
    let known = crds.get(name).map(|held| revision(&held.brief));
    if known.is_some_and(|known| known >= event.revision()) {
        return;
    }
    let new = Held::read(registry, event.object.bytes());
    let generation = |one: &Held| one.brief["metadata"]["generation"].as_i64();
    let before = crds.get(name).map(generation);
    if before.is_none_or(|before| before != generation(&new)) {
        note_shape(registry, &new.brief);
    }
    crds.insert(name.to_owned(), new);
}

impl Reconcile for Definitions {
    const NAME: &'static str = "customresourcedefinition-controller";
    type Key = Arc<str>;
    type Error = Failed;

    async fn reconcile(&self, name: &Arc<str>) -> Result<Requeue, Failed> {
        let stepped = self.step(name).await;
        stepped.map_err(Failed::to("work on a CustomResourceDefinition"))
    }
}

fn is(crd: &Value, kind: &str) -> bool {
    condition(crd, kind) == Some("True")
}

fn revision(crd: &Value) -> u64 {
    let version = crd["metadata"]["resourceVersion"].as_str();
    version.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Objects that were written before the CRD changed may lack its new defaults.
fn note_shape(registry: &Registry, crd: &Value) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let group = text(&crd["spec"]["group"]);
    let plural = text(&crd["spec"]["names"]["plural"]);
    let version = text(&crd["metadata"]["resourceVersion"]);
    registry.set_reshaped(
        format!("{group}/{plural}").into(),
        version.parse().unwrap_or_default(),
    );
}

fn is_ending(crd: &Value) -> bool {
    let finalizers = crd["metadata"]["finalizers"].as_array();
    crd["metadata"]["deletionTimestamp"].is_string()
        && finalizers.is_some_and(|all| all.iter().any(|one| one == CLEANUP))
}

impl Definitions {
    fn crds(&self) -> MutexGuard<'_, Crds> {
        self.crds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what was written, unless news of something later came first.
    fn note(&self, name: &str, held: Held) {
        let mut crds = self.crds();
        let known = crds.get(name).map(|known| revision(&known.brief));
        if known.is_some_and(|known| known <= revision(&held.brief)) {
            crds.insert(name.to_owned(), held);
        }
    }

    /// Brings one CRD one state further.
    async fn step(&self, name: &str) -> Result<Requeue, ApiError> {
        let Self { registry, .. } = self;
        let now = registry.clock().now();
        let (held, taken) = {
            let crds = self.crds();
            let Some(held) = crds.get(name) else {
                return Ok(Requeue::Never);
            };
            let others = crds.iter().filter(|(other, _)| *other != name);
            let taken = names::taken(others.map(|(_, other)| &other.brief), &held.brief);
            (held.clone(), taken)
        };
        if is_ending(&held.brief) {
            return Ok(match end(registry, held.whole()?).await? {
                true => Requeue::Never,
                false => Requeue::After(EVERY),
            });
        }
        // A schema is read only if there is news.
        let mut brief = names::brief(&held.brief);
        let news = names::accept(&mut brief, &taken, now);
        if !news && (!is(&brief, "NamesAccepted") || is(&brief, "Established")) {
            return Ok(Requeue::Never);
        }
        let mut named = held.whole()?;
        if news {
            named["status"] = brief["status"].take();
            let written = write(registry, "status", &named).await?;
            let held = Held::read(registry, written);
            named = held.whole()?;
            self.note(name, held);
        }
        if is(&named, "NamesAccepted") && !is(&named, "Established") {
            self.establish(name, named).await?;
        }
        Ok(Requeue::Never)
    }

    /// Serves a CRD, and then says so: who sees it established can use it.
    async fn establish(&self, name: &str, named: Value) -> Result<(), ApiError> {
        let Self { registry, .. } = self;
        let mut crd = named.clone();
        set_condition(
            &mut crd,
            "Established",
            "True",
            "InitialNamesAccepted",
            "the initial names have been accepted",
            registry.clock().now(),
        );
        self.note(name, Held::read(registry, crd.to_string().into()));
        serve(registry, &self.crds());
        let written = write(registry, "status", &crd).await;
        let known = match &written {
            Ok(written) => written.clone(),
            Err(_) => named.to_string().into(),
        };
        self.note(name, Held::read(registry, known));
        written.map(|_| ())
    }
}

/// Deletes all objects of a CRD, and then lets it go; whether it did.
async fn end(registry: &Registry, crd: Value) -> Result<bool, ApiError> {
    let mut crd = crd;
    let spec = &crd["spec"];
    let group = spec["group"].as_str().unwrap_or_default();
    let plural = spec["names"]["plural"].as_str().unwrap_or_default();
    let now = registry.clock().now();
    let served = registry.scheme().all();
    let resource = served.iter().find(|one| {
        one.group.as_ref() == group && one.plural.as_ref() == plural && one.is_custom()
    });
    if let Some(resource) = resource {
        let left = || registry.store().snapshot(&resource.storage_key).table.len();
        if left() > 0 {
            let reason = "InstanceDeletionInProgress";
            let message = "CustomResource deletion is in progress";
            let before = crd.clone();
            set_condition(&mut crd, "Terminating", "True", reason, message, now);
            if crd != before {
                crd = decoded(&write(registry, "status", &crd).await?)?;
            }
            let context = context(resource.clone(), "", "", MANAGER);
            let options = DeleteOptions::default();
            registry
                .delete_collection(&context, options, &ListOptions::default())
                .await?;
        }
        if left() > 0 {
            return Ok(false);
        }
    }
    set_condition(
        &mut crd,
        "Terminating",
        "False",
        "InstanceDeletionCompleted",
        "removed all instances",
        now,
    );
    let written = write(registry, "status", &crd).await?;
    let mut crd = decoded(&written)?;
    if let Some(finalizers) = crd["metadata"]["finalizers"].as_array_mut() {
        finalizers.retain(|one| one != CLEANUP);
    }
    write(registry, "", &crd).await.map(|_| true)
}

fn decoded(json: &[u8]) -> Result<Value, ApiError> {
    serde_json::from_slice(json).map_err(ApiError::internal)
}

async fn write(registry: &Registry, subresource: &str, crd: &Value) -> Result<Bytes, ApiError> {
    let kinds = registry.scheme();
    let resource = kinds.resource("apiextensions.k8s.io", "v1", "customresourcedefinitions");
    let Some(resource) = resource else {
        return Err(ApiError::internal("no CustomResourceDefinitions"));
    };
    let name = crd["metadata"]["name"].as_str().unwrap_or_default();
    let context = context(resource, "", name, MANAGER);
    let outcome = update(registry, &context, subresource, crd).await?;
    Ok(outcome.object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::control::testing::start;
    use crate::apiserver::registry::testing::Rig;
    use serde_json::json;

    fn crd() -> Value {
        json!({"metadata": {"name": "toys.x.example"}, "spec": {
            "group": "x.example", "scope": "Namespaced",
            "names": {"plural": "toys", "kind": "Toy", "shortNames": ["ty"]},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {
                        "size": {"type": "integer", "default": 3},
                        "name": {"type": "string"}}},
                    "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}]}})
    }

    async fn until(rig: &Rig, path: &str, holds: impl Fn(Option<&Value>) -> bool) {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
        loop {
            let object = rig.get(path).await.ok();
            if holds(object.as_ref()) {
                return;
            }
            assert!(tokio::time::Instant::now() < deadline, "{object:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    const CRD: &str = "apiextensions.k8s.io/v1/customresourcedefinitions";

    #[tokio::test]
    async fn a_crd_that_could_not_be_written_is_served_later() {
        let kind = "customresourcedefinitions";
        let rig = Rig::over(crate::apiserver::registry::testing::Refusing::updates(
            kind, 2,
        ))
        .await;
        let task = start(&rig, controller(&rig.registry));
        rig.create(CRD, crd()).await;
        let path = format!("{CRD}/toys.x.example");
        until(&rig, &path, |object| {
            object.is_some_and(|it| condition(it, "Established") == Some("True"))
        })
        .await;
        task.abort();
    }

    #[tokio::test]
    async fn a_crd_lives_and_takes_its_objects_with_it() {
        let rig = Rig::new().await;
        let task = start(&rig, controller(&rig.registry));
        let made = rig.create(CRD, crd()).await;
        assert_eq!(made["status"]["storedVersions"], json!(["v1"]));
        let path = format!("{CRD}/toys.x.example");
        until(&rig, &path, |object| {
            object.is_some_and(|it| condition(it, "Established") == Some("True"))
        })
        .await;
        let now = rig.get(&path).await.expect("there");
        assert_eq!(now["status"]["acceptedNames"]["kind"], "Toy");
        let toy = json!({"apiVersion": "x.example/v1", "kind": "Toy", "metadata": {"name": "t",
            "finalizers": ["x.y/z"]}, "spec": {"name": "n", "odd": 1}, "status": {"a": 1}});
        let toy = rig.create("x.example/v1/ns:toys", toy).await;
        assert_eq!(toy["spec"], json!({"name": "n", "size": 3}));
        assert_eq!(toy.get("status"), None);
        assert_eq!(toy["metadata"]["generation"], 1);
        rig.delete(&path, json!({})).await.expect("ends");
        until(&rig, "x.example/v1/ns:toys/t", |object| {
            object.is_some_and(|it| it["metadata"]["deletionTimestamp"].is_string())
        })
        .await;
        rig.patch(
            "x.example/v1/ns:toys/t",
            crate::apiserver::request::PatchKind::Merge,
            json!({"metadata": {"finalizers": null}}),
        )
        .await
        .expect("released");
        until(&rig, &path, |object| object.is_none()).await;
        let mut changes = rig.registry.scheme().changes();
        let kinds = rig.registry.scheme();
        while kinds.resource("x.example", "v1", "toys").is_some() {
            changes.changed().await.expect("the kind goes");
        }
        task.abort();
    }
}
