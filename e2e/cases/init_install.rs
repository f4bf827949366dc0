//! `towline init`: what it makes, what it leaves alone, what it refuses.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::api::flowcontrol::v1::FlowSchema;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, RoleBinding};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::json;
use std::time::Duration;

use crate::env::{Fleet, Parts, Plane, PlaneOptions, Process, Scratch, Towline, Version, wait_for};

/// A hub's control plane without Towline, and the command.
struct Bare {
    _scratch: Scratch,
    plane: Plane,
    client: Client,
    towline: Towline,
}

impl Bare {
    async fn start(name: &str, version: Version) -> Result<Self> {
        let scratch = Scratch::new(name)?;
        let parts = Parts::from_env()?;
        let options = PlaneOptions::hub().version(version);
        let plane = Plane::start(&parts, &scratch.join("hub"), options).await?;
        let client = plane.client().await?;
        let towline = Towline::new(scratch.path())?;
        Ok(Self {
            _scratch: scratch,
            plane,
            client,
            towline,
        })
    }

    fn init(&self, more: &[&str]) -> impl Future<Output = Result<crate::env::Run>> {
        let kubeconfig = self.plane.kubeconfig.display().to_string();
        let mut args = vec!["init".to_owned(), "--kubeconfig".to_owned(), kubeconfig];
        args.extend(more.iter().map(|arg| (*arg).to_owned()));
        let towline = self.towline.clone();
        async move { towline.cli(args).await }
    }
}

async fn prepares_once(version: Version) -> Result<()> {
    let hub = Bare::start(&format!("init-{version}"), version).await?;
    let namespaces: Api<Namespace> = Api::all(hub.client.clone());

    let dry = hub.init(&["--dry-run"]).await?.ok()?;
    ensure!(
        dry.stdout
            .contains("CREATE   ValidatingAdmissionPolicy towline-agents"),
        "{}",
        dry.stdout
    );
    ensure!(
        namespaces.get_opt("karmada-system").await?.is_none(),
        "a dry run made a namespace"
    );

    let first = hub
        .init(&[
            "--advertise",
            "hub.test:6443",
            "--advertise",
            "[fd00::1]:443",
        ])
        .await?
        .ok()?;
    ensure!(first.stdout.contains("CREATED"), "{}", first.stdout);
    ensure!(
        first.stderr.contains("The hub is ready"),
        "{}",
        first.stderr
    );

    let before = versions(&hub.client).await?;
    let second = hub.init(&[]).await?.ok()?;
    ensure!(
        second.stdout.starts_with("Nothing to change"),
        "{}",
        second.stdout
    );
    ensure!(
        versions(&hub.client).await? == before,
        "a second init wrote something"
    );

    // The addresses of the first run are kept, in the signed text.
    let maps: Api<ConfigMap> = Api::namespaced(hub.client.clone(), "kube-public");
    let info = maps.get("cluster-info").await?.data.unwrap_or_default();
    let kubeconfig = info
        .get("kubeconfig")
        .context("cluster-info has a kubeconfig")?;
    ensure!(kubeconfig.contains("https://hub.test:6443"), "{kubeconfig}");
    ensure!(kubeconfig.contains("https://[fd00::1]:443"), "{kubeconfig}");

    // What somebody changed is put back, and said.
    let roles: Api<ClusterRole> = Api::all(hub.client.clone());
    let rules = Patch::Merge(json!({"rules": []}));
    roles
        .patch("towline:agents", &PatchParams::default(), &rules)
        .await?;
    let third = hub.init(&[]).await?.ok()?;
    ensure!(
        third
            .stdout
            .contains("CHANGED   ClusterRole towline:agents   rules"),
        "{}",
        third.stdout
    );

    // The expressions mean what the API server thinks they mean.
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(hub.client.clone());
    for policy in policies.list(&ListParams::default()).await? {
        let status = policy.status.clone().unwrap_or_default();
        let warnings = status.type_checking.unwrap_or_default().expression_warnings;
        ensure!(
            warnings.unwrap_or_default().is_empty(),
            "{}: see its status",
            policy.name_any()
        );
    }
    Ok(())
}

