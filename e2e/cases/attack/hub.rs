//! A hub under attack: one control plane, prepared, with its controllers; tokens, requests, agents.

use anyhow::{Context as _, Result, bail};
use common::api::cluster::Cluster;
use common::client::{ClientOptions, Credentials, HostPort, HubTarget, hub_client};
use common::env::Env;
use common::identity::{AgentSubject, BOOTSTRAP_GROUP, SIGNER};
use common::labels::{CLUSTER_ID, TOKEN_CLUSTER, TOKEN_REPLACE, TOKEN_USES};
use common::names::CLUSTER_NAMESPACE;
use common::proxy::ProxyChoice;
use common::secret::Secret as Hidden;
use common::tls::CertificateSwap;
use common::token::BootstrapToken;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use rand::distr::{Alphanumeric, SampleString as _};
use serde_json::{Value, json};
use std::time::Duration;

use super::request::{RequestBuilder, TestKey};
use crate::env::{Parts, Plane, PlaneOptions, Process, Scratch, Towline, wait_for, wait_for_some};

/// Nothing here takes longer unless it never happens.
pub(super) const SOON: Duration = Duration::from_secs(120);

/// What a token is good for.
#[derive(Debug, Clone, Copy)]
pub(super) struct TokenLimits<'a> {
    pub(super) cluster: Option<&'a str>,
    pub(super) replace: bool,
    pub(super) uses: usize,
    /// Seconds from now.
    pub(super) expires: i64,
}

impl Default for TokenLimits<'_> {
    fn default() -> Self {
        Self {
            cluster: None,
            replace: false,
            uses: 1,
            expires: 3600,
        }
    }
}

/// How a request ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Issued(String),
    Denied { reason: String, message: String },
}

impl Outcome {
    #[track_caller]
    pub(super) fn assert_denied(&self, case: &str, reason: &str) {
        match self {
            Self::Denied {
                reason: given,
                message,
            } => {
                assert_eq!(given, reason, "{case}: {message}");
            }
            Self::Issued(_) => panic!("{case}: was issued"),
        }
    }
}

/// A registered agent, as far as the hub can tell.
pub(super) struct Agent {
    pub(super) subject: AgentSubject,
    pub(super) client: Client,
}

impl Agent {
    /// Patches the status of a Cluster.
    pub(super) async fn patch_status(
        &self,
        cluster: &str,
        patch: Value,
    ) -> Result<DynamicObject, kube::Error> {
        let clusters: Api<DynamicObject> =
            Api::all_with(self.client.clone(), &ApiResource::erase::<Cluster>(&()));
        clusters
            .patch_status(cluster, &PatchParams::default(), &Patch::Merge(patch))
            .await
    }

    /// Patches a Cluster's Lease.
    pub(super) async fn patch_lease(
        &self,
        cluster: &str,
        patch: Value,
    ) -> Result<DynamicObject, kube::Error> {
        let leases = ApiResource::erase::<Lease>(&());
        let leases: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), CLUSTER_NAMESPACE, &leases);
        leases
            .patch(cluster, &PatchParams::default(), &Patch::Merge(patch))
            .await
    }

    /// Shows that it lives.
    pub(super) async fn renew_lease(&self) -> Result<()> {
        let now = k8s_openapi::jiff::Timestamp::now()
            .strftime("%Y-%m-%dT%H:%M:%S.%6fZ")
            .to_string();
        let name = self.subject.cluster.as_str();
        self.patch_lease(name, json!({"spec": {"renewTime": now}}))
            .await?;
        Ok(())
    }
}

/// The hub.
pub(super) struct Hub {
    pub(super) plane: Plane,
    pub(super) admin: Client,
    towline: Towline,
    process: Option<Process>,
    scratch: Scratch,
}

impl Hub {
    /// Starts a control plane, prepares it and runs `towline-hub`.
    pub(super) async fn start(name: &str) -> Result<Self> {
        Self::start_with(name, &[]).await
    }

    /// The same with more flags.
    pub(super) async fn start_with(name: &str, flags: &[&str]) -> Result<Self> {
        let mut hub = Self::prepared_with(name, flags).await?;
        if hub.plane.options.builtin {
            // The controllers are part of it.
            return Ok(hub);
        }
        let mut args = vec![
            "--leader-elect=false",
            "--health-probe-bind-address=0",
            "--metrics-bind-address=0",
        ];
        args.extend(flags);
        hub.process = Some(
            hub.towline
                .hub("towline-hub", &hub.plane.kubeconfig, &args)?,
        );
        Ok(hub)
    }

