//! One anonymous GET of cluster-info, over TLS that is or is not verified.

use crate::client::{CONNECT_TIMEOUT, Connector, HostPort, Problem, classify_error};
use crate::proxy::ProxyChoice;
use crate::time::SharedClock;
use crate::tls;
use bytes::Bytes;
use chrono::{DateTime, Utc};
use http::header::{ACCEPT, DATE, USER_AGENT};
use http::{HeaderValue, Request};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const PATH: &str = "/api/v1/namespaces/kube-public/configmaps/cluster-info";
/// Largest answer that is read: API servers take no larger object.
const ANSWER_MAX: usize = 2 * 1024 * 1024;
/// How long the answer may take once connected.
const TIMEOUT: Duration = Duration::from_secs(10);

/// What a server answered.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) date: Option<DateTime<Utc>>,
    pub(super) body: Bytes,
    /// Who issued the server's certificate, for messages.
    pub(super) issuer: String,
}

/// Asks whoever answers.
pub(super) async fn unverified(address: &HostPort, proxy: &ProxyChoice) -> Result<Answer, Problem> {
    let seen = Arc::new(AcceptAndNote::default());
    let config = tls::client_config_with(seen.clone(), None)
        .map_err(|error| Problem::Other(error.to_string()))?;
    let mut answer = with(address, proxy, config).await?;
    answer.issuer = seen.issuer();
    Ok(answer)
}

/// TLS that trusts `roots` and takes the time from `clock`.
pub(super) fn verifying(
    roots: &[CertificateDer<'_>],
    clock: &SharedClock,
) -> Result<ClientConfig, tls::Error> {
    let mut config = tls::client_config(roots, None)?;
    config.time_provider = Arc::new(ClockTime(clock.clone()));
    Ok(config)
}

/// Asks over this TLS.
pub(super) async fn with(
    address: &HostPort,
    proxy: &ProxyChoice,
    config: ClientConfig,
) -> Result<Answer, Problem> {
    let config = Arc::new(config);
    let source = Arc::new(move || Ok(config.clone()));
    let connector = Connector::new(vec![address.clone()], proxy.clone(), source);
    let client = Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .build::<_, Empty<Bytes>>(connector);
    let request = Request::get(format!("{}{PATH}", address.url()))
        .header(ACCEPT, HeaderValue::from_static("application/json"))
        .header(
            USER_AGENT,
            HeaderValue::from_static(concat!("towline-discovery/", env!("CARGO_PKG_VERSION"))),
        )
        .body(Empty::new())
        .map_err(|error| Problem::Other(error.to_string()))?;
    let exchange = async {
        let answer = client
            .request(request)
            .await
            .map_err(|error| classify_error(&error))?;
        let status = answer.status().as_u16();
        let date = answer.headers().get(DATE).and_then(date);
        let body = Limited::new(answer.into_body(), ANSWER_MAX).collect().await;
        let body = body
            .map_err(|error| classify_error(error.as_ref()))?
            .to_bytes();
        Ok(Answer {
            status,
            date,
            body,
            issuer: String::new(),
        })
    };
    let limit = CONNECT_TIMEOUT + TIMEOUT;
    tokio::time::timeout(limit, exchange)
        .await
        .unwrap_or_else(|_| {
            Err(Problem::ConnectTimeout {
                address: address.clone(),
                after: limit,
            })
        })
}

fn date(value: &HeaderValue) -> Option<DateTime<Utc>> {
    let parsed = DateTime::parse_from_rfc2822(value.to_str().ok()?).ok()?;
    Some(parsed.to_utc())
}

/// Accepts every certificate and keeps the last one. Only here, and only because nothing of the answer is
/// believed on its account.
#[derive(Debug, Default)]
struct AcceptAndNote(Mutex<Option<CertificateDer<'static>>>);

impl AcceptAndNote {
    fn issuer(&self) -> String {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let issuer = seen.as_ref().and_then(|der| tls::issuer(der).ok());
        issuer.unwrap_or_else(|| "nobody readable".to_owned())
    }
}

impl ServerCertVerifier for AcceptAndNote {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *seen = Some(end_entity.clone().into_owned());
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = ring::default_provider().signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, &algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = ring::default_provider().signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// TLS by our clock, so that tests can turn it.
struct ClockTime(SharedClock);

impl TimeProvider for ClockTime {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = u64::try_from(self.0.now().timestamp()).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}

impl fmt::Debug for ClockTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClockTime")
    }
}
