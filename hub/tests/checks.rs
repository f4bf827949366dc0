//! `e2e/test` itself: which steps its flags choose, and when it may say that all held.
//!
//! It runs in a folder of its own, with a script in place of cargo that writes down how it is called.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// A name that the scripted cargo lets fail beside others and pass alone.
const UNSTEADY: &str = "cases::pod::a_pod";

struct Checks {
    dir: tempfile::TempDir,
}

impl Checks {
    /// `cargo` is the body of the script, which has its arguments in `$*`.
    fn new(cargo: &str) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let at = |path: &str| dir.path().join(path);
        fs::create_dir_all(at("e2e")).expect("made");
        let checks = Path::new(env!("CARGO_MANIFEST_DIR")).join("../e2e/test");
        fs::copy(checks, at("e2e/test")).expect("copied");
        let script = format!("echo \"$*\" >>calls\n{cargo}");
        Self { dir }.program("bin/cargo", &script)
    }

    /// A program of the tree or of the machine.
    fn program(self, path: &str, body: &str) -> Self {
        let path = self.dir.path().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(&path, format!("#!/bin/sh\n{body}\n")).expect("written");
        let made = Command::new("chmod").arg("+x").arg(&path).status();
        assert!(made.expect("chmod runs").success());
        self
    }

    fn known(self, line: &str) -> Self {
        fs::write(self.dir.path().join("e2e/unsteady.txt"), line).expect("written");
        self
    }

    fn run(&self, args: &[&str], ci: bool) -> Output {
        let path = std::env::var("PATH").unwrap_or_default();
        let bin = self.dir.path().join("bin");
        let mut command = Command::new("bash");
        command
            .arg(self.dir.path().join("e2e/test"))
            .args(args)
            .env("PATH", format!("{}:{path}", bin.display()))
            .env_remove("CI");
        // Whoever runs these may have chosen fleets of their own.
        for chosen in [
            "TOWLINE_SEEDS",
            "TOWLINE_BYTES_SEEDS",
            "TOWLINE_TUNNELS_SEEDS",
        ] {
            command.env_remove(chosen);
        }
        if ci {
            command.env("CI", "true");
        }
        command.output().expect("bash runs")
    }

    fn calls(&self) -> String {
        fs::read_to_string(self.dir.path().join("calls")).unwrap_or_default()
    }
}

fn said(output: &Output) -> String {
    let err = String::from_utf8_lossy(&output.stderr);
    format!("{}{err}", String::from_utf8_lossy(&output.stdout))
}

#[test]
fn a_name_among_tests_on_built_in_servers_runs_those() {
    let one =
        "case \"$*\" in *'--test e2e -- '*) echo 'test result: ok. 1 passed; 0 failed' ;; esac";
    for args in [
        ["--builtin", "--filter", "pod"],
        ["--filter", "pod", "--builtin"],
    ] {
        let checks = Checks::new(one);
        let output = checks.run(&args, false);
        let calls = checks.calls();
        assert!(output.status.success(), "{}", said(&output));
        let run = calls.lines().find(|line| line.contains("--test e2e -- "));
        let run = run.expect("the lab tests were run");
        assert!(run.ends_with(" pod"), "{calls}");
        assert!(run.contains("--skip api::"), "{calls}");
        assert!(!calls.contains("--workspace"), "{calls}");
    }
}

#[test]
fn a_run_of_no_test_does_not_hold() {
    let none = "echo 'test result: ok. 0 passed; 0 failed; 0 ignored'";
    let output = Checks::new(none).run(&["--builtin", "--filter", "nothing"], false);
    let said = said(&output);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("\"nothing\""), "{said}");
    assert!(!said.contains("all held"), "{said}");
    let output = Checks::new(none).run(&["--unit", "--filter", "pod"], false);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn what_holds_only_alone_fails_in_ci_unless_its_cause_is_known() {
    let unsteady = format!(
        "case \"$*\" in *'--test e2e -- '*--exact*) echo 'test result: ok. 1 passed; 0 failed' ;;\n\
         *'--test e2e -- '*) echo 'test {UNSTEADY} ... FAILED'; exit 1 ;; esac"
    );
    let args = ["--builtin", "--filter", "pod"];
    let cases = [
        (false, "", true),
        (true, "", false),
        (true, "cases::other::one it waits for another\n", false),
        (true, "cases::pod::a_pod it waits for another\n", true),
    ];
    for (ci, known, holds) in cases {
        let checks = Checks::new(&unsteady).known(known);
        let output = checks.run(&args, ci);
        let said = said(&output);
        assert_eq!(output.status.success(), holds, "{ci} {known:?}: {said}");
        assert!(said.contains("UNSTEADY"), "{said}");
        assert!(said.contains(UNSTEADY), "{said}");
    }
}

