//! Every label, annotation, finalizer, group and field-manager key, once.
//!
//! Keys under `karmada.io` are Karmada's and mean what they mean there; our own live under `towline.dev/`.

/// Mark of ownership on objects in a member.
pub const MANAGED: &str = "karmada.io/managed";
/// Value of [`MANAGED`].
pub const MANAGED_VALUE: &str = "true";
/// Mark on namespaces and objects that belong to the system.
pub const SYSTEM: &str = "karmada.io/system";
/// Back-reference from a member object to its Work's name.
pub const WORK_NAME: &str = "work.karmada.io/name";
/// Back-reference from a member object to its Work's namespace.
pub const WORK_NAMESPACE: &str = "work.karmada.io/namespace";
/// `overwrite` or `abort`, on a manifest.
pub const CONFLICT_RESOLUTION: &str = "work.karmada.io/conflict-resolution";
/// Unique id of a Work, label on Work and manifest.
pub const WORK_PERMANENT_ID: &str = "work.karmada.io/permanent-id";
/// Comma-joined sorted keys of the annotations that a manifest brought.
pub const MANAGED_ANNOTATIONS: &str = "resourcetemplate.karmada.io/managed-annotations";
/// Comma-joined sorted keys of the labels that a manifest brought.
pub const MANAGED_LABELS: &str = "resourcetemplate.karmada.io/managed-labels";
/// UID of the template on the hub.
pub const TEMPLATE_UID: &str = "resourcetemplate.karmada.io/uid";
/// Generation of the template on the hub.
pub const TEMPLATE_GENERATION: &str = "resourcetemplate.karmada.io/generation";
/// Keeps the live `spec.replicas`.
pub const RETAIN_REPLICAS: &str = "resourcetemplate.karmada.io/retain-replicas";

/// Unique id of a ResourceBinding, label on it, its Works and their manifests.
pub const BINDING_PERMANENT_ID: &str = "resourcebinding.karmada.io/permanent-id";
/// The same of a ClusterResourceBinding.
pub const CLUSTER_BINDING_PERMANENT_ID: &str = "clusterresourcebinding.karmada.io/permanent-id";
/// Back-reference from a Work and its manifest to the ResourceBinding's name.
pub const BINDING_NAME: &str = "resourcebinding.karmada.io/name";
/// Back-reference from a Work and its manifest to the ResourceBinding's namespace.
pub const BINDING_NAMESPACE: &str = "resourcebinding.karmada.io/namespace";
/// Back-reference from a Work and its manifest to the ClusterResourceBinding's name.
pub const CLUSTER_BINDING_NAME: &str = "clusterresourcebinding.karmada.io/name";
/// Annotation on a Work: the rules of OverridePolicies that made it, as JSON.
pub const APPLIED_OVERRIDES: &str = "policy.karmada.io/applied-overrides";
/// Annotation on a Work: the rules of ClusterOverridePolicies that made it, as JSON.
pub const APPLIED_CLUSTER_OVERRIDES: &str = "policy.karmada.io/applied-cluster-overrides";
/// Label of a PropagationPolicy, and of what it holds: its permanent id.
pub const POLICY_PERMANENT_ID: &str = "propagationpolicy.karmada.io/permanent-id";
/// Annotation of what a PropagationPolicy holds: the policy's namespace.
pub const POLICY_NAMESPACE: &str = "propagationpolicy.karmada.io/namespace";
/// Annotation of what a PropagationPolicy holds: the policy's name.
pub const POLICY_NAME: &str = "propagationpolicy.karmada.io/name";
/// Label of a ClusterPropagationPolicy, and of what it holds: its permanent id.
pub const CLUSTER_POLICY_PERMANENT_ID: &str = "clusterpropagationpolicy.karmada.io/permanent-id";
/// Annotation of what a ClusterPropagationPolicy holds: the policy's name.
pub const CLUSTER_POLICY_NAME: &str = "clusterpropagationpolicy.karmada.io/name";
/// Annotation of a binding: what its template refers to, as a list in JSON.
pub const BINDING_DEPENDENCIES: &str = "resourcebinding.karmada.io/dependencies";
/// Label of a binding whose template another one refers to: this, and [`crate::names::dependent_id`] of the
/// other binding, whose permanent id is the value.
pub const DEPENDED_BY_PREFIX: &str = "resourcebinding.karmada.io/depended-by-";
/// Label of a template that another controller propagates; no policy applies to it.
pub const CLAIMED_BY: &str = "resourcetemplate.karmada.io/claimed-by";

