//! A kubeconfig of members out of one of their hub. Pure.

use super::Server;
use crate::aggregated;
use common::api::cluster::Cluster;
use kube::Resource as _;
use kube::config::Kubeconfig;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// How the hub is reached, and as whom.
#[derive(Debug)]
pub(super) struct Source {
    cluster: Value,
    user: Value,
}

/// A kubeconfig that cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Error {
    /// It names no context.
    #[error("the kubeconfig has no current context: name one by --context")]
    NoContext,
    /// Something is named that it does not have.
    #[error("the kubeconfig has no {0} {1:?}")]
    Missing(&'static str, String),
    /// The hub has no address.
    #[error("the kubeconfig names no server for the hub")]
    NoServer,
    /// It cannot be written as it was read.
    #[error("the kubeconfig cannot be written: {0}")]
    Unwritable(String),
}

impl Source {
    /// The hub of a context; the current one without.
    pub(super) fn of(file: &Kubeconfig, context: Option<&str>) -> Result<Self, Error> {
        let wanted = context.or(file.current_context.as_deref());
        let wanted = wanted
            .filter(|name| !name.is_empty())
            .ok_or(Error::NoContext)?;
        let missing = |what: &'static str, name: &str| Error::Missing(what, name.to_owned());
        let mut contexts = file.contexts.iter();
        let context = contexts
            .find(|it| it.name == wanted)
            .and_then(|it| it.context.as_ref());
        let context = context.ok_or_else(|| missing("context", wanted))?;
        let mut clusters = file.clusters.iter();
        let cluster = clusters.find(|it| it.name == context.cluster);
        let cluster = cluster.and_then(|it| it.cluster.as_ref());
        let cluster = cluster.ok_or_else(|| missing("cluster", &context.cluster))?;
        let user = context.user.as_deref().unwrap_or_default();
        let mut users = file.auth_infos.iter();
        let entry = users
            .find(|it| it.name == user)
            .and_then(|it| it.auth_info.as_ref());
        let entry = entry.ok_or_else(|| missing("user", user))?;
        let value = |value: serde_json::Result<Value>| {
            value.map_err(|error| Error::Unwritable(error.to_string()))
        };
        Ok(Self {
            cluster: value(serde_json::to_value(cluster))?,
            user: value(serde_json::to_value(entry))?,
        })
    }
}

/// By which API a hub leads into members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum Way {
    /// Its own Clusters have it, as Karmada's.
    OfClusters,
    /// An aggregated API has it.
    Aggregated,
}

impl Way {
    /// The group and version, as a path has them.
    pub(super) fn group_version(self) -> String {
        match self {
            Self::OfClusters => Cluster::api_version(&()).into_owned(),
            Self::Aggregated => format!("{}/{}", aggregated::GROUP, aggregated::VERSION),
        }
    }

    /// Where on the hub a member's API begins.
    pub(in crate::cli) fn path(self, member: &str) -> String {
        let (group, plural) = (self.group_version(), Cluster::plural(&()));
        format!("/apis/{group}/{plural}/{member}/proxy")
    }
}

/// The hub's address.
fn hub(source: &Source) -> Result<&str, Error> {
    let server = source.cluster["server"].as_str().unwrap_or_default();
    match server.trim_end_matches('/') {
        "" => Err(Error::NoServer),
        server => Ok(server),
    }
}

/// The address of one member.
pub(super) fn server(source: &Source, way: Way, member: &str) -> Result<Server, Error> {
    let name = source.cluster["tls-server-name"].as_str();
    Ok(Server {
        url: format!("{}{}", hub(source)?, way.path(member)),
        tls_server_name: name.map(str::to_owned),
    })
}

