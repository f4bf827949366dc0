//! What a writer of workloads should know about pods that are taken as they are: settings that do
//! nothing any more, and values that hide each other.

use super::Facts;
use crate::apiserver::schema::{quantity_above, whole_bytes};
use crate::apiserver::value::{at, list, map, text};
use crate::apiserver::{metadata, names};
use crate::go::quote;
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};

/// The warnings of a built-in kind.
pub(super) fn of(facts: &Facts<'_>, object: &Value, old: Option<&Value>) -> Vec<String> {
    let resource = &facts.context.resource;
    if resource.is_custom() || !facts.context.subresource.is_empty() {
        return Vec::new();
    }
    let plural = resource.plural.as_ref();
    if (resource.group.as_ref(), plural) == ("", "services") {
        return service(object);
    }
    if (resource.group.as_ref(), plural) == ("", "resourcequotas") {
        return match old {
            None => quota(object),
            Some(_) => Vec::new(),
        };
    }
    let place: &[&str] = match (resource.group.as_ref(), plural) {
        ("apps", "deployments" | "replicasets" | "statefulsets" | "daemonsets")
        | ("batch", "jobs")
        | ("", "replicationcontrollers") => &["spec", "template"],
        ("batch", "cronjobs") => &["spec", "jobTemplate", "spec", "template"],
        ("", "podtemplates") => &["template"],
        // Nobody changes pods by hand.
        ("", "pods") if old.is_none() => &[],
        _ => return Vec::new(),
    };
    // Only what makes new pods is worth a word.
    let is_as_before = |old: &Value| match plural {
        "daemonsets" => at(old, place) == at(object, place),
        _ => metadata::generation(old) == metadata::generation(object),
    };
    if old.is_some_and(is_as_before) {
        return Vec::new();
    }
    let mut warnings = Vec::new();
    if old.is_none() {
        warnings.extend(name(plural, metadata::name(object)));
    }
    if let Some(template) = at(object, place) {
        let lead = if place.is_empty() {
            String::new()
        } else {
            format!("{}.", place.join("."))
        };
        pod(template, &lead, &mut warnings);
    }
    warnings
}

/// Fields of a Service that do nothing.
fn service(object: &Value) -> Vec<String> {
    let field = |key: &str| text(object, &["spec", key]);
    let external = field("type") == "ExternalName";
    let mut warnings = Vec::new();
    let addresses = !list(object, &["spec", "externalIPs"]).is_empty();
    if field("clusterIP") == "None" {
        let ignored = [
            ("loadBalancerIP", !field("loadBalancerIP").is_empty()),
            ("externalIPs", addresses),
            ("SessionAffinity", field("sessionAffinity") == "ClientIP"),
        ];
        let told = ignored.into_iter().filter(|(_, set)| *set);
        warnings
            .extend(told.map(|(key, _)| format!("spec.{key} is ignored for headless services")));
    }
    if external && addresses {
        let why = "spec.externalIPs is ignored when spec.type is \"ExternalName\"";
        warnings.push(why.to_owned());
    }
    if !external && !field("externalName").is_empty() {
        let why = "spec.externalName is ignored when spec.type is not \"ExternalName\"";
        warnings.push(why.to_owned());
    }
    warnings
}

/// Requests of a quota that are beyond its limits.
fn quota(object: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    for resource in ["cpu", "memory", "ephemeral-storage"] {
        let hard = |name: &str| at(object, &["spec", "hard", name]).and_then(Value::as_str);
        let (requests, limits) = (format!("requests.{resource}"), format!("limits.{resource}"));
        let bare = hard(resource).filter(|_| resource != "ephemeral-storage");
        let asked = match hard(&requests) {
            Some(request) => Some((requests.as_str(), request)),
            None => bare.map(|request| (resource, request)),
        };
        if let (Some((name, request)), Some(limit)) = (asked, hard(&limits))
            && quantity_above(request, limit)
        {
            warnings.push(format!(
                "ResourceQuota {name} ({request}) should be less than {limits} ({limit})"
            ));
        }
    }
    warnings
}

