//! What keeps a server that listens as it is: its certificate fresh, and its authorities those of the files.

use crate::apiserver::http::server::Tls;
use crate::apiserver::keys::{self, Keys, server};
use chrono::{DateTime, Utc};
use common::admin::Check;
use common::time::SharedClock;
use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};

/// How often the files of the keys are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// So many looks in a row fail before it is said: the files of an authority change one after the other.
const LOOKS_THAT_FAIL: u32 = 2;

/// Keeps the server's certificate fresh, and notices other authorities.
pub(super) struct Upkeep {
    pub(super) keys: Keys,
    pub(super) names: BTreeSet<String>,
    pub(super) life: chrono::Duration,
    pub(super) clock: SharedClock,
    pub(super) shown: Tls,
    /// While the certificate that is shown may be.
    pub(super) serves: Range<DateTime<Utc>>,
    pub(super) changed: common::signal::Sender<u64>,
    /// Whether the next start can read the keys.
    pub(super) readable: Check,
}

impl Upkeep {
    pub(super) async fn run(mut self) {
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut failures = 0_u32;
        loop {
            looks.tick().await;
            if let Err(error) = self.keys.reload_revoked() {
                tracing::warn!(error = %common::errors::chain(&error), "failed to read what is revoked");
            }
            let replaced = match self.keys.reload() {
                Ok(replaced) => {
                    if failures >= LOOKS_THAT_FAIL {
                        tracing::info!("the keys can be read again");
                    }
                    failures = 0;
                    self.readable.ok();
                    replaced
                }
                Err(error) => {
                    failures = failures.saturating_add(1);
                    self.complain(failures, &error);
                    continue;
                }
            };
            let now = self.clock.now();
            if !replaced && self.serves.contains(&now) {
                continue;
            }
            self.renew(now);
            if replaced {
                self.changed.send_modify(|version| *version += 1);
            }
        }
    }

    /// Shows the certificate that fits now. When there is none, the next look tries again: the one that is shown
    /// may be of an authority that is no more.
    fn renew(&mut self, now: DateTime<Utc>) {
        match server::current(&self.keys, &self.names, self.life, now) {
            Ok(certificate) => {
                self.serves = certificate.serves;
                let authorities = self.keys.authorities();
                if let Err(error) = self.shown.set(certificate.key, authorities.names()) {
                    tracing::error!(%error, "failed to set up TLS anew");
                }
                tracing::info!(until_renewal = %(self.serves.end - now), "the server's certificate was renewed");
            }
            Err(error) => {
                self.serves = now..now;
                tracing::error!(error = %common::errors::chain(&error), "failed to renew the server's certificate");
            }
        }
    }

    /// Says that keys which were read once cannot be read any more: this process works on with what it
    /// has, the next one could not.
    fn complain(&self, failures: u32, error: &keys::Error) {
        if failures < LOOKS_THAT_FAIL {
            return;
        }
        let error = common::errors::chain(error).to_string();
        if failures == LOOKS_THAT_FAIL {
            tracing::error!(error, "the keys cannot be read; the next start will fail");
        }
        self.readable
            .fail(format!("the next start will fail: {error}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::admin::AdminState;
    use common::time::{Clock as _, SystemClock};
    use std::fs;
    use std::sync::Arc;

    #[test]
    fn a_certificate_that_could_not_be_made_is_tried_again() {
        common::tls::install_provider();
        let dir = tempfile::tempdir().expect("a folder");
        let clock: SharedClock = Arc::new(SystemClock);
        let keys = Keys::open(dir.path(), &clock).expect("made");
        let (names, life) = (
            BTreeSet::from(["hub".to_owned()]),
            chrono::Duration::days(90),
        );
        let now = SystemClock.now();
        let first = server::current(&keys, &names, life, now).expect("made");
        let shown = Tls::new(first.key, keys.authorities().names()).expect("TLS");
        let (changed, _authorities) = common::signal::channel(0);
        let mut upkeep = Upkeep {
            keys: keys.clone(),
            names,
            life,
            clock,
            shown,
            serves: first.serves,
            changed,
            readable: AdminState::default().readiness.add("keys"),
        };
        assert!(upkeep.serves.contains(&now));
        let file = keys.folder().join(server::CERTIFICATE);
        fs::remove_file(&file).expect("removed");
        fs::create_dir(&file).expect("in its place");
        upkeep.renew(now);
        assert!(!upkeep.serves.contains(&now), "the next look tries again");
        fs::remove_dir(&file).expect("removed");
        upkeep.renew(now);
        assert!(upkeep.serves.contains(&now));
    }
}
