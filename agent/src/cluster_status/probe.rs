//! Asks the member's API server whether it is healthy, and what the answer means.

use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde::Deserialize;
use std::time::Duration;

/// One question to the member must be answered within this, a tick being 10 s.
const DEADLINE: Duration = Duration::from_secs(5);
/// More than `/version` ever is.
const MAX_BODY: usize = 64 << 10;

/// What the health endpoint said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// No answer in time, or an answer that is an error.
    Failed,
    /// An answer in the 2xx range.
    Ok(StatusCode),
}

/// What an answer means for the condition Ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Health {
    /// Whether the member takes workloads.
    pub ready: bool,
    /// Reason of the condition.
    pub reason: &'static str,
    /// Message of the condition.
    pub message: &'static str,
}

impl Answer {
    /// Judges an answer.
    pub fn health(self) -> Health {
        match self {
            Self::Ok(StatusCode::OK) => Health {
                ready: true,
                reason: "ClusterReady",
                message: "cluster is healthy and ready to accept workloads",
            },
            Self::Ok(_) => Health {
                ready: false,
                reason: "ClusterNotReady",
                message: "cluster is reachable but health endpoint responded without ok",
            },
            Self::Failed => Health {
                ready: false,
                reason: "ClusterNotReachable",
                message: "cluster is not reachable",
            },
        }
    }
}

/// Asks `/readyz`, or `/healthz` where there is no `/readyz`.
pub async fn health(member: &Client) -> Answer {
    match status_of(member, "/readyz").await {
        Some(StatusCode::NOT_FOUND) => answer(status_of(member, "/healthz").await),
        status => answer(status),
    }
}

fn answer(status: Option<StatusCode>) -> Answer {
    match status {
        Some(status) if status.is_success() => Answer::Ok(status),
        Some(_) | None => Answer::Failed,
    }
}

async fn status_of(member: &Client, path: &str) -> Option<StatusCode> {
    let request = Request::get(path).body(Body::empty()).ok()?;
    let asked = async {
        let response = member.send(request).await.ok()?;
        let status = response.status();
        // Read to the end, so that the connection can be used again.
        let body = http_body_util::Limited::new(response.into_body(), MAX_BODY);
        body.collect().await.ok()?;
        Some(status)
    };
    tokio::time::timeout(DEADLINE, asked).await.ok()?
}

/// The member's version, such as `v1.36.3`; none when it cannot be had.
pub async fn version(member: &Client) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Version {
        git_version: String,
    }
    let request = Request::get("/version").body(Vec::new()).ok()?;
    let asked = member.request::<Version>(request);
    let version = tokio::time::timeout(DEADLINE, asked).await.ok()?.ok()?;
    Some(version.git_version)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    /// A member that answers every path by `answers`, 404 elsewhere.
    fn member(answers: &'static [(&'static str, u16)]) -> Client {
        let service = tower::service_fn(move |request: Request<Body>| async move {
            let path = request.uri().path().to_owned();
            let found = answers
                .iter()
                .find(|(p, _)| *p == path)
                .map_or(404, |(_, code)| *code);
            let body = r#"{"gitVersion":"v1.36.3","major":"1"}"#.as_bytes().to_vec();
            let response = http::Response::builder()
                .status(found)
                .body(Body::from(body));
            Ok::<_, Infallible>(response.expect("a response"))
        });
        Client::new(service, "default")
    }

    #[tokio::test]
    async fn answers_become_reasons() {
        let cases: [(&'static [(&'static str, u16)], &str); 6] = [
            (&[("/readyz", 200)], "ClusterReady"),
            (&[("/healthz", 200)], "ClusterReady"),
            (
                &[("/readyz", 500), ("/healthz", 200)],
                "ClusterNotReachable",
            ),
            (&[("/readyz", 204)], "ClusterNotReady"),
            (&[("/readyz", 403)], "ClusterNotReachable"),
            (&[], "ClusterNotReachable"),
        ];
        for (answers, reason) in cases {
            let health = health(&member(answers)).await.health();
            assert_eq!(health.reason, reason, "{answers:?}");
            assert_eq!(health.ready, reason == "ClusterReady");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_not_waited_for() {
        let service = tower::service_fn(|_: Request<Body>| std::future::pending());
        let silent: tower::util::BoxCloneService<Request<Body>, http::Response<Body>, Infallible> =
            tower::util::BoxCloneService::new(service);
        let start = tokio::time::Instant::now();
        assert_eq!(
            health(&Client::new(silent, "default")).await,
            Answer::Failed
        );
        assert!(start.elapsed() <= DEADLINE);
    }

    #[tokio::test]
    async fn version_is_read() {
        let known = version(&member(&[("/version", 200)])).await;
        assert_eq!(known.as_deref(), Some("v1.36.3"));
        assert_eq!(version(&member(&[])).await, None);
    }
}
