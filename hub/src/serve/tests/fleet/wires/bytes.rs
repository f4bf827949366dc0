//! Connections of bytes: two ends, what is between them, and what goes wrong there. As inside TLS, an end that is dropped
//! before it was shut down breaks at the other one, and never looks like one that ends.

use common::chance::SharedStream;
use common::lock::lock;
use rand::Rng as _;
use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{
    AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, ReadBuf, ReadHalf,
    WriteHalf, duplex, split,
};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// What may be on its way in one direction, and what passes at once.
const ON_ITS_WAY: usize = 64 * 1024;
const PIECE: usize = 16 * 1024;
/// How long a piece takes where nothing is drawn, and the longest where something is.
const USUAL: Duration = Duration::from_millis(5);
const LONGEST: u64 = 10_000;

/// One end of a connection.
pub(in super::super) struct Endpoint {
    bytes: DuplexStream,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Whether this end was shut down, and the other one.
    shut: [Arc<AtomicBool>; 2],
}

impl Endpoint {
    fn whole(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        match self.cut.as_mut().poll(context) {
            Poll::Ready(()) => Err(io::ErrorKind::ConnectionReset.into()),
            Poll::Pending => Ok(()),
        }
    }
}

impl AsyncRead for Endpoint {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.whole(context)?;
        let (room, had) = (into.remaining(), into.filled().len());
        let read = Pin::new(&mut self.bytes).poll_read(context, into);
        let is_end = matches!(read, Poll::Ready(Ok(()))) && room > 0 && into.filled().len() == had;
        if is_end && !self.shut[1].load(Ordering::Relaxed) {
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        read
    }
}

impl AsyncWrite for Endpoint {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.whole(context)?;
        Pin::new(&mut self.bytes).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.whole(context)?;
        Pin::new(&mut self.bytes).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shut[0].store(true, Ordering::Relaxed);
        Pin::new(&mut self.bytes).poll_shutdown(context)
    }
}

/// How it is on the way from one host to another, for one protocol. Clones share it.
#[derive(Clone, Default)]
pub(in super::super) struct Way(Arc<Mutex<Condition>>);

#[derive(Default)]
struct Condition {
    /// Until when nothing passes, everything takes longer, and by how much, and nobody is reached.
    frozen: Option<Instant>,
    slow: Option<(Instant, Duration)>,
    refused: Option<Instant>,
    /// After so many bytes more what carries them breaks.
    left: Option<usize>,
    next: u64,
    standing: BTreeMap<u64, Standing>,
    /// How long each piece was; none where nobody wants to know.
    pieces: Option<Vec<usize>>,
}

struct Standing {
    cut: CancellationToken,
    /// Nothing passes any more, and nobody is told.
    is_silent: bool,
}

/// What of a piece passes.
enum Passes {
    Whole,
    /// So many bytes, and then it breaks.
    Part(usize),
    /// Nothing, before this time.
    Later(Instant),
    Never,
}

impl Way {
    /// How many connections stand.
    pub(in super::super) fn standing(&self) -> usize {
        lock(&self.0).standing.len()
    }

    /// Resets what stands.
    pub(in super::super) fn cut(&self) {
        for standing in lock(&self.0).standing.values() {
            standing.cut.cancel();
        }
    }

    /// Breaks off after so many bytes more.
    pub(in super::super) fn cut_after(&self, bytes: usize) {
        lock(&self.0).left = Some(bytes);
    }

    pub(in super::super) fn freeze(&self, lasts: Duration) {
        lock(&self.0).frozen = Some(Instant::now() + lasts);
    }

    pub(in super::super) fn slow(&self, by: Duration, lasts: Duration) {
        lock(&self.0).slow = Some((Instant::now() + lasts, by));
    }

    pub(in super::super) fn refuse(&self, lasts: Duration) {
        lock(&self.0).refused = Some(Instant::now() + lasts);
    }

    /// What stands carries nothing any more.
    pub(in super::super) fn silence(&self) {
        for standing in lock(&self.0).standing.values_mut() {
            standing.is_silent = true;
        }
    }

    /// Nothing is wrong any more but what is silent.
    pub(in super::super) fn heal(&self) {
        let mut it = lock(&self.0);
        (it.frozen, it.slow, it.refused, it.left) = (None, None, None, None);
    }

    /// Tells how long each piece was since this was asked the last time, and counts on.
    pub(in super::super) fn pieces(&self) -> Vec<usize> {
        let counted = lock(&self.0).pieces.replace(Vec::new());
        counted.unwrap_or_default()
    }

    pub(super) fn is_refused(&self) -> bool {
        let refused = lock(&self.0).refused;
        refused.is_some_and(|until| Instant::now() < until)
    }

    fn stand(&self, cut: &CancellationToken) -> Stands {
        let mut it = lock(&self.0);
        it.next += 1;
        let number = it.next;
        let standing = Standing {
            cut: cut.clone(),
            is_silent: false,
        };
        it.standing.insert(number, standing);
        Stands {
            way: self.clone(),
            number,
        }
    }

