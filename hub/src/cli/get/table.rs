//! Answers as people read them: a line each, or one template with a line for each cluster.
//!
//! Pure.

use super::answer::{Answer, Problem};
use super::share::Share;
use super::works::Delivery;
use crate::apiserver::table::age;
use crate::cli::{Colours, Table};
use crate::explain::bare;
use chrono::{DateTime, Utc};
use common::harmless;
use std::fmt::Write as _;

/// Clusters that are named in a line.
const NAMED: usize = 3;
/// Characters of a message in a table that is not wide.
const CUT: usize = 100;
/// Problems of one template that are told.
const TOLD: usize = 5;
/// Characters of a problem.
const SAID: usize = 2000;

/// How much is shown.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct View {
    /// Everything there is, whatever its length.
    pub(super) wide: bool,
    /// Whether objects of several namespaces are shown.
    pub(super) namespaces: bool,
    /// Whether objects of several types are shown.
    pub(super) types: bool,
    /// The time of day.
    pub(super) now: DateTime<Utc>,
    /// How wide the terminal is, if it is one.
    pub(super) width: Option<usize>,
    /// Whether it is coloured.
    pub(super) colours: Colours,
}

impl View {
    fn table(&self, headings: Vec<&str>) -> Table {
        let table = Table::of(headings);
        if self.wide { table.uncut() } else { table }
    }

    /// A line for each template.
    pub(super) fn list(&self, answers: &[Answer]) -> Table {
        let mut headings = vec![
            "NAME", "POLICY", "CLUSTERS", "REPLICAS", "READY", "APPLIED", "AGE",
        ];
        if self.namespaces {
            headings.insert(0, "NAMESPACE");
        }
        if self.wide {
            headings.extend(["BINDING", "HEALTHY"]);
        }
        headings.push("WHY NOT");
        let mut table = self.table(headings);
        for answer in answers {
            table.push(self.line(answer));
        }
        table
    }

    fn line(&self, answer: &Answer) -> Vec<String> {
        let mut cells = Vec::new();
        if self.namespaces {
            cells.push(answer.namespace.clone().unwrap_or_default());
        }
        let of = answer.clusters.len();
        let share = |count: usize| {
            if of == 0 {
                dash()
            } else {
                format!("{count}/{of}")
            }
        };
        cells.extend([
            match self.types {
                true => format!("{}/{}", answer.resource(), answer.name),
                false => answer.name.clone(),
            },
            held(answer),
            self.clusters(&answer.clusters),
            number(answer.replicas),
            number(answer.ready()),
            share(answer.applied()),
            self.age(answer.created),
        ]);
        if self.wide {
            cells.extend([
                answer.binding.clone().unwrap_or_else(dash),
                share(answer.healthy()),
            ]);
        }
        cells.push(self.why(&answer.problems));
        cells
    }

    /// The first thing that is wrong, and how many more there are.
    fn why(&self, problems: &[Problem]) -> String {
        let Some((first, more)) = problems.split_first() else {
            return String::new();
        };
        let first = self.short(&first.what);
        match more.len() {
            0 => first,
            count => format!("{first} (and {count} more)"),
        }
    }

    fn clusters(&self, clusters: &[Share]) -> String {
        let shown = if self.wide { clusters.len() } else { NAMED };
        let staying: Vec<&str> = clusters
            .iter()
            .filter(|it| !it.leaving)
            .map(|it| it.cluster.as_str())
            .collect();
        let (named, more) = staying.split_at(shown.min(staying.len()));
        match (named.is_empty(), more.len()) {
            (true, _) => dash(),
            (false, 0) => named.join(","),
            (false, count) => format!("{},+{count}", named.join(",")),
        }
    }

