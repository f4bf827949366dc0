//! What changes after it was shown: told by watches of metadata, read anew, and only what is another is shown.

use super::{Args, Found, Shown, Sort, read_all, sort};
use crate::cli::get::names::Asked;
use crate::cli::get::read::Hub;
use crate::cli::{CliError, Output};
use common::api::binding::{ClusterResourceBinding, ResourceBinding};
use common::env::Env;
use common::watch::{Collection, Event, WatchConfig, watch};
use futures::future::{Ready, ready};
use futures::stream::{BoxStream, StreamExt as _, select_all};
use kube::core::PartialObjectMeta;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// What comes together is shown together.
const TOGETHER: Duration = Duration::from_millis(200);
/// However much comes, it is shown after this time.
const AT_MOST: Duration = Duration::from_secs(1);

/// Shows what changes, until somebody ends it.
pub(super) async fn follow(
    hub: &Hub,
    asked: &Asked,
    args: &Args,
    namespace: &str,
    mut last: Found,
    output: &Output,
) -> Result<(), CliError> {
    let mut changes = select_all(watched(hub, asked, args, namespace)?);
    while changes.next().await.is_some() {
        let end = Instant::now() + AT_MOST;
        while let Ok(Some(())) =
            timeout_at(end.min(Instant::now() + TOGETHER), changes.next()).await
        {}
        let found = read_all(hub, asked, args, namespace).await?;
        let news = found.since(&last);
        if !news.is_empty() {
            news.show(args, Shown::Again, output)?;
        }
        for gone in last.gone(&found) {
            output.note(format!("{gone} is gone"));
        }
        last = found;
    }
    Ok(())
}

/// One stream for each collection that what was asked for depends on.
fn watched(
    hub: &Hub,
    asked: &Asked,
    args: &Args,
    namespace: &str,
) -> Result<Vec<BoxStream<'static, ()>>, CliError> {
    let types: Vec<&String> = match asked {
        Asked::All(types) => types.iter().collect(),
        Asked::Named(pairs) => pairs.iter().map(|it| &it.0).collect(),
    };
    let here = (!args.all_namespaces).then_some(namespace);
    let mut collections = vec![
        Collection::of::<ResourceBinding>(here),
        Collection::of::<ClusterResourceBinding>(None),
    ];
    for word in types {
        let resource = hub.resolve(word)?;
        let place = match sort(&resource)? {
            Sort::Work => args.namespace.as_deref(),
            Sort::Template | Sort::Binding => here,
        };
        let place = place.filter(|_| resource.namespaced);
        collections.push(Collection::dynamic(&resource.api_resource(), place));
    }
    let config = WatchConfig {
        metadata_only: true,
        ..WatchConfig::new(&Env::system().chance)
    };
    let of = |collection| {
        let events = watch::<PartialObjectMeta>(hub.client(), collection, config.clone());
        events.scan(false, news).filter_map(ready).boxed()
    };
    Ok(collections.into_iter().map(of).collect())
}

/// Whether an event is news: what the first list brings is what was shown, unless it changed meanwhile.
fn news(listed: &mut bool, event: Event<PartialObjectMeta>) -> Ready<Option<Option<()>>> {
    let is_news = match event {
        Event::Init | Event::Disconnected { .. } | Event::Resumed { .. } => false,
        Event::InitDone { .. } => {
            *listed = true;
            true
        }
        Event::Applied(_) | Event::Undecodable(_) | Event::Deleted(_) => *listed,
    };
    ready(Some(is_news.then_some(())))
}
