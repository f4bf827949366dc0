//! Sequences of writes that nobody thought of: several managers over few objects, and what a watch
//! tells of it. A sequence that differs is made as short as it can be.

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use serde_json::{Value, json};
use std::cell::Cell;
use std::fmt::Write as _;
use tokio::runtime::Handle;

use super::script::{self, Case};

/// Sequences in every run; `TOWLINE_API_SEQUENCES` asks for more, drawn anew.
const SEQUENCES: u32 = 48;
const LONGEST: usize = 14;

/// Where the objects of a sequence are, and of what kind.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Secret,
    PodTemplate,
    Lease,
}

/// One write.
#[derive(Debug, Clone)]
struct Write {
    object: u8,
    manager: u8,
    deed: Deed,
}

#[derive(Debug, Clone)]
enum Deed {
    Create(Fields),
    Replace(Fields, Versioned),
    Merge(Fields),
    Strategic(Fields),
    Json(u8),
    Apply(Fields, bool),
    Delete(u8),
    Hold,
    LetGo,
    Get,
}

/// Which fields a write names, and with which values: none, null or one of two.
type Fields = [u8; 3];

/// What resourceVersion a replacement names.
#[derive(Debug, Clone, Copy)]
enum Versioned {
    Not,
    Last,
    First,
}

fn fields() -> impl Strategy<Value = Fields> {
    [0..4u8, 0..4u8, 0..4u8]
}

fn write() -> impl Strategy<Value = Write> {
    let versioned = prop_oneof![
        Just(Versioned::Not),
        Just(Versioned::Last),
        Just(Versioned::First)
    ];
    let deed = prop_oneof![
        2 => fields().prop_map(Deed::Create),
        2 => (fields(), versioned).prop_map(|(f, v)| Deed::Replace(f, v)),
        2 => fields().prop_map(Deed::Merge),
        2 => fields().prop_map(Deed::Strategic),
        1 => (0..5u8).prop_map(Deed::Json),
        4 => (fields(), any::<bool>()).prop_map(|(f, force)| Deed::Apply(f, force)),
        1 => (0..3u8).prop_map(Deed::Delete),
        1 => Just(Deed::Hold),
        1 => Just(Deed::LetGo),
        1 => Just(Deed::Get),
    ];
    (0..2u8, 0..3u8, deed).prop_map(|(object, manager, deed)| Write {
        object,
        manager,
        deed,
    })
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        Just(Kind::Secret),
        Just(Kind::PodTemplate),
        Just(Kind::Lease)
    ]
}

impl Kind {
    fn alias(self) -> &'static str {
        match self {
            Self::Secret => "$s",
            Self::PodTemplate => "$pt",
            Self::Lease => "$l",
        }
    }

    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Secret => ("v1", "Secret"),
            Self::PodTemplate => ("v1", "PodTemplate"),
            Self::Lease => ("coordination.k8s.io/v1", "Lease"),
        }
    }

    /// The body that names these fields; `whole` when it must stand by itself.
    fn body(self, name: &str, fields: Fields, whole: bool) -> Value {
        let (version, kind) = self.names();
        let mut body = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}});
        let pick = |field: usize, one: Value, two: Value| match fields[field] {
            0 => None,
            1 if whole => None,
            1 => Some(Value::Null),
            2 => Some(one),
            _ => Some(two),
        };
        if let Some(label) = pick(0, json!("p"), json!("q")) {
            body["metadata"]["labels"] = json!({"l": label});
        }
        match self {
            Self::Secret => {
                for (field, key) in [(1, "a"), (2, "b")] {
                    if let Some(value) = pick(field, json!("cA=="), json!("cQ==")) {
                        body["data"][key] = value;
                    }
                }
            }
            Self::Lease => {
                if let Some(value) = pick(1, json!("p"), json!("q")) {
                    body["spec"]["holderIdentity"] = value;
                }
                if let Some(value) = pick(2, json!(10), json!(20)) {
                    body["spec"]["leaseDurationSeconds"] = value;
                }
            }
            Self::PodTemplate => {
                let mut containers = Vec::new();
                for (field, name) in [(1, "one"), (2, "two")] {
                    match pick(field, json!("p"), json!("q")) {
                        None => {}
                        Some(Value::Null) => {
                            containers.push(json!({"name": name, "$patch": "delete"}));
                        }
                        Some(image) => {
                            containers.push(json!({"name": name, "image": image}));
                        }
                    }
                }
                if whole && containers.is_empty() {
                    containers.push(json!({"name": "some", "image": "i"}));
                }
                if !containers.is_empty() {
                    body["template"]["spec"]["containers"] = json!(containers);
                }
            }
        }
        body
    }
}

