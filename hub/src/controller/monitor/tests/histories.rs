//! Histories of what befalls a hub, most of them drawn: who lives is never marked, and who is silent once.

use super::*;
use proptest::prelude::*;

/// What befalls the hub in a random history.
#[derive(Debug, Clone)]
enum Trouble {
    Hole(u64),
    Refuse(u64),
    Broken(u64),
    BreakWatches,
    Relist,
    Restart,
    Jump(i64),
}

fn troubles() -> impl Strategy<Value = Vec<(u64, Trouble)>> {
    let trouble = prop_oneof![
        (1_u64..200).prop_map(Trouble::Hole),
        (1_u64..200).prop_map(Trouble::Refuse),
        (1_u64..200).prop_map(Trouble::Broken),
        Just(Trouble::BreakWatches),
        Just(Trouble::Relist),
        Just(Trouble::Restart),
        (-3600_i64..3600).prop_map(Trouble::Jump),
    ];
    proptest::collection::vec((0_u64..60, trouble), 0..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever befalls the hub: an agent that renews while it can is never marked; one that fell
    /// silent is marked once, not before its grace in which the hub could hear it, and in the end.
    #[test]
    fn live_agents_are_never_marked_and_silent_ones_always(
        troubles in troubles(),
        falls_silent in 0_u64..120,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        let (marks, away) = runtime.block_on(play(troubles, falls_silent));
        let names: Vec<&str> = marks.iter().map(|mark| mark.name.as_str()).collect();
        prop_assert_eq!(names, ["silent"], "{:?}", marks);
        // Its last renewal came at most ten seconds before it fell silent.
        let earliest = s(falls_silent.saturating_sub(10) + 40);
        prop_assert!(marks[0].at >= earliest, "{:?} before {:?}", marks, earliest);
        prop_assert!(marks[0].at <= s(falls_silent + 60) + away + s(60), "{:?} {:?}", marks, away);
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_lists_may_go_unanswered() {
    let (marks, _) = play(vec![(0, Trouble::Hole(1))], 0).await;
    let names: Vec<&str> = marks.iter().map(|mark| mark.name.as_str()).collect();
    assert_eq!(names, ["silent"], "{marks:?}");
}

#[tokio::test(start_paused = true)]
async fn a_relist_moves_a_deadline_by_what_the_quieter_watch_had_not_heard() {
    let relists = [35, 51, 46].map(|pause| (pause, Trouble::Relist));
    let (marks, _) = play(relists.into(), 30).await;
    assert_eq!(marks.len(), 1, "{marks:?}");
    // Renewed last at 20 or 30 s; nothing was told of Clusters between one list and the next.
    let gaps = s(35 + 51 + 46);
    assert!(
        (s(20 + 40) + gaps..=s(30 + 40) + gaps + RETRY).contains(&marks[0].at),
        "{marks:?}"
    );
}

/// Plays a history; returns the marks, and how long the hub may count as away at most.
async fn play(troubles: Vec<(u64, Trouble)>, falls_silent: u64) -> (Vec<world::Mark>, Duration) {
    let world = posted(["live", "silent"]);
    begin(&world, "live", s(4000));
    begin(&world, "silent", s(falls_silent));
    let mut hub = start(&world);
    let mut away = Duration::ZERO;
    for (pause, trouble) in troubles {
        sleep(s(pause)).await;
        let outage = match trouble {
            Trouble::Hole(length) => Some((Mode::Hole, length)),
            Trouble::Refuse(length) => Some((Mode::Refuse, length)),
            Trouble::Broken(length) => Some((Mode::Broken, length)),
            Trouble::BreakWatches => {
                world.break_watches();
                None
            }
            Trouble::Relist => {
                world.compact();
                world.break_watches();
                // What the quieter watch had not heard since its last bookmark is lost, and a reconnect delay.
                away += s(60 + 30);
                None
            }
            Trouble::Restart => {
                hub.stop().await;
                hub = start(&world);
                away += s(pause + 60);
                None
            }
            Trouble::Jump(offset) => {
                *hub.offset.lock().expect("lock") = offset;
                None
            }
        };
        if let Some((mode, length)) = outage {
            world.set_mode(mode);
            sleep(s(length)).await;
            world.set_mode(Mode::Up);
            // The quiet before it was noticed, and a reconnect delay of at most half a minute.
            away += s(length + 45);
        }
    }
    sleep(s(1500)).await;
    hub.stop().await;
    (world.marks(), away)
}
