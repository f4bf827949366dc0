//! Everything a verb shows: results on stdout, progress, prompts and errors on stderr.
//!
//! A pipe that was closed by its reader is no error.

use super::error::{CliError, Kind};
use crate::explain::State;
use common::harmless;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use std::fmt::Write as _;
use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

/// Work that is over sooner shows no spinner.
const SPINNER_DELAY: Duration = Duration::from_secs(2);

/// How a terminal shows what is wrong, or goes.
const BAD: &str = "31";
/// What is well, or comes.
const GOOD: &str = "32";
/// What becomes another.
const CHANGE: &str = "33";
/// A heading.
const STRONG: &str = "1";
/// What ends a colour.
const PLAIN: &str = "\u{1b}[0m";

/// How results are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Format {
    /// Aligned columns for people.
    #[default]
    Table,
    /// JSON for programs.
    Json,
    /// YAML for programs and files.
    Yaml,
    /// TYPE/NAME alone.
    Name,
}

/// What commands take by a name.
pub trait Named {
    /// `TYPE/NAME`, or what else its commands take.
    fn named(&self) -> String;
}

/// Something that a verb did to an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Done {
    /// `TYPE/NAME`.
    pub object: String,
    /// The object's namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// What was done.
    pub done: String,
    /// Whether it was only tried.
    pub dry_run: bool,
}

impl Named for Done {
    fn named(&self) -> String {
        self.object.clone()
    }
}

impl Done {
    /// Something done to an object.
    pub fn new(object: impl Into<String>, done: impl Into<String>) -> Self {
        Self {
            object: object.into(),
            namespace: None,
            done: done.into(),
            dry_run: false,
        }
    }

    /// As kubectl says it.
    pub fn line(&self) -> String {
        let dry_run = if self.dry_run { " (dry run)" } else { "" };
        let (object, done) = (&self.object, &self.done);
        let place = self.namespace.as_ref().map(|it| format!(" in {it}"));
        let place = place.unwrap_or_default();
        format!("{object} {done}{place}{dry_run}")
    }

    /// To a Cluster.
    pub fn cluster(name: &str, done: impl Into<String>) -> Self {
        Self::new(format!("cluster.cluster.karmada.io/{name}"), done)
    }
}

/// Whether text is coloured: on a terminal alone, and not where NO_COLOR is set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Colours(bool);

impl Colours {
    /// Colours wherever it is written.
    #[cfg(test)]
    pub fn always() -> Self {
        Self(true)
    }

    /// As `text` is to be read: what is wrong, or goes.
    pub fn bad(self, text: &str) -> String {
        self.painted(BAD, text)
    }

    /// What is well, or comes.
    pub fn good(self, text: &str) -> String {
        self.painted(GOOD, text)
    }

    /// What becomes another.
    pub fn change(self, text: &str) -> String {
        self.painted(CHANGE, text)
    }

    /// A heading.
    pub fn strong(self, text: &str) -> String {
        self.painted(STRONG, text)
    }

    /// The word for how a link is.
    pub fn state(self, state: State, word: &str) -> String {
        match state {
            State::Ok => self.good(word),
            State::Waiting => self.change(word),
            State::Broken => self.bad(word),
        }
    }

    /// A cell of a table, by the word that it is.
    fn cell(self, cell: &str) -> String {
        match cell {
            "False" | "Unknown" | "Unhealthy" | "Warning" | "not Ready" | "not placed"
            | "not applied" | "unhealthy" | "unheard" => self.bad(cell),
            "True" | "Healthy" | "Ready" => self.good(cell),
            "never Ready" | "suspended" | "pending" => self.change(cell),
            other => other.to_owned(),
        }
    }

    fn painted(self, how: &str, text: &str) -> String {
        match self.0 {
            true => format!("\u{1b}[{how}m{text}{PLAIN}"),
            false => text.to_owned(),
        }
    }
}

/// A text without our colours, which are decided by stdout, and in which a terminal acts on nothing: somebody else may
/// have said some of it.
fn uncoloured(text: &str) -> String {
    let mut plain = text.replace(PLAIN, "");
    for how in [BAD, GOOD, CHANGE, STRONG] {
        plain = plain.replace(&format!("\u{1b}[{how}m"), "");
    }
    harmless::lines(&plain)
}

