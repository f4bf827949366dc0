//! Properties of what the agent knows: in whatever order news come, they end the same, and nothing
//! leads back to an earlier generation but a hub that was restored.

use super::State;
use crate::execution::desired::{Desired, WorkRef};
use crate::execution::manifest::{Manifest, read_all};
use crate::execution::order::rank;
use crate::execution::wire::WireWork;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const WORK: WorkRef<'_> = WorkRef {
    namespace: "karmada-es-m1",
    name: "w",
};

/// Versions of one Work as a hub makes them: each newer than the one before, of the same generation or
/// the next. `steps` says for each whether its spec differs from the one before.
fn history(steps: &[bool], deleted: bool) -> Vec<WireWork> {
    let mut generation = 1;
    let last = steps.len().saturating_sub(1);
    let wire = |(index, changes): (usize, &bool)| {
        generation += i64::from(*changes);
        let deletion = (deleted && index == last).then_some("2026-01-01T00:00:00Z");
        let work = json!({
            "metadata": {"name": "w", "uid": "u", "resourceVersion": (100 + index).to_string(),
                "generation": generation, "deletionTimestamp": deletion,
                "finalizers": [common::labels::WORK_FINALIZER]},
            "spec": {"workload": {"manifests": [{"generation": generation}]},
                "suspendDispatching": generation % 3 == 0},
        });
        serde_json::from_value(work).expect("decodes")
    };
    steps.iter().enumerate().map(wire).collect()
}

/// What is known of the Work, as far as news of it decide.
fn known(state: &State) -> (i64, String, u64, bool, bool) {
    let work = &state.works["w"];
    let version = work.resource_version.to_string();
    (
        work.generation,
        version,
        work.hash,
        work.deleting,
        work.suspended,
    )
}

/// A history, and the order in which its versions are seen, some of them twice.
fn any_news() -> impl Strategy<Value = (Vec<bool>, bool, Vec<usize>)> {
    (prop::collection::vec(any::<bool>(), 1..9), any::<bool>()).prop_flat_map(|(steps, deleted)| {
        let all: Vec<usize> = (0..steps.len()).chain(0..steps.len()).collect();
        (Just(steps), Just(deleted), Just(all).prop_shuffle())
    })
}

fn any_manifests() -> impl Strategy<Value = (Vec<Value>, Vec<Value>)> {
    let kind = prop::sample::select(vec![
        ("v1", "Namespace"),
        ("v1", "ConfigMap"),
        ("apps/v1", "Deployment"),
        ("batch/v1", "Job"),
        ("example.com/v1", "Widget"),
    ]);
    let one = (kind, 0..4u8, 0..3u8).prop_map(|((version, kind), name, value)| {
        json!({"apiVersion": version, "kind": kind,
            "metadata": {"name": format!("n{name}"), "namespace": "default", "labels": {"v": value.to_string()}}})
    });
    prop::collection::vec(one, 0..8)
        .prop_flat_map(|all| (Just(all.clone()), Just(all).prop_shuffle()))
}

fn good(manifests: &[Value]) -> Vec<Manifest> {
    let texts: Vec<String> = manifests.iter().map(Value::to_string).collect();
    read_all(&texts).into_iter().flatten().collect()
}

/// The same JSON with every map written backwards.
fn backwards(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let fields = map.iter().rev();
            let texts =
                fields.map(|(key, v)| format!("{}:{}", Value::from(key.as_str()), backwards(v)));
            format!("{{{}}}", texts.collect::<Vec<_>>().join(","))
        }
        Value::Array(items) => {
            let texts: Vec<_> = items.iter().map(backwards).collect();
            format!("[{}]", texts.join(","))
        }
        other => other.to_string(),
    }
}

proptest! {
    /// News of a watch in any order, some twice, end with the newest; and on the way the generation
    /// never goes back.
    #[test]
    fn news_are_order_blind_and_never_go_back((steps, deleted, order) in any_news()) {
        let history = history(&steps, deleted);
        let mut state = State::default();
        let mut generation = 0;
        for index in order {
            state.upsert(&history[index]);
            let now = known(&state).0;
            prop_assert!(now >= generation, "{generation} became {now}");
            generation = now;
        }
        let mut straight = State::default();
        for wire in &history {
            straight.upsert(wire);
        }
        prop_assert_eq!(known(&state), known(&straight));
        // Deciding anew about the same news changes nothing.
        let last = history.last().expect("one at least");
        state.upsert(last);
        prop_assert_eq!(known(&state), known(&straight));
    }

    /// Which objects a Work is about, and what is wanted of each, does not depend on the order of its
    /// manifests; of two about one object the first counts, whichever that is.
    #[test]
    fn the_order_of_manifests_does_not_matter((one, other) in any_manifests()) {
        let targets = |all: &[Manifest]| all.iter().map(|m| m.target.clone()).collect::<BTreeSet<_>>();
        let (one, other) = (good(&one), good(&other));
        prop_assert_eq!(targets(&one), targets(&other));
        let wanted = |all: &[Manifest]| {
            let mut all: Vec<_> = all.iter().map(|m| (rank(&m.target.gvk), m.target.clone())).collect();
            all.sort();
            all
        };
        prop_assert_eq!(wanted(&one), wanted(&other));
    }

    /// The order of fields in a manifest's text means nothing.
    #[test]
    fn the_order_of_fields_does_not_matter((manifests, _) in any_manifests()) {
        for manifest in &manifests {
            let read = |text: &str| Manifest::read(0, text).map(|m| Desired::new(&m, WORK, true, false).hash);
            prop_assert_eq!(read(&manifest.to_string()), read(&backwards(manifest)));
        }
    }
}
