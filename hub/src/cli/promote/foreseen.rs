//! What becomes of an object of a member when it is promoted, by the plan of the hub. Pure.

use crate::cli::output::Colours;
use crate::cli::plan::screen;
use crate::plan::{Plan, TemplatePlan, Verdict, differences, unmarked, without_secrets};
use common::interpreter::prune::prune;
use common::labels::CONFLICT_RESOLUTION;
use common::mapper::Resource;
use common::names::ClusterName;
use serde_json::Value;
use std::fmt::Write as _;

/// What is told to the member, and what else is known before.
#[derive(Debug)]
pub(super) struct Foreseen {
    /// What the member is to run, without marks.
    manifest: Value,
    /// What happens on the hub; none where that could not be read.
    plan: Option<Plan>,
    /// Whether some policy sends it anywhere, as far as that is known.
    goes: bool,
}

/// Why a template would not do what it is promoted for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Astray {
    /// No policy sends it.
    #[error("{0} would go to no cluster: the hub does not propagate it")]
    Nowhere(String),
    /// Another policy has it.
    #[error("{0} would be held by {1}, not by its own policy")]
    Held(String, String),
    /// Its cluster does not take it.
    #[error("{shown} would not be placed in {cluster}: {why}")]
    Unplaced {
        /// Kind and name.
        shown: String,
        /// The member that has it.
        cluster: String,
        /// What keeps it away.
        why: String,
    },
}

impl Foreseen {
    /// By a plan of both.
    pub(super) fn of(
        plan: &Plan,
        template: &Value,
        policy: &Value,
        cluster: &ClusterName,
    ) -> Result<Self, Astray> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let shown = format!(
            "{} {}",
            text(&template["kind"]),
            text(&template["metadata"]["name"])
        );
        let found = of(plan, template).ok_or_else(|| Astray::Nowhere(shown.clone()))?;
        let own = match policy["metadata"]["namespace"].as_str() {
            Some(namespace) => format!(
                "{} {namespace}/{}",
                text(&policy["kind"]),
                text(&policy["metadata"]["name"])
            ),
            None => format!(
                "{} {}",
                text(&policy["kind"]),
                text(&policy["metadata"]["name"])
            ),
        };
        match &found.policy.after {
            Some(holder) if *holder == own => {}
            Some(holder) => return Err(Astray::Held(shown, holder.clone())),
            None => return Err(Astray::Nowhere(shown)),
        }
        let cluster = cluster.as_str();
        let there = found.clusters.iter().find(|it| it.cluster == cluster);
        let unplaced = |why: Option<&String>| Astray::Unplaced {
            shown: shown.clone(),
            cluster: cluster.to_owned(),
            why: why
                .cloned()
                .unwrap_or_else(|| "its policy does not place it there".to_owned()),
        };
        let why = found.unplaced.after.as_ref().or(found.waits.after.as_ref());
        let there = there
            .filter(|it| it.verdict == Verdict::Gained)
            .ok_or_else(|| unplaced(why))?;
        let manifest = there.manifest.clone().filter(|_| there.problem.is_none());
        Ok(Self {
            manifest: manifest.ok_or_else(|| unplaced(there.problem.as_ref()))?,
            plan: Some(plan.clone()),
            goes: true,
        })
    }

    /// Of a template that is to have no policy of its own.
    pub(super) fn without_policy(plan: &Plan, template: &Value, cluster: &ClusterName) -> Self {
        Self {
            manifest: in_member(plan, template, cluster),
            plan: Some(plan.clone()),
            goes: of(plan, template).is_some_and(|it| it.policy.after.is_some()),
        }
    }

    /// Of a hub that whoever asks may not read: the template as the hub would have it.
    pub(super) fn unknown(template: &Value) -> Self {
        Self {
            manifest: template.clone(),
            plan: None,
            goes: true,
        }
    }

    /// As people read it: what happens on the hub, and what becomes another in the member.
    pub(super) fn text(
        &self,
        live: &Value,
        resource: &Resource,
        cluster: &ClusterName,
        colours: Colours,
    ) -> String {
        if !self.goes {
            return format!(
                "{} {} goes to no member until a policy selects it.\n",
                resource.gvk.kind,
                live["metadata"]["name"].as_str().unwrap_or_default()
            );
        }
        let mut text = match &self.plan {
            Some(plan) => screen::text(plan, colours),
            None => "You may not read what else decides on the hub: other policies and overrides may change it.".to_owned(),
        };
        text = text.trim_end().to_owned();
        text.push_str("\n\n");
        text.push_str(&becomes(
            "it",
            live,
            &self.manifest,
            resource,
            cluster,
            colours,
        ));
        text
    }

    /// What becomes of another object that comes along.
    pub(super) fn of_another(
        &self,
        live: &Value,
        template: &Value,
        resource: &Resource,
        cluster: &ClusterName,
        colours: Colours,
    ) -> String {
        if !self.goes {
            return String::new();
        }
        let manifest = match &self.plan {
            Some(plan) => in_member(plan, template, cluster),
            None => template.clone(),
        };
        let name = live["metadata"]["name"].as_str().unwrap_or_default();
        let shown = format!("{} {name}", resource.gvk.kind);
        becomes(&shown, live, &manifest, resource, cluster, colours)
    }
}

/// What a plan says of a template.
fn of<'a>(plan: &'a Plan, template: &Value) -> Option<&'a TemplatePlan> {
    let metadata = &template["metadata"];
    let namespace = metadata["namespace"].as_str();
    let same = |it: &&TemplatePlan| {
        (template["kind"] == it.kind && metadata["name"] == it.name)
            && (it.namespace.as_deref() == namespace && template["apiVersion"] == it.api_version)
    };
    plan.templates.iter().find(same)
}

/// What a member is to run by a plan; where that says nothing, the template.
fn in_member(plan: &Plan, template: &Value, cluster: &ClusterName) -> Value {
    let there = of(plan, template).into_iter().flat_map(|it| &it.clusters);
    let mut there = there.filter(|it| it.cluster == cluster.as_str());
    let manifest = there.find_map(|it| it.manifest.clone());
    manifest.unwrap_or_else(|| template.clone())
}

/// What becomes another of an object in its member.
fn becomes(
    shown: &str,
    live: &Value,
    manifest: &Value,
    resource: &Resource,
    cluster: &ClusterName,
    colours: Colours,
) -> String {
    let plain = |object: &Value| {
        let mut object = object.clone();
        prune(&resource.gvk, &mut object);
        let annotations = object.pointer_mut("/metadata/annotations");
        if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
            // How it is taken over, which its Work says of whatever it keeps.
            annotations.remove(CONFLICT_RESOLUTION);
        }
        unmarked(object)
    };
    let mut text = String::new();
    let cluster = cluster.as_str();
    let changes = without_secrets(manifest, differences(&plain(live), &plain(manifest)));
    if changes.is_empty() {
        let _ = writeln!(
            text,
            "In {cluster} nothing of {shown} changes but the marks of its Work."
        );
        return text;
    }
    let of = match shown {
        "it" => String::new(),
        shown => format!(" of {shown}"),
    };
    let _ = writeln!(text, "What becomes another{of} in {cluster}:");
    for one in &changes {
        let _ = writeln!(text, "  {}", colours.change(&screen::difference(one)));
    }
    text
}
