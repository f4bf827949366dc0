//! A fleet as people read it. Pure.

use super::summary::{Cluster, State, Status, Template, Work};
use crate::apiserver::table::age;
use crate::cli::Table;
use crate::cli::check::clusters::Ready;
use crate::cli::output::Colours;
use crate::cli::token::remaining;
use crate::explain::bare;
use chrono::{DateTime, Utc};
use std::fmt::Write as _;

/// Lines of each table, unless all are wanted.
const WORST: usize = 10;

/// How it is shown.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct View {
    /// Whether everything is shown that is wrong.
    pub(super) all: bool,
    /// How wide the terminal is, if it is one.
    pub(super) width: Option<usize>,
    /// Whether it is coloured.
    pub(super) colours: Colours,
    /// The time of day.
    pub(super) now: DateTime<Utc>,
}

impl View {
    /// The screen.
    pub(super) fn text(&self, status: &Status) -> String {
        let mut text = String::new();
        self.head(&mut text, status);
        let clusters: Vec<&Cluster> = status.clusters.iter().filter(|it| !it.is_well()).collect();
        let templates = status.templates.iter();
        let templates: Vec<&Template> = templates.filter(|it| it.state != State::Running).collect();
        self.part(
            &mut text,
            ["CLUSTER", "READY", "SINCE", "WHY"],
            &clusters,
            |it| {
                let since = it
                    .since
                    .map_or_else(dash, |at| age::shown((self.now - at).num_milliseconds()));
                [
                    it.name.clone(),
                    it.ready.shown().to_owned(),
                    since,
                    why(&it.problems, it.ready.shown()),
                ]
            },
        );
        let headings = ["NAMESPACE", "TEMPLATE", "STATE", "WHY"];
        self.part(&mut text, headings, &templates, |it| {
            let namespace = it.namespace.clone().unwrap_or_else(dash);
            [
                namespace,
                it.name.clone(),
                it.state.shown().to_owned(),
                why(&it.problems, it.state.shown()),
            ]
        });
        let works: Vec<&Work> = status.works.iter().collect();
        self.part(
            &mut text,
            ["WORK", "CLUSTER", "STATE", "WHY"],
            &works,
            |it| {
                [
                    it.name.clone(),
                    it.cluster.clone(),
                    it.state.shown().to_owned(),
                    bare(it.message.lines().next().unwrap_or_default()).to_owned(),
                ]
            },
        );
        let ending: Vec<_> = status.ending.iter().collect();
        self.part(&mut text, ["ENDS", "IN"], &ending, |it| {
            [it.what.clone(), remaining(it.ends, self.now)]
        });
        let orphaned = status.clusters.iter().filter(|it| it.orphans > 0);
        let orphaned: Vec<&Cluster> = orphaned.collect();
        self.part(
            &mut text,
            ["ORPHANS IN", "OBJECTS", "SHOWN BY"],
            &orphaned,
            |it| {
                let shown = format!("towline orphans {}", it.name);
                [it.name.clone(), it.orphans.to_string(), shown]
            },
        );
        for hidden in &status.hidden {
            let _ = writeln!(text, "\nThis kubeconfig may not see {hidden}.");
        }
        if status.hub.iter().all(|it| it.ok)
            && clusters.is_empty()
            && templates.is_empty()
            && works.is_empty()
            && ending.is_empty()
            && status.hidden.is_empty()
        {
            let _ = writeln!(text, "\n{}", self.colours.good("Nothing needs anybody."));
        }
        text
    }

    fn head(&self, text: &mut String, status: &Status) {
        for part in &status.hub {
            let line = format!("{:<12}{}", part.part, part.message);
            let line = if part.ok {
                line
            } else {
                self.colours.bad(&line)
            };
            let _ = writeln!(text, "{line}");
        }
        let ready = Ready::ALL.map(|it| (it.shown(), status.ready(it)));
        let _ = writeln!(text, "{:<12}{}", "clusters", counts(&ready));
        let states = State::ALL.map(|it| (it.shown(), status.state(it)));
        let _ = writeln!(text, "{:<12}{}", "templates", counts(&states));
    }

    /// A table, if there is anything to show in it.
    fn part<T, const N: usize>(
        &self,
        text: &mut String,
        headings: [&str; N],
        all: &[&T],
        cells: impl Fn(&T) -> [String; N],
    ) {
        if all.is_empty() {
            return;
        }
        let shown = if self.all {
            all.len()
        } else {
            WORST.min(all.len())
        };
        let mut table = Table::new(headings).coloured(self.colours);
        for one in &all[..shown] {
            table.row(cells(one));
        }
        let _ = write!(text, "\n{}", table.within(self.width));
        if shown < all.len() {
            let _ = writeln!(text, "and {} more: --all shows them", all.len() - shown);
        }
    }
}

/// How many there are, and of which kinds, the worst first.
fn counts(kinds: &[(&str, usize)]) -> String {
    let all: usize = kinds.iter().map(|it| it.1).sum();
    let some = kinds.iter().filter(|it| it.1 > 0);
    let some: Vec<String> = some.map(|(kind, many)| format!("{many} {kind}")).collect();
    match some.is_empty() {
        true => "none".to_owned(),
        false => format!("{all}: {}", some.join(", ")),
    }
}

/// The first thing that is wrong, and how many more there are.
/// The first of what is wrong, without the state that stands beside it.
fn why(problems: &[String], state: &str) -> String {
    let Some((first, more)) = problems.split_first() else {
        return String::new();
    };
    let first = first.lines().next().unwrap_or_default();
    let rest = first.strip_prefix(state);
    let first = rest.and_then(|it| it.strip_prefix(": ")).unwrap_or(first);
    match more.len() {
        0 => first.to_owned(),
        many => format!("(1 of {}) {first}", many + 1),
    }
}

fn dash() -> String {
    "-".to_owned()
}
