//! One list of many clusters: so many asked at a time, each for so long, in so much memory. A cluster is in the list
//! with all that it has, or is named.

use super::Body;
use super::listed::Listed;
use super::merged::{Merged, NO_ROOM, Part};
use common::errors::chain;
use futures::{StreamExt as _, stream};
use http::{Response, StatusCode, Uri};
use http_body_util::BodyExt as _;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until, timeout};

/// Clusters that are asked at the same time.
const AT_ONCE: usize = 32;
/// How long each may take.
const EACH: Duration = Duration::from_secs(5);
/// Bytes of all answers together, as they come and as they are written, and of one page.
const ALL: usize = 64 * 1024 * 1024;
const PAGE: usize = 32 * 1024 * 1024;

/// Such lists of one user at once.
pub const LISTS_OF_USER: usize = 2;
/// Such lists of all users at once.
pub const LISTS: usize = 4;

/// Why a cluster is not in the list.
#[derive(Debug, thiserror::Error)]
pub enum Missing {
    /// Whoever asks has no right to reach it.
    #[error("no right to clusters/proxy")]
    Refused,
    /// Anything else, in words.
    #[error("{0}")]
    Because(String),
}

impl From<super::Failure> for Missing {
    fn from(failure: super::Failure) -> Self {
        Self::Because(match failure {
            super::Failure::NoTunnel(_) => "it has no tunnel to this hub".to_owned(),
            other => other.to_string(),
        })
    }
}

/// Asks all of these clusters for a list, until a time; `ask` sends one request to one of them.
pub async fn gather<F>(
    listed: &Listed,
    clusters: BTreeSet<String>,
    until: Instant,
    ask: impl Fn(String, Uri) -> F,
) -> Merged
where
    F: Future<Output = Result<Response<Body>, Missing>>,
{
    let room = Room(Arc::new(AtomicUsize::new(ALL)));
    let mut left = clusters.clone();
    let asked = clusters.into_iter().map(|cluster| {
        let (ask, room) = (&ask, room.clone());
        async move {
            let answer = timeout(EACH, one(listed, &cluster, room, ask)).await;
            let late = || Missing::Because(format!("no answer within {} s", EACH.as_secs()));
            (cluster, answer.unwrap_or_else(|_| Err(late())))
        }
    });
    let answers = stream::iter(asked).buffer_unordered(AT_ONCE);
    let answers = answers.take_until(sleep_until(until));
    let mut answers = std::pin::pin!(answers);
    let mut merged = Merged::new(listed.form);
    while let Some((cluster, answer)) = answers.next().await {
        left.remove(&cluster);
        match answer {
            Ok(part) => merged.found(cluster, part),
            Err(Missing::Refused) => merged.refused(cluster),
            Err(Missing::Because(why)) => merged.missing(cluster, &why),
        }
    }
    for cluster in left {
        merged.missing(cluster, "there was no time left to ask it");
    }
    merged.agree();
    write(&mut merged).await;
    merged
}

/// Writes the whole list.
async fn write(merged: &mut Merged) {
    let clusters: Vec<String> = merged.clusters().map(str::to_owned).collect();
    let mut written = merged.begin(ALL);
    for cluster in clusters {
        merged.write(&cluster, &mut written);
        // Others are served meanwhile.
        yield_now().await;
    }
    merged.ends(written);
}

/// All that one cluster has.
async fn one<F>(
    listed: &Listed,
    cluster: &str,
    room: Room,
    ask: &impl Fn(String, Uri) -> F,
) -> Result<Part, Missing>
where
    F: Future<Output = Result<Response<Body>, Missing>>,
{
    let mut taken = Taken { room, bytes: 0 };
    let mut part = Part::default();
    let mut token = None;
    loop {
        let uri = listed.uri(token.as_deref());
        let uri =
            uri.ok_or_else(|| Missing::Because("it answered no token of a page".to_owned()))?;
        let answer = ask(cluster.to_owned(), uri).await?;
        let code = answer.status();
        let page = read(answer.into_body(), &mut taken).await?;
        if code != StatusCode::OK {
            return Err(Missing::Because(said(code, &page)));
        }
        let next = part.add(listed.form, &page);
        token = next.map_err(|error| Missing::Because(chain(&error).to_string()))?;
        if token.is_none() {
            taken.keep();
            return Ok(part);
        }
    }
}

/// What a server says that does not answer.
fn said(code: StatusCode, body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Status {
        message: String,
    }
    match serde_json::from_slice::<Status>(body) {
        Ok(status) => status.message,
        Err(_) => format!("it answered {code}"),
    }
}

async fn read(mut body: Body, taken: &mut Taken) -> Result<Vec<u8>, Missing> {
    let mut page = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Missing::Because("its answer broke off".to_owned()))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if page.len() + data.len() > PAGE || !taken.more(data.len()) {
            return Err(Missing::Because(NO_ROOM.to_owned()));
        }
        page.extend_from_slice(&data);
    }
    Ok(page)
}

/// Bytes that are left for answers. Clones share them.
#[derive(Clone)]
struct Room(Arc<AtomicUsize>);

/// What one cluster has of them; it gives them back unless they are kept.
struct Taken {
    room: Room,
    bytes: usize,
}

impl Taken {
    fn more(&mut self, bytes: usize) -> bool {
        let less = |left: usize| left.checked_sub(bytes);
        let taken = self
            .room
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        self.bytes += if taken.is_ok() { bytes } else { 0 };
        taken.is_ok()
    }

