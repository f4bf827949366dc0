//! What every verb says to input that cannot be meant: its exit code, and words that name what is wrong.

use super::{Cli, Output, Verb, command, plan, run};
use clap::FromArgMatches as _;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const INTERNAL: u8 = 1;
const USAGE: u8 = 2;
const CONFIG: u8 = 3;
const UNAVAILABLE: u8 = 6;

/// More lines than any refusal needs; that of no verb at all lists every verb.
const LINES: usize = 52;

/// A command line, its exit code, and what its error says.
type Row = (&'static str, u8, &'static str);

/// Wrong whatever the machine looks like. `DIR` is a folder with the files of `files`.
const ROWS: &[Row] = &[
    ("", USAGE, "Usage: towline"),
    ("gte deployments", USAGE, "unrecognized subcommand 'gte'"),
    ("get", USAGE, "required arguments were not provided"),
    ("get deploy/web -A", USAGE, "by name across all namespaces"),
    (
        "get deploy/web -l app=web",
        USAGE,
        "when a selector is specified",
    ),
    (
        "get deploy web/x",
        USAGE,
        "no need to specify a resource type",
    ),
    ("get /web", USAGE, "single resource and name"),
    ("get deploy,cm web", USAGE, "name the types one by one"),
    ("get deploy,,cm", USAGE, "must not be empty"),
    ("get deploy -o xml", USAGE, "invalid value 'xml'"),
    ("get deploy -n a -A", USAGE, "cannot be used with"),
    (
        "get deploy -C Not_A_Name",
        USAGE,
        "invalid value 'Not_A_Name'",
    ),
    ("get deploy --kubeconfig DIR/none", CONFIG, "DIR/none"),
    (
        "get deploy --kubeconfig DIR/broken.yaml",
        CONFIG,
        "Name a kubeconfig by --kubeconfig FILE",
    ),
    (
        "get deploy --kubeconfig DIR/dead.yaml --context b",
        CONFIG,
        "--context NAME",
    ),
    (
        "get deploy --kubeconfig DIR/dead.yaml",
        UNAVAILABLE,
        "127.0.0.1:1",
    ),
    (
        "status --everything",
        USAGE,
        "unexpected argument '--everything'",
    ),
    (
        "status -o wide",
        USAGE,
        "[possible values: table, json, yaml, name]",
    ),
    ("status --kubeconfig DIR/none", CONFIG, "DIR/none"),
    (
        "status --kubeconfig DIR/dead.yaml",
        UNAVAILABLE,
        "127.0.0.1:1",
    ),
    ("events web", USAGE, "\"web\" is not TYPE/NAME"),
    ("events a/b/c", USAGE, "single resource and name"),
    ("events deploy/web -A", USAGE, "cannot be used with"),
    ("events -C m1 -n shop", USAGE, "cannot be used with"),
    ("apply --all", USAGE, "--filename <FILE>"),
    (
        "apply -f DIR/map.yaml",
        USAGE,
        "<--clusters <CLUSTER>|--all>",
    ),
    (
        "apply -f DIR/map.yaml -C m1 --all",
        USAGE,
        "cannot be used with",
    ),
    ("apply -f DIR/map.yaml -C m_1", USAGE, "invalid value 'm_1'"),
    ("apply -f DIR/none --all", CONFIG, "failed to read DIR/none"),
    ("apply -f DIR/empty.yaml --all", CONFIG, "no objects passed"),
    (
        "apply -f DIR/broken.yaml --all",
        CONFIG,
        "failed to read DIR/broken.yaml",
    ),
    (
        "apply -f DIR/no-kind.yaml --all",
        CONFIG,
        "an object has no kind",
    ),
    (
        "apply -f DIR/no-name.yaml --all",
        CONFIG,
        "an object has no metadata.name",
    ),
    (
        "apply -f DIR/map.yaml --all --kubeconfig DIR/dead.yaml",
        UNAVAILABLE,
        "127.0.0.1:1",
    ),
    ("join", USAGE, "<CLUSTER>"),
    ("join m1", USAGE, "--cluster-kubeconfig <FILE>"),
    (
        "join m_1 --cluster-kubeconfig DIR/dead.yaml",
        USAGE,
        "invalid value 'm_1'",
    ),
    (
        "join m1 --cluster-kubeconfig DIR/dead.yaml --label a",
        USAGE,
        "must be KEY=VALUE",
    ),
    ("join m1 --cluster-kubeconfig DIR/none", CONFIG, "DIR/none"),
    (
        "join m1 --cluster-kubeconfig DIR/none",
        CONFIG,
        "Name a kubeconfig by --cluster-kubeconfig FILE",
    ),
    (
        "join m1 --cluster-kubeconfig DIR/dead.yaml --cluster-context b",
        CONFIG,
        "by --cluster-context NAME",
    ),
    (
        "unjoin m1 --yes --cluster-kubeconfig DIR/none",
        CONFIG,
        "Name a kubeconfig by --cluster-kubeconfig FILE",
    ),
    (
        "unregister m1 --yes --member-kubeconfig DIR/none",
        CONFIG,
        "Name a kubeconfig by --member-kubeconfig FILE",
    ),
    (
        "join m1 --cluster-kubeconfig DIR/dead.yaml --kubeconfig DIR/none",
        CONFIG,
        "DIR/none",
    ),
    (
        "join m1 --cluster-kubeconfig DIR/dead.yaml --proxy-header-file DIR/none",
        CONFIG,
        "failed to read the headers from",
    ),
    (
        "join m1 --cluster-kubeconfig DIR/dead.yaml --proxy-header-file DIR/empty.yaml",
        CONFIG,
        "one header a line",
    ),
    ("unjoin", USAGE, "<CLUSTER>"),
    (
        "unjoin m1 --force --keep-workloads",
        USAGE,
        "cannot be used with",
    ),
    (
        "unjoin m1 --cluster-context a",
        USAGE,
        "--cluster-kubeconfig",
    ),
    (
        "unjoin m1 --yes --kubeconfig DIR/dead.yaml",
        UNAVAILABLE,
        "127.0.0.1:1",
    ),
    ("work", USAGE, "Usage: towline work"),
    ("work create -C m1", USAGE, "--from-file <FILE>"),
    (
        "work create --from-file DIR/map.yaml",
        USAGE,
        "--clusters <CLUSTER>",
    ),
    (
        "work create --from-file DIR/no-name.yaml -C m1",
        CONFIG,
        "an object has no metadata.name",
    ),
    ("promote deploy web", USAGE, "--cluster <CLUSTER>"),
    (
        "promote deploy -C m1",
        USAGE,
        "no object of deploy is named",
    ),
    (
        "promote deploy/a deploy/b -C m1",
        USAGE,
        "one object is promoted at a time",
    ),
    ("promote deploy/ -C m1", USAGE, "single resource and name"),
    ("promote deploy/web -C M1", USAGE, "invalid value 'M1'"),
    (
        "promote deploy/web -C m1 --kubeconfig DIR/dead.yaml",
        UNAVAILABLE,
        "127.0.0.1:1",
    ),
    ("plan", INTERNAL, "nothing is to be planned"),
    ("plan --delete", INTERNAL, "--filename <FILE>"),
    ("plan -f DIR/none", INTERNAL, "failed to read DIR/none"),
    ("plan --taint m1", INTERNAL, "names no taint of a cluster"),
    ("plan --taint m1:a:Never", INTERNAL, "Never"),
    ("plan --without M1", INTERNAL, "invalid value 'M1'"),
    (
        "plan --cordon m1 --hub-flag=--nope",
        INTERNAL,
        "unexpected argument '--nope'",
    ),
    (
        "plan --cordon m1 --kubeconfig DIR/none",
        INTERNAL,
        "DIR/none",
    ),
    ("cordon", USAGE, "<CLUSTER>"),
    ("cordon UPPER", USAGE, "invalid value 'UPPER'"),
    ("uncordon m1 --dry", USAGE, "unexpected argument '--dry'"),
    ("taint m1", USAGE, "2 values required"),
    (
        "taint m1 m2",
        USAGE,
        "at least one taint update is required",
    ),
    ("taint M1 a:NoSchedule", USAGE, "M1"),
    ("taint m1 a:Never", USAGE, "Never"),
    (
        "taint m1 a:NoSchedule m2",
        USAGE,
        "before taint changes: m2",
    ),
    (
        "taint a:NoSchedule b:NoSchedule",
        USAGE,
        "no cluster is named",
    ),
    ("token", USAGE, "Usage: towline token"),
    ("token create --ttl soon", USAGE, "invalid value 'soon'"),
    ("token create --uses 0", USAGE, "0 is not in 1..=1000"),
    ("token create --uses 1001", USAGE, "1001 is not in 1..=1000"),
    ("token create --replace", USAGE, "--cluster <NAME>"),
    ("token create --cluster m1 --uses 2", USAGE, "has one use"),
    ("token create --label x", USAGE, "must be KEY=VALUE"),
    (
        "token delete abc",
        USAGE,
        "six lower case letters and digits",
    ),
    ("register --wait soon", USAGE, "invalid value 'soon'"),
    (
        "register --cluster-name m1",
        USAGE,
        "of no use without a token",
    ),
    (
        "register --token abc --token-file DIR/map.yaml",
        USAGE,
        "cannot be used with",
    ),
    (
        "unregister m1 --force --keep-workloads",
        USAGE,
        "cannot be used with",
    ),
    (
        "unregister m1 --member-context x",
        USAGE,
        "--member-kubeconfig <FILE>",
    ),
    (
        "unregister m1 --wait 0 --member-kubeconfig DIR/nothing",
        USAGE,
        "--wait 0 does not go with",
    ),
    (
        "unjoin m1 --wait 0s --cluster-kubeconfig DIR/nothing",
        USAGE,
        "--wait 0 does not go with",
    ),
    ("orphans m1 --adopt --delete", USAGE, "cannot be used with"),
    ("check m1 --server hub:6443", USAGE, "cannot be used with"),
    (
        "check --discovery-token-ca-cert-hash md5:00 --server hub:6443",
        USAGE,
        "invalid value 'md5:00'",
    ),
    ("init --dry-run --print", USAGE, "cannot be used with"),
    (
        "demo --clusters 3",
        USAGE,
        "unexpected argument '--clusters'",
    ),
    ("why", USAGE, "required arguments were not provided"),
    ("interpret", USAGE, "required arguments were not provided"),
    ("kubeconfig", USAGE, "required arguments were not provided"),
    ("kubeconfig -C m1 --all", USAGE, "cannot be used with"),
    (
        "kubeconfig -C M_1",
        USAGE,
        "must consist of lower case letters",
    ),
    (
        "kubeconfig -C m1 --kubeconfig DIR/nothing",
        CONFIG,
        "failed to read",
    ),
    ("get pods --all -C m1", USAGE, "cannot be used with"),
    ("get pods -s nowhere", USAGE, "invalid value 'nowhere'"),
    (
        "get pods --all --cluster-timeout 0",
        USAGE,
        "invalid value '0'",
    ),
    ("logs web", USAGE, "-C CLUSTER names the member"),
    ("exec -C m1 web --context", USAGE, "--context needs a value"),
    ("attach web -C M_1", USAGE, "lower case letters"),
    ("cp a web:/b", USAGE, "no cluster is named"),
    ("port-forward web 80 -C", USAGE, "-C needs a value"),
    (
        "top pods -C m1 --kubeconfig DIR/nothing",
        CONFIG,
        "failed to read",
    ),
    (
        "describe pod web -C m1 --kubeconfig DIR/dead.yaml --context b",
        CONFIG,
        "the kubeconfig has no context \"b\"",
    ),
    ("kubectl -C m1", USAGE, "nothing for kubectl to do"),
    ("access", USAGE, "Usage: towline access"),
    ("access grant ann", USAGE, "--clusters <CLUSTER>"),
    ("access grant ann --all -C m1", USAGE, "cannot be used with"),
    (
        "access grant system:authenticated --group --all",
        USAGE,
        "is everybody",
    ),
    ("access grant * --all", USAGE, "names nobody"),
    (
        "access grant towline:hub:system:admin --all",
        USAGE,
        "cannot be named to a member",
    ),
    (
        "access grant ann --all --role a/b",
        USAGE,
        "no name of a ClusterRole",
    ),
    (
        "access grant ann --all -n A",
        USAGE,
        "no name of a namespace",
    ),
    (
        "access grant ann --all --wait soon",
        USAGE,
        "invalid value 'soon'",
    ),
    (
        "access grant ann --all --kubeconfig DIR/dead.yaml",
        UNAVAILABLE,
        "127.0.0.1:1",
    ),
    (
        "access revoke ann",
        USAGE,
        "required arguments were not provided",
    ),
    (
        "access list --group",
        USAGE,
        "required arguments were not provided",
    ),
    ("access list -C M1", USAGE, "invalid value 'M1'"),
    ("completion tcsh", USAGE, "invalid value 'tcsh'"),
    (
        "man --dir DIR/map.yaml",
        CONFIG,
        "failed to create DIR/map.yaml",
    ),
    ("version now", USAGE, "unexpected argument 'now'"),
];

