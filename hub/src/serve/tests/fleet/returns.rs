//! A hub that comes back, and finds a template that is newer than its binding.

use super::super::rig::alone;
use super::image::image;
use super::plan::{Act, Affinity, Divides, MEMBERS, Plan, Policy, Selects, Step, What};
use super::runs::Keep;
use super::stage::Stage;
use super::{Value, acts, faults, get, until};
use faults::{Fault, Wrong};
use std::time::Duration;
use tokio::task::LocalSet;
use tokio::time::sleep;

/// When the controllers of the first hub hear nothing any more, and when that is over.
const DEAF: (u64, u64) = (60_000, 70_000);
const SPACE: &str = "blue";

/// Of each member's Work: how often it was written, and replicas and image in it.
async fn works(stage: &Stage) -> Vec<(i64, i64, String)> {
    let Some(hub) = stage.link() else {
        return Vec::new();
    };
    let mut all = Vec::new();
    for number in 1..=3 {
        let works = get(&hub, &super::works(&format!("m{number}"))).await;
        for work in works["items"].as_array().into_iter().flatten() {
            let manifest = &work["spec"]["workload"]["manifests"][0];
            if manifest["kind"] != "Deployment" {
                continue;
            }
            let number = |value: &Value| value.as_i64().unwrap_or(0);
            let image = &manifest["spec"]["template"]["spec"]["containers"][0]["image"];
            all.push((
                number(&work["metadata"]["generation"]),
                number(&manifest["spec"]["replicas"]),
                image.as_str().unwrap_or_default().to_owned(),
            ));
        }
    }
    all
}

/// Replicas of each member, and the image's version.
async fn hold(stage: &Stage, replicas: [i64; 3], version: u8) {
    let end = format!(":{version}");
    until("what the Works hold", async || {
        let found = works(stage).await;
        let counts: Vec<i64> = found.iter().map(|(_, count, _)| *count).collect();
        counts == replicas && found.iter().all(|(.., image)| image.ends_with(&end))
    })
    .await;
}

async fn live(changes: &[Act], replicas: [i64; 3], version: u8) {
    let (from, to) = DEAF;
    let deaf = Fault {
        way: "controllers".to_owned(),
        lasts: to - from,
        what: Wrong::Freeze,
    };
    let deaf = Step {
        number: 1,
        at: from,
        what: What::Fault(deaf),
    };
    let plan = Plan {
        seed: 1,
        members: MEMBERS,
        steps: vec![deaf],
    };
    let mut stage = Stage::begin(&plan, Keep::Nothing).await;
    let policy = Policy {
        namespace: Some(SPACE.to_owned()),
        name: "all".to_owned(),
        priority: 0,
        selects: Selects::All,
        maps: false,
        deps: false,
        affinity: Affinity::Any,
        divides: Divides::Static(vec![(1, 2), (2, 1), (3, 1)]),
        spread: None,
        tolerates: false,
        endures: None,
        directly: false,
    };
    assert!(acts::carry_out(&mut stage, &Act::Policy(policy)).await);
    let deploy = Act::Deploy(SPACE.into(), "web".into(), 4, 1, "a".into());
    assert!(acts::carry_out(&mut stage, &deploy).await);
    hold(&stage, [2, 1, 1], 1).await;
    let before = works(&stage).await;
    sleep(Duration::from_millis(from + 1000).saturating_sub(stage.world.age())).await;
    for act in changes {
        assert!(acts::carry_out(&mut stage, act).await);
    }
    sleep(Duration::from_secs(1)).await;
    assert_eq!(works(&stage).await, before, "the controllers heard of it");
    stage.kill_hub().await;
    sleep(Duration::from_millis(to + 1000).saturating_sub(stage.world.age())).await;
    stage.start_hub().await;
    hold(&stage, replicas, version).await;
    sleep(Duration::from_secs(20)).await;
    hold(&stage, replicas, version).await;
    for (was, is) in before.iter().zip(works(&stage).await) {
        assert_eq!(is.0, was.0 + 1, "{changes:?}: {was:?} became {is:?}");
    }
}

#[test]
fn what_changed_while_nobody_heard_of_it_is_written_once() {
    let (space, web) = (|| SPACE.to_owned(), || "web".to_owned());
    let scale = Act::Scale(space(), web(), 8);
    let roll = Act::Roll(space(), web(), 2);
    let cases = [
        (vec![scale.clone()], [4, 2, 2], 1),
        (vec![roll.clone()], [2, 1, 1], 2),
        (vec![scale, roll], [4, 2, 2], 2),
    ];
    // Made before anything else, in a world of its own.
    image(MEMBERS);
    for (changes, replicas, version) in cases {
        alone(LocalSet::new().run_until(live(&changes, replicas, version)));
    }
}
