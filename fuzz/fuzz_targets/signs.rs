//! What an agent says in a tunnel, before HTTP/2 and after it, in pieces of the size that the first byte says.
#![no_main]

use common::tunnel::{Begins, Heard, Still};
use libfuzzer_sys::fuzz_target;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf, join};

fuzz_target!(|data: &[u8]| {
    let Some((each, said)) = data.split_first() else {
        return;
    };
    let signs = said.iter().take_while(|it| b".!".contains(it)).count();
    let each = usize::from(*each) + 1;
    let agent = || join(Said { left: said, each }, Vec::new());
    for (begins, passed_over) in [(Begins::WhenAsked, signs), (Begins::AtOnce, 0)] {
        let mut tunnel = Still::new(agent(), begins);
        assert_eq!(rest(&mut tunnel), said[passed_over..]);
    }
    let mut agent = agent();
    let mut tunnel = Still::new(&mut agent, Begins::WhenAsked);
    let mut leaves = false;
    let heard = loop {
        match at_once(tunnel.answer()).expect("nothing fails") {
            Heard::Leaves => leaves = true,
            heard => break heard,
        }
    };
    let begun = said.get(signs).is_some();
    assert_eq!(heard, if begun { Heard::Begins } else { Heard::End });
    assert_eq!(leaves, said[..signs].contains(&b'!'));
    assert_eq!(rest(&mut tunnel), said[signs..]);
    let heard = agent.writer();
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

/// What an agent says, as it comes.
struct Said<'a> {
    left: &'a [u8],
    each: usize,
}

impl AsyncRead for Said<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let count = self.each.min(self.left.len()).min(into.remaining());
        let (now, later) = self.left.split_at(count);
        into.put_slice(now);
        self.left = later;
        Poll::Ready(Ok(()))
    }
}
