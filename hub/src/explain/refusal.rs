//! What a member answers to a manifest, and what follows from it. Pure.
//!
//! The words are those of the agent and of API servers; a message that is not known stays what it says. Only what is
//! found among things that the hub knows itself gets into a command.

use super::mend::{self, in_member, on_hub};
use super::template::Referred;
use super::{Cause, Mend};
use crate::propagation::Policy;
use common::labels::{CONFLICT_RESOLUTION, SKIP_NAMESPACE};
use common::names::is_dns_label;
use common::quantity::Quantity;
use serde_json::{Value, json};

/// What a message is about.
#[derive(Debug, Clone, Copy)]
pub(super) struct About<'a> {
    /// Its type as kubectl takes it.
    pub resource: &'a str,
    /// Its namespace.
    pub namespace: Option<&'a str>,
    /// Its name.
    pub name: &'a str,
    /// The cluster that says so.
    pub cluster: &'a str,
    /// The template, where there is one.
    pub template: Option<&'a Value>,
    /// The policy that holds it.
    pub policy: Option<&'a Policy>,
    /// What the template refers to.
    pub referred: &'a [Referred],
    /// Whether its namespace has the label with which it stays on the hub.
    pub stays: bool,
}

impl About<'_> {
    /// A command of kubectl about the template.
    pub(super) fn command(&self, verb: &str, rest: &str) -> String {
        let within = mend::within(self.namespace);
        let text = format!(
            "kubectl{within} {verb} {} {} {rest}",
            self.resource,
            mend::word(self.name)
        );
        text.trim_end().to_owned()
    }
}

/// A message without what the agent puts before every one.
pub fn bare(message: &str) -> &str {
    let bare = message.strip_prefix("Failed to apply all manifests (");
    let bare = bare.and_then(|it| it.split_once("): "));
    bare.map_or(message, |(_, rest)| rest)
}

/// Why a manifest was refused, and what to do.
pub(super) fn read(message: &str, about: &About<'_>) -> (Cause, Mend) {
    let has = |words: &str| message.contains(words);
    if has("the agent may not ") {
        (Cause::PermissionMissing, permission(message, about))
    } else if has("and no Work reaches it") {
        (Cause::NamespaceReserved, reserved(message, about))
    } else if about.namespace.is_some_and(|it| is_missing(message, it)) {
        (Cause::NamespaceMissing, absent(about))
    } else if has("exceeded quota") {
        (Cause::Quota, quota(message, about))
    } else if has(" is owned by \"") || has("conflict-resolution strategy value is empty") {
        let take = about.command("annotate", &format!("{CONFLICT_RESOLUTION}=overwrite"));
        let words = format!(
            "Have it taken over from whoever owns it in {}, if you mean that.",
            about.cluster
        );
        (Cause::Conflict, on_hub(words, [take]))
    } else if has("the member serves no ") {
        let words = format!(
            "Install what defines the kind in {}, its CustomResourceDefinition.",
            about.cluster
        );
        (
            Cause::ApiMissing,
            in_member(about.cluster, words, ["kubectl get crds".to_owned()]),
        )
    } else if has("denied the request") || has("denied request") || has("violates PodSecurity") {
        (Cause::AdmissionRefused, admission(message, about))
    } else {
        let words = "Correct the template as the message says.";
        (Cause::Refused, on_hub(words, [about.command("edit", "")]))
    }
}

/// A word between two texts, when it is one that names things.
fn named<'m>(message: &'m str, before: &str, after: &str) -> Option<&'m str> {
    let (_, rest) = message.split_once(before)?;
    let (word, _) = rest.split_once(after)?;
    let sound = word.len() <= 253 && word.split('.').all(is_dns_label);
    sound.then_some(word)
}

fn permission(message: &str, about: &About<'_>) -> Mend {
    let resource = named(message, "--allow ", "`").unwrap_or(about.resource);
    let words = "Allow the agent that kind there; name beside it what was allowed before, if it was not the default.";
    in_member(
        about.cluster,
        words,
        [format!("towline register --allow default,{resource}")],
    )
}

fn reserved(message: &str, about: &About<'_>) -> Mend {
    match named(message, "--allow-namespace ", "`") {
        Some(namespace) => {
            let words = "Put it into another namespace; or open that one to Works, if its owner means that.";
            in_member(
                about.cluster,
                words,
                [format!("towline register --allow-namespace {namespace}")],
            )
        }
        None => on_hub(
            "Put it into another namespace: that one is never opened to Works.",
            [about.command("get", "-o yaml")],
        ),
    }
}

