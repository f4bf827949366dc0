//! What an agent says in a tunnel, before HTTP/2 and after it, in pieces of the size that the first byte says.
#![no_main]

use common::tunnel::{Begins, Heard, Still};
use libfuzzer_sys::fuzz_target;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};

fuzz_target!(|data: &[u8]| {
    let Some((each, said)) = data.split_first() else {
        return;
    };
    let signs = said.iter().take_while(|it| b".!".contains(it)).count();
    let agent = || Agent {
        said,
        each: usize::from(*each) + 1,
        heard: Vec::new(),
    };
    for (begins, passed_over) in [(Begins::WhenAsked, signs), (Begins::AtOnce, 0)] {
        let mut tunnel = Still::new(agent(), begins);
        assert_eq!(rest(&mut tunnel), said[passed_over..]);
    }
    let mut agent = agent();
    let mut tunnel = Still::new(&mut agent, Begins::WhenAsked);
    let mut leaves = 0;
    let heard = loop {
        match at_once(tunnel.answer()).expect("nothing fails") {
            Heard::Leaves => leaves += 1,
            heard => break heard,
        }
    };
    let begun = said.get(signs).is_some();
    assert_eq!(heard, if begun { Heard::Begins } else { Heard::End });
    assert_eq!(leaves > 0, said[..signs].contains(&b'!'));
    assert_eq!(rest(&mut tunnel), said[signs..]);
    let heard = agent.heard;
    assert!(heard.len() <= signs && heard.iter().all(|it| *it == b'.'));
});

/// All that HTTP/2 is given.
fn rest<S: AsyncRead + AsyncWrite + Unpin>(tunnel: &mut Still<S>) -> Vec<u8> {
    let mut rest = Vec::new();
    at_once(tunnel.read_to_end(&mut rest)).expect("nothing fails");
    rest
}

/// Nothing has to be waited for.
fn at_once<F: Future>(future: F) -> F::Output {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(future).poll(&mut context) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("everything is there"),
    }
}

/// An agent that says all at once, and what it hears.
struct Agent<'a> {
    said: &'a [u8],
    each: usize,
    heard: Vec<u8>,
}

impl AsyncRead for Agent<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let count = self.each.min(self.said.len()).min(into.remaining());
        let (now, later) = self.said.split_at(count);
        into.put_slice(now);
        self.said = later;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Agent<'_> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.heard.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