/// The sequence as a script, which can be kept as a case when it finds something.
fn text(kind: Kind, writes: &[Write]) -> String {
    let path = kind.alias();
    let mut out = format!("l = GET {path}\n");
    let from = "resourceVersion=${l.metadata.resourceVersion}";
    let _ = writeln!(out, "WATCH w {path}?watch=1&{from}");
    let mut first: [Option<usize>; 2] = [None; 2];
    let mut last: [Option<usize>; 2] = [None; 2];
    for (number, write) in writes.iter().enumerate() {
        let index = usize::from(write.object);
        let name = ["a", "b"][index];
        let who = format!("fieldManager=m{}", write.manager);
        let bind = format!("s{number} = ");
        let (line, body) = match &write.deed {
            Deed::Create(fields) => {
                let body = kind.body(name, *fields, true).to_string();
                (format!("POST {path}?{who}"), body)
            }
            Deed::Replace(fields, versioned) => {
                let mut body = kind.body(name, *fields, true);
                let step = match versioned {
                    Versioned::Not => None,
                    Versioned::Last => last[index],
                    Versioned::First => first[index],
                };
                if let Some(step) = step {
                    let version = format!("${{s{step}.metadata.resourceVersion}}");
                    body["metadata"]["resourceVersion"] = json!(version);
                }
                (format!("PUT {path}/{name}?{who}"), body.to_string())
            }
            Deed::Merge(fields) => {
                let mut body = kind.body(name, *fields, false).to_string();
                // A merge patch has lists as they are.
                body = body.replace(r#""$patch":"delete""#, r#""image":"r""#);
                (format!("MERGE {path}/{name}?{who}"), body)
            }
            Deed::Strategic(fields) => {
                let body = kind.body(name, *fields, false).to_string();
                (format!("SMP {path}/{name}?{who}"), body)
            }
            Deed::Json(which) => {
                let label =
                    |op: &str| json!([{"op": op, "path": "/metadata/labels/l", "value": "j"}]);
                let body = match which {
                    0 => label("replace"),
                    1 => label("add"),
                    2 => json!([{"op": "remove", "path": "/metadata/labels"}]),
                    3 => {
                        json!([{"op": "add", "path": "/metadata/annotations", "value": {"x": "y"}}])
                    }
                    _ => label("test"),
                };
                (format!("JSONP {path}/{name}?{who}"), body.to_string())
            }
            Deed::Apply(fields, force) => {
                let body = kind.body(name, *fields, true).to_string();
                (format!("APPLY {path}/{name}?{who}&force={force}"), body)
            }
            Deed::Delete(how) => {
                // In other ways a collector takes finalizers off when it likes.
                let query = ["", "?propagationPolicy=Background", "?gracePeriodSeconds=0"];
                let query = query[usize::from(*how % 3)];
                (format!("DELETE {path}/{name}{query}"), String::new())
            }
            Deed::Hold => {
                let body = json!({"metadata": {"finalizers": ["example.com/hold"]}});
                (format!("MERGE {path}/{name}?{who}"), body.to_string())
            }
            Deed::LetGo => {
                let body = json!({"metadata": {"finalizers": null}});
                (format!("MERGE {path}/{name}?{who}"), body.to_string())
            }
            Deed::Get => (format!("GET {path}/{name}"), String::new()),
        };
        let _ = writeln!(out, "{bind}{line}\n{body}");
        first[index].get_or_insert(number);
        last[index] = Some(number);
    }
    let body = kind.body("end", [0, 2, 0], true);
    let _ = writeln!(out, "GET {path}\nPOST {path}\n{body}\nEVENTS w end");
    out
}

/// Runs sequences until one differs; returns how many ran, and the shortest that differs.
///
/// `compare` runs a case on both servers and says where they differ.
pub(crate) fn run(
    run: &str,
    compare: impl AsyncFn(&Case) -> Vec<String>,
) -> (u32, Option<(Case, Vec<String>)>) {
    let asked = std::env::var("TOWLINE_API_SEQUENCES").ok();
    let asked = asked.and_then(|text| text.parse::<u32>().ok());
    let config = Config {
        cases: asked.unwrap_or(SEQUENCES),
        failure_persistence: None,
        max_shrink_iters: 200,
        ..Config::default()
    };
    let mut runner = match asked {
        Some(_) => TestRunner::new(config),
        None => {
            let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
            TestRunner::new_with_rng(config, rng)
        }
    };
    let count = Cell::new(0);
    let attempt = |kind: Kind, writes: &[Write]| -> (Case, Vec<String>) {
        count.set(count.get() + 1);
        let number = count.get();
        let name = format!("sequences-{number}");
        let script = format!("\n### generated\n{}", text(kind, writes));
        let mut cases =
            script::read(&name, &script, run).expect("a generated script is well formed");
        let mut case = cases.remove(0);
        "sequences".clone_into(&mut case.area);
        let differences =
            tokio::task::block_in_place(|| Handle::current().block_on(compare(&case)));
        (case, differences)
    };
    let strategy = (kind(), proptest::collection::vec(write(), 1..LONGEST));
    let outcome = runner.run(&strategy, |(kind, writes)| {
        let (_, differences) = attempt(kind, &writes);
        match differences.is_empty() {
            true => Ok(()),
            false => Err(TestCaseError::fail("they differ")),
        }
    });
    let ran = count.get();
    let failed = match outcome {
        Ok(()) => None,
        Err(TestError::Fail(_, (kind, writes))) => {
            let (case, mut differences) = attempt(kind, &writes);
            differences.insert(0, case.source.clone());
            Some((case, differences))
        }
        Err(TestError::Abort(reason)) => {
            let (case, _) = attempt(Kind::Secret, &[]);
            Some((case, vec![reason.to_string()]))
        }
    };
    (ran, failed)
}
