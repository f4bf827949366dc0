//! Keeps a hub as `init` made it: watches what it made, puts back what drifts, repeats the proof.
//!
//! Only a hub that `init` prepared is kept so: without the marker nothing is made. While the proof of
//! the policies fails, [`Repair::run`] says so on its channel and nobody may be registered; rights are
//! put back only once the policies hold.

mod pace;

use super::cluster_info::ClusterInfo;
use super::object::{Desired, ObjectKey};
use super::plan::{self, Action, Mark};
use super::{Installation, MARKER, proof};
use common::chance::Chance;
use common::errors::chain;
use common::labels::{PART_OF, PART_OF_VALUE};
use common::names::SYSTEM_NAMESPACE;
use common::signal;
use common::watch::{Collection, Event, Undecodable, WatchConfig};
use futures::StreamExt as _;
use futures::stream::{BoxStream, SelectAll};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, DynamicObject};
use kube::core::PartialObjectMeta;
use pace::Pace;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};

/// How often the proof is repeated while it holds and nothing was seen of what guards.
const PROVE_EVERY: Duration = Duration::from_secs(60);
/// How often after something was seen, and for how long: a policy that changes works, or fails, late.
const WARY_EVERY: Duration = Duration::from_secs(2);
const WARY_FOR: Duration = Duration::from_secs(10);
/// How often everything is compared though nothing was seen.
const COMPARE_EVERY: Duration = Duration::from_secs(300);
/// How often while it does not hold.
const RETRY_EVERY: Duration = Duration::from_millis(500);
/// How often a hub that is not prepared is looked at again.
const UNPREPARED_RETRY: Duration = Duration::from_secs(5);

