//! Makes a template and its policy on the hub: all of it, or nothing where the hub refuses one.

#[cfg(test)]
mod tests;

use super::template;
use crate::cli::error::{is_refusal, request_error, rest_error};
use crate::cli::{CliError, Kind};
use crate::snapshot::Reader;
use crate::snapshot::trial::{Outcome, Trial};
use common::rest::{Call, JSON};
use serde_json::{Value, json};

const WRITTEN: &str = "?fieldManager=towline-promote";

/// An object that the hub would take.
pub(super) struct Tried {
    pub(super) trial: Trial,
    /// As the hub would have it.
    pub(super) made: Value,
}

/// Makes objects on the hub.
pub(super) struct Writer {
    pub(super) reader: Reader,
}

impl Writer {
    /// Has the hub try to make an object; one that is there already is not changed.
    pub(super) async fn tried(&self, object: &Value) -> Result<Tried, CliError> {
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        let trial = self
            .reader
            .trial(object, namespace)
            .await
            .map_err(rest_error)?;
        let kind = object["kind"].as_str().unwrap_or_default();
        let trial = trial.ok_or_else(|| {
            let message =
                format!("the hub serves no kind {kind}: is it a hub that `towline init` prepared?");
            CliError::message(Kind::NotFound, message)
        })?;
        let shown = format!("{kind} {}", trial.name);
        if trial.live.is_some() {
            let message = format!("{shown} exists on the hub; nothing was written");
            let hint = match template::is_policy(kind) {
                true => "--policy NAME names another policy.",
                false => {
                    "`towline get TYPE/NAME` says where it goes; a policy with conflictResolution: Overwrite takes over what a member has."
                }
            };
            return Err(CliError::message(Kind::Unmet, message).hint(hint));
        }
        match self.reader.attempt(&trial).await.map_err(rest_error)? {
            Outcome::Made(made) => Ok(Tried { trial, made: *made }),
            Outcome::Unknown(why) => {
                let namespace = trial.name.namespace.to_string();
                Err(
                    CliError::message(Kind::Unmet, format!("the hub cannot have {shown}: {why}"))
                        .hint(format!(
                            "`kubectl create namespace {namespace}` makes its namespace on the hub."
                        )),
                )
            }
            Outcome::Refused(why) => Err(CliError::message(
                Kind::Denied,
                format!("the hub refuses {shown}: {why}"),
            )),
        }
    }

    /// Writes one after the other, the policy first and the template last; whatever is refused takes back all before it.
    /// What may have been written leaves all of it: a template that is there would otherwise go wherever another policy
    /// sends it.
    pub(super) async fn write(&self, all: &[&Trial]) -> Result<(), CliError> {
        let mut made: Vec<(&Trial, Value)> = Vec::new();
        for (place, trial) in all.iter().enumerate() {
            let error = match self.reader.send(trial, WRITTEN).await {
                Ok(object) => {
                    made.push((trial, object["metadata"]["uid"].clone()));
                    continue;
                }
                Err(error) => error,
            };
            let presence = match is_refusal(error.code()) {
                true => Presence::No,
                false => self.presence(trial).await,
            };
            let told = request_error(format!("failed to create {}", trial.shown()), error);
            let hints = match presence {
                Presence::No => self.taken_back(&made).await,
                presence => {
                    let rest = all.iter().skip(place + 1);
                    let rest: Vec<String> = rest.map(|it| it.shown()).collect();
                    unanswered(presence, trial, &made, &rest)
                }
            };
            return Err(hints.into_iter().fold(told, CliError::hint));
        }
        Ok(())
    }

    /// Whether an object is there whose making was not answered.
    async fn presence(&self, trial: &Trial) -> Presence {
        let uri = trial.uri();
        match Call::get(&uri, JSON).send(self.reader.client()).await {
            Ok(_) => Presence::Yes,
            Err(error) if error.code() == Some(404) => Presence::No,
            Err(_) => Presence::Unknown,
        }
    }

    /// Takes back what was made, the last one first, and says what became of that.
    async fn taken_back(&self, made: &[(&Trial, Value)]) -> Vec<String> {
        let mut left = Vec::new();
        for (trial, uid) in made.iter().rev() {
            let uri = trial.uri();
            let call = Call::delete(&uri, &json!({"preconditions": {"uid": uid}}));
            if let Err(error) = call.send(self.reader.client()).await {
                left.push(format!(
                    "{} was written, and could not be taken back ({error}): delete it yourself.",
                    trial.shown()
                ));
            }
        }
        match (left.is_empty(), made.is_empty()) {
            (true, true) => vec!["Nothing was written.".to_owned()],
            (true, false) => {
                vec!["Nothing is left of it: what was written before was taken back.".to_owned()]
            }
            (false, _) => left,
        }
    }
}

/// Whether the hub has an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Presence {
    Yes,
    No,
    Unknown,
}

/// What is to be known where nobody answered: of the object itself, of what was written before, and of the rest.
fn unanswered(
    presence: Presence,
    trial: &Trial,
    before: &[(&Trial, Value)],
    rest: &[String],
) -> Vec<String> {
    let shown = trial.shown();
    let namespace = match trial.name.namespace.to_string() {
        none if none.is_empty() => none,
        namespace => format!(" -n {namespace}"),
    };
    let mut told = vec![match presence {
        Presence::Yes => format!(
            "{shown} is on the hub: it was written without an answer, or somebody else made it."
        ),
        _ => format!(
            "{shown} may have been written: `kubectl get{namespace} {shown}` says so once the hub answers."
        ),
    }];
    if !before.is_empty() {
        let before: Vec<String> = before.iter().map(|(trial, _)| trial.shown()).collect();
        let before = before.join(", ");
        told.push(format!(
            "{before} was written before it, and stays, so that nothing else takes what is there."
        ));
    }
    if !rest.is_empty() {
        told.push(format!("{} was not written.", rest.join(", ")));
    }
    told
}
