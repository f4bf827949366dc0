//! What is taken out of a member, by scripted APIs.

use super::*;
use crate::execution::interpret::Shown;
use crate::execution::state::LiveRecord;
use crate::execution::testing::{Asked, Handles, lines, map, marked, refusal, scripted, wire};
use std::sync::atomic::{AtomicBool, Ordering};

const OBJECT: &str = "/api/v1/namespaces/n/configmaps/a";

async fn key(parts: &Handles) -> Arc<ObjectKey> {
    let targets = crate::execution::manifest::targets(&json!([map("a")]).to_string());
    parts
        .pruner
        .key_of(&targets[0], &mut Answers::default())
        .await
}

#[tokio::test]
async fn only_what_is_the_works_own_is_deleted_and_only_that_very_object() {
    let (member, asked) = scripted(|line| match line.split_once(' ') {
        Some(("GET", OBJECT)) => Some((200, marked("a", "o", "other"))),
        Some(("DELETE", OBJECT)) => Some((200, json!({"kind": "Status"}))),
        _ => None,
    });
    let parts = Handles::new(scripted(|_| None).0, member).await;
    let work = parts.knows(&wire("w", "1", &[map("a")]));
    let key = key(&parts).await;
    let gone = parts.pruner.delete_object(&work, &key, false).await;
    assert!(matches!(gone, Ok(Gone::Yes)));
    assert_eq!(lines(&asked), [format!("GET {OBJECT}")]);
    // What it has applied is its own, whatever the marks say.
    parts.state.lock().claim(&work, &key, "o");
    let gone = parts.pruner.delete_object(&work, &key, true).await;
    assert!(matches!(gone, Ok(Gone::Yes)));
    let (line, body) = asked.lock().expect("sound").last().expect("asked").clone();
    assert_eq!(line, format!("DELETE {OBJECT}"));
    assert_eq!(body["preconditions"]["uid"], "o");
    assert_eq!(body["propagationPolicy"], "Foreground");
}

#[tokio::test]
async fn what_is_reserved_and_may_not_be_read_holds_no_work_back() {
    let (member, asked) = scripted(|line| match line.split_once(' ') {
        Some(("GET", uri)) if uri.contains("/kube-system/") => Some(refusal(403, "Forbidden")),
        _ => None,
    });
    let parts = Handles::new(scripted(|_| None).0, member).await;
    let mut reserved = map("a");
    reserved["metadata"]["namespace"] = json!("kube-system");
    let work = parts.knows(&wire("w", "1", &[reserved.clone()]));
    let targets = crate::execution::manifest::targets(&json!([reserved]).to_string());
    let key = parts
        .pruner
        .key_of(&targets[0], &mut Answers::default())
        .await;
    let gone = parts.pruner.delete_object(&work, &key, false).await;
    assert!(matches!(gone, Ok(Gone::Yes)), "{gone:?}");
    assert!(lines(&asked).iter().all(|line| line.starts_with("GET ")));
}

#[tokio::test]
async fn what_another_work_wants_too_is_handed_over() {
    let (member, asked) = scripted(|_| Some(refusal(500, "Unexpected")));
    let parts = Handles::new(scripted(|_| None).0, member).await;
    let work = parts.knows(&wire("w", "1", &[map("a")]));
    let heir = parts.knows(&wire("heir", "2", &[map("a")]));
    // As one is that was stored, where the hub has not answered yet.
    if let Some(record) = parts.state.lock().works.get_mut(&heir) {
        record.confirmed = false;
    }
    let key = key(&parts).await;
    let object = marked("a", "o", "w");
    let gvk = parts.state.lock().gvk(key.kind).expect("known");
    let live = LiveRecord::new(
        Shown::built_in(&gvk, &object),
        LiveMeta::read(&object),
        "karmada-es-m1",
        true,
    );
    parts.state.lock().set_live(&key, Some(live));
    let gone = parts.pruner.delete_object(&work, &key, false).await;
    assert!(matches!(gone, Ok(Gone::Yes)));
    assert_eq!(parts.queued(), ["heir"]);
    assert_eq!(lines(&asked), [""; 0]);
    assert!(parts.state.lock().has_claim("heir", &key, "o"));
}