    /// One template, with a line for each cluster, and what is wrong with it.
    pub(super) fn detail(&self, answer: &Answer) -> String {
        let mut text = format!("{}/{}", answer.resource(), answer.name);
        if let Some(namespace) = &answer.namespace {
            let _ = write!(text, " in namespace {namespace}");
        }
        if let Some(replicas) = answer.replicas {
            let _ = write!(text, ", {replicas} replicas");
        }
        let _ = writeln!(text, ", made {} ago", self.age(answer.created));
        let _ = writeln!(text, "  policy    {}", held(answer));
        let _ = writeln!(text, "  binding   {}", binding(answer));
        if !answer.clusters.is_empty() {
            let shares = self.shares(&answer.clusters).coloured(self.colours);
            let _ = write!(text, "\n{}", shares.within(self.width));
        }
        let (told, more) = answer.problems.split_at(TOLD.min(answer.problems.len()));
        for problem in told {
            let what = format!("! {}", harmless::line(&problem.what, SAID));
            let _ = write!(
                text,
                "
{}
",
                self.colours.bad(&what)
            );
            if !problem.hint.is_empty() {
                let _ = writeln!(text, "  {}", problem.hint);
            }
        }
        if !more.is_empty() {
            let _ = writeln!(text, "\n! and {} more: -o yaml has all", more.len());
        }
        text
    }

    fn shares(&self, shares: &[Share]) -> Table {
        let mut table = self.table(vec![
            "CLUSTER", "REPLICAS", "READY", "APPLIED", "HEALTH", "AGE", "MESSAGE",
        ]);
        for share in shares {
            table.row([
                share.cluster.clone(),
                number(share.replicas),
                number(share.ready),
                applied(share.applied),
                share.health.map_or_else(dash, |it| format!("{it:?}")),
                self.age(share.since),
                self.short(&share.message),
            ]);
        }
        table
    }

    /// A line for each Work.
    pub(super) fn works(&self, works: &[Delivery]) -> Table {
        let mut headings = vec!["CLUSTER", "NAME", "OBJECTS", "APPLIED", "HEALTH", "AGE"];
        if self.wide {
            headings.push("BINDING");
        }
        headings.push("MESSAGE");
        let mut table = self.table(headings);
        for work in works {
            let mut cells = vec![
                work.cluster.clone(),
                work.name.clone(),
                self.objects(&work.objects),
                applied(work.applied),
                work.health.map_or_else(dash, |it| format!("{it:?}")),
                self.age(work.created),
            ];
            if self.wide {
                cells.push(work.binding.clone().unwrap_or_else(dash));
            }
            cells.push(self.short(&work.message));
            table.push(cells);
        }
        table
    }

    fn objects(&self, kinds: &[String]) -> String {
        let shown = if self.wide { kinds.len() } else { NAMED };
        let (named, more) = kinds.split_at(shown.min(kinds.len()));
        match more.len() {
            0 => named.join(","),
            count => format!("{},+{count}", named.join(",")),
        }
    }

    fn age(&self, since: Option<DateTime<Utc>>) -> String {
        since.map_or_else(dash, |since| {
            age::shown((self.now - since).num_milliseconds())
        })
    }

    /// The first line of a text, cut where a table would get too wide.
    fn short(&self, text: &str) -> String {
        let line = bare(text.lines().next().unwrap_or_default());
        if self.wide || line.chars().count() <= CUT {
            return line.to_owned();
        }
        let cut: String = line.chars().take(CUT).collect();
        format!("{}...", cut.trim_end())
    }
}

/// The policy that holds a template, or what it follows.
fn held(answer: &Answer) -> String {
    match (&answer.policy, answer.follows.first()) {
        (Some(policy), _) => policy.clone(),
        (None, Some(first)) => format!("follows {first}"),
        (None, None) => dash(),
    }
}

fn binding(answer: &Answer) -> String {
    let Some(name) = &answer.binding else {
        return dash();
    };
    let scheduled = match answer.scheduled {
        // What follows others is placed by them.
        _ if answer.policy.is_none() => "placed along with what refers to it",
        Some(true) => "scheduled",
        Some(false) => "not scheduled",
        None => "not scheduled yet",
    };
    let of = answer.clusters.len();
    match answer.fully_applied {
        Some(true) => format!("{name}: {scheduled}, applied everywhere"),
        _ => format!(
            "{name}: {scheduled}, applied in {} of {of} clusters",
            answer.applied()
        ),
    }
}

fn applied(said: Option<bool>) -> String {
    match said {
        Some(true) => "True".to_owned(),
        Some(false) => "False".to_owned(),
        None => dash(),
    }
}

fn number(count: Option<i64>) -> String {
    count.map_or_else(dash, |count| count.to_string())
}

fn dash() -> String {
    "-".to_owned()
}
