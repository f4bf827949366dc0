//! A hub with a member that lets Ann in, and requests of whoever it may be.

use crate::env::{
    Fleet, Identity, Lab, LabOptions, Parts, Plane, PlaneOptions, Process, Scratch, client,
    free_port, http_get, start_hub, wait_for,
};
use anyhow::{Context as _, Result, bail, ensure};
use common::client::{ClientOptions, Credentials, HostPort, HubTarget, kubeconfig_client};
use common::env::Env;
use common::lock::lock;
use common::names::{AGENT_NAME, AGENT_NAMESPACE, PROXY_NAME};
use common::proxy::ProxyChoice;
use common::tls::CertificateSwap;
use common::tunnel::Place;
use http::{HeaderMap, HeaderName, HeaderValue, Request};
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::client::Body;
use kube::core::{ApiResource, GroupVersionKind};
use serde::Deserialize as _;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

/// How long anything may take on a machine that builds beside the lab.
pub(super) const LONG: Duration = Duration::from_secs(180);

/// The flags by which `towline-hub run` says where it takes tunnels, and where its metrics are.
const ACCESS: &str = "--access-bind-address";
const METRICS: &str = "--metrics-bind-address";

/// The hub, one member, and the folder of it all.
pub(super) struct Stage {
    pub(super) scratch: Scratch,
    pub(super) lab: Lab,
    pub(super) fleet: Fleet,
    pub(super) agent: Process,
    typed: Typed,
}

/// What a server answered.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) code: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: String,
}

impl Answer {
    /// Fails unless it has this status and says this.
    pub(super) fn is(self, code: u16, text: &str) -> Result<Self> {
        ensure!(
            self.code == code && self.body.contains(text),
            "must be {code} with {text:?}, but: {} {}",
            self.code,
            self.body
        );
        Ok(self)
    }
}

impl Stage {
    /// A member `m1` whose agent runs with `--proxy MODE`, and lets in user `ann` and group `dev`, which may view
    /// namespace default; on the hub `ann` may reach it.
    pub(super) async fn set(name: &str, mode: &str) -> Result<Self> {
        Self::of(name, mode, LabOptions::new(1)).await
    }

    /// The same beside more members that have registered nowhere yet.
    pub(super) async fn among(name: &str, mode: &str, members: usize) -> Result<Self> {
        Self::of(name, mode, LabOptions::new(members)).await
    }

    /// The same with a member whose node is real, on a hub of Towline's own API server or of kube-apiserver.
    pub(super) async fn real(name: &str, mode: &str, built_in: bool) -> Result<Self> {
        let mut options = LabOptions::new(1);
        options.hub.builtin = built_in;
        options.members[0].make_real();
        Self::of(name, mode, options).await
    }

    /// The same on a hub of Towline's own API server, whatever the member is.
    pub(super) async fn on_built_in_hub(name: &str, mode: &str) -> Result<Self> {
        let mut options = LabOptions::new(1);
        options.hub.builtin = true;
        Self::of(name, mode, options).await
    }

    /// A member `m1` as `towline register` installs it, open to nobody; its agent has the rights of an installation and no
    /// others. On the hub nobody but its administrator may reach it.
    pub(super) async fn installed(name: &str) -> Result<Self> {
        let (scratch, lab, fleet) = ground(name, LabOptions::new(1)).await?;
        let plane = &lab.members[0];
        let token = fleet.token(&["--cluster", "m1"]).await?;
        let flags = ["--proxy", "impersonate"];
        let own = format!("system:serviceaccount:{AGENT_NAMESPACE}:{AGENT_NAME}");
        let all = format!("system:serviceaccounts:{AGENT_NAMESPACE}");
        let limited = scratch.join("agent.kubeconfig");
        let limited = plane.kubeconfig_for(&limited, &own, &["system:serviceaccounts", &all])?;
        let spec = fleet.agent_spec(&limited, "m1", &token, &flags)?;
        let mut register = vec!["register", &fleet.address, "--cluster-name", "m1"];
        register.extend(["--token", &token]);
        register.extend(["--discovery-token-ca-cert-hash", &fleet.pin]);
        register.extend(flags);
        let typed = Typed::default();
        owner(&fleet, plane, &register, &typed).await?;
        let agent = Process::start(spec)?;
        fleet.wait_ready("m1", "True", LONG).await?;
        Ok(Self {
            scratch,
            lab,
            fleet,
            agent,
            typed,
        })
    }