/// A kubeconfig with a context for each member, the first of them current.
pub(super) fn of(
    source: &Source,
    way: Way,
    members: &BTreeSet<String>,
    prefix: &str,
) -> Result<Value, Error> {
    const USER: &str = "hub";
    let server = hub(source)?;
    let clusters = members.iter().map(|member| {
        let mut cluster = source.cluster.clone();
        cluster["server"] = format!("{server}{}", way.path(member)).into();
        json!({"name": format!("{prefix}{member}"), "cluster": cluster})
    });
    let contexts = members.iter().map(|member| {
        let name = format!("{prefix}{member}");
        json!({"name": name, "context": {"cluster": name, "user": USER}})
    });
    let current = members.first().map(|member| format!("{prefix}{member}"));
    Ok(json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": clusters.collect::<Vec<_>>(),
        "users": [{"name": USER, "user": source.user}],
        "contexts": contexts.collect::<Vec<_>>(),
        "current-context": current,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HUB: &str = r#"
apiVersion: v1
kind: Config
current-context: hub
clusters:
- name: c
  cluster:
    server: https://hub.test:6443/
    certificate-authority-data: Q0E=
    proxy-url: http://proxy.test:3128
    tls-server-name: hub.example
contexts:
- name: hub
  context: {cluster: c, user: u, namespace: shop}
- name: broken
  context: {cluster: nowhere, user: u}
users:
- name: u
  user:
    token: secret
- name: by-program
  user:
    exec: {apiVersion: client.authentication.k8s.io/v1, command: login, interactiveMode: Never}
"#;

    fn file(text: &str) -> Kubeconfig {
        Kubeconfig::from_yaml(text).expect("a kubeconfig")
    }

    fn names(list: &[&str]) -> BTreeSet<String> {
        list.iter().map(|it| (*it).to_owned()).collect()
    }

    #[test]
    fn each_member_is_a_context_through_the_hub() {
        let source = Source::of(&file(HUB), None).expect("usable");
        let made = of(&source, Way::OfClusters, &names(&["m2", "m1"]), "fleet-").expect("made");
        assert_eq!(made["current-context"], "fleet-m1");
        let cluster = &made["clusters"][1]["cluster"];
        assert_eq!(
            cluster["server"],
            "https://hub.test:6443/apis/cluster.karmada.io/v1alpha1/clusters/m2/proxy"
        );
        assert_eq!(cluster["certificate-authority-data"], "Q0E=");
        assert_eq!(cluster["proxy-url"], "http://proxy.test:3128");
        assert_eq!(cluster["tls-server-name"], "hub.example");
        assert_eq!(made["users"][0]["user"]["token"], "secret");
        let again = Kubeconfig::from_yaml(&made.to_string()).expect("a kubeconfig again");
        assert_eq!(again.contexts.len(), 2);
    }

    #[test]
    fn programs_stay_programs() {
        let text = HUB.replace("user: u, namespace", "user: by-program, namespace");
        let source = Source::of(&file(&text), Some("hub")).expect("usable");
        let made = of(&source, Way::Aggregated, &names(&["m1"]), "").expect("made");
        assert_eq!(made["users"][0]["user"]["exec"]["command"], "login");
        assert_eq!(made["users"][0]["user"]["exec"]["interactiveMode"], "Never");
        assert_eq!(
            made["clusters"][0]["cluster"]["server"],
            "https://hub.test:6443/apis/proxy.towline.dev/v1alpha1/clusters/m1/proxy"
        );
    }

    #[test]
    fn what_is_missing_is_named() {
        let of = |text: &str, context| Source::of(&file(text), context).expect_err("unusable");
        assert_eq!(of(HUB, Some("x")), Error::Missing("context", "x".into()));
        assert_eq!(
            of(HUB, Some("broken")),
            Error::Missing("cluster", "nowhere".into())
        );
        let text = HUB.replace("user: u, namespace", "user: nobody, namespace");
        assert_eq!(of(&text, None), Error::Missing("user", "nobody".into()));
        assert_eq!(of("apiVersion: v1\nkind: Config\n", None), Error::NoContext);
    }
}
