//! PUT, and the loop that every change of an object goes through.

use super::access::{encode, failed, is_renewal, key};
use super::create::told_kind;
use super::{Effect, Outcome, Registry, decode, scale, tracking};
use crate::apiserver::error::{ApiError, FieldError, GroupKind};
use crate::apiserver::names::NameRule;
use crate::apiserver::request::{Body, Context, Operation};
use crate::apiserver::store::{self, Class, Expect, Stored};
use crate::apiserver::strategies::{self, Facts, Strategy};
use crate::apiserver::{managed, metadata};
use crate::go::settle_numbers;
use serde_json::{Value, json};
use std::sync::Arc;

/// What one round of a change comes to.
enum Round {
    Done(Outcome),
    /// Somebody else was faster.
    Again,
}

/// How a change begins.
pub(super) struct Change<'a> {
    /// Whether what is not there is made, whatever the kind says.
    pub(super) force_create: bool,
    /// The uid that the object must have.
    pub(super) uid: Option<String>,
    /// From the object as it is to the object as it should be, managed fields and all.
    pub(super) make: &'a (dyn Fn(Option<&Value>) -> Result<Value, ApiError> + Send + Sync),
}

impl Registry {
    /// A new state of an object, its status or another subresource.
    pub async fn update(&self, context: &Context, body: Body) -> Result<Outcome, ApiError> {
        context.note_deprecation();
        if context.subresource == "scale" {
            return scale::update(self, context, &body).await;
        }
        let mut object = match decode::object(context, &self.inner.scheme, &body) {
            // That the object has changed comes before what kind a body says it is of.
            Err(error) if context.resource.is_custom() && error.code == 422 => {
                return Err(self.stale(context, &body).unwrap_or(error));
            }
            read => read?,
        };
        check_name(context, &object)?;
        self.default(context, &mut object);
        let uid = Some(metadata::uid(&object).to_owned()).filter(|uid| !uid.is_empty());
        let make = |old: Option<&Value>| {
            let mut object = object.clone();
            match old {
                Some(old) => {
                    inherit(context, &mut object, old);
                    tracking::updated(self, context, old, &mut object);
                }
                None => tracking::created(self, context, &mut object),
            }
            Ok(object)
        };
        self.change(
            context,
            &Change {
                force_create: false,
                uid,
                make: &make,
            },
        )
        .await
    }

    /// The answer to a body that is of an older state of the object.
    fn stale(&self, context: &Context, body: &Body) -> Option<ApiError> {
        let object: Value = serde_json::from_slice(&body.bytes).ok()?;
        let stored = self.stored(context)?;
        let given = metadata::resource_version(&object).parse::<u64>().ok()?;
        let on = context.resource.group_resource();
        (given != stored.revision()).then(|| ApiError::modified(&on, &context.name))
    }

    /// Changes an object, as often as others change it meanwhile.
    pub(super) async fn change(
        &self,
        context: &Context,
        change: &Change<'_>,
    ) -> Result<Outcome, ApiError> {
        loop {
            let round = match self.stored(context) {
                Some(stored) => self.change_once(context, change, &stored).await?,
                None => self.make_missing(context, change).await?,
            };
            if let Round::Done(outcome) = round {
                return Ok(outcome);
            }
        }
    }