/// Resource versions of what `init` made.
async fn versions(client: &Client) -> Result<Vec<Option<String>>> {
    let ours = ListParams::default().labels("app.kubernetes.io/managed-by=towline-init");
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(client.clone());
    let roles: Api<ClusterRole> = Api::all(client.clone());
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "karmada-system");
    let mut all = Vec::new();
    all.extend(
        policies
            .list(&ours)
            .await?
            .iter()
            .map(|o| o.resource_version()),
    );
    all.extend(
        roles
            .list(&ours)
            .await?
            .iter()
            .map(|o| o.resource_version()),
    );
    all.extend(maps.list(&ours).await?.iter().map(|o| o.resource_version()));
    Ok(all)
}

/// Twice the same, once the changes; on the newest hub.
#[tokio::test(flavor = "multi_thread")]
async fn init_prepares_a_hub_once() -> Result<()> {
    prepares_once(Version::V1_36).await
}

/// And on the oldest.
#[tokio::test(flavor = "multi_thread")]
async fn init_prepares_the_oldest_hub() -> Result<()> {
    prepares_once(Version::V1_33).await
}

/// A hub that is too old is told so, and left as it is.
#[tokio::test(flavor = "multi_thread")]
async fn init_refuses_an_old_hub() -> Result<()> {
    let hub = Bare::start("init-old", Version::V1_30).await?;
    let run = hub.init(&[]).await?.refused()?;
    ensure!(run.code == 7, "{run:?}");
    ensure!(
        run.stderr.contains("must run 1.33 or newer"),
        "{}",
        run.stderr
    );
    let namespaces: Api<Namespace> = Api::all(hub.client.clone());
    ensure!(
        namespaces.get_opt("karmada-system").await?.is_none(),
        "something was made"
    );
    Ok(())
}

/// A cluster-info of somebody else is used as it is.
#[tokio::test(flavor = "multi_thread")]
async fn init_keeps_a_cluster_info_that_exists() -> Result<()> {
    let hub = Bare::start("init-cluster-info", Version::V1_36).await?;
    let maps: Api<ConfigMap> = Api::namespaced(hub.client.clone(), "kube-public");
    let kubeconfig = format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: \"\"\n  cluster:\n    server: \
         https://kubeadm.test:6443\n    certificate-authority-data: {}\n",
        base64_of(&hub.plane.pki.ca_pem()),
    );
    let theirs: ConfigMap = serde_json::from_value(json!({
        "metadata": {"name": "cluster-info"},
        "data": {"kubeconfig": kubeconfig},
    }))?;
    maps.create(&PostParams::default(), &theirs).await?;

    let run = hub.init(&["--advertise", "hub.test:6443"]).await?.ok()?;
    ensure!(
        run.stdout
            .contains("KEPT      ConfigMap kube-public/cluster-info"),
        "{}",
        run.stdout
    );
    ensure!(
        run.stderr.contains("https://kubeadm.test:6443"),
        "{}",
        run.stderr
    );
    let live = maps.get("cluster-info").await?;
    ensure!(
        live.data.unwrap_or_default().get("kubeconfig") == Some(&kubeconfig),
        "it was changed"
    );
    ensure!(live.metadata.labels.is_none(), "it was labelled");
    Ok(())
}

