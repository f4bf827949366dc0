use super::*;
use crate::explain::text;
use serde_json::json;

const HOLDS: &str = "Deployment shop/web is held until 2030-01-01T00:00:00Z";
const WAITS: &str = "Deletion waits for: ConfigMap shop/old (finalizers: example.com/x)";

/// The Work `web-1` of m1, which takes Deployments of these names there, with what its member says.
fn work(names: &[&str], status: &str, reason: &str, message: &str) -> Work {
    let manifests = names.iter().map(|name| {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": "shop", "name": name}})
    });
    let manifests: Vec<Value> = manifests.collect();
    let condition = json!({"type": "Degraded", "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    serde_json::from_value(json!({
        "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
        "metadata": {"name": "web-1", "namespace": "karmada-es-m1"},
        "spec": {"workload": {"manifests": manifests}},
        "status": {"conditions": [condition]},
    }))
    .expect("a Work")
}

fn broken(stage: Stage, cause: Cause, cluster: &str, what: &str) -> Broken {
    Broken {
        stage,
        cause,
        cluster: Some(cluster.to_owned()).filter(|it| !it.is_empty()),
        what: what.to_owned(),
        mend: on_hub("", []),
    }
}

/// What was found before.
fn report(broken: Option<Broken>) -> Report {
    let healthy = Link {
        stage: Stage::Health,
        state: State::Ok,
        what: "in 1 of 1 clusters".to_owned(),
        details: Vec::new(),
    };
    Report {
        subject: "deployment.apps/web in namespace shop".to_owned(),
        well: broken.is_none(),
        links: vec![healthy],
        broken,
        also: Vec::new(),
        unseen: Vec::new(),
    }
}

#[test]
fn each_reason_has_its_cause_and_what_to_do() {
    let may_not = "Deletion waits for: ConfigMap shop/old: the agent may not delete configmaps in the namespace \
                   \"shop\"; allow it in the member with `towline register --allow configmaps` or with a role for the \
                   agent's ServiceAccount";
    let fought = "Deployment shop/other is held by nobody; Deployment shop/web is changed by others again and again; \
                  it is healed next at 2030-01-01T00:00:00Z";
    let describe = "kubectl -n karmada-es-m1 describe work web-1";
    for (reason, message, cause, member, command) in [
        ("DeletionBlocked", WAITS, Cause::Deleting, None, describe),
        (
            "DeletionBlocked",
            may_not,
            Cause::PermissionMissing,
            None,
            describe,
        ),
        (
            "HealingPaused",
            HOLDS,
            Cause::Suspended,
            Some("m1"),
            "kubectl -n shop annotate deployment.apps web towline.dev/hold-until-",
        ),
        (
            "HealingPaused",
            fought,
            Cause::Conflict,
            Some("m1"),
            "kubectl -n shop get deployment.apps web -o yaml --show-managed-fields",
        ),
        ("Another", "no", Cause::Refused, None, describe),
    ] {
        let works = [work(&["web", "other"], "True", reason, message)];
        let told = told(report(None), &works);
        let found = told.broken.expect("broken");
        assert!(!told.well, "{message}");
        assert_eq!((found.stage, found.cause), (Stage::Work, cause));
        assert_eq!(found.what, format!("m1, work/web-1: {message}"));
        assert_eq!(found.mend.member.as_deref(), member, "{message}");
        assert_eq!(found.mend.commands, [command], "{message}");
        let last = told.links.last().expect("a link");
        let waits = cause == Cause::Deleting;
        assert_eq!(last.state == State::Waiting, waits, "{message}");
    }
}

#[test]
fn it_is_shown_as_every_link_is() {
    let works = [work(&["web"], "True", "HealingPaused", HOLDS)];
    let told = told(report(None), &works);
    let shown = text::render(&told, None, |_, word| word.to_owned());
    let wanted = "\
deployment.apps/web in namespace shop: broken at its work
  ok      health  in 1 of 1 clusters
  BROKEN  work    m1, work/web-1: Deployment shop/web is held until 2030-01-01T00:00:00Z

Somebody holds it by the annotation towline.dev/hold-until: take that off when it may be as wanted again, or let the \
time pass.
With the kubeconfig of m1:
  kubectl -n shop annotate deployment.apps web towline.dev/hold-until-
";
    assert_eq!(shown, wanted);
}

