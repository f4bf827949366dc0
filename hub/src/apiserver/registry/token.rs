//! The token that continues a list: where it goes on, and as of when.

use crate::go::strict;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

const VERSION: &str = "meta.k8s.io/v1";

/// Where a list goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Continue {
    /// The revision of the first page; `None` goes on with what is there now.
    pub revision: Option<u64>,
    /// The first key of the next page, below the kind: `namespace/name`, or a name.
    pub start: String,
}

#[derive(Serialize, Deserialize)]
struct Wire {
    #[serde(default)]
    v: String,
    #[serde(default)]
    rv: i64,
    #[serde(default)]
    start: String,
}

/// Why a token cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Not ours.
    #[error("invalid continue token: continue key is not valid: {0}")]
    Malformed(String),
    /// Of another server.
    #[error(
        "invalid continue token: continue key is not valid: server does not recognize this encoded version {0}"
    )]
    Version(String),
}

impl Continue {
    /// As clients carry it.
    pub fn encode(&self) -> String {
        let wire = Wire {
            v: VERSION.to_owned(),
            rv: self
                .revision
                .and_then(|revision| i64::try_from(revision).ok())
                .unwrap_or(-1),
            // A zero byte: nothing sorts between the last key of a page and this.
            start: format!("/{}\0", self.start),
        };
        BASE64_URL_SAFE_NO_PAD.encode(serde_json::to_vec(&wire).unwrap_or_default())
    }

    /// What a client brought back, if it is one of ours.
    pub fn decode(token: &str) -> Result<Self, TokenError> {
        let malformed = |why: &dyn std::fmt::Display| TokenError::Malformed(why.to_string());
        let raw = BASE64_URL_SAFE_NO_PAD
            .decode(token)
            .map_err(|why| malformed(&why))?;
        let wire: Wire =
            serde_json::from_slice(&raw).map_err(|why| malformed(&strict::go_words(&why, &raw)))?;
        if wire.v != VERSION {
            return Err(TokenError::Version(wire.v));
        }
        if wire.rv == 0 {
            return Err(malformed(
                &"incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
            ));
        }
        let start = wire.start.strip_suffix('\0').unwrap_or(&wire.start);
        let start = start.strip_prefix('/').unwrap_or(start);
        if start.is_empty() {
            return Err(malformed(
                &"encoded start key empty (version meta.k8s.io/v1)",
            ));
        }
        if start.contains("..") && start.split('/').any(|part| part == "..") {
            return Err(malformed(&wire.start));
        }
        Ok(Self {
            revision: u64::try_from(wire.rv).ok(),
            start: start.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_survive() {
        for revision in [Some(7), None] {
            let token = Continue {
                revision,
                start: "ns/name".to_owned(),
            };
            assert_eq!(Continue::decode(&token.encode()), Ok(token));
        }
    }

    #[test]
    fn what_is_not_a_token_is_refused() {
        let of = |json: &str| BASE64_URL_SAFE_NO_PAD.encode(json);
        for bad in [
            "%%".to_owned(),
            of("{}"),
            of(r#"{"v":"v2","rv":1,"start":"a"}"#),
            of(r#"{"v":"meta.k8s.io/v1","rv":0,"start":"a"}"#),
            of(r#"{"v":"meta.k8s.io/v1","rv":1}"#),
            of(r#"{"v":"meta.k8s.io/v1","rv":1,"start":"../a"}"#),
            of(r#"{"v":1}"#),
        ] {
            assert!(Continue::decode(&bad).is_err(), "{bad}");
        }
    }
}
