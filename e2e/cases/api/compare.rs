//! Two transcripts side by side: where they differ, and what is said of it.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::run::{Seen, Transcript};
use super::script::Case;

/// Differences of one case that a report shows.
const SHOWN: usize = 40;
const LONGEST: usize = 600;

/// What became of a case.
pub(crate) struct Outcome {
    /// The case.
    pub(crate) case: Case,
    /// Where the servers differ; empty when they agree.
    pub(crate) differences: Vec<String>,
}

/// Where two transcripts differ; `left` and `right` name the servers.
pub(crate) fn differences(a: &Transcript, b: &Transcript, left: &str, right: &str) -> Vec<String> {
    let mut found = Vec::new();
    let steps = a.iter().zip(b).enumerate();
    for (number, (one, two)) in steps {
        if one == two {
            continue;
        }
        let mut here = Vec::new();
        of_step(one, two, &mut here);
        let step = shortened(&one.step, 200);
        found.push(format!("step {} {step}", number + 1));
        found
            .extend(here.into_iter().map(|(place, x, y)| {
                format!("    {place}\n      {left}: {x}\n      {right}: {y}")
            }));
    }
    if a.len() != b.len() {
        found.push(format!(
            "{left} went {} steps, {right} {}",
            a.len(),
            b.len()
        ));
        let more = a.iter().skip(b.len()).chain(b.iter().skip(a.len()));
        found.extend(
            more.map(|seen| shortened(&format!("    {} {}", seen.step, seen.body), LONGEST)),
        );
    }
    found.truncate(SHOWN);
    found
}

type Difference = (String, String, String);

fn of_step(one: &Seen, two: &Seen, found: &mut Vec<Difference>) {
    if one.step != two.step {
        found.push(("request".to_owned(), one.step.clone(), two.step.clone()));
    }
    if one.code != two.code {
        found.push((
            "status".to_owned(),
            one.code.to_string(),
            two.code.to_string(),
        ));
    }
    if one.headers != two.headers {
        let (x, y) = (by_name(one), by_name(two));
        let names: BTreeSet<_> = x.keys().chain(y.keys()).collect();
        for name in names {
            if x.get(name) != y.get(name) {
                let show = |side: &BTreeMap<String, Vec<String>>| format!("{:?}", side.get(name));
                found.push((format!("header {name}"), show(&x), show(&y)));
            }
        }
    }
    of_value("", &one.body, &two.body, found);
}

fn by_name(seen: &Seen) -> BTreeMap<String, Vec<String>> {
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in &seen.headers {
        all.entry(name.clone()).or_default().push(value.clone());
    }
    all
}

fn of_value(place: &str, one: &Value, two: &Value, found: &mut Vec<Difference>) {
    match (one, two) {
        (Value::Object(x), Value::Object(y)) => {
            let keys: BTreeSet<_> = x.keys().chain(y.keys()).collect();
            for key in keys {
                let place = format!("{place}/{key}");
                match (x.get(key), y.get(key)) {
                    (Some(x), Some(y)) => of_value(&place, x, y, found),
                    (x, y) => found.push((place, show(x), show(y))),
                }
            }
        }
        (Value::Array(x), Value::Array(y)) if named(x) && named(y) && x.len() != y.len() => {
            // Whole lists of names: which are missing says more than what stands at which place.
            let names: BTreeSet<_> = x.iter().chain(y).map(|v| v["name"].as_str()).collect();
            for name in names {
                let of = |all: &[Value]| all.iter().find(|v| v["name"].as_str() == name).cloned();
                let place = format!("{place}/[{}]", name.unwrap_or_default());
                match (of(x), of(y)) {
                    (Some(x), Some(y)) => of_value(&place, &x, &y, found),
                    (x, y) => found.push((place, show(x.as_ref()), show(y.as_ref()))),
                }
            }
        }
        (Value::Array(x), Value::Array(y)) => {
            if x.len() != y.len() {
                let counts = format!("{place} (length)");
                found.push((counts, x.len().to_string(), y.len().to_string()));
            }
            for (index, (x, y)) in x.iter().zip(y).enumerate() {
                of_value(&format!("{place}/{index}"), x, y, found);
            }
            let from = x.len().min(y.len());
            for (index, more) in x.iter().enumerate().skip(from) {
                found.push((format!("{place}/{index}"), show(Some(more)), "-".to_owned()));
            }
            for (index, more) in y.iter().enumerate().skip(from) {
                found.push((format!("{place}/{index}"), "-".to_owned(), show(Some(more))));
            }
        }
        (Value::String(x), Value::String(y)) if x != y => {
            let (x, y) = from_difference(x, y);
            found.push((place.to_owned(), show(Some(&x)), show(Some(&y))));
        }
        (x, y) if x != y => found.push((place.to_owned(), show(Some(x)), show(Some(y)))),
        _ => {}
    }
}

