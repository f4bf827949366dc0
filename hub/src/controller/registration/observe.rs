//! Reads what the decision on one certificate request needs, from the API server itself.
//!
//! What decides comes from no cache: a name, an id and a token must be free now. Requests are taken one at a
//! time, so what was read holds until the next write of this controller, but for operators, against
//! whom every write carries what it was decided from. Who has an id is asked where a name and an id are
//! written, as an API server looks at every Cluster for it; before, so that a refusal costs no use of a token,
//! where the controllers' own index knows of somebody.

use super::Error;
use super::alive::{Silent, are_alive};
use crate::approver::{
    CsrView, NotOurCertificate, RegistrationRequest, Verdict, issued_subject, judge,
};
use crate::permissions;
use crate::token_secret::{Origin, TOKEN_NAMESPACE, Token};
use crate::world::Index;
use chrono::{DateTime, Utc};
use common::api::cluster::Cluster;
use common::identity::{AgentSubject, RegistrationId};
use common::labels::{
    CERTIFICATE_END, CLOSING_WATCHES, CLUSTER_ID, JOINED, QUARANTINED_SINCE, REGISTERED_BY,
    REGISTRATION_ID,
};
use common::names::ClusterName;
use common::time::from_time;
use common::token::secret_name;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::{ApiResource, ObjectMeta};
use kube::{Client, ResourceExt as _};
use serde::Deserialize;

/// What is known when a step is decided.
#[derive(Debug, Clone)]
pub(super) struct Observed {
    /// The judge's word on the request.
    pub verdict: Verdict,
    /// When the CSR was made.
    pub created: DateTime<Utc>,
    /// How far it has come.
    pub progress: Progress,
    /// Its token, for a registration.
    pub token: TokenFacts,
    /// The Cluster of the requested name.
    pub cluster: Option<ClusterFacts>,
    /// Another Cluster with the requested cluster id.
    pub same_id: Option<ClusterName>,
    /// The RoleBindings of others in the execution namespace; `None` when it does not exist.
    pub namespace: Option<Vec<String>>,
    /// Whether this pass has put the permissions in place.
    pub granted: bool,
    /// Whether every registration by this token has shown a sign of life.
    pub agents_alive: bool,
    /// When the certificate ends that was issued.
    pub certificate_end: Option<DateTime<Utc>>,
}

/// How far a CSR has come.
#[derive(Debug, Clone)]
pub(super) enum Progress {
    /// Nobody has decided.
    Pending,
    /// Denied, or failed.
    Refused,
    /// Approved, not signed.
    Approved,
    /// Signed.
    Issued(Certificate),
}

/// Whom the issued certificate names.
pub(super) type Certificate = Result<AgentSubject, NotOurCertificate>;

/// The token a CSR was made with.
#[derive(Debug, Clone)]
pub(super) enum TokenFacts {
    /// There is no such Secret (or no token was used).
    Missing,
    /// There is one, but it says nothing that may be relied on.
    Unusable(String),
    /// There is one.
    Usable(Box<Token>),
}

/// What matters of a Cluster; its status, which an agent writes, is not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClusterFacts {
    /// Name.
    pub name: ClusterName,
    /// UID.
    pub uid: String,
    /// resourceVersion.
    pub resource_version: String,
    /// It has a deletionTimestamp.
    pub deleting: bool,
    /// `spec.id`, unless empty.
    pub id: Option<String>,
    /// The registration in force.
    pub registration: Option<RegistrationId>,
    /// The token that it came by, where that is noted.
    pub registered_by: Option<Origin>,
    /// The registration whose watches must end first; not an id when it is not known.
    pub closing_watches: Option<String>,
    /// Its rights are withheld.
    pub quarantined: bool,
    /// `towline join` made it: its agent runs beside the hub.
    pub joined: bool,
    /// When the last certificate ends that was issued to its agent, as noted on it.
    pub certificate_end: Option<DateTime<Utc>>,
}

/// The only part of a Cluster's content that is decoded.
#[derive(Deserialize)]
struct ClusterContent {
    spec: ClusterId,
}

