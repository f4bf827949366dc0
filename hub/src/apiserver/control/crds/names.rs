//! Whether the names of a CRD are free.

use crate::apiserver::strategies::crds::{condition, set_condition};
use crate::apiserver::value::{copy, text, texts};
use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Names that others of the same group have.
#[derive(Debug, Default)]
pub(super) struct Taken {
    resources: BTreeSet<String>,
    kinds: BTreeSet<String>,
}

/// What the accepted names of `others` leave no room for.
pub(super) fn taken<'a>(others: impl Iterator<Item = &'a Value>, crd: &Value) -> Taken {
    let mut taken = Taken::default();
    let group = text(crd, &["spec", "group"]);
    for other in others.filter(|other| text(other, &["spec", "group"]) == group) {
        let accepted = ["status", "acceptedNames"];
        for field in ["plural", "singular"] {
            taken
                .resources
                .insert(text(other, &[accepted[0], accepted[1], field]).to_owned());
        }
        let short = texts(other, &["status", "acceptedNames", "shortNames"]);
        taken.resources.extend(short.into_iter().map(str::to_owned));
        for field in ["kind", "listKind"] {
            taken
                .kinds
                .insert(text(other, &[accepted[0], accepted[1], field]).to_owned());
        }
    }
    taken.resources.remove("");
    taken.kinds.remove("");
    taken
}

/// As much of a CRD as its names are judged by.
pub(super) fn brief(crd: &Value) -> Value {
    let spec = &crd["spec"];
    json!({
        "spec": {"group": spec["group"], "names": spec["names"]},
        "status": crd["status"],
    })
}

/// Says which names are accepted, and whether they all are; returns whether that is new.
pub(super) fn accept(crd: &mut Value, taken: &Taken, now: DateTime<Utc>) -> bool {
    let before = crd.clone();
    let mut conflict: Option<(&str, String)> = None;
    let mut accepted = before["status"]["acceptedNames"].clone();
    if !accepted.is_object() {
        accepted = json!({});
    }
    for (field, reason, used) in [
        ("plural", "PluralConflict", &taken.resources),
        ("singular", "SingularConflict", &taken.resources),
        ("shortNames", "ShortNamesConflict", &taken.resources),
        ("kind", "KindConflict", &taken.kinds),
        ("listKind", "ListKindConflict", &taken.kinds),
    ] {
        let wanted = &before["spec"]["names"][field];
        let words: Vec<&str> = match wanted {
            Value::Array(all) => all.iter().filter_map(Value::as_str).collect(),
            other => other.as_str().into_iter().collect(),
        };
        let clash = words.iter().find(|word| used.contains(**word));
        match clash {
            Some(word) => conflict = Some((reason, format!("{word:?} is already in use"))),
            None => copy(&mut accepted, &before["spec"]["names"], &[field]),
        }
    }
    copy(&mut accepted, &before["spec"]["names"], &["categories"]);
    crd["status"]["acceptedNames"] = accepted;
    match conflict {
        Some((reason, message)) => {
            set_condition(crd, "NamesAccepted", "False", reason, &message, now);
        }
        None => set_condition(
            crd,
            "NamesAccepted",
            "True",
            "NoConflicts",
            "no conflicts found",
            now,
        ),
    }
    if condition(crd, "Established").is_none() {
        let (reason, message) = if condition(crd, "NamesAccepted") == Some("True") {
            ("Installing", "the initial names have been accepted")
        } else {
            ("NotAccepted", "not all names are accepted")
        };
        set_condition(crd, "Established", "False", reason, message, now);
    }
    *crd != before
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crd(name: &str, plural: &str, kind: &str) -> Value {
        json!({"metadata": {"name": name}, "spec": {"group": "g",
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind,
                "listKind": format!("{kind}List")}}, "status": {}})
    }

    #[test]
    fn the_first_has_the_name() {
        let now = DateTime::UNIX_EPOCH;
        let mut first = crd("a", "toys", "Toy");
        assert!(accept(&mut first, &Taken::default(), now));
        assert_eq!(condition(&first, "NamesAccepted"), Some("True"));
        assert!(!accept(&mut first, &Taken::default(), now));
        let mut second = crd("b", "others", "Toy");
        let used = taken([&first].into_iter(), &second);
        assert!(accept(&mut second, &used, now));
        assert_eq!(condition(&second, "NamesAccepted"), Some("False"));
        assert_eq!(condition(&second, "Established"), Some("False"));
        assert_eq!(second["status"]["acceptedNames"]["plural"], "others");
        assert_eq!(second["status"]["acceptedNames"].get("kind"), None);
    }
}
