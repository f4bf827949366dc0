//! Kubeconfigs as files: where they lie, what several say together, and what one context of them means.
//!
//! kube's own reader comes with a YAML library besides ours, an engine for JSONPath and one for regular expressions, a
//! seventh of the agent's program; ours reads into kube's types by `serde_yaml`.

use super::super::Error;
use super::pem;
use crate::tls;
use kube::Config;
use kube::config::{AuthInfo, Cluster, Kubeconfig};
use serde::Deserialize as _;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// What is wrong with a kubeconfig.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    /// It cannot be read.
    #[error(transparent)]
    Read(std::io::Error),
    /// It is not YAML or JSON of that form.
    #[error("it is no kubeconfig")]
    Parse(#[source] serde_yaml::Error),
    /// Files or documents that are not of one kind.
    #[error("it and another one say different kinds or apiVersions")]
    Mixed,
    /// The chosen context is of a cluster that is not there.
    #[error("it has no cluster {0:?}, which its context names")]
    Cluster(String),
    /// The cluster lacks a URL.
    #[error("its cluster {0:?} has no server")]
    NoServer(String),
    /// The cluster's URL is none.
    #[error("its server {0:?} is no URL")]
    Server(String, #[source] http::uri::InvalidUri),
    /// The cluster's authority is none.
    #[error("its certificate-authority-data is no certificate in base64")]
    Authority(#[source] tls::Error),
    /// The cluster's proxy is none.
    #[error("its proxy-url {0:?} is no URL")]
    Proxy(String, #[source] http::uri::InvalidUri),
}

/// The kubeconfig at this path; without one the files that `KUBECONFIG` names, or `~/.kube/config`. None is there
/// when nobody named one, and there is none. Paths in it are found from anywhere.
pub fn read_kubeconfig(path: Option<&Path>) -> Result<Option<Kubeconfig>, Error> {
    if let Some(path) = path {
        return read(path).map(Some);
    }
    match kubeconfigs(None).as_slice() {
        [] => Ok(None),
        listed => together(listed).map(Some),
    }
}

/// The files that [`read_kubeconfig`] reads.
pub fn kubeconfigs(path: Option<&Path>) -> Vec<PathBuf> {
    if let Some(path) = path {
        return vec![path.to_owned()];
    }
    let listed = std::env::var_os("KUBECONFIG").unwrap_or_default();
    let listed: Vec<PathBuf> = std::env::split_paths(&listed)
        .filter(|path| !path.as_os_str().is_empty())
        .collect();
    if !listed.is_empty() {
        return listed;
    }
    let own = std::env::home_dir().map(|home| home.join(".kube/config"));
    own.filter(|path| path.exists()).into_iter().collect()
}

/// What several files say together. Those that are not there say nothing, as to kubectl, but for all of them.
fn together(listed: &[PathBuf]) -> Result<Kubeconfig, Error> {
    let mut all = None;
    let mut missing = std::io::Error::from(ErrorKind::NotFound);
    for path in listed {
        match read(path) {
            Err(Error::Kubeconfig(_, KubeconfigError::Read(error)))
                if error.kind() == ErrorKind::NotFound =>
            {
                missing = error;
            }
            next => all = Some(merge(path, all.unwrap_or_default(), next?)?),
        }
    }
    let named = || {
        let names: Vec<String> = listed.iter().map(|it| it.display().to_string()).collect();
        names.join(", ")
    };
    all.ok_or_else(|| Error::Kubeconfig(named(), KubeconfigError::Read(missing)))
}

fn read(path: &Path) -> Result<Kubeconfig, Error> {
    let failed = |error| failed(path, error);
    let text = std::fs::read(path).map_err(|error| failed(KubeconfigError::Read(error)))?;
    let mut all = Kubeconfig::default();
    for document in serde_yaml::Deserializer::from_slice(&text) {
        // A document without content is an empty kubeconfig, as to kubectl.
        let next = Option::<Kubeconfig>::deserialize(document);
        let next = next.map_err(|error| failed(KubeconfigError::Parse(error)))?;
        all = merge(path, all, next.unwrap_or_default())?;
    }
    if let Some(folder) = path.parent() {
        anchor(&mut all, folder);
    }
    Ok(all)
}

fn failed(path: &Path, error: KubeconfigError) -> Error {
    Error::Kubeconfig(path.display().to_string(), error)
}

/// What comes first wins, by name, as in kubectl.
fn merge(path: &Path, all: Kubeconfig, next: Kubeconfig) -> Result<Kubeconfig, Error> {
    all.merge(next)
        .map_err(|_| failed(path, KubeconfigError::Mixed))
}

/// Paths in a kubeconfig are relative to its folder; a program without a separator in its name is one of `PATH`.
fn anchor(kubeconfig: &mut Kubeconfig, folder: &Path) {
    let fix = |file: &mut Option<String>| {
        if let Some(name) = file.as_ref().filter(|name| !name.is_empty()) {
            *file = Some(folder.join(name).display().to_string());
        }
    };
    for cluster in &mut kubeconfig.clusters {
        if let Some(cluster) = &mut cluster.cluster {
            fix(&mut cluster.certificate_authority);
        }
    }
    for user in &mut kubeconfig.auth_infos {
        if let Some(user) = &mut user.auth_info {
            fix(&mut user.client_certificate);
            fix(&mut user.client_key);
            fix(&mut user.token_file);
            if let Some(exec) = &mut user.exec
                && exec.command.as_ref().is_some_and(|it| it.contains('/'))
            {
                fix(&mut exec.command);
            }
        }
    }
}

/// What the context of this name means. A user that is not there is nobody, as to kubectl.
pub(super) fn config(
    kubeconfig: &Kubeconfig,
    context: &str,
) -> Result<(Config, Cluster), KubeconfigError> {
    let named = kubeconfig.contexts.iter().find(|it| it.name == context);
    let context = named.and_then(|it| it.context.clone()).unwrap_or_default();
    let name = &context.cluster;
    let cluster = kubeconfig.clusters.iter().find(|it| &it.name == name);
    let cluster = cluster
        .and_then(|it| it.cluster.clone())
        .ok_or_else(|| KubeconfigError::Cluster(name.clone()))?;
    let user = kubeconfig
        .auth_infos
        .iter()
        .find(|it| Some(&it.name) == context.user.as_ref());

    let server = filled(cluster.server.as_ref());
    let server = server.ok_or_else(|| KubeconfigError::NoServer(name.clone()))?;
    let url = server
        .parse()
        .map_err(|error| KubeconfigError::Server(server.clone(), error))?;
    let mut config = Config::new(url);
    if let Some(namespace) = context.namespace.filter(|it| !it.is_empty()) {
        config.default_namespace = namespace;
    }
    match filled(cluster.certificate_authority_data.as_ref()) {
        Some(data) => config.root_cert = Some(authorities(data)?),
        None => {
            let file = filled(cluster.certificate_authority.as_ref());
            config.root_cert_file = file.map(PathBuf::from);
        }
    }
    // kube takes HTTPS_PROXY too, which is for the way to the hub alone.
    let proxy = filled(cluster.proxy_url.as_ref()).map(|url| {
        url.parse()
            .map_err(|error| KubeconfigError::Proxy(url.clone(), error))
    });
    config.proxy_url = proxy.transpose()?;
    config.accept_invalid_certs = cluster.insecure_skip_tls_verify.unwrap_or(false);
    config.disable_compression = cluster.disable_compression.unwrap_or(false);
    config.tls_server_name = filled(cluster.tls_server_name.as_ref()).cloned();
    config.auth_info = user
        .and_then(|it| it.auth_info.clone())
        .unwrap_or_else(AuthInfo::default);
    // For whoever makes a client of kube's own from it: no hidden retries there either.
    config.default_retry = false;
    Ok((config, cluster))
}

fn filled(text: Option<&String>) -> Option<&String> {
    text.filter(|text| !text.is_empty())
}

fn authorities(data: &str) -> Result<Vec<Vec<u8>>, KubeconfigError> {
    let found = pem(Some(data), None).and_then(|pem| tls::certificates(&pem.unwrap_or_default()));
    let found = found.map_err(KubeconfigError::Authority)?;
    Ok(found.iter().map(|der| der.to_vec()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Kubeconfig {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("config");
        std::fs::write(&path, text).expect("written");
        read(&path).expect("a kubeconfig")
    }

    const WHOLE: &str = "
apiVersion: v1
kind: Config
current-context: a
contexts:
- {name: a, context: {cluster: one, user: ann, namespace: shop}}
- {name: b, context: {cluster: none}}
- {name: c, context: {cluster: two, user: nobody}}
- {name: d, context: {cluster: three}}
clusters:
- {name: one, cluster: {server: 'https://one:6443', certificate-authority: ca.crt, tls-server-name: api, extra: 1}}
- {name: two, cluster: {server: 'https://two', proxy-url: 'http://proxy:3128'}}
- {name: three, cluster: {certificate-authority-data: bm9uZQ==}}
users:
- {name: ann, user: {client-certificate: /pki/ann.crt, client-key: ann.key, tokenFile: token,
    exec: {apiVersion: client.authentication.k8s.io/v1, command: bin/login, args: [x]}}}
---
";

    #[test]
    fn paths_are_relative_to_the_file_and_programs_of_path_stay() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("config");
        std::fs::write(&path, WHOLE).expect("written");
        let at = |name: &str| Some(dir.path().join(name).display().to_string());
        let all = read(&path).expect("a kubeconfig");
        let (config, _) = config(&all, "a").expect("a context");
        assert_eq!(config.cluster_url, "https://one:6443/");
        assert_eq!(config.default_namespace, "shop");
        assert_eq!(config.tls_server_name.as_deref(), Some("api"));
        assert_eq!(config.root_cert_file, Some(dir.path().join("ca.crt")));
        let user = config.auth_info;
        assert_eq!(user.client_certificate.as_deref(), Some("/pki/ann.crt"));
        assert_eq!(user.client_key, at("ann.key"));
        assert_eq!(user.token_file, at("token"));
        let command = |text: &str| {
            let all = parsed(&WHOLE.replace("bin/login", text));
            let user = all.auth_infos[0].auth_info.clone().expect("a user");
            user.exec.expect("a program").command
        };
        assert_eq!(user.exec.expect("a program").command, at("bin/login"));
        assert_eq!(command("login").as_deref(), Some("login"));
    }

    #[test]
    fn what_a_context_lacks_is_said() {
        let all = parsed(WHOLE);
        let (found, _) = config(&all, "c").expect("nobody is somebody");
        assert_eq!(
            found.proxy_url.map(|url| url.to_string()).as_deref(),
            Some("http://proxy:3128/")
        );
        assert_eq!(found.default_namespace, "default");
        assert!(found.auth_info.token_file.is_none());
        let said = |context: &str| config(&all, context).expect_err("refused").to_string();
        assert_eq!(
            said("b"),
            "it has no cluster \"none\", which its context names"
        );
        assert_eq!(said("d"), "its cluster \"three\" has no server");
        let text = WHOLE.replace("{certificate", "{server: 'https://three', certificate");
        let wrong = config(&parsed(&text), "d").expect_err("no certificate");
        assert!(matches!(wrong, KubeconfigError::Authority(_)));
    }

    #[test]
    fn files_of_a_list_that_are_not_there_say_nothing() {
        let dir = tempfile::tempdir().expect("a folder");
        let (there, gone, none) = (
            dir.path().join("there"),
            dir.path().join("gone"),
            dir.path().join("none"),
        );
        std::fs::write(&there, "current-context: a\n").expect("written");
        let all = together(&[gone.clone(), there.clone(), none.clone()]).expect("one is there");
        assert_eq!(all.current_context.as_deref(), Some("a"));
        let error = together(&[gone.clone(), none.clone()]).expect_err("none is there");
        let text = crate::errors::chain(&error).to_string();
        for path in [&gone, &none] {
            assert!(text.contains(&path.display().to_string()), "{text}");
        }
        std::fs::write(&gone, "clusters: 3\n").expect("written");
        together(&[gone, there]).expect_err("what is there and no kubeconfig is told");
    }

    #[test]
    fn several_say_one_thing_and_the_first_wins() {
        let first = "contexts: [{name: a, context: {cluster: x}}]\n";
        let second = "---\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: y}}, {name: b, context: {cluster: y}}]\n";
        let all = parsed(&format!("{first}{second}"));
        let clusters: Vec<&str> = all
            .contexts
            .iter()
            .map(|it| it.context.as_ref().map_or("", |it| &it.cluster))
            .collect();
        assert_eq!(clusters, ["x", "y"]);
        assert_eq!(all.current_context.as_deref(), Some("a"));
        assert!(parsed("").contexts.is_empty());

        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("config");
        std::fs::write(&path, "kind: Config\n---\nkind: Other\n").expect("written");
        let mixed = read(&path).expect_err("two kinds");
        assert!(matches!(
            mixed,
            Error::Kubeconfig(_, KubeconfigError::Mixed)
        ));
        std::fs::write(&path, "clusters: 3\n").expect("written");
        let wrong = read(&path).expect_err("no list");
        let text = crate::errors::chain(&wrong).to_string();
        assert!(text.contains("it is no kubeconfig: clusters: "), "{text}");
    }
}
