//! The end of a Cluster as requests: whatever is cut short, no watch outlives it.

use super::super::{Clusters, held, leaving};
use super::*;
use crate::controller::events::Events;
use crate::controller::registration::withhold::played::Played;
use crate::permissions::{Grant, Registration};
use crate::world::testing::unreachable;
use common::controller::Reconcile as _;
use common::identity::RegistrationId;
use common::labels::{CLOSING_WATCHES, REGISTRATION_ID};
use common::time::{SharedClock, SystemClock};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DeleteParams};
use serde_json::{Value, json};
use std::sync::Arc;

/// A server with Cluster m1 that is being deleted and whose agent has rights; somebody removed its namespace.
async fn leaving() -> Played {
    let id = RegistrationId::of_public_key(b"k1");
    let registration = Registration {
        cluster: ClusterName::parse("m1").expect("valid"),
        cluster_uid: "u".to_owned(),
        grant: Grant::InForce(id.clone()),
    };
    let said = json!({REGISTRATION_ID: id.as_str()});
    let played = Played::holding(&registration, &said).await;
    played.write(&json!({"metadata": {
        "finalizers": [CLUSTER_FINALIZER], "deletionTimestamp": "2026-01-01T00:00:00Z",
    }}));
    let namespaces: Api<Namespace> = Api::all(played.client());
    let params = DeleteParams::default();
    let removed = namespaces.delete("karmada-es-m1", &params).await;
    removed.expect("it is removed");
    played
}

/// A hub that starts.
fn hub(played: &Played) -> Clusters {
    let clock: SharedClock = Arc::new(SystemClock);
    Clusters {
        client: played.client(),
        events: Events::new(played.client(), clock.clone(), "hub"),
        clock,
        options: OPTIONS,
        leaving: leaving::Leaving::default(),
        held: held::Held::of(&unreachable()),
        watches: Arc::default(),
    }
}

fn is_held(played: &Played) -> bool {
    played.cluster()["metadata"]["finalizers"] == json!([CLUSTER_FINALIZER])
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_dies_has_the_next_one_close_the_watches() {
    let mut kills = 0;
    loop {
        let played = leaving().await;
        played.answers(Some(kills));
        let killed = hub(&played).reconcile(&"m1".into()).await;
        played.answers(None);
        for _ in 0..3 {
            let next = hub(&played).reconcile(&"m1".into()).await;
            next.expect("no error");
        }
        assert!(!is_held(&played), "{kills}");
        let asked = played.asked();
        let last = |word: &str| asked.iter().rposition(|it| *it == word);
        let (unbound, refused, closed) = (last("unbind"), last("ask"), last("close"));
        assert!(unbound.is_some(), "{kills}: {asked:?}");
        assert!(unbound < refused && refused < closed, "{kills}: {asked:?}");
        if killed.is_ok() {
            break;
        }
        kills += 1;
    }
    assert!(kills > 9, "{kills}");
}

/// A right that another binding gives is not the hub's to take, and keeps no Cluster from going.
#[tokio::test(start_paused = true)]
async fn a_cluster_whose_agent_somebody_lets_in_goes_after_its_watches_were_closed() {
    let played = leaving().await;
    played.allow(true);
    for _ in 0..2 {
        assert!(is_held(&played));
        let next = hub(&played).reconcile(&"m1".into()).await;
        next.expect("no error");
    }
    assert!(!is_held(&played));
    let asked = played.asked();
    let first = |word: &str| asked.iter().position(|it| *it == word);
    assert!(
        first("ask").is_some() && first("ask") < first("close"),
        "{asked:?}"
    );
    let annotations = &played.cluster()["metadata"]["annotations"];
    assert_eq!(annotations[CLOSING_WATCHES], Value::Null);
}
