//! One member, asked through the hub.

use super::question::Question;
use super::target::Target;
use crate::cli::error::request_error;
use crate::cli::kubeconfig::Way;
use crate::cli::{CliError, Kind};
use common::mapper::{Resource, group_version_path, resources};
use common::rest::{Call, Error as RestError, JSON};
use kube::Client;
use serde_json::Value;
use std::time::Duration;

/// Longest page of an answer, in bytes.
const PAGE_BYTES: usize = 32 * 1024 * 1024;
/// Objects of one member that are shown; whoever wants more names a namespace or a selector.
const OBJECTS: usize = 50_000;

/// What a member has.
#[derive(Debug)]
pub(super) enum Answered {
    /// Rows as its API server shows them.
    Table(Value),
    /// Whole objects.
    Items(Vec<Value>),
}

/// Why there is nothing of a member.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// It took too long.
    #[error("no answer within {} s", .0.as_secs_f64())]
    Late(Duration),
    /// The hub or the member refused, or the answer broke off.
    #[error(transparent)]
    Asked(RestError),
    /// An answer in another form than was asked for.
    #[error("the answer is neither a table nor a list")]
    Form,
    /// A name that is several words, or none that an object can have.
    #[error("the name or namespace of an object there is no plain word; -o json shows it")]
    Named,
    /// More than anybody reads.
    #[error("more than {OBJECTS} objects: name a namespace or a selector")]
    Long,
    /// What is asked for makes no path.
    #[error("what is asked for cannot be written as a request")]
    Path,
}

impl Failure {
    /// Whether somebody said no.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(self, Self::Asked(error) if matches!(error.code(), Some(401 | 403)))
    }
}

/// All that a member has of what is asked for. One that is slow holds up no other: what is late is given up alone, and
/// the connection to the hub stays.
pub(super) async fn ask(
    client: &Client,
    question: &Question<'_>,
    target: &Target,
    within: Duration,
) -> Result<Answered, Failure> {
    let answer = tokio::time::timeout(within, pages(client, question, target)).await;
    answer.unwrap_or(Err(Failure::Late(within)))
}

async fn pages(
    client: &Client,
    question: &Question<'_>,
    target: &Target,
) -> Result<Answered, Failure> {
    let rows = if question.whole { "items" } else { "rows" };
    let mut all = Vec::new();
    let mut token = None;
    loop {
        let uri = question
            .uri(target, token.as_deref())
            .ok_or(Failure::Path)?;
        let call = Call::get(&uri, question.accept()).at_most(PAGE_BYTES);
        let answer = match call.send(client).await {
            // One by its name that is not there is no failure.
            Err(error)
                if question.name.is_some() && error.code() == Some(404) && of_object(&error) =>
            {
                return Ok(Answered::Items(Vec::new()));
            }
            answer => answer.map_err(Failure::Asked)?,
        };
        let mut page: Value = answer.json().map_err(Failure::Asked)?;
        if !page.is_object() {
            return Err(Failure::Form);
        }
        if question.whole && question.name.is_some() {
            return Ok(Answered::Items(vec![page]));
        }
        all.extend(taken(&mut page, rows).ok_or(Failure::Form)?);
        if all.len() > OBJECTS {
            return Err(Failure::Long);
        }
        let next = page["metadata"]["continue"].as_str();
        token = next.filter(|it| !it.is_empty()).map(str::to_owned);
        if token.is_none() {
            if question.whole {
                return Ok(Answered::Items(all));
            }
            page[rows] = Value::Array(all);
            return Ok(Answered::Table(page));
        }
    }
}

/// The objects or rows of a page, taken out of it.
fn taken(page: &mut Value, rows: &str) -> Option<Vec<Value>> {
    let kind = page["kind"].as_str().unwrap_or_default();
    let fits = kind == "Table" || kind.ends_with("List");
    let some = match page.get_mut(rows).map(Value::take) {
        Some(Value::Array(some)) => some,
        // Of nothing some servers say null.
        None | Some(Value::Null) if fits => Vec::new(),
        _ => return None,
    };
    some.iter().all(Value::is_object).then_some(some)
}

/// Whether it is the object that is not there, and not its cluster.
fn of_object(error: &RestError) -> bool {
    matches!(error, RestError::Refused { status, .. } if status["details"]["group"] != "cluster.karmada.io")
}

/// What a member alone serves, as it describes it itself.
pub(super) async fn described(
    client: &Client,
    way: Way,
    member: &str,
    said: Resource,
) -> Result<Resource, CliError> {
    let api_version = said.gvk.api_version();
    let uri = format!("{}{}", way.path(member), group_version_path(&api_version));
    let attempt = || {
        format!(
            "failed to ask cluster {member} what {} are",
            said.qualified()
        )
    };
    let reply = Call::get(&uri, JSON).at_most(PAGE_BYTES).send(client).await;
    let reply = reply.and_then(|reply| resources(&api_version, &reply));
    let served = reply.map_err(|error| request_error(attempt(), error))?;
    let found = served
        .into_iter()
        .find(|it| it.resource.plural == said.plural);
    let found = found.filter(|it| it.can("list"));
    found.map(|it| it.resource).ok_or_else(|| {
        let message = format!("cluster {member} does not list {}", said.qualified());
        CliError::message(Kind::NotFound, message)
    })
}

#[cfg(test)]
mod tests {
    use super::super::target::tests::deployments;
    use super::*;
    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;
    use std::convert::Infallible;

    #[test]
    fn what_is_no_object_is_no_answer() {
        for (mut page, rows) in [
            (json!({"kind": "SecretList", "items": ["x"]}), "items"),
            (json!({"kind": "SecretList", "items": [{}, [1]]}), "items"),
            (json!({"kind": "SecretList", "items": {}}), "items"),
            (json!({"kind": "Status"}), "items"),
            (json!({}), "items"),
            (json!({"kind": "Table", "rows": [7]}), "rows"),
        ] {
            assert_eq!(taken(&mut page, rows), None, "{page}");
        }
        let mut some = json!({"kind": "Table", "rows": [{"cells": []}]});
        assert_eq!(taken(&mut some, "rows"), Some(vec![json!({"cells": []})]));
        for items in [json!(null), json!([])] {
            let mut none = json!({"kind": "PodList", "items": items});
            assert_eq!(taken(&mut none, "items"), Some(Vec::new()));
        }
    }

    #[tokio::test]
    async fn one_by_its_name_is_an_object_too() {
        let service = tower::service_fn(|_: Request<Body>| async {
            Ok::<_, Infallible>(Response::new(Body::from(b"[1]".to_vec())))
        });
        let client = Client::new(service, "default");
        let resource = deployments("v1");
        let target = Target::member(Way::OfClusters, "m1", resource.clone());
        for whole in [true, false] {
            let question = Question {
                resource: &resource,
                namespace: Some("shop"),
                name: Some("web"),
                selector: None,
                whole,
            };
            let answer = ask(&client, &question, &target, Duration::from_secs(5)).await;
            assert!(matches!(answer, Err(Failure::Form)), "{answer:?}");
        }
    }
}
