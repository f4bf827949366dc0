//! Why this hub does not lead: its API server does not answer, has controllers of its own, or another replica leads.

use super::{Error, LEASE};
use crate::install::{MARKER, is_built_in};
use common::admin::Check;
use common::client::classify;
use common::leader::Standing;
use common::names::SYSTEM_NAMESPACE;
use common::signal;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use std::time::Duration;
use tokio::time::sleep;

/// How long until an API server that did not answer is asked again, before the election begins.
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// Asks the API server until it answers, and fails when it is the built-in one.
pub(super) async fn refuse_built_in(client: &Client, check: &Check) -> Result<(), Error> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), SYSTEM_NAMESPACE);
    let mut told = None;
    loop {
        let problem = match maps.get_opt(MARKER).await {
            Ok(marker) if marker.as_ref().is_some_and(is_built_in) => {
                return Err(Error::BuiltIn);
            }
            Ok(_) => return Ok(()),
            Err(error) => classify(&error),
        };
        // What needs it says so itself.
        if problem.code() == Some(403) {
            return Ok(());
        }
        if told.as_ref() != Some(&problem) {
            tracing::warn!(%problem, "the hub's API server does not answer; trying again");
            check.fail(format!("the hub's API server does not answer: {problem}"));
            told = Some(problem);
        }
        sleep(ASK_AGAIN).await;
    }
}

/// Says why this hub does not lead, and shows on /readyz whether it could: it has read the Lease.
pub(super) async fn show_standing(mut standing: signal::Receiver<Standing>, check: Check) {
    let mut has_read = false;
    loop {
        let now = standing.borrow_and_update().clone();
        now.tell(
            &format!("the hub's Lease {SYSTEM_NAMESPACE}/{LEASE}"),
            "run `towline init`",
        );
        match now {
            Standing::Leads | Standing::Follows(_) => {
                has_read = true;
                check.ok();
            }
            Standing::Failing(problem) if !has_read => {
                check.fail(format!("the Lease cannot be read or written: {problem}"));
            }
            Standing::Failing(_) | Standing::Unknown => {}
        }
        if standing.changed().await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::admin::AdminState;
    use common::client::Problem;
    use std::pin::pin;

    #[tokio::test]
    async fn a_hub_is_ready_once_it_has_read_the_lease() {
        let state = AdminState::default();
        let (tells, standing) = signal::channel(Standing::default());
        let check = state.readiness.add("leader-election");
        let mut shown = pin!(show_standing(standing, check));
        let failing = || Standing::Failing(Problem::Other("401".to_owned()));
        for (now, ready) in [
            (Standing::Unknown, false),
            (failing(), false),
            // One that stands by is ready.
            (Standing::Follows("another".to_owned()), true),
            (failing(), true),
            (Standing::Leads, true),
        ] {
            let told = format!("{now:?}");
            tells.send_replace(now);
            assert!(futures::poll!(shown.as_mut()).is_pending());
            assert_eq!(state.readiness.all_ok(), ready, "{told}");
        }
    }
}
