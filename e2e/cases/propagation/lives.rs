//! The life of a Deployment that three members share: each step ends as it should, in as few writes as it can, and
//! nothing is told twice or taken back on the way; once in peace, and once with the hub killed in the middle.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::rig::SOON;
use super::stage::{MEMBERS, NAMESPACE, Runs, Stage};
use crate::env::{Scratch, wait_for};

const DEPLOYMENT: (&str, &str, &str) = ("apps", "v1", "Deployment");
const MAP: (&str, &str, &str) = ("", "v1", "ConfigMap");
const POLICY: (&str, &str, &str) = ("policy.karmada.io", "v1alpha1", "PropagationPolicy");
const OVERRIDE: (&str, &str, &str) = ("policy.karmada.io", "v1alpha1", "OverridePolicy");
const CLUSTER: (&str, &str, &str) = ("cluster.karmada.io", "v1alpha1", "Cluster");
const BINDING: (&str, &str, &str) = ("work.karmada.io", "v1alpha2", "ResourceBinding");

/// Something that a user does.
#[derive(Debug, Clone, Copy)]
enum Act {
    Begin,
    Scale,
    Image,
    Reweigh,
    Cordon,
    Relabel,
    Taint,
    Leave,
    DeleteTemplate,
    MakeTemplate,
    DeletePolicy,
}

/// A step: what is done, what runs afterwards, and the least that the hub has to write for it.
struct Step {
    act: Act,
    runs: [Runs<'static>; 3],
    /// Members whose Work of the Deployment has to change: each of these is written once.
    works: &'static [&'static str],
    /// Times that the binding's spec has to change.
    binding: i64,
}

/// The binding says at once what the template says and where it goes: one write a step. A Work says what its cluster
/// gets of it: one write where that differs. The ConfigMap is written where it comes, and never again.
const STEPS: [Step; 11] = [
    Step {
        act: Act::Begin,
        runs: [Some((2, "1")), Some((1, "edge")), Some((1, "1"))],
        works: &MEMBERS,
        binding: 1,
    },
    Step {
        act: Act::Scale,
        runs: [Some((4, "1")), Some((2, "edge")), Some((2, "1"))],
        works: &MEMBERS,
        binding: 1,
    },
    Step {
        act: Act::Image,
        runs: [Some((4, "2")), Some((2, "edge")), Some((2, "2"))],
        works: &MEMBERS,
        binding: 1,
    },
    Step {
        act: Act::Reweigh,
        runs: [Some((2, "2")), Some((2, "edge")), Some((4, "2"))],
        works: &["member1", "member3"],
        binding: 1,
    },
    // What runs stays.
    Step {
        act: Act::Cordon,
        runs: [Some((2, "2")), Some((2, "edge")), Some((4, "2"))],
        works: &[],
        binding: 0,
    },
    // What is divided is looked at again only where something else asks for that.
    Step {
        act: Act::Relabel,
        runs: [Some((2, "2")), Some((2, "edge")), Some((4, "2"))],
        works: &[],
        binding: 0,
    },
    // The binding goes to the others, and lets the copy in member3 go once they have its replicas. The Work there is not
    // written.
    Step {
        act: Act::Taint,
        runs: [Some((4, "2")), Some((4, "edge")), None],
        works: &["member1", "member2"],
        binding: 2,
    },
    Step {
        act: Act::Leave,
        runs: [Some((8, "2")), None, None],
        works: &["member1"],
        binding: 1,
    },
    Step {
        act: Act::DeleteTemplate,
        runs: [None, None, None],
        works: &[],
        binding: 0,
    },
    Step {
        act: Act::MakeTemplate,
        runs: [Some((4, "1")), None, None],
        works: &["member1"],
        binding: 1,
    },
    Step {
        act: Act::DeletePolicy,
        runs: [None, None, None],
        works: &[],
        binding: 0,
    },
];

fn template() -> Value {
    json!({"metadata": {"name": "web"}, "spec": {"replicas": 4,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{
            "name": "web", "image": "example.org/web:1",
            "envFrom": [{"configMapRef": {"name": "web"}}]}]}}}})
}

fn weights(list: [i64; 3]) -> Value {
    let each = MEMBERS.iter().zip(list);
    let each: Vec<Value> = each
        .map(|(name, weight)| json!({"targetCluster": {"clusterNames": [name]}, "weight": weight}))
        .collect();
    json!({"staticWeightList": each})
}

