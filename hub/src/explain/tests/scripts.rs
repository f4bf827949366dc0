//! Scripts of customizations that fail in a member: named as what they are, with what mends them.

use super::seeds::{applied, condition, healthy, refused, work};
use crate::explain::template::explain;
use crate::explain::{Cause, Stage};
use serde_json::json;

#[test]
fn scripts_that_fail_are_named_as_such() {
    let message = "ResourceInterpreterCustomization tills, InterpretHealth: the script was stopped";
    let mut unknown = healthy();
    let told = condition("Interpreted", "False", "ScriptFailed", message);
    unknown.works[1] = work("m2", &[applied(), told], &json!({"health": "Unknown"}));
    let retaining = "Deployment shop/web: ResourceInterpreterCustomization tills, Retain: no";
    for (seen, stage) in [
        (unknown, Stage::Health),
        (refused(retaining), Stage::Applied),
    ] {
        let broken = explain(&seen).broken.expect("something is wrong");
        assert_eq!((broken.stage, broken.cause), (stage, Cause::ScriptFailed));
        assert_eq!(broken.cluster.as_deref(), Some("m2"));
        assert!(
            broken
                .what
                .contains("ResourceInterpreterCustomization tills, "),
            "{}",
            broken.what
        );
        assert_eq!(
            broken.mend.commands,
            ["kubectl get resourceinterpretercustomizations"]
        );
    }
}