    /// What the owner of the member does by `towline` with these words.
    pub(super) async fn owner(&self, words: &str) -> Result<()> {
        let words: Vec<&str> = words.split_whitespace().collect();
        owner(&self.fleet, &self.lab.members[0], &words, &self.typed).await
    }

    async fn of(name: &str, mode: &str, options: LabOptions) -> Result<Self> {
        let (scratch, lab, fleet) = ground(name, options).await?;
        let member = lab.members[0].client().await?;
        apply(&member, foundation()).await?;
        let hub = fleet.client().await?;
        apply(&hub, reach("ann", &["m1"], &["get", "create", "delete"])).await?;
        apply(&hub, reach("reader", &["m1"], &["get"])).await?;
        let flags = ["--proxy", mode];
        let token = fleet.token(&["--cluster", "m1"]).await?;
        let spec = fleet.agent_spec(&lab.members[0].kubeconfig, "m1", &token, &flags)?;
        let agent = Process::start(spec)?;
        fleet.wait_ready("m1", "True", LONG).await?;
        let stage = Self {
            scratch,
            lab,
            fleet,
            agent,
            typed: Typed::default(),
        };
        stage.opened().await?;
        Ok(stage)
    }

    /// Waits until the member answers through its tunnel.
    pub(super) async fn opened(&self) -> Result<()> {
        let ann = self.client("ann", &[]).await?;
        wait_for("an answer through the tunnel", LONG, async || {
            let built_in = self.lab.hub.options.builtin;
            let path = led(built_in, "m1", "/api/v1/namespaces/default");
            let answer = ask(&ann, "GET", &path, &[]).await?;
            ensure!(answer.code == 200, "{} {}", answer.code, answer.body);
            Ok(true)
        })
        .await
    }

    /// A kubeconfig of a user of the hub.
    pub(super) fn kubeconfig(&self, user: &str, groups: &[&str]) -> Result<PathBuf> {
        let path = self.scratch.join(format!("{user}.kubeconfig"));
        self.lab.hub.kubeconfig_for(&path, user, groups)
    }

    /// A client of the hub as somebody.
    pub(super) async fn client(&self, user: &str, groups: &[&str]) -> Result<Client> {
        let options = ClientOptions::new("test");
        self.connect(user, groups, options).await
    }

    /// The same over connections of HTTP/1.1, which can be taken over.
    pub(super) async fn plain_client(&self, user: &str) -> Result<Client> {
        let options = ClientOptions::new("test").one_at_a_time();
        self.connect(user, &[], options).await
    }

    /// Without kube's own retries: refusals are what is looked for.
    async fn connect(&self, user: &str, groups: &[&str], options: ClientOptions) -> Result<Client> {
        let path = self.kubeconfig(user, groups)?;
        let made = kubeconfig_client(Some(&path), None, &options, &Env::system()).await?;
        Ok(made.0)
    }

    /// What a flag of `towline-hub run` says.
    fn flag(&self, name: &str) -> Option<&str> {
        let mut flags = self.lab.hub.options.hub_flags.iter();
        flags.find_map(|flag| flag.strip_prefix(name)?.strip_prefix('='))
    }

    /// Where `towline-hub run` takes tunnels.
    pub(super) fn serves_at(&self) -> Result<HostPort> {
        let at = self.flag(ACCESS).context("it takes none")?;
        Ok(HostPort::parse(at)?)
    }

