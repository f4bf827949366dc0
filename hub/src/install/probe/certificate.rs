//! Whether the hub signs client certificates, and believes the ones it signed.

use super::token::whoami;
use super::{Missing, PATIENCE, POLL, Reach};
use common::chance::secret;
use common::client::Credentials;
use common::identity::SIGNER;
use common::tls::CertificateSwap;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestCondition, CertificateSigningRequestSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::json;
use tokio::time::{Instant, sleep};

/// A user that nothing is granted to.
const PROBE_USER: &str = "towline:probe";
/// The shortest lifetime that can be asked for.
const LIFETIME_SECONDS: i32 = 600;

const ENABLE_SIGNER: &str = "Start kube-controller-manager with --cluster-signing-cert-file and \
     --cluster-signing-key-file, and leave its controller csrsigning on. A hosted control plane that \
     does not sign kubernetes.io/kube-apiserver-client cannot be a hub.";
const SAME_CA: &str = "The CA of kube-controller-manager's --cluster-signing-cert-file must be one of \
     kube-apiserver's --client-ca-file.";
const APPROVE: &str = "This user must be able to create and approve CertificateSigningRequests.";

/// Asks for a certificate, approves it, and logs in by it.
pub(super) async fn probe(reach: &Reach) -> Result<(), Missing> {
    let requests: Api<CertificateSigningRequest> = Api::all(reach.client.clone());
    let defect = |error: rcgen::Error| {
        Missing::new(
            format!("failed to make a key: {error}"),
            "Report this as a defect.",
        )
    };
    let key = secret::key_pair().map_err(defect)?;
    let request = request(&key).map_err(defect)?;
    let created = requests
        .create(&PostParams::default(), &request)
        .await
        .map_err(|error| Missing::error("failed to create a request", &error, APPROVE))?;
    let name = created.name_any();
    let signed = signed(&requests, &name).await;
    // Should this fail, kube-controller-manager takes the request within hours; it is worth nothing.
    let _ = requests.delete(&name, &DeleteParams::default()).await;
    believed(reach, &signed?, &key).await
}

async fn signed(requests: &Api<CertificateSigningRequest>, name: &str) -> Result<Vec<u8>, Missing> {
    let approval = CertificateSigningRequestCondition {
        type_: "Approved".to_owned(),
        status: "True".to_owned(),
        reason: Some("TowlineProbe".to_owned()),
        message: Some("made and approved by `towline init` to try the signer".to_owned()),
        ..CertificateSigningRequestCondition::default()
    };
    let approval = Patch::Merge(json!({"status": {"conditions": [approval]}}));
    requests
        .patch_approval(name, &PatchParams::default(), &approval)
        .await
        .map_err(|error| Missing::error("failed to approve a request", &error, APPROVE))?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let seen = match requests.get(name).await {
            Ok(request) => {
                let status = request.status.unwrap_or_default();
                if let Some(ByteString(certificate)) = status.certificate {
                    return Ok(certificate);
                }
                let failed = status
                    .conditions
                    .unwrap_or_default()
                    .into_iter()
                    .find(|condition| condition.type_ == "Failed");
                if let Some(failed) = failed {
                    let why = failed.message.unwrap_or_default();
                    return Err(Missing::new(
                        format!("the signer refused: {why}"),
                        ENABLE_SIGNER,
                    ));
                }
                format!("no certificate was issued within {PATIENCE:?}")
            }
            Err(error) => format!(
                "failed to read a request: {}",
                common::errors::chain(&error)
            ),
        };
        if Instant::now() >= deadline {
            return Err(Missing::new(seen, ENABLE_SIGNER));
        }
        sleep(POLL).await;
    }
}

async fn believed(reach: &Reach, certificate: &[u8], key: &KeyPair) -> Result<(), Missing> {
    let attempt = "failed to log in by a certificate that was just issued";
    let swap = CertificateSwap::empty();
    swap.set(certificate, key.serialize_pem().as_bytes())
        .map_err(|error| Missing::error(attempt, &error, SAME_CA))?;
    let client = reach
        .somebody(Credentials::Certificate(swap))
        .map_err(|error| Missing::error(attempt, &error, SAME_CA))?;
    match whoami(&client).await {
        Ok((user, _)) if user == PROBE_USER => Ok(()),
        Ok((user, _)) => {
            let seen = format!("a certificate for {PROBE_USER:?} logs in as user {user:?}");
            Err(Missing::new(seen, SAME_CA))
        }
        Err(error) => Err(Missing::error(attempt, &error, SAME_CA)),
    }
}

fn request(key: &KeyPair) -> Result<CertificateSigningRequest, rcgen::Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, PROBE_USER);
    let pem = params.serialize_request(key)?.pem()?;
    Ok(CertificateSigningRequest {
        metadata: ObjectMeta {
            generate_name: Some("towline-probe-".to_owned()),
            ..ObjectMeta::default()
        },
        spec: CertificateSigningRequestSpec {
            request: ByteString(pem.into_bytes()),
            signer_name: SIGNER.to_owned(),
            usages: Some(vec![
                "digital signature".to_owned(),
                "client auth".to_owned(),
            ]),
            expiration_seconds: Some(LIFETIME_SECONDS),
            ..CertificateSigningRequestSpec::default()
        },
        ..CertificateSigningRequest::default()
    })
}
