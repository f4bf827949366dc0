//! The kinds that churn: one that is built in, one that is custom, and one whose renewals the server
//! may forget when it is killed.

use kube::api::ApiResource;
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use super::check::Version;

/// Where all of it happens.
pub(crate) const NAMESPACE: &str = "karmada-es-churn";
/// The object that is created when all else has ended.
pub(crate) const LAST: u32 = 9999;

/// A kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    ConfigMap,
    Work,
    Lease,
}

/// All of them.
pub(crate) const KINDS: [Kind; 3] = [Kind::ConfigMap, Kind::Work, Kind::Lease];

impl Kind {
    fn group_version(self) -> (&'static str, &'static str) {
        match self {
            Self::ConfigMap => ("", "v1"),
            Self::Work => ("work.karmada.io", "v1alpha1"),
            Self::Lease => ("coordination.k8s.io", "v1"),
        }
    }

    /// Its name in paths.
    pub(crate) fn plural(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmaps",
            Self::Work => "works",
            Self::Lease => "leases",
        }
    }

    /// Where its objects are.
    pub(crate) fn collection(self) -> String {
        let (group, version) = self.group_version();
        let root = match group {
            "" => "/api".to_owned(),
            group => format!("/apis/{group}"),
        };
        format!("{root}/{version}/namespaces/{NAMESPACE}/{}", self.plural())
    }

    /// Where one of its objects is.
    pub(crate) fn path(self, number: u32) -> String {
        format!("{}/{}", self.collection(), name(number))
    }

    /// As kube-rs knows it.
    pub(crate) fn resource(self) -> ApiResource {
        let (group, version) = self.group_version();
        let kind = GroupVersionKind::gvk(group, version, &format!("{self:?}"));
        ApiResource::from_gvk_with_plural(&kind, self.plural())
    }

    /// Whether a kill may take back what moved only a time.
    pub(crate) fn forgets(self) -> bool {
        self == Self::Lease
    }

    /// A new object.
    pub(crate) fn object(self, number: u32, turn: u64) -> Value {
        let (group, version) = self.group_version();
        let version = match group {
            "" => version.to_owned(),
            group => format!("{group}/{version}"),
        };
        let mut object = json!({
            "apiVersion": version,
            "kind": format!("{self:?}"),
            "metadata": {"name": name(number), "annotations": {"turn": turn.to_string()}},
        });
        let filler = "x".repeat(usize::try_from(turn * 7919 % 2000).unwrap_or_default());
        let (key, content) = match self {
            Self::ConfigMap => ("data", json!({"filler": filler})),
            Self::Work => (
                "spec",
                json!({"workload": {"manifests": [{
                    "apiVersion": "v1", "kind": "ConfigMap",
                    "metadata": {"name": "inner"}, "data": {"filler": filler},
                }]}}),
            ),
            Self::Lease => ("spec", json!({"holderIdentity": "churn"})),
        };
        object[key] = content;
        object
    }

    /// Changes an object; returns whether a kill may take the change back.
    pub(crate) fn change(self, object: &mut Value, turn: u64) -> bool {
        let renewal = self == Self::Lease && !turn.is_multiple_of(4);
        if renewal {
            let micros = turn % 1_000_000;
            object["spec"]["renewTime"] = json!(format!("2026-01-01T00:00:00.{micros:06}Z"));
        } else {
            object["metadata"]["annotations"]["turn"] = json!(turn.to_string());
        }
        renewal
    }
}

/// The name of an object.
pub(crate) fn name(number: u32) -> String {
    format!("c-{number}")
}

/// Which of ours an object is; none of ours is one that the server makes in every namespace.
pub(crate) fn number(name: &str) -> Option<u32> {
    name.strip_prefix("c-")?.parse().ok()
}

/// What an object's metadata says of it.
pub(crate) fn version(uid: &str, rv: &str) -> Option<Version> {
    let uid = u128::from_str_radix(&uid.replace('-', ""), 16).ok()?;
    let rv = rv.parse().ok()?;
    Some(Version { uid, rv })
}

/// An object of ours and its version.
pub(crate) fn read(object: &Value) -> Option<(u32, Version)> {
    let metadata = &object["metadata"];
    let number = number(metadata["name"].as_str()?)?;
    let version = version(
        metadata["uid"].as_str()?,
        metadata["resourceVersion"].as_str()?,
    )?;
    Some((number, version))
}
