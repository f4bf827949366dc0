//! The lines of a body, one at a time.

use crate::client::{Problem, classify};
use bytes::{Buf as _, Bytes, BytesMut};
use http_body_util::BodyExt as _;
use kube::client::Body;

/// Longest line: several times the largest object that etcd takes.
const LINE_MAX: usize = 16 * 1024 * 1024;

pub(super) struct Lines {
    body: Body,
    buffer: BytesMut,
    /// How much of the buffer is known to hold no end of line.
    searched: usize,
}

impl Lines {
    pub(super) fn new(body: Body) -> Self {
        Self {
            body,
            buffer: BytesMut::new(),
            searched: 0,
        }
    }

    /// The next line that is not empty, without its end; `None` at the end of the body. A last line
    /// without an end was cut off and is dropped.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        loop {
            if let Some(end) = self.buffer[self.searched..]
                .iter()
                .position(|&b| b == b'\n')
            {
                let line = self.buffer.split_to(self.searched + end).freeze();
                self.buffer.advance(1);
                self.searched = 0;
                if !line.is_empty() {
                    return Ok(Some(line));
                }
                continue;
            }
            self.searched = self.buffer.len();
            if self.buffer.len() > LINE_MAX {
                return Err(Problem::Decode("a watch event is too long".to_owned()));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
                Some(Err(error)) => return Err(classify(&error)),
                None => return Ok(None),
            }
        }
    }
}
