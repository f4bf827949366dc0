//! Tokens that are used for more than they are good for, and certificates asked for by the wrong agent.

use anyhow::Result;
use common::api::cluster::{Cluster, DUPLICATE_ID};
use common::token::BootstrapToken;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::json;

use super::hub::{Draft, Hub, Outcome, SOON, TokenLimits, secret_exists};
use super::request::{RequestBuilder, TestKey};
use crate::env::{left_out, wait_for};

/// The rightful request of a fresh key.
fn draft(cluster: &str, cluster_id: &str) -> Draft {
    draft_of(&TestKey::generate(), cluster, cluster_id)
}

fn draft_of(key: &TestKey, cluster: &str, cluster_id: &str) -> Draft {
    let mut draft = Draft::new(RequestBuilder::rightful(key, cluster).pem(key));
    draft.cluster_id = Some(cluster_id.to_owned());
    draft
}

#[track_caller]
fn assert_issued(case: &str, outcome: &Outcome) {
    assert!(matches!(outcome, Outcome::Issued(_)), "{case}: {outcome:?}");
}

/// Asks for two things at the same moment; returns how both ended.
async fn at_once(
    hub: &Hub,
    a: (&BootstrapToken, &Draft),
    b: (&BootstrapToken, &Draft),
) -> Result<[Outcome; 2]> {
    let (a, b) = tokio::join!(hub.try_register(a.0, a.1), hub.try_register(b.0, b.1));
    Ok([a?, b?])
}

/// Names and cluster ids belong to whoever has them; a token claims only what it was made for.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_claims_only_what_it_may() -> Result<()> {
    let hub = Hub::start("attack-names").await?;
    let unbound = TokenLimits::default();
    let bound = TokenLimits {
        cluster: Some("m2"),
        ..unbound
    };
    let replace = TokenLimits {
        replace: true,
        ..bound
    };
    hub.register("m1", "id-1").await?;

    let token = hub.token(bound).await?;
    let outcome = hub.try_register(&token, &draft("m3", "id-3")).await?;
    outcome.assert_denied("another's name", "TokenForAnotherCluster");
    let outcome = hub.try_register(&token, &draft("m2", "id-2")).await?;
    assert_issued("its own name", &outcome);

    let token = hub.token(unbound).await?;
    let outcome = hub.try_register(&token, &draft("m1", "id-9")).await?;
    outcome.assert_denied("an existing name", "ClusterNameTaken");
    let Outcome::Denied { message, .. } = outcome else {
        unreachable!("denied above")
    };
    let text = "the cluster ID id-9 or the cluster name m1 has been registered";
    assert!(message.starts_with(text), "{message}");
    let outcome = hub.try_register(&token, &draft("m9", "id-1")).await?;
    outcome.assert_denied("a duplicate cluster id", "ClusterIdTaken");
    let clusters: Api<Cluster> = Api::all(hub.admin.clone());
    assert!(clusters.get_opt("m9").await?.is_none());
    wait_for("the duplicate to be shown", SOON, || {
        let clusters = clusters.clone();
        async move {
            let m1 = clusters.get("m1").await?;
            Ok(m1.status.is_some_and(|status| {
                status
                    .conditions
                    .iter()
                    .any(|c| c.type_ == DUPLICATE_ID && c.status == "True")
            }))
        }
    })
    .await?;
    let outcome = hub.try_register(&token, &draft("m9", "id-9")).await?;
    assert_issued("a free name and id by the same token", &outcome);

    let token = hub.token(bound).await?;
    let outcome = hub.try_register(&token, &draft("m2", "id-2")).await?;
    outcome.assert_denied("an existing name, bound, no --replace", "ClusterNameTaken");
    let token = hub.token(replace).await?;
    let outcome = hub.try_register(&token, &draft("m2", "id-x")).await?;
    outcome.assert_denied("--replace by another member", "ClusterIdTaken");
    let outcome = hub.try_register(&token, &draft("m2", "id-2")).await?;
    assert_issued("--replace by the same member", &outcome);
    hub.stop().await
}

