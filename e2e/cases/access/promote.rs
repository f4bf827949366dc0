//! `towline promote`: what a member has becomes a template of the hub, and goes on running.

use super::rig::{LONG, Stage, apply, is_built_in, reach};
use crate::env::{Run, wait_for, wait_for_some};
use anyhow::{Context as _, Result, ensure};
use common::labels::{CONFLICT_RESOLUTION, MANAGED, MANAGED_VALUE, WORK_NAME};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

const RBAC: &str = "rbac.authorization.k8s.io";

/// Somebody's workload, which the hub does not know.
fn web() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default", "labels": {"app": "web"}},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "web", "image": "registry.example.com/web:1"}]},
        }},
    })
}

fn binding(name: &str, role: &str, namespace: Option<&str>) -> Value {
    let mut binding = json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": "ann"}],
    });
    if let Some(namespace) = namespace {
        binding["kind"] = json!("RoleBinding");
        binding["metadata"]["namespace"] = json!(namespace);
    }
    binding
}

/// One that Ann may read in the member, and that is nobody's.
async fn workload(stage: &Stage) -> Result<(Api<Deployment>, Deployment)> {
    let member = stage.member().await?;
    let role = json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole", "metadata": {"name": "reads-deployments"},
        "rules": [{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "list"]}],
    });
    let bound = binding("reads-deployments", "reads-deployments", Some("default"));
    apply(&member, vec![role, bound, web()]).await?;
    let deployments: Api<Deployment> = Api::default_namespaced(member);
    // Whoever keeps it has written its first status by then.
    let found = wait_for_some("the workload", LONG, async || {
        let found = deployments.get("web").await?;
        let seen = found.status.as_ref().and_then(|it| it.observed_generation);
        Ok((is_built_in() || seen == found.metadata.generation).then_some(found))
    });
    let found = found.await?;
    Ok((deployments, found))
}

fn policies(hub: &Client) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk("policy.karmada.io", "v1alpha1", "PropagationPolicy");
    let resource = ApiResource::from_gvk_with_plural(&gvk, "propagationpolicies");
    Api::default_namespaced_with(hub.clone(), &resource)
}

/// Whether neither the template nor a policy is on the hub.
async fn untouched(hub: &Client) -> Result<()> {
    let deployments: Api<Deployment> = Api::default_namespaced(hub.clone());
    let found = deployments.get_opt("web").await?;
    let all = policies(hub).list(&ListParams::default()).await?;
    ensure!(found.is_none() && all.items.is_empty(), "{found:?} {all:?}");
    Ok(())
}

/// What it refers to comes along, with a policy that says so, or waits with it for one.
#[tokio::test(flavor = "multi_thread")]
async fn access_promotes_what_it_refers_to() -> Result<()> {
    let stage = Stage::set("access-promote-deps", "impersonate").await?;
    let hub = stage.fleet.client().await?;
    apply(&hub, vec![binding("ann-owns", "cluster-admin", None)]).await?;
    let member = stage.member().await?;
    apply(&member, vec![binding("ann-owns", "cluster-admin", None)]).await?;
    let mut using = web();
    using["spec"]["template"]["spec"]["containers"][0]["envFrom"] = json!([
        {"configMapRef": {"name": "settings"}},
        {"configMapRef": {"name": "nowhere", "optional": true}},
        {"configMapRef": {"name": "shared"}},
    ]);
    let map = |name: &str, text: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"},
            "data": {"k": text}})
    };
    let (settings, shared) = (map("settings", "1"), map("shared", "1"));
    apply(&member, vec![settings, shared.clone(), using]).await?;
    let maps: Api<ConfigMap> = Api::default_namespaced(member.clone());
    let before = maps.get("settings").await?;

    // The hub has another one of that name, which the member's would become.
    apply(&hub, vec![map("shared", "2")]).await?;
    let other = wait_for_some("every right", LONG, async || {
        let run = promote(&stage, &["deploy/web", "--yes", "-d"]).await?;
        Ok((run.code == 7).then_some(run))
    });
    let other = other.await?;
    ensure!(
        other.stderr.contains(
            "ConfigMap default/shared exists on the hub and is another one in cluster m1"
        ),
        "{other:?}"
    );
    untouched(&hub).await?;
    apply(&hub, vec![shared]).await?;

    // Without a policy nothing goes anywhere.
    let words = [
        "deploy/web",
        "--dry-run",
        "-d=true",
        "--auto-create-policy=false",
        "-o",
        "json",
    ];
    let alone = promote(&stage, &words).await?.ok()?;
    let alone: Value = serde_json::from_str(&alone.stdout)?;
    let kinds: Vec<&Value> = alone["items"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|it| &it["kind"])
        .collect();
    ensure!(
        kinds == ["ConfigMap", "Deployment"]
            && alone["items"][1]["metadata"]["annotations"][CONFLICT_RESOLUTION] == "overwrite",
        "{alone}"
    );
    let told = ["deploy/web", "--dry-run", "--auto-create-policy=false"];
    let told = promote(&stage, &told).await?.ok()?;
    ensure!(
        told.stdout
            .contains("goes to no member until a policy selects it"),
        "{told:?}"
    );
    untouched(&hub).await?;

    let done = promote(&stage, &["deploy/web", "--yes", "--dependencies"])
        .await?
        .ok()?;
    for said in [
        "In m1 nothing of ConfigMap settings changes",
        "ConfigMap default/nowhere is not in cluster m1.",
        "ConfigMap default/shared is on the hub already.",
        "configmap/settings created in default",
        "deployment.apps/web created in default",
    ] {
        ensure!(done.stdout.contains(said), "{said}: {done:?}");
    }
    let policy = policies(&hub).get("web-deployment").await?;
    ensure!(policy.data["spec"]["propagateDeps"] == true, "{policy:?}");
    let taken = wait_for_some("its Work to take it over", LONG, async || {
        let found = maps.get("settings").await?;
        let marked = found
            .labels()
            .get(MANAGED)
            .is_some_and(|it| it == MANAGED_VALUE);
        Ok(marked.then_some(found))
    });
    let taken = taken.await?;
    ensure!(
        taken.metadata.uid == before.metadata.uid && taken.data == before.data,
        "{before:?} became {taken:?}"
    );
    stage.passed().await;
    Ok(())
}

