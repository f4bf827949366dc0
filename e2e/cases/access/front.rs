//! The port of `towline-hub run`: who asks is what the hub's own API server says, by the certificate of its front proxy.
//! It is registered there while it serves, and not longer.

use super::rig::{LONG, Stage, apply, ask, led, target, to};
use crate::env::{FRONT_PROXY, Identity, Pki, repository, wait_for};
use anyhow::{Context as _, Result, ensure};
use common::client::{ClientOptions, hub_client};
use common::env::Env;
use common::tunnel::Place;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::Client;
use kube::api::{Api, DeleteParams, PostParams};
use serde::Deserialize as _;
use serde_json::{Value, json};

const MAP: &str = "/api/v1/namespaces/default/configmaps/here";
const APISERVICE: &str = "v1alpha1.proxy.towline.dev";

/// A client of the port itself, past the hub's API server.
async fn past(stage: &Stage, identity: &Identity) -> Result<Client> {
    let target = target(stage, identity).await?;
    Ok(hub_client(
        &target,
        &ClientOptions::new("test"),
        &Env::system(),
    )?)
}

/// Each of whom says that they are somebody else, beside the one who may.
#[tokio::test(flavor = "multi_thread")]
async fn access_is_told_by_the_front_proxy_alone() -> Result<()> {
    let stage = Stage::set("access-front", "impersonate").await?;
    let plane = &stage.lab.hub;
    let front = past(&stage, &plane.front.client(FRONT_PROXY, &[])?).await?;
    let map = to("m1", MAP);
    let ann = [("x-remote-user", "ann"), ("x-remote-group", "dev")];
    ask(&front, "GET", &map, &ann).await?.is(200, "m1")?;
    // Who passes on says who asks, once.
    for headers in [
        &[][..],
        &[("x-remote-group", "system:masters")],
        &[("x-remote-user", "ann"), ("x-remote-user", "admin")],
        &[("impersonate-user", "ann")],
    ] {
        ask(&front, "GET", &map, headers).await?.is(401, "")?;
    }
    let secrets = to("m1", "/api/v1/namespaces/default/secrets");
    let forged = [("x-remote-user", "ann"), ("towline-user", "admin")];
    ask(&front, "GET", &secrets, &forged)
        .await?
        .is(403, "User \\\"ann\\\"")?;
    let bob = [("x-remote-user", "bob")];
    ask(&front, "GET", &map, &bob)
        .await?
        .is(403, "cannot get resource \\\"clusters/proxy\\\"")?;
    let elsewhere = to("m1", "/../../m2/proxy/api");
    ask(&front, "GET", &elsewhere, &ann).await?.is(400, "")?;

    let master = &["system:masters"][..];
    let stranger = Pki::new("stranger")?;
    for (who, identity) in [
        ("another name", plane.front.client("other", &[])?),
        ("another authority", stranger.client(FRONT_PROXY, &[])?),
        ("an administrator", plane.pki.client("admin", master)?),
        ("a user of that name", plane.pki.client(FRONT_PROXY, &[])?),
    ] {
        let client = past(&stage, &identity).await?;
        for path in [&*map, "/apis/proxy.towline.dev/v1alpha1"] {
            let answer = ask(&client, "GET", path, &ann).await;
            answer?.is(401, "Unauthorized").context(who)?;
        }
    }
    // What is served is said to everybody, by the hub's API server.
    let reader = stage.client("ann", &[]).await?;
    for page in ["/apis/", "/openapi/v3/apis/"] {
        let page = format!("{page}proxy.towline.dev/v1alpha1");
        ask(&reader, "GET", &page, &[]).await?.is(200, "")?;
    }
    // Where Karmada's clients ask there is nothing: its Clusters are a kind like others.
    let karmadas = led(true, "m1", MAP);
    ask(&reader, "GET", &karmadas, &[]).await?.is(404, "")?;
    stage.passed().await;
    Ok(())
}

/// Makes a namespace and deletes it; whether it is gone within the time that that takes.
async fn a_namespace_goes(client: &Client, name: &str) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let made = serde_json::from_value(json!({"metadata": {"name": name}}))?;
    namespaces.create(&PostParams::default(), &made).await?;
    namespaces.delete(name, &DeleteParams::default()).await?;
    wait_for(&format!("the end of namespace {name}"), LONG, async || {
        Ok(namespaces.get_opt(name).await?.is_none())
    })
    .await
}

/// The hub is told to go and takes everything back; it is cut off, and `towline init` does.
#[tokio::test(flavor = "multi_thread")]
async fn access_is_registered_while_it_is_served() -> Result<()> {
    let mut stage = Stage::set("access-registered", "impersonate").await?;
    let client = stage.fleet.client().await?;
    let services: Api<APIService> = Api::all(client.clone());
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-public");
    let told = async || -> Result<bool> {
        let info = maps.get("cluster-info").await?;
        let place = Place::read(&info).map_err(anyhow::Error::msg)?;
        Ok(services.get_opt(APISERVICE).await?.is_some() && place.is_some())
    };
    ensure!(told().await?, "it is not told where it is served");
    a_namespace_goes(&client, "while-served").await?;

    stage.fleet.hub.stop(LONG).await?;
    let info = maps.get("cluster-info").await?;
    ensure!(services.get_opt(APISERVICE).await?.is_none(), "it stays");
    ensure!(
        Place::read(&info).map_err(anyhow::Error::msg)?.is_none(),
        "{info:?}"
    );
    a_namespace_goes(&client, "after-its-end").await?;

    // It comes back with the rights that the manifests give it and no others, and its agents with it.
    let text = std::fs::read_to_string(repository().join("manifests/hub/rbac.yaml"))?;
    let rights = serde_yaml::Deserializer::from_str(&text).map(Value::deserialize);
    apply(&client, rights.collect::<Result<_, _>>()?).await?;
    let own = stage.kubeconfig("system:serviceaccount:karmada-system:towline-hub", &[])?;
    let admin = stage.fleet.kubeconfig().to_owned();
    let args = &mut stage.fleet.hub.spec_mut().args;
    let said = args.iter_mut().find(|arg| **arg == admin);
    *said.context("it runs with a kubeconfig")? = own.into();
    stage.fleet.hub.restart()?;
    stage.opened().await?;
    ensure!(told().await?, "it is not told where it is served");
    stage.fleet.hub.kill();
    wait_for("word that nobody answers", LONG, async || {
        let service = services.get(APISERVICE).await?;
        let conditions = service.status.and_then(|it| it.conditions);
        let mut conditions = conditions.into_iter().flatten();
        Ok(conditions.any(|it| it.type_ == "Available" && it.status == "False"))
    })
    .await?;
    let init = stage.fleet.cli(&["init"]).await?.ok()?;
    ensure!(init.stdout.contains(APISERVICE), "{init:?}");
    a_namespace_goes(&client, "after-init").await?;
    stage.passed().await;
    Ok(())
}
