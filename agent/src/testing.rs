//! Scripted APIs and a context for tests of the agent's parts.

use crate::config::RunArgs;
use crate::context::{AgentContext, Certified, ErrorReport};
use crate::hub::{Connect, HubHandle};
use clap::Parser;
use common::chance::Chance;
use common::client::ClientOptions;
use common::names::ClusterName;
use common::signal;
use common::time::SimClock;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// A client whose requests `answer` answers.
pub(crate) fn service<F, A>(answer: F) -> Client
where
    F: Fn(Request<Body>) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = Response<Body>> + Send + 'static,
{
    let service = tower::service_fn(move |request: Request<Body>| {
        let answered = answer(request);
        async move { Ok::<_, Infallible>(answered.await) }
    });
    Client::new(service, "default")
}

/// A whole body as text.
pub(crate) async fn bytes(body: Body) -> String {
    let bytes = body.collect().await.expect("a body").to_bytes();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// An answer with a JSON body.
pub(crate) fn json(code: u16, body: &serde_json::Value) -> Response<Body> {
    let body = Body::from(body.to_string().into_bytes());
    let answer = Response::builder()
        .status(code)
        .header("content-type", "application/json");
    answer.body(body).expect("a response")
}

struct Given(Client);

impl Connect for Given {
    fn connect(
        &self,
        _options: ClientOptions,
    ) -> BoxFuture<'static, Result<Client, Box<dyn std::error::Error + Send + Sync>>> {
        let client = self.0.clone();
        Box::pin(async move { Ok(client) })
    }
}

#[derive(Debug, Parser)]
struct Flags {
    #[command(flatten)]
    run: RunArgs,
}

/// The same with hand-made credentials for the hub, which make its Cluster or not.
pub(crate) async fn context_by_hand(hub: Client, member: Client, register: bool) -> AgentContext {
    let mut context = context(hub, member).await;
    let mut config = (*context.config).clone();
    config.hub.kubeconfig = Some("hub.kubeconfig".into());
    config.hub.register_cluster = register;
    context.config = Arc::new(config);
    context
}

/// A context for cluster `m1` with default flags over two scripted APIs.
pub(crate) async fn context(hub: Client, member: Client) -> AgentContext {
    let flags = Flags::try_parse_from(["towline-agent"]).expect("defaults parse");
    let config = flags.run.into_config().expect("defaults are valid");
    let base = chrono::DateTime::from_timestamp(1_700_000_000, 0).expect("in range");
    AgentContext {
        cluster: ClusterName::parse("m1").expect("valid"),
        cluster_id: "id".into(),
        config: Arc::new(config),
        hub: HubHandle::new(Arc::new(Given(hub)))
            .await
            .expect("connects"),
        member,
        member_config: kube::Config::new(http::Uri::from_static("https://member.test")),
        member_proxy: common::proxy::ProxyChoice::direct(),
        clock: Arc::new(SimClock::starting_at(base)),
        chance: Chance::seeded(1),
        network: None,
        metrics: Arc::default(),
        shutdown: CancellationToken::new(),
        standing: None,
        superseded: CancellationToken::new(),
        cluster_view: signal::Sender::new(None),
        heard: signal::Sender::new(true),
        told_to_leave: signal::Sender::new(None),
        refused: signal::Sender::new(None),
        orphans: signal::Sender::new(None),
        certified: signal::channel(Certified::default()).1,
        errors: ErrorReport::default(),
    }
}
