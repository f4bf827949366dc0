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

/// Looks at rights, then at the hub's process.
pub(in crate::cli) async fn look(client: &Client) -> Vec<Finding> {
    let wanted = [
        ("list", "cluster.karmada.io", "clusters", None),
        (
            "list",
            "coordination.k8s.io",
            "leases",
            Some(CLUSTER_NAMESPACE),
        ),
        (
            "get",
            "coordination.k8s.io",
            "leases",
            Some(SYSTEM_NAMESPACE),
        ),
    ];
    let mut findings = Vec::new();
    for (verb, group, resource, namespace) in wanted {
        let step = format!("right to {verb} {resource}");
        match allowed(client, verb, group, resource, namespace).await {
            Ok(true) => findings.push(Finding::right(step, namespace.unwrap_or("everywhere"))),
            Ok(false) => {
                let place = namespace.map(|n| format!(" in {n}")).unwrap_or_default();
                let what = format!("this kubeconfig may not {verb} {resource}{place}");
                findings.push(Finding::wrong(
                    step,
                    what,
                    "Use a kubeconfig of the hub's operator.",
                ));
                return findings;
            }
            Err(error) => {
                findings.push(failed(step, &error));
                return findings;
            }
        }
    }
    findings.push(hub(client).await);
    findings
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
    let marker = maps.get_opt(install::MARKER).await.ok().flatten();
    if marker.is_some_and(|marker| install::is_built_in(&marker)) {
        return Finding::right(HUB, "part of this API server");
    }
    let leases: Api<Lease> = Api::namespaced(client.clone(), SYSTEM_NAMESPACE);
    match leases.get_opt(HUB_LEASE).await {
        Ok(lease) => judge_hub(lease.as_ref(), SystemClock.now()),
        Err(error) => failed(HUB.to_owned(), &error),
    }
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
    use common::time::to_micro_time;
    use k8s_openapi::api::coordination::v1::LeaseSpec;

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
        let findings = look(&Client::new(service, "default")).await;
        let wrong = findings[0].seen.as_ref().expect_err("refused");
        assert!(wrong.hint.contains("credentials"), "{wrong:?}");
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
