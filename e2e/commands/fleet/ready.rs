//! Which Clusters are Ready, by one watch: asking for all of them again and again would keep a hub of ten thousand busier
//! than their agents do.

use common::api::cluster::{Cluster, READY};
use common::chance::Chance;
use common::watch::{Collection, Event, Undecodable, WatchConfig, watch};
use futures::StreamExt as _;
use kube::Client;
use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::JoinHandle;
use tokio_util::task::AbortOnDropHandle;

/// The names of those that are Ready.
pub(super) struct Ready {
    names: Arc<Mutex<BTreeSet<String>>>,
    _watching: AbortOnDropHandle<()>,
}

impl Ready {
    /// Watches a hub's Clusters until it is dropped.
    pub(super) fn watching(client: Client) -> Self {
        let names = Arc::<Mutex<BTreeSet<String>>>::default();
        let to = Arc::clone(&names);
        let watching: JoinHandle<()> = tokio::spawn(async move {
            let config = WatchConfig::new(&Chance::from_os());
            let mut events = pin!(watch::<Cluster>(
                client,
                Collection::of::<Cluster>(None),
                config
            ));
            while let Some(event) = events.next().await {
                let mut names = to.lock().unwrap_or_else(PoisonError::into_inner);
                match event {
                    Event::Init => names.clear(),
                    Event::Applied(cluster) => {
                        let ready = cluster.condition(READY);
                        let ready = ready.is_some_and(|ready| ready.status == "True");
                        let name = cluster.metadata.name.unwrap_or_default();
                        match ready {
                            true => names.insert(name),
                            false => names.remove(&name),
                        };
                    }
                    Event::Deleted(key) | Event::Undecodable(Undecodable { key, .. }) => {
                        names.remove(&key.name);
                    }
                    Event::InitDone { .. } | Event::Disconnected { .. } | Event::Resumed { .. } => {
                    }
                }
            }
        });
        Self {
            names,
            _watching: AbortOnDropHandle::new(watching),
        }
    }

    /// How many of these are not.
    pub(super) fn missing(&self, of: &[String]) -> usize {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        of.iter().filter(|name| !names.contains(*name)).count()
    }
}
