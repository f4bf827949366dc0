//! The end of a certificate: what goes on in a tunnel goes on there when its agent has renewed its certificate and dialled
//! another one, and breaks when the certificate ends by which the tunnel was dialled.

use super::asks::{How, Record};
use super::plan::{Ask, USERS, Wanted};
use super::runs::{Outcome, begun, in_its_world, reach};
use super::stage::Stage;
use std::time::Duration;

const SEED: u64 = 1;
/// How many seconds a certificate lives; after a third of that, and a tenth of it at most, it is renewed.
const LIFE: u32 = 600;
/// An agent dials within this after its certificate was made.
const DIALLED_WITHIN: Duration = Duration::from_secs(15);
/// How late what goes on may end after a certificate.
const LATE: Duration = Duration::from_millis(1_100);

/// A request that goes on for longer than a certificate lives.
fn long(what: fn(u64) -> Wanted) -> Ask {
    Ask {
        user: USERS[0].to_owned(),
        member: 1,
        what: what(2 * u64::from(LIFE)),
        h2: true,
        patience: 4_000 * u64::from(LIFE),
    }
}

#[test]
fn what_goes_on_breaks_with_the_certificate_of_its_tunnel() {
    let outcome = in_its_world(async || Outcome {
        problems: outlasted().await,
        ..Outcome::default()
    });
    assert!(outcome.problems.is_empty(), "{:#?}", outcome.problems);
}

async fn outlasted() -> Vec<String> {
    let mut stage = Stage::begin(SEED, false).await;
    let mut problems = begun(&mut stage).await;
    stage.replace(1, 0, Some(LIFE));
    problems.extend(begun(&mut stage).await);
    let dialled = stage.world.age();
    stage.begin_to_ask(&long(Wanted::Watch));
    stage.begin_to_ask(&long(Wanted::Exec));
    let all_go_on = |stage: &Stage| {
        let goes_on = |it: &Record| it.went_on().is_some() && it.ended.is_none();
        stage.records.look(|all| all.iter().all(goes_on))
    };
    let life = Duration::from_secs(LIFE.into());
    problems.extend(reach(&mut stage, dialled + life / 2).await);
    let tunnels = stage.tunnel(1).standing();
    if tunnels != 2 || !all_go_on(&stage) {
        problems.push(format!(
            "renewed: {tunnels} tunnels stand, and not all goes on"
        ));
    }
    problems.extend(reach(&mut stage, dialled + life - DIALLED_WITHIN).await);
    if !all_go_on(&stage) {
        problems.push("early: something ended before the certificate did".to_owned());
    }
    problems.extend(reach(&mut stage, dialled + life + LATE).await);
    stage.records.look(|all| {
        let broke = |it: &&Record| matches!(it.ended, Some((_, How::Broken(_))));
        for it in all.iter().filter(|it| !broke(it)) {
            let (what, ended) = (it.ask.what, &it.ended);
            problems.push(format!(
                "late: {what:?} has outlived the certificate: {ended:?}"
            ));
        }
    });
    let tunnels = stage.tunnel(1).standing();
    if tunnels != 1 {
        problems.push(format!(
            "late: {tunnels} tunnels stand, one of them by a certificate that has ended"
        ));
    }
    problems
}
