//! The `Authorization` header of a client's requests: fixed, or renewed by a file or a program.

mod program;

use crate::time::SharedClock;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use chrono::{DateTime, TimeDelta, Utc};
use http::HeaderValue;
use kube::config::{AuthInfo, Cluster};
use program::Program;
use secrecy::ExposeSecret as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// How long the token of a file is taken for the one that it holds, as in client-go.
const READ_AGAIN: TimeDelta = TimeDelta::minutes(1);
/// Why a user of a kubeconfig cannot say who it is.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// The token or password cannot be a header.
    #[error("the user's token or password has characters that no header may have")]
    Header,
    /// The file of the token.
    #[error("failed to read tokenFile {0}")]
    TokenFile(String, #[source] std::io::Error),
    /// A way that kubectl has no more, or none that is known.
    #[error("auth-provider {0:?} is not supported; use an exec plugin")]
    Provider(String),
    /// There is no program to run.
    #[error("exec of the user names no command")]
    NoCommand,
    /// The program wants somebody to answer it.
    #[error("{0} asks questions (interactiveMode: Always), and there is no terminal")]
    NoTerminal(String),
    /// The program does not run.
    #[error("failed to run {command}{}", hint.as_deref().map(|it| format!(" ({it})")).unwrap_or_default())]
    Run {
        /// Its name.
        command: String,
        /// What the kubeconfig says of how to install it.
        hint: Option<String>,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The program ended with an error.
    #[error("{0} failed: {1}")]
    Failed(String, std::process::ExitStatus),
    /// The program does not end.
    #[error("{0} did not answer within {1:?}")]
    TooLong(String, Duration),
    /// The program's answer is not one.
    #[error("{0} did not answer with an ExecCredential")]
    Answer(String, #[source] serde_yaml::Error),
    /// The program gives nothing that can be used.
    #[error("{0} gave no token; client certificates of programs are not supported")]
    NoToken(String),
    /// The program's token has no end that can be read.
    #[error("{0} gave the expirationTimestamp {1:?}")]
    Expiry(String, String),
}

/// What a client says in the header.
#[derive(Clone)]
pub(super) enum Authorization {
    /// Nothing: nobody, or a certificate says who it is.
    None,
    /// Always the same.
    Fixed(HeaderValue),
    /// What somebody else renews.
    Renewed(Arc<Renewed>),
}

/// A token, and where the next one comes from.
pub(super) struct Renewed {
    source: Source,
    clock: SharedClock,
    held: Mutex<Option<Held>>,
}

enum Source {
    File(PathBuf),
    Program(Box<Program>),
}

struct Held {
    header: HeaderValue,
    since: DateTime<Utc>,
    /// None: until it is refused.
    until: Option<DateTime<Utc>>,
}

impl Authorization {
    /// That of a user of a kubeconfig: a password, a token, one of a file, or a program's, in kubectl's order.
    pub(super) fn of(
        user: &AuthInfo,
        cluster: Option<&Cluster>,
        clock: &SharedClock,
    ) -> Result<Self, CredentialsError> {
        let filled = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        if let Some(provider) = &user.auth_provider {
            // What is left of it in kubectl is one that begins with a token.
            let token = provider.config.get("id-token");
            return match token.filter(|_| provider.name == "oidc") {
                Some(token) => bearer(token).map(Self::Fixed),
                None => Err(CredentialsError::Provider(provider.name.clone())),
            };
        }
        if let (Some(name), Some(password)) = (&user.username, &user.password) {
            let both = format!("{name}:{}", password.expose_secret());
            return header(&format!("Basic {}", BASE64_STANDARD.encode(both))).map(Self::Fixed);
        }
        if let Some(token) = user
            .token
            .as_ref()
            .map(|it| it.expose_secret())
            .and_then(filled)
        {
            return bearer(&token).map(Self::Fixed);
        }
        let source = if let Some(path) = user.token_file.as_deref().and_then(filled) {
            Source::File(path.into())
        } else if let Some(exec) = &user.exec {
            Source::Program(Box::new(Program::new(exec, cluster)))
        } else {
            return Ok(Self::None);
        };
        Ok(Self::Renewed(Arc::new(Renewed {
            source,
            clock: clock.clone(),
            held: Mutex::new(None),
        })))
    }

    /// The header of a request that is sent now.
    pub(super) async fn header(&self) -> Result<Option<HeaderValue>, CredentialsError> {
        match self {
            Self::None => Ok(None),
            Self::Fixed(header) => Ok(Some(header.clone())),
            Self::Renewed(renewed) => renewed.header().await.map(Some),
        }
    }

    /// The server answered 401 to this header: the next request asks for another one.
    pub(super) async fn refused(&self, header: &HeaderValue) {
        if let Self::Renewed(renewed) = self {
            let mut held = renewed.held.lock().await;
            held.take_if(|held| held.header == header);
        }
    }
}

impl Renewed {
    /// One at a time: whoever comes meanwhile waits, and takes what the first one got.
    async fn header(&self) -> Result<HeaderValue, CredentialsError> {
        let mut held = self.held.lock().await;
        let now = self.clock.now();
        if let Some(held) = &*held
            && held.is_good(now)
        {
            return Ok(held.header.clone());
        }
        let next = match &self.source {
            Source::File(path) => match tokio::fs::read_to_string(path).await {
                Ok(token) => Held {
                    header: bearer(token.trim())?,
                    since: now,
                    until: Some(now + READ_AGAIN),
                },
                // It may have been there for the start alone.
                Err(error) => match &mut *held {
                    Some(held) => {
                        held.since = now;
                        held.until = Some(now + READ_AGAIN);
                        return Ok(held.header.clone());
                    }
                    None => {
                        let path = path.display().to_string();
                        return Err(CredentialsError::TokenFile(path, error));
                    }
                },
            },
            Source::Program(program) => program.run(now).await?,
        };
        Ok(held.insert(next).header.clone())
    }
}

impl Held {
    /// A clock that was set back tells nothing of how long it was held.
    fn is_good(&self, now: DateTime<Utc>) -> bool {
        now >= self.since && self.until.is_none_or(|until| now < until)
    }
}

fn header(text: &str) -> Result<HeaderValue, CredentialsError> {
    let mut value = HeaderValue::from_str(text).map_err(|_| CredentialsError::Header)?;
    value.set_sensitive(true);
    Ok(value)
}

fn bearer(token: &str) -> Result<HeaderValue, CredentialsError> {
    header(&format!("Bearer {token}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::SimClock;

    pub(super) fn clock() -> (SharedClock, DateTime<Utc>) {
        let base = DateTime::from_timestamp(1_800_000_000, 0).expect("a time");
        (Arc::new(SimClock::starting_at(base)), base)
    }

    pub(super) fn user(text: &str) -> AuthInfo {
        serde_yaml::from_str(text).expect("a user")
    }

    pub(super) fn of(text: &str) -> Result<Authorization, CredentialsError> {
        Authorization::of(&user(text), None, &clock().0)
    }

    pub(super) async fn said(who: &Authorization) -> String {
        let header = who.header().await.expect("a header").expect("somebody");
        assert!(header.is_sensitive());
        header.to_str().expect("text").to_owned()
    }

    #[tokio::test]
    async fn the_order_is_that_of_kubectl() {
        let all = "{username: a, password: b, token: c, tokenFile: d}";
        assert_eq!(said(&of(all).expect("sound")).await, "Basic YTpi");
        assert_eq!(
            said(&of("{token: c, tokenFile: d}").expect("sound")).await,
            "Bearer c"
        );
        assert!(
            of("{}")
                .expect("sound")
                .header()
                .await
                .expect("sound")
                .is_none()
        );
        let single = "{auth-provider: {name: oidc, config: {id-token: e}}}";
        assert_eq!(said(&of(single).expect("sound")).await, "Bearer e");
        let gone = of("{auth-provider: {name: gcp, config: {}}}");
        assert!(matches!(gone, Err(CredentialsError::Provider(name)) if name == "gcp"));
        assert!(matches!(
            of("{token: \"a\\nb\"}"),
            Err(CredentialsError::Header)
        ));
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_is_read_again_each_minute_and_may_go_after_the_start() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("token");
        let text = format!("{{tokenFile: {}}}", path.display());
        let missing = of(&text).expect("sound").header().await;
        assert!(matches!(missing, Err(CredentialsError::TokenFile(..))));

        std::fs::write(&path, "one\n").expect("written");
        let who = of(&text).expect("sound");
        assert_eq!(said(&who).await, "Bearer one");
        std::fs::write(&path, "two").expect("written");
        assert_eq!(said(&who).await, "Bearer one");
        // Refused: nobody waits for the minute.
        let old = HeaderValue::from_static("Bearer one");
        who.refused(&old).await;
        assert_eq!(said(&who).await, "Bearer two");
        who.refused(&old).await;
        std::fs::write(&path, "three").expect("written");
        assert_eq!(said(&who).await, "Bearer two");
        tokio::time::advance(Duration::from_secs(61)).await;
        assert_eq!(said(&who).await, "Bearer three");
        std::fs::remove_file(&path).expect("removed");
        tokio::time::advance(Duration::from_secs(61)).await;
        assert_eq!(said(&who).await, "Bearer three");
    }
}
