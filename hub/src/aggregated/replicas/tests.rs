//! Who is there, by Leases that are watched.

use super::*;
use crate::aggregated::certificate::id;
use crate::world::testing::nobody;
use common::client::HostPort;
use serde_json::Value;

fn access() -> Access {
    let at = HostPort::new("127.0.0.1", 9);
    Access {
        address: ([127, 0, 0, 1], 9).into(),
        advertise: vec![at.clone()],
        service: at.clone(),
        peer: at,
        client_ca: None,
    }
}

fn made() -> Made {
    tls::install_provider();
    Made::new(&access().names(), Env::system().clock.now()).expect("made")
}

fn of(made: &Made) -> Replicas {
    Replicas::new(nobody(), &Env::system(), &access(), made, "test")
}

/// Its Lease, as it was written for the so manyth time.
fn lease(replica: &Replicas, version: u32) -> Value {
    json!({
        "metadata": {
            "name": replica.id(), "namespace": SYSTEM_NAMESPACE, "resourceVersion": version.to_string(),
            "annotations": {REPLICA_ACCESS: replica.own().written()},
        },
    })
}

fn shown(made: &Made) -> Vec<CertificateDer<'static>> {
    tls::certificates(made.certificate_pem.as_bytes()).expect("PEM")
}

#[tokio::test(start_paused = true)]
async fn where_leases_cannot_be_listed_whoever_renewed_lately_stays() {
    let (first, second) = (made(), made());
    let (one, two) = (of(&first), of(&second));
    one.leases().listed(&[lease(&one, 1), lease(&two, 1)]).await;
    let stay = |listed: Option<&[Value]>| {
        let listed: Option<Vec<PartialObjectMeta<Lease>>> = listed.map(|listed| {
            let read = |it: &Value| serde_json::from_value(it.clone()).expect("a Lease");
            listed.iter().map(read).collect()
        });
        one.with_leases(listed.as_deref()).len()
    };
    assert_eq!(stay(Some(&[lease(&two, 1)])), 1);
    assert_eq!(stay(Some(&[lease(&one, 1)])), 0);
    assert_eq!(stay(None), 1);
}

#[tokio::test(start_paused = true)]
async fn a_replica_is_there_as_long_as_it_renews_its_lease() {
    let (first, second) = (made(), made());
    let (one, two) = (of(&first), of(&second));
    let ids =
        |of: &Replicas| -> Vec<String> { of.living().iter().map(|peer| peer.id.clone()).collect() };
    let changed = one.changed();
    one.leases().listed(&[lease(&one, 1), lease(&two, 1)]).await;
    assert_eq!(ids(&one), [two.id()], "it is not another one to itself");
    assert!(changed.has_changed().expect("open"));
    tokio::time::advance(LIVES / 2).await;
    one.leases().sent(&[lease(&two, 2)]).await;
    tokio::time::advance(LIVES / 2).await;
    assert_eq!(ids(&one), [two.id()]);
    // Merely listed once more, it was not seen to renew.
    one.leases().listed(&[lease(&one, 1), lease(&two, 2)]).await;
    tokio::time::advance(LIVES / 2).await;
    assert!(ids(&one).is_empty());
    let now = one.own.env.clock.now();
    assert!(one.who(&shown(&second), now).is_none());
    one.leases().sent(&[lease(&two, 3)]).await;
    assert_eq!(ids(&one), [two.id()]);
    one.leases().listed(&[lease(&one, 1)]).await;
    assert!(ids(&one).is_empty());
}

#[tokio::test]
async fn a_replica_shows_the_certificate_that_its_lease_names() {
    let (first, second, third) = (made(), made(), made());
    let (one, two, three) = (of(&first), of(&second), of(&third));
    one.leases().listed(&[lease(&two, 1)]).await;
    let now = one.own.env.clock.now();
    let who = |made: &Made, now| one.who(&shown(made), now).map(|peer| peer.id.clone());
    assert_eq!(who(&second, now).as_deref(), Some(two.id()));
    for stranger in [&first, &third] {
        assert_eq!(who(stranger, now), None);
    }
    assert!(one.who(&[], now).is_none());
    assert_eq!(who(&second, now + chrono::Duration::days(8_000)), None);
    // A Lease of one name with the authority of another is nobody's.
    let mut forged = lease(&three, 1);
    forged["metadata"]["annotations"] = lease(&two, 1)["metadata"]["annotations"].clone();
    one.leases().listed(&[forged]).await;
    assert!(one.living().is_empty());
    assert_eq!(who(&second, now), None);
    let roots = tls::certificates(second.ca_pem.as_bytes()).expect("PEM");
    assert_eq!(id(&roots[0]).expect("named"), two.id());
}

#[tokio::test]
async fn who_had_a_tunnel_is_remembered_while_they_are_there() {
    let (first, second) = (made(), made());
    let (one, two) = (of(&first), of(&second));
    one.leases().listed(&[lease(&two, 1)]).await;
    assert_eq!(one.way("m1", false, false), Way::Ask);
    one.remember("m1", Some(two.id()));
    assert_eq!(one.way("m1", false, false), Way::To(two.id().to_owned()));
    assert_eq!(one.way("m2", false, false), Way::Ask);
    one.remember("m1", None);
    assert_eq!(one.way("m1", false, false), Way::Ask);
    one.remember("m1", Some(two.id()));
    one.leases().listed(&[]).await;
    assert_eq!(one.way("m1", false, false), Way::Nowhere);
    for n in 0..=REMEMBERED_MAX {
        one.remember(&format!("m{n}"), Some(two.id()));
    }
    assert!(lock(&one.known).remembered.len() <= REMEMBERED_MAX);
}
