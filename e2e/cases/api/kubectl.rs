//! kubectl against both servers: what it prints and how it ends.
//!
//! `kubectl.txt` holds the sessions: `### name`, then one command a line without the word kubectl; a
//! line that begins with `< ` is the input of the command below it. `$id` is the session's namespace.

use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use serde_json::json;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use super::compare::{Outcome, differences};
use super::normal;
use super::profile::Profile;
use super::run::{Seen, Transcript};
use super::script::Case;
use super::server::Server;
use crate::env::{Part, Parts, run};

const COMMAND_WITHIN: Duration = Duration::from_secs(90);
/// kubectl costs a process each time.
const AT_ONCE: usize = 3;

/// One session with one kubectl.
struct Session {
    name: String,
    id: String,
    kubectl: PathBuf,
    commands: Vec<(String, Option<String>)>,
}

/// Shows where two folders differ without the names that kubectl draws for them.
const DIFF: &str = r#"#!/bin/sh
status=0
for file in $(ls "$1" "$2" | grep -v : | sort -u); do
    diff -u -N --label live --label merged "$1/$file" "$2/$file" || status=1
done
exit $status
"#;

/// Every session, with the newest kubectl, and with the one that `TOWLINE_KUBECTL` names.
pub(crate) async fn compare(
    left: &Server,
    right: &Server,
    profile: &Profile,
    run: &str,
) -> Result<Vec<Outcome>> {
    let text = std::fs::read_to_string(super::scripts().with_file_name("kubectl.txt"))
        .context("failed to read kubectl.txt")?;
    write_differ(left)?;
    write_differ(right)?;
    let mut sessions = Vec::new();
    for (which, kubectl) in kubectls()?.into_iter().enumerate() {
        for (number, part) in text.split("\n### ").skip(1).enumerate() {
            let (name, rest) = part.split_once('\n').unwrap_or((part, ""));
            let name = format!("{name} ({})", ["newest", "another"][which]);
            if super::picked(&format!("kubectl: {name}")) {
                let id = format!("kubectl-{which}{number:02}-{run}");
                let commands = commands(rest, &id);
                sessions.push(Session {
                    name,
                    id,
                    kubectl: kubectl.clone(),
                    commands,
                });
            }
        }
    }
    let outcomes = futures::stream::iter(sessions)
        .map(|session| async move { outcome(left, right, profile, &session).await })
        .buffer_unordered(AT_ONCE);
    let mut outcomes: Vec<Outcome> = outcomes.collect().await;
    outcomes.sort_by(|a, b| a.case.id.cmp(&b.case.id));
    Ok(outcomes)
}

/// Where the program is that shows differences.
fn differ(server: &Server) -> PathBuf {
    server.kubeconfig().with_file_name("diff.sh")
}

fn write_differ(server: &Server) -> Result<()> {
    let path = differ(server);
    std::fs::write(&path, DIFF)
        .and_then(|()| std::fs::set_permissions(&path, Permissions::from_mode(0o755)))
        .with_context(|| format!("failed to write {}", path.display()))
}

fn kubectls() -> Result<Vec<PathBuf>> {
    let mut found = vec![Parts::from_env()?.path(Part::Kubectl)?];
    found.extend(std::env::var_os("TOWLINE_KUBECTL").map(PathBuf::from));
    Ok(found)
}

fn commands(text: &str, id: &str) -> Vec<(String, Option<String>)> {
    let mut commands = Vec::new();
    let mut input: Option<String> = None;
    for line in text
        .lines()
        .filter(|l| !l.is_empty() && !l.starts_with("# "))
    {
        match line.strip_prefix("< ") {
            Some(more) => {
                let input = input.get_or_insert_default();
                input.push_str(&more.replace("$id", id));
                input.push('\n');
            }
            None => commands.push((line.replace("$id", id), input.take())),
        }
    }
    commands
}

async fn outcome(left: &Server, right: &Server, profile: &Profile, session: &Session) -> Outcome {
    let (one, two) = tokio::join!(talk(left, session), talk(right, session));
    let differences = match (one, two) {
        (Ok(mut one), Ok(mut two)) => {
            if left.is_builtin() != right.is_builtin() {
                profile.leave_out_prose(&mut one);
                profile.leave_out_prose(&mut two);
            }
            differences(&one, &two, &left.label, &right.label)
        }
        (one, two) => [one.err(), two.err()]
            .into_iter()
            .flatten()
            .map(|error| format!("{error:#}"))
            .collect(),
    };
    let case = Case {
        area: "kubectl".to_owned(),
        name: session.name.clone(),
        id: session.id.clone(),
        tags: Vec::new(),
        steps: Vec::new(),
        source: String::new(),
    };
    Outcome { case, differences }
}

async fn talk(server: &Server, session: &Session) -> Result<Transcript> {
    super::run::make_namespace(server, &session.id).await?;
    let home = server.kubeconfig().with_file_name("kubectl-home");
    let mut transcript = Vec::new();
    for (line, input) in &session.commands {
        let mut command = tokio::process::Command::new(&session.kubectl);
        command
            .arg("--kubeconfig")
            .arg(server.kubeconfig())
            .args(["--namespace", &session.id])
            .args(words(line))
            .env("HOME", &home)
            .env("KUBECTL_EXTERNAL_DIFF", differ(server))
            .env("KUBE_EDITOR", "sed -i s/before/after/")
            .env_remove("KUBECONFIG");
        let said = run(command, input.as_deref(), COMMAND_WITHIN).await?;
        let shown = |text: &str| -> Vec<String> {
            let text = normal::plain(text, line);
            text.lines().map(normal::columns).collect()
        };
        transcript.push(Seen {
            step: format!("kubectl {line}"),
            code: u16::try_from(said.code).unwrap_or(u16::MAX),
            headers: Vec::new(),
            body: json!({"stdout": shown(&said.stdout), "stderr": shown(&said.stderr)}),
        });
    }
    Ok(transcript)
}

/// Words of a line, where quotes keep blanks together.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            c => words.last_mut().expect("one word at least").push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}
