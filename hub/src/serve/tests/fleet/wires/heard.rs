//! What a member was asked and answered on connections of bytes, by the id that whoever asked gave: whether it heard the
//! whole of a request, and said the whole of an answer. What passed on from there may be less, and must then say so.

use super::bytes::Hears;
use common::lock::lock;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

const ID: &[u8] = b"audit-id: ";
const CHUNKED: &[u8] = b"transfer-encoding: chunked";
/// The last chunk of a message that has no length.
const LAST: &[u8] = b"0\r\n\r\n";

/// By the id. Clones share it.
#[derive(Clone, Default)]
pub(in super::super) struct Heard(Arc<Mutex<BTreeMap<String, One>>>);

#[derive(Debug, Clone, Copy, Default)]
pub(in super::super) struct One {
    /// Whether the request came without a length, and whether its last chunk did.
    pub(in super::super) asked: (bool, bool),
    /// The same of the answer.
    pub(in super::super) answered: (bool, bool),
}

impl Heard {
    /// What a member heard and said of a request; none if it never heard of it.
    pub(in super::super) fn of(&self, id: &str) -> Option<One> {
        lock(&self.0).get(id).copied()
    }

    /// A connection that was taken over has ended, by the member's own doing.
    pub(super) fn ended(&self, id: &str) {
        lock(&self.0).entry(id.to_owned()).or_default().answered = (true, true);
    }

    /// Hears what passes on a connection of HTTP/1.1, on which one request follows the other.
    pub(super) fn on_connection(&self) -> [Hears; 2] {
        let current = Arc::new(Mutex::new(None));
        let (asked, mut tail) = ((self.clone(), current.clone()), Vec::new());
        let up = move |piece: &[u8]| {
            let (heard, current) = &asked;
            if let Some(id) = after(piece, ID) {
                tail.clear();
                let is_chunked = find(piece, CHUNKED).is_some();
                lock(&heard.0).entry(id.clone()).or_default().asked = (is_chunked, false);
                *lock(current) = Some(id);
            }
            if let Some(id) = &*lock(current) {
                let ends = ends_with(&mut tail, piece);
                lock(&heard.0).entry(id.clone()).or_default().asked.1 |= ends;
            }
        };
        let (heard, mut tail) = (self.clone(), Vec::new());
        let down = move |piece: &[u8]| {
            if let Some(id) = &*lock(&current) {
                if piece.starts_with(b"HTTP/1.1 ") {
                    tail.clear();
                    let is_chunked = find(piece, CHUNKED).is_some();
                    lock(&heard.0).entry(id.clone()).or_default().answered = (is_chunked, false);
                }
                let ends = ends_with(&mut tail, piece);
                lock(&heard.0).entry(id.clone()).or_default().answered.1 |= ends;
            }
        };
        [Box::new(up), Box::new(down)]
    }
}

/// Whether what has passed until now ends a message.
fn ends_with(tail: &mut Vec<u8>, piece: &[u8]) -> bool {
    tail.extend_from_slice(piece);
    let more = tail.len().saturating_sub(LAST.len());
    tail.drain(..more);
    tail == LAST
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|it| it == what)
}

/// The rest of the line after this.
fn after(text: &[u8], what: &[u8]) -> Option<String> {
    let rest = &text[find(text, what)? + what.len()..];
    let line = rest.split(|it| *it == b'\r').next()?;
    Some(String::from_utf8_lossy(line).into_owned())
}