#[derive(Deserialize)]
struct ClusterId {
    id: Option<String>,
}

/// The objects of Clusters, without their content's types.
pub(crate) fn clusters(client: &Client) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &ApiResource::erase::<Cluster>(&()))
}

/// Judges the object alone.
pub(super) fn verdict(csr: &CertificateSigningRequest) -> Verdict {
    let spec = &csr.spec;
    let annotations = csr.metadata.annotations.as_ref();
    judge(&CsrView {
        name: csr.metadata.name.as_deref().unwrap_or_default(),
        cluster_id: annotations
            .and_then(|all| all.get(CLUSTER_ID))
            .map(String::as_str),
        signer: &spec.signer_name,
        expiration_seconds: spec.expiration_seconds,
        usages: spec.usages.as_deref().unwrap_or_default(),
        request: &spec.request.0,
        username: spec.username.as_deref().unwrap_or_default(),
        groups: spec.groups.as_deref().unwrap_or_default(),
    })
}

/// How far the object has come.
pub(super) fn progress(csr: &CertificateSigningRequest) -> Progress {
    let status = csr.status.as_ref();
    let has = |type_: &str| {
        let conditions = status.and_then(|s| s.conditions.as_ref());
        conditions.is_some_and(|all| all.iter().any(|condition| condition.type_ == type_))
    };
    let certificate = status
        .and_then(|s| s.certificate.as_ref())
        .filter(|c| !c.0.is_empty());
    match certificate {
        Some(certificate) => Progress::Issued(issued_subject(&certificate.0)),
        None if has("Denied") || has("Failed") => Progress::Refused,
        None if has("Approved") => Progress::Approved,
        None => Progress::Pending,
    }
}

/// When the certificate ends that a request was answered with.
fn certificate_end(csr: &CertificateSigningRequest) -> Option<DateTime<Utc>> {
    let certificate = csr.status.as_ref()?.certificate.as_ref()?;
    let (_, pem) = x509_parser::pem::parse_x509_pem(&certificate.0).ok()?;
    let read = pem.parse_x509().ok()?;
    DateTime::from_timestamp(read.validity().not_after.timestamp(), 0)
}

/// Reads everything about a CSR that was judged ours; `ids` are names of Clusters by their id, `silent` is which agents
/// were waited for in vain.
pub(super) async fn observe(
    client: &Client,
    ids: &Index<Box<str>>,
    silent: &Silent,
    csr: &CertificateSigningRequest,
    granted: bool,
) -> Result<Observed, Error> {
    let created = csr.metadata.creation_timestamp.as_ref().and_then(from_time);
    let mut observed = Observed {
        verdict: verdict(csr),
        created: created.unwrap_or(DateTime::<Utc>::MIN_UTC),
        progress: progress(csr),
        token: TokenFacts::Missing,
        cluster: None,
        same_id: None,
        namespace: None,
        granted,
        agents_alive: false,
        certificate_end: certificate_end(csr),
    };
    let settled = matches!(observed.progress, Progress::Refused | Progress::Approved);
    let (subject, request) = match &observed.verdict {
        _ if settled => return Ok(observed),
        Verdict::Ignore | Verdict::Deny(_) => return Ok(observed),
        Verdict::Bootstrap(request) => (request.subject.clone(), Some(request.clone())),
        Verdict::Renewal(subject) => (subject.clone(), None),
    };
    observed.cluster = read_cluster(client, &subject.cluster).await?;
    let Some(request) = request else {
        return Ok(observed);
    };
    observed.token = read_token(client, &request.token_id).await?;
    if matches!(observed.progress, Progress::Issued(_)) {
        if let TokenFacts::Usable(token) = &observed.token
            && token.is_spent()
        {
            observed.agents_alive = are_alive(client, silent, token, csr).await?;
        }
        return Ok(observed);
    }
    let others = ids.names(&request.cluster_id.as_str().into());
    let is_known_elsewhere = others
        .iter()
        .any(|other| *other.name != *subject.cluster.as_str());
    if is_known_elsewhere || may_write_id(&observed, &request) {
        observed.same_id = read_same_id(client, &request.cluster_id, &subject.cluster).await?;
    }
    let namespace = permissions::foreign_bindings(client, &subject.cluster).await;
    observed.namespace = namespace.map_err(Error::Permissions)?;
    Ok(observed)
}