/// What was handed over goes with the Work that has it now, though that never came to apply it.
#[tokio::test]
async fn an_heir_that_goes_before_it_took_over_takes_the_object_along() {
    let (member, asked) = scripted(|line| match line.split_once(' ') {
        Some(("GET", OBJECT)) => Some((200, marked("a", "o", "w"))),
        Some(("DELETE", OBJECT)) => Some((200, json!({"kind": "Status"}))),
        _ => None,
    });
    let parts = Handles::new(scripted(|_| None).0, member).await;
    let work = parts.knows(&wire("w", "1", &[map("a")]));
    let unheld = |finalizers: &[&str]| {
        let mut heir = wire("heir", "2", &[map("a")]);
        heir.metadata.finalizers = finalizers.iter().map(|it| (*it).to_owned()).collect();
        heir
    };
    parts.knows(&unheld(&[]));
    let key = key(&parts).await;
    // It could go without being heard of, and the object would be nobody's.
    let gone = parts.pruner.delete_object(&work, &key, false).await;
    let waits =
        matches!(&gone, Ok(Gone::Waits(text)) if text == "Work heir to take ConfigMap n/a over");
    assert!(waits, "{gone:?}");
    assert_eq!(parts.queued(), ["heir"]);
    let mut held = unheld(&[common::labels::WORK_FINALIZER]);
    held.metadata.resource_version = "6".into();
    let heir = parts.knows(&held);
    let gone = parts.pruner.delete_object(&work, &key, false).await;
    assert!(matches!(gone, Ok(Gone::Yes)), "{gone:?}");
    parts.state.lock().forget(&work);
    held.metadata.resource_version = "7".into();
    held.metadata.deletion_timestamp = Some("2030-01-01T00:00:00Z".into());
    parts.knows(&held);
    assert!(!lines(&asked).contains(&format!("DELETE {OBJECT}")));
    let gone = parts.pruner.delete_object(&heir, &key, false).await;
    assert!(matches!(gone, Ok(Gone::Yes)), "{gone:?}");
    assert!(lines(&asked).contains(&format!("DELETE {OBJECT}")));
}

#[tokio::test]
async fn what_left_a_work_is_remembered_until_it_is_gone() {
    let (member, _) = scripted(|line| match line.split_once(' ') {
        Some(("GET", OBJECT)) => Some((200, marked("a", "o", "w"))),
        Some(("DELETE", OBJECT)) => Some(refusal(503, "ServiceUnavailable")),
        _ => None,
    });
    let parts = Handles::new(scripted(|_| None).0, member).await;
    let work = parts.knows(&wire("w", "1", &[]));
    let leaving = crate::execution::manifest::targets(&json!([map("a"), map("b")]).to_string());
    if let Some(record) = parts.state.lock().works.get_mut(&work) {
        record.leaving.clone_from(&leaving);
    }
    let pruned = parts.pruner.prune(&work, leaving.clone()).await;
    assert!(pruned.outage && pruned.blockers.is_empty(), "{pruned:?}");
    let state = parts.state.lock();
    // `b` is not there, `a` cannot be deleted now.
    assert_eq!(state.works[&work].leaving, leaving[..1]);
}

/// A member that had CronJobs in `batch/v1beta1` and has them in `batch/v1` once it is `newer`.
fn member_with_cronjobs(newer: &Arc<AtomicBool>) -> (kube::Client, Asked) {
    let newer = newer.clone();
    scripted(move |line| {
        let of = |version: &str| {
            let (_, path) = line.split_once("/apis/batch/")?;
            path.strip_prefix(version)
        };
        let version = if newer.load(Ordering::Relaxed) {
            "v1"
        } else {
            "v1beta1"
        };
        if line == "GET /apis/batch" {
            let versions = json!([{"groupVersion": "batch/v2", "version": "v2"},
                {"groupVersion": format!("batch/{version}"), "version": version}]);
            return Some((200, json!({"kind": "APIGroup", "versions": versions})));
        }
        match (line.split_once(' ')?.0, of(version)?) {
            ("GET", "") => {
                let kind = json!({"name": "cronjobs", "kind": "CronJob", "namespaced": true,
                    "verbs": ["list", "patch"]});
                Some((200, json!({"resources": [kind]})))
            }
            ("GET" | "PATCH", "/namespaces/n/cronjobs/a") => Some((200, marked("a", "o", "w"))),
            ("DELETE", "/namespaces/n/cronjobs/a") => Some((200, json!({"kind": "Status"}))),
            _ => None,
        }
    })
}

