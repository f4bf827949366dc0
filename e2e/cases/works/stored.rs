//! The set that the member remembers, in its Secrets and under the rights of the shipped manifests: many
//! Works in several Secrets, and one Work that no Secret could hold alone.

use super::apart::in_member;
use super::rig::{Rig, Running, config_map};
use crate::env::{Relay, repository, wait_for, wait_for_some};
use agent::execution::stored::{Volume, decode};
use anyhow::{Context as _, Result, ensure};
use common::names::{AGENT_NAME, AGENT_NAMESPACE, WORKS_SECRET_PREFIX};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use rand::distr::{Alphanumeric, SampleString as _};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// How long a machine that builds beside the lab may take for hundreds of Works.
const LONG: Duration = Duration::from_secs(240);
/// Works, and how much each holds that cannot be compressed away.
const WORKS: usize = 150;
const EACH: usize = 6_000;
/// Two ConfigMaps of one Work: together more than a Secret holds, and less than etcd takes.
const BIG: usize = 700_000;

/// Text that hardly shrinks.
fn noise(length: usize) -> Value {
    json!({"k": "v1", "noise": Alphanumeric.sample_string(&mut common::chance::secret::rng(), length)})
}

/// What `kubectl apply -k manifests/agent` makes but for the Deployment, and a kubeconfig with exactly
/// the rights of its ServiceAccount.
async fn as_shipped(rig: &Rig) -> Result<PathBuf> {
    for file in ["namespace.yaml", "rbac.yaml", "workloads.yaml"] {
        let path = repository().join("manifests/agent").join(file);
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("failed to read {}", path.display()))?;
        for document in text.split("\n---\n") {
            let object: DynamicObject = serde_yaml::from_str(document)
                .with_context(|| format!("a document of {}", path.display()))?;
            let types = object.types.clone().context("a manifest has a kind")?;
            let (group, version) = types
                .api_version
                .rsplit_once('/')
                .unwrap_or(("", &types.api_version));
            let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &types.kind));
            let api: Api<DynamicObject> = match &object.metadata.namespace {
                Some(namespace) => Api::namespaced_with(rig.member.clone(), namespace, &kind),
                None => Api::all_with(rig.member.clone(), &kind),
            };
            let name = object.metadata.name.clone().unwrap_or_default();
            let params = PatchParams::apply("kubectl");
            api.patch(&name, &params, &Patch::Apply(&object)).await?;
        }
    }
    let user = format!("system:serviceaccount:{AGENT_NAMESPACE}:{AGENT_NAME}");
    let groups = ["system:serviceaccounts", "system:authenticated"];
    let path = rig.lab.dir().join("shipped.kubeconfig");
    rig.lab.members[0].kubeconfig_for(&path, &user, &groups)
}

/// The Secrets of the stored set, each as it is read.
async fn volumes(rig: &Rig) -> Result<BTreeMap<String, Volume>> {
    let api: Api<Secret> = Api::namespaced(rig.member.clone(), AGENT_NAMESPACE);
    let secrets = api.list(&ListParams::default()).await?.items.into_iter();
    let ours = secrets.filter_map(|secret| {
        let name = secret.metadata.name?;
        name.starts_with(WORKS_SECRET_PREFIX)
            .then_some((name, secret.data.unwrap_or_default()))
    });
    ours.map(|(name, mut data)| {
        let bytes = data.remove("works").context("an empty Secret")?;
        let volume = decode(&bytes.0).with_context(|| format!("Secret {name}"))?;
        Ok((name, volume))
    })
    .collect()
}

/// Waits until the stored set knows that many Works, and returns its Secrets.
async fn stored(rig: &Rig, works: usize) -> Result<BTreeMap<String, Volume>> {
    wait_for_some("the stored set to know every Work", LONG, async || {
        let volumes = volumes(rig).await?;
        let entries = volumes.values().flat_map(|volume| &volume.entries);
        let firsts = entries.filter(|(entry, _)| entry.part == 0).count();
        ensure!(firsts == works, "{firsts} of {works} Works are stored");
        Ok(Some(volumes))
    })
    .await
}

