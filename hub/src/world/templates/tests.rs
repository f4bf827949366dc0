//! Which kinds are watched, and in which version.

use super::super::World;
use super::super::testing::{nobody, unreachable};
use super::*;
use common::watch::WatchConfig;
use futures::FutureExt as _;
use kube::client::Body;
use serde_json::json;

fn gvk(api_version: &str) -> Gvk {
    Gvk::new(api_version, "Thing").expect("a kind")
}

#[test]
fn of_the_versions_that_are_wanted_the_preferred_one_comes_first() {
    let wanted = [
        "x.org/v1beta2",
        "x.org/v1",
        "x.org/v2alpha1",
        "y.org/v1alpha1",
    ]
    .map(gvk);
    let [beta, stable, alpha, other] = wanted.clone();
    let kinds = by_preference(wanted.iter());
    let chosen: Vec<Vec<Gvk>> = kinds.into_values().collect();
    assert_eq!(chosen, [vec![stable, beta, alpha], vec![other]]);
    let backwards = by_preference(wanted.iter().rev());
    assert!(backwards.into_values().eq(chosen));
}

/// An API server that says of these group versions that they have Things, and nothing to anything else.
#[derive(Clone, Default)]
struct Serving {
    versions: Arc<Mutex<BTreeSet<String>>>,
    asked: Arc<Mutex<usize>>,
}

impl Serving {
    fn serve(&self, api_version: &str) {
        lock(&self.versions).insert(api_version.to_owned());
    }

    /// Its answer to what is asked of a group version.
    fn answer(&self, path: &str) -> Option<http::Response<Body>> {
        let version = path.strip_prefix("/apis/")?;
        if version.matches('/').count() != 1 {
            return None;
        }
        *lock(&self.asked) += 1;
        let is_served = lock(&self.versions).contains(version);
        let body = json!({"resources": [
            {"name": "things", "kind": "Thing", "namespaced": true, "verbs": ["patch"]}]});
        let mut answer = http::Response::new(Body::from(body.to_string().into_bytes()));
        if !is_served {
            *answer.status_mut() = http::StatusCode::NOT_FOUND;
        }
        Some(answer)
    }

    /// Templates that are watched there.
    fn templates(&self) -> (Templates, JoinSet<()>) {
        let me = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let answer = me.answer(request.uri().path());
            async move {
                match answer {
                    Some(answer) => Ok::<_, std::io::Error>(answer),
                    None => std::future::pending().await,
                }
            }
        });
        let client = Client::new(service, "default");
        let chance = Chance::seeded(1);
        let templates = World::new(&client, &chance, Arc::default())
            .propagation
            .templates;
        let mut running = JoinSet::new();
        running.spawn(templates.clone().run(Metrics::unread(), chance));
        (templates, running)
    }
}

/// Paused time: all that can be done without waiting is done then.
async fn soon() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

fn watched_version(templates: &Templates) -> Option<Gvk> {
    let resource = templates.resource(&gvk("x.org/v1").group_kind());
    resource.map(|it| it.gvk.clone())
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_not_served_takes_the_watch_from_nobody() {
    let server = Serving::default();
    server.serve("x.org/v1");
    let (templates, _running) = server.templates();
    let ([one, two], none) = (["x.org/v1", "x.org/v2"].map(gvk), BTreeSet::new());
    let kind = one.group_kind();
    templates.want(&none, &[one.clone()].into());
    soon().await;
    assert_eq!(watched_version(&templates), Some(one.clone()));
    let view = templates.view(&kind).expect("watched");
    let thing = json!({"apiVersion": "x.org/v1", "kind": "Thing", "metadata": {"name": "a", "uid": "u", "resourceVersion": "1"}});
    view.sent(&[thing]).await;
    assert_eq!(view.len(), 1);
    templates.want(&none, &[two.clone()].into());
    soon().await;
    assert_eq!(watched_version(&templates), Some(one.clone()));
    assert!(!templates.is_synced(&kind), "its list never came");
    server.serve("x.org/v2");
    let crd = json!({"metadata": {"name": "things.x.org", "resourceVersion": "1"}});
    templates.0.definitions.sent(&[crd]).await;
    soon().await;
    assert_eq!(watched_version(&templates), Some(two.clone()), "it came");
    assert_eq!(view.len(), 0, "what is held of the other version is gone");
    templates.want(&[two].into(), &none);
    soon().await;
    assert_eq!(
        watched_version(&templates),
        Some(one.clone()),
        "it is not wanted"
    );
    templates.want(&[one].into(), &none);
    soon().await;
    assert_eq!(watched_version(&templates), None);
}

#[tokio::test(start_paused = true)]
async fn a_kind_of_which_no_version_is_served_has_no_templates() {
    let (templates, _running) = Serving::default().templates();
    let wanted = ["x.org/v1", "x.org/v2"].map(gvk);
    templates.want(&BTreeSet::new(), &wanted.clone().into());
    templates.synced().await;
    assert!(templates.is_synced(&wanted[0].group_kind()));
}

/// A kind that is watched, by a watch that a test speaks for.
fn begin(templates: &Templates, gvk: &Gvk) -> View<Template> {
    let resource = Arc::new(Resource {
        gvk: gvk.clone(),
        plural: "things".into(),
        namespaced: true,
    });
    let config = WatchConfig::new(&templates.0.chance);
    let view = View::of_kind(nobody(), "templates", &resource, config);
    let kind = Kind {
        resource,
        view: view.clone(),
        task: tokio::spawn(std::future::ready(())).abort_handle(),
    };
    templates.kinds().insert(gvk.group_kind(), kind);
    view
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_comes_later_than_its_definition_is_looked_for_and_not_for_ever() {
    let server = Serving::default();
    let (templates, _running) = server.templates();
    templates.want(&BTreeSet::new(), &["x.org/v1", "y.org/v1"].map(gvk).into());
    soon().await;
    let crd = json!({"metadata": {"name": "things.x.org", "resourceVersion": "1"}});
    templates.0.definitions.sent(&[crd]).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(watched_version(&templates), None);
    server.serve("x.org/v1");
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(watched_version(&templates), Some(gvk("x.org/v1")));
    tokio::time::sleep(Duration::from_secs(60)).await;
    let asked = *lock(&server.asked);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(*lock(&server.asked), asked, "y.org/v1 does not come");
}

#[tokio::test]
async fn templates_are_known_when_each_kind_that_is_served_was_listed() {
    let templates = unreachable().propagation.templates;
    templates.synced().await;
    let wanted = ["x.org/v1", "y.org/v1"].map(gvk);
    templates.want(&BTreeSet::new(), &wanted.clone().into());
    let mut synced = Box::pin(templates.synced());
    assert_eq!(synced.as_mut().now_or_never(), None, "nobody looked");
    let view = begin(&templates, &wanted[0]);
    templates.unserved().insert(wanted[1].group_kind());
    templates.0.begun.send_modify(|count| *count += 1);
    assert_eq!(synced.as_mut().now_or_never(), None, "nothing was listed");
    view.listed(&[]).await;
    synced.await;
}
