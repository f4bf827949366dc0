//! Which kinds are watched, and in which version.

use super::super::World;
use super::super::testing::unreachable;
use super::*;
use futures::FutureExt as _;
use kube::client::Body;
use serde_json::json;
use std::time::Duration;

fn gvk(api_version: &str) -> Gvk {
    Gvk::new(api_version, "Thing").expect("a kind")
}

#[test]
fn a_binding_names_a_template_beside_it_or_none() {
    // The namespace of the binding, that of what it names, and whether that is its template.
    let cases = [
        (Some("n"), Some("n"), true),
        (Some("n"), Some("other"), false),
        (Some("n"), Some(""), false),
        (Some("n"), None, false),
        (None, Some("n"), false),
        (None, Some(""), true),
        (None, None, true),
    ];
    for (namespace, named, is_its) in cases {
        let mut binding = Binding {
            namespace: namespace.map(str::to_owned),
            ..Binding::default()
        };
        binding.spec.resource = ObjectReference {
            api_version: "x.org/v1".into(),
            kind: "Thing".into(),
            namespace: named.map(str::to_owned),
            name: "a".into(),
            ..ObjectReference::default()
        };
        let wanted = is_its.then(|| TemplateName {
            kind: gvk("x.org/v1").group_kind(),
            name: ObjectName::new(namespace, "a"),
        });
        let found = TemplateName::of_binding(&binding);
        assert_eq!(found, wanted, "{namespace:?} {named:?}");
    }
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

fn is_watched(templates: &Templates, gvk: &Gvk) -> bool {
    templates.resource(&gvk.group_kind()).is_some()
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

impl Templates {
    /// A kind that is watched, by a watch that a test speaks for.
    pub(crate) fn told_of(&self, gvk: &Gvk) -> View<Template> {
        let resource = Arc::new(Resource {
            gvk: gvk.clone(),
            plural: "things".into(),
            namespaced: true,
        });
        let (kind, chance) = (gvk.group_kind(), &self.0.chance);
        // They end with this, before the first of them asks anybody.
        let mut tasks = JoinSet::new();
        self.watch(
            kind.clone(),
            resource,
            &mut tasks,
            &Metrics::unread(),
            chance,
        );
        self.view(&kind).expect("watched")
    }
}

#[tokio::test]
async fn the_first_list_of_a_kind_wakes_its_bindings_also_where_it_comes_late() {
    let late = Some(Duration::from_secs(60));
    for gap in [None, late] {
        let views = unreachable().propagation;
        let woken = Arc::new(Mutex::new(Vec::new()));
        let to = Arc::clone(&woken);
        views.on_templates_listed(move |binding| lock(&to).push(binding.to_string()));
        let binding = |name: &str, kind: &str| {
            json!({"metadata": {"namespace": "n", "name": name, "resourceVersion": "1"}, "spec": {
                "resource": {"apiVersion": "x.org/v1", "kind": kind, "namespace": "n", "name": name}}})
        };
        let bindings = [binding("a", "Thing"), binding("b", "Other")];
        views.bindings.listed(&bindings).await;
        let view = views.templates.told_of(&gvk("x.org/v1"));
        view.listed_after(gap, &[]).await;
        assert_eq!(*lock(&woken), ["n/a"], "{gap:?}");
        // What was lost on the way is told by itself.
        for gap in [late, None] {
            view.listed_after(gap, &[]).await;
        }
        assert_eq!(*lock(&woken), ["n/a"], "{gap:?}");
    }
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
    let view = templates.told_of(&wanted[0]);
    templates.unserved().insert(wanted[1].group_kind());
    templates.0.begun.send_modify(|count| *count += 1);
    assert_eq!(synced.as_mut().now_or_never(), None, "nothing was listed");
    view.listed(&[]).await;
    synced.await;
}

#[tokio::test(start_paused = true)]
async fn kinds_that_nobody_serves_are_asked_for_once_by_all_that_is_wanted() {
    let server = Serving::default();
    server.serve("z.org/v1");
    let (templates, _running) = server.templates();
    let asked = || *lock(&server.asked);
    let none = BTreeSet::new();
    // A hundred kinds of one group version, and as many group versions.
    let kinds = (0..100).map(|it| Gvk::new("y.org/v1", &format!("Thing{it}")).expect("a kind"));
    let groups = (0..100).map(|it| gvk(&format!("y{it}.org/v1")));
    templates.want(&none, &kinds.chain(groups).collect());
    templates.synced().await;
    assert_eq!(asked(), 101);
    let served = gvk("z.org/v1");
    let one: BTreeSet<Gvk> = [served.clone()].into();
    for _ in 0..10 {
        templates.want(&none, &one);
        soon().await;
        assert!(is_watched(&templates, &served));
        templates.want(&one, &none);
        soon().await;
        assert!(!is_watched(&templates, &served));
    }
    assert_eq!(asked(), 102);
}

#[tokio::test(start_paused = true)]
async fn what_is_served_waits_for_no_answer_about_something_else() {
    let server = Serving::default();
    server.serve("z.org/v1");
    let (templates, _running) = server.templates();
    // To this nothing is answered, and it is the first.
    let (silent, served) = (gvk("v1"), gvk("z.org/v1"));
    templates.want(&BTreeSet::new(), &[silent, served.clone()].into());
    soon().await;
    assert!(is_watched(&templates, &served));
}

#[tokio::test(start_paused = true)]
async fn what_an_aggregated_api_server_serves_is_found_some_time_after_it_is_wanted_again() {
    let server = Serving::default();
    let (templates, _running) = server.templates();
    let (none, late) = (BTreeSet::new(), gvk("x.org/v1"));
    templates.want(&none, &[late.clone()].into());
    soon().await;
    server.serve("x.org/v1");
    templates.want(&none, &[gvk("y.org/v1")].into());
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert!(is_watched(&templates, &late));
}
