//! A Work as bytes: reading it, its manifests, and what would be applied for them.
#![no_main]

use agent::execution::desired::{Desired, WorkRef, format_hash, parse_hash};
use agent::execution::manifest::{Manifest, read_all, strip};
use agent::execution::order::rank;
use agent::execution::report::report;
use agent::execution::state::State;
use agent::execution::wire::WireWork;
use chrono::DateTime;
use libfuzzer_sys::fuzz_target;
use serde_json::value::RawValue;

const WORK: WorkRef<'_> = WorkRef {
    namespace: "karmada-es-m1",
    name: "w",
};

fuzz_target!(|data: &[u8]| {
    let Ok(work) = serde_json::from_slice::<WireWork>(data) else {
        // Not a Work: then perhaps one manifest.
        if let Ok(text) = std::str::from_utf8(data) {
            read(&[text]);
        }
        return;
    };
    let raw: Vec<&RawValue> = serde_json::from_str(work.manifests()).unwrap_or_default();
    let texts: Vec<&str> = raw.iter().map(|raw| raw.get()).collect();
    read(&texts);
    let mut state = State::default();
    let (name, _) = state.upsert(&work);
    // The same news again is no news.
    let known = |state: &State| state.works.get(&name).map(|w| (w.generation, w.hash));
    let before = known(&state);
    state.upsert(&work);
    assert_eq!(known(&state), before);
    let now = DateTime::from_timestamp(1_800_000_000, 0).expect("in range");
    let _ = report(&state, &name, now);
});

fn read(texts: &[&str]) {
    for manifest in read_all(texts).into_iter().flatten() {
        let mut again = manifest.body.clone();
        strip(&mut again);
        assert_eq!(again, manifest.body, "stripping is idempotent");
        let anew = Manifest::from_value(0, manifest.body.clone());
        assert_eq!(
            anew.as_ref(),
            Ok(&manifest),
            "what was read can be read again"
        );
        let _ = rank(&manifest.target.gvk);
        for (namespaced, scaled) in [(true, false), (false, true)] {
            let desired = Desired::new(&manifest, WORK, namespaced, scaled);
            assert_eq!(parse_hash(&format_hash(desired.hash)), Some(desired.hash));
            let twice = Desired::new(&manifest, WORK, namespaced, scaled);
            assert_eq!(twice.hash, desired.hash, "a hash is of the manifest alone");
            assert_eq!(
                desired.owned["metadata"]["name"],
                manifest.target.name.as_str()
            );
            assert!(desired.retains || desired.full == desired.owned);
        }
    }
}
