//! Scenes between Works, members and people, one function each, in one lab.

use super::rig::{Rig, Running, SOON, condition, config_map};
use crate::env::{left_out, wait_for};
use anyhow::{Result, ensure};
use common::labels::{CONFLICT_RESOLUTION, DELETION, HOLD_UNTIL, MANAGED};
use futures::FutureExt as _;
use futures::future::LocalBoxFuture;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::core::DynamicObject;
use serde_json::{Value, json};

type Scene = for<'a> fn(&'a Rig, &'a Running) -> LocalBoxFuture<'a, Result<()>>;

macro_rules! scenes {
    ($($name:ident),* $(,)?) => {
        [$((stringify!($name), (|rig, run| $name(rig, run).boxed_local()) as Scene)),*]
    };
}

/// Every scene, all at the same time.
#[tokio::test(flavor = "multi_thread")]
async fn works_scenarios() -> Result<()> {
    let rig = Rig::start("works-scenarios").await?;
    let running = rig.run().await?;
    let scenes = scenes![
        a_manifest_that_leaves_is_pruned,
        two_works_want_one_object,
        a_definition_and_its_resources_in_one_work,
        a_namespace_and_what_is_in_it,
        a_namespace_with_foreign_objects_is_kept,
        a_namespace_is_stuck_terminating,
        a_quota_is_exceeded,
        bad_manifests_are_named,
        a_kind_comes_later,
        fields_of_others_are_named,
        an_immutable_field_is_refused,
        a_held_object_is_left_alone,
        a_kept_object_outlives_its_work,
        a_deletion_that_waits_says_why,
        an_autoscaler_owns_the_replicas,
        replicas_are_kept_when_asked_later,
        fields_of_client_side_apply_go,
        a_big_work_and_a_work_of_many,
    ];
    let ended = futures::future::join_all(scenes.map(|(name, scene)| {
        let (rig, running) = (&rig, &running);
        async move { (name, scene(rig, running).await) }
    }))
    .await;
    let mut failed = Vec::new();
    for (name, result) in ended {
        match result {
            Ok(()) => println!("{name}: holds"),
            Err(error) => failed.push(format!("{name}: {error:#}")),
        }
    }
    if let Some(text) = running.context.errors.text() {
        println!("the engine says: {text}");
    }
    running.stop().await;
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    rig.passed().await;
    Ok(())
}

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

fn in_namespace(mut manifest: Value, namespace: &str) -> Value {
    manifest["metadata"]["namespace"] = namespace.into();
    manifest
}

async fn create(api: &Api<DynamicObject>, object: Value) -> Result<()> {
    api.create(&PostParams::default(), &serde_json::from_value(object)?)
        .await?;
    Ok(())
}

fn by(manager: &str) -> PatchParams {
    PatchParams {
        field_manager: Some(manager.into()),
        ..PatchParams::default()
    }
}

async fn a_manifest_that_leaves_is_pruned(rig: &Rig, _: &Running) -> Result<()> {
    let stays = config_map("prune-stays", &json!({"k": "v"}));
    rig.deliver(
        "prune",
        &[stays.clone(), config_map("prune-goes", &json!({}))],
    )
    .await?;
    rig.applied("prune", "True", "").await?;
    rig.live(&rig.maps(), "prune-goes", |_| true).await?;
    rig.redeliver("prune", &[stays]).await?;
    rig.gone(&rig.maps(), "prune-goes").await?;
    rig.live(&rig.maps(), "prune-stays", |_| true).await?;
    rig.status("prune", |s| {
        s["manifestStatuses"]
            .as_array()
            .is_some_and(|m| m.len() == 1)
    })
    .await?;
    Ok(())
}

async fn two_works_want_one_object(rig: &Rig, _: &Running) -> Result<()> {
    rig.deliver("two-a", &[config_map("two", &json!({"k": "a"}))])
        .await?;
    rig.applied("two-a", "True", "").await?;
    rig.deliver("two-b", &[config_map("two", &json!({"k": "b"}))])
        .await?;
    rig.applied(
        "two-b",
        "False",
        "belongs to work(karmada-es-member1/two-a)",
    )
    .await?;
    rig.live(&rig.maps(), "two", |v| v["data"]["k"] == "a")
        .await?;
    // Taken over: the first one's deletion leaves it alone.
    let mut over = config_map("two", &json!({"k": "b"}));
    over["metadata"]["annotations"] = json!({CONFLICT_RESOLUTION: "overwrite"});
    rig.redeliver("two-b", &[over]).await?;
    rig.applied("two-b", "True", "").await?;
    let live = rig
        .live(&rig.maps(), "two", |v| v["data"]["k"] == "b")
        .await?;
    rig.applied("two-a", "False", "belongs to work").await?;
    rig.delete_work("two-a").await?;
    rig.work_gone("two-a").await?;
    let after = rig.live(&rig.maps(), "two", |_| true).await?;
    ensure!(after["metadata"]["uid"] == live["metadata"]["uid"]);
    // And a Work that waits gets the object when the one that has it goes.
    rig.deliver("two-c", &[config_map("two", &json!({"k": "c"}))])
        .await?;
    rig.applied("two-c", "False", "belongs to work").await?;
    rig.delete_work("two-b").await?;
    rig.applied("two-c", "True", "").await?;
    rig.live(&rig.maps(), "two", |v| v["data"]["k"] == "c")
        .await?;
    Ok(())
}

