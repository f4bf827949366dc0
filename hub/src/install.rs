//! What makes an API server a hub: the desired objects, the plan to get there, and the proof it works.
//!
//! Builders are pure. Order is part of the rules: first what guards ([`Installation::guards`]), then the
//! proof that the guards hold, then what gives rights ([`Installation::grants`]). `towline init` does it
//! once; [`repair`] keeps it so while a hub runs.

pub mod admission;
pub mod cluster_info;
pub mod crds;
pub mod flow;
pub mod foreign;
pub mod namespaces;
pub mod object;
pub mod plan;
pub mod probe;
pub mod proof;
pub mod rbac;
pub mod repair;
pub mod roles;

use cluster_info::ClusterInfo;
use common::names::SYSTEM_NAMESPACE;
use k8s_openapi::api::core::v1::ConfigMap;
use object::{Desired, ObjectKey};
use serde_json::json;

/// Oldest minor version of Kubernetes 1 that can be a hub.
pub const MINIMUM_MINOR: u32 = 33;
/// ConfigMap in the hub's namespace that says what `init` made; without it nothing is put back.
pub const MARKER: &str = "towline-install";
/// Key in it: the kubeconfig of a cluster-info that `init` made, so that a hub can put it back; it does
/// not know the advertised addresses.
pub const MARKER_CLUSTER_INFO: &str = "cluster-info";
/// Key in it, and its value where the API server enforces by itself what policies do elsewhere.
pub const MARKER_FOUNDATION: &str = "foundation";
/// See [`MARKER_FOUNDATION`].
pub const BUILT_IN: &str = "built-in";

/// Everything that `init` wants on a hub.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Installation {
    /// What to say in cluster-info; `None` when one exists that is not ours.
    pub cluster_info: Option<ClusterInfo>,
    /// Whether the API server is the built-in one, which needs no policies and no fair queuing.
    pub built_in: bool,
}

impl Installation {
    /// What must be in force before anybody gets a right.
    pub fn guards(&self) -> Vec<Desired> {
        let (admission, flow) = if self.built_in {
            Default::default()
        } else {
            (admission::desired(), flow::desired())
        };
        [
            namespaces::desired(),
            crds::desired(),
            admission,
            rbac::probe_rights(),
            flow,
        ]
        .concat()
    }

    /// What gives rights, and what tells agents where the hub is.
    pub fn grants(&self) -> Vec<Desired> {
        let info = self.cluster_info.as_ref().map(ClusterInfo::desired);
        [
            rbac::grants(),
            rbac::push(),
            roles::desired(),
            // A hub that runs puts cluster-info back as the marker has it, so the marker comes first.
            vec![self.marker()],
            info.into_iter().collect(),
            rbac::cluster_info(),
        ]
        .concat()
    }

    /// All of it, in the order in which it is applied.
    pub fn desired(&self) -> Vec<Desired> {
        [self.guards(), self.grants()].concat()
    }

    /// What the marker is called, and where it lies.
    pub fn marker_key(&self) -> ObjectKey {
        self.marker().key()
    }

    fn marker(&self) -> Desired {
        let mut data = json!({});
        if let Some(info) = &self.cluster_info {
            data[MARKER_CLUSTER_INFO] = json!(info.kubeconfig());
        }
        if self.built_in {
            data[MARKER_FOUNDATION] = json!(BUILT_IN);
        }
        Desired::new(json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": MARKER, "namespace": SYSTEM_NAMESPACE},
            "data": data,
        }))
    }
}

/// Whether the marker says that the API server is the built-in one.
pub fn is_built_in(marker: &ConfigMap) -> bool {
    let data = marker.data.as_ref();
    let foundation = data.and_then(|data| data.get(MARKER_FOUNDATION));
    foundation.is_some_and(|foundation| foundation == BUILT_IN)
}

/// The minor version in an API server's answer (`"33"`, `"33+"`), if the major one is 1.
pub fn minor_version(major: &str, minor: &str) -> Option<u32> {
    let digits: String = minor.chars().take_while(char::is_ascii_digit).collect();
    (major == "1").then(|| digits.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn installation() -> Installation {
        Installation {
            cluster_info: Some(ClusterInfo {
                servers: vec!["https://hub:6443".into()],
                ca_pem: b"PEM".to_vec(),
            }),
            built_in: false,
        }
    }

    #[test]
    fn every_object_is_wanted_once_and_labelled() {
        let mut keys = BTreeSet::new();
        for desired in installation().desired() {
            assert!(keys.insert(desired.key()), "{} twice", desired.key());
            let value = desired.value();
            let labels = &value["metadata"]["labels"];
            assert_eq!(
                labels[common::labels::PART_OF],
                "towline",
                "{}",
                desired.key()
            );
        }
    }

    /// Regenerate with `UPDATE_MANIFESTS=1 cargo test -p hub manifest`.
    #[test]
    fn the_manifest_on_disk_is_what_init_makes() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../manifests/hub/init.yaml");
        // The kinds have files of their own in manifests/crds.
        let mut desired = Installation::default().desired();
        desired.retain(|desired| desired.key().kind != "CustomResourceDefinition");
        let text = format!(
            "# Generated from hub/src/install; regenerate with: UPDATE_MANIFESTS=1 cargo test -p hub manifest\n{}",
            object::yaml(&desired)
        );
        if std::env::var_os("UPDATE_MANIFESTS").is_some() {
            std::fs::create_dir_all(concat!(env!("CARGO_MANIFEST_DIR"), "/../manifests/hub"))
                .expect("folder");
            std::fs::write(path, &text).expect("write");
        }
        let found = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            found == text,
            "manifests/hub/init.yaml is not what init makes; run UPDATE_MANIFESTS=1 cargo test -p hub manifest"
        );
    }

    #[test]
    fn policies_come_before_rights() {
        let rights = ["ClusterRoleBinding"];
        let guards = installation().guards();
        assert!(
            guards
                .iter()
                .all(|d| !rights.contains(&d.key().kind.as_str()))
        );
        assert!(
            guards
                .iter()
                .any(|d| d.key().name == admission::AGENTS_POLICY)
        );
    }

    #[test]
    fn versions_are_read_as_providers_write_them() {
        assert_eq!(minor_version("1", "33"), Some(33));
        assert_eq!(minor_version("1", "33+"), Some(33));
        assert_eq!(minor_version("2", "33"), None);
        assert_eq!(minor_version("1", ""), None);
    }
}
