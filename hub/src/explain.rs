//! Why something is not where it should be: the way of a template, a Work or a cluster, link by link, the first
//! broken one, and what mends it.
//!
//! Pure: what was read of a hub goes in, with the time, and a report comes out; no I/O, no clock. `template`,
//! `work` and `cluster` are the three walks; `policy`, `placement`, `overrides` and `member` are stretches of the first;
//! `refusal` and `diagnosis` know the words of members, `script` scripts that fail, `mend` writes commands, `text` shows a report to people.
//! What members say is nothing but text here: it is cut, made harmless, and looked at for words that are known.

pub mod cluster;
pub mod degraded;
mod diagnosis;
mod member;
mod mend;
mod overrides;
mod placement;
pub mod policy;
mod refusal;
mod script;
pub mod template;
#[cfg(test)]
mod tests;
pub mod text;
pub mod work;

pub use cluster::Seen as SeenCluster;
pub use refusal::{bare, is_missing};
pub use template::Seen as SeenTemplate;

use serde::Serialize;

/// Most characters of what a member says in one place.
pub const SAID: usize = 600;

/// A link of the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Whether the hub's API server takes writes.
    Hub,
    /// Which policy holds the template.
    Policy,
    /// Its binding.
    Binding,
    /// Which clusters it goes to.
    Placement,
    /// What overrides make of it.
    Overrides,
    /// What a member is told to run.
    Work,
    /// Whether the hub lets the cluster's agent in.
    Registration,
    /// Where Works for the cluster lie.
    Namespace,
    /// Whether the cluster's agent is there.
    Agent,
    /// The agent's certificate.
    Certificate,
    /// Whether the member is well.
    Ready,
    /// Who may be placed there.
    Taints,
    /// Whether it is in the member.
    Applied,
    /// Whether it works there.
    Health,
}

impl Stage {
    /// As it is shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hub => "hub",
            Self::Policy => "policy",
            Self::Binding => "binding",
            Self::Placement => "placement",
            Self::Overrides => "overrides",
            Self::Work => "work",
            Self::Registration => "registration",
            Self::Namespace => "namespace",
            Self::Agent => "agent",
            Self::Certificate => "certificate",
            Self::Ready => "ready",
            Self::Taints => "taints",
            Self::Applied => "applied",
            Self::Health => "health",
        }
    }
}

/// How a link is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It holds.
    Ok,
    /// Nobody has said so or so yet.
    Waiting,
    /// It is broken.
    Broken,
}

/// One link as it was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Link {
    /// Which.
    pub stage: Stage,
    /// How it is.
    pub state: State,
    /// What was found.
    pub what: String,
    /// The parts it was found from, by policy or by cluster.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<Detail>,
}

/// One part of what was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Detail {
    /// A policy, a cluster, an object.
    pub of: String,
    /// What is so about it.
    pub what: String,
}

impl Detail {
    fn new(of: impl Into<String>, what: impl Into<String>) -> Self {
        Self {
            of: of.into(),
            what: what.into(),
        }
    }
}