fn files(dir: &Path) {
    let dead = "{apiVersion: v1, kind: Config, current-context: a,
        contexts: [{name: a, context: {cluster: a, user: a}}],
        clusters: [{name: a, cluster: {server: 'https://127.0.0.1:1'}}], users: [{name: a, user: {}}]}";
    for (name, text) in [
        (
            "map.yaml",
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}",
        ),
        ("no-kind.yaml", "{apiVersion: v1, metadata: {name: a}}"),
        (
            "no-name.yaml",
            "{apiVersion: v1, kind: ConfigMap, metadata: {}}",
        ),
        ("empty.yaml", "---\n"),
        ("broken.yaml", "a: ["),
        ("dead.yaml", dead),
    ] {
        fs::write(dir.join(name), text).expect("written");
    }
}

/// Runs a command line as a process would: its exit code, and what it says.
async fn refusal(line: &str) -> (u8, String) {
    let words = std::iter::once("towline").chain(line.split_whitespace());
    let words: Vec<&str> = words.collect();
    let parsed = command().try_get_matches_from(&words);
    let cli = match parsed.and_then(|it| Cli::from_arg_matches(&it)) {
        Ok(cli) => cli,
        Err(error) => {
            let code = if words.get(1) == Some(&"plan") {
                INTERNAL
            } else {
                USAGE
            };
            return (code, error.to_string());
        }
    };
    let output = Output::stdio();
    let refused = match cli.verb {
        // Whatever is wrong with it, 2 would say that something changes.
        Verb::Plan(args) => {
            let error = plan::planned(&args, &output).await.map(drop);
            return (plan::FAILED, error.expect_err(line).to_string());
        }
        verb => run(verb, &output).await.map(drop),
    };
    let error = refused.expect_err(line);
    (error.kind.code(), error.to_string())
}

