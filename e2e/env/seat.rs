//! The place of one agent under test: its token, its state and what it says of itself, in files that
//! the test reads.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::fleet::Fleet;
use super::kubeconfig::write_private;
use super::process::{Process, ProcessSpec};
use super::towline::binary;
use super::wait::wait_for_some;

/// Nobody serves health or metrics on a machine that many agents share, and a member of the lab is
/// well from the start.
const FLAGS: [&str; 3] = [
    "--health-probe-bind-address=0",
    "--metrics-bind-address=0",
    "--cluster-success-threshold=1s",
];

/// Where an agent keeps its files.
pub(crate) struct Seat {
    dir: PathBuf,
    name: String,
}

/// What an agent says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Said {
    /// How far it is.
    pub(crate) phase: String,
    /// Why, in one word.
    pub(crate) reason: String,
    /// Why, in a sentence.
    pub(crate) message: String,
}

/// Whom an agent asks, and for what.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wish<'a> {
    /// The hub's address.
    pub(crate) hub: &'a str,
    /// The pin of its CA.
    pub(crate) pin: &'a str,
    /// The name.
    pub(crate) cluster: &'a str,
    /// The bootstrap token.
    pub(crate) token: &'a str,
    /// The member's kubeconfig.
    pub(crate) member: &'a Path,
}

impl<'a> Wish<'a> {
    /// A wish that the fleet's hub can grant.
    pub(crate) fn new(
        fleet: &'a Fleet,
        member: &'a Path,
        cluster: &'a str,
        token: &'a str,
    ) -> Self {
        Self {
            hub: &fleet.address,
            pin: &fleet.pin,
            cluster,
            token,
            member,
        }
    }
}

impl Seat {
    /// A place below `dir`.
    pub(crate) fn new(dir: &Path, name: &str) -> Result<Self> {
        let dir = dir.join(name);
        std::fs::create_dir_all(&dir)
            .with_context(|| format!("failed to create {}", dir.display()))?;
        Ok(Self {
            dir,
            name: name.to_owned(),
        })
    }

    /// Hands over a token.
    pub(crate) fn hand_over(&self, token: &str) -> Result<()> {
        write_private(&self.dir.join("token"), token)
    }

    /// What starts the agent.
    pub(crate) fn spec(&self, wish: &Wish<'_>, flags: &[&str]) -> Result<ProcessSpec> {
        self.hand_over(wish.token)?;
        Ok(self
            .bare_spec(wish.member)?
            .args(["--hub", wish.hub, "--cluster-name", wish.cluster])
            .args(["--discovery-token-ca-cert-hash", wish.pin])
            .arg("--token-file")
            .arg(self.dir.join("token"))
            .arg("--state-dir")
            .arg(self.state())
            .args(flags))
    }

    /// What starts an agent that finds everything in the member's Secrets.
    pub(crate) fn bare_spec(&self, member: &Path) -> Result<ProcessSpec> {
        let program = binary("towline-agent")?;
        Ok(ProcessSpec::new(&self.name, &program, &self.dir)
            .arg("run")
            .arg("--kubeconfig")
            .arg(member)
            .args(FLAGS))
    }

    /// Starts the agent.
    pub(crate) fn start(&self, wish: &Wish<'_>, flags: &[&str]) -> Result<Process> {
        Process::start(self.spec(wish, flags)?)
    }

    /// The state directory.
    pub(crate) fn state(&self) -> PathBuf {
        self.dir.join("state")
    }

    /// The document of the registration; `None` while there is none.
    pub(crate) fn stored(&self) -> Option<Value> {
        let text = std::fs::read(self.state().join("credentials.json")).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Puts another document in its place.
    pub(crate) fn store(&self, document: &Value) -> Result<()> {
        write_private(
            &self.state().join("credentials.json"),
            &document.to_string(),
        )
    }

    /// What the agent says of itself.
    pub(crate) fn said(&self) -> Result<Said> {
        let path = self.state().join("status.json");
        let text = std::fs::read(&path).with_context(|| format!("no {}", path.display()))?;
        let value: Value = serde_json::from_slice(&text).context("not JSON")?;
        let field = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
        Ok(Said {
            phase: field("phase"),
            reason: field("reason"),
            message: field("message"),
        })
    }

    /// Waits until the agent gives a reason.
    pub(crate) async fn wait_said(&self, reason: &str, within: Duration) -> Result<Said> {
        let what = format!("reason {reason} of {}", self.name);
        wait_for_some(&what, within, async || {
            let said = self.said()?;
            ensure!(said.reason == reason, "it says {said:?}");
            Ok(Some(said))
        })
        .await
    }
}
