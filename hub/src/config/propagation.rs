//! The flags of propagation, which every hub has.

use crate::controller::detector::skip::{InvalidSkip, Skips};
use crate::controller::namespace::NamespaceSync;
use crate::shipped;
use clap::Args;
use common::interpreter::custom::Customizations;
use std::sync::Arc;

/// Flags about what policies propagate.
#[derive(Debug, Args)]
#[command(next_help_heading = "Propagation")]
pub struct PropagationArgs {
    /// Which namespaces members get: those that something is propagated into, or all
    #[arg(
        long,
        value_name = "MODE",
        default_value = "needed",
        env = "TOWLINE_HUB_NAMESPACE_SYNC"
    )]
    namespace_sync: NamespaceSync,
    /// APIs that no policy propagates: group, group/version or group/version/Kind,Kind, separated by semicolons
    #[arg(
        long,
        value_name = "APIS",
        default_value = "",
        env = "TOWLINE_HUB_SKIPPED_PROPAGATING_APIS"
    )]
    skipped_propagating_apis: String,
    /// Namespaces, as regular expressions, out of which no policy propagates anything
    #[arg(
        long,
        value_name = "REGEX",
        value_delimiter = ',',
        default_value = "kube-.*",
        env = "TOWLINE_HUB_SKIPPED_PROPAGATING_NAMESPACES"
    )]
    skipped_propagating_namespaces: Vec<String>,
    /// Whether the customizations that ship with Towline say what is known of their kinds
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set,
        env = "TOWLINE_HUB_SHIPPED_CUSTOMIZATIONS")]
    shipped_customizations: bool,
    /// Templates and bindings worked on at once, by each controller
    #[arg(
        long,
        value_name = "N",
        default_value_t = 8,
        env = "TOWLINE_HUB_CONCURRENT_BINDING_SYNCS"
    )]
    concurrent_binding_syncs: usize,
}

/// The flags, validated.
#[derive(Debug, Clone)]
pub struct Propagating {
    /// What is never propagated.
    pub skips: Skips,
    /// Which namespaces members get.
    pub namespaces: NamespaceSync,
    /// What is known of kinds where no customization of the hub says it.
    pub shipped: Arc<Customizations>,
    /// Templates and bindings worked on at once, by each controller.
    pub workers: usize,
}

impl PropagationArgs {
    pub(super) fn into_config(self) -> Result<Propagating, InvalidSkip> {
        let Self {
            namespace_sync,
            skipped_propagating_apis,
            skipped_propagating_namespaces,
            shipped_customizations,
            concurrent_binding_syncs,
        } = self;
        Ok(Propagating {
            skips: Skips::parse(&skipped_propagating_apis, skipped_propagating_namespaces)?,
            namespaces: namespace_sync,
            shipped: match shipped_customizations {
                true => shipped::customizations(),
                false => Arc::default(),
            },
            workers: concurrent_binding_syncs.max(1),
        })
    }
}
