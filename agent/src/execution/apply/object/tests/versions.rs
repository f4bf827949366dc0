//! The version that an apply asks of an object, and what becomes of those that come too late.

use super::*;
use crate::testing::{bytes, json as answer, service};

const OF_TILLS: &str = "GET /apis/shop.example.com/v1";

fn tills() -> Value {
    json!({"resources": [{"name": "tills", "kind": "Till", "namespaced": true,
        "verbs": ["list", "patch"]}]})
}

/// What was written of the Till `a`: each body with the manager that it is for.
fn written(asked: &Asked) -> Vec<(String, Value)> {
    let asked = asked.lock().expect("sound");
    let patches = asked.iter().filter_map(|(line, body)| {
        let (_, query) = line.strip_prefix("PATCH ")?.split_once("?fieldManager=")?;
        let manager = query.split('&').next().unwrap_or_default();
        Some((manager.to_owned(), body.clone()))
    });
    patches.collect()
}

fn merge(into: &mut Value, patch: &Value) {
    match (into, patch) {
        (Value::Object(into), Value::Object(patch)) => {
            for (key, value) in patch {
                if value.is_null() {
                    into.remove(key);
                } else {
                    merge(into.entry(key.clone()).or_insert(Value::Null), value);
                }
            }
        }
        (into, patch) => *into = patch.clone(),
    }
}

/// A member with this Till: each change makes another version of it, and what asks for one that is past is refused.
fn member_with(till: Value) -> (kube::Client, Asked) {
    let asked = Asked::default();
    let log = asked.clone();
    let stored = Arc::new(Mutex::new(till));
    let client = service(move |request| {
        let (stored, log) = (stored.clone(), log.clone());
        async move {
            let line = format!("{} {}", request.method(), request.uri());
            let body = serde_json::from_str(&bytes(request.into_body()).await);
            let body: Value = body.unwrap_or_default();
            log.lock()
                .expect("sound")
                .push((line.clone(), body.clone()));
            if line == OF_TILLS {
                return answer(200, &tills());
            }
            let mut till = stored.lock().expect("sound");
            if line.starts_with("PATCH ") {
                let version = till["metadata"]["resourceVersion"].clone();
                let asked = &body["metadata"]["resourceVersion"];
                if !asked.is_null() && *asked != version {
                    return answer(409, &refusal(409, "Conflict").1);
                }
                merge(&mut till, &body);
                let version: u64 = version
                    .as_str()
                    .and_then(|it| it.parse().ok())
                    .expect("one");
                till["metadata"]["resourceVersion"] = json!((version + 1).to_string());
                if line.contains("fieldManager=towline&") {
                    let fields = json!({"f:spec": {"f:colour": {}}});
                    let entry =
                        json!({"manager": "towline", "operation": "Apply", "fieldsV1": fields});
                    till["metadata"]["managedFields"] = json!([entry]);
                }
            }
            answer(200, &till)
        }
    });
    (client, asked)
}

const HEALTHY: How = How {
    healthy: true,
    scaled: false,
    unconfirmed: None,
};

/// The mark that says whose it was goes before it is applied: it could not be judged anew.
#[tokio::test(start_paused = true)]
async fn what_was_kept_is_had_again_by_a_work_whose_script_leaves_something_to_the_member() {
    let mut kept = till(9, "", &json!({}));
    kept["metadata"]["labels"] = json!({});
    kept["metadata"]["annotations"] = json!({KEPT_FROM: "karmada-es-m1/w"});
    let (member, asked) = member_with(kept);
    let parts = Handles::new(scripted(|_| None).0, member).await;
    let spec = json!({"replicas": 3, "colour": "blue"});
    let (outcome, _) = apply_till_by(&applier(&parts), &parts, spec, HEALTHY).await;
    assert!(matches!(outcome, Outcome::Done), "{outcome:?}");
    let written = written(&asked);
    let managers: Vec<_> = written.iter().map(|(manager, _)| &**manager).collect();
    assert_eq!(managers, ["towline-retained", "towline"]);
    assert_eq!(
        written[1].1["spec"],
        json!({"replicas": 5, "colour": "blue"})
    );
}

