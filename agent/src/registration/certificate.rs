//! Reads the certificate that the hub issued, and judges whether it is the one that was asked for.
//!
//! Pure.

use super::key::is_certificate_for;
use chrono::{DateTime, Utc};
use common::identity::AgentSubject;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// Why an issued certificate cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// Not a certificate at all.
    #[error("the issued certificate cannot be read")]
    Unreadable,
    /// For another key.
    #[error("the issued certificate is for another key")]
    OtherKey,
    /// For somebody else.
    #[error("the issued certificate is for another subject")]
    OtherSubject,
    /// Starts in our future or ended in our past.
    #[error(
        "the certificate just issued is valid from {not_before} to {not_after}, but here it is {now}: one of the two clocks is wrong"
    )]
    ClockSkew {
        /// Start of its life.
        not_before: DateTime<Utc>,
        /// End of its life.
        not_after: DateTime<Utc>,
        /// Our time.
        now: DateTime<Utc>,
    },
}

/// When a certificate is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// Start of its life.
    pub not_before: DateTime<Utc>,
    /// End of its life.
    pub not_after: DateTime<Utc>,
}

impl Validity {
    /// Whether the certificate has ended.
    pub fn is_over(&self, now: DateTime<Utc>) -> bool {
        now >= self.not_after
    }
}

/// Reads the life of the first certificate of a PEM chain; `None` when it cannot be read.
pub fn validity(chain_pem: &str) -> Option<Validity> {
    with_leaf(chain_pem, read_validity).flatten()
}

/// Judges a certificate that was just issued for `subject` and the key `spki`.
pub fn judge(
    now: DateTime<Utc>,
    chain_pem: &str,
    subject: &AgentSubject,
    spki: &[u8],
) -> Result<Validity, Unusable> {
    with_leaf(chain_pem, |leaf| {
        if !is_certificate_for(leaf, spki) {
            return Err(Unusable::OtherKey);
        }
        if subject_of(leaf).as_ref() != Some(subject) {
            return Err(Unusable::OtherSubject);
        }
        let Validity {
            not_before,
            not_after,
        } = read_validity(leaf).ok_or(Unusable::Unreadable)?;
        // The signer backdates by five minutes, so this shows only when our clock is behind by more.
        if not_before > now || now >= not_after {
            return Err(Unusable::ClockSkew {
                not_before,
                not_after,
                now,
            });
        }
        Ok(Validity {
            not_before,
            not_after,
        })
    })
    .unwrap_or(Err(Unusable::Unreadable))
}

fn with_leaf<T>(chain_pem: &str, f: impl FnOnce(&X509Certificate<'_>) -> T) -> Option<T> {
    let (_, pem) = x509_parser::pem::parse_x509_pem(chain_pem.as_bytes()).ok()?;
    let (_, leaf) = X509Certificate::from_der(&pem.contents).ok()?;
    Some(f(&leaf))
}

fn read_validity(leaf: &X509Certificate<'_>) -> Option<Validity> {
    let at = |t: x509_parser::time::ASN1Time| DateTime::from_timestamp(t.timestamp(), 0);
    Some(Validity {
        not_before: at(leaf.validity().not_before)?,
        not_after: at(leaf.validity().not_after)?,
    })
}

fn subject_of(leaf: &X509Certificate<'_>) -> Option<AgentSubject> {
    let text = |a: &x509_parser::x509::AttributeTypeAndValue<'_>| a.as_str().map(str::to_owned);
    let mut names = leaf.subject().iter_common_name().map(text);
    let (Some(Ok(name)), None) = (names.next(), names.next()) else {
        return None;
    };
    let orgs: Result<Vec<String>, _> = leaf.subject().iter_organization().map(text).collect();
    AgentSubject::parse(&name, &orgs.ok()?)
}

#[cfg(test)]
pub(crate) mod testing {
    //! Certificates for tests, signed by a CA made on the spot.

    use chrono::{DateTime, Utc};
    use common::identity::AgentSubject;
    use rcgen::{CertificateParams, DnType, KeyPair};

    /// A certificate of `subject` for `key_pem`, from `not_before` to `not_after`.
    pub(crate) fn issue(
        key_pem: &str,
        subject: &AgentSubject,
        not_before: DateTime<Utc>,
        not_after: DateTime<Utc>,
    ) -> String {
        let ca_key = common::chance::secret::key_pair().expect("key");
        let mut ca = CertificateParams::default();
        ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let issuer = rcgen::Issuer::from_params(&ca, ca_key);
        let [a, b] = subject.organizations();
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, a);
        params
            .distinguished_name
            .push(DnType::CustomDnType(vec![2, 5, 4, 10]), b);
        params
            .distinguished_name
            .push(DnType::CommonName, subject.common_name());
        params.not_before = at(not_before);
        params.not_after = at(not_after);
        let key = KeyPair::from_pem(key_pem).expect("key");
        params.signed_by(&key, &issuer).expect("signed").pem()
    }

    /// rcgen speaks the `time` crate; a day counted from one of its own dates avoids naming it.
    fn at<T>(time: DateTime<Utc>) -> T
    where
        T: std::ops::Add<std::time::Duration, Output = T> + From<std::time::SystemTime>,
    {
        let since = u64::try_from(time.timestamp()).expect("after 1970");
        T::from(std::time::UNIX_EPOCH) + std::time::Duration::from_secs(since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registration::key;
    use common::names::ClusterName;

    #[test]
    fn certificates_are_judged() {
        let now = DateTime::from_timestamp(1_800_000_000, 0).expect("in range");
        let hour = chrono::Duration::hours(1);
        let (pem, registration) = key::generate().expect("key");
        let spki = key::public_key(&pem).expect("public key");
        let (other, _) = key::generate().expect("key");
        let other_spki = key::public_key(&other).expect("public key");
        let subject = |name: &str| AgentSubject {
            cluster: ClusterName::parse(name).expect("valid"),
            registration: registration.clone(),
        };
        let issue = |from, to| testing::issue(pem.expose(), &subject("m1"), from, to);
        let good = issue(now - hour, now + hour);
        let validity = judge(now, &good, &subject("m1"), &spki).expect("usable");
        assert_eq!(validity.not_after, now + hour);
        assert!(!validity.is_over(now) && validity.is_over(now + hour));

        let cases = [
            (good.as_str(), "m1", &other_spki, "for another key"),
            (good.as_str(), "m2", &spki, "for another subject"),
            (&issue(now + hour, now + hour * 2), "m1", &spki, "clocks"),
            (&issue(now - hour * 2, now - hour), "m1", &spki, "clocks"),
            ("nonsense", "m1", &spki, "cannot be read"),
        ];
        for (chain, name, spki, want) in cases {
            let error = judge(now, chain, &subject(name), spki).expect_err(want);
            assert!(error.to_string().contains(want), "{error}");
        }
    }
}
