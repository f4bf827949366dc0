//! What no script may answer, and how that is told.

use super::*;

/// The texts by which people find what is wrong with their script.
#[test]
fn wrong_answers_are_told_as_the_reference_tells_them() {
    let told = |operation: Operation, script: &str| {
        let rules = rules(&[(operation, script)]);
        let failed = match operation {
            Operation::Retain => rules.retain(&object(), &object()).map(|it| it.map(drop)),
            Operation::Replica => rules.replicas(&object()).map(|it| it.map(drop)),
            Operation::Component => rules.components(&object()).map(|it| it.map(drop)),
            Operation::ReviseReplica => rules.revise(&object(), 1).map(|it| it.map(drop)),
            Operation::Status => rules.reflect(&object()).map(|it| it.map(drop)),
            Operation::AggregateStatus => rules.aggregate(&object(), &[]).map(|it| it.map(drop)),
            Operation::Health => rules.health(&object()).map(|it| it.map(drop)),
            Operation::Dependency => rules.dependencies(&object()).map(|it| it.map(drop)),
        };
        failed.expect("asked").expect_err(script).to_string()
    };
    for (operation, script, want) in [
        (
            Operation::Health,
            "x = 1",
            "not found function InterpretHealth",
        ),
        (
            Operation::Health,
            "InterpretHealth = 1",
            "InterpretHealth is not a function: number",
        ),
        (
            Operation::Health,
            "function InterpretHealth() end",
            "result type 0 is not bool",
        ),
        (
            Operation::Health,
            "function InterpretHealth() return 1 end",
            "result type 2 is not bool",
        ),
        (
            Operation::Replica,
            "function GetReplicas() return 'x' end",
            "result type 3 is not number",
        ),
        (
            Operation::Replica,
            "function GetReplicas() return 1, 2 end",
            "expect the returned requires type is table but got number",
        ),
        (
            Operation::Replica,
            "function GetReplicas() return -1 end",
            "-1 is no number of replicas",
        ),
        (
            Operation::Replica,
            "function GetReplicas() return -1.5 end",
            "-1 is no number of replicas",
        ),
        (
            Operation::Replica,
            "function GetReplicas() return 0/0 end",
            "NaN is no number of replicas",
        ),
        (
            Operation::Replica,
            "function GetReplicas() return 1/0 end",
            "inf is no number of replicas",
        ),
        (
            Operation::Replica,
            "function GetReplicas() return 1e10 end",
            "10000000000 is no number of replicas",
        ),
        (
            Operation::Replica,
            "function GetReplicas() return 1, {resourceRequest = {cpu = 'x'}} end",
            "resourceRequest of cpu is not a quantity",
        ),
        (
            Operation::Replica,
            "function GetReplicas() return 1, {nodeClaim = 5} end",
            "the returned requirements: ",
        ),
        (
            Operation::Retain,
            "function Retain() end",
            "expect the returned requires type is table but got nil",
        ),
        (
            Operation::ReviseReplica,
            "function ReviseReplica() return 1 end",
            "expect the returned requires type is table but got number",
        ),
        (
            Operation::AggregateStatus,
            "function AggregateStatus() end",
            "expect the returned requires type is table but got nil",
        ),
        (
            Operation::AggregateStatus,
            "function AggregateStatus() return {status = {1}} end",
            "the returned status is a list",
        ),
        (
            Operation::Status,
            "function ReflectStatus() end",
            "expect the returned replica type is table but got nil",
        ),
        (
            Operation::Dependency,
            "function GetDependencies() end",
            "expect the returned requires type is table but got nil",
        ),
        (
            Operation::Dependency,
            "function GetDependencies() return {{kind = 'a', name = 'b'}} end",
            "dependencies[0].apiVersion: missing required apiVersion",
        ),
        (
            Operation::Dependency,
            "function GetDependencies() return {{apiVersion = 'v1', name = 'b'}} end",
            "dependencies[0].kind: missing required kind",
        ),
        (
            Operation::Dependency,
            "function GetDependencies() return {{apiVersion = 'v1', kind = 'a', name = ''}} end",
            "dependencies[0]: dependency can not leave name and labelSelector all empty",
        ),
        (
            Operation::Dependency,
            "function GetDependencies() return {{apiVersion = 1, kind = 'a', name = 'b'}} end",
            "dependencies[0]: invalid type",
        ),
        (
            Operation::Dependency,
            "function GetDependencies() local t = {} for i = 1, 300 do t[i] = {apiVersion = 'v1', kind = 'a', name = 'b' .. i} end return t end",
            "more than 256 dependencies",
        ),
        (
            Operation::Health,
            "\n\nfunction InterpretHealth(o) return o.no.thing end",
            "<string>:3: attempt to index nil with 'thing'",
        ),
        (
            Operation::Health,
            "function InterpretHealth(o) return == end",
            "<string>:1: Expected identifier when parsing expression, got '=='",
        ),
        (
            Operation::Health,
            "function InterpretHealth() while true do end end",
            "the script was stopped: it took more than the 500000 steps",
        ),
        (
            Operation::Health,
            "while true do end",
            "the script was stopped",
        ),
        (
            Operation::Health,
            "require('kube').resourceAdd('x')",
            "\"x\" is not a quantity",
        ),
    ] {
        let text = told(operation, script);
        let head = format!(
            "ResourceInterpreterCustomization tills, {}: ",
            operation.name()
        );
        assert!(
            text.starts_with(&head) && text.contains(want),
            "{script}: {text}"
        );
    }
}

#[test]
fn no_script_decides_which_object_it_is() {
    for change in [
        "kind = 'Secret'",
        "apiVersion = 'v1'",
        "metadata.name = 'b'",
        "metadata.namespace = 'kube-system'",
        "metadata.labels['towline.dev/mark'] = nil",
        "metadata.annotations['work.karmada.io/name'] = 'x'",
        "metadata.finalizers = {'a/b'}",
        "metadata.ownerReferences = {{name = 'a'}}",
        "metadata.labels = {1, 2}",
        "metadata = nil",
    ] {
        let revise = format!("function ReviseReplica(o) o.{change} return o end");
        let retain = format!("function Retain(o) o.{change} return o end");
        let rules = rules(&[
            (Operation::ReviseReplica, &revise),
            (Operation::Retain, &retain),
        ]);
        let revised = rules.revise(&object(), 1).expect("asked");
        let retained = rules.retain(&object(), &object()).expect("asked");
        for result in [revised, retained] {
            let failed = result.expect_err(change);
            assert!(matches!(failed.problem, Problem::Identity(_)), "{failed}");
        }
    }
}