async fn all_applied(rig: &Rig, want: usize) -> Result<()> {
    wait_for("Applied on every Work", LONG, async || {
        let works = rig.works().list(&ListParams::default()).await?;
        let applied = works.iter().filter(|work| {
            super::rig::condition(&work.data["status"], "Applied")
                .is_some_and(|c| c["status"] == "True")
        });
        let applied = applied.count();
        ensure!(applied == want, "{applied} of {want}");
        Ok(true)
    })
    .await
}

/// An agent with the rights of `manifests/agent` and no more keeps Works in many Secrets, one Work in
/// several of them; restarted without its hub it heals both kinds by what it reads there; and when the
/// Works go, the Secrets go.
#[tokio::test(flavor = "multi_thread")]
async fn works_are_stored_in_secrets_under_the_shipped_rights() -> Result<()> {
    let rig = Rig::start("works-stored").await?;
    let kubeconfig = as_shipped(&rig).await?;
    let relay = Relay::start(&rig.lab.hub.address()).await?;
    let running = rig.run_as(&relay, &kubeconfig).await?;
    stream::iter((0..WORKS).map(anyhow::Ok))
        .try_for_each_concurrent(8, |i| {
            let rig = &rig;
            async move {
                let map = config_map(&format!("m{i}"), &noise(EACH));
                rig.deliver(&format!("w{i}"), &[map]).await
            }
        })
        .await?;
    let halves = ["big-0", "big-1"].map(|name| config_map(name, &noise(BIG)));
    rig.deliver("big", &halves).await?;
    all_applied(&rig, WORKS + 1).await?;

    let volumes = stored(&rig, WORKS + 1).await?;
    ensure!(volumes.len() > 4, "only {:?}", volumes.keys());
    let holding_big = volumes.values().filter(|volume| {
        let mut entries = volume.entries.iter();
        entries.any(|(entry, _)| entry.name == "big" && entry.parts > 1)
    });
    ensure!(holding_big.count() > 1, "the big Work lies in one Secret");
    said_nothing(&running)?;
    running.stop().await;

    // Drift while nobody looks, and no hub when the agent comes back.
    relay.refuse(true);
    relay.close_established();
    let maps = rig.maps();
    let patch = Patch::Merge(json!({"data": {"k": "drift"}}));
    maps.patch("m7", &PatchParams::default(), &patch).await?;
    for name in ["m11", "big-1"] {
        maps.delete(name, &DeleteParams::default()).await?;
    }
    let running = rig.run_as(&relay, &kubeconfig).await?;
    rig.live(&maps, "m7", |v| v["data"]["k"] == "v1").await?;
    for (name, length) in [("m11", EACH), ("big-1", BIG)] {
        rig.live(&maps, name, |v| {
            v["data"]["noise"]
                .as_str()
                .is_some_and(|n| n.len() == length)
        })
        .await?;
    }

    relay.refuse(false);
    rig.redeliver("w3", &[config_map("m3", &json!({"k": "v2"}))])
        .await?;
    rig.live(&maps, "m3", |v| v["data"]["k"] == "v2").await?;
    stream::iter((0..WORKS).map(|i| anyhow::Ok(format!("w{i}"))))
        .chain(stream::iter([Ok("big".to_owned())]))
        .try_for_each_concurrent(8, |name| {
            let rig = &rig;
            async move { rig.delete_work(&name).await }
        })
        .await?;
    wait_for("the end of every object", LONG, async || {
        Ok(in_member(&maps).await?.is_empty())
    })
    .await?;
    wait_for("the end of every Secret", LONG, async || {
        let left = self::volumes(&rig).await?;
        ensure!(left.is_empty(), "left are {:?}", left.keys());
        Ok(true)
    })
    .await?;
    said_nothing(&running)?;
    running.stop().await;
    rig.passed().await;
    Ok(())
}

/// What is denied or finds no room would be told here.
fn said_nothing(running: &Running) -> Result<()> {
    let said = running.context.errors.text();
    ensure!(said.is_none(), "the engine says {said:?}");
    Ok(())
}
