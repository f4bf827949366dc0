//! Lines that lose one message in a hundred, each in its own way.

use agent::hub::Connect;
use common::chance::SharedStream;
use common::client::ClientOptions;
use common::lock::lock;
use common::network::{Line, LineBody};
use futures::future::BoxFuture;
use http::{Request, Response};
use kube::client::Body;
use rand::Rng as _;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tower::BoxError;

/// One message in so many is lost, or so much of the time nothing passes.
const ONE_IN: u32 = 100;
/// The longest way of a message.
const LONGEST_WAY: u64 = 40;
/// The longest time in which nothing passes, in milliseconds.
const LONGEST_BURST: u64 = 500;
/// What TCP waits before it sends a segment again, the first time.
const RESENT_AFTER: Duration = Duration::from_millis(200);
/// For how long the connection that everything shares is not known to be dead: until a ping is given up.
const DEAD_FOR: Duration = Duration::from_secs(20);

/// How messages are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loss {
    /// Each by itself, and for ever.
    Silent,
    /// The connection breaks with it.
    Reset,
    /// Many at once, for up to half a second.
    Burst,
    /// They are sent again, later each time.
    Late,
    /// Nothing passes on its connection any more, and nobody says so.
    Dead,
}

impl Loss {
    pub(super) const ALL: [Self; 5] = [
        Self::Silent,
        Self::Reset,
        Self::Burst,
        Self::Late,
        Self::Dead,
    ];
}

/// What becomes of one message.
enum Fate {
    Arrives(Duration),
    Never,
    Breaks,
}

struct State {
    /// When the time without messages begins or ends that is next, and whether it is now.
    turn: (Instant, bool),
    heard: Instant,
    carried: u64,
}

/// The way of one agent to the hub. Clones are the same.
#[derive(Clone)]
pub(super) struct Road {
    loss: Loss,
    line: Arc<Mutex<Line>>,
    draws: SharedStream,
    state: Arc<Mutex<State>>,
}

/// One connection on it.
#[derive(Clone)]
struct Lane {
    road: Road,
    /// Until when nobody knows that it is dead.
    dead_until: Arc<Mutex<Option<Instant>>>,
    /// For how long that is.
    dead_for: Duration,
}

impl Road {
    pub(super) fn new(loss: Loss, line: Line, draws: SharedStream) -> Self {
        let now = Instant::now();
        let state = State {
            turn: (now, true),
            heard: now,
            carried: 0,
        };
        Self {
            loss,
            line: Arc::new(Mutex::new(line)),
            draws,
            state: Arc::new(Mutex::new(state)),
        }
    }

    fn held(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn line(&self) -> Line {
        let line = lock(&self.line);
        line.clone()
    }

    /// When the hub heard something on it last.
    pub(super) fn heard(&self) -> Instant {
        self.held().heard
    }

    /// How many requests the hub carried out.
    pub(super) fn carried(&self) -> u64 {
        self.held().carried
    }

    fn number(&self, below: u64) -> u64 {
        self.draws.draw(|rng| rng.random_range(0..below))
    }

    fn is_lost(&self) -> bool {
        self.draws.draw(|rng| rng.random_ratio(1, ONE_IN))
    }

    /// Whether nothing passes now.
    fn is_closed(&self) -> bool {
        let now = Instant::now();
        loop {
            let (turn, closed) = self.held().turn;
            if now < turn {
                return closed;
            }
            let lasts = match closed {
                // As long as makes the share of closed time what it is to be.
                true => 1 + self.number(LONGEST_BURST * u64::from(ONE_IN - 1)),
                false => 1 + self.number(LONGEST_BURST),
            };
            self.held().turn = (turn + Duration::from_millis(lasts), !closed);
        }
    }

    fn fate(&self) -> Fate {
        let way = Duration::from_millis(1 + self.number(LONGEST_WAY));
        match self.loss {
            Loss::Silent | Loss::Dead if self.is_lost() => Fate::Never,
            Loss::Reset if self.is_lost() => Fate::Breaks,
            Loss::Burst if self.is_closed() => Fate::Never,
            Loss::Late => {
                let (mut late, mut again) = (Duration::ZERO, RESENT_AFTER);
                while self.is_lost() {
                    late += again;
                    again *= 2;
                }
                Fate::Arrives(way + late)
            }
            _ => Fate::Arrives(way),
        }
    }
}

impl Lane {
    fn is_dead(&self) -> bool {
        let dead = lock(&self.dead_until);
        dead.is_some_and(|until| Instant::now() < until)
    }

    async fn pass(&self) -> Result<(), BoxError> {
        if self.is_dead() {
            return std::future::pending().await;
        }
        match self.road.fate() {
            Fate::Arrives(after) => {
                sleep(after).await;
                Ok(())
            }
            Fate::Breaks => Err(io::Error::from(io::ErrorKind::ConnectionReset).into()),
            Fate::Never => {
                if self.road.loss == Loss::Dead {
                    let until = Instant::now() + self.dead_for;
                    let mut dead = lock(&self.dead_until);
                    *dead = Some(until);
                }
                std::future::pending().await
            }
        }
    }

    async fn ask(self, request: Request<Body>) -> Result<Response<LineBody>, BoxError> {
        self.pass().await?;
        let line = self.road.line();
        let answer = tower::ServiceExt::oneshot(line, request).await?;
        {
            let mut state = self.road.held();
            (state.heard, state.carried) = (Instant::now(), state.carried + 1);
        }
        self.pass().await?;
        Ok(answer)
    }
}

impl Connect for Road {
    fn connect(
        &self,
        options: ClientOptions,
    ) -> BoxFuture<'static, Result<kube::Client, Box<dyn std::error::Error + Send + Sync>>> {
        let lane = Lane {
            road: self.clone(),
            dead_until: Arc::default(),
            // With a request that was not answered in time the heartbeat's own connection goes.
            dead_for: match options.one_at_a_time {
                true => Duration::ZERO,
                false => DEAD_FOR,
            },
        };
        let service = tower::service_fn(move |request| lane.clone().ask(request));
        let client = kube::Client::new(service, "default");
        Box::pin(async move { Ok(client) })
    }
}
