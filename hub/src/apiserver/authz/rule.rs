//! One rule of a role: what it allows, and how messages show it. Pure.

use crate::go::quote;
use serde::{Deserialize, Serialize};

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

    /// As messages show it.
    pub(super) fn compact(&self) -> String {
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

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Words of a list; `-` for none.
    pub(in crate::apiserver::authz) fn list(text: &str) -> Vec<String> {
        let words = text.split(' ').filter(|word| *word != "-");
        words.map(|one| one.trim_matches('\'').to_owned()).collect()
    }

    pub(in crate::apiserver::authz) fn rule(
        verbs: &str,
        groups: &str,
        resources: &str,
        names: &str,
    ) -> Rule {
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
}
