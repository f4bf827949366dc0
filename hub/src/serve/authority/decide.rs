//! How far a replacement of the certificate authority is, and whom its next step would shut out. Pure.

use serde::{Deserialize, Serialize};

/// How many of those who have not followed are named.
const NAMED: usize = 20;

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Stage {
    /// One authority, nothing under way.
    Settled,
    /// Another one is published; the old one signs.
    Introduced,
    /// The new one signs; the old one is still trusted.
    Promoted,
}

impl Stage {
    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Self::Settled => "no rotation is under way",
            Self::Introduced => {
                "step 1 of 3 is done: a new authority is published, the old one signs"
            }
            Self::Promoted => {
                "step 2 of 3 is done: the new authority signs, the old one is still trusted"
            }
        }
    }
}

/// An authority, as people and agents name it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Authority {
    /// Its distinguished name.
    pub name: String,
    /// The digest of its public key.
    pub pin: String,
    /// Whether it signs.
    pub signs: bool,
    /// When it ends, in RFC 3339.
    pub not_after: String,
}

/// What is read of a Cluster.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Cluster {
    /// Its name.
    #[serde(default)]
    pub metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

/// Its metadata.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Metadata {
    /// Its name.
    #[serde(default)]
    pub name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    sync_mode: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct Status {
    agent: Option<Agent>,
    #[serde(default)]
    conditions: Vec<Condition>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Agent {
    #[serde(default)]
    trusted_authorities: Vec<String>,
    certificate_issuer: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct Condition {
    #[serde(rename = "type", default)]
    type_: String,
    #[serde(default)]
    status: String,
}

/// One cluster's agent in a rotation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Follower {
    /// The cluster.
    pub cluster: String,
    /// Status of its condition Ready.
    pub ready: String,
    /// Whether the next step leaves it in contact.
    pub followed: bool,
    /// What is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

/// What each agent still lacks for the next step, by name of the cluster. Clusters that the hub itself
/// writes to have no agent.
pub fn followers(stage: Stage, authorities: &[Authority], clusters: &[Cluster]) -> Vec<Follower> {
    // Those that were joined have one beside the hub, which reports as any other.
    let agents = clusters
        .iter()
        .filter(|c| c.spec.sync_mode != "Push" || c.status.agent.is_some());
    let mut all: Vec<Follower> = agents
        .map(|cluster| {
            let missing = missing(stage, authorities, cluster.status.agent.as_ref());
            let ready = cluster.status.conditions.iter();
            let ready = ready.clone().find(|c| c.type_ == "Ready");
            Follower {
                cluster: cluster.metadata.name.clone(),
                ready: ready.map_or_else(|| "Unknown".to_owned(), |c| c.status.clone()),
                followed: missing.is_none(),
                missing,
            }
        })
        .collect();
    all.sort_by(|a, b| a.cluster.cmp(&b.cluster));
    all
}

fn missing(stage: Stage, authorities: &[Authority], agent: Option<&Agent>) -> Option<String> {
    let Some(agent) = agent else {
        return Some("its agent has never reported".to_owned());
    };
    if agent.trusted_authorities.is_empty() {
        return Some(
            "its agent does not say which authorities it trusts; it is of an older version"
                .to_owned(),
        );
    }
    let unread = authorities
        .iter()
        .find(|authority| !agent.trusted_authorities.contains(&authority.pin));
    match (stage, unread) {
        (Stage::Settled | Stage::Introduced, Some(unread)) => {
            return Some(format!("its agent has not read {} yet", unread.name));
        }
        (Stage::Promoted, Some(unread)) if unread.signs => {
            return Some(format!("its agent has not read {} yet", unread.name));
        }
        _ => {}
    }
    let signer = authorities.iter().find(|authority| authority.signs)?;
    let by = agent
        .certificate_issuer
        .as_deref()
        .unwrap_or("nobody known");
    (stage == Stage::Promoted && by != signer.name)
        .then(|| format!("its agent still has a certificate by {by}"))
}

/// Those who have not followed, for an error; `None` when everybody has.
pub fn laggards(followers: &[Follower]) -> Option<String> {
    let behind: Vec<String> = followers
        .iter()
        .filter_map(|one| {
            let missing = one.missing.as_ref()?;
            Some(format!(
                "  {} (Ready {}): {missing}",
                one.cluster, one.ready
            ))
        })
        .collect();
    if behind.is_empty() {
        return None;
    }
    let mut text = behind[..behind.len().min(NAMED)].join("\n");
    if behind.len() > NAMED {
        text.push_str(&format!("\n  and {} more", behind.len() - NAMED));
    }
    Some(format!(
        "{} of {} agents would be shut out, because they have not followed:\n{text}",
        behind.len(),
        followers.len()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn authority(name: &str, signs: bool) -> Authority {
        Authority {
            name: name.to_owned(),
            pin: format!("sha256:{name}"),
            signs,
            not_after: String::new(),
        }
    }

    fn cluster(name: &str, agent: serde_json::Value) -> Cluster {
        serde_json::from_value(json!({
            "metadata": {"name": name}, "spec": {"syncMode": "Pull"},
            "status": {"agent": agent, "conditions": [{"type": "Ready", "status": "True"}]},
        }))
        .expect("a Cluster")
    }

    #[test]
    fn a_step_waits_for_those_whom_it_would_shut_out() {
        let knows = |trusted: &[&str], by: &str| {
            let pins: Vec<String> = trusted.iter().map(|n| format!("sha256:{n}")).collect();
            json!({"trustedAuthorities": pins, "certificateIssuer": by})
        };
        let both_old_signs = [authority("old", true), authority("new", false)];
        let both_new_signs = [authority("new", true), authority("old", false)];
        for (stage, authorities, agent, want) in [
            (
                Stage::Introduced,
                &both_old_signs,
                knows(&["old"], "old"),
                Some("has not read new"),
            ),
            (
                Stage::Introduced,
                &both_old_signs,
                knows(&["new", "old"], "old"),
                None,
            ),
            (
                Stage::Promoted,
                &both_new_signs,
                knows(&["new", "old"], "old"),
                Some("certificate by old"),
            ),
            (
                Stage::Promoted,
                &both_new_signs,
                knows(&["old"], "old"),
                Some("has not read new"),
            ),
            (
                Stage::Promoted,
                &both_new_signs,
                knows(&["new", "old"], "new"),
                None,
            ),
            // It has let go of the old one already, as it was told before.
            (
                Stage::Promoted,
                &both_new_signs,
                knows(&["new"], "new"),
                None,
            ),
            (
                Stage::Introduced,
                &both_old_signs,
                json!({"version": "0.0.9"}),
                Some("older version"),
            ),
            (
                Stage::Introduced,
                &both_old_signs,
                json!(null),
                Some("never reported"),
            ),
        ] {
            let found = followers(stage, authorities, &[cluster("m1", agent)]);
            let missing = found[0].missing.as_deref();
            match want {
                None => assert_eq!(missing, None, "{stage:?}"),
                Some(want) => assert!(missing.is_some_and(|m| m.contains(want)), "{missing:?}"),
            }
        }
    }

    #[test]
    fn laggards_are_named_in_order_and_counted() {
        let authorities = [authority("old", true), authority("new", false)];
        let mut clusters: Vec<Cluster> = (0..30)
            .rev()
            .map(|n| cluster(&format!("m{n:02}"), json!(null)))
            .collect();
        clusters[0].spec.sync_mode = "Push".to_owned();
        let all = followers(Stage::Introduced, &authorities, &clusters);
        let text = laggards(&all).expect("laggards");
        assert!(text.starts_with("29 of 29 agents"), "{text}");
        assert!(text.contains("\n  m00 (Ready True): its agent has never reported\n  m01 "));
        assert!(text.ends_with("\n  and 9 more"), "{text}");
        assert_eq!(laggards(&[]), None);
        // One beside the hub is an agent as any other.
        clusters.truncate(1);
        clusters[0].status.agent = Some(Agent::default());
        assert_eq!(
            followers(Stage::Introduced, &authorities, &clusters).len(),
            1
        );
    }
}
