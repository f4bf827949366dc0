//! Customizations that ship with Towline, for kinds that people propagate most: what is known of a kind where no
//! customization of the hub says it.
//!
//! Each is a file of `hub/customizations` as a user would write it; `hub/customizations/tests` says what it does. The
//! annotation `towline.dev/versions` names further versions of the same group of which the same is said.

#[cfg(test)]
mod tests;

use common::api::interpreter::{CustomizationSpec, ResourceInterpreterCustomization};
use common::interpreter::custom::Customizations;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

/// How their names begin, as no object's does.
pub const PREFIX: &str = "shipped/";

/// Further versions of the kind, split by commas.
const VERSIONS: &str = "towline.dev/versions";

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        [$(include_str!(concat!("../customizations/", $name, ".yaml"))),*]
    };
}

const FILES: [&str; 22] = files![
    "argo-rollout",
    "argo-workflow",
    "cert-manager-certificate",
    "cloudnative-pg-cluster",
    "flink-flinkdeployment",
    "flux-gitrepository",
    "flux-helmrelease",
    "flux-helmrepository",
    "flux-kustomization",
    "flux-ocirepository",
    "knative-service",
    "kruise-cloneset",
    "kruise-daemonset",
    "kruise-statefulset",
    "kubeflow-mpijob",
    "kubeflow-pytorchjob",
    "kubeflow-tfjob",
    "ray-raycluster",
    "ray-rayjob",
    "spark-sparkapplication",
    "strimzi-kafka",
    "volcano-job",
];

/// Their specs, by names that no object has.
pub fn specs() -> BTreeMap<String, CustomizationSpec> {
    let mut all = BTreeMap::new();
    for file in FILES {
        let read = serde_yaml::from_str::<ResourceInterpreterCustomization>(file);
        let read = read.expect("invariant: files that ship are sound, a test reads them");
        let name = format!("{PREFIX}{}", read.metadata.name.unwrap_or_default());
        let group = read.spec.target.api_version.split('/').next();
        let group = group.unwrap_or_default().to_owned();
        let annotations = read.metadata.annotations.unwrap_or_default();
        let versions = annotations.get(VERSIONS).map_or("", String::as_str);
        for version in versions.split(',').filter(|it| !it.is_empty()) {
            let mut spec = read.spec.clone();
            spec.target.api_version = format!("{group}/{version}");
            all.insert(format!("{name}/{version}"), spec);
        }
        all.insert(name, read.spec);
    }
    all
}

/// What is known by them, read once.
pub fn customizations() -> Arc<Customizations> {
    static READ: OnceLock<Arc<Customizations>> = OnceLock::new();
    let read = || {
        let specs = specs();
        let specs = specs.iter().map(|(name, spec)| (name.as_str(), spec));
        Arc::new(Customizations::new(specs))
    };
    Arc::clone(READ.get_or_init(read))
}
