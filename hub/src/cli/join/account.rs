//! The token by which the process beside the hub comes into a member: of the agent's ServiceAccount there.

use crate::cli::{CliError, Kind};
use chrono::{DateTime, Duration, Utc};
use common::labels::{PART_OF, PART_OF_VALUE};
use common::names::{AGENT_NAME, AGENT_NAMESPACE, TOKEN_SECRET};
use common::secret::Secret;
use common::time::{Clock as _, SystemClock, from_time};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{self, ServiceAccount};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::time::{Instant, sleep};

/// The life that is asked for.
const LIFE: Duration = Duration::days(3650);
/// A token that lasts for so long needs no word about its end.
const LASTING: Duration = Duration::days(3600);
/// One that lasts for less is not taken where a Secret gives a better one.
const ENOUGH: Duration = Duration::days(300);
/// The type of Secret that a controller of the member puts a token into.
const TOKEN_TYPE: &str = "kubernetes.io/service-account-token";
/// How long that controller is waited for; an API server without it never answers.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);
const POLL: std::time::Duration = std::time::Duration::from_millis(250);
const FIELD_MANAGER: &str = "towline-join";

/// A token of the agent's ServiceAccount. It ends with that account, too.
pub(super) struct Token {
    pub(super) token: Secret<String>,
    /// When it ends by itself, where that is soon.
    pub(super) ends: Option<DateTime<Utc>>,
}

/// Gets one: on request, so that it lies nowhere in the member; where the API server grants only a short life, from a
/// Secret there.
pub(super) async fn token(member: &Client) -> Result<Token, CliError> {
    let accounts: Api<ServiceAccount> = Api::namespaced(member.clone(), AGENT_NAMESPACE);
    let wanted = TokenRequest {
        spec: TokenRequestSpec {
            expiration_seconds: Some(LIFE.num_seconds()),
            ..TokenRequestSpec::default()
        },
        ..TokenRequest::default()
    };
    let params = PostParams::default();
    let made = accounts.create_token_request(AGENT_NAME, &params, &wanted);
    let attempt = "failed to get a token of the agent's ServiceAccount";
    let made = made.await.map_err(|error| CliError::api(attempt, error))?;
    let none = || CliError::message(Kind::Unmet, "the cluster's API server gave an empty token");
    let status = made.status.ok_or_else(none)?;
    let now = SystemClock.now();
    let ends = from_time(&status.expiration_timestamp).filter(|ends| *ends < now + LASTING);
    if ends.is_some_and(|ends| ends < now + ENOUGH)
        && let Some(token) = stored(member).await?
    {
        return Ok(Token { token, ends: None });
    }
    Ok(Token {
        token: Secret::new(status.token),
        ends,
    })
}

/// A token that lasts, by the controller that makes such; none where there is no such controller.
async fn stored(member: &Client) -> Result<Option<Secret<String>>, CliError> {
    let secrets: Api<v1::Secret> = Api::namespaced(member.clone(), AGENT_NAMESPACE);
    let object = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": TOKEN_SECRET,
            "labels": {PART_OF: PART_OF_VALUE},
            "annotations": {"kubernetes.io/service-account.name": AGENT_NAME},
        },
        "type": TOKEN_TYPE,
    });
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let failed = |what: &str| {
        let attempt =
            format!("failed to {what} Secret {AGENT_NAMESPACE}/{TOKEN_SECRET} of the member");
        move |error| CliError::api(attempt, error)
    };
    let object = Patch::Apply(&object);
    let applied = secrets.patch(TOKEN_SECRET, &params, &object).await;
    applied.map_err(failed("apply"))?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = secrets.get(TOKEN_SECRET).await.map_err(failed("get"))?;
        let token = found.data.and_then(|mut data| data.remove("token"));
        if let Some(token) = token.and_then(|token| String::from_utf8(token.0).ok()) {
            return Ok(Some(Secret::new(token)));
        }
        if Instant::now() >= deadline {
            let params = DeleteParams::default();
            let gone = secrets.delete(TOKEN_SECRET, &params).await;
            gone.map_err(failed("delete"))?;
            return Ok(None);
        }
        sleep(POLL).await;
    }
}