/// Pods are called after what makes them.
fn name(plural: &str, name: &str) -> Option<String> {
    let wrong = names::label(name);
    let used = match plural {
        _ if wrong.is_empty() => return None,
        "pods" => "the Pod's hostname",
        "deployments" | "replicasets" | "jobs" | "cronjobs" | "replicationcontrollers" => {
            "Pod names and hostnames"
        }
        _ => return None,
    };
    let wrong = wrong.join(" ");
    Some(format!(
        "metadata.name: this is used in {used}, which can result in surprising behavior; a DNS label \
         is recommended: [{wrong}]"
    ))
}

/// Labels of nodes that have other names now.
fn old_label(key: &str) -> Option<&'static str> {
    Some(match key {
        "beta.kubernetes.io/arch" => "deprecated since v1.14; use \"kubernetes.io/arch\" instead",
        "beta.kubernetes.io/os" => "deprecated since v1.14; use \"kubernetes.io/os\" instead",
        "failure-domain.beta.kubernetes.io/region" => {
            "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead"
        }
        "failure-domain.beta.kubernetes.io/zone" => {
            "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead"
        }
        "beta.kubernetes.io/instance-type" => {
            "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead"
        }
        "app.kubernetes.io/created-by" => "deprecated since v1.9",
        "scheduler.alpha.kubernetes.io/preferAvoidPods" => {
            "deprecated since v1.22; use Taints and Tolerations instead"
        }
        "node-role.kubernetes.io/master" => "use \"node-role.kubernetes.io/control-plane\" instead",
        _ => return None,
    })
}

const ANNOTATIONS: [(&str, &str); 3] = [
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        "non-functional in v1.16+; use the \"priorityClassName\" field instead",
    ),
    (
        "security.alpha.kubernetes.io/sysctls",
        "non-functional in v1.11+; use the \"sysctls\" field instead",
    ),
    (
        "security.alpha.kubernetes.io/unsafe-sysctls",
        "non-functional in v1.11+; use the \"sysctls\" field instead",
    ),
];

/// Volumes that no node mounts any more, in the order in which they are told.
const VOLUMES: [(&str, &str); 9] = [
    (
        "photonPersistentDisk",
        "deprecated in v1.11, non-functional in v1.16+",
    ),
    (
        "gitRepo",
        "deprecated in v1.11, and disabled by default in v1.33+",
    ),
    ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageOS", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

const NO_POD: &str = "a null labelSelector results in matching no pod";

/// A pod or a template of one; `lead` is where it stands.
fn pod(pod: &Value, lead: &str, warnings: &mut Vec<String>) {
    let spec = &pod["spec"];
    let at_spec = format!("{lead}spec");
    for key in map(spec, &["nodeSelector"])
        .into_iter()
        .flat_map(|all| all.keys())
    {
        if let Some(why) = old_label(key) {
            warnings.push(format!("{at_spec}.nodeSelector[{key}]: {why}"));
        }
    }
    for (index, spread) in list(spec, &["topologySpreadConstraints"])
        .iter()
        .enumerate()
    {
        let at = format!("{at_spec}.topologySpreadConstraints[{index}]");
        let key = text(spread, &["topologyKey"]);
        if let Some(why) = old_label(key) {
            warnings.push(format!("{at}.topologyKey: {key} is {why}"));
        }
        if spread["labelSelector"].is_null() {
            warnings.push(format!("{at}.labelSelector: {NO_POD}"));
        }
    }
    for (key, why) in ANNOTATIONS {
        if at(pod, &["metadata", "annotations", key]).is_some() {
            warnings.push(format!("{lead}metadata.annotations[{key}]: {why}"));
        }
    }
    for (index, volume) in list(spec, &["volumes"]).iter().enumerate() {
        for (source, why) in VOLUMES {
            if !volume[source].is_null() {
                warnings.push(format!("{at_spec}.volumes[{index}].{source}: {why}"));
            }
        }
    }
    repeated(spec, &at_spec, warnings);
    let containers = containers(spec, &at_spec);
    for (container, at) in &containers {
        bytes(container, at, warnings);
        environment(container, at, warnings);
    }
    ports(&containers, warnings);
    affinity(spec, &at_spec, warnings);
}

/// Every container with its place.
fn containers<'a>(spec: &'a Value, at_spec: &str) -> Vec<(&'a Value, String)> {
    let all = ["initContainers", "containers"]
        .into_iter()
        .flat_map(|key| {
            let listed = list(spec, &[key]).iter().enumerate();
            listed.map(move |(index, one)| (one, format!("{at_spec}.{key}[{index}]")))
        });
    all.collect()
}

