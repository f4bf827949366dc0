//! The election of replicas, as one of them takes part in it.

use super::Process;
use common::leader::{self, Election, Standing};
use common::names;
use common::signal;
use rand::Rng as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// How long the end of the election may take.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(3);

impl Process {
    /// Takes part in the election of replicas, if there is one.
    pub(super) fn stand(&self) -> Candidacy {
        let stop = CancellationToken::new();
        let Some(config) = self.config.member.leader else {
            let (sender, leading) = signal::channel(true);
            return Candidacy {
                leading,
                standing: None,
                give_up: Arc::default(),
                place: String::new(),
                stop,
                task: None,
                _always: Some(sender),
            };
        };
        let place = self.config.member.namespace.clone();
        let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "agent".to_owned());
        let number: u32 = self.env.chance.stream("identity").random();
        let identity = format!("{host}_{number:08x}");
        let mut election =
            Election::new(&self.config.member.namespace, names::AGENT_NAME, &identity);
        election.lease_duration = config.lease_duration;
        election.renew_deadline = config.renew_deadline;
        election.retry_period = config.retry_period;
        // Losing the member's API must not silence the heartbeat, where nobody else reaches it either.
        election.lead_while_unreachable = true;
        let running = leader::run(
            election,
            self.member.clone(),
            self.env.clone(),
            stop.clone(),
        );
        Candidacy {
            leading: running.leading,
            standing: Some(running.standing),
            give_up: running.give_up,
            place,
            stop,
            task: Some(running.task),
            _always: None,
        }
    }
}

/// Our part in the election of replicas.
pub(super) struct Candidacy {
    leading: signal::Receiver<bool>,
    /// What keeps us from leading; none without an election.
    pub(super) standing: Option<signal::Receiver<Standing>>,
    /// Has the election lead no more before its Lease was read again.
    give_up: Arc<Notify>,
    /// Namespace of the Lease.
    place: String,
    stop: CancellationToken,
    task: Option<AbortOnDropHandle<()>>,
    // Keeps the channel open when there is no election.
    _always: Option<signal::Sender<bool>>,
}

impl Candidacy {
    pub(super) fn leads(&self) -> bool {
        *self.leading.borrow()
    }

    /// Waits until this replica leads; false at shutdown.
    pub(super) async fn wait_to_lead(&mut self, shutdown: &CancellationToken) -> bool {
        let mut told = Standing::Unknown;
        loop {
            if self.leads() {
                return true;
            }
            let standing = self
                .standing
                .as_mut()
                .map(|s| s.borrow_and_update().clone());
            let standing = standing.unwrap_or_default();
            if told != standing {
                self.tell(&standing);
                told = standing;
            }
            let news = async {
                if let Some(standing) = &mut self.standing
                    && standing.changed().await.is_ok()
                {
                    return;
                }
                std::future::pending::<()>().await;
            };
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return false,
                led = self.leading.changed() => if led.is_err() { return false },
                () = news => {}
            }
        }
    }

    /// Says why we do not lead.
    fn tell(&self, standing: &Standing) {
        let (namespace, name) = (&self.place, names::AGENT_NAME);
        standing.tell(
            &format!("the agent's Lease {namespace}/{name} in the member"),
            &format!(
                "make the namespace (kubectl create namespace {namespace}), or name another one with --namespace"
            ),
        );
    }

    /// Waits until this replica does not lead any more.
    pub(super) async fn wait_to_step_down(&mut self) {
        // An election that ended without being told to leads nobody.
        let _ = self.leading.wait_for(|leads| !*leads).await;
    }

    /// Leads no more, and waits until the member's API server answers: then it shows who leads.
    pub(super) async fn stand_back(&mut self) {
        self.give_up.notify_one();
        self.wait_to_step_down().await;
        if let Some(standing) = &mut self.standing {
            let answered = |standing: &Standing| !matches!(standing, Standing::Failing(_));
            // An election that ended has nobody wait.
            let _ = standing.wait_for(answered).await;
        }
    }

    pub(super) async fn end(self) {
        self.stop.cancel();
        if let Some(task) = self.task {
            // The Lease then simply runs out.
            let _ = timeout(RELEASE_TIMEOUT, task).await;
        }
    }
}
