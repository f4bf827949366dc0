//! Where the clusters of a token will lie, from flags: checked here, because the hub could only refuse
//! the agent later.

use crate::cli::{CliError, Kind};
use crate::token_secret::Placement;
use std::collections::BTreeMap;

/// Keys under these domains belong to the system.
const RESERVED: [&str; 3] = ["karmada.io", "towline.dev", "kubernetes.io"];

/// Flags that place a cluster.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Placement of the new Cluster")]
pub(in crate::cli) struct PlacementArgs {
    /// Provider, such as a cloud.
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// Region.
    #[arg(long, value_name = "NAME")]
    region: Option<String>,
    /// Zones, separated by commas.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    zones: Vec<String>,
    /// Label of the Cluster as KEY=VALUE; repeat for several.
    #[arg(long = "label", value_name = "KEY=VALUE")]
    labels: Vec<String>,
}

impl PlacementArgs {
    /// Whether nothing was said.
    pub(super) fn is_empty(&self) -> bool {
        self.provider.is_none()
            && self.region.is_none()
            && self.zones.is_empty()
            && self.labels.is_empty()
    }

    /// Checks what was said.
    pub(in crate::cli) fn into_placement(self) -> Result<Placement, CliError> {
        let usage = |message: String| CliError::message(Kind::Usage, message);
        let named = [("--provider", &self.provider), ("--region", &self.region)];
        let named = named
            .into_iter()
            .filter_map(|(flag, value)| Some((flag, value.as_ref()?)));
        for (flag, value) in named.chain(self.zones.iter().map(|zone| ("--zones", zone))) {
            if value.is_empty() || !is_label_value(value) {
                return Err(usage(format!("{flag} {value:?} must be a label value")));
            }
        }
        let mut labels = BTreeMap::new();
        for label in &self.labels {
            let pair = label
                .split_once('=')
                .filter(|(k, v)| is_label_key(k) && is_label_value(v));
            let (key, value) = pair.ok_or_else(|| {
                usage(format!(
                    "--label {label:?} must be KEY=VALUE as Kubernetes allows them"
                ))
            })?;
            if let Some(domain) = reserved(key) {
                return Err(usage(format!(
                    "--label {key:?}: keys of {domain} belong to the system"
                )));
            }
            labels.insert(key.to_owned(), value.to_owned());
        }
        Ok(Placement {
            provider: self.provider,
            region: self.region,
            zones: self.zones,
            labels,
        })
    }
}

fn reserved(key: &str) -> Option<&'static str> {
    let (domain, _) = key.split_once('/')?;
    let under = |reserved: &&str| domain == *reserved || domain.ends_with(&format!(".{reserved}"));
    RESERVED.into_iter().find(|reserved| under(reserved))
}

fn is_label_value(text: &str) -> bool {
    text.is_empty() || (text.len() <= 63 && is_qualified(text))
}

fn is_label_key(key: &str) -> bool {
    let (domain, name) = match key.split_once('/') {
        Some((domain, name)) => (Some(domain), name),
        None => (None, key),
    };
    let domain_ok = domain.is_none_or(|domain| {
        domain.len() <= 253 && domain.split('.').all(common::names::is_dns_label)
    });
    domain_ok && (1..=63).contains(&name.len()) && is_qualified(name)
}

/// Letters, digits, `-`, `_` and `.`, with a letter or digit at both ends.
fn is_qualified(text: &str) -> bool {
    let bytes = text.as_bytes();
    let ends = [bytes.first(), bytes.last()];
    bytes
        .iter()
        .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
        && ends
            .iter()
            .all(|b| b.is_some_and(u8::is_ascii_alphanumeric))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placements_are_checked() {
        let good = PlacementArgs {
            provider: Some("Acme".into()),
            region: Some("eu-1".into()),
            zones: vec!["a".into(), "b".into()],
            labels: vec!["env=prod".into(), "example.com/tier=".into()],
        };
        let placement = good.into_placement().expect("good");
        assert_eq!(placement.labels.len(), 2);
        let bad = [
            PlacementArgs {
                region: Some("a b".into()),
                ..Default::default()
            },
            PlacementArgs {
                zones: vec![String::new()],
                ..Default::default()
            },
            PlacementArgs {
                labels: vec!["novalue".into()],
                ..Default::default()
            },
            PlacementArgs {
                labels: vec!["-x=1".into()],
                ..Default::default()
            },
            PlacementArgs {
                labels: vec!["cluster.karmada.io/x=1".into()],
                ..Default::default()
            },
            PlacementArgs {
                labels: vec!["towline.dev/x=1".into()],
                ..Default::default()
            },
        ];
        for args in bad {
            assert!(args.clone().into_placement().is_err(), "{args:?}");
        }
    }
}
