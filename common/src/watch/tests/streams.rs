//! Lists that are asked for as the beginning of a watch.

use super::*;

const END: &str =
    r#"{"metadata":{"resourceVersion":"20","annotations":{"k8s.io/initial-events-end":"true"}}}"#;

async fn first(count: usize, steps: Vec<Step>) -> (Vec<String>, Vec<String>) {
    let (client, asked) = scripted(steps);
    let config = WatchConfig {
        streams: true,
        ..WatchConfig::new(&Chance::seeded(1))
    };
    let events = watch::<ConfigMap>(client, Collection::of::<ConfigMap>(None), config);
    let events = events.take(count).map(told).collect().await;
    let asked = asked.lock().expect("no panic").clone();
    (events, asked)
}

fn asks_for_stream(uri: &str) -> bool {
    uri.contains("sendInitialEvents=true&resourceVersionMatch=NotOlderThan")
        && uri.contains("allowWatchBookmarks=true")
        && uri.ends_with("&resourceVersion=")
        && !uri.contains("limit=")
}

/// What is there comes in no order of versions, and with what happens meanwhile; a bookmark between says nothing of the
/// end. The watch goes on where the list ended.
#[tokio::test(start_paused = true)]
async fn a_list_is_the_beginning_of_a_watch() {
    let (events, asked) = first(
        9,
        vec![
            Step::Watch(
                vec![
                    event("ADDED", &object("a", 15)),
                    event("ADDED", &object("b", 7)),
                    event("ADDED", r#"{"metadata":{"name":"c"},"data":{"x":7}}"#),
                    event("BOOKMARK", r#"{"metadata":{"resourceVersion":"30"}}"#),
                    event("MODIFIED", &object("a", 16)),
                    event("DELETED", &object("b", 17)),
                    event("BOOKMARK", END),
                    event("ADDED", &object("d", 21)),
                ],
                Then::Ends,
            ),
            list(25, "", &[]),
            Step::Watch(vec![event("ADDED", &object("e", 30))], Then::Stays),
        ],
    )
    .await;
    assert_eq!(
        events,
        [
            "restarted",
            "+a",
            "+b",
            "?c",
            "+a",
            "-b",
            "listed false",
            "+d",
            "+e"
        ]
    );
    assert!(asks_for_stream(&asked[0]), "{}", asked[0]);
    assert!(asked[2].contains("resourceVersion=21"), "{}", asked[2]);
    assert!(!asked[2].contains("sendInitialEvents"), "{}", asked[2]);
}

/// What was lost while the watch was away is listed in the same way, and the gap is told.
#[tokio::test(start_paused = true)]
async fn a_list_after_a_gap_is_one_too() {
    let steps = vec![
        Step::Watch(vec![event("BOOKMARK", END)], Then::Ends),
        list(25, "", &[]),
        Step::Answer(410, status(410, "too old")),
        Step::Watch(
            vec![event("ADDED", &object("a", 3)), event("BOOKMARK", END)],
            Then::Stays,
        ),
    ];
    let (events, asked) = first(5, steps).await;
    let expected = [
        "restarted",
        "listed false",
        "restarted",
        "+a",
        "listed true",
    ];
    assert_eq!(events, expected);
    assert!(asks_for_stream(&asked[3]), "{}", asked[3]);
}

/// Kubernetes 1.33 has the feature, and has it switched off.
#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_is_asked_for_pages() {
    for code in [400, 422] {
        let steps = vec![
            Step::Answer(code, status(code, "sendInitialEvents is forbidden")),
            list(10, "next", &[&object("a", 5)]),
            list(10, "", &[&object("b", 6)]),
            Step::Answer(410, status(410, "too old")),
            list(12, "", &[&object("c", 11)]),
        ];
        let (events, asked) = first(7, steps).await;
        assert_eq!(
            events,
            [
                "restarted",
                "+a",
                "+b",
                "listed false",
                "restarted",
                "+c",
                "listed true"
            ]
        );
        let streams = asked.iter().filter(|uri| asks_for_stream(uri)).count();
        assert_eq!(streams, 1, "it refuses the next time, too: {asked:?}");
    }
}

/// Whatever ends a list before its end would end the next one as well: a proxy with a deadline, or a server that does
/// not know what it was asked for, sends a watch, and waits.
#[tokio::test(start_paused = true)]
async fn a_list_that_breaks_off_is_asked_for_by_pages() {
    let half = || vec![event("ADDED", &object("a", 5))];
    let error = event("ERROR", &status(500, "x"));
    for broken in [
        Step::Watch(half(), Then::Ends),
        Step::Watch(half(), Then::Stays),
        Step::Watch([half(), vec![error]].concat(), Then::Stays),
        Step::Watch([half(), vec!["{".to_owned()]].concat(), Then::Stays),
    ] {
        let began = Instant::now();
        let steps = vec![broken, list(10, "", &[&object("b", 6)])];
        let (events, _) = first(6, steps).await;
        let expected = [
            "restarted",
            "+a",
            "disconnected",
            "restarted",
            "+b",
            "listed true",
        ];
        assert_eq!(events, expected);
        assert!(began.elapsed() <= ANSWER_WITHIN + Duration::from_secs(1));
    }
}

/// One that cannot be reached was not asked at all.
#[tokio::test(start_paused = true)]
async fn a_server_that_is_away_is_asked_again_for_a_stream() {
    let steps = vec![
        Step::Broken,
        Step::Answer(503, status(503, "starting")),
        Step::Watch(vec![event("BOOKMARK", END)], Then::Stays),
    ];
    let (events, asked) = first(4, steps).await;
    assert_eq!(
        events,
        ["disconnected", "disconnected", "restarted", "listed true"]
    );
    assert!(asked.iter().all(|uri| asks_for_stream(uri)), "{asked:?}");
}
