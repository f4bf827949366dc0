//! The `Authorization` header of a client's requests: fixed, or renewed by a file or a program.

use crate::time::SharedClock;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use chrono::{DateTime, TimeDelta, Utc};
use http::HeaderValue;
use kube::config::{AuthInfo, Cluster, ExecConfig, ExecInteractiveMode};
use secrecy::ExposeSecret as _;
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::process::Command;
use tokio::sync::Mutex;

use super::pem;

/// How long the token of a file is taken for the one that it holds, as in client-go.
const READ_AGAIN: TimeDelta = TimeDelta::minutes(1);
/// How long before its end a program's token is renewed: longer than a request is under way.
const BEFORE_ITS_END: TimeDelta = TimeDelta::minutes(1);
/// How long a program may take that asks nobody.
const WITHIN: Duration = Duration::from_secs(60);
/// Extension of a cluster that is passed on to programs, as in client-go.
const PROGRAM_EXTENSION: &str = "client.authentication.k8s.io/exec";

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
    Program(Box<ExecConfig>, Value),
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
            let cluster = cluster.filter(|_| exec.provide_cluster_info);
            Source::Program(Box::new(exec.clone()), asked(exec, cluster))
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
            Source::Program(exec, info) => run(exec, info, now).await?,
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

/// Whether the program may ask whoever runs this.
fn interactive(exec: &ExecConfig) -> bool {
    exec.interactive_mode != Some(ExecInteractiveMode::Never) && std::io::stdin().is_terminal()
}

/// `KUBERNETES_EXEC_INFO`: what a program is told.
fn asked(exec: &ExecConfig, cluster: Option<&Cluster>) -> Value {
    let mut spec = json!({"interactive": interactive(exec)});
    if let Some(cluster) = cluster {
        let authority = cluster.certificate_authority.as_deref();
        let authority = pem(cluster.certificate_authority_data.as_deref(), authority);
        let extensions = cluster.extensions.iter().flatten();
        let told = extensions.filter(|it| it.name == PROGRAM_EXTENSION);
        let fields = [
            ("server", json!(cluster.server)),
            ("tls-server-name", json!(cluster.tls_server_name)),
            (
                "insecure-skip-tls-verify",
                json!(cluster.insecure_skip_tls_verify),
            ),
            (
                "certificate-authority-data",
                json!(
                    authority
                        .ok()
                        .flatten()
                        .map(|pem| BASE64_STANDARD.encode(pem))
                ),
            ),
            ("proxy-url", json!(cluster.proxy_url)),
            ("disable-compression", json!(cluster.disable_compression)),
            (
                "config",
                told.map(|it| it.extension.clone())
                    .next()
                    .unwrap_or_default(),
            ),
        ];
        let fields = fields.into_iter().filter(|(_, value)| !value.is_null());
        spec["cluster"] = fields
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
    }
    json!({"apiVersion": exec.api_version, "kind": "ExecCredential", "spec": spec})
}

/// What a program answers; the rest of an ExecCredential is not asked for.
#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    status: Option<AnswerStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AnswerStatus {
    token: Option<String>,
    expiration_timestamp: Option<String>,
}