/// Rights of another installation stop `init`, which names them; `--adopt` takes them away.
#[tokio::test(flavor = "multi_thread")]
async fn init_refuses_rights_that_would_undo_its_own() -> Result<()> {
    let hub = Bare::start("init-foreign", Version::V1_36).await?;
    let cluster: Api<ClusterRoleBinding> = Api::all(hub.client.clone());
    let namespaced: Api<RoleBinding> = Api::namespaced(hub.client.clone(), "default");
    let group = |name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": name});
    let role = |name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name});
    for (name, role_name, subjects) in [
        (
            "left-over",
            "cluster-admin",
            json!([
                {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:karmada:agent:rbac-generator"},
            ]),
        ),
        (
            "every-token",
            "system:node-bootstrapper",
            json!([group("system:bootstrappers"), group("admins")]),
        ),
        (
            "harmless",
            "system:node-bootstrapper",
            json!([group("system:bootstrappers:kubeadm:default-node-token")]),
        ),
    ] {
        let binding =
            json!({"metadata": {"name": name}, "roleRef": role(role_name), "subjects": subjects});
        cluster
            .create(&PostParams::default(), &serde_json::from_value(binding)?)
            .await?;
    }
    let binding = json!({
        "metadata": {"name": "agents"},
        "roleRef": role("view"),
        "subjects": [group("system:karmada:agents")],
    });
    namespaced
        .create(&PostParams::default(), &serde_json::from_value(binding)?)
        .await?;

    let run = hub.init(&[]).await?.refused()?;
    for named in [
        "ClusterRoleBinding left-over",
        "ClusterRoleBinding every-token",
        "RoleBinding default/agents",
    ] {
        ensure!(
            run.stderr.contains(named),
            "{named} is not named: {}",
            run.stderr
        );
    }
    ensure!(!run.stderr.contains("harmless"), "{}", run.stderr);
    ensure!(run.stderr.contains("--adopt"), "{}", run.stderr);
    let namespaces: Api<Namespace> = Api::all(hub.client.clone());
    ensure!(
        namespaces.get_opt("karmada-system").await?.is_none(),
        "something was made"
    );

    hub.init(&["--adopt"]).await?.ok()?;
    ensure!(
        cluster.get_opt("left-over").await?.is_none(),
        "left-over is still there"
    );
    ensure!(
        namespaced.get_opt("agents").await?.is_none(),
        "default/agents is still there"
    );
    let subjects = cluster
        .get("every-token")
        .await?
        .subjects
        .unwrap_or_default();
    ensure!(
        subjects.len() == 1 && subjects[0].name == "admins",
        "{subjects:?}"
    );
    hub.init(&[]).await?.ok()?;
    Ok(())
}

/// A running hub puts back whatever is deleted or changed.
#[tokio::test(flavor = "multi_thread")]
async fn what_init_made_is_put_back() -> Result<()> {
    let scratch = Scratch::new("init-repair")?;
    let parts = Parts::from_env()?;
    let plane = Plane::start(&parts, &scratch.join("hub"), PlaneOptions::hub()).await?;
    let fleet = Fleet::start(&scratch.join("towline"), &plane).await?;
    let client = plane.client().await?;
    let within = Duration::from_secs(90);
    wait_for("the proof", within, || async {
        Ok(fleet
            .hub
            .log_text()
            .contains("admission policies are in force"))
    })
    .await?;

    let policies: Api<ValidatingAdmissionPolicy> = Api::all(client.clone());
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-public");
    let roles: Api<ClusterRole> = Api::all(client.clone());
    let schemas: Api<FlowSchema> = Api::all(client.clone());
    let rules = roles.get("towline:agents").await?.rules;
    policies
        .delete("towline-agents", &DeleteParams::default())
        .await?;
    maps.delete("cluster-info", &DeleteParams::default())
        .await?;
    schemas
        .delete("towline-leases", &DeleteParams::default())
        .await?;
    let none = Patch::Merge(json!({"rules": [], "metadata": {"labels": null}}));
    roles
        .patch("towline:agents", &PatchParams::default(), &none)
        .await?;
    wait_for("everything being put back", within, || async {
        let policy = policies.get_opt("towline-agents").await?.is_some();
        let info = maps.get_opt("cluster-info").await?.is_some();
        let schema = schemas.get_opt("towline-leases").await?.is_some();
        Ok(policy && info && schema && roles.get("towline:agents").await?.rules == rules)
    })
    .await
    .with_context(|| fleet.hub.log_text())?;

    // What `init` says later holds from then on, without a restart.
    let elsewhere = "elsewhere.test:6443";
    fleet.cli(&["init", "--advertise", elsewhere]).await?.ok()?;
    wait_for("the new address being kept", within, || async {
        Ok(fleet.hub.log_text().contains("what it says now is kept"))
    })
    .await?;
    maps.delete("cluster-info", &DeleteParams::default())
        .await?;
    wait_for("cluster-info with the new address", within, || async {
        let info = maps.get_opt("cluster-info").await?;
        let data = info.and_then(|info| info.data).unwrap_or_default();
        Ok(data.values().any(|text| text.contains(elsewhere)))
    })
    .await
    .with_context(|| fleet.hub.log_text())
}

