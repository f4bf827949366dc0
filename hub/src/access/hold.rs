//! A connection on which an agent offered a tunnel, once it is known to be that agent's. Ten thousand of them mostly lie
//! still: what HTTP/2 takes is there once somebody asks for something.

use super::lasting::Over;
use super::severed::Severable;
use super::{Kept, Sent, Tunnels};
use common::tunnel::{self, Begins, Heard, Still};
use futures::channel::oneshot;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;

impl Tunnels {
    /// Reaches a cluster by this connection, until it ends, `stop`, or `over`, by which the agent's registration is no
    /// longer in force: then everything in it ends at once. What goes on in it when another one takes its place, or the
    /// agent wants no more requests in it, goes on.
    pub async fn hold<S>(
        &self,
        cluster: &str,
        stream: S,
        begins: Begins,
        over: Over,
        stop: CancellationToken,
    ) -> Result<(), String>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        // The agent's signs of life are read before anybody here sees them, in HTTP/2 by the library itself, so with
        // nothing going on it is the line that says whether there are any. Who sends something hears of it by pings of the
        // hub's own.
        let mut stream = TimeoutStream::new(stream);
        stream.set_read_timeout(Some(tunnel::KEEP_ALIVE.silent()));
        stream.set_write_timeout(Some(tunnel::KEEP_ALIVE.silent()));
        let (cut, closed) = (CancellationToken::new(), CancellationToken::new());
        let stream = Severable::new(Box::pin(stream), cut.clone(), closed.clone());
        let _cuts = cut.drop_guard();
        let (asked, (offer, sender)) = (CancellationToken::new(), oneshot::channel());
        let mut line = Line {
            stream: Still::new(stream, begins),
            kept: Some(self.keep(cluster, asked.clone(), sender)),
            offer,
        };
        tracing::info!(cluster, "the agent's tunnel is open");
        let served = async move {
            if begins == Begins::AtOnce || line.lie_still(&asked).await? {
                Box::pin(line.serve()).await?;
                closed.cancelled().await;
            }
            Ok(())
        };
        let ended = tokio::select! {
            biased;
            () = stop.cancelled() => Ok(()),
            () = over => Err("its registration is no longer in force".to_owned()),
            ended = served => ended,
        };
        let why = ended.as_ref().err();
        tracing::info!(cluster, why, "the agent's tunnel is closed");
        ended
    }
}

/// The connection of a tunnel.
struct Line<S> {
    stream: Still<S>,
    kept: Option<Kept>,
    /// Where HTTP/2 is handed over once it begins.
    offer: oneshot::Sender<SendRequest<Sent>>,
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> Line<S> {
    /// Answers signs of life until somebody asks for something. It is `false` if nobody will: the agent is gone, or has
    /// another tunnel.
    async fn lie_still(&mut self, asked: &CancellationToken) -> Result<bool, String> {
        loop {
            let heard = tokio::select! {
                biased;
                () = asked.cancelled() => return Ok(true),
                () = self.offer.cancellation() => return Ok(false),
                heard = self.stream.answer() => heard,
            };
            match heard.map_err(|error| error.to_string())? {
                // Who has found it already may ask yet.
                Heard::Leaves => self.kept = None,
                Heard::Lives => {}
                Heard::Begins => return Ok(true),
                Heard::End => return Ok(false),
            }
        }
    }

    /// Has requests be sent until it takes no more of them. The library's own task has the connection until the last one
    /// ends.
    async fn serve(self) -> Result<(), String> {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .initial_stream_window_size(tunnel::STREAM_WINDOW)
            .initial_connection_window_size(tunnel::CONNECTION_WINDOW)
            .max_concurrent_reset_streams(tunnel::GIVEN_UP)
            .reset_stream_duration(tunnel::KEEP_ALIVE.silent())
            .max_header_list_size(tunnel::HEADERS_MAX)
            .keep_alive_interval(tunnel::KEEP_ALIVE_BUSY.every)
            .keep_alive_timeout(tunnel::KEEP_ALIVE_BUSY.within)
            .keep_alive_while_idle(false);
        let begun = builder.handshake(TokioIo::new(self.stream)).await;
        let (sender, serving) = begun.map_err(|error| error.to_string())?;
        // If nobody is there to take it, the connection ends.
        let _ = self.offer.send(sender);
        serving.await.map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests;
