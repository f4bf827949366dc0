//! Holds the rules of the tree that the compiler cannot: who may import whom, what pure modules may
//! touch, and how long a file may grow.

use std::fs;
use std::path::{Path, PathBuf};

/// Past this a file has a second room inside.
const LONGEST_FILE: usize = 800;

/// Words that only a shell may use; a decision is handed the time and what was observed.
const NOT_IN_PURE_CODE: [&str; 7] = [
    "tokio::",
    "kube::Client",
    "std::fs",
    "std::net",
    "std::env",
    "SystemClock",
    "rand::rng",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("hub lies in the workspace")
        .to_owned()
}

fn rust_files(dir: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(dir) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() && !path.ends_with("target") {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

fn sources() -> Vec<(String, String)> {
    let root = root();
    let mut files = Vec::new();
    for dir in ["common", "hub", "agent", "e2e"] {
        rust_files(&root.join(dir), &mut files);
    }
    files.sort();
    files
        .into_iter()
        .map(|path| {
            let text = fs::read_to_string(&path).expect("source is readable");
            let name = path
                .strip_prefix(&root)
                .expect("under the root")
                .display()
                .to_string();
            (name, text)
        })
        .collect()
}

/// The part of a file that ships: what stands above its tests.
fn shipped(text: &str) -> &str {
    text.split("#[cfg(test)]").next().unwrap_or(text)
}

#[test]
fn hub_and_agent_never_import_each_other() {
    for (name, text) in sources() {
        let forbidden = match name.as_str() {
            n if n.starts_with("common/src") => &["hub::", "agent::"][..],
            n if n.starts_with("agent/src") => &["hub::"][..],
            n if n.starts_with("hub/src") && n != "hub/src/cli/demo.rs" => &["agent::"][..],
            _ => continue,
        };
        for (number, line) in shipped(&text).lines().enumerate() {
            for word in forbidden {
                let imports = line.trim_start().starts_with(&format!("use {word}"));
                assert!(!imports, "{name}:{} imports {word}: {line}", number + 1);
            }
        }
    }
}

#[test]
fn decisions_are_pure() {
    for (name, text) in sources() {
        let file = name.rsplit('/').next().unwrap_or(&name);
        // `cli/check.rs` is a verb, not a decision.
        let pure = matches!(file, "decide.rs" | "check.rs") && !name.contains("/cli/");
        if !name.contains("/src/") || !pure {
            continue;
        }
        for (number, line) in shipped(&text).lines().enumerate() {
            let code = line.split("//").next().unwrap_or(line);
            for word in NOT_IN_PURE_CODE {
                assert!(
                    !code.contains(word),
                    "{name}:{} uses {word}: {line}",
                    number + 1
                );
            }
        }
    }
}

#[test]
fn files_stay_small_and_say_what_they_are_for() {
    for (name, text) in sources() {
        let lines = text.lines().count();
        assert!(
            lines <= LONGEST_FILE,
            "{name} has {lines} lines; look for a second room inside"
        );
        assert!(!name.ends_with("/mod.rs"), "{name}: use foo.rs beside foo/");
        let never_runs = concat!("#[", "ignore");
        let explained = name.ends_with("tests.rs") || text.starts_with("//!");
        assert!(explained, "{name} does not say what it is for");
        assert!(
            !text.contains(never_runs),
            "{name}: a test that never runs cannot fail"
        );
    }
}
