//! DELETE of one object: gone at once, or marked and kept until its finalizers are gone.

use super::access::{encode, failed, key};
use super::graceful::{self, Grace};
use super::{Deleted, Registry};
use crate::apiserver::error::{ApiError, GroupResource};
use crate::apiserver::metadata;
use crate::apiserver::request::{Context, DeleteOptions, Operation, Preconditions, Propagation};
use crate::apiserver::scheme::Resource;
use crate::apiserver::store::{self, Expect, Stored};
use crate::apiserver::strategies::{self, Dependents, Strategy};
use serde_json::{Value, json};
use std::sync::Arc;

enum Round {
    Done(Deleted),
    Again,
}

impl Registry {
    /// The end of an object, or its beginning.
    pub async fn delete(
        &self,
        context: &Context,
        options: DeleteOptions,
    ) -> Result<Deleted, ApiError> {
        context.note_deprecation();
        let strategy = strategies::of(&context.resource);
        strategy.admit(&self.facts(context), None, None)?;
        if let Some(warning) = strategy.deletion_warning(&options) {
            context.warnings.add(warning);
        }
        loop {
            let Some(stored) = self.stored(context) else {
                return Err(ApiError::not_found(
                    &context.resource.group_resource(),
                    &context.name,
                ));
            };
            if let Round::Done(deleted) = self.delete_once(context, &options, &stored).await? {
                return Ok(deleted);
            }
        }
    }

    async fn delete_once(
        &self,
        context: &Context,
        options: &DeleteOptions,
        stored: &Arc<Stored>,
    ) -> Result<Round, ApiError> {
        let resource = &context.resource;
        let strategy = strategies::of(resource);
        let old = self.view(resource, stored);
        check_preconditions(context, options, &old)?;
        if strategy.delete_pending(&old) {
            return Ok(self.stays(options, encode(&old)));
        }
        let mut object = old.clone();
        let facts = self.facts(context);
        let grace = graceful::begin(strategy, options, &mut object, facts.now);
        if grace == Grace::Pending {
            return Ok(self.stays(options, encode(&old)));
        }
        let mut marked = strategy.begin_delete(&facts, &mut object, options);
        if !marked {
            adjust_finalizers(strategy, options, &mut object);
            if let Grace::Seconds(seconds) = grace {
                let held = !metadata::finalizers(&object).is_empty();
                marked = held || seconds > 0;
            } else if !metadata::finalizers(&object).is_empty() {
                metadata::mark_deleting(&mut object, facts.now);
                marked = true;
            }
        }
        self.inner
            .admission
            .admit(context, Operation::Delete, None, Some(&old))
            .await?;
        let dry_run = context.dry_run || options.dry_run;
        let key = key(resource, &context.namespace, &context.name);
        if !marked {
            if dry_run {
                let last = if grace == Grace::None { &old } else { &object };
                return Ok(Round::Done(gone(context, strategy, last)));
            }
            let mut revision = stored.revision();
            if grace != Grace::None && object != old {
                // It is seen to end before it is gone.
                let expect = Expect::Revision(revision);
                let marked = self.commit_marked(context, key.clone(), expect, object);
                match marked.await {
                    Ok(stored) => revision = stored.revision(),
                    Err(error) => return again(&error),
                }
            }
            return match self.remove(context, key, revision).await {
                Ok(last) => {
                    let last = self.view(resource, &last);
                    Ok(Round::Done(gone(context, strategy, &last)))
                }
                Err(error) => again(&error),
            };
        }
        if object == old || dry_run {
            return Ok(self.stays(options, encode(&object)));
        }
        let expect = Expect::Revision(stored.revision());
        match self.commit_marked(context, key, expect, object).await {
            Ok(stored) => Ok(self.stays(options, self.shown(resource, &stored))),
            Err(error) => again(&error),
        }
    }

    fn stays(&self, options: &DeleteOptions, body: bytes::Bytes) -> Round {
        let _ = self;
        let accepted = options.orphan_dependents == Some(false);
        Round::Done(Deleted {
            code: if accepted { 202 } else { 200 },
            body,
            is_status: false,
        })
    }
}

/// Another round, if only somebody else was faster.
fn again(error: &store::Error) -> Result<Round, ApiError> {
    match error {
        store::Error::Conflict { .. } | store::Error::Missing { .. } => Ok(Round::Again),
        error => Err(failed(error)),
    }
}

