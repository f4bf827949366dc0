//! Objects of a hub, read one by one.

use super::Scope;
use crate::page::Page;
use kube::Resource;
use kube::api::{Api, GetParams, ListParams};
use kube::core::{PartialObjectMeta, Request, request};
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};
use std::collections::BTreeMap;

/// Objects in one page of a list.
const PAGE: u32 = 500;

/// All pages of a list; each object is read by itself (see [`decode`]), so that one hides no other.
pub(in crate::cli) async fn pages<K>(api: &Api<K>, scope: &Scope) -> Result<Vec<K>, kube::Error>
where
    K: Resource + Clone + DeserializeOwned,
{
    let read = each(api, scope, Request::list).await?;
    read.into_iter().collect()
}

/// The metadata alone of what a list has.
pub(in crate::cli) async fn metadata<K>(
    api: &Api<K>,
    scope: &Scope,
) -> Result<Vec<PartialObjectMeta<K>>, kube::Error>
where
    K: Resource + Clone,
{
    let read = each(api, scope, Request::list_metadata).await?;
    read.into_iter().collect()
}

/// What can be read of a list, and how many of its objects cannot.
pub(in crate::cli) async fn readable<K>(
    api: &Api<K>,
    scope: &Scope,
) -> Result<(Vec<K>, usize), kube::Error>
where
    K: Resource + Clone + DeserializeOwned,
{
    let read = each(api, scope, Request::list).await?;
    let all = read.len();
    let found: Vec<K> = read.into_iter().flatten().collect();
    let unreadable = all - found.len();
    Ok((found, unreadable))
}

/// How many objects a list has, as its first page tells.
pub(in crate::cli) async fn count<K: Resource + Clone>(api: &Api<K>) -> Result<usize, kube::Error> {
    let request = Request::new(api.resource_url());
    let request = request.list_metadata(&ListParams::default().limit(PAGE));
    let request = request.map_err(kube::Error::BuildRequest)?;
    let text = api.clone().into_client().request_text(request).await?;
    let page: Page<'_> = serde_json::from_str(&text).map_err(kube::Error::SerdeError)?;
    Ok(page.items().count() + page.remaining())
}

/// How a page is asked for.
type Ask = fn(&Request, &ListParams) -> Result<http::Request<Vec<u8>>, request::Error>;

async fn each<K, T>(
    api: &Api<K>,
    scope: &Scope,
    ask: Ask,
) -> Result<Vec<Result<T, kube::Error>>, kube::Error>
where
    K: Resource + Clone,
    T: DeserializeOwned,
{
    let mut params = ListParams::default().limit(PAGE);
    params.label_selector.clone_from(&scope.selector);
    params.field_selector = scope.name.as_ref().map(|it| format!("metadata.name={it}"));
    let client = api.clone().into_client();
    let mut all = Vec::new();
    loop {
        let request = ask(&Request::new(api.resource_url()), &params);
        let request = request.map_err(kube::Error::BuildRequest)?;
        let text = client.request_text(request).await?;
        let page: Page<'_> = serde_json::from_str(&text).map_err(kube::Error::SerdeError)?;
        all.extend(page.items().map(decode));
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

/// Reads an object. One that cannot be read counts without managedFields, which nothing shows, and if need be without its
/// status: agents write what they like there, as deep as they like.
fn decode<K: DeserializeOwned>(text: &str) -> Result<K, kube::Error> {
    let read = serde_json::from_str(text).or_else(|_| in_part(text));
    read.map_err(kube::Error::SerdeError)
}

/// Reads an object without managedFields, or without its status either.
fn in_part<K: DeserializeOwned>(text: &str) -> serde_json::Result<K> {
    let mut parts: BTreeMap<String, &RawValue> = serde_json::from_str(text)?;
    let metadata = parts.get("metadata").map_or("{}", |it| it.get());
    let mut metadata: BTreeMap<String, &RawValue> = serde_json::from_str(metadata)?;
    metadata.remove("managedFields");
    let metadata = to_raw_value(&metadata)?;
    parts.insert("metadata".to_owned(), &metadata);
    let read = |parts: &BTreeMap<String, &RawValue>| {
        serde_json::to_string(parts).and_then(|text| serde_json::from_str(&text))
    };
    read(&parts).or_else(|_| {
        parts.remove("status");
        read(&parts)
    })
}
