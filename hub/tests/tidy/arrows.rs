//! Which modules use which: the modules of each crate, and those of the API server, form layers. A circle
//! between them has its reason here, and a leaf uses none of its siblings.

use crate::sources::{shipped, sources};
use std::collections::{BTreeMap, BTreeSet};

/// Modules that use each other in a circle, and why they do.
struct Circle {
    within: &'static str,
    modules: &'static [&'static str],
    /// For who reads this.
    _why: &'static str,
}

const CIRCLES: &[Circle] = &[
    Circle {
        within: "agent",
        modules: &[
            "credentials",
            "error",
            "following",
            "registration",
            "report",
        ],
        _why: "`credentials` keep the key that `registration` makes; `error` names what may go wrong in either, and \
               `registration` asks it which failures last",
    },
    Circle {
        within: "common",
        modules: &["client", "errors", "proxy"],
        _why: "a chain of errors knows how a connection fails, and a failed connection tells a chain as text; \
               a proxy is found for the host and port of a client, which goes through it",
    },
    Circle {
        within: "hub",
        modules: &["cli", "serve"],
        _why: "`towline demo` runs a hub that serves; commands beside a serving hub print as the others do",
    },
];

/// Modules that use none of their siblings, however these change.
const LEAVES: &[(&str, &[&str])] = &[
    ("common", &["labels", "names", "secret", "time"]),
    ("hub", &["go"]),
    (
        "hub::apiserver",
        &["caller", "error", "files", "names", "value"],
    ),
];

/// Whose children are looked at.
const PARENTS: [&str; 4] = ["agent", "common", "hub", "hub::apiserver"];

/// From module to module, with a file that shows it.
type Arrows = BTreeMap<String, BTreeMap<String, String>>;

/// The module of a file, from its crate on; none for programs and for what only tests have.
fn module(file: &str) -> Option<Vec<&str>> {
    let (krate, path) = file.strip_suffix(".rs")?.split_once("/src/")?;
    let mut module = vec![krate];
    module.extend(path.split('/'));
    let ships = !module
        .iter()
        .any(|name| matches!(*name, "tests" | "testing" | "bin" | "main"));
    module.retain(|name| *name != "lib");
    ships.then_some(module)
}

/// The paths that begin here, after `crate` or `super`; groups in braces are taken apart.
fn paths<'t>(text: &'t str, before: &[&'t str], found: &mut Vec<Vec<&'t str>>) -> &'t str {
    let mut path = before.to_vec();
    let mut rest = text;
    while let Some(after) = rest.strip_prefix("::") {
        let after = after.trim_start();
        if let Some(mut group) = after.strip_prefix('{') {
            loop {
                group = group.trim_start_matches(|c: char| c == ',' || c.is_whitespace());
                if group.is_empty() || group.starts_with('}') {
                    return group.strip_prefix('}').unwrap_or(group);
                }
                let (name, after) = word(group);
                let mut inner = path.clone();
                inner.push(name);
                let left = paths(after, &inner, found);
                // What is left is another name for it, or a star.
                group = left.trim_start_matches(|c: char| !matches!(c, ',' | '}'));
            }
        }
        let (name, after) = word(after);
        if name.is_empty() {
            break;
        }
        path.push(name);
        rest = after;
    }
    found.push(path);
    rest
}

fn word(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_');
    text.split_at(end.unwrap_or(text.len()))
}

/// Every path of a file that is not one of the file's own names, from its crate on.
fn used<'t>(module: &[&'t str], code: &'t str) -> Vec<Vec<&'t str>> {
    let mut found = Vec::new();
    for first in ["crate", "super"] {
        for (at, _) in code.match_indices(&format!("{first}::")) {
            let before = code[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | ':')) {
                continue;
            }
            let mut from_here = Vec::new();
            paths(&code[at + first.len()..], &[], &mut from_here);
            for path in from_here {
                let ups = path.iter().take_while(|name| **name == "super").count();
                let base = match first {
                    "crate" => &module[..1],
                    _ => &module[..module.len().saturating_sub(ups + 1).max(1)],
                };
                found.push(base.iter().chain(&path[ups..]).copied().collect());
            }
        }
    }
    found
}

