//! Whether members are fresh and take Works: execution namespace, Lease, Ready, certificate, the agent's own
//! last error, what is orphaned, which reserved namespaces are open, and what users of the hub may reach.

mod read;
mod steps;

pub(in crate::cli) use read::look;

use super::{Finding, Wrong};
use chrono::{DateTime, Utc};
use common::api::cluster::{Cluster, READY};
use common::time::from_time;
use read::Around;
use serde::Serialize;
use steps::{
    access, agent, allowed, certificate, certificate_ends, last_error, lease, opened, orphans,
    ready, registration, works,
};

/// The step that is about the certificate.
const CERTIFICATE: &str = "certificate";

/// What was found of one cluster.
#[derive(Debug, Clone)]
pub(in crate::cli) struct Found {
    /// Its name.
    pub(in crate::cli) name: String,
    /// Whether its agent says that it is well.
    pub(in crate::cli) ready: Ready,
    /// Since when.
    pub(in crate::cli) since: Option<DateTime<Utc>>,
    /// When its agent's certificate ends.
    pub(in crate::cli) certificate: Option<DateTime<Utc>>,
    /// How many objects in the member have no Work.
    pub(in crate::cli) orphans: i64,
    /// What its owner opened it to users of the hub for.
    pub(in crate::cli) opened: Option<String>,
    /// Step by step.
    pub(in crate::cli) findings: Vec<Finding>,
}

/// The condition Ready, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(in crate::cli) enum Ready {
    /// Nobody hears of it.
    Unknown,
    /// Its agent says that it is not well.
    False,
    /// Its agent has not said anything yet.
    Never,
    /// Its agent says that it is well.
    True,
}

impl Ready {
    pub(in crate::cli) const ALL: [Self; 4] = [Self::Unknown, Self::False, Self::Never, Self::True];

    /// As people read it.
    pub(in crate::cli) fn shown(self) -> &'static str {
        match self {
            Self::Unknown => "Unknown",
            Self::False => "not Ready",
            Self::Never => "never Ready",
            Self::True => "Ready",
        }
    }

    fn of(cluster: &Cluster) -> Self {
        match cluster.condition(READY).map(|it| it.status.as_str()) {
            Some("True") => Self::True,
            Some("False") => Self::False,
            Some(_) => Self::Unknown,
            None => Self::Never,
        }
    }
}

impl Found {
    /// Whether the certificate should have been renewed.
    pub(in crate::cli) fn is_certificate_late(&self) -> bool {
        let mut findings = self.findings.iter();
        findings.any(|it| it.step == CERTIFICATE && it.seen.is_err())
    }

    /// One line for the cluster: the first thing that is wrong stands for it.
    pub(super) fn summary(self) -> Finding {
        let step = format!("cluster {}", self.name);
        let all: Vec<String> = self
            .findings
            .iter()
            .filter_map(|f| Some(format!("{} {}", f.step, f.seen.as_ref().ok()?)))
            .collect();
        let wrong = self
            .findings
            .into_iter()
            .find_map(|f| Some((f.step, f.seen.err()?)));
        match wrong {
            None => Finding::right(step, all.join(", ")),
            Some((what, Wrong { what: why, hint })) => {
                Finding::wrong(step, format!("{what}: {why}"), hint)
            }
        }
    }
}

