//! The hub or its API server is away for a time, or its clock jumps: nobody is marked because of that.

use super::*;

#[tokio::test(start_paused = true)]
async fn nobody_is_marked_because_the_hub_was_away_before_it_leads() {
    for mode in [Mode::Hole, Mode::Refuse, Mode::Broken] {
        let world = posted(["live", "dead"]);
        let (leads, leading) = signal::channel(false);
        let hub = start_while(&world, leading);
        begin(&world, "live", s(1000));
        until(&world, s(15)).await;
        world.set_mode(mode);
        until(&world, s(75)).await;
        world.set_mode(Mode::Up);
        // The Lease is taken as soon as the API server is there.
        leads.send_replace(true);
        until(&world, s(900)).await;
        let marks = world.marks();
        let names: Vec<&str> = marks.iter().map(|mark| mark.name.as_str()).collect();
        assert_eq!(names, ["dead"], "{mode:?}: {marks:?}");
        assert!(marks[0].at >= s(40 + 60 - 8), "{mode:?}: {marks:?}");
        hub.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_of_the_whole_process_counts_for_nobody() {
    let world = World::new();
    world.create("live");
    let hub = start(&world);
    until(&world, s(3)).await;
    world.post("live", "up");
    until(&world, s(20)).await;
    // Nothing in this process does anything for five minutes, and everything is due at once.
    tokio::time::advance(s(300)).await;
    until(&world, s(342)).await;
    let marks = world.marks();
    assert!(marks.is_empty(), "{marks:?}");
    // From the last turn before the pause on nothing counted; then silence does, for a grace at most.
    until(&world, s(400)).await;
    let marks = world.marks();
    assert_eq!(marks.len(), 1, "{marks:?}");
    let at = marks[0].at;
    assert!(s(343) <= at && at <= s(360) + SLACK, "at {at:?}");
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_new_hub_gives_full_grace_and_falsely_marks_nobody() {
    let world = posted(["live", "dead"]);
    begin(&world, "live", s(2000));
    for round in 0..10 {
        let hub = start(&world);
        // Long enough for a renewal, too short for a deadline, and longer and longer apart.
        until(&world, world.elapsed() + s(30)).await;
        hub.stop().await;
        until(&world, world.elapsed() + s(10 * round)).await;
    }
    assert_eq!(world.marks(), []);
    let begun = world.elapsed();
    let hub = start(&world);
    until(&world, begun + s(100)).await;
    let marks = world.marks();
    assert_eq!(marks.len(), 1);
    assert_at(&marks[0], "dead", begun + s(40));
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nobody_is_marked_because_the_hub_was_away() {
    for mode in [Mode::Hole, Mode::Refuse, Mode::Broken] {
        for outage in [3, 20, 39, 41, 90, 300] {
            let world = posted(["live", "dead"]);
            let hub = start(&world);
            begin(&world, "live", s(1000));
            until(&world, s(15)).await;
            world.set_mode(mode);
            until(&world, s(15 + outage)).await;
            assert_eq!(world.marks(), [], "{mode:?} for {outage} s");
            world.set_mode(Mode::Up);
            until(&world, s(900)).await;
            let marks = world.marks();
            let names: Vec<&str> = marks.iter().map(|mark| mark.name.as_str()).collect();
            assert_eq!(names, ["dead"], "{mode:?} for {outage} s");
            assert!(marks[0].at >= s(40), "{mode:?} for {outage} s: {marks:?}");
            // Moved by no more than the outage, the quiet before it and one relist's backoff.
            let latest = s(40 + outage) + QUIET + RETRY * 2 + s(35);
            assert!(marks[0].at <= latest, "{mode:?} for {outage} s: {marks:?}");
            if outage >= 20 {
                assert!(
                    marks[0].at >= s(40 + outage - 8),
                    "{mode:?} for {outage} s: {marks:?}"
                );
            }
            hub.stop().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_resumed_watch_is_no_gap_and_a_relist_is_no_sign_of_life() {
    let world = posted(["a", "live"]);
    begin(&world, "live", s(1000));
    let hub = start(&world);
    until(&world, s(10)).await;
    world.break_watches();
    until(&world, s(20)).await;
    world.compact();
    world.break_watches();
    until(&world, s(100)).await;
    let marks = world.marks();
    assert_eq!(marks.len(), 1, "{marks:?}");
    assert_eq!(marks[0].name, "a");
    // The relist came at once, so the gap it left is not longer than what was unheard before it.
    assert!((s(40)..=s(52)).contains(&marks[0].at), "{marks:?}");
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn jumps_of_the_clock_decide_nothing() {
    let world = posted(["live", "dead"]);
    begin(&world, "live", s(1000));
    let hub = start(&world);
    for (at, offset) in [(5, 3600), (15, -3600), (25, 7200), (39, -7200), (60, 0)] {
        until(&world, s(at)).await;
        *hub.offset.lock().expect("lock") = offset;
    }
    until(&world, s(300)).await;
    let marks = world.marks();
    assert_eq!(marks.len(), 1, "{marks:?}");
    assert_at(&marks[0], "dead", s(40));
    hub.stop().await;
}
