//! One control plane: etcd, kube-apiserver, kube-controller-manager, and a member's scheduler and
//! nodes.

mod files;
mod specs;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Client;
use kube::api::Api;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;
use tokio::time::interval;

use super::kubeconfig;
use super::node::RealNode;
use super::nodes;
use super::parts::{Part, Parts, Version};
use super::pki::Pki;
use super::ports::free_ports;
use super::process::{Process, ProcessSpec, tail};
use super::sandbox::{GATEWAY, SERVICE, Sandbox};
use super::towline::binary;
use super::wait::{wait_for, wait_for_some};
pub(crate) use files::FRONT_PROXY;
use files::Files;
use specs::{
    apiserver_spec, builtin_spec, etcd_spec, give_ca, kwok_spec, manager_spec, scheduler_spec,
    serve_spec,
};

/// A cold plane is ready in seconds; a machine that builds and tests beside it takes longer.
const READY_WITHIN: Duration = Duration::from_secs(300);
/// How often processes are looked after meanwhile.
const LOOK_AFTER: Duration = Duration::from_secs(1);
/// How long one answer may take on a machine that is starved.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);
const ATTEMPTS: usize = 4;

/// What a plane is to be.
#[derive(Debug, Clone)]
pub(crate) struct PlaneOptions {
    /// Its name, also the context in its kubeconfig.
    pub(crate) name: String,
    /// The Kubernetes it runs.
    pub(crate) version: Version,
    /// Nodes that kwok plays; with none there is neither kwok nor a scheduler.
    pub(crate) nodes: usize,
    /// Whether pods are scheduled, also without kwok.
    pub(crate) scheduler: bool,
    /// Whether it is Towline's own API server in place of kube-apiserver; see [`builtin`].
    pub(crate) builtin: bool,
    /// Whether it has a real node, in a sandbox, in place of kwok's.
    pub(crate) real_node: bool,
    /// Whether its kube-apiserver passes requests on to aggregated APIs, as kubeadm has it.
    pub(crate) aggregates: bool,
    /// More flags for kube-apiserver.
    pub(crate) apiserver_args: Vec<String>,
    /// More flags for kube-controller-manager; the last of a flag holds.
    pub(crate) manager_args: Vec<String>,
    /// More names and addresses in the serving certificate.
    pub(crate) names: Vec<String>,
    /// Flags of Towline's hub on it: of the `towline-hub run` that a [`super::Fleet`] starts there, or of
    /// the `serve` that a built-in plane is.
    pub(crate) hub_flags: Vec<String>,
    /// Addresses that the hub tells agents; see [`Plane::advertise`]. With none, its own.
    pub(crate) advertised: Vec<String>,
}

impl PlaneOptions {
    /// A hub: no nodes.
    pub(crate) fn hub() -> Self {
        Self {
            name: "hub".to_owned(),
            version: Version::default(),
            nodes: 0,
            scheduler: false,
            builtin: builtin("TOWLINE_LAB_HUB"),
            real_node: false,
            aggregates: true,
            apiserver_args: Vec::new(),
            manager_args: Vec::new(),
            names: Vec::new(),
            hub_flags: Vec::new(),
            advertised: Vec::new(),
        }
    }

    /// With flags of Towline's hub.
    pub(crate) fn hub_flags(mut self, flags: &[&str]) -> Self {
        self.hub_flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        self
    }

    /// A member with two nodes.
    pub(crate) fn member(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            nodes: 2,
            scheduler: true,
            builtin: builtin("TOWLINE_LAB_MEMBER"),
            ..Self::hub()
        }
    }

    /// A member with one real node.
    pub(crate) fn real(name: &str) -> Self {
        let mut options = Self::member(name);
        options.make_real();
        options
    }

    /// Puts one real node in place of those that kwok plays.
    pub(crate) fn make_real(&mut self) {
        self.real_node = true;
        self.builtin = false;
        self.nodes = 0;
    }

    /// At another version.
    pub(crate) fn version(mut self, version: Version) -> Self {
        self.builtin &= version == Version::default();
        self.version = version;
        self
    }

    /// The programs it needs.
    pub(crate) fn parts(&self) -> Vec<Part> {
        if self.builtin {
            return Vec::new();
        }
        let mut parts = vec![
            Part::Etcd,
            Part::Etcdutl,
            Part::ApiServer(self.version),
            Part::ControllerManager(self.version),
        ];
        if self.scheduler {
            parts.push(Part::Scheduler(self.version));
        }
        if self.nodes > 0 {
            parts.push(Part::Kwok);
        }
        if self.real_node {
            parts.extend(Part::of_the_node());
        }
        parts
    }
}

