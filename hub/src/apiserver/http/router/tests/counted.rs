//! What is counted, and the metrics that tell it.

use super::*;

#[tokio::test]
async fn requests_are_counted_by_kind_and_nobody_can_invent_a_counter() {
    let rig = Rig::begin().await;
    let map = json!({"metadata": {"name": "counted"}});
    assert_eq!(rig.ask(&Peer::Itself, "POST", MAPS, &map).await.0, 201);
    assert_eq!(rig.ask(&Peer::Itself, "POST", MAPS, &map).await.0, 409);
    for invented in [
        "/api/v1/invented",
        "/apis/invented.example/v1/things",
        "/api/v1/namespaces/default/invented",
    ] {
        assert_eq!(rig.ask(&Peer::Itself, "GET", invented, &NONE).await.0, 404);
    }
    let page = rig.send(&Peer::Itself, ("GET", "/metrics"), &[], "").await;
    let page = page.into_body().collect().await.expect("a page").to_bytes();
    let page = String::from_utf8(page.to_vec()).expect("text");
    for code in [201, 409] {
        let counted = page.lines().any(|line| {
            line.starts_with("apiserver_request_total{")
                && line.ends_with("} 1")
                && line.contains(&format!("code=\"{code}\""))
                && line.contains("verb=\"POST\"")
                && line.contains("resource=\"configmaps\"")
        });
        assert!(counted, "{code}: {page}");
    }
    let timed = page.lines().any(|line| {
        line.starts_with("apiserver_request_duration_seconds_count{")
            && line.ends_with("} 2")
            && line.contains("verb=\"POST\"")
            && line.contains("resource=\"configmaps\"")
            && line.contains("scope=\"resource\"")
    });
    assert!(timed, "{page}");
    assert!(!page.contains("invented"), "{page}");
    rig.running.end().await;
}

#[tokio::test]
async fn answers_of_what_changes_something_count_as_well() {
    let rig = Rig::begin().await;
    let bob = somebody("bob", &["writers"]);
    let verbs = ["list", "patch", "deletecollection"];
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs}]);
    allow(&rig, "writers", rules, &bob, MAPS).await;
    let large = "x".repeat(1_000_000);
    for name in 0..64 {
        let map = json!({"metadata": {"name": format!("m{name}")}, "data": {"a": large}});
        assert_eq!(rig.ask(&Peer::Itself, "POST", MAPS, &map).await.0, 201);
    }
    let all = format!("{MAPS}?dryRun=All");
    let mut unread = Vec::new();
    let refused = loop {
        let answer = rig.send(&bob, ("DELETE", &all), &[], "").await;
        if answer.status() != 200 {
            break answer;
        }
        unread.push(answer);
        assert!(unread.len() <= 4, "nobody weighs");
    };
    assert_eq!((unread.len(), refused.status().as_u16()), (4, 429));
    assert!(refused.headers().contains_key("retry-after"));
    // Four of 61 MiB leave room for some objects of 1 MiB.
    let (one, merge) = (
        format!("{MAPS}/m0?pretty=1"),
        "application/merge-patch+json",
    );
    let long = json!({"data": {"a": "y".repeat(1_048_570)}}).to_string();
    let refused = loop {
        let headers = [(CONTENT_TYPE.as_str(), merge)];
        let answer = rig
            .send(&bob, ("PATCH", &one), &headers, long.clone())
            .await;
        if answer.status() != 200 {
            break answer;
        }
        unread.push(answer);
        assert!(unread.len() <= 30, "nobody weighs");
    };
    assert_eq!(refused.status(), 429);
    // Whoever may do everything is not counted, and what was read gives its room back.
    let root = rig.send(&Peer::Itself, ("DELETE", &all), &[], "").await;
    assert_eq!(root.status(), 200);
    let read = unread.swap_remove(0).into_body().collect().await;
    assert!(read.is_ok_and(|read| read.to_bytes().len() > 64_000_000));
    let headers = [(CONTENT_TYPE.as_str(), merge)];
    let answer = rig.send(&bob, ("PATCH", &one), &headers, "{}").await;
    assert_eq!(answer.status(), 200);
    drop(unread);
    rig.running.end().await;
}

/// Regenerate with `UPDATE_DOCS=1 cargo test -p hub -p agent reference_of_metrics`.
#[tokio::test]
async fn the_reference_of_metrics_is_what_there_is() {
    let rig = Rig::begin().await;
    assert_eq!(rig.ask(&Peer::Itself, "GET", MAPS, &NONE).await.0, 200);
    let registry = &rig.running.router.parts().admin.registry;
    crate::run::sample_metrics(registry);
    {
        // Those of the server's own controllers have no value before one has reconciled.
        let mut registry = registry.lock().expect("not poisoned");
        common::controller::Metrics::register(&mut registry, "towline_apiserver").sample();
    }
    let _under_way = rig.running.router.tunnels.sample();
    let all = {
        let registry = registry.lock().expect("not poisoned");
        common::exposition::describe(&registry).expect("describes")
    };
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/metrics.md");
    let found = std::fs::read_to_string(path).expect("docs/metrics.md");
    let table = common::exposition::table(&all);
    let now = common::exposition::with_section(&found, "hub", &table);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &now).expect("written");
    } else {
        assert!(
            found == now,
            "docs/metrics.md is not what the hub has; run UPDATE_DOCS=1 cargo test -p hub -p agent reference_of_metrics"
        );
    }
    rig.running.end().await;
}

#[tokio::test]
async fn metrics_come_in_the_form_that_is_asked_for() {
    let rig = Rig::begin().await;
    let open = "application/openmetrics-text; version=1.0.0";
    for (path, accept, form) in [
        ("/metrics", "", "text/plain; version=0.0.4; charset=utf-8"),
        (
            "/metrics",
            "*/*",
            "text/plain; version=0.0.4; charset=utf-8",
        ),
        (
            "/metrics",
            open,
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
        ),
        (
            "/metrics/slis",
            "",
            "text/plain; version=0.0.4; charset=utf-8",
        ),
    ] {
        rig.ask(&Peer::Itself, "GET", "/readyz", &NONE).await;
        let page = rig
            .send(&Peer::Itself, ("GET", path), &[("accept", accept)], "")
            .await;
        assert_eq!(page.status(), 200, "{path}");
        assert_eq!(page.headers()[CONTENT_TYPE], form, "{path} {accept}");
        let page = page.into_body().collect().await.expect("a page").to_bytes();
        let page = String::from_utf8(page.to_vec()).expect("text");
        assert_eq!(
            page.ends_with("# EOF\n"),
            form.contains("openmetrics"),
            "{path}"
        );
        let named = match path {
            "/metrics" => "towline_hub_store_size_bytes{file=\"database\"}",
            _ => "kubernetes_healthcheck{name=\"store\",type=\"readyz\"}",
        };
        assert!(page.contains(named), "{page}");
    }
    rig.running.end().await;
}
