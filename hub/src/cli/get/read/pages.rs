//! Objects of a hub, read one by one.

use super::Scope;
use crate::snapshot::Page;
use kube::Resource;
use kube::api::{Api, GetParams, ListParams};
use kube::core::Request;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// Objects in one page of a list.
const PAGE: u32 = 500;

/// All pages of a list; each object is read by itself (see [`decode`]), so that one hides no other.
pub(in crate::cli) async fn pages<K>(api: &Api<K>, scope: &Scope) -> Result<Vec<K>, kube::Error>
where
    K: Resource + Clone + DeserializeOwned,
{
    let mut params = ListParams::default().limit(PAGE);
    params.label_selector.clone_from(&scope.selector);
    params.field_selector = scope.name.as_ref().map(|it| format!("metadata.name={it}"));
    let client = api.clone().into_client();
    let mut all = Vec::new();
    loop {
        let request = Request::new(api.resource_url()).list(&params);
        let request = request.map_err(kube::Error::BuildRequest)?;
        let text = client.request_text(request).await?;
        let page: Page<'_> = serde_json::from_str(&text).map_err(kube::Error::SerdeError)?;
        for item in page.items() {
            all.push(decode(item)?);
        }
        match page.next() {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(all),
        }
    }
}

/// One object; none where there is none. It is read as those of a list are.
pub(in crate::cli) async fn one<K>(api: &Api<K>, name: &str) -> Result<Option<K>, kube::Error>
where
    K: Resource + Clone + DeserializeOwned,
{
    let request = Request::new(api.resource_url()).get(name, &GetParams::default());
    let request = request.map_err(kube::Error::BuildRequest)?;
    match api.clone().into_client().request_text(request).await {
        Ok(text) => decode(&text).map(Some),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads an object. One whose status cannot be read counts with none: agents write what they like there, as deep as they
/// like.
fn decode<K: DeserializeOwned>(text: &str) -> Result<K, kube::Error> {
    let read = serde_json::from_str(text);
    let read = read.or_else(|error| without_status(text).unwrap_or(Err(error)));
    read.map_err(kube::Error::SerdeError)
}

/// Reads an object without its status; none where it has no parts.
fn without_status<K: DeserializeOwned>(text: &str) -> Option<serde_json::Result<K>> {
    let mut parts: BTreeMap<String, &RawValue> = serde_json::from_str(text).ok()?;
    parts.remove("status")?;
    Some(serde_json::from_str(&serde_json::to_string(&parts).ok()?))
}
