use super::answer::{Answer, Around, Bound, Seen};
use super::table::View;
use super::waiting::Waiting;
use super::works::Delivery;
use crate::cli::{Table, approved};
use crate::propagation::Policy;
use chrono::{DateTime, Utc};
use common::api::binding::ResourceBinding;
use common::api::work::ResourceHealth;
use common::names::ClusterName;
use serde_json::{Value, json};

const MADE: &str = "2026-01-01T00:00:00Z";

fn now() -> DateTime<Utc> {
    let made: DateTime<Utc> = MADE.parse().expect("a time");
    made + chrono::Duration::minutes(14)
}

fn claimed() -> Value {
    json!({
        "labels": {"propagationpolicy.karmada.io/permanent-id": "1"},
        "annotations": {"propagationpolicy.karmada.io/namespace": "shop", "propagationpolicy.karmada.io/name": "web"},
    })
}

fn template(marks: &Value) -> Value {
    let mut metadata = json!({"name": "web", "namespace": "shop", "creationTimestamp": MADE});
    json_patch::merge(&mut metadata, marks);
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {"replicas": 6}})
}

fn condition(kind: &str, status: &str, message: &str) -> Value {
    json!({"type": kind, "status": status, "reason": "R", "message": message, "lastTransitionTime": MADE})
}

fn binding(spec: &Value, status: &Value) -> Bound {
    let mut whole = json!({
        "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": {"name": "web-deployment", "namespace": "shop", "creationTimestamp": MADE},
        "spec": {"resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": "web"}},
        "status": status,
    });
    json_patch::merge(&mut whole["metadata"], &claimed());
    json_patch::merge(&mut whole["spec"], spec);
    let read: ResourceBinding = serde_json::from_value(whole).expect("a binding");
    Bound::from(read)
}

/// Two thirds in m1, where all is well; a third in m2, of which `item` is told.
fn divided(item: &Value) -> Bound {
    let spec = json!({"clusters": [{"name": "m1", "replicas": 4}, {"name": "m2", "replicas": 2}]});
    let well = json!({"clusterName": "m1", "applied": true, "health": "Healthy", "status": {"readyReplicas": 4}});
    let told: Vec<&Value> = [&well, item]
        .into_iter()
        .filter(|it| it.is_object())
        .collect();
    let status = json!({
        "conditions": [condition("Scheduled", "True", "done"), condition("FullyApplied", "False", "see")],
        "aggregatedStatus": told,
    });
    binding(&spec, &status)
}

fn answer(template: Option<&Value>, binding: Option<&Bound>, around: &Around) -> Answer {
    let seen = Seen {
        template,
        binding,
        around,
    };
    Answer::of(&seen).expect("something was read")
}

fn problems(template: Option<&Value>, binding: Option<&Bound>) -> Vec<String> {
    let answer = answer(template, binding, &Around::default());
    answer.problems.into_iter().map(|it| it.what).collect()
}

#[test]
fn what_keeps_a_template_from_its_members_is_said() {
    let (free, held) = (template(&json!({})), template(&claimed()));
    assert_eq!(
        problems(Some(&free), None),
        ["no policy holds it: it stays on the hub"]
    );
    assert_eq!(
        problems(Some(&held), None),
        ["pp/web holds it, and it has no binding yet"]
    );
    let fresh = binding(&json!({}), &json!({}));
    assert_eq!(problems(Some(&held), Some(&fresh)), ["not placed yet"]);
    let foreign = binding(&json!({"schedulerName": "theirs"}), &json!({}));
    let told = answer(Some(&held), Some(&foreign), &Around::default());
    assert!(told.problems[0].hint.contains("\"theirs\""), "{told:?}");
    let suspended = binding(&json!({"suspension": {"scheduling": true}}), &json!({}));
    assert_eq!(
        problems(Some(&held), Some(&suspended)),
        ["its placement is suspended"]
    );
    let refusal = "0/3 clusters are available: 3 cluster(s) did not match the placement cluster affinity constraint.";
    let refused = json!({"conditions": [condition("Scheduled", "False", refusal)]});
    let refused = binding(&json!({}), &refused);
    assert_eq!(
        problems(Some(&held), Some(&refused)),
        [format!("not placed: {refusal}")]
    );
}