async fn begin(stage: &Stage) -> Result<()> {
    let space = json!({"metadata": {"name": NAMESPACE}});
    stage.create(("", "v1", "Namespace"), &space).await?;
    for name in ["web", "canary"] {
        let map = json!({"metadata": {"name": name}, "data": {"round": "none"}});
        stage.create(MAP, &map).await?;
    }
    let placement = json!({
        "clusterAffinity": {"labelSelector": {"matchLabels": {"fleet": "yes"}}},
        "replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
            "weightPreference": weights([2, 1, 1])}});
    let policy = json!({"metadata": {"name": "web"}, "spec": {"propagateDeps": true, "placement": placement,
        "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}]}});
    stage.create(POLICY, &policy).await?;
    let canary = json!({"metadata": {"name": "canary"}, "spec": {
        "placement": {"clusterAffinity": {"clusterNames": ["member1"]}},
        "resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "canary"}]}});
    stage.create(POLICY, &canary).await?;
    let image = json!({"metadata": {"name": "web"}, "spec": {
        "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}],
        "overrideRules": [{"targetCluster": {"clusterNames": ["member2"]}, "overriders": {
            "imageOverrider": [{"component": "Tag", "operator": "replace", "value": "edge"}]}}]}});
    stage.create(OVERRIDE, &image).await?;
    stage.create(DEPLOYMENT, &template()).await
}

async fn act(stage: &Stage, act: Act) -> Result<()> {
    match act {
        Act::Begin => begin(stage).await,
        Act::Scale => {
            let patch = json!({"spec": {"replicas": 8}});
            stage.patch(DEPLOYMENT, "web", &patch).await
        }
        Act::Image => {
            let mut patch = json!({"spec": {"template": template()["spec"]["template"]}});
            patch["spec"]["template"]["spec"]["containers"][0]["image"] =
                json!("example.org/web:2");
            stage.patch(DEPLOYMENT, "web", &patch).await
        }
        Act::Reweigh => {
            let patch = json!({"spec": {"placement": {"replicaScheduling": {
                "weightPreference": weights([1, 1, 2])}}}});
            stage.patch(POLICY, "web", &patch).await
        }
        Act::Cordon => {
            let taint = json!({"key": "cluster.karmada.io/unschedulable", "effect": "NoSchedule"});
            let patch = json!({"spec": {"taints": [taint]}});
            stage.patch(CLUSTER, "member3", &patch).await
        }
        Act::Taint => {
            let taint = json!({"key": "spare", "effect": "NoExecute"});
            let patch = json!({"spec": {"taints": [taint]}});
            stage.patch(CLUSTER, "member3", &patch).await
        }
        Act::Relabel => stage.label("member3", Value::Null).await,
        Act::Leave => {
            let run = stage.fleet.cli(&["unregister", "member2", "--yes"]).await?;
            run.ok().map(drop)
        }
        Act::DeleteTemplate => stage.delete(DEPLOYMENT, "web").await,
        Act::MakeTemplate => stage.create(DEPLOYMENT, &template()).await,
        Act::DeletePolicy => stage.delete(POLICY, "web").await,
    }
}

/// What the journal says of a step, against the least that it takes.
fn judge(stage: &Stage, step: &Step) -> Result<()> {
    let act = step.act;
    for history in stage.journal.take() {
        let (namespace, name) = &history.of;
        if !name.starts_with("web") {
            continue;
        }
        let member = namespace.strip_prefix("karmada-es-");
        let told = history.told();
        let least = match member {
            Some(member) if told.iter().all(|it| it.is_array()) => {
                i64::from(step.works.contains(&member))
            }
            Some(_) => i64::from(history.before.is_none()),
            None if name == "web-deployment" => step.binding,
            None => continue,
        };
        let written = history.written();
        ensure!(
            written <= least,
            "{act:?}: {namespace}/{name} was written {written} times, where {least} do: {history:?}"
        );
        let again = (1..told.len()).any(|at| told[..at].contains(&told[at]));
        ensure!(
            !again && (member.is_none() || told.len() <= 2),
            "{act:?}: {namespace}/{name} goes to and fro: {told:?}"
        );
    }
    Ok(())
}

/// Nothing of it is left on the hub but the template.
async fn nothing_is_left(stage: &Stage) -> Result<()> {
    wait_for("the end of the bindings", SOON, async || {
        for name in ["web-deployment", "web-configmap"] {
            let left = stage.api(BINDING).get_opt(name).await?;
            ensure!(left.is_none(), "{name} is there");
        }
        let policy = stage.api(POLICY).get_opt("web").await?;
        ensure!(policy.is_none(), "the policy is there");
        let kept = stage.api(DEPLOYMENT).get("web").await?.metadata;
        let labels = kept.labels.unwrap_or_default();
        ensure!(
            labels.keys().all(|key| !key.contains("karmada.io")),
            "the template shows a policy: {labels:?}"
        );
        Ok(true)
    })
    .await
}

/// In peace: the right end, by the fewest writes.
#[tokio::test(flavor = "multi_thread")]
async fn a_life_in_the_fewest_writes() -> Result<()> {
    let scratch = Scratch::new("propagation-life")?;
    let stage = Stage::begin(scratch.path()).await?;
    for step in &STEPS {
        act(&stage, step.act).await?;
        let ran = stage.runs(step.runs).await;
        ran.map_err(|error| error.context(format!("{:?}", step.act)))?;
        judge(&stage, step)?;
    }
    nothing_is_left(&stage).await?;
    stage.end().await;
    scratch.passed();
    Ok(())
}

/// With the hub killed as soon as something was asked of it, and again as soon as it has begun to carry that out: the
/// same end, by as few writes.
#[tokio::test(flavor = "multi_thread")]
async fn a_life_on_a_hub_that_dies() -> Result<()> {
    let scratch = Scratch::new("propagation-deaths")?;
    let mut stage = Stage::begin(scratch.path()).await?;
    for step in &STEPS {
        act(&stage, step.act).await?;
        stage.kill_hub().await?;
        if step.binding > 0 {
            wait_for("what comes of it", SOON, async || {
                Ok(stage.journal.has_news("web"))
            })
            .await?;
            stage.kill_hub().await?;
        }
        let ran = stage.runs(step.runs).await;
        ran.map_err(|error| error.context(format!("{:?}", step.act)))?;
        judge(&stage, step)?;
    }
    nothing_is_left(&stage).await?;
    stage.end().await;
    scratch.passed();
    Ok(())
}
