//! Kinds that every group has: `DeleteOptions`, `WatchEvent`.

use serde_json::{Value, json};

/// Groups and versions that a real server knows of, served or not.
const KNOWN: &str = "\
    admissionregistration.k8s.io/v1 admissionregistration.k8s.io/v1alpha1 \
    admissionregistration.k8s.io/v1beta1 apps/v1 apps/v1beta1 apps/v1beta2 \
    authentication.k8s.io/v1 authentication.k8s.io/v1alpha1 authentication.k8s.io/v1beta1 \
    authorization.k8s.io/v1 authorization.k8s.io/v1beta1 autoscaling/v1 autoscaling/v2 batch/v1 \
    batch/v1beta1 certificates.k8s.io/v1 certificates.k8s.io/v1alpha1 \
    certificates.k8s.io/v1beta1 coordination.k8s.io/v1 coordination.k8s.io/v1alpha2 \
    coordination.k8s.io/v1beta1 discovery.k8s.io/v1 discovery.k8s.io/v1beta1 events.k8s.io/v1 \
    events.k8s.io/v1beta1 extensions/v1beta1 flowcontrol.apiserver.k8s.io/v1 \
    flowcontrol.apiserver.k8s.io/v1beta1 flowcontrol.apiserver.k8s.io/v1beta2 \
    flowcontrol.apiserver.k8s.io/v1beta3 internal.apiserver.k8s.io/v1alpha1 \
    networking.k8s.io/v1 networking.k8s.io/v1beta1 node.k8s.io/v1 node.k8s.io/v1alpha1 \
    node.k8s.io/v1beta1 policy/v1 policy/v1beta1 rbac.authorization.k8s.io/v1 \
    rbac.authorization.k8s.io/v1alpha1 rbac.authorization.k8s.io/v1beta1 resource.k8s.io/v1 \
    resource.k8s.io/v1alpha3 resource.k8s.io/v1beta1 resource.k8s.io/v1beta2 \
    scheduling.k8s.io/v1 scheduling.k8s.io/v1alpha2 scheduling.k8s.io/v1beta1 storage.k8s.io/v1 \
    storage.k8s.io/v1alpha1 storage.k8s.io/v1beta1 storagemigration.k8s.io/v1beta1";

/// A kind that every group has: in the document of a built-in group that one's alone, in one of custom
/// kinds everybody's.
pub(super) fn kinds(kind: &str, built_in: Option<(&str, &str)>) -> Value {
    let mut all: Vec<(&str, &str)> = vec![("", "v1")];
    match built_in {
        Some(of) => all.push(of),
        None => all.extend(KNOWN.split(' ').filter_map(|word| word.split_once('/'))),
    }
    all.sort_unstable();
    all.dedup();
    let all = all.iter();
    all.map(|(group, version)| json!({"group": group, "version": version, "kind": kind}))
        .collect()
}
