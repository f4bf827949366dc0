//! What a person reads, kept as screens that were looked at.

use super::failures::failures;
use super::seeds::{cluster, condition, healthy, now, running};
use crate::cli::Colours;
use crate::cli::approved::{WIDTHS, screens};
use crate::explain::{Report, SeenCluster, State, template, text};
use serde_json::json;

fn screen(name: &str, report: &Report) {
    screens("explain/tests/screens", name, |width, colours| {
        text::render(report, Some(width), |state, word| {
            colours.state(state, word)
        })
    });
}

#[test]
fn screens_are_as_they_were_approved() {
    screen("well", &template::explain(&healthy()));
    for failure in failures() {
        let name = failure.name.to_lowercase().replace([' ', '\''], "-");
        screen(&name, &template::explain(&failure.seen));
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
        screen(name, &crate::explain::cluster::explain(&seen));
    }
}

#[test]
fn no_line_is_wider_than_the_terminal_but_commands() {
    for (failure, width) in failures()
        .iter()
        .flat_map(|it| WIDTHS.map(|width| (it, width)))
    {
        let report = template::explain(&failure.seen);
        let commands = report
            .broken
            .as_ref()
            .map(|it| it.mend.commands.join("\n"))
            .unwrap_or_default();
        for line in text::render(&report, Some(width), text::plain).lines() {
            let is_command = commands.contains(line.trim_start());
            let is_one_word = !line.trim().contains(' ');
            let fits = line.chars().count() <= width || is_command || is_one_word;
            assert!(fits, "{}: {line}", failure.name);
        }
    }
}

#[test]
fn what_is_broken_is_seen_at_once() {
    let colours = Colours::always();
    assert_eq!(
        colours.state(State::Broken, "BROKEN"),
        colours.bad("BROKEN")
    );
    assert_eq!(
        colours.state(State::Waiting, "WAITS"),
        colours.change("WAITS")
    );
    assert_eq!(colours.state(State::Ok, "ok"), colours.good("ok"));
}
