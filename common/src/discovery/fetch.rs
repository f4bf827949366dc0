//! One anonymous GET of cluster-info, over TLS that is or is not verified.

use crate::client::{CONNECT_TIMEOUT, Connector, HostPort, Pool, Problem, classify_error};
use crate::env::Env;
use crate::proxy::ProxyChoice;
use crate::tls::{self, ClientTls};
use bytes::Bytes;
use chrono::{DateTime, Utc};
use http::header::{ACCEPT, DATE, USER_AGENT};
use http::{HeaderValue, Request};
use http_body_util::{BodyExt as _, Limited};
use kube::client::Body;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
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
pub(super) async fn unverified(
    address: &HostPort,
    proxy: &ProxyChoice,
    env: &Env,
) -> Result<Answer, Problem> {
    let seen = Arc::new(AcceptAndNote::default());
    let tls = ClientTls::with_verifier(seen.clone(), None, &env.clock)
        .map_err(|error| Problem::Other(error.to_string()))?;
    let mut answer = with(address, proxy, tls, env).await?;
    answer.issuer = seen.issuer();
    Ok(answer)
}

/// Asks over this TLS.
pub(super) async fn with(
    address: &HostPort,
    proxy: &ProxyChoice,
    tls: ClientTls,
    env: &Env,
) -> Result<Answer, Problem> {
    let source = Arc::new(move || Ok(tls.clone()));
    let connector = Connector::new(vec![address.clone()], proxy.clone(), source, env);
    let pool = Pool::new(&connector);
    let request = Request::get(format!("{}{PATH}", address.url()))
        .header(ACCEPT, HeaderValue::from_static("application/json"))
        .header(
            USER_AGENT,
            HeaderValue::from_static(concat!("towline-discovery/", env!("CARGO_PKG_VERSION"))),
        )
        .body(Body::empty())
        .map_err(|error| Problem::Other(error.to_string()))?;
    let exchange = async {
        let answer = pool
            .request(request)
            .await
            .map_err(|error| classify_error(error.as_ref()))?;
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
