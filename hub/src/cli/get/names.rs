//! What is asked for, in kubectl's words: types by plural, singular, kind or short name, with `.group` or
//! `.version.group` behind, and `TYPE NAME...` or `TYPE/NAME...`.
//!
//! Pure.

use common::gvk::Gvk;
use common::mapper::Resource;
use serde::Deserialize;
use serde_json::Value;

/// Bindings by their plain name; Kubernetes' own Binding of a Pod cannot be listed.
const ALIASES: [(&str, &str); 4] = [
    ("binding", "resourcebindings"),
    ("bindings", "resourcebindings"),
    ("clusterbinding", "clusterresourcebindings"),
    ("clusterbindings", "clusterresourcebindings"),
];

/// What the words ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) enum Asked {
    /// Every object of these types.
    All(Vec<String>),
    /// Objects by type and name.
    Named(Vec<(String, String)>),
}

/// Words that cannot mean anything.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::cli) enum Unfit {
    /// `TYPE/NAME` beside something else.
    #[error(
        "there is no need to specify a resource type as a separate argument when passing arguments in resource/name \
         form (e.g. 'towline get resource/<resource_name>' instead of 'towline get resource resource/<resource_name>'"
    )]
    Mixed,
    /// `TYPE/` or `/NAME`.
    #[error("arguments in resource/name form must have a single resource and name")]
    Halved,
    /// `TYPE,TYPE NAME`.
    #[error("a name is of one type: name the types one by one, as TYPE/NAME")]
    ManyTypes,
    /// An empty word.
    #[error("a type must not be empty")]
    Empty,
}

impl Asked {
    /// Each type, with a name where one is asked for.
    pub(in crate::cli) fn each(&self) -> Vec<(&str, Option<&str>)> {
        match self {
            Self::All(types) => types.iter().map(|word| (word.as_str(), None)).collect(),
            Self::Named(pairs) => {
                let pairs = pairs.iter();
                pairs
                    .map(|(of, name)| (of.as_str(), Some(name.as_str())))
                    .collect()
            }
        }
    }

    /// Reads the words of the command line.
    pub(in crate::cli) fn read(words: &[String]) -> Result<Self, Unfit> {
        if words.iter().any(|word| word.contains('/')) {
            let pair = |word: &String| match word.split_once('/') {
                None => Err(Unfit::Mixed),
                Some((of, name)) if of.is_empty() || name.is_empty() || name.contains('/') => {
                    Err(Unfit::Halved)
                }
                Some((of, name)) => Ok((of.to_owned(), name.to_owned())),
            };
            return Ok(Self::Named(
                words.iter().map(pair).collect::<Result<_, _>>()?,
            ));
        }
        let Some((types, names)) = words.split_first() else {
            return Err(Unfit::Empty);
        };
        let types: Vec<String> = types.split(',').map(str::to_owned).collect();
        if types.iter().any(String::is_empty) {
            return Err(Unfit::Empty);
        }
        match (&types[..], names) {
            (_, []) => Ok(Self::All(types)),
            ([of], names) => {
                let pair = |name: &String| (of.clone(), name.clone());
                Ok(Self::Named(names.iter().map(pair).collect()))
            }
            _ => Err(Unfit::ManyTypes),
        }
    }
}

/// A type that the hub serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) struct Type {
    /// How it is asked for.
    pub(in crate::cli) resource: Resource,
    singular: String,
    short: Vec<String>,
}

#[derive(Deserialize)]
struct Groups {
    #[serde(default)]
    items: Vec<Value>,
}

/// The types that aggregated discovery tells and that can be listed: groups and versions in the server's order.
pub(in crate::cli) fn types(discovery: &Value) -> Vec<Type> {
    let groups = Groups::deserialize(discovery).map_or(Vec::new(), |it| it.items);
    groups.iter().flat_map(of_group).collect()
}

fn of_group(group: &Value) -> Vec<Type> {
    let name = text(group, "/metadata/name");
    let of_version = |version: &Value| {
        let number = text(version, "/version");
        let api_version = match name.as_str() {
            "" => number,
            group => format!("{group}/{number}"),
        };
        let read = |resource: &Value| of_resource(&api_version, resource);
        list(version, "resources")
            .filter_map(read)
            .collect::<Vec<_>>()
    };
    list(group, "versions").flat_map(of_version).collect()
}

fn of_resource(api_version: &str, resource: &Value) -> Option<Type> {
    let can_list = list(resource, "verbs").any(|verb| verb == "list");
    let short = list(resource, "shortNames").filter_map(Value::as_str);
    can_list.then_some(())?;
    Some(Type {
        resource: Resource {
            gvk: Gvk::new(api_version, &text(resource, "/responseKind/kind"))?,
            plural: text(resource, "/resource"),
            namespaced: text(resource, "/scope") == "Namespaced",
        },
        singular: text(resource, "/singularResource"),
        short: short.map(str::to_owned).collect(),
    })
}

fn list<'v>(value: &'v Value, key: &str) -> impl Iterator<Item = &'v Value> {
    value
        .get(key)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

fn text(value: &Value, pointer: &str) -> String {
    let text = value.pointer(pointer).and_then(Value::as_str);
    text.unwrap_or_default().to_owned()
}

