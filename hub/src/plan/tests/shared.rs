//! What others take along, when they or its own policy are gone.

use super::*;

#[test]
fn what_many_share_goes_when_all_of_them_are_deleted() {
    let many = 140;
    let hub = then(&sharing(many), &[apply(along("m1"))]);
    let deletes = (0..many).map(|number| delete(&deployment(&format!("web-{number:03}"), 1)));
    let deletes: Vec<Change> = deletes.collect();
    let plan = planned(&hub, &deletes);
    assert_eq!(plan.unknown, Vec::<String>::new());
    assert_eq!(plan.templates.len(), many + 1);
    let conf = plan.templates.iter().find(|it| it.name == "conf");
    let clusters = conf.iter().flat_map(|it| &it.clusters);
    let clusters: Vec<_> = clusters
        .map(|it| (it.cluster.as_str(), it.verdict))
        .collect();
    assert_eq!(clusters, [("m1", Verdict::Lost)]);
}

#[test]
fn what_its_policy_lets_go_stays_where_that_says_so_though_others_take_it_along() {
    // What its own policy says, and what becomes of its objects in the cluster that it leaves.
    for preserve in [true, false] {
        let mut own = policy("conf", json!({"clusterAffinity": {"clusterNames": ["m3"]}}));
        own["spec"]["resourceSelectors"] = json!([{"apiVersion": "v1", "kind": "ConfigMap"}]);
        own["spec"]["preserveResourcesOnDeletion"] = json!(preserve);
        let placed = [apply(along("m1")), apply(own.clone())];
        let hub = then(&sharing(1), &placed);
        let plan = planned(&hub, &[delete(&own)]);
        let conf = plan.templates.iter().find(|it| it.name == "conf");
        let clusters = conf.iter().flat_map(|it| &it.clusters);
        let clusters: Vec<_> = clusters
            .map(|it| (it.cluster.as_str(), it.verdict, it.preserved))
            .collect();
        let stays = ("m1", Verdict::Stays, false);
        assert_eq!(clusters, [stays, ("m3", Verdict::Lost, preserve)]);
    }
}
