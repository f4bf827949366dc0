//! Clients of kubeconfigs.

use super::*;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use std::path::Path;

const UNAUTHORIZED: &str = r#"{"kind":"Status","status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}"#;

fn write(path: &Path, ca: &Ca, server: &HostPort, cluster: &str, user: &str) {
    let ca = BASE64_STANDARD.encode(ca.pem());
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         contexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
         clusters: [{{name: k, cluster: {{server: '{}', certificate-authority-data: {ca}{cluster}}}}}]\n\
         users: [{{name: u, user: {{{user}}}}}]\n",
        server.url()
    );
    std::fs::write(path, text).expect("written");
}

async fn ask(path: &Path) -> Result<ConfigMap, Problem> {
    let options = ClientOptions::new("test").with_timeout(LONG);
    let (client, _) = kubeconfig_client(Some(path), None, &options, &Env::system())
        .await
        .expect("a client");
    get(&client).await
}

#[tokio::test]
async fn tokens_and_rotated_client_certificates_are_used() {
    let ca = authority("member");
    let config = server_config_for(&leaf(&ca, &["127.0.0.1"]), true, Some(&ca.pem()));
    let server = serve(
        config,
        handler(|request| {
            assert_eq!(request.headers()["authorization"], "Bearer t0ken");
            text(200, MAP)
        }),
    )
    .await;
    let dir = tempfile::tempdir().expect("a folder");
    let (path, cert, key) = (
        dir.path().join("config"),
        dir.path().join("cert"),
        dir.path().join("key"),
    );
    let user = format!(
        "token: t0ken, client-certificate: {}, client-key: {}",
        cert.display(),
        key.display()
    );
    write(&path, &ca, &server.address, "", &user);
    let pair = leaf_with(&ca, &["a"], |params| {
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    });
    std::fs::write(&cert, pair.0).expect("written");
    std::fs::write(&key, pair.1).expect("written");
    ask(&path).await.expect("answered");
}

/// kube-apiserver answers so once the certificate of the handshake has ended, for as long as the connection lives.
#[tokio::test]
async fn a_renewed_client_certificate_is_shown_after_a_401() {
    let ca = authority("member");
    let made = || {
        leaf_with(&ca, &["a"], |params| {
            params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        })
    };
    let (old, new) = (made(), made());
    let ended = tls::certificates(old.0.as_bytes()).expect("one").remove(0);
    let config = server_config_for(&leaf(&ca, &["127.0.0.1"]), true, Some(&ca.pem()));
    let answering = handler(move |request| {
        let Peer(peer) = request.extensions().get::<Peer>().expect("set").clone();
        match peer.as_ref() == Some(&ended) {
            true => text(401, UNAUTHORIZED),
            false => text(200, MAP),
        }
    });
    let server = serve(config, answering).await;
    let relay = relay(&server.address, Relaying::Plain).await;
    let dir = tempfile::tempdir().expect("a folder");
    let (path, cert, key) = (
        dir.path().join("config"),
        dir.path().join("cert"),
        dir.path().join("key"),
    );
    let store = |pair: &(String, String)| {
        std::fs::write(&cert, &pair.0).expect("written");
        std::fs::write(&key, &pair.1).expect("written");
    };
    let user = format!(
        "client-certificate: {}, client-key: {}",
        cert.display(),
        key.display()
    );
    write(&path, &ca, &relay.address, "", &user);
    store(&old);
    let options = ClientOptions::new("test").with_timeout(LONG);
    let made = kubeconfig_client(Some(&path), None, &options, &Env::system()).await;
    let (client, _) = made.expect("a client");
    let problem = get(&client).await.expect_err("it ended");
    assert_eq!(problem.code(), Some(401), "{problem}");
    store(&new);
    get(&client).await.expect("the renewed one is known");
    get(&client).await.expect("the renewed one is known");
    assert_eq!(relay.accepted.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn only_its_own_proxy_is_used_and_verification_is_never_skipped() {
    let ca = authority("member");
    let server = hub(&ca, true, answering()).await;
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("config");
    let proxy = relay(&server.address, Relaying::Connect(None)).await;
    let cluster = format!(", proxy-url: 'http://{}'", proxy.address);
    write(&path, &ca, &server.address, &cluster, "");
    ask(&path).await.expect("through the proxy");
    assert_eq!(proxy.accepted.load(Ordering::SeqCst), 1);

    write(&path, &ca, &server.address, "", "");
    let options = ClientOptions::new("test").with_timeout(LONG);
    let way = ProxyChoice::explicit(&format!("http://{}", proxy.address)).expect("valid");
    let made = kubeconfig_client_through(Some(&path), None, &options, &way, &Env::system()).await;
    get(&made.expect("a client").0)
        .await
        .expect("through the proxy");
    assert_eq!(proxy.accepted.load(Ordering::SeqCst), 2);

    write(
        &path,
        &ca,
        &server.address,
        ", insecure-skip-tls-verify: true",
        "",
    );
    let options = ClientOptions::new("test");
    let refused = kubeconfig_client(Some(&path), None, &options, &Env::system()).await;
    assert!(matches!(
        refused.err(),
        Some(Error::Insecure | Error::Kubeconfig(..))
    ));
}
