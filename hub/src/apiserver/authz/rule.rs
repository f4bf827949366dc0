//! One rule of a role: what it allows, and whether it covers another. Pure.

use crate::go::quote;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A rule as roles hold it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rule {
    /// Verbs; `*` is every one.
    #[serde(default)]
    pub verbs: Vec<String>,
    /// API groups; `*` is every one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub api_groups: Vec<String>,
    /// Plural names, `name/subresource`, `*`, `*/subresource`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    /// Names of objects; none is every one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<String>,
    /// Paths that are no objects; `*` at the end stands for any rest.
    #[serde(
        rename = "nonResourceURLs",
        default,
        skip_serializing_if = "Vec::is_empty"
    )]
    pub non_resource_urls: Vec<String>,
}

/// What somebody wants to do.
#[derive(Debug, Clone, Copy)]
pub enum Action<'a> {
    /// Something with objects.
    Resource {
        /// `get`, `list`, `create`, …
        verb: &'a str,
        /// API group; empty for the core group.
        group: &'a str,
        /// Plural name.
        resource: &'a str,
        /// Subresource; empty for the object itself.
        subresource: &'a str,
        /// Name; empty for the collection.
        name: &'a str,
    },
    /// Something with a path.
    Path {
        /// Method in lower case.
        verb: &'a str,
        /// From its first slash on.
        path: &'a str,
    },
}

const ALL: &str = "*";

fn has(list: &[String], item: &str) -> bool {
    list.iter().any(|one| one == item)
}

fn has_or_all(list: &[String], item: &str) -> bool {
    list.iter().any(|one| one == ALL || one == item)
}

impl Rule {
    /// Whether this rule alone allows it.
    pub fn allows(&self, action: &Action<'_>) -> bool {
        match *action {
            Action::Path { verb, path } => {
                has_or_all(&self.verbs, verb)
                    && self.non_resource_urls.iter().any(|url| {
                        url == ALL
                            || url == path
                            || url
                                .strip_suffix('*')
                                .is_some_and(|start| path.starts_with(start.trim_end_matches('*')))
                    })
            }
            Action::Resource {
                verb,
                group,
                resource,
                subresource,
                name,
            } => {
                has_or_all(&self.verbs, verb)
                    && has_or_all(&self.api_groups, group)
                    && self.names_resource(resource, subresource)
                    && (self.resource_names.is_empty() || has(&self.resource_names, name))
            }
        }
    }

    fn names_resource(&self, resource: &str, subresource: &str) -> bool {
        self.resources.iter().any(|one| {
            if one == ALL {
                return true;
            }
            if subresource.is_empty() {
                return one == resource;
            }
            one.split_once('/')
                .is_some_and(|(of, sub)| (of == resource || of == ALL) && sub == subresource)
        })
    }

    /// The same as many rules, each with one verb of one kind.
    fn broken_down(&self) -> Vec<Self> {
        let one = |item: &String| vec![item.clone()];
        let mut parts = Vec::new();
        for group in &self.api_groups {
            for resource in &self.resources {
                for verb in &self.verbs {
                    let part = Self {
                        verbs: one(verb),
                        api_groups: one(group),
                        resources: one(resource),
                        ..Self::default()
                    };
                    if self.resource_names.is_empty() {
                        parts.push(part);
                        continue;
                    }
                    parts.extend(self.resource_names.iter().map(|name| Self {
                        resource_names: one(name),
                        ..part.clone()
                    }));
                }
            }
        }
        for url in &self.non_resource_urls {
            parts.extend(self.verbs.iter().map(|verb| Self {
                verbs: one(verb),
                non_resource_urls: one(url),
                ..Self::default()
            }));
        }
        parts
    }

    /// Whether this rule allows all that `part`, a broken down one, does.
    fn covers(&self, part: &Self) -> bool {
        let all_in = |set: &[String], of: &[String]| of.iter().all(|one| has(set, one));
        let any_or_all = |set: &[String], of: &[String]| has(set, ALL) || all_in(set, of);
        let resources = any_or_all(&self.resources, &part.resources)
            || part.resources.iter().all(|path| {
                has(&self.resources, path)
                    || path
                        .split_once('/')
                        .is_some_and(|(_, sub)| has(&self.resources, &format!("*/{sub}")))
            });
        let urls = part.non_resource_urls.iter().all(|path| {
            self.non_resource_urls.iter().any(|own| {
                own == path || own.ends_with('*') && path.starts_with(own.trim_end_matches('*'))
            })
        });
        let names = self.resource_names.is_empty()
            || !part.resource_names.is_empty()
                && all_in(&self.resource_names, &part.resource_names);
        any_or_all(&self.verbs, &part.verbs)
            && any_or_all(&self.api_groups, &part.api_groups)
            && resources
            && names
            && urls
    }

