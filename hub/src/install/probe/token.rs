//! Whether bootstrap tokens authenticate, sign cluster-info, and go away when they expire.

use super::{Missing, PATIENCE, POLL, Reach};
use crate::install::cluster_info;
use common::chance::secret;
use common::client::Credentials;
use common::labels::{PART_OF, PART_OF_VALUE};
use common::time::Clock;
use common::token::BootstrapToken;
use k8s_openapi::ByteString;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::{Api, DeleteParams, PostParams};
use std::collections::BTreeMap;
use tokio::time::{Instant, sleep};

const TOKEN_NAMESPACE: &str = "kube-system";
/// A group without rights: what matters is that the token's groups arrive.
const PROBE_GROUP: &str = "system:bootstrappers:towline-probe";
const LIFETIME_MINUTES: i64 = 10;

const CHECK_KUBECONFIG: &str = "Check the kubeconfig.";
const ENABLE_TOKENS: &str = "Start kube-apiserver with --enable-bootstrap-token-auth. A hosted control \
     plane that does not offer bootstrap tokens cannot be a hub.";
const ENABLE_SIGNER: &str = "Start kube-controller-manager with \
     --controllers=*,bootstrapsigner,tokencleaner.";
const ENABLE_ANONYMOUS: &str = "Agents read cluster-info before they have credentials: start \
     kube-apiserver with --anonymous-auth=true, or allow anonymous requests for the path \
     /api/v1/namespaces/kube-public/configmaps/cluster-info in its AuthenticationConfiguration.";

/// Makes a throw-away token and tries to use it: to log in, and to have cluster-info signed.
pub(super) async fn probe(
    reach: &Reach,
    clock: &dyn Clock,
) -> (Result<(), Missing>, Result<(), Missing>) {
    let token = BootstrapToken::generate(&mut secret::rng());
    let secrets: Api<Secret> = Api::namespaced(reach.client.clone(), TOKEN_NAMESPACE);
    let secret = secret(&token, clock, LIFETIME_MINUTES);
    if let Err(error) = secrets.create(&PostParams::default(), &secret).await {
        let hint = "This user must be able to create Secrets in kube-system.";
        let missing = Missing::error("failed to create a bootstrap token", &error, hint);
        return (Err(missing.clone()), Err(missing));
    }
    let found = futures::join!(authenticates(reach, &token), signs(reach, &token));
    // Should this fail, the token cleaner takes the Secret in minutes.
    let _ = secrets
        .delete(&token.secret_name(), &DeleteParams::default())
        .await;
    found
}

/// Makes a token that has expired already and waits until it is taken away.
pub(super) async fn cleaner(client: &Client, clock: &dyn Clock) -> Result<(), Missing> {
    let token = BootstrapToken::generate(&mut secret::rng());
    let secrets: Api<Secret> = Api::namespaced(client.clone(), TOKEN_NAMESPACE);
    let hint = "This user must be able to create Secrets in kube-system.";
    secrets
        .create(
            &PostParams::default(),
            &secret(&token, clock, -LIFETIME_MINUTES),
        )
        .await
        .map_err(|error| Missing::error("failed to create an expired token", &error, hint))?;
    let name = token.secret_name();
    let deadline = Instant::now() + PATIENCE;
    loop {
        match secrets.get_opt(&name).await {
            Ok(None) => return Ok(()),
            _ if Instant::now() >= deadline => {
                // It grants nothing; it is only untidy.
                let _ = secrets.delete(&name, &DeleteParams::default()).await;
                return Err(Missing::new(
                    format!("an expired bootstrap token was not removed within {PATIENCE:?}"),
                    ENABLE_SIGNER,
                ));
            }
            _ => sleep(POLL).await,
        }
    }
}

/// Who the hub says a client is.
pub(super) async fn whoami(client: &Client) -> Result<(String, Vec<String>), kube::Error> {
    let reviews: Api<SelfSubjectReview> = Api::all(client.clone());
    let review = reviews
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await?;
    let user = review
        .status
        .and_then(|status| status.user_info)
        .unwrap_or_default();
    Ok((
        user.username.unwrap_or_default(),
        user.groups.unwrap_or_default(),
    ))
}

async fn authenticates(reach: &Reach, token: &BootstrapToken) -> Result<(), Missing> {
    let attempt = "failed to log in by a bootstrap token";
    let client = reach
        .somebody(Credentials::Bearer(token.bearer()))
        .map_err(|error| Missing::error(attempt, &error, CHECK_KUBECONFIG))?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        match whoami(&client).await {
            Ok((user, groups)) if user == token.user_name() => {
                return if groups.iter().any(|group| group == PROBE_GROUP) {
                    Ok(())
                } else {
                    Err(Missing::new(
                        "a bootstrap token logs in without the groups of its Secret",
                        ENABLE_TOKENS,
                    ))
                };
            }
            Ok((user, _)) => {
                let seen = format!("a bootstrap token logs in as user {user:?}");
                return Err(Missing::new(seen, ENABLE_TOKENS));
            }
            // The server's own view of the new Secret lags a little.
            Err(error) if Instant::now() >= deadline => {
                return Err(Missing::error(attempt, &error, ENABLE_TOKENS));
            }
            Err(_) => sleep(POLL).await,
        }
    }
}

async fn signs(reach: &Reach, token: &BootstrapToken) -> Result<(), Missing> {
    let attempt = "failed to read cluster-info without credentials";
    let client = reach
        .somebody(Credentials::Anonymous)
        .map_err(|error| Missing::error(attempt, &error, CHECK_KUBECONFIG))?;
    let maps: Api<ConfigMap> = Api::namespaced(client, cluster_info::NAMESPACE);
    let key = format!("jws-kubeconfig-{}", token.id());
    let deadline = Instant::now() + PATIENCE;
    loop {
        let last = match maps.get(cluster_info::NAME).await {
            Ok(map) if map.data.iter().any(|data| data.contains_key(&key)) => return Ok(()),
            Ok(_) => Missing::new(
                format!("cluster-info was not signed for a new token within {PATIENCE:?}"),
                ENABLE_SIGNER,
            ),
            Err(error) => Missing::error(attempt, &error, ENABLE_ANONYMOUS),
        };
        if Instant::now() >= deadline {
            return Err(last);
        }
        sleep(POLL).await;
    }
}

fn secret(token: &BootstrapToken, clock: &dyn Clock, minutes: i64) -> Secret {
    let expiration = clock.now() + chrono::Duration::minutes(minutes);
    let expiration = expiration.to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
    let data = [
        ("token-id", token.id()),
        ("token-secret", token.secret().expose()),
        ("expiration", &expiration),
        (
            "description",
            "made by `towline init` to try bootstrap tokens",
        ),
        ("auth-extra-groups", PROBE_GROUP),
        ("usage-bootstrap-authentication", "true"),
        ("usage-bootstrap-signing", "true"),
    ];
    let bytes = |value: &str| ByteString(value.as_bytes().to_vec());
    Secret {
        metadata: ObjectMeta {
            name: Some(token.secret_name()),
            namespace: Some(TOKEN_NAMESPACE.to_owned()),
            labels: Some(BTreeMap::from([(
                PART_OF.to_owned(),
                PART_OF_VALUE.to_owned(),
            )])),
            ..ObjectMeta::default()
        },
        type_: Some("bootstrap.kubernetes.io/token".to_owned()),
        data: Some(
            data.map(|(key, value)| (key.to_owned(), bytes(value)))
                .into(),
        ),
        ..Secret::default()
    }
}