/// Where a verb writes.
#[derive(Debug)]
pub struct Output {
    interactive: bool,
}

impl Output {
    /// This process's stdout and stderr.
    pub fn stdio() -> Self {
        Self {
            interactive: io::stdin().is_terminal() && io::stderr().is_terminal(),
        }
    }

    /// Whether what is written to stdout is coloured.
    pub fn colours(&self) -> Colours {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|it| !it.is_empty());
        Colours(io::stdout().is_terminal() && !unwanted)
    }

    /// Writes `text` and a newline to stdout.
    pub fn print(&self, text: impl AsRef<str>) -> Result<(), CliError> {
        let mut stdout = io::stdout().lock();
        let text = text.as_ref().trim_end_matches('\n');
        match writeln!(stdout, "{text}").and_then(|()| stdout.flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(CliError::new(
                Kind::Internal,
                anyhow::Error::new(error).context("failed to write to stdout"),
            )),
            _ => Ok(()),
        }
    }

    /// Writes values: as `table` shows them, or whole as JSON or YAML.
    pub fn print_values<T: Serialize + Named>(
        &self,
        format: Format,
        values: &[T],
        table: impl FnOnce(&[T]) -> Table,
    ) -> Result<(), CliError> {
        let internal = |error: anyhow::Error| CliError::new(Kind::Internal, error);
        match format {
            Format::Table => {
                let table = table(values).coloured(self.colours());
                self.print(table.within(self.width()))
            }
            Format::Name if values.is_empty() => Ok(()),
            Format::Name => {
                let names: Vec<String> = values.iter().map(Named::named).collect();
                self.print(names.join("\n"))
            }
            Format::Json => {
                self.print(serde_json::to_string_pretty(values).map_err(|e| internal(e.into()))?)
            }
            Format::Yaml => {
                self.print(common::yaml::to_string(values).map_err(|e| internal(e.into()))?)
            }
        }
    }

    /// Writes what was done: a line for each, as kubectl does.
    pub fn print_done(&self, format: Format, done: &[Done]) -> Result<(), CliError> {
        if format != Format::Table {
            return self.print_values(format, done, |_| Table::default());
        }
        for one in done {
            self.print(one.line())?;
        }
        Ok(())
    }

    /// What came of one object; where it failed, what was done to others before is shown first.
    pub fn or_done<T>(
        &self,
        result: Result<T, CliError>,
        format: Format,
        before: &[Done],
    ) -> Result<T, CliError> {
        if result.is_err() && !before.is_empty() {
            self.print_done(format, before)?;
        }
        result
    }

    /// Writes one value as JSON or YAML; as a table it would be no table, and names are of many.
    pub fn print_value<T: Serialize>(&self, format: Format, value: &T) -> Result<(), CliError> {
        let internal = |error: anyhow::Error| CliError::new(Kind::Internal, error);
        match format {
            Format::Table | Format::Name | Format::Json => {
                self.print(serde_json::to_string_pretty(value).map_err(|e| internal(e.into()))?)
            }
            Format::Yaml => {
                self.print(common::yaml::to_string(value).map_err(|e| internal(e.into()))?)
            }
        }
    }

    /// How wide the terminal is that results are written to; none when it is no terminal.
    pub fn width(&self) -> Option<usize> {
        let (_, columns) = console::Term::stdout().size_checked()?;
        Some(columns.into())
    }

    /// Tells the human something beside the result, on stderr.
    pub fn note(&self, text: impl AsRef<str>) {
        // Nothing sensible is left to do when stderr is closed.
        let _ = writeln!(io::stderr(), "{}", uncoloured(text.as_ref()));
    }

    /// Prints an error with its hints, unless it was told, and returns the exit code of its kind.
    pub fn fail(&self, error: &CliError) -> ExitCode {
        if !error.is_told() {
            self.note(error.to_string());
        }
        error.kind.into()
    }

    /// Asks a yes-or-no question; anything but yes is no, and without a terminal it is an error.
    pub fn confirm(&self, question: &str) -> Result<(), CliError> {
        if !self.interactive {
            return Err(
                CliError::message(Kind::Usage, format!("no terminal to ask: {question}"))
                    .hint("Pass --yes to go ahead without being asked."),
            );
        }
        // The prompt and its answer belong to the human, not to the result.
        let _ = write!(io::stderr(), "{} [y/N] ", harmless::lines(question));
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer).map_err(|error| {
            let error = anyhow::Error::new(error).context("failed to read the answer");
            CliError::new(Kind::Internal, error)
        })?;
        match answer.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => Ok(()),
            _ => Err(CliError::message(Kind::Declined, "nothing was changed")),
        }
    }

    /// Shows on stderr that something goes on, once it has gone on for two seconds.
    pub fn progress(&self, message: impl Into<String>) -> Progress {
        Progress::start(message.into())
    }
}

