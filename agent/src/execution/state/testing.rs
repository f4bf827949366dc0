//! Works for tests of what the agent knows.

use crate::execution::wire::WireWork;

pub(super) fn work(
    name: &str,
    uid: &str,
    generation: i64,
    version: u64,
    manifests: &str,
) -> WireWork {
    serde_json::from_str(&format!(
        r#"{{"metadata":{{"name":"{name}","uid":"{uid}","generation":{generation},"resourceVersion":"{version}"}},
            "spec":{{"workload":{{"manifests":{manifests}}}}}}}"#
    ))
    .expect("decodes")
}
