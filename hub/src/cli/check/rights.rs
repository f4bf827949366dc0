//! What the hub lets this kubeconfig do, and whether the hub itself is at work.

use super::Finding;
use crate::cli::error::advice;
use crate::install;
use chrono::{DateTime, Utc};
use common::client::classify;
use common::names::{CLUSTER_NAMESPACE, SYSTEM_NAMESPACE};
use common::time::{Clock as _, SystemClock, from_micro_time};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use kube::{Api, Client};

/// The step that is about the hub's process.
pub(in crate::cli) const HUB: &str = "towline-hub";
/// The Lease by which hub processes elect their leader.
const HUB_LEASE: &str = "towline-hub";
/// The leader renews every two seconds.
const HUB_SILENT: i64 = 30;

const LEASES: &str = "leases";
/// What is read of a hub: verb, group, resource and namespace.
const WANTED: [(&str, &str, &str, Option<&str>); 3] = [
    ("list", "cluster.karmada.io", "clusters", None),
    (
        "list",
        "coordination.k8s.io",
        LEASES,
        Some(CLUSTER_NAMESPACE),
    ),
    ("get", "coordination.k8s.io", LEASES, Some(SYSTEM_NAMESPACE)),
];
/// How what is missing is got.
const ROLES: &str = "ClusterRole towline-operator of the hub has it: have an administrator bind this user to it by a \
                     ClusterRoleBinding.";
/// What stands for what may not be seen.
pub(super) const HIDDEN: &str = "not shown to this kubeconfig";

/// What was found.
#[derive(Debug)]
pub(in crate::cli) struct Rights {
    /// Step by step.
    pub(in crate::cli) findings: Vec<Finding>,
    /// Whether Leases may be read.
    pub(in crate::cli) leases: bool,
    /// Whether clusters can be looked at: the hub answers and its process is at work. Without Leases they can.
    pub(in crate::cli) may_look: bool,
}

/// Looks at rights, then at the hub's process.
pub(in crate::cli) async fn look(client: &Client) -> Rights {
    let mut found = Rights {
        findings: Vec::new(),
        leases: true,
        may_look: true,
    };
    for (verb, group, resource, namespace) in WANTED {
        let step = format!("right to {verb} {resource}");
        match allowed(client, verb, group, resource, namespace).await {
            Ok(true) => {
                let place = namespace.unwrap_or("everywhere");
                found.findings.push(Finding::right(step, place));
            }
            Ok(false) => {
                let place = namespace.map(|n| format!(" in {n}")).unwrap_or_default();
                let what = format!("this kubeconfig may not {verb} {resource}{place}");
                found.findings.push(Finding::wrong(step, what, ROLES));
                found.leases &= resource != LEASES;
                found.may_look &= resource == LEASES;
            }
            Err(error) => {
                found.findings.push(failed(step, &error));
                found.may_look = false;
            }
        }
        if !found.may_look {
            return found;
        }
    }
    let hub = hub(client).await;
    found.may_look = hub.seen.is_ok();
    found.findings.push(hub);
    found
}

fn failed(step: String, error: &kube::Error) -> Finding {
    let problem = classify(error);
    let hint = advice(&problem).unwrap_or_else(|| "Look at the API server's log.".to_owned());
    Finding::wrong(step, problem.to_string(), hint)
}

async fn allowed(
    client: &Client,
    verb: &str,
    group: &str,
    resource: &str,
    namespace: Option<&str>,
) -> Result<bool, kube::Error> {
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                verb: Some(verb.to_owned()),
                group: Some(group.to_owned()),
                resource: Some(resource.to_owned()),
                namespace: namespace.map(str::to_owned),
                ..ResourceAttributes::default()
            }),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let answer = reviews.create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

async fn hub(client: &Client) -> Finding {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), SYSTEM_NAMESPACE);
    // A marker that cannot be read is no reason to doubt: the Lease tells then.
    let marker = maps.get_opt(install::MARKER).await;
    let is_hidden = marker.as_ref().is_err_and(is_forbidden);
    let marker = marker.ok().flatten();
    if marker.is_some_and(|marker| install::is_built_in(&marker)) {
        return Finding::right(HUB, "part of this API server");
    }
    let leases: Api<Lease> = Api::namespaced(client.clone(), SYSTEM_NAMESPACE);
    match leases.get_opt(HUB_LEASE).await {
        // The built-in hub has none, and who may not see the marker does not know which it is.
        Ok(None) if is_hidden => Finding::right(HUB, HIDDEN),
        Ok(lease) => judge_hub(lease.as_ref(), SystemClock.now()),
        // The right that is missing is named already.
        Err(error) if is_forbidden(&error) => Finding::right(HUB, HIDDEN),
        Err(error) => failed(HUB.to_owned(), &error),
    }
}

pub(super) fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

