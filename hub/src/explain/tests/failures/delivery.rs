//! Failures of what the hub makes of a placed template.

use super::{Failure, edited};
use crate::explain::tests::seeds::{applied, condition, healthy, now, stopped, work};
use crate::explain::{Cause as C, Stage as S};
use common::api::policy::ActivationPreference;
use common::interpreter::custom::Operation;
use common::interpreter::dependencies::NamesNothing;
use serde_json::json;

pub(super) fn failures() -> Vec<Failure> {
    let override_says = "override policy(shop/web) does not apply, overrideRules[0].plaintext: remove operation does \
                         not apply: doc is missing path: /spec/nothing";
    vec![
        Failure::of(
            "hub's disk full",
            edited(healthy(), |it| {
                it.hub = Some(
                    "the API server is not ready: store failed: \
            database or disk is full"
                        .into(),
                );
            }),
            S::Hub,
            C::HubNotReady,
            None,
            "df -h",
        ),
        Failure::of(
            "script of replicas fails",
            stopped(
                Operation::Replica,
                "<string>:2: attempt to index nil with 'n'",
            ),
            S::Binding,
            C::ScriptFailed,
            None,
            r#"kubectl patch ric/webs --type=json -p '[{"op":"remove","path":"/spec/customizations/replicaResource"}]'"#,
        ),
        Failure::of(
            "script of dependencies stopped",
            stopped(
                Operation::Dependency,
                "the script was stopped: it took more than the 500000 steps that a call may take",
            ),
            S::Binding,
            C::ScriptFailed,
            None,
            r#"kubectl patch ric/webs --type=json -p '[{"op":"remove","path":"/spec/customizations/dependencyInterpretation"}]'"#,
        ),
        Failure::of(
            "reference that names nothing",
            edited(healthy(), |it| it.nameless = Some(NamesNothing(1))),
            S::Binding,
            C::NamesNothing,
            None,
            "kubectl -n shop edit deployments.apps web",
        ),
        Failure::of(
            "no binding",
            edited(healthy(), |it| it.binding = None),
            S::Binding,
            C::HubIsLate,
            None,
            "towline check",
        ),
        Failure::of(
            "lazy policy",
            edited(healthy(), |it| {
                it.binding = None;
                it.policies[0].spec.activation_preference = Some(ActivationPreference::Lazy);
            }),
            S::Binding,
            C::Lazy,
            None,
            r#"patch pp/web --type=merge -p '{"spec":{"activationPreference":null}}'"#,
        ),
        Failure::of(
            "override invalid",
            edited(healthy(), |it| {
                let bound = it.binding.as_mut().expect("there");
                let told = condition("Degraded", "True", "SyncWorkFailed", override_says);
                bound
                    .status
                    .conditions
                    .push(serde_json::from_value(told).expect("a condition"));
            }),
            S::Overrides,
            C::OverrideInvalid,
            None,
            r#"kubectl -n shop patch op/web --type=json -p '[{"op":"remove","path":"/spec/overrideRules/0/overriders/plaintext"}]'"#,
        ),
        Failure::of(
            "suspended",
            edited(healthy(), |it| {
                let bound = it.binding.as_mut().expect("there");
                bound.spec.suspension =
                    serde_json::from_value(json!({"dispatching": true})).expect("a suspension");
                for work in &mut it.works {
                    work.spec.suspend_dispatching = Some(true);
                }
            }),
            S::Work,
            C::Suspended,
            None,
            r#"kubectl -n shop patch pp/web --type=merge -p '{"spec":{"suspension":null}}'"#,
        ),
        Failure::of(
            "a Work suspended by hand",
            edited(healthy(), |it| {
                it.works[1].spec.suspend_dispatching = Some(true);
            }),
            S::Work,
            C::Suspended,
            None,
            "kubectl -n karmada-es-m2 patch work/web-1",
        ),
        Failure::of(
            "script of shares fails",
            stopped(Operation::ReviseReplica, "<string>:7: no"),
            S::Work,
            C::ScriptFailed,
            None,
            r#"kubectl patch ric/webs --type=json -p '[{"op":"remove","path":"/spec/customizations/replicaRevision"}]'"#,
        ),
        Failure::of(
            "a former Work that cannot go",
            edited(healthy(), |it| {
                let waits = "Deletion waits for: ConfigMap shop/web";
                let told = condition("Degraded", "True", "DeletionBlocked", waits);
                it.works[1] = work("m2", &[applied(), told], &json!({}));
                it.works[1].metadata.deletion_timestamp = Some(common::time::to_time(now()));
            }),
            S::Work,
            C::Deleting,
            None,
            "kubectl -n karmada-es-m2 describe work web-1",
        ),
    ]
}
