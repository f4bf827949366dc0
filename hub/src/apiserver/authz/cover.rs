//! What of some rules others do not cover. Pure.
//!
//! A rule of a few hundred bytes stands for as many parts as its verbs, groups, resources and names multiplied.
//! They are looked at one by one and never held together, and no more of them than a bound.

use super::rule::Rule;
use std::collections::{BTreeMap, BTreeSet};

/// How often a part may be held against a rule.
const MOST_STEPS: usize = 1_000_000;
/// How long a text is looked at in one step.
const BYTES_PER_STEP: usize = 64;
/// How much of what is lacking is told.
const MOST_TOLD: usize = 256 * 1024;
/// What a part that is lacking takes besides its texts.
const PART: usize = 32;

/// One verb of one kind, or of one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part<'a> {
    verb: &'a str,
    on: On<'a>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum On<'a> {
    Resource {
        group: &'a str,
        resource: &'a str,
        name: Option<&'a str>,
    },
    Path(&'a str),
}

impl Part<'_> {
    fn size(&self) -> usize {
        let on = match self.on {
            On::Resource {
                group,
                resource,
                name,
            } => group.len() + resource.len() + name.map_or(0, str::len),
            On::Path(path) => path.len(),
        };
        on + self.verb.len()
    }

    fn rule(&self) -> Rule {
        let one = |item: &str| vec![item.to_owned()];
        let verbs = one(self.verb);
        match self.on {
            On::Resource {
                group,
                resource,
                name,
            } => Rule {
                verbs,
                api_groups: one(group),
                resources: one(resource),
                resource_names: name.map(one).unwrap_or_default(),
                ..Rule::default()
            },
            On::Path(path) => Rule {
                verbs,
                non_resource_urls: one(path),
                ..Rule::default()
            },
        }
    }
}

/// A rule whose lists are searched more than once.
#[derive(Debug)]
struct Searched<'a> {
    verbs: Words<'a>,
    groups: Words<'a>,
    resources: Words<'a>,
    /// Subresources of every resource.
    subresources: BTreeSet<&'a str>,
    urls: &'a [String],
}

/// Words of which `*` means every one.
#[derive(Debug)]
struct Words<'a>(BTreeSet<&'a str>);

impl<'a> Words<'a> {
    fn of(list: &'a [String]) -> Self {
        Self(list.iter().map(String::as_str).collect())
    }

    fn has(&self, word: &str) -> bool {
        self.0.contains("*") || self.0.contains(word)
    }
}

impl<'a> Searched<'a> {
    fn of(rule: &'a Rule) -> Self {
        let every = rule
            .resources
            .iter()
            .filter_map(|one| one.strip_prefix("*/"));
        Self {
            verbs: Words::of(&rule.verbs),
            groups: Words::of(&rule.api_groups),
            resources: Words::of(&rule.resources),
            subresources: every.collect(),
            urls: &rule.non_resource_urls,
        }
    }

    /// Whether it covers a part, whatever name that has.
    fn covers(&self, part: &Part<'_>) -> bool {
        self.verbs.has(part.verb)
            && match part.on {
                On::Resource {
                    group, resource, ..
                } => self.groups.has(group) && self.has_resource(resource),
                On::Path(path) => self.urls.iter().any(|own| {
                    own == path || own.ends_with('*') && path.starts_with(own.trim_end_matches('*'))
                }),
            }
    }

    fn has_resource(&self, resource: &str) -> bool {
        let subresource = resource.split_once('/').map(|(_, sub)| sub);
        self.resources.has(resource)
            || subresource.is_some_and(|sub| self.subresources.contains(sub))
    }
}

/// The rules that somebody has, by the names that they hold for.
#[derive(Debug)]
struct Owned<'a> {
    rules: Vec<Searched<'a>>,
    /// Those that hold for every name.
    of_all: Vec<usize>,
    of_one: BTreeMap<&'a str, Vec<usize>>,
}

impl<'a> Owned<'a> {
    fn of(rules: impl IntoIterator<Item = &'a Rule>) -> Self {
        let mut owned = Self {
            rules: Vec::new(),
            of_all: Vec::new(),
            of_one: BTreeMap::new(),
        };
        for (at, rule) in rules.into_iter().enumerate() {
            owned.rules.push(Searched::of(rule));
            if rule.resource_names.is_empty() {
                owned.of_all.push(at);
            }
            for name in &rule.resource_names {
                owned.of_one.entry(name).or_default().push(at);
            }
        }
        owned
    }
}

/// There are more parts than anybody holds against rules.
#[derive(Debug)]
struct TooMany;

