//! A tunnel before anybody asks for anything in it. HTTP/2 takes some 40 KiB at either end, and most tunnels lie still,
//! so it begins with the first request.
//!
//! Until then the agent gives a sign of life, and another one whenever it has heard nothing for a while, and the hub
//! answers each with one. An agent that wants no more requests says so, and waits for the hub to close the
//! connection. The hub begins HTTP/2 by its preface, whose first byte is neither; the agent's first byte of it is 0.
//! Signs that were on their way then are passed over.

use super::KEEP_ALIVE;
use crate::http2::KeepAlive;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader, ReadBuf};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// A sign of life, or the answer to one.
const SIGN: u8 = b'.';
/// The agent takes no more requests in this tunnel.
const LEAVES: u8 = b'!';
/// Bytes that are read at once while it lies still.
const AT_ONCE: usize = 64;

/// When HTTP/2 begins in a tunnel, as the handshake of TLS agrees on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begins {
    /// With the first request.
    WhenAsked,
    /// As soon as the tunnel stands: all that agents and hubs without this one know.
    AtOnce,
}

impl Begins {
    /// What is offered, the best first.
    pub const ALL: [Self; 2] = [Self::WhenAsked, Self::AtOnce];

    /// In the handshake.
    pub const fn alpn(self) -> &'static [u8] {
        match self {
            Self::WhenAsked => b"rh2-late",
            Self::AtOnce => b"rh2",
        }
    }

    /// What was agreed on; none if the connection is to be no tunnel.
    pub fn of(alpn: Option<&[u8]>) -> Option<Self> {
        Self::ALL.into_iter().find(|it| Some(it.alpn()) == alpn)
    }
}

/// What was heard in a tunnel that lies still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// A sign of life, or several.
    Lives,
    /// The agent takes no more requests.
    Leaves,
    /// The first byte of HTTP/2.
    Begins,
    /// The end of the connection.
    End,
}

