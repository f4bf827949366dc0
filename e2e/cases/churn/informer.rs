//! Informers of client-go, in a program of their own (`e2e/modules/informer`), and what they tell.

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::task::JoinHandle;

use super::check::{Change, Note, Told, Version};
use super::followers::Transcript;
use super::kinds::{KINDS, Kind, NAMESPACE, number, version};
use crate::env::{Part, Parts, left_out};

const ENDS_WITHIN: Duration = Duration::from_secs(60);

/// A line of the program.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Line {
    what: String,
    kind: String,
    watch: u64,
    #[serde(rename = "type")]
    change: String,
    name: String,
    uid: String,
    version: String,
    initial: bool,
    items: Vec<Line>,
}

/// What the program told of one kind.
pub(crate) struct Account {
    pub(crate) kind: Kind,
    /// What the server sent.
    pub(crate) sent: Arc<Transcript<Note>>,
    /// What handlers were told.
    pub(crate) told: Arc<Transcript<(Told, u32, Version)>>,
    /// What its store held in the end.
    pub(crate) held: Arc<Transcript<(u32, Version)>>,
    /// Plain lists, which it has no need of unless what it asked for instead broke off.
    pub(crate) lists: Arc<Transcript<String>>,
    /// The watch that is read, and what it began with so far.
    current: u64,
    initial: Option<Vec<(u32, Version)>>,
    /// Whether the last watch that was to begin with everything broke off before it had.
    broke_off: bool,
}

/// The program, while it runs.
pub(crate) struct Informer {
    child: Child,
    reader: JoinHandle<Result<Vec<Account>>>,
}

/// What the transcripts of one kind are called elsewhere.
pub(crate) struct Followed {
    pub(crate) sent: Arc<Transcript<Note>>,
    pub(crate) told: Arc<Transcript<(Told, u32, Version)>>,
}

impl Informer {
    /// Starts it; `None`, said aloud, where it was not built.
    pub(crate) fn start(
        parts: &Parts,
        kubeconfig: &Path,
        log: &Path,
    ) -> Result<Option<(Self, Vec<Followed>)>> {
        let program = match parts.path(Part::Informer) {
            Ok(program) => program,
            Err(error) => {
                left_out("informers of client-go", &format!("{error:#}"));
                return Ok(None);
            }
        };
        let errors = std::fs::File::create(log)
            .with_context(|| format!("failed to create {}", log.display()))?;
        let mut child = Command::new(program)
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(["--namespace", NAMESPACE])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            .kill_on_drop(true)
            .spawn()
            .context("failed to start the informer")?;
        let output = child.stdout.take().context("the informer has no output")?;
        let accounts: Vec<Account> = KINDS
            .into_iter()
            .map(|kind| Account {
                kind,
                sent: Transcript::new("what client-go was sent", kind),
                told: Transcript::new("handlers of client-go", kind),
                held: Transcript::new("the store of client-go", kind),
                lists: Transcript::new("lists of client-go", kind),
                current: 0,
                initial: None,
                broke_off: false,
            })
            .collect();
        let followed = accounts
            .iter()
            .map(|account| Followed {
                sent: Arc::clone(&account.sent),
                told: Arc::clone(&account.told),
            })
            .collect();
        let reader = tokio::spawn(read_all(output, accounts));
        Ok(Some((Self { child, reader }, followed)))
    }

    /// Ends it, which makes it tell what it holds.
    pub(crate) async fn finish(mut self) -> Result<Vec<Account>> {
        drop(self.child.stdin.take());
        let accounts = tokio::time::timeout(ENDS_WITHIN, self.reader)
            .await
            .context("the informer did not end")???;
        let status = self.child.wait().await.context("failed to wait")?;
        if !status.success() {
            bail!("the informer failed: {status}");
        }
        Ok(accounts)
    }
}

async fn read_all(output: ChildStdout, mut accounts: Vec<Account>) -> Result<Vec<Account>> {
    let mut lines = BufReader::new(output).lines();
    while let Some(text) = lines.next_line().await.context("failed to read")? {
        let line: Line =
            serde_json::from_str(&text).with_context(|| format!("the informer said {text}"))?;
        if line.what == "done" {
            return Ok(accounts);
        }
        let account = accounts.iter_mut().find(|a| a.kind.plural() == line.kind);
        account
            .with_context(|| format!("the informer said {text}"))?
            .take(line)
            .with_context(|| format!("the informer said {text}"))?;
    }
    bail!("the informer ended before it was done; its log has why");
}

impl Account {
    fn take(&mut self, line: Line) -> Result<()> {
        match line.what.as_str() {
            "list" => self.list(line)?,
            "broken" if line.initial => {
                // It may break before it begins, and of one that it has left nobody hears.
                self.broke_off |=
                    line.watch == 0 || (line.watch == self.current && self.initial.is_some());
            }
            "broken" => {}
            "watch" => {
                self.current = line.watch;
                self.initial = line.initial.then(Vec::new);
                if !line.initial {
                    let from = line.version.parse().context("it is from no revision")?;
                    self.sent.push(Note::Resumed { from });
                }
            }
            // The rest of a watch that it has left.
            "event" if line.watch != self.current => {}
            "event" => self.event(&line)?,
            what => {
                let Some(number) = number(&line.name) else {
                    return Ok(());
                };
                let version = version(&line.uid, &line.version).context("it has no version")?;
                let told = match what {
                    "add" => Told::Add,
                    "update" => Told::Update,
                    "delete" => Told::Delete,
                    "store" => {
                        self.held.push((number, version));
                        return Ok(());
                    }
                    _ => bail!("nobody knows what it means"),
                };
                self.told.push((told, number, version));
            }
        }
        Ok(())
    }

    fn list(&mut self, line: Line) -> Result<()> {
        let at = line.version.parse().context("it has no revision")?;
        if !std::mem::take(&mut self.broke_off) {
            self.lists.push(line.version);
        }
        let items = line.items.iter().filter_map(|item| {
            let number = number(&item.name)?;
            Some((number, version(&item.uid, &item.version)?))
        });
        self.sent.push(Note::Listed {
            at: Some(at),
            items: items.collect(),
        });
        Ok(())
    }

    fn event(&mut self, line: &Line) -> Result<()> {
        let change = match line.change.as_str() {
            "ADDED" => Change::Added,
            "MODIFIED" => Change::Modified,
            "DELETED" => Change::Deleted,
            "BOOKMARK" => {
                let at = line.version.parse().context("it has no revision")?;
                match self.initial.take_if(|_| line.initial) {
                    Some(items) => {
                        self.broke_off = false;
                        self.sent.push(Note::Listed {
                            at: Some(at),
                            items,
                        });
                    }
                    None => self.sent.push(Note::Bookmark { at }),
                }
                return Ok(());
            }
            // What comes next begins anew.
            "ERROR" => return Ok(()),
            _ => bail!("nobody knows such an event"),
        };
        let Some(number) = number(&line.name) else {
            return Ok(());
        };
        let version = version(&line.uid, &line.version).context("it has no version")?;
        match &mut self.initial {
            Some(items) => items.push((number, version)),
            None => self.sent.push(Note::Event {
                change,
                number,
                version,
            }),
        }
        Ok(())
    }
}