/// Whether an API server says that it has no such namespace.
pub fn is_missing(message: &str, namespace: &str) -> bool {
    message.contains(&format!("namespaces {namespace:?} not found"))
}

fn absent(about: &About<'_>) -> Mend {
    let (cluster, namespace) = (about.cluster, about.namespace.unwrap_or_default());
    let namespace = mend::word(namespace);
    if about.stays {
        let words = format!(
            "The namespace stays on the hub, as its label {SKIP_NAMESPACE} says: take that off, or make the namespace in \
             {cluster}."
        );
        let take_off = format!("kubectl label namespace {namespace} {SKIP_NAMESPACE}-");
        return on_hub(words, [take_off]);
    }
    let words = "Wait a moment and ask again; if it stays so, make the namespace there.";
    in_member(
        cluster,
        words,
        [format!("kubectl create namespace {namespace}")],
    )
}

/// `exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2`.
pub(super) fn quota(message: &str, about: &About<'_>) -> Mend {
    let words = "Raise the quota, or ask for less.";
    let within = mend::within(about.namespace);
    let raised = named(message, "exceeded quota: ", ",").and_then(|name| {
        let part = |key: &str| {
            let (_, rest) = message.split_once(&format!("{key}: "))?;
            let (resource, rest) = rest.split_once('=')?;
            let amount = rest.split([',', ' ', ';', ']']).next()?;
            Some((resource.to_owned(), Quantity::parse(amount).ok()?))
        };
        let ((resource, requested), (_, used)) = (part("requested")?, part("used")?);
        let letters = |c: char| c.is_ascii_alphanumeric() || "./-".contains(c);
        resource.chars().all(letters).then_some(())?;
        let format = common::quantity::Format::of_resource(&resource);
        let sum = requested.milli_ceil().saturating_add(used.milli_ceil());
        let hard = Quantity::from_milli(sum).canonical(format).to_string();
        let patch = json!({"spec": {"hard": {resource: hard}}});
        Some(format!(
            "kubectl{within} patch resourcequota {name} --type=merge -p '{patch}'"
        ))
    });
    let command = raised.unwrap_or_else(|| format!("kubectl{within} describe resourcequotas"));
    in_member(about.cluster, words, [command])
}

fn admission(message: &str, about: &About<'_>) -> Mend {
    let words = format!(
        "Change the template as the message says, or the rule in {}.",
        about.cluster
    );
    let policy = named(message, "ValidatingAdmissionPolicy '", "'");
    let webhook = named(message, "admission webhook \"", "\"");
    let command = match (policy, webhook) {
        (Some(name), _) => format!("kubectl get validatingadmissionpolicy {name} -o yaml"),
        (None, Some(_)) => {
            "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations".to_owned()
        }
        (None, None) => return on_hub(words, [about.command("edit", "")]),
    };
    in_member(about.cluster, words, [command])
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABOUT: About<'static> = About {
        resource: "deployments.apps",
        namespace: Some("shop"),
        name: "web",
        cluster: "m1",
        template: None,
        policy: None,
        referred: &[],
        stays: false,
    };

    #[test]
    fn a_quota_is_raised_to_what_is_needed() {
        let message = "pods \"w\" is forbidden: exceeded quota: q, requested: cpu=500m, used: cpu=1800m, limited: cpu=2";
        let (cause, mend) = read(message, &ABOUT);
        assert_eq!(cause, Cause::Quota);
        assert_eq!(mend.member.as_deref(), Some("m1"));
        assert_eq!(
            mend.commands,
            [
                r#"kubectl -n shop patch resourcequota q --type=merge -p '{"spec":{"hard":{"cpu":"2300m"}}}'"#
            ]
        );
    }

    #[test]
    fn nothing_that_a_member_says_becomes_a_command_of_its_own() {
        for message in [
            "the agent may not patch x; allow it in the member with `towline register --allow $(reboot)` or",
            "exceeded quota: $(reboot), requested: $(reboot)=1, used: $(reboot)=1",
            "exceeded quota: q, requested: a'; reboot '=1, used: x=1",
            "namespace \"x\" is reserved and no Work reaches it, by `towline register --allow-namespace ;reboot`",
            "ValidatingAdmissionPolicy '$(reboot)' denied request",
            "admission webhook \"`reboot`\" denied the request",
        ] {
            let (_, mend) = read(message, &ABOUT);
            for command in mend.commands {
                assert!(!command.contains("reboot"), "{message}: {command}");
            }
        }
    }
}
