use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn election() -> Election {
    Election::new("ns", "lock", "me")
}

fn held(holder: &str, renewed: i64) -> Observed {
    let at = chrono::DateTime::from_timestamp(renewed, 0).expect("in range");
    Observed::Held {
        holder: holder.to_owned(),
        renewed: Some(to_micro_time(at)),
        duration: Duration::from_secs(15),
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_leader_is_followed_for_its_duration_and_no_longer() {
    let (election, mut memory, start) = (election(), Memory::default(), Instant::now());
    let mut at =
        |seconds: u32, observed| decide(start + SECOND * seconds, &election, &mut memory, observed);
    assert_eq!(at(0, held("you", 1)), Decision::Follow);
    assert_eq!(at(14, held("you", 1)), Decision::Follow);
    // It renewed: the wait begins anew, whatever time it claims.
    assert_eq!(at(15, held("you", -9_000)), Decision::Follow);
    assert_eq!(at(29, held("you", -9_000)), Decision::Follow);
    assert_eq!(at(30, held("you", -9_000)), Decision::Take);
    assert_eq!(at(31, held("", 5)), Decision::Take);
    assert_eq!(at(32, Observed::Absent), Decision::Create);
    assert_eq!(at(33, held("me", 5)), Decision::Renew);
}

#[test]
fn others_wait_no_shorter_than_a_leader_goes_on() {
    let written = |millis| whole_seconds(Duration::from_millis(millis));
    let cases = [(15_000, 15), (1_900, 2), (500, 1), (0, 1)];
    for (millis, seconds) in cases {
        assert_eq!(written(millis), Some(seconds), "{millis}");
    }
}

#[tokio::test(start_paused = true)]
async fn another_leader_is_silent_after_three_attempts_that_did_not_show() {
    let (election, mut memory, start) = (election(), Memory::default(), Instant::now());
    let mut at = |seconds: u32, observed| {
        let now = start + SECOND * seconds;
        decide(now, &election, &mut memory, observed);
        is_silent(now, &election, &memory)
    };
    assert!(!at(0, held("you", 1)));
    assert!(!at(5, held("you", 1)));
    assert!(at(6, held("you", 1)));
    assert!(!at(7, held("you", 2)), "it renewed");
    assert!(!at(8, held("they", 3)));
    assert!(at(14, held("they", 3)));
    assert!(!at(15, held("me", 4)));
    assert!(!at(30, held("me", 4)), "we ourselves");
    assert!(!at(31, Observed::Absent));
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_stops_in_time_unless_told_to_go_on() {
    let start = Instant::now();
    let mut election = election();
    let memory = Memory {
        seen: None,
        renewed: Some(start),
    };
    assert!(still_leads(start + SECOND * 9, &election, &memory));
    assert!(!still_leads(start + SECOND * 10, &election, &memory));
    election.lead_while_unreachable = true;
    assert!(still_leads(start + SECOND * 9_000, &election, &memory));
    assert!(!still_leads(start, &election, &Memory::default()));
}

mod shell {
    use super::*;
    use crate::time::SimClock;
    use bytes::Bytes;
    use http::{Method, Request, Response};
    use http_body_util::{BodyExt as _, Full};
    use kube::client::Body;
    use std::collections::BTreeSet;
    use std::sync::{Arc, Mutex};

    /// One Lease, as an API server keeps it, and who is cut off from it.
    #[derive(Default)]
    struct Server {
        lease: Option<serde_json::Value>,
        version: u64,
        cut: BTreeSet<&'static str>,
        /// Whether the namespace of the Lease is missing.
        nowhere: bool,
    }

    impl Server {
        fn answer(&mut self, method: &Method, body: &[u8]) -> (u16, serde_json::Value) {
            let status = |code: u16| {
                let reason = if code == 404 { "NotFound" } else { "Conflict" };
                serde_json::json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason})
            };
            let sent = serde_json::from_slice::<serde_json::Value>(body).unwrap_or_default();
            match (method, self.lease.as_ref()) {
                (&Method::GET, Some(lease)) => return (200, lease.clone()),
                (&Method::GET, None) => return (404, status(404)),
                (&Method::POST, None) if self.nowhere => {
                    let mut missing = status(404);
                    missing["message"] = "namespaces \"ns\" not found".into();
                    return (404, missing);
                }
                (&Method::POST, Some(_)) => return (409, status(409)),
                (&Method::PUT, Some(lease))
                    if lease["metadata"]["resourceVersion"]
                        != sent["metadata"]["resourceVersion"] =>
                {
                    return (409, status(409));
                }
                _ => {}
            }
            self.version += 1;
            let mut lease = sent;
            lease["metadata"]["resourceVersion"] = self.version.to_string().into();
            self.lease = Some(lease.clone());
            (200, lease)
        }
    }

    type Shared = Arc<Mutex<Server>>;

    fn client(server: &Shared, who: &'static str) -> kube::Client {
        let server = server.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let method = request.method().clone();
                let body = request.into_body().collect().await.map(|b| b.to_bytes());
                let body = body.unwrap_or_default();
                if server.lock().expect("no panic").cut.contains(who) {
                    std::future::pending::<()>().await;
                }
                let (code, answer) = server.lock().expect("no panic").answer(&method, &body);
                let mut response = Response::new(Full::new(Bytes::from(answer.to_string())));
                *response.status_mut() = http::StatusCode::from_u16(code).expect("a status");
                Ok::<_, std::convert::Infallible>(response)
            }
        });
        kube::Client::new(service, "default")
    }

    fn candidate(server: &Shared, who: &'static str, keep: bool) -> (Running, CancellationToken) {
        let stop = CancellationToken::new();
        let mut election = Election::new("ns", "lock", who);
        election.lead_while_unreachable = keep;
        let clock = Arc::new(SimClock::starting_at(chrono::DateTime::UNIX_EPOCH));
        let env = Env::seeded(clock, 1);
        (run(election, client(server, who), env, stop.clone()), stop)
    }

    async fn until(running: &mut Running, leads: bool) -> Duration {
        let begun = Instant::now();
        let minute = Duration::from_secs(60);
        let waited = running.leading.wait_for(|now| *now == leads);
        tokio::time::timeout(minute, waited)
            .await
            .expect("in a minute")
            .expect("running");
        begun.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn one_leads_and_hands_over_when_it_stops() {
        let server = Shared::default();
        let (mut a, stop_a) = candidate(&server, "a", false);
        until(&mut a, true).await;
        let (mut b, stop_b) = candidate(&server, "b", false);
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert!(*a.leading.borrow() && !*b.leading.borrow());
        stop_a.cancel();
        a.task.await.expect("ends");
        assert!(
            until(&mut b, true).await <= Duration::from_secs(3),
            "released, not expired"
        );
        stop_b.cancel();
        b.task.await.expect("ends");
        let holder = server
            .lock()
            .expect("no panic")
            .lease
            .clone()
            .expect("kept");
        assert_eq!(holder["spec"]["holderIdentity"], "");
        assert_eq!(holder["spec"]["leaseTransitions"], 2);
    }

    /// What keeps a candidate from leading is told as it is: another one, or an error.
    #[tokio::test(start_paused = true)]
    async fn an_error_is_not_another_leader() {
        let server = Shared::default();
        server.lock().expect("no panic").nowhere = true;
        let (mut a, _stop_a) = candidate(&server, "a", false);
        let failing = |standing: &Standing| matches!(standing, Standing::Failing(_));
        let told = a.standing.wait_for(failing).await.expect("running").clone();
        let Standing::Failing(problem) = told else {
            unreachable!("just seen")
        };
        assert_eq!(problem.code(), Some(404));
        assert!(problem.to_string().contains("namespaces \"ns\" not found"));
        assert!(!*a.leading.borrow());
        server.lock().expect("no panic").nowhere = false;
        until(&mut a, true).await;
        assert_eq!(*a.standing.borrow(), Standing::Leads);
        let (mut b, _stop_b) = candidate(&server, "b", false);
        let follows = Standing::Follows("a".into());
        let told = b.standing.wait_for(|standing| *standing == follows).await;
        told.expect("running");
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_that_is_cut_off_stops_before_another_begins() {
        let server = Shared::default();
        let (mut a, _stop_a) = candidate(&server, "a", false);
        until(&mut a, true).await;
        let (mut b, _stop_b) = candidate(&server, "b", false);
        tokio::time::sleep(Duration::from_secs(30)).await;
        server.lock().expect("no panic").cut.insert("a");
        let begun = Instant::now();
        b.near.wait_for(|near| *near).await.expect("running");
        let silent = begun.elapsed();
        assert!(
            silent >= Duration::from_secs(4) && *a.leading.borrow() && !*b.leading.borrow(),
            "{silent:?}"
        );
        let stopped = silent + until(&mut a, false).await;
        assert!(stopped <= Duration::from_secs(10), "{stopped:?}");
        assert!(
            !*a.near.borrow(),
            "it has to see first that nobody else leads"
        );
        assert!(!*b.leading.borrow(), "never two at once");
        until(&mut b, true).await;
        assert!(*b.near.borrow());
        server.lock().expect("no panic").cut.clear();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(!*a.leading.borrow() && *b.leading.borrow());
        assert!(!*a.near.borrow() && *b.near.borrow());
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_was_silent_and_renews_again_is_followed() {
        let server = Shared::default();
        let (mut a, _stop_a) = candidate(&server, "a", false);
        until(&mut a, true).await;
        let (mut b, _stop_b) = candidate(&server, "b", false);
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert!(!*b.near.borrow(), "it renews");
        server.lock().expect("no panic").cut.insert("a");
        b.near.wait_for(|near| *near).await.expect("running");
        server.lock().expect("no panic").cut.clear();
        b.near.wait_for(|near| !*near).await.expect("running");
        assert!(*a.leading.borrow() && !*b.leading.borrow());
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_that_gives_up_leads_again_once_it_sees_that_nobody_else_does() {
        let server = Shared::default();
        let (mut a, _stop_a) = candidate(&server, "a", true);
        until(&mut a, true).await;
        server.lock().expect("no panic").cut.insert("a");
        tokio::time::sleep(Duration::from_secs(3_600)).await;
        assert!(*a.leading.borrow());
        a.give_up.notify_one();
        // A question that is lost has its deadline of 4 s to run.
        assert!(until(&mut a, false).await <= Duration::from_secs(5));
        tokio::time::sleep(Duration::from_secs(3_600)).await;
        assert!(!*a.leading.borrow() && !*a.near.borrow());
        server.lock().expect("no panic").cut.clear();
        until(&mut a, true).await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_leader_goes_on_until_anothers_renewal_shows() {
        let server = Shared::default();
        let (mut a, _stop_a) = candidate(&server, "a", true);
        until(&mut a, true).await;
        let (mut b, _stop_b) = candidate(&server, "b", true);
        {
            let mut server = server.lock().expect("no panic");
            server.cut.extend(["a", "b"]);
        }
        tokio::time::sleep(Duration::from_secs(3_600)).await;
        assert!(*a.leading.borrow() && !*b.leading.borrow());
        server.lock().expect("no panic").cut.remove("b");
        until(&mut b, true).await;
        assert!(*a.leading.borrow(), "it cannot know");
        server.lock().expect("no panic").cut.remove("a");
        // A question lost just before has its deadline of 4 s to run, then comes a jittered pause.
        assert!(until(&mut a, false).await <= Duration::from_secs(7));
    }
}
