//! A watch: what there is, then what happens to it.

use super::access::encode;
use super::selection::{Selection, at_revision};
use super::{FrameKind, Registry, WatchFrame, WatchStream, fresh, list};
use crate::apiserver::error::ApiError;
use crate::apiserver::request::{Context, ListOptions};
use crate::apiserver::store::{Event, Kind, Stored, Table, Watcher};
use bytes::Bytes;
use common::chance::SharedStream;
use futures::stream;
use rand::Rng as _;
use serde_json::json;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const INITIAL_END: &str = "k8s.io/initial-events-end";
/// Watches without a deadline of their own end between these.
const DEADLINE: std::ops::Range<u64> = 1800..3600;
/// No watch lasts longer, whatever it asks for: clients begin another one, and no sum with an `Instant` overflows.
const LONGEST: u64 = 24 * 3600;
/// Between two bookmarks, each time anew: watches that began at once must not be told at once for ever.
const BOOKMARK_EVERY: std::ops::RangeInclusive<f64> = 45.0..=60.0;
/// A last bookmark comes so long before the deadline.
const BOOKMARK_LAST: Duration = Duration::from_secs(2);

/// A watch that has its place in the history, and of which nothing was read yet.
pub(crate) struct Begun(Beginning);

enum Beginning {
    Refused(ApiError),
    /// With what it begins from, where it does.
    Open(Box<Watching>, Option<Table>),
}

struct Watching {
    registry: Registry,
    context: Context,
    selection: Selection,
    watcher: Watcher,
    /// What there was, waiting to be sent.
    initial: VecDeque<Arc<Stored>>,
    /// The revision of the mark after it.
    mark: Option<u64>,
    /// Events up to it are no news.
    since: u64,
    bookmarks: bool,
    bookmark_at: Instant,
    deadline: Instant,
    ended: bool,
}

impl Registry {
    /// What happens to the objects of a kind.
    pub async fn watch(
        &self,
        context: &Context,
        options: &ListOptions,
    ) -> Result<WatchStream, ApiError> {
        Ok(self.begin_watch(context, options).await?.open())
    }

    /// The same before its first frame. All the waiting is here; what takes long is in [`Begun::open`].
    pub(crate) async fn begin_watch(
        &self,
        context: &Context,
        options: &ListOptions,
    ) -> Result<Begun, ApiError> {
        context.note_deprecation();
        options.validate(true)?;
        let selection = Selection::new(context, options)?;
        let asked = fresh::parse(&options.resource_version)?.unwrap_or_default();
        let kind = context.resource.storage_key.clone();
        let store = &self.inner.store;
        let wants_initial = options.send_initial_events.unwrap_or(asked == 0);
        let from_now = wants_initial || asked == 0;
        if options.send_initial_events == Some(true)
            && let Err(error) = self.not_older_than(asked).await
        {
            return Ok(Begun(Beginning::Refused(error)));
        }
        let snapshot = store.snapshot(&kind);
        let since = if from_now { snapshot.revision } else { asked };
        let begun = self
            .history_of(&selection.namespace, since)
            .and_then(|()| store.watch(&kind, selection.scope(), since.min(snapshot.revision)));
        let watcher = match begun {
            Ok(watcher) => watcher,
            Err(gone) => {
                let expired = ApiError::expired(format!(
                    "too old resource version: {} ({})",
                    gone.asked, gone.floor
                ));
                return Ok(Begun(Beginning::Refused(expired)));
            }
        };
        let drawn = || self.draws().draw(|rng| rng.random_range(DEADLINE));
        let deadline = Instant::now() + lasts(options.timeout_seconds, drawn);
        // Who asks from the beginning, in the old way, is told where it ends as well.
        let in_old_way = options.send_initial_events.is_none()
            && options.resource_version_match.is_empty()
            && matches!(options.resource_version.as_str(), "" | "0");
        let is_list = in_old_way || options.send_initial_events == Some(true);
        let watching = Watching {
            registry: self.clone(),
            context: context.clone(),
            selection,
            watcher,
            initial: VecDeque::new(),
            mark: (is_list && options.allow_watch_bookmarks).then_some(snapshot.revision),
            since,
            bookmarks: options.allow_watch_bookmarks,
            bookmark_at: next_bookmark(deadline, self.draws()),
            deadline,
            ended: false,
        };
        let from = wants_initial.then_some(snapshot.table);
        Ok(Begun(Beginning::Open(Box::new(watching), from)))
    }

    fn initial(&self, selection: &Selection, table: &Table) -> VecDeque<Arc<Stored>> {
        let selected = |stored: &&Arc<Stored>| selection.matches(self, stored);
        if selection.namespace.is_empty() {
            table.iter().filter(selected).cloned().collect()
        } else {
            let of = table.namespace(&selection.namespace);
            of.filter(selected).cloned().collect()
        }
    }
}

impl Begun {
    /// How many bytes of objects have to be read before the first frame; counted no further than to `enough`.
    pub(crate) fn size(&self, enough: usize) -> usize {
        match &self.0 {
            Beginning::Open(watching, Some(table)) if watching.selection.reads() => {
                list::size(table, &watching.selection.namespace, enough)
            }
            _ => 0,
        }
    }

    /// Its frames.
    pub(crate) fn open(self) -> WatchStream {
        let (mut watching, table) = match self.0 {
            Beginning::Refused(error) => return refused(&error),
            Beginning::Open(watching, table) => (watching, table),
        };
        if let Some(table) = table {
            watching.initial = watching.registry.initial(&watching.selection, &table);
        }
        Box::pin(stream::unfold(watching, |mut watching| async {
            let frame = watching.next().await?;
            Some((frame, watching))
        }))
    }
}

