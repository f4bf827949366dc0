//! What an object refers to, so that it can follow it to the same members.
//!
//! Pure. References count whether they are optional or not, and are not followed further. The result is sorted.

use crate::gvk::Gvk;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// An object, or those with certain labels, that another one refers to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Dependency {
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace; none for a cluster-scoped object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name; none when labels select.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Labels, when there is no name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
}

/// A reference that names nothing; only an Ingress can have one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "dependencies[{0}]: dependency can not leave name and labelSelector all empty; give every entry of spec.tls a secretName"
)]
pub struct NamesNothing(pub usize);

/// What an object refers to; none when no rule is known for its kind.
pub fn dependencies(gvk: &Gvk, object: &Value) -> Option<Result<Vec<Dependency>, NamesNothing>> {
    let namespace = object
        .pointer("/metadata/namespace")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let kind = (gvk.group.as_str(), gvk.version.as_str(), gvk.kind.as_str());
    let pod = |pointer: &str| Some(Ok(listed(of_pod(object.pointer(pointer)), namespace)));
    match kind {
        ("apps", "v1", "Deployment" | "ReplicaSet" | "DaemonSet") | ("batch", "v1", "Job") => {
            pod("/spec/template/spec")
        }
        ("batch", "v1", "CronJob") => pod("/spec/jobTemplate/spec/template/spec"),
        ("", "v1", "Pod") => pod("/spec"),
        ("apps", "v1", "StatefulSet") => {
            let mut found = of_pod(object.pointer("/spec/template/spec"));
            for template in items(object.pointer("/spec/volumeClaimTemplates")) {
                let name = template.pointer("/metadata/name").and_then(Value::as_str);
                found.remove(&(CLAIM, name.unwrap_or_default()));
            }
            Some(Ok(listed(found, namespace)))
        }
        ("networking.k8s.io", "v1", "Ingress") => Some(of_ingress(object, namespace)),
        ("multicluster.x-k8s.io", "v1alpha1", "ServiceImport") => {
            Some(Ok(of_import(object, namespace)))
        }
        _ => None,
    }
}

/// What pods of a template refer to; in this namespace.
pub fn of_pod_template(template: &Value, namespace: &str) -> Vec<Dependency> {
    listed(of_pod(template.get("spec")), namespace)
}

const CONFIG_MAP: &str = "ConfigMap";
const SECRET: &str = "Secret";
const SERVICE_ACCOUNT: &str = "ServiceAccount";
const CLAIM: &str = "PersistentVolumeClaim";

/// Kinds and names, all of the core group.
type Found<'a> = BTreeSet<(&'static str, &'a str)>;

fn listed(found: Found<'_>, namespace: &str) -> Vec<Dependency> {
    let named = |(kind, name): (&str, &str)| core(kind, namespace, name);
    found.into_iter().map(named).collect()
}

fn core(kind: &str, namespace: &str, name: &str) -> Dependency {
    Dependency {
        api_version: "v1".to_owned(),
        kind: kind.to_owned(),
        namespace: (!namespace.is_empty()).then(|| namespace.to_owned()),
        name: Some(name.to_owned()),
        label_selector: None,
    }
}

fn items(list: Option<&Value>) -> &[Value] {
    list.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Where a volume has the name of what it needs.
const VOLUMES: [(&str, &str); 12] = [
    (CONFIG_MAP, "/configMap/name"),
    (SECRET, "/secret/secretName"),
    (SECRET, "/azureFile/secretName"),
    (SECRET, "/cephfs/secretRef/name"),
    (SECRET, "/cinder/secretRef/name"),
    (SECRET, "/flexVolume/secretRef/name"),
    (SECRET, "/rbd/secretRef/name"),
    (SECRET, "/scaleIO/secretRef/name"),
    (SECRET, "/iscsi/secretRef/name"),
    (SECRET, "/storageos/secretRef/name"),
    (SECRET, "/csi/nodePublishSecretRef/name"),
    (CLAIM, "/persistentVolumeClaim/claimName"),
];

fn of_pod<'a>(spec: Option<&'a Value>) -> Found<'a> {
    let mut found = Found::new();
    let Some(spec) = spec else { return found };
    let mut add = |kind, from: &'a Value, pointer: &str| {
        let name = from.pointer(pointer).and_then(Value::as_str);
        if let Some(name) = name.filter(|name| !name.is_empty()) {
            found.insert((kind, name));
        }
    };
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        for container in items(spec.get(list)) {
            for source in items(container.get("envFrom")) {
                add(CONFIG_MAP, source, "/configMapRef/name");
                add(SECRET, source, "/secretRef/name");
            }
            for variable in items(container.get("env")) {
                add(CONFIG_MAP, variable, "/valueFrom/configMapKeyRef/name");
                add(SECRET, variable, "/valueFrom/secretKeyRef/name");
            }
        }
    }
    for secret in items(spec.get("imagePullSecrets")) {
        add(SECRET, secret, "/name");
    }
    for volume in items(spec.get("volumes")) {
        for (kind, pointer) in VOLUMES {
            add(kind, volume, pointer);
        }
        for source in items(volume.pointer("/projected/sources")) {
            add(CONFIG_MAP, source, "/configMap/name");
            add(SECRET, source, "/secret/name");
        }
    }
    add(SERVICE_ACCOUNT, spec, "/serviceAccountName");
    found.remove(&(SERVICE_ACCOUNT, "default"));
    found
}

