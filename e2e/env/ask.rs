//! Bare requests, as an attacker sends them: any verb, any body, and the whole answer.

use anyhow::{Context as _, Result, bail};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;

/// Media type of a merge patch.
pub(crate) const MERGE: &str = "application/merge-patch+json";
/// Media type of a JSON patch.
pub(crate) const JSON_PATCH: &str = "application/json-patch+json";
/// Media type of a server-side apply.
pub(crate) const APPLY: &str = "application/apply-patch+yaml";
/// Media type of an object.
pub(crate) const JSON: &str = "application/json";

/// How much of a body a message shows.
const SHOWN: usize = 400;

/// What a server answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    /// The request, for messages.
    pub(crate) request: String,
    /// The status code.
    pub(crate) code: u16,
    /// The body.
    pub(crate) body: String,
}

impl Answer {
    /// Fails unless the request was refused, by RBAC or by an admission policy.
    pub(crate) fn forbidden(self) -> Result<Self> {
        if self.code != 403 {
            bail!(
                "{} must be forbidden, but: {} {}",
                self.request,
                self.code,
                self.body
            );
        }
        Ok(self)
    }

    /// Fails unless an admission policy refused the request.
    pub(crate) fn refused_by(self, policy: &str) -> Result<Self> {
        let answer = self.forbidden()?;
        if !answer
            .body
            .contains(&format!("ValidatingAdmissionPolicy '{policy}'"))
        {
            bail!(
                "{} was not refused by {policy}: {}",
                answer.request,
                answer.body
            );
        }
        Ok(answer)
    }

    /// Fails unless the request succeeded.
    pub(crate) fn ok(self) -> Result<Self> {
        if !(200..300).contains(&self.code) {
            bail!(
                "{} must succeed, but: {} {}",
                self.request,
                self.code,
                self.body
            );
        }
        Ok(self)
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> Result<serde_json::Value> {
        serde_json::from_str(&self.body)
            .with_context(|| format!("{} was answered by {}", self.request, self.body))
    }
}

/// Sends one request; `content` is the body's media type and the body.
pub(crate) async fn ask(
    client: &Client,
    method: &str,
    path: &str,
    content: Option<(&str, &str)>,
) -> Result<Answer> {
    let shown: String = content
        .map_or("", |(_, body)| body)
        .chars()
        .take(SHOWN)
        .collect();
    let request = format!("{method} {path} {shown}");
    let mut builder = http::Request::builder().method(method).uri(path);
    if let Some((media_type, _)) = content {
        builder = builder.header(http::header::CONTENT_TYPE, media_type);
    }
    let body = content.map_or_else(Vec::new, |(_, body)| body.as_bytes().to_vec());
    let built = builder
        .body(Body::from(body))
        .with_context(|| request.clone())?;
    let response = client.send(built).await.with_context(|| request.clone())?;
    let code = response.status().as_u16();
    let body = response
        .into_body()
        .collect()
        .await
        .with_context(|| request.clone())?;
    let body = String::from_utf8_lossy(&body.to_bytes()).into_owned();
    Ok(Answer {
        request,
        code,
        body,
    })
}
