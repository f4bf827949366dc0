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
        let of_members = seen.reflected();
        let mut all: Vec<Value> = of_members
            .flat_map(|(_, reflected)| words::objects(reflected, key))
            .map(container)
            .collect();
        let mut before = seen.before.get(key).and_then(Value::as_array).into_iter();
        let is_told = |it: &Value| is_ended(it) || !text(it, "name").is_empty();
        let named = before.any(|it| it.iter().any(is_told)) || all.iter().any(is_ended);
        if named {
            let names = seen.reflected();
            let names = names.flat_map(|(_, reflected)| words::objects(reflected, key));
            for (shown, of) in all.iter_mut().zip(names) {
                give_name(shown, of);
            }
        }
        if !all.is_empty() {
            status.insert(key.to_owned(), Value::Array(all));
        }
    }
    status
}

/// What is told of a container, with the rest as an API server shows it when it was left out. The name is left out as
/// in the reference, but see [`give_name`].
fn container(of: &Value) -> Value {
    let ready = of.get("ready").and_then(Value::as_bool).unwrap_or(false);
    let state = words::state(of.get("state").unwrap_or(&Value::Null));
    json!({"name": "", "ready": ready, "state": state, "lastState": {},
        "restartCount": 0, "image": "", "imageID": ""})
}

fn is_ended(container: &Value) -> bool {
    container.pointer("/state/terminated").is_some()
}

/// Gives a container its name, unless it has ended. An API server refuses a status in which a container is not ended
/// any more, and knows them by nothing but their names: those of other members, and what ended and runs again, would
/// be taken for one. So what has ended has no name, and from then on whatever has not ended has one.
fn give_name(shown: &mut Value, of: &Value) {
    if is_ended(shown) {
        return;
    }
    let name = match text(of, "name") {
        "" => "unknown",
        name => name,
    };
    shown["name"] = name.into();
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
