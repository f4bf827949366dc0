//! What others take along, also when they or its own policy are gone.

use super::*;

/// The ConfigMap that others refer to.
fn conf() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "conf", "namespace": "shop", "uid": "c"}, "data": {"a": "b"}})
}

/// A Deployment that refers to it.
fn referring(name: &str) -> Value {
    let mut web = deployment(name, 1);
    web["spec"]["template"]["spec"]["containers"][0]["envFrom"] =
        json!([{"configMapRef": {"name": "conf"}}]);
    web
}

/// `many` Deployments that all refer to one ConfigMap, of which nothing is placed yet.
fn sharing(many: usize) -> Snapshot {
    let one = |number: usize| apply(referring(&format!("web-{number:03}")));
    let changes: Vec<Change> = (0..many).map(one).chain([apply(conf())]).collect();
    hub(&changes)
}

/// What the policy `web` places on a cluster goes there with what it refers to.
fn along(cluster: &str) -> Value {
    let mut policy = policy(
        "web",
        json!({"clusterAffinity": {"clusterNames": [cluster]}}),
    );
    policy["spec"]["propagateDeps"] = json!(true);
    policy
}

#[test]
fn eight_times_as_many_bindings_are_looked_at_some_eight_times_as_often() {
    let looked = |many: usize| {
        let hub = then(&sharing(many), &[apply(along("m1"))]);
        let before = looks::all();
        let plan = planned(&hub, &[apply(along("m3"))]);
        let looked = looks::all() - before;
        assert_eq!(plan.templates.len(), many + 1);
        // However many share the ConfigMap, it follows all of them.
        assert_eq!(plan.unknown, Vec::<String>::new());
        for template in &plan.templates {
            let clusters = template.clusters.iter();
            let clusters: Vec<_> = clusters
                .map(|it| (it.cluster.as_str(), it.verdict))
                .collect();
            let moves = [("m1", Verdict::Lost), ("m3", Verdict::Gained)];
            assert_eq!(clusters, moves, "{}", template.name);
        }
        looked
    };
    let (few, many) = (looked(20), looked(160));
    assert!(few > 20, "nothing is counted");
    assert!(many < 12 * few, "{few} and {many}");
}

#[test]
fn what_a_template_refers_to_goes_along() {
    let hub = hub(&[apply(along("m3"))]);
    let plan = planned(&hub, &[apply(conf()), apply(referring("web"))]);
    let told: Vec<String> = plan
        .templates
        .iter()
        .map(|it| {
            format!(
                "{} {} {:?}",
                it.kind, it.clusters[0].cluster, it.policy.after
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            "ConfigMap m3 None",
            "Deployment m3 Some(\"PropagationPolicy shop/web\")"
        ]
    );
}

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

#[test]
fn what_takes_others_along_has_its_works_made_when_they_follow_it_no_longer() {
    let configuring = |name: &str, value: &str| {
        let mut conf = conf();
        conf["metadata"]["name"] = json!(name);
        conf["data"]["a"] = json!(value);
        apply(conf)
    };
    let mut edited = referring("web");
    edited["spec"]["template"]["spec"]["containers"][0]["image"] = json!("registry.io/web:2");
    let edited = || apply(edited.clone());
    // It has a policy of its own, which finds no place for it.
    let mut own = policy("conf", json!({"clusterAffinity": {"clusterNames": ["m9"]}}));
    own["spec"]["resourceSelectors"] =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "conf"}]);
    let mut waiting = along("m1");
    waiting["spec"]["dependentOverrides"] = json!(["missing"]);
    let placed = [
        apply(along("m1")),
        apply(own.clone()),
        apply(conf()),
        apply(referring("web")),
    ];
    let hub = then(&hub(&placed), &[apply(waiting)]);
    // Changes; what becomes of `web` in m1, which image it is told to run there if it is told one, and whether that is
    // otherwise in another order.
    let cases = [
        (vec![edited()], Verdict::Stays, None, false),
        (
            vec![edited(), configuring("conf", "c")],
            Verdict::Stays,
            None,
            false,
        ),
        (
            vec![edited(), delete(&conf())],
            Verdict::Changed,
            Some("registry.io/web:2"),
            true,
        ),
        (vec![edited(), delete(&own)], Verdict::Stays, None, false),
        // Its status says of one cluster more that it is not the one.
        (
            vec![edited(), apply(cluster("m4"))],
            Verdict::Stays,
            None,
            false,
        ),
        (
            vec![edited(), configuring("other", "c")],
            Verdict::Stays,
            None,
            false,
        ),
    ];
    for (changes, verdict, image, open) in cases {
        let plan = planned(&hub, &changes);
        let web = plan.templates.iter().find(|it| it.name == "web");
        let web = web.unwrap_or_else(|| panic!("{changes:?} {plan:?}"));
        let [m1] = web.clusters.as_slice() else {
            panic!("{web:?}");
        };
        let path = "/spec/template/spec/containers/0/image";
        let told = m1.manifest.as_ref().map(|it| it.pointer(path));
        let told = told.map(|it| it.and_then(Value::as_str).unwrap_or_default());
        let found = (m1.verdict, told, web.is_open());
        assert_eq!(found, (verdict, image, open), "{changes:?}");
        assert!(web.waits.after.is_some(), "{changes:?}");
    }
}
