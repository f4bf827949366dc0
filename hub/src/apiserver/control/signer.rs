//! Signs cluster-info with every bootstrap token that may sign, and deletes tokens that have expired.

use super::follow::{News, follow};
use super::{Failed, context, update};
use crate::apiserver::error::ApiError;
use crate::apiserver::registry::Registry;
use crate::apiserver::request::{DeleteOptions, Preconditions};
use crate::apiserver::store::{Key, Scope, Stored};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use chrono::{DateTime, Utc};
use common::controller::{Controller, Reconcile, Requeue};
use common::discovery::sign_jws;
use common::queue::Queue;
use common::token::BootstrapToken;
use serde_json::{Value, json};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

const SECRETS: &str = "/secrets";
const CONFIGMAPS: &str = "/configmaps";
const NAMESPACE: &str = "kube-system";
const PREFIX: &str = "bootstrap-token-";
const TYPE: &str = "bootstrap.kubernetes.io/token";
const PUBLIC: &str = "kube-public";
const CLUSTER_INFO: &str = "cluster-info";
const CONTENT: &str = "kubeconfig";
const SIGNATURE: &str = "jws-kubeconfig-";
const MANAGER: &str = "kube-controller-manager";
/// A token that will expire is looked at at least so often: the clock may be set.
const EVERY: Duration = Duration::from_secs(10);

/// What is looked after.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Part {
    /// The signatures.
    ClusterInfo,
    /// A token, by the name of its Secret.
    Token(Arc<str>),
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClusterInfo => f.write_str(CLUSTER_INFO),
            Self::Token(name) => f.write_str(name),
        }
    }
}

/// Signs and deletes.
pub(super) struct Signer {
    registry: Registry,
    queue: Queue<Part>,
}

pub(super) fn controller(registry: &Registry) -> Controller<Signer> {
    let queue = Queue::new();
    let signer = Signer {
        registry: registry.clone(),
        queue: queue.clone(),
    };
    let (secrets, info) = (registry.clone(), registry.clone());
    Controller::over(queue, signer)
        .source(move |queue| follow_tokens(secrets.clone(), queue))
        .source(move |queue| follow_info(info.clone(), queue))
}

async fn follow_tokens(registry: Registry, queue: Queue<Part>) {
    let changed = |secret: &Stored| {
        if secret.name().starts_with(PREFIX) {
            queue.add(Part::Token(secret.name().into()));
            queue.add(Part::ClusterInfo);
        }
    };
    let scope = Scope::Namespace(NAMESPACE.into());
    follow(&registry, SECRETS, scope, |news| match news {
        News::Anything(all) => all.iter().for_each(|secret| changed(secret)),
        News::One(event) => changed(&event.object),
    })
    .await;
}

async fn follow_info(registry: Registry, queue: Queue<Part>) {
    let scope = Scope::Object(Key::new(PUBLIC, CLUSTER_INFO));
    follow(&registry, CONFIGMAPS, scope, |_| {
        queue.add(Part::ClusterInfo);
    })
    .await;
}

impl Reconcile for Signer {
    const NAME: &'static str = "bootstrap-signer-controller";
    type Key = Part;
    type Error = Failed;

    async fn reconcile(&self, part: &Part) -> Result<Requeue, Failed> {
        let now = self.registry.clock().now();
        match part {
            Part::ClusterInfo => {
                let signed = sign(&self.registry, &signing(&self.registry, now)).await;
                signed.map_err(Failed::to("sign cluster-info"))?;
                Ok(Requeue::Never)
            }
            Part::Token(name) => {
                let key = Key::new(NAMESPACE, name);
                let Some(stored) = self.registry.store().get(SECRETS, &key) else {
                    return Ok(Requeue::Never);
                };
                let Some(expires) = Token::read(&stored.value()).expires else {
                    return Ok(Requeue::Never);
                };
                if let Ok(left) = (expires - now).to_std()
                    && !left.is_zero()
                {
                    return Ok(Requeue::After(left.min(EVERY)));
                }
                // Whether it can be deleted or not, it signs no longer.
                self.queue.add(Part::ClusterInfo);
                let deleted = delete(&self.registry, &stored).await;
                deleted.map_err(Failed::to("delete an expired token"))?;
                Ok(Requeue::Never)
            }
        }
    }
}

/// The tokens that may sign.
fn signing(registry: &Registry, now: DateTime<Utc>) -> Vec<BootstrapToken> {
    let secrets = registry.store().snapshot(SECRETS);
    let tokens = secrets.table.namespace(NAMESPACE);
    let tokens = tokens.filter(|secret| secret.name().starts_with(PREFIX));
    let tokens = tokens.map(|secret| Token::read(&secret.value()));
    let valid = tokens.filter(|token| token.expires.is_none_or(|at| at > now));
    valid.filter_map(|token| token.signs).collect()
}