/// Two texts; long ones from shortly before they part.
fn from_difference(x: &str, y: &str) -> (Value, Value) {
    let same = x.chars().zip(y.chars()).take_while(|(x, y)| x == y).count();
    let long = x.len().max(y.len()) > LONGEST / 2;
    let from = if long { same.saturating_sub(60) } else { 0 };
    let lead = if from > 0 { "…" } else { "" };
    let part = |text: &str| {
        let rest = text.chars().skip(from);
        Value::String(lead.chars().chain(rest).collect())
    };
    (part(x), part(y))
}

fn named(values: &[Value]) -> bool {
    let names: BTreeSet<_> = values.iter().filter_map(|v| v["name"].as_str()).collect();
    names.len() == values.len()
}

fn show(value: Option<&Value>) -> String {
    value.map_or_else(|| "-".to_owned(), |v| shortened(&v.to_string(), LONGEST))
}

fn shortened(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// What a case saw, for reading.
pub(crate) fn transcript(seen: &Transcript) -> String {
    let mut out = String::new();
    for seen in seen {
        let _ = writeln!(out, "{}\n  {} {:?}", seen.step, seen.code, seen.headers);
        let _ = writeln!(out, "  {:#}\n", seen.body);
    }
    out
}

/// Every case that differs, with its differences.
pub(crate) fn details(outcomes: &[Outcome]) -> String {
    let mut out = String::new();
    for outcome in outcomes.iter().filter(|o| !o.differences.is_empty()) {
        let _ = writeln!(out, "## {} ({})", outcome.case.title(), outcome.case.id);
        for line in &outcome.differences {
            let _ = writeln!(out, "{line}");
        }
        out.push('\n');
    }
    out
}

/// A table of areas, then the names of cases that differ.
pub(crate) fn summary(outcomes: &[Outcome], left: &str, right: &str) -> String {
    let mut areas: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for outcome in outcomes {
        let area = areas.entry(&outcome.case.area).or_default();
        area.0 += 1;
        area.1 += usize::from(!outcome.differences.is_empty());
    }
    let mut out = format!("API of {left} and of {right}:\n");
    let _ = writeln!(out, "  {:<22} {:>6} {:>7}", "area", "cases", "differ");
    for (area, (cases, differ)) in &areas {
        let _ = writeln!(out, "  {area:<22} {cases:>6} {differ:>7}");
    }
    let differ = outcomes.iter().filter(|o| !o.differences.is_empty());
    let titles: Vec<String> = differ.map(|o| o.case.title()).collect();
    let (cases, count) = (outcomes.len(), titles.len());
    let left_out = outcomes
        .iter()
        .filter(|o| o.case.profile().is_some())
        .count();
    let _ = writeln!(out, "  {:<22} {cases:>6} {count:>7}", "all");
    let _ = writeln!(
        out,
        "  of these, {left_out} are refusals that docs/hub-profile.md lists"
    );
    for title in titles {
        let _ = writeln!(out, "  differs: {title}");
    }
    out
}