fn repeated(spec: &Value, at_spec: &str, warnings: &mut Vec<String>) {
    for (key, field) in [("hostAliases", "ip"), ("imagePullSecrets", "name")] {
        let mut known = BTreeSet::new();
        for (index, one) in list(spec, &[key]).iter().enumerate() {
            let found = text(one, &[field]);
            if !known.insert(found) {
                let at = format!("{at_spec}.{key}[{index}].{field}");
                warnings.push(format!("{at}: duplicate {field} {}", quote(found)));
            }
        }
    }
    for (index, one) in list(spec, &["imagePullSecrets"]).iter().enumerate() {
        if text(one, &["name"]).is_empty() {
            let at = format!("{at_spec}.imagePullSecrets[{index}].name");
            warnings.push(format!("{at}: invalid empty name \"\""));
        }
    }
}

/// There is no half of a byte.
fn bytes(container: &Value, at: &str, warnings: &mut Vec<String>) {
    for resource in ["memory", "ephemeral-storage"] {
        for key in ["limits", "requests"] {
            let given = text(container, &["resources", key, resource]);
            if !given.is_empty() && !whole_bytes(given) {
                warnings.push(format!(
                    "{at}.resources.{key}[{resource}]: fractional byte value {} is invalid, must be an \
                     integer",
                    quote(given)
                ));
            }
        }
    }
}

fn environment(container: &Value, at: &str, warnings: &mut Vec<String>) {
    let mut known = BTreeSet::new();
    for (index, one) in list(container, &["env"]).iter().enumerate() {
        let name = text(one, &["name"]);
        if known.insert(name) {
            continue;
        }
        // One that is made of the earlier one is meant.
        let (earlier, value) = (format!("$({name})"), text(one, &["value"]));
        let grows = value != earlier && value.contains(&earlier);
        if !one["valueFrom"].is_null() || !grows {
            warnings.push(format!(
                "{at}.env[{index}]: hides previous definition of {}, which may be dropped when using \
                 apply",
                quote(name)
            ));
        }
    }
}

/// With so many definitions of a port another one is compared, and no more are told.
const MOST_COMPARED: usize = 100;

fn ports(containers: &[(&Value, String)], warnings: &mut Vec<String>) {
    let mut known: HashMap<(&Value, &Value), Vec<(&Value, String)>> = HashMap::new();
    for (container, at) in containers {
        for (index, port) in list(container, &["ports"]).iter().enumerate() {
            let place = format!("{at}.ports[{index}]");
            let host = |port: &Value| port["hostPort"].as_i64().unwrap_or_default();
            let address = |port: &Value| text(port, &["hostIP"]).to_owned();
            let earlier = known
                .entry((&port["containerPort"], &port["protocol"]))
                .or_default();
            for (other, there) in earlier.iter() {
                let same_host = host(port) == host(other);
                let (here, other_address) = (address(port), address(other));
                let how = if same_host && here == other_address {
                    "duplicate"
                } else if host(port) == 0 || host(other) == 0 {
                    "overlapping"
                } else if same_host && here.is_empty() != other_address.is_empty() {
                    "dangerously ambiguous"
                } else {
                    continue;
                };
                warnings.push(format!("{place}: {how} port definition with {there}"));
            }
            if earlier.len() < MOST_COMPARED {
                earlier.push((port, place));
            }
            if warnings.len() >= MOST_COMPARED {
                return;
            }
        }
    }
}

