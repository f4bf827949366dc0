//! From a policy on the hub to objects in members, and the answer back: the three files that README applies.

mod customized;
mod lives;
mod members;
mod overrides;
mod plan;
mod rig;
mod scripts;
mod spaces;
mod stage;
mod tenants;
mod unhealthy;
mod verbs;
mod why;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde::Deserialize as _;
use serde_json::{Value, json};
use std::time::Duration;

use crate::env::{Fleet, Lab, LabOptions, Parts, Scratch, repository, wait_for};

const NAMESPACE: &str = "shop";
const MEMBERS: [&str; 2] = ["member1", "member2"];
/// How long anything may take; the machine is shared.
const SOON: Duration = Duration::from_secs(180);

/// The objects of the three files, in order.
fn example() -> Result<Vec<DynamicObject>> {
    let mut objects = Vec::new();
    for file in ["web.yaml", "web-policy.yaml", "web-override.yaml"] {
        let path = repository().join("examples").join(file);
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("failed to read {}", path.display()))?;
        for document in serde_yaml::Deserializer::from_str(&text) {
            objects.push(DynamicObject::deserialize(document)?);
        }
    }
    Ok(objects)
}

fn resource(object: &DynamicObject) -> Result<ApiResource> {
    let types = object.types.as_ref().context("an object without a kind")?;
    let gvk = GroupVersionKind::try_from(types)?;
    let plural = match gvk.kind.as_str() {
        kind if kind.ends_with("Policy") => {
            kind.to_lowercase().trim_end_matches('y').to_owned() + "ies"
        }
        kind => kind.to_lowercase() + "s",
    };
    Ok(ApiResource::from_gvk_with_plural(&gvk, &plural))
}

fn api_of(client: &Client, object: &DynamicObject) -> Result<Api<DynamicObject>> {
    let resource = resource(object)?;
    Ok(match object.metadata.namespace.as_deref() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    })
}

async fn apply(client: &Client, object: &DynamicObject) -> Result<()> {
    let name = object.metadata.name.clone().unwrap_or_default();
    let params = PatchParams::apply("test").force();
    let api = api_of(client, object)?;
    let applied = api.patch(&name, &params, &Patch::Apply(object)).await;
    applied.with_context(|| format!("failed to apply {name}"))?;
    Ok(())
}

fn bindings(client: &Client) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk("work.karmada.io", "v1alpha2", "ResourceBinding");
    Api::namespaced_with(client.clone(), NAMESPACE, &ApiResource::from_gvk(&gvk))
}

/// The replicas and the image of the Deployment in a member.
async fn running(member: &Client) -> Result<Option<(i32, String)>> {
    let deployments: Api<Deployment> = Api::namespaced(member.clone(), NAMESPACE);
    let Some(found) = deployments.get_opt("web").await? else {
        return Ok(None);
    };
    let spec = found.spec.context("a Deployment without a spec")?;
    let pod = spec.template.spec.context("no pod")?;
    let image = pod.containers.into_iter().next().and_then(|it| it.image);
    Ok(Some((
        spec.replicas.unwrap_or(0),
        image.unwrap_or_default(),
    )))
}

async fn runs(members: &[Client], wanted: [Option<(i32, &str)>; 2]) -> Result<()> {
    wait_for("what each member is to run", SOON, async || {
        let mut seen = Vec::new();
        for member in members {
            seen.push(running(member).await?);
        }
        let tagged = |one: &Option<(i32, String)>| {
            one.as_ref().map(|(replicas, image)| {
                (
                    *replicas,
                    image.rsplit(':').next().unwrap_or_default().to_owned(),
                )
            })
        };
        let seen: Vec<_> = seen.iter().map(tagged).collect();
        let want: Vec<_> = wanted
            .iter()
            .map(|it| it.map(|(replicas, tag)| (replicas, tag.to_owned())))
            .collect();
        ensure!(seen == want, "they run {seen:?}, not {want:?}");
        Ok(true)
    })
    .await
}

async fn map_is_there(members: &[Client], wanted: bool) -> Result<()> {
    for member in members {
        let maps: Api<ConfigMap> = Api::namespaced(member.clone(), NAMESPACE);
        wait_for(
            "the ConfigMap that the Deployment names",
            SOON,
            async || Ok(maps.get_opt("web").await?.is_some() == wanted),
        )
        .await?;
    }
    Ok(())
}

fn condition(object: &DynamicObject, kind: &str) -> Option<String> {
    let conditions = object.data.pointer("/status/conditions")?.as_array()?;
    let found = conditions.iter().find(|it| it["type"] == kind)?;
    Some(found["status"].as_str()?.to_owned())
}

