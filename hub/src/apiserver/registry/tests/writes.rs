//! Creations, updates and patches.

use crate::apiserver::registry::Effect;
use crate::apiserver::registry::testing::{Rig, json_body, value};
use crate::apiserver::request::{FieldValidation, PatchKind};
use crate::apiserver::store::{Change, Class, Expect, Write};
use serde_json::{Value, json};

fn deployment(name: &str, replicas: i64) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "a"}},
            "template": {
                "metadata": {"labels": {"app": "a"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        },
    })
}

#[tokio::test]
async fn tokens_and_requests_of_karmada_say_that_nobody_approves_them() {
    let rig = Rig::new().await;
    let group = "system:bootstrappers:karmada:default-cluster-token";
    for (extra, warned) in [(group, true), ("system:bootstrappers:towline", false)] {
        let context = rig.context("v1/ns:secrets");
        let name = if warned {
            "bootstrap-token-aaaaaa"
        } else {
            "bootstrap-token-bbbbbb"
        };
        let secret = json!({"metadata": {"name": name}, "type": "bootstrap.kubernetes.io/token",
            "stringData": {"token-id": &name[16..], "token-secret": "0123456789abcdef", "auth-extra-groups": extra}});
        let made = rig.registry.create(&context, json_body(&secret)).await;
        assert!(made.is_ok());
        let said = context.warnings.all().join(" ");
        assert_eq!(said.contains("towline token create"), warned, "{said}");
        let mut context = rig.context("certificates.k8s.io/v1/certificatesigningrequests");
        let mut caller = (*context.caller).clone();
        caller.groups = vec![extra.to_owned()];
        context.caller = std::sync::Arc::new(caller);
        let mut params = rcgen::CertificateParams::default();
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, "system:karmada:agent:m1");
        let key = common::chance::secret::key_pair().expect("a key");
        let pem = params
            .serialize_request(&key)
            .and_then(|it| it.pem())
            .expect("a request");
        let pem = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, pem);
        let request = json!({"metadata": {"name": name}, "spec": {"request": pem,
            "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"]}});
        let made = rig.registry.create(&context, json_body(&request)).await;
        assert!(made.is_ok(), "{made:?}");
        let said = context.warnings.all().join(" ");
        assert_eq!(
            said.contains("kubectl certificate approve"),
            warned,
            "{said}"
        );
    }
}

#[tokio::test]
async fn a_new_object_has_what_the_server_says() {
    let rig = Rig::new().await;
    let body = json!({"metadata": {"name": "a", "generation": 7, "deletionTimestamp": "2020-01-01T00:00:00Z"},
        "data": {"k": "v"}});
    let made = rig.create("v1/ns:configmaps", body).await;
    assert_eq!(made["kind"], "ConfigMap");
    assert_eq!(made["apiVersion"], "v1");
    let metadata = &made["metadata"];
    assert_eq!(metadata["namespace"], "ns");
    assert_eq!(metadata["uid"].as_str().map(str::len), Some(36));
    assert!(metadata["creationTimestamp"].is_string() && metadata["resourceVersion"].is_string());
    assert_eq!(metadata["generation"], 7, "a kind without one keeps it");
    assert_eq!(metadata.get("deletionTimestamp"), None);
    assert_eq!(rig.get("v1/ns:configmaps/a").await.as_ref(), Ok(&made));

    let made = rig
        .create("apps/v1/ns:deployments", deployment("d", 1))
        .await;
    assert_eq!(made["metadata"]["generation"], 1);
    assert_eq!(made["status"], json!({}));
}