/// One use is one key and one member, also when two come at the same moment.
#[tokio::test(flavor = "multi_thread")]
async fn a_use_is_spent_once() -> Result<()> {
    let mut hub = Hub::start("attack-uses").await?;
    let unbound = TokenLimits::default();

    let token = hub.token(unbound).await?;
    let key = TestKey::generate();
    assert_issued(
        "first",
        &hub.try_register(&token, &draft_of(&key, "m1", "id-1"))
            .await?,
    );
    let outcome = hub.try_register(&token, &draft("m2", "id-2")).await?;
    outcome.assert_denied("a second name", "TokenSpent");
    let outcome = hub
        .try_register(&token, &draft_of(&key, "m2", "id-1"))
        .await?;
    outcome.assert_denied("a second name by the same key", "TokenSpent");
    let again = hub
        .try_register(&token, &draft_of(&key, "m1", "id-1"))
        .await?;
    assert_issued("the same agent again", &again);

    let token = hub.token(unbound).await?;
    let (a, b) = (draft("m3", "id-3"), draft("m4", "id-4"));
    let ends = at_once(&hub, (&token, &a), (&token, &b)).await?;
    let issued = ends
        .iter()
        .filter(|end| matches!(end, Outcome::Issued(_)))
        .count();
    assert_eq!(issued, 1, "one token, two names at once: {ends:?}");

    let (one, two) = (hub.token(unbound).await?, hub.token(unbound).await?);
    let (a, b) = (draft("m5", "id-5"), draft("m5", "id-6"));
    let ends = at_once(&hub, (&one, &a), (&two, &b)).await?;
    let issued = ends
        .iter()
        .filter(|end| matches!(end, Outcome::Issued(_)))
        .count();
    assert_eq!(issued, 1, "two tokens, one name at once: {ends:?}");

    let token = hub.token(TokenLimits { uses: 2, ..unbound }).await?;
    for name in ["n1", "n2"] {
        assert_issued(name, &hub.try_register(&token, &draft(name, name)).await?);
    }
    let outcome = hub.try_register(&token, &draft("n3", "n3")).await?;
    outcome.assert_denied("a third of two uses", "TokenSpent");

    if hub.plane.options.builtin {
        left_out(
            "a token that is deleted while the hub is down",
            "a built-in hub takes no requests while its controllers are down",
        );
        return hub.stop().await;
    }
    hub.kill();
    let token = hub.token(unbound).await?;
    let name = hub
        .ask(&hub.client_of(&token)?, &draft("m7", "id-7"))
        .await?;
    let secrets: Api<Secret> = Api::namespaced(hub.admin.clone(), "kube-system");
    secrets
        .delete(&token.secret_name(), &DeleteParams::default())
        .await?;
    hub.restart()?;
    hub.outcome(&name)
        .await?
        .assert_denied("deleted while the hub was down", "TokenSpent");
    hub.stop().await
}

/// A spent token goes once its agent lives; until then it opens nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_spent_token_goes_at_the_first_sign_of_life() -> Result<()> {
    let hub = Hub::start("attack-spent").await?;
    let token = hub.token(TokenLimits::default()).await?;
    let agent = hub.register_by(&token, "m1", "id-1").await?;
    assert!(secret_exists(&hub, &token).await?);
    agent.renew_lease().await?;
    wait_for("the spent token to go", SOON, || async {
        Ok(!secret_exists(&hub, &token).await?)
    })
    .await?;
    hub.stop().await
}

/// An agent renews its own certificate, and no other.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_renews_only_itself() -> Result<()> {
    let hub = Hub::start("attack-renewals").await?;
    let m1 = hub.register("m1", "id-1").await?;
    let m2 = hub.register("m2", "id-2").await?;
    let renewal = |of: &super::hub::Agent| {
        let [agents, own] = of.subject.organizations();
        let key = TestKey::generate();
        let request = RequestBuilder::of(&of.subject.common_name(), &[&agents, &own]);
        let mut draft = Draft::new(request.pem(&key));
        draft.cluster_id = None;
        draft
    };
    let name = hub.ask(&m1.client, &renewal(&m2)).await?;
    hub.outcome(&name)
        .await?
        .assert_denied("another's certificate", "RequestNotAllowed");
    // A new registration of its own name, by its certificate, is no renewal either.
    let name = hub.ask(&m1.client, &draft("m1", "id-1")).await?;
    hub.outcome(&name)
        .await?
        .assert_denied("another registration", "RequestNotAllowed");
    let name = hub.ask(&m1.client, &renewal(&m1)).await?;
    assert_issued("its own", &hub.outcome(&name).await?);

    // A Cluster on its way out gets no more certificates.
    let clusters: Api<Cluster> = Api::all(hub.admin.clone());
    let hold = json!({"metadata": {"finalizers": ["towline.dev/test"]}});
    clusters
        .patch("m2", &PatchParams::default(), &Patch::Merge(hold))
        .await?;
    clusters.delete("m2", &DeleteParams::default()).await?;
    match hub.ask(&m2.client, &renewal(&m2)).await {
        Ok(name) => hub
            .outcome(&name)
            .await?
            .assert_denied("a Cluster being deleted", "RegistrationGone"),
        // The hub may have taken its rights already.
        Err(kube::Error::Api(status)) if status.code == 403 => {}
        Err(other) => return Err(other.into()),
    }
    let release = json!({"metadata": {"finalizers": null}});
    clusters
        .patch("m2", &PatchParams::default(), &Patch::Merge(release))
        .await?;
    hub.stop().await
}