/// What we write ourselves before it is applied is not taken for somebody else's change.
#[tokio::test(start_paused = true)]
async fn what_is_handed_on_first_is_applied_at_once() {
    let owned = json!({"f:spec": {"f:replicas": {}, "f:colour": {}}});
    let (member, asked) = member_with(till(9, "0000000000000001", &owned));
    let parts = Handles::new(scripted(|_| None).0, member).await;
    let how = How {
        scaled: true,
        ..HEALTHY
    };
    let spec = json!({"replicas": 3, "colour": "blue"});
    let (outcome, _) = apply_till_by(&applier(&parts), &parts, spec, how).await;
    assert!(matches!(outcome, Outcome::Done), "{outcome:?}");
    let written = written(&asked);
    let managers: Vec<_> = written.iter().map(|(manager, _)| &**manager).collect();
    assert_eq!(managers, ["towline-retained", "towline"]);
    assert_eq!(written[1].1["spec"], json!({"colour": "blue"}));
}

/// An object that changes all the time is no fight by that: one apply heals it once.
#[tokio::test(start_paused = true)]
async fn what_comes_too_late_is_not_counted_as_healed() {
    let spec = json!({"replicas": 2, "colour": "blue"});
    let drifted = till(9, &hash_of(&spec), &json!({}));
    let writes = Arc::new(AtomicUsize::new(0));
    let (member, asked) = scripted(move |line| match line {
        OF_TILLS => Some((200, tills())),
        TILL => Some((200, drifted.clone())),
        _ if writes.fetch_add(1, Ordering::Relaxed) < 3 => Some(refusal(409, "Conflict")),
        _ => Some((200, drifted.clone())),
    });
    let parts = Handles::new(scripted(|_| None).0, member).await;
    let objects = applier(&parts);
    let (outcome, key) = apply_till_by(&objects, &parts, spec, HEALTHY).await;
    assert!(matches!(outcome, Outcome::Done), "{outcome:?}");
    assert_eq!(written(&asked).len(), 4);
    let mut fights = objects.fights.lock().expect("sound");
    let now = parts.clock.now();
    let left = (0..20).take_while(|_| fights.heal(&key, now).is_ok());
    assert_eq!(left.count(), crate::drift::HEALS - 1);
}

/// The script is asked of what was read, and others may change that before it is written.
#[tokio::test(start_paused = true)]
async fn what_a_member_changes_meanwhile_is_asked_about_anew() {
    let mark = hash_of(&json!({"replicas": 2, "colour": "red"}));
    let reads = Arc::new(AtomicUsize::new(0));
    let (member, asked) = scripted(move |line| match line {
        OF_TILLS => Some((200, tills())),
        // It is read to be judged, and for the script.
        TILL if reads.fetch_add(1, Ordering::Relaxed) < 2 => {
            Some((200, till(9, &mark, &json!({}))))
        }
        // Somebody scaled it.
        TILL => {
            let mut scaled = till(10, &mark, &json!({}));
            scaled["spec"]["replicas"] = json!(6);
            Some((200, scaled))
        }
        _ if reads.load(Ordering::Relaxed) < 4 => Some(refusal(409, "Conflict")),
        _ => Some((200, till(11, &mark, &json!({})))),
    });
    let parts = Handles::new(scripted(|_| None).0, member).await;
    let (outcome, _) = apply_till(&parts, json!({"replicas": 3, "colour": "blue"}), true).await;
    assert!(matches!(outcome, Outcome::Done), "{outcome:?}");
    let asked = asked.lock().expect("sound");
    let patches = asked.iter().filter(|(line, _)| line.starts_with("PATCH "));
    let of = |body: &Value| {
        let version = body["metadata"]["resourceVersion"].as_str();
        (version.map(str::to_owned), body["spec"]["replicas"].clone())
    };
    let sent: Vec<_> = patches.map(|(_, body)| of(body)).collect();
    let expected = [("9", 5), ("10", 6)];
    assert_eq!(
        sent,
        expected.map(|(version, replicas)| (Some(version.to_owned()), json!(replicas)))
    );
}
