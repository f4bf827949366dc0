//! Two clusters, one of them behind a proxy, from `towline join` to `towline unjoin`.

use anyhow::{Context as _, Result, ensure};
use kube::Client;
use serde_json::{Value, json};
use std::path::Path;

use super::rig::{CLUSTERS, Rig, SECRETS, SOON, get, ours};
use crate::env::{ConnectProxy, Fleet, JSON, Lab, LabOptions, Parts, Scratch, ask, wait_for};

/// What a policy brings to all clusters.
const MAP: &str = "apiVersion: v1
kind: ConfigMap
metadata:
  name: everywhere
  namespace: default
data:
  a: b
";

async fn has(member: &Client, name: &str, wanted: bool) -> Result<()> {
    let path = format!("/api/v1/namespaces/default/configmaps/{name}");
    wait_for(
        &format!("{name} in the member: {wanted}"),
        SOON,
        async || Ok(get(member, &path).await?.is_some() == wanted),
    )
    .await
}

/// Nothing of Towline's is left in a member.
async fn clean(member: &Client) -> Result<()> {
    let rights = "/apis/rbac.authorization.k8s.io/v1";
    let admission = "/apis/admissionregistration.k8s.io/v1";
    let collections = [
        "/api/v1/namespaces".to_owned(),
        format!("{rights}/clusterroles"),
        format!("{rights}/clusterrolebindings"),
        format!("{admission}/validatingadmissionpolicies"),
        format!("{admission}/validatingadmissionpolicybindings"),
    ];
    wait_for("a member without a trace", SOON, async || {
        for collection in &collections {
            let left = ours(member, collection).await?;
            ensure!(left.is_empty(), "{collection} has {left:?}");
        }
        Ok(true)
    })
    .await
}

/// Nothing of a cluster is left on the hub.
async fn forgotten(rig: &Rig, name: &str) -> Result<()> {
    let rights = "/apis/rbac.authorization.k8s.io/v1";
    let traces = [
        format!("{CLUSTERS}/{name}"),
        format!("{SECRETS}/{name}"),
        format!("/api/v1/namespaces/karmada-es-{name}"),
        format!("/apis/coordination.k8s.io/v1/namespaces/karmada-cluster/leases/{name}"),
        format!("{rights}/clusterroles/towline:cluster:{name}"),
        format!("{rights}/clusterrolebindings/towline:cluster:{name}"),
    ];
    wait_for(&format!("a hub without {name}"), SOON, async || {
        for trace in &traces {
            ensure!(rig.get(trace).await?.is_none(), "{trace} is there");
        }
        // A token that was used goes once its agent lives.
        let tokens = "/api/v1/namespaces/kube-system/secrets";
        let tokens = rig.get(tokens).await?.context("no list")?;
        let text = tokens.to_string();
        ensure!(
            !text.contains(&format!("towline.dev/cluster\":\"{name}\"")),
            "a token is left"
        );
        Ok(true)
    })
    .await
}

/// Joined, given Works and what a policy places, lost and found again, and unjoined without a trace.
#[tokio::test(flavor = "multi_thread")]
async fn clusters_are_joined_served_lost_and_unjoined() -> Result<()> {
    let mut rig = Rig::begin("push-life", 2).await?;
    let proxy = ConnectProxy::start(Some("lab:s3cret")).await?;
    let url = format!("http://lab:s3cret@{}", proxy.address());
    let near = rig.lab.members[0].kubeconfig.clone();
    let far = rig.through(1, &url)?;
    rig.join("near", &near, &["--region", "here", "--label", "tier=test"])
        .await?;
    let tunnels = proxy.tunnels();
    rig.join("far", &far, &[]).await?;
    ensure!(proxy.tunnels() > tunnels, "far was reached by another way");
    ensure!(
        proxy.refused() == 0,
        "the proxy's password did not come along"
    );

    let cluster = rig
        .get(&format!("{CLUSTERS}/far"))
        .await?
        .context("no Cluster")?;
    let spec = &cluster["spec"];
    ensure!(spec["syncMode"] == "Push", "{spec}");
    ensure!(
        spec["proxyURL"] == format!("http://{}", proxy.address()),
        "{spec}"
    );
    ensure!(
        spec["secretRef"] == json!({"namespace": "karmada-cluster", "name": "far"}),
        "{spec}"
    );
    let cluster = rig
        .get(&format!("{CLUSTERS}/near"))
        .await?
        .context("no Cluster")?;
    ensure!(cluster["spec"]["region"] == "here", "{cluster}");
    ensure!(cluster["metadata"]["labels"]["tier"] == "test", "{cluster}");
    ensure!(
        !rig.push.log_text().contains("s3cret"),
        "a password is logged"
    );

    // Works, and what a policy places.
    let members = [
        rig.lab.members[0].client().await?,
        rig.lab.members[1].client().await?,
    ];
    let file = rig.file("map.yaml", MAP)?;
    rig.cli(&["apply", "-f", &file, "--all"]).await?.ok()?;
    for (cluster, member) in ["near", "far"].into_iter().zip(&members) {
        rig.work(cluster, ("default", "by-work"), "True").await?;
        has(member, "by-work", true).await?;
        has(member, "everywhere", true).await?;
        // What no agent may touch, no agent beside the hub may.
        rig.work(cluster, ("kube-system", "reserved"), "False")
            .await?;
    }

    // A member that is lost, and no other.
    rig.lab.members[1].kill_api();
    rig.ready("far", &["False"]).await?;
    rig.ready("near", &["True"]).await?;
    rig.lab.members[1].restart_api().await?;
    rig.ready("far", &["True"]).await?;

    // The process is lost.
    rig.push.kill();
    for cluster in ["near", "far"] {
        rig.ready(cluster, &["Unknown"]).await?;
    }
    rig.push.restart()?;
    for cluster in ["near", "far"] {
        rig.ready(cluster, &["True"]).await?;
    }

    // The verb for the other sort of cluster changes nothing.
    let refused = rig.cli(&["unregister", "near", "--yes"]).await?;
    ensure!(
        refused.code == 5 && refused.stderr.contains("towline unjoin near"),
        "{refused:?}"
    );

    rig.cli(&["unjoin", "near", "--yes"]).await?.ok()?;
    let file = far.display().to_string();
    rig.cli(&["unjoin", "far", "--yes", "--cluster-kubeconfig", &file])
        .await?
        .ok()?;
    for (cluster, member) in ["near", "far"].into_iter().zip(&members) {
        has(member, "by-work", false).await?;
        has(member, "everywhere", false).await?;
        clean(member).await?;
        forgotten(&rig, cluster).await?;
    }
    rig.end().await
}

