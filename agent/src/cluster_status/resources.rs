//! Nodes and pods of the member, folded into sums: a few bytes kept for each, nothing of the objects.
//!
//! Pure. A watch feeds it; a list that starts anew marks what it sees and drops the rest at its end.

use super::modeling::NodeRoom;
use common::interpreter::requests::{Amounts, List, Name, Pod, amounts};
use common::quantity::{Format, Quantity};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

const CPU: &str = "cpu";
const MEMORY: &str = "memory";
const PODS: &str = "pods";
/// Most resource names in one map of the status.
const MAX_RESOURCES: usize = 64;
/// One pod, in thousandths.
const ONE_POD: i128 = 1000;

/// The fields of a node that count.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Node {
    /// Identity.
    #[serde(default)]
    pub metadata: Name,
    /// What it offers and whether it is ready.
    #[serde(default)]
    pub status: NodeStatus,
}

/// The fields of a node's status that count.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct NodeStatus {
    #[serde(default)]
    allocatable: List,
    #[serde(default)]
    conditions: Vec<NodeCondition>,
}

#[derive(Debug, Clone, Deserialize)]
struct NodeCondition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
}

/// What the nodes and pods add up to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sums {
    /// Nodes there are.
    pub nodes: i32,
    /// Nodes with Ready=True.
    pub ready_nodes: i32,
    /// Allocatable of all nodes.
    pub allocatable: Amounts,
    /// Requests of pods that wait for a node.
    pub allocating: Amounts,
    /// Requests of pods on a node that have not ended.
    pub allocated: Amounts,
}

/// What is kept of one pod: 40 bytes, and a few more when it asks for anything but CPU and memory.
#[derive(Debug, Clone)]
struct PodRecord {
    /// Hash of its node's name; 0 while it has none.
    node: u64,
    memory: u64,
    other: Option<Box<[(u16, i128)]>>,
    cpu_milli: u32,
    epoch: u8,
}

/// What is kept of one node.
#[derive(Debug, Clone)]
struct NodeRecord {
    allocatable: Box<[(u16, i128)]>,
    ready: bool,
    epoch: u8,
}

/// The fold.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Goes into every hash, so that nobody can choose names that collide.
    salt: u64,
    nodes: BTreeMap<u64, NodeRecord>,
    pods: HashMap<u64, PodRecord>,
    node_epoch: u8,
    pod_epoch: u8,
    /// Resource names in the order first seen; records hold indices.
    names: Vec<String>,
    changed: bool,
}

impl Ledger {
    /// An empty one, whose hashes nobody can foresee who does not know `salt`.
    pub fn new(salt: u64) -> Self {
        Self {
            salt,
            ..Self::default()
        }
    }

    /// A list of nodes begins: what it does not show is gone.
    pub fn nodes_restart(&mut self) {
        self.node_epoch = self.node_epoch.wrapping_add(1);
    }

    /// The list of nodes is complete.
    pub fn nodes_listed(&mut self) {
        let epoch = self.node_epoch;
        self.nodes.retain(|_, record| record.epoch == epoch);
        self.changed = true;
    }

    /// A node as it is now.
    pub fn node(&mut self, node: &Node) {
        let record = NodeRecord {
            allocatable: self.pack(amounts(&node.status.allocatable)),
            ready: node
                .status
                .conditions
                .iter()
                .any(|c| c.type_ == "Ready" && c.status == "True"),
            epoch: self.node_epoch,
        };
        let key = self.key(&["", &node.metadata.name]);
        let old = self.nodes.insert(key, record.clone());
        // A node's heartbeat changes nothing that counts here.
        self.changed |= old
            .is_none_or(|old| old.ready != record.ready || old.allocatable != record.allocatable);
    }

    /// A node is there but cannot be read.
    pub fn node_kept(&mut self, name: &str) {
        let (key, epoch) = (self.key(&["", name]), self.node_epoch);
        self.nodes
            .entry(key)
            .and_modify(|record| record.epoch = epoch);
    }

    /// A node is gone.
    pub fn node_deleted(&mut self, name: &str) {
        let key = self.key(&["", name]);
        self.changed |= self.nodes.remove(&key).is_some();
    }

    /// A list of pods begins.
    pub fn pods_restart(&mut self) {
        self.pod_epoch = self.pod_epoch.wrapping_add(1);
    }

    /// The list of pods is complete.
    pub fn pods_listed(&mut self) {
        let epoch = self.pod_epoch;
        self.pods.retain(|_, record| record.epoch == epoch);
        self.pods.shrink_to_fit();
        self.changed = true;
    }

    /// A pod as it is now.
    pub fn pod(&mut self, pod: &Pod) {
        if pod.ended() {
            self.pod_deleted(&pod.metadata.namespace, &pod.metadata.name);
            return;
        }
        let record = self.record(pod);
        let key = self.key(&[&pod.metadata.namespace, &pod.metadata.name]);
        let old = self.pods.insert(key, record.clone());
        self.changed |= old.is_none_or(|old| !old.counts_as(&record));
    }

    /// A pod is there but cannot be read.
    pub fn pod_kept(&mut self, namespace: &str, name: &str) {
        let (key, epoch) = (self.key(&[namespace, name]), self.pod_epoch);
        self.pods
            .entry(key)
            .and_modify(|record| record.epoch = epoch);
    }

    /// A pod is gone.
    pub fn pod_deleted(&mut self, namespace: &str, name: &str) {
        let key = self.key(&[namespace, name]);
        self.changed |= self.pods.remove(&key).is_some();
    }

