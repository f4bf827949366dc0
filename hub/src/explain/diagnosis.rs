//! What an agent says of a workload that is not healthy, and what follows from it. Pure.
//!
//! The reason of the condition is one of a few words, its message a line for each thing that was found. Both come
//! from a member: the reason decides which advice is given, and nothing of the message gets into a command unless the
//! template names it too.

use super::mend::{self, in_member, on_hub};
use super::refusal::{self, About};
use super::{Cause, Mend, said};
use common::quantity::{Format, Quantity};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Value, json};

/// What is wrong, and what to do.
pub(super) fn read(condition: &Condition, about: &About<'_>) -> (Cause, String, Mend) {
    let message = &condition.message;
    let what = said(message);
    let container = container(message, about);
    let named = container.as_ref().map_or("CONTAINER", |(name, _)| name);
    let (cause, mend) = match condition.reason.as_str() {
        "ImagePullBackOff" | "ErrImagePull" | "InvalidImageName" => {
            let image = container.as_ref().and_then(|(_, it)| it["image"].as_str());
            let words = match image {
                Some(image) => format!(
                    "Name an image that {} can pull instead of {}.",
                    about.cluster,
                    said(image)
                ),
                None => format!("Name an image that {} can pull.", about.cluster),
            };
            let set = about.command("set image", &format!("{}=IMAGE", mend::word(named)));
            (Cause::ImagePull, on_hub(words, [set]))
        }
        "OOMKilled" => {
            let limit = container.as_ref().and_then(|(_, it)| doubled(it));
            let limit = limit.unwrap_or_else(|| "LIMIT".to_owned());
            let rest = format!("-c {} --limits=memory={limit}", mend::word(named));
            (
                Cause::OutOfMemory,
                on_hub(
                    "Give it more memory.",
                    [about.command("set resources", &rest)],
                ),
            )
        }
        "CrashLoopBackOff" => {
            let within = mend::within(about.namespace);
            let object = format!("{}/{}", about.resource, mend::word(about.name));
            let logs = format!(
                "kubectl{within} logs {object} -c {} --previous",
                mend::word(named)
            );
            let words = format!(
                "Read what it says before it ends, and correct it in the template: `{}` on the hub.",
                about.command("edit", "")
            );
            (Cause::CrashLoop, in_member(about.cluster, words, [logs]))
        }
        "CreateContainerConfigError" | "FailedMount" => {
            (Cause::DependencyMissing, referred(message, about))
        }
        "FailedCreate" if message.contains("exceeded quota") => {
            (Cause::Quota, refusal::quota(message, about))
        }
        "FailedCreate" => {
            let (cause, mend) = refusal::read(message, about);
            (cause, mend)
        }
        "Unschedulable" => {
            let words = "Ask for less in the template, add nodes, or mend what keeps them away.";
            (
                Cause::Unschedulable,
                in_member(about.cluster, words, ["kubectl describe nodes".to_owned()]),
            )
        }
        _ => {
            let within = mend::within(about.namespace);
            let describe = format!(
                "kubectl{within} describe {} {}",
                about.resource,
                mend::word(about.name)
            );
            (
                Cause::Unhealthy,
                in_member(
                    about.cluster,
                    "See there what it says of itself.",
                    [describe],
                ),
            )
        }
    };
    (cause, what, mend)
}

/// The container of the template that the first line names.
fn container<'a>(message: &str, about: &About<'a>) -> Option<(String, &'a Value)> {
    let template = about.template?;
    let pod = template
        .pointer("/spec/template/spec")
        .or_else(|| template.pointer("/spec"))?;
    let lists = ["initContainers", "containers"].into_iter();
    let mut all = lists.flat_map(|it| pod[it].as_array().into_iter().flatten());
    all.find_map(|it| {
        let name = it["name"].as_str()?;
        let line = message.lines().next().unwrap_or_default();
        line.contains(&format!("container {name}:"))
            .then(|| (name.to_owned(), it))
    })
}

fn doubled(container: &Value) -> Option<String> {
    let limit = container.pointer("/resources/limits/memory")?.as_str()?;
    let twice = Quantity::parse(limit).ok()?.milli_ceil().saturating_mul(2);
    let twice = Quantity::from_milli(twice);
    Some(twice.canonical(Format::of_resource("memory")).to_string())
}

/// What the template refers to, and the member does not have.
fn referred(message: &str, about: &About<'_>) -> Mend {
    let lower = message.to_lowercase();
    let found = about.referred.iter().find(|it| {
        let kind = it.kind.to_lowercase();
        lower.contains(&format!("{kind} \"{}\"", it.name))
            || lower.contains(&format!("{kind}s \"{}\"", it.name))
    });
    let Some(found) = found else {
        let within = mend::within(about.namespace);
        let describe = format!(
            "kubectl{within} describe {} {}",
            about.resource,
            mend::word(about.name)
        );
        return in_member(
            about.cluster,
            "Bring there what its pods refer to.",
            [describe],
        );
    };
    let (kind, name) = (&found.kind, mend::word(&found.name));
    if !found.exists {
        let within = mend::within(about.namespace);
        let create = match kind.as_str() {
            "Secret" => {
                format!("kubectl{within} create secret generic {name} --from-literal=KEY=VALUE")
            }
            "ServiceAccount" => format!("kubectl{within} create serviceaccount {name}"),
            _ => format!(
                "kubectl{within} create {} {name} --from-literal=KEY=VALUE",
                kind.to_lowercase()
            ),
        };
        return on_hub(
            format!("Make the {kind} that it refers to, with what belongs into it."),
            [create],
        );
    }
    match about.policy {
        Some(policy) if policy.spec.propagate_deps != Some(true) => {
            let patch = json!({"spec": {"propagateDeps": true}});
            let words = format!(
                "The hub has the {kind}, and it does not go along: have the policy take along what is referred to."
            );
            on_hub(words, [mend::patch_policy(&policy.name, &patch)])
        }
        _ => {
            let within = mend::within(about.namespace);
            let why = format!("towline why {}/{name}{within}", kind.to_lowercase());
            on_hub(
                format!("The hub has the {kind}; see why it is not there."),
                [why],
            )
        }
    }
}