fn definition(plural: &str, kind: &str) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.example.com")},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": plural, "singular": plural.trim_end_matches('s'), "kind": kind},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}})
}

fn custom(kind: &str, name: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": kind,
        "metadata": {"name": name, "namespace": "default"}, "spec": {"size": 1}})
}

async fn a_definition_and_its_resources_in_one_work(rig: &Rig, _: &Running) -> Result<()> {
    rig.deliver(
        "crd",
        &[custom("Gadget", "g1"), definition("gadgets", "Gadget")],
    )
    .await?;
    rig.applied("crd", "True", "").await?;
    let api = rig.objects("example.com/v1", "Gadget", "default");
    api.patch_status(
        "g1",
        &PatchParams::default(),
        &Patch::Merge(json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}})),
    )
    .await?;
    rig.status("crd", |s| s["manifestStatuses"][0]["health"] == "Unhealthy")
        .await?;
    rig.delete_work("crd").await?;
    rig.work_gone("crd").await
}

async fn a_namespace_and_what_is_in_it(rig: &Rig, _: &Running) -> Result<()> {
    let inside = in_namespace(config_map("inside", &json!({"k": "v"})), "made");
    rig.deliver("made", &[inside, namespace("made")]).await?;
    rig.applied("made", "True", "").await?;
    rig.delete_work("made").await?;
    rig.work_gone("made").await?;
    let api = rig.objects("v1", "Namespace", "default");
    let all: Api<DynamicObject> = Api::all_with(rig.member.clone(), &resource_of("Namespace"));
    drop(api);
    rig.gone(&all, "made").await
}

fn resource_of(kind: &str) -> kube::core::ApiResource {
    kube::core::ApiResource::from_gvk(&kube::core::GroupVersionKind::gvk("", "v1", kind))
}

async fn a_namespace_with_foreign_objects_is_kept(rig: &Rig, _: &Running) -> Result<()> {
    rig.deliver("shared", &[namespace("shared")]).await?;
    rig.applied("shared", "True", "").await?;
    let maps = rig.objects("v1", "ConfigMap", "shared");
    let foreign = in_namespace(config_map("foreign", &json!({})), "shared");
    create(&maps, foreign).await?;
    rig.delete_work("shared").await?;
    rig.work_gone("shared").await?;
    let all: Api<DynamicObject> = Api::all_with(rig.member.clone(), &resource_of("Namespace"));
    let kept = rig.live(&all, "shared", |_| true).await?;
    ensure!(kept["status"]["phase"] == "Active", "{kept}");
    ensure!(kept["metadata"]["labels"].get(MANAGED).is_none(), "{kept}");
    ensure!(maps.get_opt("foreign").await?.is_some());
    Ok(())
}

async fn a_namespace_is_stuck_terminating(rig: &Rig, _: &Running) -> Result<()> {
    let inside = |name: &str| in_namespace(config_map(name, &json!({"k": "v"})), "limbo");
    rig.deliver("limbo", &[namespace("limbo"), inside("held")])
        .await?;
    rig.applied("limbo", "True", "").await?;
    let maps = rig.objects("v1", "ConfigMap", "limbo");
    let hold = json!({"metadata": {"finalizers": ["example.com/slow"]}});
    maps.patch("held", &by("someone"), &Patch::Merge(hold))
        .await?;
    let all: Api<DynamicObject> = Api::all_with(rig.member.clone(), &resource_of("Namespace"));
    all.delete("limbo", &DeleteParams::default()).await?;
    rig.live(&all, "limbo", |v| v["status"]["phase"] == "Terminating")
        .await?;
    // Each Work that has something there is told why, and what it has elsewhere goes on.
    rig.deliver(
        "limbo-too",
        &[inside("new"), config_map("out-of-limbo", &json!({}))],
    )
    .await?;
    rig.applied("limbo", "False", "is being deleted").await?;
    rig.applied("limbo-too", "False", "being terminated")
        .await?;
    rig.live(&rig.maps(), "out-of-limbo", |_| true).await?;
    let free = json!({"metadata": {"finalizers": null}});
    maps.patch("held", &by("someone"), &Patch::Merge(free))
        .await?;
    // Gone at last, it is made anew, with what belongs into it.
    for (work, name) in [("limbo", "held"), ("limbo-too", "new")] {
        rig.applied(work, "True", "").await?;
        rig.live(&maps, name, |v| v["data"]["k"] == "v").await?;
    }
    for work in ["limbo-too", "limbo"] {
        rig.delete_work(work).await?;
        rig.work_gone(work).await?;
    }
    rig.gone(&all, "limbo").await
}

