//! Pages, selectors, and lists as of some time.

use crate::apiserver::registry::testing::{Rig, value};
use crate::apiserver::request::ListOptions;
use serde_json::json;

fn names(list: &crate::apiserver::registry::ListResult) -> Vec<String> {
    let name = |item: &bytes::Bytes| value(item)["metadata"]["name"].as_str().map(str::to_owned);
    list.items.iter().filter_map(name).collect()
}

async fn filled() -> Rig {
    let rig = Rig::new().await;
    rig.create("v1/namespaces", json!({"metadata": {"name": "ns-b"}}))
        .await;
    for (namespace, name, label) in [
        ("ns", "a", "1"),
        ("ns", "b", "2"),
        ("ns", "c", "1"),
        ("ns-b", "d", "1"),
    ] {
        let body = json!({"metadata": {"name": name, "labels": {"l": label}}});
        rig.create(&format!("v1/{namespace}:secrets"), body).await;
    }
    rig
}

#[tokio::test]
async fn pages_are_of_one_moment() {
    let rig = filled().await;
    let context = rig.context("v1/ns:secrets");
    let mut options = ListOptions {
        limit: 2,
        ..ListOptions::default()
    };
    let first = rig.registry.list(&context, &options).await.expect("a page");
    assert_eq!(
        (names(&first), first.remaining),
        (vec!["a".to_owned(), "b".to_owned()], Some(1))
    );
    rig.create("v1/ns:secrets", json!({"metadata": {"name": "bb"}}))
        .await;
    options.continue_token.clone_from(&first.continue_token);
    let second = rig
        .registry
        .list(&context, &options)
        .await
        .expect("the next");
    assert_eq!(
        (names(&second), second.remaining),
        (vec!["c".to_owned()], None)
    );
    assert_eq!(second.resource_version, first.resource_version);
    assert_eq!(second.continue_token, "");

    let all = rig.context("v1/secrets");
    let options = ListOptions {
        limit: 1,
        ..ListOptions::default()
    };
    let first = rig.registry.list(&all, &options).await.expect("a page");
    assert_eq!(names(&first), ["d"], "ns-b sorts before ns/");
    let options = ListOptions {
        continue_token: first.continue_token,
        ..ListOptions::default()
    };
    let rest = rig.registry.list(&all, &options).await.expect("the rest");
    assert_eq!(names(&rest).len(), 4);
}

#[tokio::test]
async fn selectors_select() {
    let rig = filled().await;
    let context = rig.context("v1/secrets");
    for (labels, fields, expected) in [
        ("l=1", "", vec!["d", "a", "c"]),
        ("l in (2)", "", vec!["b"]),
        ("", "metadata.name=a", vec!["a"]),
        ("", "metadata.namespace=ns-b", vec!["d"]),
        ("", "type=Opaque,metadata.name!=a", vec!["d", "b", "c"]),
        ("", "type=x", vec![]),
    ] {
        let options = ListOptions {
            label_selector: labels.to_owned(),
            field_selector: fields.to_owned(),
            ..ListOptions::default()
        };
        let list = rig.registry.list(&context, &options).await.expect("a list");
        assert_eq!(names(&list), expected, "{labels} {fields}");
    }
    let options = ListOptions {
        field_selector: "data=x".to_owned(),
        ..ListOptions::default()
    };
    let error = rig
        .registry
        .list(&context, &options)
        .await
        .expect_err("no such field");
    assert_eq!(error.message, "field label not supported: data");
}

#[tokio::test]
async fn lists_are_as_of_the_version_that_is_asked_for() {
    let rig = filled().await;
    let context = rig.context("v1/ns:secrets");
    let now = rig
        .registry
        .list(&context, &ListOptions::default())
        .await
        .expect("a list");
    rig.delete("v1/ns:secrets/a", json!({}))
        .await
        .expect("deleted");
    let of = |version: u64, matched: &str| ListOptions {
        resource_version: version.to_string(),
        resource_version_match: matched.to_owned(),
        ..ListOptions::default()
    };
    let exact = rig
        .registry
        .list(&context, &of(now.resource_version, "Exact"))
        .await;
    assert_eq!(names(&exact.expect("then")), ["a", "b", "c"]);
    let fresh = rig
        .registry
        .list(&context, &of(now.resource_version, "NotOlderThan"))
        .await;
    assert_eq!(names(&fresh.expect("now")), ["b", "c"]);
    tokio::time::pause();
    let error = rig
        .registry
        .list(&context, &of(u64::MAX / 2, ""))
        .await
        .expect_err("not yet");
    assert_eq!((error.code, error.retry_after), (504, Some(1)));
    assert_eq!(
        error.to_status()["details"]["causes"][0]["reason"],
        "ResourceVersionTooLarge"
    );
}

#[tokio::test]
async fn items_of_built_in_kinds_have_no_type() {
    let rig = filled().await;
    let context = rig.context("v1/ns-b:secrets");
    let list = rig
        .registry
        .list(&context, &ListOptions::default())
        .await
        .expect("a list");
    let list = value(&list.encode(&context.resource));
    assert_eq!(
        (&list["kind"], &list["apiVersion"]),
        (&json!("SecretList"), &json!("v1"))
    );
    let item = &list["items"][0];
    assert_eq!(item["metadata"]["name"], "d");
    assert_eq!((item.get("kind"), item.get("apiVersion")), (None, None));
}
