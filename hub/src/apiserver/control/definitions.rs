//! CustomResourceDefinitions: their names are accepted, what they define is served, and with them goes
//! what they defined.

mod names;

use super::follow::{Follow, News};
use super::{context, update, warn};
use crate::apiserver::error::ApiError;
use crate::apiserver::registry::{DeleteOptions, ListOptions, Registry};
use crate::apiserver::store::{Kind, Stored};
use crate::apiserver::strategies::definitions::{CLEANUP, condition, set_condition};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const KIND: &str = "apiextensions.k8s.io/customresourcedefinitions";
const MANAGER: &str = "kube-apiserver";
/// Definitions that wait for finalizers of their objects are looked at so often.
const EVERY: Duration = Duration::from_millis(500);

type Definitions = BTreeMap<String, Value>;

/// Serves what the store holds.
pub(super) fn load(registry: &Registry) {
    let all = registry.store().snapshot(KIND);
    let definitions = read(&all.table.iter().cloned().collect::<Vec<_>>());
    for definition in definitions.values() {
        note_shape(registry, definition);
    }
    registry.catalogue().set_crds(definitions.values());
}

fn read(all: &[Arc<Stored>]) -> Definitions {
    let read = all.iter();
    read.map(|stored| (stored.name().to_owned(), stored.value()))
        .collect()
}

pub(super) async fn run(registry: Registry) {
    let mut follow = Follow::new(&registry, KIND);
    let mut definitions = Definitions::new();
    loop {
        let waits = definitions.values().any(is_ending);
        tokio::select! {
            news = follow.next() => match news {
                None => return,
                Some(News::Anything(all)) => definitions = read(&all),
                Some(News::One(event)) => {
                    let name = event.object.name().to_owned();
                    if event.kind == Kind::Deleted {
                        definitions.remove(&name);
                    } else if !definitions.get(&name).is_some_and(|held| {
                        // What was written here comes by as well, and undoes nothing written since:
                        // a kind that is served would vanish for a moment.
                        revision(held) > event.revision()
                    }) {
                        let new = event.object.value();
                        let generation = |one: &Value| one["metadata"]["generation"].clone();
                        let before = definitions.insert(name, new.clone());
                        if before.is_none_or(|before| generation(&before) != generation(&new)) {
                            note_shape(&registry, &new);
                        }
                    }
                }
            },
            () = tokio::time::sleep(EVERY), if waits => {}
        }
        registry.catalogue().set_crds(definitions.values());
        for name in definitions.keys().cloned().collect::<Vec<_>>() {
            if let Err(error) = step(&registry, &mut definitions, &name).await {
                warn("work on a CustomResourceDefinition", &error);
            }
        }
    }
}

fn revision(definition: &Value) -> u64 {
    let version = definition["metadata"]["resourceVersion"].as_str();
    version.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Objects that were written before the definition changed may lack its new defaults.
fn note_shape(registry: &Registry, definition: &Value) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let group = text(&definition["spec"]["group"]);
    let plural = text(&definition["spec"]["names"]["plural"]);
    let version = text(&definition["metadata"]["resourceVersion"]);
    registry.set_reshaped(
        format!("{group}/{plural}").into(),
        version.parse().unwrap_or_default(),
    );
}

fn is_ending(definition: &Value) -> bool {
    let finalizers = definition["metadata"]["finalizers"].as_array();
    definition["metadata"]["deletionTimestamp"].is_string()
        && finalizers.is_some_and(|all| all.iter().any(|one| one == CLEANUP))
}

