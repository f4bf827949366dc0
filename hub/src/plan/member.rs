//! What becomes of a template in one member: what it has, and what it is to have, compared. Pure.

use super::answer::{ClusterPlan, Step, Verdict};
use super::copies::Copy;
use super::difference::{differences, without_secrets};

/// What becomes of it; `at_once` is whether it is left at the moment at which it comes there, `preserved` whether its
/// objects stay when it goes.
pub(super) fn in_cluster(
    cluster: &str,
    was: Option<&Copy>,
    will: Option<&Copy>,
    at_once: bool,
    preserved: bool,
) -> ClusterPlan {
    let manifest = |copy: Option<&Copy>| copy?.manifest.as_ref()?.as_ref().ok().cloned();
    // What comes and is left again is there as it came.
    let passing = will.filter(|it| it.leaving && was.is_none());
    let told = manifest(will).or(passing.and_then(|it| it.left.clone()));
    let mut changes = match (manifest(was), &told) {
        (Some(was), Some(will)) => without_secrets(will, differences(&was, will)),
        _ => Vec::new(),
    };
    let replicas = Step {
        before: was.and_then(|it| it.replicas),
        after: will.filter(|it| !it.leaving).and_then(|it| it.replicas),
    };
    let problem = will.and_then(|it| it.manifest.as_ref()?.as_ref().err());
    let stood = was.and_then(|it| it.manifest.as_ref()?.as_ref().err());
    let mut verdict = match (was, will) {
        (None | Some(Copy { leaving: true, .. }), Some(Copy { leaving: false, .. })) => {
            Verdict::Gained
        }
        (_, None) => Verdict::Lost,
        (None | Some(Copy { leaving: false, .. }), Some(Copy { leaving: true, .. })) => {
            Verdict::Leaves
        }
        (_, Some(Copy { leaving: true, .. })) => Verdict::Stays,
        _ if replicas.before != replicas.after || !changes.is_empty() || problem != stood => {
            Verdict::Changed
        }
        _ => Verdict::Stays,
    };
    let comes = matches!(verdict, Verdict::Gained | Verdict::Changed);
    let suspended = |copy: Option<&Copy>| copy.is_some_and(|it| it.suspended);
    let held = comes && suspended(will);
    let released = suspended(was) && will.is_some_and(Copy::is_dispatched);
    if held {
        // The Work becomes another one, and the member takes nothing of it.
        verdict = Verdict::Stays;
        changes.clear();
    } else if released {
        verdict = Verdict::Changed;
    }
    ClusterPlan {
        cluster: cluster.to_owned(),
        verdict,
        passing: passing.is_some() && at_once,
        held,
        released,
        preserved: preserved && matches!(verdict, Verdict::Lost | Verdict::Leaves),
        replicas,
        changes,
        overrides: will.map(|it| it.overrides.clone()).unwrap_or_default(),
        overridden: will.map(|it| it.overridden.clone()).unwrap_or_default(),
        problem: problem.cloned(),
        manifest: told,
        untold: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn copy(image: &str, suspended: bool) -> Copy {
        Copy {
            manifest: Some(Ok(json!({"image": image}))),
            suspended,
            ..Copy::default()
        }
    }

    #[test]
    fn what_is_suspended_is_held_back_and_comes_when_it_is_so_no_longer() {
        let failing = Copy {
            manifest: Some(Err("why".to_owned())),
            ..Copy::default()
        };
        let leaving = Copy {
            leaving: true,
            ..Copy::default()
        };
        let (running, held) = (copy("1", false), copy("1", true));
        let (other, other_held) = (copy("2", false), copy("2", true));
        // What it has, what it is to have; what becomes of it, whether that is held back, whether something comes that was.
        let cases = [
            (Some(&running), Some(&other), Verdict::Changed, false, false),
            (Some(&running), Some(&held), Verdict::Stays, false, false),
            (
                Some(&running),
                Some(&other_held),
                Verdict::Stays,
                true,
                false,
            ),
            (Some(&held), Some(&held), Verdict::Stays, false, false),
            (Some(&held), Some(&other_held), Verdict::Stays, true, false),
            (None, Some(&held), Verdict::Stays, true, false),
            (Some(&leaving), Some(&held), Verdict::Stays, true, false),
            (Some(&held), Some(&running), Verdict::Changed, false, true),
            (Some(&held), Some(&other), Verdict::Changed, false, true),
            // Its Work stays as it was, and with it that it is suspended.
            (Some(&held), Some(&failing), Verdict::Changed, false, false),
            (Some(&held), Some(&leaving), Verdict::Leaves, false, false),
            (Some(&held), None, Verdict::Lost, false, false),
        ];
        for (case, (was, will, verdict, held, released)) in cases.into_iter().enumerate() {
            let told = in_cluster("m1", was, will, false, false);
            let found = (told.verdict, told.held, told.released);
            assert_eq!(found, (verdict, held, released), "case {case}");
            assert!(!held || told.changes.is_empty(), "case {case}");
            // What its Work says is foretold all the same.
            let said = will.and_then(|it| it.manifest.clone()?.ok());
            assert_eq!(told.manifest, said, "case {case}");
        }
    }

    #[test]
    fn objects_stay_only_where_a_copy_goes() {
        let (running, leaving) = (
            copy("1", false),
            Copy {
                leaving: true,
                ..Copy::default()
            },
        );
        for (will, preserved) in [
            (None, true),
            (Some(&leaving), true),
            (Some(&running), false),
        ] {
            let told = in_cluster("m1", Some(&running), will, false, true);
            assert_eq!(told.preserved, preserved, "{:?}", told.verdict);
        }
    }
}
