//! Carries out one step. Every write names what it was decided from, so that a world that moved on
//! answers with a conflict, and the next pass decides again.

use super::Error;
use super::condition;
use super::decide::Step;
use super::observe::{ClusterFacts, clusters};
use super::withhold;
use crate::approver::Denial;
use crate::epoch;
use crate::permissions::{self, Grant, Registration};
use crate::token_secret::{Origin, Placement, Reservation, TOKEN_NAMESPACE, Token};
use chrono::{DateTime, SecondsFormat, Utc};
use common::api::cluster::Cluster;
use common::identity::{AgentSubject, RegistrationId};
use common::labels::{
    CERTIFICATE_END, CLOSING_WATCHES, CLUSTER_FINALIZER, HUB_FIELD_MANAGER, REGISTERED_BY,
    REGISTRATION_ID, TOKEN_RESERVATIONS,
};
use common::names::ClusterName;
use common::token::secret_name;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{ApiResource, TypeMeta};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

/// What the annotation says when it is not known who was there before.
pub(crate) const UNKNOWN_REGISTRATION: &str = "unknown";

/// Carries out `step`; `Done` and `Recheck` are no steps to carry out.
pub(super) async fn apply(
    client: &Client,
    now: DateTime<Utc>,
    csr: &DynamicObject,
    step: &Step,
) -> Result<(), Error> {
    match step {
        Step::Done | Step::Recheck(_) => Ok(()),
        Step::Deny { denial, holder } => {
            // First: a request that is denied is not looked at again. A status that cannot be written does not keep it
            // from being denied.
            let shown = match holder {
                Some(holder) => condition::show_duplicate(client, now, holder, denial).await,
                None => Ok(()),
            };
            refuse(client, csr, denial).await?;
            shown
        }
        Step::Reserve { token, reservation } => reserve(client, token, reservation).await,
        Step::CreateCluster {
            subject,
            cluster_id,
            by,
            placement,
            close_watches,
        } => create_cluster(client, subject, cluster_id, (by, placement), *close_watches).await,
        Step::TakeOver {
            cluster,
            subject,
            cluster_id,
            by,
        } => take_over(client, cluster, subject, cluster_id, by).await,
        Step::Grant { subject, cluster } => grant(client, subject, cluster).await,
        Step::CloseWatches { cluster } => close_watches(client, cluster).await,
        Step::Approve { message } => {
            decide_csr(client, csr, "Approved", "AutoApproved", message).await
        }
        Step::NoteCertificate { cluster, end } => {
            let end = end.to_rfc3339_opts(SecondsFormat::Secs, true);
            let patch = json!({"metadata": {
                "uid": cluster.uid,
                "annotations": {CERTIFICATE_END: end},
            }});
            patch_cluster(client, cluster, "note a certificate on Cluster", patch).await
        }
        Step::Revoke {
            cluster,
            registration,
            why,
        } => revoke(client, cluster, registration, why).await,
        Step::DeleteToken { token } => delete_token(client, token).await,
    }
}

async fn refuse(client: &Client, csr: &DynamicObject, denial: &Denial) -> Result<(), Error> {
    decide_csr(
        client,
        csr,
        "Denied",
        denial.reason.as_str(),
        &denial.message,
    )
    .await
}

/// Writes the decision on the very object that was judged: uid and resourceVersion go with it, so a
/// request that was swapped for another under the same name is a conflict.
async fn decide_csr(
    client: &Client,
    csr: &DynamicObject,
    type_: &str,
    reason: &str,
    message: &str,
) -> Result<(), Error> {
    let mut decided = csr.clone();
    let conditions = decided
        .data
        .as_object_mut()
        .map(|object| object.entry("status").or_insert_with(|| json!({})))
        .and_then(Value::as_object_mut)
        .map(|status| status.entry("conditions").or_insert_with(|| json!([])))
        .and_then(Value::as_array_mut);
    if let Some(conditions) = conditions {
        conditions.push(json!({
            "type": type_, "status": "True", "reason": reason, "message": message,
        }));
    }
    let name = csr.name_any();
    let requests = ApiResource::erase::<CertificateSigningRequest>(&());
    let requests: Api<DynamicObject> = Api::all_with(client.clone(), &requests);
    let written = requests
        .replace_subresource("approval", &name, &PostParams::default(), &decided)
        .await;
    written
        .map(drop)
        .map_err(Error::request("decide on CertificateSigningRequest", &name))
}

