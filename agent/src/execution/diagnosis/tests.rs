use super::decide::{MESSAGE, Seen, failing, selector, verdict};
use super::{Diagnoser, LONGEST, MOST, PACE, SETTLED};
use crate::execution::interpret::Shown;
use crate::execution::state::{Item, LiveRecord, ObjectKey};
use crate::execution::testing::{Asked, Handles, lines, refusal, scripted, wire};
use crate::execution::wire::LiveMeta;
use common::api::work::{ResourceHealth, WORKLOAD_HEALTHY};
use common::controller::{Reconcile as _, Requeue};
use common::gvk::Gvk;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

fn pod(name: &str, container: &Value) -> Value {
    json!({"metadata": {"name": name, "uid": format!("uid-of-{name}")},
        "status": {"phase": "Pending", "containerStatuses": [container]}})
}

fn waiting(reason: &str, message: &str) -> Value {
    json!({"name": "app", "ready": false, "state": {"waiting": {"reason": reason, "message": message}}})
}

fn told(pod: Value) -> (&'static str, String) {
    let seen = Seen {
        pods: vec![pod],
        ..Seen::default()
    };
    let verdict = verdict(&[seen]).expect("something was found");
    (verdict.reason, verdict.message)
}

#[test]
fn the_states_of_containers_are_told_in_a_word_that_stays() {
    let pull = "pod p, container app: ImagePullBackOff: no such image";
    for reason in ["ErrImagePull", "ImagePullBackOff"] {
        let (word, message) = told(pod("p", &waiting(reason, "no such image")));
        assert_eq!((word, message.as_str()), ("ImagePullBackOff", pull));
    }
    let ended = json!({"exitCode": 1, "reason": "Error", "message": "no such file\n"});
    let crash = "pod p, container app: CrashLoopBackOff, exit code 1: no such file";
    for container in [
        json!({"name": "app", "state": {"terminated": ended}}),
        json!({"name": "app", "state": {"running": {}}, "lastState": {"terminated": ended}}),
        json!({"name": "app", "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": ended}}),
    ] {
        let (word, message) = told(pod("p", &container));
        assert_eq!((word, message.as_str()), ("CrashLoopBackOff", crash));
    }
    let oom = json!({"name": "app", "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}});
    assert_eq!(told(pod("p", &oom)).0, "OOMKilled");
    let missing = waiting("CreateContainerConfigError", "configmap \"c\" not found");
    assert_eq!(told(pod("p", &missing)).0, "CreateContainerConfigError");
    for well in [
        json!({"name": "app", "ready": true, "lastState": {"terminated": ended}}),
        waiting("ContainerCreating", ""),
    ] {
        let seen = Seen {
            pods: vec![pod("p", &well)],
            ..Seen::default()
        };
        assert_eq!(verdict(&[seen]), None);
    }
}

#[test]
fn what_cannot_be_made_or_placed_is_told() {
    let quota = json!({"status": {"conditions": [{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate",
        "message": "pods \"w-1\" is forbidden: exceeded quota: q"}]}});
    let seen = Seen {
        workload: quota,
        ..Seen::default()
    };
    let found = verdict(&[seen]).expect("found");
    assert_eq!(
        (found.reason, found.kind, found.status),
        ("FailedCreate", WORKLOAD_HEALTHY, false)
    );
    assert!(found.message.contains("exceeded quota: q"));
    let nowhere = json!({"metadata": {"name": "p"}, "status": {"conditions": [{"type": "PodScheduled",
        "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}]}});
    assert_eq!(told(nowhere).0, "Unschedulable");
    let event = |kind: &str, reason: &str, at: &str| {
        json!({"type": kind, "reason": reason, "message": reason,
        "lastTimestamp": at})
    };
    let events = vec![
        event("Normal", "Pulled", "2026-01-03T00:00:00Z"),
        event("Warning", "BackOff", "2026-01-01T00:00:00Z"),
        event("Warning", "FailedMount", "2026-01-02T00:00:00Z"),
        event("Warning", "BackOff", "2026-01-02T00:00:00Z"),
    ];
    let seen = Seen {
        events,
        ..Seen::default()
    };
    let found = verdict(&[seen]).expect("found");
    assert_eq!(found.reason, "FailedMount");
    assert_eq!(
        found.message,
        "Event FailedMount: FailedMount\nEvent BackOff: BackOff"
    );
}

#[test]
fn a_hostile_member_fills_no_more_than_a_condition() {
    let evil = "\u{1b}[2J\u{202e}x".repeat(100_000);
    let container = waiting("ImagePullBackOff", &evil);
    let pods = (0..50)
        .map(|at| pod(&format!("{evil}{at}"), &container))
        .collect();
    let event = json!({"type": "Warning", "reason": evil, "message": evil});
    let seen = Seen {
        pods,
        events: vec![event; 50],
        ..Seen::default()
    };
    let found = verdict(&[seen.clone(), seen]).expect("found");
    assert!(found.message.len() <= MESSAGE, "{}", found.message.len());
    assert!(
        !found
            .message
            .contains(|it: char| it.is_control() && it != '\n' || it == '\u{202e}')
    );
}

#[test]
fn pods_are_found_by_selector_and_by_what_they_say() {
    let workload = json!({"spec": {"selector": {"matchLabels": {"app": "web"}, "matchExpressions": [
        {"key": "tier", "operator": "In", "values": ["a", "b"]}, {"key": "x", "operator": "DoesNotExist"}]}}});
    assert_eq!(
        selector(&workload).as_deref(),
        Some("app=web,tier in (a,b),!x")
    );
    for none in [
        json!({}),
        json!({"spec": {"selector": {}}}),
        json!({"spec": {"selector": {"app": "web"}}}),
    ] {
        assert_eq!(selector(&none), None, "{none}");
    }
    let row =
        |name: &str, ready: &str, status: &str| json!({"cells": [name, ready, status, 0, "1m"]});
    let columns = ["Name", "Ready", "Status", "Restarts", "Age"].map(|it| json!({"name": it}));
    let table = json!({"columnDefinitions": columns, "rows": [row("a", "1/1", "Running"), row("b", "0/1", "Pending"),
        row("c", "0/1", "CrashLoopBackOff"), row("d", "0/1", "CrashLoopBackOff"), row("e", "0/1", "ImagePullBackOff"),
        row("f", "0/1", "Completed")]});
    assert_eq!(failing(&table), ["c", "e"]);
    assert_eq!(failing(&json!({})), [""; 0]);
}

/// Pods of each Deployment of a failing member.
const PODS: usize = 10;

/// Works of a member in which no Deployment has a pod that can pull its image.
struct Failing {
    parts: Handles,
    diagnoser: Diagnoser,
    works: Vec<Arc<str>>,
    /// What the member was asked.
    member: Asked,
    /// What the hub was asked.
    hub: Asked,
}

async fn failing_member(works: usize) -> Failing {
    let columns = ["Name", "Ready", "Status", "Restarts", "Age"].map(|it| json!({"name": it}));
    let (member, of_member) = scripted(move |line| {
        let answer = if line.contains("/pods?") {
            let row = |at: usize| json!({"cells": [format!("p{at}"), "0/1", "ImagePullBackOff", 0, "1m"]});
            let rows: Vec<Value> = (0..PODS).map(row).collect();
            json!({"columnDefinitions": columns, "rows": rows})
        } else if line.contains("/pods/") {
            let mut pod = pod("p", &waiting("ImagePullBackOff", "no such image"));
            pod["metadata"]["managedFields"] = json!("f".repeat(8 * 1024));
            pod
        } else if line.contains("/events?") {
            let warning =
                json!({"type": "Warning", "reason": "Failed", "message": "no such image"});
            json!({ "items": vec![warning; 20] })
        } else if line.contains("/deployments/") {
            json!({"spec": {"selector": {"matchLabels": {"app": "web"}}}})
        } else {
            return Some(refusal(404, "NotFound"));
        };
        Some((200, answer))
    });
    let after = json!({"metadata": {"name": "w", "uid": "1", "resourceVersion": "6"}});
    let (hub, of_hub) = scripted(move |_| Some((200, after.clone())));
    let parts = Handles::new(hub, member).await;
    let gvk = Gvk::new("apps/v1", "Deployment").expect("sound");
    let mut names = Vec::new();
    for at in 0..works {
        let name = parts.knows(&wire(&format!("w{at}"), &format!("{at}"), &[]));
        set_health(&parts, &name, &gvk, 0);
        names.push(name);
    }
    let diagnoser = Diagnoser::new(
        parts.member.clone(),
        parts.state.clone(),
        parts.reporter.clone(),
    );
    Failing {
        parts,
        diagnoser,
        works: names,
        member: of_member,
        hub: of_hub,
    }
}

impl Failing {
    /// Has every report sent that waits, and says how many writes of the hub there were in all.
    async fn reported(&self) -> usize {
        let reporter = &self.parts.reporter;
        let next = || tokio::time::timeout(Duration::from_secs(60), reporter.queue.next());
        while let Ok(work) = next().await {
            reporter.reconcile(&work).await.expect("the hub answers");
            reporter.queue.done(&work);
        }
        let asked = lines(&self.hub);
        asked.iter().filter(|it| !it.starts_with("GET ")).count()
    }
}

/// Has the Deployment of a Work be there, with so many replicas that serve of the one that is wanted.
fn set_health(parts: &Handles, work: &Arc<str>, gvk: &Gvk, serving: u8) {
    let mut state = parts.state.lock();
    let key = Arc::new(ObjectKey {
        kind: state.kind(gvk),
        namespace: "n".into(),
        name: (&**work).into(),
    });
    let live = json!({"metadata": {"uid": format!("uid-{work}"), "labels": {"karmada.io/managed": "true"},
        "annotations": {"work.karmada.io/namespace": "karmada-es-m1", "work.karmada.io/name": &**work}},
        "spec": {"replicas": 1}, "status": {"replicas": 1, "updatedReplicas": 1, "availableReplicas": serving}});
    let live = LiveRecord::new(
        Shown::built_in(gvk, &live),
        LiveMeta::read(&live),
        "karmada-es-m1",
        true,
    );
    let wanted = if serving == 0 {
        ResourceHealth::Unhealthy
    } else {
        ResourceHealth::Healthy
    };
    assert_eq!(live.health, wanted);
    state.set_live(&key, Some(live));
    let gvk = Arc::new(gvk.clone());
    let record = state.works.get_mut(work).expect("there");
    record.items = vec![Item {
        key: Some(key),
        gvk: Some(gvk),
        failure: None,
    }];
}

#[tokio::test(start_paused = true)]
async fn a_workload_that_fails_is_told_until_it_is_well() {
    let failing = failing_member(1).await;
    let (parts, diagnoser, asked) = (&failing.parts, &failing.diagnoser, &failing.member);
    let work = &failing.works[0];
    diagnoser.changed(work, ResourceHealth::Unhealthy);
    let begun = Instant::now();
    assert_eq!(diagnoser.queue.next().await, *work);
    assert_eq!(begun.elapsed(), SETTLED);
    let next = diagnoser.reconcile(work).await.expect("never fails");
    assert_eq!(next, Requeue::After(Duration::from_secs(20)));
    diagnoser.queue.done(work);
    assert_eq!(lines(asked).len(), 5, "{:?}", lines(asked));
    let now = parts.clock.now();
    let report = |parts: &Handles| super::super::report::report(&parts.state.lock(), work, now);
    let told = report(parts).expect("news");
    let condition = &told.patch["status"]["conditions"][0];
    assert_eq!(condition["type"], WORKLOAD_HEALTHY);
    assert_eq!(condition["reason"], "ImagePullBackOff");
    parts
        .state
        .lock()
        .works
        .get_mut(work)
        .expect("there")
        .conditions = told.conditions;
    // It says the same: nothing is told again, and it is looked at ever less often.
    let mut waits = Vec::new();
    for _ in 0..6 {
        let Ok(Requeue::After(wait)) = diagnoser.reconcile(work).await else {
            panic!("it is not well")
        };
        waits.push(wait.as_secs());
    }
    assert_eq!(waits, [40, 80, 160, 320, 320, 320]);
    assert_eq!(
        report(parts).map(|it| it.patch["status"].get("conditions").cloned()),
        Some(None)
    );
    // It is well: the report that says so has the condition no more.
    let gvk = Gvk::new("apps/v1", "Deployment").expect("sound");
    set_health(parts, work, &gvk, 1);
    diagnoser.changed(work, ResourceHealth::Healthy);
    let told = report(parts).expect("news");
    assert_eq!(told.patch["status"]["conditions"], json!([]));
    assert_eq!(diagnoser.queue.try_next().as_ref(), Some(work));
    let end = diagnoser.reconcile(work).await.expect("never fails");
    assert_eq!(end, Requeue::Never);
    assert!(diagnoser.known().works.is_empty());
    assert_eq!(parts.state.lock().works[work].diagnosis, None);
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_failing_pods_are_asked_for_in_turn_and_told_once() {
    let failing = failing_member(10_000 / PODS).await;
    let (works, diagnoser) = (&failing.works, &failing.diagnoser);
    let begun = Instant::now();
    let mut refused = 0;
    for work in works {
        match diagnoser.reconcile(work).await.expect("never fails") {
            Requeue::After(LONGEST) => refused += 1,
            Requeue::After(_) => {}
            Requeue::Never => panic!("it is not well"),
        }
    }
    assert_eq!(refused, works.len() - MOST);
    let turns = u32::try_from(MOST).expect("few");
    assert!(
        begun.elapsed() >= PACE * (turns - 1),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(lines(&failing.member).len(), MOST * 5);
    assert_eq!(failing.reported().await, MOST);
    // They are looked at again and say the same.
    for work in works {
        diagnoser.reconcile(work).await.expect("never fails");
    }
    assert_eq!(lines(&failing.member).len(), 2 * MOST * 5);
    assert_eq!(failing.reported().await, MOST);
    let state = failing.parts.state.lock();
    let kept = state.works.values().filter_map(|it| it.diagnosis.as_ref());
    let bytes: usize = kept.map(|it| it.message.len()).sum();
    assert!(bytes > 0 && bytes <= MOST * MESSAGE, "{bytes}");
}

/// Kilobytes of memory that this process has for what it keeps, without the program itself.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux says");
    let line = status.lines().find_map(|it| it.strip_prefix("RssAnon:"));
    let kilobytes = line.and_then(|it| it.split_whitespace().next()?.parse().ok());
    kilobytes.expect("a number")
}

/// Kilobytes that an agent may grow by, as docs/operations.md says.
const GROWN: u64 = 3 * 1024;

#[test]
fn ten_thousand_failing_pods_cost_little_memory() {
    const ALONE: &str = "TOWLINE_ALONE";
    // What other tests hold is not what is measured: it runs in a process of its own.
    if std::env::var_os(ALONE).is_none() {
        let mut alone = std::process::Command::new(std::env::current_exe().expect("this program"));
        let name = "execution::diagnosis::tests::ten_thousand_failing_pods_cost_little_memory";
        alone.args(["--exact", name, "--nocapture"]).env(ALONE, "1");
        let ran = alone.output().expect("it runs");
        let said = [ran.stdout, ran.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(ran.status.success() && said.contains(" 1 passed"), "{said}");
        return;
    }
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let failing = failing_member(10_000 / PODS).await;
        let look = async |work: &Arc<str>| {
            let looked = failing.diagnoser.reconcile(work).await;
            looked.expect("never fails");
        };
        // What the first one costs is not for the number of them.
        look(&failing.works[0]).await;
        assert_eq!(failing.reported().await, 1);
        let before = resident();
        let mut most = before;
        for _ in 0..2 {
            for work in &failing.works {
                look(work).await;
                most = most.max(resident());
            }
            assert_eq!(failing.reported().await, MOST);
        }
        most = most.max(resident());
        eprintln!("from {before} KiB to {most} KiB");
        assert!(most - before <= GROWN, "from {before} KiB to {most} KiB");
    });
}