fn found(cluster: &Cluster, around: &Around, now: DateTime<Utc>) -> Found {
    let orphaned = agent(cluster).and_then(|it| it.orphans.as_ref());
    let since = cluster.condition(READY).map(|it| &it.last_transition_time);
    Found {
        name: cluster.metadata.name.clone().unwrap_or_default(),
        ready: Ready::of(cluster),
        since: since.and_then(from_time),
        certificate: certificate_ends(cluster),
        orphans: orphaned.map_or(0, |it| it.count),
        opened: opened(cluster).map(str::to_owned),
        findings: vec![
            registration(cluster, now),
            works(cluster, around.works),
            lease(cluster, around.lease, now),
            ready(cluster),
            certificate(cluster, now),
            last_error(cluster),
            orphans(cluster),
            allowed(cluster),
            access(cluster),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::read::{Renewed, Works};
    use super::*;
    use crate::cli::Colours;
    use common::api::cluster::{AgentInfo, ClusterStatus};
    use common::conditions;
    use common::time::to_time;

    pub(super) fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_700_000_000 + seconds, 0).expect("in range")
    }

    pub(super) fn healthy() -> Cluster {
        let mut cluster = Cluster::new("m1", Default::default());
        cluster.metadata.creation_timestamp = Some(to_time(at(-20 * 86_400)));
        let mut status = ClusterStatus::default();
        let ready = conditions::new(READY, true, "ClusterReady", "", at(0));
        conditions::set(&mut status.conditions, ready, at(0));
        status.agent = Some(AgentInfo {
            version: Some("0.1.0".into()),
            certificate_expiration_time: Some(to_time(at(60 * 86_400))),
            last_error: None,
            ..AgentInfo::default()
        });
        cluster.status = Some(status);
        cluster
    }

    fn first_wrong(edit: impl FnOnce(&mut Cluster), renewed: Option<i64>) -> Option<String> {
        let mut cluster = healthy();
        edit(&mut cluster);
        let around = Around {
            lease: renewed.map_or(Renewed::Never, |it| Renewed::At(at(it))),
            works: Works::Active,
        };
        let line = found(&cluster, &around, at(100)).summary();
        line.seen.err().map(|wrong| wrong.what)
    }

    #[test]
    fn screens_are_as_they_were_approved() {
        let around = |renewed| Around {
            lease: Renewed::At(at(renewed)),
            works: Works::Active,
        };
        let well = || found(&healthy(), &around(95), at(100));
        let silent = found(&healthy(), &around(-19_200), at(100));
        let one = silent.findings.clone();
        let all = vec![well().summary(), silent.summary()];
        let evil = Finding::wrong("agent", "\u{1b}[2Jgone\u{202e}\nok     all", "")
            .line(Colours::default());
        assert_eq!(
            evil,
            "WRONG  agent                  \\u{1b}[2Jgone\\u{202e} ok all"
        );
        for (name, findings) in [
            ("one-well", well().findings),
            ("one-silent", one),
            ("all", all),
        ] {
            crate::cli::approved::screens("cli/check/screens", name, |_, colours| {
                findings.iter().map(|it| it.line(colours) + "\n").collect()
            });
        }
    }

    #[test]
    fn a_healthy_cluster_has_nothing_wrong() {
        assert_eq!(first_wrong(|_| {}, Some(95)), None);
    }

    #[test]
    fn the_first_thing_that_is_wrong_is_named() {
        fn status(cluster: &mut Cluster) -> &mut ClusterStatus {
            cluster.status.as_mut().expect("there")
        }
        let starts = |what: Option<String>, prefix: &str| {
            let what = what.expect(prefix);
            assert!(what.starts_with(prefix), "{what}");
        };
        starts(first_wrong(|_| {}, None), "lease: the agent never");
        starts(first_wrong(|_| {}, Some(10)), "lease: by its own time");
        starts(
            first_wrong(
                |c| status(c).conditions[0].status = "Unknown".into(),
                Some(99),
            ),
            "Ready: Unknown since",
        );
        starts(
            first_wrong(
                |c| {
                    let agent = status(c).agent.as_mut().expect("there");
                    agent.certificate_expiration_time = Some(to_time(at(50)));
                },
                Some(99),
            ),
            "certificate: it expired",
        );
        starts(
            first_wrong(
                |c| status(c).agent.as_mut().expect("there").last_error = Some("works: x".into()),
                Some(99),
            ),
            "agent: works: x",
        );
        starts(
            first_wrong(
                |c| c.metadata.deletion_timestamp = Some(to_time(at(0))),
                Some(99),
            ),
            "registration: it is being unregistered",
        );
    }
}