async fn run(
    exec: &ExecConfig,
    info: &Value,
    now: DateTime<Utc>,
) -> Result<Held, CredentialsError> {
    let name = exec.command.clone().ok_or(CredentialsError::NoCommand)?;
    if exec.interactive_mode == Some(ExecInteractiveMode::Always) && !interactive(exec) {
        return Err(CredentialsError::NoTerminal(name));
    }
    let mut command = Command::new(&name);
    command.args(exec.args.iter().flatten());
    for pair in exec.env.iter().flatten() {
        if let (Some(name), Some(value)) = (pair.get("name"), pair.get("value")) {
            command.env(name, value);
        }
    }
    let input = if interactive(exec) {
        Stdio::inherit()
    } else {
        Stdio::null()
    };
    command
        .env("KUBERNETES_EXEC_INFO", info.to_string())
        .stdin(input)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .kill_on_drop(true);
    let output = command.spawn().map_err(|source| CredentialsError::Run {
        command: name.clone(),
        hint: exec.install_hint.clone(),
        source,
    });
    let output = output?.wait_with_output();
    // Whoever is asked may take his time.
    let output = if interactive(exec) {
        output.await
    } else {
        let output = tokio::time::timeout(WITHIN, output).await;
        output.map_err(|_| CredentialsError::TooLong(name.clone(), WITHIN))?
    };
    let output = output.map_err(|source| CredentialsError::Run {
        command: name.clone(),
        hint: None,
        source,
    })?;
    if !output.status.success() {
        return Err(CredentialsError::Failed(name, output.status));
    }
    // Some answer in YAML, which client-go reads as well.
    let answer: Answer = serde_yaml::from_slice(&output.stdout)
        .map_err(|error| CredentialsError::Answer(name.clone(), error))?;
    let status = answer.status;
    let (token, end) = status.map_or((None, None), |it| (it.token, it.expiration_timestamp));
    let token = token.filter(|token| !token.is_empty());
    let token = token.ok_or_else(|| CredentialsError::NoToken(name.clone()))?;
    let end = end.map(|text| match DateTime::parse_from_rfc3339(&text) {
        Ok(end) => Ok(end.to_utc() - BEFORE_ITS_END),
        Err(_) => Err(CredentialsError::Expiry(name, text)),
    });
    Ok(Held {
        header: bearer(&token)?,
        since: now,
        until: end.transpose()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::SimClock;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    fn clock() -> (SharedClock, DateTime<Utc>) {
        let base = DateTime::from_timestamp(1_800_000_000, 0).expect("a time");
        (Arc::new(SimClock::starting_at(base)), base)
    }

    fn user(text: &str) -> AuthInfo {
        serde_yaml::from_str(text).expect("a user")
    }

    fn of(text: &str) -> Result<Authorization, CredentialsError> {
        Authorization::of(&user(text), None, &clock().0)
    }

    async fn said(who: &Authorization) -> String {
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

    fn program(dir: &Path, script: &str) -> String {
        let path = dir.join("login");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("written");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("allowed");
        format!(
            "{{exec: {{apiVersion: client.authentication.k8s.io/v1, command: {}, args: [who], \
             env: [{{name: REALM, value: shop}}], installHint: get it, interactiveMode: IfAvailable, provideClusterInfo: true}}}}",
            path.display()
        )
    }

    #[tokio::test]
    async fn a_program_is_asked_again_before_its_token_ends() {
        let dir = tempfile::tempdir().expect("a folder");
        let (clock, base) = clock();
        let told = dir.path().join("told");
        let end = (base + TimeDelta::minutes(10)).to_rfc3339();
        let script = format!(
            "echo run >> {told}; printf '%s' \"$KUBERNETES_EXEC_INFO\" > {told}.info\n\
             echo '{{\"status\": {{\"token\": \"'$1-$REALM-$(wc -l < {told} | tr -d ' ')'\", \"expirationTimestamp\": \"{end}\"}}}}'",
            told = told.display()
        );
        let cluster: Cluster = serde_yaml::from_str(
            "{server: 'https://one', certificate-authority-data: Y2E=, \
             extensions: [{name: client.authentication.k8s.io/exec, extension: {audience: x}}]}",
        )
        .expect("a cluster");
        let user = user(&program(dir.path(), &script));
        let who = Authorization::of(&user, Some(&cluster), &clock).expect("sound");
        assert_eq!(said(&who).await, "Bearer who-shop-1");
        assert_eq!(said(&who).await, "Bearer who-shop-1");
        let info = std::fs::read_to_string(told.with_extension("info")).expect("told");
        let info: Value = serde_json::from_str(&info).expect("JSON");
        assert_eq!(info["apiVersion"], "client.authentication.k8s.io/v1");
        let known = json!({"server": "https://one", "certificate-authority-data": "Y2E=", "config": {"audience": "x"}});
        assert_eq!(info["spec"]["cluster"], known);

        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(9 * 60)).await;
        tokio::time::resume();
        assert_eq!(said(&who).await, "Bearer who-shop-2");
    }

    #[tokio::test]
    async fn what_a_program_fails_at_is_said() {
        let dir = tempfile::tempdir().expect("a folder");
        let asked = async |script: &str| {
            let who = of(&program(dir.path(), script)).expect("sound");
            who.header().await.expect_err("no token").to_string()
        };
        let name = dir.path().join("login").display().to_string();
        assert_eq!(
            asked("exit 3").await,
            format!("{name} failed: exit status: 3")
        );
        assert_eq!(
            asked("echo hello").await,
            format!("{name} did not answer with an ExecCredential")
        );
        let certificate = "echo '{status: {clientCertificateData: x, clientKeyData: y}}'";
        let without =
            format!("{name} gave no token; client certificates of programs are not supported");
        assert_eq!(asked(certificate).await, without);
        let never = "echo '{status: {token: x, expirationTimestamp: soon}}'";
        assert_eq!(
            asked(never).await,
            format!("{name} gave the expirationTimestamp \"soon\"")
        );
        std::fs::remove_file(dir.path().join("login")).expect("removed");
        let who = of(&format!(
            "{{exec: {{command: {name}, installHint: get it}}}}"
        ))
        .expect("sound");
        let missing = who.header().await.expect_err("no program").to_string();
        assert_eq!(missing, format!("failed to run {name} (get it)"));
        assert!(matches!(
            of("{exec: {}}").expect("sound").header().await,
            Err(CredentialsError::NoCommand)
        ));
    }
}