/// A member that never comes back is let go, and the agent's own objects are removed when it does.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_gone_is_unjoined_by_force() -> Result<()> {
    let mut rig = Rig::begin("push-gone", 1).await?;
    let near = rig.lab.members[0].kubeconfig.clone();
    rig.join("near", &near, &[]).await?;
    rig.work("near", ("default", "by-work"), "True").await?;
    let member = rig.lab.members[0].client().await?;
    rig.lab.members[0].kill_api();
    rig.cli(&["unjoin", "near", "--yes", "--force"])
        .await?
        .ok()?;
    forgotten(&rig, "near").await?;
    // Its agent would go on with what it was told before the hub let the Works go.
    rig.push.kill();
    rig.lab.members[0].restart_api().await?;
    let file = near.display().to_string();
    rig.cli(&["unjoin", "near", "--yes", "--cluster-kubeconfig", &file])
        .await?
        .ok()?;
    clean(&member).await?;
    rig.push.restart()?;
    let kept = get(&member, "/api/v1/namespaces/default/configmaps/by-work").await?;
    ensure!(kept.is_some(), "nobody was there to remove it");
    rig.end().await
}

/// Run again, the command changes what it made: here what Works may reach, with another token.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_joined_anew() -> Result<()> {
    let mut rig = Rig::begin("push-anew", 1).await?;
    let proxy = ConnectProxy::start(Some("lab:s3cret")).await?;
    let near = rig.through(0, &format!("http://{}", proxy.address()))?;
    let headers = rig.file(
        "headers",
        "Proxy-Authorization: Basic bGFiOnMzY3JldA==\nX-Team: red\n",
    )?;
    rig.join("near", &near, &["--proxy-header-file", &headers])
        .await?;
    ensure!(
        proxy.tunnels() > 1 && proxy.refused() == 0,
        "the headers did not come along"
    );
    let cluster = rig
        .get(&format!("{CLUSTERS}/near"))
        .await?
        .context("no Cluster")?;
    ensure!(
        !cluster.to_string().contains("bGFi"),
        "the Cluster shows a password"
    );
    let near = rig.lab.members[0].kubeconfig.clone();
    rig.work("near", ("default", "before"), "True").await?;
    let secret = rig
        .get(&format!("{SECRETS}/near"))
        .await?
        .context("no Secret")?;
    let id = rig
        .get(&format!("{CLUSTERS}/near"))
        .await?
        .context("no Cluster")?;
    let again = rig
        .join("near", &near, &["--allow-namespace", "kube-public"])
        .await?;
    ensure!(again.stderr.contains("joined anew"), "{again:?}");
    rig.work("near", ("kube-public", "allowed"), "True").await?;
    rig.work("near", ("kube-system", "reserved"), "False")
        .await?;
    // What no flag names stays.
    rig.join("near", &near, &[]).await?;
    rig.work("near", ("kube-public", "still"), "True").await?;
    let now = rig
        .get(&format!("{SECRETS}/near"))
        .await?
        .context("no Secret")?;
    ensure!(
        now["metadata"]["uid"] == secret["metadata"]["uid"],
        "another Secret"
    );
    let cluster = rig
        .get(&format!("{CLUSTERS}/near"))
        .await?
        .context("no Cluster")?;
    ensure!(
        cluster["metadata"]["uid"] == id["metadata"]["uid"],
        "another Cluster"
    );
    ensure!(cluster["spec"]["syncMode"] == "Push", "{cluster}");
    let member = rig.lab.members[0].client().await?;
    has(&member, "before", true).await?;

    // A member is one cluster, and a name one member.
    let file = near.display().to_string();
    let twice = rig
        .cli(&["join", "other", "--cluster-kubeconfig", &file])
        .await?;
    ensure!(
        twice.code == 5 && twice.stderr.contains("as \"near\""),
        "{twice:?}"
    );
    let hub = rig.fleet.kubeconfig().display().to_string();
    let itself = rig
        .cli(&["join", "itself", "--cluster-kubeconfig", &hub])
        .await?;
    ensure!(
        itself.code == 5 && itself.stderr.contains("is the hub itself"),
        "{itself:?}"
    );
    for name in ["other", "itself"] {
        let none: Option<Value> = rig.get(&format!("{CLUSTERS}/{name}")).await?;
        ensure!(none.is_none(), "a Cluster was made");
    }
    rig.end().await
}