/// A control plane that runs.
pub(crate) struct Plane {
    /// What it was asked to be.
    pub(crate) options: PlaneOptions,
    /// Its folder: logs, keys, data.
    pub(crate) dir: PathBuf,
    /// Its certificate authority.
    pub(crate) pki: Pki,
    /// That of its front proxy, by which it passes requests on.
    pub(crate) front: Pki,
    /// Where its API listens, on 127.0.0.1.
    pub(crate) port: u16,
    /// Where etcd listens, for clients and for peers.
    pub(super) etcd_ports: [u16; 2],
    /// Its administrator's kubeconfig.
    pub(crate) kubeconfig: PathBuf,
    /// etcd.
    pub(crate) etcd: Process,
    /// kube-apiserver.
    pub(crate) apiserver: Process,
    /// kube-controller-manager.
    pub(crate) manager: Process,
    /// kube-scheduler, on members.
    pub(crate) scheduler: Option<Process>,
    /// kwok, on members with nodes.
    pub(crate) kwok: Option<Process>,
    /// The real node, if it has one.
    pub(crate) node: Option<RealNode>,
    relays: Vec<Process>,
    // Dropped last: everything above lives in it.
    sandbox: Option<Sandbox>,
}

impl Plane {
    /// Starts a plane in `dir` and waits until it is ready.
    pub(crate) async fn start(parts: &Parts, dir: &Path, options: PlaneOptions) -> Result<Self> {
        let mut attempt = 1;
        loop {
            match Self::try_start(parts, dir, &options).await {
                Ok(plane) => return Ok(plane),
                Err(_) if attempt < ATTEMPTS && port_was_taken(dir) => {
                    std::fs::remove_dir_all(dir)
                        .with_context(|| format!("failed to remove {}", dir.display()))?;
                    attempt += 1;
                }
                Err(error) => {
                    return Err(error.context(format!(
                        "failed to start the control plane {}; its logs are in {}",
                        options.name,
                        dir.display()
                    )));
                }
            }
        }
    }

    async fn try_start(parts: &Parts, dir: &Path, options: &PlaneOptions) -> Result<Self> {
        std::fs::create_dir_all(dir)
            .with_context(|| format!("failed to create {}", dir.display()))?;
        let pki = Pki::new(&options.name)?;
        let [port, etcd_port, peer_port] = free_ports()?;
        let front = Pki::new(&format!("{} front proxy", options.name))?;
        let files = Files::write(dir, (&pki, &front), options, port)?;
        if options.builtin {
            return Self::try_start_builtin(dir, options, (pki, front), port, files.admin).await;
        }
        let sandbox = match options.real_node {
            true => Some(Sandbox::start(&dir.join("node")).await?),
            false => None,
        };
        let start = |spec: ProcessSpec| match &sandbox {
            Some(sandbox) => Process::start(sandbox.in_network(spec)?),
            None => Process::start(spec),
        };
        let etcd = start(etcd_spec(parts, dir, etcd_port, peer_port)?)?;
        // kube-apiserver waits for etcd by itself.
        let apiserver = start(apiserver_spec(parts, dir, options, port, etcd_port)?)?;
        let manager = start(manager_spec(parts, dir, options, &files)?)?;
        let scheduler = match options.scheduler {
            true => Some(start(scheduler_spec(
                parts,
                dir,
                options,
                &files.scheduler,
            )?)?),
            false => None,
        };
        let relays = match &sandbox {
            Some(sandbox) => RealNode::api_relays(sandbox, dir, port)?,
            None => Vec::new(),
        };
        let mut plane = Self {
            options: options.clone(),
            dir: dir.to_owned(),
            pki,
            front,
            port,
            etcd_ports: [etcd_port, peer_port],
            kubeconfig: files.admin,
            etcd,
            apiserver,
            manager,
            scheduler,
            kwok: None,
            node: None,
            relays,
            sandbox,
        };
        plane.wait_ready().await?;
        if options.nodes > 0 {
            let spec = kwok_spec(parts, dir, &plane.kubeconfig)?;
            plane.kwok = Some(Process::start(spec)?);
            nodes::create(&plane.client().await?, options.nodes).await?;
        }
        plane.wait_usable().await?;
        if let Some(sandbox) = &plane.sandbox {
            plane.node = Some(RealNode::start(parts, sandbox, &plane).await?);
        }
        Ok(plane)
    }

