//! The order of fields in Go's types, where it is not that of protobuf's numbers: messages quote objects
//! in it.

/// The fields of a type, in order.
pub(super) fn of(name: &str) -> Option<impl Iterator<Item = &'static str>> {
    let mut all = ORDER.iter();
    let (_, fields) = all.find(|(of, _)| *of == name)?;
    Some(fields.split(' '))
}

const ORDER: [(&str, &str); 42] = [
    (
        "v1.CertificateSigningRequestCondition",
        "type status reason message lastUpdateTime lastTransitionTime",
    ),
    (
        "v1.CertificateSigningRequestSpec",
        "request signerName expirationSeconds usages username uid groups extra",
    ),
    (
        "v1.ClusterTrustBundleProjection",
        "name signerName labelSelector optional path",
    ),
    ("v1.ConfigMap", "metadata immutable data binaryData"),
    (
        "v1.Container",
        "name image command args workingDir ports envFrom env resources resizePolicy \
         restartPolicy restartPolicyRules volumeMounts volumeDevices livenessProbe readinessProbe \
         startupProbe lifecycle terminationMessagePath terminationMessagePolicy imagePullPolicy \
         securityContext stdin stdinOnce tty",
    ),
    (
        "v1.CronJobSpec",
        "schedule timeZone startingDeadlineSeconds concurrencyPolicy suspend jobTemplate \
         successfulJobsHistoryLimit failedJobsHistoryLimit",
    ),
    (
        "v1.CustomResourceDefinitionVersion",
        "name served storage deprecated deprecationWarning schema subresources \
         additionalPrinterColumns selectableFields",
    ),
    (
        "v1.DeploymentCondition",
        "type status lastUpdateTime lastTransitionTime reason message",
    ),
    (
        "v1.DeploymentStatus",
        "observedGeneration replicas updatedReplicas readyReplicas availableReplicas \
         unavailableReplicas terminatingReplicas conditions collisionCount",
    ),
    ("v1.EndpointAddress", "ip hostname nodeName targetRef"),
    ("v1.EndpointSlice", "metadata addressType endpoints ports"),
    ("v1.HTTPIngressPath", "path pathType backend"),
    (
        "v1.ISCSIPersistentVolumeSource",
        "targetPortal iqn lun iscsiInterface fsType readOnly portals chapAuthDiscovery \
         chapAuthSession secretRef initiatorName",
    ),
    (
        "v1.ISCSIVolumeSource",
        "targetPortal iqn lun iscsiInterface fsType readOnly portals chapAuthDiscovery \
         chapAuthSession secretRef initiatorName",
    ),
    ("v1.IngressBackend", "service resource"),
    (
        "v1.IngressSpec",
        "ingressClassName defaultBackend tls rules",
    ),
    (
        "v1.JobSpec",
        "parallelism completions activeDeadlineSeconds podFailurePolicy successPolicy \
         backoffLimit backoffLimitPerIndex maxFailedIndexes selector manualSelector template \
         ttlSecondsAfterFinished completionMode suspend podReplacementPolicy managedBy",
    ),
    (
        "v1.JobStatus",
        "conditions startTime completionTime active succeeded failed terminating completedIndexes \
         failedIndexes uncountedTerminatedPods ready",
    ),
    (
        "v1.NodeSpec",
        "podCIDR podCIDRs providerID unschedulable taints configSource externalID",
    ),
    (
        "v1.OwnerReference",
        "apiVersion kind name uid controller blockOwnerDeletion",
    ),
    (
        "v1.PersistentVolumeClaimSpec",
        "accessModes selector resources volumeName storageClassName volumeMode dataSource \
         dataSourceRef volumeAttributesClassName",
    ),
    (
        "v1.PodCondition",
        "type observedGeneration status lastProbeTime lastTransitionTime reason message",
    ),
    (
        "v1.PodSecurityContext",
        "seLinuxOptions windowsOptions runAsUser runAsGroup runAsNonRoot supplementalGroups \
         supplementalGroupsPolicy fsGroup sysctls fsGroupChangePolicy seccompProfile \
         appArmorProfile seLinuxChangePolicy",
    ),
    (
        "v1.PodSpec",
        "volumes initContainers containers ephemeralContainers restartPolicy \
         terminationGracePeriodSeconds activeDeadlineSeconds dnsPolicy nodeSelector \
         serviceAccountName serviceAccount automountServiceAccountToken nodeName hostNetwork \
         hostPID hostIPC shareProcessNamespace securityContext imagePullSecrets hostname \
         subdomain affinity schedulerName tolerations hostAliases priorityClassName priority \
         dnsConfig readinessGates runtimeClassName enableServiceLinks preemptionPolicy overhead \
         topologySpreadConstraints setHostnameAsFQDN os hostUsers schedulingGates resourceClaims \
         resources hostnameOverride schedulingGroup",
    ),
    (
        "v1.PodStatus",
        "observedGeneration phase conditions message reason nominatedNodeName hostIP hostIPs \
         podIP podIPs startTime initContainerStatuses containerStatuses qosClass \
         ephemeralContainerStatuses resize resourceClaimStatuses extendedResourceClaimStatus \
         allocatedResources resources nodeAllocatableResourceClaimStatuses",
    ),
    (
        "v1.ReplicaSetSpec",
        "replicas minReadySeconds selector template",
    ),
    (
        "v1.ReplicaSetStatus",
        "replicas fullyLabeledReplicas readyReplicas availableReplicas terminatingReplicas \
         observedGeneration conditions",
    ),
    (
        "v1.ReplicationControllerSpec",
        "replicas minReadySeconds selector template",
    ),
    (
        "v1.ReplicationControllerStatus",
        "replicas fullyLabeledReplicas readyReplicas availableReplicas observedGeneration \
         conditions",
    ),
    ("v1.Secret", "metadata immutable data stringData type"),
    (
        "v1.SecurityContext",
        "capabilities privileged seLinuxOptions windowsOptions runAsUser runAsGroup runAsNonRoot \
         readOnlyRootFilesystem allowPrivilegeEscalation procMount seccompProfile appArmorProfile",
    ),
    (
        "v1.ServicePort",
        "name protocol appProtocol port targetPort nodePort",
    ),
    (
        "v1.ServiceSpec",
        "ports selector clusterIP clusterIPs type externalIPs sessionAffinity loadBalancerIP \
         loadBalancerSourceRanges externalName externalTrafficPolicy healthCheckNodePort \
         publishNotReadyAddresses sessionAffinityConfig ipFamilies ipFamilyPolicy \
         allocateLoadBalancerNodePorts loadBalancerClass internalTrafficPolicy trafficDistribution",
    ),
    (
        "v1.StatusDetails",
        "name group uid causes retryAfterSeconds",
    ),
    (
        "v1.SubjectAccessReviewStatus",
        "allowed denied reason evaluationError",
    ),
    (
        "v1.TokenRequestSpec",
        "audiences expirationSeconds boundObjectRef",
    ),
    ("v1.TokenReviewStatus", "authenticated user audiences error"),
    (
        "v1.VolumeMount",
        "name readOnly recursiveReadOnly mountPath subPath mountPropagation subPathExpr",
    ),
    ("v1.WebhookClientConfig", "url service caBundle"),
    (
        "v2.HPAScalingRules",
        "stabilizationWindowSeconds selectPolicy policies tolerance",
    ),
    (
        "v2.MetricSpec",
        "type object pods resource containerResource external",
    ),
    (
        "v2.MetricStatus",
        "type object pods resource containerResource external",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::schema::Go;
    use crate::apiserver::schema::builtin::schemas;
    use std::collections::BTreeSet;

    #[test]
    fn every_field_of_a_type_has_its_place() {
        for (name, fields) in ORDER {
            let named = |go: &Go| matches!(go, Go::Struct(of) if **of == *name);
            let mut all = schemas().definitions().iter();
            let found = all.find(|one| named(one.schema.go())).expect(name);
            let known = found.schema.properties().map(|(name, _)| name);
            let known: BTreeSet<&str> = known.collect();
            let mut listed: BTreeSet<&str> = fields.split(' ').collect();
            if !name.ends_with("Reference") {
                listed.extend(known.get("apiVersion").into_iter().chain(known.get("kind")));
            }
            assert_eq!(listed, known, "{name}");
        }
    }
}
