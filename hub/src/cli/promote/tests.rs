//! What is promoted, what is not, and how it is shown.

use super::foreseen::{Astray, Foreseen};
use super::template::{self, Unfit};
use crate::cli::{Colours, approved};
use crate::plan::tests::{apply, hub, image, planned, tainted};
use crate::plan::{Change, Plan};
use common::gvk::Gvk;
use common::labels::{
    BINDING_PERMANENT_ID, CONFLICT_RESOLUTION, MANAGED, WORK_NAME, WORK_NAMESPACE,
};
use common::mapper::Resource;
use common::names::ClusterName;
use serde_json::{Value, json};

fn resource(api_version: &str, kind: &str, plural: &str) -> Resource {
    Resource {
        gvk: Gvk::new(api_version, kind).expect("a kind"),
        plural: plural.to_owned(),
        namespaced: true,
    }
}

fn deployments() -> Resource {
    resource("apps/v1", "Deployment", "deployments")
}

fn m1() -> ClusterName {
    ClusterName::parse("m1").expect("a name")
}

/// As a member has it.
fn web() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {
            "name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "7", "generation": 3,
            "creationTimestamp": "2026-01-01T00:00:00Z", "managedFields": [],
            "labels": {"app": "web"},
            "annotations": {"deployment.kubernetes.io/revision": "4", "team": "shop"},
        },
        "spec": {"replicas": 3, "template": {"spec": {"containers": [{"name": "web", "image": "web:1"}]}}},
        "status": {"replicas": 3},
    })
}

#[test]
fn a_template_is_what_its_member_did_not_decide() {
    let template = template::of(&web(), &deployments()).expect("a template");
    assert_eq!(
        template,
        json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web"}, "annotations": {"team": "shop"}},
            "spec": {"replicas": 3, "template": {"spec": {"containers": [{"name": "web", "image": "web:1"}]}}},
        })
    );
    // Marks of a Work that left it.
    let mut left = web();
    left["metadata"]["labels"][BINDING_PERMANENT_ID] = json!("id");
    left["metadata"]["annotations"][WORK_NAME] = json!("web-1");
    assert_eq!(template::of(&left, &deployments()), Ok(template));
}

#[test]
fn what_somebody_else_keeps_is_not_promoted() {
    let with = |pointer: &str, value: Value| {
        let mut object = web();
        object["metadata"][pointer] = value;
        template::of(&object, &deployments()).expect_err(pointer)
    };
    let owner = |controller: bool| json!([{"kind": "Shop", "name": "s", "controller": controller}]);
    let owned = Unfit::Owned {
        shown: "Deployment web".into(),
        owner: "Shop s".into(),
    };
    assert_eq!(with("ownerReferences", owner(true)), owned);
    let mut mentioned = web();
    mentioned["metadata"]["ownerReferences"] = owner(false);
    assert!(template::of(&mentioned, &deployments()).is_ok());
    let mut kept = web();
    kept["metadata"]["labels"][MANAGED] = json!("true");
    kept["metadata"]["annotations"][WORK_NAMESPACE] = json!("karmada-es-m1");
    kept["metadata"]["annotations"][WORK_NAME] = json!("web-1");
    assert_eq!(
        template::of(&kept, &deployments()),
        Err(Unfit::Kept {
            shown: "Deployment web".into(),
            work: "karmada-es-m1/web-1".into(),
        })
    );
    let leaving = with("deletionTimestamp", json!("2026-01-01T00:00:00Z"));
    assert_eq!(leaving, Unfit::Leaving("Deployment web".into()));
    for part in ["labels", "annotations"] {
        assert_eq!(with(part, json!("x")), Unfit::NoObject, "{part}");
    }
    for odd in [json!("x"), json!([1]), json!({"metadata": 7})] {
        let odd = template::of(&odd, &deployments());
        assert_eq!(odd, Err(Unfit::NoObject));
    }
    let secrets = resource("v1", "Secret", "secrets");
    let secret = |of: &str| json!({"metadata": {"name": "s"}, "type": of});
    let token = template::of(&secret("kubernetes.io/service-account-token"), &secrets);
    assert_eq!(token, Err(Unfit::Token("Secret s".into())));
    assert!(template::of(&secret("Opaque"), &secrets).is_ok());
}

#[test]
fn a_policy_takes_over_and_leaves_what_it_took_over() {
    let template = template::of(&web(), &deployments()).expect("a template");
    let policy = template::policy(&template, &deployments(), &m1(), None).expect("a policy");
    assert_eq!(policy["kind"], "PropagationPolicy");
    assert_eq!(
        policy["metadata"],
        json!({"name": "web-deployment", "namespace": "shop"})
    );
    let spec = &policy["spec"];
    assert_eq!(
        spec["resourceSelectors"],
        json!([{"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": "web"}])
    );
    assert_eq!(
        spec["placement"]["clusterAffinity"]["clusterNames"],
        json!(["m1"])
    );
    assert_eq!(
        (
            &spec["conflictResolution"],
            &spec["preserveResourcesOnDeletion"],
            &spec["propagateDeps"]
        ),
        (&json!("Overwrite"), &json!(true), &json!(false))
    );
    let roles = Resource {
        namespaced: false,
        ..resource(
            "rbac.authorization.k8s.io/v1",
            "ClusterRole",
            "clusterroles",
        )
    };
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "ops:View"}});
    let policy = template::policy(&role, &roles, &m1(), None).expect("a policy");
    assert_eq!(policy["kind"], "ClusterPropagationPolicy");
    assert_eq!(policy["metadata"], json!({"name": "ops.view-clusterrole"}));
    let policy = template::policy(&role, &roles, &m1(), Some("ops")).expect("a policy");
    assert_eq!(policy["metadata"]["name"], "ops");
    let namespaces = Resource {
        namespaced: false,
        ..resource("v1", "Namespace", "namespaces")
    };
    let shop = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    assert_eq!(
        template::policy(&shop, &namespaces, &m1(), None),
        Err(Unfit::Unpropagated("Namespace shop".into()))
    );
}