fn judge_hub(lease: Option<&Lease>, now: DateTime<Utc>) -> Finding {
    const STEP: &str = HUB;
    const HINT: &str = "Start `towline-hub run`, or look at its log.";
    let spec = lease.and_then(|lease| lease.spec.as_ref());
    let renewed = spec.and_then(|spec| from_micro_time(spec.renew_time.as_ref()?));
    let holder = spec
        .and_then(|spec| spec.holder_identity.as_deref())
        .unwrap_or_default();
    match renewed {
        None => Finding::wrong(STEP, "it never ran on this hub", HINT),
        Some(_) if holder.is_empty() => Finding::wrong(STEP, "it was stopped", HINT),
        Some(at) if (now - at).num_seconds() > HUB_SILENT => {
            let silent = (now - at).num_seconds();
            Finding::wrong(
                STEP,
                format!("{holder} has been silent for {silent}s"),
                HINT,
            )
        }
        Some(_) => Finding::right(STEP, format!("led by {holder}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::error::scripted;
    use common::time::to_micro_time;
    use k8s_openapi::api::coordination::v1::LeaseSpec;
    use serde_json::{Value, json};

    #[tokio::test]
    async fn credentials_that_have_ended_are_no_matter_of_the_log() {
        let service = tower::service_fn(|_: http::Request<kube::client::Body>| async {
            let answer = serde_json::json!({"kind": "Status", "status": "Failure", "code": 401,
                "reason": "Unauthorized", "message": "Unauthorized"});
            let mut answer =
                http::Response::new(kube::client::Body::from(answer.to_string().into_bytes()));
            *answer.status_mut() = http::StatusCode::UNAUTHORIZED;
            Ok::<_, std::convert::Infallible>(answer)
        });
        let found = look(&Client::new(service, "default")).await;
        let wrong = found.findings[0].seen.as_ref().expect_err("refused");
        assert!(!found.may_look);
        assert!(wrong.hint.contains("credentials"), "{wrong:?}");
    }

    /// Whoever is to look after a fleet, or to see it, has what this looks for.
    #[test]
    fn operators_have_every_right_that_is_looked_at() {
        let roles = install::roles::desired();
        let role = roles
            .iter()
            .find(|role| role.key().name == "towline-operator");
        let rules = role.expect("a role").value()["rules"].clone();
        // Whoever has `view`, which is Kubernetes' own role, is told what it may not see.
        for (verb, group, resource, _) in WANTED {
            let has = |rule: &Value, key: &str, word: &str| {
                let words = rule[key].as_array().expect("a list");
                words.iter().any(|it| it == word)
            };
            let gives = rules.as_array().expect("rules").iter().any(|rule| {
                has(rule, "apiGroups", group)
                    && has(rule, "resources", resource)
                    && has(rule, "verbs", verb)
            });
            assert!(gives, "an operator may not {verb} {resource}.{group}");
        }
    }

    /// What is found by somebody who may not read `hidden`, on a hub whose process has no Lease.
    async fn found_without(hidden: &'static [&'static str]) -> Rights {
        let (client, _) = scripted::hub(move |ask| {
            if ask.path.ends_with("/selfsubjectaccessreviews") {
                let resource = &ask.body["spec"]["resourceAttributes"]["resource"];
                let allowed = !hidden.iter().any(|it| resource == it);
                let answer = json!({"apiVersion": "authorization.k8s.io/v1",
                    "kind": "SelfSubjectAccessReview", "metadata": {}, "spec": {},
                    "status": {"allowed": allowed}});
                return Some((201, answer));
            }
            match hidden.iter().any(|it| ask.path.contains(it)) {
                true => scripted::refusal(403, "no"),
                false => scripted::refusal(404, "not found"),
            }
        });
        look(&client).await
    }

    #[tokio::test]
    async fn what_may_not_be_seen_is_no_defect_of_the_hub() {
        let cases: [(&[&str], _, _, _); 4] = [
            // The administrator of a hub on which no process ever ran.
            (&[], true, false, Some(false)),
            // An operator, who does not see the marker: it may be a built-in hub.
            (&["configmaps"], true, true, Some(true)),
            (&["configmaps", "leases"], false, true, Some(true)),
            (&["clusters"], true, false, None),
        ];
        for (hidden, leases, may_look, hub) in cases {
            let found = found_without(hidden).await;
            assert_eq!(
                (found.leases, found.may_look),
                (leases, may_look),
                "{hidden:?}"
            );
            let last = found.findings.last().expect("something");
            let told = (last.step == HUB).then_some(last.seen.is_ok());
            assert_eq!(told, hub, "{hidden:?}");
            let missing = found.findings.iter().filter(|it| it.step != HUB);
            let missing = missing.filter_map(|it| it.seen.as_ref().err());
            for wrong in missing {
                assert!(wrong.hint.contains("towline-operator"), "{wrong:?}");
            }
        }
    }

    #[test]
    fn a_silent_hub_is_noticed() {
        let at =
            |seconds: i64| DateTime::from_timestamp(1_700_000_000 + seconds, 0).expect("in range");
        let lease = |holder: &str| Lease {
            spec: Some(LeaseSpec {
                holder_identity: Some(holder.to_owned()),
                renew_time: Some(to_micro_time(at(0))),
                ..LeaseSpec::default()
            }),
            ..Lease::default()
        };
        assert!(judge_hub(Some(&lease("a")), at(5)).seen.is_ok());
        assert!(judge_hub(Some(&lease("a")), at(31)).seen.is_err());
        assert!(judge_hub(Some(&lease("")), at(1)).seen.is_err());
        assert!(judge_hub(None, at(1)).seen.is_err());
    }
}