    async fn make_missing(
        &self,
        context: &Context,
        change: &Change<'_>,
    ) -> Result<Round, ApiError> {
        let on = context.resource.group_resource();
        let strategy = strategies::of(&context.resource);
        let may =
            context.subresource.is_empty() && (change.force_create || strategy.create_on_update());
        if !may {
            return Err(ApiError::not_found(&on, &context.name));
        }
        if let Some(uid) = &change.uid {
            if change.force_create {
                return Err(ApiError::conflict(
                    &on,
                    &context.name,
                    &format!(
                        "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                    ),
                ));
            }
            return Err(uid_conflict(context, uid, ""));
        }
        let object = (change.make)(None)?;
        named_version(&object)?;
        match self.insert(context, object, !change.force_create).await {
            Err(error) if error.reason == "AlreadyExists" && !context.dry_run => Ok(Round::Again),
            other => other.map(Round::Done),
        }
    }

    async fn change_once(
        &self,
        context: &Context,
        change: &Change<'_>,
        stored: &Arc<Stored>,
    ) -> Result<Round, ApiError> {
        let resource = &context.resource;
        let on = resource.group_resource();
        // An apply that names another uid is told that a uid does not change.
        if let Some(uid) = &change.uid
            && uid != stored.uid()
            && !change.force_create
        {
            return Err(uid_conflict(context, uid, stored.uid()));
        }
        let old = self.view(resource, stored);
        let mut object = (change.make)(Some(&old))?;
        let strategy = strategies::of(resource);
        match named_version(&object)? {
            "" | "0" if strategy.unconditional_update() => {}
            "" | "0" => {
                return Err(ApiError::invalid(
                    &GroupKind::new(on.group, on.resource),
                    &context.name,
                    vec![FieldError::invalid(
                        "metadata.resourceVersion",
                        json!(0),
                        "must be specified for an update",
                    )],
                ));
            }
            version if version != metadata::resource_version(&old) => {
                return Err(ApiError::modified(&on, &context.name));
            }
            _ => {}
        }
        object["metadata"]["resourceVersion"] = json!(metadata::resource_version(&old));
        let facts = self.facts(context);
        strategies::complete(&facts, &mut object);
        check_changed(strategy, &facts, &mut object, &old)?;
        if resource.is_custom() {
            settle_numbers(&mut object);
        } else if !context.dry_run {
            resource.schema.settle(&mut object);
        }
        if managed::differ_in_times_only(&old, &object) {
            crate::apiserver::value::copy(&mut object, &old, &["metadata", "managedFields"]);
        }
        self.inner
            .admission
            .admit(context, Operation::Update, Some(&object), Some(&old))
            .await?;
        let key = key(resource, &context.namespace, &context.name);
        if goes(strategy, &object, &old) {
            if !context.dry_run {
                match self.remove(context, key, stored.revision()).await {
                    Ok(_) | Err(store::Error::Missing { .. }) => {}
                    Err(store::Error::Conflict { .. }) => return Ok(Round::Again),
                    Err(error) => return Err(failed(&error)),
                }
            }
            return Ok(done(encode(&object), Effect::Changed));
        }
        if object == old && self.is_current(resource, stored) {
            return Ok(done(self.shown(resource, stored), Effect::Nothing));
        }
        if context.dry_run {
            return Ok(done(encode(&object), Effect::Changed));
        }
        let (class, effect) = if is_renewal(resource, &object, &old) {
            (Class::Renewal, Effect::Renewed)
        } else {
            (Class::Durable, Effect::Changed)
        };
        let expect = Expect::Revision(stored.revision());
        match self.commit(context, key, expect, object, class).await {
            Ok(stored) => Ok(done(self.shown(resource, &stored), effect)),
            Err(store::Error::Conflict { .. } | store::Error::Missing { .. }) => Ok(Round::Again),
            Err(error) => Err(failed(&error)),
        }
    }
}

fn done(object: bytes::Bytes, effect: Effect) -> Round {
    Round::Done(Outcome { object, effect })
}

pub(super) fn uid_conflict(context: &Context, wanted: &str, found: &str) -> ApiError {
    ApiError::conflict(
        &context.resource.group_resource(),
        &context.name,
        &format!(
            "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}",
            registry_key(context)
        ),
    )
}

/// The key that the real server would keep the object under, which it tells.
fn registry_key(context: &Context) -> String {
    let resource = &context.resource;
    let kind = match (resource.group.as_ref(), resource.plural.as_ref()) {
        ("", "services") => "services/specs".to_owned(),
        ("", "endpoints") => "services/endpoints".to_owned(),
        ("", "nodes") => "minions".to_owned(),
        ("networking.k8s.io", "ingresses") => "ingress".to_owned(),
        (group @ ("apiextensions.k8s.io" | "apiregistration.k8s.io"), plural) => {
            format!("{group}/{plural}")
        }
        (group, plural) if resource.is_custom() => format!("{group}/{plural}"),
        (_, plural) => plural.to_owned(),
    };
    let namespace = if resource.namespaced {
        format!("{}/", context.namespace)
    } else {
        String::new()
    };
    format!("/registry/{kind}/{namespace}{}", context.name)
}

/// Before managers are looked at: what the body left out and the server keeps.
pub(super) fn inherit(context: &Context, object: &mut Value, old: &Value) {
    if metadata::namespace(object).is_empty() && context.resource.namespaced {
        crate::apiserver::value::copy(object, old, &["metadata", "namespace"]);
    }
}

/// A body is about the object of its path.
pub(super) fn check_name(context: &Context, object: &Value) -> Result<(), ApiError> {
    let name = metadata::name(object);
    let url = &context.name;
    if name.is_empty() {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({url} based on URL) was undeterminable: name must be provided"
        )));
    }
    if name != url {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({url})"
        )));
    }
    let namespace = metadata::namespace(object);
    if context.resource.namespaced && !namespace.is_empty() && namespace != context.namespace {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}

