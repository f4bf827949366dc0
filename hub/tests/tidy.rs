//! Holds the rules of the tree that the compiler cannot: who may import whom, what pure modules may
//! touch, how long a file may grow, what tasks and choices between events look like, and where documents lead.

#[path = "tidy/arrows.rs"]
mod arrows;
#[path = "tidy/docs.rs"]
mod docs;
#[path = "tidy/sources.rs"]
mod sources;
#[path = "tidy/units.rs"]
mod units;

use sources::{root, shipped, sources};
use std::fs;

/// Past this a file has a second room inside.
const LONGEST_FILE: usize = 800;

/// Words that only a shell may use; a decision is handed the time and what was observed.
const NOT_IN_PURE_CODE: [&str; 8] = [
    "tokio::",
    "kube::Client",
    "std::fs",
    "std::net",
    "std::env",
    "SystemClock",
    "chance::",
    "Chance",
];

/// How the scheduler's files begin.
const SCHEDULER: &str = "hub/src/scheduler";

/// Where the hub's crate has to do with agents, and why.
const MEETS_AGENTS: [(&str, &str); 2] = [
    (
        "hub/src/cli/demo.rs",
        "runs each agent as a process of its own program",
    ),
    (
        "hub/src/serve/tests/fleet",
        "simulates a hub and the agents that ship, and is itself not shipped",
    ),
];

