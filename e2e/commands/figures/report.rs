//! The figures of both servers side by side.

use serde::Serialize;
use std::fmt;

use crate::commands::up::Foundation;

/// What a figure counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::commands) enum Unit {
    /// Memory.
    MiB,
    /// Time.
    Seconds,
    /// Time.
    Millis,
    /// A rate.
    PerSecond,
    /// A number.
    Count,
}

impl Unit {
    /// A figure with its unit.
    pub(in crate::commands) fn show(self, value: f64) -> String {
        match self {
            Self::MiB => format!("{value:.1} MiB"),
            Self::Seconds => format!("{value:.2} s"),
            Self::Millis => format!("{value:.1} ms"),
            Self::PerSecond => format!("{value:.0}/s"),
            Self::Count => format!("{value:.0}"),
        }
    }
}

/// One line.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    what: String,
    unit: Unit,
    #[serde(skip_serializing_if = "Option::is_none")]
    built_in: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kube_apiserver: Option<f64>,
}

/// All lines, in the order in which they were first measured.
#[derive(Debug, Serialize)]
pub(in crate::commands) struct Report {
    build: String,
    rows: Vec<Row>,
}

impl Report {
    /// Of a build.
    pub(in crate::commands) fn new(build: &str) -> Self {
        Self {
            build: build.to_owned(),
            rows: Vec::new(),
        }
    }

    /// Adds a figure of one server.
    pub(in crate::commands) fn add(
        &mut self,
        kind: Foundation,
        what: &str,
        value: f64,
        unit: Unit,
    ) {
        let at = self.rows.iter().position(|row| row.what == what);
        let at = at.unwrap_or_else(|| {
            self.rows.push(Row {
                what: what.to_owned(),
                unit,
                built_in: None,
                kube_apiserver: None,
            });
            self.rows.len() - 1
        });
        let row = &mut self.rows[at];
        match kind {
            Foundation::Builtin => row.built_in = Some(value),
            Foundation::Real => row.kube_apiserver = Some(value),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let longest = self.rows.iter().map(|row| row.what.len()).max();
        let width = longest.unwrap_or_default();
        writeln!(
            f,
            "{:width$}  {:>12}  {:>14}",
            format!("a {} build", self.build),
            "built-in",
            "kube-apiserver"
        )?;
        for row in &self.rows {
            let shown = |value: Option<f64>| value.map_or("-".to_owned(), |v| row.unit.show(v));
            let (ours, theirs) = (shown(row.built_in), shown(row.kube_apiserver));
            writeln!(f, "{:width$}  {ours:>12}  {theirs:>14}", row.what)?;
        }
        Ok(())
    }
}
