//! What the member is asked about one unhealthy object: itself, a page of its pods, two of these, their Events.
//!
//! Each answer is bounded; the member may be anybody's.

use super::Sick;
use super::decide::{self, Seen};
use crate::member::api::Member;
use common::rest::{Call, Error, JSON};
use serde_json::Value;

const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";
/// Pods that are looked through for one that does not run.
const PODS: usize = 100;
/// Events of one object that are read.
const EVENTS: usize = 20;
/// Longest answer that is read.
const ANSWER: usize = 512 * 1024;

/// At most seven requests.
pub(super) async fn read(member: &Member, object: &Sick) -> Result<Seen, Error> {
    let mut seen = Seen::default();
    let Some(resource) = member.resolve(&object.gvk).await? else {
        return Ok(seen);
    };
    let uri = resource.object(&object.namespace, &object.name);
    let workload = ask(member, &uri, JSON).await?;
    let namespace = &object.namespace;
    let is_pod = object.gvk.group.is_empty() && object.gvk.kind == "Pod";
    if is_pod {
        seen.pods.push(workload.clone());
    } else if let Some(selector) = decide::selector(&workload).filter(|_| !namespace.is_empty()) {
        let selector = encoded(&selector);
        let pods = format!("/api/v1/namespaces/{namespace}/pods");
        let page = format!("{pods}?labelSelector={selector}&limit={PODS}&includeObject=None");
        let table = ask(member, &page, TABLE).await?;
        for name in decide::failing(&table) {
            match ask(member, &format!("{pods}/{}", encoded(&name)), JSON).await {
                Ok(pod) => seen.pods.push(pod),
                // It is gone meanwhile.
                Err(error) if error.code() == Some(404) => {}
                Err(error) => return Err(error),
            }
        }
    }
    let mut about = vec![object.uid.to_string()];
    let uid = |pod: &Value| pod.pointer("/metadata/uid")?.as_str().map(str::to_owned);
    about.extend(seen.pods.iter().filter_map(uid).filter(|_| !is_pod));
    for uid in about {
        seen.events.extend(events(member, namespace, &uid).await?);
    }
    seen.workload = workload;
    Ok(seen)
}

/// The Events of one object; none where the agent may not read them.
async fn events(member: &Member, namespace: &str, uid: &str) -> Result<Vec<Value>, Error> {
    let place = if namespace.is_empty() {
        "default"
    } else {
        namespace
    };
    let about = encoded(&format!("involvedObject.uid={uid}"));
    let uri = format!("/api/v1/namespaces/{place}/events?fieldSelector={about}&limit={EVENTS}");
    match ask(member, &uri, JSON).await {
        Ok(mut list) => Ok(match list["items"].take() {
            Value::Array(items) => items,
            _ => Vec::new(),
        }),
        Err(error) if error.code() == Some(403) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

async fn ask(member: &Member, uri: &str, accept: &'static str) -> Result<Value, Error> {
    let call = Call::get(uri, accept).at_most(ANSWER);
    member.ask(call).await?.json()
}

/// A text as part of a query.
fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}
