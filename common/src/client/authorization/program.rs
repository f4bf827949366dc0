//! The program of a kubeconfig's user that gives its token: an exec plugin, as in client-go.

use super::super::pem;
use super::{CredentialsError, Held, bearer};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use chrono::{DateTime, TimeDelta, Utc};
use kube::config::{Cluster, ExecConfig, ExecInteractiveMode};
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::IsTerminal as _;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// How long before its end a program's token is renewed: longer than a request is under way.
const BEFORE_ITS_END: TimeDelta = TimeDelta::minutes(1);
/// How long a program may take that asks nobody.
const WITHIN: Duration = Duration::from_secs(60);
/// Extension of a cluster that is passed on to programs, as in client-go.
const PROGRAM_EXTENSION: &str = "client.authentication.k8s.io/exec";

/// A program, and what it is told.
pub(super) struct Program {
    exec: ExecConfig,
    info: Value,
}

impl Program {
    /// The one of a user; a cluster is told to it where the kubeconfig says so.
    pub(super) fn new(exec: &ExecConfig, cluster: Option<&Cluster>) -> Self {
        let cluster = cluster.filter(|_| exec.provide_cluster_info);
        Self {
            exec: exec.clone(),
            info: told(exec, cluster),
        }
    }

    /// Asks it for a token.
    pub(super) async fn run(&self, now: DateTime<Utc>) -> Result<Held, CredentialsError> {
        let exec = &self.exec;
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
            .env("KUBERNETES_EXEC_INFO", self.info.to_string())
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
}

/// Whether the program may ask whoever runs this.
fn interactive(exec: &ExecConfig) -> bool {
    exec.interactive_mode != Some(ExecInteractiveMode::Never) && std::io::stdin().is_terminal()
}

/// `KUBERNETES_EXEC_INFO`: what a program is told.
fn told(exec: &ExecConfig, cluster: Option<&Cluster>) -> Value {
    let mut spec = json!({"interactive": interactive(exec)});
    if let Some(cluster) = cluster {
        let authority = cluster.certificate_authority.as_deref();
        let authority = pem(cluster.certificate_authority_data.as_deref(), authority);
        let extensions = cluster.extensions.iter().flatten();
        let passed = extensions.filter(|it| it.name == PROGRAM_EXTENSION);
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
                passed
                    .map(|it| it.extension.clone())
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

#[cfg(test)]
mod tests {
    use super::super::Authorization;
    use super::super::tests::{clock, of, said, user};
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

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
