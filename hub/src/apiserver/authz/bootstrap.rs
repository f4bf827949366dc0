//! The roles and bindings that every API server begins with.
//!
//! The table beside this file holds what a fresh API server of Kubernetes 1.36 lists of `clusterroles`,
//! `clusterrolebindings`, `roles` and `rolebindings`, without uids, times, versions and managed fields.

use flate2::read::GzDecoder;
use serde_json::Value;
use std::io::Read as _;

const TABLE: &[u8] = include_bytes!("bootstrap.json.gz");

/// Every role and binding, roles first.
pub fn objects() -> Vec<Value> {
    let mut text = String::new();
    GzDecoder::new(TABLE)
        .read_to_string(&mut text)
        .expect("invariant: the table is compressed text");
    let mut objects: Vec<Value> =
        serde_json::from_str(&text).expect("invariant: the table is JSON");
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