/// Why a link is broken, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Cause {
    /// The hub's API server is not ready; its disk may be full.
    HubNotReady,
    /// The hub has not done yet what follows from what it was told.
    HubIsLate,
    /// The object is being deleted.
    Deleting,
    /// Objects of this kind or namespace are never propagated.
    Skipped,
    /// No policy selects it.
    NoPolicy,
    /// Only a policy of another namespace would.
    PolicyElsewhere,
    /// The policy waits for overrides that do not exist.
    OverrideMissing,
    /// The policy names a PriorityClass that does not exist.
    PriorityClassMissing,
    /// The policy is Lazy, and the template was not edited since it holds it.
    Lazy,
    /// The name of its binding belongs to another template.
    NameTaken,
    /// Somebody suspended it.
    Suspended,
    /// Another scheduler is to place it.
    OtherScheduler,
    /// There is no cluster.
    NoClusters,
    /// The policy means no cluster that there is.
    NoClusterFits,
    /// Clusters have taints that are not tolerated.
    Tainted,
    /// Clusters do not serve the kind.
    ApiMissing,
    /// Clusters lack a provider, region or zone.
    FieldMissing,
    /// It leaves every cluster that would do.
    Evicted,
    /// Fewer clusters fit than must be chosen.
    SpreadImpossible,
    /// There is not enough room.
    LittleRoom,
    /// The policy asks for what cannot be done.
    PolicyImpossible,
    /// An override does not apply.
    OverrideInvalid,
    /// A script of a customization failed, or was stopped.
    ScriptFailed,
    /// A reference of the template names nothing.
    NamesNothing,
    /// The Work is not there.
    WorkMissing,
    /// A cluster is named that there is not.
    ClusterMissing,
    /// The cluster's registration is not in force.
    NotRegistered,
    /// The agent's rights were taken away.
    Quarantined,
    /// The execution namespace is not there, or goes.
    NamespaceGone,
    /// The agent does not answer.
    AgentGone,
    /// The agent says itself that something is wrong.
    AgentError,
    /// The agent's certificate has ended.
    CertificateEnded,
    /// The member itself is not well.
    MemberNotReady,
    /// The agent may not write the kind.
    PermissionMissing,
    /// No Work reaches the namespace.
    NamespaceReserved,
    /// The member has not the namespace.
    NamespaceMissing,
    /// A quota is used up.
    Quota,
    /// Admission refused it.
    AdmissionRefused,
    /// The object, or a field of it, is somebody else's.
    Conflict,
    /// Refused for another reason.
    Refused,
    /// An image cannot be pulled.
    ImagePull,
    /// A container ends again and again.
    CrashLoop,
    /// A container got less memory than it needs.
    OutOfMemory,
    /// What a pod refers to is not there.
    DependencyMissing,
    /// No node takes a pod.
    Unschedulable,
    /// It is unhealthy, and nobody said why.
    Unhealthy,
    /// Works of the cluster are not applied.
    WorksFailing,
}

/// The link that is broken first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Broken {
    /// Which.
    pub stage: Stage,
    /// Why.
    pub cause: Cause,
    /// Of which cluster, where it is one's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// What is wrong.
    pub what: String,
    /// What mends it.
    pub mend: Mend,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mend {
    /// In words.
    pub what: String,
    /// In which member the commands are run; on the hub when there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// As commands of a shell.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<String>,
}

/// A whole way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// What was asked about.
    pub subject: String,
    /// Whether nothing is wrong.
    pub well: bool,
    /// As far as it was walked.
    pub links: Vec<Link>,
    /// What is broken first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broken: Option<Broken>,
    /// What is broken beside it, in other clusters or of other Works.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<Broken>,
    /// What was not looked at, because whoever asks may not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unseen: Vec<String>,
}

impl Report {
    /// What was asked about, as TYPE/NAME.
    pub fn name(&self) -> &str {
        self.subject.split(' ').next().unwrap_or_default()
    }
}

/// A way that is being walked.
#[derive(Debug, Default)]
struct Walk {
    links: Vec<Link>,
    broken: Option<Broken>,
    also: Vec<Broken>,
}

impl Walk {
    fn holds(&mut self, stage: Stage, what: impl Into<String>, details: Vec<Detail>) {
        self.links.push(Link {
            stage,
            state: State::Ok,
            what: what.into(),
            details,
        });
    }

    /// A broken link; the walk should end here.
    fn breaks(&mut self, broken: Broken, details: Vec<Detail>) {
        let state = match broken.cause {
            Cause::HubIsLate | Cause::Deleting | Cause::Lazy => State::Waiting,
            _ => State::Broken,
        };
        self.links.push(Link {
            stage: broken.stage,
            state,
            what: broken.what.clone(),
            details,
        });
        if self.broken.is_none() {
            self.broken = Some(broken);
        }
    }

    fn report(self, subject: String, unseen: Vec<String>) -> Report {
        Report {
            subject,
            well: self.broken.is_none(),
            links: self.links,
            broken: self.broken,
            also: self.also,
            unseen,
        }
    }
}

/// A text of somebody else, as it is shown.
fn said(text: &str) -> String {
    common::harmless::line(text, SAID)
}