/// A spinner that ends when dropped.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    starter: tokio::task::JoinHandle<()>,
}

impl Progress {
    fn start(message: String) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        bar.set_style(ProgressStyle::default_spinner());
        bar.set_message(message);
        let shown = bar.clone();
        let starter = tokio::spawn(async move {
            tokio::time::sleep(SPINNER_DELAY).await;
            if io::stderr().is_terminal() {
                shown.set_draw_target(ProgressDrawTarget::stderr());
                shown.enable_steady_tick(Duration::from_millis(120));
            } else {
                // A log gets one line instead of an animation.
                let _ = writeln!(io::stderr(), "{} ...", shown.message());
            }
        });
        Self { bar, starter }
    }

    /// Says what is going on now.
    pub fn step(&self, message: impl Into<String>) {
        let message: String = message.into();
        self.bar.set_message(harmless::line(&message, usize::MAX));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.starter.abort();
        self.bar.finish_and_clear();
    }
}

/// Between columns.
const GAP: &str = "   ";
/// Behind a text that was cut.
const CUT: &str = "...";
/// Characters that a last column keeps on a narrow terminal.
const LEAST: usize = 20;

/// Rows of text under headings, as kubectl prints them.
#[derive(Debug, Clone, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
    headless: bool,
    uncut: bool,
    colours: Colours,
    least: Vec<usize>,
}

impl Table {
    /// A table with these headings.
    pub fn new<const N: usize>(headings: [&str; N]) -> Self {
        Self::of(headings.to_vec())
    }

    /// A table whose columns are known only at run time.
    pub fn of(headings: Vec<&str>) -> Self {
        Self {
            rows: vec![headings.into_iter().map(str::to_owned).collect()],
            ..Self::default()
        }
    }

    /// Adds a row.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.push(cells.to_vec());
    }

    /// Adds a row of as many cells as there are headings. Cells say what others wrote: each stays on its line, and a
    /// terminal acts on none.
    pub fn push(&mut self, cells: Vec<String>) {
        let cells = cells.iter().map(|it| harmless::line(it, usize::MAX));
        self.rows.push(cells.collect());
    }
}

impl Table {
    /// Its lines alone, each column as wide as under its heading.
    #[must_use]
    pub fn without_headings(mut self) -> Self {
        self.headless = true;
        self
    }

    /// Columns at least as wide as these: rows that come later stand below those that were shown.
    #[must_use]
    pub fn at_least(mut self, widths: &[usize]) -> Self {
        self.least = widths.to_vec();
        self
    }

