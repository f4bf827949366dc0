//! Fleets as they are shown, on narrow and wide terminals.

use super::look_at_clusters;
use super::screen::View;
use super::summary::{Seen, State, Status};
use crate::cli::check::clusters::{Found, Ready};
use crate::cli::check::{Finding, Wrong};
use crate::cli::error::scripted;
use crate::cli::get::answer::{Answer, Problem};
use crate::cli::get::share::Share;
use crate::cli::get::works::Delivery;
use crate::cli::{Colours, approved};
use chrono::{DateTime, Duration, Utc};
use common::api::work::ResourceHealth;
use k8s_openapi::api::core::v1::Secret;
use serde_json::json;

fn now() -> DateTime<Utc> {
    "2026-01-08T00:00:00Z".parse().expect("a time")
}

fn right(step: &str, seen: &str) -> Finding {
    Finding {
        step: step.to_owned(),
        seen: Ok(seen.to_owned()),
    }
}

fn wrong(step: &str, what: &str, hint: &str) -> Finding {
    let wrong = Wrong {
        what: what.to_owned(),
        hint: hint.to_owned(),
    };
    Finding {
        step: step.to_owned(),
        seen: Err(wrong),
    }
}

fn cluster(name: &str, ready: Ready, findings: Vec<Finding>) -> Found {
    Found {
        name: name.to_owned(),
        ready,
        since: Some(now() - Duration::minutes(320)),
        certificate: Some(now() + Duration::hours(60)),
        orphans: 0,
        opened: None,
        findings,
    }
}

fn template(name: &str, shares: Vec<Share>, problem: Option<&str>) -> Answer {
    let problem = problem.map(|what| Problem {
        what: what.to_owned(),
        hint: String::new(),
    });
    Answer {
        api_version: "apps/v1".to_owned(),
        kind: "Deployment".to_owned(),
        namespace: Some("shop".to_owned()),
        name: name.to_owned(),
        policy: Some("pp/all".to_owned()),
        scheduled: Some(true),
        clusters: shares,
        problems: problem.into_iter().collect(),
        ..Answer::default()
    }
}

fn share(applied: Option<bool>, health: Option<ResourceHealth>) -> Share {
    Share {
        cluster: "m1".to_owned(),
        applied,
        health,
        ..Share::default()
    }
}

fn work(name: &str, applied: Option<bool>, health: Option<ResourceHealth>) -> Delivery {
    Delivery {
        name: name.to_owned(),
        cluster: "m1".to_owned(),
        applied,
        health,
        message: match applied {
            Some(false) => "Failed to apply all manifests (0/1): forbidden".to_owned(),
            _ => String::new(),
        },
        ..Delivery::default()
    }
}

fn healthy() -> Share {
    share(Some(true), Some(ResourceHealth::Healthy))
}

