//! Who is owned by whom.

use crate::apiserver::control::node::Node;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Objects with owners, both ways.
#[derive(Debug, Default)]
pub(super) struct Graph {
    owners: BTreeMap<Node, Vec<String>>,
    owned: HashMap<String, BTreeSet<Node>>,
}

impl Graph {
    /// Notes the owners of an object, by uid.
    pub(super) fn put(&mut self, node: Node, owners: Vec<String>) {
        self.remove(&node);
        if owners.is_empty() {
            return;
        }
        for owner in &owners {
            let owned = self.owned.entry(owner.clone()).or_default();
            owned.insert(node.clone());
        }
        self.owners.insert(node, owners);
    }

    pub(super) fn remove(&mut self, node: &Node) {
        for owner in self.owners.remove(node).into_iter().flatten() {
            if let Some(owned) = self.owned.get_mut(&owner) {
                owned.remove(node);
                if owned.is_empty() {
                    self.owned.remove(&owner);
                }
            }
        }
    }

    /// What an owner owns.
    pub(super) fn owned_by(&self, uid: &str) -> Vec<Node> {
        let owned = self.owned.get(uid).into_iter().flatten();
        owned.cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn both_ways_agree() {
        let kind: Arc<str> = "/a".into();
        let node = |name: &str| Node::new(&kind, "n", name);
        let mut graph = Graph::default();
        graph.put(node("x"), vec!["1".to_owned(), "2".to_owned()]);
        graph.put(node("y"), vec!["1".to_owned()]);
        assert_eq!(graph.owned_by("1"), [node("x"), node("y")]);
        graph.put(node("x"), vec!["2".to_owned()]);
        assert_eq!(graph.owned_by("1"), [node("y")]);
        graph.remove(&node("x"));
        graph.put(node("y"), Vec::new());
        assert!(graph.owners.is_empty() && graph.owned.is_empty());
    }
}
