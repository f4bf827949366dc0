//! A request that is swapped for another under the same name while the hub judges it.

use anyhow::Result;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::api::{Api, DeleteParams, PostParams};
use std::time::Duration;

use super::hub::{Draft, Hub, Outcome, TokenLimits};
use super::request::{RequestBuilder, TestKey};

const ROUNDS: usize = 200;
/// Each way, at least this many rounds must have gone: else the swaps missed the moment that matters.
const EACH_WAY_MIN: usize = 20;
const DELAY_MAX: Duration = Duration::from_secs(1);

/// Two hundred times: a rightful request, and under its name another one, some time later. None of the
/// others is ever approved.
#[tokio::test(flavor = "multi_thread")]
async fn a_swapped_request_is_never_approved() -> Result<()> {
    let hub = Hub::start("attack-swap").await?;
    let key = TestKey::generate();
    let token = hub.token(TokenLimits::default()).await?;
    let holder = hub.client_of(&token)?;
    let rightful = Draft::new(RequestBuilder::rightful(&key, "m1").pem(&key));
    let swapped_in = RequestBuilder::of("intruder", &["intruders"]).pem(&key);
    let requests: Api<CertificateSigningRequest> = Api::all(hub.admin.clone());
    // The registration itself; the rounds ask again with the same key, which costs nothing.
    let first = hub.try_register(&token, &rightful).await?;
    assert!(matches!(first, Outcome::Issued(_)), "{first:?}");

    let mut names = Vec::new();
    let mut approved_first = 0;
    let mut delay = Duration::from_millis(20);
    for _ in 0..ROUNDS {
        let mut draft = rightful.clone();
        draft.name = super::hub::csr_name();
        hub.ask(&holder, &draft).await?;
        tokio::time::sleep(delay).await;
        let status = requests.get(&draft.name).await?.status.unwrap_or_default();
        requests
            .delete(&draft.name, &DeleteParams::default())
            .await?;
        draft.request.clone_from(&swapped_in);
        requests
            .create(&PostParams::default(), &draft.object())
            .await?;
        names.push(draft.name);
        // The moment of the swap follows that of the approval, a little before it or after.
        if status
            .conditions
            .is_some_and(|conditions| !conditions.is_empty())
        {
            approved_first += 1;
            delay = delay * 19 / 20;
        } else {
            delay = (delay * 20 / 19 + Duration::from_micros(200)).min(DELAY_MAX);
        }
    }
    // Whatever the hub still had in hand is done when it has answered one more rightful request.
    let mut twin = rightful.clone();
    twin.name = super::hub::csr_name();
    let twin = hub.try_register(&token, &twin).await?;
    assert!(matches!(twin, Outcome::Issued(_)), "{twin:?}");
    for name in names {
        let status = requests.get(&name).await?.status.unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default();
        assert!(conditions.is_empty(), "{name}: {conditions:?}");
        assert!(status.certificate.is_none(), "{name} was signed");
    }
    let swapped_first = ROUNDS - approved_first;
    assert!(
        approved_first >= EACH_WAY_MIN && swapped_first >= EACH_WAY_MIN,
        "{approved_first} were approved before the swap, {swapped_first} were not; last delay {delay:?}"
    );
    hub.stop().await
}
