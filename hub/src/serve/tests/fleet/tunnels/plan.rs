//! What happens in one run, as data: what users of the hub ask members for, what goes wrong, and who loses which right.

use serde::{Deserialize, Serialize};

/// Who asks.
pub(super) const USERS: [&str; 2] = ["ann", "bob"];
pub(super) const MEMBERS: u8 = 2;

/// A whole run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Plan {
    pub(super) seed: u64,
    /// In the order of time.
    pub(super) steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Step {
    /// Milliseconds after the beginning.
    pub(super) at: u64,
    pub(super) what: What,
}

/// Times are milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum What {
    Ask(Ask),
    /// The line of a member's tunnel is reset.
    Cut(u8),
    /// It breaks after so many bytes more.
    CutAfter(u8, u32),
    /// Nothing passes on it for so long.
    Freeze(u8, u64),
    /// Nothing passes any more on the one that stands, and nobody is told.
    Silence(u8),
    /// Everything takes so much longer on it, for so long.
    Slow(u8, u64, u64),
    /// Nobody can dial a tunnel for so long.
    Refuse(u8, u64),
    /// What an agent has open to its member's API server is reset.
    CutMember(u8),
    /// The hub ends, in order or not, and is there again after so long.
    Hub(bool, u64),
    Agent(u8, bool, u64),
    Member(u8, bool, u64),
    /// All clocks go on until certificates are renewed.
    Renew,
    /// Another agent is registered in the place of a member's, which is ended so much later.
    Replace(u8, u64),
    /// The cluster is unregistered.
    Leave(u8),
    /// Whether a user may reach a member, by the hub's word.
    Right(String, u8, bool),
    /// Whether they are let in, by the word of the member's owner.
    LetIn(String, u8, bool),
}

/// A request of a user to a member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ask {
    pub(super) user: String,
    pub(super) member: u8,
    pub(super) what: Wanted,
    /// Whether it is asked by HTTP/2, unless a connection has to be taken over.
    pub(super) h2: bool,
    /// When the user gives up.
    pub(super) patience: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Wanted {
    /// One small object.
    Get,
    /// A list of some hundred kilobytes.
    List,
    /// A watch of everything for so many seconds.
    Watch(u64),
    /// A large object is made, by a body without a length.
    Put,
    /// A connection is taken over, for so many seconds.
    Exec(u64),
}

impl What {
    /// How long it goes on.
    fn lasts(&self) -> u64 {
        match self {
            Self::Ask(_) | Self::Cut(_) | Self::CutAfter(..) | Self::Silence(_) => 0,
            Self::CutMember(_) | Self::Renew | Self::Leave(_) => 0,
            Self::Right(..) | Self::LetIn(..) => 0,
            Self::Freeze(_, lasts)
            | Self::Slow(_, _, lasts)
            | Self::Refuse(_, lasts)
            | Self::Hub(_, lasts)
            | Self::Agent(_, _, lasts)
            | Self::Member(_, _, lasts)
            | Self::Replace(_, lasts) => *lasts,
        }
    }
}

/// The kinds of fault.
pub(super) const KINDS: [&str; 15] = [
    "cut", "bytes", "freeze", "silent", "slow", "refuse", "relay", "hub", "agent", "member",
    "renew", "replace", "leave", "right", "list",
];

impl Plan {
    /// When the last step is over.
    pub(super) fn calm(&self) -> u64 {
        let ends = self.steps.iter().map(|step| step.at + step.what.lasts());
        ends.max().unwrap_or(0)
    }

    /// A line a step, as a file that is run again.
    pub(super) fn text(&self) -> String {
        let json = |step: &Step| serde_json::to_string(step).expect("JSON");
        let steps: Vec<String> = self.steps.iter().map(json).collect();
        format!(
            "{{\"seed\": {}, \"steps\": [\n{}\n]}}\n",
            self.seed,
            steps.join(",\n")
        )
    }
}
