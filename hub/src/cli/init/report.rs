//! How `towline init` shows what it did, what it refuses, and what it found.

use crate::cli::output::Named;
use crate::cli::{CliError, Format, Kind, Output, Table};
use crate::install::foreign::Offence;
use crate::install::plan::{Action, Step};
use crate::install::probe::Finding;
use common::client::HubTarget;
use serde::Serialize;

#[derive(Debug, Serialize)]
struct Row {
    action: String,
    object: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    details: Vec<String>,
}

impl Named for Row {
    fn named(&self) -> String {
        self.object.clone()
    }
}

/// How far the steps were taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// None was taken.
    DryRun,
    /// All of them.
    Done,
    /// These, and then something failed.
    BrokenOff,
}

/// Shows the steps that change something, and how many do not.
pub(super) fn steps(
    output: &Output,
    format: Format,
    steps: &[Step],
    mode: Mode,
) -> Result<(), CliError> {
    let rows: Vec<Row> = steps
        .iter()
        .filter(|step| step.action != Action::Unchanged)
        .map(|step| row(step, mode == Mode::DryRun))
        .collect();
    if format != Format::Table || !rows.is_empty() {
        output.print_values(format, &rows, table)?;
    }
    if format == Format::Table {
        let unchanged = steps
            .iter()
            .filter(|step| step.action == Action::Unchanged)
            .count();
        if unchanged > 0 && mode != Mode::BrokenOff {
            let all = if rows.is_empty() {
                "Nothing to change: "
            } else {
                ""
            };
            output.print(format!("{all}{unchanged} objects are as they should be."))?;
        }
        if mode == Mode::DryRun {
            output.print("Nothing was changed (dry run).")?;
        }
    }
    Ok(())
}

/// Shows what the probes found; anything missing is an error with a hint for each.
pub(super) fn findings(output: &Output, findings: &[Finding]) -> Result<(), CliError> {
    let mut missing = Vec::new();
    for finding in findings {
        match &finding.verdict {
            Ok(()) => output.note(format!("ok       {}", finding.need)),
            Err(problem) => {
                output.note(format!("MISSING  {}: {}", finding.need, problem.seen));
                missing.push(finding);
            }
        }
    }
    if missing.is_empty() {
        output.note("The hub is ready. Next: towline token create --print-register-command");
        return Ok(());
    }
    let needs: Vec<&str> = missing.iter().map(|finding| finding.need).collect();
    let needs = needs.join(", ");
    let error = CliError::message(Kind::Unmet, format!("agents cannot register yet: {needs}"));
    let mut hints: Vec<&str> = missing
        .iter()
        .filter_map(|finding| {
            finding
                .verdict
                .as_ref()
                .err()
                .map(|problem| problem.hint.as_str())
        })
        .collect();
    hints.dedup();
    Err(hints.into_iter().fold(error, CliError::hint))
}

/// The refusal to install beside rights that would undo ours.
pub(super) fn refuse(offences: &[Offence]) -> CliError {
    let lines: Vec<String> = offences
        .iter()
        .map(|offence| format!("{}: {}", offence.binding.key, offence.reasons.join(", ")))
        .collect();
    CliError::message(
        Kind::Unmet,
        format!(
            "rights that Towline did not give would undo its own; nothing was changed\n  {}",
            lines.join("\n  "),
        ),
    )
    .hint("Remove these bindings, or run again with --adopt to take those subjects out of them.")
}

/// A loopback address is of no use to a member elsewhere.
pub(super) fn warn_of_loopback(output: &Output, target: &HubTarget) {
    let is_loopback = |host: &str| {
        host == "localhost"
            || host
                .parse()
                .is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
    };
    if let Some(server) = target
        .servers
        .iter()
        .find(|server| is_loopback(server.host()))
    {
        output.note(format!(
            "note: agents will be told to reach the hub at {server}, which works on this machine \
             only; pass --advertise HOST:PORT for others"
        ));
    }
}

fn row(step: &Step, dry_run: bool) -> Row {
    let action = match (&step.action, dry_run) {
        (Action::Create, false) => "created".to_owned(),
        (Action::Change(_), false) => "changed".to_owned(),
        (Action::Keep, false) => "kept".to_owned(),
        (Action::Remove(_), false) => "removed".to_owned(),
        (action, _) => action.to_string(),
    };
    let details = match &step.action {
        Action::Change(details) | Action::Remove(details) => details.clone(),
        Action::Keep => vec!["it exists and is not Towline's; it is used as it is".to_owned()],
        Action::Create | Action::Unchanged => Vec::new(),
    };
    Row {
        action,
        object: step.key.to_string(),
        details,
    }
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new(["ACTION", "OBJECT", "DETAILS"]);
    for row in rows {
        table.row([
            row.action.to_uppercase(),
            row.object.clone(),
            row.details.join(", "),
        ]);
    }
    table
}
