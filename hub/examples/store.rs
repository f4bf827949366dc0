//! Figures of the store of the built-in API server, and the file that its format is held to.
//!
//! ```text
//! store figures [DIR]   creates by 1 and 64 writers, renewals, start and memory with 60,000 objects
//! store load DIR        only start and memory, with what is there
//! store fixture FILE    a small database of the format of this build
//! ```

use anyhow::{Context as _, bail};
use hub::apiserver::store::{
    Change, Class, Expect, Key, Options, Scope, Snapshot, Store, Stored, Write,
};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const WORKS: &str = "work.karmada.io/works";
const LEASES: &str = "coordination.k8s.io/leases";

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next().as_deref(), arguments.next()) {
        (Some("figures"), dir) => {
            let dir = dir.map_or_else(std::env::temp_dir, PathBuf::from);
            figures(&dir.join(format!("towline-store-{}", std::process::id()))).await
        }
        (Some("load"), Some(dir)) => load(Path::new(&dir)).await,
        (Some("fixture"), Some(file)) => fixture(Path::new(&file)).await,
        _ => bail!("say `figures [DIR]` or `fixture FILE`"),
    }
}

fn work(name: &str, bytes: usize) -> Value {
    json!({
        "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
        "metadata": {
            "name": name, "namespace": "karmada-es-m1", "uid": format!("{name:0>36}"),
            "labels": {"app": "web", "tier": "front"}, "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"workload": {"manifests": [{"filler": "x".repeat(bytes)}]}},
    })
}

async fn put(
    store: &Store,
    resource: &str,
    name: &str,
    before: Option<&Stored>,
    bytes: usize,
) -> anyhow::Result<Arc<Stored>> {
    let write = Write {
        resource: resource.into(),
        key: Key::new("karmada-es-m1", name),
        expect: before.map_or(Expect::Absent, |b| Expect::Revision(b.revision())),
        change: Change::Put(work(name, bytes)),
        class: Class::Renewal,
    };
    Ok(store.commit(write).await?)
}

/// Resident memory of this process that is its own and no file's, in KiB.
fn resident() -> anyhow::Result<usize> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    kib.context("no RssAnon")?
        .parse()
        .context("RssAnon is no number")
}

async fn creates(store: &Store, writers: usize, each: usize, run: &str) -> anyhow::Result<()> {
    let began = Instant::now();
    let mut tasks = Vec::new();
    for writer in 0..writers {
        let (store, run) = (store.clone(), run.to_owned());
        tasks.push(tokio::spawn(async move {
            let mut times = Vec::with_capacity(each);
            for i in 0..each {
                let began = Instant::now();
                put(
                    &store,
                    WORKS,
                    &format!("{run}-{writer:02}-{i:06}"),
                    None,
                    1000,
                )
                .await?;
                times.push(began.elapsed());
            }
            anyhow::Ok(times)
        }));
    }
    let mut times: Vec<Duration> = Vec::new();
    for task in tasks {
        times.extend(task.await??);
    }
    let (count, took) = (times.len(), began.elapsed());
    times.sort();
    let at = |part: usize| times[(count * part / 1000).min(count - 1)].as_micros();
    println!(
        "{count} creates of 1.3 kB by {writers} writers: {:.0}/s, p50 {} us, p99 {} us, p99.9 {} us",
        count as f64 / took.as_secs_f64(),
        at(500),
        at(990),
        at(999),
    );
    Ok(())
}

async fn renewals(store: &Store) -> anyhow::Result<()> {
    let mut leases = Vec::new();
    for i in 0..64 {
        leases.push(put(store, LEASES, &format!("l{i}"), None, 200).await?);
    }
    let began = Instant::now();
    let mut tasks = Vec::new();
    for lease in leases {
        let store = store.clone();
        tasks.push(tokio::spawn(async move {
            let mut lease = lease;
            for _ in 0..2000 {
                let name = lease.name().to_owned();
                lease = put(&store, LEASES, &name, Some(&lease), 200).await?;
            }
            anyhow::Ok(())
        }));
    }
    for task in tasks {
        task.await??;
    }
    println!(
        "128000 renewals by 64 writers: {:.0}/s",
        128_000.0 / began.elapsed().as_secs_f64()
    );
    Ok(())
}

