//! What is never propagated, or only where it is named.

use super::{cluster_policy, nginx};
use crate::controller::detector::choose::{Rank, rank};
use crate::controller::detector::skip::Skips;
use crate::propagation::Template;
use serde_json::json;

fn object(api_version: &str, kind: &str, namespace: Option<&str>, name: &str) -> Template {
    Template::of(&json!({"apiVersion": api_version, "kind": kind,
        "metadata": {"name": name, "namespace": namespace}}))
    .expect("a template")
}

#[test]
fn check_26_what_is_never_propagated() {
    let flags = "a.org; b.org/v1;c.org/v1/X,Y;v1/PodTemplate,Endpoints";
    let skips = Skips::parse(flags, ["kube-.*", "tmp|temp"]).expect("sound");
    let cases = [
        (object("v1", "ConfigMap", Some("kube-system"), "x"), true),
        (object("v1", "ConfigMap", Some("karmada-es-m1"), "x"), true),
        (object("v1", "ConfigMap", Some("karmada-system"), "x"), true),
        (
            object("v1", "ConfigMap", Some("karmada-cluster"), "x"),
            true,
        ),
        (object("v1", "ConfigMap", Some("towline-system"), "x"), true),
        (object("v1", "ConfigMap", Some("my-kube-x"), "x"), false),
        (object("v1", "ConfigMap", Some("tmp"), "x"), true),
        (object("v1", "ConfigMap", Some("tmp2"), "x"), false),
        (object("v1", "ConfigMap", Some("a-temp"), "x"), false),
        (object("v1", "Namespace", None, "kube-system"), false),
        (object("v1", "Event", Some("shop"), "x"), true),
        (object("events.k8s.io/v1", "Event", Some("shop"), "x"), true),
        (
            object("coordination.k8s.io/v1", "Lease", Some("shop"), "x"),
            true,
        ),
        (
            object("work.karmada.io/v1alpha1", "Work", Some("shop"), "x"),
            true,
        ),
        (
            object(
                "policy.karmada.io/v1alpha1",
                "OverridePolicy",
                Some("shop"),
                "x",
            ),
            true,
        ),
        (
            object("search.karmada.io/v1alpha1", "ResourceRegistry", None, "x"),
            false,
        ),
        (
            object(
                "multicluster.x-k8s.io/v1alpha1",
                "ServiceImport",
                Some("shop"),
                "x",
            ),
            false,
        ),
        (object("a.org/v1", "Z", Some("shop"), "x"), true),
        (object("b.org/v1", "Z", Some("shop"), "x"), true),
        (object("b.org/v2", "Z", Some("shop"), "x"), false),
        (object("c.org/v1", "X", Some("shop"), "x"), true),
        (object("c.org/v1", "Y", Some("shop"), "x"), true),
        (object("c.org/v1", "Z", Some("shop"), "x"), false),
        (object("v1", "Endpoints", Some("shop"), "x"), true),
        (object("v1", "Secret", Some("shop"), "x"), false),
    ];
    for (template, skipped) in cases {
        assert_eq!(skips.template(&template), skipped, "{template:?}");
    }
    let mut claimed = nginx();
    let key = "resourcetemplate.karmada.io/claimed-by".to_owned();
    claimed.labels.insert(key.clone(), String::new());
    assert!(!skips.template(&claimed));
    claimed
        .labels
        .insert(key, "multiclusterservice-controller".into());
    assert!(skips.template(&claimed));

    let open = Skips::parse("", [""; 0]).expect("sound");
    let servers = object(
        "v1",
        "ConfigMap",
        Some("kube-system"),
        "extension-apiserver-authentication",
    );
    assert!(open.template(&servers));
    assert!(!open.template(&object("v1", "ConfigMap", Some("kube-system"), "x")));
}

#[test]
fn what_the_hubs_control_plane_made_is_not_selected() {
    let roles = "rbac.authorization.k8s.io/v1";
    let mut bootstrapped = object(roles, "ClusterRole", None, "view");
    let label = "kubernetes.io/bootstrapping".to_owned();
    bootstrapped.labels.insert(label, "rbac-defaults".into());
    let slices = "discovery.k8s.io/v1";
    let (never, named, any) = (
        (None, None),
        (None, Some(Rank::Name)),
        (Some(Rank::Kind), Some(Rank::Name)),
    );
    let cases = [
        (
            object("v1", "ConfigMap", Some("shop"), "kube-root-ca.crt"),
            never,
        ),
        (object("v1", "ConfigMap", Some("shop"), "kube-root-ca"), any),
        (
            object("v1", "Secret", Some("shop"), "kube-root-ca.crt"),
            any,
        ),
        (
            object("v1", "Service", Some("default"), "kubernetes"),
            never,
        ),
        (
            object("v1", "Endpoints", Some("default"), "kubernetes"),
            never,
        ),
        (
            object(slices, "EndpointSlice", Some("default"), "kubernetes"),
            never,
        ),
        (object("v1", "Service", Some("shop"), "kubernetes"), any),
        (
            object("v1", "ServiceAccount", Some("shop"), "default"),
            named,
        ),
        (object("v1", "ServiceAccount", Some("shop"), "builder"), any),
        (bootstrapped, named),
        (object(roles, "ClusterRole", None, "view"), any),
    ];
    for (template, (by_kind, by_name)) in cases {
        let selector = json!({"apiVersion": template.api_version, "kind": template.kind});
        let wide = cluster_policy("c", selector.clone(), json!({}));
        assert_eq!(rank(&wide, &template), by_kind, "{template:?}");
        let name = json!({ "name": template.name });
        let mut naming = selector;
        json_patch::merge(&mut naming, &name);
        let naming = cluster_policy("c", naming, json!({}));
        assert_eq!(rank(&naming, &template), by_name, "{template:?}");
    }
    let labels = json!({"kind": "ServiceAccount", "apiVersion": "v1", "labelSelector": {}});
    let labelled = cluster_policy("c", labels, json!({}));
    let account = object("v1", "ServiceAccount", Some("shop"), "default");
    assert_eq!(rank(&labelled, &account), None);
}

#[test]
fn flags_that_cannot_be_meant_are_refused() {
    for bad in ["a/b/c/d", "/v1", "a.org/", "a.org//X"] {
        let error = Skips::parse(bad, [""; 0]).expect_err(bad).to_string();
        assert!(error.starts_with("Invalid API string"), "{error}");
    }
    let error = Skips::parse("", ["("])
        .expect_err("no expression")
        .to_string();
    assert!(
        error.contains("--skipped-propagating-namespaces \"(\""),
        "{error}"
    );
}