/// What a Secret says about a token.
#[derive(Default)]
struct Token {
    expires: Option<DateTime<Utc>>,
    /// The token, if it may sign.
    signs: Option<BootstrapToken>,
}

impl Token {
    fn read(secret: &Value) -> Self {
        if secret["type"] != TYPE {
            return Self::default();
        }
        let field = |name: &str| {
            let encoded = secret["data"][name].as_str()?;
            String::from_utf8(BASE64_STANDARD.decode(encoded).ok()?).ok()
        };
        let expires = field("expiration").map(|text| {
            DateTime::parse_from_rfc3339(&text)
                .map_or(DateTime::UNIX_EPOCH, |at| at.with_timezone(&Utc))
        });
        let (id, secret_text) = (field("token-id"), field("token-secret"));
        let named = id
            .as_ref()
            .is_some_and(|id| secret["metadata"]["name"] == format!("{PREFIX}{id}"));
        let may = field("usage-bootstrap-signing").as_deref() == Some("true");
        let signs = match (id, secret_text) {
            (Some(id), Some(text)) if named && may => {
                BootstrapToken::parse(&format!("{id}.{text}")).ok()
            }
            _ => None,
        };
        Self { expires, signs }
    }
}

async fn delete(registry: &Registry, stored: &Stored) -> Result<(), ApiError> {
    let Some(resource) = registry.scheme().resource("", "v1", "secrets") else {
        return Ok(());
    };
    let context = context(resource, NAMESPACE, stored.name(), MANAGER);
    let options = DeleteOptions {
        preconditions: Preconditions {
            uid: Some(stored.uid().to_owned()),
            resource_version: Some(stored.revision().to_string()),
        },
        ..DeleteOptions::default()
    };
    registry.delete(&context, options).await.map(|_| ())
}

async fn sign(registry: &Registry, tokens: &[BootstrapToken]) -> Result<(), ApiError> {
    let key = Key::new(PUBLIC, CLUSTER_INFO);
    let Some(stored) = registry.store().get(CONFIGMAPS, &key) else {
        return Ok(());
    };
    let Some(signed) = signed(stored.value(), tokens) else {
        return Ok(());
    };
    let Some(resource) = registry.scheme().resource("", "v1", "configmaps") else {
        return Ok(());
    };
    let context = context(resource, PUBLIC, CLUSTER_INFO, MANAGER);
    update(registry, &context, "", &signed).await.map(|_| ())
}

/// The document with exactly the signatures that it should have; `None` if it has them.
fn signed(info: Value, tokens: &[BootstrapToken]) -> Option<Value> {
    let mut info = info;
    let content = info["data"][CONTENT].as_str()?.to_owned();
    let data = info["data"].as_object_mut()?;
    let before = data.clone();
    data.retain(|key, _| !key.starts_with(SIGNATURE));
    for token in tokens {
        let key = format!("{SIGNATURE}{}", token.id());
        data.insert(key, json!(sign_jws(token, &content)));
    }
    let changed = *data != before;
    changed.then_some(info)
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::discovery::verify_jws;

    fn secret(id: &str, fields: &[(&str, &str)]) -> Value {
        let mut secret = json!({"metadata": {"name": format!("{PREFIX}{id}")}, "type": TYPE});
        for (key, value) in fields {
            secret["data"][*key] = json!(BASE64_STANDARD.encode(value));
        }
        secret
    }

    #[test]
    fn tokens_that_may_sign_do() {
        let fields = [
            ("token-id", "abcdef"),
            ("token-secret", "0123456789abcdef"),
            ("usage-bootstrap-signing", "true"),
        ];
        let token = Token::read(&secret("abcdef", &fields))
            .signs
            .expect("signs");
        assert!(Token::read(&secret("other1", &fields)).signs.is_none());
        assert!(Token::read(&secret("abcdef", &fields[..2])).signs.is_none());
        let info = json!({"data": {CONTENT: "text", "jws-kubeconfig-gone00": "x"}});
        let tokens = [token];
        let info = signed(info, &tokens).expect("changes");
        let data = info["data"].as_object().expect("data");
        assert_eq!(data.len(), 2);
        let jws = data["jws-kubeconfig-abcdef"].as_str().expect("a signature");
        assert!(verify_jws(&tokens[0], "text", jws));
        assert_eq!(signed(info, &tokens), None);
    }

    #[test]
    fn an_expiry_that_cannot_be_read_is_over() {
        let token = Token::read(&secret("abcdef", &[("expiration", "soon")]));
        assert_eq!(token.expires, Some(DateTime::UNIX_EPOCH));
        let token = Token::read(&secret("abcdef", &[]));
        assert_eq!(token.expires, None);
    }
}
