//! Which fields a write does not reach: the status where there is a door of its own for it, and all else
//! through that door.

use crate::apiserver::scheme::Resource;

/// A path of members.
pub(super) type Path = &'static [&'static str];

const STATUS: &[Path] = &[&["status"]];
const SPEC: &[Path] = &[&["spec"]];
const SPEC_AND_METADATA: &[Path] = &[&["metadata"], &["spec"]];

/// The fields that a write of `subresource` leaves as they are, and so never owns.
pub(super) fn beyond(resource: &Resource, subresource: &str) -> &'static [Path] {
    let kind = (resource.group.as_ref(), resource.kind.as_ref());
    match (kind, subresource) {
        (("certificates.k8s.io", "CertificateSigningRequest"), "") => &[&["spec"], &["status"]],
        (("certificates.k8s.io", "CertificateSigningRequest"), "status") => {
            &[&["spec"], &["status", "conditions"]]
        }
        (("certificates.k8s.io", "CertificateSigningRequest"), "approval") => {
            &[&["spec"], &["status", "certificate"]]
        }
        ((_, _), "") if resource.has_status() => STATUS,
        (("", "Namespace"), "finalize") => STATUS,
        (("apps", "Deployment"), "status") => &[&["spec"], &["metadata", "labels"]],
        (("", "Pod"), "status") => &[
            &["spec"],
            &["metadata", "deletionTimestamp"],
            &["metadata", "ownerReferences"],
        ],
        (("storage.k8s.io", "VolumeAttachment"), "status") => SPEC_AND_METADATA,
        ((_, _), "status") if resource.is_custom() => SPEC_AND_METADATA,
        ((_, _), "status") => SPEC,
        _ => &[],
    }
}
