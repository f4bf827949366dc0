//! What is said of each failure: the link, the cause, and the commands.

use super::seeds::{
    applied, cluster, condition, diagnosed, healthy, now, policy, refers_to, refused, spec,
    stopped, unclaimed, unplaced, work,
};
use crate::explain::template::{Seen, explain};
use crate::explain::{Cause, Stage, State};
use common::api::policy::ActivationPreference;
use common::interpreter::custom::Operation;
use common::interpreter::dependencies::NamesNothing;
use serde_json::{Value, json};

/// A failure: what it is called, how the hub looks, and what is to be said of it.
pub(super) struct Failure {
    pub(super) name: &'static str,
    pub(super) seen: Seen,
    pub(super) stage: Stage,
    pub(super) cause: Cause,
    /// Where its mend is carried out; on the hub when it is none.
    pub(super) member: Option<&'static str>,
    /// What the first command of the mend has in it.
    pub(super) command: &'static str,
}

fn edited(mut seen: Seen, edit: impl FnOnce(&mut Seen)) -> Seen {
    edit(&mut seen);
    seen
}

fn every_cluster(seen: &mut Seen, changes: &Value) {
    let names: Vec<String> = seen
        .clusters
        .iter()
        .filter_map(|it| it.metadata.name.clone())
        .collect();
    seen.clusters = names.iter().map(|it| cluster(it, changes)).collect();
}