    /// A control plane that is prepared, without controllers unless it is built in.
    pub(super) async fn prepared(name: &str) -> Result<Self> {
        Self::prepared_with(name, &[]).await
    }

    async fn prepared_with(name: &str, flags: &[&str]) -> Result<Self> {
        common::tls::install_provider();
        let scratch = Scratch::new(name)?;
        let parts = Parts::from_env()?;
        let options = PlaneOptions::hub().hub_flags(flags);
        let plane = Plane::start(&parts, &scratch.join("hub"), options).await?;
        let towline = Towline::new(&scratch.join("towline"))?;
        if !plane.options.builtin {
            let kubeconfig = plane.kubeconfig.display().to_string();
            let init = ["init", "--kubeconfig", &kubeconfig];
            towline.cli(init).await?.ok()?;
        }
        let admin = plane.client().await?;
        Ok(Self {
            plane,
            admin,
            towline,
            process: None,
            scratch,
        })
    }

    /// Starts the killed hub again.
    pub(super) fn restart(&mut self) -> Result<()> {
        self.process
            .as_mut()
            .context("a hub that was started")?
            .restart()
    }

    /// Kills the hub.
    pub(super) fn kill(&mut self) {
        if let Some(process) = &mut self.process {
            process.kill();
        }
    }

    pub(super) async fn token(&self, limits: TokenLimits<'_>) -> Result<BootstrapToken> {
        let token = BootstrapToken::generate(&mut common::chance::secret::rng());
        let expires = k8s_openapi::jiff::Timestamp::now()
            + k8s_openapi::jiff::SignedDuration::from_secs(limits.expires);
        let mut annotations = json!({TOKEN_USES: limits.uses.to_string()});
        if let Some(cluster) = limits.cluster {
            annotations[TOKEN_CLUSTER] = json!(cluster);
        }
        if limits.replace {
            annotations[TOKEN_REPLACE] = json!("true");
        }
        let secret: Secret = serde_json::from_value(json!({
            "metadata": {"name": token.secret_name(), "annotations": annotations},
            "type": "bootstrap.kubernetes.io/token",
            "stringData": {
                "token-id": token.id(),
                "token-secret": token.secret().expose(),
                "expiration": expires.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
                "usage-bootstrap-authentication": "true",
                "usage-bootstrap-signing": "true",
                "auth-extra-groups": BOOTSTRAP_GROUP,
            },
        }))?;
        let secrets: Api<Secret> = Api::namespaced(self.admin.clone(), "kube-system");
        secrets.create(&PostParams::default(), &secret).await?;
        let client = self.client_of(&token)?;
        // The API server learns of a token by a watch of its own.
        wait_for("the token to be known", SOON, || {
            let api: Api<CertificateSigningRequest> = Api::all(client.clone());
            async move { Ok(api.get_opt("towline-none").await?.is_none()) }
        })
        .await?;
        Ok(token)
    }

    pub(super) fn client_of(&self, token: &BootstrapToken) -> Result<Client> {
        self.client_with(Credentials::Bearer(Hidden::new(
            token.bearer().expose().clone(),
        )))
    }

    pub(super) fn client_with(&self, credentials: Credentials) -> Result<Client> {
        let target = HubTarget {
            servers: vec![HostPort::parse(&self.plane.address())?],
            ca_pem: self.plane.pki.ca_pem().into_bytes(),
            proxy: ProxyChoice::default(),
            credentials,
        };
        let options = ClientOptions::new("agent");
        Ok(hub_client(&target, &options, &Env::system())?)
    }

    /// The client of who holds a certificate.
    pub(super) fn client_by(&self, certificate: &str, key: &TestKey) -> Result<Client> {
        let swap = CertificateSwap::empty();
        swap.set(certificate.as_bytes(), key.private_pem().as_bytes())?;
        self.client_with(Credentials::Certificate(swap))
    }

    /// Creates a request; whoever `client` is.
    pub(super) async fn ask(&self, client: &Client, draft: &Draft) -> Result<String, kube::Error> {
        let api: Api<CertificateSigningRequest> = Api::all(client.clone());
        api.create(&PostParams::default(), &draft.object())
            .await
            .map(|_| draft.name.clone())
    }

    /// How a request ends.
    pub(super) async fn outcome(&self, name: &str) -> Result<Outcome> {
        let api: Api<CertificateSigningRequest> = Api::all(self.admin.clone());
        wait_for_some(&format!("an answer to {name}"), SOON, || {
            let api = api.clone();
            async move { Ok(outcome_of(&api.get(name).await?)) }
        })
        .await
    }

