//! `towline logs`, `exec`, `attach`, `cp`, `port-forward`, `top`, `describe` and `kubectl`: kubectl itself, at a member,
//! through the hub.
//!
//! kubectl takes the place of this process, with the hub's kubeconfig and the address on the hub where the member's API
//! begins. Nothing is written to a file, and no credential stands in an argument.

use super::kubeconfig::{self, Server};
use super::{CliError, ConnectArgs, Kind};
use common::names::ClusterName;
use std::convert::Infallible;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Which kubectl runs, for those who have several.
const PROGRAM: &str = "KUBECTL";

/// Arguments of verbs that are kubectl's.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The member.
    #[arg(short = 'C', long, value_name = "CLUSTER")]
    cluster: Option<ClusterName>,
    #[command(flatten)]
    connect: ConnectArgs,
    /// Whatever kubectl takes.
    #[arg(
        value_name = "ARGUMENT",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    words: Vec<String>,
}

impl Args {
    /// Takes what is ours out of the words that stand before `--`, wherever it stands among them; what follows is a
    /// command in a container.
    fn sorted(mut self) -> Result<Self, CliError> {
        let mut words = std::mem::take(&mut self.words).into_iter();
        while let Some(word) = words.next() {
            if word == "--" {
                self.words.push(word);
                self.words.extend(words);
                break;
            }
            let (flag, value) = match (word.split_once('='), word.strip_prefix("-C")) {
                (Some((flag, value)), _) if word.starts_with("--") => (flag, Some(value)),
                (_, Some(name)) if !name.is_empty() => ("-C", Some(name)),
                _ => (word.as_str(), None),
            };
            if !matches!(flag, "-C" | "--cluster" | "--kubeconfig" | "--context") {
                self.words.push(word);
                continue;
            }
            let value = value.map(str::to_owned).or_else(|| words.next());
            let value = value.ok_or_else(|| usage(format!("{flag} needs a value")))?;
            match flag {
                "--kubeconfig" => self.connect.kubeconfig = Some(value.into()),
                "--context" => self.connect.context = Some(value),
                _ => {
                    let name = value.parse::<ClusterName>();
                    self.cluster = Some(name.map_err(|error| usage(error.to_string()))?);
                }
            }
        }
        Ok(self)
    }

    /// What kubectl is called with; `verb` is none where the words have it.
    fn line(self, verb: Option<&str>, server: Server) -> Vec<OsString> {
        let mut line: Vec<OsString> = Vec::new();
        if let Some(file) = self.connect.kubeconfig {
            line.extend(["--kubeconfig".into(), file.into()]);
        }
        if let Some(context) = self.connect.context {
            line.extend(["--context".into(), context.into()]);
        }
        line.extend(["--server".into(), server.url.into()]);
        if let Some(name) = server.tls_server_name {
            line.extend(["--tls-server-name".into(), name.into()]);
        }
        line.extend(verb.map(OsString::from));
        line.extend(self.words.into_iter().map(OsString::from));
        line
    }
}

fn usage(message: String) -> CliError {
    CliError::message(Kind::Usage, message)
}

/// Becomes kubectl; comes back only when that cannot be.
pub(super) async fn run(args: Args, verb: Option<&str>) -> Result<Infallible, CliError> {
    let args = args.sorted()?;
    let Some(cluster) = &args.cluster else {
        return Err(usage("no cluster is named".to_owned())
            .hint("-C CLUSTER names the member; `kubectl get clusters` lists them."));
    };
    if verb.is_none() && args.words.is_empty() {
        return Err(usage("there is nothing for kubectl to do".to_owned())
            .hint("For example: towline kubectl -C m1 get pods -A"));
    }
    let server = kubeconfig::server(&args.connect, cluster).await?;
    let program = std::env::var_os(PROGRAM).filter(|it| !it.is_empty());
    let program = program.unwrap_or_else(|| "kubectl".into());
    let error = Command::new(&program).args(args.line(verb, server)).exec();
    let shown = program.to_string_lossy().into_owned();
    let hint = match error.kind() {
        io::ErrorKind::NotFound => {
            format!(
                "Install kubectl, or name it by ${PROGRAM}; `towline get -s members` needs none."
            )
        }
        _ => format!("${PROGRAM} names another one."),
    };
    let error = anyhow::Error::new(error).context(format!("failed to run {shown}"));
    Err(CliError::new(Kind::Config, error).hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn read(line: &str) -> Result<Args, CliError> {
        let words = std::iter::once("exec").chain(line.split(' '));
        let line = Line::try_parse_from(words).expect("parsed");
        line.args.sorted()
    }

    fn called(line: &str) -> Vec<String> {
        let server = Server {
            url: "https://hub/m1".into(),
            tls_server_name: None,
        };
        let line = read(line).expect("sorted").line(Some("exec"), server);
        let text = |word: OsString| word.into_string().expect("text");
        line.into_iter().map(text).collect()
    }

    #[test]
    fn what_is_ours_may_stand_anywhere_before_the_command() {
        let wanted = "--kubeconfig hub --context a --server https://hub/m1 exec -n shop -it web -c app -- ls -C -h";
        for line in [
            "-C m1 --kubeconfig hub --context a -n shop -it web -c app -- ls -C -h",
            "-n shop -it web -c app -Cm1 --context=a --kubeconfig=hub -- ls -C -h",
            "--cluster=m1 -n shop --kubeconfig hub -it web --context a -c app -- ls -C -h",
        ] {
            assert_eq!(called(line).join(" "), wanted, "{line}");
            let cluster = read(line).expect("sorted").cluster;
            assert_eq!(cluster.map(|it| it.to_string()).as_deref(), Some("m1"));
        }
    }

    #[test]
    fn what_has_no_value_is_refused() {
        for line in ["web -C", "web --context", "web --cluster=M_1"] {
            assert_eq!(read(line).expect_err(line).kind, Kind::Usage);
        }
    }
}
