//! What unregistering will do, in words, before anybody says yes. Pure.

use common::api::cluster::{Cluster, READY, UNREGISTERING};
use common::conditions;
use common::labels::{JOINED, REGISTRATION_ID};
use common::unregister::Mode;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;

/// What is known before.
pub(super) struct Plan<'a> {
    /// The Cluster.
    pub(super) cluster: &'a Cluster,
    /// Its Works.
    pub(super) works: usize,
    /// What happens to what they brought into the member.
    pub(super) mode: Mode,
    /// Whether the member's kubeconfig is at hand.
    pub(super) member: bool,
}

impl Plan<'_> {
    /// One line for each thing that will happen, and a warning when it may not.
    pub(super) fn lines(&self) -> Vec<String> {
        let name = self.cluster.metadata.name.as_deref().unwrap_or_default();
        let works = works(self.works);
        let mut lines = vec![format!(
            "This removes from the hub: Cluster {name:?}, {works}, its permissions."
        )];
        lines.push(match self.mode {
            Mode::RemoveWorkloads => {
                "It deletes from the member: everything those Works brought there, and the agent."
            }
            Mode::KeepWorkloads => {
                "The member keeps everything those Works brought there, without Towline's labels; \
                 the agent removes itself."
            }
            Mode::Force => {
                "The hub does not wait for the agent: what the agent has not removed by then stays in the member."
            }
        }
        .to_owned());
        if self.mode != Mode::Force {
            lines.extend(warning(self.cluster.condition(READY)));
        }
        if self.member {
            lines.push(
                "Then the agent's own objects are removed from the member directly.".to_owned(),
            );
        }
        lines
    }
}

/// How far the hub is with a Cluster that is being deleted.
pub(super) fn state(cluster: &Cluster, left: usize) -> String {
    match (has_answered(cluster), left) {
        (_, 0) => "its Works are gone; the hub cleans up".to_owned(),
        (true, _) => format!("the agent cleans up, {} left", works(left)),
        (false, _) => format!("the agent has not answered yet, {} left", works(left)),
    }
}

/// Whether its agent has said that it cleans up.
pub(super) fn has_answered(cluster: &Cluster) -> bool {
    let status = cluster.status.as_ref();
    status.is_some_and(|s| conditions::is_true(&s.conditions, UNREGISTERING))
}

/// Whether its agent is one that answers, for it was registered or joined here: Karmada's does not.
pub(super) fn answers(cluster: &Cluster) -> bool {
    let annotations = cluster.annotations();
    [REGISTRATION_ID, JOINED]
        .iter()
        .any(|it| annotations.contains_key(*it))
}

/// What a member is left with whose agent did not answer, and what helps.
pub(super) fn left_behind(name: &str, joined: bool) -> String {
    let again = match joined {
        true => format!("towline unjoin {name} --cluster-kubeconfig FILE"),
        false => format!("towline unregister {name} --member-kubeconfig FILE"),
    };
    format!(
        "warning: the agent of {name} did not answer, so the member may still have it and what it applied; \
         `{again}` removes the agent."
    )
}

fn works(count: usize) -> String {
    match count {
        0 => "no Works".to_owned(),
        1 => "1 Work".to_owned(),
        n => format!("{n} Works"),
    }
}

/// What may go otherwise than planned, for what is known of the agent.
fn warning(ready: Option<&Condition>) -> Option<String> {
    match ready {
        Some(ready) if ready.status == "True" => None,
        Some(ready) if ready.status == "False" => Some(format!(
            "warning: the member is not ready ({}), so the agent may not be able to clean up; what it does not \
             remove in time stays in the member.",
            describe(ready)
        )),
        other => Some(format!(
            "warning: the agent does not answer ({}), so the member may stay as it is; \
             --force says that this is meant.",
            other.map_or("it never reported".to_owned(), describe)
        )),
    }
}

fn describe(ready: &Condition) -> String {
    format!(
        "Ready is {}, {}, since {}",
        ready.status, ready.reason, ready.last_transition_time.0
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::api::cluster::ClusterStatus;

    fn cluster(conditions: &[(&str, &str)]) -> Cluster {
        let now = chrono::DateTime::UNIX_EPOCH;
        let mut cluster = Cluster::new("m1", Default::default());
        let mut status = ClusterStatus::default();
        for (type_, value) in conditions {
            let condition = conditions::with_status(type_, value, "Because", "", now);
            conditions::set(&mut status.conditions, condition, now);
        }
        cluster.status = Some(status);
        cluster
    }

    fn lines(cluster: &Cluster, mode: Mode) -> String {
        let plan = Plan {
            cluster,
            works: 2,
            mode,
            member: false,
        };
        plan.lines().join("\n")
    }

    #[test]
    fn what_will_happen_is_said() {
        let up = cluster(&[(READY, "True")]);
        let text = lines(&up, Mode::RemoveWorkloads);
        assert!(
            text.contains("Cluster \"m1\", 2 Works") && text.contains("It deletes"),
            "{text}"
        );
        assert!(!text.contains("warning"));
        assert!(lines(&up, Mode::KeepWorkloads).contains("keeps everything"));
        let lost = cluster(&[(READY, "Unknown")]);
        assert!(lines(&lost, Mode::RemoveWorkloads).contains("warning: the agent does not answer"));
        assert!(!lines(&lost, Mode::Force).contains("warning"));
        let down = cluster(&[(READY, "False")]);
        assert!(lines(&down, Mode::RemoveWorkloads).contains("warning: the member is not ready"));
        assert!(lines(&cluster(&[]), Mode::RemoveWorkloads).contains("it never reported"));
    }

    #[test]
    fn progress_is_told() {
        let told = cluster(&[(UNREGISTERING, "True")]);
        assert_eq!(state(&told, 3), "the agent cleans up, 3 Works left");
        assert!(state(&cluster(&[]), 1).starts_with("the agent has not answered yet"));
        assert!(state(&told, 0).contains("the hub cleans up"));
        assert!(has_answered(&told) && !has_answered(&cluster(&[])));
    }

    #[test]
    fn who_was_registered_or_joined_here_answers() {
        for (annotation, answers_here) in [
            (REGISTRATION_ID, true),
            (JOINED, true),
            ("example.com/other", false),
        ] {
            let mut cluster = cluster(&[]);
            let annotations = cluster.annotations_mut();
            annotations.insert(annotation.to_owned(), "a".to_owned());
            assert_eq!(answers(&cluster), answers_here, "{annotation}");
        }
    }

    #[test]
    fn what_is_left_in_a_silent_member_is_told_with_the_command_that_helps() {
        assert!(left_behind("m1", true).contains("`towline unjoin m1 --cluster-kubeconfig FILE`"));
        assert!(left_behind("m1", false).contains("unregister m1 --member-kubeconfig FILE"));
    }
}
