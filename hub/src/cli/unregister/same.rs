//! Whether a member is the one that leaves: by what its agent keeps there, and by the ID that the hub has of it. Pure.
//!
//! What is not known contradicts nothing: an agent whose credentials are gone, or that keeps them in a directory, and a
//! Cluster whose agent never came.

use common::names::{BOOTSTRAP_CLUSTER, CREDENTIALS_DOCUMENT};
use k8s_openapi::api::core::v1::Secret;
use serde_json::Value;

/// Names of the clusters for which an agent speaks or asks to, by its two Secrets.
pub(super) fn names(credentials: Option<&Secret>, bootstrap: Option<&Secret>) -> Vec<String> {
    let document = value(credentials, CREDENTIALS_DOCUMENT);
    let document: Value = document
        .and_then(|bytes| serde_json::from_slice(bytes).ok())
        .unwrap_or_default();
    let registered = ["/current/cluster", "/pending/cluster"]
        .into_iter()
        .filter_map(|place| document.pointer(place)?.as_str());
    let handed = value(bootstrap, BOOTSTRAP_CLUSTER);
    let handed = handed.map(|name| String::from_utf8_lossy(name).trim().to_owned());
    let mut names: Vec<String> = registered.map(str::to_owned).chain(handed).collect();
    names.sort();
    names.dedup();
    names
}

fn value<'a>(secret: Option<&'a Secret>, key: &str) -> Option<&'a [u8]> {
    let found = secret?.data.as_ref()?.get(key)?;
    Some(&found.0)
}

/// Why this is not the member `name`, if something says so. `ids` are the one that the hub knows, and the one of the
/// member; `speaks_for` is what its agent says.
pub(super) fn contradiction(
    name: &str,
    ids: Option<(&str, &str)>,
    speaks_for: &[String],
) -> Option<String> {
    if !speaks_for.is_empty() && !speaks_for.iter().any(|one| one == name) {
        let others: Vec<_> = speaks_for.iter().map(|one| format!("{one:?}")).collect();
        return Some(format!(
            "the agent in it is that of cluster {}",
            others.join(" and ")
        ));
    }
    match ids {
        Some((known, found)) if known != found => Some(format!(
            "its namespace kube-system has UID {found}, and Cluster {name:?} is {known} (spec.id)"
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::ByteString;
    use serde_json::json;
    use std::collections::BTreeMap;

    fn secret(key: &str, text: String) -> Secret {
        Secret {
            data: Some(BTreeMap::from([(
                key.to_owned(),
                ByteString(text.into_bytes()),
            )])),
            ..Secret::default()
        }
    }

    #[test]
    fn an_agent_is_known_by_its_secrets() {
        let document =
            json!({"format": 1, "current": {"cluster": "m1"}, "pending": {"cluster": "m2"}});
        let credentials = secret(CREDENTIALS_DOCUMENT, document.to_string());
        let bootstrap = secret(BOOTSTRAP_CLUSTER, "m2\n".to_owned());
        assert_eq!(names(Some(&credentials), Some(&bootstrap)), ["m1", "m2"]);
        assert_eq!(names(None, Some(&bootstrap)), ["m2"]);
        let broken = secret(CREDENTIALS_DOCUMENT, "{".to_owned());
        assert_eq!(names(Some(&broken), None), [""; 0]);
        assert_eq!(names(None, None), [""; 0]);
    }

    #[test]
    fn another_member_is_told_by_name_and_by_id() {
        let cases: [(&[&str], _, _); 9] = [
            (&["m1"], Some(("a", "a")), None),
            // Not on the hub, or its agent never came.
            (&["m1"], None, None),
            // Handed over to another name, which it does not have yet.
            (&["m1", "m2"], None, None),
            // Nothing of an agent, or one without credentials.
            (&[], None, None),
            (&[], Some(("a", "a")), None),
            (&[], Some(("a", "b")), Some("UID b")),
            // A cluster of the same name on another hub.
            (&["m1"], Some(("a", "b")), Some("\"m1\" is a (spec.id)")),
            (&["m2"], None, Some("that of cluster \"m2\"")),
            (&["m2", "m3"], Some(("a", "a")), Some("\"m2\" and \"m3\"")),
        ];
        for (speaks_for, ids, want) in cases {
            let speaks_for: Vec<_> = speaks_for.iter().map(|&name| name.to_owned()).collect();
            let why = contradiction("m1", ids, &speaks_for);
            match want {
                None => assert_eq!(why, None, "{speaks_for:?}"),
                Some(want) => assert!(
                    why.as_ref().is_some_and(|why| why.contains(want)),
                    "{why:?}"
                ),
            }
        }
    }
}