#[tokio::test]
async fn wrong_input_is_named_by_every_verb() {
    common::tls::install_provider();
    let dir = tempfile::tempdir().expect("a folder");
    files(dir.path());
    let here = dir.path().display().to_string();
    let mut verbs = BTreeSet::new();
    let mut wrong = Vec::new();
    for (line, code, says) in ROWS {
        let (line, says) = (line.replace("DIR", &here), says.replace("DIR", &here));
        let (got, text) = refusal(&line).await;
        let lines = text.lines().count();
        if got != *code || !text.contains(&says) || lines > LINES {
            wrong.push(format!(
                "towline {line}: not {code} and {says:?}, but {got} and {text}"
            ));
        }
        verbs.extend(line.split_whitespace().next().map(str::to_owned));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for verb in command().get_subcommands().filter(|it| !it.is_hide_set()) {
        let name = verb.get_name();
        assert!(verbs.contains(name), "no wrong input of {name}");
    }
}

/// What documents say to type is a command line that is taken, whatever comes of it.
#[test]
fn commands_of_documents_are_taken() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let guides = fs::read_dir(root.join("docs")).expect("there");
    let guides = guides.map(|it| it.expect("readable").path());
    let mut files: Vec<_> = guides
        .filter(|it| it.extension().is_some_and(|it| it == "md"))
        .collect();
    files.push(root.join("README.md"));
    let mut taken = 0;
    let mut wrong = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("readable");
        let blocks = text.split("\n```").skip(1).step_by(2);
        for line in blocks.flat_map(str::lines) {
            let line = line
                .trim_start_matches("$ ")
                .split("    ")
                .next()
                .unwrap_or_default();
            let line = line.rsplit("| ").next().unwrap_or_default();
            // A part that is left out is anybody's.
            if !line.starts_with("towline ") || line.contains('…') {
                continue;
            }
            taken += 1;
            if let Err(error) = command().try_get_matches_from(line.split_whitespace()) {
                wrong.push(format!("{}: {line}: {error}", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(taken > 30, "only {taken} command lines");
}