/// The names that a run of lab tests was given, and those that it was told to leave out.
fn chosen(call: &str) -> (Vec<&str>, Vec<&str>) {
    let (_, given) = call.split_once(" -- ").expect("arguments of the tests");
    let mut words = given.split_whitespace();
    let (mut names, mut left_out) = (Vec::new(), Vec::new());
    while let Some(word) = words.next() {
        match word {
            "--test-threads" => drop(words.next()),
            "--skip" => left_out.extend(words.next()),
            name => names.push(name),
        }
    }
    (names, left_out)
}

/// All steps can run: every program is a script, and nobody is root.
fn whole() -> Checks {
    let one =
        "case \"$*\" in *'--test e2e -- '*) echo 'test result: ok. 1 passed; 0 failed' ;; esac";
    Checks::new(one)
        .program("bin/id", "echo 1000")
        .program("bin/go", ":")
        .program("bin/cargo-deny", ":")
        .program("e2e/planted", ":")
        .program("e2e/sim", "echo \"sim $*\" >>calls")
        .program("target/simulation/examples/lab", "echo \"lab $*\" >>calls")
}

#[test]
fn any_step_that_fails_is_a_failure() {
    for program in [
        "bin/cargo-deny",
        "e2e/planted",
        "e2e/sim",
        "target/simulation/examples/lab",
    ] {
        let output = whole().program(program, "exit 3").run(&[], true);
        let said = said(&output);
        assert!(!output.status.success(), "{program}: {said}");
        assert!(said.contains("FAILED: "), "{program}: {said}");
        assert!(!said.contains("all held"), "{program}: {said}");
    }
}

/// What a run calls, and of that the two runs of lab tests, on real servers and on built-in ones.
fn all_steps(args: &[&str]) -> (String, [String; 2]) {
    let checks = whole();
    let output = checks.run(args, true);
    assert!(output.status.success(), "{}", said(&output));
    let calls = checks.calls();
    let runs = calls.lines().filter(|it| it.contains("--test e2e -- "));
    let runs: Vec<String> = runs.map(str::to_owned).collect();
    let both = runs.try_into().expect("two runs of lab tests");
    (calls, both)
}

#[test]
fn a_commit_runs_each_lab_test_once() {
    let (calls, [real, builtin]) = all_steps(&[]);
    let (names, _) = chosen(&real);
    let (others, left_out) = chosen(&builtin);
    assert!(names.len() > 10, "{real}");
    assert_eq!(left_out, names);
    assert!(others.is_empty(), "{builtin}");
    assert!(!calls.contains("1.30"), "{calls}");
    assert!(calls.contains("sim --seeds 300 --from 1\n"), "{calls}");
    assert!(calls.contains("sim --cuts\n"), "{calls}");
}

#[test]
fn the_whole_leaves_nothing_out_that_can_run() {
    let (calls, [real, builtin]) = all_steps(&["--whole"]);
    // Without root there is no real node.
    assert_eq!(chosen(&real), (vec![], vec!["real_node"]));
    let (names, left_out) = chosen(&builtin);
    assert!(names.is_empty(), "{builtin}");
    assert!(left_out.contains(&"init_install::"), "{builtin}");
    assert!(!left_out.contains(&"works::rows::"), "{builtin}");
    assert!(calls.contains("--member-version 1.30"), "{calls}");
    assert!(calls.contains("sim --seeds 1000 "), "{calls}");
    assert!(calls.contains("sim --cuts\n"), "{calls}");
    assert!(!calls.contains("--unoptimised"), "{calls}");
}