#[tokio::test]
async fn names_are_generated_and_refused() {
    let rig = Rig::new().await;
    let made = rig
        .create(
            "v1/ns:configmaps",
            json!({"metadata": {"generateName": "x-"}}),
        )
        .await;
    let name = made["metadata"]["name"].as_str().expect("a name");
    assert!(name.starts_with("x-") && name.len() == 7, "{name}");
    let refused = |path: &str, body: Value| {
        let context = rig.context(path);
        let registry = rig.registry.clone();
        async move {
            let error = registry.create(&context, json_body(&body)).await;
            let error = error.expect_err("is refused");
            (error.code, error.message)
        }
    };
    let cases = [
        (
            "v1/ns:configmaps",
            json!({}),
            422,
            "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required",
        ),
        (
            "v1/other:configmaps",
            json!({"metadata": {"name": "a"}}),
            404,
            "namespaces \"other\" not found",
        ),
        (
            "v1/ns:configmaps",
            json!({"metadata": {"name": "a", "namespace": "b"}}),
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            "v1/ns:configmaps",
            json!({"metadata": {"name": "a", "resourceVersion": "4"}}),
            500,
            "resourceVersion should not be set on objects to be created",
        ),
        (
            "v1/ns:configmaps",
            json!({"metadata": {"name": name}}),
            409,
            "",
        ),
        (
            "v1/ns:configmaps",
            json!({"kind": "ConfigMap", "apiVersion": "v2", "metadata": {"name": "a"}}),
            400,
            "ConfigMap in version \"v2\" cannot be handled as a ConfigMap: no kind \"ConfigMap\" is registered for version \"v2\" in scheme \"pkg/runtime/scheme.go:111\"",
        ),
    ];
    for (path, body, code, message) in cases {
        let (got, text) = refused(path, body).await;
        assert_eq!(got, code, "{text}");
        assert!(message.is_empty() || text == message, "{text}");
    }
}

#[tokio::test]
async fn updates_say_what_they_replace_or_do_not() {
    let rig = Rig::new().await;
    let made = rig
        .create(
            "v1/ns:configmaps",
            json!({"metadata": {"name": "a"}, "data": {"k": "1"}}),
        )
        .await;
    let path = "v1/ns:configmaps/a";
    let blind = json!({"metadata": {"name": "a"}, "data": {"k": "2"}});
    let two = rig.update(path, blind.clone()).await.expect("replaced");
    assert_ne!(
        two["metadata"]["resourceVersion"],
        made["metadata"]["resourceVersion"]
    );
    assert_eq!(two["metadata"]["uid"], made["metadata"]["uid"]);
    // The same again is no write.
    assert_eq!(rig.update(path, blind).await.as_ref(), Ok(&two));
    let stale = rig.update(path, made.clone()).await.expect_err("is stale");
    assert_eq!((stale.code, stale.reason), (409, "Conflict"));
    let mut other = two.clone();
    other["metadata"]["uid"] = json!("x");
    let error = rig.update(path, other).await.expect_err("another object");
    assert!(
        error
            .message
            .contains("Precondition failed: UID in precondition: x"),
        "{error}"
    );
    let error = rig
        .update(
            "v1/ns:configmaps/none",
            json!({"metadata": {"name": "none"}}),
        )
        .await
        .expect_err("is not there");
    assert_eq!(error.code, 404);
    let error = rig
        .update(path, json!({"metadata": {"name": "b"}}))
        .await
        .expect_err("another name");
    assert_eq!(
        error.message,
        "the name of the object (b) does not match the name on the URL (a)"
    );

    let lease = json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "h"}});
    let path = "coordination.k8s.io/v1/ns:leases/l";
    let made = rig
        .registry
        .update(&rig.context(path), json_body(&lease))
        .await
        .expect("made");
    assert_eq!(made.effect, Effect::Created);
    let error = rig
        .update(path, lease)
        .await
        .expect_err("must say a version");
    assert_eq!(
        (error.code, error.message.as_str()),
        (
            422,
            "leases.coordination.k8s.io \"l\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update"
        )
    );
}

