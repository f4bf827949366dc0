//! What Karmada takes, completes and refuses, as recorded (`e2e/reference`), asked of a server in this process.
//!
//! An object that is taken must be the recorded one. A refusal must name the recorded field and say the
//! recorded words; that a webhook says them there, and the schema or a policy here, is a difference of form.
//! Everything that differs otherwise stands in [`OTHERWISE`], with what is answered instead, and why.

use super::host::Host;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Kinds that a hub of ours does not have.
const ABSENT: [&str; 5] = [
    "CronFederatedHPA",
    "FederatedHPA",
    "FederatedResourceQuota",
    "MultiClusterIngress",
    "MultiClusterService",
];

/// Scenarios whose answer differs in one way.
struct Otherwise {
    ids: &'static [&'static str],
    /// 201 of what is taken, whether it is made or changed.
    code: u16,
    /// Words of the answer, if it is a refusal.
    says: &'static str,
    /// For who reads this.
    _why: &'static str,
}

const OTHERWISE: &[Otherwise] = &[
    Otherwise {
        ids: &["s0687", "s0690", "s0692", "s0754", "s0758"],
        code: 422,
        says: "Unsupported value",
        _why: "an operator or effect that there is not matches nothing, silently",
    },
    Otherwise {
        ids: &["s0700", "s0760"],
        code: 422,
        says: "unsupported key \"planet\"",
        _why: "the same of fields of clusters, wherever clusters are selected",
    },
    Otherwise {
        ids: &["s0714", "s0718"],
        code: 422,
        says: "Required value",
        _why: "a selector of no kind selects nothing, and a priority of no class is none",
    },
    Otherwise {
        ids: &["s0756", "s0844"],
        code: 422,
        says: "in body should",
        _why: "a taint with this value cannot be tolerated, and nobody can name this component",
    },
    Otherwise {
        ids: &["s0709"],
        code: 422,
        says: "spec.resourceSelectors: Invalid value: name cannot be empty if preemption is Always",
        _why: "a rule over fields of different depth names the list",
    },
    Otherwise {
        ids: &["s0717"],
        code: 422,
        says: "spec.suspension: Invalid value: suspension dispatching cannot co-exist with",
        _why: "there is no field suspension.suspension",
    },
    Otherwise {
        ids: &["s0769"],
        code: 422,
        says: "spec.zones: Invalid value: a valid label must be",
        _why: "there is no field Zones",
    },
    Otherwise {
        ids: &["s0770"],
        code: 422,
        says: "spec: Invalid value: Zone and Zones cannot co-exist",
        _why: "there is no field spec.spec",
    },
    Otherwise {
        ids: &["s0818", "s0819", "s0820"],
        code: 201,
        says: "",
        _why: "nothing of ours reads scripts",
    },
    Otherwise {
        ids: &["s0850", "s0851", "s0889", "s0891", "s0909"],
        code: 201,
        says: "",
        _why: "what is empty is left as it was written, or left out, and means the same",
    },
    Otherwise {
        ids: &[
            "s0898", "s0900", "s0901", "s0902", "s0903", "s0906", "s0907", "s0908", "s0911",
        ],
        code: 201,
        says: "",
        _why: "whoever renders a Work prunes it; one that is written by hand stays as written",
    },
    Otherwise {
        ids: &["s0910"],
        code: 422,
        says: "spec.workload.manifests[0] in body must be of type object",
        _why: "the schema is asked before any code",
    },
    Otherwise {
        ids: &["s0920"],
        code: 422,
        says: "grades must be listed in ascending order",
        _why: "a schema refuses, and does not sort",
    },
    Otherwise {
        ids: &["s0777", "s0918"],
        code: 201,
        says: "",
        _why: "the hub moves the zone into the zones later; models stay as written",
    },
];

fn scenarios(area: &str) -> Vec<Value> {
    let file = format!(
        "{}/../e2e/reference/{area}.json",
        env!("CARGO_MANIFEST_DIR")
    );
    let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file}: {error}"));
    let mut file: Value = serde_json::from_str(&text).expect("JSON");
    serde_json::from_value(file["scenarios"].take()).expect("scenarios")
}

/// The object without what differs between any two.
fn settled(mut object: Value) -> Value {
    let Some(metadata) = object["metadata"].as_object_mut() else {
        return object;
    };
    for key in [
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "managedFields",
        "generation",
        "namespace",
    ] {
        metadata.remove(key);
    }
    let labels = metadata.get_mut("labels").and_then(Value::as_object_mut);
    for (key, value) in labels.into_iter().flatten() {
        if key.ends_with(".karmada.io/permanent-id") {
            *value = json!("<uuid>");
        }
    }
    object
}