/// The certificates of an Ingress. Where one has no name, nothing follows: nobody knows what was meant.
fn of_ingress(object: &Value, namespace: &str) -> Result<Vec<Dependency>, NamesNothing> {
    let mut found = Found::new();
    for (index, tls) in items(object.pointer("/spec/tls")).iter().enumerate() {
        let name = tls.get("secretName").and_then(Value::as_str);
        let name = name.filter(|name| !name.is_empty());
        found.insert((SECRET, name.ok_or(NamesNothing(index))?));
    }
    Ok(listed(found, namespace))
}

/// The Service that stands for an imported one, and its EndpointSlices.
fn of_import(object: &Value, namespace: &str) -> Vec<Dependency> {
    let name = object.pointer("/metadata/name").and_then(Value::as_str);
    let Some(name) = name.filter(|name| !name.is_empty()) else {
        return Vec::new();
    };
    let derived = format!("derived-{name}");
    let labels = [("kubernetes.io/service-name".to_owned(), derived.clone())];
    let slices = Dependency {
        api_version: "discovery.k8s.io/v1".to_owned(),
        kind: "EndpointSlice".to_owned(),
        namespace: (!namespace.is_empty()).then(|| namespace.to_owned()),
        name: None,
        label_selector: Some(LabelSelector {
            match_labels: Some(BTreeMap::from(labels)),
            ..LabelSelector::default()
        }),
    };
    vec![slices, core("Service", namespace, &derived)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shown(version: &str, kind: &str, object: Value) -> Vec<String> {
        let gvk = Gvk::new(version, kind).expect("sound");
        let found = dependencies(&gvk, &object).expect("a rule");
        let found = found.expect("names something");
        for dependency in &found {
            assert_eq!(dependency.namespace.as_deref(), Some("shop"), "{kind}");
        }
        let shown = |it: &Dependency| format!("{} {}", it.kind, it.name.as_deref().unwrap_or("*"));
        found.iter().map(shown).collect()
    }

    fn of_spec(pod: &Value) -> Vec<String> {
        let metadata = json!({"name": "web", "namespace": "shop"});
        let template = json!({"template": {"spec": pod}});
        let wanted = shown("v1", "Pod", json!({"metadata": metadata, "spec": pod}));
        for (version, kind) in [
            ("apps/v1", "Deployment"),
            ("apps/v1", "ReplicaSet"),
            ("apps/v1", "DaemonSet"),
            ("apps/v1", "StatefulSet"),
            ("batch/v1", "Job"),
        ] {
            let object = json!({"metadata": metadata, "spec": template});
            assert_eq!(shown(version, kind, object), wanted, "{kind}");
        }
        let cron = json!({"metadata": metadata, "spec": {"jobTemplate": {"spec": template}}});
        assert_eq!(shown("batch/v1", "CronJob", cron), wanted);
        wanted
    }

    #[test]
    fn every_path_of_a_pod_is_read() {
        for list in ["containers", "initContainers", "ephemeralContainers"] {
            let container = json!({
                "envFrom": [{"configMapRef": {"name": "a", "optional": true}}, {"secretRef": {"name": "b"}}],
                "env": [{"name": "x", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
                    {"name": "y", "valueFrom": {"secretKeyRef": {"name": "d", "key": "k"}}},
                    {"name": "z", "value": "plain"}],
            });
            let want = ["ConfigMap a", "ConfigMap c", "Secret b", "Secret d"];
            assert_eq!(of_spec(&json!({ list: [container] })), want, "{list}");
        }
        let paths = [
            (json!({"configMap": {"name": "n"}}), "ConfigMap n"),
            (json!({"secret": {"secretName": "n"}}), "Secret n"),
            (json!({"azureFile": {"secretName": "n"}}), "Secret n"),
            (json!({"cephfs": {"secretRef": {"name": "n"}}}), "Secret n"),
            (json!({"cinder": {"secretRef": {"name": "n"}}}), "Secret n"),
            (
                json!({"flexVolume": {"secretRef": {"name": "n"}}}),
                "Secret n",
            ),
            (json!({"rbd": {"secretRef": {"name": "n"}}}), "Secret n"),
            (json!({"scaleIO": {"secretRef": {"name": "n"}}}), "Secret n"),
            (json!({"iscsi": {"secretRef": {"name": "n"}}}), "Secret n"),
            (
                json!({"storageos": {"secretRef": {"name": "n"}}}),
                "Secret n",
            ),
            (
                json!({"csi": {"nodePublishSecretRef": {"name": "n"}}}),
                "Secret n",
            ),
            (
                json!({"projected": {"sources": [{"secret": {"name": "n"}}]}}),
                "Secret n",
            ),
            (
                json!({"projected": {"sources": [{"configMap": {"name": "n"}}]}}),
                "ConfigMap n",
            ),
            (
                json!({"persistentVolumeClaim": {"claimName": "n"}}),
                "PersistentVolumeClaim n",
            ),
        ];
        for (volume, want) in paths {
            assert_eq!(of_spec(&json!({"volumes": [volume]})), [want], "{volume}");
        }
        let pulled = json!({"imagePullSecrets": [{"name": "n"}], "serviceAccountName": "runner"});
        assert_eq!(of_spec(&pulled), ["Secret n", "ServiceAccount runner"]);
    }

    #[test]
    fn what_names_nothing_is_passed_over() {
        for nothing in [
            json!({"serviceAccountName": "default"}),
            json!({"serviceAccountName": ""}),
            json!({"volumes": [{"configMap": {"name": ""}}, {"emptyDir": {}}, 7]}),
            json!({"containers": {}, "volumes": "none"}),
            json!(null),
        ] {
            assert_eq!(of_spec(&nothing), [""; 0], "{nothing}");
        }
        let twice = json!({"volumes": [{"secret": {"secretName": "b"}}, {"secret": {"secretName": "a"}},
            {"secret": {"secretName": "b"}}]});
        assert_eq!(of_spec(&twice), ["Secret a", "Secret b"]);
    }

    #[test]
    fn claims_that_a_stateful_set_makes_itself_are_not_followed() {
        let claim = |name: &str| json!({"persistentVolumeClaim": {"claimName": name}});
        let set = json!({"metadata": {"namespace": "shop"}, "spec": {
            "volumeClaimTemplates": [{"metadata": {"name": "data"}}, {}],
            "template": {"spec": {"volumes": [claim("data"), claim("shared")]}}}});
        let found = shown("apps/v1", "StatefulSet", set);
        assert_eq!(found, ["PersistentVolumeClaim shared"]);
    }

    #[test]
    fn certificates_of_an_ingress_have_names() {
        let ingress = |tls: Value| json!({"metadata": {"namespace": "shop"}, "spec": {"tls": tls}});
        let named = ingress(json!([{"secretName": "b"}, {"secretName": "a"}]));
        let found = shown("networking.k8s.io/v1", "Ingress", named);
        assert_eq!(found, ["Secret a", "Secret b"]);
        let gvk = Gvk::new("networking.k8s.io/v1", "Ingress").expect("sound");
        let nameless = ingress(json!([{"secretName": "b"}, {"hosts": ["a"]}]));
        let error = dependencies(&gvk, &nameless).expect("a rule");
        let text = error.expect_err("names nothing").to_string();
        assert_eq!(
            text,
            "dependencies[1]: dependency can not leave name and labelSelector all empty; give every entry of spec.tls a \
             secretName"
        );
    }

    #[test]
    fn an_import_brings_its_service() {
        let gvk = Gvk::new("multicluster.x-k8s.io/v1alpha1", "ServiceImport").expect("sound");
        let import = json!({"metadata": {"name": "x", "namespace": "shop"}});
        let found = dependencies(&gvk, &import).expect("a rule").expect("sound");
        let text = serde_json::to_string(&found).expect("encodes");
        let want = r#"[{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","namespace":"shop","labelSelector":{"matchLabels":{"kubernetes.io/service-name":"derived-x"}}},{"apiVersion":"v1","kind":"Service","namespace":"shop","name":"derived-x"}]"#;
        assert_eq!(text, want);
    }

    #[test]
    fn other_kinds_have_no_rule() {
        for (version, kind) in [
            ("v1", "ConfigMap"),
            ("batch/v1beta1", "CronJob"),
            ("example.org/v1", "Deployment"),
        ] {
            let gvk = Gvk::new(version, kind).expect("sound");
            assert_eq!(dependencies(&gvk, &json!({})), None, "{kind}");
        }
    }
}