/// Whether the next step may write this name and id: the token is reserved, and they are not its own already.
pub(super) fn may_write_id(observed: &Observed, request: &RegistrationRequest) -> bool {
    let registration = &request.subject.registration;
    let reserved = match &observed.token {
        TokenFacts::Usable(token) => token.reservation(registration).is_some(),
        TokenFacts::Missing | TokenFacts::Unusable(_) => false,
    };
    let is_its_own = observed.cluster.as_ref().is_some_and(|cluster| {
        cluster.registration.as_ref() == Some(registration)
            && cluster.id.as_ref() == Some(&request.cluster_id)
    });
    reserved && !is_its_own
}

async fn read_cluster(client: &Client, name: &ClusterName) -> Result<Option<ClusterFacts>, Error> {
    let read = clusters(client).get_opt(name.as_str()).await;
    let object = read.map_err(Error::request("read Cluster", name.as_str()))?;
    Ok(object.map(|object| cluster_facts(name, object)))
}

fn cluster_facts(name: &ClusterName, object: DynamicObject) -> ClusterFacts {
    let annotation = |key: &str| object.annotations().get(key).cloned();
    ClusterFacts {
        name: name.clone(),
        uid: object.uid().unwrap_or_default(),
        resource_version: object.resource_version().unwrap_or_default(),
        deleting: object.metadata.deletion_timestamp.is_some(),
        registration: annotation(REGISTRATION_ID).and_then(|id| RegistrationId::parse(&id)),
        registered_by: annotation(REGISTERED_BY).and_then(|by| Origin::parse(&by)),
        closing_watches: annotation(CLOSING_WATCHES),
        quarantined: annotation(QUARANTINED_SINCE).is_some(),
        joined: annotation(JOINED).is_some(),
        certificate_end: annotation(CERTIFICATE_END)
            .and_then(|end| DateTime::parse_from_rfc3339(&end).ok())
            .map(|end| end.with_timezone(&Utc)),
        id: id_of(&object),
    }
}

fn id_of(object: &DynamicObject) -> Option<String> {
    let content = ClusterContent::deserialize(&object.data).ok()?;
    content.spec.id.filter(|id| !id.is_empty())
}

/// Another Cluster with this id. The API server selects; the ids are compared here all the same.
async fn read_same_id(
    client: &Client,
    id: &str,
    name: &ClusterName,
) -> Result<Option<ClusterName>, Error> {
    let params = ListParams::default()
        .fields(&format!("spec.id={id}"))
        .limit(50);
    let list = clusters(client).list(&params).await;
    let list = list.map_err(Error::request("list Clusters with cluster id", id))?;
    let other = list
        .items
        .iter()
        .find(|object| object.name_any() != name.as_str() && id_of(object).as_deref() == Some(id));
    Ok(other.and_then(|object| ClusterName::parse(&object.name_any()).ok()))
}

async fn read_token(client: &Client, id: &str) -> Result<TokenFacts, Error> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), TOKEN_NAMESPACE);
    let read = secrets.get_opt(&secret_name(id)).await;
    let Some(secret) = read.map_err(Error::request("read the Secret of token", id))? else {
        return Ok(TokenFacts::Missing);
    };
    if is_deleting(&secret.metadata) {
        return Ok(TokenFacts::Missing);
    }
    Ok(match Token::read(&secret) {
        Ok(token) => TokenFacts::Usable(Box::new(token)),
        Err(why) => TokenFacts::Unusable(why.to_string()),
    })
}

fn is_deleting(metadata: &ObjectMeta) -> bool {
    metadata.deletion_timestamp.is_some()
}
