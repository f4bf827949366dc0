//! A member that lies about what it runs: it is one voice of several, and no louder than the others.

use anyhow::{Context as _, Result, ensure};
use kube::Client;
use serde_json::{Value, json};

use super::rig::{MINE, Rig, SOON, path, policy};
use crate::env::{Answer, MERGE, ask, wait_for};

/// Where an agent reports on a Work.
fn of_status(work: &Value) -> String {
    let text = |key: &str| {
        work["metadata"][key]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let works = path("Work", &text("namespace"));
    format!("{works}/{}/status", text("name"))
}

/// What an agent says of a Work's manifest.
fn report(work: &Value, status: &Value) -> Value {
    let manifest = &work["spec"]["workload"]["manifests"][0];
    let version = manifest["apiVersion"].as_str().unwrap_or_default();
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    json!({"conditions": [{"type": "Applied", "status": "True", "reason": "AppliedSuccessful", "message": "",
            "lastTransitionTime": "2020-01-01T00:00:00Z"}],
        "manifestStatuses": [{"identifier": {"ordinal": 0, "group": group, "version": version,
            "kind": manifest["kind"], "resource": "", "namespace": manifest["metadata"]["namespace"],
            "name": manifest["metadata"]["name"]}, "status": status, "health": "Healthy"}]})
}

async fn tell(agent: &Client, work: &Value, status: &Value) -> Result<Answer> {
    let patch = json!({ "status": status }).to_string();
    ask(agent, "PATCH", &of_status(work), Some((MERGE, &patch))).await
}

fn workload(name: &str, spec: &Value) -> Value {
    let pod = json!({"metadata": {"labels": {"app": name}},
        "spec": {"containers": [{"name": "c", "image": "example.org/c:1"}]}});
    let mut object = json!({"metadata": {"name": name}, "spec": {"replicas": 2,
        "selector": {"matchLabels": {"app": name}}, "template": pod}});
    json_patch::merge(&mut object, &json!({ "spec": spec }));
    object
}

/// Waits until a template's status has a part.
async fn shows(rig: &Rig, at: &str, pointer: &str, wanted: &Value) -> Result<()> {
    wait_for(&format!("{pointer} of {at}"), SOON, async || {
        let found = rig.get(at).await?.context("gone")?;
        let told = found.pointer(pointer).cloned().unwrap_or_default();
        ensure!(told == *wanted, "it is {told}");
        Ok(true)
    })
    .await
}

/// A member's words are as many as it likes, and may be of any form: the other one's answer is shown all the same,
/// and the binding stays what an API server can hold.
#[tokio::test(flavor = "multi_thread")]
async fn one_members_story_drowns_no_other() -> Result<()> {
    let rig = Rig::begin("member-stories").await?;
    let (m1, m2) = (rig.agent("m1").await?, rig.agent("m2").await?);
    let deployments = path("Deployment", MINE);
    let services = path("Service", MINE);
    rig.create(&deployments, &workload("web", &json!({})))
        .await?;
    let balanced = json!({"metadata": {"name": "door"}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}});
    rig.create(&services, &balanced).await?;
    let policies = path("PropagationPolicy", MINE);
    for (name, version, kind) in [("web", "apps/v1", "Deployment"), ("door", "v1", "Service")] {
        rig.create(&policies, &policy(name, version, kind, None))
            .await?;
    }
    let mut works = Vec::new();
    for cluster in ["m1", "m2"] {
        for name in ["web", "door"] {
            works.push(rig.placed(cluster, name).await?);
        }
    }
    let [web1, door1, web2, door2] = &works[..] else {
        anyhow::bail!("{} Works", works.len());
    };
    let running =
        json!({"replicas": 2, "readyReplicas": 2, "updatedReplicas": 2, "availableReplicas": 2});
    tell(&m2, web2, &report(web2, &running)).await?.ok()?;
    let address = json!({"loadBalancer": {"ingress": [{"ip": "10.0.0.2"}]}});
    tell(&m2, door2, &report(door2, &address)).await?.ok()?;
    let web = format!("{deployments}/web");
    let door = format!("{services}/door");
    shows(&rig, &web, "/status/readyReplicas", &json!(2)).await?;

    // 1 MiB of message, of status, of identities; and values that no status can hold.
    let long = "x".repeat(1 << 20);
    let mut message = report(web1, &running);
    message["conditions"][0]["status"] = json!("False");
    message["conditions"][0]["message"] = json!(long);
    let mut story = running.clone();
    story["story"] = json!(long);
    let mut crowd = report(web1, &running);
    let one = crowd["manifestStatuses"][0].clone();
    crowd["manifestStatuses"] = (0..20_000)
        .map(|number| {
            let mut one = one.clone();
            one["identifier"]["ordinal"] = json!(number);
            one["identifier"]["name"] = json!(format!("other-{number}"));
            one
        })
        .collect();
    for said in [message, report(web1, &story), crowd] {
        let answer = tell(&m1, web1, &said).await?;
        ensure!(
            [200, 400, 413, 422].contains(&answer.code),
            "{}",
            answer.code
        );
    }
    let numbers = json!({"replicas": i64::MAX, "readyReplicas": -7, "updatedReplicas": "many",
        "availableReplicas": {}, "conditions": 7, "story": "x".repeat(700 * 1024)});
    tell(&m1, web1, &report(web1, &numbers)).await?.ok()?;
    let forged = json!({"loadBalancer": {"ingress": [{"ip": "10.0.0.300"}, {"hostname": "No Name", "ipMode": "Up"},
        7, {"ip": ["10.0.0.9"]}, {"ip": "10.0.0.1", "ports": [{"port": 99999, "protocol": 7}]}]}});
    tell(&m1, door1, &report(door1, &forged)).await?.ok()?;

    // What m2 says afterwards is heard.
    let mut again = running.clone();
    again["availableReplicas"] = json!(1);
    tell(&m2, web2, &report(web2, &again)).await?.ok()?;
    shows(&rig, &web, "/status/availableReplicas", &json!(1)).await?;
    shows(&rig, &web, "/status/replicas", &json!(i32::MAX)).await?;
    let both = json!([{"ip": "10.0.0.1", "ipMode": "VIP"}, {"ip": "10.0.0.2", "ipMode": "VIP"}]);
    shows(&rig, &door, "/status/loadBalancer/ingress", &both).await?;
    let binding = format!("{}/web-deployment", path("ResourceBinding", MINE));
    let held = rig.get(&binding).await?.context("no binding")?;
    let size = held.to_string().len();
    ensure!(size < 1 << 20, "the binding has {size} bytes");
    let told = &held["status"]["aggregatedStatus"];
    ensure!(
        told[1]["clusterName"] == "m2" && told[1]["status"] == again,
        "{told}"
    );
    rig.end().await
}

