//! What is known of kinds: the ResourceInterpreterCustomizations of the hub, read once each time they change.

use super::held::Change;
use super::view::View;
use super::whole::Whole;
use common::api::interpreter::CustomizationSpec;
use common::gvk::{GroupKind, Gvk};
use common::interpreter::custom::Customizations;
use common::interpreter::layers::Interpreter;
use common::lock::lock;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// A ResourceInterpreterCustomization.
pub type Customization = Whole<CustomizationSpec>;

impl Customization {
    /// The kind that it is about.
    pub fn kind(&self) -> Option<Gvk> {
        kind(&self.spec)
    }
}

fn kind(spec: &CustomizationSpec) -> Option<Gvk> {
    Gvk::new(&spec.target.api_version, &spec.target.kind)
}

/// What is known of kinds with these customizations.
pub fn interpreter_of(
    all: &BTreeMap<String, Arc<Customization>>,
    shipped: &Arc<Customizations>,
) -> Interpreter {
    let all = all.iter().map(|(name, it)| (name.as_str(), &it.spec));
    Interpreter::new(Arc::new(Customizations::new(all)), Arc::clone(shipped))
}

/// The customizations, and what they make of kinds; clones share it.
#[derive(Clone)]
pub struct Kinds {
    /// The objects.
    pub view: View<Customization>,
    known: Arc<Mutex<Known>>,
}

struct Known {
    specs: BTreeMap<String, CustomizationSpec>,
    customized: Arc<Customizations>,
    shipped: Arc<Customizations>,
    interpreter: Interpreter,
}

impl Kinds {
    /// Of a view that nobody listens to yet: whoever does later finds it known what a change brings.
    pub(super) fn new(view: View<Customization>, shipped: Arc<Customizations>) -> Self {
        let known = Arc::new(Mutex::new(Known {
            specs: BTreeMap::new(),
            customized: Arc::default(),
            interpreter: Interpreter::new(Arc::default(), Arc::clone(&shipped)),
            shipped,
        }));
        let to = Arc::clone(&known);
        view.on_change(move |change| lock(&to).take(change));
        Self { view, known }
    }

    /// What is known now.
    pub fn interpreter(&self) -> Interpreter {
        lock(&self.known).interpreter.clone()
    }

    /// Calls `each` with the kinds that a customization was about, or is now.
    pub fn on_change(&self, mut each: impl FnMut(&GroupKind) + Send + 'static) {
        self.view.on_change(move |change| {
            let both = change.before().into_iter().chain(change.after());
            let kinds = both.filter_map(|it| it.kind());
            let kinds: BTreeSet<GroupKind> = kinds.map(|it| it.group_kind()).collect();
            kinds.iter().for_each(&mut each);
        });
    }
}

impl Known {
    fn take(&mut self, change: &Change<Customization>) {
        let name = change.name.name.to_string();
        let after = change.after().map(|it| it.spec.clone());
        let mut kinds: BTreeSet<Gvk> = after.iter().filter_map(kind).collect();
        let before = match after {
            Some(after) => self.specs.insert(name, after),
            None => self.specs.remove(&name),
        };
        kinds.extend(before.iter().filter_map(kind));
        for gvk in kinds {
            let same = self
                .specs
                .iter()
                .filter(|(_, spec)| kind(spec).as_ref() == Some(&gvk));
            let same = same.map(|(name, spec)| (name.as_str(), spec));
            self.customized = Arc::new(self.customized.with(&gvk, same));
        }
        let (customized, shipped) = (Arc::clone(&self.customized), Arc::clone(&self.shipped));
        self.interpreter = Interpreter::new(customized, shipped);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::testing::unreachable;
    use serde_json::{Value, json};

    fn customization(name: &str, version: u32, replicas: u32) -> Value {
        let script = format!("function GetReplicas() return {replicas} end");
        json!({"metadata": {"name": name, "resourceVersion": version.to_string()}, "spec": {
            "target": {"apiVersion": "shop.example.com/v1", "kind": "Till"},
            "customizations": {"replicaResource": {"luaScript": script}}}})
    }

    #[tokio::test]
    async fn whoever_is_told_of_a_change_finds_it_known() {
        let world = unreachable();
        let kinds = &world.propagation.kinds;
        let gvk = Gvk::new("shop.example.com/v1", "Till").expect("sound");
        let count = {
            let (kinds, gvk) = (kinds.clone(), gvk.clone());
            move || {
                let found = kinds.interpreter().replicas(&gvk, &json!({}));
                found.expect("answers").map(|it| it.replicas)
            }
        };
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (to, asked) = (Arc::clone(&seen), count.clone());
        kinds.on_change(move |kind| {
            lock(&to).push((kind.kind.clone(), asked()));
        });
        assert_eq!(count(), None);
        kinds.view.listed(&[customization("b", 1, 3)]).await;
        kinds
            .view
            .sent(&[customization("a", 2, 4), customization("a", 3, 5)])
            .await;
        kinds.view.listed(&[customization("b", 4, 3)]).await;
        let told: Vec<_> = lock(&seen).iter().map(|(_, count)| *count).collect();
        assert_eq!(told[..3], [Some(3), Some(4), Some(5)]);
        assert_eq!(told.last(), Some(&Some(3)));
    }
}
