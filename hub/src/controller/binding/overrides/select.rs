//! Which override policies are about a template, and in which order they are applied.
//!
//! Pure. The most specific selector of a policy ranks it; the highest rank, and of equal ranks the last name, is
//! applied last and so wins.

use crate::propagation::group;
use common::api::override_policy::OverrideSpec;
use common::api::policy::ResourceSelector;
use common::selector;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::Value;

/// How specific a selector is; the greater is applied later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// Everything of the kind, or of any.
    Kind,
    /// By labels.
    Labels,
    /// By name.
    Name,
}

/// What selectors see of a template besides its labels; no override changes it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Subject<'a> {
    group: &'a str,
    kind: &'a str,
    namespace: &'a str,
    name: &'a str,
}

impl<'a> Subject<'a> {
    pub(super) fn of(template: &'a Value) -> Self {
        let text = |pointer| {
            let text = template.pointer(pointer).and_then(Value::as_str);
            text.unwrap_or_default()
        };
        Self {
            group: group(text("/apiVersion")),
            kind: text("/kind"),
            namespace: text("/metadata/namespace"),
            name: text("/metadata/name"),
        }
    }

    /// Its namespace; none when it has none.
    pub(super) fn namespace(&self) -> Option<&'a str> {
        given(Some(self.namespace))
    }

    /// What is left to decide of a policy once labels are known.
    pub(super) fn interest<'s>(&self, spec: &'s OverrideSpec) -> Interest<'s> {
        if spec.resource_selectors.is_empty() {
            return Interest::Always(Rank::Kind);
        }
        let mut fixed = None;
        let mut by_labels = Vec::new();
        for selector in &spec.resource_selectors {
            if !self.is_meant(selector) {
                continue;
            }
            match (given(selector.name.as_deref()), &selector.label_selector) {
                (Some(name), _) if name == self.name => fixed = fixed.max(Some(Rank::Name)),
                (Some(_), _) => {}
                (None, Some(labels)) => by_labels.push(labels),
                (None, None) => fixed = fixed.max(Some(Rank::Kind)),
            }
        }
        match fixed {
            Some(Rank::Name) => Interest::Always(Rank::Name),
            fixed if by_labels.is_empty() => fixed.map_or(Interest::Never, Interest::Always),
            fixed => Interest::ByLabels {
                selectors: by_labels,
                otherwise: fixed,
            },
        }
    }

    /// Any version of a kind is that kind: in which one a template comes depends on what policies of others name.
    fn is_meant(&self, selector: &ResourceSelector) -> bool {
        let namespace = given(selector.namespace.as_deref());
        group(&selector.api_version) == self.group
            && selector.kind == self.kind
            && namespace.is_none_or(|namespace| namespace == self.namespace)
    }
}

/// In policies an empty text stands for nothing.
fn given(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}

/// Whether a policy is about a template.
#[derive(Debug, Clone)]
pub(super) enum Interest<'s> {
    /// It is not, whatever the labels.
    Never,
    /// It is, whatever the labels.
    Always(Rank),
    /// Labels decide; earlier overrides may change them.
    ByLabels {
        /// Any of them is enough.
        selectors: Vec<&'s LabelSelector>,
        /// The rank when none selects.
        otherwise: Option<Rank>,
    },
}

impl Interest<'_> {
    /// The rank, by the manifest's labels as they are now; none when the policy is not about it.
    pub(super) fn rank(&self, manifest: &Value) -> Option<Rank> {
        match self {
            Self::Never => None,
            Self::Always(rank) => Some(*rank),
            Self::ByLabels {
                selectors,
                otherwise,
            } => {
                let labels = manifest.pointer("/metadata/labels");
                let label = |key: &str| labels?.get(key)?.as_str();
                let selected = selectors.iter().any(|it| selector::matches(it, label));
                if selected {
                    Some(Rank::Labels)
                } else {
                    *otherwise
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_best_selector_ranks_a_policy() {
        let template = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "c", "namespace": "n", "labels": {"a": "1"}}});
        let selector = |more: Value| {
            let mut selector = json!({"apiVersion": "v1", "kind": "ConfigMap"});
            selector
                .as_object_mut()
                .expect("an object")
                .extend(more.as_object().expect("an object").clone());
            selector
        };
        let kind = selector(json!({}));
        let labels = selector(json!({"labelSelector": {"matchLabels": {"a": "1"}}}));
        let others = selector(json!({"labelSelector": {"matchLabels": {"a": "2"}}}));
        let name = selector(json!({"name": "c"}));
        let cases = [
            (json!([]), Some(Rank::Kind)),
            (json!([kind]), Some(Rank::Kind)),
            (json!([labels]), Some(Rank::Labels)),
            (json!([others]), None),
            (json!([others, kind]), Some(Rank::Kind)),
            (json!([kind, labels]), Some(Rank::Labels)),
            (json!([kind, labels, name]), Some(Rank::Name)),
            (json!([selector(json!({"name": "d"}))]), None),
            (
                json!([selector(
                    json!({"name": "c", "labelSelector": {"matchLabels": {"a": "2"}}})
                )]),
                Some(Rank::Name),
            ),
            (
                json!([selector(json!({"name": "", "namespace": ""}))]),
                Some(Rank::Kind),
            ),
            (
                json!([selector(json!({"namespace": "n"}))]),
                Some(Rank::Kind),
            ),
            (json!([selector(json!({"namespace": "m"}))]), None),
            (json!([selector(json!({"kind": "Secret"}))]), None),
            (
                json!([selector(json!({"apiVersion": "v2"}))]),
                Some(Rank::Kind),
            ),
            (json!([selector(json!({"apiVersion": "x.org/v1"}))]), None),
            (
                json!([selector(
                    json!({"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}})
                )]),
                None,
            ),
        ];
        for (selectors, want) in cases {
            let spec = json!({"resourceSelectors": selectors});
            let spec: OverrideSpec = serde_json::from_value(spec).expect("a spec");
            let interest = Subject::of(&template).interest(&spec);
            assert_eq!(interest.rank(&template), want, "{selectors}");
        }
    }
}
