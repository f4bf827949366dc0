//! What ends otherwise in another order, or by what nobody can know before.

use super::*;

#[test]
fn a_tie_that_a_uid_settles_is_told() {
    let mut new = deployment("web", 3);
    new["metadata"]
        .as_object_mut()
        .expect("an object")
        .remove("uid");
    let hub = hub(&[apply(policy("web", weighed(&[("m1", 1), ("m2", 1)])))]);
    let plan = planned(&hub, &[apply(new)]);
    let template = &plan.templates[0];
    assert_eq!(template.or.len(), 1, "{template:?}");
    let sum = |shares: &[Share]| -> i32 { shares.iter().filter_map(|it| it.replicas).sum() };
    assert_eq!(sum(&template.or[0]), 3);
}

#[test]
fn a_cluster_that_goes_while_a_template_is_edited_is_told_in_whatever_order_it_is_asked() {
    let roomy = |name: &str, pods: u32| {
        let mut cluster = cluster(name);
        cluster["status"]["resourceSummary"]["allocatable"] = json!({"pods": pods.to_string()});
        apply(cluster)
    };
    let hub = hub(&[
        roomy("m1", 2),
        roomy("m2", 2),
        roomy("m3", 0),
        apply(policy("web", by_room())),
        apply(deployment("web", 4)),
        roomy("m1", 1),
        roomy("m2", 3),
        roomy("m3", 1),
    ]);
    let ends = |changes: &[Change]| -> BTreeSet<Vec<Share>> {
        let plan = planned(&hub, changes);
        let [template] = plan.templates.as_slice() else {
            panic!("{plan:?}");
        };
        let clusters = template.clusters.iter();
        let placed = clusters.filter(|it| it.verdict != Verdict::Lost);
        let first = placed.map(|it| Share {
            cluster: it.cluster.clone(),
            replicas: it.replicas.after,
        });
        let others = template.or.iter().cloned();
        others.chain([first.collect()]).collect()
    };
    let (goes, edited) = (delete(&cluster("m1")), apply(deployment("web", 7)));
    let named = ends(&[goes.clone(), edited.clone()]);
    assert_eq!(named, ends(&[edited, goes]));
    // At once: five more are wanted, and there is room for four.
    let stays = vec![Share {
        cluster: "m2".to_owned(),
        replicas: Some(2),
    }];
    assert!(named.len() > 1 && named.contains(&stays), "{named:?}");
}

#[test]
fn whoever_takes_a_template_first_keeps_it_and_another_may_be_first() {
    let selecting = |mut policy: Value, selector: Value| {
        policy["spec"]["resourceSelectors"] = json!([selector]);
        policy
    };
    let mut everything = policy("all", json!({}));
    everything["kind"] = json!("ClusterPropagationPolicy");
    everything["metadata"] = json!({"name": "all"});
    let red = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "labelSelector": {"matchLabels": {"colour": "red"}}});
    let one = selecting(policy("one", json!({})), red);
    let mut painted = deployment("web", 1);
    painted["metadata"]["labels"] = json!({"colour": "red"});
    let hub = hub(&[apply(one), apply(deployment("web", 1))]);
    let plan = planned(&hub, &[apply(everything), apply(painted)]);
    let template = &plan.templates[0];
    let after = template.policy.after.as_deref();
    assert_eq!(after, Some("ClusterPropagationPolicy all"));
    assert_eq!(template.or, Vec::<Vec<Share>>::new());
    let held = "held by PropagationPolicy shop/one".to_owned();
    assert!(template.otherwise.contains(&held), "{template:?}");
}

#[test]
fn few_changes_come_in_every_order_and_many_in_some() {
    let counts: Vec<usize> = (0..5).map(|many| orders(many).len()).collect();
    assert_eq!(counts, [1, 1, 3, 13, 3]);
    for many in 0..5 {
        let orders = orders(many);
        assert_eq!(orders[0], straight(many));
        for order in &orders {
            let mut all: Vec<usize> = order.iter().flatten().copied().collect();
            all.sort_unstable();
            assert_eq!(all, (0..many).collect::<Vec<_>>(), "{order:?}");
        }
        let different: BTreeSet<_> = orders.iter().collect();
        assert_eq!(different.len(), orders.len());
    }
}