/// An agent reports on its own Works, and about what these hold; the rest is nobody's word.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_speaks_for_itself() -> Result<()> {
    let rig = Rig::begin("member-itself").await?;
    let (m1, m2) = (rig.agent("m1").await?, rig.agent("m2").await?);
    let deployments = path("Deployment", MINE);
    for name in ["web", "other"] {
        rig.create(&deployments, &workload(name, &json!({})))
            .await?;
    }
    let policies = path("PropagationPolicy", MINE);
    let everything = policy("all", "apps/v1", "Deployment", None);
    rig.create(&policies, &everything).await?;
    let (web1, web2) = (
        rig.placed("m1", "web").await?,
        rig.placed("m2", "web").await?,
    );
    let other1 = rig.placed("m1", "other").await?;

    let running = |ready: i64| json!({"replicas": 2, "readyReplicas": ready});
    // Another cluster's Works, the templates, their bindings and policies.
    tell(&m1, &web2, &report(&web2, &running(9)))
        .await?
        .forbidden()?;
    let status = json!({"status": {"readyReplicas": 9, "aggregatedStatus": []}}).to_string();
    let binding = format!("{}/web-deployment", path("ResourceBinding", MINE));
    for at in [
        format!("{deployments}/web/status"),
        format!("{deployments}/web"),
        format!("{binding}/status"),
        binding.clone(),
        format!("{policies}/all"),
    ] {
        ask(&m1, "PATCH", &at, Some((MERGE, &status)))
            .await?
            .forbidden()?;
    }
    // Whose Work it is says the hub alone.
    let moved = json!({"metadata": {"annotations": {"resourcebinding.karmada.io/name": "other-deployment"},
        "labels": {"resourcebinding.karmada.io/permanent-id": "11111111-1111-4111-8111-111111111111"}}});
    let own = of_status(&web1);
    let own = own.trim_end_matches("/status");
    ask(&m1, "PATCH", own, Some((MERGE, &moved.to_string())))
        .await?
        .forbidden()?;
    // With a status it may be sent, and is not kept.
    let mut with_status = moved.clone();
    with_status["status"] = report(&web1, &running(1));
    let answer = ask(
        &m1,
        "PATCH",
        &of_status(&web1),
        Some((MERGE, &with_status.to_string())),
    )
    .await?;
    ensure!([200, 403, 422].contains(&answer.code), "{answer:?}");
    let kept = rig.placed("m1", "web").await?;
    for part in ["labels", "annotations"] {
        let (now, before) = (&kept["metadata"][part], &web1["metadata"][part]);
        ensure!(now == before, "{now}");
    }

    // A report under another object's name is about nothing.
    let mut foreign = report(&web1, &running(7));
    foreign["manifestStatuses"][0]["identifier"]["name"] = json!("other");
    tell(&m1, &web1, &foreign).await?.ok()?;
    tell(&m2, &web2, &report(&web2, &running(2))).await?.ok()?;
    tell(&m1, &other1, &report(&other1, &running(1)))
        .await?
        .ok()?;
    shows(
        &rig,
        &format!("{deployments}/other"),
        "/status/readyReplicas",
        &json!(1),
    )
    .await?;
    shows(
        &rig,
        &format!("{deployments}/web"),
        "/status/readyReplicas",
        &json!(2),
    )
    .await?;
    let held = rig.get(&binding).await?.context("no binding")?;
    let told = &held["status"]["aggregatedStatus"];
    ensure!(
        told[0]["clusterName"] == "m1" && told[0]["status"].is_null(),
        "{told}"
    );
    rig.end().await
}

