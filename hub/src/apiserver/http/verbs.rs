//! Requests for objects: from the verb to the registry and back.

use super::metrics::Answered;
use super::negotiate::{
    Format, STREAMED, Shape, accepted_untabled, media_type, not_acceptable, patch_kind,
    write_options,
};
use super::respond::{Body, Reply, not_found};
use super::route::{Misplaced, Route};
use super::router::{Asked, Router, method_not_allowed};
use super::turns::{Cost, DEAR, Turn, all_aside};
use crate::apiserver::caller::Caller;
use crate::apiserver::error::{ApiError, FieldError};
use crate::apiserver::registry::{self, Effect, Outcome, evict};
use crate::apiserver::request::{self, Context, DeleteOptions, Holding, ListOptions, PatchKind};
use crate::apiserver::reviews::{self, ReviewHandler};
use crate::apiserver::scheme::Resource;
use crate::apiserver::table::IncludeObject;
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use http::{Response, StatusCode};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A request for objects of one kind.
pub(super) struct Call<'a> {
    pub(super) router: &'a Router,
    pub(super) asked: &'a Asked<'a>,
    pub(super) caller: &'a Arc<Caller>,
    pub(super) resource: &'a Arc<Resource>,
    /// What is carried out; nothing below looks at the path again.
    pub(super) route: Route<'a>,
    /// What of the lanes the request has taken.
    pub(super) holding: Holding,
}