#[tokio::test]
async fn spec_and_status_are_written_apart() {
    let rig = Rig::new().await;
    let path = "apps/v1/ns:deployments/d";
    rig.create("apps/v1/ns:deployments", deployment("d", 1))
        .await;
    let mut both = deployment("d", 2);
    both["status"] = json!({"replicas": 5});
    let updated = rig.update(path, both.clone()).await.expect("updated");
    assert_eq!(updated["spec"]["replicas"], 2);
    assert_eq!(updated["status"].get("replicas"), None);
    assert_eq!(updated["metadata"]["generation"], 2);
    let mut status = deployment("d", 9);
    status["status"] = json!({"replicas": 5});
    let updated = rig
        .update(&format!("{path}/status"), status)
        .await
        .expect("updated");
    assert_eq!(updated["spec"]["replicas"], 2);
    assert_eq!(updated["status"]["replicas"], 5);
    assert_eq!(updated["metadata"]["generation"], 2);
    let labelled = rig
        .patch(
            path,
            PatchKind::Merge,
            json!({"metadata": {"labels": {"a": "b"}}}),
        )
        .await
        .expect("patched");
    assert_eq!(value(&labelled.object)["metadata"]["generation"], 2);
}

#[tokio::test]
async fn a_scale_is_a_number_of_its_object() {
    let rig = Rig::new().await;
    rig.create("apps/v1/ns:deployments", deployment("d", 3))
        .await;
    let path = "apps/v1/ns:deployments/d/scale";
    let scale = rig.get(path).await.expect("a scale");
    assert_eq!(scale["kind"], "Scale");
    assert_eq!(scale["spec"], json!({"replicas": 3}));
    assert_eq!(scale["status"], json!({"replicas": 0, "selector": "app=a"}));
    let changed = rig
        .patch(path, PatchKind::Merge, json!({"spec": {"replicas": 0}}))
        .await
        .expect("scaled");
    assert_eq!(value(&changed.object)["spec"], json!({}));
    let object = rig.get("apps/v1/ns:deployments/d").await.expect("there");
    assert_eq!(object["spec"]["replicas"], 0);
    assert_eq!(object["metadata"]["generation"], 2);
}

#[tokio::test]
async fn dry_runs_change_nothing() {
    let rig = Rig::new().await;
    let mut context = rig.context("v1/ns:configmaps");
    context.dry_run = true;
    let body = json_body(&json!({"metadata": {"name": "a"}}));
    let made = rig
        .registry
        .create(&context, body)
        .await
        .expect("would be made");
    assert_eq!(value(&made.object)["metadata"].get("resourceVersion"), None);
    assert_eq!(
        rig.get("v1/ns:configmaps/a")
            .await
            .map_err(|error| error.code),
        Err(404)
    );
}

#[tokio::test]
async fn unknown_fields_are_told_or_refused() {
    let rig = Rig::new().await;
    let body = json!({"metadata": {"name": "a"}, "dada": 1});
    let mut context = rig.context("v1/ns:configmaps");
    context.dry_run = true;
    rig.registry
        .create(&context, json_body(&body))
        .await
        .expect("warned");
    assert_eq!(context.warnings.all(), ["unknown field \"dada\""]);
    context.field_validation = FieldValidation::Strict;
    let error = rig
        .registry
        .create(&context, json_body(&body))
        .await
        .expect_err("refused");
    assert_eq!(
        (error.code, error.message.as_str()),
        (
            400,
            "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: unknown field \"dada\""
        )
    );
}

#[tokio::test]
async fn what_says_that_it_is_immutable_is() {
    let rig = Rig::new().await;
    let body = json!({"metadata": {"name": "s"}, "stringData": {"a": "b"}, "immutable": true});
    let made = rig.create("v1/ns:secrets", body).await;
    assert_eq!(made["data"], json!({"a": "Yg=="}));
    assert_eq!(made["type"], "Opaque");
    let error = rig
        .patch(
            "v1/ns:secrets/s",
            PatchKind::Merge,
            json!({"data": {"a": "Yw=="}, "immutable": null}),
        )
        .await
        .expect_err("is immutable");
    assert_eq!(
        error.message,
        "Secret \"s\" is invalid: [immutable: Forbidden: field is immutable when `immutable` is set, data: Forbidden: field is immutable when `immutable` is set]"
    );
}

#[tokio::test]
async fn one_event_has_two_faces() {
    let rig = Rig::new().await;
    let body = json!({"metadata": {"name": "e"}, "involvedObject": {"namespace": "ns", "name": "x"},
        "message": "m", "reason": "r"});
    rig.create("v1/ns:events", body).await;
    let new = rig
        .get("events.k8s.io/v1/ns:events/e")
        .await
        .expect("there");
    assert_eq!(new["apiVersion"], "events.k8s.io/v1");
    assert_eq!(
        (&new["note"], &new["regarding"]["name"]),
        (&json!("m"), &json!("x"))
    );
}