/// The field and the words of a refusal, of whatever form; a text without a field has none.
fn said(message: &str) -> (&str, &str) {
    let forms = [" is invalid: ", " denied the request: "];
    let told = forms
        .iter()
        .find_map(|form| message.split_once(form))
        .map_or(message, |(_, told)| told);
    let told = told.lines().next().unwrap_or_default();
    match told.split_once(": ") {
        Some((field, rest)) if !field.contains(' ') => {
            let words = rest.rsplit_once(": ").map_or(rest, |(_, words)| words);
            (field, words)
        }
        _ => ("", told),
    }
}

/// How an answer differs from what was recorded; none where it does not.
fn difference(want: &Value, code: u16, answer: &Value) -> Option<String> {
    let message = answer["message"].as_str().unwrap_or_default();
    if want.get("object").is_some() {
        if code >= 400 {
            return Some(format!("is refused: {code} {message}"));
        }
        let (want, found) = (settled(want["object"].clone()), settled(answer.clone()));
        return (want != found).then(|| format!("wanted {want}\n    found  {found}"));
    }
    let (field, words) = said(want["message"].as_str().unwrap_or_default());
    let same = matches!(code, 403 | 422) && message.contains(field) && message.contains(words);
    (!same).then(|| format!("wanted {field}: {words}\n    found  {code} {message}"))
}

/// What differs, how much was asked, and which of [`OTHERWISE`] came up.
async fn replay(host: &Host, areas: &[&str]) -> (Vec<String>, usize, BTreeSet<String>) {
    let (mut wrong, mut asked, mut used) = (Vec::new(), 0, BTreeSet::new());
    for scenario in areas.iter().flat_map(|area| scenarios(area)) {
        let id = scenario["id"].as_str().expect("an id");
        let steps = scenario["steps"].to_string();
        let has = |kind: &str| steps.contains(&format!("\"kind\":\"{kind}\""));
        if ABSENT.iter().any(|kind| has(kind)) {
            continue;
        }
        let prefix = if has("Work") { "karmada-es-" } else { "" };
        let namespace = format!("{prefix}{id}");
        let made = json!({"metadata": {"name": namespace}});
        host.ask("POST", "/api/v1/namespaces", "application/json", &made)
            .await;
        let differs = OTHERWISE.iter().find(|one| one.ids.contains(&id));
        let steps = scenario["steps"].as_array().expect("steps").iter();
        let expected = scenario["expect"].as_array().expect("answers");
        for (step, expected) in steps.zip(expected) {
            let actions = step["actions"].as_array().expect("actions").iter();
            for (at, action) in actions.enumerate() {
                let (code, answer) = host.act(&namespace, action).await;
                asked += 1;
                let mut refused = expected["refused"].as_array().into_iter().flatten();
                let refused = refused.find(|one| one["action"] == at);
                let how = match expected["answers"].get(at).or(refused) {
                    Some(want) => difference(want, code, &answer),
                    None => (code >= 400).then(|| format!("is refused: {answer}")),
                };
                let how = match differs {
                    None => how,
                    Some(one) => {
                        used.insert(id.to_owned());
                        let message = answer["message"].as_str().unwrap_or_default();
                        let taken = code < 400 && one.code < 400;
                        let refused = code == one.code && message.contains(one.says);
                        let as_said = how.is_some() && (taken || refused);
                        let says = one.says;
                        (!as_said)
                            .then(|| format!("{code} {message:?} is not {} {says:?}", one.code))
                    }
                };
                wrong.extend(how.map(|how| format!("{id} {}: {how}", scenario["title"])));
            }
        }
    }
    (wrong, asked, used)
}

#[tokio::test(start_paused = true)]
async fn what_karmada_takes_and_refuses_is_taken_and_refused() {
    let host = Host::begin().await;
    let areas = [
        "admission-refused",
        "admission-accepted",
        "admission-defaulted",
        "protection",
    ];
    let (wrong, asked, used) = replay(&host, &areas).await;
    let differ = format!("{} of {asked} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(wrong.is_empty(), "{differ}");
    let listed = OTHERWISE.iter().flat_map(|one| one.ids);
    let listed: BTreeSet<String> = listed.map(|id| (*id).to_owned()).collect();
    assert_eq!(listed, used, "a difference that is listed for nothing");
    assert!(asked > 130, "only {asked} were asked");
    host.end().await;
}