/// Policies that the API server does not enforce: no rights are given by `init`, and a hub that runs
/// registers nobody until they hold.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_registered_while_the_policies_do_not_hold() -> Result<()> {
    let scratch = Scratch::new("init-proof")?;
    let parts = Parts::from_env()?;
    let off = "--disable-admission-plugins=ValidatingAdmissionPolicy";
    let mut options = PlaneOptions::hub();
    options.apiserver_args = vec![off.to_owned()];
    let member = PlaneOptions {
        nodes: 0,
        scheduler: false,
        ..PlaneOptions::member("member1")
    };
    let member = Plane::start(&parts, &scratch.join("member1"), member).await?;
    let mut plane = Plane::start(&parts, &scratch.join("hub"), options).await?;
    let towline = Towline::new(&scratch.join("before"))?;
    let kubeconfig = plane.kubeconfig.display().to_string();
    let run = towline
        .cli(["init", "--kubeconfig", &kubeconfig])
        .await?
        .refused()?;
    ensure!(run.code == 7, "{run:?}");
    ensure!(run.stderr.contains("towline-agents"), "{}", run.stderr);
    let bindings: Api<ClusterRoleBinding> = Api::all(plane.client().await?);
    let given = bindings.get_opt("towline:bootstrap").await?;
    ensure!(given.is_none(), "rights were given without the policies");

    let enforced = |arg: &std::ffi::OsString| arg.to_string_lossy() != off;
    plane.apiserver.spec_mut().args.retain(enforced);
    plane.apiserver.restart()?;
    plane.wait_ready().await?;
    let fleet = Fleet::start(&scratch.join("towline"), &plane).await?;
    wait_for("the proof", Duration::from_secs(90), || async {
        Ok(fleet
            .hub
            .log_text()
            .contains("admission policies are in force"))
    })
    .await?;

    plane.apiserver.spec_mut().args.push(off.into());
    plane.apiserver.restart()?;
    plane.wait_ready().await?;
    wait_for("the hub's notice", Duration::from_secs(90), || async {
        Ok(fleet
            .hub
            .log_text()
            .contains("did not refuse a write that it must refuse"))
    })
    .await?;
    let token = fleet.token(&["--cluster", "m1"]).await?;
    let spec = fleet.agent_spec(&member.kubeconfig, "m1", &token, &[])?;
    let mut agent = Process::start(spec)?;
    let requests: Api<CertificateSigningRequest> = Api::all(plane.client().await?);
    let ours = || async {
        let all = requests.list(&ListParams::default()).await?;
        let named = |name: &str| name.starts_with("towline-") && !name.starts_with("towline-probe");
        anyhow::Ok(all.into_iter().find(|request| named(&request.name_any())))
    };
    wait_for("the agent's request", Duration::from_secs(60), || async {
        Ok(ours().await?.is_some())
    })
    .await?;

    let waiting = ours().await?.context("the request is there")?;
    let decided = waiting.status.and_then(|status| status.conditions);
    ensure!(decided.is_none(), "it was decided: {decided:?}");
    plane.apiserver.spec_mut().args.retain(enforced);
    plane.apiserver.restart()?;
    plane.wait_ready().await?;
    // An API server that starts does not know its tokens for a moment, and its 401 ends an agent; in a
    // pod it is started again.
    agent.restart()?;
    fleet
        .wait_ready("m1", "True", Duration::from_secs(120))
        .await
        .with_context(|| fleet.hub.log_text())
}

fn base64_of(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}
