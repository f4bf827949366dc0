//! A report as a person reads it: a line for each link, what is broken first, and what mends it. Pure.

use super::{Broken, Cause, Detail, Link, Mend, Report, State};
use std::fmt::Write as _;

/// Parts of one link that are shown.
const DETAILS: usize = 12;
/// Other clusters that are named.
const ALSO: usize = 5;
/// Narrower than this nothing is wrapped.
const NARROWEST: usize = 40;

/// The report; lines are wrapped at `width`, commands never.
pub fn render(report: &Report, width: Option<usize>) -> String {
    let mut page = Page {
        text: String::new(),
        width: width.map(|it| it.max(NARROWEST)),
    };
    let heading = match &report.broken {
        None => format!("{}: all is well", report.subject),
        Some(broken) if is_late(broken) => {
            format!("{}: waits at its {}", report.subject, broken.stage.as_str())
        }
        Some(broken) => format!(
            "{}: broken at its {}",
            report.subject,
            broken.stage.as_str()
        ),
    };
    page.lines("", "", &heading);
    let longest = report
        .links
        .iter()
        .map(|it| it.stage.as_str().len())
        .max()
        .unwrap_or(0);
    for link in &report.links {
        page.link(link, longest);
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
    matches!(broken.cause, Cause::HubIsLate | Cause::Deleting)
}

struct Page {
    text: String,
    width: Option<usize>,
}

impl Page {
    fn link(&mut self, link: &Link, longest: usize) {
        let state = match link.state {
            State::Ok => "ok    ",
            State::Waiting => "WAITS ",
            State::Broken => "BROKEN",
        };
        let first = format!("  {state}  {:<longest$}  ", link.stage.as_str());
        let rest = " ".repeat(first.len());
        self.lines(&first, &rest, &link.what);
        if link.state != State::Ok {
            self.details(&link.details, &rest);
        }
    }

    fn details(&mut self, details: &[Detail], indent: &str) {
        let (shown, more) = details.split_at(DETAILS.min(details.len()));
        let longest = shown
            .iter()
            .map(|it| it.of.chars().count())
            .max()
            .unwrap_or(0);
        for detail in shown {
            let pad = longest.saturating_sub(detail.of.chars().count());
            let first = format!("{indent}{}{}  ", detail.of, " ".repeat(pad));
            let rest = " ".repeat(first.chars().count());
            self.lines(&first, &rest, &detail.what);
        }
        if !more.is_empty() {
            self.lines(
                indent,
                indent,
                &format!("and {} more: -o yaml has all", more.len()),
            );
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
