//! Everything that the hub and its members store, event by event, in the order of its commits.
//!
//! Watches tell of one collection each. What they tell within a millisecond is put in order by the version of the
//! store before it is looked at; of members, what an agent did comes after what the hub told it.

use super::books::{Books, Event, Key};
use crate::apiserver::http::Link;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use serde_json::Value;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

/// What is watched on the hub: kind and collection.
pub(super) const OF_HUB: [(&str, &str); 12] = [
    ("Cluster", "/apis/cluster.karmada.io/v1alpha1/clusters"),
    (
        "Lease",
        "/apis/coordination.k8s.io/v1/namespaces/karmada-cluster/leases",
    ),
    ("Work", "/apis/work.karmada.io/v1alpha1/works"),
    (
        "ResourceBinding",
        "/apis/work.karmada.io/v1alpha2/resourcebindings",
    ),
    (
        "ClusterResourceBinding",
        "/apis/work.karmada.io/v1alpha2/clusterresourcebindings",
    ),
    (
        "PropagationPolicy",
        "/apis/policy.karmada.io/v1alpha1/propagationpolicies",
    ),
    (
        "ClusterPropagationPolicy",
        "/apis/policy.karmada.io/v1alpha1/clusterpropagationpolicies",
    ),
    (
        "OverridePolicy",
        "/apis/policy.karmada.io/v1alpha1/overridepolicies",
    ),
    ("Deployment", "/apis/apps/v1/deployments"),
    ("ConfigMap", "/api/v1/configmaps"),
    ("Namespace", "/api/v1/namespaces"),
    (
        "CertificateSigningRequest",
        "/apis/certificates.k8s.io/v1/certificatesigningrequests",
    ),
];
/// What is watched in members.
pub(super) const OF_MEMBER: [(&str, &str); 3] = [
    ("Lease", "/apis/coordination.k8s.io/v1/leases"),
    ("Deployment", "/apis/apps/v1/deployments"),
    ("ConfigMap", "/api/v1/configmaps"),
];

/// Before a watch that ended at once is begun anew.
const PAUSE: Duration = Duration::from_millis(100);

/// What was told and not looked at yet.
#[derive(Default)]
struct Told {
    hub: BTreeMap<u64, Vec<Event>>,
    members: Vec<(String, Event)>,
    /// The last version told of a collection of the hub.
    seen: BTreeMap<&'static str, u64>,
}

/// Clones share it.
#[derive(Clone)]
pub(super) struct Ledger {
    told: Rc<RefCell<Told>>,
    books: Rc<RefCell<Books>>,
    news: Rc<Notify>,
}

impl Ledger {
    pub(super) fn new(lag: Duration) -> Self {
        Self {
            told: Rc::default(),
            books: Rc::new(RefCell::new(Books::new(Instant::now(), lag))),
            news: Rc::default(),
        }
    }

    /// Looks at what was stored until now.
    pub(super) fn look<T>(&self, look: impl FnOnce(&mut Books) -> T) -> T {
        look(&mut self.books.borrow_mut())
    }

    /// Follows a collection of the hub, from where it was left.
    pub(super) async fn follow_hub(self, link: Link, kind: &'static str, path: &'static str) {
        let since = self.told.borrow().seen.get(kind).copied().unwrap_or(0);
        let me = self.clone();
        events(link, path, since, move |version, event, object| {
            let mut told = me.told.borrow_mut();
            let seen = told.seen.entry(kind).or_default();
            *seen = (*seen).max(version);
            let event = Event::new(kind, event, object);
            told.hub.entry(version).or_default().push(event);
            me.news.notify_one();
        })
        .await;
    }

    /// Follows a collection of a member.
    pub(super) async fn follow_member(
        self,
        member: String,
        link: Link,
        kind: &'static str,
        path: &'static str,
    ) {
        let me = self.clone();
        events(link, path, 0, move |_, event, object| {
            let event = (member.clone(), Event::new(kind, event, object));
            me.told.borrow_mut().members.push(event);
            me.news.notify_one();
        })
        .await;
    }

    /// Looks at everything that is told, for ever.
    pub(super) async fn keep(self) {
        loop {
            self.news.notified().await;
            sleep(Duration::from_millis(1)).await;
            let (hub, members) = {
                let mut told = self.told.borrow_mut();
                (
                    std::mem::take(&mut told.hub),
                    std::mem::take(&mut told.members),
                )
            };
            let mut books = self.books.borrow_mut();
            for event in hub.into_values().flatten() {
                books.of_hub(event);
            }
            for (member, event) in members {
                books.of_member(&member, event);
            }
        }
    }

    /// A user does in a member what an agent must not.
    pub(super) fn meddles(&self, member: &str, key: &Key) {
        self.look(|books| books.meddled(member, key));
    }
}

/// Tells every event of a collection after a version. A watch that ends in order is begun anew.
async fn events(link: Link, path: &str, mut since: u64, mut tell: impl FnMut(u64, &str, Value)) {
    loop {
        let began = Instant::now();
        let request = Request::get(format!("{path}?watch=1&resourceVersion={since}"));
        let request = request.body(Full::new(Bytes::new())).expect("a request");
        let Ok(answer) = tower::ServiceExt::oneshot(link.clone(), request).await;
        let mut body = answer.into_body();
        let mut rest: Vec<u8> = Vec::new();
        let mut is_over = false;
        while let Some(Ok(frame)) = body.frame().await {
            let Ok(data) = frame.into_data() else {
                continue;
            };
            rest.extend_from_slice(&data);
            while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = rest.drain(..=end).collect();
                let mut event: Value = serde_json::from_slice(&line).expect("an event");
                let kind = event["type"].as_str().unwrap_or_default().to_owned();
                if kind == "ERROR" {
                    // Renewals are not in the history that outlives a hub: they are listed anew.
                    assert!(path.ends_with("/leases"), "{path}: {event}");
                    since = 0;
                    is_over = true;
                    break;
                }
                let object = event["object"].take();
                let version = object.pointer("/metadata/resourceVersion");
                let version = version.and_then(|it| it.as_str()?.parse().ok());
                since = since.max(version.unwrap_or(0));
                if kind != "BOOKMARK" {
                    tell(version.unwrap_or(0), &kind, object);
                }
            }
        }
        // A server that was killed ends whatever it is asked. Any other is asked at once: what is heard later than the
        // hub hears it would seem to have happened later.
        if !is_over && began.elapsed() < PAUSE {
            sleep(PAUSE).await;
        }
    }
}