    /// As messages show it.
    fn compact(&self) -> String {
        let fields = [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.non_resource_urls),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ];
        let shown: Vec<String> = fields
            .iter()
            .filter(|(_, list)| !list.is_empty())
            .map(|(name, list)| format!("{name}:{}", quoted_list(list)))
            .collect();
        format!("{{{}}}", shown.join(", "))
    }
}

/// A list of strings as messages show it: `["a" "b"]`.
pub(in crate::apiserver) fn quoted_list(list: &[String]) -> String {
    let quoted: Vec<String> = list.iter().map(|one| quote(one)).collect();
    format!("[{}]", quoted.join(" "))
}

/// Groups, resources and names of a rule.
type Target = (Vec<String>, Vec<String>, Vec<String>);

/// What of `wanted` is not covered by `owned`, each rule with one verb of one kind.
pub(super) fn lacking(owned: &[Rule], wanted: &[Rule]) -> Vec<Rule> {
    let parts = wanted.iter().flat_map(Rule::broken_down);
    parts
        .filter(|part| !owned.iter().any(|rule| rule.covers(part)))
        .collect()
}

/// What of `wanted` is not covered by `owned`, as messages list it; empty when all is.
pub(super) fn missing(owned: &[Rule], wanted: &[Rule]) -> Vec<String> {
    // Parts that differ only in the verb are shown as one.
    let mut by_resource: BTreeMap<Target, Rule> = BTreeMap::new();
    let mut shown = BTreeSet::new();
    for part in lacking(owned, wanted) {
        if !part.non_resource_urls.is_empty() {
            shown.insert(part.compact());
            continue;
        }
        let key = (
            part.api_groups.clone(),
            part.resources.clone(),
            part.resource_names.clone(),
        );
        match by_resource.get_mut(&key) {
            Some(rule) => rule.verbs.extend(part.verbs),
            None => {
                by_resource.insert(key, part);
            }
        }
    }
    shown.extend(by_resource.values().map(Rule::compact));
    shown.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(verbs: &str, groups: &str, resources: &str, names: &str) -> Rule {
        let list = |text: &str| match text {
            "-" => Vec::new(),
            text => text
                .split(' ')
                .map(|one| one.trim_matches('\'').to_owned())
                .collect(),
        };
        Rule {
            verbs: list(verbs),
            api_groups: list(groups),
            resources: list(resources),
            resource_names: list(names),
            non_resource_urls: Vec::new(),
        }
    }

    #[test]
    fn a_rule_allows_what_it_names() {
        // rule, then verb group resource subresource name, then whether it may be.
        let cases = [
            (rule("get", "''", "pods", "-"), "get  pods  x", true),
            (rule("get", "''", "pods", "-"), "list  pods  ", false),
            (rule("*", "*", "*", "-"), "list apps x status y", true),
            (rule("get", "''", "pods", "-"), "get  pods status x", false),
            (
                rule("get", "''", "*/status", "-"),
                "get  pods status x",
                true,
            ),
            (
                rule("get", "''", "pods/status", "-"),
                "get  pods status x",
                true,
            ),
            (rule("get", "''", "pods/status", "-"), "get  pods  x", false),
            (rule("get", "''", "pods", "a"), "get  pods  a", true),
            (rule("get", "''", "pods", "a"), "get  pods  b", false),
            (rule("list", "''", "pods", "a"), "list  pods  ", false),
            (rule("get", "apps", "pods", "-"), "get  pods  x", false),
        ];
        for (rule, asked, want) in cases {
            let parts: Vec<&str> = asked.split(' ').collect();
            let action = Action::Resource {
                verb: parts[0],
                group: parts[1],
                resource: parts[2],
                subresource: parts[3],
                name: parts[4],
            };
            assert_eq!(rule.allows(&action), want, "{rule:?} {asked}");
        }
    }

    #[test]
    fn paths_match_whole_or_by_their_beginning() {
        let rule = Rule {
            verbs: vec!["get".to_owned()],
            non_resource_urls: vec!["/healthz".to_owned(), "/apis/*".to_owned()],
            ..Rule::default()
        };
        for (path, want) in [
            ("/healthz", true),
            ("/healthz/ping", false),
            ("/apis/", true),
            ("/apis/apps", true),
            ("/apis", false),
        ] {
            let action = Action::Path { verb: "get", path };
            assert_eq!(rule.allows(&action), want, "{path}");
        }
    }

    #[test]
    fn what_is_missing_is_named_compactly() {
        let owned = [rule("get list", "''", "pods", "-")];
        let wanted = [rule("get watch update", "'' apps", "pods", "-")];
        assert_eq!(
            missing(&owned, &wanted),
            [
                "{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"watch\" \"update\"]}",
                "{APIGroups:[\"apps\"], Resources:[\"pods\"], Verbs:[\"get\" \"watch\" \"update\"]}",
            ]
        );
        assert!(missing(&[rule("*", "*", "*", "-")], &wanted).is_empty());
        assert!(
            !missing(
                &[rule("get", "*", "*", "a")],
                &[rule("get", "''", "pods", "-")]
            )
            .is_empty()
        );
    }
}
