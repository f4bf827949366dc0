//! Targets that mean one thing to whoever decides and another to whoever answers; tokens that continue
//! somebody else's list.

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::Rig;
use super::wire::{exchange, request};
use crate::env::ask;

const MAPS: &str = "/api/v1/namespaces/mine/configmaps";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_path_leads_to_what_is_hidden() -> Result<()> {
    let rig = Rig::begin("serve-attack-paths").await?;
    let long = format!("/api/v1/{}", "a/".repeat(30_000));
    for target in [
        "/api/v1/namespaces/theirs/secrets/s",
        "/api/v1/namespaces/mine/../theirs/secrets/s",
        "/api/v1/namespaces/mine/%2e%2e/theirs/secrets/s",
        "/api/v1/namespaces/mine/.%2E/theirs/secrets/s",
        "/api/v1/namespaces/mine%2F..%2Ftheirs/secrets/s",
        "/api/v1/namespaces/mine/configmaps/..%2f..%2ftheirs%2fsecrets%2fs",
        "/api/v1/namespaces/mine/configmaps/%252e%252e/s",
        "/api/v1/namespaces/mine/namespaces",
        "/api/v1/namespaces/mine/namespaces/theirs",
        "/api/v1/namespaces/mine/namespaces/theirs/status",
        "/api/v1/watch/namespaces/mine/namespaces/theirs",
        "/api/v1/namespaces/mine/nodes",
        "/apis/rbac.authorization.k8s.io/v1/namespaces/mine/clusterroles/cluster-admin",
        "/api/v1/namespaces//theirs/secrets/s",
        "//api/v1/namespaces/theirs/secrets/s",
        "/api/v1//namespaces/theirs/secrets/s",
        "/./api/v1/namespaces/theirs/secrets/s",
        "/api/v1/namespaces/theirs/secrets/s/",
        "/api/v1/namespaces/theirs/secrets/",
        "/api/v1/namespaces/theirs/secrets/s?namespace=mine",
        "/API/v1/namespaces/theirs/secrets/s",
        "/api/V1/namespaces/theirs/secrets/s",
        "/api/v1/Namespaces/theirs/Secrets/s",
        "/api/v1/namespaces/theirs/secrets;/s",
        "/api/v1/namespaces/mine;/../theirs/secrets/s",
        "/api/v1/namespaces/theirs/secrets/s;a=b",
        "/api/v1/namespaces/mine\\..\\theirs/secrets/s",
        "/api/v1/namespaces/theirs/secrets/s%00",
        "/api/v1/namespaces/theirs/secrets/s#mine",
        "/api/v1/watch/namespaces/theirs/secrets/s",
        "/api/v1/watch/namespaces/theirs/secrets",
        "/api/v1/secrets?fieldSelector=metadata.namespace%3Dmine",
        "/api/v1/secrets?fieldSelector=metadata.name%3Da",
        "https://hub/api/v1/namespaces/theirs/secrets/s",
        "http://127.0.0.1/api/v1/namespaces/theirs/secrets/s",
        "*",
        "hub:443",
        "/towline/backup",
        &long,
    ] {
        for method in ["GET", "POST", "OPTIONS"] {
            let told = exchange(&rig.plane, false, &request(method, target, "")).await?;
            told.is(&[0, 400, 403, 404, 405, 414])?;
        }
    }
    // A watch changes nothing, so nothing but a question opens one.
    let watch = "/api/v1/watch/namespaces/mine/configmaps?timeoutSeconds=1";
    let told = exchange(&rig.plane, false, &request("POST", watch, "")).await?;
    told.is(&[405])?;
    // Their rightful twins.
    for target in [
        MAPS,
        watch,
        "https://hub/api/v1/namespaces/mine/configmaps/a",
    ] {
        let told = exchange(&rig.plane, false, &request("GET", target, "")).await?;
        ensure!(told.is(&[200])?.body.contains("mine"), "{target}");
    }
    // A stranger is told nothing at all, however the path is written.
    for target in [MAPS, "/api/v1", "/metrics", "/metrics/", "//metrics"] {
        let told = exchange(&rig.plane, true, &request("GET", target, "")).await?;
        told.is(&[403, 404])?;
    }
    rig.end().await
}

fn forged(token: &Value) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(token.to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forged_token_continues_nothing_of_others() -> Result<()> {
    let rig = Rig::begin("serve-attack-tokens").await?;
    let all = |path: &str| format!("{path}?limit=1");
    let theirs = "/api/v1/namespaces/theirs/configmaps";
    let first = ask(&rig.admin, "GET", &all(theirs), None)
        .await?
        .ok()?
        .json()?;
    let token = first["metadata"]["continue"]
        .as_str()
        .context("a token")?
        .to_owned();
    let first = rig.bob("GET", &all(MAPS), None).await?.is(&[200])?;
    let own: Value = serde_json::from_str(&first.body)?;
    let revision = own["metadata"]["resourceVersion"]
        .as_str()
        .context("a revision")?;
    let revision: i64 = revision.parse()?;
    let own = own["metadata"]["continue"].as_str().context("a token")?;

    // The twin: the rest of the list, once.
    let rest = rig
        .bob("GET", &format!("{MAPS}?continue={own}"), None)
        .await?;
    let rest: Value = serde_json::from_str(&rest.is(&[200])?.body)?;
    ensure!(
        rest["items"]
            .as_array()
            .is_some_and(|items| items.len() >= 2),
        "{rest}"
    );

    // Another namespace's token gives no right to it.
    let path = format!("{theirs}?continue={token}");
    rig.bob("GET", &path, None).await?.is(&[403])?;
    rig.bob("GET", &format!("/api/v1/configmaps?continue={token}"), None)
        .await?
        .is(&[403])?;
    // What is listed is what the path says, wherever a token wants to begin.
    let at = |start: &str| forged(&json!({"v": "meta.k8s.io/v1", "rv": revision, "start": start}));
    for start in [
        "/theirs/a\u{0}",
        "theirs/a",
        "/a",
        "/mine/a\u{0}",
        "/theirs",
        "/\u{0}",
        "/~",
    ] {
        let path = format!("{MAPS}?continue={}", at(start));
        let told = rig.bob("GET", &path, None).await?.is(&[200, 400])?;
        ensure!(!told.body.contains("theirs"), "{start}: {}", told.body);
    }
    // What no server of ours made is refused; what is too old is not answered.
    let of = |token: Value| forged(&token);
    for (token, codes) in [
        ("%%%".to_owned(), [400, 400]),
        (own[..own.len() - 3].to_owned(), [400, 400]),
        (of(json!(7)), [400, 400]),
        (
            of(json!({"v": "v2", "rv": revision, "start": "/a"})),
            [400, 400],
        ),
        (at("/../theirs/a"), [400, 400]),
        (at(""), [400, 400]),
        (
            of(json!({"v": "meta.k8s.io/v1", "rv": 0, "start": "/a"})),
            [400, 400],
        ),
        (
            of(json!({"v": "meta.k8s.io/v1", "rv": 1, "start": "/a"})),
            [410, 200],
        ),
    ] {
        let token = token.replace('%', "%25");
        let path = format!("{MAPS}?continue={token}&limit=1");
        rig.bob("GET", &path, None).await?.is(&codes)?;
    }
    rig.end().await
}