/// Label of a hub object: with [`DELETION_PROTECTED_ALWAYS`] its deletion is refused.
pub const DELETION_PROTECTED: &str = "resourcetemplate.karmada.io/deletion-protected";
/// The value of [`DELETION_PROTECTED`] that protects; every other one does not.
pub const DELETION_PROTECTED_ALWAYS: &str = "Always";

/// Annotation on member objects: hash of the manifest that was applied last.
pub const MANIFEST_HASH: &str = "towline.dev/manifest-hash";
/// Annotation on a live object: until this time (RFC 3339) the agent heals nothing on it.
pub const HOLD_UNTIL: &str = "towline.dev/hold-until";
/// Annotation on a live object that existed before a Work took it over.
pub const ADOPTED: &str = "towline.dev/adopted";
/// Annotation on a live object that outlived the Work which brought it, such as a Namespace with other things in it:
/// that Work, as `NAMESPACE/NAME`. A Work of that name may have it again.
pub const KEPT_FROM: &str = "towline.dev/kept-from";
/// Annotation on a manifest: `keep` leaves the object in the member when the Work or the manifest goes.
pub const DELETION: &str = "towline.dev/deletion";

/// Annotation on a Work: `"true"` asks the agent to show in its status what the orphaned Work of that
/// name wanted.
pub const TELL_ORPHANS: &str = "towline.dev/tell-orphans";
/// Annotation on a Work: UIDs of orphaned objects, split by commas, which the agent is to delete.
pub const DELETE_ORPHANS: &str = "towline.dev/delete-orphans";

/// Label on a Work that gives a user or group of the hub rights in its member, and on the hub's own role and binding of
/// theirs: whose they are, as a digest.
pub const ACCESS: &str = "towline.dev/access";

/// Label of the Lease of each replica of the hub that takes tunnels; its value is [`MANAGED_VALUE`].
pub const REPLICA: &str = "towline.dev/replica";
/// Annotation of that Lease: where the replica is reached and by which authority it is verified, as JSON.
pub const REPLICA_ACCESS: &str = "towline.dev/replica-access";

/// Annotation on a Work: the scripts that its member asks about its objects, see
/// [`crate::interpreter::custom::carried`].
pub const INTERPRETATION: &str = "towline.dev/interpretation";

/// Annotation of a binding: the placement that was applied last, as JSON.
pub const APPLIED_PLACEMENT: &str = "policy.karmada.io/applied-placement";
/// Label of a binding that somebody but a policy made, and that is to be placed.
pub const MANAGED_BINDING: &str = "binding.karmada.io/managed-by";

/// Finalizer of the hub's cluster controller on a Cluster.
pub const CLUSTER_FINALIZER: &str = "karmada.io/cluster-controller";
/// Finalizer of the agent's execution controller on a Work.
pub const WORK_FINALIZER: &str = "karmada.io/execution-controller";
/// Finalizer of the binding controller on a ResourceBinding.
pub const BINDING_FINALIZER: &str = "karmada.io/binding-controller";
/// Finalizer of the binding controller on a ClusterResourceBinding.
pub const CLUSTER_BINDING_FINALIZER: &str = "karmada.io/cluster-resource-binding-controller";
/// Finalizer on a ResourceBinding whose dependencies follow it.
pub const DEPENDENCIES_FINALIZER: &str = "karmada.io/binding-dependencies-distributor";
/// Finalizer of the detector on a PropagationPolicy.
pub const POLICY_FINALIZER: &str = "karmada.io/propagation-policy-controller";
/// Finalizer of the detector on a ClusterPropagationPolicy.
pub const CLUSTER_POLICY_FINALIZER: &str = "karmada.io/cluster-propagation-policy-controller";
/// Finalizer on per-registration RoleBindings: the agent's rights outlive its Works.
pub const REGISTRATION_FINALIZER: &str = "towline.dev/registration";

/// Taint of a cluster that an operator cordoned.
pub const TAINT_UNSCHEDULABLE: &str = "cluster.karmada.io/unschedulable";
/// Taint of a cluster that reports Ready=False or nothing yet.
pub const TAINT_NOT_READY: &str = "cluster.karmada.io/not-ready";
/// Taint of a cluster whose Ready is Unknown.
pub const TAINT_UNREACHABLE: &str = "cluster.karmada.io/unreachable";

