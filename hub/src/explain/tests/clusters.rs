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
            "unregister",
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
            json!({"metadata": {"labels": {"towline.dev/held": "restore"}}}),
            "",
            Stage::Registration,
            Cause::NotRegistered,
            "towline.dev/held-",
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
            "--replace",
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
