//! What all runs say together: each figure beside its goal, and beside Karmada's.

use std::fmt;

/// What a figure should be.
#[derive(Debug, Clone, Copy)]
pub(super) enum Goal {
    /// No more than that.
    AtMost(f64),
    /// No less.
    AtLeast(f64),
}

impl Goal {
    fn is_met(self, figure: f64) -> bool {
        match self {
            Self::AtMost(most) => figure <= most,
            Self::AtLeast(least) => figure >= least,
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(most) => write!(f, "at most {most}"),
            Self::AtLeast(least) => write!(f, "at least {least}"),
        }
    }
}

struct Finding {
    what: String,
    figure: f64,
    unit: &'static str,
    goal: Option<Goal>,
    /// Karmada's figure, where there is one.
    reference: &'static str,
}

/// Figures in the order in which they were found.
#[derive(Default)]
pub(super) struct Findings(Vec<Finding>);

impl Findings {
    /// Adds a figure.
    pub(super) fn add(
        &mut self,
        what: impl Into<String>,
        (figure, unit): (f64, &'static str),
        goal: Option<Goal>,
        reference: &'static str,
    ) {
        self.0.push(Finding {
            what: what.into(),
            figure,
            unit,
            goal,
            reference,
        });
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| what | Towline | goal | Karmada |\n|---|---|---|---|")?;
        for finding in &self.0 {
            let goal = finding.goal.map_or_else(String::new, |goal| {
                let met = if goal.is_met(finding.figure) {
                    "met"
                } else {
                    "MISSED"
                };
                format!("{goal}: {met}")
            });
            writeln!(
                f,
                "| {} | {:.1} {} | {goal} | {} |",
                finding.what, finding.figure, finding.unit, finding.reference
            )?;
        }
        Ok(())
    }
}

/// The middle one.
pub(super) fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}
