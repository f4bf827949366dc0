//! Failures of the way from a template to its policy.

use super::{Failure, edited};
use crate::explain::tests::seeds::{healthy, policy, spec, unclaimed};
use crate::explain::{Cause as C, Stage as S};
use serde_json::json;

pub(super) fn failures() -> Vec<Failure> {
    let everywhere = json!({});
    let elsewhere = policy(Some("other"), "web", &spec(&everywhere));
    vec![
        Failure::of(
            "no policy",
            unclaimed(),
            S::Policy,
            C::NoPolicy,
            None,
            "kubectl apply -f -",
        ),
        Failure::of(
            "policy in another namespace",
            edited(unclaimed(), |it| it.policies = vec![elsewhere]),
            S::Policy,
            C::PolicyElsewhere,
            None,
            "namespace: shop",
        ),
        Failure::of(
            "labels that it has not",
            edited(unclaimed(), |it| {
                let mut by_label = spec(&everywhere);
                by_label["resourceSelectors"][0] = json!({"apiVersion": "apps/v1", "kind": "Deployment",
                "labelSelector": {"matchLabels": {"app": "web"}}});
                it.policies = vec![policy(None, "all", &by_label)];
            }),
            S::Policy,
            C::NoPolicy,
            None,
            "kubectl -n shop label deployments.apps web --overwrite app=web",
        ),
        Failure::of(
            "override that is waited for",
            edited(unclaimed(), |it| {
                let mut waits = spec(&everywhere);
                waits["dependentOverrides"] = json!(["late"]);
                it.policies = vec![policy(Some("shop"), "web", &waits)];
            }),
            S::Policy,
            C::OverrideMissing,
            None,
            r#"'{"spec":{"dependentOverrides":[]}}'"#,
        ),
        Failure::of(
            "override that its holder waits for",
            edited(healthy(), |it| {
                let mut waits = spec(&everywhere);
                waits["dependentOverrides"] = json!(["late"]);
                it.policies = vec![policy(Some("shop"), "web", &waits)];
            }),
            S::Policy,
            C::OverrideMissing,
            None,
            r#"'{"spec":{"dependentOverrides":[]}}'"#,
        ),
        Failure::of(
            "class that a new template's policy names",
            edited(unclaimed(), |it| {
                let mut named = spec(&everywhere);
                named["schedulePriority"] = json!({"priorityClassSource": "KubePriorityClass",
                    "priorityClassName": "nope"});
                it.policies = vec![policy(Some("shop"), "web", &named)];
            }),
            S::Policy,
            C::PriorityClassMissing,
            None,
            r#"kubectl -n shop patch pp/web --type=merge -p '{"spec":{"schedulePriority":null}}'"#,
        ),
        Failure::of(
            "class that its holder names",
            edited(healthy(), |it| {
                let mut named = spec(&everywhere);
                named["schedulePriority"] = json!({"priorityClassSource": "KubePriorityClass",
                    "priorityClassName": "nope"});
                it.policies = vec![policy(Some("shop"), "web", &named)];
                it.priority_classes = ["another".to_owned()].into();
            }),
            S::Policy,
            C::PriorityClassMissing,
            None,
            r#"kubectl -n shop patch pp/web --type=merge -p '{"spec":{"schedulePriority":null}}'"#,
        ),
        Failure::of(
            "a namespace that is passed over",
            edited(unclaimed(), |it| {
                it.template["metadata"]["namespace"] = json!("kube-public");
            }),
            S::Policy,
            C::Skipped,
            None,
            "kubectl create namespace",
        ),
        Failure::of(
            "nobody has looked",
            edited(unclaimed(), |it| {
                it.policies = vec![policy(Some("shop"), "web", &spec(&everywhere))];
            }),
            S::Policy,
            C::HubIsLate,
            None,
            "towline check",
        ),
    ]
}
