//! What a person reads, kept as screens that were looked at: `screens/NAME.txt`, for a narrow and for a wide
//! terminal. `TOWLINE_SCREENS=write` writes them anew.

use super::failures::failures;
use super::seeds::{cluster, condition, healthy, now, running};
use crate::explain::{SeenCluster, template, text};
use serde_json::json;
use std::fmt::Write as _;
use std::path::Path;

const NARROW: usize = 60;
const WIDE: usize = 120;

fn screen(name: &str, report: &crate::explain::Report) -> Option<String> {
    let mut shown = String::new();
    for width in [NARROW, WIDE] {
        let _ = writeln!(shown, "----- {width} columns");
        shown.push_str(&text::render(report, Some(width)));
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src/explain/tests/screens")
        .join(format!("{name}.txt"));
    if std::env::var("TOWLINE_SCREENS").as_deref() == Ok("write") {
        std::fs::write(&file, &shown).expect("written");
    }
    let kept = std::fs::read_to_string(&file).unwrap_or_default();
    (kept != shown).then(|| format!("{}:\n{shown}", file.display()))
}

#[test]
fn screens_are_as_they_were_approved() {
    let mut changed = Vec::new();
    changed.extend(screen("well", &template::explain(&healthy())));
    for failure in failures() {
        let name = failure.name.to_lowercase().replace([' ', '\''], "-");
        changed.extend(screen(&name, &template::explain(&failure.seen)));
    }
    let silent = json!({"status": {"conditions": [
        condition("Ready", "Unknown", "ClusterStatusUnknown", "Cluster status controller stopped posting cluster status.")]}});
    for (name, changes) in [("cluster-well", json!({})), ("cluster-silent", silent)] {
        let seen = SeenCluster {
            now: now(),
            cluster: cluster("m1", &changes),
            renewed: Some(now() - chrono::Duration::seconds(90)),
            works: vec![running("m1", 4)],
            hub: None,
            unseen: Vec::new(),
        };
        changed.extend(screen(name, &crate::explain::cluster::explain(&seen)));
    }
    assert!(changed.is_empty(), "{}", changed.join("\n"));
}

#[test]
fn no_line_is_wider_than_the_terminal_but_commands() {
    for failure in failures() {
        let report = template::explain(&failure.seen);
        let commands = report
            .broken
            .as_ref()
            .map(|it| it.mend.commands.join("\n"))
            .unwrap_or_default();
        for line in text::render(&report, Some(NARROW)).lines() {
            let is_command = commands.contains(line.trim_start());
            let is_one_word = !line.trim().contains(' ');
            let fits = line.chars().count() <= NARROW || is_command || is_one_word;
            assert!(fits, "{}: {line}", failure.name);
        }
    }
}