async fn a_quota_is_exceeded(rig: &Rig, _: &Running) -> Result<()> {
    rig.deliver(
        "quota",
        &[
            namespace("tight"),
            in_namespace(
                json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"},
                    "spec": {"hard": {"count/configmaps": "0"}}}),
                "tight",
            ),
        ],
    )
    .await?;
    rig.applied("quota", "True", "").await?;
    if rig.lab.members[0].options.builtin {
        left_out(
            "a_quota_is_exceeded",
            "a built-in server stores quotas and enforces none (docs/hub-profile.md)",
        );
        return Ok(());
    }
    let quotas = rig.objects("v1", "ResourceQuota", "tight");
    rig.live(&quotas, "q", |v| !v["status"]["hard"].is_null())
        .await?;
    let over = in_namespace(config_map("over", &json!({})), "tight");
    rig.deliver("over", &[over, config_map("not-over", &json!({}))])
        .await?;
    rig.applied("over", "False", "exceeded quota").await?;
    rig.live(&rig.maps(), "not-over", |_| true).await?;
    Ok(())
}

async fn bad_manifests_are_named(rig: &Rig, _: &Running) -> Result<()> {
    let mut nowhere = config_map("nowhere", &json!({}));
    nowhere["metadata"] = json!({"name": "nowhere"});
    rig.deliver(
        "bad",
        &[
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "x-"}}),
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "default"}}),
            nowhere,
            json!({"apiVersion": "example.com/v9", "kind": "Nothing", "metadata": {"name": "n", "namespace": "default"}}),
            config_map("good", &json!({})),
            config_map("good", &json!({"twice": "1"})),
        ],
    )
    .await?;
    let status = rig.applied("bad", "False", "(1/6)").await?;
    let message = condition(&status, "Applied").expect("just seen")["message"].clone();
    let message = message.as_str().unwrap_or_default();
    for words in [
        "uses metadata.generateName",
        "has no metadata.name",
        "the manifest names no metadata.namespace",
        "serves no Nothing in example.com/v9",
        "names the same object as manifest 4",
    ] {
        ensure!(message.contains(words), "{words}: {message}");
    }
    let live = rig.live(&rig.maps(), "good", |_| true).await?;
    ensure!(live.get("data").is_none(), "{live}");
    Ok(())
}

async fn a_kind_comes_later(rig: &Rig, _: &Running) -> Result<()> {
    rig.deliver("later", &[custom("Latecomer", "l1")]).await?;
    rig.applied("later", "False", "serves no Latecomer").await?;
    let all = kube::core::ApiResource::from_gvk(&kube::core::GroupVersionKind::gvk(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
    ));
    let definitions: Api<DynamicObject> = Api::all_with(rig.member.clone(), &all);
    create(&definitions, definition("latecomers", "Latecomer")).await?;
    rig.applied("later", "True", "").await?;
    Ok(())
}

async fn fields_of_others_are_named(rig: &Rig, _: &Running) -> Result<()> {
    rig.deliver("fields", &[config_map("fields", &json!({"ours": "1"}))])
        .await?;
    rig.applied("fields", "True", "").await?;
    rig.maps()
        .patch(
            "fields",
            &by("someone"),
            &Patch::Merge(json!({"data": {"theirs": "1"}})),
        )
        .await?;
    let want = json!({"ours": "1", "theirs": "2"});
    rig.redeliver("fields", &[config_map("fields", &want)])
        .await?;
    rig.applied("fields", "False", ".data.theirs is owned by \"someone\"")
        .await?;
    let live = rig.live(&rig.maps(), "fields", |_| true).await?;
    ensure!(live["data"]["theirs"] == "1", "{live}");
    let mut over = config_map("fields", &want);
    over["metadata"]["annotations"] = json!({CONFLICT_RESOLUTION: "overwrite"});
    rig.redeliver("fields", &[over]).await?;
    rig.applied("fields", "True", "").await?;
    rig.live(&rig.maps(), "fields", |v| v["data"]["theirs"] == "2")
        .await?;
    Ok(())
}

