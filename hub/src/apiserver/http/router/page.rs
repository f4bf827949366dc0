//! A stage that carries requests out: pages, which are no objects, and the backup.

use super::super::body::Incoming;
use super::super::respond::Body;
use super::super::{backup, pages};
use super::{Admitted, Router};
use crate::apiserver::backup::PAGE;
use crate::apiserver::error::ApiError;
use http::Response;

impl Router {
    pub(super) async fn page<B: Incoming>(
        &self,
        Admitted {
            asked,
            caller,
            tickets,
            body,
        }: Admitted<'_, B>,
    ) -> Result<Response<Body>, ApiError> {
        let answered = async {
            // No page reads it; who sends one that is too long is told so.
            asked.whole(body).await?;
            if asked.info.path == PAGE {
                return backup::answer(&self.parts, asked).await;
            }
            let cost = pages::cost(&asked.info.path);
            let _turn = self.shares.turn(caller, asked.connection, cost).await;
            Ok(self.page_of(asked))
        };
        let response = asked.within(answered).await?;
        self.sent(response, asked, caller, tickets)
    }
}
