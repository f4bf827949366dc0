//! Signs of life between two renewals of a Lease.

use super::*;

/// Whoever shows between renewals that they live is missed sooner, and never later than by their Leases.
#[test]
fn signs_between_renewals_make_silence_count_sooner() {
    let grace = Grace {
        signs: Some(s(1)),
        ..GRACE
    };
    let ms = Duration::from_millis;
    let deadline = |ready: Seen, play: &dyn Fn(&mut Fleet)| {
        let mut fleet = Fleet::new(grace);
        fleet.cluster_seen(s(0), "c", ready);
        fleet.lease_seen(s(0), "c", Some("r0"));
        fleet.begin(s(0));
        play(&mut fleet);
        // Nothing that is missed before.
        fleet.next_deadline(s(12)).expect("watched")
    };
    type Case<'a> = (&'static str, Seen, &'a dyn Fn(&mut Fleet), Duration);
    let table: &[Case<'_>] = &[
        ("none", posted(1), &|_| {}, s(40)),
        (
            "one",
            posted(1),
            &|it| it.life_shown(s(10), "c", s(1)),
            ms(12_800),
        ),
        (
            "what it says of its pace counts",
            posted(1),
            &|it| it.life_shown(s(10), "c", s(5)),
            s(24),
        ),
        (
            "but not below the least",
            posted(1),
            &|it| it.life_shown(s(10), "c", ms(1)),
            ms(12_800),
        ),
        (
            "nor beyond its Lease",
            posted(1),
            &|it| it.life_shown(s(10), "c", Duration::from_millis(u64::MAX)),
            s(40),
        ),
        (
            "it ends in order",
            posted(1),
            &|it| {
                it.life_shown(s(10), "c", s(1));
                it.life_shown(s(11), "c", Duration::ZERO);
            },
            s(40),
        ),
        (
            "a renewal is a sign",
            posted(1),
            &|it| {
                it.life_shown(s(10), "c", s(1));
                it.lease_seen(s(11), "c", Some("r1"));
            },
            ms(13_800),
        ),
        (
            "the hub stood still",
            posted(1),
            &|it| {
                it.life_shown(s(7), "c", s(1));
                it.gap(s(8), s(11));
            },
            ms(12_800),
        ),
        (
            "never reported",
            new(),
            &|it| it.life_shown(s(10), "c", s(1)),
            s(60),
        ),
        (
            "of nobody who is known",
            posted(1),
            &|it| it.life_shown(s(10), "stranger", s(1)),
            s(40),
        ),
    ];
    for (what, ready, play, want) in table {
        assert_eq!(deadline(ready.clone(), *play), *want, "{what}");
    }
    // Where they do not count nobody is missed sooner.
    let mut fleet = Fleet::new(GRACE);
    fleet.cluster_seen(s(0), "c", posted(1));
    fleet.begin(s(0));
    fleet.life_shown(s(10), "c", s(1));
    assert_eq!(fleet.next_deadline(s(0)), Some(s(40)));
}

/// Whoever is marked for want of signs, and then reports, may be back without them.
#[test]
fn who_was_missed_is_missed_by_the_lease_until_signs_come_again() {
    let grace = Grace {
        signs: Some(s(1)),
        ..GRACE
    };
    let mut fleet = Fleet::new(grace);
    fleet.cluster_seen(s(0), "c", posted(1));
    fleet.begin(s(0));
    fleet.life_shown(s(1), "c", s(1));
    let at = fleet.next_deadline(s(1)).expect("watched");
    assert_eq!(fleet.due(at, 9).len(), 1);
    let live = |seen| Live {
        cluster: Read::Present(seen),
        renewed: Read::Present(Some("r0".to_owned())),
    };
    // The Lease as it is read then is news.
    assert_eq!(fleet.judge(at, "c", &live(posted(1))), Verdict::Leave);
    let at = fleet.next_deadline(at).expect("watched");
    assert_eq!(at, Duration::from_millis(3_800 + 2_800));
    assert_eq!(fleet.due(at, 9).len(), 1);
    assert_eq!(
        fleet.judge(at, "c", &live(posted(1))),
        Verdict::Mark(STOPPED)
    );
    fleet.marked(at, "c", marked());
    fleet.cluster_seen(s(10), "c", posted(2));
    assert_eq!(fleet.next_deadline(s(10)), Some(s(50)));
    fleet.life_shown(s(12), "c", s(1));
    assert_eq!(
        fleet.next_deadline(s(12)),
        Some(Duration::from_millis(14_800))
    );
}
