//! How a registration is got and kept.

use super::{positive, share};
use crate::config::{BootstrapFlags, Error, HubConfig};
use clap::Args;
use common::duration;
use common::identity::CERTIFICATE_LIFETIME_CAP;
use std::time::Duration;

/// Shortest certificate life that a signer grants, in seconds.
const CERTIFICATE_LIFETIME_MIN: u32 = 600;

/// How a registration is got and kept.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Hub")]
pub(super) struct RegistrationArgs {
    /// How long one process tries to register before it gives up
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration::parse, env = "TOWLINE_AGENT_REGISTRATION_TIMEOUT")]
    registration_timeout: Duration,
    /// Lifetime asked for the agent's certificate, in seconds: from 600 to 7776000, which is 90 days
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 7_776_000,
        env = "TOWLINE_AGENT_CERT_EXPIRATION_SECONDS"
    )]
    cert_expiration_seconds: u32,
    /// How often the certificate's age and the bootstrap Secret are looked at; what the hub says about its
    /// addresses and certificate authorities is read every fifth time
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration::parse, env = "TOWLINE_AGENT_CERT_ROTATION_CHECKING_INTERVAL")]
    cert_rotation_checking_interval: Duration,
    /// Share of the certificate's life that is left when it is renewed, between 0 and 1
    #[arg(
        long,
        value_name = "SHARE",
        default_value_t = 0.67,
        env = "TOWLINE_AGENT_CERT_ROTATION_REMAINING_TIME_THRESHOLD"
    )]
    cert_rotation_remaining_time_threshold: f64,
}

impl RegistrationArgs {
    /// Of a hub of which nothing else is said.
    pub(super) fn into_config(self) -> Result<HubConfig, Error> {
        let Self {
            registration_timeout,
            cert_expiration_seconds,
            cert_rotation_checking_interval,
            cert_rotation_remaining_time_threshold,
        } = self;
        let most = u32::try_from(CERTIFICATE_LIFETIME_CAP).unwrap_or(u32::MAX);
        if !(CERTIFICATE_LIFETIME_MIN..=most).contains(&cert_expiration_seconds) {
            return Err(Error::Range {
                flag: "--cert-expiration-seconds",
                least: CERTIFICATE_LIFETIME_MIN,
                most,
                value: cert_expiration_seconds,
            });
        }
        Ok(HubConfig {
            kubeconfig: None,
            context: None,
            register_cluster: false,
            bootstrap: BootstrapFlags::default(),
            registration_timeout: positive("--registration-timeout", registration_timeout)?,
            certificate_seconds: i32::try_from(cert_expiration_seconds).unwrap_or(i32::MAX),
            checking_interval: positive(
                "--cert-rotation-checking-interval",
                cert_rotation_checking_interval,
            )?,
            renewal_remaining: share(
                "--cert-rotation-remaining-time-threshold",
                cert_rotation_remaining_time_threshold,
            )?,
        })
    }
}