/// The type that a word means; the first that is served, and names before short names.
pub(in crate::cli) fn resolve<'t>(types: &'t [Type], word: &str) -> Option<&'t Type> {
    let word = word.to_lowercase();
    let (name, rest) = match word.split_once('.') {
        Some((name, rest)) => (name, Some(rest)),
        None => (word.as_str(), None),
    };
    let fits = |it: &Type| {
        let Gvk { group, version, .. } = &it.resource.gvk;
        rest.is_none_or(|rest| {
            rest == group || rest.trim_end_matches('.') == trimmed(version, group)
        })
    };
    let long = |it: &&Type, name: &str| {
        let kind = it.resource.gvk.kind.to_lowercase();
        it.resource.plural == name || it.singular == name || kind == name
    };
    let fitting = || types.iter().filter(|it| !name.is_empty() && fits(it));
    let by_alias = || {
        let (_, plural) = ALIASES.iter().find(|(alias, _)| *alias == name)?;
        fitting().find(|it| long(it, plural))
    };
    fitting()
        .find(|it| long(it, name))
        .or_else(|| fitting().find(|it| it.short.iter().any(|short| short == name)))
        .or_else(by_alias)
}

/// `version.group`, or `version` alone for the core group.
fn trimmed(version: &str, group: &str) -> String {
    format!("{version}.{group}")
        .trim_end_matches('.')
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn served() -> Vec<Type> {
        let resource = |plural: &str, kind: &str, short: &[&str], verbs: &[&str]| {
            json!({"resource": plural, "responseKind": {"kind": kind}, "scope": "Namespaced",
                "singularResource": kind.to_lowercase(), "shortNames": short, "verbs": verbs})
        };
        let read = &["get", "list"][..];
        let group = |name: &str, version: &str, resources: Vec<Value>| json!({"metadata": {"name": name}, "versions": [{"version": version, "resources": resources}]});
        let core = group(
            "",
            "v1",
            vec![
                resource("bindings", "Binding", &[], &["create"]),
                resource("configmaps", "ConfigMap", &["cm"], read),
                resource("events", "Event", &["ev"], read),
            ],
        );
        let apps = group(
            "apps",
            "v1",
            vec![resource("deployments", "Deployment", &["deploy"], read)],
        );
        let events = group(
            "events.k8s.io",
            "v1",
            vec![resource("events", "Event", &["ev"], read)],
        );
        let work = group(
            "work.karmada.io",
            "v1alpha2",
            vec![resource(
                "resourcebindings",
                "ResourceBinding",
                &["rb"],
                read,
            )],
        );
        types(&json!({"items": [core, apps, events, work]}))
    }

    #[test]
    fn types_have_many_names() {
        let served = served();
        for (word, wanted) in [
            ("deployments", "deployments.apps"),
            ("deployment", "deployments.apps"),
            ("Deployment", "deployments.apps"),
            ("deploy", "deployments.apps"),
            ("deployments.apps", "deployments.apps"),
            ("deployment.v1.apps", "deployments.apps"),
            ("cm", "configmaps"),
            ("configmaps.v1", "configmaps"),
            ("configmaps.v1.", "configmaps"),
            ("events", "events"),
            ("events.events.k8s.io", "events.events.k8s.io"),
            ("bindings", "resourcebindings.work.karmada.io"),
            ("rb", "resourcebindings.work.karmada.io"),
        ] {
            let found = resolve(&served, word).map(|it| it.resource.qualified());
            assert_eq!(found.as_deref(), Some(wanted), "{word}");
        }
        for word in [
            "deploymentz",
            "deployments.batch",
            "deployments.v2.apps",
            "",
        ] {
            assert_eq!(resolve(&served, word), None, "{word}");
        }
    }

    #[test]
    fn words_name_types_and_objects() {
        let read = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            Asked::read(&words)
        };
        let named = |pairs: &[(&str, &str)]| {
            let pair = |(of, name): &(&str, &str)| ((*of).to_owned(), (*name).to_owned());
            Ok(Asked::Named(pairs.iter().map(pair).collect()))
        };
        let all = |types: &[&str]| {
            Ok(Asked::All(
                types.iter().map(|it| (*it).to_owned()).collect(),
            ))
        };
        assert_eq!(read(&["deploy"]), all(&["deploy"]));
        assert_eq!(read(&["deploy,cm"]), all(&["deploy", "cm"]));
        assert_eq!(
            read(&["deploy", "a", "b"]),
            named(&[("deploy", "a"), ("deploy", "b")])
        );
        assert_eq!(
            read(&["deploy/a", "cm/b"]),
            named(&[("deploy", "a"), ("cm", "b")])
        );
        assert_eq!(read(&["deploy", "cm/b"]), Err(Unfit::Mixed));
        assert_eq!(read(&["deploy/"]), Err(Unfit::Halved));
        assert_eq!(read(&["deploy/a/b"]), Err(Unfit::Halved));
        assert_eq!(read(&["deploy,cm", "a"]), Err(Unfit::ManyTypes));
        assert_eq!(read(&["deploy,"]), Err(Unfit::Empty));
    }
}