impl Call<'_> {
    pub(super) async fn run(&self, body: Bytes) -> Result<Response<Body>, ApiError> {
        let answered = self.carry_out(body).await;
        let code = match &answered {
            Ok(response) => response.status().as_u16(),
            Err(error) => error.code,
        };
        let content_type = self.asked.header(CONTENT_TYPE);
        let is_apply = matches!(patch_kind(content_type, true), Ok(PatchKind::Apply));
        let dry_run = self.asked.query.get("dryRun").is_some();
        self.router.counters().count(&Answered {
            info: self.asked.info,
            is_apply,
            dry_run,
            code,
            took: self.asked.began.elapsed(),
        });
        answered
    }

    async fn carry_out(&self, body: Bytes) -> Result<Response<Body>, ApiError> {
        let info = self.asked.info;
        if reviews::is_review(&info.group, &info.resource, self.route.subresource) {
            return self.review(body);
        }
        if self.route.subresource == evict::SUBRESOURCE {
            return self.evict(body).await;
        }
        match info.verb.as_str() {
            "get" => self.get().await,
            "list" => self.list().await,
            "watch" => self.watch().await,
            "create" => self.create(body).await,
            "update" => self.update(body).await,
            "patch" => self.patch(body).await,
            "delete" => self.delete(body).await,
            "deletecollection" => self.delete_collection(body).await,
            _ => misplaced(self.asked, self.resource, Misplaced::Method),
        }
    }

    /// What carrying it out may cost: by what is read, and by what a kind or a form lets a small body do.
    pub(super) fn price(&self, body: &[u8]) -> Price {
        let (info, resource) = (self.asked.info, self.resource);
        if matches!(
            info.verb.as_str(),
            "get" | "list" | "watch" | "deletecollection"
        ) {
            // What they cost is known when they know what they are of.
            return Price {
                cost: Cost::Nothing,
                bytes: 0,
                answer: 0,
            };
        }
        let stored = match self.route.name {
            "" => None,
            _ => self.registry().stored(&self.context()),
        };
        let content_type = self.asked.header(CONTENT_TYPE);
        let weight = match patch_kind(content_type, resource.is_custom()) {
            // One operation goes through a whole list, or makes an object as long as it may be.
            Ok(PatchKind::Json) if info.verb == "patch" => 16,
            _ if content_type.contains("yaml") => 4,
            _ => 1,
        };
        let answer = body.len() + stored.map_or(0, |stored| stored.json_len());
        let bytes = answer.saturating_mul(weight);
        let says_something = body.len() > 2;
        let cost = match Cost::of(bytes) {
            Cost::Cheap if says_something && resource.has_rules() => Cost::Dear,
            Cost::Cheap if is_lease(resource) => Cost::Lease,
            cost => cost,
        };
        Price {
            cost,
            bytes,
            answer,
        }
    }

    async fn turn(&self, cost: Cost) -> Option<Turn> {
        let shares = self.router.shares();
        shares.turn(self.caller, self.asked.connection, cost).await
    }

    fn registry(&self) -> &registry::Registry {
        &self.router.parts().registry
    }

    /// The reply for objects, with what tables show of them.
    fn shaped(&self) -> Result<Reply, ApiError> {
        let include = self.asked.query.get("includeObject").unwrap_or_default();
        let include = match self.asked.reply.accepted.shape {
            Shape::Table(_) => IncludeObject::parse(include).ok_or_else(|| {
                let error = FieldError::invalid(
                    "includeObject",
                    json!(include),
                    "must be 'Metadata', 'Object', 'None', or empty",
                );
                ApiError::bad_request(format!("Unable to convert to Table as requested: {error}"))
            })?,
            _ => IncludeObject::default(),
        };
        Ok(Reply {
            include,
            ..self.asked.reply
        })
    }

    /// Everything the registry wants to know; writes add their options.
    pub(super) fn context(&self) -> Context {
        Context {
            caller: self.caller.clone(),
            resource: self.resource.clone(),
            namespace: self.route.place.namespace().to_owned(),
            name: self.route.name.to_owned(),
            subresource: self.route.subresource.to_owned(),
            dry_run: false,
            field_manager: String::new(),
            field_validation: Default::default(),
            warnings: self.asked.warnings.clone(),
            holding: self.holding.clone(),
        }
    }

    fn write_context(
        &self,
        options_kind: &str,
        patch: Option<PatchKind>,
    ) -> Result<(Context, Option<bool>), ApiError> {
        let user_agent = self.asked.header(USER_AGENT);
        let options = write_options(options_kind, self.asked.query, user_agent, patch)?;
        let dry_run = &self.asked.kept.dry_run;
        dry_run.store(options.dry_run, Ordering::Relaxed);
        let context = Context {
            dry_run: options.dry_run,
            field_manager: options.field_manager,
            field_validation: options.field_validation,
            ..self.context()
        };
        Ok((context, options.force))
    }

    pub(super) fn body(&self, bytes: Bytes) -> Result<request::Body, ApiError> {
        let custom = self.resource.is_custom();
        let media = media_type(self.asked.header(CONTENT_TYPE), custom)?;
        Ok(request::Body { media, bytes })
    }

    fn outcome(&self, outcome: Outcome) -> Result<Response<Body>, ApiError> {
        let code = match outcome.effect {
            Effect::Created => StatusCode::CREATED,
            Effect::Changed => StatusCode::OK,
            Effect::Renewed | Effect::Nothing => {
                self.asked.kept.routine.store(true, Ordering::Relaxed);
                StatusCode::OK
            }
        };
        Ok(self.shaped()?.object(code, outcome.object, self.resource))
    }

    /// The reply for what no table shows.
    fn untabled(&self) -> Result<Reply, ApiError> {
        let accept = self.asked.header(ACCEPT);
        let user_agent = self.asked.header(USER_AGENT);
        let accepted = accepted_untabled(accept, self.asked.query, user_agent);
        Ok(Reply {
            accepted: accepted.ok_or_else(|| not_acceptable(accept, false))?,
            ..self.asked.reply
        })
    }

    fn review(&self, body: Bytes) -> Result<Response<Body>, ApiError> {
        let reply = self.untabled()?;
        let (context, _) = self.write_context("CreateOptions", None)?;
        let parts = self.router.parts();
        let handler = ReviewHandler {
            authorizer: &parts.authorizer,
            authenticator: &parts.authenticator,
            context: &context,
            kinds: self.registry().scheme(),
            now: self.asked.reply.now,
        };
        let (kind, route) = (&self.resource.plural, self.route);
        let body = self.body(body)?;
        let answer = handler.answer(kind, route.place.namespace(), route.name, &body)?;
        Ok(reply.answer(StatusCode::CREATED, answer))
    }

    async fn get(&self) -> Result<Response<Body>, ApiError> {
        let reply = self.shaped()?;
        let version = self.asked.query.get("resourceVersion").unwrap_or_default();
        let object = self.registry().get(&self.context(), version).await?;
        let cost = Cost::of(object.len());
        let _turn = self.turn(cost).await;
        Ok(cost.run(|| reply.object(StatusCode::OK, object, self.resource)))
    }

    async fn list(&self) -> Result<Response<Body>, ApiError> {
        let reply = self.shaped()?;
        let options = ListOptions::parse(self.asked.query.pairs())?;
        let (context, registry) = (self.context(), self.registry());
        // Whoever waits for a resourceVersion, or for a turn, keeps no thread meanwhile.
        let listing = registry.listing(&context, &options).await?;
        let cost = Cost::of(listing.size(DEAR));
        let _turn = self.turn(cost).await;
        Ok(cost.run(|| reply.list(&registry.listed(&context, &listing), self.resource)))
    }

    async fn watch(&self) -> Result<Response<Body>, ApiError> {
        let reply = self.shaped()?;
        // Events follow each other as lines, which YAML has no form for.
        if reply.accepted.format == Format::Yaml {
            return Err(ApiError::not_acceptable(&STREAMED));
        }
        let mut options = ListOptions::parse(self.asked.query.pairs())?;
        let mut context = self.context();
        if !self.route.name.is_empty() {
            // The old form of a watch of one object.
            let name = std::mem::take(&mut context.name);
            let selector = format!("metadata.name={name}");
            if !options.field_selector.is_empty() {
                options.field_selector.push(',');
            }
            options.field_selector.push_str(&selector);
        }
        let ticket = self.router.shares().watch(self.caller)?;
        let begun = self.registry().begin_watch(&context, &options).await?;
        let cost = match begun.size(DEAR) {
            0 => Cost::Nothing,
            size => Cost::of(size),
        };
        let turn = self.turn(cost).await;
        let frames = cost.run(|| begun.open());
        drop(turn);
        let standing = self.router.standing(self.asked, self.caller);
        let frames = super::standing::guarded(frames, standing);
        let end = self.router.end_of_watch(self.resource);
        Ok(super::watch::answer(
            frames,
            end,
            reply,
            self.resource.clone(),
            ticket,
            self.router.parts().clock.clone(),
        ))
    }

    async fn evict(&self, body: Bytes) -> Result<Response<Body>, ApiError> {
        let reply = self.untabled()?;
        let (context, _) = self.write_context("CreateOptions", None)?;
        let body = self.body(body)?;
        self.registry().evict(&context, &body).await?;
        let done = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
        Ok(reply.answer(StatusCode::CREATED, done))
    }

    async fn create(&self, body: Bytes) -> Result<Response<Body>, ApiError> {
        let (context, _) = self.write_context("CreateOptions", None)?;
        let body = self.body(body)?;
        let outcome = self.registry().create(&context, body).await?;
        self.outcome(outcome)
    }

    async fn update(&self, body: Bytes) -> Result<Response<Body>, ApiError> {
        if self.route.subresource == "finalize" {
            self.untabled()?;
        }
        let (context, _) = self.write_context("UpdateOptions", None)?;
        let body = self.body(body)?;
        let outcome = self.registry().update(&context, body).await?;
        self.outcome(outcome)
    }

    async fn patch(&self, body: Bytes) -> Result<Response<Body>, ApiError> {
        let custom = self.resource.is_custom();
        let kind = patch_kind(self.asked.header(CONTENT_TYPE), custom)?;
        let (context, force) = self.write_context("PatchOptions", Some(kind))?;
        let outcome = self.registry().patch(&context, kind, body, force).await?;
        self.outcome(outcome)
    }

    fn delete_options(&self, body: Bytes) -> Result<(Context, DeleteOptions), ApiError> {
        let body = if body.is_empty() {
            None
        } else {
            // Options of deletions are a built-in kind, whatever is deleted.
            let media = media_type(self.asked.header(CONTENT_TYPE), false)?;
            Some(request::Body { media, bytes: body })
        };
        let options = DeleteOptions::parse(self.asked.query.pairs(), body.as_ref())?;
        let dry_run = &self.asked.kept.dry_run;
        dry_run.store(options.dry_run, Ordering::Relaxed);
        let context = Context {
            dry_run: options.dry_run,
            ..self.context()
        };
        Ok((context, options))
    }

    async fn delete(&self, body: Bytes) -> Result<Response<Body>, ApiError> {
        let (context, options) = self.delete_options(body)?;
        let deleted = self.registry().delete(&context, options).await?;
        let code = StatusCode::from_u16(deleted.code).unwrap_or(StatusCode::OK);
        let reply = if deleted.is_status {
            self.asked.plain
        } else {
            self.shaped()?
        };
        Ok(reply.object(code, deleted.body, self.resource))
    }

    async fn delete_collection(&self, body: Bytes) -> Result<Response<Body>, ApiError> {
        let selected = ListOptions::parse(self.asked.query.pairs())?;
        let registry = self.registry();
        // Whoever waits for a resourceVersion has no turn and keeps no thread meanwhile.
        let listing = registry.listing(&self.context(), &selected).await?;
        let whole = Cost::of(body.len().saturating_mul(4) + listing.size(DEAR));
        let turn = self.turn(whole).await;
        let (context, options, page) = whole.run(|| {
            let (context, options) = self.delete_options(body)?;
            Ok::<_, ApiError>((context, options, registry.page(&listing)))
        })?;
        drop((turn, listing));
        let _room = self.router.shares().room(self.caller, page.size())?;
        for stored in &page.objects {
            // Each of them is as dear as a deletion by itself, and others may have their turn in between.
            let cost = Cost::of(stored.json_len());
            let turn = self.turn(cost).await;
            if cost == Cost::Dear {
                all_aside(registry.delete_selected(&context, &options, stored)).await?;
                drop(turn);
            } else {
                let holding = turn.into();
                let context = Context {
                    holding,
                    ..context.clone()
                };
                registry.delete_selected(&context, &options, stored).await?;
            }
        }
        // All is deleted: nobody waits again for the word of it.
        let reply = self.shaped()?;
        Ok(whole.run(|| reply.list(&registry.deleted(&context, &page), self.resource)))
    }
}