/// An object is there in every version of its kind that is served, also when it was applied in another one.
#[tokio::test]
async fn what_was_applied_in_a_version_that_is_not_served_any_more_goes_too() {
    // Whether the agent has asked for the kind before, and whether the object is to stay.
    for (asked_before, preserve) in [(false, false), (true, false), (false, true), (true, true)] {
        let newer = Arc::new(AtomicBool::new(!asked_before));
        let (member, asked) = member_with_cronjobs(&newer);
        let parts = Handles::new(scripted(|_| None).0, member).await;
        let job = json!({"apiVersion": "batch/v1beta1", "kind": "CronJob",
            "metadata": {"namespace": "n", "name": "a"}});
        let work = parts.knows(&wire("w", "1", std::slice::from_ref(&job)));
        let targets = crate::execution::manifest::targets(&json!([job]).to_string());
        let key = parts
            .pruner
            .key_of(&targets[0], &mut Answers::default())
            .await;
        newer.store(true, Ordering::Relaxed);
        let (gone, verb) = if preserve {
            (parts.pruner.release_object(&work, &key).await, "PATCH")
        } else {
            let gone = parts.pruner.delete_object(&work, &key, false).await;
            (gone, "DELETE")
        };
        assert!(matches!(gone, Ok(Gone::Yes)), "{gone:?}");
        let last = lines(&asked).pop().expect("asked");
        let want = format!("{verb} /apis/batch/v1/namespaces/n/cronjobs/a");
        assert_eq!(last, want, "{asked_before}");
    }
}

/// Of a kind that no version serves there is nothing.
#[tokio::test]
async fn what_is_of_a_kind_that_is_not_served_is_gone() {
    let (member, asked) = scripted(|_| None);
    let parts = Handles::new(scripted(|_| None).0, member).await;
    let till = json!({"apiVersion": "shop.example.com/v1", "kind": "Till",
        "metadata": {"namespace": "n", "name": "a"}});
    let work = parts.knows(&wire("w", "1", std::slice::from_ref(&till)));
    let targets = crate::execution::manifest::targets(&json!([till]).to_string());
    let key = parts
        .pruner
        .key_of(&targets[0], &mut Answers::default())
        .await;
    let gone = parts.pruner.delete_object(&work, &key, false).await;
    assert!(matches!(gone, Ok(Gone::Yes)), "{gone:?}");
    assert!(lines(&asked).iter().all(|line| !line.contains("/tills")));
}

/// Of a kind that is gone each object would ask again, in each version.
#[tokio::test]
async fn a_kind_that_is_gone_is_asked_for_once() {
    let (member, asked) = scripted(|_| None);
    let parts = Handles::new(scripted(|_| None).0, member).await;
    let till = |name: &str| {
        let meta = json!({"namespace": "n", "name": name});
        json!({"apiVersion": "shop.example.com/v1", "kind": "Till", "metadata": meta})
    };
    let work = parts.knows(&wire("w", "1", &[]));
    let tills = json!([till("a"), till("b"), till("c")]);
    let leaving = crate::execution::manifest::targets(&tills.to_string());
    if let Some(record) = parts.state.lock().works.get_mut(&work) {
        record.leaving.clone_from(&leaving);
    }
    let pruned = parts.pruner.prune(&work, leaving).await;
    assert!(!pruned.waits(), "{pruned:?}");
    assert_eq!(parts.state.lock().works[&work].leaving, []);
    let want = [
        "GET /apis/shop.example.com/v1",
        "GET /apis/shop.example.com",
    ];
    assert_eq!(lines(&asked), want);
}

/// A version that is served by somebody else may be down, and the others are there all the same.
#[tokio::test]
async fn a_version_that_is_down_hides_no_other() {
    for (v3, found) in [(200, true), (503, false)] {
        let (member, _) = scripted(move |line| match line {
            "GET /apis/shop.example.com" => {
                let versions = json!([{"version": "v2"}, {"version": "v3"}]);
                Some((200, json!({"kind": "APIGroup", "versions": versions})))
            }
            "GET /apis/shop.example.com/v2" => Some(refusal(503, "ServiceUnavailable")),
            "GET /apis/shop.example.com/v3" if v3 == 200 => {
                let kind = json!({"name": "tills", "kind": "Till", "namespaced": true,
                    "verbs": ["list", "patch"]});
                Some((200, json!({"resources": [kind]})))
            }
            _ => None,
        });
        let parts = Handles::new(scripted(|_| None).0, member).await;
        let gvk = common::gvk::Gvk::new("shop.example.com/v1", "Till").expect("sound");
        let resolved = parts.member.resolve_any(&gvk).await;
        // Where none serves it, it may be in the one that is down.
        match resolved {
            Ok(resource) => assert!(found && resource.is_some_and(|it| it.gvk.version == "v3")),
            Err(error) => assert!(!found && error.code() == Some(503), "{error:?}"),
        }
    }
}

