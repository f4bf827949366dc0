//! No bootstrap token lets in more agents than it says, or another than it is bound to; and who got a certificate.

use crate::serve::tests::fleet::books::{Books, Key, text};
use crate::serve::tests::fleet::image;
use common::identity::{AGENT_USER_PREFIX, BOOTSTRAP_USER_PREFIX};
use common::labels::CLUSTER_ID;
use serde_json::Value;

pub(super) fn step(books: &mut Books, key: &Key, request: &Value) {
    let user = text(request, "/spec/username");
    let now = books.now();
    if !text(request, "/status/certificate").is_empty()
        && let Some(cluster) = asks_for(books, request)
    {
        books.certified.insert(cluster, now);
    }
    let Some(id) = user.strip_prefix(BOOTSTRAP_USER_PREFIX) else {
        return;
    };
    let all = request["status"]["conditions"].as_array();
    let is_approved = all.is_some_and(|all| all.iter().any(|it| it["type"] == "Approved"));
    if !is_approved {
        return;
    }
    let cluster = request["metadata"]["annotations"][CLUSTER_ID].as_str();
    let used = books.used.entry(id.to_owned()).or_default();
    used.insert(cluster.unwrap_or_default().to_owned());
    let (used, most) = (used.len(), image::uses(id));
    let bound = image::bound(id);
    if let (Some(bound), Some(of)) = (bound, asks_for(books, request))
        && bound != of
    {
        books.problem(format!(
            "tokens: {key} lets in {of} by {id}, which is for {bound}"
        ));
    }
    if used > most {
        books.problem(format!(
            "tokens: {key} is the {used}. use of {id}, which has {most}"
        ));
    }
}

/// The cluster whose agent asks: by its certificate, or by the id that it says.
fn asks_for(books: &Books, request: &Value) -> Option<String> {
    if let Some(name) = text(request, "/spec/username").strip_prefix(AGENT_USER_PREFIX) {
        return Some(name.to_owned());
    }
    let id = request["metadata"]["annotations"][CLUSTER_ID].as_str()?;
    let mut clusters = books.all("Cluster");
    let found = clusters.find(|(_, it)| it["spec"]["id"] == id);
    found.map(|(key, _)| key.name.clone())
}
