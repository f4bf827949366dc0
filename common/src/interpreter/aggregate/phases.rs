//! Kinds whose status is a phase: the worst one of all members is shown.

use super::{Seen, Status, text, words};
use serde_json::{Value, json};

/// Containers and their state in every member; the phase that most needs somebody's attention. A member that
/// reflects nothing has not begun.
pub(super) fn pod(seen: &Seen<'_>) -> Status {
    let order = ["Failed", "Pending", "Running", "Succeeded"];
    let mut status = seen.keep(&["phase", "qosClass"]);
    status.extend(worst(seen, &order, "Pending"));
    for key in ["containerStatuses", "initContainerStatuses"] {
        let all: Vec<Value> = seen
            .reflected()
            .flat_map(|(_, reflected)| words::objects(reflected, key))
            .map(container)
            .collect();
        if !all.is_empty() {
            status.insert(key.to_owned(), Value::Array(all));
        }
    }
    status
}

/// What is told of a container, with the rest as an API server shows it when it was left out.
fn container(of: &Value) -> Value {
    let ready = of.get("ready").and_then(Value::as_bool).unwrap_or(false);
    let state = words::state(of.get("state").unwrap_or(&Value::Null));
    json!({"name": "", "ready": ready, "state": state, "lastState": {},
        "restartCount": 0, "image": "", "imageID": ""})
}

pub(super) fn volume(seen: &Seen<'_>) -> Status {
    let order = ["Failed", "Pending", "Available", "Bound", "Released"];
    let mut status = seen.keep(&["phase", "lastPhaseTransitionTime"]);
    status.extend(worst(seen, &order, "Pending"));
    status
}

/// Bound, unless a member says something else; what is lost in one is lost.
pub(super) fn claim(seen: &Seen<'_>) -> Status {
    let phases = || {
        seen.reflected()
            .map(|(_, reflected)| text(reflected, "phase"))
    };
    let lost = phases().find(|phase| *phase == "Lost");
    let pending = || phases().find(|phase| *phase == "Pending");
    let phase = lost.or_else(pending).unwrap_or("Bound");
    let mut status = Status::new();
    status.insert("phase".to_owned(), phase.into());
    status
}

/// The first of `order` that a member is in; `silent` is that of one which reflects none.
fn worst(seen: &Seen<'_>, order: &[&str], silent: &str) -> Option<(String, Value)> {
    let phase = |status: &Option<Value>| {
        let phase = status.as_ref().map_or("", |status| text(status, "phase"));
        let phase = if phase.is_empty() { silent } else { phase };
        order.iter().position(|known| *known == phase)
    };
    let phases = seen.items.iter().filter_map(|item| phase(&item.status));
    let worst = order.get(phases.min()?)?;
    Some(("phase".to_owned(), (*worst).into()))
}
