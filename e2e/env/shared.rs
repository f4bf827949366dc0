//! One hub and a few members that the tests of one program share, so that not every test boots its
//! own: a plane costs seconds of two cores.
//!
//! Tests use names of their own on the shared hub. A member belongs to one test at a time, for a
//! member can be registered only once on a hub. A test that wants to kill or reconfigure a hub, or
//! counts what happens on it, starts a lab of its own.

use anyhow::Result;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::sync::{OnceCell, Semaphore, SemaphorePermit};

use super::dirs::Scratch;
use super::fleet::Fleet;
use super::parts::Parts;
use super::plane::{Plane, PlaneOptions};

/// Members at a time; a test that wants one more waits.
const MEMBERS: usize = 3;

/// What tests share.
pub(crate) struct Shared {
    /// The hub's control plane.
    pub(crate) hub: Plane,
    /// Towline on it.
    pub(crate) fleet: Fleet,
    parts: Parts,
    // The folder stays as long as the program: statics are never dropped.
    dir: PathBuf,
    idle: Mutex<Vec<Plane>>,
    permits: Semaphore,
    count: AtomicU32,
}

static SHARED: OnceCell<Shared> = OnceCell::const_new();

/// The shared hub, started by the first test that wants it.
pub(crate) async fn shared() -> Result<&'static Shared> {
    SHARED.get_or_try_init(start).await
}

async fn start() -> Result<Shared> {
    let scratch = Scratch::new("shared")?;
    let parts = Parts::from_env()?;
    let dir = scratch.path().to_owned();
    let hub = Plane::start(&parts, &dir.join("hub"), PlaneOptions::hub()).await?;
    let fleet = Fleet::start(&dir.join("towline"), &hub).await?;
    Ok(Shared {
        hub,
        fleet,
        parts,
        dir,
        idle: Mutex::new(Vec::new()),
        permits: Semaphore::new(MEMBERS),
        count: AtomicU32::new(1),
    })
}

impl Shared {
    /// A member for the calling test alone.
    pub(crate) async fn member(&'static self) -> Result<Member> {
        let permit = self.permits.acquire().await?;
        let idle = self.idle.lock().ok().and_then(|mut idle| idle.pop());
        let plane = match idle {
            Some(plane) => plane,
            None => {
                let number = self.count.fetch_add(1, Ordering::Relaxed);
                let name = format!("member{number}");
                let options = PlaneOptions::member(&name);
                Plane::start(&self.parts, &self.dir.join(&name), options).await?
            }
        };
        Ok(Member {
            plane: Some(plane),
            shared: self,
            _permit: permit,
        })
    }
}

/// A member that a test has for itself. Dropped, it is thrown away: nobody knows what a failed
/// test left in it.
pub(crate) struct Member {
    plane: Option<Plane>,
    shared: &'static Shared,
    _permit: SemaphorePermit<'static>,
}

impl Member {
    /// Gives it to later tests; it must be as it was: unregistered, without anything of the test.
    pub(crate) fn give_back(mut self) {
        if let (Some(plane), Ok(mut idle)) = (self.plane.take(), self.shared.idle.lock()) {
            idle.push(plane);
        }
    }
}

impl std::ops::Deref for Member {
    type Target = Plane;

    fn deref(&self) -> &Plane {
        self.plane
            .as_ref()
            .expect("invariant: only `give_back` takes the plane, and it takes the member too")
    }
}