#[test]
fn hub_and_agent_never_import_each_other() {
    for (name, text) in sources() {
        let forbidden = match name.as_str() {
            n if n.starts_with("common/src") => &["hub::", "agent::"][..],
            n if n.starts_with("agent/src") => &["hub::"][..],
            n if MEETS_AGENTS.iter().any(|(file, _)| n.starts_with(file)) => continue,
            n if n.starts_with("hub/src") => &["agent::"][..],
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
        let decision = matches!(file, "decide.rs" | "check.rs") && !name.contains("/cli/");
        let scheduler = name.starts_with(SCHEDULER) && !name.contains("/tests/");
        let pure = decision || scheduler;
        if !name.contains("/src/") || !pure {
            continue;
        }
        for (number, line) in shipped(&text).lines().enumerate() {
            for word in NOT_IN_PURE_CODE {
                assert!(
                    !line.contains(word),
                    "{name}:{} uses {word}: {line}",
                    number + 1
                );
            }
        }
    }
}

/// Placement is a function of plain values; only what reads objects knows what these look like.
#[test]
fn the_scheduler_knows_no_objects() {
    let mut files = 0;
    for (name, text) in sources() {
        let outside = ["/from_api", "/tests"].iter().any(|dir| name.contains(dir));
        if !name.starts_with(SCHEDULER) || outside {
            continue;
        }
        files += 1;
        let code = shipped(&text);
        for word in ["common::api", "k8s_openapi", "kube::", "serde_json"] {
            assert!(!code.contains(word), "{name} uses {word}");
        }
    }
    assert!(files > 8, "only {files} files of the scheduler were found");
}

#[test]
fn what_simulations_stand_on_is_reached_by_nothing_that_ships() {
    for (name, text) in sources() {
        let own = name.starts_with("hub/src/apiserver/store") || name.contains("tests");
        if !name.contains("/src/") || own {
            continue;
        }
        for word in [
            "MemoryDisk",
            "Store::simulated",
            "secret::Fixed",
            "Network for",
        ] {
            assert!(!shipped(&text).contains(word), "{name} uses {word}");
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

/// What the trust model claims is held by a test that exists.
#[test]
fn tests_that_the_trust_model_names_exist() {
    let text = fs::read_to_string(root().join("SECURITY.md")).expect("there");
    let sources = sources();
    let mut named = 0;
    for name in text.split('`').skip(1).step_by(2) {
        let is_test = name.matches('_').count() > 1
            && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
        if !is_test {
            continue;
        }
        named += 1;
        let definition = format!("fn {name}(");
        let exists = sources.iter().any(|(_, text)| text.contains(&definition));
        assert!(exists, "SECURITY.md names {name}, which no file defines");
    }
    assert!(named > 30, "only {named} tests were found in SECURITY.md");
}

/// What is ready first is what is written first: drawn by chance, no run could be repeated.
#[test]
fn every_select_is_biased() {
    let begins = concat!("select", "! {");
    for (name, text) in sources() {
        let mut lines = text.lines().enumerate();
        while let Some((number, line)) = lines.next() {
            if !line.trim_end().ends_with(begins) {
                let hidden = line.contains(begins) && !line.trim_start().starts_with("//");
                assert!(!hidden, "{name}:{}: break the line after it", number + 1);
                continue;
            }
            let first = lines.find(|(_, line)| !line.trim_start().starts_with("//"));
            let first = first.map_or("", |(_, line)| line.trim());
            assert_eq!(first, "biased;", "{name}:{}", number + 1);
        }
    }
}

/// Tasks that nobody aborts, and why they may live on.
const FREE_TASKS: [(&str, &str); 3] = [
    (
        "common/src/shutdown.rs",
        "hears signals until the process ends",
    ),
    (
        "hub/src/cli/output.rs",
        "aborted when its spinner is dropped",
    ),
    ("hub/src/cli/demo/fleet.rs", "the process ends with them"),
];

/// Who drops a part ends all of it: its tasks are in a JoinSet, or aborted with their handles.
#[test]
fn no_task_outlives_who_began_it() {
    for (name, text) in sources() {
        let is_test = name.contains("/tests/") || name.ends_with("tests.rs");
        if !name.contains("/src/") || is_test || name.ends_with("testing.rs") {
            continue;
        }
        let free = FREE_TASKS.iter().any(|(file, _)| *file == name);
        for (number, line) in shipped(&text).lines().enumerate() {
            let code = line.split("//").next().unwrap_or(line);
            let begins = code.contains("tokio::spawn(") || code.contains("task::spawn(");
            let ends = code.contains("AbortOnDropHandle::new(tokio::spawn(");
            assert!(!begins || ends || free, "{name}:{}: {line}", number + 1);
        }
    }
}

/// Images are built by the toolchain that everything else is built by.
#[test]
fn one_toolchain_builds_everything() {
    let pinned = fs::read_to_string(root().join("rust-toolchain.toml")).expect("there");
    let channel = pinned.split('"').nth(1).expect("a channel");
    let images = fs::read_to_string(root().join("Containerfile")).expect("there");
    let image = format!("/rust:{channel}-slim");
    assert!(images.contains(&image), "the Containerfile has no {image}");
}

/// The lines of a document between its fences, where somebody is to type them.
fn commands(text: &str) -> Vec<&str> {
    let blocks = text.split("```").skip(1).step_by(2);
    let lines = blocks.flat_map(str::lines).map(str::trim);
    lines.filter(|line| !line.is_empty()).collect()
}

/// A file of Rust that has a module's code, by the module's way in its crate.
fn module_exists(sources: &[(String, String)], package: &str, module: &str) -> bool {
    let file = format!("{package}/src/{}.rs", module.replace("::", "/"));
    sources.iter().any(|(name, _)| *name == file)
}

/// Whoever begins types what the guide says: packages, tests, flags and files of it exist.
#[test]
fn commands_of_the_guide_exist() {
    let text = fs::read_to_string(root().join("CONTRIBUTING.md")).expect("there");
    let script = fs::read_to_string(root().join("e2e/test")).expect("there");
    let simulation = fs::read_to_string(root().join("e2e/sim")).expect("there");
    let sources = sources();
    let commands = commands(&text);
    assert!(commands.len() > 6, "{commands:?}");
    for command in commands {
        let words: Vec<&str> = command.split_whitespace().collect();
        match words[..] {
            ["cargo", verb, ..] => {
                assert!(
                    ["check", "clippy", "fmt", "test"].contains(&verb),
                    "{command}"
                );
                for pair in words.windows(2) {
                    let there = match *pair {
                        ["-p", package] => root().join(package).join("Cargo.toml").exists(),
                        ["--test", test] => root().join(format!("hub/tests/{test}.rs")).exists(),
                        ["--lib", module] if module != "--" => {
                            module_exists(&sources, words[3], module)
                        }
                        ["--exact", test] => {
                            let name = test.rsplit("::").next().unwrap_or(test);
                            let module = test.trim_end_matches(name).trim_end_matches("::");
                            let function = format!("fn {name}(");
                            module_exists(&sources, words[3], module)
                                && sources.iter().any(|(_, text)| text.contains(&function))
                        }
                        _ => true,
                    };
                    assert!(there, "{command}: {pair:?} does not exist");
                }
            }
            ["e2e/test", ref flags @ ..] => {
                for flag in flags.iter().filter(|flag| flag.starts_with("--")) {
                    let known = script.contains(&format!("\t{flag})"));
                    assert!(known, "{command}: e2e/test does not know {flag}");
                }
                let filter = flags.iter().skip_while(|flag| **flag != "--filter").nth(1);
                if let Some(name) = filter {
                    let file = format!("e2e/cases/{name}.rs");
                    let there = sources.iter().any(|(name, _)| *name == file);
                    assert!(there, "{command}: no lab test is called {name}");
                }
            }
            ["e2e/sim", ref flags @ ..] => {
                for flag in flags.iter().filter(|flag| flag.starts_with("--")) {
                    let known = simulation.contains(&format!("\t{flag})"));
                    assert!(known, "{command}: e2e/sim does not know {flag}");
                }
            }
            _ => panic!("nothing holds {command:?}"),
        }
    }
}

/// Each hop of the walk through the code names a file and a function of it.
#[test]
fn hops_of_the_flow_are_where_they_are_said_to_be() {
    let text = fs::read_to_string(root().join("docs/flow.md")).expect("there");
    let sources = sources();
    let mut hops = 0;
    for line in text.lines() {
        let Some((_, rest)) = line.split_once(". `") else {
            continue;
        };
        let mut quoted = rest.split('`').step_by(2);
        let (file, function) = (quoted.next().unwrap_or(""), quoted.next().unwrap_or(""));
        let found = sources.iter().find(|(name, _)| name == file);
        let (_, code) = found.unwrap_or_else(|| panic!("{line}\nthere is no {file}"));
        let open = [format!("fn {function}("), format!("fn {function}<")];
        let there = open.iter().any(|open| code.contains(open));
        assert!(there, "{line}\n{file} has no function {function}");
        hops += 1;
    }
    assert!(hops > 15, "only {hops} hops were found in docs/flow.md");
}
