//! The two ways to the hub: the agent's own certificate, and a kubeconfig made by hand.

use super::Connect;
use super::by_update::ByUpdate;
use common::client::{
    self, ClientOptions, Dialer, HubTarget, hub_client, kubeconfig_client_through,
};
use common::env::Env;
use common::proxy::ProxyChoice;
use common::tunnel::Place;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use std::error::Error;
use std::path::PathBuf;

/// The hub as registration found it.
#[derive(Clone)]
pub struct Registered {
    /// Where it is, and who we are.
    pub target: HubTarget,
    /// What clients are made with.
    pub env: Env,
}

impl Connect for Registered {
    fn connect(
        &self,
        options: ClientOptions,
    ) -> BoxFuture<'static, Result<kube::Client, Box<dyn Error + Send + Sync>>> {
        let client = hub_client(&self.target, &options, &self.env).map_err(Into::into);
        futures::future::ready(client).boxed()
    }

    fn dialer(
        &self,
        protocols: &[&[u8]],
        place: Option<&Place>,
    ) -> Option<Result<Dialer, client::Error>> {
        let mut target = self.target.clone();
        if let Some(place) = place {
            target.servers = place.servers.clone();
            target.ca_pem = place.ca_pem.clone().into_bytes();
        }
        Some(Dialer::new(&target, protocols, &self.env))
    }
}

/// The hub as an operator's kubeconfig names it, read anew for every client.
#[derive(Clone)]
pub struct HandMade {
    /// The file.
    pub kubeconfig: PathBuf,
    /// The context in it.
    pub context: Option<String>,
    /// The way out.
    pub proxy: ProxyChoice,
    /// What its hub has updated instead of patched.
    pub by_update: ByUpdate,
    /// What clients are made with.
    pub env: Env,
}

impl Connect for HandMade {
    fn connect(
        &self,
        options: ClientOptions,
    ) -> BoxFuture<'static, Result<kube::Client, Box<dyn Error + Send + Sync>>> {
        let Self {
            kubeconfig,
            context,
            proxy,
            by_update,
            env,
        } = self.clone();
        async move {
            let (path, context) = (Some(kubeconfig.as_path()), context.as_deref());
            let made = kubeconfig_client_through(path, context, &options, &proxy, &env).await?;
            Ok(by_update.client(made.0))
        }
        .boxed()
    }
}
