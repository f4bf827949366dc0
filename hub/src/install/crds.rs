//! The definitions of Karmada's kinds, and the wait until they are served.

use super::object::Desired;
use flate2::read::GzDecoder;
use kube::Client;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::io::Read as _;
use std::sync::LazyLock;
use std::time::Duration;
use tokio::time::{Instant, sleep};

const LIST: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const POLL: Duration = Duration::from_millis(50);

/// The definitions as [`common::api::all_crds`] makes them, in one list: deriving the schemas would be
/// the dearest thing that a hub does at its start. A test holds it.
static TABLE: &[u8] = include_bytes!("crds.json.gz");

static ALL: LazyLock<Vec<Desired>> = LazyLock::new(|| {
    let mut text = String::new();
    GzDecoder::new(TABLE)
        .read_to_string(&mut text)
        .expect("invariant: the table is compressed text");
    let all: Vec<&RawValue> = serde_json::from_str(&text).expect("invariant: the table is JSON");
    let all = all.into_iter();
    all.map(|one| Desired::of_text(one.get().into())).collect()
});

/// Every definition a hub needs.
pub fn desired() -> Vec<Desired> {
    ALL.clone()
}

/// As much of a definition as tells whether it is served: read with its schemas, all of them take a
/// megabyte.
#[derive(Deserialize)]
struct Definition {
    metadata: Named,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

#[derive(Default, Deserialize)]
struct Status {
    #[serde(default)]
    conditions: Option<Vec<Condition>>,
}

#[derive(Deserialize)]
struct Condition {
    r#type: String,
    status: String,
}

#[derive(Deserialize)]
struct Definitions {
    items: Vec<Definition>,
}

/// Waits until all are served; returns the names of those that are not when patience ends.
pub async fn await_established(
    client: &Client,
    patience: Duration,
) -> Result<Vec<String>, kube::Error> {
    let wanted: Vec<String> = ALL.iter().map(|d| d.key().name).collect();
    let deadline = Instant::now() + patience;
    loop {
        let list = http::Request::get(LIST).body(Vec::new());
        let list = list.expect("invariant: the path is a constant");
        let live = client.request::<Definitions>(list).await?.items;
        let missing: Vec<String> = wanted
            .iter()
            .filter(|name| {
                !live
                    .iter()
                    .any(|crd| crd.metadata.name == **name && served(crd))
            })
            .cloned()
            .collect();
        if missing.is_empty() || Instant::now() >= deadline {
            return Ok(missing);
        }
        sleep(POLL).await;
    }
}

fn served(crd: &Definition) -> bool {
    let mut conditions = crd.status.conditions.iter().flatten();
    conditions.any(|condition| condition.r#type == "Established" && condition.status == "True")
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use serde_json::Value;
    use std::io::Write as _;

    /// Regenerate with `UPDATE_MANIFESTS=1 cargo test -p hub manifest`.
    #[test]
    fn the_table_is_what_the_manifests_are_made_of() {
        let object = |crd| serde_json::to_value(crd).expect("a definition is JSON");
        let made = common::api::all_crds().into_iter().map(object);
        let made: Vec<Value> = made.map(|crd| Desired::new(crd).value()).collect();
        if std::env::var_os("UPDATE_MANIFESTS").is_some() {
            let mut table = GzEncoder::new(Vec::new(), Compression::best());
            let text = serde_json::to_vec(&made).expect("JSON");
            table.write_all(&text).expect("memory");
            let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/install/crds.json.gz");
            std::fs::write(path, table.finish().expect("memory")).expect("write");
            return;
        }
        let found: Vec<Value> = desired().iter().map(Desired::value).collect();
        assert!(
            found == made,
            "hub/src/install/crds.json.gz is not what is made; run UPDATE_MANIFESTS=1 cargo test -p hub manifest"
        );
    }
}
