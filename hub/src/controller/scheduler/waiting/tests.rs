use super::*;
use crate::scheduler::{Capacity, Shape};
use crate::world::Record as _;
use serde_json::{Value, json};

fn cluster(name: &str, pods: i64) -> Cluster {
    Cluster {
        name: name.into(),
        shape: Arc::new(Shape::default()),
        leaving: false,
        capacity: Capacity {
            free: Some([("pods".into(), pods)].into()),
            nodes: None,
        },
    }
}

fn placed_by(placement: &Value) -> Binding {
    let object = json!({
        "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": {"name": "b", "namespace": "n", "generation": 1, "resourceVersion": "7"},
        "spec": {"resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "b", "uid": "u"},
            "placement": placement},
    });
    let read = Binding::read(&object.to_string());
    read.expect("an object").expect("held")
}

/// One that may go to these clusters; to all where none is named.
fn meant_for(members: &[&str]) -> Binding {
    placed_by(&json!({"clusterAffinity": {"clusterNames": members}}))
}

fn key(number: usize) -> ObjectName {
    ObjectName::new(Some("n"), &format!("b{number:04}"))
}

/// It could not be placed, which is to be written.
fn stuck(what: WaitsFor) -> Decision {
    Decision {
        waits_for: Some(what),
        status: Some(json!({})),
        ..Decision::default()
    }
}

/// The same as before, with other numbers.
fn renumbered() -> Decision {
    Decision {
        numbers_only: true,
        ..stuck(WaitsFor::Capacity)
    }
}

const SECOND: Duration = Duration::from_secs(1);

/// Who is to be looked at because a cluster has room for one more.
fn grown(waiting: &mut Waiting, name: &str, now: Instant) -> Vec<(ObjectName, Instant)> {
    waiting.has_other_room(&cluster(name, 1), &cluster(name, 2), now)
}

#[test]
fn reports_wake_who_waits_for_room_where_it_came_and_nobody_else() {
    let start = Instant::now();
    let mut waiting = Waiting::default();
    let (of_one, of_all) = (meant_for(&["m1"]), meant_for(&[]));
    for number in 0..1000 {
        let held = if number < 500 { &of_one } else { &of_all };
        let is_news = waiting.begin(&key(number));
        let noted = waiting.note(
            &key(number),
            held,
            &stuck(WaitsFor::Capacity),
            is_news,
            start,
        );
        let again = Some(start + RETRY);
        assert_eq!(
            noted,
            Noted {
                held_back: false,
                again
            }
        );
    }
    let fits_nowhere = key(1000);
    waiting.note(
        &fits_nowhere,
        &of_all,
        &stuck(WaitsFor::Clusters),
        true,
        start,
    );
    let later = start + SPACING + SECOND;
    for report in 0..100 {
        let (old, new) = (cluster("m1", 200 - report), cluster("m1", 199 - report));
        let woken = waiting.has_other_room(&old, &new, later);
        assert!(woken.is_empty(), "{woken:?}");
    }
    let woken = grown(&mut waiting, "m2", later);
    assert!(woken.into_iter().eq((500..1000).map(|it| (key(it), later))));
    // Those are in the queue.
    assert!(grown(&mut waiting, "m2", later).is_empty());
    let woken = grown(&mut waiting, "m1", later);
    assert!(woken.into_iter().eq((0..500).map(|it| (key(it), later))));
    // It was not enough, and once more there is more: soon, but not at once, and once for however many reports.
    for number in 0..1000 {
        let is_news = waiting.begin(&key(number));
        assert!(!is_news);
        let held = if number < 500 { &of_one } else { &of_all };
        waiting.note(&key(number), held, &renumbered(), is_news, later);
    }
    let woken = grown(&mut waiting, "m1", later + SECOND);
    let due = later + SPACING;
    assert!(woken.into_iter().eq((0..1000).map(|it| (key(it), due))));
    assert!(grown(&mut waiting, "m1", later + SECOND).is_empty());
}

#[test]
fn what_is_placed_or_gone_waits_no_more() {
    let start = Instant::now();
    let mut waiting = Waiting::default();
    let held = meant_for(&[]);
    for number in 0..3 {
        waiting.note(&key(number), &held, &stuck(WaitsFor::Capacity), true, start);
    }
    let placed = Decision {
        placed: true,
        status: Some(json!({})),
        ..Decision::default()
    };
    assert_eq!(
        waiting.note(&key(0), &held, &placed, false, start),
        Noted::default()
    );
    waiting.forget(&key(1));
    let woken = grown(&mut waiting, "m1", start);
    assert_eq!(woken, [(key(2), start + SPACING)]);
}