fn affinity(spec: &Value, at_spec: &str, warnings: &mut Vec<String>) {
    for kind in ["podAffinity", "podAntiAffinity"] {
        for (mode, term) in [
            ("requiredDuringSchedulingIgnoredDuringExecution", ""),
            (
                "preferredDuringSchedulingIgnoredDuringExecution",
                "podAffinityTerm",
            ),
        ] {
            let terms = list(spec, &["affinity", kind, mode]);
            for (index, one) in terms.iter().enumerate() {
                let (one, below) = match term {
                    "" => (one, String::new()),
                    term => (&one[term], format!(".{term}")),
                };
                if one["labelSelector"].is_null() {
                    let at = format!("{at_spec}.affinity.{kind}.{mode}[{index}]{below}");
                    warnings.push(format!("{at}.labelSelector: {NO_POD}"));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn told(spec: Value) -> Vec<String> {
        let mut warnings = Vec::new();
        pod(&json!({"spec": spec}), "spec.template.", &mut warnings);
        warnings
    }

    #[test]
    fn what_does_nothing_or_hides_something_is_told() {
        let cases = [
            (
                json!({"topologySpreadConstraints": [{"topologyKey": "x"}]}),
                "spec.template.spec.topologySpreadConstraints[0].labelSelector: a null labelSelector \
                 results in matching no pod",
            ),
            (
                json!({"nodeSelector": {"beta.kubernetes.io/os": "linux"}}),
                "spec.template.spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use \
                 \"kubernetes.io/os\" instead",
            ),
            (
                json!({"volumes": [{"name": "v", "rbd": {}}]}),
                "spec.template.spec.volumes[0].rbd: deprecated in v1.28, non-functional in v1.31+",
            ),
            (
                json!({"imagePullSecrets": [{"name": "a"}, {"name": "a"}]}),
                "spec.template.spec.imagePullSecrets[1].name: duplicate name \"a\"",
            ),
            (
                json!({"containers": [{"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}]}),
                "spec.template.spec.containers[0].env[1]: hides previous definition of \"A\", which may \
                 be dropped when using apply",
            ),
            (
                json!({"containers": [{"resources": {"limits": {"memory": "500m"}}}]}),
                "spec.template.spec.containers[0].resources.limits[memory]: fractional byte value \
                 \"500m\" is invalid, must be an integer",
            ),
            (
                json!({"containers": [{"ports": [{"containerPort": 80, "protocol": "TCP"}]}, {"ports": [{"containerPort": 80, "protocol": "TCP"}]}]}),
                "spec.template.spec.containers[1].ports[0]: duplicate port definition with \
                 spec.template.spec.containers[0].ports[0]",
            ),
            (
                json!({"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"podAffinityTerm": {}}]}}}),
                "spec.template.spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm.labelSelector: \
                 a null labelSelector results in matching no pod",
            ),
        ];
        for (spec, want) in cases {
            assert_eq!(told(spec), [want]);
        }
    }

    #[test]
    fn what_is_meant_is_not_told() {
        let quiet = [
            json!({"containers": [{"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "$(A)2"}]}]}),
            json!({"containers": [{"resources": {"limits": {"memory": "1Gi"}}}]}),
            json!({"topologySpreadConstraints": [{"topologyKey": "x", "labelSelector": {}}]}),
        ];
        for spec in quiet {
            assert_eq!(told(spec.clone()), Vec::<String>::new(), "{spec}");
        }
    }
}
