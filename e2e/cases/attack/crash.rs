//! The hub is killed after each of its writes; every time the same registration comes to its end.

use anyhow::{Context as _, Result, bail};
use common::api::cluster::Cluster;
use common::controller::Reconcile as _;
use common::labels::{CLOSING_WATCHES, REGISTRATION_ID, TOKEN_RESERVATIONS};
use common::signal;
use common::time::SystemClock;
use common::token::BootstrapToken;
use hub::controller::registration::Registrar;
use hub::permissions::{self, Registration};
use hub::world::Index;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{Api, ListParams};
use kube::client::Body;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tower::BoxError;

use super::hub::{Draft, Hub, Outcome, SOON, TokenLimits, outcome_of};
use super::request::{RequestBuilder, TestKey};

/// A registration takes ten writes, one that replaces another a few more.
const WRITES_MAX: usize = 40;

/// A client that is cut off right after its `writes`th write has reached the API server.
fn cut_off_after(client: &Client, writes: usize) -> (Client, signal::Receiver<bool>) {
    let (cut, is_cut) = signal::channel(false);
    let cut = Arc::new(cut);
    let left = Arc::new(AtomicUsize::new(writes));
    let client = client.clone();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (client, cut, left) = (client.clone(), Arc::clone(&cut), Arc::clone(&left));
        async move {
            if *cut.borrow() {
                std::future::pending::<()>().await;
            }
            let writes = request.method() != http::Method::GET;
            let response = client.send(request).await.map_err(BoxError::from)?;
            if writes && left.fetch_sub(1, Ordering::SeqCst) == 1 {
                cut.send_replace(true);
                std::future::pending::<()>().await;
            }
            Ok::<_, BoxError>(response)
        }
    });
    (Client::new(service, "default"), is_cut)
}

/// Runs the registration of one request; true when it was killed on the way.
async fn run_and_kill(hub: &Hub, request: &str, writes: usize) -> Result<bool> {
    let (client, mut is_cut) = cut_off_after(&hub.admin, writes);
    let (_admit, admitting) = signal::channel(true);
    let registrar = Registrar::new(client, Arc::new(SystemClock), admitting, Index::default());
    let request: Arc<str> = request.into();
    tokio::select! {
        biased;
        cut = is_cut.wait_for(|cut| *cut) => { cut.context("the cut")?; Ok(true) }
        done = registrar.reconcile(&request) => { done?; Ok(false) }
        () = tokio::time::sleep(SOON) => bail!("no end after {writes} writes"),
    }
}

/// Kills the hub after its first, second, … write of a registration, each time with another request,
/// until one comes through without being killed; returns how many were killed.
async fn kill_after_each(
    hub: &Hub,
    limits: impl Fn(usize) -> TokenLimits<'static>,
    cluster: impl Fn(usize) -> String,
) -> Result<usize> {
    for writes in 1..WRITES_MAX {
        let key = TestKey::generate();
        let name = cluster(writes);
        let token = hub.token(limits(writes)).await?;
        let mut draft = Draft::new(RequestBuilder::rightful(&key, &name).pem(&key));
        draft.cluster_id = Some(format!("id-of-{name}"));
        let request = hub.ask(&hub.client_of(&token)?, &draft).await?;
        let killed = run_and_kill(hub, &request, writes).await?;
        // Another hub takes over.
        if run_and_kill(hub, &request, usize::MAX).await? {
            bail!("the second hub was killed");
        }
        let outcome = hub.outcome(&request).await?;
        assert!(
            matches!(outcome, Outcome::Issued(_)),
            "after {writes}: {outcome:?}"
        );
        check(hub, &token, &name, &key).await?;
        if !killed {
            return Ok(writes - 1);
        }
    }
    bail!("more than {WRITES_MAX} writes")
}