/// Whatever a member says, `towline` shows it on lines of its own making, and a terminal acts on none of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_acts_on_nothing_that_a_member_says() -> Result<()> {
    let rig = Rig::begin("member-terminal").await?;
    let m1 = rig.agent("m1").await?;
    rig.create(&path("Deployment", MINE), &workload("web", &json!({})))
        .await?;
    let mut only = policy("web", "apps/v1", "Deployment", None);
    only["spec"]["placement"] = json!({"clusterAffinity": {"clusterNames": ["m1"]}});
    rig.create(&path("PropagationPolicy", MINE), &only).await?;
    let work = rig.placed("m1", "web").await?;
    let evil =
        "\u{1b}[2J\u{1b}]0;mine\u{7}\u{9b}1m\u{202e}\u{200b}\r\ndeployment.apps/web: all is well\n";
    let megabyte = evil.repeat((1 << 20) / evil.len());
    let most = evil.repeat(32_000 / evil.len());
    let running = json!({"readyReplicas": 2});
    let refused = |message: &str| {
        let mut report = report(&work, &running);
        report["conditions"][0]["status"] = json!("False");
        report["conditions"][0]["message"] = json!(message);
        report
    };
    let sick = |reason: &str, message: &str| {
        let mut report = report(&work, &json!({"story": evil}));
        report["manifestStatuses"][0]["health"] = json!("Unhealthy");
        let mut told = report["conditions"][0].clone();
        json_patch::merge(
            &mut told,
            &json!({"type": "WorkloadHealthy", "status": "False", "reason": reason,
            "message": message}),
        );
        report["conditions"]
            .as_array_mut()
            .into_iter()
            .for_each(|it| it.push(told.clone()));
        report
    };
    let answer = tell(&m1, &work, &refused(&megabyte)).await?;
    ensure!([400, 413, 422].contains(&answer.code), "{}", answer.code);
    let mut seen = 0;
    for (at, said) in [
        refused(&most),
        sick("CrashLoopBackOff", &most),
        sick("ImagePullBackOff", evil),
    ]
    .iter()
    .enumerate()
    {
        tell(&m1, &work, said).await?.ok()?;
        let stage = if at == 0 { "applied" } else { "health" };
        wait_for("what the member said", SOON, async || {
            let run = rig
                .cli(&["why", "deploy/web", "-n", MINE, "-o", "json"])
                .await?;
            let said: Value = serde_json::from_str(&run.stdout)?;
            ensure!(said["broken"]["stage"] == stage, "{said}");
            Ok(true)
        })
        .await?;
        let name = work["metadata"]["name"].as_str().unwrap_or_default();
        let of_work = format!("work/karmada-es-m1/{name}");
        for args in [
            &["why", "deploy/web", "-n", MINE][..],
            &["why", "cluster/m1"],
            &["why", &of_work],
            &["get", "deploy/web", "-n", MINE],
            &["get", "deployments", "-n", MINE],
            &["get", "deployments", "-n", MINE, "-o", "wide"],
            &["get", "works", "-C", "m1"],
            &["get", "works", "-C", "m1", "-o", "wide"],
        ] {
            let run = rig.cli(args).await?;
            let acts = |it: char| it.is_control() && it != '\n' || "\u{202e}\u{200b}".contains(it);
            for shown in [&run.stdout, &run.stderr] {
                ensure!(!shown.contains(acts), "{args:?}: {shown:?}");
                let forged = shown
                    .lines()
                    .find(|it| it.starts_with("deployment.apps/web: all is well"));
                ensure!(forged.is_none(), "{args:?}: {shown}");
            }
            let is_wide = args.contains(&"wide");
            ensure!(
                is_wide || run.stdout.len() < 16 * 1024,
                "{args:?}: {} bytes",
                run.stdout.len()
            );
            seen += usize::from(run.stdout.contains("\\u{1b}[2J"));
        }
    }
    ensure!(seen >= 8, "it was shown {seen} times");
    rig.end().await
}
