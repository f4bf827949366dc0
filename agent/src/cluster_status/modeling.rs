//! How much room the nodes have left, as counts of nodes per grade of the Cluster's resource models.
//!
//! Pure. A node's grade is, over all modelled resources, the lowest of the highest grades whose
//! minimum the node still has free.

use common::interpreter::requests::Amounts;
use common::quantity::Quantity;

/// One grade as the agent uses it: its number and the minimum of each modelled resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grade {
    /// The grade's number.
    pub grade: i64,
    /// Resource name and minimum.
    pub minima: Vec<(String, Quantity)>,
}

/// What a node offers and what pods took of it, in thousandths, `pods` among them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeRoom {
    /// Allocatable of the node.
    pub allocatable: Amounts,
    /// Requests of the pods on it.
    pub taken: Amounts,
}

impl NodeRoom {
    /// What is free of one resource; never negative.
    fn free(&self, name: &str) -> i128 {
        let of = |amounts: &Amounts| amounts.get(name).copied().unwrap_or(0);
        (of(&self.allocatable) - of(&self.taken)).max(0)
    }
}

/// Counts the nodes of each grade, one entry for each model in the models' order.
///
/// A node with no pod slot left offers nothing and is in no grade; the nodes after it still count.
pub fn count(models: &[Grade], nodes: &[NodeRoom]) -> Vec<(i64, i64)> {
    let mut counts: Vec<(i64, i64)> = models.iter().map(|m| (m.grade, 0)).collect();
    for node in nodes {
        if node.free("pods") < 1000 {
            continue;
        }
        if let Some(index) = grade_of(models, node) {
            counts[index].1 += 1;
        }
    }
    counts
}

fn grade_of(models: &[Grade], node: &NodeRoom) -> Option<usize> {
    let resources = models.first()?.minima.iter().map(|(name, _)| name);
    resources
        .map(|name| {
            let free = Quantity::from_milli(node.free(name));
            let fits = |model: &Grade| {
                let minimum = model.minima.iter().find(|(n, _)| n == name);
                minimum.is_some_and(|(_, min)| *min <= free)
            };
            // The first grade starts at zero; a node below every minimum belongs there all the same.
            models.iter().rposition(fits).unwrap_or(0)
        })
        .min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn models() -> Vec<Grade> {
        [(0, "0", "0"), (1, "1", "4Gi"), (2, "2", "16Gi")]
            .into_iter()
            .map(|(grade, cpu, memory)| Grade {
                grade,
                minima: vec![
                    ("cpu".into(), Quantity::parse(cpu).expect("cpu")),
                    ("memory".into(), Quantity::parse(memory).expect("memory")),
                ],
            })
            .collect()
    }

    fn amounts(cpu: &str, memory: &str, pods: &str) -> Amounts {
        [("cpu", cpu), ("memory", memory), ("pods", pods)]
            .into_iter()
            .map(|(name, text)| {
                let milli = Quantity::parse(text).expect("a quantity").milli_ceil();
                (name.to_owned(), milli)
            })
            .collect()
    }

    fn node(allocatable: Amounts, taken: Amounts) -> NodeRoom {
        NodeRoom { allocatable, taken }
    }

    #[test]
    fn nodes_fall_into_grades() {
        let free = Amounts::new;
        let cases: [(&str, NodeRoom, Option<i64>); 7] = [
            (
                "roomy",
                node(amounts("32", "128Gi", "110"), free()),
                Some(2),
            ),
            (
                "exactly the minimum",
                node(amounts("2", "16Gi", "110"), free()),
                Some(2),
            ),
            (
                "just under it",
                node(amounts("2", "16777215Ki", "110"), free()),
                Some(1),
            ),
            (
                "the scarcer resource decides",
                node(amounts("32", "1Gi", "110"), free()),
                Some(0),
            ),
            (
                "what pods took is gone",
                node(amounts("32", "128Gi", "110"), amounts("31", "1Gi", "5")),
                Some(1),
            ),
            (
                "over-committed is zero, not negative",
                node(amounts("4", "16Gi", "110"), amounts("9", "1Gi", "5")),
                Some(0),
            ),
            (
                "no pod slot left",
                node(amounts("32", "128Gi", "5"), amounts("1", "1Gi", "5")),
                None,
            ),
        ];
        for (name, node, want) in cases {
            let counts = count(&models(), &[node]);
            let got = counts.iter().find(|(_, n)| *n > 0).map(|(grade, _)| *grade);
            assert_eq!(got, want, "{name}");
        }
    }

    #[test]
    fn a_full_node_does_not_hide_the_next() {
        let full = node(amounts("32", "128Gi", "5"), amounts("1", "1Gi", "5"));
        let roomy = node(amounts("32", "128Gi", "110"), Amounts::new());
        let counts = count(&models(), &[full, roomy.clone(), roomy]);
        assert_eq!(counts, vec![(0, 0), (1, 0), (2, 2)]);
    }

    #[test]
    fn without_models_there_is_nothing_to_count() {
        assert_eq!(count(&[], &[NodeRoom::default()]), vec![]);
    }
}
