//! POST to a collection, and everything else that makes a new object.

use super::access::{encode, failed, key};
use super::{Effect, Outcome, Registry, decode, lifecycle, tracking};
use crate::apiserver::error::{ApiError, GroupKind};
use crate::apiserver::metadata;
use crate::apiserver::request::{Body, Context, Operation};
use crate::apiserver::scheme::Resource;
use crate::apiserver::store::{self, Class, Expect};
use crate::apiserver::strategies::{self, Facts, Strategy};
use crate::go::settle_numbers;
use common::uuid::random_uuid;
use rand::Rng as _;
use serde_json::Value;

const ATTEMPTS: usize = 8;

impl Registry {
    /// A new object.
    pub async fn create(&self, context: &Context, body: Body) -> Result<Outcome, ApiError> {
        context.note_deprecation();
        if !context.subresource.is_empty() {
            return Err(ApiError::method_not_allowed(
                &context.resource.group_resource(),
                "create",
            ));
        }
        let mut object = decode::object(context, &self.inner.scheme, &body)?;
        metadata::wipe_system_fields(&mut object);
        self.default(context, &mut object);
        tracking::created(self, context, &mut object);
        self.insert(context, object, false).await
    }

    /// Puts the defaults of a kind.
    pub(super) fn default(&self, context: &Context, object: &mut Value) {
        let facts = self.facts(context);
        context.resource.apply_defaults(object);
        strategies::of(&context.resource).default(&facts, object);
    }

    /// Makes an object that was read, defaulted and tracked; one that `replaces` what may be gone may name
    /// a version.
    pub(super) async fn insert(
        &self,
        context: &Context,
        object: Value,
        replaces: bool,
    ) -> Result<Outcome, ApiError> {
        let generates = metadata::name(&object).is_empty()
            && object["metadata"]["generateName"]
                .as_str()
                .is_some_and(|base| !base.is_empty());
        let attempts = if generates { ATTEMPTS } else { 1 };
        for _ in 1..attempts {
            match self.insert_once(context, object.clone(), replaces).await {
                Err(error) if error.reason == "AlreadyExists" => {}
                other => return other,
            }
        }
        self.insert_once(context, object, replaces).await
    }

    async fn insert_once(
        &self,
        context: &Context,
        object: Value,
        replaces: bool,
    ) -> Result<Outcome, ApiError> {
        let mut object = object;
        let resource = &context.resource;
        let strategy = strategies::of(resource);
        let facts = self.facts(context);
        match_namespace(context, &mut object)?;
        lifecycle::admit_create(self, context, &object)?;
        strategies::complete(&facts, &mut object);
        strategies::identify(&facts, &mut object, || self.draws().draw(random_uuid));
        strategy.admit(&facts, Some(&object), None)?;
        let uid = self.draws().draw(random_uuid);
        metadata::fill_system_fields(&mut object, &uid, facts.now);
        let base = object["metadata"]["generateName"]
            .as_str()
            .unwrap_or_default();
        let generated = metadata::name(&object).is_empty() && !base.is_empty();
        if generated {
            let draws = self.draws();
            let name = draws
                .draw(|rng| metadata::generated_name(base, |below| rng.random_range(0..below)));
            object["metadata"]["name"] = Value::from(name);
        }
        check_new(strategy, &facts, &mut object)?;
        if resource.is_custom() {
            settle_numbers(&mut object);
        } else if !context.dry_run {
            resource.schema.settle(&mut object);
        }
        let name = metadata::name(&object).to_owned();
        self.inner
            .admission
            .admit(context, Operation::Create, Some(&object), None)
            .await?;
        let version = metadata::resource_version(&object).parse::<u64>();
        let has_version = version.is_ok_and(|version| version != 0);
        if has_version && !replaces {
            return Err(ApiError::plain(
                500,
                "",
                "resourceVersion should not be set on objects to be created",
            ));
        }
        let on = resource.group_resource();
        let exists = || {
            let from_base = object["metadata"]["generateName"].is_string();
            if from_base {
                ApiError::generate_name_conflict(&on, &name)
            } else {
                ApiError::already_exists(&on, &name)
            }
        };
        let key = key(resource, &context.namespace, &name);
        if context.dry_run {
            return match self.inner.store.get(&resource.storage_key, &key) {
                Some(stored) => Err(still_there(exists(), stored.deleting())),
                None => Ok(Outcome {
                    object: encode(&object),
                    effect: Effect::Created,
                }),
            };
        }
        let exists = exists();
        if let Some(metadata) = object["metadata"].as_object_mut() {
            // A replacement may name the version of what is gone; a dry run shows it.
            metadata.remove("resourceVersion");
        }
        match self
            .commit(context, key.clone(), Expect::Absent, object, Class::Durable)
            .await
        {
            Ok(stored) => Ok(Outcome {
                object: self.shown(resource, &stored),
                effect: Effect::Created,
            }),
            Err(store::Error::Exists { .. }) => {
                let there = self.inner.store.get(&resource.storage_key, &key);
                Err(still_there(
                    exists,
                    there.is_some_and(|stored| stored.deleting()),
                ))
            }
            Err(error) => Err(failed(&error)),
        }
    }

    pub(super) fn facts<'a>(&self, context: &'a Context) -> Facts<'a> {
        Facts {
            context,
            now: self.inner.env.clock.now(),
        }
    }
}

/// What is there may be on its way out, which the caller should know.
fn still_there(error: ApiError, deleting: bool) -> ApiError {
    let mut error = error;
    if deleting {
        error.message = format!("object is being deleted: {}", error.message);
    }
    error
}

/// An object is in the namespace of its path.
fn match_namespace(context: &Context, object: &mut Value) -> Result<(), ApiError> {
    let expected = if context.resource.namespaced {
        context.namespace.as_str()
    } else {
        ""
    };
    let given = metadata::namespace(object);
    if given == expected {
        return Ok(());
    }
    if !given.is_empty() && !expected.is_empty() {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    let value = (!expected.is_empty()).then(|| Value::from(expected));
    crate::apiserver::value::put(object, &["metadata", "namespace"], value);
    Ok(())
}

/// The kind that errors name: events are of the core group, whatever the path says.
pub(super) fn told_kind(resource: &Resource) -> GroupKind {
    match resource.group.as_ref() {
        "events.k8s.io" => GroupKind::new("", resource.kind.as_ref()),
        _ => resource.group_kind(),
    }
}

/// Fills in what the server says, and refuses what is wrong.
fn check_new(
    strategy: &dyn Strategy,
    facts: &Facts<'_>,
    object: &mut Value,
) -> Result<(), ApiError> {
    let resource = &facts.context.resource;
    strategies::prepare_create(strategy, facts, object);
    let mut errors = metadata::validate(object, resource.namespaced, |name, prefix| {
        strategy.check_name(name, prefix)
    });
    if !resource.is_custom() && resource.group.as_ref() != "apiextensions.k8s.io" {
        errors.extend(metadata::known_finalizers(object));
    }
    errors.extend(resource.validate(object, None).errors);
    errors.extend(strategy.validate(facts, object, None));
    if !errors.is_empty() {
        let name = metadata::name(object);
        return Err(ApiError::invalid(&told_kind(resource), name, errors));
    }
    let finalizers = resource
        .is_custom()
        .then(|| metadata::unqualified_finalizers(object, None));
    let warnings = strategy.warnings(facts, object, None);
    for warning in finalizers.into_iter().flatten().chain(warnings) {
        facts.context.warnings.add(warning);
    }
    Ok(())
}
