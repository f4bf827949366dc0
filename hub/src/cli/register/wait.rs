//! Waits until the agent says that it is Ready, and says what it says when it is not.
//!
//! The decision is pure; the shell around it polls the member.

use super::apply::Member;
use crate::cli::error::or_later;
use crate::cli::{CliError, Kind, Progress};
use common::names::REPORT_INSTALLATION;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use std::time::Duration;
use tokio::time::{Instant, sleep};

const POLL: Duration = Duration::from_millis(500);

/// Failures after which the agent's next start may fare better; every other one lasts until somebody
/// acts.
const PASSING: [&str; 5] = [
    "HubUnreachable",
    "Internal",
    "MemberUnreachable",
    "NotApproved",
    "NotSigned",
];

/// Whose report is waited for.
#[derive(Debug)]
pub(super) struct Awaited {
    /// The installation that was just applied.
    installation: String,
    /// Version of the report from before that.
    before: Option<String>,
}

impl Awaited {
    /// The report of `installation`; `before` is what the agent said before it was applied.
    pub(super) fn new(installation: String, before: Option<ConfigMap>) -> Self {
        Self {
            installation,
            before: before.and_then(|map| map.metadata.resource_version),
        }
    }

    /// What the agent of this installation says; nothing when the report is another's.
    fn says(&self, map: &ConfigMap) -> Option<Says> {
        let value = |key: &str| {
            let data = map.data.as_ref()?;
            data.get(key).cloned()
        };
        if value(REPORT_INSTALLATION)? != self.installation {
            return None;
        }
        Some(Says {
            phase: value("phase").unwrap_or_default(),
            reason: value("reason").unwrap_or_default(),
            message: value("message").unwrap_or_default(),
            is_new: self.before.is_none() || map.metadata.resource_version != self.before,
        })
    }
}

/// What was seen of the agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Seen {
    /// What it says; none when that is another installation's word.
    says: Option<Says>,
    /// Whether all replicas are of what was applied, and one of them serves.
    rolled_out: bool,
    /// What keeps its pods from running.
    pods: Option<String>,
}

/// The agent's own report.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Says {
    phase: String,
    reason: String,
    message: String,
    /// Said since the installation was applied.
    is_new: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Ready,
    /// It will not change by itself.
    Lost(String),
    Waiting(String),
}

fn judge(seen: &Seen) -> Verdict {
    let Some(says) = &seen.says else {
        let pods = seen.pods.clone();
        return Verdict::Waiting(pods.unwrap_or_else(|| "the agent has not started yet".into()));
    };
    let text = format!("{}: {}", says.reason, says.message);
    match (says.phase.as_str(), says.reason.as_str()) {
        // What it said earlier may have been mended since; it says so again if not.
        ("Failed", reason) if says.is_new && !PASSING.contains(&reason) => Verdict::Lost(text),
        ("Running", "Ready") if seen.rolled_out => Verdict::Ready,
        ("Running", "Ready") => {
            Verdict::Waiting(seen.pods.clone().unwrap_or_else(|| {
                "no pod of the agent is available yet, or it is replaced".into()
            }))
        }
        _ => Verdict::Waiting(text),
    }
}

/// Refuses to wait for an agent without replicas: no word of it is to be expected.
pub(super) fn must_run(replicas: u64) -> Result<(), CliError> {
    match replicas {
        0 => Err(CliError::message(
            Kind::Unmet,
            "no agent runs: it is installed with 0 replicas",
        )
        .hint("Pass --replicas 1, or --wait 0 to leave it so.")),
        _ => Ok(()),
    }
}