/// A policy that selects every Deployment of its namespace.
fn waiting(name: &str) -> Waiting {
    let spec = json!({"resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}],
        "dependentOverrides": ["late"]});
    let metadata = json!({"name": name, "namespace": "shop",
        "labels": {"propagationpolicy.karmada.io/permanent-id": "1"}});
    let metadata = serde_json::from_value(metadata).expect("metadata");
    let spec = serde_json::from_value(spec).expect("a spec");
    Waiting {
        policy: Policy::of(&metadata, &spec),
        what: format!("pp/{name} waits for late"),
    }
}

#[test]
fn what_its_policy_waits_for_is_said() {
    let (free, held) = (template(&json!({})), template(&claimed()));
    let well = divided(&json!({"clusterName": "m2", "applied": true}));
    let around = |name: &str| Around {
        waiting: vec![waiting(name)],
        ..Around::default()
    };
    let hint = "`towline why deployment.apps/web -n shop` says why, and what mends it.";
    // A new one; one that it holds; one that is placed; one that another policy holds.
    for (name, template, binding, wanted) in [
        ("all", &free, None, true),
        ("web", &held, None, true),
        ("web", &held, Some(&well), true),
        ("other", &held, Some(&well), false),
    ] {
        let told = answer(Some(template), binding, &around(name));
        let first = told.problems.first();
        let says = first.is_some_and(|it| it.what == format!("pp/{name} waits for late"));
        assert_eq!((says, told.waiting), (wanted, wanted), "{name}: {told:?}");
        if wanted {
            assert_eq!((told.problems.len(), &*told.problems[0].hint), (1, hint));
        }
    }
    let of_binding = answer(None, Some(&well), &around("web"));
    assert!(of_binding.waiting, "{of_binding:?}");
}

#[test]
fn what_is_wrong_in_a_member_is_said_in_its_own_words() {
    let held = template(&claimed());
    for (item, wanted) in [
        (json!(null), "m2 has not answered yet"),
        (
            json!({"clusterName": "m2", "health": "Unknown"}),
            "m2 has not answered yet",
        ),
        (
            json!({"clusterName": "m2", "appliedMessage": "exceeded quota", "health": "Unknown"}),
            "m2 has not applied it: exceeded quota",
        ),
        (
            json!({"clusterName": "m2", "applied": true, "health": "Unhealthy", "status": {"replicas": 2}}),
            "m2: 0 of 2 replicas are ready",
        ),
        (
            json!({"clusterName": "m2", "applied": true, "health": "Unhealthy"}),
            "m2 says that it is unhealthy",
        ),
    ] {
        assert_eq!(
            problems(Some(&held), Some(&divided(&item))),
            [wanted],
            "{item}"
        );
    }
    for health in ["Healthy", "Unknown"] {
        let item = json!({"clusterName": "m2", "applied": true, "health": health});
        assert_eq!(
            problems(Some(&held), Some(&divided(&item))),
            [""; 0],
            "{health}"
        );
    }
    let mut suspended = divided(&json!(null));
    let suspension = json!({"dispatchingOnClusters": {"clusterNames": ["m2"]}});
    suspended.spec.suspension = serde_json::from_value(suspension).expect("a suspension");
    let told = problems(Some(&held), Some(&suspended));
    assert_eq!(told, ["m2 is held back: its policy suspends dispatching"]);
}

#[test]
fn works_that_cannot_be_made_are_a_problem() {
    let well = json!({"clusterName": "m2", "applied": true, "health": "Healthy"});
    let mut degraded = divided(&well);
    let says = "override policy(shop/web) does not apply, overrideRules[0].plaintext: no";
    let told = serde_json::from_value(condition("Degraded", "True", says)).expect("a condition");
    degraded.status.conditions.push(told);
    let answer = answer(None, Some(&degraded), &Around::default());
    assert!(answer.degraded);
    let [problem] = &answer.problems[..] else {
        panic!("{:?}", answer.problems);
    };
    assert!(problem.what.ends_with(says), "{problem:?}");
    assert!(
        problem
            .hint
            .contains("towline why deployment.apps/web -n shop")
    );
}