async fn an_immutable_field_is_refused(rig: &Rig, _: &Running) -> Result<()> {
    let map = |v: &str| {
        let mut map = config_map("fixed", &json!({"k": v}));
        map["immutable"] = true.into();
        map
    };
    rig.deliver("fixed", &[map("1")]).await?;
    rig.applied("fixed", "True", "").await?;
    rig.redeliver("fixed", &[map("2")]).await?;
    rig.applied("fixed", "False", "field is immutable").await?;
    Ok(())
}

async fn a_held_object_is_left_alone(rig: &Rig, _: &Running) -> Result<()> {
    rig.deliver("held", &[config_map("held", &json!({"k": "v"}))])
        .await?;
    rig.applied("held", "True", "").await?;
    let until = "2999-01-01T00:00:00Z";
    let patch = json!({"metadata": {"annotations": {HOLD_UNTIL: until}}, "data": {"k": "mine"}});
    rig.maps()
        .patch("held", &by("someone"), &Patch::Merge(patch))
        .await?;
    rig.status("held", |s| {
        condition(s, "Degraded").is_some_and(|c| {
            c["status"] == "True" && c["message"].as_str().is_some_and(|m| m.contains(until))
        })
    })
    .await?;
    let live = rig.live(&rig.maps(), "held", |_| true).await?;
    ensure!(live["data"]["k"] == "mine", "{live}");
    let patch = json!({"metadata": {"annotations": {HOLD_UNTIL: null}}});
    rig.maps()
        .patch("held", &by("someone"), &Patch::Merge(patch))
        .await?;
    rig.live(&rig.maps(), "held", |v| v["data"]["k"] == "v")
        .await?;
    rig.status("held", |s| {
        condition(s, "Degraded").is_some_and(|c| c["status"] == "False")
    })
    .await?;
    Ok(())
}

async fn a_kept_object_outlives_its_work(rig: &Rig, _: &Running) -> Result<()> {
    let mut kept = config_map("kept", &json!({"k": "v"}));
    kept["metadata"]["annotations"] = json!({DELETION: "keep"});
    rig.deliver("kept", &[kept]).await?;
    rig.applied("kept", "True", "").await?;
    rig.delete_work("kept").await?;
    rig.work_gone("kept").await?;
    let live = rig.live(&rig.maps(), "kept", |_| true).await?;
    ensure!(live["metadata"]["labels"].get(MANAGED).is_none(), "{live}");
    Ok(())
}

async fn a_deletion_that_waits_says_why(rig: &Rig, _: &Running) -> Result<()> {
    rig.deliver("stuck", &[config_map("stuck", &json!({}))])
        .await?;
    rig.applied("stuck", "True", "").await?;
    let patch = json!({"metadata": {"finalizers": ["example.com/slow"]}});
    rig.maps()
        .patch("stuck", &by("someone"), &Patch::Merge(patch))
        .await?;
    rig.delete_work("stuck").await?;
    rig.status("stuck", |s| {
        condition(s, "Degraded").is_some_and(|c| {
            c["reason"] == "DeletionBlocked"
                && c["message"]
                    .as_str()
                    .is_some_and(|m| m.contains("example.com/slow"))
        })
    })
    .await?;
    let patch = json!({"metadata": {"finalizers": null}});
    rig.maps()
        .patch("stuck", &by("someone"), &Patch::Merge(patch))
        .await?;
    rig.work_gone("stuck").await
}

fn deployment(name: &str, replicas: u32, labels: &Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "c", "image": "registry.invalid/c"}]}}}})
}

async fn scale(api: &Api<DynamicObject>, name: &str, replicas: u32) -> Result<()> {
    let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    api.patch_subresource("scale", name, &by("scaler"), &patch)
        .await?;
    Ok(())
}

