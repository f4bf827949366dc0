use super::*;
use crate::credentials::testing::registration;
use proptest::prelude::*;
use rcgen::{BasicConstraints, CertificateParams, IsCa};
use rustls::pki_types::CertificateDer;
use std::sync::LazyLock;

static AUTHORITIES: LazyLock<Vec<CertificateDer<'static>>> = LazyLock::new(|| {
    let make = |_| {
        let key = common::chance::secret::key_pair().expect("a key");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).expect("a certificate");
        certificate.der().clone()
    };
    (0..3).map(make).collect()
});

fn published(authorities: &[usize], servers: &[&str]) -> Published {
    let parse = |text: &&str| HostPort::parse(text).expect("an address");
    Published {
        authorities: authorities
            .iter()
            .map(|n| AUTHORITIES[*n].clone())
            .collect(),
        servers: servers.iter().map(parse).collect(),
    }
}

fn kept(authorities: &[usize], servers: &[&str]) -> Registration {
    let mut kept = registration("m1", "a");
    kept.ca = match authorities {
        [] => "junk".to_owned(),
        some => published(some, &[]).ca_pem(),
    };
    kept.servers = servers.iter().map(|s| (*s).to_owned()).collect();
    kept
}

/// What of it is kept afterwards: which authorities, and whether another signs.
fn authorities(news: &News) -> (Vec<usize>, bool) {
    let ders = common::tls::certificates(news.ca.as_bytes()).expect("PEM");
    let number = |der| AUTHORITIES.iter().position(|one| one == der);
    (
        ders.iter().filter_map(number).collect(),
        news.signer_changed,
    )
}

#[test]
fn authorities_come_at_once_and_go_only_when_proved() {
    let verdict = |before: &[usize], now: &[usize]| match decide(
        &kept(before, &["a:1"]),
        &published(now, &["a:1"]),
    ) {
        Decision::Keep => ("keep", (before.to_vec(), false)),
        Decision::Store(news) => ("store", authorities(&news)),
        Decision::Prove(news) => ("prove", authorities(&news)),
    };
    assert_eq!(verdict(&[0], &[0]), ("keep", (vec![0], false)));
    assert_eq!(verdict(&[0], &[0, 1]), ("store", (vec![0, 1], false)));
    assert_eq!(verdict(&[0, 1], &[1, 0]), ("store", (vec![1, 0], true)));
    assert_eq!(verdict(&[1, 0], &[1]), ("prove", (vec![1], false)));
    // Whoever was away while the first two steps were taken, or meets another hub altogether.
    assert_eq!(verdict(&[0], &[1, 0]), ("store", (vec![1, 0], true)));
    assert_eq!(verdict(&[0], &[1]), ("prove", (vec![1], true)));
    assert_eq!(verdict(&[0, 1], &[2, 0]), ("prove", (vec![2, 0], true)));
    assert_eq!(verdict(&[], &[0]), ("prove", (vec![0], true)));
}

#[test]
fn addresses_are_added_and_the_named_ones_come_first() {
    let after =
        |before: &[&str], now: &[&str]| match decide(&kept(&[0], before), &published(&[0], now)) {
            Decision::Keep => None,
            Decision::Store(news) | Decision::Prove(news) => Some(news.servers.join(" ")),
        };
    assert_eq!(after(&["a:1"], &["a:1"]), None);
    assert_eq!(after(&["a:1", "b:1"], &["a:1"]), None);
    assert_eq!(after(&["a:1"], &[]), None);
    assert_eq!(after(&["a:1"], &["a:1", "b:1"]).as_deref(), Some("a:1 b:1"));
    assert_eq!(after(&["a:1", "b:1"], &["b:1"]).as_deref(), Some("b:1 a:1"));
    let many: Vec<String> = (1..=20).map(|port| format!("h:{port}")).collect();
    let kept = servers(&[HostPort::new("new", 1)], many);
    assert_eq!((kept.len(), kept[0].as_str()), (SERVERS_MAX, "new:1"));
}

proptest! {
    /// Once stored, the same word is no news.
    #[test]
    fn what_was_stored_is_known(
        before in proptest::sample::subsequence(vec![0usize, 1, 2], 0..=3),
        now in proptest::sample::subsequence(vec![2usize, 0, 1], 1..=3),
        known in proptest::sample::subsequence(vec!["a:1", "b:1", "c:1"], 0..=3),
        named in proptest::sample::subsequence(vec!["c:1", "d:1", "a:1"], 0..=3),
    ) {
        let mut kept = kept(&before, &known);
        let published = published(&now, &named);
        if let Decision::Store(news) | Decision::Prove(news) = decide(&kept, &published) {
            for server in &known {
                prop_assert!(news.servers.iter().any(|one| one == server));
            }
            kept.ca = news.ca;
            kept.servers = news.servers;
        }
        prop_assert_eq!(decide(&kept, &published), Decision::Keep);
    }
}
