//! Failures in a member, and of the way there.

use super::{Failure, edited, silent};
use crate::explain::tests::seeds::{
    cluster, diagnosed, healthy, refers_to, refused, stopped, work,
};
use crate::explain::{Cause as C, Stage as S};
use common::interpreter::custom::Operation;
use serde_json::json;

pub(super) fn failures() -> Vec<Failure> {
    vec![
        Failure::of(
            "agent gone",
            edited(healthy(), |it| it.clusters[1] = cluster("m2", &silent())),
            S::Agent,
            C::AgentGone,
            Some("m2"),
            "rollout restart deployment/towline-agent",
        ),
        Failure::of(
            "certificate ended",
            edited(healthy(), |it| {
                let mut ended = silent();
                ended["status"]["agent"] =
                    json!({"certificateExpirationTime": "2026-01-01T00:00:00Z"});
                it.clusters[1] = cluster("m2", &ended);
            }),
            S::Agent,
            C::CertificateEnded,
            None,
            "towline token create --cluster m2 --replace",
        ),
        Failure::of(
            "permission missing",
            refused(
                "Deployment shop/web: the agent may not patch deployments.apps in the \
            namespace \"shop\"; allow it in the member with `towline register --allow deployments.apps` or with a role",
            ),
            S::Applied,
            C::PermissionMissing,
            Some("m2"),
            "towline register --allow default,deployments.apps",
        ),
        Failure::of(
            "namespace reserved",
            refused(
                "Deployment kube-public/web: namespace \"kube-public\" is reserved and no Work \
            reaches it, unless the member's owner allows it by `towline register --allow-namespace kube-public`",
            ),
            S::Applied,
            C::NamespaceReserved,
            Some("m2"),
            "towline register --allow-namespace kube-public",
        ),
        Failure::of(
            "namespace that stays on the hub",
            edited(
                refused("Deployment shop/web: namespaces \"shop\" not found"),
                |it| it.stays = true,
            ),
            S::Applied,
            C::NamespaceMissing,
            None,
            "kubectl label namespace shop namespace.karmada.io/skip-auto-propagation-",
        ),
        Failure::of(
            "namespace that the member has not",
            refused("Deployment shop/web: namespaces \"shop\" not found"),
            S::Applied,
            C::NamespaceMissing,
            Some("m2"),
            "kubectl create namespace shop",
        ),
        Failure::of(
            "quota",
            refused(
                "Deployment shop/web: deployments.apps \"web\" is forbidden: exceeded quota: few, \
            requested: count/deployments.apps=1, used: count/deployments.apps=2, limited: count/deployments.apps=2",
            ),
            S::Applied,
            C::Quota,
            Some("m2"),
            r#"patch resourcequota few --type=merge -p '{"spec":{"hard":{"count/deployments.apps":"3"}}}'"#,
        ),
        Failure::of(
            "the member's admission refuses",
            refused(
                "Deployment shop/web: deployments.apps \"web\" is forbidden: \
            ValidatingAdmissionPolicy 'images' with binding 'images' denied request: only our registry",
            ),
            S::Applied,
            C::AdmissionRefused,
            Some("m2"),
            "kubectl get validatingadmissionpolicy images -o yaml",
        ),
        Failure::of(
            "conflict with another owner",
            refused(
                "Deployment shop/web: .spec.replicas is owned by \"kubectl\"; set the \
            annotation work.karmada.io/conflict-resolution: overwrite on the manifest to take over",
            ),
            S::Applied,
            C::Conflict,
            None,
            "annotate deployments.apps web work.karmada.io/conflict-resolution=overwrite",
        ),
        Failure::of(
            "no answer",
            edited(healthy(), |it| it.works[1] = work("m2", &[], &json!({}))),
            S::Applied,
            C::HubIsLate,
            None,
            "towline why cluster/m2",
        ),
        Failure::of(
            "image pull failing",
            diagnosed(
                "ImagePullBackOff",
                "pod web-1, container app: ImagePullBackOff: Back-off \
            pulling image \"registry/web:1\"",
            ),
            S::Health,
            C::ImagePull,
            None,
            "kubectl -n shop set image deployments.apps web app=IMAGE",
        ),
        Failure::of(
            "crash loop",
            diagnosed(
                "CrashLoopBackOff",
                "pod web-1, container app: CrashLoopBackOff, exit code 1: no \
            such file",
            ),
            S::Health,
            C::CrashLoop,
            Some("m2"),
            "kubectl -n shop logs deployments.apps/web -c app --previous",
        ),
        Failure::of(
            "out of memory",
            diagnosed(
                "OOMKilled",
                "pod web-1, container app: OOMKilled, exit code 137",
            ),
            S::Health,
            C::OutOfMemory,
            None,
            "-c app --limits=memory=256Mi",
        ),
        Failure::of(
            "quota of pods",
            diagnosed(
                "FailedCreate",
                "pods \"web-1\" is forbidden: exceeded quota: few, requested: \
            pods=1, used: pods=2, limited: pods=2",
            ),
            S::Health,
            C::Quota,
            Some("m2"),
            r#"{"hard":{"pods":"3"}}"#,
        ),
        Failure::of(
            "dependency missing on the hub",
            edited(
                diagnosed(
                    "CreateContainerConfigError",
                    "pod web-1, container app: \
            CreateContainerConfigError: configmap \"settings\" not found",
                ),
                |it| refers_to(it, false),
            ),
            S::Health,
            C::DependencyMissing,
            None,
            "kubectl -n shop create configmap settings",
        ),
        Failure::of(
            "dependency that does not go along",
            edited(
                diagnosed(
                    "CreateContainerConfigError",
                    "pod web-1, container app: \
            CreateContainerConfigError: configmap \"settings\" not found",
                ),
                |it| refers_to(it, true),
            ),
            S::Health,
            C::DependencyMissing,
            None,
            r#"patch pp/web --type=merge -p '{"spec":{"propagateDeps":true}}'"#,
        ),
        Failure::of(
            "script of the status fails",
            stopped(
                Operation::AggregateStatus,
                "not found function AggregateStatus",
            ),
            S::Health,
            C::ScriptFailed,
            None,
            r#"kubectl patch ric/webs --type=json -p '[{"op":"remove","path":"/spec/customizations/statusAggregation"}]'"#,
        ),
    ]
}
