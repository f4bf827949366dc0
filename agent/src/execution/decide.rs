//! What to do about one manifest, given what is known of its object in the member.
//!
//! Pure. The same observation always gives the same decision; carrying a decision out and observing
//! again gives [`Decision::InSync`].

use super::manifest::Target;
use chrono::{DateTime, Utc};
use std::time::Duration;

/// Longest delay of a manifest that failed.
pub const BACKOFF_CAP: Duration = Duration::from_secs(60);

/// What a live object's marks say about whose it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// This Work's.
    ThisWork,
    /// Marked as managed, but by no Work that the hub has for this cluster: free to take over.
    Nobody,
    /// Another Work's, which still names it.
    OtherWork,
    /// Not managed at all.
    Unmanaged,
}

/// What is known of a live object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Live {
    /// Its UID.
    pub uid: String,
    /// Whose it is.
    pub owner: Owner,
    /// Whether it has a deletionTimestamp.
    pub deleting: bool,
    /// Whether it carries the mark of exactly the manifest that is wanted, and every field of that
    /// manifest is still ours.
    pub as_wanted: bool,
    /// Until when someone asked us to leave it alone.
    pub hold_until: Option<DateTime<Utc>>,
}

/// All that a decision needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// The object, if it exists.
    pub live: Option<Live>,
    /// Whether the manifest says `overwrite`.
    pub overwrite: bool,
    /// Not before then, after earlier failures with the same manifest.
    pub retry_at: Option<DateTime<Utc>>,
    /// Whether the object carries the mark of another manifest, and the hub has not named the Work since the
    /// agent started: an earlier life may have applied what it did not come to store.
    pub may_be_newer: bool,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Nothing.
    InSync,
    /// Make it.
    Create,
    /// Bring this very object to what is wanted.
    Apply {
        /// The object that was judged.
        uid: String,
        /// Whether it was not this Work's before.
        adopt: bool,
    },
    /// Leave it to whoever has it.
    Refuse(Refusal),
    /// Nothing before then.
    Wait(DateTime<Utc>, Waiting),
}

/// Why nothing is done now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// It failed a moment ago.
    Backoff,
    /// Someone holds it.
    Held,
    /// Someone else keeps changing it.
    Fight,
    /// Only the hub knows whether it is older or newer than what is wanted.
    Hub,
}

/// Why an object is not touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// It exists and is nobody's.
    Unmanaged,
    /// Another Work wants it too.
    OtherWork,
    /// It is being deleted.
    Deleting,
}

/// Decides about one manifest.
pub fn decide(now: DateTime<Utc>, observed: &Observed) -> Decision {
    // What lies further ahead than any delay was set before the clock was set back.
    let in_time = |at: &DateTime<Utc>| {
        let left = (*at - now).to_std();
        left.is_ok_and(|left| !left.is_zero() && left <= BACKOFF_CAP)
    };
    let waits = observed.retry_at.filter(in_time);
    let Some(live) = &observed.live else {
        return match waits {
            Some(at) => Decision::Wait(at, Waiting::Backoff),
            None => Decision::Create,
        };
    };
    if live.deleting {
        return Decision::Refuse(Refusal::Deleting);
    }
    let adopt = match live.owner {
        Owner::ThisWork if live.as_wanted => return Decision::InSync,
        Owner::ThisWork => false,
        Owner::Nobody => true,
        Owner::OtherWork | Owner::Unmanaged if observed.overwrite => true,
        Owner::OtherWork => return Decision::Refuse(Refusal::OtherWork),
        Owner::Unmanaged => return Decision::Refuse(Refusal::Unmanaged),
    };
    if observed.may_be_newer && !adopt {
        return Decision::Wait(now + BACKOFF_CAP, Waiting::Hub);
    }
    if let Some(until) = live.hold_until.filter(|until| *until > now) {
        return Decision::Wait(until, Waiting::Held);
    }
    if let Some(at) = waits {
        return Decision::Wait(at, Waiting::Backoff);
    }
    Decision::Apply {
        uid: live.uid.clone(),
        adopt,
    }
}

