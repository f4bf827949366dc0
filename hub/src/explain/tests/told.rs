//! What is said where nothing is wrong, of policies beside the one that holds, and of what others say.

use super::seeds::{cluster, diagnosed, healthy, now, policy, refused, running, spec};
use crate::explain::template::explain;
use crate::explain::{SeenCluster, text};
use serde_json::json;

#[test]
fn what_is_well_is_said_in_five_lines() {
    let report = explain(&healthy());
    assert_eq!(report.broken, None);
    assert!(report.well);
    assert_eq!(text::render(&report, None, text::plain).lines().count(), 5);
    let seen = SeenCluster {
        now: now(),
        cluster: cluster("m1", &json!({})),
        renewed: Some(now()),
        works: vec![running("m1", 4)],
        hub: None,
        unseen: Vec::new(),
    };
    let report = crate::explain::cluster::explain(&seen);
    assert!(report.well, "{report:?}");
    assert_eq!(text::render(&report, None, text::plain).lines().count(), 5);
    let seen = crate::explain::work::Seen {
        now: now(),
        work: running("m1", 4),
        cluster: Some(cluster("m1", &json!({}))),
        renewed: Some(now()),
        hub: None,
        unseen: Vec::new(),
    };
    let report = crate::explain::work::explain(&seen);
    assert!(report.well, "{report:?}");
    assert_eq!(text::render(&report, None, text::plain).lines().count(), 5);
}

#[test]
fn why_other_policies_do_not_hold_it_is_said() {
    let mut seen = healthy();
    seen.policies.push(policy(None, "all", &spec(&json!({}))));
    let mut other = spec(&json!({}));
    other["resourceSelectors"][0]["name"] = json!("api");
    seen.policies.push(policy(Some("shop"), "api", &other));
    seen.policies
        .push(policy(Some("bank"), "web", &spec(&json!({}))));
    let report = explain(&seen);
    let told: Vec<String> = report.links[0]
        .details
        .iter()
        .map(|it| format!("{}: {}", it.of, it.what))
        .collect();
    assert_eq!(
        told,
        [
            "cpp/all: selects it too; a policy of its namespace comes first",
            "pp/web of bank: means it, and selects in its own namespace bank alone",
            "pp/api: selects api by name",
        ]
    );
}

#[test]
fn what_a_hostile_member_says_is_cut_and_harmless() {
    let evil = "\u{1b}[2J\u{202e}\u{7}\nall is well\r\n".repeat(10_000);
    for seen in [refused(&evil), diagnosed("CrashLoopBackOff", &evil)] {
        let shown = text::render(&explain(&seen), Some(80), text::plain);
        assert!(shown.len() < 16 * 1024, "{}", shown.len());
        let hidden = |it: char| it.is_control() && it != '\n' || it == '\u{202e}';
        assert!(!shown.contains(hidden), "{shown:?}");
        // No line of it is the member's own.
        assert!(
            shown.lines().all(|line| !line.starts_with("all is well")),
            "{shown}"
        );
    }
}