    /// Starts one more replica of it; where that takes tunnels.
    pub(super) async fn replica(&self, name: &str) -> Result<(Process, HostPort)> {
        let at = HostPort::new("127.0.0.1", free_port()?);
        let flag = format!("{ACCESS}={at}");
        let kubeconfig = self.fleet.kubeconfig();
        let (hub, _) = start_hub(&self.fleet.towline, name, kubeconfig, &[&flag]).await?;
        Ok((hub, at))
    }

    /// The metrics of whatever takes tunnels.
    pub(super) async fn metrics(&self) -> Result<String> {
        match self.flag(METRICS) {
            Some(address) => Ok(http_get(address, "/metrics").await?.1),
            None => {
                let admin = self.fleet.client().await?;
                Ok(ask(&admin, "GET", "/metrics", &[]).await?.is(200, "")?.body)
            }
        }
    }

    /// A client of the member with every right.
    pub(super) async fn member(&self) -> Result<Client> {
        self.lab.members[0].client().await
    }

    /// What `towline register` would install in the member with these flags.
    pub(super) async fn printed(&self, flags: &[&str]) -> Result<Vec<Value>> {
        let (address, pin) = (&self.fleet.address, &self.fleet.pin);
        let mut words = vec!["register", address, "--print", "--cluster-name", "m1"];
        words.extend(["--token", "abcdef.0123456789abcdef"]);
        words.extend(["--discovery-token-ca-cert-hash", pin]);
        words.extend(flags);
        documents(&self.fleet.towline.cli(words).await?.ok()?.stdout)
    }

    /// A client of the member with what the account has that acts as users of the hub, as whoever took the agent's
    /// credentials has it.
    pub(super) async fn captured(&self) -> Result<Client> {
        let account = format!("system:serviceaccount:{AGENT_NAMESPACE}:{PROXY_NAME}");
        let of_all = format!("system:serviceaccounts:{AGENT_NAMESPACE}");
        let path = self.scratch.join("captured.kubeconfig");
        let groups = ["system:serviceaccounts", &of_all];
        let kubeconfig = self.lab.members[0].kubeconfig_for(&path, &account, &groups)?;
        client(&kubeconfig).await
    }

    /// Ends everything; what it wrote is not kept.
    pub(super) async fn passed(mut self) {
        let _ = self.agent.stop(LONG).await;
        self.lab.stop().await;
        self.scratch.passed();
    }
}

/// A hub that takes tunnels, and members that are registered nowhere.
async fn ground(name: &str, mut options: LabOptions) -> Result<(Scratch, Lab, Fleet)> {
    let scratch = Scratch::new(name)?;
    let parts = Parts::from_env()?;
    if !options.hub.builtin {
        for flag in [ACCESS, METRICS] {
            let flag = format!("{flag}=127.0.0.1:{}", free_port()?);
            options.hub.hub_flags.push(flag);
        }
    }
    let lab = Lab::start(&parts, &scratch.join("lab"), &options).await?;
    let fleet = Fleet::start(&scratch.join("towline"), &lab.hub).await?;
    Ok((scratch, lab, fleet))
}

/// What the owner of a member has typed behind `towline register`, each flag with all that it was given.
type Typed = Mutex<Vec<(String, Vec<String>)>>;