/// Cluster annotation: the registration that is in force (see [`crate::identity`]).
pub const REGISTRATION_ID: &str = "towline.dev/registration-id";
/// Cluster annotation: UID and version of the Secret that `towline join` wrote for it (see [`crate::joined`]). A
/// cluster of mode Push without it is served by nobody of ours.
pub const JOINED: &str = "towline.dev/joined";
/// CSR annotation: the UID of the member's `kube-system`, proposed once by the agent.
pub const CLUSTER_ID: &str = "towline.dev/cluster-id";
/// Cluster annotation that permits deletion and tells the agent what to do with its objects:
/// one of the values of [`crate::unregister::Mode`].
pub const UNREGISTER: &str = "towline.dev/unregister";
/// Cluster annotation: by which bootstrap token the registration came that is in force, as when it was made (RFC 3339), its
/// id, and the ids of those of the same second that it replaced. None of these and none that was made earlier replaces it.
pub const REGISTERED_BY: &str = "towline.dev/registered-by";
/// Cluster annotation: the registration whose open watches must end before another one is served.
pub const CLOSING_WATCHES: &str = "towline.dev/closing-watches";
/// Cluster annotation: since when the agent's rights are withheld. Removing it gives them back.
pub const QUARANTINED_SINCE: &str = "towline.dev/quarantined-since";
/// Cluster annotation: the value of [`QUARANTINED_SINCE`] that the hub wrote because the agent wrote too much. With any
/// other value it is left from an earlier quarantine, and says nothing.
pub const WROTE_TOO_MUCH_SINCE: &str = "towline.dev/wrote-too-much-since";
/// Label of a Cluster whose agent's rights are withheld for another reason than what it wrote.
pub const HELD: &str = "towline.dev/held";
/// Value of [`HELD`]: its registration comes from a backup, and may have been removed since.
pub const HELD_BY_RESTORE: &str = "restore";
/// Cluster annotation: the key of the taint with NoExecute that failover put on it.
pub const FAILOVER_TAINT: &str = "towline.dev/failover-taint";
/// Cluster annotation: when the last certificate ends that was issued to its agent (RFC 3339).
pub const CERTIFICATE_END: &str = "towline.dev/certificate-end";
/// Token annotation: the one cluster name it may claim.
pub const TOKEN_CLUSTER: &str = "towline.dev/cluster";
/// Token annotation: `"true"` when it may register a Cluster that exists anew.
pub const TOKEN_REPLACE: &str = "towline.dev/replace";
/// Token annotation: how many registrations it is good for.
pub const TOKEN_USES: &str = "towline.dev/uses";
/// Token annotation: where its clusters lie, as JSON (see `hub::token_secret`).
pub const TOKEN_PLACEMENT: &str = "towline.dev/placement";
/// Token annotation: who used it, as JSON (see `hub::token_secret`).
pub const TOKEN_RESERVATIONS: &str = "towline.dev/reservations";
/// Label on everything that `towline init` made.
pub const PART_OF: &str = "app.kubernetes.io/part-of";
/// Value of [`PART_OF`].
pub const PART_OF_VALUE: &str = "towline";
/// Label on everything of ours, naming what manages it.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Label on per-registration objects: the cluster's name.
pub const CLUSTER_LABEL: &str = "towline.dev/cluster";

/// Field manager of the agent in members.
pub const FIELD_MANAGER: &str = "towline";
/// Field manager that holds values the member decided and we only keep.
pub const RETAINED_FIELD_MANAGER: &str = "towline-retained";
/// Field manager of the hub's controllers.
pub const HUB_FIELD_MANAGER: &str = "towline-hub";
/// Field manager of the agent on the hub.
pub const AGENT_FIELD_MANAGER: &str = "towline-agent";
/// How the field managers of agents begin on the hub: ours, and Karmada's own. Admission refuses agents
/// every other name, for whose a write was is read from it.
pub const AGENT_FIELD_MANAGERS: [&str; 2] = [AGENT_FIELD_MANAGER, "karmada-agent"];
/// The field manager of a write whose client gave no name.
pub const UNNAMED_FIELD_MANAGER: &str = "unknown";
/// Where an API server gathers the oldest field managers of an object that has many.
pub const ANCIENT_CHANGES: &str = "ancient-changes";
/// Field manager of `towline init` and of the hub that repairs its work.
pub const INIT_FIELD_MANAGER: &str = "towline-init";
/// Name of the extension in cluster-info's kubeconfig that lists every address of the hub, in order:
/// `{"servers": ["https://host:port", ...]}`. It lies inside the text that is signed.
pub const SERVERS_EXTENSION: &str = "towline.dev/servers";

/// Label of a namespace with which it stays on the hub; Karmada's.
pub const SKIP_NAMESPACE: &str = "namespace.karmada.io/skip-auto-propagation";

/// Whether the value of that label says so: in any spelling, as in Karmada.
pub fn skips(value: &str) -> bool {
    value.eq_ignore_ascii_case("true")
}