    /// Towline's own API server; what makes workloads ready on it stands where kwok does.
    async fn try_start_builtin(
        dir: &Path,
        options: &PlaneOptions,
        (pki, front): (Pki, Pki),
        port: u16,
        kubeconfig: PathBuf,
    ) -> Result<Self> {
        let mut plane = Self {
            options: options.clone(),
            dir: dir.to_owned(),
            apiserver: Process::start(builtin_spec(dir, options, &pki, port)?)?,
            pki,
            front,
            port,
            etcd_ports: [0; 2],
            etcd: Process::absent("etcd", dir),
            manager: Process::absent("kube-controller-manager", dir),
            scheduler: None,
            kwok: None,
            node: None,
            relays: Vec::new(),
            sandbox: None,
            kubeconfig,
        };
        plane.wait_ready().await?;
        if options.nodes > 0 {
            nodes::create_ready(&plane.client().await?, options.nodes).await?;
            let spec = ProcessSpec::new("workloads", &binary("towline")?, dir)
                .arg("demo-workloads")
                .arg("--kubeconfig")
                .arg(&plane.kubeconfig);
            plane.kwok = Some(Process::start(spec)?);
        }
        Ok(plane)
    }

    /// Where Towline's own API server keeps everything.
    pub(crate) fn data_dir(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// `127.0.0.1:<port>`, as `HOST:PORT` flags want it.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// A new client with every right, on the calling runtime.
    pub(crate) async fn client(&self) -> Result<Client> {
        kubeconfig::client(&self.kubeconfig).await
    }

    /// Writes a kubeconfig of a user in groups, by a certificate of this plane's CA.
    pub(crate) fn kubeconfig_for(
        &self,
        path: &Path,
        user: &str,
        groups: &[&str],
    ) -> Result<PathBuf> {
        let identity = self.pki.client(user, groups)?;
        self.kubeconfig_at(path, &self.address(), &identity)?;
        Ok(path.to_owned())
    }

    /// Writes a kubeconfig that reaches this plane by another address, such as a relay's.
    pub(crate) fn kubeconfig_at(
        &self,
        path: &Path,
        address: &str,
        identity: &super::pki::Identity,
    ) -> Result<()> {
        let server = format!("https://{address}");
        kubeconfig::write(
            path,
            &self.options.name,
            &server,
            &self.pki.ca_pem(),
            identity,
        )
    }

    /// Waits until the API server says that it is ready.
    pub(crate) async fn wait_ready(&mut self) -> Result<()> {
        let client = self.client().await?;
        let what = format!("readiness of the API server of {}", self.options.name);
        self.tended(&what, || is_ready(&client)).await
    }

    /// Waits for a condition while looking after the processes it depends on.
    async fn tended(
        &mut self,
        what: &str,
        mut condition: impl AsyncFnMut() -> Result<bool>,
    ) -> Result<()> {
        let mut waiting = pin!(wait_for(what, READY_WITHIN, &mut condition));
        let mut looks = interval(LOOK_AFTER);
        loop {
            tokio::select! {
                biased;
                done = &mut waiting => return done,
                _ = looks.tick() => self.tend()?,
            }
        }
    }

    /// Fails when what a plane stands on has ended, and starts again what gave up waiting for it.
    fn tend(&mut self) -> Result<()> {
        self.etcd.check()?;
        self.apiserver.check()?;
        // Both wait ten seconds for an API server and no longer; a busy machine needs more. They may
        // give up at the very moment in which it becomes ready.
        for process in [Some(&mut self.manager), self.scheduler.as_mut()]
            .into_iter()
            .flatten()
        {
            if process.ended()?.is_some() {
                process.restart()?;
            }
        }
        Ok(())
    }

    /// Waits for what a controller manager makes first, and for nodes to be ready.
    pub(super) async fn wait_usable(&mut self) -> Result<()> {
        let client = self.client().await?;
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
        self.tended("the controller manager's first ServiceAccount", || {
            let accounts = accounts.clone();
            async move { Ok(accounts.get_opt("default").await?.is_some()) }
        })
        .await?;
        if self.options.nodes > 0 {
            wait_nodes(&client, self.options.nodes).await?;
        }
        Ok(())
    }

    /// Kills the API server; everything else keeps running.
    pub(crate) fn kill_api(&mut self) {
        self.apiserver.kill();
    }

    /// Starts the API server again on the same port, and waits until it is ready.
    pub(crate) async fn restart_api(&mut self) -> Result<()> {
        self.apiserver.restart()?;
        self.wait_ready().await
    }

    /// Lets pods of the real node reach what listens outside on a port of 127.0.0.1; returns the
    /// address at which they find it.
    pub(crate) fn expose(&mut self, port: u16) -> Result<String> {
        match (&mut self.node, &self.sandbox) {
            (Some(node), Some(sandbox)) => node.expose(sandbox, port),
            _ => anyhow::bail!("{} has no real node", self.options.name),
        }
    }

    /// A process that is where the pods of its real node are.
    pub(crate) fn in_network(&self, spec: ProcessSpec) -> Result<ProcessSpec> {
        let sandbox = self.sandbox.as_ref();
        sandbox.context("it has no real node")?.in_network(spec)
    }

    /// The hub tells agents these addresses and no others, from now on if it is built in, and from the
    /// start of Towline on it otherwise.
    pub(crate) async fn advertise(&mut self, addresses: &[&str]) -> Result<()> {
        self.options.advertised = addresses.iter().map(|&one| one.to_owned()).collect();
        if !self.options.builtin {
            return Ok(());
        }
        let spec = serve_spec(&self.dir, &self.options, self.port)?;
        if spec.args != self.apiserver.spec_mut().args {
            *self.apiserver.spec_mut() = spec;
            self.restart_api().await?;
        }
        Ok(())
    }

    /// Every process, in the order in which they are stopped.
    fn processes(&mut self) -> Vec<&mut Process> {
        let mut all: Vec<&mut Process> = Vec::new();
        all.extend(self.kwok.as_mut());
        all.extend(self.scheduler.as_mut());
        all.extend([&mut self.manager, &mut self.apiserver, &mut self.etcd]);
        all.extend(self.relays.iter_mut());
        all
    }

    /// Names and ids of what runs.
    pub(crate) fn pids(&mut self) -> Vec<(String, u32)> {
        let mut pids: Vec<(String, u32)> = self
            .processes()
            .into_iter()
            .filter_map(|process| Some((process.name().to_owned(), process.pid()?)))
            .collect();
        pids.extend(self.node.iter().flat_map(RealNode::pids));
        let sandbox = self.sandbox.as_ref().and_then(Sandbox::pid);
        pids.extend(sandbox.map(|id| ("sandbox".to_owned(), id)));
        pids
    }

    /// Takes away what its server keeps, which has to be down; it starts on nothing then, for the same clients.
    pub(crate) fn empty(&self) -> Result<()> {
        let kept = if self.options.builtin { "data" } else { "etcd" };
        let kept = self.dir.join(kept);
        std::fs::remove_dir_all(&kept)
            .with_context(|| format!("failed to remove {}", kept.display()))?;
        match self.options.builtin {
            true => give_ca(&self.dir, &self.pki),
            false => Ok(()),
        }
    }

    /// Ends every process, in order, and says which did not end when asked.
    pub(crate) async fn stop(&mut self) {
        // The kernel ends what is in a sandbox: pods, their mounts, their network.
        self.node = None;
        if let Some(sandbox) = &mut self.sandbox {
            sandbox.end();
        }
        // kube-apiserver lingers for its open watches; nothing here needs its goodbye.
        for process in self.processes() {
            process.kill();
        }
    }
}

impl Drop for Plane {
    /// Logs stay for whoever looks for a failure; data would fill the disk.
    fn drop(&mut self) {
        self.node = None;
        if let Some(sandbox) = &mut self.sandbox {
            sandbox.end();
        }
        self.etcd.kill();
        for data in ["etcd", "node/containerd", "node/packing", "node/image.tar"] {
            let path = self.dir.join(data);
            // What was never made cannot be removed.
            let _ = std::fs::remove_dir_all(&path).or_else(|_| std::fs::remove_file(&path));
        }
    }
}

async fn is_ready(client: &Client) -> Result<bool> {
    let request = http::Request::get("/readyz")
        .body(Vec::new())
        .context("a bad request for /readyz")?;
    let answer = tokio::time::timeout(ANSWER_WITHIN, client.request_text(request)).await;
    Ok(answer.with_context(|| format!("no answer within {ANSWER_WITHIN:?}"))?? == "ok")
}

pub(crate) async fn wait_nodes(client: &Client, count: usize) -> Result<()> {
    let api: Api<k8s_openapi::api::core::v1::Node> = Api::all(client.clone());
    wait_for_some("readiness of every node", READY_WITHIN, || {
        let api = api.clone();
        async move {
            let nodes = api.list(&Default::default()).await?;
            let ready = nodes.iter().filter(|node| node_is_ready(node)).count();
            Ok((ready >= count).then_some(()))
        }
    })
    .await
}

fn node_is_ready(node: &k8s_openapi::api::core::v1::Node) -> bool {
    let conditions = node.status.as_ref().and_then(|s| s.conditions.as_ref());
    conditions.is_some_and(|all| all.iter().any(|c| c.type_ == "Ready" && c.status == "True"))
}

fn port_was_taken(dir: &Path) -> bool {
    let logs = ["etcd", "kube-apiserver", "towline-hub-serve"];
    logs.iter().any(|name| {
        tail(&dir.join(format!("{name}.log")), 20_000).contains("address already in use")
    })
}

/// Whether a variable asks for planes of Towline's own: tests of a pull loop run on either.
pub(crate) fn builtin(variable: &str) -> bool {
    std::env::var(variable).is_ok_and(|value| value == "builtin")
}
