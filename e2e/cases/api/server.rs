//! A server under comparison: who may ask it, and what it answers, byte for byte.

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use std::collections::HashMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::{Mutex, mpsc};

use crate::env::Plane;

/// No answer takes longer, on however slow a machine.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
/// Events of a watch that wait for the case; a server whose events nobody reads has to wait too.
const LINES: usize = 4096;
/// What every request says of itself, unless its case says otherwise.
const USER_AGENT: &str = "suite/1.0 (lab)";

/// What runs behind a kubeconfig.
pub(crate) enum Behind {
    /// A plane of ours, of either kind.
    Plane(Box<Plane>),
    /// One that somebody else started.
    Elsewhere,
}

/// A server and its callers.
pub(crate) struct Server {
    /// How reports name it.
    pub(crate) label: String,
    behind: Behind,
    kubeconfig: PathBuf,
    admin: Client,
    anonymous: Client,
    others: Mutex<HashMap<String, Client>>,
}

/// An answer as it came.
#[derive(Debug, Clone, Default)]
pub(crate) struct Raw {
    /// The status code.
    pub(crate) code: u16,
    /// Headers, names in lower case; repeated ones in order.
    pub(crate) headers: Vec<(String, String)>,
    /// The body, inflated.
    pub(crate) body: Bytes,
}

/// A watch: its head, and what comes.
pub(crate) struct Watch {
    /// Status and headers; the body when it is no stream.
    pub(crate) head: Raw,
    /// Lines; closed at the end of the stream.
    pub(crate) lines: mpsc::Receiver<Bytes>,
}

impl Server {
    /// Of a kubeconfig whose user may do everything.
    pub(crate) async fn new(label: &str, kubeconfig: &Path, behind: Behind) -> Result<Self> {
        let file = Kubeconfig::read_from(kubeconfig)
            .with_context(|| format!("failed to read {}", kubeconfig.display()))?;
        Ok(Self {
            label: label.to_owned(),
            behind,
            kubeconfig: kubeconfig.to_owned(),
            admin: client(file.clone()).await?,
            anonymous: client(nobody(file)).await?,
            others: Mutex::default(),
        })
    }

    /// Its administrator's kubeconfig.
    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Whether it is ours.
    pub(crate) fn is_builtin(&self) -> bool {
        self.label == "builtin"
    }

