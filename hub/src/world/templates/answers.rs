//! What an API server says of group versions, for how long that is believed, and in which version a kind is watched.
//!
//! One answer tells every kind of a group version: whoever names a thousand kinds that nobody serves has the API server
//! asked once. What an answer lacks may come; when it is asked for again does not depend on how often something else
//! comes to be wanted.

use common::backoff::Backoff;
use common::errors::chain;
use common::gvk::Gvk;
use common::mapper::{Resource, group_version_path, resources};
use common::rest::{Call, Error, JSON};
use futures::stream::{self, BoxStream};
use futures::{FutureExt as _, StreamExt as _};
use kube::Client;
use rand::Rng;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// First and longest delay after an API server did not say what it serves.
const AGAIN: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// For so long after a definition changed what is not served is asked for again.
const MAY_COME: Duration = Duration::from_secs(30);

/// For so long an answer is believed while no definition changes: what aggregated API servers serve comes untold.
const BELIEVED: Duration = Duration::from_secs(30);

/// Group versions that are asked for at the same time.
const AT_ONCE: usize = 16;

/// What the API server says of the versions of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Said {
    /// The one that is preferred is served.
    Served,
    /// It is not.
    NotServed,
    /// Of one nobody said whether it is.
    Nothing,
}

/// What a group version has.
#[derive(Debug)]
pub(super) enum Found {
    /// These kinds that can be delivered; none where there is no such group version.
    Kinds(BTreeMap<String, Arc<Resource>>),
    /// Nobody said.
    Nothing,
}

/// Asks for group versions, some at once; they are told in the order in which they are answered.
pub(super) fn ask<'v>(
    client: &Client,
    api_versions: impl Iterator<Item = &'v String>,
) -> BoxStream<'static, (String, Found)> {
    let each = api_versions.map(|it| one(client.clone(), it.clone()).boxed());
    let each: Vec<_> = each.collect();
    stream::iter(each).buffer_unordered(AT_ONCE).boxed()
}

async fn one(client: Client, api_version: String) -> (String, Found) {
    let found = match kinds_of(&client, &api_version).await {
        Ok(kinds) => Found::Kinds(kinds),
        Err(error) => {
            let error = chain(&error);
            tracing::warn!(api_version, %error, "cannot tell which kinds the API server serves");
            Found::Nothing
        }
    };
    (api_version, found)
}

async fn kinds_of(
    client: &Client,
    api_version: &str,
) -> Result<BTreeMap<String, Arc<Resource>>, Error> {
    let uri = group_version_path(api_version);
    let reply = match Call::get(&uri, JSON).send(client).await {
        Ok(reply) => reply,
        Err(error) if error.code() == Some(404) => return Ok(BTreeMap::new()),
        Err(error) => return Err(error),
    };
    let mut kinds = BTreeMap::new();
    for served in resources(api_version, &reply)? {
        // What cannot be patched cannot be delivered.
        if served.can("patch") {
            let kind = served.resource.gvk.kind.clone();
            kinds
                .entry(kind)
                .or_insert_with(|| Arc::new(served.resource));
        }
    }
    Ok(kinds)
}

/// The answers of one API server, and when it is asked anew. Pure: the time is passed in.
#[derive(Debug)]
pub(super) struct Answers {
    of: BTreeMap<String, (Instant, Found)>,
    /// How many changes of definitions they were given after.
    definitions: u64,
    /// Until then what is not served may come.
    may_come: Instant,
    /// When the oldest was given that the look under way began with.
    remembered: Option<Instant>,
    /// When what may come, and what nobody told, is asked for again.
    retry: Option<Instant>,
    /// When everything is asked for anew that is missing.
    due: Option<Instant>,
    backoff: Backoff,
}

