//! A tunnel that is cut at every point of what passes on it: before each piece, after its first byte, within the header of
//! a frame, in its middle, and before its last byte.

use super::super::asked::{given, on_all_cores, share};
use super::plan::{Ask, USERS, Wanted};
use super::runs::{Outcome, begun, in_its_world, looked_after};
use super::stage::Stage;
use std::sync::Mutex;
use std::time::Duration;
use tokio::time::sleep;

const SEED: u64 = 1;
/// A run that asks for nothing else takes one of so many points.
const SHARE: usize = 40;
/// How many points one world takes.
const AT_ONCE: usize = 20;
/// The end of a frame's header in HTTP/2.
const HEADER: usize = 9;
const TICK: Duration = Duration::from_millis(250);

/// One of each kind that a tunnel carries, all at once.
fn asks() -> Vec<Ask> {
    let all = [
        (Wanted::Get, true),
        (Wanted::Get, false),
        (Wanted::List, true),
        (Wanted::List, false),
        (Wanted::Watch(2), true),
        (Wanted::Watch(2), false),
        (Wanted::Put, false),
        (Wanted::Exec(2), false),
    ];
    let ask = |(what, h2)| Ask {
        user: USERS[0].to_owned(),
        member: 1,
        what,
        h2,
        patience: 60_000,
    };
    all.into_iter().map(ask).collect()
}

/// Asks everything at once, and waits until all has ended.
async fn ask_all(stage: &mut Stage) -> Vec<String> {
    for ask in asks() {
        stage.begin_to_ask(&ask);
    }
    while stage.asking() > 0 {
        sleep(TICK).await;
        let problems = looked_after(stage).await;
        if !problems.is_empty() {
            return problems;
        }
    }
    Vec::new()
}

/// The pieces that pass while nothing is cut.
fn pieces() -> Vec<usize> {
    let counted = Mutex::new(Vec::new());
    let outcome = in_its_world(async || {
        let mut stage = Stage::begin(SEED, false).await;
        let mut problems = begun(&mut stage).await;
        stage.tunnel(1).pieces();
        problems.extend(ask_all(&mut stage).await);
        *counted.lock().expect("held") = stage.tunnel(1).pieces();
        Outcome {
            problems,
            ..Outcome::default()
        }
    });
    assert!(outcome.problems.is_empty(), "{:#?}", outcome.problems);
    counted.into_inner().expect("held")
}

/// After how many bytes it is cut.
fn points() -> Vec<usize> {
    let mut points = Vec::new();
    let mut before = 0;
    for size in pieces() {
        let within = [0, 1, HEADER, size / 2, size.saturating_sub(1)];
        points.extend(
            within
                .into_iter()
                .filter(|at| *at < size)
                .map(|at| before + at),
        );
        before += size;
    }
    points.sort_unstable();
    points.dedup();
    points
}

/// Cuts the tunnel at each of these points, one after the other.
fn cut(points: &[usize]) -> Outcome {
    in_its_world(async || {
        let mut stage = Stage::begin(SEED, false).await;
        let mut problems = begun(&mut stage).await;
        for point in points {
            stage.tunnel(1).cut_after(*point);
            problems.extend(ask_all(&mut stage).await);
            stage.tunnel(1).heal();
            // A new process dials at once.
            stage.end_agent(1, true, 0).await;
            stage.look_after().await;
            problems.extend(begun(&mut stage).await);
            if !problems.is_empty() {
                problems.insert(0, format!("cut after {point} bytes"));
                break;
            }
        }
        Outcome {
            problems,
            ..Outcome::default()
        }
    })
}

#[test]
fn what_is_cut_anywhere_breaks() {
    let share = match given("TOWLINE_SHARE") {
        Some(_) => share(),
        None if given("TOWLINE_TELL").is_some() => 1,
        None => SHARE,
    };
    let all = points();
    let points: Vec<usize> = all.iter().copied().step_by(share).collect();
    let some: Vec<&[usize]> = points.chunks(AT_ONCE).collect();
    let failed = Mutex::new(Vec::new());
    on_all_cores(&some, |some| {
        let problems = cut(some).problems;
        if !problems.is_empty() {
            failed.lock().expect("held").push(problems);
        } else if given("TOWLINE_TELL").is_some() {
            some.iter()
                .for_each(|point| eprintln!("cut after {point} bytes holds"));
        }
    });
    let failed = failed.into_inner().expect("held");
    assert!(failed.is_empty(), "{failed:#?}");
    assert!(all.len() > 100, "{} points are few", all.len());
    eprintln!("{} of {} cuts hold", points.len(), all.len());
}