/// Brings one definition one state further.
async fn step(
    registry: &Registry,
    definitions: &mut Definitions,
    name: &str,
) -> Result<(), ApiError> {
    let Some(definition) = definitions.get(name) else {
        return Ok(());
    };
    if is_ending(definition) {
        return end(registry, definition).await;
    }
    let now = registry.clock().now();
    let others = definitions.iter().filter(|(other, _)| *other != name);
    let taken = names::taken(others.map(|(_, other)| other), definition);
    // Every change of any definition comes here for each: a schema is copied only if there is news.
    let mut brief = names::brief(definition);
    let news = names::accept(&mut brief, &taken, now);
    let is = |one: &Value, kind| condition(one, kind) == Some("True");
    if !news && (!is(&brief, "NamesAccepted") || is(&brief, "Established")) {
        return Ok(());
    }
    let mut named = definition.clone();
    if news {
        named["status"] = brief["status"].take();
        named = write(registry, "status", &named).await?;
    }
    if is(&named, "NamesAccepted") && !is(&named, "Established") {
        set_condition(
            &mut named,
            "Established",
            "True",
            "InitialNamesAccepted",
            "the initial names have been accepted",
            now,
        );
        // Who sees it established can use it.
        definitions.insert(name.to_owned(), named.clone());
        registry.catalogue().set_crds(definitions.values());
        named = write(registry, "status", &named).await?;
    }
    definitions.insert(name.to_owned(), named);
    Ok(())
}

/// Deletes all objects of a definition, and then lets it go.
async fn end(registry: &Registry, definition: &Value) -> Result<(), ApiError> {
    let spec = &definition["spec"];
    let group = spec["group"].as_str().unwrap_or_default();
    let plural = spec["names"]["plural"].as_str().unwrap_or_default();
    let now = registry.clock().now();
    let mut definition = definition.clone();
    let served = registry.catalogue().all();
    let resource = served.iter().find(|one| {
        one.group.as_ref() == group && one.plural.as_ref() == plural && one.is_custom()
    });
    if let Some(resource) = resource {
        let left = || registry.store().snapshot(&resource.storage_key).table.len();
        if left() > 0 {
            let reason = "InstanceDeletionInProgress";
            let message = "CustomResource deletion is in progress";
            let before = definition.clone();
            set_condition(&mut definition, "Terminating", "True", reason, message, now);
            if definition != before {
                definition = write(registry, "status", &definition).await?;
            }
            let context = context(resource.clone(), "", "", MANAGER);
            let options = DeleteOptions::default();
            registry
                .delete_collection(&context, options, &ListOptions::default())
                .await?;
        }
        if left() > 0 {
            return Ok(());
        }
    }
    set_condition(
        &mut definition,
        "Terminating",
        "False",
        "InstanceDeletionCompleted",
        "removed all instances",
        now,
    );
    let mut definition = write(registry, "status", &definition).await?;
    if let Some(finalizers) = definition["metadata"]["finalizers"].as_array_mut() {
        finalizers.retain(|one| one != CLEANUP);
    }
    write(registry, "", &definition).await.map(|_| ())
}

async fn write(
    registry: &Registry,
    subresource: &str,
    definition: &Value,
) -> Result<Value, ApiError> {
    let kinds = registry.catalogue();
    let resource = kinds.resource("apiextensions.k8s.io", "v1", "customresourcedefinitions");
    let Some(resource) = resource else {
        return Err(ApiError::internal("no CustomResourceDefinitions"));
    };
    let name = definition["metadata"]["name"].as_str().unwrap_or_default();
    let context = context(resource, "", name, MANAGER);
    let outcome = update(registry, &context, subresource, definition).await?;
    serde_json::from_slice(&outcome.object).map_err(ApiError::internal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::registry::testing::Rig;
    use serde_json::json;

    fn definition() -> Value {
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

    const DEFINITION: &str = "apiextensions.k8s.io/v1/customresourcedefinitions";

    #[tokio::test]
    async fn a_definition_lives_and_takes_its_objects_with_it() {
        let rig = Rig::new().await;
        let task = tokio::spawn(run(rig.registry.clone()));
        let made = rig.create(DEFINITION, definition()).await;
        assert_eq!(made["status"]["storedVersions"], json!(["v1"]));
        let path = format!("{DEFINITION}/toys.x.example");
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
            crate::apiserver::registry::PatchKind::Merge,
            json!({"metadata": {"finalizers": null}}),
        )
        .await
        .expect("released");
        until(&rig, &path, |object| object.is_none()).await;
        let mut changes = rig.registry.catalogue().changes();
        let kinds = rig.registry.catalogue();
        while kinds.resource("x.example", "v1", "toys").is_some() {
            changes.changed().await.expect("the kind goes");
        }
        task.abort();
    }
}
