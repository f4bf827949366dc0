//! What is said of a cluster, whatever runs in it.

use super::seeds::{cluster, condition, now, running, work};
use crate::explain::{Cause, SeenCluster, Stage};
use serde_json::{Value, json};

#[test]
fn a_cluster_says_what_is_wrong_with_it() {
    let told = |changes: &Value, failing: &str| {
        let mut works = vec![running("m1", 4)];
        if !failing.is_empty() {
            let text = format!("Failed to apply all manifests (0/1): {failing}");
            works.push(work(
                "m1",
                &[condition("Applied", "False", "AppliedFailed", &text)],
                &json!({}),
            ));
        }
        let seen = SeenCluster {
            now: now(),
            cluster: cluster("m1", changes),
            renewed: Some(now()),
            works,
            hub: None,
            unseen: Vec::new(),
        };
        let broken = crate::explain::cluster::explain(&seen)
            .broken
            .expect("broken");
        let why = broken.mend.what.contains("backup");
        assert_eq!(why, changes.to_string().contains("estore"), "{changes}");
        (broken.stage, broken.cause, broken.mend.commands.concat())
    };
    let restored = condition("Quarantined", "True", "RestoredFromBackup", "told");
    let state = |kind: &str, status: &str| {
        let ready = condition("Ready", "True", "ClusterReady", "");
        json!({"status": {"conditions": [condition(kind, status, "R", "told"), ready]}})
    };
    for (changes, failing, stage, cause, command) in [
        (
            json!({"metadata": {"deletionTimestamp": super::seeds::MADE}}),
            "",
            Stage::Registration,
            Cause::Deleting,
            "towline unregister m1 --force",
        ),
        (
            json!({"metadata": {"deletionTimestamp": super::seeds::MADE}, "spec": {"syncMode": "Push"}}),
            "",
            Stage::Registration,
            Cause::Deleting,
            "towline unjoin m1 --force",
        ),
        (
            state("Quarantined", "True"),
            "",
            Stage::Registration,
            Cause::Quarantined,
            "towline.dev/quarantined-since-",
        ),
        (
            json!({"status": {"conditions": [restored]}}),
            "",
            Stage::Registration,
            Cause::Quarantined,
            "towline.dev/quarantined-since-",
        ),
        (
            // Restored: the condition is not there yet, and a label more or less lets nobody in.
            json!({"metadata": {"labels": {"towline.dev/held": "restore"},
                "annotations": {"towline.dev/quarantined-since": super::seeds::MADE}}}),
            "",
            Stage::Registration,
            Cause::NotRegistered,
            "kubectl annotate cluster m1 towline.dev/quarantined-since-",
        ),
        (
            json!({"metadata": {"annotations": {"towline.dev/quarantined-since": super::seeds::MADE}}}),
            "",
            Stage::Registration,
            Cause::Quarantined,
            "kubectl annotate cluster m1 towline.dev/quarantined-since-",
        ),
        (
            state("ExecutionSpaceTerminating", "True"),
            "",
            Stage::Namespace,
            Cause::NamespaceGone,
            "karmada-es-m1",
        ),
        (
            json!({"metadata": {"annotations": {"towline.dev/certificate-end": "2025-12-01T00:00:00Z"}},
            "status": {"agent": null}}),
            "",
            Stage::Agent,
            Cause::CertificateEnded,
            "towline token create --cluster m1 --replace",
        ),
        (
            json!({"metadata": {"annotations": {"towline.dev/certificate-end": "2025-12-01T00:00:00Z"}},
            "spec": {"syncMode": "Push"}, "status": {"agent": null}}),
            "",
            Stage::Agent,
            Cause::CertificateEnded,
            "towline join m1 --cluster-kubeconfig FILE",
        ),
        (
            state("Ready", "False"),
            "",
            Stage::Ready,
            Cause::MemberNotReady,
            "/readyz",
        ),
        (
            state("Ready", "Unknown"),
            "",
            Stage::Agent,
            Cause::AgentGone,
            "rollout restart",
        ),
        (
            json!({"status": {"conditions": []}}),
            "",
            Stage::Agent,
            Cause::AgentGone,
            "rollout restart",
        ),
        (
            json!({"status": {"agent": {"lastError": "works: forbidden"}}}),
            "",
            Stage::Ready,
            Cause::AgentError,
            "logs",
        ),
        (
            json!({}),
            "the agent may not patch secrets; allow it in the member with `towline register --allow secrets` or",
            Stage::Applied,
            Cause::WorksFailing,
            "--allow default,secrets",
        ),
    ] {
        let (found, why, commands) = told(&changes, failing);
        assert_eq!((found, why), (stage, cause), "{changes}");
        assert!(commands.contains(command), "{commands}");
    }
}