/// Waits; returns the cluster's name.
pub(super) async fn until_ready(
    member: &Member,
    awaited: &Awaited,
    patience: Duration,
    progress: &Progress,
) -> Result<String, CliError> {
    let deadline = Instant::now() + patience;
    loop {
        let Some(seen) = or_later(look(member, awaited).await, deadline)? else {
            progress.step("the member does not answer");
            sleep(POLL).await;
            continue;
        };
        match judge(&seen) {
            Verdict::Ready => break,
            Verdict::Lost(why) => {
                return Err(
                    CliError::message(Kind::Unmet, format!("the agent stopped: {why}"))
                        .hint("Correct what it says and run `towline register` again."),
                );
            }
            Verdict::Waiting(why) if Instant::now() >= deadline => {
                let waited = common::duration::format(patience);
                let message = format!("the agent is not Ready after {waited}: {why}");
                return Err(CliError::message(Kind::Unavailable, message).hint(
                    "It goes on trying. See `kubectl -n towline-system logs deploy/towline-agent`.",
                ));
            }
            Verdict::Waiting(why) => progress.step(why),
        }
        sleep(POLL).await;
    }
    Ok(member.cluster_name().await?.unwrap_or_default())
}

async fn look(member: &Member, awaited: &Awaited) -> Result<Seen, CliError> {
    Ok(Seen {
        says: member.status().await?.and_then(|map| awaited.says(&map)),
        rolled_out: member.deployment().await?.as_ref().is_some_and(rolled_out),
        pods: trouble(&member.pods().await?),
    })
}

/// Whether all replicas are of what was applied, and one of them serves: a report outlives the pod that wrote it.
fn rolled_out(deployment: &Deployment) -> bool {
    let Some(status) = &deployment.status else {
        return false;
    };
    let wanted = deployment
        .spec
        .as_ref()
        .and_then(|spec| spec.replicas)
        .unwrap_or(1);
    status.observed_generation >= deployment.metadata.generation
        && status.updated_replicas.unwrap_or(0) >= wanted
        && status.replicas.unwrap_or(0) <= wanted
        && status.available_replicas.unwrap_or(0) >= 1
}

