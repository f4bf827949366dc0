//! The expressions of the admission policies.
//!
//! Traps they mind: `request.subResource` is absent on main resources, and `groups` on some users; a
//! time is a string; objects of `*/*` rules have no type, so a wrong field name is found only by a test;
//! `object` is null on DELETE, so a guard comes first.

use crate::install::object::MANAGED_BY_VALUE;
use common::identity::{AGENT_USER_PREFIX, CERTIFICATE_LIFETIME_CAP, SIGNER};
use common::labels::{
    AGENT_FIELD_MANAGERS, ANCIENT_CHANGES, MANAGED_BY, UNNAMED_FIELD_MANAGER, UNREGISTER,
};
use common::names::{CLUSTER_NAMESPACE, EXECUTION_PREFIX, SYSTEM_NAMESPACE};
use common::unregister::Mode;

/// The groups of whoever asks.
pub(super) const GROUPS: &str = "request.userInfo.?groups.orValue([])";

/// Operation and resource in one word, as the constants below have it.
pub(super) const TARGET: &str = "request.operation + ' ' + request.resource.group + '/' + \
     request.resource.resource + (request.?subResource.orValue('') == '' ? '' : \
     '/' + request.subResource)";
pub(super) const UPDATE_CLUSTER_STATUS: &str = "UPDATE cluster.karmada.io/clusters/status";
pub(super) const UPDATE_LEASE: &str = "UPDATE coordination.k8s.io/leases";
pub(super) const UPDATE_WORK: &str = "UPDATE work.karmada.io/works";
pub(super) const UPDATE_WORK_STATUS: &str = "UPDATE work.karmada.io/works/status";
pub(super) const CREATE_EVENT: &str = "CREATE /events";
pub(super) const UPDATE_EVENT: &str = "UPDATE /events";
pub(super) const CREATE_CSR: &str = "CREATE certificates.k8s.io/certificatesigningrequests";

/// The agent's cluster; empty for an identity that has a group of ours and another name.
pub(super) fn cluster() -> String {
    format!(
        "request.userInfo.username.startsWith('{AGENT_USER_PREFIX}') ? \
         request.userInfo.username.substring({}) : ''",
        AGENT_USER_PREFIX.len(),
    )
}

/// The namespace of the agent's Works.
pub(super) fn execution_namespace() -> String {
    format!("'{EXECUTION_PREFIX}' + variables.cluster")
}

/// What the server itself changes at every write is left out; everything else must be as it was.
pub(super) const METADATA_UNCHANGED: &str = "\
object.metadata.all(k, k in ['managedFields', 'resourceVersion', 'generation'] || \
(k in oldObject.metadata && object.metadata[k] == oldObject.metadata[k])) && \
oldObject.metadata.all(k, k in ['managedFields', 'resourceVersion', 'generation'] || \
k in object.metadata)";

/// As above, but the execution finalizer may come and go.
pub(super) const METADATA_UNCHANGED_BUT_OWN_FINALIZER: &str = "\
object.metadata.all(k, k in ['managedFields', 'resourceVersion', 'generation', 'finalizers'] || \
(k in oldObject.metadata && object.metadata[k] == oldObject.metadata[k])) && \
oldObject.metadata.all(k, k in ['managedFields', 'resourceVersion', 'generation', 'finalizers'] || \
k in object.metadata) && \
object.metadata.?finalizers.orValue([]).filter(f, f != 'karmada.io/execution-controller') == \
oldObject.metadata.?finalizers.orValue([]).filter(f, f != 'karmada.io/execution-controller')";

/// A writer may send field ownership of his own making with any write, as large as the server takes a
/// request, and would fill the store where nobody counts: so its strings are summed, four levels deep.
pub(super) const OWNERSHIP_SMALL: &str = "\
object.metadata.?managedFields.orValue([]).map(m, m.?manager.orValue('').size() + \
m.?apiVersion.orValue('').size() + m.?subresource.orValue('').size() + \
m.?fieldsV1.orValue({}).map(a, a.size() + \
m.fieldsV1[a].map(b, b.size() + \
m.fieldsV1[a][b].map(c, c.size() + \
m.fieldsV1[a][b][c].map(d, d.size() + 100000 * m.fieldsV1[a][b][c][d].size())\
.sum()).sum()).sum()).sum()).sum() <= 8192";

/// Whose a write was is told by its field manager, so an agent may write under no name but an agent's:
/// every entry of another is as old as it was. A server's heap of old entries may move at any write.
pub(super) fn own_manager() -> String {
    let names = AGENT_FIELD_MANAGERS.map(|name| format!("'{name}'"));
    format!(
        "object.metadata.?managedFields.orValue([]).all(m, \
         m.?manager.orValue('') in ['', '{UNNAMED_FIELD_MANAGER}', '{ANCIENT_CHANGES}'] || \
         [{}].exists(p, m.manager.startsWith(p)) || \
         (request.operation == 'UPDATE' && \
         oldObject.metadata.?managedFields.orValue([]).exists(o, \
         o.?manager.orValue('') == m.manager && o.?operation.orValue('') == m.?operation.orValue('') && \
         o.?subresource.orValue('') == m.?subresource.orValue('') && \
         o.?time.orValue('') == m.?time.orValue(''))))",
        names.join(", "),
    )
}

/// All top-level fields but metadata and `field` are as they were.
pub(super) fn unchanged_but(field: &str) -> String {
    format!(
        "object.all(k, k in ['metadata', '{field}'] || \
         (k in oldObject && object[k] == oldObject[k])) && \
         oldObject.all(k, k in ['metadata', '{field}'] || k in object)"
    )
}

