//! Logging: one subscriber, text or JSON, to standard error.

use clap::{Args, ValueEnum};
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;
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
    #[error("--log-level {0:?} is not understood")]
    Level(String, #[source] tracing_subscriber::filter::ParseError),
    /// Somebody else installed a subscriber before.
    #[error("failed to install the log subscriber")]
    Install(#[source] tracing_subscriber::util::TryInitError),
}

/// Installs the subscriber for the whole process.
pub fn init(args: &TelemetryArgs) -> Result<(), Error> {
    // Targets, not EnvFilter: the latter brings a regex engine, which the agent would carry.
    let filter: Targets = args
        .log_level
        .parse()
        .map_err(|error| Error::Level(args.log_level.clone(), error))?;
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
        let args = TelemetryArgs {
            log_format: LogFormat::Text,
            log_level: "agent=chatty".to_owned(),
        };
        let error = init(&args).expect_err("not a level");
        assert_eq!(
            error.to_string(),
            "--log-level \"agent=chatty\" is not understood"
        );
    }
}