/// Whether a change takes the last thing that kept an object that is being deleted.
fn goes(strategy: &dyn Strategy, object: &Value, old: &Value) -> bool {
    metadata::finalizers(object).is_empty()
        && metadata::is_deleting(old)
        && old["metadata"]["deletionGracePeriodSeconds"]
            .as_i64()
            .unwrap_or_default()
            == 0
        && strategy.may_go(object)
}

/// Fills in what the server keeps, and refuses what is wrong.
fn check_changed(
    strategy: &dyn Strategy,
    facts: &Facts<'_>,
    object: &mut Value,
    old: &Value,
) -> Result<(), ApiError> {
    let resource = &facts.context.resource;
    if !resource.namespaced {
        crate::apiserver::value::put(object, &["metadata", "namespace"], None);
    }
    strategies::prepare_update(strategy, facts, object, old);
    metadata::keep_system_fields(object, old);
    // The real server looks at the metadata as if it were new and then twice as changed, and tells all
    // it finds.
    let mut errors = metadata::validate(object, resource.namespaced, |name, _| {
        NameRule::PathSegment.check(name, false)
    });
    let once = metadata::validate_update(object, old);
    errors.extend(once.clone());
    errors.extend(once);
    if !resource.is_custom() && resource.group.as_ref() != "apiextensions.k8s.io" {
        errors.extend(metadata::known_finalizers(object));
    }
    if strategy.validates_anew() {
        errors.extend(metadata::validate(
            object,
            resource.namespaced,
            |name, prefix| strategy.check_name(name, prefix),
        ));
        if !resource.is_custom() {
            errors.extend(metadata::known_finalizers(object));
        }
    }
    let verdict = match facts.context.subresource.as_str() {
        "status" => resource.validate_status(object, old),
        _ => resource.validate(object, Some(old)),
    };
    errors.extend(verdict.errors);
    for forgiven in verdict.forgiven {
        facts.context.warnings.add(forgiven.to_string());
    }
    errors.extend(strategy.validate(facts, object, Some(old)));
    if !errors.is_empty() {
        let name = metadata::name(object);
        return Err(ApiError::invalid(&told_kind(resource), name, errors));
    }
    let finalizers = resource
        .is_custom()
        .then(|| metadata::unqualified_finalizers(object, Some(old)));
    let warnings = strategy.warnings(facts, object, Some(old));
    for warning in finalizers.into_iter().flatten().chain(warnings) {
        facts.context.warnings.add(warning);
    }
    Ok(())
}

/// The resourceVersion that a body names; one that is no number is an error whether or not there is an
/// object.
fn named_version(object: &Value) -> Result<&str, ApiError> {
    let version = metadata::resource_version(object);
    if version.is_empty() || version.parse::<u64>().is_ok() {
        return Ok(version);
    }
    let why = format!("strconv.ParseUint: parsing {version:?}: invalid syntax");
    Err(ApiError::plain(500, "", why))
}