/// Where a kind has no namespaces, a Work wants its object whatever namespace its manifest writes.
#[tokio::test]
async fn an_object_without_namespace_is_handed_over_by_its_name() {
    let (member, asked) = scripted(|line| {
        let space = json!({"kind": "Namespace", "metadata": {"name": "n", "uid": "o",
            "resourceVersion": "9", "labels": {"karmada.io/managed": "true"}, "annotations":
            {"work.karmada.io/namespace": "karmada-es-m1", "work.karmada.io/name": "w"}}});
        line.starts_with("GET").then_some((200, space))
    });
    let parts = Handles::new(scripted(|_| None).0, member).await;
    let space = |namespace: &str| {
        let meta = json!({"name": "n", "namespace": namespace});
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
    };
    let work = parts.knows(&wire("w", "1", &[space("a")]));
    parts.knows(&wire("heir", "2", &[space("b")]));
    let targets = crate::execution::manifest::targets(&json!([space("a")]).to_string());
    let key = parts
        .pruner
        .key_of(&targets[0], &mut Answers::default())
        .await;
    let gone = parts.pruner.delete_object(&work, &key, false).await;
    assert!(matches!(gone, Ok(Gone::Yes)), "{gone:?}");
    assert_eq!(parts.queued(), ["heir"]);
    assert_eq!(lines(&asked), ["GET /api/v1/namespaces/n"]);
}

/// What is to stay is let go before what holds it is judged, and not taken along by it.
#[tokio::test]
async fn a_namespace_that_leaves_with_what_is_kept_in_it_stays() {
    let mut kept = marked("a", "a", "w");
    kept["metadata"]["annotations"][common::labels::DELETION] = json!("keep");
    let space = json!({"kind": "Namespace", "metadata": {"name": "n", "uid": "o",
        "resourceVersion": "9", "labels": {"karmada.io/managed": "true"}, "annotations":
        {"work.karmada.io/namespace": "karmada-es-m1", "work.karmada.io/name": "w"}}});
    let (member, asked) = scripted(move |line| match line.split_once(' ') {
        Some(("GET" | "PATCH", OBJECT)) => Some((200, kept.clone())),
        Some(("GET" | "PATCH" | "DELETE", "/api/v1/namespaces/n")) => Some((200, space.clone())),
        Some(("GET", uri)) if uri.starts_with("/api/v1/namespaces/n/configmaps?") => {
            Some((200, json!({"metadata": {}, "items": [kept.clone()]})))
        }
        _ => None,
    });
    let parts = Handles::new(scripted(|_| None).0, member).await;
    let work = parts.knows(&wire("w", "1", &[]));
    let manifest = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}});
    let leaving = crate::execution::manifest::targets(&json!([manifest, map("a")]).to_string());
    if let Some(record) = parts.state.lock().works.get_mut(&work) {
        record.leaving.clone_from(&leaving);
    }
    let pruned = parts.pruner.prune(&work, leaving).await;
    assert!(!pruned.waits(), "{pruned:?}");
    let mut changes = lines(&asked);
    changes.retain(|line| !line.starts_with("GET"));
    let want = [
        format!("PATCH {OBJECT}"),
        "PATCH /api/v1/namespaces/n".to_owned(),
    ];
    assert_eq!(changes, want);
    assert_eq!(parts.state.lock().works[&work].leaving, []);
}

#[tokio::test]
async fn a_namespace_that_holds_what_is_not_ours_is_released_instead() {
    let space = json!({"kind": "Namespace", "metadata": {"name": "n", "uid": "o",
        "resourceVersion": "9", "labels": {"karmada.io/managed": "true"}, "annotations":
        {"work.karmada.io/namespace": "karmada-es-m1", "work.karmada.io/name": "w"}}});
    let (member, asked) = scripted(move |line| match line.split_once(' ') {
        Some(("GET" | "PATCH", "/api/v1/namespaces/n")) => Some((200, space.clone())),
        Some(("GET", uri)) if uri.starts_with("/api/v1/namespaces/n/configmaps?") => {
            let foreign = json!({"metadata": {"name": "someones"}});
            Some((200, json!({"metadata": {}, "items": [foreign]})))
        }
        _ => None,
    });
    let parts = Handles::new(scripted(|_| None).0, member).await;
    let manifest = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}});
    let work = parts.knows(&wire("w", "1", std::slice::from_ref(&manifest)));
    let targets = crate::execution::manifest::targets(&json!([manifest]).to_string());
    let key = parts
        .pruner
        .key_of(&targets[0], &mut Answers::default())
        .await;
    let gone = parts.pruner.delete_object(&work, &key, false).await;
    assert!(matches!(gone, Ok(Gone::Yes)));
    let asked = lines(&asked);
    assert!(
        asked.iter().all(|line| !line.starts_with("DELETE")),
        "{asked:?}"
    );
    assert!(
        asked.contains(&"PATCH /api/v1/namespaces/n".to_owned()),
        "{asked:?}"
    );
    let event = parts.events.next().await.body("karmada-es-m1");
    assert_eq!(
        event["message"],
        "Namespace /n is kept: it holds ConfigMap someones"
    );
}