fn token(id: &str, hours: i64) -> Secret {
    let ends = now() + Duration::hours(hours);
    let data = [
        ("token-id", id.to_owned()),
        ("token-secret", "0123456789abcdef".to_owned()),
        ("expiration", ends.to_rfc3339()),
        ("usage-bootstrap-authentication", "true".to_owned()),
        (
            "auth-extra-groups",
            common::identity::BOOTSTRAP_GROUP.to_owned(),
        ),
    ];
    let data = data.map(|(key, value)| (key.to_owned(), k8s_openapi::ByteString(value.into())));
    let mut secret: Secret = serde_json::from_value(json!({
        "metadata": {
            "name": format!("bootstrap-token-{id}"),
            "namespace": "kube-system",
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "type": "bootstrap.kubernetes.io/token",
    }))
    .expect("a Secret");
    secret.data = Some(data.into());
    secret
}

fn well() -> Seen {
    Seen {
        hub: vec![
            right("readyz", "ok"),
            right("towline-hub", "part of this API server"),
        ],
        clusters: vec![cluster("m1", Ready::True, vec![right("Ready", "True")])],
        templates: vec![template("web", vec![healthy()], None)],
        ..Seen::default()
    }
}

fn ill() -> Seen {
    let mut seen = well();
    seen.hub[0] = wrong(
        "readyz",
        "the API server is not ready: store failed",
        "Free some space.",
    );
    let late = "by its own time it was renewed 5h20m ago";
    let since =
        "Unknown since 2026-01-07: NodeStatusUnknown: Agent stopped posting cluster status.";
    let silent = vec![wrong("lease", late, ""), wrong("Ready", since, "")];
    let mut old = cluster(
        "m3",
        Ready::True,
        vec![wrong("certificate", "only 2 days left and not renewed", "")],
    );
    old.orphans = 4;
    seen.clusters.extend([
        cluster("m2", Ready::Unknown, silent),
        old,
        cluster(
            "m4",
            Ready::Never,
            vec![wrong("Ready", "the agent reported nothing yet", "")],
        ),
    ]);
    let mut nowhere = template(
        "nowhere",
        Vec::new(),
        Some(
            "not placed: 0/4 clusters are available: 4 cluster(s) did not match the placement cluster affinity constraint.",
        ),
    );
    nowhere.scheduled = Some(false);
    let mut unheard = healthy();
    unheard.silent = Some("has Ready=Unknown".to_owned());
    let mut held = healthy();
    held.held_back = true;
    seen.templates.extend([
        template("waits", vec![share(None, None)], Some("m1: no answer yet")),
        template("held", vec![held], None),
        template(
            "lost",
            vec![healthy(), unheard],
            Some("m2: has Ready=Unknown"),
        ),
        template(
            "ill",
            vec![share(Some(true), Some(ResourceHealth::Unhealthy))],
            Some("m1: 0 of 2 are ready"),
        ),
        template(
            "quota",
            vec![share(Some(false), None)],
            Some("m1: exceeded quota\nand more"),
        ),
        nowhere,
    ]);
    seen.works = vec![
        work("shop-ns", Some(true), None),
        work("sick", Some(true), Some(ResourceHealth::Unhealthy)),
        work("tools", Some(false), None),
        work("new", None, None),
    ];
    seen.tokens = vec![token("abcdef", 5), token("fedcba", 48), token("aaaaaa", -1)];
    seen
}

fn shown(seen: &Seen, width: Option<usize>, colours: Colours) -> String {
    let view = View {
        all: false,
        width,
        colours,
        now: now(),
    };
    view.text(&Status::of(seen, now()))
}

#[test]
fn the_worst_is_first_however_wide_the_terminal() {
    for (name, seen) in [("well", well()), ("ill", ill())] {
        approved::screens("cli/status/screens", name, |width, colours| {
            shown(&seen, Some(width), colours)
        });
    }
}

#[test]
fn a_template_is_as_its_worst_cluster() {
    let status = Status::of(&ill(), now());
    let states: Vec<State> = status.templates.iter().map(|it| it.state).collect();
    assert_eq!(states, State::ALL);
    assert_eq!(
        status.wrong(),
        [
            "cluster.cluster.karmada.io/m2",
            "cluster.cluster.karmada.io/m4",
            "cluster.cluster.karmada.io/m3",
            "deployment.apps/nowhere",
            "deployment.apps/quota",
            "deployment.apps/ill",
            "deployment.apps/lost",
            "work.work.karmada.io/tools",
            "work.work.karmada.io/sick",
        ]
    );
    let ending: Vec<&str> = status.ending.iter().map(|it| it.what.as_str()).collect();
    assert_eq!(ending, ["token abcdef", "certificate of cluster m3"]);
}

#[test]
fn what_waits_for_its_policy_is_not_as_it_is_wanted() {
    let mut seen = well();
    seen.templates[0].waiting = true;
    let status = Status::of(&seen, now());
    assert_eq!(status.templates[0].state, State::NotPlaced);
    assert_eq!(status.wrong(), ["deployment.apps/web"]);
}

#[test]
fn only_the_worst_of_many_is_shown_and_the_rest_is_counted() {
    let mut seen = well();
    for number in 0..15 {
        let name = format!("m{number}");
        seen.clusters.push(cluster(
            &name,
            Ready::False,
            vec![wrong("Ready", "False", "")],
        ));
    }
    let text = shown(&seen, None, Colours::default());
    assert!(text.contains("and 5 more: --all shows them"), "{text}");
    assert_eq!(text.matches("not Ready ").count(), 10, "{text}");
}

/// The clusters of a hub, and what is hidden, by somebody who may not read these resources.
async fn looked_at(hidden: &'static [&'static str]) -> Seen {
    let (client, _) = scripted::hub(move |ask| {
        if ask.path.ends_with("/selfsubjectaccessreviews") {
            let resource = &ask.body["spec"]["resourceAttributes"]["resource"];
            let allowed = !hidden.iter().any(|it| resource == it);
            let answer = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
                "metadata": {}, "spec": {}, "status": {"allowed": allowed}});
            return Some((201, answer));
        }
        if hidden.iter().any(|it| ask.path.ends_with(it)) {
            return scripted::refusal(403, "no");
        }
        let dead = json!({"type": "Ready", "status": "Unknown", "reason": "R", "message": "silent",
            "lastTransitionTime": "2026-01-07T00:00:00Z"});
        let items = match ask.path.ends_with("/clusters") {
            true => json!([{"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
                "metadata": {"name": "m1"}, "spec": {"syncMode": "Pull"}, "status": {"conditions": [dead]}}]),
            false => json!([]),
        };
        match ["/clusters", "/leases", "/namespaces"]
            .iter()
            .any(|it| ask.path.ends_with(it))
        {
            true => Some((
                200,
                json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items}),
            )),
            false => scripted::refusal(404, "not found"),
        }
    });
    let mut seen = Seen::default();
    let looked = look_at_clusters(&client, now(), &mut seen).await;
    looked.expect("looked at");
    seen
}

#[tokio::test]
async fn whoever_may_not_read_leases_sees_the_clusters() {
    type Words = &'static [&'static str];
    const DEAD: Words = &["cluster.cluster.karmada.io/m1"];
    let cases: [(Words, Words, Words); 4] = [
        (&[], DEAD, &[]),
        (&["leases"], DEAD, &["Leases"]),
        (&["leases", "namespaces"], DEAD, &["Leases"]),
        (&["clusters"], &[], &["Clusters"]),
    ];
    for (hidden, wrong, told) in cases {
        let seen = looked_at(hidden).await;
        let status = Status::of(&seen, now());
        assert_eq!(status.wrong(), wrong, "without {hidden:?}");
        assert_eq!(status.hidden, told, "without {hidden:?}");
    }
}
