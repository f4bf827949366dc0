//! Controllers and informers on the built-in server while everything churns: kinds of three sorts are
//! created, changed and deleted, connections are cut, the server is restarted and killed. Nobody may miss
//! anything, be told anything twice, or be taken back.
//!
//! `TOWLINE_CHURN_SECONDS` is how long; half a minute if it is not set.

mod check;
mod followers;
mod informer;
mod kinds;
mod writers;

use anyhow::{Context as _, Result, ensure};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::api::DynamicObject;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::reflector::Store;
use kube::runtime::watcher;
use kube::{Client, Config};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::check::{Ack, Ledger, Note, Told, Version, handler, walk};
use self::followers::{Bare, Transcript, bare, control, held, is_last, reflect};
use self::informer::{Account, Followed, Informer};
use self::kinds::{KINDS, Kind, LAST, NAMESPACE, name, read};
use self::writers::{Acks, Writer};
use crate::env::{JSON, Parts, Plane, PlaneOptions, Relay, Scratch, ask, wait_for};

/// Writers of each kind.
const WRITERS: u32 = 2;
/// Acknowledged writes between two faults, at the least.
const CALM: usize = 150;
/// Every so many faults the server itself is stopped; the others cut connections.
const STOPS: u32 = 4;
/// Nothing here takes longer, on whatever machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// Everything of one kind.
struct Subject {
    kind: Kind,
    acks: Arc<Acks>,
    notes: Vec<Arc<Transcript<Note>>>,
    told: Vec<Arc<Transcript<(Told, u32, Version)>>>,
    stores: Vec<(String, Store<DynamicObject>)>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_misses_anything() -> Result<()> {
    let scratch = Scratch::new("churn")?;
    let parts = Parts::from_env()?;
    let options = PlaneOptions {
        builtin: true,
        ..PlaneOptions::hub()
    };
    let mut hub = Plane::start(&parts, &scratch.join("hub"), options).await?;
    let direct = client(&hub.kubeconfig).await?;
    let namespace = serde_json::json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE},
    });
    let content = namespace.to_string();
    ask(
        &direct,
        "POST",
        "/api/v1/namespaces",
        Some((JSON, &content)),
    )
    .await?
    .ok()?;

    let relay = Relay::start(&hub.address()).await?;
    let far = scratch.join("far.kubeconfig");
    let identity = hub.pki.client("follower", &["system:masters"])?;
    hub.kubeconfig_at(&far, &relay.address().to_string(), &identity)?;
    let cut = client(&far).await?;
    let mut tasks = JoinSet::new();
    let mut subjects = Vec::new();
    for kind in KINDS {
        let (subject, work) = subject(kind, &direct, &cut);
        subjects.push(subject);
        for work in work {
            tasks.spawn(work);
        }
    }
    let started = Informer::start(&parts, &far, &scratch.join("informer.log"))?;
    let (informer, followed) = match started {
        Some((informer, followed)) => (Some(informer), followed),
        None => (None, Vec::new()),
    };
    let stop = CancellationToken::new();
    let mut writers = JoinSet::new();
    for subject in &subjects {
        for index in 1..=WRITERS {
            let writer = Writer {
                client: direct.clone(),
                kind: subject.kind,
                index,
                acks: Arc::clone(&subject.acks),
            };
            writers.spawn(writer.run(stop.clone()));
        }
    }

    let faults = trouble(&mut hub, &relay, &subjects).await?;
    stop.cancel();
    while let Some(ended) = writers.join_next().await {
        ended.context("a writer panicked")?;
    }
    let mut last = Vec::new();
    for subject in &subjects {
        last.push(end_of(&direct, subject).await?);
    }
    all_know(&subjects, &followed).await?;
    let accounts = match informer {
        Some(informer) => informer.finish().await?,
        None => Vec::new(),
    };
    tasks.shutdown().await;
    hub.stop().await;

    let mut broken = Vec::new();
    for (subject, last) in subjects.iter().zip(&last) {
        let account = accounts.iter().find(|a| a.kind == subject.kind);
        broken.extend(judge(subject, account, last)?);
    }
    writeln!(std::io::stderr(), "churn: {faults:?}")?;
    let shown: Vec<&String> = broken.iter().take(40).collect();
    ensure!(broken.is_empty(), "{} faults: {shown:#?}", broken.len());
    scratch.passed();
    Ok(())
}