/// Everything that can be broken.
pub(super) fn failures() -> Vec<Failure> {
    use Cause as C;
    use Stage as S;
    let case = |name, seen, stage, cause, member, command| Failure {
        name,
        seen,
        stage,
        cause,
        member,
        command,
    };
    let everywhere = json!({});
    let elsewhere = policy(Some("other"), "web", &spec(&everywhere));
    let taint = |key: &str| json!({"spec": {"taints": [{"key": key, "effect": "NoSchedule"}]}});
    let silent = json!({"status": {"conditions": [
        condition("Ready", "Unknown", "ClusterStatusUnknown", "Cluster status controller stopped posting.")]}});
    let divided = json!({"replicaScheduling": {"replicaSchedulingType": "Divided",
        "replicaDivisionPreference": "Aggregated"}});
    let mut alone = divided.clone();
    alone["clusterAffinity"] = json!({"clusterNames": ["m1"]});
    let override_says = "override policy(shop/web) does not apply, overrideRules[0].plaintext: remove operation does \
                         not apply: doc is missing path: /spec/nothing";
    vec![
        case(
            "no policy",
            unclaimed(),
            S::Policy,
            C::NoPolicy,
            None,
            "kubectl apply -f -",
        ),
        case(
            "policy in another namespace",
            edited(unclaimed(), |it| it.policies = vec![elsewhere]),
            S::Policy,
            C::PolicyElsewhere,
            None,
            "namespace: shop",
        ),
        case(
            "labels that it has not",
            edited(unclaimed(), |it| {
                let mut by_label = spec(&everywhere);
                by_label["resourceSelectors"][0] = json!({"apiVersion": "apps/v1", "kind": "Deployment",
                "labelSelector": {"matchLabels": {"app": "web"}}});
                it.policies = vec![policy(None, "all", &by_label)];
            }),
            S::Policy,
            C::NoPolicy,
            None,
            "kubectl -n shop label deployments.apps web --overwrite app=web",
        ),
        case(
            "no cluster fits",
            unplaced(&json!({"clusterAffinity": {"clusterNames": ["m9"]}})),
            S::Placement,
            C::NoClusterFits,
            None,
            r#"{"clusterNames":["m1","m2","m3"]}"#,
        ),
        case(
            "no cluster has the labels",
            unplaced(&json!({"clusterAffinity": {"labelSelector":
            {"matchLabels": {"tier": "gold"}}}})),
            S::Placement,
            C::NoClusterFits,
            None,
            "kubectl label cluster m1 --overwrite tier=gold",
        ),
        case(
            "taint",
            edited(unplaced(&everywhere), |it| {
                every_cluster(it, &taint("dedicated"));
            }),
            S::Placement,
            C::Tainted,
            None,
            r#"{"clusterTolerations":[{"effect":"NoSchedule","key":"dedicated""#,
        ),
        case(
            "cordoned",
            edited(unplaced(&everywhere), |it| {
                every_cluster(it, &taint("cluster.karmada.io/unschedulable"));
            }),
            S::Placement,
            C::Tainted,
            None,
            "towline uncordon m1 m2 m3",
        ),
        case(
            "API missing",
            edited(unplaced(&everywhere), |it| {
                it.template["apiVersion"] = json!("example.com/v1");
                it.template["kind"] = json!("Widget");
                it.resource = "widgets.example.com".into();
                it.policies[0].spec.resource_selectors[0].api_version = "example.com/v1".into();
                it.policies[0].spec.resource_selectors[0].kind = "Widget".into();
                let bound = it.binding.as_mut().expect("there");
                bound.spec.resource.api_version = "example.com/v1".into();
                bound.spec.resource.kind = "Widget".into();
            }),
            S::Placement,
            C::ApiMissing,
            None,
            "name: widgets.example.com",
        ),
        case(
            "spread impossible",
            unplaced(&json!({"spreadConstraints":
            [{"spreadByField": "cluster", "minGroups": 5, "maxGroups": 5}]})),
            S::Placement,
            C::SpreadImpossible,
            None,
            r#""minGroups":3"#,
        ),
        case(
            "no group may be chosen",
            edited(
                unplaced(&json!({
                    "replicaScheduling": divided["replicaScheduling"],
                    "spreadConstraints": [{"spreadByField": "cluster", "minGroups": 2}],
                })),
                |it| {
                    let bound = it.binding.as_mut().expect("there");
                    bound.spec.replicas = Some(0);
                    let says =
                        "failed to select clusters: no enough resource when selecting 0 clusters";
                    bound.status.conditions[0].message = says.to_owned();
                },
            ),
            S::Placement,
            C::PolicyImpossible,
            None,
            "kubectl -n shop edit pp/web",
        ),
        case(
            "no region",
            unplaced(&json!({"spreadConstraints": [
            {"spreadByField": "region", "minGroups": 1, "maxGroups": 1},
            {"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}]})),
            S::Placement,
            C::FieldMissing,
            None,
            "kubectl patch cluster m1",
        ),
        case(
            "capacity",
            edited(unplaced(&divided), |it| {
                every_cluster(
                    it,
                    &json!({"status":
            {"resourceSummary": {"allocatable": {"cpu": "1"}}}}),
                );
            }),
            S::Placement,
            C::LittleRoom,
            None,
            "kubectl -n shop scale deployments.apps web --replicas=3",
        ),
        case(
            "capacity, beside a copy that the policy no longer means",
            edited(unplaced(&alone), |it| {
                every_cluster(
                    it,
                    &json!({"status":
            {"resourceSummary": {"allocatable": {"cpu": "1"}}}}),
                );
                let bound = it.binding.as_mut().expect("there");
                bound.spec.clusters = healthy().binding.expect("there").spec.clusters;
            }),
            S::Placement,
            C::LittleRoom,
            None,
            "kubectl -n shop scale deployments.apps web --replicas=5",
        ),
        case(
            "placement suspended",
            edited(healthy(), |it| {
                let bound = it.binding.as_mut().expect("there");
                bound.spec.suspension =
                    serde_json::from_value(json!({"scheduling": true})).expect("a suspension");
            }),
            S::Placement,
            C::Suspended,
            None,
            "kubectl -n shop patch rb/web-deployment",
        ),
        case(
            "suspended",
            edited(healthy(), |it| {
                let bound = it.binding.as_mut().expect("there");
                bound.spec.suspension =
                    serde_json::from_value(json!({"dispatching": true})).expect("a suspension");
                for work in &mut it.works {
                    work.spec.suspend_dispatching = Some(true);
                }
            }),
            S::Work,
            C::Suspended,
            None,
            r#"kubectl -n shop patch pp/web --type=merge -p '{"spec":{"suspension":null}}'"#,
        ),
        case(
            "a Work suspended by hand",
            edited(healthy(), |it| {
                it.works[1].spec.suspend_dispatching = Some(true);
            }),
            S::Work,
            C::Suspended,
            None,
            "kubectl -n karmada-es-m2 patch work/web-1",
        ),
        case(
            "agent gone",
            edited(healthy(), |it| it.clusters[1] = cluster("m2", &silent)),
            S::Agent,
            C::AgentGone,
            Some("m2"),
            "rollout restart deployment/towline-agent",
        ),
        case(
            "agent gone before it was placed",
            edited(unplaced(&everywhere), |it| {
                let mut gone = silent.clone();
                json_patch::merge(&mut gone, &taint("cluster.karmada.io/unreachable"));
                every_cluster(it, &gone);
            }),
            S::Placement,
            C::AgentGone,
            Some("m1"),
            "rollout restart deployment/towline-agent",
        ),
        case(
            "certificate ended",
            edited(healthy(), |it| {
                let mut ended = silent.clone();
                ended["status"]["agent"] =
                    json!({"certificateExpirationTime": "2026-01-01T00:00:00Z"});
                it.clusters[1] = cluster("m2", &ended);
            }),
            S::Agent,
            C::CertificateEnded,
            None,
            "towline token create --cluster m2 --replace",
        ),
        case(
            "permission missing",
            refused(
                "Deployment shop/web: the agent may not patch deployments.apps in the \
            namespace \"shop\"; allow it in the member with `towline register --allow deployments.apps` or with a role",
            ),
            S::Applied,
            C::PermissionMissing,
            Some("m2"),
            "towline register --allow default,deployments.apps",
        ),
        case(
            "namespace reserved",
            refused(
                "Deployment kube-public/web: namespace \"kube-public\" is reserved and no Work \
            reaches it, unless the member's owner allows it by `towline register --allow-namespace kube-public`",
            ),
            S::Applied,
            C::NamespaceReserved,
            Some("m2"),
            "towline register --allow-namespace kube-public",
        ),
        case(
            "namespace that stays on the hub",
            edited(
                refused("Deployment shop/web: namespaces \"shop\" not found"),
                |it| it.stays = true,
            ),
            S::Applied,
            C::NamespaceMissing,
            None,
            "kubectl label namespace shop namespace.karmada.io/skip-auto-propagation-",
        ),
        case(
            "namespace that the member has not",
            refused("Deployment shop/web: namespaces \"shop\" not found"),
            S::Applied,
            C::NamespaceMissing,
            Some("m2"),
            "kubectl create namespace shop",
        ),
        case(
            "image pull failing",
            diagnosed(
                "ImagePullBackOff",
                "pod web-1, container app: ImagePullBackOff: Back-off \
            pulling image \"registry/web:1\"",
            ),
            S::Health,
            C::ImagePull,
            None,
            "kubectl -n shop set image deployments.apps web app=IMAGE",
        ),
        case(
            "crash loop",
            diagnosed(
                "CrashLoopBackOff",
                "pod web-1, container app: CrashLoopBackOff, exit code 1: no \
            such file",
            ),
            S::Health,
            C::CrashLoop,
            Some("m2"),
            "kubectl -n shop logs deployments.apps/web -c app --previous",
        ),
        case(
            "out of memory",
            diagnosed(
                "OOMKilled",
                "pod web-1, container app: OOMKilled, exit code 137",
            ),
            S::Health,
            C::OutOfMemory,
            None,
            "-c app --limits=memory=256Mi",
        ),
        case(
            "quota",
            refused(
                "Deployment shop/web: deployments.apps \"web\" is forbidden: exceeded quota: few, \
            requested: count/deployments.apps=1, used: count/deployments.apps=2, limited: count/deployments.apps=2",
            ),
            S::Applied,
            C::Quota,
            Some("m2"),
            r#"patch resourcequota few --type=merge -p '{"spec":{"hard":{"count/deployments.apps":"3"}}}'"#,
        ),
        case(
            "quota of pods",
            diagnosed(
                "FailedCreate",
                "pods \"web-1\" is forbidden: exceeded quota: few, requested: \
            pods=1, used: pods=2, limited: pods=2",
            ),
            S::Health,
            C::Quota,
            Some("m2"),
            r#"{"hard":{"pods":"3"}}"#,
        ),
        case(
            "the member's admission refuses",
            refused(
                "Deployment shop/web: deployments.apps \"web\" is forbidden: \
            ValidatingAdmissionPolicy 'images' with binding 'images' denied request: only our registry",
            ),
            S::Applied,
            C::AdmissionRefused,
            Some("m2"),
            "kubectl get validatingadmissionpolicy images -o yaml",
        ),
        case(
            "conflict with another owner",
            refused(
                "Deployment shop/web: .spec.replicas is owned by \"kubectl\"; set the \
            annotation work.karmada.io/conflict-resolution: overwrite on the manifest to take over",
            ),
            S::Applied,
            C::Conflict,
            None,
            "annotate deployments.apps web work.karmada.io/conflict-resolution=overwrite",
        ),
        case(
            "dependency missing on the hub",
            edited(
                diagnosed(
                    "CreateContainerConfigError",
                    "pod web-1, container app: \
            CreateContainerConfigError: configmap \"settings\" not found",
                ),
                |it| refers_to(it, false),
            ),
            S::Health,
            C::DependencyMissing,
            None,
            "kubectl -n shop create configmap settings",
        ),
        case(
            "dependency that does not go along",
            edited(
                diagnosed(
                    "CreateContainerConfigError",
                    "pod web-1, container app: \
            CreateContainerConfigError: configmap \"settings\" not found",
                ),
                |it| refers_to(it, true),
            ),
            S::Health,
            C::DependencyMissing,
            None,
            r#"patch pp/web --type=merge -p '{"spec":{"propagateDeps":true}}'"#,
        ),
        case(
            "override that is waited for",
            edited(unclaimed(), |it| {
                let mut waits = spec(&everywhere);
                waits["dependentOverrides"] = json!(["late"]);
                it.policies = vec![policy(Some("shop"), "web", &waits)];
            }),
            S::Policy,
            C::OverrideMissing,
            None,
            r#"'{"spec":{"dependentOverrides":[]}}'"#,
        ),
        case(
            "override that its holder waits for",
            edited(healthy(), |it| {
                let mut waits = spec(&everywhere);
                waits["dependentOverrides"] = json!(["late"]);
                it.policies = vec![policy(Some("shop"), "web", &waits)];
            }),
            S::Policy,
            C::OverrideMissing,
            None,
            r#"'{"spec":{"dependentOverrides":[]}}'"#,
        ),
        case(
            "class that a new template's policy names",
            edited(unclaimed(), |it| {
                let mut named = spec(&everywhere);
                named["schedulePriority"] = json!({"priorityClassSource": "KubePriorityClass",
                    "priorityClassName": "nope"});
                it.policies = vec![policy(Some("shop"), "web", &named)];
            }),
            S::Policy,
            C::PriorityClassMissing,
            None,
            r#"kubectl -n shop patch pp/web --type=merge -p '{"spec":{"schedulePriority":null}}'"#,
        ),
        case(
            "class that its holder names",
            edited(healthy(), |it| {
                let mut named = spec(&everywhere);
                named["schedulePriority"] = json!({"priorityClassSource": "KubePriorityClass",
                    "priorityClassName": "nope"});
                it.policies = vec![policy(Some("shop"), "web", &named)];
                it.priority_classes = ["another".to_owned()].into();
            }),
            S::Policy,
            C::PriorityClassMissing,
            None,
            r#"kubectl -n shop patch pp/web --type=merge -p '{"spec":{"schedulePriority":null}}'"#,
        ),
        case(
            "override invalid",
            edited(healthy(), |it| {
                let bound = it.binding.as_mut().expect("there");
                let told = condition("Degraded", "True", "SyncWorkFailed", override_says);
                bound
                    .status
                    .conditions
                    .push(serde_json::from_value(told).expect("a condition"));
            }),
            S::Overrides,
            C::OverrideInvalid,
            None,
            r#"kubectl -n shop patch op/web --type=json -p '[{"op":"remove","path":"/spec/overrideRules/0/overriders/plaintext"}]'"#,
        ),
        case(
            "script of replicas fails",
            stopped(
                Operation::Replica,
                "<string>:2: attempt to index nil with 'n'",
            ),
            S::Binding,
            C::ScriptFailed,
            None,
            r#"kubectl patch ric/webs --type=json -p '[{"op":"remove","path":"/spec/customizations/replicaResource"}]'"#,
        ),
        case(
            "script of dependencies stopped",
            stopped(
                Operation::Dependency,
                "the script was stopped: it took more than the 500000 steps that a call may take",
            ),
            S::Binding,
            C::ScriptFailed,
            None,
            r#"kubectl patch ric/webs --type=json -p '[{"op":"remove","path":"/spec/customizations/dependencyInterpretation"}]'"#,
        ),
        case(
            "reference that names nothing",
            edited(healthy(), |it| it.nameless = Some(NamesNothing(1))),
            S::Binding,
            C::NamesNothing,
            None,
            "kubectl -n shop edit deployments.apps web",
        ),
        case(
            "script of shares fails",
            stopped(Operation::ReviseReplica, "<string>:7: no"),
            S::Work,
            C::ScriptFailed,
            None,
            r#"kubectl patch ric/webs --type=json -p '[{"op":"remove","path":"/spec/customizations/replicaRevision"}]'"#,
        ),
        case(
            "script of the status fails",
            stopped(
                Operation::AggregateStatus,
                "not found function AggregateStatus",
            ),
            S::Health,
            C::ScriptFailed,
            None,
            r#"kubectl patch ric/webs --type=json -p '[{"op":"remove","path":"/spec/customizations/statusAggregation"}]'"#,
        ),
        case(
            "hub's disk full",
            edited(healthy(), |it| {
                it.hub = Some(
                    "the API server is not ready: store failed: \
            database or disk is full"
                        .into(),
                );
            }),
            S::Hub,
            C::HubNotReady,
            None,
            "df -h",
        ),
        case(
            "no cluster",
            edited(unplaced(&everywhere), |it| it.clusters.clear()),
            S::Placement,
            C::NoClusters,
            None,
            "towline token create",
        ),
        case(
            "a namespace that is passed over",
            edited(unclaimed(), |it| {
                it.template["metadata"]["namespace"] = json!("kube-public");
            }),
            S::Policy,
            C::Skipped,
            None,
            "kubectl create namespace",
        ),
        case(
            "nobody has looked",
            edited(unclaimed(), |it| {
                it.policies = vec![policy(Some("shop"), "web", &spec(&everywhere))];
            }),
            S::Policy,
            C::HubIsLate,
            None,
            "towline check",
        ),
        case(
            "no binding",
            edited(healthy(), |it| it.binding = None),
            S::Binding,
            C::HubIsLate,
            None,
            "towline check",
        ),
        case(
            "lazy policy",
            edited(healthy(), |it| {
                it.binding = None;
                it.policies[0].spec.activation_preference = Some(ActivationPreference::Lazy);
            }),
            S::Binding,
            C::Lazy,
            None,
            r#"patch pp/web --type=merge -p '{"spec":{"activationPreference":null}}'"#,
        ),
        case(
            "a former Work that cannot go",
            edited(healthy(), |it| {
                let waits = "Deletion waits for: ConfigMap shop/web";
                let told = condition("Degraded", "True", "DeletionBlocked", waits);
                it.works[1] = work("m2", &[applied(), told], &json!({}));
                it.works[1].metadata.deletion_timestamp = Some(common::time::to_time(now()));
            }),
            S::Work,
            C::Deleting,
            None,
            "kubectl -n karmada-es-m2 describe work web-1",
        ),
        case(
            "no answer",
            edited(healthy(), |it| it.works[1] = work("m2", &[], &json!({}))),
            S::Applied,
            C::HubIsLate,
            None,
            "towline why cluster/m2",
        ),
    ]
}

#[test]
fn the_first_broken_link_is_named_with_what_mends_it() {
    let mut told = 0;
    for failure in failures() {
        let Failure {
            name,
            seen,
            stage,
            cause,
            member,
            command,
        } = failure;
        let report = explain(&seen);
        assert!(!report.well, "{name}");
        let broken = report
            .broken
            .as_ref()
            .unwrap_or_else(|| panic!("{name}: nothing is broken"));
        assert_eq!(
            (broken.stage, broken.cause),
            (stage, cause),
            "{name}: {broken:?}"
        );
        assert_eq!(broken.mend.member.as_deref(), member, "{name}");
        let first = broken
            .mend
            .commands
            .first()
            .unwrap_or_else(|| panic!("{name}: no command"));
        assert!(first.contains(command), "{name}: {first}");
        // It is the last of the links, and the only one that does not hold.
        let (last, before) = report.links.split_last().expect("links");
        assert_eq!(last.stage, stage, "{name}");
        assert!(
            before.iter().all(|it| it.state == State::Ok),
            "{name}: {before:?}"
        );
        told += 1;
    }
    assert!(told > 34, "only {told}");
}

#[test]
fn every_cluster_is_chosen_or_refused_by_a_filter() {
    let mut seen = unplaced(&json!({"clusterAffinity": {"clusterNames": ["m1", "m2"]}}));
    seen.clusters[0] = cluster(
        "m1",
        &json!({"spec": {"taints": [{"key": "k", "value": "v", "effect": "NoExecute"}]}}),
    );
    seen.clusters[1] = cluster("m2", &json!({"status": {"apiEnablements": []}}));
    let report = explain(&seen);
    let last = report.links.last().expect("a link");
    let told: Vec<String> = last
        .details
        .iter()
        .map(|it| format!("{} {}", it.of, it.what))
        .collect();
    assert_eq!(
        told,
        [
            "m1 refused by TaintToleration: taint k=v:NoExecute is not tolerated",
            "m2 refused by APIEnablement: it does not serve the kind",
            "m3 refused by ClusterAffinity: the policy does not mean it",
        ]
    );
    let mut gone = healthy();
    gone.clusters.push(cluster("m4", &json!({})));
    let bound = gone.binding.as_mut().expect("there");
    bound.spec.clusters[1].name = "m4".to_owned();
    let report = explain(&gone);
    let of = |stage| report.links.iter().find(move |it| it.stage == stage);
    let told = of(Stage::Placement).and_then(|it| it.details.last());
    assert_eq!(
        told.map(|it| &*it.what),
        Some(
            "chosen, with 2 replicas; now refused by ClusterAffinity: the policy does not mean it"
        )
    );
    let report = explain(&healthy());
    let placement = report
        .links
        .iter()
        .find(|it| it.stage == Stage::Placement)
        .expect("a link");
    let told: Vec<&str> = placement
        .details
        .iter()
        .map(|it| it.what.as_str())
        .collect();
    assert_eq!(told[0], "chosen, with 4 replicas");
    assert_eq!(
        told[2],
        "refused by ClusterAffinity: the policy does not mean it"
    );
}