/// A watch that ends with an error at once: the answer itself is 200.
fn refused(error: &ApiError) -> WatchStream {
    let frame = WatchFrame {
        kind: FrameKind::Error,
        object: encode(&error.to_status()),
    };
    Box::pin(stream::iter([frame]))
}

/// How long a watch may go on, by what it asks for; nothing, and less than nothing, leave it to the server.
fn lasts(asked: Option<i64>, drawn: impl FnOnce() -> u64) -> Duration {
    let asked = asked
        .and_then(|seconds| u64::try_from(seconds).ok())
        .filter(|seconds| *seconds > 0);
    Duration::from_secs(asked.unwrap_or_else(drawn).min(LONGEST))
}

/// Within a minute from now, or shortly before the end.
fn next_bookmark(deadline: Instant, draws: &SharedStream) -> Instant {
    let now = Instant::now();
    let last = deadline
        .checked_sub(BOOKMARK_LAST)
        .filter(|last| *last > now);
    let pause = draws.draw(|rng| rng.random_range(BOOKMARK_EVERY));
    let regular = now + Duration::from_secs_f64(pause);
    match last {
        Some(last) => regular.min(last),
        None => regular,
    }
}

impl Watching {
    async fn next(&mut self) -> Option<WatchFrame> {
        if let Some(stored) = self.initial.pop_front() {
            let object = self.registry.shown(&self.context.resource, &stored);
            return Some(WatchFrame {
                kind: FrameKind::Added,
                object,
            });
        }
        if let Some(revision) = self.mark.take() {
            return Some(self.bookmark(revision, true));
        }
        if self.ended {
            return None;
        }
        loop {
            let event = tokio::select! {
                biased;
                () = tokio::time::sleep_until(self.deadline) => return None,
                event = self.watcher.next() => Some(event),
                () = tokio::time::sleep_until(self.bookmark_at), if self.bookmarks => None,
            };
            match event {
                None => {
                    self.bookmark_at = next_bookmark(self.deadline, self.registry.draws());
                    let revision = self.watcher.progress();
                    // A watch from the future has not got there.
                    if revision >= self.since {
                        return Some(self.bookmark(revision, false));
                    }
                }
                // Who is too slow lists again; who watches a store that closes comes back later.
                Some(Err(_)) => {
                    self.ended = true;
                    return None;
                }
                Some(Ok(event)) => {
                    if event.revision() > self.since
                        && let Some(frame) = self.frame(&event)
                    {
                        return Some(frame);
                    }
                }
            }
        }
    }

    /// What an event is to one who sees only what is selected.
    fn frame(&self, event: &Event) -> Option<WatchFrame> {
        let resource = &self.context.resource;
        let selects = |stored: &Stored| self.selection.matches(&self.registry, stored);
        let is = event.kind != Kind::Deleted && selects(&event.object);
        let was = match (&event.previous, event.kind) {
            (Some(previous), _) => selects(previous),
            (None, Kind::Deleted) => selects(&event.object),
            (None, _) => false,
        };
        let shown = |stored: &Arc<Stored>| self.registry.shown(resource, stored);
        let (kind, object): (FrameKind, Bytes) = match (was, is) {
            (false, false) => return None,
            (false, true) => (FrameKind::Added, shown(&event.object)),
            (true, true) => (FrameKind::Modified, shown(&event.object)),
            (true, false) if event.kind == Kind::Deleted => {
                (FrameKind::Deleted, shown(&event.object))
            }
            (true, false) => {
                let last = event.previous.as_ref()?;
                let last = at_revision(self.registry.view(resource, last), event.revision());
                (FrameKind::Deleted, encode(&last))
            }
        };
        Some(WatchFrame { kind, object })
    }

    fn bookmark(&self, revision: u64, after_initial: bool) -> WatchFrame {
        let resource = &self.context.resource;
        let mut object = json!({
            "kind": *resource.kind,
            "apiVersion": resource.api_version(),
            "metadata": {"resourceVersion": revision.to_string()},
        });
        if after_initial {
            object["metadata"]["annotations"] = json!({INITIAL_END: "true"});
        }
        // A typed server writes the fields that its types always have.
        if !resource.is_custom() && resource.decode(&mut object).is_err() {
            tracing::debug!(kind = %resource.kind, "a bookmark is shown without empty fields");
        }
        match (resource.group.as_ref(), resource.plural.as_ref()) {
            ("apps", "deployments" | "replicasets" | "statefulsets")
            | ("", "replicationcontrollers") => object["spec"]["replicas"] = json!(0),
            _ => {}
        }
        WatchFrame {
            kind: FrameKind::Bookmark,
            object: encode(&object),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_lasts_as_long_as_asked_and_no_longer_than_a_day() {
        for (asked, seconds) in [
            (None, 1800),
            (Some(i64::MIN), 1800),
            (Some(0), 1800),
            (Some(1), 1),
            (Some(7200), 7200),
            (Some(86_400), 86_400),
            (Some(86_401), 86_400),
            (Some(i64::MAX), 86_400),
        ] {
            let lasts = lasts(asked, || 1800);
            assert_eq!(lasts, Duration::from_secs(seconds), "{asked:?}");
            // What the deadline is made of must not run over.
            assert!(Instant::now().checked_add(lasts).is_some(), "{asked:?}");
        }
    }
}
