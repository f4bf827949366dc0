//! A name that is registered anew: the earlier certificate is dead, its open watches too.

use anyhow::Result;
use common::api::work::Work;
use futures::AsyncBufReadExt as _;
use kube::Client;
use kube::api::{Api, ListParams, PostParams};
use serde_json::json;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::JoinHandle;

use super::hub::{Hub, SOON, TokenLimits, assert_code};
use crate::env::wait_for;

/// A watch on the Works of m1, and every byte it was sent.
pub(super) struct Spy {
    heard: Arc<Mutex<String>>,
    pub(super) task: JoinHandle<()>,
}

impl Spy {
    pub(super) async fn on(client: &Client) -> Result<Self> {
        let request = http::Request::get(
            "/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-m1/works?watch=true",
        )
        .body(Vec::new())?;
        let mut stream = client.request_stream(request).await?;
        let heard = Arc::new(Mutex::new(String::new()));
        let into = Arc::clone(&heard);
        let task = tokio::spawn(async move {
            let mut line = String::new();
            while stream.read_line(&mut line).await.is_ok_and(|read| read > 0) {
                into.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push_str(&line);
                line.clear();
            }
        });
        Ok(Self { heard, task })
    }

    pub(super) fn has_heard(&self, text: &str) -> bool {
        self.heard
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(text)
    }
}

pub(super) async fn write_work(hub: &Hub, name: &str) -> Result<()> {
    let works: Api<Work> = Api::namespaced(hub.admin.clone(), "karmada-es-m1");
    let work = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"workload": {"manifests": []}},
    }))?;
    works.create(&PostParams::default(), &work).await?;
    Ok(())
}

/// The old certificate's open watch gets no byte of what is written for the new registration.
#[tokio::test(flavor = "multi_thread")]
async fn the_earlier_certificate_is_dead_and_its_watches_end() -> Result<()> {
    let hub = Hub::start("attack-anew").await?;
    let earlier = hub.register("m1", "id-1").await?;
    write_work(&hub, "first").await?;
    let spy = Spy::on(&earlier.client).await?;
    wait_for("the first Work to be seen", SOON, || async {
        Ok(spy.has_heard("first"))
    })
    .await?;

    let limits = TokenLimits {
        cluster: Some("m1"),
        replace: true,
        ..TokenLimits::default()
    };
    let token = hub.token(limits).await?;
    let later = hub.register_by(&token, "m1", "id-1").await?;
    write_work(&hub, "second").await?;

    wait_for("the old watch to end", SOON, || async {
        Ok(spy.task.is_finished())
    })
    .await?;
    assert!(
        !spy.has_heard("second"),
        "the old watch heard of the new registration's Work"
    );
    let of = |client: &Client| -> Api<Work> { Api::namespaced(client.clone(), "karmada-es-m1") };
    let twin = Spy::on(&later.client).await?;
    wait_for("the new agent to see both", SOON, || async {
        Ok(twin.has_heard("first") && twin.has_heard("second"))
    })
    .await?;
    assert_code(
        "list",
        of(&earlier.client).list(&ListParams::default()).await,
        403,
    );
    assert_code("get", of(&earlier.client).get("second").await, 403);
    assert_eq!(
        of(&later.client)
            .list(&ListParams::default())
            .await?
            .items
            .len(),
        2
    );
    assert_code("status", earlier.patch_status("m1", json!({})).await, 403);
    assert_code("Lease", earlier.patch_lease("m1", json!({})).await, 403);
    later.patch_status("m1", json!({})).await?;
    later.renew_lease().await?;
    hub.stop().await
}
