//! A member whose owner lets users of the hub in as ServiceAccounts of one namespace: each is one of their own, and
//! nobody is another's.

use super::rig::{Stage, apply, ask, becomes, reach, to, whoami};
use anyhow::{Result, ensure};
use common::names::USERS_NAMESPACE;
use common::tunnel::{service_account, service_account_user};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const IN: [&str; 4] = ["--proxy", "impersonate", "--proxy-as", "service-accounts"];

/// A binding of the member's role `secrets` to the ServiceAccount of a user of the hub, whose name there is given.
fn binding(user: &str) -> Value {
    let account = service_account(user);
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": format!("secrets-{account}"), "namespace": "default"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "secrets"},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": USERS_NAMESPACE}],
    })
}

/// Has the member's roles of who is let in be those of `towline register` with these flags.
async fn let_in(stage: &Stage, flags: &[&str]) -> Result<()> {
    let mut objects = stage.printed(flags).await?;
    objects.retain(|it| {
        let named = &it["metadata"];
        let of_proxy = named["name"] == "towline-agent-proxy" && it["kind"] != "ServiceAccount";
        of_proxy || named["name"] == USERS_NAMESPACE
    });
    apply(&stage.member().await?, objects).await
}

#[tokio::test(flavor = "multi_thread")]
async fn access_lets_users_in_as_service_accounts() -> Result<()> {
    let stage = Stage::set("access-accounts", "impersonate").await?;
    let hub = stage.fleet.client().await?;
    let account = service_account_user("carl");
    let users = ["carl", "Carl", "carl@corp.com", &account];
    for (number, user) in users.into_iter().enumerate() {
        let mut rights = reach(user, &["m1"], &["get", "create"]);
        for right in &mut rights {
            right["metadata"]["name"] = json!(format!("reach-{number}"));
        }
        rights[1]["roleRef"]["name"] = json!(format!("reach-{number}"));
        apply(&hub, rights).await?;
    }
    let carl = stage.client("carl", &["dev", "system:masters"]).await?;
    becomes(&carl, &to("m1", SECRETS), 403, "--proxy-user +carl").await?;

    let_in(&stage, &IN).await?;
    let nothing = format!("User \\\"{account}\\\" cannot list");
    becomes(&carl, &to("m1", SECRETS), 403, &nothing).await?;
    let member = stage.member().await?;
    apply(&member, vec![binding("carl"), binding("carl@corp.com")]).await?;
    becomes(&carl, &to("m1", SECRETS), 200, "SecretList").await?;
    ask(&carl, "GET", &to("m1", MAPS), &[])
        .await?
        .is(403, &nothing)?;
    let who = whoami(&carl).await?;
    let mut groups: Vec<&str> = who["groups"].as_array().map_or_else(Vec::new, |all| {
        all.iter().filter_map(Value::as_str).collect()
    });
    groups.sort_unstable();
    let of_all = format!("system:serviceaccounts:{USERS_NAMESPACE}");
    ensure!(
        who["username"] == account
            && groups == ["system:authenticated", "system:serviceaccounts", &of_all],
        "no group of the hub comes along: {who}"
    );
    let mail = stage.client("carl@corp.com", &[]).await?;
    becomes(&mail, &to("m1", SECRETS), 200, "SecretList").await?;
    others(&stage).await?;
    captured(&stage).await?;
    granted(&stage).await?;

    // Ann by name besides, who is herself; then nobody is an account, and the namespace has no right left.
    let mut more = IN.to_vec();
    more.extend(["--proxy-user", "ann"]);
    let_in(&stage, &more).await?;
    let ann = stage.client("ann", &[]).await?;
    becomes(&ann, &to("m1", MAPS), 200, "here").await?;
    ensure!(whoami(&ann).await?["username"] == "ann");
    let namespaces: Api<Namespace> = Api::all(member.clone());
    let none = Patch::Merge(json!({"rules": []}));
    let roles: Api<k8s_openapi::api::rbac::v1::Role> =
        Api::namespaced(member.clone(), USERS_NAMESPACE);
    roles
        .patch("towline-agent-proxy", &PatchParams::default(), &none)
        .await?;
    becomes(&carl, &to("m1", SECRETS), 403, "its owner lets no user").await?;
    ensure!(namespaces.get_opt(USERS_NAMESPACE).await?.is_some());
    stage.passed().await;
    Ok(())
}

