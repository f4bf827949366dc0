//! Units of systemd that ship keep what they run running.

use crate::sources::root;
use std::fs;
use std::path::{Path, PathBuf};

/// What a section of a unit says for a key: the last line counts.
fn says<'a>(unit: &'a str, section: &str, key: &str) -> Option<&'a str> {
    let header = format!("[{section}]");
    let lines = unit.lines().map(str::trim);
    let within = lines.skip_while(|line| *line != header).skip(1);
    within
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.split_once('='))
        .filter(|(name, _)| name.trim() == key)
        .map(|(_, value)| value.trim())
        .last()
}

/// Whether systemd starts it for as long as it fails. A program that is to run always gives up after five starts within
/// ten seconds otherwise, which one that is refused at its start reaches in no time.
fn never_gives_up(unit: &str) -> bool {
    let restarts = says(unit, "Service", "Restart");
    let limit = says(unit, "Unit", "StartLimitIntervalSec");
    restarts != Some("always") || limit == Some("0")
}

fn units(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("is readable").flatten() {
        let path = entry.path();
        if path.is_dir() {
            units(&path, found);
        } else if path.extension().is_some_and(|it| it == "service") {
            found.push(path);
        }
    }
}

#[test]
fn units_that_are_to_run_always_are_started_however_often_they_fail() {
    let mut found = Vec::new();
    units(&root().join("manifests"), &mut found);
    assert!(!found.is_empty(), "no unit was found in manifests");
    for path in found {
        let unit = fs::read_to_string(&path).expect("is readable");
        assert!(never_gives_up(&unit), "{}", path.display());
    }
}

#[test]
fn a_limit_of_starts_is_read_where_systemd_reads_it() {
    let always = "[Service]\nRestart=always\n";
    for (unit, want) in [
        ("[Unit]\nStartLimitIntervalSec=0\n", true),
        ("[Unit]\nDescription=a\n", false),
        ("[Unit]\nStartLimitIntervalSec=10\n", false),
        // A setting of another section is not heard.
        ("[Unit]\n[Install]\nStartLimitIntervalSec=0\n", false),
        ("[Unit]\n#StartLimitIntervalSec=0\n", false),
    ] {
        assert_eq!(never_gives_up(&format!("{unit}{always}")), want, "{unit}");
    }
    assert!(never_gives_up("[Service]\nRestart=no\n"));
}
