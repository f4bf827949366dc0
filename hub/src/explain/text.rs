//! A report as a person reads it: a line for each link, what is broken first, and what mends it. Pure.

use super::{Broken, Cause, Detail, Link, Mend, Report, Stage, State};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Characters of names that stand before what is so about all of them.
const NAMES: usize = 24;
/// Parts of one link that are shown.
const DETAILS: usize = 12;
/// What is broken beside the first thing that is named.
const ALSO: usize = 5;
/// Characters of a state with the gap behind it.
const STATE: usize = "BROKEN  ".len();
/// Narrower than this nothing is wrapped.
const NARROWEST: usize = 40;

/// Without colours.
#[cfg(test)]
pub(super) fn plain(_: State, word: &str) -> String {
    word.to_owned()
}

/// The report; lines are wrapped at `width`, commands never. `paint` has the words of states in their colours.
pub fn render(
    report: &Report,
    width: Option<usize>,
    paint: impl Fn(State, &str) -> String,
) -> String {
    let mut page = Page {
        text: String::new(),
        width: width.map(|it| it.max(NARROWEST)),
    };
    let heading = match &report.broken {
        None => format!("{}: all is well", report.subject),
        Some(broken) => {
            let (subject, stage) = (&report.subject, broken.stage);
            match (is_late(broken), stage) {
                (true, Stage::Applied) => format!("{subject}: waits to be applied"),
                (true, _) => format!("{subject}: waits at its {}", stage.as_str()),
                (false, Stage::Applied | Stage::Ready) => {
                    format!("{subject}: not {}", stage.as_str())
                }
                (false, _) => format!("{subject}: broken at its {}", stage.as_str()),
            }
        }
    };
    page.lines("", "", &heading);
    let longest = report
        .links
        .iter()
        .map(|it| it.stage.as_str().len())
        .max()
        .unwrap_or(0);
    for link in &report.links {
        page.link(link, longest, &paint);
    }
    for broken in report.also.iter().take(ALSO) {
        page.lines("  also    ", "          ", &broken.what);
    }
    if report.also.len() > ALSO {
        let more = format!("and {} more: -o yaml has all", report.also.len() - ALSO);
        page.lines("          ", "          ", &more);
    }
    for unseen in &report.unseen {
        page.lines("  unseen  ", "          ", unseen);
    }
    if let Some(broken) = &report.broken {
        page.text.push('\n');
        page.mend(&broken.mend);
    }
    page.text
}

fn is_late(broken: &Broken) -> bool {
    matches!(
        broken.cause,
        Cause::HubIsLate | Cause::Deleting | Cause::Lazy
    )
}

/// Parts of which the same is so, in the order of the first of each.
fn groups<'d>(details: impl Iterator<Item = &'d Detail>) -> Vec<(Vec<&'d str>, &'d str)> {
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    let mut groups: Vec<(Vec<&str>, &str)> = Vec::new();
    for detail in details {
        let place = *places.entry(detail.what.as_str()).or_insert(groups.len());
        match groups.get_mut(place) {
            Some((names, _)) => names.push(&detail.of),
            None => groups.push((vec![detail.of.as_str()], detail.what.as_str())),
        }
    }
    groups
}

/// All names, or the first and how many more there are.
fn named(names: &[&str]) -> String {
    let all = names.join(", ");
    match names {
        [first, rest @ ..] if !rest.is_empty() && all.chars().count() > NAMES => {
            format!("{first} and {} more", rest.len())
        }
        _ => all,
    }
}

struct Page {
    text: String,
    width: Option<usize>,
}

impl Page {
    fn link(&mut self, link: &Link, longest: usize, paint: &impl Fn(State, &str) -> String) {
        let state = match link.state {
            State::Ok => "ok",
            State::Waiting => "WAITS",
            State::Broken => "BROKEN",
        };
        let gap = " ".repeat(STATE - state.len());
        let stage = link.stage.as_str();
        let first = format!("  {}{gap}{stage:<longest$}  ", paint(link.state, state));
        let rest = " ".repeat(2 + STATE + longest + 2);
        self.lines(&first, &rest, &link.what);
        if link.state != State::Ok {
            // What the link itself says is not said twice.
            let others = link
                .details
                .iter()
                .filter(|it| !it.what.ends_with(&link.what) && !link.what.ends_with(&it.what));
            self.details(&groups(others), &rest);
        }
    }

    fn details(&mut self, groups: &[(Vec<&str>, &str)], indent: &str) {
        let (shown, more) = groups.split_at(DETAILS.min(groups.len()));
        let shown: Vec<(String, &str)> = shown
            .iter()
            .map(|(names, what)| (named(names), *what))
            .collect();
        let longest = shown.iter().map(|(name, _)| name.chars().count()).max();
        let longest = longest.unwrap_or(0);
        for (name, what) in &shown {
            let first = format!("{indent}{name:<longest$}  ");
            let rest = " ".repeat(first.chars().count());
            self.lines(&first, &rest, what);
        }
        let more: usize = more.iter().map(|(names, _)| names.len()).sum();
        if more > 0 {
            let words = format!("and {more} more: -o yaml has all");
            self.lines(indent, indent, &words);
        }
    }

    fn mend(&mut self, mend: &Mend) {
        self.lines("", "", &mend.what);
        if let (Some(member), false) = (&mend.member, mend.commands.is_empty()) {
            self.lines("", "", &format!("With the kubeconfig of {member}:"));
        }
        for command in &mend.commands {
            for line in command.lines() {
                // What begins with spaces in a document must keep its place: it is copied as it is.
                let indent = if command.contains('\n') { "" } else { "  " };
                let _ = writeln!(self.text, "{indent}{line}");
            }
        }
    }

    /// A text, its first line after `first` and the others after `rest`.
    fn lines(&mut self, first: &str, rest: &str, text: &str) {
        let room = self.width.map(|width| {
            width
                .saturating_sub(rest.chars().count())
                .max(NARROWEST / 2)
        });
        let mut line = first.to_owned();
        let mut length = 0;
        for word in text.split(' ') {
            let long = word.chars().count();
            if room.is_some_and(|room| length > 0 && length + 1 + long > room) {
                let _ = writeln!(self.text, "{}", line.trim_end());
                line = rest.to_owned();
                length = 0;
            }
            if length > 0 {
                line.push(' ');
                length += 1;
            }
            line.push_str(word);
            length += long;
        }
        let _ = writeln!(self.text, "{}", line.trim_end());
    }
}