/// A Namespace that the Work `w` has applied, with a ConfigMap in it.
async fn namespace_with(held: Value) -> (Handles, Asked, Arc<str>, Arc<ObjectKey>) {
    let space = json!({"kind": "Namespace", "metadata": {"name": "n", "uid": "o",
        "resourceVersion": "9", "labels": {"karmada.io/managed": "true"}, "annotations":
        {"work.karmada.io/namespace": "karmada-es-m1", "work.karmada.io/name": "w"}}});
    let (member, asked) = scripted(move |line| match line.split_once(' ') {
        Some(("GET" | "PATCH" | "DELETE", "/api/v1/namespaces/n")) => Some((200, space.clone())),
        Some(("GET", uri)) if uri.starts_with("/api/v1/namespaces/n/configmaps?") => {
            Some((200, json!({"metadata": {}, "items": [held.clone()]})))
        }
        Some(("GET", uri)) if uri.starts_with("/api/v1/namespaces/n/") => {
            Some((200, json!({"metadata": {}, "items": []})))
        }
        _ => None,
    });
    let parts = Handles::new(scripted(|_| None).0, member).await;
    let manifest = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}});
    let work = parts.knows(&wire("w", "1", std::slice::from_ref(&manifest)));
    let targets = crate::execution::manifest::targets(&json!([manifest]).to_string());
    let key = parts
        .pruner
        .key_of(&targets[0], &mut Answers::default())
        .await;
    (parts, asked, work, key)
}

/// Nobody gave the word to delete an orphan, nor what another hub has there.
#[tokio::test]
async fn a_namespace_that_holds_what_no_work_here_stands_for_stays() {
    for (of, hub, goes) in [
        ("w", "karmada-es-m1", true),
        ("unheard-of", "karmada-es-m1", false),
        ("w", "karmada-es-other", false),
    ] {
        let mut held = marked("a", "a", of);
        held["metadata"]["annotations"]["work.karmada.io/namespace"] = json!(hub);
        let (parts, asked, work, key) = namespace_with(held).await;
        let gone = parts.pruner.delete_object(&work, &key, false).await;
        assert!(gone.is_ok(), "{gone:?}");
        let deleted = lines(&asked).iter().any(|line| line.starts_with("DELETE"));
        assert_eq!(deleted, goes, "{of} of {hub}");
    }
}

/// What it was never allowed to apply is not there for its sake.
#[tokio::test]
async fn what_may_not_be_read_and_was_never_applied_holds_no_work_back() {
    let (member, _) = scripted(|line| match line.split_once(' ') {
        Some(("GET", OBJECT)) => Some(refusal(403, "Forbidden")),
        _ => None,
    });
    let parts = Handles::new(scripted(|_| None).0, member).await;
    let work = parts.knows(&wire("w", "1", &[map("a")]));
    let key = key(&parts).await;
    let gone = parts.pruner.delete_object(&work, &key, false).await;
    assert!(matches!(gone, Ok(Gone::Yes)), "{gone:?}");
    // The right may have been taken away since.
    parts.state.lock().claim(&work, &key, "o");
    let gone = parts.pruner.delete_object(&work, &key, false).await;
    assert!(gone.is_err(), "{gone:?}");
}

/// What stays when its Work goes would go with its namespace.
#[tokio::test]
async fn a_namespace_that_holds_what_is_preserved_stays() {
    let (parts, asked, work, key) = namespace_with(marked("a", "a", "other")).await;
    let other = parts.knows(&wire("other", "2", &[map("a")]));
    for preserve in [true, false] {
        if let Some(record) = parts.state.lock().works.get_mut(&other) {
            record.preserve = preserve;
        }
        let gone = parts.pruner.delete_object(&work, &key, false).await;
        assert!(gone.is_ok(), "{gone:?}");
        let deleted = lines(&asked).iter().any(|line| line.starts_with("DELETE"));
        assert_eq!(deleted, !preserve);
    }
}