/// A search for what is lacking, as far as it may go.
#[derive(Debug)]
struct Search<'a> {
    owned: Owned<'a>,
    /// Steps that are left.
    steps: usize,
    /// What may still be told.
    room: usize,
    lacking: Vec<Part<'a>>,
}

impl<'a> Search<'a> {
    fn new(owned: impl IntoIterator<Item = &'a Rule>, steps: usize, room: usize) -> Self {
        Self {
            owned: Owned::of(owned),
            steps,
            room,
            lacking: Vec::new(),
        }
    }

    fn look(&mut self, wanted: &'a [Rule]) -> Result<(), TooMany> {
        for rule in wanted {
            for group in &rule.api_groups {
                for resource in &rule.resources {
                    for verb in &rule.verbs {
                        self.look_at(verb, group, resource, &rule.resource_names)?;
                    }
                }
            }
            for url in &rule.non_resource_urls {
                for verb in &rule.verbs {
                    let part = Part {
                        verb,
                        on: On::Path(url),
                    };
                    if !self.is_covered(&part, None)? {
                        self.lack(part)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn look_at(
        &mut self,
        verb: &'a str,
        group: &'a str,
        resource: &'a str,
        names: &'a [String],
    ) -> Result<(), TooMany> {
        let part = |name| Part {
            verb,
            on: On::Resource {
                group,
                resource,
                name,
            },
        };
        if self.is_covered(&part(None), None)? {
            return Ok(());
        }
        if names.is_empty() {
            return self.lack(part(None));
        }
        for name in names {
            let part = part(Some(name));
            if !self.is_covered(&part, Some(name))? {
                self.lack(part)?;
            }
        }
        Ok(())
    }

    /// Whether a rule for this name covers it; without a name, one for all.
    fn is_covered(&mut self, part: &Part<'_>, name: Option<&str>) -> Result<bool, TooMany> {
        let Owned {
            rules,
            of_all,
            of_one,
        } = &self.owned;
        let candidates = match name {
            None => of_all.as_slice(),
            Some(name) => of_one.get(name).map(Vec::as_slice).unwrap_or_default(),
        };
        let step = 1 + part.size() / BYTES_PER_STEP;
        let mut left = self.steps.checked_sub(step).ok_or(TooMany)?;
        let mut covered = false;
        for rule in candidates.iter().filter_map(|at| rules.get(*at)) {
            let urls = match part.on {
                On::Resource { .. } => 0,
                On::Path(_) => rule.urls.len(),
            };
            left = left.checked_sub(step * (1 + urls)).ok_or(TooMany)?;
            covered = rule.covers(part);
            if covered {
                break;
            }
        }
        self.steps = left;
        Ok(covered)
    }

    fn lack(&mut self, part: Part<'a>) -> Result<(), TooMany> {
        self.lacking.push(part);
        let left = self.room.checked_sub(PART + part.size());
        self.room = left.ok_or(TooMany)?;
        Ok(())
    }
}

/// What of `wanted` is not covered by `owned`, each rule with one verb of one kind; `wanted` is known to be small.
pub(super) fn lacking(owned: &[Rule], wanted: &[Rule]) -> Vec<Rule> {
    let mut search = Search::new(owned, usize::MAX, usize::MAX);
    // Without bounds there is nothing that it could fail at.
    let _ = search.look(wanted);
    search.lacking.iter().map(Part::rule).collect()
}

/// What of `wanted` is not covered by `owned`, as messages list it; empty when all is.
pub(super) fn missing<'a>(
    owned: impl IntoIterator<Item = &'a Rule>,
    wanted: &'a [Rule],
) -> Vec<String> {
    let mut search = Search::new(owned, MOST_STEPS, MOST_TOLD);
    let all = search.look(wanted);
    // Parts that differ only in the verb are shown as one.
    let mut by_resource: BTreeMap<On<'_>, Rule> = BTreeMap::new();
    let mut shown = BTreeSet::new();
    for part in &search.lacking {
        if let On::Path(_) = part.on {
            shown.insert(part.rule().compact());
            continue;
        }
        match by_resource.get_mut(&part.on) {
            Some(rule) => rule.verbs.push(part.verb.to_owned()),
            None => {
                by_resource.insert(part.on, part.rule());
            }
        }
    }
    shown.extend(by_resource.values().map(Rule::compact));
    let mut shown: Vec<String> = shown.into_iter().collect();
    match all {
        Ok(()) => {}
        Err(TooMany) if shown.is_empty() => shown.push(
            "more combinations of verbs, groups, resources and names than can be compared with what is held; \
             name fewer of them in one role"
                .to_owned(),
        ),
        Err(TooMany) => shown.push("and more".to_owned()),
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::super::rule::tests::{list, rule};
    use super::*;

    /// A rule with `n` of everything.
    fn wide(n: usize) -> Rule {
        let many = |of: &str| (0..n).map(|at| format!("{of}{at}")).collect();
        Rule {
            verbs: many("v"),
            api_groups: many("g"),
            resources: many("r"),
            resource_names: many("n"),
            non_resource_urls: Vec::new(),
        }
    }

    #[test]
    fn what_is_missing_is_named_compactly() {
        let owned = [rule("get list", "''", "pods", "-")];
        let wanted = [rule("get watch update", "'' apps", "pods", "-")];
        assert_eq!(
            missing(&owned, &wanted),
            [
                "{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"watch\" \"update\"]}",
                "{APIGroups:[\"apps\"], Resources:[\"pods\"], Verbs:[\"get\" \"watch\" \"update\"]}",
            ]
        );
        assert!(missing(&[rule("*", "*", "*", "-")], &wanted).is_empty());
    }

    #[test]
    fn rules_cover_by_names_subresources_and_paths() {
        let path = |url: &str| Rule {
            verbs: list("get"),
            non_resource_urls: list(url),
            ..Rule::default()
        };
        // owned, wanted, whether nothing is missing.
        let cases = [
            (
                rule("get", "*", "*", "a"),
                rule("get", "''", "pods", "-"),
                false,
            ),
            (
                rule("get", "*", "*", "a"),
                rule("get", "''", "pods", "a"),
                true,
            ),
            (
                rule("get", "*", "*", "a"),
                rule("get", "''", "pods", "a b"),
                false,
            ),
            (
                rule("get", "''", "pods", "-"),
                rule("get", "''", "pods", "a b"),
                true,
            ),
            (
                rule("get", "''", "pods", "-"),
                rule("get", "''", "pods/log", "-"),
                false,
            ),
            (
                rule("get", "''", "*/log", "-"),
                rule("get", "''", "pods/log", "-"),
                true,
            ),
            (
                rule("get", "''", "*/log", "-"),
                rule("get", "''", "pods", "-"),
                false,
            ),
            (
                rule("get", "''", "pods", "-"),
                rule("get", "''", "*", "-"),
                false,
            ),
            (path("/apis/*"), path("/apis/apps"), true),
            (path("/apis/*"), path("/apis"), false),
            (path("*"), path("/apis/*"), true),
            (path("/apis"), path("/apis/*"), false),
            (rule("*", "*", "*", "-"), path("/apis"), false),
        ];
        for (owned, wanted, want) in cases {
            let lacks = missing(std::slice::from_ref(&owned), std::slice::from_ref(&wanted));
            assert_eq!(lacks.is_empty(), want, "{owned:?} {wanted:?}");
        }
        let two = [
            rule("get", "''", "pods", "a"),
            rule("get", "''", "pods", "b"),
        ];
        assert!(missing(&two, &[rule("get", "''", "pods", "a b")]).is_empty());
    }

    #[test]
    fn a_small_rule_makes_no_large_answer() {
        let told = missing(&[rule("get", "''", "pods", "-")], &[wide(80)]);
        assert!(told.concat().len() < 3 * MOST_TOLD);
        assert_eq!(told.last().map(String::as_str), Some("and more"));
        // A text that is told again with each verb counts each time.
        let mut long = wide(1000);
        long.api_groups = vec!["g".repeat(100_000)];
        long.resources = vec!["r".to_owned(); 1000];
        assert!(missing(&[], &[long]).concat().len() < 3 * MOST_TOLD);
    }

    #[test]
    fn whatever_is_asked_the_steps_are_counted() {
        // Covered part by part, by rules that are each for one name.
        let mut whole = wide(100);
        let names = std::mem::take(&mut whole.resource_names);
        let each = |name: &String| Rule {
            resource_names: vec![name.clone()],
            ..whole.clone()
        };
        let owned: Vec<Rule> = names.iter().map(each).collect();
        let told = missing(&owned, &[wide(100)]);
        assert_eq!(told.len(), 1);
        assert!(told.concat().contains("name fewer"), "{told:?}");
        // A search that is small enough by itself ends where it would without bounds.
        assert!(missing(&owned, &[wide(20)]).is_empty());
        // Many rules and many names are held against each other by name.
        let names: Vec<String> = (0..20_000).map(|at| format!("n{at}")).collect();
        let own = |name: &String| rule("get list", "''", "pods", name);
        let owned: Vec<Rule> = names.iter().map(own).collect();
        let mut wanted = rule("get list", "''", "pods", "-");
        wanted.resource_names = names;
        let wanted = [wanted];
        let mut search = Search::new(&owned, MOST_STEPS, MOST_TOLD);
        assert!(search.look(&wanted).is_ok());
        assert!(search.lacking.is_empty());
        assert!(MOST_STEPS - search.steps < 100_000);
    }
}
