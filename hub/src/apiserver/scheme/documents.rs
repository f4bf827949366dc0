//! OpenAPI documents that were made of a snapshot, kept as most clients take them: compressed.

use bytes::Bytes;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// One document.
#[derive(Debug)]
pub struct Document {
    /// The hash of its text, in hexadecimal; the index names it.
    pub hash: String,
    /// The document, compressed.
    pub gzip: Bytes,
}

impl Document {
    /// Compresses a document.
    pub fn new(bytes: &[u8], hash: String) -> Option<Self> {
        let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 8), Compression::fast());
        encoder.write_all(bytes).ok()?;
        Some(Self {
            hash,
            gzip: encoder.finish().ok()?.into(),
        })
    }

    /// The document as it is, for those who take it in no other form.
    pub fn plain(&self) -> Bytes {
        let mut bytes = Vec::with_capacity(self.gzip.len() * 8);
        let read = GzDecoder::new(self.gzip.as_ref()).read_to_end(&mut bytes);
        // It was written above.
        read.map(|_| bytes.into()).unwrap_or_default()
    }
}

/// What was made so far, each when it was first asked for.
#[derive(Debug, Default)]
pub struct Documents {
    /// The index, which costs all documents to make.
    index: OnceLock<Value>,
    /// All of them as one of the older form.
    v2: OnceLock<Arc<Document>>,
    /// Those of v3, by their paths below `/openapi/v3/`.
    v3: Mutex<BTreeMap<String, Arc<Document>>>,
}

impl Documents {
    /// None yet.
    pub(in crate::apiserver) const fn new() -> Self {
        Self {
            index: OnceLock::new(),
            v2: OnceLock::new(),
            v3: Mutex::new(BTreeMap::new()),
        }
    }

    /// The index of v3.
    pub(in crate::apiserver) fn index(&self, make: impl FnOnce() -> Value) -> &Value {
        self.index.get_or_init(make)
    }

    /// The document of v2.
    pub(in crate::apiserver) fn v2(&self, make: impl FnOnce() -> Document) -> Arc<Document> {
        self.v2.get_or_init(|| Arc::new(make())).clone()
    }

    /// A document of v3, by its path below `/openapi/v3/`; what is not made is not kept.
    pub(in crate::apiserver) fn v3(
        &self,
        path: &str,
        make: impl FnOnce() -> Option<Document>,
    ) -> Option<Arc<Document>> {
        let kept = || self.v3.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(document) = kept().get(path) {
            return Some(document.clone());
        }
        let document = Arc::new(make()?);
        kept().insert(path.to_owned(), document.clone());
        Some(document)
    }
}