/// The template of `web`, its policy, and what a hub makes of both.
fn promoted(before: &[Change]) -> (Plan, Value, Value) {
    let template = template::of(&web(), &deployments()).expect("a template");
    let policy = template::policy(&template, &deployments(), &m1(), None).expect("a policy");
    let both = [&policy, &template].map(|it| apply(it.clone()));
    (planned(&hub(before), &both), template, policy)
}

fn foreseen(before: &[Change]) -> Result<Foreseen, Astray> {
    let (plan, template, policy) = promoted(before);
    Foreseen::of(&plan, &template, &policy, &m1())
}

/// A policy that selects what is promoted before its own does.
fn before_all() -> Value {
    json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": "all", "namespace": "shop"},
        "spec": {"priority": 9, "placement": {"clusterAffinity": {"clusterNames": ["m2"]}},
            "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}]}})
}

#[test]
fn what_would_go_astray_is_not_promoted() {
    assert!(foreseen(&[]).is_ok());
    assert_eq!(
        foreseen(&[apply(before_all())]).expect_err("held"),
        Astray::Held("Deployment web".into(), "PropagationPolicy shop/all".into())
    );
    let drain = json!([{"key": "drain", "effect": "NoSchedule"}]);
    let Err(Astray::Unplaced { cluster, why, .. }) = foreseen(&[apply(tainted("m1", drain))])
    else {
        panic!("placed in a cluster that takes nothing");
    };
    assert_eq!(cluster, "m1");
    assert!(why.contains("taint"), "{why}");
    let (plan, mut template, policy) = promoted(&[]);
    template["metadata"]["name"] = json!("other");
    let nowhere = Foreseen::of(&plan, &template, &policy, &m1()).expect_err("nowhere");
    assert_eq!(nowhere, Astray::Nowhere("Deployment other".into()));
}

/// Without a policy of its own a template waits for one, or goes where another sends it.
#[test]
fn a_template_without_a_policy_goes_where_others_send_it() {
    let template = template::of(&web(), &deployments()).expect("a template");
    let template = template::taking_over(template);
    assert_eq!(
        template["metadata"]["annotations"][CONFLICT_RESOLUTION],
        "overwrite"
    );
    let text = |before: &[Change]| {
        let plan = planned(&hub(before), &[apply(template.clone())]);
        let foreseen = Foreseen::without_policy(&plan, &template, &m1());
        foreseen.text(&web(), &deployments(), &m1(), Colours::default())
    };
    let waits = text(&[]);
    assert_eq!(
        waits,
        "Deployment web goes to no member until a policy selects it.\n"
    );
    let sent = text(&[apply(before_all())]);
    assert!(
        sent.contains("taken by PropagationPolicy shop/all"),
        "{sent}"
    );
}

#[test]
fn what_comes_along_is_shown_as_what_it_is_along_with() {
    let maps = resource("v1", "ConfigMap", "configmaps");
    let map = |text: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"k": text}});
    let foreseen = Foreseen::unknown(&web());
    let text =
        |live: &Value| foreseen.of_another(live, &map("a"), &maps, &m1(), Colours::default());
    assert_eq!(
        text(&map("a")),
        "In m1 nothing of ConfigMap c changes but the marks of its Work.\n"
    );
    let other = text(&map("b"));
    assert!(
        other.starts_with("What becomes another of ConfigMap c in m1:") && other.contains("data.k"),
        "{other}"
    );
}

#[test]
fn what_a_secret_holds_is_not_shown() {
    let secrets = resource("v1", "Secret", "secrets");
    let secret = |text: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"k": text}});
    let unknown = Foreseen::unknown(&secret("bmV3"));
    let text = unknown.text(&secret("b2xk"), &secrets, &m1(), Colours::default());
    assert!(text.contains("~ data.k\n"), "{text}");
    assert!(!text.contains("bmV3") && !text.contains("b2xk"), "{text}");
}

#[test]
fn screens_are_as_they_were_approved() {
    let shown = |name: &str, before: &[Change]| {
        let foreseen = foreseen(before).expect("promoted");
        approved::screens("cli/promote/screens", name, |_, colours| {
            foreseen.text(&web(), &deployments(), &m1(), colours)
        });
    };
    shown("same", &[]);
    shown("overridden", &[apply(image("m1", "2"))]);
    let unread = Foreseen::unknown(&template::of(&web(), &deployments()).expect("a template"));
    approved::screens("cli/promote/screens", "unread", |_, colours| {
        unread.text(&web(), &deployments(), &m1(), colours)
    });
}
