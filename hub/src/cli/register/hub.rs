//! Keeps an agent out of a hub: a member that bears the marks of one is most likely a kubeconfig that was
//! meant for another command, and what cleans the agent away later would take the hub's own objects along.

use crate::cli::{CliError, Kind};
use crate::install::object::MANAGED_BY_VALUE;
use crate::install::{MARKER, is_built_in};
use common::labels::MANAGED_BY;
use common::names::SYSTEM_NAMESPACE;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{Api, Client};

/// Fails when the cluster at `server` is a hub.
pub(super) async fn refuse(client: &Client, server: &str) -> Result<(), CliError> {
    let Some(mark) = mark_of(client).await? else {
        return Ok(());
    };
    Err(CliError::message(
        Kind::Denied,
        format!("{server} is a hub, not a member: {mark}; nothing was installed"),
    )
    .hint("Name the member's own kubeconfig by --kubeconfig FILE, and its context by --context NAME.")
    .hint("A cluster that is to be hub and member takes the agent by `kubectl apply -k manifests/agent`."))
}

/// The mark by which a cluster is known to be a hub, if it is one.
pub(in crate::cli) async fn mark_of(client: &Client) -> Result<Option<String>, CliError> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), SYSTEM_NAMESPACE);
    let marker = seen(maps.get_opt(MARKER).await)?;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = seen(namespaces.get_opt(SYSTEM_NAMESPACE).await)?;
    Ok(mark(marker.as_ref(), namespace.as_ref()))
}

/// Whoever may not look at these can neither install an agent nor remove one, and is told so there.
fn seen<T>(answer: Result<Option<T>, kube::Error>) -> Result<Option<T>, CliError> {
    match answer {
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(None),
        answer => answer.map_err(|e| CliError::api("failed to see whether this is a hub", e)),
    }
}

/// The mark by which a hub is known.
fn mark(marker: Option<&ConfigMap>, namespace: Option<&Namespace>) -> Option<String> {
    if let Some(marker) = marker {
        return Some(match is_built_in(marker) {
            true => "it is `towline-hub serve`".to_owned(),
            false => format!("it has ConfigMap {SYSTEM_NAMESPACE}/{MARKER} of `towline init`"),
        });
    }
    let labels = namespace?.metadata.labels.as_ref()?;
    let ours = labels.get(MANAGED_BY).map(String::as_str) == Some(MANAGED_BY_VALUE);
    ours.then(|| format!("it has Namespace {SYSTEM_NAMESPACE} of `towline init`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::install::Installation;
    use crate::install::namespaces;

    fn installed(built_in: bool) -> (ConfigMap, Namespace) {
        let installation = Installation {
            built_in,
            ..Installation::default()
        };
        let desired = installation.desired();
        let marker = desired
            .iter()
            .find(|d| d.key() == installation.marker_key());
        let marker = marker.expect("init makes one").value();
        let mut namespaces = namespaces::desired().into_iter().map(|d| d.value());
        let namespace = namespaces.find(|n| n["metadata"]["name"] == SYSTEM_NAMESPACE);
        (
            serde_json::from_value(marker).expect("a ConfigMap"),
            serde_json::from_value(namespace.expect("init makes it")).expect("a Namespace"),
        )
    }

    #[test]
    fn what_init_leaves_marks_a_hub() {
        let (marker, namespace) = installed(false);
        let (built_in, _) = installed(true);
        let foreign = Namespace::default();
        let cases = [
            (Some(&marker), Some(&namespace), Some("towline-install")),
            (Some(&built_in), Some(&namespace), Some("towline-hub serve")),
            // `init` that was stopped half-way.
            (None, Some(&namespace), Some("Namespace karmada-system")),
            // A member that runs something of Karmada's.
            (None, Some(&foreign), None),
            (None, None, None),
        ];
        for (marker, namespace, want) in cases {
            let found = mark(marker, namespace);
            match want {
                None => assert_eq!(found, None),
                Some(want) => assert!(
                    found.as_ref().is_some_and(|f| f.contains(want)),
                    "{found:?}"
                ),
            }
        }
    }
}