/// Whoever is called on the hub as an account of Carl's is called, or as a name that is nearly his, is somebody else in
/// the member.
async fn others(stage: &Stage) -> Result<()> {
    let hub = stage.fleet.client().await?;
    let mapped = service_account("carl@corp.com");
    apply(&hub, reach(&mapped, &["m1"], &["get", "create"])).await?;
    let carls = [service_account_user("carl"), service_account_user(&mapped)];
    for user in ["Carl", &mapped, &service_account_user("carl")] {
        let other = stage.client(user, &[]).await?;
        let path = to("m1", SECRETS);
        becomes(&other, &path, 403, "cannot list resource \\\"secrets\\\"").await?;
        let who = whoami(&other).await?["username"].clone();
        ensure!(
            !carls.iter().any(|it| who == it.as_str()),
            "{user} is {who}"
        );
    }
    Ok(())
}

/// A role for a user of the hub is bound to their account, one for a group is refused, and both are told.
async fn granted(stage: &Stage) -> Result<()> {
    let dora = stage.client("Dora@corp.com", &[]).await?;
    let grant = [
        "access",
        "grant",
        "Dora@corp.com",
        "-C",
        "m1",
        "-n",
        "default",
    ];
    let granted = stage.fleet.cli(&grant).await?.ok()?;
    let row = granted.stdout.lines().nth(1).unwrap_or_default();
    let row: Vec<&str> = row.split_whitespace().collect();
    let want = [
        "user/Dora@corp.com",
        "view",
        "default",
        "m1",
        "True",
        "True",
    ];
    ensure!(row == want, "{granted:?}");
    ask(&dora, "GET", &to("m1", MAPS), &[])
        .await?
        .is(200, "here")?;
    let refused = ask(&dora, "GET", &to("m1", SECRETS), &[]).await?;
    let account = service_account_user(&service_account("Dora@corp.com"));
    refused.is(403, &format!("User \\\"{account}\\\" cannot list"))?;
    let listed = ["access", "list", "Dora@corp.com", "-o", "json"];
    let listed: Value = serde_json::from_str(&stage.fleet.cli(&listed).await?.ok()?.stdout)?;
    ensure!(
        listed[0]["serviceAccount"] == service_account("Dora@corp.com") && listed[1].is_null(),
        "{listed}"
    );

    let group = [
        "access", "grant", "dev", "--group", "-C", "m1", "-n", "default",
    ];
    let idle = stage.fleet.cli(&group).await?;
    ensure!(
        idle.code == 7
            && idle
                .stderr
                .contains("as ServiceAccounts, without their groups"),
        "{idle:?}"
    );
    let nothing = stage
        .fleet
        .cli(&["access", "list", "dev", "--group"])
        .await?;
    ensure!(nothing.stdout.trim().is_empty(), "{nothing:?}");
    let revoke = ["access", "revoke", "Dora@corp.com", "--all"];
    stage.fleet.cli(&revoke).await?.ok()?;
    becomes(&dora, &to("m1", MAPS), 403, "clusters/proxy").await
}

/// Whoever has the agent's account may be an account of that namespace with the groups of one, and nobody else.
async fn captured(stage: &Stage) -> Result<()> {
    let captured = stage.captured().await?;
    let carl = service_account_user("carl");
    let as_carl = ("impersonate-user", carl.as_str());
    ask(&captured, "GET", SECRETS, &[as_carl])
        .await?
        .is(200, "SecretList")?;
    for headers in [
        vec![],
        vec![("impersonate-user", "system:serviceaccount:default:carl")],
        vec![(
            "impersonate-user",
            "system:serviceaccount:towline-system:towline-agent",
        )],
        vec![(
            "impersonate-user",
            "system:serviceaccount:towline-users:Bad_Name",
        )],
        vec![("impersonate-user", "system:serviceaccount:towline-users:")],
        vec![(
            "impersonate-user",
            "system:serviceaccount:towline-users:carl:x",
        )],
        vec![("impersonate-user", "carl")],
        vec![("impersonate-user", "system:admin")],
        vec![as_carl, ("impersonate-group", "system:masters")],
        vec![as_carl, ("impersonate-group", "dev")],
        vec![
            as_carl,
            ("impersonate-group", "system:serviceaccounts:kube-system"),
        ],
        vec![as_carl, ("impersonate-uid", "1")],
        vec![as_carl, ("impersonate-extra-scopes", "all")],
    ] {
        let answer = ask(&captured, "GET", SECRETS, &headers).await?;
        ensure!(answer.code == 403, "{headers:?}: {answer:?}");
    }
    Ok(())
}
