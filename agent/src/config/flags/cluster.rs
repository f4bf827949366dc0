//! What the agent says about its cluster, and what it does there.

use super::{positive, share};
use crate::config::{Error, LeaseConfig, StatusConfig, WorksConfig};
use clap::{ArgAction, Args};
use common::duration;
use common::liveness::LEAST;
use std::time::Duration;

/// What the agent says about its cluster, and what it does there.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Cluster")]
pub(super) struct ClusterArgs {
    /// How often the member is probed and its status compared
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration::parse, env = "TOWLINE_AGENT_CLUSTER_STATUS_UPDATE_FREQUENCY")]
    cluster_status_update_frequency: Duration,
    /// Duration of the cluster's Lease
    #[arg(long, value_name = "DURATION", default_value = "40s", value_parser = duration::parse, env = "TOWLINE_AGENT_CLUSTER_LEASE_DURATION")]
    cluster_lease_duration: Duration,
    /// Share of the Lease's duration between two renewals, between 0 and 1
    #[arg(
        long,
        value_name = "SHARE",
        default_value_t = 0.25,
        env = "TOWLINE_AGENT_CLUSTER_LEASE_RENEW_INTERVAL_FRACTION"
    )]
    cluster_lease_renew_interval_fraction: f64,
    /// Time between two signs of life that the hub does not store, for a hub that counts them (its flag of the same
    /// name, of towline-hub serve); 0 for none
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration::parse, env = "TOWLINE_AGENT_LIVENESS_INTERVAL")]
    liveness_interval: Duration,
    /// How long the member must be well before Ready turns True again
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::parse, env = "TOWLINE_AGENT_CLUSTER_SUCCESS_THRESHOLD")]
    cluster_success_threshold: Duration,
    /// How long the member must be unwell before Ready turns False
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::parse, env = "TOWLINE_AGENT_CLUSTER_FAILURE_THRESHOLD")]
    cluster_failure_threshold: Duration,
    /// Sum up nodes and pods
    #[arg(
        long,
        value_name = "BOOL",
        action = ArgAction::Set,
        default_value_t = true,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        env = "TOWLINE_AGENT_ENABLE_CLUSTER_RESOURCE_MODELING"
    )]
    enable_cluster_resource_modeling: bool,
    /// How many Works are carried out at the same time
    #[arg(
        long,
        value_name = "N",
        default_value_t = 16,
        env = "TOWLINE_AGENT_CONCURRENT_WORK_SYNCS"
    )]
    concurrent_work_syncs: usize,
    /// How many requests about Works the member is sent at the same time
    #[arg(
        long,
        value_name = "N",
        default_value_t = 32,
        env = "TOWLINE_AGENT_MEMBER_CONCURRENCY"
    )]
    member_concurrency: usize,
}

impl ClusterArgs {
    pub(super) fn into_config(self) -> Result<(LeaseConfig, StatusConfig, WorksConfig), Error> {
        let Self {
            cluster_status_update_frequency,
            cluster_lease_duration,
            cluster_lease_renew_interval_fraction,
            liveness_interval,
            cluster_success_threshold,
            cluster_failure_threshold,
            enable_cluster_resource_modeling,
            concurrent_work_syncs,
            member_concurrency,
        } = self;
        let lease = LeaseConfig {
            duration: positive("--cluster-lease-duration", cluster_lease_duration)?,
            renew_fraction: share(
                "--cluster-lease-renew-interval-fraction",
                cluster_lease_renew_interval_fraction,
            )?,
            liveness: match liveness_interval {
                Duration::ZERO => None,
                interval if interval < LEAST => return Err(Error::Liveness),
                interval => Some(interval),
            },
        };
        let status = StatusConfig {
            update_frequency: positive(
                "--cluster-status-update-frequency",
                cluster_status_update_frequency,
            )?,
            success_threshold: cluster_success_threshold,
            failure_threshold: cluster_failure_threshold,
            resource_modeling: enable_cluster_resource_modeling,
        };
        let works = WorksConfig {
            concurrent_syncs: concurrent_work_syncs.max(1),
            member_concurrency: member_concurrency.max(1),
        };
        Ok((lease, status, works))
    }
}
