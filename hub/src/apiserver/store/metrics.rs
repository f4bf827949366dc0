//! The store in numbers: how large it is, and how long its disk takes.

use super::{DATABASE, Store};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use std::fmt;
use std::path::{Path, PathBuf};

/// Puts the numbers of a store in `dir` into a registry.
pub fn register(registry: &mut Registry, store: &Store, dir: &Path) {
    registry.register(
        "towline_hub_store_commit_duration_seconds",
        "Time of one transaction until it is on disk",
        store.commits(),
    );
    registry.register_collector(Box::new(Size(dir.join(DATABASE))));
}

/// The size of the database with SQLite's log, looked at when somebody asks.
#[derive(Debug)]
struct Size(PathBuf);

impl Collector for Size {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut family = encoder.encode_descriptor(
            "towline_hub_store_size_bytes",
            "Size of the database and of its write-ahead log on disk",
            None,
            MetricType::Gauge,
        )?;
        for (file, ending) in [("database", ""), ("log", "-wal")] {
            let mut path = self.0.clone().into_os_string();
            path.push(ending);
            let size = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
            ConstGauge::new(size).encode(family.encode_family(&[("file", file)])?)?;
        }
        Ok(())
    }
}