impl Refusal {
    /// The text for the Work's condition.
    pub fn text(self, target: &Target, cluster: &str, other: &str) -> String {
        let (kind, ns, name) = (&target.gvk.kind, &target.namespace, &target.name);
        match self {
            Self::Unmanaged => format!(
                "resource(kind={kind}, {ns}/{name}) already exists in the cluster {cluster} and the \
                 work.karmada.io/conflict-resolution strategy value is empty, Karmada will not manage this resource"
            ),
            Self::OtherWork => format!(
                "resource(kind={kind}, {ns}/{name}) in the cluster {cluster} belongs to work({other}), \
                 which wants it too; remove it from one of the two"
            ),
            Self::Deleting => format!(
                "resource(kind={kind}, {ns}/{name}) is being deleted in the cluster {cluster} and will be \
                 created anew when it is gone{other}"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_800_000_000 + seconds, 0).expect("in range")
    }

    fn live(owner: Owner) -> Live {
        Live {
            uid: "u".into(),
            owner,
            deleting: false,
            as_wanted: false,
            hold_until: None,
        }
    }

    fn observed(live: Option<Live>) -> Observed {
        Observed {
            live,
            overwrite: false,
            retry_at: None,
            may_be_newer: false,
        }
    }

    #[test]
    fn what_may_be_newer_waits_for_the_hub() {
        for (owner, as_wanted, want) in [
            (Owner::ThisWork, false, Decision::Wait(at(60), Waiting::Hub)),
            (Owner::ThisWork, true, Decision::InSync),
            (
                Owner::Nobody,
                false,
                Decision::Apply {
                    uid: "u".into(),
                    adopt: true,
                },
            ),
        ] {
            let observed = Observed {
                may_be_newer: true,
                ..observed(Some(Live {
                    as_wanted,
                    ..live(owner)
                }))
            };
            assert_eq!(decide(at(0), &observed), want, "{owner:?} {as_wanted}");
        }
    }

    #[test]
    fn the_conflict_rule() {
        let apply = |adopt| Decision::Apply {
            uid: "u".into(),
            adopt,
        };
        let cases = [
            (None, false, Decision::Create),
            (Some(Owner::ThisWork), false, apply(false)),
            (Some(Owner::Nobody), false, apply(true)),
            (
                Some(Owner::OtherWork),
                false,
                Decision::Refuse(Refusal::OtherWork),
            ),
            (Some(Owner::OtherWork), true, apply(true)),
            (
                Some(Owner::Unmanaged),
                false,
                Decision::Refuse(Refusal::Unmanaged),
            ),
            (Some(Owner::Unmanaged), true, apply(true)),
        ];
        for (owner, overwrite, want) in cases {
            let observed = Observed {
                overwrite,
                ..observed(owner.map(live))
            };
            assert_eq!(decide(at(0), &observed), want, "{owner:?} {overwrite}");
        }
    }

    #[test]
    fn waiting_and_deleting() {
        let mut o = observed(Some(live(Owner::ThisWork)));
        o.retry_at = Some(at(5));
        assert_eq!(decide(at(0), &o), Decision::Wait(at(5), Waiting::Backoff));
        assert!(matches!(decide(at(5), &o), Decision::Apply { .. }));
        if let Some(live) = &mut o.live {
            live.hold_until = Some(at(60));
        }
        assert_eq!(decide(at(5), &o), Decision::Wait(at(60), Waiting::Held));
        if let Some(live) = &mut o.live {
            live.deleting = true;
        }
        assert_eq!(decide(at(5), &o), Decision::Refuse(Refusal::Deleting));
        assert_eq!(
            decide(
                at(0),
                &Observed {
                    retry_at: Some(at(1)),
                    ..observed(None)
                }
            ),
            Decision::Wait(at(1), Waiting::Backoff)
        );
        // The clock was set back since.
        for (seconds, want) in [
            (60, Decision::Wait(at(60), Waiting::Backoff)),
            (61, Decision::Create),
            (480, Decision::Create),
        ] {
            let mut o = observed(None);
            o.retry_at = Some(at(seconds));
            assert_eq!(decide(at(0), &o), want, "{seconds}");
        }
    }

    #[test]
    fn texts_are_the_references() {
        let target = Target {
            gvk: common::gvk::Gvk::new("v1", "ConfigMap").expect("sound"),
            namespace: "n".into(),
            name: "a".into(),
        };
        assert_eq!(
            Refusal::Unmanaged.text(&target, "m1", ""),
            "resource(kind=ConfigMap, n/a) already exists in the cluster m1 and the work.karmada.io/conflict-resolution strategy value is empty, Karmada will not manage this resource"
        );
    }

    fn any_observed() -> impl Strategy<Value = Observed> {
        let owner = prop_oneof![
            Just(Owner::ThisWork),
            Just(Owner::Nobody),
            Just(Owner::OtherWork),
            Just(Owner::Unmanaged)
        ];
        let live = (
            owner,
            any::<bool>(),
            any::<bool>(),
            prop::option::of(-9i64..9),
        )
            .prop_map(|(owner, deleting, as_wanted, hold)| Live {
                uid: "u".into(),
                owner,
                deleting,
                as_wanted,
                hold_until: hold.map(at),
            });
        (
            prop::option::of(live),
            any::<bool>(),
            prop::option::of(-9i64..9),
            any::<bool>(),
        )
            .prop_map(|(live, overwrite, retry, may_be_newer)| Observed {
                live,
                overwrite,
                retry_at: retry.map(at),
                may_be_newer,
            })
    }

    proptest! {
        /// Carrying out a decision and looking again leaves nothing to do.
        #[test]
        fn decide_is_idempotent(o in any_observed()) {
            let after = match decide(at(0), &o) {
                Decision::Create | Decision::Apply { .. } => Observed {
                    live: Some(Live { as_wanted: true, ..live(Owner::ThisWork) }),
                    ..o
                },
                _ => o.clone(),
            };
            let second = decide(at(0), &after);
            prop_assert_eq!(second.clone(), decide(at(0), &after));
            let writes = matches!(second, Decision::Create | Decision::Apply { .. });
            prop_assert!(!writes, "{second:?}");
        }

        /// What is not ours is written only when the manifest says so.
        #[test]
        fn foreign_objects_are_left_alone(mut o in any_observed(), unmanaged: bool) {
            o.overwrite = false;
            if let Some(live) = &mut o.live {
                live.owner = if unmanaged { Owner::Unmanaged } else { Owner::OtherWork };
                let refused = matches!(decide(at(0), &o), Decision::Refuse(_));
                prop_assert!(refused);
            }
        }
    }
}
