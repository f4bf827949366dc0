//! Tables over the registration decision, and a walk that is killed after every step.

use super::*;
use crate::credentials::testing::registration;
use crate::registration::certificate::testing::issue;
use proptest::prelude::*;

fn now() -> DateTime<Utc> {
    DateTime::from_timestamp(1_800_000_000, 0).expect("in range")
}

fn hours(n: i64) -> chrono::Duration {
    chrono::Duration::hours(n)
}

fn certified(mut of: Registration, ends: DateTime<Utc>) -> Registration {
    let from = ends - hours(24);
    of.certificate = Some(issue(of.key.expose(), &of.subject(), from, ends));
    of
}

fn observed(current: Option<Registration>, pending: Option<Registration>) -> Observed {
    Observed {
        stored: Stored::new(current, pending),
        bootstrap: Some(Fingerprint("a".into())),
        cluster_id: "uid".into(),
        hub_is_verified: false,
        csr: Csr::Unread,
    }
}

#[test]
fn nothing_stored_leads_from_discovery_to_a_key() {
    let mut o = observed(None, None);
    assert_eq!(decide(now(), &o), Step::Discover);
    o.hub_is_verified = true;
    assert_eq!(decide(now(), &o), Step::MakeKey);
    o.bootstrap = None;
    assert_eq!(decide(now(), &o), Step::Fail(Failure::NoBootstrap));
}

#[test]
fn pending_registration_follows_its_csr() {
    let pending = registration("m1", "a");
    let good = certified(pending.clone(), now() + hours(1));
    let chain = good.certificate.expect("issued");
    let cases = [
        (Csr::Unread, Step::ReadCsr),
        (Csr::Absent, Step::CreateCsr),
        (Csr::Foreign, Step::RenameCsr),
        (Csr::Waiting, Step::WaitForCsr),
        (Csr::Approved, Step::WaitForCsr),
        (Csr::Issued(chain.clone()), Step::StoreCertificate(chain)),
        (
            Csr::Issued("junk".into()),
            Step::Fail(Failure::Unusable(Unusable::Unreadable)),
        ),
        (
            Csr::Denied {
                reason: "TokenSpent".into(),
                message: "no use is left".into(),
            },
            Step::Fail(Failure::Denied {
                known: Some(DenialReason::TokenSpent),
                reason: "TokenSpent".into(),
                message: "no use is left".into(),
            }),
        ),
        (
            Csr::Failed {
                message: "no signer".into(),
            },
            Step::Fail(Failure::NotSigned {
                message: "no signer".into(),
            }),
        ),
    ];
    for (csr, want) in cases {
        let mut o = observed(None, Some(pending.clone()));
        o.csr = csr;
        assert_eq!(decide(now(), &o), want);
    }
}

#[test]
fn stored_registration_is_used_while_it_lasts() {
    let current = certified(registration("m1", "a"), now() + hours(1));
    let mut o = observed(Some(current), None);
    assert_eq!(decide(now(), &o), Step::Ready);
    let at = Some(now() + hours(1));
    let expired = Step::Fail(Failure::CertificateExpired { at });
    assert_eq!(decide(now() + hours(1), &o), expired);
    // The operator removed the bootstrap: what is stored is enough.
    o.bootstrap = None;
    assert_eq!(decide(now(), &o), Step::Ready);
    assert_eq!(decide(now() + hours(1), &o), expired);
    // A changed bootstrap is a new registration, whatever is stored.
    o.bootstrap = Some(Fingerprint("b".into()));
    assert_eq!(decide(now(), &o), Step::Discover);
    assert_eq!(decide(now() + hours(1), &o), Step::Discover);
}

#[test]
fn pending_registration_of_an_older_bootstrap_is_not_continued() {
    let mut o = observed(None, Some(registration("m1", "old")));
    o.csr = Csr::Waiting;
    assert_eq!(decide(now(), &o), Step::Discover);
}

#[test]
fn credentials_of_another_member_are_refused() {
    let failure = Step::Fail(Failure::OtherMember {
        stored: "uid".into(),
        found: "other".into(),
    });
    let current = certified(registration("m1", "a"), now() + hours(1));
    for mut o in [
        observed(Some(current), None),
        observed(None, Some(registration("m1", "a"))),
    ] {
        o.cluster_id = "other".into();
        assert_eq!(decide(now(), &o), failure);
    }
}

/// A hub that approves and signs whatever it is asked, and two agents that forget what is not stored.
#[derive(Default)]
struct World {
    stored: Stored,
    csr: Option<(String, Registration)>,
    keys: usize,
}

impl World {
    /// Performs `step` as the shell does and returns what the agent remembers of it.
    fn perform(&mut self, step: &Step, memory: &mut (bool, Csr)) {
        match step {
            Step::Discover => memory.0 = true,
            Step::MakeKey => {
                // Create wins: the one that comes second reads what is there.
                if self.stored.pending.is_none() && self.stored.current.is_none() {
                    self.keys += 1;
                    self.stored.pending = Some(registration("m1", "a"));
                }
            }
            Step::ReadCsr | Step::WaitForCsr => {
                memory.1 = match &self.csr {
                    None => Csr::Absent,
                    Some((_, asked)) => {
                        let done = certified(asked.clone(), now() + hours(1));
                        Csr::Issued(done.certificate.expect("issued"))
                    }
                };
            }
            Step::CreateCsr => {
                if let Some(pending) = &self.stored.pending
                    && self.csr.is_none()
                {
                    self.csr = Some((pending.csr_name.clone(), pending.clone()));
                }
                memory.1 = Csr::Waiting;
            }
            Step::StoreCertificate(chain) => {
                if let Some(mut done) = self.stored.pending.take() {
                    done.certificate = Some(chain.clone());
                    self.stored.current = Some(done);
                }
            }
            Step::Ready => {}
            other => panic!("unexpected step {other:?}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Two agents take turns and are killed at random; they end with one key and one registration.
    #[test]
    fn kills_and_replicas_end_as_one_registration(
        turns in proptest::collection::vec((0_usize..2, prop::bool::weighted(0.3)), 0..24)
    ) {
        let mut world = World::default();
        let fresh = || (false, Csr::Unread);
        let mut memories = [fresh(), fresh()];
        let calm = (0..32).map(|i| (i % 2, false));
        for (agent, killed) in turns.into_iter().chain(calm) {
            let memory = &mut memories[agent];
            if killed {
                *memory = fresh();
            }
            let seen = Observed {
                stored: world.stored.clone(),
                hub_is_verified: memory.0,
                csr: memory.1.clone(),
                ..observed(None, None)
            };
            world.perform(&decide(now(), &seen), memory);
        }
        prop_assert_eq!(world.keys, 1);
        let current = world.stored.current.expect("registered");
        prop_assert!(world.stored.pending.is_none());
        prop_assert!(current.certificate.is_some());
    }
}
