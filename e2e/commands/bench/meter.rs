//! What the API servers say was asked of them.

use anyhow::{Context as _, Result};
use http::Request;
use kube::Client;
use std::collections::BTreeMap;

/// Requests that are the bench's own or a controller's: they say nothing about an agent.
const NOT_AN_AGENTS: [&str; 3] = ["LIST", "WATCH", "DELETECOLLECTION"];
/// Resources that an agent has to do with while it delivers ConfigMaps and Deployments.
const OF_INTEREST: [&str; 7] = [
    "works",
    "works/status",
    "events",
    "configmaps",
    "deployments",
    "clusters/status",
    "leases",
];

/// Counts the requests that two API servers were asked.
pub(super) struct Meter {
    hub: Client,
    member: Client,
}

/// How many requests there were, by server, verb and resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Requests(BTreeMap<String, u64>);

impl Meter {
    /// Over clients that may read metrics.
    pub(super) fn new(hub: Client, member: Client) -> Self {
        Self { hub, member }
    }

    /// As of now.
    pub(super) async fn read(&self) -> Result<Requests> {
        let mut counts = BTreeMap::new();
        for (server, client) in [("hub", &self.hub), ("member", &self.member)] {
            let request = Request::get("/metrics").body(Vec::new())?;
            let text = client.request_text(request).await;
            let text =
                text.with_context(|| format!("failed to read the metrics of the {server}"))?;
            for (key, count) in text.lines().filter_map(sample) {
                *counts.entry(format!("{server} {key}")).or_default() += count;
            }
        }
        Ok(Requests(counts))
    }
}

/// Verb, resource and count of one line of metrics.
fn sample(line: &str) -> Option<(String, u64)> {
    let rest = line.strip_prefix("apiserver_request_total{")?;
    let (labels, value) = rest.rsplit_once("} ")?;
    let label = |name: &str| {
        let start = labels.find(&format!("{name}=\""))? + name.len() + 2;
        labels[start..].split('"').next()
    };
    let (verb, resource) = (label("verb")?, label("resource")?);
    let resource = match label("subresource") {
        Some(sub) if !sub.is_empty() => format!("{resource}/{sub}"),
        _ => resource.to_owned(),
    };
    // The hub proves its policies by dry runs, again and again.
    let is_proof = label("dry_run").is_some_and(|dry| !dry.is_empty());
    if is_proof || NOT_AN_AGENTS.contains(&verb) || !OF_INTEREST.contains(&resource.as_str()) {
        return None;
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a count of requests is a whole number far below 2^53, written like 1.2e+06"
    )]
    let count = value.parse::<f64>().ok()? as u64;
    Some((format!("{verb} {resource}"), count))
}

impl Requests {
    /// What came after `before`.
    pub(super) fn since(&self, before: &Self) -> Self {
        let counts = self.0.iter().map(|(key, count)| {
            let was = before.0.get(key).copied().unwrap_or_default();
            (key.clone(), count.saturating_sub(was))
        });
        Self(counts.filter(|(_, count)| *count > 0).collect())
    }

    /// Those of one sort.
    pub(super) fn count(&self, key: &str) -> u64 {
        self.0.get(key).copied().unwrap_or_default()
    }

    /// Those that have to do with Works.
    pub(super) fn of_works(&self) -> u64 {
        let sorts = self.0.iter().filter(|(key, _)| {
            !key.ends_with(" leases")
                && !key.ends_with(" clusters/status")
                && !key.contains(" GET ")
        });
        sorts.map(|(_, count)| count).sum()
    }

    /// Writes of what Works bring, to one of the two servers.
    pub(super) fn writes_to(&self, server: &str) -> u64 {
        let sorts = self.0.iter().filter(|(key, _)| {
            let brought = key.ends_with(" configmaps") || key.ends_with(" deployments");
            brought && key.starts_with(server) && !key.contains(" GET ")
        });
        sorts.map(|(_, count)| count).sum()
    }

    /// An average of each sort.
    pub(super) fn per(&self, count: usize) -> String {
        let sorts = self.0.iter().filter(|(key, _)| !key.ends_with(" leases"));
        let each = sorts.map(|(key, n)| (key, *n as f64 / count as f64));
        let shown = each.filter(|(_, n)| *n >= 0.005);
        let texts: Vec<_> = shown.map(|(key, n)| format!("{key} {n:.2}")).collect();
        texts.join(", ")
    }

    /// The number of each sort.
    pub(super) fn all(&self) -> String {
        let texts: Vec<_> = self.0.iter().map(|(key, n)| format!("{key} {n}")).collect();
        texts.join(", ")
    }
}
