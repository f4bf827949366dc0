//! Agents whose parts are at work in this process, each with an identity of its own: registered by a token as any other.

use agent::config::{Config, RunArgs};
use agent::context::{AgentContext, ErrorReport};
use agent::credentials::{Registration, Store};
use agent::hub::connect::Registered;
use agent::hub::{Connect, HubHandle};
use agent::registration::Registrar;
use agent::registration::bootstrap::{Bootstrap, Handed};
use agent::report::Reporter;
use agent::upkeep::InForce;
use anyhow::{Context as _, Result};
use clap::Parser;
use common::client::HostPort;
use common::discovery::CaPin;
use common::env::Env;
use common::names::ClusterName;
use common::proxy::ProxyChoice;
use common::tls::CertificateSwap;
use common::token::BootstrapToken;
use kube::Client;
use prometheus_client::registry::Registry;
use serde::Deserialize;
use std::path::Path;
use std::sync::{Arc, Mutex};
use tokio_util::sync::CancellationToken;

/// What an operator hands to agents.
#[derive(Clone)]
pub(crate) struct Given {
    servers: Vec<HostPort>,
    token: BootstrapToken,
    pins: Vec<CaPin>,
}

/// What `towline token create -o json` prints.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Created {
    token: String,
    hub: Vec<String>,
    ca_cert_hashes: Vec<String>,
}

impl Given {
    /// Reads what `towline token create -o json` printed.
    pub(crate) fn read(printed: &str) -> Result<Self> {
        let created: Created =
            serde_json::from_str(printed).context("`towline token create` printed no JSON")?;
        let servers = created.hub.iter().map(|text| HostPort::parse(text));
        let pins = created.ca_cert_hashes.iter().map(|text| CaPin::parse(text));
        Ok(Self {
            servers: servers.collect::<Result<_, _>>()?,
            pins: pins.collect::<Result<_, _>>()?,
            token: BootstrapToken::parse(&created.token)?,
        })
    }

    /// The port of the first address.
    pub(crate) fn port(&self) -> Option<u16> {
        self.servers.first().map(HostPort::port)
    }
}

#[derive(Debug, Parser)]
struct Flags {
    #[command(flatten)]
    run: RunArgs,
}

/// How agents are set up by these flags of `towline-agent run`.
pub(crate) fn agent_config(flags: &[&str]) -> Result<Arc<Config>> {
    let all = ["towline-agent"].iter().chain(flags);
    Ok(Arc::new(Flags::try_parse_from(all)?.run.into_config()?))
}

/// An agent that is registered.
pub(crate) struct Enrolled {
    /// What the hub knows it by.
    pub(crate) registration: Registration,
    handed: Handed,
    in_force: InForce,
}

impl Enrolled {
    /// From a token to a certificate, by the agent's own registration; what it keeps lies below `dir`.
    pub(crate) async fn by(
        given: &Given,
        cluster: ClusterName,
        config: &Config,
        env: &Env,
        dir: &Path,
    ) -> Result<Self> {
        let name = cluster.to_string();
        let handed = Handed {
            servers: given.servers.clone(),
            proxy: ProxyChoice::direct(),
            bootstrap: Ok(Bootstrap {
                servers: given.servers.clone(),
                cluster,
                token: given.token.clone(),
                pins: given.pins.clone(),
            }),
        };
        let dir = dir.join("agents").join(&name);
        std::fs::create_dir_all(&dir)
            .with_context(|| format!("failed to create {}", dir.display()))?;
        let registrar = Registrar {
            store: Arc::new(Store::in_directory(dir.clone())?),
            cluster_id: format!("id-of-{name}"),
            config: config.hub.clone(),
            env: env.clone(),
            reporter: Arc::new(Reporter::in_directory(&dir, env.clock.clone())),
        };
        let outcome = registrar.register(&handed).await;
        let outcome = outcome.with_context(|| format!("failed to register {name}"))?;
        Ok(Self {
            registration: outcome.registration,
            handed,
            in_force: InForce {
                swap: CertificateSwap::empty(),
                certified: common::signal::Sender::default(),
                env: env.clone(),
            },
        })
    }

    /// What its parts are given, for as long as this is there; `way` makes of the way to the hub the one that is taken.
    pub(crate) async fn context(
        &self,
        config: &Arc<Config>,
        env: &Env,
        member: (Client, kube::Config),
        stop: &CancellationToken,
        way: impl FnOnce(Registered) -> Arc<dyn Connect>,
    ) -> Result<AgentContext> {
        let in_force = &self.in_force;
        let to_hub = way(in_force.show(&self.registration, &self.handed)?);
        Ok(AgentContext {
            cluster: self.registration.cluster.clone(),
            cluster_id: self.registration.cluster_id.clone(),
            config: config.clone(),
            hub: HubHandle::new(to_hub).await?,
            member: member.0,
            member_config: member.1,
            member_proxy: ProxyChoice::direct(),
            clock: env.clock.clone(),
            chance: env.chance.clone(),
            network: env.network.clone(),
            metrics: Arc::new(Mutex::new(Registry::default())),
            shutdown: stop.clone(),
            standing: None,
            superseded: CancellationToken::new(),
            cluster_view: common::signal::Sender::new(None),
            heard: common::signal::Sender::new(false),
            told_to_leave: common::signal::Sender::new(None),
            refused: common::signal::Sender::new(None),
            certified: in_force.certified.subscribe(),
            orphans: common::signal::Sender::new(None),
            errors: ErrorReport::default(),
        })
    }
}