/// A client that repeats nothing by itself.
async fn client(kubeconfig: &Path) -> Result<Client> {
    // The project builds rustls with one provider, but this may come first.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let file = Kubeconfig::read_from(kubeconfig)
        .with_context(|| format!("failed to read {}", kubeconfig.display()))?;
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
        .await
        .context("failed to use a kubeconfig")?;
    config.proxy_url = None;
    config.default_retry = false;
    Client::try_from(config).context("failed to make a client")
}

/// Everybody who follows a kind by kube-rs, and what has to run for it.
fn subject(kind: Kind, direct: &Client, cut: &Client) -> (Subject, Vec<BoxFuture<'static, ()>>) {
    let mut work: Vec<BoxFuture<'static, ()>> = Vec::new();
    let mut notes = Vec::new();
    let hows = [
        ("a bare watch", None, false, false, direct),
        ("a short watch", Some(5), true, false, direct),
        ("a watch from bookmarks", Some(5), false, true, direct),
        ("a watch that is cut", None, true, false, cut),
    ];
    for (label, seconds, streams, from_bookmark, client) in hows {
        let how = Bare {
            streams,
            seconds,
            from_bookmark,
        };
        let transcript = Transcript::new(label, kind);
        work.push(bare(client.clone(), kind, how, Arc::clone(&transcript)).boxed());
        notes.push(transcript);
    }
    let mut stores = Vec::new();
    for (label, config) in [
        ("a reflector", watcher::Config::default()),
        (
            "a streaming reflector",
            watcher::Config::default().streaming_lists(),
        ),
    ] {
        let transcript = Transcript::new(label, kind);
        let (store, run) = reflect(cut.clone(), kind, config, Arc::clone(&transcript));
        work.push(run.boxed());
        stores.push((transcript.label.clone(), store));
        notes.push(transcript);
    }
    let told = Transcript::new("a controller", kind);
    work.push(control(cut.clone(), kind, Arc::clone(&told)).boxed());
    let subject = Subject {
        kind,
        acks: Acks::new(),
        notes,
        told: vec![told],
        stores,
    };
    (subject, work)
}

/// How often what befell the server and the connections to it.
#[derive(Debug, Default)]
struct Faults {
    cuts: u32,
    restarts: u32,
    kills: u32,
}

/// One fault after another, each after so many writes, until the time is over.
async fn trouble(hub: &mut Plane, relay: &Relay, subjects: &[Subject]) -> Result<Faults> {
    let seconds = std::env::var("TOWLINE_CHURN_SECONDS").unwrap_or_else(|_| "30".to_owned());
    let seconds: u64 = seconds.parse().context("TOWLINE_CHURN_SECONDS")?;
    // Bookmarks come once a minute; in a long run the server stays up for longer than that.
    let calm = CALM * usize::try_from(seconds / 20)?.max(1);
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut counts: Vec<_> = subjects.iter().map(|s| s.acks.count()).collect();
    let mut faults = Faults::default();
    for round in 1.. {
        let mut wanted = Vec::new();
        for count in &mut counts {
            let target = *count.borrow() + calm / KINDS.len();
            // What it answers is a lock on the channel, and is let go at once.
            wanted.push(async move { count.wait_for(|count| *count >= target).await.map(drop) });
        }
        tokio::time::timeout(PATIENCE, futures::future::try_join_all(wanted))
            .await
            .context("the server takes no more writes")?
            .context("the writers are gone")?;
        // A run that is cut short by its time has seen each fault all the same.
        if Instant::now() > end && round > 3 * STOPS {
            return Ok(faults);
        }
        match (round % STOPS, (round / STOPS) % 2) {
            (0, 1) => {
                hub.apiserver.stop(PATIENCE).await?;
                hub.restart_api().await?;
                faults.restarts += 1;
            }
            (0, _) => {
                hub.kill_api();
                hub.restart_api().await?;
                faults.kills += 1;
            }
            _ => {
                relay.close_established();
                faults.cuts += 1;
            }
        }
    }
    Ok(faults)
}

/// Creates the object that comes last, and lists.
async fn end_of(client: &Client, subject: &Subject) -> Result<Note> {
    let kind = subject.kind;
    let object = kind.object(LAST, 1).to_string();
    let answer = ask(client, "POST", &kind.collection(), Some((JSON, &object))).await?;
    let (number, version) = read(&answer.ok()?.json()?).context("an answer without a version")?;
    subject.acks.push(Ack::Wrote {
        number,
        version,
        firm: true,
    });
    let list: Value = ask(client, "GET", &kind.collection(), None)
        .await?
        .ok()?
        .json()?;
    let at = list["metadata"]["resourceVersion"].as_str();
    let items = list["items"].as_array().context("a list without items")?;
    Ok(Note::Listed {
        at: Some(at.context("a list without a revision")?.parse()?),
        items: items.iter().filter_map(read).collect(),
    })
}