/// Why the loop cannot go on with what it knows.
#[derive(Debug, thiserror::Error)]
enum Error {
    /// A request failed.
    #[error("failed to read what `towline init` made")]
    Marker(#[source] Box<kube::Error>),
    /// There is no marker.
    #[error("this API server was not prepared: run `towline init`")]
    Unprepared,
    /// The marker was changed by somebody.
    #[error("failed to read ConfigMap {SYSTEM_NAMESPACE}/{MARKER}")]
    Damaged(#[source] super::cluster_info::Invalid),
}

/// Objects that are as they should be.
pub type Known = BTreeMap<ObjectKey, Mark>;

/// The loop's state.
pub struct Repair {
    client: Client,
    chance: Chance,
    in_force: signal::Sender<bool>,
    /// Objects that were as they should be, as they were then.
    known: Known,
    /// Whether the last repair failed.
    failing: bool,
    /// Why the proof fails, as it was said last.
    unproven: Option<String>,
}

impl Repair {
    /// A loop over one hub, and the channel that says whether the policies are proved; false at first.
    /// `known` was compared by somebody just now.
    pub fn new(client: Client, known: Known, chance: Chance) -> (Self, signal::Receiver<bool>) {
        let (in_force, policy_in_force) = signal::channel(false);
        (
            Self {
                client,
                chance,
                in_force,
                known,
                failing: false,
                unproven: None,
            },
            policy_in_force,
        )
    }

    /// Runs until dropped.
    pub async fn run(mut self) {
        let mut complaint = None;
        let first = loop {
            match self.installation().await {
                Ok(installation) => break installation,
                Err(error) => {
                    let text = chain(&error).to_string();
                    if complaint.as_ref() != Some(&text) {
                        tracing::error!(error = text, "nobody can be registered");
                        complaint = Some(text);
                    }
                    sleep(UNPREPARED_RETRY).await;
                }
            }
        };
        let mut installation = first;
        loop {
            installation = self.keep(&installation).await;
            // What stands was compared with what was wanted before.
            self.known.clear();
            tracing::info!("`towline init` was run again; what it says now is kept");
        }
    }

    async fn installation(&self) -> Result<Installation, Error> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), SYSTEM_NAMESPACE);
        let marker = maps
            .get_opt(MARKER)
            .await
            .map_err(|error| Error::Marker(Box::new(error)))?;
        let marker = marker.ok_or(Error::Unprepared)?;
        let built_in = super::is_built_in(&marker);
        let data = marker.data.unwrap_or_default();
        let info = data.get(super::MARKER_CLUSTER_INFO);
        let cluster_info = info.map(|text| ClusterInfo::parse(text)).transpose();
        Ok(Installation {
            cluster_info: cluster_info.map_err(Error::Damaged)?,
            built_in,
        })
    }

    /// Keeps everything as it is wanted, until the marker says that something else is wanted.
    async fn keep(&mut self, installation: &Installation) -> Installation {
        let marker = installation.marker_key();
        let guards: Vec<ObjectKey> = installation.guards().iter().map(Desired::key).collect();
        let wanted: BTreeMap<ObjectKey, Desired> = installation
            .desired()
            .into_iter()
            .map(|desired| (desired.key(), desired))
            .collect();
        let mut events = self.events(wanted.values());
        let mut pace = Pace::default();
        let mut compare_at = Instant::now();
        if wanted.keys().all(|key| self.known.contains_key(key)) {
            compare_at += COMPARE_EVERY;
        }
        let mut prove_at = Instant::now();
        let mut wary_until = Instant::now();
        loop {
            let now = Instant::now();
            if now >= compare_at {
                compare_at = now + COMPARE_EVERY;
                self.known.clear();
                wanted.keys().for_each(|key| pace.suspect(key.clone(), now));
            }
            // Guards first; what gives rights waits until the guards are proved.
            let proved = *self.in_force.borrow();
            let due = pace.due(now, |key| guards.contains(key) || proved);
            for key in guards
                .iter()
                .chain(wanted.keys().filter(|key| !guards.contains(key)))
            {
                if !due.contains(key) {
                    continue;
                }
                let Some(desired) = wanted.get(key) else {
                    continue;
                };
                let changed = self.put_back(desired).await;
                pace.looked_at(key, changed, Instant::now());
                if guards.contains(key) && changed {
                    prove_at = now;
                }
            }
            if Instant::now() >= prove_at {
                let held = self.prove().await;
                let now = Instant::now();
                prove_at = now
                    + match held {
                        true if now < wary_until => WARY_EVERY,
                        true => PROVE_EVERY,
                        false => RETRY_EVERY,
                    };
                continue;
            }
            let wake = [
                Some(compare_at),
                Some(prove_at),
                pace.next(|key| guards.contains(key) || proved),
            ];
            let wake = wake.into_iter().flatten().min().unwrap_or(compare_at);
            tokio::select! {
                biased;
                seen = events.next() => {
                    let Some(seen) = seen else { continue };
                    if seen.is_about(&marker)
                        && let Ok(said) = self.installation().await
                        && said != *installation
                    {
                        return said;
                    }
                    let now = Instant::now();
                    if guards.iter().any(|key| seen.is_about(key)) {
                        wary_until = now + WARY_FOR;
                        prove_at = prove_at.min(now + RETRY_EVERY);
                    }
                    if seen.after_gap() {
                        self.known.retain(|key, _| !seen.is_about(key));
                    }
                    if !seen.is_resumed() && !self.knows(&seen) {
                        let suspects = wanted.keys().filter(|key| seen.is_about(key));
                        suspects.for_each(|key| pace.suspect(key.clone(), now));
                    }
                }
                () = sleep_until(wake) => {}
            }
        }
    }

    /// Whether an event tells of an object that is as it was when it was compared.
    fn knows(&self, seen: &Seen) -> bool {
        match seen {
            Seen::One(key, Some(mark)) => self.known.get(key) == Some(mark),
            _ => false,
        }
    }

    /// Puts one object back; says whether something had to be done or went wrong.
    async fn put_back(&mut self, desired: &Desired) -> bool {
        let key = desired.key();
        if let Some(mark) = self.known.remove(&key)
            && plan::stands(&self.client, desired, mark)
                .await
                .is_ok_and(|stands| stands)
        {
            self.known.insert(key, mark);
            return false;
        }
        let outcome = plan::enforce(&self.client, desired).await;
        if let Ok(enforced) = &outcome {
            self.failing = false;
            self.known.insert(key, enforced.mark);
        }
        match outcome.map(|enforced| enforced.step) {
            Ok(step) if step.action == Action::Unchanged => false,
            Ok(step) => {
                let detail = match &step.action {
                    Action::Change(fields) => fields.join(", "),
                    _ => String::new(),
                };
                tracing::warn!(object = %step.key, action = %step.action, detail, "put back");
                true
            }
            // An API server that is away fails for every object: said once.
            Err(error) if std::mem::replace(&mut self.failing, true) => {
                tracing::debug!(error = %chain(&error), "failed to put back");
                true
            }
            Err(error) => {
                tracing::warn!(error = %chain(&error), "failed to put back");
                true
            }
        }
    }

    async fn prove(&mut self) -> bool {
        let proof = proof::prove(&self.client).await;
        let held = proof.is_ok();
        let changed = self
            .in_force
            .send_if_modified(|state| std::mem::replace(state, held) != held);
        if changed && held {
            tracing::info!("admission policies are in force");
        }
        // A new reason is news too: an API server that is away is not one without policies.
        let unproven = proof.err().map(|unproven| chain(&unproven).to_string());
        if unproven != self.unproven
            && let Some(error) = &unproven
        {
            tracing::error!(error, "nobody is registered until the policies hold");
        }
        self.unproven = unproven;
        held
    }

    /// Changes of anything that carries our label.
    fn events<'a>(
        &self,
        wanted: impl Iterator<Item = &'a Desired>,
    ) -> SelectAll<BoxStream<'static, Seen>> {
        let mut kinds = BTreeMap::new();
        for desired in wanted {
            let key = desired.key();
            kinds.entry((key.kind, key.namespace)).or_insert(desired);
        }
        let streams = kinds.into_iter().map(|((kind, namespace), desired)| {
            let collection = Collection::dynamic(desired.resource(), namespace.as_deref());
            let config = WatchConfig {
                label_selector: Some(format!("{PART_OF}={PART_OF_VALUE}")),
                metadata_only: true,
                ..WatchConfig::new(&self.chance)
            };
            common::watch::watch::<Metadata>(self.client.clone(), collection, config)
                .filter_map(move |event| {
                    std::future::ready(seen(event, &kind, namespace.as_deref()))
                })
                .boxed()
        });
        futures::stream::select_all(streams)
    }
}