/// The Lease's holder, duration and the rest decide nothing, and stay.
pub(super) const LEASE_UNCHANGED_BUT_RENEW_TIME: &str = "\
object.spec.all(k, k == 'renewTime' || \
(k in oldObject.spec && object.spec[k] == oldObject.spec[k])) && \
oldObject.spec.all(k, k == 'renewTime' || k in object.spec)";

/// What an Event of an agent, ours or Karmada's, must be; one expression each, so that none grows past its
/// cost.
pub(super) const EVENT_FORM: [&str; 6] = [
    OWNERSHIP_SMALL,
    "object.involvedObject.all(k, object.involvedObject[k].size() <= 253) && \
     object.?source.?host.orValue('').size() <= 253 && \
     object.?reportingInstance.orValue('').size() <= 128 && object.?type.orValue('').size() <= 64",
    "request.namespace == variables.works",
    "object.involvedObject.?kind.orValue('') == 'Work' && \
     object.involvedObject.?apiVersion.orValue('').startsWith('work.karmada.io/') && \
     object.involvedObject.?namespace.orValue('') == request.namespace && \
     !has(object.related)",
    "object.?source.?component.orValue('') in \
     ['towline-agent', 'execution-controller', 'work-status-controller'] && \
     (object.?reportingComponent.orValue('') == '' || \
     object.reportingComponent == object.source.component)",
    "object.?message.orValue('').size() <= 1024 && object.?reason.orValue('').size() <= 128 && \
     object.?action.orValue('').size() <= 128 && \
     ['labels', 'annotations', 'finalizers', 'ownerReferences'].all(k, !(k in object.metadata))",
];

/// An Event counts what repeats, and is about what it was about, from whom it was.
pub(super) const EVENT_SAME: &str = "\
object.involvedObject == oldObject.involvedObject && \
object.?source.orValue({}) == oldObject.?source.orValue({})";

/// A Work lies in the execution namespace of a cluster.
pub(super) fn work_in_place() -> String {
    format!("request.namespace.startsWith('{EXECUTION_PREFIX}')")
}

/// What is granted to all agents holds only for those that are still registered.
pub(super) const READS_OWN_WORKS: &str = "\
authorizer.group('work.karmada.io').resource('works').namespace(variables.works)\
.check('list').allowed()";

/// Metadata of a certificate signing request.
pub(super) const CSR_METADATA: &str = "\
object.metadata.name.matches('^towline-[a-z0-9]{32,}$') && \
['generateName', 'labels', 'finalizers', 'ownerReferences'].all(k, !(k in object.metadata)) && \
object.metadata.?annotations.orValue({}).all(k, k == 'towline.dev/cluster-id' && \
object.metadata.annotations[k].size() <= 64)";

/// Spec of a certificate signing request; `request` is base64 here.
pub(super) fn csr_spec() -> String {
    const REQUEST_MAX: usize = 4096;
    let encoded = REQUEST_MAX.div_ceil(3) * 4;
    format!(
        "object.spec.signerName == '{SIGNER}' && \
         object.spec.?expirationSeconds.orValue(0) >= 600 && \
         object.spec.?expirationSeconds.orValue(0) <= {CERTIFICATE_LIFETIME_CAP} && \
         object.spec.request.size() <= {encoded}"
    )
}

/// A Cluster goes when it is not Ready, or was told how to go.
pub(super) fn may_delete_cluster(modes: &[&str]) -> String {
    let modes: Vec<String> = modes.iter().map(|mode| format!("'{mode}'")).collect();
    format!(
        "!oldObject.?status.?conditions.orValue([]).exists(c, \
         c.type == 'Ready' && c.status == 'True') || \
         oldObject.metadata.?annotations[?'{UNREGISTER}'].orValue('') in [{}]",
        modes.join(", "),
    )
}

/// Who collects what lost its owner: a namespace whose Cluster is gone.
pub(super) const NOT_GARBAGE_COLLECTION: &str = "!(request.userInfo.username in \
['system:serviceaccount:kube-system:generic-garbage-collector', 'system:kube-controller-manager'])";

/// The Cluster whose Works a namespace holds; empty for others. It is the namespace's owner: one that an
/// execution namespace outlived owns it no more, for it is collected then.
pub(super) fn cluster_of_namespace() -> String {
    format!(
        "oldObject.metadata.name.startsWith('{EXECUTION_PREFIX}') && \
         oldObject.metadata.?ownerReferences.orValue([]).exists(o, o.kind == 'Cluster' && \
         o.apiVersion.startsWith('cluster.karmada.io/')) ? oldObject.metadata.name.substring({}) : ''",
        EXECUTION_PREFIX.len(),
    )
}

/// A definition of ours goes when that was said on it; every other one goes.
pub(super) fn may_delete_definition() -> String {
    format!(
        "oldObject.metadata.?labels[?'{MANAGED_BY}'].orValue('') != '{MANAGED_BY_VALUE}' || \
         oldObject.metadata.?annotations[?'{UNREGISTER}'].orValue('') == '{}'",
        Mode::Force.as_str(),
    )
}

/// A namespace of ours goes when that was said on it; every other one goes.
pub(super) fn may_delete_namespace() -> String {
    format!(
        "(variables.cluster == '' && \
         !(oldObject.metadata.name in ['{SYSTEM_NAMESPACE}', '{CLUSTER_NAMESPACE}'])) || \
         oldObject.metadata.?annotations[?'{UNREGISTER}'].orValue('') == '{}'",
        Mode::Force.as_str(),
    )
}
