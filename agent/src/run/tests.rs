//! A replica that follows while its cluster is unregistered.

use super::*;
use crate::config::RunArgs;
use crate::credentials::Stored;
use crate::credentials::testing::registration;
use crate::testing::{json as answer, service};
use clap::Parser;
use common::time::{SimClock, to_micro_time};
use common::unregister::Mode;
use http::{Request, Response};
use k8s_openapi::ByteString;
use kube::client::Body;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Debug, Parser)]
struct Flags {
    #[command(flatten)]
    run: RunArgs,
}

/// How the process beside the hub says that an agent did not leave: after so long.
const OUTLIVES: Duration = Duration::from_secs(120);

/// What the member has once another replica is through with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    /// All as it was.
    Same,
    /// The registration, with a word that it is told to leave.
    Told,
    /// No registration, and a namespace that takes no Lease any more.
    Ends,
    /// No registration yet, and a namespace that still takes a Lease.
    Leased,
    /// It knows this account no more.
    Unknown,
}

fn refused(code: u16, reason: &str) -> Response<Body> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
        "code": code, "reason": reason, "message": reason});
    answer(code, &status)
}

fn secret(told: Option<Mode>) -> Value {
    let mut stored = Stored::new(Some(registration("m1", "a")), None);
    stored.told_to_leave = told;
    let document = serde_json::to_vec(&stored).expect("JSON");
    json!({"metadata": {"name": "s"}, "data": {"credentials.json": ByteString(document)}})
}

/// The member's answer; `after` once another replica has left it.
fn member(
    request: &Request<Body>,
    after: After,
    now: chrono::DateTime<chrono::Utc>,
) -> Response<Body> {
    let (method, path) = (request.method().as_str(), request.uri().path());
    let lease = |holder: &str| {
        json!({"metadata": {"name": "towline-agent", "resourceVersion": "1"}, "spec":
            {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": to_micro_time(now)}})
    };
    match (method, path.rsplit('/').next().unwrap_or_default(), after) {
        (_, _, After::Unknown) => refused(401, "Unauthorized"),
        ("GET", "kube-system", _) => answer(
            200,
            &json!({"metadata": {"name": "kube-system", "uid": "uid"}}),
        ),
        ("GET", "towline-agent-credentials", After::Same) => answer(200, &secret(None)),
        ("GET", "towline-agent-credentials", After::Told) => {
            answer(200, &secret(Some(Mode::RemoveWorkloads)))
        }
        ("GET", "towline-agent", After::Same | After::Told) => answer(200, &lease("another")),
        ("POST", "leases", After::Leased) => answer(201, &lease("")),
        ("POST" | "PATCH" | "PUT", _, _) => refused(403, "Forbidden"),
        _ => refused(404, "NotFound"),
    }
}

/// When an agent hears that its cluster is unregistered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heard {
    /// Before anything changes in the member.
    First,
    /// After that.
    Late,
    /// Never.
    Never,
}

/// How an agent ends that follows another one which leaves its member; none if it does not in time.
async fn followed(after: After, heard: Heard) -> Option<Result<Beside, Error>> {
    let base = chrono::DateTime::from_timestamp(1_800_000_000, 0).expect("in range");
    let env = Env::seeded(Arc::new(SimClock::starting_at(base)), 1);
    let left = Arc::new(AtomicBool::new(false));
    let (clock, gone) = (env.clock.clone(), left.clone());
    let member = service(move |request| {
        let after = match gone.load(Ordering::Relaxed) {
            true => after,
            false => After::Same,
        };
        let answered = member(&request, after, clock.now());
        async move { answered }
    });
    let flags = Flags::try_parse_from(["towline-agent"]).expect("defaults parse");
    let config = flags.run.into_config().expect("defaults are valid");
    let way = kube::Config::new(http::Uri::from_static("https://member.test"));
    let told = CancellationToken::new();
    let running = beside(
        config,
        env,
        (member, way, ProxyChoice::direct()),
        CancellationToken::new(),
        told.clone(),
    );
    let mut running = std::pin::pin!(running);
    let follows = timeout(Duration::from_secs(60), running.as_mut()).await;
    assert!(follows.is_err(), "it does not follow: {follows:?}");
    if heard == Heard::First {
        told.cancel();
        let stays = timeout(Duration::from_secs(5), running.as_mut()).await;
        assert!(stays.is_err(), "nobody has left: {stays:?}");
    }
    left.store(true, Ordering::Relaxed);
    if heard == Heard::Late {
        told.cancel();
    }
    timeout(OUTLIVES, running).await.ok()
}

#[tokio::test(start_paused = true)]
async fn who_follows_knows_that_the_leader_has_left() {
    use Heard::{First, Late, Never};
    for (after, heard, left) in [
        (After::Ends, First, Some(true)),
        (After::Ends, Late, Some(true)),
        (After::Unknown, First, Some(true)),
        // It leads for a moment, in the place of the one that has left.
        (After::Leased, First, Some(true)),
        (After::Leased, Late, Some(true)),
        // The leader does not leave.
        (After::Same, First, None),
        (After::Told, First, None),
        // An account that was lost before proves nothing.
        (After::Unknown, Late, None),
        // Nobody unregisters it: a registration that is lost is a failure of the one who leads.
        (After::Ends, Never, None),
        (After::Unknown, Never, None),
        (After::Leased, Never, Some(false)),
    ] {
        let ended = followed(after, heard).await;
        let said = ended
            .as_ref()
            .map(|ended| matches!(ended, Ok(Beside::Left)));
        assert_eq!(said, left, "{after:?}, heard {heard:?}: {ended:?}");
    }
}
