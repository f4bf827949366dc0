//! Whether a cluster may get a binding, in so many words: not by the scheduler's, which is what is tested.

use super::books::{is_going, text};
use serde_json::Value;

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Whether a cluster that does not have it yet may get it.
pub(super) fn admit(binding: &Value, cluster: &Value) -> bool {
    let placement = &binding["spec"]["placement"];
    !is_going(cluster)
        && serves(binding, cluster)
        && is_chosen(&placement["clusterAffinity"], cluster)
        && tolerates(&placement["clusterTolerations"], cluster)
}

fn serves(binding: &Value, cluster: &Value) -> bool {
    let resource = &binding["spec"]["resource"];
    let apis = list(&cluster["status"]["apiEnablements"]).iter();
    let mut apis = apis.filter(|it| it["groupVersion"] == resource["apiVersion"]);
    apis.any(|it| {
        list(&it["resources"])
            .iter()
            .any(|it| it["kind"] == resource["kind"])
    })
}

/// By names and labels; nothing else is used here.
pub(super) fn is_chosen(affinity: &Value, cluster: &Value) -> bool {
    let name = &cluster["metadata"]["name"];
    let named = |key: &str| list(&affinity[key]).contains(name);
    let labels = affinity["labelSelector"]["matchLabels"].as_object();
    let mut labels = labels.into_iter().flatten();
    !named("exclude")
        && (list(&affinity["clusterNames"]).is_empty() || named("clusterNames"))
        && labels.all(|(key, value)| cluster["metadata"]["labels"][key] == *value)
}

fn tolerates(tolerations: &Value, cluster: &Value) -> bool {
    let mut taints = list(&cluster["spec"]["taints"]).iter();
    taints.all(|taint| {
        taint["effect"] == "PreferNoSchedule" || toleration(tolerations, taint).is_some()
    })
}

/// The first toleration of a taint.
fn toleration<'a>(tolerations: &'a Value, taint: &Value) -> Option<&'a Value> {
    list(tolerations).iter().find(|it| {
        let key = text(it, "/key");
        (key.is_empty() || key == text(taint, "/key"))
            && (text(it, "/operator") == "Exists" || text(it, "/value") == text(taint, "/value"))
            && (text(it, "/effect").is_empty() || it["effect"] == taint["effect"])
    })
}

/// Whether a cluster makes a binding leave, sooner or later; none where it may stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leaves {
    Now,
    Later,
}

pub(super) fn leaves(placement: &Value, cluster: &Value) -> Option<Leaves> {
    let taints = list(&cluster["spec"]["taints"]).iter();
    let taints = taints.filter(|it| it["effect"] == "NoExecute");
    let each: Vec<_> = taints
        .map(|it| toleration(&placement["clusterTolerations"], it))
        .collect();
    if each.contains(&None) {
        return Some(Leaves::Now);
    }
    let mut each = each.into_iter().flatten();
    each.any(|it| it["tolerationSeconds"].is_number())
        .then_some(Leaves::Later)
}