/// Runs `towline register` on a member. The agent that it installs does not run there: it is a process of the test. On a
/// server of Towline's own, which it takes for a hub, what it would install by all that was typed is applied.
async fn owner(fleet: &Fleet, member: &Plane, words: &[&str], typed: &Typed) -> Result<()> {
    let path = member.kubeconfig.display().to_string();
    if !member.options.builtin {
        let mut words = words.to_vec();
        words.extend(["--wait", "0", "--kubeconfig", &path]);
        fleet.towline.cli(words).await?.ok()?;
        return Ok(());
    }
    let mut all = vec!["register".to_owned(), "--print".to_owned()];
    {
        let mut typed = lock(typed);
        let flags = words.iter().skip_while(|it| !it.starts_with("--"));
        let flags: Vec<&&str> = flags.collect();
        for pair in flags.chunks(2) {
            let [flag, value] = pair else {
                bail!("{flags:?}")
            };
            let same = |it: &(String, Vec<String>)| it.0 == **flag && value.starts_with('+');
            match typed.iter_mut().find(|it| same(it)) {
                Some((_, values)) => values.push((**value).to_owned()),
                None => typed.push(((**flag).to_owned(), vec![(**value).to_owned()])),
            }
        }
        for (flag, values) in typed.iter() {
            all.extend([flag.clone(), values.join(",")]);
        }
        if !all.iter().any(|it| it == "--token") {
            bail!("nothing was registered");
        }
        let (at, hub) = (2, fleet.address.clone());
        all.insert(at, hub);
    }
    let mut objects = documents(&fleet.towline.cli(&all).await?.ok()?.stdout)?;
    let kept = |object: &Value| {
        let kind = object["kind"].as_str().unwrap_or_default();
        kind != "Deployment" && !kind.starts_with("ValidatingAdmission")
    };
    objects.retain(kept);
    apply(&member.client().await?, objects).await
}

fn documents(text: &str) -> Result<Vec<Value>> {
    let documents = serde_yaml::Deserializer::from_str(text);
    let objects = documents.map(Value::deserialize);
    Ok(objects.collect::<Result<_, _>>()?)
}

/// Who somebody is in the member m1.
pub(super) async fn whoami(client: &Client) -> Result<Value> {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let path = to("m1", "/apis/authentication.k8s.io/v1/selfsubjectreviews");
    let said = ask_with(client, "POST", &path, &[], Some(&review)).await?;
    let said: Value = serde_json::from_str(&said.is(201, "userInfo")?.body)?;
    Ok(said["status"]["userInfo"].clone())
}

/// Where tunnels are taken, for whoever has this certificate.
pub(super) async fn target(stage: &Stage, identity: &Identity) -> Result<HubTarget> {
    let maps: Api<ConfigMap> = Api::namespaced(stage.fleet.client().await?, "kube-public");
    let info = maps.get("cluster-info").await?;
    let place = Place::read(&info).map_err(anyhow::Error::msg)?;
    ensure!(place.is_none() == is_built_in(), "{info:?}");
    let hub = &stage.lab.hub;
    let place = place.unwrap_or(Place {
        servers: vec![HostPort::new("127.0.0.1", hub.port)],
        ca_pem: hub.pki.ca_pem(),
    });
    let swap = CertificateSwap::empty();
    swap.set(identity.cert.as_bytes(), identity.key.as_bytes())?;
    Ok(HubTarget {
        servers: place.servers,
        ca_pem: place.ca_pem.into_bytes(),
        proxy: ProxyChoice::direct(),
        credentials: Credentials::Certificate(swap),
    })
}

/// Whether the hub's API server is Towline's own.
pub(super) fn is_built_in() -> bool {
    PlaneOptions::hub().builtin
}

/// The path on the hub of a path in a member.
pub(super) fn to(cluster: &str, path: &str) -> String {
    led(is_built_in(), cluster, path)
}

/// The same on a hub of this kind.
pub(super) fn led(built_in: bool, cluster: &str, path: &str) -> String {
    let group = match built_in {
        true => "cluster.karmada.io",
        false => "proxy.towline.dev",
    };
    format!("/apis/{group}/v1alpha1/clusters/{cluster}/proxy{path}")
}

/// Reads something until the answer is this one: rights that were just given count a moment later.
pub(super) async fn becomes(client: &Client, path: &str, code: u16, text: &str) -> Result<()> {
    wait_for(&format!("{code} with {text:?}"), LONG, async || {
        ask(client, "GET", path, &[]).await?.is(code, text)?;
        Ok(true)
    })
    .await
}