/// `towline promote` as Ann.
async fn promote(stage: &Stage, words: &[&str]) -> Result<Run> {
    let ann = stage.kubeconfig("ann", &[])?.display().to_string();
    let words = ["promote"].iter().chain(words).copied();
    let words = words.chain(["-C", "m1", "-n", "default", "--kubeconfig", &ann]);
    stage.fleet.towline.cli(words).await
}

#[tokio::test(flavor = "multi_thread")]
async fn access_promotes_what_a_member_has() -> Result<()> {
    let stage = Stage::set("access-promote", "impersonate").await?;
    let hub = stage.fleet.client().await?;
    let (there, before) = workload(&stage).await?;

    // With no more than a namespace of the hub, nothing is known of other policies.
    apply(&hub, vec![binding("ann-edits", "edit", Some("default"))]).await?;
    let tried = wait_for_some("rights on the hub", LONG, async || {
        let run = promote(&stage, &["deploy/web", "--dry-run"]).await?;
        ensure!(run.code == 0, "{run:?}");
        Ok(Some(run))
    });
    let tried = tried.await?;
    ensure!(
        tried
            .stdout
            .contains("You may not read what else decides on the hub")
            && tried
                .stdout
                .contains("deployment.apps/web created in default (dry run)"),
        "{tried:?}"
    );
    untouched(&hub).await?;
    refused(&stage, &hub).await?;

    apply(&hub, vec![binding("ann-owns", "cluster-admin", None)]).await?;
    let tried = wait_for_some("every right on the hub", LONG, async || {
        let run = promote(&stage, &["deployment", "web", "--dry-run"])
            .await?
            .ok()?;
        Ok(run
            .stdout
            .contains("PropagationPolicy default/web-deployment")
            .then_some(run))
    });
    let tried = tried.await?;
    ensure!(
        tried
            .stdout
            .contains("In m1 nothing of it changes but the marks of its Work"),
        "{tried:?}"
    );
    let file = promote(&stage, &["deploy/web", "--dry-run", "-o", "json"])
        .await?
        .ok()?;
    let file: Value = serde_json::from_str(&file.stdout)?;
    ensure!(
        file["items"][0]["spec"]["conflictResolution"] == "Overwrite"
            && file["items"][1]["metadata"]["uid"].is_null()
            && file["items"][1]["spec"]["replicas"] == 1,
        "{file}"
    );
    untouched(&hub).await?;
    elsewhere(&stage, &hub).await?;
    // Nobody is there to be asked.
    let unasked = promote(&stage, &["deploy/web"]).await?;
    ensure!(
        unasked.code == 2 && unasked.stderr.contains("Pass --yes"),
        "{unasked:?}"
    );
    untouched(&hub).await?;

    let done = promote(&stage, &["deploy/web", "--yes"]).await?.ok()?;
    ensure!(
        done.stdout
            .contains("deployment.apps/web created in default\n"),
        "{done:?}"
    );
    let owned = wait_for_some("its Work to take it over", LONG, async || {
        let found = there.get("web").await?;
        let taken = found
            .labels()
            .get(MANAGED)
            .is_some_and(|it| it == MANAGED_VALUE);
        Ok(taken.then_some(found))
    });
    let owned = owned.await?;
    same(&before, &owned)?;
    let again = promote(&stage, &["deploy/web", "--yes"]).await?;
    let work = owned.annotations().get(WORK_NAME).context("no mark")?;
    ensure!(again.code == 7 && again.stderr.contains(work), "{again:?}");
    followed(&hub, &there, &before).await?;
    left(&hub, &there, &before).await?;
    stage.passed().await;
    Ok(())
}

