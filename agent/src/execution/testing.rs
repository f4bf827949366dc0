//! What tests of the parts share: handles over one state, and APIs by script.

use super::Scope;
use super::contact::Contact;
use super::events::Events;
use super::persist::Persister;
use super::prune::Pruner;
use super::report::reporter::Reporter;
use super::state::Shared;
use super::stored::place::Place;
use super::wire::WireWork;
use super::writes::WorkWriter;
use crate::context::ErrorReport;
use crate::member::api::Member;
use crate::testing::{bytes, context, json as answer, service};
use common::chance::Chance;
use common::queue::Queue;
use common::reserved::Reserved;
use common::time::{SharedClock, SimClock};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;
use tokio::sync::Semaphore;

/// What a scripted API was asked: "METHOD path?query", and the body.
pub(crate) type Asked = Arc<Mutex<Vec<(String, Value)>>>;

/// A client whose requests `script` answers: status and body; what it does not know is not found. The kinds
/// ConfigMap, Namespace and Deployment are served.
pub(crate) fn scripted(
    script: impl Fn(&str) -> Option<(u16, Value)> + Clone + Send + Sync + 'static,
) -> (kube::Client, Asked) {
    let asked = Asked::default();
    let log = asked.clone();
    let client = service(move |request| {
        let (script, log) = (script.clone(), log.clone());
        async move {
            let line = format!("{} {}", request.method(), request.uri());
            let body = serde_json::from_str(&bytes(request.into_body()).await);
            let kind = |name: &str, kind: &str, namespaced: bool| {
                json!({"name": name, "kind": kind, "namespaced": namespaced,
                    "verbs": ["list", "patch"]})
            };
            let known = match line.as_str() {
                "GET /api/v1" => Some(json!({"resources": [
                    kind("configmaps", "ConfigMap", true), kind("namespaces", "Namespace", false)]})),
                "GET /apis/apps/v1" => {
                    Some(json!({"resources": [kind("deployments", "Deployment", true)]}))
                }
                "GET /apis" => Some(json!({"groups": []})),
                _ => None,
            };
            if let Some(known) = known {
                return answer(200, &known);
            }
            let (code, value) = script(&line).unwrap_or_else(|| refusal(404, "NotFound"));
            let mut log = log.lock().expect("nobody panics here");
            log.push((line, body.unwrap_or_default()));
            answer(code, &value)
        }
    });
    (client, asked)
}

/// An API server's refusal.
pub(crate) fn refusal(code: u16, reason: &str) -> (u16, Value) {
    let body = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
        "reason": reason, "message": reason});
    (code, body)
}

/// The lines of what was asked.
pub(crate) fn lines(asked: &Asked) -> Vec<String> {
    let asked = asked.lock().expect("nobody panics here");
    asked.iter().map(|(line, _)| line.clone()).collect()
}

/// A Work as the hub sends it, with our finalizer.
pub(crate) fn wire(name: &str, uid: &str, manifests: &[Value]) -> WireWork {
    serde_json::from_value(json!({
        "metadata": {"name": name, "uid": uid, "resourceVersion": "5", "generation": 1,
            "finalizers": [common::labels::WORK_FINALIZER]},
        "spec": {"workload": {"manifests": manifests}},
    }))
    .expect("decodes")
}

/// What a Work carries for objects of the kind Till of `shop.example.com/v1`: scripts by the names of operations.
pub(crate) fn scripts(of: &[(&str, &str)]) -> String {
    let one = |(operation, text): &(&str, &str)| {
        let script = json!({"customization": "tills", "luaScript": text});
        ((*operation).to_owned(), script)
    };
    let scripts: serde_json::Map<String, Value> = of.iter().map(one).collect();
    json!({"apiVersion": "shop.example.com/v1", "kind": "Till", "scripts": scripts}).to_string()
}

/// A ConfigMap as a manifest.
pub(crate) fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "n", "name": name}})
}

/// A ConfigMap of the member that carries the marks of a Work.
pub(crate) fn marked(name: &str, uid: &str, work: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "n", "name": name,
        "uid": uid, "resourceVersion": "9", "labels": {"karmada.io/managed": "true"},
        "annotations": {"work.karmada.io/namespace": "karmada-es-m1", "work.karmada.io/name": work}}})
}

/// The handles that parts are made of.
pub(crate) struct Handles {
    pub(crate) scope: Scope,
    pub(crate) state: Shared,
    pub(crate) queue: Queue<Arc<str>>,
    pub(crate) clock: SharedClock,
    pub(crate) errors: ErrorReport,
    pub(crate) events: Arc<Events>,
    pub(crate) contact: Arc<Contact>,
    pub(crate) member: Arc<Member>,
    pub(crate) persister: Arc<Persister>,
    pub(crate) pruner: Arc<Pruner>,
    pub(crate) reporter: Arc<Reporter>,
    /// Where the stored set lies.
    pub(crate) directory: TempDir,
}

impl Handles {
    /// Handles over two APIs; the hub answers.
    pub(crate) async fn new(hub: kube::Client, member: kube::Client) -> Self {
        let context = context(hub, member.clone()).await;
        let base = chrono::DateTime::from_timestamp(1_700_000_000, 0).expect("in range");
        let clock: SharedClock = Arc::new(SimClock::starting_at(base));
        let scope = Scope {
            cluster: "m1".into(),
            namespace: "karmada-es-m1".into(),
        };
        let (state, queue) = (Shared::default(), Queue::new());
        let permits = Arc::new(Semaphore::new(4));
        let reserved = Reserved::new("towline-system", [""; 0]).expect("sound");
        let directory = tempfile::tempdir().expect("a directory");
        let events = Arc::new(Events::new(clock.clone()));
        let contact = Arc::new(Contact::default());
        contact.answered();
        let member = Arc::new(Member::new(member, permits.clone(), reserved));
        let errors = ErrorReport::default();
        let persister = Arc::new(Persister::new(
            scope.namespace.clone(),
            Place::Directory(directory.path().to_owned()),
            permits,
            state.clone(),
            errors.clone(),
            Chance::seeded(1),
        ));
        let pruner = Arc::new(Pruner {
            scope: scope.clone(),
            member: member.clone(),
            state: state.clone(),
            queue: queue.clone(),
            persister: persister.clone(),
            events: events.clone(),
        });
        let writer = Arc::new(WorkWriter {
            namespace: scope.namespace.clone(),
            hub: context.hub.clone(),
            contact: contact.clone(),
            state: state.clone(),
            clock: clock.clone(),
        });
        let reporter = Arc::new(Reporter {
            scope: scope.clone(),
            state: state.clone(),
            works: writer,
            contact: contact.clone(),
            events: events.clone(),
            queue: Queue::new(),
        });
        Self {
            scope,
            state,
            queue,
            clock,
            errors,
            events,
            contact,
            member,
            persister,
            pruner,
            reporter,
            directory,
        }
    }

    /// Handles over APIs that know nothing.
    pub(crate) async fn alone() -> Self {
        Self::new(scripted(|_| None).0, scripted(|_| None).0).await
    }

    /// Has the state know a Work.
    pub(crate) fn knows(&self, work: &WireWork) -> Arc<str> {
        self.state.lock().upsert(work).0
    }

    /// What waits for a worker, in turn.
    pub(crate) fn queued(&self) -> Vec<String> {
        let names = std::iter::from_fn(|| self.queue.try_next());
        names.map(|name| name.to_string()).collect()
    }
}