/// Sends a request with headers of the caller's own, and reads the whole answer.
pub(super) async fn ask(
    client: &Client,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> Result<Answer> {
    ask_with(client, method, path, headers, None).await
}

/// The same with a body, of JSON unless its headers say otherwise.
pub(super) async fn ask_with(
    client: &Client,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: Option<&Value>,
) -> Result<Answer> {
    let sent = body.map_or_else(Vec::new, |body| body.to_string().into_bytes());
    let mut request = Request::builder().method(method).uri(path);
    if body.is_some() && !headers.iter().any(|(name, _)| *name == "content-type") {
        request = request.header("content-type", "application/json");
    }
    let mut request = request.body(Body::from(sent))?;
    for (name, value) in headers {
        let name = HeaderName::from_bytes(name.as_bytes())?;
        request
            .headers_mut()
            .append(name, HeaderValue::from_str(value)?);
    }
    let answer = client.send(request).await;
    let answer = answer.with_context(|| format!("{method} {path}"))?;
    let (code, headers) = (answer.status().as_u16(), answer.headers().clone());
    let body = answer.into_body().collect().await?.to_bytes();
    Ok(Answer {
        code,
        headers,
        body: String::from_utf8_lossy(&body).into_owned(),
    })
}

/// Applies objects one by one.
pub(super) async fn apply(client: &Client, objects: Vec<Value>) -> Result<()> {
    for object in objects {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
        let version = text(&object["apiVersion"]);
        let (group, version) = version.split_once('/').unwrap_or(("", &version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind));
        let api: Api<DynamicObject> = match object["metadata"]["namespace"].as_str() {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        let params = PatchParams::apply("test").force();
        let applied = api.patch(&name, &params, &Patch::Apply(&object)).await;
        if let Err(error) = applied {
            bail!("{kind} {name} cannot be applied: {error}");
        }
    }
    Ok(())
}

/// Lets a user of the hub reach clusters.
pub(super) fn reach(user: &str, clusters: &[&str], verbs: &[&str]) -> Vec<Value> {
    let name = format!("reach-{user}");
    vec![
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name},
            "rules": [{
                "apiGroups": ["cluster.karmada.io", "proxy.towline.dev"], "resources": ["clusters/proxy"],
                "resourceNames": clusters, "verbs": verbs,
            }, {
                "apiGroups": ["cluster.karmada.io"], "resources": ["clusters"], "verbs": ["list"],
            }],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        }),
    ]
}

/// What `towline register --proxy … --proxy-user ann --proxy-group dev` makes in a member, and rights there for them.
fn foundation() -> Vec<Value> {
    let rbac = "rbac.authorization.k8s.io";
    vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "towline-system"}}),
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": PROXY_NAME, "namespace": "towline-system"},
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": PROXY_NAME},
            "rules": [
                {
                    "apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"],
                    "resourceNames": ["ann", "towline:hub:system:serviceaccount:default:robot", "reader"],
                },
                {"apiGroups": [""], "resources": ["groups"], "resourceNames": ["dev"], "verbs": ["impersonate"]},
            ],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": PROXY_NAME},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": PROXY_NAME},
            "subjects": [{"kind": "ServiceAccount", "name": PROXY_NAME, "namespace": "towline-system"}],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": "viewer", "namespace": "default"},
            "rules": [
                {
                    "apiGroups": [""], "resources": ["configmaps", "pods", "pods/log"],
                    "verbs": ["get", "list", "watch", "create", "delete"],
                },
                {"apiGroups": [""], "resources": ["pods/exec", "pods/attach", "pods/portforward"], "verbs": ["get", "create"]},
                {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]},
            ],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": "viewer", "namespace": "default"},
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "viewer"},
            "subjects": [
                {"apiGroup": rbac, "kind": "User", "name": "ann"},
                {"apiGroup": rbac, "kind": "User", "name": "reader"},
            ],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": "secrets", "namespace": "default"},
            "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]}],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": "secrets", "namespace": "default"},
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "secrets"},
            "subjects": [{"apiGroup": rbac, "kind": "Group", "name": "dev"}],
        }),
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "here", "namespace": "default"},
            "data": {"cluster": "m1"},
        }),
    ]
}
