//! A life: terms one after another, by hand-made credentials or by a registration.

use super::candidacy::Candidacy;
use super::term::{self, End, Term};
use super::{MEMBER_RETRY, Process, SETTLING, left};
use crate::config::MemberConfig;
use crate::context::Certified;
use crate::credentials::{Registration, Store};
use crate::error::{Error, is_refusal};
use crate::hub::HubHandle;
use crate::hub::by_update::ByUpdate;
use crate::hub::connect::HandMade;
use crate::registration::bootstrap::{self, Handed};
use crate::registration::{Outcome, Registrar};
use crate::report::Phase;
use crate::upkeep::InForce;
use common::backoff::Backoff;
use common::client::classify;
use common::errors::chain;
use common::names::ClusterName;
use common::proxy::ProxyChoice;
use common::signal;
use common::tls::CertificateSwap;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use std::sync::Arc;
use tokio::time::Instant;

impl Process {
    /// With the credentials of a kubeconfig: nothing to register, renew or remove.
    pub(super) async fn live_by_hand(&self) -> Result<End, Error> {
        let hub = &self.config.hub;
        let cluster = hub.bootstrap.cluster.clone();
        let missing = "--hub-kubeconfig needs --cluster-name";
        let cluster = cluster.ok_or_else(|| Error::Bootstrap(missing.into()))?;
        let Some(cluster_id) = self.cluster_id(None).await? else {
            return Ok(End::Shutdown);
        };
        let proxy = hub
            .bootstrap
            .proxy
            .as_ref()
            .map(|proxy| proxy.expose().clone());
        let connector = HandMade {
            kubeconfig: hub.kubeconfig.clone().unwrap_or_default(),
            context: hub.context.clone(),
            proxy: ProxyChoice::from_flag(proxy.as_deref())
                .map_err(|e| Error::Bootstrap(format!("hub-proxy: {e}")))?,
            by_update: ByUpdate::default(),
            env: self.env.clone(),
        };
        self.checks.registered.ok();
        let mut candidacy = self.stand();
        let ended = self.terms_by_hand(&cluster, &cluster_id, &connector, &mut candidacy);
        let ended = ended.await;
        candidacy.end().await;
        ended
    }

    async fn terms_by_hand(
        &self,
        cluster: &ClusterName,
        cluster_id: &str,
        connector: &HandMade,
        candidacy: &mut Candidacy,
    ) -> Result<End, Error> {
        loop {
            if !candidacy.leads() {
                // Who waits for its turn serves as it should.
                self.checks.hub.ok();
            }
            if !candidacy.wait_to_lead(&self.shutdown).await {
                return Ok(End::Shutdown);
            }
            let handle = HubHandle::new(Arc::new(connector.clone())).await?;
            let (_, certified) = signal::channel(Certified::default());
            let standing = candidacy.standing.clone();
            let term = Term::new(self, cluster, cluster_id, handle, certified, None, standing);
            match term.work(None, candidacy).await? {
                End::Stepped | End::Reregistered => {}
                end @ (End::Shutdown | End::Left) => return Ok(end),
            }
        }
    }

    pub(super) async fn live_registered(&self) -> Result<End, Error> {
        let MemberConfig {
            namespace,
            state_dir,
            ..
        } = &self.config.member;
        let store = match state_dir {
            Some(directory) => {
                Store::in_directory(directory.clone()).map_err(Error::Credentials)?
            }
            None => Store::in_member(self.member.clone(), namespace),
        };
        let store = Arc::new(store);
        let ended = self.live_stored(&store).await;
        // What fails for want of what another one has taken along is no failure.
        if let Err(error) = &ended
            && self.unregistered.is_cancelled()
        {
            let left = tokio::select! {
                biased;
                () = self.shutdown.cancelled() => false,
                left = left::is_left(&store) => left,
            };
            if left {
                let error = chain(error);
                tracing::info!(%error, "nothing of the registration is left in the member");
                return Ok(End::Left);
            }
        }
        ended
    }

    async fn live_stored(&self, store: &Arc<Store>) -> Result<End, Error> {
        let MemberConfig {
            namespace,
            state_dir,
            ..
        } = &self.config.member;
        let secrets = state_dir
            .is_none()
            .then(|| Api::<Secret>::namespaced(self.member.clone(), namespace));
        let Some(cluster_id) = self.cluster_id(Some(store)).await? else {
            return Ok(End::Shutdown);
        };
        let registrar = Arc::new(Registrar {
            store: store.clone(),
            cluster_id,
            config: self.config.hub.clone(),
            env: self.env.clone(),
            reporter: self.reporter.clone(),
        });
        let mut candidacy = self.stand();
        let ended = self
            .terms(&registrar, secrets.as_ref(), &mut candidacy)
            .await;
        candidacy.end().await;
        ended
    }

