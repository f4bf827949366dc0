//! Requests for objects: from the verb to the registry and back.

use super::metrics::Answered;
use super::negotiate::{Format, STREAMED, Shape, media_type, patch_kind, write_options};
use super::respond::{Body, Reply};
use super::router::{Asked, Router, method_not_allowed};
use crate::apiserver::caller::Caller;
use crate::apiserver::catalogue::Resource;
use crate::apiserver::error::{ApiError, FieldError};
use crate::apiserver::registry::{
    self, Context, DeleteOptions, Effect, ListOptions, Outcome, PatchKind,
};
use crate::apiserver::reviews::{self, Desk};
use crate::apiserver::table::IncludeObject;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{Method, Response, StatusCode};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A request for objects of one kind.
pub(super) struct Call<'a> {
    pub(super) router: &'a Router,
    pub(super) asked: &'a Asked<'a>,
    pub(super) caller: &'a Arc<Caller>,
    pub(super) resource: &'a Arc<Resource>,
}

impl Call<'_> {
    pub(super) async fn run(&self, body: Bytes) -> Result<Response<Body>, ApiError> {
        if let Some(answer) = self.misplaced() {
            return answer;
        }
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
        if reviews::is_review(&info.group, &info.resource, &info.subresource) {
            return self.review(body);
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
            _ => Ok(self.wrong_method()),
        }
    }

    fn registry(&self) -> &registry::Registry {
        &self.router.parts().registry
    }

    /// Paths and methods that this kind does not have.
    fn misplaced(&self) -> Option<Result<Response<Body>, ApiError>> {
        let (info, resource) = (self.asked.info, self.resource);
        let has = |verbs: &[Arc<str>]| verbs.iter().any(|verb| **verb == *info.verb);
        let in_namespace = !info.namespace.is_empty() && &*resource.plural != "namespaces"
            || info.resource != *resource.plural;
        let collection = matches!(info.verb.as_str(), "list" | "watch");
        // One object of a kind in namespaces has a namespace; so has what is written.
        let homeless = resource.namespaced && info.namespace.is_empty() && !collection;
        let named = ["get", "update", "patch", "delete"];
        // A built-in kind has a path for a name where something can be done with one object of it.
        let pathless = info.name_in_path
            && info.subresource.is_empty()
            && (homeless || !resource.verbs.iter().any(|verb| named.contains(&&**verb)));
        if info.has_rest
            || pathless
            || in_namespace && !resource.namespaced
            || homeless && resource.is_custom()
        {
            return Some(if resource.is_custom() {
                Ok(super::respond::not_found())
            } else {
                Err(ApiError::no_such_path())
            });
        }
        if !info.subresource.is_empty() {
            let Some(subresource) = resource.subresource(&info.subresource) else {
                return Some(Err(if resource.is_custom() {
                    ApiError::not_found(&resource.group_resource(), &info.name)
                } else {
                    ApiError::no_such_path()
                }));
            };
            return (!has(&subresource.verbs)).then(|| Ok(self.wrong_method()));
        }
        let on_name = matches!(info.verb.as_str(), "get" | "update" | "patch" | "delete");
        let fits = has(&resource.verbs)
            && !homeless
            && (on_name == info.name_in_path || info.verb == "watch")
            // The old form of a watch says it in the path, whatever the method.
            && (!collection || matches!(*self.asked.method, Method::GET | Method::HEAD));
        // Built-in kinds have no route for HEAD.
        let head = *self.asked.method == Method::HEAD && !resource.is_custom();
        (!fits || head).then(|| Ok(self.wrong_method()))
    }

    fn wrong_method(&self) -> Response<Body> {
        let reply = self.plain();
        if self.resource.is_custom() {
            let on = self.resource.group_resource();
            return reply.error(&ApiError::method_not_allowed(&on, &self.asked.info.verb));
        }
        method_not_allowed(&reply)
    }

    /// The reply for what is no object.
    fn plain(&self) -> Reply {
        let mut reply = self.asked.reply;
        reply.accepted.shape = Default::default();
        reply
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
        let info = self.asked.info;
        Context {
            caller: self.caller.clone(),
            resource: self.resource.clone(),
            namespace: if self.resource.namespaced {
                info.namespace.clone()
            } else {
                String::new()
            },
            name: if info.name_in_path {
                info.name.clone()
            } else {
                String::new()
            },
            subresource: info.subresource.clone(),
            dry_run: false,
            field_manager: String::new(),
            field_validation: Default::default(),
            warnings: self.asked.warnings.clone(),
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

    pub(super) fn body(&self, bytes: Bytes) -> Result<registry::Body, ApiError> {
        let custom = self.resource.is_custom();
        let media = media_type(self.asked.header(CONTENT_TYPE), custom)?;
        Ok(registry::Body { media, bytes })
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

    fn review(&self, body: Bytes) -> Result<Response<Body>, ApiError> {
        let (context, _) = self.write_context("CreateOptions", None)?;
        let parts = self.router.parts();
        let desk = Desk {
            authorizer: &parts.authorizer,
            authenticator: &parts.authenticator,
            context: &context,
            kinds: self.registry().catalogue(),
            now: self.asked.reply.now,
        };
        let info = self.asked.info;
        let body = self.body(body)?;
        let answer = desk.answer(&info.resource, &info.namespace, &info.name, &body)?;
        Ok(self.plain().value(StatusCode::CREATED, &answer))
    }

    async fn get(&self) -> Result<Response<Body>, ApiError> {
        let reply = self.shaped()?;
        let version = self.asked.query.get("resourceVersion").unwrap_or_default();
        let object = self.registry().get(&self.context(), version).await?;
        Ok(reply.object(StatusCode::OK, object, self.resource))
    }

    async fn list(&self) -> Result<Response<Body>, ApiError> {
        let reply = self.shaped()?;
        let options = ListOptions::parse(self.asked.query.pairs())?;
        let turn = self.router.shares().turn(self.caller);
        let context = self.context();
        let listed = self.registry().list_at(&context, &options, turn);
        // Its turn is over when all of it is encoded.
        let (list, _turn) = listed.await?;
        Ok(reply.list(&list, self.resource))
    }

    async fn watch(&self) -> Result<Response<Body>, ApiError> {
        let reply = self.shaped()?;
        // Events follow each other as lines, which YAML has no form for.
        if reply.accepted.format == Format::Yaml {
            return Err(ApiError::not_acceptable(&STREAMED));
        }
        let mut options = ListOptions::parse(self.asked.query.pairs())?;
        let mut context = self.context();
        if self.asked.info.name_in_path {
            // The old form of a watch of one object.
            let name = std::mem::take(&mut context.name);
            let selector = format!("metadata.name={name}");
            if !options.field_selector.is_empty() {
                options.field_selector.push(',');
            }
            options.field_selector.push_str(&selector);
        }
        let ticket = self.router.shares().watch(self.caller)?;
        let frames = self.registry().watch(&context, &options).await?;
        let end = self
            .router
            .end_of_watch(self.asked, self.caller, self.resource);
        Ok(super::watch::answer(
            frames,
            end,
            reply,
            self.resource.clone(),
            ticket,
        ))
    }

    async fn create(&self, body: Bytes) -> Result<Response<Body>, ApiError> {
        let (context, _) = self.write_context("CreateOptions", None)?;
        let body = self.body(body)?;
        let outcome = self.registry().create(&context, body).await?;
        self.outcome(outcome)
    }

    async fn update(&self, body: Bytes) -> Result<Response<Body>, ApiError> {
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
            Some(registry::Body { media, bytes: body })
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
            self.plain()
        } else {
            self.shaped()?
        };
        Ok(reply.object(code, deleted.body, self.resource))
    }

    async fn delete_collection(&self, body: Bytes) -> Result<Response<Body>, ApiError> {
        let (context, options) = self.delete_options(body)?;
        let selected = ListOptions::parse(self.asked.query.pairs())?;
        let registry = self.registry();
        let list = registry
            .delete_collection(&context, options, &selected)
            .await?;
        Ok(self.shaped()?.list(&list, self.resource))
    }
}