/// The answer when an object is gone.
fn gone(context: &Context, strategy: &dyn Strategy, last: &Value) -> Deleted {
    if strategy.returns_deleted() {
        return Deleted {
            code: 200,
            body: encode(last),
            is_status: false,
        };
    }
    let resource = &context.resource;
    let mut details = json!({
        "name": metadata::name(last),
        "kind": *resource.plural,
        "uid": metadata::uid(last),
    });
    if !resource.group.is_empty() {
        details["group"] = json!(*resource.group);
    }
    let status = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
    });
    Deleted {
        code: 200,
        body: encode(&status),
        is_status: true,
    }
}

fn check_preconditions(
    context: &Context,
    options: &DeleteOptions,
    old: &Value,
) -> Result<(), ApiError> {
    let resource = &context.resource;
    let wanted = &options.preconditions;
    if resource.group.is_empty() && resource.plural.as_ref() == "namespaces" {
        return check_namespace(resource, wanted, old);
    }
    // The real server puts the kind where the plural name should be.
    let on = GroupResource::new(resource.group.as_ref(), resource.kind.as_ref());
    if let Some(uid) = wanted.uid.as_deref()
        && uid != metadata::uid(old)
    {
        let found = metadata::uid(old);
        return Err(ApiError::conflict(
            &on,
            metadata::name(old),
            &format!(
                "the UID in the precondition ({uid}) does not match the UID in record ({found}). The object might have been deleted and then recreated"
            ),
        ));
    }
    if let Some(version) = wanted.resource_version.as_deref()
        && version != metadata::resource_version(old)
    {
        let found = metadata::resource_version(old);
        return Err(ApiError::conflict(
            &on,
            metadata::name(old),
            &format!(
                "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({found}). The object might have been modified"
            ),
        ));
    }
    Ok(())
}

/// Namespaces say it in other words.
fn check_namespace(
    resource: &Resource,
    wanted: &Preconditions,
    old: &Value,
) -> Result<(), ApiError> {
    let fields = [
        ("UID", wanted.uid.as_deref(), metadata::uid(old)),
        (
            "ResourceVersion",
            wanted.resource_version.as_deref(),
            metadata::resource_version(old),
        ),
    ];
    for (field, wanted, found) in fields {
        if let Some(wanted) = wanted.filter(|wanted| *wanted != found) {
            return Err(ApiError::conflict(
                &resource.group_resource(),
                metadata::name(old),
                &format!(
                    "Precondition failed: {field} in precondition: {wanted}, {field} in object meta: {found}"
                ),
            ));
        }
    }
    Ok(())
}

/// Puts or takes the finalizers that the garbage collector works by.
fn adjust_finalizers(strategy: &dyn Strategy, options: &DeleteOptions, object: &mut Value) {
    let had: Vec<String> = metadata::finalizers(object)
        .into_iter()
        .map(str::to_owned)
        .collect();
    let has = |finalizer: &str| had.iter().any(|one| one == finalizer);
    let supported = strategy.dependents() != Dependents::Unsupported;
    let orphan = supported
        && match (options.orphan_dependents, options.propagation) {
            (Some(orphan), _) => orphan,
            (None, Some(propagation)) => propagation == Propagation::Orphan,
            (None, None) if has(metadata::ORPHAN) => true,
            (None, None) if has(metadata::FOREGROUND) => false,
            (None, None) => strategy.dependents() == Dependents::Orphan,
        };
    let foreground = supported
        && match (options.orphan_dependents, options.propagation) {
            (Some(_), _) => false,
            (None, Some(propagation)) => propagation == Propagation::Foreground,
            (None, None) => has(metadata::FOREGROUND) && !has(metadata::ORPHAN),
        };
    let mut finalizers: Vec<&str> = had
        .iter()
        .map(String::as_str)
        .filter(|one| *one != metadata::ORPHAN && *one != metadata::FOREGROUND)
        .collect();
    finalizers.extend(orphan.then_some(metadata::ORPHAN));
    finalizers.extend(foreground.then_some(metadata::FOREGROUND));
    let mut before: Vec<&str> = had.iter().map(String::as_str).collect();
    let mut after = finalizers.clone();
    before.sort_unstable();
    after.sort_unstable();
    if before != after {
        metadata::set_finalizers(object, &finalizers);
    }
}