async fn fan_out(store: &Store, watchers: usize) -> anyhow::Result<()> {
    let events = 500;
    let mut tasks = Vec::new();
    for _ in 0..watchers {
        let mut watcher = store.watch(WORKS, Scope::All, store.revision())?;
        tasks.push(tokio::spawn(async move {
            for _ in 0..events {
                watcher.next().await?;
            }
            anyhow::Ok(())
        }));
    }
    let began = Instant::now();
    for i in 0..events {
        put(store, WORKS, &format!("fan-{i}"), None, 1000).await?;
    }
    for task in tasks {
        task.await??;
    }
    let rate = (watchers * events) as f64 / began.elapsed().as_secs_f64();
    println!("{events} creates to {watchers} watchers: {rate:.0} events/s");
    Ok(())
}

async fn figures(dir: &Path) -> anyhow::Result<()> {
    let began = Instant::now();
    let before = resident()?;
    let store = Store::open(&dir.join("a"), Options::default())?;
    println!("an empty store opens in {} us", began.elapsed().as_micros());
    println!("an empty store takes {} KiB", resident()? - before);
    creates(&store, 1, 4000, "one").await?;
    creates(&store, 64, 500, "many").await?;
    renewals(&store).await?;
    fan_out(&store, 1000).await?;
    store.close().await;
    drop(store);

    let store = Store::open(&dir.join("b"), Options::default())?;
    creates(&store, 64, 60_000_usize.div_ceil(64), "load").await?;
    store.close().await;
    drop(store);
    // In a process of its own, for what was freed here may still be resident.
    let load = std::process::Command::new(std::env::current_exe()?)
        .arg("load")
        .arg(dir.join("b"))
        .status()?;
    anyhow::ensure!(load.success(), "loading failed");
    if std::env::var_os("STORE_KEEP").is_none() {
        std::fs::remove_dir_all(dir)?;
    }
    Ok(())
}

/// Start and memory with what is in a directory.
async fn load(dir: &Path) -> anyhow::Result<()> {
    // As after some minutes at rest, when history is forgotten; its entries take a few bytes each.
    let mut options = Options::default();
    options.history.events = 0;
    let before = resident()?;
    let began = Instant::now();
    let store = Store::open(dir, options)?;
    let took = began.elapsed();
    let Snapshot { table, .. } = store.snapshot(WORKS);
    let json: usize = table.iter().map(|stored| stored.json().len()).sum();
    let grown = (resident()? - before) * 1024;
    println!(
        "{} objects of {} bytes open in {} ms and take {} bytes each beyond their text",
        table.len(),
        json / table.len(),
        took.as_millis(),
        grown.saturating_sub(json) / table.len(),
    );
    store.close().await;
    Ok(())
}

/// Objects that were created, changed and deleted, in two resources, with and without a namespace.
async fn fixture(file: &Path) -> anyhow::Result<()> {
    let dir = std::env::temp_dir().join(format!("towline-fixture-{}", std::process::id()));
    let store = Store::open(&dir, Options::default())?;
    let first = put(&store, WORKS, "first", None, 10).await?;
    put(&store, WORKS, "first", Some(&first), 20).await?;
    let second = put(&store, WORKS, "second", None, 10).await?;
    let delete = Write {
        resource: WORKS.into(),
        key: second.key(),
        expect: Expect::Revision(second.revision()),
        change: Change::Delete,
        class: Class::Durable,
    };
    store.commit(delete).await?;
    put(&store, LEASES, "lease", None, 10).await?;
    let cluster = Write {
        resource: "cluster.karmada.io/clusters".into(),
        key: Key::cluster("m1"),
        expect: Expect::Absent,
        change: Change::Put(json!({"metadata": {"name": "m1", "uid": "u"}, "ünï": "\u{1}\\\""})),
        class: Class::Durable,
    };
    store.commit(cluster).await?;
    store.close().await;
    std::fs::copy(dir.join("hub.db"), file)?;
    std::fs::remove_dir_all(dir)?;
    Ok(())
}
