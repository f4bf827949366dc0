//! An agent that is killed at random moments of many applies and many deletions ends where one that
//! was never killed would.

use anyhow::{Result, ensure};
use common::chance::Chance;
use common::watch::{Collection, Event, WatchConfig, watch};
use futures::StreamExt as _;
use futures::stream::{self, TryStreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom as _, SliceRandom as _};
use rand::{Rng as _, SeedableRng as _};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::time::Duration;

use super::rig::condition;
use crate::env::{Fleet, Lab, LabOptions, Parts, Process, Scratch, wait_for};

const CLUSTER: &str = "killed";
/// Works that are made, those of them that are deleted again, and kills on either way.
const MADE: usize = 520;
const DELETED: usize = 500;
const KILLS: usize = 12;
/// Requests of the test at the same time.
const AT_ONCE: usize = 8;
/// For hundreds of Works, a dozen starts, and a machine that is busy with other labs.
const WITHIN: Duration = Duration::from_secs(400);

/// SIGKILL at random points of 500 applies and 500 deletions: the end states are those of the Works,
/// and nothing is orphaned.
#[tokio::test(flavor = "multi_thread")]
async fn works_kills_at_random_points_leave_nothing_behind() -> Result<()> {
    let seed = match std::env::var("TOWLINE_TEST_SEED") {
        Ok(text) => text.parse()?,
        Err(_) => common::chance::secret::rng().random(),
    };
    println!("seed {seed}; TOWLINE_TEST_SEED={seed} repeats it");
    let mut random = StdRng::seed_from_u64(seed);
    let scratch = Scratch::new("works-kill-9")?;
    let parts = Parts::from_env()?;
    let mut lab = Lab::start(&parts, &scratch.join("lab"), &LabOptions::new(1)).await?;
    let fleet = Fleet::start(&scratch.join("towline"), &lab.hub).await?;
    let mut agent = fleet.join(&lab.members[0].kubeconfig, CLUSTER).await?;
    let scene = Scene {
        hub: fleet.client().await?,
        member: lab.members[0].client().await?,
    };

    let names: Vec<String> = (0..MADE).map(|i| format!("k{i}")).collect();
    let data: BTreeMap<String, u32> = names.iter().map(|n| (n.clone(), random.random())).collect();
    let points = points(&mut random, MADE);
    let making = stream::iter(data.iter().map(Ok)).try_for_each_concurrent(AT_ONCE, |(name, v)| {
        let scene = &scene;
        async move { scene.make(name, *v).await }
    });
    let killed = scene.kill_while(&mut agent, &points, true);
    futures::try_join!(making, killed)?;
    scene.settled(&data).await?;

    let mut gone = names.clone();
    gone.shuffle(&mut random);
    gone.truncate(DELETED);
    let gone: BTreeSet<String> = gone.into_iter().collect();
    let points = self::points(&mut random, DELETED);
    let deleting = stream::iter(gone.iter().map(Ok)).try_for_each_concurrent(AT_ONCE, |name| {
        let works = scene.works();
        async move {
            works.delete(name, &DeleteParams::default()).await?;
            anyhow::Ok(())
        }
    });
    let killed = scene.kill_while(&mut agent, &points, false);
    futures::try_join!(deleting, killed)?;
    let left: BTreeMap<String, u32> = data
        .into_iter()
        .filter(|(n, _)| !gone.contains(n))
        .collect();
    scene.settled(&left).await?;

    // One more start has nothing to mend: what is left is as an agent would leave it in one life.
    let before = scene.versions().await?;
    agent.restart()?;
    let witness = left.keys().cloned().collect::<Vec<_>>();
    let witness = witness.choose(&mut random).expect("some are left");
    scene
        .works()
        .delete(witness, &DeleteParams::default())
        .await?;
    let mut left = left;
    left.remove(witness);
    scene.settled(&left).await?;
    let mut after = scene.versions().await?;
    after.extend(
        before
            .get_key_value(witness)
            .map(|(k, v)| (k.clone(), v.clone())),
    );
    ensure!(before == after, "it wrote: {before:?} became {after:?}");
    agent.check()?;
    drop(agent);
    lab.stop().await;
    scratch.passed();
    Ok(())
}

/// After how many objects the agent is killed, each time.
fn points(random: &mut StdRng, of: usize) -> BTreeSet<usize> {
    let mut points = BTreeSet::new();
    while points.len() < KILLS {
        points.insert(random.random_range(1..of));
    }
    points
}