    /// Whether anything that counts moved since the last call.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// Adds everything up.
    #[expect(clippy::iter_over_hash_type, reason = "a sum has no order")]
    pub fn sums(&self) -> Sums {
        let count = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
        let mut allocatable = vec![0; self.names.len()];
        for node in self.nodes.values() {
            add(&mut allocatable, &node.allocatable);
        }
        let (mut waiting, mut placed) = (Taken::default(), Taken::default());
        for pod in self.pods.values() {
            if pod.node == 0 {
                &mut waiting
            } else {
                &mut placed
            }
            .take(pod);
        }
        Sums {
            nodes: count(self.nodes.len()),
            ready_nodes: count(self.nodes.values().filter(|n| n.ready).count()),
            allocatable: self.named(&allocatable),
            allocating: self.unfold(&waiting),
            allocated: self.unfold(&placed),
        }
    }

    /// The room on each node, for the resource models.
    pub fn rooms(&self) -> Vec<NodeRoom> {
        let mut taken: BTreeMap<u64, Taken> = BTreeMap::new();
        for pod in self.pods.values().filter(|pod| pod.node != 0) {
            taken.entry(pod.node).or_default().take(pod);
        }
        let room = |(key, node): (&u64, &NodeRecord)| {
            let mut allocatable = vec![0; self.names.len()];
            add(&mut allocatable, &node.allocatable);
            NodeRoom {
                allocatable: self.named(&allocatable),
                taken: taken.get(key).map(|t| self.unfold(t)).unwrap_or_default(),
            }
        };
        self.nodes.iter().map(room).collect()
    }

    fn record(&mut self, pod: &Pod) -> PodRecord {
        let mut rest = pod.requests();
        let mut cpu_milli = 0;
        if let Some(small) = rest.get(CPU).and_then(|v| u32::try_from(*v).ok()) {
            cpu_milli = small;
            rest.remove(CPU);
        }
        let mut memory = 0;
        let whole = rest.get(MEMORY).filter(|v| **v % 1000 == 0);
        if let Some(bytes) = whole.and_then(|v| u64::try_from(*v / 1000).ok()) {
            memory = bytes;
            rest.remove(MEMORY);
        }
        rest.retain(|_, value| *value != 0);
        PodRecord {
            node: match pod.spec.node_name.as_str() {
                "" => 0,
                name => self.key(&["", name]),
            },
            memory,
            other: (!rest.is_empty()).then(|| self.pack(rest)),
            cpu_milli,
            epoch: self.pod_epoch,
        }
    }

    fn pack(&mut self, amounts: Amounts) -> Box<[(u16, i128)]> {
        let mut packed = Vec::with_capacity(amounts.len());
        for (name, value) in amounts {
            if let Some(id) = self.id(name) {
                packed.push((id, value));
            }
        }
        packed.into_boxed_slice()
    }

    /// The index of a resource name; none beyond 65,536 different ones.
    fn id(&mut self, name: String) -> Option<u16> {
        if let Some(known) = self.names.iter().position(|n| *n == name) {
            return u16::try_from(known).ok();
        }
        let id = u16::try_from(self.names.len()).ok()?;
        self.names.push(name);
        Some(id)
    }

    /// A hash that is never 0; names do not hold the byte that parts them.
    fn key(&self, parts: &[&str]) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.salt, parts).hash(&mut hasher);
        hasher.finish().max(1)
    }

    fn named(&self, values: &[i128]) -> Amounts {
        let nonzero =
            |(name, value): (&String, &i128)| (*value != 0).then(|| (name.clone(), *value));
        self.names.iter().zip(values).filter_map(nonzero).collect()
    }

    fn unfold(&self, taken: &Taken) -> Amounts {
        let mut values = vec![0; self.names.len()];
        for (id, value) in &taken.other {
            values[usize::from(*id)] += value;
        }
        let mut out = self.named(&values);
        for (name, value) in [
            (CPU, taken.cpu_milli),
            (MEMORY, taken.memory_milli),
            (PODS, taken.pods * ONE_POD),
        ] {
            if value != 0 {
                *out.entry(name.to_owned()).or_default() += value;
            }
        }
        out
    }
}

impl PodRecord {
    /// Whether two records add the same to the sums.
    fn counts_as(&self, other: &Self) -> bool {
        (self.node, self.cpu_milli, self.memory, &self.other)
            == (other.node, other.cpu_milli, other.memory, &other.other)
    }
}

/// What some pods take together.
#[derive(Debug, Default)]
struct Taken {
    pods: i128,
    cpu_milli: i128,
    memory_milli: i128,
    other: BTreeMap<u16, i128>,
}

impl Taken {
    fn take(&mut self, pod: &PodRecord) {
        self.pods += 1;
        self.cpu_milli += i128::from(pod.cpu_milli);
        self.memory_milli += i128::from(pod.memory) * 1000;
        for (id, value) in pod.other.iter().flat_map(|other| other.iter()) {
            *self.other.entry(*id).or_default() += value;
        }
    }
}

fn add(to: &mut [i128], packed: &[(u16, i128)]) {
    for (id, value) in packed {
        to[usize::from(*id)] += value;
    }
}

/// Sums as the API writes them: canonical quantities, zeros left out, at most as many as the schema
/// takes; extended resources, whose names have a domain, are the first to be left out.
pub fn list(amounts: &Amounts) -> BTreeMap<String, ApiQuantity> {
    let mut entries: Vec<_> = amounts.iter().filter(|(_, milli)| **milli != 0).collect();
    entries.sort_by_key(|(name, _)| (name.contains('/'), *name));
    entries.truncate(MAX_RESOURCES);
    let text = |name: &str, milli: i128| {
        let canonical = Quantity::from_milli(milli).canonical(Format::of_resource(name));
        ApiQuantity(canonical.to_string())
    };
    entries
        .into_iter()
        .map(|(name, milli)| (name.clone(), text(name, *milli)))
        .collect()
}

#[cfg(test)]
mod tests;
