//! A plan as people read it. Pure.

use crate::cli::Table;
use crate::cli::output::Colours;
use crate::plan::{ClusterPlan, Difference, Plan, Step, TemplatePlan, Verdict};
use common::harmless;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Characters of a value in a line.
const CUT: usize = 120;

/// The whole plan.
pub(in crate::cli) fn text(plan: &Plan, colours: Colours) -> String {
    let mut text = String::new();
    for refused in &plan.refused {
        let space = refused
            .namespace
            .as_deref()
            .map(|it| format!("{it}/"))
            .unwrap_or_default();
        let line = format!(
            "refused: {} {space}{}: {}",
            refused.kind, refused.name, refused.message
        );
        let _ = writeln!(text, "{}\n", colours.bad(&line));
    }
    for template in &plan.templates {
        let _ = writeln!(text, "{}", template_text(template, colours));
    }
    if !plan.unknown.is_empty() {
        let _ = writeln!(text, "Not known before:");
        for unknown in &plan.unknown {
            let _ = writeln!(text, "  {unknown}");
        }
        text.push('\n');
    }
    text.push_str(&summary(plan));
    text
}

/// What changes, by name.
pub(super) fn names(plan: &Plan) -> String {
    let changing = plan.templates.iter().filter(|it| it.changes());
    let names = changing.map(|it| {
        let group = it.api_version.split_once('/').map(|it| it.0);
        let group = group.map(|group| format!(".{group}")).unwrap_or_default();
        format!("{}{group}/{}", it.kind.to_lowercase(), it.name)
    });
    names.collect::<Vec<_>>().join("\n")
}

fn summary(plan: &Plan) -> String {
    let count = |verdict: Verdict| {
        let clusters = plan.templates.iter().flat_map(|it| &it.clusters);
        clusters.filter(|it| it.verdict == verdict).count()
    };
    let stay = match plan.unchanged {
        0 => "no other is placed.".to_owned(),
        1 => "1 template stays as it is.".to_owned(),
        many => format!("{many} templates stay as they are."),
    };
    if !plan.changes() {
        return format!("Nothing changes: {stay}");
    }
    let parts = [
        (count(Verdict::Gained), "gained"),
        (count(Verdict::Changed), "changed"),
        (count(Verdict::Leaves), "to be left"),
        (count(Verdict::Lost), "lost"),
    ];
    let parts = parts.iter().filter(|(many, _)| *many > 0);
    let parts: Vec<String> = parts.map(|(many, what)| format!("{many} {what}")).collect();
    let changing = plan.templates.iter().filter(|it| it.changes()).count();
    let templates = match changing {
        1 => "1 template changes".to_owned(),
        many => format!("{many} templates change"),
    };
    match parts.is_empty() {
        true => format!("{templates}, in no cluster; {stay}"),
        false => format!("{templates}, by cluster: {}; {stay}", parts.join(", ")),
    }
}

fn template_text(template: &TemplatePlan, colours: Colours) -> String {
    let mut text = format!("{} {}", template.kind, template.name);
    if let Some(namespace) = &template.namespace {
        let _ = write!(text, " in namespace {namespace}");
    }
    text = colours.strong(&text);
    let _ = writeln!(text, ": {}", policy(&template.policy));
    if let Some(waits) = &template.waits.after {
        let _ = writeln!(text, "  {}", colours.bad(waits));
    }
    if let Some(why) = &template.unplaced.after {
        let _ = writeln!(text, "  not placed as it should be: {}", colours.bad(why));
    }
    if !template.clusters.is_empty() {
        let replicas = template
            .clusters
            .iter()
            .any(|it| it.replicas != Step::default());
        let mut table = match replicas {
            true => Table::new(["CLUSTER", "NOW", "THEN", "CHANGE"]),
            false => Table::new(["CLUSTER", "CHANGE"]),
        };
        for one in &template.clusters {
            table.push(cells(one, replicas));
        }
        for line in table.to_string().lines() {
            let _ = writeln!(text, "  {}", coloured(line, template, colours));
        }
    }
    if let Some(seconds) = template.after_seconds {
        let _ = writeln!(
            text,
            "  so after {seconds}s, when what is tolerated for a while has ended"
        );
    }
    for or in &template.or {
        let shares = or.iter().map(|share| match share.replicas {
            Some(replicas) => format!("{} {replicas}", share.cluster),
            None => share.cluster.clone(),
        });
        let shares: Vec<String> = shares.collect();
        let shares = if shares.is_empty() {
            "nowhere".to_owned()
        } else {
            shares.join(", ")
        };
        let _ = writeln!(text, "  or, which nobody can know before: {shares}");
    }
    for otherwise in &template.otherwise {
        let _ = writeln!(text, "  or, which nobody can know before: {otherwise}");
    }
    told(&mut text, "changes", &template.clusters, |it| {
        (&it.changes, String::new())
    });
    told(&mut text, "overrides", &template.clusters, |it| {
        let shown = matches!(it.verdict, Verdict::Gained | Verdict::Changed);
        let overridden = if shown { &it.overridden[..] } else { &[] };
        (overridden, it.overrides.join(", "))
    });
    text
}

