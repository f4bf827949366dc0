//! A connection that can be cut from outside. Dropping the library's handle of a connection ends nothing: what is under
//! way in it goes on in a task of its own.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::{CancellationToken, DropGuard, WaitForCancellationFutureOwned};

/// Fails, whatever is done with it, once a token is cancelled, and cancels another one when it is dropped.
pub(super) struct Severable<S> {
    stream: S,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
    _closed: DropGuard,
}

impl<S> Severable<S> {
    pub(super) fn new(stream: S, cut: CancellationToken, closed: CancellationToken) -> Self {
        Self {
            stream,
            cut: Box::pin(cut.cancelled_owned()),
            _closed: closed.drop_guard(),
        }
    }

    fn whole(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        match self.cut.as_mut().poll(context) {
            Poll::Ready(()) => Err(io::ErrorKind::ConnectionAborted.into()),
            Poll::Pending => Ok(()),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Severable<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.whole(context)?;
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Severable<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.whole(context)?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.whole(context)?;
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
        self.whole(context)?;
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    #[tokio::test]
    async fn whoever_reads_is_woken_by_the_cut() {
        let (near, mut far) = duplex(64);
        let (cut, closed) = (CancellationToken::new(), CancellationToken::new());
        let mut near = Severable::new(near, cut.clone(), closed.clone());
        far.write_all(b"x").await.expect("written");
        assert_eq!(near.read_u8().await.expect("read"), b'x');
        let reading = tokio::spawn(async move {
            let read = near.read_u8().await;
            (
                read.map_err(|e| e.kind()),
                near.write_all(b"y").await.is_err(),
            )
        });
        tokio::task::yield_now().await;
        assert!(!closed.is_cancelled());
        cut.cancel();
        let (read, refuses) = reading.await.expect("it ends");
        assert_eq!(read, Err(io::ErrorKind::ConnectionAborted));
        assert!(refuses && closed.is_cancelled());
    }
}