/// The connection of a tunnel: read and written, it is that of HTTP/2, without the signs that were given before.
#[derive(Debug)]
pub struct Still<S> {
    stream: BufReader<S>,
    begun: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Still<S> {
    /// One in which nothing was said yet.
    pub fn new(stream: S, begins: Begins) -> Self {
        Self {
            stream: BufReader::with_capacity(AT_ONCE, stream),
            begun: begins == Begins::AtOnce,
        }
    }

    fn poll_hear(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Heard>> {
        let bytes = ready!(Pin::new(&mut self.stream).poll_fill_buf(context))?;
        let signs = bytes.iter().take_while(|it| [SIGN, LEAVES].contains(it));
        let count = signs.clone().count();
        let leaves = signs.into_iter().any(|it| *it == LEAVES);
        let heard = match (count, leaves) {
            (0, _) if bytes.is_empty() => Heard::End,
            (0, _) => Heard::Begins,
            (_, true) => Heard::Leaves,
            (_, false) => Heard::Lives,
        };
        Pin::new(&mut self.stream).consume(count);
        Poll::Ready(Ok(heard))
    }

    /// The next that is heard. Nothing is lost if this is given up.
    async fn hear(&mut self) -> io::Result<Heard> {
        std::future::poll_fn(|context| self.poll_hear(context)).await
    }

    async fn say(&mut self, sign: u8) -> io::Result<()> {
        self.stream.write_all(&[sign]).await?;
        self.stream.flush().await
    }

    /// The hub's end: answers signs of life until something else is heard, which this returns. Nothing that matters is
    /// lost if this is given up.
    pub async fn answer(&mut self) -> io::Result<Heard> {
        loop {
            match self.hear().await? {
                Heard::Lives => self.say(SIGN).await?,
                other => return Ok(other),
            }
        }
    }

    /// The agent's end: gives signs of life until HTTP/2 begins, which is `true`, or the hub closes the connection. A hub
    /// that answers none is an error. Once `retire` is cancelled the hub is told so, and given as long to close it.
    async fn wait(
        &mut self,
        keep_alive: KeepAlive,
        retire: &CancellationToken,
    ) -> io::Result<bool> {
        while !retire.is_cancelled() {
            let answered = timeout(keep_alive.within, async {
                self.say(SIGN).await?;
                self.hear().await
            });
            match answered.await?? {
                Heard::Lives | Heard::Leaves => {}
                Heard::Begins => return Ok(true),
                Heard::End => return Ok(false),
            }
            let lies_still = timeout(keep_alive.every, self.more());
            tokio::select! {
                biased;
                () = retire.cancelled() => {}
                more = lies_still => if let Ok(more) = more {
                    return more;
                },
            }
        }
        let closed = timeout(keep_alive.within, async {
            self.say(LEAVES).await?;
            self.more().await
        });
        closed.await?
    }

    /// Waits for HTTP/2, which is `true`, or the end.
    async fn more(&mut self) -> io::Result<bool> {
        loop {
            match self.hear().await? {
                Heard::Lives | Heard::Leaves => {}
                Heard::Begins => return Ok(true),
                Heard::End => return Ok(false),
            }
        }
    }
}

/// Serves a tunnel at the agent's end, by what serves HTTP/2 once it begins, which `begun` is cancelled for. That is handed
/// the connection, and what has it take no more requests: `retire`, or, if HTTP/2 began although that was cancelled,
/// another token, for the request that it began for is still on its way. `None` is a tunnel that the hub closed before.
pub async fn serve<S, F, R>(
    stream: S,
    begins: Begins,
    begun: &CancellationToken,
    retire: CancellationToken,
    http2: F,
) -> io::Result<Option<R::Output>>
where
    S: AsyncRead + AsyncWrite + Unpin,
    F: FnOnce(Still<S>, CancellationToken) -> R,
    R: Future,
{
    let mut stream = Still::new(stream, begins);
    if begins == Begins::WhenAsked && !stream.wait(KEEP_ALIVE, &retire).await? {
        return Ok(None);
    }
    begun.cancel();
    if !retire.is_cancelled() {
        return Ok(Some(Box::pin(http2(stream, retire)).await));
    }
    let retires = CancellationToken::new();
    let mut serving = Box::pin(http2(stream, retires.clone()));
    if let Ok(ended) = timeout(KEEP_ALIVE.within, &mut serving).await {
        return Ok(Some(ended));
    }
    retires.cancel();
    Ok(Some(serving.await))
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Still<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while !self.begun {
            let heard = ready!(self.poll_hear(context))?;
            self.begun = matches!(heard, Heard::Begins | Heard::End);
        }
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Still<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tokio::io::{AsyncReadExt as _, DuplexStream, duplex};
    use tokio::task::JoinHandle;
    use tokio::time::{Instant, sleep};

    const ROOM: usize = 1024;

    type Waits = JoinHandle<io::Result<bool>>;

    /// An agent that waits, its hub's end, and what has it retire.
    fn waits() -> (Waits, DuplexStream, CancellationToken) {
        let (near, far) = duplex(ROOM);
        let retire = CancellationToken::new();
        let retires = retire.clone();
        let waits = tokio::spawn(async move {
            let mut agent = Still::new(near, Begins::WhenAsked);
            agent.wait(KEEP_ALIVE, &retires).await
        });
        (waits, far, retire)
    }

    async fn says(far: &mut DuplexStream) -> u8 {
        far.read_u8().await.expect("it says something")
    }

    #[tokio::test(start_paused = true)]
    async fn signs_are_given_and_answered_until_the_hub_begins() {
        let (waits, far, _retire) = waits();
        let mut hub = Still::new(far, Begins::WhenAsked);
        let within = sleep(10 * KEEP_ALIVE.every);
        tokio::select! {
            biased;
            it = hub.answer() => panic!("{it:?}"),
            () = within => {}
        }
        hub.write_all(b"PRI").await.expect("taken");
        assert!(waits.await.expect("no panic").expect("it begins"));
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_gives_a_sign_when_nothing_is_heard_and_no_more_of_them() {
        let (_waits, mut far, _retire) = waits();
        let began = Instant::now();
        for sign in 0..3 {
            assert_eq!(says(&mut far).await, SIGN);
            assert_eq!(began.elapsed(), KEEP_ALIVE.every * sign);
            // One more than was asked for is no reason to ask sooner.
            far.write_all(&[SIGN, SIGN]).await.expect("taken");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_hub_that_answers_no_sign_is_given_up() {
        for answers in [0, 1, 2] {
            let (waits, mut far, _retire) = waits();
            for _ in 0..answers {
                assert_eq!(says(&mut far).await, SIGN);
                far.write_all(&[SIGN]).await.expect("taken");
            }
            let silent = Instant::now();
            assert!(waits.await.expect("no panic").is_err());
            assert!(silent.elapsed() <= KEEP_ALIVE.silent());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_that_retires_takes_what_the_hub_began_meanwhile() {
        for (answer, begins) in [(&b"."[..], None), (b"..P", Some(true)), (b"", Some(false))] {
            let (waits, mut far, retire) = waits();
            assert_eq!(says(&mut far).await, SIGN);
            far.write_all(&[SIGN]).await.expect("taken");
            sleep(KEEP_ALIVE.every / 2).await;
            retire.cancel();
            assert_eq!(says(&mut far).await, LEAVES);
            far.write_all(answer).await.expect("taken");
            if answer.is_empty() {
                drop(far);
            }
            assert_eq!(waits.await.expect("no panic").ok(), begins);
        }
    }

    #[tokio::test]
    async fn an_agent_that_leaves_is_heard_among_its_signs() {
        let (near, mut far) = duplex(ROOM);
        let mut hub = Still::new(near, Begins::WhenAsked);
        far.write_all(b"...!").await.expect("taken");
        assert_eq!(hub.answer().await.expect("heard"), Heard::Leaves);
        drop(far);
        assert_eq!(hub.answer().await.expect("heard"), Heard::End);
    }

    /// Many signs at once are answered by one.
    #[tokio::test]
    async fn an_agent_gets_no_more_answers_than_it_gave_signs() {
        let (near, mut far) = duplex(ROOM);
        let mut hub = Still::new(near, Begins::WhenAsked);
        far.write_all(&[SIGN; 600]).await.expect("taken");
        far.shutdown().await.expect("ended");
        assert_eq!(hub.answer().await.expect("heard"), Heard::End);
        drop(hub);
        let mut answers = Vec::new();
        far.read_to_end(&mut answers).await.expect("read");
        assert!(
            answers.len() <= 600_usize.div_ceil(AT_ONCE),
            "{}",
            answers.len()
        );
    }

    proptest! {
        /// Whatever the agent says, in whatever pieces it comes: HTTP/2 is given all but the signs before it.
        #[test]
        fn signs_before_http2_are_passed_over(
            signs in "[.!]{0,200}",
            rest in prop::collection::vec(any::<u8>(), 0..300),
            piece in 1_usize..100,
            into in 1_usize..100,
            begins in prop::sample::select(&Begins::ALL[..]),
        ) {
            let said: Vec<u8> = signs.bytes().chain(rest).collect();
            let is_sign = |it: &&u8| begins == Begins::WhenAsked && [SIGN, LEAVES].contains(it);
            let signs = said.iter().take_while(is_sign).count();
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            let read = runtime.block_on(async {
                let (near, mut far) = duplex(piece);
                let mut hub = Still::new(near, begins);
                let says = async {
                    far.write_all(&said).await.expect("taken");
                    drop(far);
                };
                let reads = async {
                    let (mut all, mut part) = (Vec::new(), vec![0; into]);
                    loop {
                        match hub.read(&mut part).await.expect("read") {
                            0 => return all,
                            count => all.extend_from_slice(&part[..count]),
                        }
                    }
                };
                tokio::join!(says, reads).1
            });
            prop_assert_eq!(&read[..], &said[signs..]);
        }
    }
}