    fn slowness(&self) -> Duration {
        let slow = lock(&self.0).slow;
        let slow = slow.filter(|(until, _)| Instant::now() < *until);
        slow.map_or(Duration::ZERO, |(_, by)| by)
    }

    fn passes(&self, number: u64, size: usize) -> Passes {
        let mut it = lock(&self.0);
        if let Some(until) = it.frozen.filter(|until| Instant::now() < *until) {
            return Passes::Later(until);
        }
        if it.standing.get(&number).is_none_or(|it| it.is_silent) {
            return Passes::Never;
        }
        if let Some(pieces) = &mut it.pieces {
            pieces.push(size);
        }
        let Some(left) = it.left else {
            return Passes::Whole;
        };
        if left >= size {
            it.left = Some(left - size);
            return Passes::Whole;
        }
        it.left = None;
        Passes::Part(left)
    }
}

/// One that stands, until it is dropped.
struct Stands {
    way: Way,
    number: u64,
}

impl Drop for Stands {
    fn drop(&mut self) {
        lock(&self.way.0).standing.remove(&self.number);
    }
}

/// Hears what passes in one direction.
pub(super) type Hears = Box<dyn FnMut(&[u8]) + Send>;

/// Whom nobody hears.
pub(super) fn nobody() -> [Hears; 2] {
    [(); 2].map(|()| Box::new(|_: &[u8]| {}) as Hears)
}

/// A connection: the client's end, the server's, and what carries bytes between them for as long as it is polled. What
/// the client says and what it is told is heard by these two.
pub(super) fn pair(
    way: &Way,
    delays: Option<SharedStream>,
    hears: [Hears; 2],
) -> (Endpoint, Endpoint, impl Future<Output = ()> + Send + use<>) {
    let (mine, near) = duplex(ON_ITS_WAY);
    let (far, theirs) = duplex(ON_ITS_WAY);
    let cut = CancellationToken::new();
    let shut = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let [client, server] = shut.clone();
    let end = |bytes, shut| Endpoint {
        bytes,
        cut: Box::pin(cut.clone().cancelled_owned()),
        shut,
    };
    let ends = (
        end(mine, [client.clone(), server.clone()]),
        end(theirs, [server, client]),
    );
    let stands = way.stand(&cut);
    let carry = async move {
        let stands = &stands;
        let ([from_client, from_server], (to_near, to_far)) = {
            let (from_client, to_client) = split(near);
            let (from_server, to_server) = split(far);
            ([from_client, from_server], (to_client, to_server))
        };
        let [hears_client, hears_server] = hears;
        let [client_shut, server_shut] = shut;
        let up = Direction {
            stands,
            delays: delays.clone(),
            shut: client_shut,
            hears: hears_client,
        };
        let down = Direction {
            stands,
            delays,
            shut: server_shut,
            hears: hears_server,
        };
        let both = async {
            let (up, down) = (
                up.carry(from_client, to_far),
                down.carry(from_server, to_near),
            );
            // Whatever breaks breaks both directions.
            let _ = tokio::try_join!(up, down);
        };
        tokio::select! {
            biased;
            () = cut.cancelled() => {}
            () = both => {}
        }
    };
    (ends.0, ends.1, carry)
}

struct Direction<'a> {
    stands: &'a Stands,
    delays: Option<SharedStream>,
    /// Whether whoever speaks was shut down.
    shut: Arc<AtomicBool>,
    hears: Hears,
}

/// It broke.
struct Broken;

impl Direction<'_> {
    async fn carry(
        mut self,
        mut from: ReadHalf<DuplexStream>,
        mut to: WriteHalf<DuplexStream>,
    ) -> Result<(), Broken> {
        let mut piece = vec![0; PIECE];
        loop {
            let size = from.read(&mut piece).await.map_err(|_| Broken)?;
            sleep(self.delay()).await;
            let passes = loop {
                match self.stands.way.passes(self.stands.number, size) {
                    Passes::Later(at) => sleep_until(at).await,
                    // Nobody is told, until both ends have given it up.
                    Passes::Never => {
                        while from.read(&mut piece).await.is_ok_and(|size| size > 0) {}
                        return Ok(());
                    }
                    Passes::Whole => break size,
                    Passes::Part(part) => break part,
                }
            };
            if size == 0 {
                return match self.shut.load(Ordering::Relaxed) {
                    true => to.shutdown().await.map_err(|_| Broken),
                    false => Err(Broken),
                };
            }
            (self.hears)(&piece[..passes]);
            to.write_all(&piece[..passes]).await.map_err(|_| Broken)?;
            if passes < size {
                return Err(Broken);
            }
        }
    }

    fn delay(&self) -> Duration {
        let usual = self.delays.as_ref().map_or(USUAL, |delays| {
            Duration::from_micros(delays.draw(|rng| rng.random_range(1_000..=LONGEST)))
        });
        usual + self.stands.way.slowness()
    }
}
