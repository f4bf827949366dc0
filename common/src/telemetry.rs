//! Logging: one subscriber, text or JSON, to standard error.

use clap::{Args, ValueEnum};
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Flags about logging, shared by every binary.
#[derive(Debug, Clone, Args)]
pub struct TelemetryArgs {
    /// Format of log lines
    #[arg(
        long,
        value_enum,
        default_value = "text",
        env = "TOWLINE_LOG_FORMAT",
        global = true
    )]
    pub log_format: LogFormat,
    /// What to log: a level, or directives such as `info,agent=debug`
    #[arg(long, default_value = "info", env = "TOWLINE_LOG_LEVEL", global = true)]
    pub log_level: String,
}

/// Why logging could not be started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The level is no level and no directive.
    #[error(
        "--log-level {0:?} is not understood: it is off, error, warn, info, debug or trace, or such directives as info,agent=debug"
    )]
    Level(
        String,
        #[source] Option<tracing_subscriber::filter::ParseError>,
    ),
    /// Somebody else installed a subscriber before.
    #[error("failed to install the log subscriber")]
    Install(#[source] tracing_subscriber::util::TryInitError),
}

fn filter(text: &str) -> Result<Targets, Error> {
    let unknown = |why| Error::Level(text.to_owned(), why);
    // A word alone that is no level would be a target, and everything else silent.
    let mut alone = text.split(',').filter(|word| !word.contains('='));
    if alone.any(|word| word.trim().parse::<LevelFilter>().is_err()) {
        return Err(unknown(None));
    }
    text.parse().map_err(|error| unknown(Some(error)))
}

/// Installs the subscriber for the whole process.
pub fn init(args: &TelemetryArgs) -> Result<(), Error> {
    // Targets, not EnvFilter: the latter brings a regex engine, which the agent would carry.
    let filter = filter(&args.log_level)?;
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()));
    let layer = match args.log_format {
        LogFormat::Text => layer.boxed(),
        LogFormat::Json => layer.json().boxed(),
    };
    tracing_subscriber::registry()
        .with(layer.with_filter(filter))
        .try_init()
        .map_err(Error::Install)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_level_is_named() {
        for unknown in ["agent=chatty", "warning", "info,agent", "fatal"] {
            let error = filter(unknown).expect_err("not a level").to_string();
            let named = format!("--log-level {unknown:?} is not understood: ");
            assert!(error.starts_with(&named), "{error}");
        }
        for known in [
            "off",
            "warn",
            "WARN",
            "info,agent=debug",
            "agent=trace",
            "0",
            "5",
        ] {
            assert!(filter(known).is_ok(), "{known}");
        }
    }
}
