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
        let all = list(tolerations).iter();
        let mut fit = all.filter(|it| {
            let key = text(it, "/key");
            (key.is_empty() || key == text(taint, "/key"))
                && (text(it, "/operator") == "Exists"
                    || text(it, "/value") == text(taint, "/value"))
                && (text(it, "/effect").is_empty() || it["effect"] == taint["effect"])
        });
        taint["effect"] == "PreferNoSchedule" || fit.next().is_some()
    })
}