/// One use is taken, one registration is in force, and its permissions are exact.
async fn check(hub: &Hub, token: &BootstrapToken, name: &str, key: &TestKey) -> Result<()> {
    let secrets: Api<Secret> = Api::namespaced(hub.admin.clone(), "kube-system");
    let secret = secrets.get(&token.secret_name()).await?;
    let annotations = secret.metadata.annotations.unwrap_or_default();
    let used: Vec<serde_json::Value> = serde_json::from_str(&annotations[TOKEN_RESERVATIONS])?;
    assert_eq!(used.len(), 1, "{used:?}");
    let clusters: Api<Cluster> = Api::all(hub.admin.clone());
    let cluster = clusters.get(name).await?;
    let annotations = cluster.metadata.annotations.clone().unwrap_or_default();
    assert_eq!(annotations[REGISTRATION_ID], key.registration().as_str());
    assert!(
        !annotations.contains_key(CLOSING_WATCHES),
        "watches were not closed"
    );
    let registration = Registration::of_cluster(&cluster.metadata).context("registered")?;
    let written = permissions::ensure(&hub.admin, &registration).await?;
    assert_eq!(written, 0, "permissions of {name} were not exact");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hub_killed_after_any_write_registers_all_the_same() -> Result<()> {
    let mut hub = Hub::prepared("attack-crash").await?;
    if hub.plane.options.builtin {
        killed_with_its_api_server(&mut hub).await?;
        return hub.stop().await;
    }
    let fresh = |_| TokenLimits::default();
    let killed = kill_after_each(&hub, fresh, |writes| format!("c{writes}")).await?;
    assert!(
        killed >= 10,
        "a registration has at least ten writes, not {killed}"
    );

    // The same for one name that is registered anew each time.
    let anew = |writes: usize| TokenLimits {
        cluster: Some("c1"),
        replace: writes > 0,
        ..TokenLimits::default()
    };
    let killed = kill_after_each(&hub, anew, |_| "c1".to_owned()).await?;
    assert!(
        killed >= 7,
        "a new registration has at least seven writes, not {killed}"
    );
    hub.stop().await
}

/// Registrations to be interrupted before their certificate is there.
const INTERRUPTED: usize = 12;
/// A machine that does other things at the moment of a kill lets a registration through.
const ROUNDS_MAX: usize = 80;

/// A built-in hub cannot be killed without its API server, so the whole process is: each time when some
/// more of a registration's writes are stored. Started again, it brings the registration to its end.
async fn killed_with_its_api_server(hub: &mut Hub) -> Result<()> {
    let mut interrupted = 0;
    for round in 0..ROUNDS_MAX {
        let key = TestKey::generate();
        let name = format!("c{round}");
        let token = hub.token(TokenLimits::default()).await?;
        let mut draft = Draft::new(RequestBuilder::rightful(&key, &name).pem(&key));
        draft.cluster_id = Some(format!("id-of-{name}"));
        let before = revision(&hub.admin).await?;
        // The first write is the request itself.
        let writes = u64::try_from(1 + round % 10)?;
        let request = hub.ask(&hub.client_of(&token)?, &draft).await?;
        let reached = async {
            while revision(&hub.admin).await? < before + writes {}
            anyhow::Ok(())
        };
        tokio::time::timeout(SOON, reached)
            .await
            .with_context(|| format!("no {writes} writes of a registration"))??;
        let done = csr(hub, &request).await?;
        hub.plane.kill_api();
        hub.plane.restart_api().await?;
        hub.admin = hub.plane.client().await?;
        let issued = outcome_of(&done).is_some();
        interrupted += usize::from(!issued);
        let outcome = hub.outcome(&request).await?;
        assert!(
            matches!(outcome, Outcome::Issued(_)),
            "killed after {writes} writes: {outcome:?}"
        );
        check(hub, &token, &name, &key).await?;
        if interrupted == INTERRUPTED {
            return Ok(());
        }
    }
    bail!("only {interrupted} registrations of {ROUNDS_MAX} were interrupted")
}

/// How far the store has come.
async fn revision(client: &Client) -> Result<u64> {
    let few = ListParams::default().limit(1);
    let list = Api::<Cluster>::all(client.clone())
        .list_metadata(&few)
        .await?;
    let version = list
        .metadata
        .resource_version
        .context("a list has a version")?;
    Ok(version.parse()?)
}

async fn csr(hub: &Hub, name: &str) -> Result<CertificateSigningRequest> {
    let all: Api<CertificateSigningRequest> = Api::all(hub.admin.clone());
    Ok(all.get(name).await?)
}

/// A request that was answered stays answered, whoever looks again.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_final() -> Result<()> {
    let hub = Hub::prepared("attack-final").await?;
    let token = hub.token(TokenLimits::default()).await?;
    let key = TestKey::generate();
    let wrong = Draft::new(RequestBuilder::of("admin", &["x"]).pem(&key));
    let request = hub.ask(&hub.client_of(&token)?, &wrong).await?;
    for _ in 0..2 {
        run_and_kill(&hub, &request, usize::MAX).await?;
        let csr = csr(&hub, &request).await?;
        let outcome = outcome_of(&csr).context("an answer")?;
        outcome.assert_denied("masters", "RequestNotAllowed");
        let conditions = csr
            .status
            .and_then(|status| status.conditions)
            .unwrap_or_default();
        assert_eq!(conditions.len(), 1, "{conditions:?}");
    }
    hub.stop().await
}
