//! The two ways to the hub: the agent's own certificate, and a kubeconfig made by hand.

use super::Connect;
use super::by_update::ByUpdate;
use common::client::{ClientOptions, HubTarget, hub_client, kubeconfig_client_through};
use common::proxy::ProxyChoice;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use std::error::Error;
use std::path::PathBuf;

/// The hub as registration found it.
#[derive(Debug, Clone)]
pub struct Registered(pub HubTarget);

impl Connect for Registered {
    fn connect(
        &self,
        options: ClientOptions,
    ) -> BoxFuture<'static, Result<kube::Client, Box<dyn Error + Send + Sync>>> {
        let client = hub_client(&self.0, &options).map_err(Into::into);
        futures::future::ready(client).boxed()
    }
}

/// The hub as an operator's kubeconfig names it, read anew for every client.
#[derive(Debug, Clone)]
pub struct HandMade {
    /// The file.
    pub kubeconfig: PathBuf,
    /// The context in it.
    pub context: Option<String>,
    /// The way out.
    pub proxy: ProxyChoice,
    /// What its hub has updated instead of patched.
    pub by_update: ByUpdate,
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
        } = self.clone();
        async move {
            let (client, _) =
                kubeconfig_client_through(Some(&kubeconfig), context.as_deref(), &options, &proxy)
                    .await?;
            Ok(by_update.client(client))
        }
        .boxed()
    }
}
