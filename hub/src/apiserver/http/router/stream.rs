//! A stage that carries requests out: streams, which go on once they have begun. Only the beginning has the
//! limit of a request, and its connection may be taken over.

use super::super::body::Incoming;
use super::super::respond::Body;
use super::super::websocket;
use super::{Admitted, Router};
use crate::access::Upgrade;
use crate::apiserver::error::ApiError;
use http::Response;

impl Router {
    /// Begins a watch, over a WebSocket where one is wanted, on this connection if it can be taken over. It is counted by itself, and is no longer under
    /// way once it has begun.
    pub(super) async fn stream<B: Incoming>(
        &self,
        Admitted {
            asked,
            caller,
            tickets,
            body,
        }: Admitted<'_, B>,
        socket: Option<Option<Upgrade>>,
    ) -> Result<Response<Body>, ApiError> {
        let begun = async {
            let body = asked.whole(body).await?;
            self.call(asked, caller, body).await
        };
        let response = asked.within(begun).await;
        drop(tickets);
        Ok(match socket {
            Some(upgrade) => websocket::switched(response?, asked.headers, upgrade),
            None => response?,
        })
    }
}