/// Nothing that runs was told anything new; of a Deployment the generation counts annotations too.
fn same(before: &Deployment, now: &Deployment) -> Result<()> {
    ensure!(
        before.metadata.uid == now.metadata.uid && before.spec == now.spec,
        "{before:?} became {now:?}"
    );
    Ok(())
}

/// What cannot be meant, and what Ann may not do.
async fn refused(stage: &Stage, hub: &Client) -> Result<()> {
    let here = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "here", "namespace": "default"},
        "data": {"cluster": "hub"}});
    apply(hub, vec![here]).await?;
    for (words, code, text) in [
        (&["cm", "nowhere"], 4, "\"nowhere\" not found"),
        (
            &["cm", "here"],
            7,
            "ConfigMap default/here exists on the hub",
        ),
        (&["secrets", "any"], 5, "User \"ann\" cannot get"),
        (&["tills", "any"], 4, "doesn't have a resource type"),
    ] {
        let words: Vec<&str> = words.iter().copied().chain(["--yes"]).collect();
        let run = promote(stage, &words).await?;
        ensure!(
            run.code == code && run.stderr.contains(text),
            "{words:?}: {run:?}"
        );
    }
    let maps: Api<ConfigMap> = Api::default_namespaced(hub.clone());
    let kept = maps.get("here").await?.data.unwrap_or_default();
    ensure!(kept["cluster"] == "hub", "{kept:?}");
    let ann = stage.kubeconfig("ann", &[])?.display().to_string();
    let unknown = ["promote", "cm/here", "-C", "m9", "--kubeconfig", &ann];
    let unknown = stage.fleet.towline.cli(unknown).await?;
    ensure!(
        unknown.code == 4 && unknown.stderr.contains("no cluster \"m9\""),
        "{unknown:?}"
    );
    // Who may reach no member reads nothing there.
    apply(hub, reach("bob", &["m2"], &["get"])).await?;
    let bob = stage.kubeconfig("bob", &[])?.display().to_string();
    let words = [
        "promote",
        "cm/here",
        "-C",
        "m1",
        "-n",
        "default",
        "--kubeconfig",
        &bob,
    ];
    wait_for("Bob to be refused", LONG, async || {
        let run = stage.fleet.towline.cli(words).await?;
        ensure!(
            run.code == 5 && run.stderr.contains("clusters/proxy"),
            "{run:?}"
        );
        Ok(true)
    })
    .await?;
    untouched(hub).await
}

/// Another policy would take it: nothing is written.
async fn elsewhere(stage: &Stage, hub: &Client) -> Result<()> {
    let all = json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": "all", "namespace": "default"},
        "spec": {"priority": 9, "placement": {},
            "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}]}});
    apply(hub, vec![all]).await?;
    let run = promote(stage, &["deploy/web", "--yes"]).await?;
    ensure!(
        run.code == 7
            && run
                .stderr
                .contains("would be held by PropagationPolicy default/all"),
        "{run:?}"
    );
    policies(hub)
        .delete("all", &DeleteParams::default())
        .await?;
    wait_for("the other policy to be gone", LONG, async || {
        Ok(policies(hub).get_opt("all").await?.is_none())
    })
    .await?;
    untouched(hub).await
}

/// The template is the hub's from then on.
async fn followed(hub: &Client, there: &Api<Deployment>, before: &Deployment) -> Result<()> {
    let templates: Api<Deployment> = Api::default_namespaced(hub.clone());
    let more = Patch::Merge(json!({"spec": {"replicas": 2}}));
    templates
        .patch("web", &PatchParams::default(), &more)
        .await?;
    wait_for("what the hub says", LONG, async || {
        let found = there.get("web").await?;
        ensure!(found.metadata.uid == before.metadata.uid, "{found:?}");
        Ok(found.spec.and_then(|it| it.replicas) == Some(2))
    })
    .await
}

/// The policy goes, and then the template; what runs stays, and is nobody's.
async fn left(hub: &Client, there: &Api<Deployment>, before: &Deployment) -> Result<()> {
    policies(hub)
        .delete("web-deployment", &DeleteParams::default())
        .await?;
    let let_go =
        async || {
            wait_for("the workload to be nobody's", LONG, async || {
                let found = there.get("web").await?;
                ensure!(found.metadata.uid == before.metadata.uid, "{found:?}");
                Ok(found.metadata.deletion_timestamp.is_none()
                    && !found.labels().contains_key(MANAGED))
            })
            .await
        };
    let_go().await?;
    let templates: Api<Deployment> = Api::default_namespaced(hub.clone());
    templates.delete("web", &DeleteParams::default()).await?;
    wait_for("the template to be gone", LONG, async || {
        Ok(templates.get_opt("web").await?.is_none())
    })
    .await?;
    let_go().await
}