    async fn terms(
        &self,
        registrar: &Arc<Registrar>,
        secrets: Option<&Api<Secret>>,
        candidacy: &mut Candidacy,
    ) -> Result<End, Error> {
        loop {
            let registered = tokio::select! {
                biased;
                () = self.shutdown.cancelled() => return Ok(End::Shutdown),
                registered = self.register(registrar, secrets) => registered,
            };
            let (handed, outcome) = registered?;
            self.checks.registered.ok();
            if !candidacy.leads() {
                self.checks.hub.ok();
                let told = outcome.progress.stored.told_to_leave.is_some();
                let has_left = async {
                    if !told {
                        self.unregistered.cancelled().await;
                    }
                    left::has_left(&registrar.store, told).await;
                };
                let leads = tokio::select! {
                    biased;
                    leads = candidacy.wait_to_lead(&self.shutdown) => leads,
                    () = has_left => return Ok(End::Left),
                };
                if !leads {
                    return Ok(End::Shutdown);
                }
                // The former leader may have renewed or registered anew meanwhile.
                continue;
            }
            match self
                .term(registrar, secrets, handed, outcome, candidacy)
                .await?
            {
                End::Stepped | End::Reregistered => {}
                end => return Ok(end),
            }
        }
    }

    async fn register(
        &self,
        registrar: &Registrar,
        secrets: Option<&Api<Secret>>,
    ) -> Result<(Handed, Outcome), Error> {
        let flags = &self.config.hub.bootstrap;
        let started = Instant::now();
        let mut rng = self.env.chance.stream("bootstrap");
        let mut backoff = Backoff::new(MEMBER_RETRY.0, MEMBER_RETRY.1);
        let handed = loop {
            match bootstrap::read(flags, secrets).await {
                Ok(handed) => break handed,
                Err(bootstrap::Error::Secret(source)) => {
                    let problem = classify(&source);
                    if !is_refusal(&problem) || started.elapsed() >= SETTLING {
                        let action = "get the bootstrap Secret";
                        return Err(Error::Member { action, problem });
                    }
                }
            }
            tokio::time::sleep(backoff.next(&mut rng)).await;
        };
        let outcome = registrar.register(&handed).await?;
        Ok((handed, outcome))
    }

    async fn term(
        &self,
        registrar: &Arc<Registrar>,
        secrets: Option<&Api<Secret>>,
        handed: Handed,
        outcome: Outcome,
        candidacy: &mut Candidacy,
    ) -> Result<End, Error> {
        let Outcome {
            progress,
            registration,
            expired,
        } = outcome;
        let in_force = InForce {
            swap: CertificateSwap::empty(),
            certified: signal::Sender::default(),
            env: self.env.clone(),
        };
        let connector = in_force.show(&registration, &handed)?;
        let handle = HubHandle::new(Arc::new(connector)).await?;
        self.announce(&registration, &in_force, expired.as_ref())
            .await;
        let Registration { cluster, .. } = &registration;
        let certified = in_force.certified.subscribe();
        let told = progress.stored.told_to_leave;
        let id = &registrar.cluster_id;
        let standing = candidacy.standing.clone();
        let term = Term::new(self, cluster, id, handle, certified, told, standing);
        let keeping = term::Keeping {
            registrar: registrar.clone(),
            secrets: secrets.cloned(),
            handed,
            progress,
            in_force,
        };
        term.work(Some(keeping), candidacy).await
    }

    async fn announce(&self, of: &Registration, in_force: &InForce, expired: Option<&Error>) {
        if let Some(error) = expired {
            // Drift is still corrected; only the hub cannot be spoken to.
            let message = chain(error).to_string();
            tracing::error!("{message}");
            let reason = error.code().as_str();
            return self.reporter.say(Phase::Failed, reason, &message).await;
        }
        let ends = in_force.certified.borrow().ends.map(|at| at.to_rfc3339());
        let cluster = of.cluster.as_str();
        let registration = of.id.as_str();
        tracing::info!(cluster, registration, certificate_ends = ends, "at work");
        let message = format!("at work as cluster {cluster:?}");
        self.reporter
            .say(Phase::Running, "Registered", &message)
            .await;
    }
}