    /// Sends a request and takes the whole answer.
    pub(crate) async fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(String, String)],
        body: Vec<u8>,
    ) -> Result<Raw> {
        let ask = async {
            let response = self.send(method, path, headers, body).await?;
            let (head, body) = response.into_parts();
            let body = body.collect().await.context("failed to read the answer")?;
            raw(&head, body.to_bytes())
        };
        tokio::time::timeout(ANSWER_WITHIN, ask)
            .await
            .with_context(|| format!("{}: no answer to {method} {path}", self.label))?
            .with_context(|| format!("{}: {method} {path}", self.label))
    }

    /// Opens a watch; lines are read as they come.
    pub(crate) async fn watch(&self, path: &str, headers: &[(String, String)]) -> Result<Watch> {
        let opened = self.send("GET", path, headers, Vec::new());
        let response = tokio::time::timeout(ANSWER_WITHIN, opened)
            .await
            .with_context(|| format!("{}: no answer to WATCH {path}", self.label))??;
        let (parts, mut body) = response.into_parts();
        let (sender, lines) = mpsc::channel(LINES);
        if !parts.status.is_success() {
            let whole = body.collect().await.context("failed to read the answer")?;
            let head = raw(&parts, whole.to_bytes())?;
            return Ok(Watch { head, lines });
        }
        tokio::spawn(async move {
            let mut buffer = Vec::new();
            while let Some(Ok(frame)) = body.frame().await {
                let Ok(data) = frame.into_data() else {
                    continue;
                };
                buffer.extend_from_slice(&data);
                while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = buffer.drain(..=end).collect();
                    // The case has ended: nobody reads on.
                    if sender.send(Bytes::from(line)).await.is_err() {
                        return;
                    }
                }
            }
        });
        let head = raw(&parts, Bytes::new())?;
        Ok(Watch { head, lines })
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(String, String)],
        body: Vec<u8>,
    ) -> Result<http::Response<Body>> {
        let caller = headers.iter().find(|(name, _)| name == "Caller");
        let caller = caller.map_or("", |(_, value)| value.as_str());
        let mut words = caller.split_whitespace();
        let mut builder = http::Request::builder().method(method).uri(path);
        let client = match words.next() {
            None => self.admin.clone(),
            Some("anonymous") => self.anonymous.clone(),
            Some("token") => {
                let token = words.next().unwrap_or_default();
                builder = builder.header("Authorization", format!("Bearer {token}"));
                self.anonymous.clone()
            }
            Some("cert") => self.by_certificate(caller).await?,
            Some(user) => {
                builder = builder.header("Impersonate-User", user);
                for group in words {
                    builder = builder.header("Impersonate-Group", group);
                }
                self.admin.clone()
            }
        };
        if !headers
            .iter()
            .any(|(name, _)| name.eq_ignore_ascii_case("user-agent"))
        {
            builder = builder.header("User-Agent", USER_AGENT);
        }
        for (name, value) in headers.iter().filter(|(name, _)| name != "Caller") {
            builder = builder.header(name, value);
        }
        let request = builder
            .body(Body::from(body))
            .with_context(|| format!("{method} {path} is no request"))?;
        client
            .send(request)
            .await
            .with_context(|| format!("{}: failed to send {method} {path}", self.label))
    }

    /// A client with a certificate: `cert USER GROUP…`.
    async fn by_certificate(&self, caller: &str) -> Result<Client> {
        let mut others = self.others.lock().await;
        if let Some(client) = others.get(caller) {
            return Ok(client.clone());
        }
        let mut words = caller.split_whitespace().skip(1);
        let user = words.next().context("a certificate is somebody's")?;
        let groups: Vec<&str> = words.collect();
        let path = self
            .kubeconfig
            .with_file_name(format!("suite-{user}.kubeconfig"));
        match &self.behind {
            Behind::Plane(plane) => plane.kubeconfig_for(&path, user, &groups)?,
            Behind::Elsewhere => bail!("nobody signs certificates of {}", self.label),
        };
        let file = Kubeconfig::read_from(&path)
            .with_context(|| format!("failed to read {}", path.display()))?;
        let client = client(file).await?;
        others.insert(caller.to_owned(), client.clone());
        Ok(client)
    }

    /// Ends what runs behind it.
    pub(crate) async fn stop(&mut self) {
        match &mut self.behind {
            Behind::Plane(plane) => plane.stop().await,
            Behind::Elsewhere => {}
        }
    }
}

async fn client(file: Kubeconfig) -> Result<Client> {
    // The project builds rustls with one provider, but this may come first.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
        .await
        .context("failed to use a kubeconfig")?;
    config.proxy_url = None;
    config.default_retry = false;
    Client::try_from(config).context("failed to make a client")
}

fn nobody(mut file: Kubeconfig) -> Kubeconfig {
    for user in &mut file.auth_infos {
        user.auth_info = Some(AuthInfo::default());
    }
    file
}

fn raw(head: &http::response::Parts, body: Bytes) -> Result<Raw> {
    let headers: Vec<(String, String)> = head
        .headers
        .iter()
        .map(|(name, value)| {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            (name.as_str().to_owned(), value)
        })
        .collect();
    let gzip = headers
        .iter()
        .any(|(n, v)| n == "content-encoding" && v == "gzip");
    let body = match gzip {
        false => body,
        true => {
            let mut whole = Vec::new();
            flate2::read::GzDecoder::new(&body[..])
                .read_to_end(&mut whole)
                .context("the answer is not gzip")?;
            Bytes::from(whole)
        }
    };
    Ok(Raw {
        code: head.status.as_u16(),
        headers,
        body,
    })
}