    /// How wide each column is.
    pub fn widths(&self) -> Vec<usize> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        (0..columns).map(|column| self.widest(column)).collect()
    }

    fn widest(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column));
        let widest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
        widest.max(self.least.get(column).copied().unwrap_or(0))
    }

    /// Whole, however narrow the terminal is.
    #[must_use]
    pub fn uncut(mut self) -> Self {
        self.uncut = true;
        self
    }

    /// Headings and words of states in colours.
    #[must_use]
    pub fn coloured(mut self, colours: Colours) -> Self {
        self.colours = colours;
        self
    }

    /// The table with its last column cut to what fits; that column keeps some of its text whatever the width.
    pub fn within(mut self, width: Option<usize>) -> String {
        let Some(width) = width.filter(|_| !self.uncut) else {
            return self.to_string();
        };
        let last = self
            .rows
            .iter()
            .map(Vec::len)
            .max()
            .unwrap_or(0)
            .saturating_sub(1);
        let before: usize = (0..last)
            .map(|column| self.widest(column) + GAP.len())
            .sum();
        let left = width.saturating_sub(before).max(LEAST);
        for row in &mut self.rows {
            let Some(cell) = row.get_mut(last) else {
                continue;
            };
            if cell.chars().count() > left {
                let cut: String = cell.chars().take(left - CUT.len()).collect();
                *cell = cut.trim_end().to_owned() + CUT;
            }
        }
        self.to_string()
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let widths = self.widths();
        for (place, row) in self.rows.iter().enumerate().skip(self.headless.into()) {
            let mut line = String::new();
            let mut blank = 0;
            for (cell, width) in row.iter().zip(&widths) {
                if !cell.is_empty() {
                    let painted = match place {
                        0 => self.colours.strong(cell),
                        _ => self.colours.cell(cell),
                    };
                    write!(line, "{:blank$}{painted}", "")?;
                    blank = 0;
                }
                blank += width - cell.chars().count() + GAP.len();
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Colours, Table, uncoloured};

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(["NAME", "READY"]);
        table.row(["member-1".into(), "True".into()]);
        table.row(["m".into(), String::new()]);
        assert_eq!(table.to_string(), "NAME       READY\nmember-1   True\nm\n");
    }

    #[test]
    fn a_cell_is_on_its_line_whatever_it_says() {
        let mut table = Table::new(["NAME", "MESSAGE"]);
        table.row(["m1".into(), "no\r\nm2   True\u{1b}[2J\u{202e}".into()]);
        let shown = "NAME   MESSAGE\nm1     no m2 True\\u{1b}[2J\\u{202e}\n";
        assert_eq!(table.to_string(), shown);
    }

    #[test]
    fn colours_take_no_room() {
        let mut table = Table::new(["NAME", "READY", "WHY"]);
        table.row(["m1".into(), "Unknown".into(), "silent".into()]);
        table.row(["m2".into(), "True".into(), String::new()]);
        let plain = table.to_string();
        let coloured = table.coloured(Colours::always()).to_string();
        assert!(coloured.contains("\u{1b}[31mUnknown\u{1b}[0m   silent"));
        assert_eq!(console::strip_ansi_codes(&coloured), plain);
    }

    #[test]
    fn a_note_is_without_colours_and_does_nothing_to_a_terminal() {
        let colours = Colours::always();
        let shown = [
            colours.bad("bad"),
            colours.good("good"),
            colours.change("change"),
            colours.strong("strong"),
        ];
        let text = format!("{}\n\tm1 says \u{1b}[2J\u{9b}31m", shown.join(" "));
        let plain = "bad good change strong\n\tm1 says \\u{1b}[2J\\u{9b}31m";
        assert_eq!(uncoloured(&text), plain);
        // What is left when a colour is taken out is looked at as well.
        let nested = uncoloured("\u{1b}\u{1b}[0m[2J");
        assert_eq!(nested, "\\u{1b}[2J");
    }

    #[test]
    fn the_last_column_is_cut_to_the_terminal() {
        let mut table = Table::new(["NAME", "WHY"]);
        table.row(["m1".into(), "0123456789".repeat(4)]);
        let cut = |width| table.clone().within(width);
        assert_eq!(table.clone().uncut().within(Some(30)), table.to_string());
        assert_eq!(cut(None), table.to_string());
        assert_eq!(cut(Some(80)), table.to_string());
        let line = format!("m1     {}...", "0123456789".repeat(2));
        assert_eq!(cut(Some(30)), format!("NAME   WHY\n{line}\n"));
        let least = "NAME   WHY\nm1     01234567890123456...\n";
        assert_eq!(cut(Some(5)), least);
    }
}
