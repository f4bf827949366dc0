//! Reviews, deletions, lists, and pages.

use super::{APPS, AUTHORIZATION, Ask, CORE, JSON, RBAC, Shape, asked, post, shape};
use crate::bodies::{list, map};
use serde_json::json;

pub(super) fn all() -> Vec<Shape> {
    vec![
        shape(
            "groups of a subject",
            100_000,
            201,
            post("/apis/authorization.k8s.io/v1/subjectaccessreviews", |n| {
                json!({"spec": {"user": "a", "groups": list(n, |at| json!(format!("g{at}"))),
                "resourceAttributes": {"verb": "get", "resource": "pods"}}})
            }),
        ),
        shape(
            "requirements of a review",
            15_000,
            None,
            post(
                "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
                |n| {
                    let requirement = |at: usize| json!({"key": format!("k{at}"), "operator": "In", "values": ["!"]});
                    json!({"spec": {"resourceAttributes": {"verb": "list", "resource": "pods",
                "labelSelector": {"requirements": list(n, requirement)}}}})
                },
            ),
        ),
        shape(
            "a long token",
            1_000_000,
            201,
            post(
                "/apis/authentication.k8s.io/v1/tokenreviews",
                |n| json!({"spec": {"token": "a.".repeat(n / 2)}}),
            ),
        ),
        shape(
            "audiences of a token",
            50_000,
            None,
            post(
                "/api/v1/namespaces/default/serviceaccounts/default/token",
                |n| json!({"spec": {"audiences": list(n, |at| json!(format!("a{at}")))}}),
            ),
        ),
        shape("options of a deletion", 100_000, None, |n| {
            let body = json!({"dryRun": list(n, |_| json!("All"))});
            Ask::new(
                "DELETE",
                &format!("{CORE}/configmaps/a"),
                JSON,
                body.to_string().into_bytes(),
            )
        }),
        shape("unknown options of a deletion", 60_000, None, |n| {
            let mut body = map(n, |_| json!(1));
            body["dryRun"] = json!(["All"]);
            Ask::new(
                "DELETE",
                &format!("{CORE}/configmaps/a"),
                JSON,
                body.to_string().into_bytes(),
            )
        }),
        shape(
            "a set of labels",
            6_000,
            200,
            asked(|n| {
                let values: Vec<String> = (0..n).map(|at| format!("v{at}")).collect();
                format!(
                    "{CORE}/configmaps?labelSelector=a%20in%20({})",
                    values.join(",")
                )
            }),
        ),
        shape(
            "requirements of labels",
            5_000,
            200,
            asked(|n| {
                let values: Vec<String> = (0..n).map(|at| format!("k{at}!=v")).collect();
                format!("{CORE}/configmaps?labelSelector={}", values.join(","))
            }),
        ),
        shape(
            "terms of fields",
            1_800,
            200,
            asked(|n| {
                format!(
                    "{CORE}/configmaps?fieldSelector={}",
                    vec!["metadata.name!%3Dx"; n].join(",")
                )
            }),
        ),
        shape(
            "parameters",
            6_000,
            200,
            asked(|n| {
                let all: String = (0..n).map(|at| format!("&a{at}=")).collect();
                format!("{CORE}/configmaps?limit=1{all}")
            }),
        ),
        shape(
            "a long path",
            20_000,
            None,
            asked(|n| format!("{APPS}{}", "/a".repeat(n))),
        ),
        shape(
            "a long name of a path",
            60_000,
            404,
            asked(|n| format!("{CORE}/configmaps/{}", "a".repeat(n))),
        ),
        shape(
            "a long token of a list",
            60_000,
            None,
            asked(|n| format!("{RBAC}/clusterroles?continue={}", "a".repeat(n))),
        ),
        shape("columns of a table", 100, 200, |_| {
            let mut ask = Ask::get(&format!("{RBAC}/clusterroles"));
            ask.headers
                .push(("accept", "application/json;as=Table;g=meta.k8s.io;v=v1"));
            ask
        }),
        shape("discovery", 100, 200, |_| {
            let mut ask = Ask::get("/apis");
            ask.headers.push((
                "accept",
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            ));
            ask
        }),
        shape("rules of oneself", 100, 201, |_| {
            let path = format!("{AUTHORIZATION}/selfsubjectrulesreviews");
            Ask::new(
                "POST",
                &path,
                JSON,
                json!({"spec": {"namespace": "default"}})
                    .to_string()
                    .into_bytes(),
            )
        }),
    ]
}
