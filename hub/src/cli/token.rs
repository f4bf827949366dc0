//! `towline token`: makes, lists and deletes the tokens with which agents register.
//!
//! A token is a Secret of the standard form, so that the hub's own controllers sign cluster-info for it
//! and remove it when it ends; annotations say what it is good for. Its secret half is always
//! generated, printed once, and never read back.

mod create;
mod list;
mod placement;

pub(super) use create::{ForCluster, for_cluster};
pub(super) use list::remaining;
pub(super) use placement::PlacementArgs;

use super::output::Done;
use super::{CliError, Format, Kind, Output};
use crate::token_secret::{TOKEN_NAMESPACE, Token, Unusable};
use common::token::{BootstrapToken, secret_name};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;

/// Arguments of `towline token`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Make a token and print it; it cannot be shown again.
    Create(create::Args),
    /// List the tokens there are, without their secrets.
    List(list::Args),
    /// Delete tokens: nobody can register with them any more.
    Delete(DeleteArgs),
}

#[derive(Debug, clap::Args)]
struct DeleteArgs {
    #[command(flatten)]
    connect: super::ConnectArgs,
    /// Ids of the tokens, as `towline token list` shows them. A whole token is understood too.
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
    /// How what was done is shown.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// Runs the verb.
pub(super) async fn run(args: Args, output: &Output) -> Result<(), CliError> {
    match args.verb {
        Verb::Create(args) => create::run(args, output).await,
        Verb::List(args) => list::run(args, output).await,
        Verb::Delete(args) => delete(args, output).await,
    }
}

async fn delete(args: DeleteArgs, output: &Output) -> Result<(), CliError> {
    let ids = args
        .ids
        .iter()
        .map(|id| parse_id(id))
        .collect::<Result<Vec<_>, _>>()?;
    let (client, _) = args.connect.connect("cli token").await?;
    let secrets: Api<Secret> = Api::namespaced(client, TOKEN_NAMESPACE);
    let (done, mut failed) = delete_each(&secrets, &ids).await;
    let last = failed.pop();
    if last.is_none() || !done.is_empty() {
        output.print_done(args.output, &done)?;
    }
    for error in &failed {
        output.note(error.to_string());
    }
    last.map_or(Ok(()), Err)
}

/// What was deleted, and what failed: a wrong id leaves none of the others usable.
async fn delete_each(secrets: &Api<Secret>, ids: &[String]) -> (Vec<Done>, Vec<CliError>) {
    let (mut done, mut failed) = (Vec::new(), Vec::new());
    for id in ids {
        match delete_one(secrets, id).await {
            Ok(one) => done.push(one),
            Err(error) => {
                let is_away = error.kind == Kind::Unavailable;
                failed.push(error);
                if is_away {
                    break;
                }
            }
        }
    }
    (done, failed)
}

async fn delete_one(secrets: &Api<Secret>, id: &str) -> Result<Done, CliError> {
    let name = secret_name(id);
    let found = secrets.get_opt(&name).await;
    let found = found.map_err(|e| CliError::api(format!("failed to get token {id:?}"), e))?;
    let Some(secret) = found else {
        let message = format!("there is no token {id:?}");
        return Err(CliError::message(Kind::NotFound, message)
            .hint("List the tokens by `towline token list`."));
    };
    if matches!(Token::read(&secret), Err(Unusable::NotOurs)) {
        let message = format!("token {id:?} was not made by Towline");
        return Err(CliError::message(Kind::Denied, message).hint(format!(
            "Delete Secret {TOKEN_NAMESPACE}/{name} by kubectl if you mean it."
        )));
    }
    let deleted = secrets
        .delete(&name, &kube::api::DeleteParams::default())
        .await;
    deleted.map_err(|e| CliError::api(format!("failed to delete token {id:?}"), e))?;
    Ok(Done::new(format!("secret/{name}"), "deleted"))
}

/// The id in an id or a whole token. The text is never repeated: it may hold a secret.
fn parse_id(text: &str) -> Result<String, CliError> {
    if let Ok(token) = BootstrapToken::parse(text) {
        return Ok(token.id().to_owned());
    }
    let valid = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    if text.len() == 6 && text.bytes().all(valid) {
        return Ok(text.to_owned());
    }
    let message = "a token's id has six lower case letters and digits, such as abcdef";
    Err(CliError::message(Kind::Usage, message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token_secret::TOKEN_TYPE;
    use kube::client::Body;
    use serde_json::json;
    use std::convert::Infallible;

    /// A hub on which the token of this name alone is unknown.
    fn hub_without(unknown: &'static str) -> Api<Secret> {
        let service = tower::service_fn(move |request: http::Request<Body>| async move {
            let known = !request.uri().path().ends_with(unknown);
            let answer = match known {
                true => {
                    json!({"apiVersion": "v1", "kind": "Secret", "type": TOKEN_TYPE,
                    "metadata": {"name": "bootstrap-token-abc123"},
                    // "true", and the group among others.
                    "data": {"usage-bootstrap-authentication": "dHJ1ZQ==",
                        "auth-extra-groups": "YSwgc3lzdGVtOmJvb3RzdHJhcHBlcnM6dG93bGluZQ=="}})
                }
                false => {
                    json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound",
                    "message": "not found"})
                }
            };
            let answer = http::Response::builder()
                .status(if known { 200 } else { 404 })
                .body(Body::from(answer.to_string().into_bytes()));
            Ok::<_, Infallible>(answer.expect("an answer"))
        });
        Api::namespaced(kube::Client::new(service, "default"), TOKEN_NAMESPACE)
    }

    #[tokio::test]
    async fn a_wrong_id_leaves_no_other_token() {
        let ids = ["abc123", "nosuch", "def456"].map(str::to_owned);
        let (done, failed) = delete_each(&hub_without("nosuch"), &ids).await;
        let [error] = &failed[..] else {
            panic!("{failed:?}");
        };
        let done: Vec<&str> = done.iter().map(|it| it.object.as_str()).collect();
        assert_eq!(
            done,
            [
                "secret/bootstrap-token-abc123",
                "secret/bootstrap-token-def456"
            ]
        );
        assert_eq!(error.kind, Kind::NotFound);
        assert!(error.to_string().contains("nosuch"), "{error}");
    }

    #[test]
    fn ids_and_whole_tokens_are_understood() {
        for text in ["abc123", "abc123.0123456789abcdef"] {
            assert_eq!(parse_id(text).ok().as_deref(), Some("abc123"));
        }
        for text in ["", "abc12", "ABC123", "abc123.short"] {
            let error = parse_id(text).expect_err("refused").to_string();
            assert!(!error.contains("short"));
        }
    }
}
