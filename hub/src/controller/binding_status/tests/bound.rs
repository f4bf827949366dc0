//! How much of what members say is shown.

use super::super::bound::{MESSAGE, MESSAGES, STATUSES, bound};
use super::*;
use crate::world::{self, Record as _};
use common::api::binding::AggregatedStatusItem;

fn item(index: usize, status: Value, message: &str) -> AggregatedStatusItem {
    AggregatedStatusItem {
        cluster_name: format!("m{index:04}"),
        status: Some(status),
        applied_message: Some(message.to_owned()),
        ..AggregatedStatusItem::default()
    }
}

#[test]
fn a_member_that_says_too_much_is_cut() {
    let modest = json!({"replicas": 2, "readyReplicas": 1});
    let long = json!({"replicas": 2, "story": "x".repeat(STATUSES)});
    let mut items = vec![
        item(0, modest.clone(), "short"),
        item(1, long, &"ä".repeat(MESSAGE)),
    ];
    bound(&mut items, 0);
    assert_eq!(items[0].status, Some(modest.clone()));
    assert_eq!(items[0].applied_message.as_deref(), Some("short"));
    assert_eq!(
        items[1].status,
        Some(json!({"replicas": 2, "towlineOmitted": ["story"]}))
    );
    assert_eq!(
        items[1].applied_message.as_ref().map(String::len),
        Some(MESSAGE)
    );

    let deep = json!({"a": "y".repeat(400), "b": "z".repeat(400)});
    let mut many: Vec<AggregatedStatusItem> = (0..3000)
        .map(|index| item(index, deep.clone(), &"w".repeat(500)))
        .collect();
    many[7].status = Some(modest.clone());
    bound(&mut many, 0);
    assert_eq!(many[7].status, Some(modest));
    let whole = serde_json::to_string(&many).expect("encodes").len();
    assert!(whole < STATUSES + MESSAGES + 3000 * 100, "{whole}");
}

/// What evictions wait for stays before what is shorter.
#[test]
fn how_many_replicas_are_available_is_cut_last() {
    let told = json!({"a": 1, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1, "g": 1, "h": 1, "i": 1,
        "availableReplicas": 3, "z": "x".repeat(STATUSES)});
    let mut items: Vec<_> = (0..6000)
        .map(|index| item(index, told.clone(), ""))
        .collect();
    bound(&mut items, 0);
    for item in items {
        let status = item.status.expect("not too many members");
        assert_eq!(status["availableReplicas"], 3, "{status}");
    }
}

/// What a template shows is made of what members say, and one member's story cannot keep the others' out of it.
#[test]
fn what_a_template_is_made_of_is_within_its_share() {
    let works = [
        work(
            "m1",
            "True",
            json!({"replicas": 2, "story": "x".repeat(STATUSES)}),
        ),
        work("m2", "True", json!({"replicas": 1})),
    ];
    let items = expected(&binding(&[]).spec, &collect(&resource(), &works));
    let statuses: Vec<Value> = items.into_iter().filter_map(|it| it.status).collect();
    let cut = json!({"replicas": 2, "towlineOmitted": ["story"]});
    assert_eq!(statuses, [cut, json!({"replicas": 1})]);
}

/// A binding of this many members, each of which says this, and all of which were given it.
fn of_many(members: usize, status: &Value) -> Observed {
    let names: Vec<String> = (0..members).map(|it| format!("member-{it:05}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut binding = binding(&names);
    for target in &mut binding.spec.clusters {
        target.replicas = Some(3);
    }
    let works = names.iter().map(|name| work(name, "True", status.clone()));
    Observed {
        works: works.collect(),
        binding,
        ..Observed::default()
    }
}

#[test]
fn a_template_is_made_of_what_members_usually_say_however_many_they_are() {
    let done = json!({"succeeded": 1, "story": "x".repeat(600),
        "conditions": [{"type": "Complete", "status": "True"}]});
    let seen = of_many(2000, &done);
    let items = collect(&resource(), &seen.works);
    let made = expected(&seen.binding.spec, &items);
    assert!(made.iter().all(|it| it.status.as_ref() == Some(&done)));
    let status = decided(&seen).status.expect("a status");
    let mut shown = status.aggregated_status.iter();
    assert!(shown.all(|it| it.status.as_ref().is_some_and(|it| it["story"].is_null())));
}

/// An API server would refuse it whole, and what everybody says with it.
#[test]
fn a_binding_of_as_many_members_as_it_can_name_is_not_too_long() {
    let counts = json!({"replicas": 3, "readyReplicas": 3, "updatedReplicas": 3, "availableReplicas": 3,
        "observedGeneration": 1, "generation": 1, "resourceTemplateGeneration": 1});
    let mut seen = of_many(10_000, &counts);
    let failing = &mut seen.works[7].status.manifest_statuses[1];
    failing.health = Some(ResourceHealth::Unhealthy);
    let status = decided(&seen).status.expect("a status");
    let whole = json!({"spec": seen.binding.spec, "status": status}).to_string();
    assert!(whole.len() < 1408 * 1024, "{}", whole.len());
    let items = &status.aggregated_status;
    assert_eq!(
        (items[6].status.as_ref(), items[7].status.as_ref()),
        (None, Some(&counts))
    );
    assert!(
        items
            .iter()
            .all(|it| it.applied == Some(true) && it.health.is_some())
    );
}

/// Whoever reads a binding whole stops at 128 levels, and would read nothing of it.
#[test]
fn what_a_member_nests_too_deep_is_not_shown_and_hides_nothing() {
    let nested = |levels: usize| {
        let inner = (2..levels).fold(json!([]), |it, _| json!([it]));
        json!({ "a": inner })
    };
    for (levels, is_shown) in [(2, true), (64, true), (65, false), (124, false)] {
        let works = vec![
            work("m1", "True", nested(levels)),
            work("m2", "True", json!({"replicas": 1})),
        ];
        let report = serde_json::to_string(&works[0].status).expect("encodes");
        let report: WorkStatus = serde_json::from_str(&report).expect("the hub reads it");
        assert_eq!(report, works[0].status);
        let seen = Observed {
            binding: binding(&["m1", "m2"]),
            works,
            ..Observed::default()
        };
        let shown = |items: &[AggregatedStatusItem]| -> Vec<bool> {
            items.iter().map(|it| it.status.is_some()).collect()
        };
        let wanted = [is_shown, true];
        let items = collect(&resource(), &seen.works);
        assert_eq!(shown(&expected(&seen.binding.spec, &items)), wanted);
        let status = decided(&seen).status.expect("a status");
        let metadata = json!({"name": seen.binding.name});
        let object = json!({"metadata": metadata, "spec": seen.binding.spec, "status": status});
        let text = object.to_string();
        serde_json::from_str::<Value>(&text).expect("it is read whole");
        let held = world::Binding::read(&text)
            .expect("an object")
            .expect("held");
        assert_eq!(
            shown(&held.whole_status().aggregated_status),
            wanted,
            "{levels}"
        );
    }
}
