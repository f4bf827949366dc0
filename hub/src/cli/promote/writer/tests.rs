//! What is left on a hub that refuses, or does not answer.

use super::{Reader, Writer};
use crate::cli::Kind;
use crate::cli::error::scripted::{self, Ask, Asked};
use crate::controller::detector::skip::Skips;
use common::lock::lock;
use http::Method;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Mutex;

const POLICIES: &str = "/apis/policy.karmada.io/v1alpha1/namespaces/shop/propagationpolicies";

/// What becomes of the making of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Made,
    /// It is made, and the connection breaks.
    Unheard,
    /// It is made, and a proxy gives up before that is told.
    GivenUp,
    /// The connection breaks before the hub has it.
    Lost,
    /// The connection breaks, and the hub answers nothing from then on.
    Away,
    Refused,
}

/// Answers of a hub on which policies and templates have these fates.
fn hub(policy: Fate, template: Fate) -> (kube::Client, Asked) {
    let there: Mutex<BTreeSet<String>> = Mutex::default();
    scripted::hub(move |ask| {
        let mut there = lock(&there);
        let list = |plural: &str, kind: &str| {
            let verbs = ["get", "list", "create", "patch", "delete"];
            let one = json!({"name": plural, "kind": kind, "namespaced": true, "verbs": verbs});
            Some((200, json!({"resources": [one]})))
        };
        match (ask.method.as_str(), ask.path.as_str()) {
            ("GET", "/api/v1") => return list("configmaps", "ConfigMap"),
            ("GET", "/apis/policy.karmada.io/v1alpha1") => {
                return list("propagationpolicies", "PropagationPolicy");
            }
            _ => {}
        }
        let fate = match ask.path.starts_with(POLICIES) {
            true => policy,
            false => template,
        };
        let mut made = ask.body.clone();
        made["metadata"]["uid"] = json!("of what was made");
        match ask.method.as_str() {
            "POST" if is_dry_run(ask) => Some((201, ask.body.clone())),
            "POST" => {
                let name = ask.body["metadata"]["name"].as_str().unwrap_or_default();
                let path = format!("{}/{name}", ask.path);
                if !matches!(fate, Fate::Refused | Fate::Lost) {
                    there.insert(path);
                }
                match fate {
                    Fate::Made => Some((201, made)),
                    Fate::GivenUp => scripted::refusal(504, "the hub did not answer in time"),
                    Fate::Refused => scripted::refusal(403, "over quota"),
                    Fate::Unheard | Fate::Lost | Fate::Away => None,
                }
            }
            "DELETE" => Some((200, json!({}))),
            _ if !there.contains(&ask.path) => scripted::refusal(404, "not found"),
            _ if fate == Fate::Away => None,
            _ => Some((200, made)),
        }
    })
}

fn is_dry_run(ask: &Ask) -> bool {
    ask.query.contains("dryRun")
}

/// What promoting a ConfigMap says on such a hub, and what was taken back.
async fn promoted(policy: Fate, template: Fate) -> (Kind, String, Vec<Ask>) {
    let (client, asked) = hub(policy, template);
    let hub = Writer {
        reader: Reader::new(client, Skips::default()),
    };
    let metadata = |name: &str| json!({"name": name, "namespace": "shop"});
    let of = json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy", "metadata": metadata("p")});
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata("c")});
    let (of, map) = (
        hub.tried(&of).await.expect("a policy"),
        hub.tried(&map).await.expect("a template"),
    );
    let posts = scripted::by(&asked, &Method::POST);
    assert!(posts.iter().all(is_dry_run), "{posts:?}");
    let written = hub.write(&[&of.trial, &map.trial]).await;
    let error = written.expect_err("not promoted");
    let deletes = scripted::by(&asked, &Method::DELETE);
    (error.kind, error.to_string(), deletes)
}

/// A policy without its template would wait for whatever comes by that name.
#[tokio::test]
async fn a_policy_goes_again_when_its_template_is_not_there() {
    for (fate, kind) in [
        (Fate::Refused, Kind::Denied),
        (Fate::Lost, Kind::Unavailable),
    ] {
        let (is, said, deletes) = promoted(Fate::Made, fate).await;
        assert_eq!(is, kind, "{fate:?}");
        assert!(said.contains("failed to create configmap/c"), "{said}");
        let left = "Nothing is left of it: what was written before was taken back.";
        assert!(said.contains(left), "{said}");
        let [delete] = deletes.as_slice() else {
            panic!("{deletes:?}");
        };
        assert_eq!(delete.path, format!("{POLICIES}/p"));
        let of: &Value = &delete.body["preconditions"]["uid"];
        assert_eq!(of, "of what was made");
    }
}

/// A template that is there without its policy would go to wherever another policy sends it.
#[tokio::test]
async fn a_policy_stays_when_its_template_may_be_there() {
    for (fate, of_template) in [
        (Fate::Unheard, "configmap/c is on the hub"),
        (Fate::GivenUp, "configmap/c is on the hub"),
        (Fate::Away, "`kubectl get -n shop configmap/c` says so"),
    ] {
        let (kind, said, deletes) = promoted(Fate::Made, fate).await;
        assert_eq!(kind, Kind::Unavailable, "{fate:?}");
        assert!(deletes.is_empty(), "{fate:?} {deletes:?}");
        assert!(said.contains(of_template), "{said}");
        let before = "propagationpolicy.policy.karmada.io/p was written before it, and stays";
        assert!(said.contains(before), "{said}");
        assert!(!said.contains("Nothing is left"), "{said}");
    }
}

#[tokio::test]
async fn a_first_write_that_nobody_answered_is_not_nothing() {
    let (_, said, deletes) = promoted(Fate::Unheard, Fate::Made).await;
    assert!(said.contains("p is on the hub: it was written"), "{said}");
    assert!(said.contains("configmap/c was not written."), "{said}");
    assert!(!said.contains("Nothing was written"), "{said}");
    assert!(deletes.is_empty(), "{deletes:?}");
    let (_, said, _) = promoted(Fate::Lost, Fate::Made).await;
    assert!(said.contains("Nothing was written."), "{said}");
}
