//! A stage that carries requests out: a verb on objects, whose body is read whole and whose answer is one.

use super::super::body::Incoming;
use super::super::negotiate;
use super::super::respond::{self, Body};
use super::super::route;
use super::super::turns::{Cost, DEAR, all_aside};
use super::super::verbs::{self, Call, Price};
use super::{Admitted, Asked, READS, Router};
use crate::apiserver::caller::Caller;
use crate::apiserver::error::ApiError;
use crate::apiserver::request::Holding;
use bytes::Bytes;
use http::Response;
use http::header::ACCEPT;
use std::sync::Arc;

impl Router {
    pub(super) async fn object<B: Incoming>(
        &self,
        Admitted {
            asked,
            caller,
            tickets,
            body,
        }: Admitted<'_, B>,
    ) -> Result<Response<Body>, ApiError> {
        let answered = async {
            let body = asked.whole(body).await?;
            self.call(asked, caller, body).await
        };
        let response = asked.within(answered).await?;
        self.sent(response, asked, caller, tickets)
    }

    /// Carries a verb out.
    pub(super) async fn call(
        &self,
        asked: &Asked<'_>,
        caller: &Arc<Caller>,
        body: Bytes,
    ) -> Result<Response<Body>, ApiError> {
        let info = asked.info;
        let accept = asked.header(ACCEPT);
        let collection = READS[1..].contains(&info.verb.as_str());
        if !asked.acceptable {
            return Err(negotiate::not_acceptable(accept, collection));
        }
        let found = self
            .parts
            .scheme
            .resource(&info.group, &info.version, &info.resource);
        let Some(resource) = found else {
            return Ok(self.no_such_kind(asked));
        };
        // A path of a built-in kind is found by the types that it writes, as they are named.
        if !resource.is_custom() && !negotiate::is_routed(accept) {
            return Err(negotiate::not_acceptable(accept, collection));
        }
        let route = match route::route(info, asked.method, &resource) {
            Ok(route) => route,
            Err(why) => return verbs::misplaced(asked, &resource, why),
        };
        let mut call = Call {
            router: self,
            asked,
            caller,
            resource: &resource,
            route,
            holding: Holding::default(),
        };
        let Price {
            cost,
            bytes,
            answer,
        } = call.price(&body);
        let _room = self.shares.room(caller, answer)?;
        let turn = self.shares.turn(caller, asked.connection, cost).await;
        if bytes < DEAR {
            call.holding = turn.into();
            return match cost {
                Cost::Dear => all_aside(call.run(body)).await,
                _ => call.run(body).await,
            };
        }
        // What was dear once is dear again when somebody else was faster: it has its turn to the end.
        let answered = all_aside(call.run(body)).await;
        drop(turn);
        answered
    }

    /// Within a group of Kubernetes the answer is an error object, elsewhere a page.
    fn no_such_kind(&self, asked: &Asked<'_>) -> Response<Body> {
        let snapshot = self.parts.scheme.snapshot();
        let known = snapshot
            .all()
            .iter()
            .any(|kind| *kind.group == asked.info.group && !kind.is_custom());
        if known {
            asked.reply.error(&ApiError::no_such_path())
        } else {
            respond::not_found()
        }
    }
}
