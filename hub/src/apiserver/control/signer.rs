//! Signs cluster-info with every bootstrap token that may sign, and deletes tokens that have expired.

use super::follow::{Follow, News};
use super::{context, update, warn};
use crate::apiserver::registry::Registry;
use crate::apiserver::request::{DeleteOptions, Preconditions};
use crate::apiserver::store::{Key, Scope, Stored};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use chrono::{DateTime, Utc};
use common::discovery::sign_jws;
use common::token::BootstrapToken;
use serde_json::{Value, json};
use std::collections::BTreeMap;
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
/// Expiry is looked at so often, and when something changes.
const EVERY: Duration = Duration::from_secs(10);

pub(super) async fn run(registry: Registry) {
    let scope = Scope::Namespace(NAMESPACE.into());
    let mut secrets = Follow::part(&registry, SECRETS, scope);
    let info = Scope::Object(Key::new(PUBLIC, CLUSTER_INFO));
    let mut info = Follow::part(&registry, CONFIGMAPS, info);
    let mut tokens: BTreeMap<String, Arc<Stored>> = BTreeMap::new();
    loop {
        tokio::select! {
            biased;
            news = info.next() => if news.is_none() {
                return;
            },
            news = secrets.next() => match news {
                None => return,
                Some(News::Anything(all)) => {
                    tokens = all
                        .into_iter()
                        .filter(|stored| stored.name().starts_with(PREFIX))
                        .map(|stored| (stored.name().to_owned(), stored))
                        .collect();
                }
                Some(News::One(event)) if event.object.name().starts_with(PREFIX) => {
                    let name = event.object.name().to_owned();
                    if event.kind == crate::apiserver::store::Kind::Deleted {
                        tokens.remove(&name);
                    } else {
                        tokens.insert(name, event.object);
                    }
                }
                Some(News::One(_)) => continue,
            },
            () = tokio::time::sleep(EVERY) => {}
        }
        let now = registry.clock().now();
        let read: Vec<(Arc<Stored>, Token)> = tokens
            .values()
            .map(|stored| (stored.clone(), Token::read(&stored.value())))
            .collect();
        for (stored, token) in &read {
            if token.expires.is_some_and(|at| at <= now) {
                delete(&registry, stored).await;
            }
        }
        let signing: Vec<BootstrapToken> = read
            .into_iter()
            .filter(|(_, token)| token.expires.is_none_or(|at| at > now))
            .filter_map(|(_, token)| token.signs)
            .collect();
        sign(&registry, &signing).await;
    }
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

async fn delete(registry: &Registry, stored: &Stored) {
    let Some(resource) = registry.scheme().resource("", "v1", "secrets") else {
        return;
    };
    let context = context(resource, NAMESPACE, stored.name(), MANAGER);
    let options = DeleteOptions {
        preconditions: Preconditions {
            uid: Some(stored.uid().to_owned()),
            resource_version: Some(stored.revision().to_string()),
        },
        ..DeleteOptions::default()
    };
    if let Err(error) = registry.delete(&context, options).await {
        warn("deletion of an expired token", &error);
    }
}

async fn sign(registry: &Registry, tokens: &[BootstrapToken]) {
    let key = Key::new(PUBLIC, CLUSTER_INFO);
    let Some(stored) = registry.store().get(CONFIGMAPS, &key) else {
        return;
    };
    let Some(signed) = signed(stored.value(), tokens) else {
        return;
    };
    let Some(resource) = registry.scheme().resource("", "v1", "configmaps") else {
        return;
    };
    let context = context(resource, PUBLIC, CLUSTER_INFO, MANAGER);
    if let Err(error) = update(registry, &context, "", &signed).await {
        warn("signing of cluster-info", &error);
    }
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