    /// Asks with a token and waits.
    pub(super) async fn try_register(
        &self,
        token: &BootstrapToken,
        draft: &Draft,
    ) -> Result<Outcome> {
        let name = self.ask(&self.client_of(token)?, draft).await?;
        self.outcome(&name).await
    }

    /// Registers an agent rightfully and gives it its first sign of life.
    pub(super) async fn register(&self, cluster: &str, cluster_id: &str) -> Result<Agent> {
        let token = self.token(TokenLimits::default()).await?;
        self.register_by(&token, cluster, cluster_id).await
    }

    /// The same with a token.
    pub(super) async fn register_by(
        &self,
        token: &BootstrapToken,
        cluster: &str,
        cluster_id: &str,
    ) -> Result<Agent> {
        let key = TestKey::generate();
        let mut draft = Draft::new(RequestBuilder::rightful(&key, cluster).pem(&key));
        draft.cluster_id = Some(cluster_id.to_owned());
        match self.try_register(token, &draft).await? {
            Outcome::Issued(certificate) => Ok(Agent {
                subject: key.subject(cluster),
                client: self.client_by(&certificate, &key)?,
            }),
            Outcome::Denied { reason, message } => {
                bail!("{cluster} was denied: {reason}: {message}")
            }
        }
    }

    /// Ends everything; the test passed.
    pub(super) async fn stop(mut self) -> Result<()> {
        self.kill();
        self.plane.stop().await;
        drop(self.plane);
        self.scratch.passed();
        Ok(())
    }
}

/// The outcome, once there is one.
pub(super) fn outcome_of(csr: &CertificateSigningRequest) -> Option<Outcome> {
    let status = csr.status.as_ref()?;
    if let Some(certificate) = &status.certificate {
        return Some(Outcome::Issued(
            String::from_utf8_lossy(&certificate.0).into_owned(),
        ));
    }
    let denied = status
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == "Denied")?;
    Some(Outcome::Denied {
        reason: denied.reason.clone().unwrap_or_default(),
        message: denied.message.clone().unwrap_or_default(),
    })
}

/// A CSR to be.
#[derive(Debug, Clone)]
pub(super) struct Draft {
    pub(super) name: String,
    pub(super) cluster_id: Option<String>,
    pub(super) signer: String,
    pub(super) expiration_seconds: Option<i32>,
    pub(super) usages: Vec<&'static str>,
    pub(super) request: String,
    pub(super) labels: Option<Value>,
}

impl Draft {
    /// A rightful one around a request.
    pub(super) fn new(request: String) -> Self {
        Self {
            name: csr_name(),
            cluster_id: Some(format!("id-{}", csr_name())),
            signer: SIGNER.to_owned(),
            expiration_seconds: Some(3600),
            usages: vec!["digital signature", "client auth"],
            request,
            labels: None,
        }
    }

    pub(super) fn object(&self) -> CertificateSigningRequest {
        let mut object = json!({
            "metadata": {"name": self.name},
            "spec": {
                "signerName": self.signer,
                "usages": self.usages,
                "request": k8s_openapi::ByteString(self.request.clone().into_bytes()),
            },
        });
        if let Some(id) = &self.cluster_id {
            object["metadata"]["annotations"] = json!({CLUSTER_ID: id});
        }
        if let Some(labels) = &self.labels {
            object["metadata"]["labels"] = labels.clone();
        }
        if let Some(seconds) = self.expiration_seconds {
            object["spec"]["expirationSeconds"] = json!(seconds);
        }
        serde_json::from_value(object).expect("a CSR")
    }
}

/// A fresh name of the form that is allowed.
pub(super) fn csr_name() -> String {
    format!(
        "towline-{}",
        Alphanumeric
            .sample_string(&mut common::chance::secret::rng(), 32)
            .to_lowercase()
    )
}

/// The answer of the API server, or a panic that names the case.
#[track_caller]
pub(super) fn assert_code<T>(case: &str, result: Result<T, kube::Error>, code: u16) -> String {
    match result {
        Err(kube::Error::Api(status)) if status.code == code => status.message.clone(),
        Err(other) => panic!("{case}: {other}, not {code}"),
        Ok(_) => panic!("{case}: succeeded, not {code}"),
    }
}

/// Reads a kubernetes object of any kind as the administrator.
pub(super) async fn secret_exists(hub: &Hub, token: &BootstrapToken) -> Result<bool> {
    let secrets: Api<Secret> = Api::namespaced(hub.admin.clone(), "kube-system");
    Ok(secrets
        .get_opt(&token.secret_name())
        .await
        .context("a token's Secret")?
        .is_some())
}
