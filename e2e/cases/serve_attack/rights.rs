//! Climbing: roles that give more than their writer has, and acting as somebody else.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::wire::{exchange, request};
use super::{Rig, SOON, USER};
use crate::env::{APPLY, JSON, JSON_PATCH, MERGE, ask, wait_for};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

fn rule(resource: &str, verb: &str) -> Value {
    json!({"apiGroups": [""], "resources": [resource], "verbs": [verb]})
}

fn role(name: &str, rules: Value) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": name}, "rules": rules})
}

fn binding(name: &str, kind: &str, to: &str) -> Value {
    json!({"metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": to},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}]})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_gives_what_they_do_not_have() -> Result<()> {
    let rig = Rig::begin("serve-attack-rights").await?;
    // Every right on roles and bindings but to escalate and to bind.
    let verbs = ["get", "list", "create", "update", "patch", "delete"];
    let rules = json!([{"apiGroups": ["rbac.authorization.k8s.io"], "verbs": verbs,
        "resources": ["roles", "rolebindings", "clusterroles", "clusterrolebindings"]}]);
    rig.allow("", "roles", rules).await?;
    let roles = format!("{RBAC}/namespaces/mine/roles");
    let bindings = format!("{RBAC}/namespaces/mine/rolebindings");
    wait_for("the right to write roles", SOON, async || {
        Ok(ask(&rig.bob, "GET", &roles, None).await?.code == 200)
    })
    .await?;
    let post = async |path: &str, object: &Value, code: u16| {
        let body = object.to_string();
        let told = rig.bob("POST", path, Some((JSON, &body))).await?;
        told.is(&[code])
    };

    // The twins: what one has oneself.
    post(
        &roles,
        &role("own", json!([rule("configmaps", "get")])),
        201,
    )
    .await?;
    // The authorizer hears of a role a moment after whoever made it.
    let own = binding("own", "Role", "own").to_string();
    wait_for("the authorizer to know the role", SOON, async || {
        let told = rig.bob("POST", &bindings, Some((JSON, &own))).await?;
        Ok(told.code == 201)
    })
    .await?;

    let secrets = json!([rule("secrets", "get")]);
    post(&roles, &role("more", secrets.clone()), 403).await?;
    post(&roles, &role("more", json!([rule("*", "*")])), 403).await?;
    post(
        &roles,
        &role("more", json!([rule("configmaps/*", "get")])),
        403,
    )
    .await?;
    let elsewhere = format!("{RBAC}/namespaces/theirs/roles");
    post(
        &elsewhere,
        &role("own", json!([rule("configmaps", "get")])),
        403,
    )
    .await?;
    let own = format!("{roles}/own");
    let put = role("own", secrets.clone()).to_string();
    for (method, path, media, body) in [
        ("PUT", own.clone(), JSON, put.clone()),
        (
            "PATCH",
            own.clone(),
            MERGE,
            json!({"rules": secrets}).to_string(),
        ),
        (
            "PATCH",
            own.clone(),
            JSON_PATCH,
            json!([{"op": "replace", "path": "/rules/0/resources/0", "value": "secrets"}])
                .to_string(),
        ),
        (
            "PATCH",
            format!("{own}?fieldManager=x&force=true"),
            APPLY,
            put.clone(),
        ),
        (
            "PATCH",
            format!("{roles}/new?fieldManager=x"),
            APPLY,
            role("new", secrets.clone()).to_string(),
        ),
        (
            "PUT",
            format!("{roles}/made-by-put"),
            JSON,
            role("made-by-put", secrets).to_string(),
        ),
    ] {
        rig.bob(method, &path, Some((media, &body)))
            .await?
            .is(&[403])?;
    }
    for (path, object) in [
        (&bindings, binding("more", "ClusterRole", "cluster-admin")),
        (&bindings, binding("more", "Role", "none-such")),
        (
            &format!("{RBAC}/clusterrolebindings"),
            binding("more", "ClusterRole", "cluster-admin"),
        ),
        (
            &format!("{RBAC}/clusterroles"),
            json!({"metadata": {"name": "more"}, "aggregationRule":
            {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}}),
        ),
    ] {
        let told = rig
            .bob("POST", path, Some((JSON, &object.to_string())))
            .await?;
        told.is(&[403, 404])?;
    }
    // A binding stays with its role.
    let change = json!({"roleRef": {"kind": "ClusterRole", "name": "cluster-admin"}}).to_string();
    let path = format!("{bindings}/own");
    rig.bob("PATCH", &path, Some((MERGE, &change)))
        .await?
        .is(&[403, 422])?;
    // The twin: who may bind one role may bind that one.
    rig.allow(
        "mine",
        "binder",
        json!([{"apiGroups": ["rbac.authorization.k8s.io"],
        "resources": ["clusterroles"], "verbs": ["bind"], "resourceNames": ["view"]}]),
    )
    .await?;
    wait_for("the right to bind one role", SOON, async || {
        let body = binding("viewer", "ClusterRole", "view").to_string();
        Ok(ask(&rig.bob, "POST", &bindings, Some((JSON, &body)))
            .await?
            .code
            == 201)
    })
    .await?;
    post(&bindings, &binding("editor", "ClusterRole", "edit"), 403).await?;
    rig.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_acts_as_another_without_the_right() -> Result<()> {
    let rig = Rig::begin("serve-attack-impersonation").await?;
    let target = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let body = r#"{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"}"#;
    let act = async |stranger: bool, headers: &[u8]| {
        let mut bytes = format!(
            "POST {target} HTTP/1.1\r\nHost: hub\r\nConnection: close\r\nContent-Length: {}\r\n\
             Content-Type: application/json\r\n",
            body.len()
        )
        .into_bytes();
        bytes.extend_from_slice(headers);
        bytes.extend_from_slice(format!("\r\n{body}").as_bytes());
        exchange(&rig.plane, stranger, &bytes).await
    };
    // As oneself: the twin of them all.
    ensure!(act(false, b"").await?.is(&[201])?.body.contains(USER));
    let all: [(&[u8], u16); 9] = [
        (b"Impersonate-User: alice\r\n", 403),
        (b"Impersonate-User: system:admin\r\n", 403),
        (
            b"Impersonate-User: bob\r\nImpersonate-Group: system:masters\r\n",
            403,
        ),
        (
            b"Impersonate-User: system:serviceaccount:kube-system:default\r\n",
            403,
        ),
        (b"Impersonate-Group: system:masters\r\n", 400),
        (b"Impersonate-Uid: 1\r\n", 400),
        (b"Impersonate-Extra-Scopes: all\r\n", 400),
        (b"Impersonate-User: b\xffb\r\n", 400),
        (b"impersonate-user: alice\r\nImpersonate-User: bob\r\n", 403),
    ];
    for (headers, code) in all {
        act(false, headers).await?.is(&[code])?;
        act(true, headers).await?.is(&[400, 403])?;
    }
    // Rights of a newer kind, for some verbs only, are not read here: they give nothing.
    rig.allow(
        "",
        "narrow",
        json!([
        {"apiGroups": ["authentication.k8s.io"], "resources": ["users"],
            "verbs": ["impersonate:user-info"]},
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["impersonate-on:user-info:create"]}]),
    )
    .await?;
    rig.allow(
        "",
        "one",
        json!([
        {"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"],
            "resourceNames": ["alice"]},
        {"apiGroups": [""], "resources": ["groups"], "verbs": ["impersonate"],
            "resourceNames": ["friends"]},
        {"apiGroups": ["authentication.k8s.io"], "resources": ["userextras/scopes"],
            "verbs": ["impersonate"], "resourceNames": ["some"]}]),
    )
    .await?;
    wait_for("the right to act as one other", SOON, async || {
        Ok(act(false, b"Impersonate-User: alice\r\n").await?.code == 201)
    })
    .await?;
    let all: [(&[u8], u16); 8] = [
        (
            b"Impersonate-User: alice\r\nImpersonate-Group: friends\r\n",
            201,
        ),
        (
            b"Impersonate-User: alice\r\nImpersonate-Extra-Scopes: some\r\n",
            201,
        ),
        (
            b"Impersonate-User: alice\r\nImpersonate-Extra-Scopes: all\r\n",
            403,
        ),
        (
            b"Impersonate-User: alice\r\nImpersonate-Group: system:masters\r\n",
            403,
        ),
        (
            b"Impersonate-User: alice\r\nImpersonate-Group: friends\r\nImpersonate-Group: foes\r\n",
            403,
        ),
        (
            b"Impersonate-User: alice\r\nImpersonate-Group: fr\xffnds\r\n",
            400,
        ),
        (b"Impersonate-User: alice\r\nImpersonate-Uid: 1\r\n", 403),
        (b"Impersonate-User: carol\r\n", 403),
    ];
    for (headers, code) in all {
        act(false, headers).await?.is(&[code])?;
    }
    // Whoever acts as another has that one's rights, and no other.
    let maps = "/api/v1/namespaces/mine/configmaps";
    let as_alice = request("GET", maps, "Impersonate-User: alice\r\n");
    exchange(&rig.plane, false, &as_alice).await?.is(&[403])?;
    exchange(&rig.plane, false, &request("GET", maps, ""))
        .await?
        .is(&[200])?;
    rig.end().await
}
