//! That what agents wrote hides nothing that is read of a hub.

use super::*;
use crate::cli::error::scripted;
use serde_json::json;

/// Agents write as deep as they like, and the hub copies that into bindings.
#[tokio::test]
async fn a_status_that_cannot_be_read_hides_no_other_object_and_not_its_own() {
    let deep = (0..124).fold(json!(0), |it, _| json!([it]));
    let object = |name: &str, spec: &Value, status: &Value| json!({"metadata": {"namespace": "n", "name": name}, "spec": spec, "status": status});
    let identifier =
        json!({"ordinal": 0, "version": "v1", "kind": "K", "resource": "", "name": "n"});
    let work = json!({"workload": {"manifests": []}});
    let report = json!({"manifestStatuses": [{"identifier": identifier, "status": deep}]});
    let binding = json!({"resource": {"apiVersion": "v1", "kind": "ConfigMap", "name": "c"}});
    let answers = json!({"aggregatedStatus": [{"clusterName": "m1", "status": deep}]});
    let (works, bindings) = (
        [object("a", &work, &report), object("b", &work, &json!({}))],
        [
            object("a", &binding, &answers),
            object("b", &binding, &json!({})),
        ],
    );
    let (client, asked) = scripted::hub(move |ask| {
        let of = match ask.path.contains("bindings") {
            true => &bindings,
            false => &works,
        };
        if ask.path.ends_with("/a") {
            return Some((200, of[0].clone()));
        }
        let is_next = ask.query.contains("continue=next");
        let (item, more) = if is_next {
            (&of[1], "")
        } else {
            (&of[0], "next")
        };
        Some((
            200,
            json!({"metadata": {"continue": more}, "items": [item]}),
        ))
    });
    let hub = Hub {
        client,
        types: Vec::new(),
    };
    let works = hub.unbound().await.expect("listed");
    let names: Vec<&str> = works.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    let bindings = hub.bindings(&Scope::default()).await.expect("listed");
    assert_eq!(bindings.len(), 2);
    assert_eq!(asked.lock().expect("no panic").len(), 4);
    let one = hub.bound(Some("n"), "a").await.expect("read");
    let one = one.expect("it is there");
    assert_eq!(one.spec.resource.name, "c");
    assert_eq!(one.status.aggregated_status, []);
}

#[tokio::test]
async fn what_cannot_be_read_without_its_status_either_is_an_error() {
    let broken = json!({"metadata": {"name": "a"}, "spec": 7, "status": 7});
    let (client, _) = scripted::hub(move |_| Some((200, json!({"items": [broken]}))));
    let api: Api<Work> = Api::all(client);
    let read = pages(&api, &Scope::default()).await;
    assert!(matches!(read, Err(kube::Error::SerdeError(_))), "{read:?}");
}

/// Agents write managedFields of Works deeper than they are read, too.
#[tokio::test]
async fn managed_fields_that_cannot_be_read_hide_nothing_else() {
    let deep = (0..200).fold(json!({}), |it, _| json!({"f:a": it}));
    let managed = json!([{"manager": "agent", "fieldsType": "FieldsV1", "fieldsV1": deep}]);
    let applied = json!({"type": "Applied", "status": "True", "reason": "R", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let work = json!({
        "metadata": {"name": "a", "namespace": "n", "labels": {"l": "v"}, "managedFields": managed},
        "spec": {"workload": {"manifests": []}}, "status": {"conditions": [applied]}});
    let (client, _) = scripted::hub(move |ask| match ask.path.ends_with("/works") {
        true => Some((
            200,
            json!({"metadata": {"remainingItemCount": 3}, "items": [work]}),
        )),
        false => Some((200, work.clone())),
    });
    let api: Api<Work> = Api::namespaced(client, "n");
    let listed = pages(&api, &Scope::default()).await.expect("listed");
    let got = one(&api, "a").await.expect("read");
    for work in listed.into_iter().chain(got) {
        assert_eq!(work.metadata.labels.expect("kept")["l"], "v");
        assert_eq!(work.status.expect("kept").conditions.len(), 1);
    }
    assert_eq!(count(&api).await.expect("counted"), 4);
}

#[tokio::test]
async fn what_cannot_be_read_is_counted_where_the_rest_is_of_use() {
    let event = |name: &str, at: &str| json!({"metadata": {"name": name}, "involvedObject": {}, "eventTime": at});
    let items = [
        event("a", "9999-12-31T23:59:59.000000Z"),
        event("b", "2026-01-01T00:00:00.000000Z"),
    ];
    let (client, _) = scripted::hub(move |_| Some((200, json!({"items": items}))));
    let api: Api<k8s_openapi::api::core::v1::Event> = Api::all(client);
    let (found, unreadable) = readable(&api, &Scope::default()).await.expect("listed");
    let names: Vec<Option<&str>> = found.iter().map(|it| it.metadata.name.as_deref()).collect();
    assert_eq!((names, unreadable), (vec![Some("b")], 1));
}
