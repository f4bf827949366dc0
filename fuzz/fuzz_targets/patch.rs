//! A stored object and a patch as bytes: what a server would make of them, and who would own it.
#![no_main]

use chrono::DateTime;
use hub::apiserver::error::{ApiError, MOST_TOLD};
use hub::apiserver::managed::{self, Manager};
use hub::apiserver::patch;
use hub::apiserver::scheme::{Resource, Scheme};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use std::sync::{Arc, LazyLock};

/// Kinds with lists of every sort.
static KINDS: LazyLock<Vec<Arc<Resource>>> = LazyLock::new(|| {
    let scheme = Scheme::new();
    [
        ("", "configmaps"),
        ("", "services"),
        ("", "pods"),
        ("apps", "deployments"),
        ("apiextensions.k8s.io", "customresourcedefinitions"),
    ]
    .iter()
    .filter_map(|(group, plural)| scheme.resource(group, "v1", plural))
    .collect()
});

// One byte for the kind, one for what is done, then the object, a line feed, and the patch.
fuzz_target!(|data: &[u8]| {
    let [kind, verb, rest @ ..] = data else {
        return;
    };
    let Some(at) = rest.iter().position(|byte| *byte == b'\n') else {
        return;
    };
    let (live, body) = (&rest[..at], &rest[at + 1..]);
    let resource = &KINDS[usize::from(*kind) % KINDS.len()];
    let Ok(mut live) = serde_json::from_slice::<Value>(live) else {
        return;
    };
    if !live.is_object() || resource.decode(&mut live).is_err() {
        return;
    }
    let schema = &resource.schema;
    let now = DateTime::from_timestamp(1_800_000_000, 0).expect("in range");
    let manager = Manager::new(resource, "fuzz", if verb & 8 == 0 { "" } else { "status" });
    let patched = match verb % 4 {
        0 => patch::json_patch(&live, body),
        1 => patch::merge_patch(&live, body),
        2 => patch::strategic_merge(&live, body, schema),
        _ => {
            let Ok(config) = serde_json::from_slice::<Value>(body) else {
                return;
            };
            let force = verb & 4 != 0;
            managed::apply(Some(&live), &config, schema, &manager, force, now)
        }
    };
    let Ok(mut new) = patched else { return };
    if !new.is_object() || resource.decode(&mut new).is_err() {
        return;
    }
    let wrong = resource.validate(&new, Some(&live)).errors;
    let told = ApiError::invalid(&resource.group_kind(), "a", wrong);
    let causes = told.details.map_or(0, |details| details.causes.len());
    assert!(causes <= MOST_TOLD, "{causes}");
    managed::track(Some(&live), &mut new, schema, &manager, now);
    // What was written is read again: nothing that follows may be hindered by it.
    let again = managed::apply(Some(&new), &live, schema, &manager, true, now);
    if let Err(refused) = again {
        assert!(
            !refused.message.contains("failed to decode managed fields"),
            "{refused}"
        );
    }
    assert!(managed::differ_in_times_only(&new, &new));
});
