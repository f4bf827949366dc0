//! What the demo propagates: a Deployment and the ConfigMap that it names, a policy that divides it over three
//! members, and an override of its image in one.

use anyhow::Context as _;
use kube::Client;
use kube::api::{Api, DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

/// The namespace of it all.
pub(super) const NAMESPACE: &str = "demo";
/// The Deployment, its ConfigMap and their policies.
pub(super) const NAME: &str = "web";
/// Replicas in all.
pub(super) const REPLICAS: i32 = 4;
/// The image as the template has it, and as the override makes it.
pub(super) const IMAGES: [&str; 2] = ["registry.invalid/web:1", "registry.invalid/web:2"];

/// Writes it all to the hub.
pub(super) async fn open(hub: &Client, members: &[&str]) -> anyhow::Result<()> {
    for object in objects(members) {
        create(hub, object).await?;
    }
    Ok(())
}

async fn create(hub: &Client, object: Value) -> anyhow::Result<()> {
    let object: DynamicObject =
        serde_json::from_value(object).context("the demo's objects are none")?;
    let types = object.types.clone().context("an object without a kind")?;
    let kind = GroupVersionKind::try_from(&types).context("the kind of an object")?;
    let resource = ApiResource::from_gvk(&kind);
    let api: Api<DynamicObject> = match object.metadata.namespace.as_deref() {
        Some(namespace) => Api::namespaced_with(hub.clone(), namespace, &resource),
        None => Api::all_with(hub.clone(), &resource),
    };
    let made = api.create(&PostParams::default(), &object).await;
    made.with_context(|| format!("failed to create the {}", types.kind))?;
    Ok(())
}

fn objects(members: &[&str]) -> [Value; 5] {
    let metadata = json!({"name": NAME, "namespace": NAMESPACE});
    let labels = json!({"app": NAME});
    let selectors = json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": NAME}]);
    let weight = |index: usize, member: &&str| {
        let weight = if index == 0 { 2 } else { 1 };
        json!({"targetCluster": {"clusterNames": [member]}, "weight": weight})
    };
    let weights: Vec<Value> = members
        .iter()
        .enumerate()
        .map(|(index, it)| weight(index, it))
        .collect();
    [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"greeting": "hello"}}),
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
            "spec": {
                "replicas": REPLICAS,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [{
                        "name": NAME, "image": IMAGES[0], "envFrom": [{"configMapRef": {"name": NAME}}],
                    }]},
                },
            },
        }),
        json!({
            "apiVersion": "policy.karmada.io/v1alpha1", "kind": "OverridePolicy", "metadata": metadata,
            "spec": {
                "resourceSelectors": selectors,
                "overrideRules": [{
                    "targetCluster": {"clusterNames": [members.get(1)]},
                    "overriders": {"imageOverrider": [{"component": "Tag", "operator": "replace", "value": "2"}]},
                }],
            },
        }),
        json!({
            "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy", "metadata": metadata,
            "spec": {
                "resourceSelectors": selectors,
                "propagateDeps": true,
                "placement": {
                    "clusterAffinity": {"clusterNames": members},
                    "replicaScheduling": {
                        "replicaSchedulingType": "Divided",
                        "replicaDivisionPreference": "Weighted",
                        "weightPreference": {"staticWeightList": weights},
                    },
                },
            },
        }),
    ]
}