#[test]
fn what_a_silent_cluster_said_may_be_old() {
    let well = json!({"clusterName": "m2", "applied": true, "health": "Healthy"});
    let around = Around {
        silent: [("m2".to_owned(), "has Ready=Unknown".to_owned())].into(),
        ..Around::default()
    };
    let answer = answer(None, Some(&divided(&well)), &around);
    assert!(
        answer.problems[0].what.starts_with("m2 has Ready=Unknown"),
        "{answer:?}"
    );
    assert!(
        answer.problems[0].hint.contains("towline check m2"),
        "{answer:?}"
    );
}

#[test]
fn a_cluster_that_is_being_left_is_shown_and_no_problem() {
    let mut leaving = divided(&json!({"clusterName": "m2", "applied": true, "health": "Healthy"}));
    leaving.spec.clusters.pop();
    let gone = answer(None, Some(&leaving), &Around::default());
    assert_eq!(gone.problems, []);
    assert_eq!(
        (gone.clusters[1].leaving, gone.clusters[1].message.as_str()),
        (true, "being removed")
    );
    let task =
        json!([{"fromCluster": "m2", "reason": "TaintUntolerated", "producer": "taint-manager"}]);
    leaving.spec.graceful_eviction_tasks = serde_json::from_value(task).expect("a task");
    let gone = answer(None, Some(&leaving), &Around::default());
    assert_eq!(gone.clusters[1].message, "leaving, TaintUntolerated");
}

#[test]
fn a_dependency_follows_who_refers_to_it() {
    let required = json!({"requiredBy": [{"namespace": "shop", "name": "web-deployment",
        "clusters": [{"name": "m1", "replicas": 4}]}]});
    let told =
        json!({"aggregatedStatus": [{"clusterName": "m1", "applied": true, "health": "Unknown"}]});
    let mut follower = binding(&required, &told);
    (follower.metadata.labels, follower.metadata.annotations) = (None, None);
    let answer = answer(None, Some(&follower), &Around::default());
    assert_eq!(answer.follows, ["web-deployment"]);
    assert_eq!(
        answer.clusters[0].replicas, None,
        "those are the Deployment's"
    );
    assert_eq!(answer.problems, []);
}

#[test]
fn screens_are_as_they_were_approved() {
    let failed = json!({"clusterName": "m2", "appliedMessage":
        "Failed to apply all manifests (0/1): Deployment shop/web: deployments.apps \"web\" is forbidden: exceeded quota: \
         few, requested: count/deployments.apps=1, used: count/deployments.apps=2, limited: count/deployments.apps=2\nmore",
        "health": "Unknown"});
    let (held, free) = (
        template(&claimed()),
        template(&json!({"name": "free", "namespace": "tools"})),
    );
    let around = Around {
        works: [("m1".to_owned(), MADE.parse().expect("a time"))].into(),
        ..Around::default()
    };
    let told = answer(Some(&held), Some(&divided(&failed)), &around);
    let all = [told.clone(), answer(Some(&free), None, &around)];
    let work = |cluster: &str, applied, health, message: &str| Delivery {
        cluster: cluster.to_owned(),
        name: "web-66457cb699".to_owned(),
        binding: Some("shop/web-deployment".to_owned()),
        objects: vec!["Deployment".to_owned()],
        applied,
        health,
        created: MADE.parse().ok(),
        message: message.to_owned(),
    };
    let works = [
        work("m1", Some(true), Some(ResourceHealth::Healthy), ""),
        work("m2", Some(false), None, "exceeded quota: few"),
        work("m3", None, None, "no answer yet"),
    ];
    let of = |width, colours| View {
        width: Some(width),
        colours,
        ..view()
    };
    let screens = |name: &str, show: &dyn Fn(View) -> String| {
        approved::screens("cli/get/screens", name, |width, colours| {
            show(of(width, colours))
        });
    };
    let table = |view: View, table: Table| table.coloured(view.colours).within(view.width);
    screens("list", &|it| table(it, it.list(&all)));
    screens("one", &|it| it.detail(&told));
    screens("works", &|it| table(it, it.works(&works)));
    // As `-w` shows what changed.
    screens("again", &|it| table(it, it.list(&all).without_headings()));
    let everywhere = |it: View| View {
        namespaces: true,
        types: true,
        wide: true,
        ..it
    };
    screens("wide", &|it| table(it, everywhere(it).list(&all)));
}

fn view() -> View {
    View {
        now: now(),
        ..View::default()
    }
}