/// Users of the hub reach a joined cluster as themselves, as far as its owner lets them.
#[tokio::test(flavor = "multi_thread")]
async fn users_of_the_hub_reach_a_joined_cluster() -> Result<()> {
    let mut rig = Rig::begin("push-access", 1).await?;
    let near = rig.lab.members[0].kubeconfig.clone();
    let open = ["--proxy", "read-only", "--proxy-user", "ann"];
    rig.join("near", &near, &open).await?;
    let rights = "/apis/rbac.authorization.k8s.io/v1";
    let may = |name: &str, role: &str, user: &str| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]})
    };
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "reach"}, "rules": [{
            "apiGroups": ["cluster.karmada.io", "proxy.towline.dev"], "resources": ["clusters/proxy"],
            "resourceNames": ["near"], "verbs": ["get", "create"]}]});
    rig.create(&format!("{rights}/clusterroles"), &role).await?;
    let bindings = format!("{rights}/clusterrolebindings");
    let member = rig.lab.members[0].client().await?;
    for user in ["ann", "bob"] {
        rig.create(&bindings, &may(user, "reach", user)).await?;
        let body = may(user, "edit", user).to_string();
        ask(&member, "POST", &bindings, Some((JSON, &body)))
            .await?
            .ok()?;
    }
    let group = match rig.lab.hub.options.builtin {
        true => "cluster.karmada.io",
        false => "proxy.towline.dev",
    };
    let through = format!("/apis/{group}/v1alpha1/clusters/near/proxy/api/v1");
    let maps = format!("{through}/namespaces/default/configmaps");
    let ann = rig.user("ann").await?;
    wait_for("an answer through the tunnel", SOON, async || {
        let answer = ask(&ann, "GET", &maps, None).await?;
        ensure!(answer.code == 200, "{} {}", answer.code, answer.body);
        Ok(true)
    })
    .await?;
    // What her rights there would let her do, the cluster's owner has not opened; and Bob is not let in.
    let map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "hers"}}).to_string();
    ask(&ann, "POST", &maps, Some((JSON, &map)))
        .await?
        .forbidden()?;
    let bob = rig.user("bob").await?;
    ask(&bob, "GET", &maps, None).await?.forbidden()?;
    rig.end().await
}

/// A built-in hub starts the process itself when it is needed, and takes it along when it ends.
#[tokio::test(flavor = "multi_thread")]
async fn a_built_in_hub_starts_what_serves_joined_clusters() -> Result<()> {
    let scratch = Scratch::new("push-on-demand")?;
    let mut options = LabOptions::new(1);
    options.hub.builtin = true;
    let mut lab = Lab::start(&Parts::from_env()?, &scratch.join("lab"), &options).await?;
    let fleet = Fleet::start(&scratch.join("towline"), &lab.hub).await?;
    let own = lab.hub.data_dir().join("push.kubeconfig");
    ensure!(!own.exists(), "nobody needs it yet");
    let file = lab.members[0].kubeconfig.display().to_string();
    let join = [
        "join",
        "near",
        "--cluster-kubeconfig",
        &file,
        "--wait",
        "3m",
    ];
    fleet.cli(&join).await?.ok()?;
    let started = children(&lab)?;
    ensure!(started.len() == 1, "{started:?} serve it");

    // However the hub ends, nobody is left; the next one starts it again.
    lab.hub.kill_api();
    wait_for("the end of the process beside the hub", SOON, async || {
        Ok(!Path::new(&format!("/proc/{}", started[0])).exists())
    })
    .await?;
    lab.hub.restart_api().await?;
    fleet.wait_ready("near", "True", SOON).await?;
    wait_for("another one", SOON, async || Ok(children(&lab)?.len() == 1)).await?;
    fleet.cli(&["unjoin", "near", "--yes"]).await?.ok()?;
    clean(&lab.members[0].client().await?).await?;
    lab.stop().await;
    scratch.passed();
    Ok(())
}

/// Processes that run by the kubeconfig which a built-in hub has for them.
fn children(lab: &Lab) -> Result<Vec<u32>> {
    let own = lab.hub.data_dir().join("push.kubeconfig");
    let own = own.display().to_string();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse() else {
            continue;
        };
        // One that has just ended has none.
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if String::from_utf8_lossy(&line)
            .split('\0')
            .any(|it| it == own)
        {
            found.push(pid);
        }
    }
    Ok(found)
}
