//! Documents hold together: what they link to is there, and what they say to type is typed by a test.

use crate::sources::{root, sources};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Documents whose commands are typed one by one, as they stand: by e2e/cases/guides.rs, demo/examples.rs and
/// demo/people.rs, and by hub/src/cli/interpret.rs.
const TYPED: [&str; 9] = [
    "concepts",
    "propagate",
    "override",
    "dependencies",
    "coming-from",
    "tenants",
    "access",
    "troubleshoot",
    "customize",
];

/// Every document, by its path from the root.
fn documents() -> Vec<PathBuf> {
    fn below(dir: &Path, found: &mut Vec<PathBuf>) {
        let entries = fs::read_dir(dir).expect("is readable");
        for entry in entries.flatten() {
            let path = entry.path();
            let name = entry.file_name();
            let hidden = name.to_string_lossy().starts_with('.') || name == "target";
            if path.is_dir() && !hidden {
                below(&path, found);
            } else if path.extension().is_some_and(|it| it == "md") {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    below(&root(), &mut found);
    found.sort();
    found
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).expect("is readable")
}

/// The lines outside of blocks that show code, each with its number.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut fenced = false;
    let mut lines = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        if !fenced && !fence {
            lines.push((number + 1, line));
        }
    }
    lines
}

/// A line without what stands in backticks.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("``")
}

/// The targets of links in a line.
fn targets(line: &str) -> Vec<String> {
    let line = without_code(line);
    let ends = line.split("](").skip(1);
    ends.filter_map(|it| Some(it.split_once(')')?.0.to_owned()))
        .collect()
}

/// What a heading is called in a link, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text
        .chars()
        .filter(|it| it.is_alphanumeric() || " -_".contains(*it));
    kept.map(|it| if it == ' ' { '-' } else { it }).collect()
}

/// The anchors of a document; of equal headings the later ones are counted.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let headings = prose(text)
        .into_iter()
        .filter(|(_, it)| it.starts_with('#'));
    headings
        .map(|(_, heading)| {
            let name = anchor(heading);
            let before = seen.entry(name.clone()).or_default();
            *before += 1;
            match *before {
                1 => name,
                many => format!("{name}-{}", many - 1),
            }
        })
        .collect()
}

#[test]
fn links_lead_somewhere() {
    let mut wrong = Vec::new();
    let mut checked = 0;
    for document in documents() {
        let text = read(&document);
        for (number, line) in prose(&text) {
            for target in targets(line) {
                if target.contains("://") || target.starts_with("mailto:") {
                    continue;
                }
                checked += 1;
                let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
                let path = match file {
                    "" => document.clone(),
                    file => document.parent().expect("lies somewhere").join(file),
                };
                let leads = match (path.exists(), anchor) {
                    (there, "") => there,
                    (there, anchor) => {
                        let is_text = path.extension().is_some_and(|it| it == "md");
                        there && is_text && anchors(&read(&path)).contains(anchor)
                    }
                };
                if !leads {
                    let shown = document.strip_prefix(root()).expect("below the root");
                    wrong.push(format!("{}:{number}: {target}", shown.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "nothing is there:\n{}", wrong.join("\n"));
    assert!(checked > 40, "only {checked} links were found");
}

/// The lines of a document's blocks that are typed: of a console those behind `$`, without what explains them.
fn typed(text: &str) -> Vec<String> {
    let blocks = text.split("\n```").skip(1).step_by(2);
    let lines = blocks.flat_map(|block| {
        let (language, lines) = block.split_once('\n').unwrap_or_default();
        let console = language == "console";
        let lines = lines.lines().map(move |line| match console {
            true => line.strip_prefix("$ ").unwrap_or_default(),
            false => line,
        });
        lines.collect::<Vec<_>>()
    });
    let commands = lines.filter_map(|line| line.split("    ").next());
    let commands = commands.map(|line| line.rsplit("| ").next().unwrap_or(line).trim().to_owned());
    commands.filter(|it| !it.is_empty()).collect()
}

/// A command of ours that a document shows has its verbs and its flags in a test that runs the programs, if it is not
/// typed as it stands.
#[test]
fn commands_of_documents_are_tried() {
    let tests: String = sources()
        .into_iter()
        .filter(|(name, _)| name.starts_with("e2e/") || name.starts_with("hub/tests/store/"))
        .map(|(_, text)| text)
        .collect();
    let mut wrong = Vec::new();
    let mut tried = 0;
    for document in documents() {
        let name = document.file_stem().unwrap_or_default().to_string_lossy();
        if TYPED.contains(&name.as_ref()) {
            continue;
        }
        for command in typed(&read(&document)) {
            let mut words = command.split_whitespace();
            let program = words.next().unwrap_or_default();
            if !["towline", "towline-hub"].contains(&program) {
                continue;
            }
            tried += 1;
            let verbs = words.clone().take_while(|it| {
                it.bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte == b'-')
                    && !it.starts_with('-')
            });
            let flags = words.clone().filter_map(|it| {
                let flag = it.trim_start_matches('[').trim_end_matches(']');
                flag.starts_with("--")
                    .then(|| flag.split('=').next().unwrap_or(flag))
            });
            for word in verbs.chain(flags) {
                let quoted = [format!("\"{word}\""), format!("\"{word}=")];
                // A flag may stand in a line that is typed.
                let in_line = word.starts_with("--") && tests.contains(&format!(" {word}\""));
                if !in_line && !quoted.iter().any(|it| tests.contains(it)) {
                    wrong.push(format!(
                        "{}: {command}: no test says {word}",
                        document.display()
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(tried > 10, "only {tried} commands were found");
}

#[test]
fn documents_that_are_typed_are() {
    let guides = read(&root().join("e2e/cases/guides.rs"));
    let interpret = read(&root().join("hub/src/cli/interpret.rs"));
    for name in TYPED {
        let is_guide = guides.contains(&format!("    \"{name}\",\n"));
        let is_tried = interpret.contains(&format!("docs/{name}.md"));
        assert!(is_guide || is_tried, "nothing types docs/{name}.md");
    }
}

#[test]
fn links_and_headings_are_read_as_they_are_meant() {
    let line = "see [a](b.md#c-d), `[x](y)` and [e `f`](https://g) ([h](i))";
    assert_eq!(targets(line), ["b.md#c-d", "https://g", "i"]);
    let text = "# A `b`: c's, d_e\n\n```\n# no\n```\n## Twice\n## Twice\n";
    let want = ["a-b-cs-d_e", "twice", "twice-1"].map(str::to_owned);
    assert_eq!(anchors(text), BTreeSet::from(want));
    let text = "x\n```\ntowline a FILE    what it does\necho | towline b\n```\n```console\n$ towline c\nsaid\n```\n";
    assert_eq!(typed(text), ["towline a FILE", "towline b", "towline c"]);
}
