//! The roles and bindings that every API server begins with.
//!
//! The table beside this file holds what a fresh API server of Kubernetes 1.36 lists of `clusterroles`,
//! `clusterrolebindings`, `roles` and `rolebindings`, without uids, times, versions and managed fields.

use flate2::read::GzDecoder;
use serde_json::Value;
use std::io::Read as _;

const TABLE: &[u8] = include_bytes!("bootstrap.json.gz");

/// Roles that a real server makes before all others, in its order: clients may see which is older.
const FIRST: [&str; 5] = [
    "cluster-admin",
    "system:discovery",
    "system:monitoring",
    "system:basic-user",
    "system:public-info-viewer",
];

/// Every role and binding, roles first.
pub fn objects() -> Vec<Value> {
    let mut text = String::new();
    GzDecoder::new(TABLE)
        .read_to_string(&mut text)
        .expect("invariant: the table is compressed text");
    let mut objects: Vec<Value> =
        serde_json::from_str(&text).expect("invariant: the table is JSON");
    let first = |object: &Value| {
        let name = object["metadata"]["name"].as_str();
        let place = FIRST.iter().position(|first| Some(*first) == name);
        let place = place.filter(|_| object["kind"] == "ClusterRole");
        place.unwrap_or(FIRST.len())
    };
    objects.sort_by_key(first);
    for object in &mut objects {
        // What a role gathers is not its own, and comes when others are there.
        if object["aggregationRule"].is_object() {
            object["rules"] = Value::Null;
        }
    }
    objects
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_holds_the_known_roles() {
        let objects = objects();
        for (kind, name) in [
            ("ClusterRole", "cluster-admin"),
            ("ClusterRoleBinding", "system:public-info-viewer"),
            ("Role", "system:controller:token-cleaner"),
        ] {
            let found = objects
                .iter()
                .any(|object| object["kind"] == kind && object["metadata"]["name"] == name);
            assert!(found, "{kind} {name}");
        }
        assert!(
            objects
                .iter()
                .all(|object| object["metadata"].get("uid").is_none())
        );
    }
}
