//! Whether the hub's API server calls itself ready: a full disk or a lost etcd shows here first.

use super::Finding;
use common::client::classify;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use kube::Client;
use kube::client::Body;
use std::time::Duration;

const STEP: &str = "readyz";
/// How long an answer may take; some checks of a sick server wait for their own deadlines.
const DEADLINE: Duration = Duration::from_secs(15);
/// More than the page of any server.
const MAX_BODY: usize = 64 << 10;

/// Asks for the page with every check by name.
pub(in crate::cli) async fn look(client: &Client) -> Finding {
    const HINT: &str = "The API server is stuck; look at its log.";
    match tokio::time::timeout(DEADLINE, ask(client)).await {
        Ok(Ok((status, page))) => judge(status, &page),
        Ok(Err(error)) => Finding::wrong(STEP, error, HINT),
        Err(_) => {
            let what = format!("no answer within {}s", DEADLINE.as_secs());
            Finding::wrong(STEP, what, HINT)
        }
    }
}

/// Why the hub's API server is not ready; none when it is, or when it does not say.
pub(in crate::cli) async fn not_ready(client: &Client) -> Option<String> {
    look(client).await.seen.err().map(|wrong| wrong.what)
}

async fn ask(client: &Client) -> Result<(StatusCode, String), String> {
    let request = Request::get("/readyz?verbose").body(Body::empty());
    let request = request.map_err(|e| e.to_string())?;
    let answer = client.send(request).await;
    let answer = answer.map_err(|e| classify(&e).to_string())?;
    let status = answer.status();
    let page = Limited::new(answer.into_body(), MAX_BODY).collect().await;
    let page = page.map_err(|e| e.to_string())?.to_bytes();
    Ok((status, String::from_utf8_lossy(&page).into_owned()))
}

/// Failed checks stand as `[-]name failed: why`.
fn judge(status: StatusCode, page: &str) -> Finding {
    if status.is_success() {
        return Finding::right(STEP, "ok");
    }
    if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
        // What this kubeconfig may do is looked at by itself.
        return Finding::right(STEP, "not shown to this kubeconfig");
    }
    let failed: Vec<&str> = page
        .lines()
        .filter_map(|line| line.trim().strip_prefix("[-]"))
        .collect();
    let what = match failed.is_empty() {
        true => format!("the API server answers {status}"),
        false => format!("the API server is not ready: {}", failed.join("; ")),
    };
    Finding::wrong(
        STEP,
        what,
        "Mend what it names on the hub: free some space if it is the store, else see the API server's log.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_checks_are_named() {
        let page = "[+]ping ok\n[-]store failed: no space left on device\n[-]etcd failed: reason \
                    withheld\nreadyz check failed\n";
        let sick = StatusCode::INTERNAL_SERVER_ERROR;
        let wrong = |status, page| judge(status, page).seen.map_err(|wrong| wrong.what);
        assert_eq!(wrong(StatusCode::OK, "ok"), Ok("ok".into()));
        assert_eq!(
            wrong(sick, page),
            Err(
                "the API server is not ready: store failed: no space left on device; \
                 etcd failed: reason withheld"
                    .into()
            )
        );
        assert!(wrong(sick, "").expect_err("sick").contains("500"));
        assert!(wrong(StatusCode::FORBIDDEN, "").is_ok());
    }
}