/// Waits until everybody was told of the object that comes last.
async fn all_know(subjects: &[Subject], followed: &[Followed]) -> Result<()> {
    let notes = subjects.iter().flat_map(|s| &s.notes);
    for notes in notes.chain(followed.iter().map(|f| &f.sent)) {
        let what = format!("{} hears of {}", notes.label, name(LAST));
        wait_for(&what, PATIENCE, async || Ok(notes.any(is_last))).await?;
    }
    let told = subjects.iter().flat_map(|s| &s.told);
    for told in told.chain(followed.iter().map(|f| &f.told)) {
        let what = format!("{} hears of {}", told.label, name(LAST));
        let last = |(_, number, _): &(Told, u32, Version)| *number == LAST;
        wait_for(&what, PATIENCE, async || Ok(told.any(last))).await?;
    }
    Ok(())
}

/// What is wrong with what anybody was told of a kind.
fn judge(subject: &Subject, account: Option<&Account>, last: &Note) -> Result<Vec<String>> {
    let mut broken = Vec::new();
    let sent = account.map(|a| &a.sent);
    let heard: Vec<(&str, Vec<Note>)> = subject
        .notes
        .iter()
        .chain(sent)
        .map(|t| (t.label.as_str(), t.all()))
        .collect();
    let end = std::slice::from_ref(last);
    let mut all: Vec<(&str, &[Note])> = heard.iter().map(|(l, n)| (*l, n.as_slice())).collect();
    all.push(("the list at the end", end));
    let acks = subject.acks.take();
    let ledger = Ledger::new(&acks, &all, subject.kind.forgets(), &mut broken);
    let Note::Listed { items, .. } = last else {
        anyhow::bail!("{last:?} is no list")
    };
    let there: BTreeMap<u32, Version> = items.iter().copied().collect();
    let mut bookmarks = 0;
    let mut events = 0;
    for (label, notes) in &all {
        let (wrong, held) = walk(notes, &ledger);
        broken.extend(wrong.into_iter().map(|what| format!("{label}: {what}")));
        if held != there {
            broken.push(format!("{label}: ends with {held:?}, not {there:?}"));
        }
        let of = |is: fn(&Note) -> bool| notes.iter().filter(|note| is(note)).count();
        bookmarks += of(|note| matches!(note, Note::Bookmark { .. }));
        events += of(|note| matches!(note, Note::Event { .. }));
    }
    for (label, store) in &subject.stores {
        let held: BTreeMap<u32, Version> = held(store).into_iter().collect();
        if held != there {
            broken.push(format!("{label} holds {held:?}, not {there:?}"));
        }
    }
    for told in &subject.told {
        let shown = told.all();
        let wrong = handler(&shown, &ledger, true);
        broken.extend(wrong.into_iter().map(|w| format!("{}: {w}", told.label)));
        let newest: BTreeMap<u32, Version> = shown.iter().map(|(_, n, v)| (*n, *v)).collect();
        for (number, version) in &there {
            if newest.get(number) != Some(version) {
                let shown = newest.get(number);
                broken.push(format!(
                    "{}: {number} is {version:?}, shown {shown:?}",
                    told.label
                ));
            }
        }
    }
    if let Some(account) = account {
        broken.extend(of_client_go(account, &ledger, &there));
    }
    writeln!(
        std::io::stderr(),
        "churn of {}: {} answers, {} changes known, {} followers heard {events} events and {bookmarks} bookmarks",
        subject.kind.plural(),
        acks.len(),
        ledger.len(),
        all.len() - 1,
    )?;
    Ok(broken)
}

fn of_client_go(account: &Account, ledger: &Ledger, there: &BTreeMap<u32, Version>) -> Vec<String> {
    let lists = account.sent.all();
    let lists = lists.iter().filter(|n| matches!(n, Note::Listed { .. }));
    let anew = lists.count() > 1;
    let told = account.told.all();
    let mut broken: Vec<String> = handler(&told, ledger, anew)
        .into_iter()
        .map(|what| format!("{}: {what}", account.told.label))
        .collect();
    let held: BTreeMap<u32, Version> = account.held.all().into_iter().collect();
    if held != *there {
        broken.push(format!("{} is {held:?}, not {there:?}", account.held.label));
    }
    let lists = account.lists.all();
    if !lists.is_empty() {
        broken.push(format!("{}: {lists:?}", account.lists.label));
    }
    broken
}