#[test]
fn less_room_wakes_whom_it_may_help() {
    let start = Instant::now();
    let mut waiting = Waiting::default();
    let spread = |by: &str| {
        placed_by(&json!({"spreadConstraints": [
        {"spreadByField": by, "minGroups": 1, "maxGroups": 1},
        {"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}]}))
    };
    let by_clusters = placed_by(&json!({"spreadConstraints": [
        {"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}]}));
    for (number, held) in [spread("region"), by_clusters].iter().enumerate() {
        waiting.note(&key(number), held, &stuck(WaitsFor::Capacity), true, start);
    }
    let woken = waiting.has_other_room(&cluster("m1", 2), &cluster("m1", 1), start);
    assert_eq!(woken, [(key(0), start + SPACING)]);
}

#[test]
fn a_cluster_that_looks_other_wakes_all_and_at_once_whom_it_may_take() {
    let start = Instant::now();
    let mut waiting = Waiting::default();
    let all = [
        (meant_for(&["m1"]), WaitsFor::Capacity),
        (meant_for(&["m2"]), WaitsFor::Clusters),
        (meant_for(&[]), WaitsFor::Policy),
    ];
    for (number, (held, what)) in all.iter().enumerate() {
        waiting.note(&key(number), held, &stuck(*what), true, start);
        assert!(!waiting.begin(&key(number)));
    }
    let m1 = cluster("m1", 1);
    let (now, soon) = (start + SECOND, start + SPACING);
    let wanted = [(key(0), now), (key(1), soon), (key(2), now)];
    assert_eq!(waiting.looks_other(None, Some(&m1), now), wanted);
    // Those that it may take, and those that are not in the queue yet.
    assert!(waiting.begin(&key(0)));
    let wanted = [(key(0), now), (key(2), now)];
    assert_eq!(waiting.looks_other(Some(&m1), None, now), wanted);
    let later = start + 2 * SPACING;
    assert!(waiting.begin(&key(1)));
    let wanted = [(key(0), later), (key(1), later), (key(2), later)];
    assert_eq!(waiting.looks_other(Some(&m1), Some(&m1), later), wanted);
}

#[test]
fn numbers_that_keep_changing_are_written_ever_less_often_and_never_later_than_in_five_minutes() {
    let start = Instant::now();
    let mut waiting = Waiting::default();
    let held = meant_for(&[]);
    waiting.note(&key(0), &held, &stuck(WaitsFor::Capacity), true, start);
    let mut written = vec![0];
    for second in 1..=3600 {
        let now = start + second * SECOND;
        let noted = waiting.note(&key(0), &held, &renumbered(), false, now);
        let again = noted.again.expect("it is looked at again");
        assert!(now < again && again <= now + RETRY);
        if !noted.held_back {
            written.push(second);
        }
    }
    let first: Vec<u32> = written.iter().take(6).copied().collect();
    assert_eq!(first, [0, 2, 6, 14, 30, 62]);
    assert!(written.len() <= 20, "{written:?}");
    let longest = written.windows(2).map(|it| it[1] - it[0]).max();
    assert_eq!(longest, Some(300));
    // Once it was calm it is written at once again, and soon after that.
    let calm = start + 3600 * SECOND + 2 * RETRY;
    for (seconds, held_back) in [(0, false), (1, true), (2, false)] {
        let now = calm + seconds * SECOND;
        let noted = waiting.note(&key(0), &held, &renumbered(), false, now);
        assert_eq!(noted.held_back, held_back, "{seconds}");
    }
}

#[test]
fn what_is_more_than_a_number_or_has_another_cause_is_written_at_once() {
    let start = Instant::now();
    let same = Decision {
        status: None,
        ..stuck(WaitsFor::Capacity)
    };
    let retried = Some(start + SECOND + RETRY);
    // What comes of the second look; whether something else than room changed; what follows.
    let cases = [
        (renumbered(), false, true, Some(start + SPACING)),
        (renumbered(), true, false, retried),
        (stuck(WaitsFor::Capacity), false, false, retried),
        (stuck(WaitsFor::Clusters), false, false, None),
        (same, false, false, retried),
    ];
    for (decision, is_changed, held_back, again) in cases {
        let mut waiting = Waiting::default();
        let held = meant_for(&[]);
        waiting.note(&key(0), &held, &stuck(WaitsFor::Capacity), true, start);
        if is_changed {
            waiting.changed(&key(0));
        }
        let is_news = waiting.begin(&key(0));
        assert_eq!(is_news, is_changed);
        let noted = waiting.note(&key(0), &held, &decision, is_news, start + SECOND);
        assert_eq!(noted, Noted { held_back, again }, "{decision:?}");
    }
}
