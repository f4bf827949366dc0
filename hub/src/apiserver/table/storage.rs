//! Rows of storage.

use super::{Row, list, row_of};
use crate::apiserver::scheme::Resource;
use serde_json::Value;

pub(super) fn cells(row: &Row<'_>, resource: &Resource) -> Option<Vec<Value>> {
    match (&*resource.group, &*resource.kind) {
        ("", "PersistentVolume") => volume(row),
        ("", "PersistentVolumeClaim") => claim(row),
        ("storage.k8s.io", "StorageClass") => class(row),
        ("storage.k8s.io", "VolumeAttributesClass") => {
            row_of![row.name(), row.text("driverName"), row.age()]
        }
        ("storage.k8s.io", "CSINode") => row_of![row.name(), row.count("spec.drivers"), row.age()],
        ("storage.k8s.io", "CSIDriver") => driver(row),
        ("storage.k8s.io", "VolumeAttachment") => row_of![
            row.name(),
            row.text("spec.attacher"),
            row.text("spec.source.persistentVolumeName"),
            row.text("spec.nodeName"),
            row.flag("status.attached").unwrap_or(false),
            row.age(),
        ],
        _ => None,
    }
}

fn modes(modes: &[Value]) -> String {
    let known = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let found = known
        .iter()
        .filter(|(mode, _)| modes.iter().any(|one| one == mode));
    let short: Vec<&str> = found.map(|(_, short)| *short).collect();
    short.join(",")
}

fn annotation<'a>(row: &Row<'a>, key: &str) -> Option<&'a str> {
    row.at("metadata.annotations")?.get(key)?.as_str()
}

/// An annotation was the way to name it before there was a field.
fn class_of<'a>(row: &Row<'a>) -> &'a str {
    annotation(row, "volume.beta.kubernetes.io/storage-class")
        .unwrap_or_else(|| row.text("spec.storageClassName"))
}

fn storage<'a>(row: &Row<'a>, path: &str) -> &'a str {
    match row.text(path) {
        "" => "0",
        size => size,
    }
}

fn phase<'a>(row: &Row<'a>) -> &'a str {
    if row.is_deleting() {
        "Terminating"
    } else {
        row.text("status.phase")
    }
}

fn volume(row: &Row<'_>) -> Option<Vec<Value>> {
    let claim = match row.at("spec.claimRef") {
        None | Some(Value::Null) => String::new(),
        Some(_) => {
            let namespace = row.text("spec.claimRef.namespace");
            format!("{namespace}/{}", row.text("spec.claimRef.name"))
        }
    };
    row_of![
        row.name(),
        storage(row, "spec.capacity.storage"),
        modes(row.list("spec.accessModes")),
        row.text("spec.persistentVolumeReclaimPolicy"),
        phase(row),
        claim,
        class_of(row),
        row.or("spec.volumeAttributesClassName", "<unset>"),
        row.text("status.reason"),
        row.age(),
        row.or("spec.volumeMode", "<unset>"),
    ]
}

fn claim(row: &Row<'_>) -> Option<Vec<Value>> {
    let bound = !row.text("spec.volumeName").is_empty();
    let (capacity, modes) = if bound {
        (
            storage(row, "status.capacity.storage"),
            modes(row.list("status.accessModes")),
        )
    } else {
        ("", String::new())
    };
    row_of![
        row.name(),
        phase(row),
        row.text("spec.volumeName"),
        capacity,
        modes,
        class_of(row),
        row.or("spec.volumeAttributesClassName", "<unset>"),
        row.age(),
        row.or("spec.volumeMode", "<unset>"),
    ]
}

fn class(row: &Row<'_>) -> Option<Vec<Value>> {
    let is_default = [
        "storageclass.kubernetes.io/is-default-class",
        "storageclass.beta.kubernetes.io/is-default-class",
    ]
    .into_iter()
    .any(|key| annotation(row, key) == Some("true"));
    let name = if is_default {
        format!("{} (default)", row.name())
    } else {
        row.name().to_owned()
    };
    row_of![
        name,
        row.text("provisioner"),
        row.or("reclaimPolicy", "Delete"),
        row.or("volumeBindingMode", "Immediate"),
        row.flag("allowVolumeExpansion").unwrap_or(false),
        row.age(),
    ]
}

fn driver(row: &Row<'_>) -> Option<Vec<Value>> {
    let joined = |path: &str, key: &str| {
        let all = row.list(path).iter().filter_map(|one| match key {
            "" => one.as_str(),
            key => one.get(key).and_then(Value::as_str).or(Some("")),
        });
        all.collect::<Vec<_>>().join(",")
    };
    let modes = joined("spec.volumeLifecycleModes", "");
    let tokens = if list(row.at("spec.tokenRequests")).is_empty() {
        "<unset>".to_owned()
    } else {
        joined("spec.tokenRequests", "audience")
    };
    row_of![
        row.name(),
        row.flag("spec.attachRequired").unwrap_or(true),
        row.flag("spec.podInfoOnMount").unwrap_or(false),
        row.flag("spec.storageCapacity").unwrap_or(false),
        tokens,
        row.flag("spec.requiresRepublish").unwrap_or(false),
        if modes.is_empty() { "<none>" } else { &modes },
        row.age(),
    ]
}