fn arrows(parent: &str) -> Arrows {
    let above: Vec<&str> = parent.split("::").collect();
    let below = |path: &[&str]| -> Option<String> {
        let child = path.strip_prefix(above.as_slice())?.first()?;
        Some((*child).to_owned())
    };
    let sources = sources();
    let children: BTreeSet<String> = sources
        .iter()
        .filter_map(|(file, _)| below(&module(file)?))
        .collect();
    let mut arrows = Arrows::new();
    for (file, text) in &sources {
        let Some(module) = module(file) else {
            continue;
        };
        let Some(from) = below(&module) else {
            continue;
        };
        for path in used(&module, &shipped(text)) {
            if let Some(to) = below(&path).filter(|to| *to != from && children.contains(to)) {
                let known = arrows.entry(from.clone()).or_default();
                known.entry(to).or_insert_with(|| file.clone());
            }
        }
    }
    arrows
}

fn reached<'a>(arrows: &'a Arrows, from: &'a str) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    let mut open = vec![from];
    while let Some(at) = open.pop() {
        for to in arrows.get(at).into_iter().flat_map(BTreeMap::keys) {
            if seen.insert(to.as_str()) {
                open.push(to);
            }
        }
    }
    seen
}

/// Modules that use each other, directly or not, each set once.
fn circles(arrows: &Arrows) -> BTreeSet<BTreeSet<&str>> {
    let all = arrows.keys().map(|from| {
        let back = |to: &&str| reached(arrows, to).contains(from.as_str());
        reached(arrows, from).into_iter().filter(back).collect()
    });
    all.filter(|circle: &BTreeSet<&str>| !circle.is_empty())
        .collect()
}

#[test]
fn modules_use_each_other_in_no_circle_but_those_that_have_a_reason() {
    for parent in PARENTS {
        let arrows = arrows(parent);
        let named = CIRCLES.iter().filter(|circle| circle.within == parent);
        let named: BTreeSet<BTreeSet<&str>> = named
            .map(|circle| circle.modules.iter().copied().collect())
            .collect();
        let circles = circles(&arrows);
        for circle in &circles {
            let within = |from: &str, to: &str| circle.contains(from) && circle.contains(to);
            let shown: Vec<String> = arrows
                .iter()
                .flat_map(|(from, to)| to.iter().map(move |(to, file)| (from, to, file)))
                .filter(|(from, to, _)| within(from, to))
                .map(|(from, to, file)| format!("{from} uses {to} in {file}"))
                .collect();
            let shown = shown.join("\n");
            assert!(
                named.iter().any(|named| circle.is_subset(named)),
                "a circle within {parent} that has no reason here: {circle:?}\n{shown}"
            );
        }
        let gone: Vec<_> = named.difference(&circles).collect();
        assert!(
            gone.is_empty(),
            "no longer circles within {parent}: {gone:?}"
        );
    }
}

#[test]
fn leaves_use_none_of_their_siblings() {
    for (parent, leaves) in LEAVES {
        let arrows = arrows(parent);
        for leaf in *leaves {
            let used = arrows.get(*leaf);
            assert_eq!(used, None, "{parent}::{leaf} is a leaf");
        }
    }
}

#[test]
fn a_circle_is_seen_however_long_it_is() {
    let arrow = |(from, to): (&str, &str)| {
        let to = (to.to_owned(), String::new());
        (from.to_owned(), BTreeMap::from([to]))
    };
    let arrows = [("a", "b"), ("b", "c"), ("c", "a"), ("d", "a"), ("e", "f")];
    let arrows: Arrows = arrows.map(arrow).into();
    assert_eq!(circles(&arrows), [["a", "b", "c"].into()].into());
}

#[test]
fn every_way_to_name_a_module_is_seen() {
    let module = ["hub", "a", "b"];
    let code = "use crate::c;\npub use crate::{d::{self, e as f}, g::*};\nuse super::super::h::{\n    i,\n};\n\
                fn j(k: &crate::l::M) -> super::n::O {\n    super::p()\n}\nuse mycrate::q;\n";
    let seen: BTreeSet<String> = used(&module, code)
        .into_iter()
        .map(|path| path.join("::"))
        .collect();
    let wanted = [
        "hub::a::n::O",
        "hub::a::p",
        "hub::c",
        "hub::d::e",
        "hub::d::self",
        "hub::g",
        "hub::h::i",
        "hub::l::M",
    ];
    assert_eq!(seen, wanted.map(str::to_owned).into());
}
