//! An agent that asks for certificates without end.

use anyhow::{Result, ensure};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::api::{Api, ListParams};

use super::hub::{Draft, Hub, SOON};
use super::request::{RequestBuilder, TestKey};
use crate::env::wait_for;

/// What an agent may have at a time.
const BUDGET: usize = 20;
const ASKED: usize = 3 * BUDGET;

/// What is beyond the budget is refused, or is soon gone; others register meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_has_so_many_certificate_requests_and_no_more() -> Result<()> {
    let hub = Hub::start("attack-budget").await?;
    let m1 = hub.register("m1", "id-1").await?;
    let key = TestKey::generate();
    let request = RequestBuilder::rightful(&key, "m1").pem(&key);
    let mut refused = 0;
    for _ in 0..ASKED {
        let mut draft = Draft::new(request.clone());
        draft.cluster_id = None;
        match hub.ask(&m1.client, &draft).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 429 => refused += 1,
            Err(error) => return Err(error.into()),
        }
    }
    let builtin = hub.plane.options.builtin;
    ensure!(
        (refused > 0) == builtin,
        "{refused} of {ASKED} were refused"
    );
    let requests: Api<CertificateSigningRequest> = Api::all(hub.admin.clone());
    let user = m1.subject.common_name();
    wait_for("what is beyond the budget to be gone", SOON, async || {
        let all = requests.list(&ListParams::default()).await?;
        let of_agent = all
            .iter()
            .filter(|one| one.spec.username.as_ref() == Some(&user));
        let count = of_agent.count();
        ensure!(count <= BUDGET, "there are {count}");
        Ok(count > 0)
    })
    .await?;
    hub.register("m2", "id-2").await?;
    hub.stop().await
}
