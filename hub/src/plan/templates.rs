//! The templates of a hub in memory, and what was written of claims into them. Pure.

use super::looks;
use super::state::{Edited, Subject, Touched};
use crate::controller::dependencies::sought::Sought;
use crate::controller::detector::claim::MetadataPatch;
use crate::controller::detector::wake;
use crate::propagation::Template;
use crate::snapshot::Snapshot;
use crate::world::{ObjectName, TemplateName};
use common::gvk::GroupKind;
use common::names::fnv1a;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A template.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub identity: Template,
    pub object: Value,
}

/// Templates, by their names.
#[derive(Debug, Clone, Default)]
pub(super) struct Templates {
    all: BTreeMap<TemplateName, Arc<Held>>,
    /// What was written of claims since: whoever applies a file leaves it there.
    claims: BTreeMap<TemplateName, MetadataPatch>,
}

impl Templates {
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        let all = snapshot.templates.iter().map(|(name, template)| {
            let held = Held {
                identity: template.identity.clone(),
                object: template.object(),
            };
            (name.clone(), Arc::new(held))
        });
        Self {
            all: all.collect(),
            claims: BTreeMap::new(),
        }
    }

    pub(super) fn get(&self, name: &TemplateName) -> Option<&Arc<Held>> {
        self.all.get(name)
    }

    /// All of them; only for what happens a few times in a plan.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&TemplateName, &Arc<Held>)> {
        self.all.iter().inspect(|_| looks::one())
    }

    /// All their names.
    pub(super) fn names(&self) -> BTreeSet<TemplateName> {
        self.iter().map(|(name, _)| name.clone()).collect()
    }

    /// One is made, or is this from then on; `odd` says of which parity the UID of a new one is.
    pub(super) fn apply(&mut self, subject: &Subject, object: &Value, odd: bool) -> Touched {
        let name = subject.template();
        let old = self.all.get(&name).cloned();
        let mut object = object.clone();
        let metadata = &mut object["metadata"];
        match &old {
            // Neither does a file have one, nor is that of a trial the one that it gets.
            Some(old) => metadata["uid"] = json!(old.identity.uid),
            None if metadata["uid"].as_str().is_none_or(str::is_empty) => {
                metadata["uid"] = json!(made_up(odd));
            }
            None => {}
        }
        // Another one than any before.
        let version = old.as_ref().map(|old| &old.identity.resource_version);
        let version = version.map_or("planned".to_owned(), |it| format!("planned after {it}"));
        metadata["resourceVersion"] = json!(version);
        if let Some(claim) = self.claims.get(&name) {
            write(claim, &mut object);
        }
        let Some(identity) = Template::of(&object) else {
            return Touched::default();
        };
        let edit = wake::edit(old.as_ref().map(|it| &it.identity), &identity);
        let held = Arc::new(Held { identity, object });
        self.all.insert(name.clone(), held);
        Touched {
            templates: [name.clone()].into(),
            edited: edit.map(|edit| Edited {
                name,
                edit,
                was: old,
            }),
            ..Touched::default()
        }
    }

    /// One goes.
    pub(super) fn remove(&mut self, name: TemplateName) -> Touched {
        self.all.remove(&name);
        self.claims.remove(&name);
        Touched {
            templates: [name].into(),
            ..Touched::default()
        }
    }

    /// One shows another policy.
    pub(super) fn claim(&mut self, name: &TemplateName, claim: &MetadataPatch) {
        let Some(held) = self.all.get(name) else {
            return;
        };
        let mut object = held.object.clone();
        write(claim, &mut object);
        if let Some(identity) = Template::of(&object) {
            let held = Held { identity, object };
            self.all.insert(name.clone(), Arc::new(held));
        }
        let known = self.claims.entry(name.clone()).or_default();
        known.labels.extend(claim.labels.clone());
        known.annotations.extend(claim.annotations.clone());
    }

    /// Those that a change of a policy wakes.
    pub(super) fn woken(&self, woken: &wake::Woken) -> BTreeSet<TemplateName> {
        let fits = |given: &Option<String>, is: &str| given.as_deref().is_none_or(|it| it == is);
        let meant = |name: &TemplateName, held: &Held| {
            let selected = woken.selected.iter().any(|it| {
                it.group == name.kind.group
                    && it.kind == name.kind.kind
                    && fits(&it.namespace, &name.name.namespace)
                    && fits(&it.name, &name.name.name)
            });
            let held = || woken.held_by.is_some() && wake::holder(&held.identity) == woken.held_by;
            selected || held()
        };
        let all = self.iter();
        all.filter(|(name, held)| meant(name, held))
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// Those that a binding may take along under this key.
    pub(super) fn sought(&self, key: &Sought) -> Vec<TemplateName> {
        let named = |name: &str| TemplateName {
            kind: GroupKind {
                group: key.group.clone(),
                kind: key.kind.clone(),
            },
            name: ObjectName::new(Some(&key.namespace), name),
        };
        if let Some(name) = &key.name {
            let name = named(name);
            return Vec::from_iter(self.all.contains_key(&name).then_some(name));
        }
        let first = named("");
        let from = self.all.range(&first..).map(|(name, _)| name);
        let beside =
            |it: &&TemplateName| it.kind == first.kind && it.name.namespace == first.name.namespace;
        from.inspect(|_| looks::one())
            .take_while(beside)
            .cloned()
            .collect()
    }
}

fn write(claim: &MetadataPatch, object: &mut Value) {
    for (part, changes) in [
        ("labels", &claim.labels),
        ("annotations", &claim.annotations),
    ] {
        let texts = &mut object["metadata"][part];
        for (key, value) in changes {
            match (value, texts.as_object_mut()) {
                (None, Some(texts)) => {
                    texts.remove(key);
                }
                (None, None) => {}
                (Some(value), _) => texts[key] = json!(value),
            }
        }
    }
}

/// A UID that nobody has: it settles ties as those of its parity do.
fn made_up(odd: bool) -> String {
    let wanted = u32::from(odd);
    let mut all = (0..).map(|number: u32| format!("not made yet {number}"));
    let found = all.find(|uid| fnv1a(uid) % 2 == wanted);
    found.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_labels_may_select_lies_beside_it_and_is_of_its_kind() {
        let mut templates = Templates::default();
        for (kind, namespace, name) in [
            ("ConfigMap", "shop", "b"),
            ("ConfigMap", "shop", "a"),
            ("ConfigMap", "shop-2", "a"),
            ("ConfigMap", "sho", "a"),
            ("ConfigMapping", "shop", "a"),
            ("Config", "shop", "a"),
        ] {
            let object = json!({"apiVersion": "v1", "kind": kind,
                "metadata": {"namespace": namespace, "name": name, "uid": "u"}});
            let subject = Subject::of(&object).expect("sound");
            templates.apply(&subject, &object, false);
        }
        // What is given of a name, and what is found under it.
        let cases: [(Option<&str>, &[&str]); 3] =
            [(None, &["a", "b"]), (Some("b"), &["b"]), (Some("c"), &[])];
        for (name, found) in cases {
            let key = Sought {
                group: String::new(),
                kind: "ConfigMap".to_owned(),
                namespace: "shop".to_owned(),
                name: name.map(str::to_owned),
            };
            let sought = templates.sought(&key).into_iter();
            let shown: Vec<String> = sought.map(|it| it.to_string()).collect();
            let names: Vec<String> = templates
                .sought(&key)
                .iter()
                .map(|it| it.name.name.to_string())
                .collect();
            assert_eq!(names, found, "{shown:?}");
        }
    }
}
