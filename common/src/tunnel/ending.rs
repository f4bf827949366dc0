//! A stream on which an end that is meant is said: what passes is in frames, each with its length before it, and the last
//! one is empty. The library ends a stream of HTTP/2 that was taken over in order whenever its handle is dropped, whatever
//! the cause: without that, what breaks off at one end of a tunnel would look whole at the other.

use bytes::{Buf as _, BufMut as _, BytesMut};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Longest frame, in bytes, without its length.
const FRAME_MAX: usize = 16 * 1024;
/// Bytes of a length.
const LENGTH: usize = 2;

/// Such a stream over one without an end. Both ends of it must be one.
#[derive(Debug)]
pub struct Ending<S> {
    stream: S,
    /// What has not left yet, the last of it a frame of so many bytes that whoever writes it believes not to be taken.
    unsent: BytesMut,
    leaving: usize,
    /// Whether the end was said.
    said: bool,
    /// The length of the frame that comes, as far as it is there.
    length: ([u8; LENGTH], usize),
    /// What is left of the frame that comes.
    left: usize,
    /// Whether the end was heard.
    heard: bool,
}

impl<S> Ending<S> {
    /// Nothing has passed on it yet.
    pub fn new(stream: S) -> Self {
        Self {
            stream,
            unsent: BytesMut::new(),
            leaving: 0,
            said: false,
            length: ([0; LENGTH], 0),
            left: 0,
            heard: false,
        }
    }
}

impl<S: AsyncWrite + Unpin> Ending<S> {
    /// Has everything leave.
    fn poll_leave(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unsent.is_empty() {
            let sent = Pin::new(&mut self.stream).poll_write(context, &self.unsent);
            match ready!(sent)? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                sent => self.unsent.advance(sent),
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> Ending<S> {
    /// Reads the length of the next frame.
    fn poll_length(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.length.1 < LENGTH {
            let mut into = ReadBuf::new(&mut self.length.0[self.length.1..]);
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut into))?;
            match into.filled().len() {
                0 => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                read => self.length.1 += read,
            }
        }
        self.length.1 = 0;
        self.left = usize::from(u16::from_be_bytes(self.length.0));
        self.heard = self.left == 0;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Ending<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.left == 0 && !this.heard {
            ready!(this.poll_length(context))?;
        }
        if this.heard || into.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let room = into.remaining().min(this.left);
        let mut piece = ReadBuf::new(into.initialize_unfilled_to(room));
        ready!(Pin::new(&mut this.stream).poll_read(context, &mut piece))?;
        let read = piece.filled().len();
        if read == 0 {
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        this.left -= read;
        into.advance(read);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Ending<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let size = bytes.len().min(FRAME_MAX);
        let Ok(length) = u16::try_from(size) else {
            return Poll::Ready(Err(io::ErrorKind::InvalidInput.into()));
        };
        if size == 0 {
            return Poll::Ready(Ok(0));
        }
        if this.leaving == 0 {
            this.unsent.put_u16(length);
            this.unsent.put_slice(&bytes[..size]);
            this.leaving = size;
        }
        // Nobody flushes between two pieces: what is taken has left. Until then whoever writes comes back with the same.
        ready!(this.poll_leave(context))?;
        Poll::Ready(Ok(std::mem::take(&mut this.leaving)))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        ready!(this.poll_leave(context))?;
        Pin::new(&mut this.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if !this.said {
            this.said = true;
            this.unsent.put_u16(0);
        }
        ready!(this.poll_leave(context))?;
        Pin::new(&mut this.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader, copy_buf, duplex, split};

    fn alone<T>(run: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.expect("a runtime").block_on(run)
    }

    /// Says pieces on one end, and its end if it is meant; what is heard at the other one.
    async fn heard(pieces: &[Vec<u8>], room: usize, is_meant: bool) -> (Vec<u8>, io::Result<()>) {
        let (near, far) = duplex(room);
        let (mut near, mut far) = (Ending::new(near), Ending::new(far));
        let says = async move {
            for piece in pieces {
                near.write_all(piece).await.expect("written");
            }
            near.flush().await.expect("flushed");
            if is_meant {
                near.shutdown().await.expect("ended");
            }
        };
        let hears = async {
            let mut heard = Vec::new();
            let read = far.read_to_end(&mut heard).await;
            (heard, read.map(drop))
        };
        tokio::join!(says, hears).1
    }

    proptest! {
        #[test]
        fn what_is_said_is_heard_and_an_end_only_where_it_is_meant(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..6),
            room in 1_usize..64,
            is_meant: bool,
        ) {
            let (heard, end) = alone(heard(&pieces, room, is_meant));
            prop_assert_eq!(heard, pieces.concat());
            let broken = end.map_err(|error| error.kind());
            let expected = if is_meant { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof) };
            prop_assert_eq!(broken, expected);
        }
    }

    #[tokio::test]
    async fn what_is_copied_arrives_although_nothing_follows_it() {
        let (mut source, reader) = duplex(1000);
        let (near, far) = duplex(3);
        let (mut near, mut far) = (Ending::new(near), Ending::new(far));
        source.write_all(b"some words").await.expect("written");
        let copies = tokio::spawn(async move {
            let copied = copy_buf(&mut BufReader::new(reader), &mut near).await;
            near.shutdown().await.expect("ended");
            copied.expect("copied")
        });
        let mut got = [0; 10];
        far.read_exact(&mut got).await.expect("read");
        assert_eq!(&got, b"some words");
        drop(source);
        let mut rest = Vec::new();
        far.read_to_end(&mut rest).await.expect("an end");
        assert_eq!((copies.await.expect("no panic"), rest.len()), (10, 0));
    }

    #[tokio::test]
    async fn more_than_a_frame_goes_both_ways() {
        let (near, far) = duplex(1000);
        let (from, mut to) = split(Ending::new(near));
        let (mut asked, mut answer) = split(Ending::new(far));
        let sent: Vec<u8> = (0..100_000_u32).map(|it| it.to_le_bytes()[0]).collect();
        let all = sent.clone();
        let says = tokio::spawn(async move {
            to.write_all(&all).await.expect("written");
            to.shutdown().await.expect("ended");
        });
        let mut got = Vec::new();
        asked.read_to_end(&mut got).await.expect("all of it");
        assert_eq!(got, sent);
        says.await.expect("no panic");
        // The other direction goes on.
        answer.write_all(b"done").await.expect("written");
        answer.shutdown().await.expect("ended");
        let mut from = from;
        let mut text = String::new();
        from.read_to_string(&mut text).await.expect("all of it");
        assert_eq!(text, "done");
    }
}
