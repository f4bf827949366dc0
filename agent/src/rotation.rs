//! Renewal of the agent's certificate while it runs.
//!
//! A renewal is a registration again, with a new key, the same registration id and the same subject,
//! asked for by the certificate it replaces. The new pair is stored before it is used.

use crate::credentials::Stored;
use crate::registration::certificate::{self, Validity};
use crate::registration::decide::{Csr, Step, follow};
use chrono::{DateTime, Duration, Utc};
use common::identity::CERTIFICATE_LIFETIME_CAP;

/// Share of the time until renewal by which renewals of a fleet spread out.
const JITTER: f64 = 0.1;

/// By how much Kubernetes' signer dates a certificate back; that part of its life was never used.
const BACKDATE: Duration = Duration::minutes(5);

/// When renewal starts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Schedule {
    /// Share of the certificate's life that is left when renewal starts, in (0,1).
    pub remaining: f64,
    /// Drawn once a process, in [0,1): where in the spread this agent stands.
    pub dice: f64,
}

/// What renewal does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Renewal {
    /// Nothing before this time.
    Sleep(DateTime<Utc>),
    /// A step, as in registration; `MakeKey` and `StoreCertificate` keep the registration id.
    Take(Step),
}

/// Decides the next step of renewal.
pub fn decide(now: DateTime<Utc>, schedule: Schedule, stored: &Stored, csr: &Csr) -> Renewal {
    let Some(current) = &stored.current else {
        return Renewal::Sleep(DateTime::<Utc>::MAX_UTC);
    };
    let chain = current.certificate.as_deref().unwrap_or_default();
    // One that cannot be read is due, and so is one of an authority that is on its way out.
    if !current.signer_changed
        && let Some(validity) = certificate::validity(chain)
    {
        let due = due_at(validity, schedule);
        if now < due {
            return Renewal::Sleep(due);
        }
    }
    let asked = stored.renewal.as_ref().filter(|it| it.id == current.id);
    Renewal::Take(asked.map_or(Step::MakeKey, |asked| follow(now, asked, csr)))
}

/// When the certificate is to be renewed. A life beyond our cap counts as the cap: whoever gave it,
/// it is not waited for.
pub fn due_at(validity: Validity, schedule: Schedule) -> DateTime<Utc> {
    let life = validity.not_after - validity.not_before;
    // Without this a certificate of ten minutes would be due the moment it is issued.
    let unused = BACKDATE.min(life / 2);
    let start = validity.not_before + unused;
    let life = (life - unused).min(Duration::seconds(CERTIFICATE_LIFETIME_CAP));
    let used = (1.0 - schedule.remaining).clamp(0.0, 1.0) * (1.0 + JITTER * schedule.dice);
    #[expect(
        clippy::cast_possible_truncation,
        reason = "at most 90 days of milliseconds"
    )]
    let wait = (life.num_milliseconds() as f64 * used).round() as i64;
    let due = start + Duration::milliseconds(wait);
    due.min(validity.not_after)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credentials::testing::registration;
    use crate::registration::certificate::testing::issue;
    use proptest::prelude::*;

    const SCHEDULE: Schedule = Schedule {
        remaining: 0.67,
        dice: 0.0,
    };

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_800_000_000 + seconds, 0).expect("in range")
    }

    #[test]
    fn renewal_starts_at_a_third_and_keeps_the_registration() {
        let mut current = registration("m1", "a");
        let chain = issue(
            current.key.expose(),
            &current.subject(),
            at(-300),
            at(10_000),
        );
        current.certificate = Some(chain);
        let mut stored = Stored::new(Some(current.clone()), None);
        let step = |now, stored: &Stored, csr| decide(now, SCHEDULE, stored, &csr);
        let quiet = Renewal::Sleep(at(3_300));
        assert_eq!(step(at(3_299), &stored, Csr::Unread), quiet);
        let make = Renewal::Take(Step::MakeKey);
        assert_eq!(step(at(3_300), &stored, Csr::Unread), make);

        // A registration under way is none of ours, nor is the renewal of another.
        let mut pending = registration("m1", "b");
        stored.pending = Some(pending.clone());
        assert_eq!(step(at(3_300), &stored, Csr::Unread), make);
        stored.renewal = Some(pending.clone());
        assert_eq!(step(at(3_300), &stored, Csr::Unread), make);

        pending.id = current.id.clone();
        stored.renewal = Some(pending.clone());
        let read = Renewal::Take(Step::ReadCsr);
        assert_eq!(step(at(3_300), &stored, Csr::Unread), read);
        // Long before its time, when the hub signs by another authority.
        let current = stored.current.as_mut().expect("registered");
        current.signer_changed = true;
        assert_eq!(step(at(0), &stored, Csr::Unread), read);

        let chain = issue(pending.key.expose(), &pending.subject(), at(0), at(9_000));
        let store = Renewal::Take(Step::StoreCertificate(chain.clone()));
        assert_eq!(step(at(3_300), &stored, Csr::Issued(chain)), store);
    }

    proptest! {
        #[test]
        fn renewal_is_due_within_the_life(
            life in 1_i64..400 * 24 * 3600, remaining in 0.0_f64..1.0, dice in 0.0_f64..1.0
        ) {
            let validity = Validity { not_before: at(-300), not_after: at(life) };
            let due = due_at(validity, Schedule { remaining, dice });
            prop_assert!(due >= at(-300) && due <= at(life));
            prop_assert!(due <= at(CERTIFICATE_LIFETIME_CAP + CERTIFICATE_LIFETIME_CAP / 10));
        }
    }
}