/// What carrying a request out may cost, and others with it.
pub(super) struct Price {
    pub(super) cost: Cost,
    /// What it was priced by; from [`DEAR`] on it has its turn to the end.
    pub(super) bytes: usize,
    /// How long the answer may be, about.
    pub(super) answer: usize,
}

fn is_lease(resource: &Resource) -> bool {
    (resource.group.as_ref(), resource.plural.as_ref()) == ("coordination.k8s.io", "leases")
}

/// What is said of a path or a method that a kind does not have.
pub(super) fn misplaced(
    asked: &Asked<'_>,
    resource: &Resource,
    why: Misplaced,
) -> Result<Response<Body>, ApiError> {
    let info = asked.info;
    match (why, resource.is_custom()) {
        (Misplaced::Path, true) => Ok(not_found()),
        (Misplaced::Subresource, true) => {
            Err(ApiError::not_found(&resource.group_resource(), &info.name))
        }
        (Misplaced::Path | Misplaced::Subresource, false) => Err(ApiError::no_such_path()),
        (Misplaced::Method, true) => {
            let on = resource.group_resource();
            Ok(asked
                .plain
                .error(&ApiError::method_not_allowed(&on, &info.verb)))
        }
        (Misplaced::Method, false) => Ok(method_not_allowed(&asked.plain)),
    }
}