type Metadata = PartialObjectMeta<DynamicObject>;

/// What a watch tells about.
enum Seen {
    /// This one, as it is now if it is there.
    One(ObjectKey, Option<Mark>),
    /// Of these objects some may have changed unseen.
    Any {
        kind: String,
        namespace: Option<String>,
        /// Whether the API server was away, and may be another one by now.
        gap: bool,
    },
    /// None of these changed while the API server was away; it may be another one by now.
    Resumed {
        kind: String,
        namespace: Option<String>,
    },
}

impl Seen {
    fn is_about(&self, object: &ObjectKey) -> bool {
        match self {
            Self::One(key, _) => key == object,
            Self::Any {
                kind, namespace, ..
            }
            | Self::Resumed { kind, namespace } => {
                *kind == object.kind && *namespace == object.namespace
            }
        }
    }

    fn after_gap(&self) -> bool {
        matches!(self, Self::Any { gap: true, .. } | Self::Resumed { .. })
    }

    fn is_resumed(&self) -> bool {
        matches!(self, Self::Resumed { .. })
    }
}

fn seen(event: Event<Metadata>, kind: &str, namespace: Option<&str>) -> Option<Seen> {
    let one = |name: String, mark| {
        let key = ObjectKey {
            kind: kind.to_owned(),
            namespace: namespace.map(str::to_owned),
            name,
        };
        Some(Seen::One(key, mark))
    };
    match event {
        Event::Applied(object) => {
            let mark = Mark::of(&object.metadata);
            one(object.metadata.name.unwrap_or_default(), Some(mark))
        }
        Event::Undecodable(Undecodable { key, .. }) | Event::Deleted(key) => one(key.name, None),
        Event::InitDone { gap, .. } => Some(Seen::Any {
            kind: kind.to_owned(),
            namespace: namespace.map(str::to_owned),
            gap: gap.is_some(),
        }),
        Event::Resumed { .. } => Some(Seen::Resumed {
            kind: kind.to_owned(),
            namespace: namespace.map(str::to_owned),
        }),
        Event::Init | Event::Disconnected { .. } => None,
    }
}
