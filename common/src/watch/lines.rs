//! The lines of a body, one at a time.

use crate::client::{Problem, classify};
use bytes::{Buf as _, Bytes, BytesMut};
use http_body_util::BodyExt as _;
use kube::client::Body;

/// Longest line: several times the largest object that etcd takes.
const LINE_MAX: usize = 16 * 1024 * 1024;

pub(super) struct Lines {
    body: Body,
    cut: Cut,
}

impl Lines {
    pub(super) fn new(body: Body) -> Self {
        Self {
            body,
            cut: Cut::default(),
        }
    }

    /// The next line that is not empty, without its end; `None` at the end of the body. A last line
    /// without an end was cut off and is dropped.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        loop {
            if let Some(line) = self.cut.next()? {
                return Ok(Some(line));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.cut.rest = data;
                    }
                }
                Some(Err(error)) => return Err(classify(&error)),
                None => return Ok(None),
            }
        }
    }
}

/// Cuts what comes into lines; copies only those that come in several pieces.
#[derive(Default)]
struct Cut {
    /// What came last and was not read.
    rest: Bytes,
    /// The beginning of a line that came before.
    begun: BytesMut,
}

impl Cut {
    /// The next line that is not empty; `None` where its end has not come.
    fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        while let Some(end) = memchr::memchr(b'\n', &self.rest) {
            let mut line = self.rest.split_to(end);
            self.rest.advance(1);
            if !self.begun.is_empty() {
                self.begun.extend_from_slice(&line);
                line = self.begun.split().freeze();
            }
            if !line.is_empty() {
                return Ok(Some(line));
            }
        }
        self.begun
            .extend_from_slice(&std::mem::take(&mut self.rest));
        match self.begun.len() > LINE_MAX {
            true => Err(Problem::Decode("a watch event is too long".to_owned())),
            false => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(frames: impl IntoIterator<Item = Vec<u8>>) -> (Vec<Vec<u8>>, Option<Problem>) {
        let (mut cut, mut all) = (Cut::default(), Vec::new());
        for frame in frames {
            cut.rest = frame.into();
            loop {
                match cut.next() {
                    Ok(Some(line)) => all.push(line.to_vec()),
                    Ok(None) => break,
                    Err(problem) => return (all, Some(problem)),
                }
            }
        }
        (all, None)
    }

    proptest! {
        #[test]
        fn lines_are_the_same_however_they_come(
            text in prop::collection::vec(prop::sample::select(b"ab\n".as_slice()), 0..40),
            cuts in prop::collection::vec(0..40_usize, 0..8),
        ) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|at| at.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let frames = cuts.windows(2).map(|pair| text[pair[0]..pair[1]].to_vec());
            let mut wanted: Vec<Vec<u8>> =
                text.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
            // What has no end is no line.
            wanted.pop();
            wanted.retain(|line| !line.is_empty());
            let (found, problem) = read(frames);
            prop_assert_eq!(found, wanted);
            prop_assert!(problem.is_none());
        }
    }

    #[test]
    fn a_line_without_end_is_not_held() {
        let (lines, problem) = read(std::iter::repeat_n(vec![b'a'; 1 << 20], 40));
        assert!(lines.is_empty(), "{}", lines.len());
        assert!(matches!(problem, Some(Problem::Decode(_))), "{problem:?}");
    }
}
