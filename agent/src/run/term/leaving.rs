//! How a term ends for good: whether the agent leaves its member or its registration is gone, and how it leaves.

use super::Term;
use crate::context::Refusal;
use crate::departure::refusal::{self, Meaning};
use crate::departure::{self, Decision, Seen};
use crate::error::Error;
use crate::execution::engine::Engine;
use crate::execution::stored::place::Place;
use crate::registration::Registrar;
use crate::registration::progress::Progress;
use crate::report::Phase;
use crate::uninstall;
use common::api::work::Work;
use common::errors::chain;
use common::unregister::Mode;
use kube::Api;
use kube::api::ListParams;
use std::time::Duration;
use tokio::time::Instant;

/// How often departure is looked at when nothing changes.
const LOOK: Duration = Duration::from_secs(2);

impl Term<'_> {
    /// Returns when the agent is to leave its member; an error when its registration is gone.
    pub(super) async fn watch_departure(
        &self,
        registrar: Option<&Registrar>,
        engine: &Engine,
    ) -> Result<(), Error> {
        let mut view = self.context.cluster_view.subscribe();
        let mut refused = self.context.refused.subscribe();
        let mut seen = Seen {
            remembered: self.told,
            ..Seen::default()
        };
        let mut refused_since: Option<Instant> = None;
        let mut counted = None;
        loop {
            seen.view.clone_from(&view.borrow_and_update());
            let refusal = refused.borrow_and_update().clone();
            seen.refused = refusal.map(|refusal| {
                let since = refused_since.get_or_insert_with(Instant::now);
                (since.elapsed(), refusal)
            });
            if seen.refused.is_none() {
                refused_since = None;
            }
            seen.works_left =
                departure::works_left(seen.refused.is_some(), counted, engine.has_no_works());
            let ends = self.context.certified.borrow().ends;
            seen.certificate_is_over = ends.is_some_and(|ends| self.context.clock.now() >= ends);
            match departure::decide(&seen) {
                Decision::Stay => {}
                Decision::Remember(mode) => {
                    let stored = self.remember(registrar, mode).await;
                    if stored.is_some() {
                        seen.remembered = stored;
                        // The hub is told now, and not before.
                        self.context.told_to_leave.send_replace(stored);
                    }
                    if stored == Some(mode) {
                        continue;
                    }
                }
                Decision::CountWorks => match self.has_works().await {
                    Ok(left) => {
                        counted = Some(left);
                        if !left {
                            continue;
                        }
                    }
                    Err(error) => {
                        if let Some(refusal) = Refusal::of(&error) {
                            self.context.refused.send_replace(Some(refusal));
                        }
                    }
                },
                Decision::Leave => {
                    let mode = seen.view.as_ref().and_then(|view| view.unregister);
                    if mode.or(self.told) == Some(Mode::KeepWorkloads) {
                        engine.release_rest().await;
                    }
                    return Ok(());
                }
                Decision::Gone(refusal) => {
                    engine.stop_healing().await;
                    let refused = format!("{}: {}", refusal.code, refusal.message);
                    return Err(match refusal::meaning(&refusal, registrar.is_some()) {
                        Meaning::Gone => Error::RegistrationGone(refused),
                        Meaning::WithheldOrGone => Error::Withheld {
                            cluster: self.context.cluster.clone(),
                            refused,
                        },
                    });
                }
            }
            // Whichever comes first; a closed channel cannot be, the context holds its senders.
            tokio::select! {
                biased;
                _ = view.changed() => {}
                _ = refused.changed() => {}
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }

    /// Stores what the hub told us, and says what is stored; none where that is not known.
    async fn remember(&self, registrar: Option<&Registrar>, mode: Mode) -> Option<Mode> {
        tracing::info!(mode = mode.as_str(), "the hub unregisters this cluster");
        let Some(registrar) = registrar else {
            return Some(mode);
        };
        let remembered = async {
            let mut progress = Progress::load(registrar.store.clone())
                .await
                .map_err(|e| chain(&e).to_string())?;
            let stored = progress.remember_to_leave(mode).await;
            stored.map_err(|e| chain(&e).to_string())?;
            // A conflict was answered by reading; the next round writes again.
            Ok::<Option<Mode>, String>(progress.stored.told_to_leave)
        };
        remembered.await.unwrap_or_else(|error| {
            tracing::warn!(error, "not stored that this cluster is unregistered");
            None
        })
    }

    async fn has_works(&self) -> Result<bool, kube::Error> {
        let namespace = self.context.cluster.execution_namespace();
        let api: Api<Work> = Api::namespaced(self.context.hub.client(), &namespace);
        let found = api.list_metadata(&ListParams::default().limit(1)).await?;
        Ok(!found.items.is_empty())
    }

    pub(super) async fn leave(&self, registrar: Option<&Registrar>) {
        let message = "unregistered; the agent removes itself";
        tracing::info!("{message}");
        let reporter = &self.process.reporter;
        reporter
            .say(Phase::Unregistered, "Unregistered", message)
            .await;
        let Some(registrar) = registrar else {
            return;
        };
        let MemberPlace {
            namespace,
            by_files,
        } = self.place();
        let member = &self.context.member;
        let state_dir = self.process.config.member.state_dir.as_ref();
        let works = Place::new(member.clone(), namespace, state_dir);
        let removed = if by_files {
            uninstall::remove_state(&registrar.store, &works).await
        } else {
            uninstall::remove_from_member(member, &registrar.store, &works, namespace).await
        };
        if let Err(error) = removed {
            tracing::error!(error = %chain(&error), "something of the agent is left behind");
        }
    }

    fn place(&self) -> MemberPlace<'_> {
        let member = &self.process.config.member;
        MemberPlace {
            namespace: &member.namespace,
            by_files: member.state_dir.is_some(),
        }
    }
}

struct MemberPlace<'a> {
    namespace: &'a str,
    by_files: bool,
}
