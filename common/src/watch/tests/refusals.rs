//! Answers that are errors: of pages that go on with a list, and such as never end.

use super::*;

#[tokio::test(start_paused = true)]
async fn pages_that_expire_are_listed_from_the_beginning() {
    for gone in [
        Step::Answer(410, status(410, "the token is too old")),
        Step::Answer(
            504,
            status(504, "Too large resource version: 10, current: 3"),
        ),
    ] {
        let steps = vec![
            list(10, "next", &[&object("a", 1)]),
            gone,
            list(12, "", &[&object("b", 11)]),
        ];
        let (events, asked) = first(5, steps).await;
        assert_eq!(
            events,
            ["restarted", "+a", "restarted", "+b", "listed false"]
        );
        assert!(!asked[2].contains("continue="), "{}", asked[2]);
    }
}

/// A token is of no use to a server that was restored to before its version, until that has come again: then the page
/// is one of other objects.
#[tokio::test(start_paused = true)]
async fn pages_of_a_server_that_was_restored_are_listed_from_the_beginning() {
    let future = || Step::Answer(500, status(500, "required revision is a future revision"));
    let malformed = Step::Answer(400, status(400, "continue key is not valid"));
    let check = || list(3, "", &[]);
    for between in [
        vec![malformed],
        vec![future(), check()],
        vec![Step::Broken, check()],
    ] {
        let last = between.len() + 1;
        let mut steps = vec![list(10, "next", &[&object("a", 1)])];
        steps.extend(between);
        steps.push(list(3, "", &[&object("b", 2)]));
        let (events, asked) = first(6, steps).await;
        let expected = [
            "restarted",
            "+a",
            "disconnected",
            "restarted",
            "+b",
            "listed true",
        ];
        assert_eq!(events, expected);
        assert!(!asked[last].contains("continue="), "{asked:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_goes_on_where_it_broke_off() {
    // A check of a server that is the same, or none where it only was busy.
    for between in [
        vec![Step::Broken, Step::Broken, list(12, "", &[])],
        vec![
            Step::Answer(429, status(429, "x")),
            Step::Answer(429, status(429, "x")),
        ],
    ] {
        let last = between.len() + 1;
        let mut steps = vec![list(10, "next", &[&object("a", 1)])];
        steps.extend(between);
        steps.push(list(10, "", &[&object("b", 2)]));
        let (events, asked) = first(6, steps).await;
        let expected = [
            "restarted",
            "+a",
            "disconnected",
            "disconnected",
            "+b",
            "listed true",
        ];
        assert_eq!(events, expected);
        assert!(asked[last].contains("continue=next"), "{asked:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_that_fails_again_and_again_is_not_insisted_on() {
    let failure = || Step::Answer(500, status(500, "x"));
    let same = || list(12, "", &[]);
    let steps = vec![
        list(10, "next", &[&object("a", 1)]),
        failure(),
        same(),
        failure(),
        same(),
        failure(),
        list(12, "", &[&object("b", 11)]),
    ];
    let (events, asked) = first(8, steps).await;
    let expected = [
        "restarted",
        "+a",
        "disconnected",
        "disconnected",
        "disconnected",
        "restarted",
        "+b",
        "listed true",
    ];
    assert_eq!(events, expected);
    assert!(asked[5].contains("continue=next"), "{asked:?}");
    assert!(!asked[6].contains("continue="), "{asked:?}");
}

/// The status code says enough: of a list, of a watch, and of a version that is gone.
#[tokio::test(start_paused = true)]
async fn an_error_whose_text_never_ends_is_told_all_the_same() {
    let stuck = |code| Step::Stuck(code, "the serv".to_owned());
    for (steps, expected) in [
        (
            vec![stuck(503), list(10, "", &[])],
            vec!["disconnected", "restarted"],
        ),
        (
            vec![
                list(10, "", &[]),
                stuck(503),
                list(10, "", &[]),
                Step::Watch(Vec::new(), Then::Stays),
            ],
            vec!["restarted", "listed false", "disconnected", "resumed"],
        ),
        (
            vec![list(10, "", &[]), stuck(410), list(12, "", &[])],
            vec!["restarted", "listed false", "restarted"],
        ),
    ] {
        let (events, _) = first(expected.len(), steps).await;
        assert_eq!(events, expected);
    }
}