async fn merge(hub: &Client, patch: Value) -> Result<()> {
    let deployments: Api<Deployment> = Api::namespaced(hub.clone(), NAMESPACE);
    let params = PatchParams::default();
    deployments
        .patch("web", &params, &Patch::Merge(patch))
        .await?;
    Ok(())
}

/// A Deployment and what it names go where the policy says, divided and overridden; they follow the template, the
/// policy and the override, and leave with each of them.
#[tokio::test(flavor = "multi_thread")]
async fn a_policy_places_follows_and_lets_go() -> Result<()> {
    let scratch = Scratch::new("propagation")?;
    let parts = Parts::from_env()?;
    let mut lab = Lab::start(&parts, scratch.path(), &LabOptions::new(2)).await?;
    let fleet = Fleet::start(&scratch.join("towline"), &lab.hub).await?;
    let hub = lab.hub.client().await?;
    let mut agents = Vec::new();
    let mut members = Vec::new();
    for (plane, name) in lab.members.iter().zip(MEMBERS) {
        agents.push(fleet.join(&plane.kubeconfig, name).await?);
        members.push(plane.client().await?);
    }
    let objects = example()?;
    for object in &objects {
        apply(&hub, object).await?;
    }
    runs(&members, [Some((4, "2.53")), Some((2, "2.52"))]).await?;
    map_is_there(&members, true).await?;
    wait_for("the answer on the bindings", SOON, async || {
        for name in ["web-deployment", "web-configmap"] {
            let binding = bindings(&hub).get(name).await?;
            let applied = condition(&binding, "FullyApplied");
            ensure!(
                applied.as_deref() == Some("True"),
                "{name}: {:?}",
                binding.data
            );
        }
        let placed = bindings(&hub).get("web-deployment").await?;
        ensure!(
            condition(&placed, "Scheduled").as_deref() == Some("True"),
            "{:?}",
            placed.data
        );
        let told = placed.data.pointer("/status/aggregatedStatus").cloned();
        let told = told.unwrap_or_default();
        ensure!(told.as_array().is_some_and(|it| it.len() == 2), "{told}");
        Ok(true)
    })
    .await?;

    // The template.
    merge(&hub, json!({"spec": {"replicas": 9}})).await?;
    runs(&members, [Some((6, "2.53")), Some((3, "2.52"))]).await?;

    // The override, whole.
    let override_policy = objects.last().context("an override")?;
    api_of(&hub, override_policy)?
        .delete("web", &DeleteParams::default())
        .await?;
    runs(&members, [Some((6, "2.53")), Some((3, "2.53"))]).await?;

    // The policy: to one member alone, then away.
    let mut policy = objects.get(3).context("a policy")?.clone();
    policy.data["spec"]["placement"] = json!({"clusterAffinity": {"clusterNames": ["member1"]}});
    apply(&hub, &policy).await?;
    runs(&members, [Some((9, "2.53")), None]).await?;
    let policies = api_of(&hub, &policy)?;
    policies.delete("web", &DeleteParams::default()).await?;
    runs(&members, [None, None]).await?;
    map_is_there(&members, false).await?;
    wait_for("the end of the policy and the bindings", SOON, async || {
        let left = bindings(&hub)
            .list(&kube::api::ListParams::default())
            .await?;
        Ok(left.items.is_empty() && policies.get_opt("web").await?.is_none())
    })
    .await?;
    let deployments: Api<Deployment> = Api::namespaced(hub.clone(), NAMESPACE);
    let kept = deployments.get("web").await?.metadata;
    let labels = kept.labels.unwrap_or_default();
    ensure!(
        labels.keys().all(|key| !key.contains("karmada.io")),
        "the template still shows a policy: {labels:?}"
    );

    // Again, and the template goes.
    apply(&hub, objects.get(3).context("a policy")?).await?;
    runs(&members, [Some((6, "2.53")), Some((3, "2.53"))]).await?;
    deployments.delete("web", &DeleteParams::default()).await?;
    runs(&members, [None, None]).await?;
    wait_for("members without the namespace", SOON, async || {
        for member in &members {
            let spaces: Api<Namespace> = Api::all(member.clone());
            let found = spaces.get_opt(NAMESPACE).await?;
            ensure!(
                found.is_none_or(|it| it.metadata.deletion_timestamp.is_some()),
                "it is there"
            );
        }
        Ok(true)
    })
    .await?;
    drop(agents);
    lab.stop().await;
    scratch.passed();
    Ok(())
}
