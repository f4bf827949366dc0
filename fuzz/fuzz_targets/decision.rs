//! A manifest and a live object as bytes: what would be done, and that it is then done.
#![no_main]

use agent::execution::conflict;
use agent::execution::decide::{Decision, Live, Observed, Owner, decide};
use agent::execution::desired::{Desired, WorkRef};
use agent::execution::fields;
use agent::execution::interpret::Shown;
use agent::execution::manifest::Manifest;
use agent::execution::state::LiveRecord;
use agent::execution::wire::LiveMeta;
use chrono::{DateTime, Utc};
use common::interpreter::retain;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

const WORK: WorkRef<'_> = WorkRef {
    namespace: "karmada-es-m1",
    name: "w",
};

fn now() -> DateTime<Utc> {
    DateTime::from_timestamp(1_800_000_000, 0).expect("in range")
}

// The first byte chooses what is not in the objects; the rest is a manifest, a zero byte, a live object.
fuzz_target!(|data: &[u8]| {
    let Some((choice, rest)) = data.split_first() else {
        return;
    };
    let mut parts = rest.splitn(2, |byte| *byte == 0);
    let mut value = || serde_json::from_slice::<Value>(parts.next()?).ok();
    let Some(manifest) = value().and_then(|body| Manifest::from_value(0, body).ok()) else {
        return;
    };
    let desired = Desired::new(&manifest, WORK, choice & 1 == 0, choice & 2 == 0);
    let Some(object) = value() else {
        return;
    };
    let meta = LiveMeta::read(&object);
    let paths = &desired.paths;
    let _ = retain::owned(&meta.fields, paths);
    let _ = retain::retained_object(&desired.full, &object, paths);
    let entries = object["metadata"]["managedFields"].as_array();
    let _ = fields::take_over(entries.map_or(&[][..], Vec::as_slice), "towline");
    let _ = LiveRecord::new(
        Shown::built_in(&manifest.target.gvk, &object),
        meta.clone(),
        WORK.namespace,
        true,
    );
    // A live object may also come as the `Status` of a conflict.
    let conflicts = conflict::read(&object);
    let _ = conflict::answer(&conflicts, choice & 4 == 0, Some(&manifest.body));

    let owner = match (meta.managed, choice & 24) {
        (false, _) => Owner::Unmanaged,
        (true, _) if meta.belongs_to(WORK.namespace, WORK.name) => Owner::ThisWork,
        (true, 0) => Owner::OtherWork,
        (true, _) => Owner::Nobody,
    };
    let seen = Observed {
        live: Some(Live {
            uid: meta.uid.clone(),
            owner,
            deleting: meta.deleting,
            as_wanted: desired.is_met(meta.hash, &meta.fields),
            hold_until: meta.hold_until,
        }),
        overwrite: desired.overwrite,
        retry_at: (choice & 32 == 0).then(|| now() + chrono::TimeDelta::seconds(1)),
    };
    let decision = decide(now(), &seen);
    assert_eq!(decision, decide(now(), &seen));
    let writes = matches!(decision, Decision::Create | Decision::Apply { .. });
    if writes {
        let foreign = matches!(owner, Owner::Unmanaged | Owner::OtherWork);
        assert!(
            !foreign || desired.overwrite,
            "what is another's is left alone"
        );
        let done = Observed {
            live: seen.live.map(|live| Live {
                owner: Owner::ThisWork,
                as_wanted: true,
                ..live
            }),
            ..seen
        };
        assert_eq!(
            decide(now(), &done),
            Decision::InSync,
            "done once, it is done"
        );
    }
});