impl Answers {
    /// Nothing was asked yet.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            of: BTreeMap::new(),
            definitions: 0,
            may_come: now,
            remembered: None,
            retry: None,
            due: None,
            backoff: Backoff::new(AGAIN.0, AGAIN.1),
        }
    }

    /// Somebody looks at all that is wanted: forgets what is not believed any more.
    pub(super) fn begin(&mut self, now: Instant, definitions: u64) {
        let is_due = self.due.is_some_and(|due| due <= now);
        if definitions != self.definitions {
            (self.definitions, self.may_come) = (definitions, now + MAY_COME);
            self.backoff.reset();
            self.forget();
        } else if is_due {
            self.forget();
        }
        let believed = |at: Instant| now.saturating_duration_since(at) < BELIEVED;
        self.of.retain(|_, (at, _)| believed(*at));
        self.remembered = self.of.values().map(|(at, _)| *at).min();
    }

    fn forget(&mut self) {
        self.of.clear();
        (self.retry, self.due) = (None, None);
    }

    /// All that is wanted was looked at, and this is the worst that was said of any of it: when to look again, if
    /// nothing changes before.
    pub(super) fn end(&mut self, now: Instant, said: Said, rng: &mut impl Rng) -> Option<Instant> {
        let may_come = said == Said::NotServed && now < self.may_come;
        if may_come || said == Said::Nothing {
            // Whatever else comes to be wanted meanwhile neither hastens it nor puts it off.
            let backoff = &mut self.backoff;
            self.retry.get_or_insert_with(|| now + backoff.next(rng));
        } else {
            self.backoff.reset();
            self.retry = None;
        }
        // Something may be wanted for the first time that came after the answer.
        let outdated = self.remembered.map(|at| at + BELIEVED);
        let outdated = outdated.filter(|_| said != Said::Served);
        self.due = self.retry.into_iter().chain(outdated).min();
        self.due
    }

    /// Takes in an answer.
    pub(super) fn take(&mut self, now: Instant, api_version: String, found: Found) {
        self.of.insert(api_version, (now, found));
    }

    /// How a kind is served in the first of these versions that is, and what was said of those before; the group versions
    /// to ask for where that is not known. The version that is watched is served as long as it is.
    pub(super) fn choose(
        &self,
        versions: &[Gvk],
        watched: Option<&Arc<Resource>>,
    ) -> Result<(Option<Arc<Resource>>, Said), Vec<String>> {
        let (mut said, mut missing, mut chosen) = (Said::Served, Vec::new(), None);
        for gvk in versions {
            if let Some(watched) = watched.filter(|it| it.gvk == *gvk) {
                chosen = Some(Arc::clone(watched));
                break;
            }
            let api_version = gvk.api_version();
            match self.of.get(&api_version) {
                None => missing.push(api_version),
                Some((_, Found::Nothing)) => said = Said::Nothing,
                Some((_, Found::Kinds(kinds))) => {
                    if let Some(resource) = kinds.get(&gvk.kind) {
                        chosen = Some(Arc::clone(resource));
                        break;
                    }
                    said = said.max(Said::NotServed);
                }
            }
        }
        match missing.is_empty() {
            true => Ok((chosen, said)),
            false => Err(missing),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng as _;
    use rand::rngs::StdRng;

    type Chosen = Result<(Option<Arc<Resource>>, Said), Vec<String>>;

    fn resource(gvk: &Gvk) -> Arc<Resource> {
        Arc::new(Resource {
            gvk: gvk.clone(),
            plural: "things".to_owned(),
            namespaced: true,
        })
    }

    fn lacks() -> Option<Found> {
        Some(Found::Kinds(BTreeMap::new()))
    }

    fn has(gvk: &Gvk) -> Option<Found> {
        Some(Found::Kinds([(gvk.kind.clone(), resource(gvk))].into()))
    }

    fn is(gvk: &Gvk, said: Said) -> Chosen {
        Ok((Some(resource(gvk)), said))
    }

    fn missing(all: &[&Gvk]) -> Chosen {
        Err(all.iter().map(|it| it.api_version()).collect())
    }

    #[test]
    fn the_first_version_that_is_served_is_chosen_once_those_before_it_are_told() {
        let now = Instant::now();
        let of = |api_version| Gvk::new(api_version, "Thing").expect("a kind");
        let (v2, v1) = (of("x.org/v2"), of("x.org/v1"));
        let nothing = || Some(Found::Nothing);
        let none = |said| -> Chosen { Ok((None, said)) };
        // What was answered of each version, which is watched, what comes of it.
        let cases = [
            (None, None, None, missing(&[&v2, &v1])),
            (has(&v2), None, None, is(&v2, Said::Served)),
            (lacks(), None, None, missing(&[&v1])),
            (None, has(&v1), None, missing(&[&v2])),
            (lacks(), has(&v1), None, is(&v1, Said::NotServed)),
            (nothing(), has(&v1), None, is(&v1, Said::Nothing)),
            (lacks(), lacks(), None, none(Said::NotServed)),
            (nothing(), lacks(), None, none(Said::Nothing)),
            (None, None, Some(&v2), is(&v2, Said::Served)),
            (None, None, Some(&v1), missing(&[&v2])),
            (lacks(), None, Some(&v1), is(&v1, Said::NotServed)),
            (has(&v2), None, Some(&v1), is(&v2, Said::Served)),
        ];
        let versions = [v2.clone(), v1.clone()];
        for (case, (of_v2, of_v1, watched, wanted)) in cases.into_iter().enumerate() {
            let mut answers = Answers::new(now);
            for (gvk, found) in [(&v2, of_v2), (&v1, of_v1)] {
                if let Some(found) = found {
                    answers.take(now, gvk.api_version(), found);
                }
            }
            let watched = watched.map(resource);
            let chosen = answers.choose(&versions, watched.as_ref());
            assert_eq!(chosen, wanted, "case {case}");
        }
    }

    /// Somebody who wants one kind that nobody serves.
    struct Looking {
        start: Instant,
        answers: Answers,
        rng: StdRng,
    }

    impl Looking {
        fn new() -> Self {
            let start = Instant::now();
            Self {
                start,
                answers: Answers::new(start),
                rng: StdRng::seed_from_u64(1),
            }
        }

        /// A look so many milliseconds after the beginning: whether the API server was asked, and when it is looked again.
        fn look(&mut self, at: u64, definitions: u64, said: Said) -> (bool, Option<u128>) {
            let now = self.start + Duration::from_millis(at);
            self.answers.begin(now, definitions);
            let gvk = Gvk::new("x.org/v1", "Thing").expect("a kind");
            let asked = self.answers.choose(&[gvk], None).is_err();
            if asked {
                let found = match said {
                    Said::Nothing => Found::Nothing,
                    _ => Found::Kinds(BTreeMap::new()),
                };
                self.answers.take(now, "x.org/v1".to_owned(), found);
            }
            let due = self.answers.end(now, said, &mut self.rng);
            (asked, due.map(|at| (at - self.start).as_millis()))
        }
    }

    #[test]
    fn what_is_not_served_is_asked_for_again_when_its_answer_is_old() {
        let (mut looking, no) = (Looking::new(), Said::NotServed);
        // When is looked, after how many changes of definitions; whether it is asked for, and when again.
        let cases = [
            (0, 0, (true, None)),
            (10_000, 0, (false, Some(30_000))),
            (20_000, 0, (false, Some(30_000))),
            (30_000, 0, (true, None)),
            (90_000, 0, (true, None)),
        ];
        for (at, definitions, wanted) in cases {
            assert_eq!(looking.look(at, definitions, no), wanted, "at {at} ms");
        }
        assert!(looking.look(91_000, 1, no).0, "a definition changed");
    }

    #[test]
    fn what_may_come_is_asked_for_again_whatever_is_wanted_meanwhile() {
        // What nobody told is asked for again without any definition.
        for (definitions, said) in [(1, Said::NotServed), (0, Said::Nothing)] {
            let mut looking = Looking::new();
            let (asked, first) = looking.look(0, definitions, said);
            assert!(asked, "{said:?}");
            let first = first.expect("it is looked again");
            assert!((250..=500).contains(&first), "{said:?}: {first}");
            for at in [50, 100, 150] {
                let again = looking.look(at, definitions, said);
                assert_eq!(again, (false, Some(first)), "{said:?} at {at} ms");
            }
            let (asked, second) = looking.look(500, definitions, said);
            assert!(asked, "{said:?}");
            let second = second.expect("it is looked again");
            assert!((1_000..=1_500).contains(&second), "{said:?}: {second}");
        }
    }
}