#[test]
fn one_template_is_shown_whole() {
    let failed =
        json!({"clusterName": "m2", "appliedMessage": "exceeded quota", "health": "Unknown"});
    let around = Around {
        works: [("m1".to_owned(), MADE.parse().expect("a time"))].into(),
        ..Around::default()
    };
    let answer = answer(
        Some(&template(&claimed())),
        Some(&divided(&failed)),
        &around,
    );
    let wanted = "\
deployment.apps/web in namespace shop, 6 replicas, made 14m ago
  policy    pp/web
  binding   web-deployment: scheduled, applied in 1 of 2 clusters

CLUSTER   REPLICAS   READY   APPLIED   HEALTH    AGE   MESSAGE
m1        4          4       True      Healthy   14m
m2        2          -       False     Unknown   -     exceeded quota

! m2 has not applied it: exceeded quota
  `towline why deployment.apps/web -n shop` says why, and what mends it.
";
    assert_eq!(view().detail(&answer), wanted);
}

#[test]
fn many_templates_are_a_line_each() {
    let failed =
        json!({"clusterName": "m2", "appliedMessage": "exceeded quota\nmore", "health": "Unknown"});
    let around = Around::default();
    let placed = answer(
        Some(&template(&claimed())),
        Some(&divided(&failed)),
        &around,
    );
    let free = answer(Some(&template(&json!({"name": "free"}))), None, &around);
    let both = [placed, free];
    let wanted = "\
NAME   POLICY   CLUSTERS   REPLICAS   READY   APPLIED   AGE   WHY NOT
web    pp/web   m1,m2      6          4       1/2       14m   m2 has not applied it: exceeded quota
free   -        -          6          -       -         14m   no policy holds it: it stays on the hub
";
    assert_eq!(view().list(&both).to_string(), wanted);
    let everywhere = View {
        namespaces: true,
        types: true,
        ..view()
    };
    let shown = everywhere.list(&both).to_string();
    assert!(shown.contains("shop        deployment.apps/web"), "{shown}");
    let wide = View {
        wide: true,
        ..view()
    };
    let shown = wide.list(&both).to_string();
    assert!(shown.contains("web-deployment   1/2"), "{shown}");
}

#[test]
fn long_lists_are_cut_unless_wide() {
    let clusters: Vec<Value> = (1..=5)
        .map(|it| json!({"name": format!("m{it}"), "replicas": 1}))
        .collect();
    let scheduled = json!({"conditions": [condition("Scheduled", "True", "done")]});
    let many = binding(&json!({ "clusters": clusters }), &scheduled);
    let many = [answer(None, Some(&many), &Around::default())];
    let shown = view().list(&many).to_string();
    assert!(shown.contains("m1,m2,m3,+2"), "{shown}");
    assert!(
        shown.contains("m1 has not answered yet (and 4 more)"),
        "{shown}"
    );
    let wide = View {
        wide: true,
        ..view()
    };
    assert!(wide.list(&many).to_string().contains("m1,m2,m3,m4,m5"));
    let long = Delivery {
        message: "x".repeat(300),
        ..Delivery::default()
    };
    let long = [long];
    assert!(view().works(&long).to_string().contains("x..."));
    assert!(!wide.works(&long).to_string().contains("..."));
}

#[test]
fn only_what_is_in_a_cluster_is_kept() {
    let told = divided(&json!(null));
    let free = answer(Some(&template(&json!({}))), None, &Around::default());
    let mut found = super::Found {
        answers: vec![answer(None, Some(&told), &Around::default()), free],
        ..super::Found::default()
    };
    found.only(&[]);
    assert_eq!(found.answers.len(), 2);
    found.only(&[ClusterName::parse("m2").expect("a name")]);
    assert_eq!(found.answers.len(), 1);
    assert_eq!(found.answers[0].clusters.len(), 1);
}

/// What the client itself gives up takes the connection of all others with it.
#[test]
fn no_member_is_given_up_by_the_client() {
    let longest = |of_members, each| {
        let each = std::time::Duration::from_secs(each);
        super::options(of_members, each).request_timeout.as_secs()
    };
    assert_eq!(longest(false, 300), longest(true, 1));
    for each in [1, 5, 30, 300, u64::from(u16::MAX)] {
        assert!(longest(true, each) > each, "{each}");
    }
}