/// An agent that is not there says nothing new; and nothing is said twice.
#[test]
fn it_comes_behind_what_was_found_unless_that_settles_it() {
    let known = format!("a former Work for it is being deleted first: {WAITS}");
    for (stage, cause, cluster, what, is_told) in [
        (Stage::Placement, Cause::NoClusterFits, "", "none", true),
        (Stage::Health, Cause::CrashLoop, "m1", "it crashes", true),
        (Stage::Agent, Cause::AgentGone, "m2", "silent", true),
        (Stage::Work, Cause::Deleting, "m2", known.as_str(), true),
        (Stage::Work, Cause::Deleting, "m1", known.as_str(), false),
        (Stage::Agent, Cause::AgentGone, "m1", "silent", false),
        (Stage::Agent, Cause::CertificateEnded, "m1", "ended", false),
        (Stage::Registration, Cause::Quarantined, "m1", "held", false),
        // There the agent is at work.
        (Stage::Registration, Cause::Deleting, "m1", "it goes", true),
        (Stage::Ready, Cause::MemberNotReady, "m1", "sick", true),
        (Stage::Work, Cause::ClusterMissing, "m1", "none", false),
        (Stage::Hub, Cause::HubNotReady, "", "full", false),
    ] {
        let first = broken(stage, cause, cluster, what);
        let works = [work(&["web"], "True", "DeletionBlocked", WAITS)];
        let told = told(report(Some(first.clone())), &works);
        assert_eq!(told.broken, Some(first), "{stage:?} of {cluster}");
        assert_eq!(told.links.len(), 1, "{stage:?} of {cluster}");
        let also = usize::from(is_told);
        assert_eq!(told.also.len(), also, "{stage:?} of {cluster}");
    }
    let healed = work(&["web"], "False", "Healing", "Every drift is healed.");
    assert!(told(report(None), &[healed]).well);
    // What may yet go by itself comes last.
    let works = [
        work(&["web"], "True", "DeletionBlocked", WAITS),
        work(&["web"], "True", "HealingPaused", HOLDS),
    ];
    let told = told(report(None), &works);
    let causes = told.broken.iter().chain(&told.also).map(|it| it.cause);
    let causes: Vec<Cause> = causes.collect();
    assert_eq!(causes, [Cause::Suspended, Cause::Deleting]);
}

#[test]
fn a_shell_takes_names_in_commands_as_words() {
    for name in ["$(reboot)", "a b", "`x`"] {
        let message = format!("Deployment shop/{name} is held until 2030-01-01T00:00:00Z; {HOLDS}");
        let works = [work(&[name, "web"], "True", "HealingPaused", &message)];
        let told = told(report(None), &works);
        let commands = told.broken.expect("broken").mend.commands;
        let wanted = [format!("'{name}'"), "web".to_owned()]
            .map(|it| format!("kubectl -n shop annotate deployment.apps {it} {HOLD_UNTIL}-"));
        assert_eq!(commands, wanted);
    }
}

/// Nobody corrects what was said of healing once nobody heals.
#[test]
fn what_is_suspended_or_goes_is_not_told_to_be_held() {
    let held = work(&["web"], "True", "HealingPaused", HOLDS);
    assert!(!told(report(None), std::slice::from_ref(&held)).well);
    let (mut suspended, mut goes) = (held.clone(), held);
    suspended.spec.suspend_dispatching = Some(true);
    let at = json!("2026-01-01T00:00:00Z");
    goes.metadata.deletion_timestamp = serde_json::from_value(at).expect("a time");
    assert!(told(report(None), &[suspended, goes]).well);
}

/// What a Work of its own and one in the way of another say while they are being deleted.
#[test]
fn a_work_that_does_not_go_says_what_to_do() {
    let may_not = "Deletion waits for: ConfigMap shop/web: the agent may not delete configmaps";
    for (status, message, cause, words) in [
        ("True", WAITS, Cause::Deleting, WAITS),
        ("True", may_not, Cause::PermissionMissing, may_not),
        ("False", "", Cause::Deleting, ""),
    ] {
        let work = work(&["web"], status, "DeletionBlocked", message);
        let (found, said, mend) = leaving(&work, "m1");
        assert_eq!((found, said.trim_start_matches(": ")), (cause, words));
        assert_eq!(
            mend.commands,
            ["kubectl -n karmada-es-m1 describe work web-1"]
        );
    }
}