    fn keep(&mut self) {
        self.bytes = 0;
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.room.0.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::super::listed::Form;
    use super::*;
    use bytes::Bytes;
    use futures::future::pending;
    use http::Method;
    use http_body_util::Full;
    use serde_json::{Value, json};
    use std::sync::Mutex;

    fn listed() -> Listed {
        let uri = "/api/v1/pods".parse().expect("an address");
        Listed::read(&Method::GET, &uri, Form::Objects).expect("a list")
    }

    fn answer(code: u16, body: impl Into<Bytes>) -> Response<Body> {
        let body = Full::new(body.into()).map_err(|never| match never {});
        let mut response = Response::new(body.boxed_unsync());
        *response.status_mut() = StatusCode::from_u16(code).expect("a status");
        response
    }

    fn page(name: &str, more: &str) -> String {
        json!({"kind": "PodList", "apiVersion": "v1", "metadata": {"continue": more},
            "items": [{"metadata": {"name": name}}]})
        .to_string()
    }

    fn clusters(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn names(merged: &Merged) -> Vec<(String, String)> {
        let list: Value = serde_json::from_slice(&merged.text()).expect("JSON");
        let items = list["items"].as_array().expect("items");
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        let of = |item: &Value| {
            let metadata = &item["metadata"];
            let from = &metadata["annotations"]["resource.karmada.io/cached-from-cluster"];
            (text(from), text(&metadata["name"]))
        };
        items.iter().map(of).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn each_is_there_with_all_it_has_or_is_named() {
        let until = Instant::now() + Duration::from_secs(60);
        let all = clusters(&[
            "broken", "denied", "fine", "gone", "lost", "odd", "other", "slow",
        ]);
        let ask = async |cluster: String, uri: Uri| match cluster.as_str() {
            "fine" if uri.query() == Some("limit=500") => Ok(answer(200, page("a", "2"))),
            "fine" => {
                assert_eq!(uri.query(), Some("limit=500&continue=2"));
                Ok(answer(200, page("b", "")))
            }
            // Its first page is there, and is not in the list.
            "broken" if uri.query() == Some("limit=500") => Ok(answer(200, page("x", "2"))),
            "broken" => Ok(answer(500, "oops")),
            "denied" => Ok(answer(
                403,
                json!({"message": "User \"ann\" cannot list"}).to_string(),
            )),
            "gone" => Err(super::super::Failure::NoTunnel("gone".into()).into()),
            "lost" => Ok(answer(200, "{\"items\": [")),
            "odd" => Ok(answer(200, r#"{"kind": "PodList", "items": ["x"]}"#)),
            "other" => Err(Missing::Refused),
            _ => pending().await,
        };
        let merged = gather(&listed(), all, until, ask).await;
        let found = |name: &str| ("fine".to_owned(), name.to_owned());
        assert_eq!(names(&merged), [found("a"), found("b")]);
        let warnings = merged.warnings(true);
        for (cluster, why) in [
            ("broken", "it answered 500"),
            ("denied", "User \"ann\" cannot list"),
            ("gone", "it has no tunnel to this hub"),
            ("lost", "its answer is no list"),
            ("odd", "something in its answer is no object"),
            ("other", "you have no right"),
            ("slow", "no answer within 5 s"),
        ] {
            let named = format!("cluster {cluster} is missing: {why}");
            assert!(
                warnings.iter().any(|it| it.starts_with(&named)),
                "{named} in {warnings:?}"
            );
        }
        assert_eq!(warnings.len(), 7);
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_are_asked_at_a_time_and_until_a_time() {
        let began = Instant::now();
        let until = began + Duration::from_secs(12);
        let all: BTreeSet<String> = (0..1_000).map(|n| format!("m{n:04}")).collect();
        let (now, most) = (AtomicUsize::new(0), Mutex::new(0));
        let ask = async |_: String, _: Uri| {
            let many = now.fetch_add(1, Ordering::Relaxed) + 1;
            {
                let mut most = most.lock().expect("unpoisoned");
                *most = many.max(*most);
            }
            let _leaves = Leaves(&now);
            pending().await
        };
        let merged = gather(&listed(), all, until, ask).await;
        assert_eq!(*most.lock().expect("unpoisoned"), AT_ONCE);
        assert_eq!(now.load(Ordering::Relaxed), 0, "nothing is left under way");
        assert_eq!(began.elapsed(), Duration::from_secs(12));
        let failed = merged.failed().expect("nobody answered");
        assert!(
            failed.starts_with("none of 1000 clusters answered"),
            "{failed}"
        );
    }

    struct Leaves<'a>(&'a AtomicUsize);

    impl Drop for Leaves<'_> {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Pages without end are given up, and what they took is for others.
    #[tokio::test(start_paused = true)]
    async fn what_one_has_is_bounded_and_given_back() {
        let until = Instant::now() + Duration::from_secs(60);
        let long = json!({"kind": "PodList", "metadata": {"continue": "more"}, "items": [{"x": "x".repeat(1 << 20)}]});
        let long = Bytes::from(long.to_string());
        let pages = AtomicUsize::new(0);
        let ask = async |cluster: String, _: Uri| match cluster.as_str() {
            "endless" => {
                pages.fetch_add(1, Ordering::Relaxed);
                Ok(answer(200, long.clone()))
            }
            _ => Ok(answer(200, page("a", ""))),
        };
        let merged = gather(&listed(), clusters(&["endless", "fine"]), until, ask).await;
        assert!(
            pages.load(Ordering::Relaxed) <= ALL >> 20,
            "{pages:?} pages"
        );
        assert_eq!(merged.clusters().collect::<Vec<_>>(), ["fine"]);
        assert!(merged.warnings(true)[0].contains("longer than there is room for"));
        let room = Room(Arc::new(AtomicUsize::new(10)));
        let mut taken = Taken {
            room: room.clone(),
            bytes: 0,
        };
        assert!(taken.more(6) && !taken.more(5) && taken.more(4));
        drop(taken);
        assert_eq!(room.0.load(Ordering::Relaxed), 10);
    }
}
