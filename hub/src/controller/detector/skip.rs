//! What is never propagated, whatever policies say.
//!
//! Pure. Flags add to what is built in; a flag that cannot be meant is refused at the start.

use crate::propagation::{Template, group};
use common::labels::CLAIMED_BY;
use common::names::{CLUSTER_NAMESPACE, EXECUTION_PREFIX, SYSTEM_NAMESPACE};
use regex::Regex;
use std::collections::{BTreeMap, BTreeSet};

/// Karmada's own groups; its Service and search kinds are propagated like any other.
const GROUPS: [&str; 9] = [
    "cluster.karmada.io",
    "policy.karmada.io",
    "work.karmada.io",
    "config.karmada.io",
    "networking.karmada.io",
    "autoscaling.karmada.io",
    "remedy.karmada.io",
    "apps.karmada.io",
    "events.k8s.io",
];
/// Prefix of namespaces that hold this system's own objects.
const OWN_PREFIX: &str = "towline-";

/// The APIs and namespaces that the detector passes over.
#[derive(Debug, Clone)]
pub struct Skips {
    groups: BTreeSet<String>,
    versions: BTreeSet<String>,
    kinds: BTreeMap<String, BTreeSet<String>>,
    namespaces: Vec<Regex>,
}

impl Default for Skips {
    /// What is passed over whatever flags say.
    fn default() -> Self {
        Self {
            groups: GROUPS.map(str::to_owned).into(),
            versions: ["coordination.k8s.io/v1".to_owned()].into(),
            kinds: [("v1".to_owned(), ["Event".to_owned()].into())].into(),
            namespaces: Vec::new(),
        }
    }
}

/// A flag that cannot be meant.
#[derive(Debug, thiserror::Error)]
pub enum InvalidSkip {
    /// Neither a group, a version nor kinds of one.
    #[error("Invalid API string: {0:?}; write group, group/version or group/version/Kind,Kind")]
    Api(String),
    /// No regular expression.
    #[error("--skipped-propagating-namespaces {0:?} is no regular expression")]
    Namespace(String, #[source] Box<regex::Error>),
}

impl Skips {
    /// From `--skipped-propagating-apis`, split by `;`, and from `--skipped-propagating-namespaces`, each an
    /// expression for a whole name.
    pub fn parse<S: AsRef<str>>(
        apis: &str,
        namespaces: impl IntoIterator<Item = S>,
    ) -> Result<Self, InvalidSkip> {
        let mut skips = Self::default();
        for api in apis.split(';').map(str::trim).filter(|api| !api.is_empty()) {
            skips.add(api)?;
        }
        for namespace in namespaces {
            let namespace = namespace.as_ref();
            let whole = Regex::new(&format!("^(?:{namespace})$"))
                .map_err(|error| InvalidSkip::Namespace(namespace.to_owned(), Box::new(error)))?;
            skips.namespaces.push(whole);
        }
        Ok(skips)
    }

    fn add(&mut self, api: &str) -> Result<(), InvalidSkip> {
        let parts: Vec<&str> = api.split('/').collect();
        let invalid = || InvalidSkip::Api(api.to_owned());
        if parts.iter().any(|part| part.is_empty()) {
            return Err(invalid());
        }
        match parts[..] {
            [group] => {
                self.groups.insert(group.to_owned());
            }
            // A group never begins like a version; those of the core group do.
            [version, kinds] if version.starts_with('v') && is_version(version) => {
                self.add_kinds(version, kinds);
            }
            [group, version] => {
                self.versions.insert(format!("{group}/{version}"));
            }
            [group, version, kinds] => self.add_kinds(&format!("{group}/{version}"), kinds),
            _ => return Err(invalid()),
        }
        Ok(())
    }

    fn add_kinds(&mut self, version: &str, kinds: &str) {
        let known = self.kinds.entry(version.to_owned()).or_default();
        known.extend(kinds.split(',').map(|kind| kind.trim().to_owned()));
    }

    /// Whether objects of a kind are passed over wherever they lie, so that they need not even be watched.
    pub fn kind(&self, api_version: &str, kind: &str) -> bool {
        let kinds = self.kinds.get(api_version);
        self.groups.contains(group(api_version))
            || self.versions.contains(api_version)
            || kinds.is_some_and(|kinds| kinds.contains(kind))
    }

    /// Whether objects in a namespace are passed over. A Namespace itself lies in none.
    pub fn namespace(&self, namespace: &str) -> bool {
        namespace == SYSTEM_NAMESPACE
            || namespace == CLUSTER_NAMESPACE
            || namespace.starts_with(EXECUTION_PREFIX)
            || namespace.starts_with(OWN_PREFIX)
            || self.namespaces.iter().any(|it| it.is_match(namespace))
    }

    /// Whether a template is left alone, with its claim and its binding if it has them.
    pub fn template(&self, template: &Template) -> bool {
        let place = template.namespace.as_deref();
        let of_server = place == Some("kube-system")
            && (template.kind.as_str(), template.name.as_str())
                == ("ConfigMap", "extension-apiserver-authentication");
        let claimed = template.labels.get(CLAIMED_BY);
        self.kind(&template.api_version, &template.kind)
            || place.is_some_and(|namespace| self.namespace(namespace))
            || of_server
            || claimed.is_some_and(|by| !by.is_empty())
    }
}

/// `v` and a number, with what Kubernetes lets follow.
fn is_version(word: &str) -> bool {
    let rest = word.trim_start_matches('v');
    rest.starts_with(|c: char| c.is_ascii_digit()) && !rest.contains('.')
}