/// Both sides of the agent.
struct Scene {
    hub: Client,
    member: Client,
}

impl Scene {
    fn works(&self) -> Api<DynamicObject> {
        let gvk = GroupVersionKind::gvk("work.karmada.io", "v1alpha1", "Work");
        let namespace = format!("{}{CLUSTER}", common::names::EXECUTION_PREFIX);
        Api::namespaced_with(self.hub.clone(), &namespace, &ApiResource::from_gvk(&gvk))
    }

    /// What the agent brought.
    async fn maps(&self) -> Result<Vec<ConfigMap>> {
        let api: Api<ConfigMap> = Api::namespaced(self.member.clone(), "default");
        let ours = ListParams::default().labels("karmada.io/managed=true");
        Ok(api.list(&ours).await?.items)
    }

    async fn versions(&self) -> Result<BTreeMap<String, Option<String>>> {
        let maps = self.maps().await?.into_iter();
        let pairs = maps.map(|m| {
            (
                m.metadata.name.unwrap_or_default(),
                m.metadata.resource_version,
            )
        });
        Ok(pairs.collect())
    }

    async fn make(&self, name: &str, value: u32) -> Result<()> {
        let work: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work", "metadata": {"name": name},
            "spec": {"workload": {"manifests": [{
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": name, "namespace": "default"},
                "data": {"value": value.to_string()},
            }]}},
        }))?;
        self.works().create(&PostParams::default(), &work).await?;
        Ok(())
    }

    /// Kills the agent and starts it again, each time that so many objects have come or gone.
    async fn kill_while(
        &self,
        agent: &mut Process,
        points: &BTreeSet<usize>,
        coming: bool,
    ) -> Result<()> {
        let maps = Collection::of::<ConfigMap>(Some("default"));
        let config = WatchConfig {
            label_selector: Some("karmada.io/managed=true".into()),
            ..WatchConfig::new(&Chance::from_os())
        };
        let mut events = pin!(watch::<ConfigMap>(self.member.clone(), maps, config));
        let mut listed = false;
        let mut seen = BTreeSet::new();
        let deadline = tokio::time::Instant::now() + WITHIN;
        for point in points {
            while seen.len() < *point {
                let event = tokio::time::timeout_at(deadline, events.next()).await;
                let event = event
                    .map_err(|_| anyhow::anyhow!("after {} objects nothing moved", seen.len()))?;
                match event {
                    Some(Event::InitDone { .. }) => listed = true,
                    Some(Event::Applied(map)) if coming => {
                        seen.extend(map.metadata.name);
                    }
                    Some(Event::Deleted(key)) if !coming && listed => {
                        seen.insert(key.name);
                    }
                    _ => {}
                }
            }
            agent.restart()?;
        }
        Ok(())
    }

    /// Waits until the member has exactly these objects, the hub exactly their Works, and each says so.
    async fn settled(&self, want: &BTreeMap<String, u32>) -> Result<()> {
        wait_for("exactly the objects of the Works", WITHIN, async || {
            let works = self.works().list(&ListParams::default()).await?.items;
            let names: BTreeSet<_> = works
                .iter()
                .filter_map(|w| w.metadata.name.clone())
                .collect();
            ensure!(
                names.iter().eq(want.keys()),
                "{} Works, not {}",
                names.len(),
                want.len()
            );
            let told = works.iter().filter(|work| {
                condition(&work.data["status"], "Applied").is_some_and(|c| c["status"] == "True")
            });
            let told = told.count();
            ensure!(
                told == want.len(),
                "{told} of {} say that they are applied",
                want.len()
            );
            let mut found = BTreeMap::new();
            for map in self.maps().await? {
                let name = map.metadata.name.unwrap_or_default();
                let by = map.metadata.annotations.unwrap_or_default();
                let by = by
                    .get(common::labels::WORK_NAME)
                    .cloned()
                    .unwrap_or_default();
                ensure!(by == name, "{name} is marked as {by}'s");
                let value = map.data.unwrap_or_default().remove("value");
                found.insert(name, value.unwrap_or_default().parse::<u32>()?);
            }
            ensure!(
                found == *want,
                "{} objects, not {}",
                found.len(),
                want.len()
            );
            Ok(true)
        })
        .await
    }
}