/// What keeps a pod from running, in Kubernetes' words.
fn trouble(pods: &[Pod]) -> Option<String> {
    let say = |name: &str, reason: Option<&String>, message: Option<&String>| {
        let text = |text: Option<&String>| text.map(String::as_str).unwrap_or_default().to_owned();
        format!("pod {name}: {}: {}", text(reason), text(message))
    };
    pods.iter().find_map(|pod| {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let status = pod.status.as_ref()?;
        let containers = status.container_statuses.iter().flatten();
        let mut waiting = containers.filter_map(|c| c.state.as_ref()?.waiting.as_ref());
        let stuck = waiting.find(|w| w.reason.as_deref() != Some("ContainerCreating"));
        if let Some(waiting) = stuck {
            return Some(say(name, waiting.reason.as_ref(), waiting.message.as_ref()));
        }
        let mut conditions = status.conditions.iter().flatten();
        let unscheduled = conditions.find(|c| c.type_ == "PodScheduled" && c.status == "False")?;
        Some(say(
            name,
            unscheduled.reason.as_ref(),
            unscheduled.message.as_ref(),
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn seen(phase: &str, reason: &str, rolled_out: bool) -> Seen {
        Seen {
            says: Some(Says {
                phase: phase.into(),
                reason: reason.into(),
                message: "text".into(),
                is_new: true,
            }),
            rolled_out,
            pods: None,
        }
    }

    #[test]
    fn only_the_awaited_installation_is_believed() {
        let awaited = Awaited {
            installation: "new".into(),
            before: Some("7".into()),
        };
        let map = |installation: &str, version: &str| {
            serde_json::from_value::<ConfigMap>(json!({
                "metadata": {"resourceVersion": version},
                "data": {"phase": "Failed", "reason": "WrongPin", "message": "text",
                    REPORT_INSTALLATION: installation},
            }))
        };
        for (installation, version, want) in [
            ("new", "8", Some(true)),
            // Nothing was changed, and it said so before: its next start may say another thing.
            ("new", "7", Some(false)),
            // A pod of the earlier installation says it again.
            ("old", "8", None),
            ("", "8", None),
        ] {
            let map = map(installation, version).expect("a ConfigMap");
            let says = awaited.says(&map);
            assert_eq!(
                says.as_ref().map(|says| says.is_new),
                want,
                "{installation:?}"
            );
            let verdict = judge(&Seen {
                says,
                ..Seen::default()
            });
            assert_eq!(
                matches!(verdict, Verdict::Lost(_)),
                want == Some(true),
                "{verdict:?}"
            );
        }
    }

    #[test]
    fn the_agents_word_decides() {
        let waiting = |text: &str| Verdict::Waiting(text.into());
        let cases = [
            (Seen::default(), waiting("the agent has not started yet")),
            (
                Seen {
                    pods: Some("pod x: ErrImagePull: no".into()),
                    ..Seen::default()
                },
                waiting("pod x: ErrImagePull: no"),
            ),
            (
                seen("Registering", "HubUnreachable", true),
                waiting("HubUnreachable: text"),
            ),
            (
                seen("Failed", "WrongPin", false),
                Verdict::Lost("WrongPin: text".into()),
            ),
            (
                seen("Failed", "HubUnreachable", true),
                waiting("HubUnreachable: text"),
            ),
            (
                seen("Running", "Registered", true),
                waiting("Registered: text"),
            ),
            (
                seen("Running", "Ready", false),
                waiting("no pod of the agent is available yet, or it is replaced"),
            ),
            (
                // What it said while it still ran.
                Seen {
                    pods: Some("pod x: ErrImagePull: no".into()),
                    ..seen("Running", "Ready", false)
                },
                waiting("pod x: ErrImagePull: no"),
            ),
            (seen("Running", "Ready", true), Verdict::Ready),
        ];
        for (seen, want) in cases {
            assert_eq!(judge(&seen), want, "{seen:?}");
        }
    }

    #[test]
    fn an_agent_is_rolled_out_once_one_of_its_pods_serves() {
        // Wanted, of what was applied, of anything, available, seen by the controller.
        for (wanted, updated, all, available, observed, want) in [
            (1, 1, 1, 1, 2, true),
            (1, 1, 1, 0, 2, false),
            // One of two works, the other one stands by.
            (2, 2, 2, 1, 2, true),
            (2, 1, 2, 2, 2, false),
            (1, 1, 2, 2, 2, false),
            (1, 1, 1, 1, 1, false),
            (0, 0, 0, 0, 2, false),
        ] {
            let deployment: Deployment = serde_json::from_value(json!({
                "metadata": {"generation": 2},
                "spec": {"replicas": wanted, "selector": {}, "template": {}},
                "status": {"observedGeneration": observed, "updatedReplicas": updated, "replicas": all,
                    "availableReplicas": available},
            }))
            .expect("a Deployment");
            let case = (wanted, updated, all, available, observed);
            assert_eq!(rolled_out(&deployment), want, "{case:?}");
        }
    }

    #[test]
    fn nobody_waits_for_an_agent_without_replicas() {
        let refused = must_run(0).map_err(|error| error.kind);
        assert_eq!(refused, Err(Kind::Unmet));
        assert!(must_run(1).is_ok());
    }

    #[test]
    fn pods_tell_what_keeps_them() {
        let pod = |status| {
            serde_json::from_value::<Pod>(json!({"metadata": {"name": "x"}, "status": status}))
        };
        let waiting = |reason: &str| {
            json!({"containerStatuses": [{
                "name": "agent", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"waiting": {"reason": reason, "message": "m"}},
            }]})
        };
        let unscheduled = json!({"conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "m"},
        ]});
        for (status, want) in [
            (waiting("ErrImagePull"), Some("pod x: ErrImagePull: m")),
            (waiting("ContainerCreating"), None),
            (unscheduled, Some("pod x: Unschedulable: m")),
            (json!({}), None),
        ] {
            let pods = [pod(status).expect("a pod")];
            assert_eq!(trouble(&pods).as_deref(), want);
        }
    }
}