#[tokio::test]
async fn a_patch_of_nothing_reads() {
    let rig = Rig::new().await;
    let made = rig
        .create(
            "v1/ns:configmaps",
            json!({"metadata": {"name": "a"}, "data": {"k": "v"}}),
        )
        .await;
    let path = "v1/ns:configmaps/a";
    for kind in [PatchKind::Merge, PatchKind::Strategic] {
        let patched = rig.patch(path, kind, json!({})).await;
        let patched = patched.expect("a patch of nothing").object;
        assert_eq!(value(&patched), made, "{kind:?}");
    }
    let missing = rig.patch("v1/ns:configmaps/b", PatchKind::Merge, json!({}));
    assert_eq!(
        missing.await.map(|_| ()).map_err(|error| error.code),
        Err(404)
    );
}

#[tokio::test]
async fn an_object_grows_so_far_and_what_is_longer_can_be_let_go() {
    const PATH: &str = "apps/v1/ns:deployments/d";
    let rig = Rig::new().await;
    let mut made = deployment("d", 1);
    made["metadata"]["finalizers"] = json!(["example.com/a", "example.com/b"]);
    made["spec"]["template"]["spec"]["containers"][0]["args"] = json!(["x"]);
    rig.create("apps/v1/ns:deployments", made).await;
    let longer = json!([{"op": "add", "path": "/spec/template/spec/containers/0/args/-",
        "value": "x".repeat(2_500_000)}]);
    let grow = async || rig.patch(PATH, PatchKind::Json, longer.clone()).await;
    for _ in 0..3 {
        assert!(grow().await.is_ok());
    }
    let before = rig.get(PATH).await;
    let refused = grow().await.expect_err("too long");
    assert_eq!(
        (refused.code, refused.reason),
        (413, "RequestEntityTooLarge")
    );
    assert!(refused.message.contains("8388608"), "{}", refused.message);
    assert_eq!(rig.get(PATH).await, before);

    // One that was stored before there was a limit.
    let context = rig.context(PATH);
    let stored = rig.registry.stored(&context).expect("is there");
    let mut object = stored.value();
    object["spec"]["template"]["spec"]["containers"][0]["args"] =
        json!(["x".repeat(10_000_000), "y"]);
    let write = Write {
        resource: context.resource.storage_key.clone(),
        key: stored.key(),
        expect: Expect::Revision(stored.revision()),
        change: Change::Put(object),
        class: Class::Durable,
    };
    rig.registry.store().commit(write).await.expect("is stored");
    let patch = async |patch: Value| rig.patch(PATH, PatchKind::Merge, patch).await;
    let labelled = patch(json!({"metadata": {"labels": {"a": "b"}}})).await;
    assert_eq!(labelled.map_err(|error| error.code).err(), Some(413));
    // Whoever takes a finalizer adds nothing with it, or an object grew with each of them.
    let both = json!([{"op": "remove", "path": "/metadata/finalizers/0"},
        {"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "x".repeat(2_000)}]);
    let both = rig.patch(PATH, PatchKind::Json, both).await;
    assert_eq!(both.map_err(|error| error.code).err(), Some(413));
    let released = json!({"metadata": {"finalizers": ["example.com/a"]}});
    assert!(patch(released).await.is_ok());
    let shorter = json!([{"op": "remove", "path": "/spec/template/spec/containers/0/args/1"}]);
    assert!(rig.patch(PATH, PatchKind::Json, shorter).await.is_ok());
    let deleting = rig.delete(PATH, json!({})).await.expect("is marked");
    assert!(deleting["metadata"]["deletionTimestamp"].is_string());
    assert!(
        patch(json!({"metadata": {"finalizers": null}}))
            .await
            .is_ok()
    );
    assert_eq!(rig.get(PATH).await.map_err(|error| error.code), Err(404));
}