async fn reserve(client: &Client, token: &Token, reservation: &Reservation) -> Result<(), Error> {
    let mut reservations = token.reservations.clone();
    reservations.push(reservation.clone());
    let reservations = Value::from_iter(reservations.iter().map(|used| json!(used))).to_string();
    let patch = json!({"metadata": {
        "uid": token.uid,
        "resourceVersion": token.resource_version,
        "annotations": {TOKEN_RESERVATIONS: reservations},
    }});
    let secrets: Api<Secret> = Api::namespaced(client.clone(), TOKEN_NAMESPACE);
    // Only the metadata comes back: a token's secret need not travel.
    let patched = secrets
        .patch_metadata(
            &secret_name(&token.id),
            &PatchParams::default(),
            &Patch::Merge(patch),
        )
        .await;
    patched
        .map(drop)
        .map_err(Error::request("reserve a use of token", &token.id))
}

async fn create_cluster(
    client: &Client,
    subject: &AgentSubject,
    cluster_id: &str,
    (by, placement): (&Origin, &Placement),
    close_watches: bool,
) -> Result<(), Error> {
    let mut annotations = json!({
        REGISTRATION_ID: subject.registration.as_str(),
        REGISTERED_BY: by.to_string(),
    });
    if close_watches {
        annotations[CLOSING_WATCHES] = json!(UNKNOWN_REGISTRATION);
    }
    let mut spec = json!({"id": cluster_id, "syncMode": "Pull"});
    if let Some(provider) = &placement.provider {
        spec["provider"] = json!(provider);
    }
    if let Some(region) = &placement.region {
        spec["region"] = json!(region);
    }
    if !placement.zones.is_empty() {
        spec["zones"] = json!(placement.zones);
    }
    let metadata = json!({
        "name": subject.cluster.as_str(),
        "labels": placement.labels,
        "annotations": annotations,
        "finalizers": [CLUSTER_FINALIZER],
    });
    let name = subject.cluster.as_str();
    let cluster = DynamicObject {
        types: Some(TypeMeta::resource::<Cluster>()),
        metadata: serde_json::from_value(metadata).expect("invariant: built as metadata"),
        data: json!({"spec": spec}),
    };
    let params = PostParams {
        field_manager: Some(HUB_FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    let created = clusters(client).create(&params, &cluster).await;
    created
        .map(drop)
        .map_err(Error::request("create Cluster", name))
}

async fn take_over(
    client: &Client,
    cluster: &ClusterFacts,
    subject: &AgentSubject,
    cluster_id: &str,
    by: &Origin,
) -> Result<(), Error> {
    // Whose own watches were to end, and did not yet, is given its rights again: those of the one in between end instead.
    let id = subject.registration.as_str();
    let closing = cluster.closing_watches.as_ref().filter(|it| *it != id);
    let before = match (closing, &cluster.registration) {
        // Taken over twice before the watches were closed: the first one's may still be open, and
        // closing closes everybody's.
        (Some(before), _) => before.clone(),
        (None, Some(registration)) => registration.as_str().to_owned(),
        (None, None) => UNKNOWN_REGISTRATION.to_owned(),
    };
    let mode = if cluster.joined { "Push" } else { "Pull" };
    let patch = json!({
        "metadata": {
            "uid": cluster.uid,
            "resourceVersion": cluster.resource_version,
            "annotations": {
                REGISTRATION_ID: subject.registration.as_str(),
                CLOSING_WATCHES: before,
                REGISTERED_BY: by.to_string(),
                CERTIFICATE_END: null,
            },
        },
        "spec": {"id": cluster_id, "syncMode": mode},
    });
    patch_cluster(client, cluster, "take over Cluster", patch).await
}

async fn grant(
    client: &Client,
    subject: &AgentSubject,
    cluster: &ClusterFacts,
) -> Result<(), Error> {
    let registration = Registration {
        cluster: cluster.name.clone(),
        cluster_uid: cluster.uid.clone(),
        grant: if cluster.quarantined {
            Grant::Suspended
        } else {
            Grant::InForce(subject.registration.clone())
        },
    };
    if cluster.quarantined {
        // This takes rights: what was opened by them is ended in a later step.
        let closing = cluster.closing_watches.as_deref();
        withhold::note(client, &registration, &subject.registration, closing).await?;
    }
    let ensured = permissions::ensure(client, &registration).await;
    ensured.map_err(Error::Permissions)?;
    let id = subject.registration.as_str();
    if !cluster.quarantined && cluster.closing_watches.as_deref() == Some(id) {
        // Its rights were to be withheld, and are its own again: nobody can wait for their end.
        let version = Some(cluster.resource_version.as_str());
        withhold::go_on(client, &registration, version).await?;
    }
    Ok(())
}

async fn close_watches(client: &Client, cluster: &ClusterFacts) -> Result<(), Error> {
    let before = cluster
        .closing_watches
        .as_deref()
        .and_then(RegistrationId::parse);
    end_watches(client, &cluster.name, before).await?;
    let patch = json!({"metadata": {
        "uid": cluster.uid,
        "resourceVersion": cluster.resource_version,
        "annotations": {CLOSING_WATCHES: null},
    }});
    patch_cluster(
        client,
        cluster,
        "end the earlier registration of Cluster",
        patch,
    )
    .await
}

/// Says first that nobody is registered: what keeps permissions in place must not bring these back.
async fn revoke(
    client: &Client,
    cluster: &ClusterFacts,
    registration: &RegistrationId,
    why: &str,
) -> Result<(), Error> {
    tracing::error!(
        cluster = %cluster.name,
        why,
        "the signer issued another certificate than was approved; removing the registration"
    );
    if cluster.registration.is_some() {
        let patch = json!({"metadata": {
            "uid": cluster.uid,
            "resourceVersion": cluster.resource_version,
            "annotations": {
                REGISTRATION_ID: null, REGISTERED_BY: null, CLOSING_WATCHES: registration.as_str(),
            },
        }});
        patch_cluster(client, cluster, "remove the registration of Cluster", patch).await?;
    }
    permissions::remove(client, &cluster.name)
        .await
        .map_err(Error::Permissions)?;
    end_watches(client, &cluster.name, Some(registration.clone())).await?;
    let patch = json!({"metadata": {"uid": cluster.uid, "annotations": {CLOSING_WATCHES: null}}});
    patch_cluster(client, cluster, "end the registration of Cluster", patch).await
}

/// Waits until a registration may open no watch, then until those it has open have ended.
async fn end_watches(
    client: &Client,
    cluster: &ClusterName,
    registration: Option<RegistrationId>,
) -> Result<(), Error> {
    if let Some(registration) = registration {
        let subject = AgentSubject {
            cluster: cluster.clone(),
            registration,
        };
        epoch::await_denied(client, &subject)
            .await
            .map_err(Error::Watches)?;
    }
    epoch::bump_and_wait(client).await.map_err(Error::Watches)
}

async fn patch_cluster(
    client: &Client,
    cluster: &ClusterFacts,
    doing: &'static str,
    patch: Value,
) -> Result<(), Error> {
    patch_metadata(client, &cluster.name, doing, patch).await
}

/// Writes a part of a Cluster; only metadata is answered, without the status that an agent wrote.
pub(super) async fn patch_metadata(
    client: &Client,
    cluster: &ClusterName,
    doing: &'static str,
    patch: Value,
) -> Result<(), Error> {
    let name = cluster.as_str();
    let params = PatchParams {
        field_manager: Some(HUB_FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let patched = clusters(client)
        .patch_metadata(name, &params, &Patch::Merge(patch))
        .await;
    patched.map(drop).map_err(Error::request(doing, name))
}

async fn delete_token(client: &Client, token: &Token) -> Result<(), Error> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), TOKEN_NAMESPACE);
    let params = DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some(token.uid.clone()),
            resource_version: Some(token.resource_version.clone()),
        }),
        ..DeleteParams::default()
    };
    match secrets.delete(&secret_name(&token.id), &params).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        other => other
            .map(drop)
            .map_err(Error::request("delete the spent token", &token.id)),
    }
}