async fn an_autoscaler_owns_the_replicas(rig: &Rig, run: &Running) -> Result<()> {
    let api = rig.objects("apps/v1", "Deployment", "default");
    rig.deliver("hpa", &[deployment("hpa", 2, &json!({}))])
        .await?;
    rig.applied("hpa", "True", "").await?;
    // Without an autoscaler another number is drift.
    scale(&api, "hpa", 5).await?;
    rig.live(&api, "hpa", |v| v["spec"]["replicas"] == 2)
        .await?;
    let scalers = rig.objects("autoscaling/v2", "HorizontalPodAutoscaler", "default");
    create(
        &scalers,
        json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "hpa"},
            "spec": {"minReplicas": 1, "maxReplicas": 9,
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "hpa"}}}),
    )
    .await?;
    // We let go of the number once someone else holds it.
    rig.live(&api, "hpa", |v| {
        let managers = v["metadata"]["managedFields"].as_array();
        let holds = |name: &str| {
            managers.into_iter().flatten().any(|e| {
                e["manager"] == name
                    && e["operation"] == "Apply"
                    && !e["fieldsV1"]["f:spec"]["f:replicas"].is_null()
            })
        };
        holds("towline-retained") && !holds("towline")
    })
    .await?;
    let writes = || {
        let written = run.member.written();
        written
            .iter()
            .filter(|line| line.contains("deployments/hpa"))
            .count()
    };
    let before = writes();
    scale(&api, "hpa", 6).await?;
    rig.status("hpa", |s| {
        s["manifestStatuses"][0]["status"]["replicas"] == 6
    })
    .await?;
    // A sidecar that someone else injects stays as well.
    let sidecar = json!({"spec": {"template": {"spec": {"containers": [{"name": "sidecar", "image": "registry.invalid/s"}]}}}});
    api.patch("hpa", &by("injector"), &Patch::Strategic(sidecar))
        .await?;
    rig.status("hpa", |s| {
        s["manifestStatuses"][0]["status"]["observedGeneration"]
            == s["manifestStatuses"][0]["status"]["generation"]
            && s["manifestStatuses"][0]["status"]["updatedReplicas"] == 6
    })
    .await?;
    ensure!(writes() == before, "{:?}", run.member.written());
    let live = rig.live(&api, "hpa", |_| true).await?;
    ensure!(live["spec"]["replicas"] == 6, "{live}");
    ensure!(
        live["spec"]["template"]["spec"]["containers"]
            .as_array()
            .map(Vec::len)
            == Some(2),
        "{live}"
    );
    // With the autoscaler gone the manifest's number holds again.
    scalers.delete("hpa", &DeleteParams::default()).await?;
    rig.live(&api, "hpa", |v| v["spec"]["replicas"] == 2)
        .await?;
    Ok(())
}

async fn replicas_are_kept_when_asked_later(rig: &Rig, _: &Running) -> Result<()> {
    let api = rig.objects("apps/v1", "Deployment", "default");
    rig.deliver("keep", &[deployment("keep", 3, &json!({}))])
        .await?;
    rig.applied("keep", "True", "").await?;
    let label = json!({common::labels::RETAIN_REPLICAS: "true"});
    rig.redeliver("keep", &[deployment("keep", 3, &label)])
        .await?;
    let live = rig
        .live(&api, "keep", |v| {
            v["metadata"]["labels"][common::labels::RETAIN_REPLICAS] == "true"
        })
        .await?;
    ensure!(live["spec"]["replicas"] == 3, "{live}");
    rig.applied("keep", "True", "").await?;
    Ok(())
}

async fn fields_of_client_side_apply_go(rig: &Rig, _: &Running) -> Result<()> {
    let theirs = config_map("csa", &json!({"old": "1", "both": "1"}));
    let params = PostParams {
        field_manager: Some("kubectl-client-side-apply".into()),
        ..PostParams::default()
    };
    rig.maps()
        .create(&params, &serde_json::from_value(theirs)?)
        .await?;
    let mut manifest = config_map("csa", &json!({"both": "2"}));
    manifest["metadata"]["annotations"] = json!({CONFLICT_RESOLUTION: "overwrite"});
    rig.deliver("csa", &[manifest]).await?;
    rig.live(&rig.maps(), "csa", |v| v["data"] == json!({"both": "2"}))
        .await?;
    Ok(())
}

async fn a_big_work_and_a_work_of_many(rig: &Rig, _: &Running) -> Result<()> {
    let many: Vec<Value> = (0..200)
        .map(|i| config_map(&format!("many-{i}"), &json!({"k": "v"})))
        .collect();
    rig.deliver("many", &many).await?;
    let big = config_map("big", &json!({"k": "x".repeat(900_000)}));
    rig.deliver("big", &[big]).await?;
    rig.applied("big", "True", "").await?;
    let status = rig.applied("many", "True", "").await?;
    ensure!(status["manifestStatuses"].as_array().map(Vec::len) == Some(200));
    rig.delete_work("many").await?;
    rig.work_gone("many").await?;
    wait_for("no object of many", SOON, || async {
        let list = rig
            .maps()
            .list_metadata(&kube::api::ListParams::default())
            .await?;
        Ok(!list.iter().any(|m| {
            m.metadata
                .name
                .as_deref()
                .is_some_and(|n| n.starts_with("many-"))
        }))
    })
    .await
}