fn policy(step: &Step<String>) -> String {
    match (&step.before, &step.after) {
        (None, None) => "goes along with what refers to it".to_owned(),
        (before, after) if before == after => after.clone().unwrap_or_default(),
        (None, Some(after)) => format!("taken by {after}"),
        (Some(before), None) => format!("let go by {before}"),
        (Some(before), Some(after)) => format!("taken from {before} by {after}"),
    }
}

fn cells(one: &ClusterPlan, replicas: bool) -> Vec<String> {
    let number = |replicas: Option<i32>| replicas.map_or("-".to_owned(), |it| it.to_string());
    let mut cells = vec![one.cluster.clone()];
    if replicas {
        cells.extend([number(one.replicas.before), number(one.replicas.after)]);
    }
    let mut verdict = match one.verdict {
        Verdict::Stays => "stays".to_owned(),
        Verdict::Gained => "gained".to_owned(),
        Verdict::Lost => "lost".to_owned(),
        Verdict::Leaves if one.passing => {
            "comes, if there is time for it, and leaves once others serve in its place".to_owned()
        }
        Verdict::Leaves => "leaves once others serve in its place".to_owned(),
        Verdict::Changed => moved(one),
    };
    for (is, what) in [
        (one.held, "held back: its policy suspends dispatching"),
        (one.released, "what was held back goes there"),
        (one.preserved, "its objects stay there"),
    ] {
        if is {
            let _ = write!(verdict, "; {what}");
        }
    }
    if let Some(problem) = &one.problem {
        let _ = write!(verdict, "; is not told: {problem}");
    }
    cells.push(verdict);
    cells
}

/// By how many replicas, where it is these that change.
fn moved(one: &ClusterPlan) -> String {
    let (before, after) = (
        one.replicas.before.unwrap_or(0),
        one.replicas.after.unwrap_or(0),
    );
    match i64::from(after) - i64::from(before) {
        0 => "changed".to_owned(),
        by => format!("{by:+}"),
    }
}

fn coloured(line: &str, template: &TemplatePlan, colours: Colours) -> String {
    let name = line.split_whitespace().next().unwrap_or_default();
    let one = template.clusters.iter().find(|it| it.cluster == name);
    match one.map(|it| (it.verdict, &it.problem)) {
        Some((_, Some(_)) | (Verdict::Lost | Verdict::Leaves, _)) => colours.bad(line),
        Some((Verdict::Gained, _)) => colours.good(line),
        Some((Verdict::Changed, _)) => colours.change(line),
        _ => line.to_owned(),
    }
}

/// Differences, told once for all clusters in which they are the same.
fn told<'p>(
    text: &mut String,
    what: &str,
    clusters: &'p [ClusterPlan],
    of: impl Fn(&'p ClusterPlan) -> (&'p [Difference], String),
) {
    let mut groups: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
    let different: Vec<(&[Difference], String)> = clusters.iter().map(&of).collect();
    for (place, (differences, by)) in different.iter().enumerate() {
        if differences.is_empty() {
            continue;
        }
        let first = different
            .iter()
            .position(|(it, other)| it == differences && other == by);
        let group = groups.entry(first.unwrap_or(place)).or_default();
        group.push(&clusters[place].cluster);
    }
    for (first, names) in groups {
        let (differences, by) = &different[first];
        let by = if by.is_empty() {
            String::new()
        } else {
            format!(" by {by}")
        };
        let _ = writeln!(text, "  {what}{by} in {}:", names.join(", "));
        for one in *differences {
            let _ = writeln!(text, "    {}", difference(one));
        }
    }
}

/// A field that becomes another, on one line. A member may have named the field and what it holds.
pub(in crate::cli) fn difference(one: &Difference) -> String {
    let path = harmless::line(&one.path, usize::MAX);
    let value = |value: &Value| {
        let text = value.to_string();
        let end = text.char_indices().nth(CUT).map(|(at, _)| at);
        let text = end.map_or_else(|| text.clone(), |end| format!("{}...", &text[..end]));
        harmless::lines(&text)
    };
    match (&one.before, &one.after) {
        (Some(before), Some(after)) => format!("~ {path}: {} -> {}", value(before), value(after)),
        (None, Some(after)) => format!("+ {path}: {}", value(after)),
        (Some(before), None) => format!("- {path}: {}", value(before)),
        (None, None) => format!("~ {path}"),
    }
}
