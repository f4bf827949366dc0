//! Which replica answers for a cluster, who of them is there, and where members are reached by all of them. Pure.

use super::said::Said;
use common::client::HostPort;
use common::tunnel::Place;
use std::time::Duration;

/// How often a replica renews its Lease.
pub(super) const RENEWED_EVERY: Duration = Duration::from_secs(20);
/// A replica that was not seen renewing for so long is not there; nobody's written time decides anything.
pub(super) const LIVES: Duration = Duration::from_secs(60);

/// Whether a replica is there that was seen renewing last so long ago.
pub(super) fn is_living(silent_for: Duration) -> bool {
    silent_for < LIVES
}

/// Who answers a request for a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::aggregated) enum Way {
    /// This replica, which has its tunnel.
    Here,
    /// This one, as far as it is known.
    To(String),
    /// Whoever of the replicas that are there says that they have its tunnel.
    Ask,
    /// Somebody else, whom the replica that passed it on has to find: nobody passes on what was passed on.
    Elsewhere,
    /// Nobody: there is no other replica.
    Nowhere,
}

/// Decides it, from whether the tunnel is here, whether another replica passed the request on, who had the tunnel when it
/// was asked for last, and who is there.
pub(in crate::aggregated) fn way(
    here: bool,
    passed_on: bool,
    remembered: Option<&str>,
    living: &[String],
) -> Way {
    match living.iter().find(|id| remembered == Some(id)) {
        _ if here => Way::Here,
        _ if passed_on => Way::Elsewhere,
        Some(id) => Way::To(id.clone()),
        None if living.is_empty() => Way::Nowhere,
        None => Way::Ask,
    }
}

/// Whether this replica stands in for one that does not answer: of those that do it is the first by name.
pub(in crate::aggregated) fn stands_in(own: &str, answer: &[&str]) -> bool {
    answer.iter().all(|other| own < *other)
}

/// Whether a request that a replica passes on has come from there alone: it names itself, once, and nobody else.
pub(in crate::aggregated) fn is_one_hop(named: &[&[u8]], shown: &str) -> bool {
    matches!(named, [one] if *one == shown.as_bytes())
}

/// What is told of where members are reached: by the API server at `first`, and by agents at all of them.
pub(in crate::aggregated) fn told(first: &Said, all: &[&Said]) -> (HostPort, Place) {
    let mut servers = first.advertise.clone();
    for server in all.iter().flat_map(|said| &said.advertise) {
        if !servers.contains(server) {
            servers.push(server.clone());
        }
    }
    let mut authorities: Vec<&str> = all.iter().map(|said| said.ca_pem.as_str()).collect();
    authorities.push(&first.ca_pem);
    authorities.sort_unstable();
    authorities.dedup();
    let place = Place {
        servers,
        ca_pem: authorities.concat(),
    };
    (first.service.clone(), place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn said(number: u16, advertise: &[&str]) -> Said {
        let parse = |text: &&str| HostPort::parse(text).expect("an address");
        Said {
            peer: HostPort::new("192.0.2.1", number),
            service: HostPort::new("192.0.2.2", number),
            advertise: advertise.iter().map(parse).collect(),
            ca_pem: format!("PEM {number}\n"),
        }
    }

    #[test]
    fn who_has_the_tunnel_answers_and_nobody_passes_on_twice() {
        let all = ["b".to_owned(), "c".to_owned()];
        for (here, passed_on, remembered, living, expected) in [
            (true, false, None, &all[..], Way::Here),
            (true, true, Some("b"), &all, Way::Here),
            (false, false, None, &all, Way::Ask),
            (false, false, Some("c"), &all, Way::To("c".to_owned())),
            (false, false, Some("gone"), &all, Way::Ask),
            (false, false, Some("gone"), &[], Way::Nowhere),
            (false, false, None, &[], Way::Nowhere),
            (false, true, None, &all, Way::Elsewhere),
            (false, true, Some("b"), &all, Way::Elsewhere),
        ] {
            let decided = way(here, passed_on, remembered, living);
            assert_eq!(
                decided, expected,
                "{here} {passed_on} {remembered:?} {living:?}"
            );
        }
    }

    #[test]
    fn one_of_those_that_answer_stands_in() {
        let all = ["a", "b", "c"];
        let stand = all.map(|own| {
            let others: Vec<&str> = all.into_iter().filter(|it| *it != own).collect();
            stands_in(own, &others)
        });
        assert_eq!(stand, [true, false, false]);
        assert!(stands_in("c", &[]));
    }

    #[test]
    fn a_hop_is_named_once_and_by_who_makes_it() {
        assert!(is_one_hop(&[b"a"], "a") && !is_one_hop(&[], "a"));
        for named in ["", "b", "a a", "b a", "a "] {
            let values: Vec<&[u8]> = named.split(' ').map(str::as_bytes).collect();
            assert!(!is_one_hop(&values, "a"), "{named:?}");
        }
    }

    #[test]
    fn who_was_not_seen_for_a_minute_is_not_there() {
        assert!(is_living(2 * RENEWED_EVERY));
        assert!(is_living(Duration::from_secs(59)));
        assert!(!is_living(LIVES));
    }

    #[test]
    fn everybody_is_told_and_the_first_is_asked() {
        let (one, two) = (
            said(1, &["hub.example:443", "192.0.2.7:1"]),
            said(2, &["hub.example:443", "192.0.2.7:2"]),
        );
        let (service, place) = told(&two, &[&one, &two]);
        assert_eq!(service, two.service);
        let servers: Vec<String> = place.servers.iter().map(HostPort::to_string).collect();
        assert_eq!(servers, ["hub.example:443", "192.0.2.7:2", "192.0.2.7:1"]);
        assert_eq!(place.ca_pem, "PEM 1\nPEM 2\n");
        // Whoever tells it, agents verify by the same.
        assert_eq!(told(&one, &[&two]).1.ca_pem, place.ca_pem);
        assert_eq!(told(&one, &[]).1.servers, one.advertise);
    }

    proptest! {
        #[test]
        fn what_was_passed_on_goes_no_further(
            here in any::<bool>(),
            remembered in prop::option::of("[a-d]"),
            living in prop::collection::vec("[a-d]", 0..4),
        ) {
            let decided = way(here, true, remembered.as_deref(), &living);
            prop_assert_eq!(decided, if here { Way::Here } else { Way::Elsewhere });
            if let Way::To(id) = way(here, false, remembered.as_deref(), &living) {
                prop_assert!(!here && living.contains(&id));
            }
        }
    }
}
